"""The optimum as a pure function of model and comparisons: found by a solver, differentiable."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _graph
from ._comparisons import Comparisons
from ._implicit import implicit_minimiser
from ._model import Model
from ._newton import Problem, Solution
from ._objective import (
    dense_hessian,
    evaluate,
    gradient,
    hessian_product,
    interleaved,
    losses,
    negative_log_posterior,
    rounding,
)
from ._partition import ONE, AbstractPartition
from ._solvers import AbstractSolver
from .laws import AbstractRootLaw


def problem(model: Model, comparisons: Comparisons, partition: AbstractPartition = ONE) -> Problem:
    """What a solver sees of a model and comparisons."""
    return Problem(
        functools.partial(evaluate, model, comparisons, partition=partition),
        functools.partial(rounding, model, comparisons, partition=partition),
        functools.partial(losses, model, comparisons, partition=partition),
        functools.partial(hessian_product, model, comparisons),
        functools.partial(dense_hessian, comparisons),
        partition,
    )


def solve(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    tolerances: Array | None,
    *,
    solver: AbstractSolver,
    max_steps: int,
    partition: AbstractPartition = ONE,
) -> Solution:
    """The solver's outcome from the better of the prior mean and the initial scores.

    `tolerances` are (rtol, atol) of the error bound; None asks for rounding level.
    """
    if partition is ONE:  # elsewhere rows are in the order of their problems
        comparisons = interleaved(comparisons)
    mean, precision = model.prior(comparisons.num_items, comparisons.value.dtype)
    start = jnp.where(precision > 0, mean, 0)
    if initial is not None:
        warm, cold = (negative_log_posterior(model, comparisons, x) for x in (initial, start))
        start = jnp.where(warm < cold, initial, start)

    def is_close(x: Array, norm: Array) -> Array:
        if tolerances is None:
            return jnp.asarray(False)
        allowed = tolerances[1] + tolerances[0] * jnp.sqrt(partition.total(x * x))
        return error_bound(model, comparisons, norm, partition) <= allowed

    return solver.minimise(
        problem(model, comparisons, partition), start, is_close=is_close, max_steps=max_steps
    )


def refused(law: AbstractRootLaw, comparisons: Comparisons) -> Comparisons:
    """Values that the law cannot produce have no loss: their weight, and what is found, is NaN."""
    weight = jnp.where(is_outside(law, comparisons), jnp.nan, comparisons.weight)
    return eqx.tree_at(lambda rows: rows.weight, comparisons, weight)


def is_outside(law: AbstractRootLaw, comparisons: Comparisons) -> Array:
    """Rows that count, with a value that the law cannot produce."""
    value = comparisons.value
    if comparisons.is_merged:  # averages of values: inside their interval
        edge = jnp.asarray(law.max_value, value.dtype)
        inside = jnp.abs(value) <= edge * (1 + 32 * jnp.finfo(value.dtype).eps)
    else:
        inside = law.in_support(value)
    return ~inside & (comparisons.weight > 0)


def refuse_outside(law: AbstractRootLaw, comparisons: Comparisons, name: str = "") -> None:
    """Raise for the first row with a value that the law cannot produce, if there is one."""
    rows = np.flatnonzero(is_outside(law, comparisons))
    if not rows.size:
        return
    row = int(rows[0])
    edge = float(law.max_value)
    grid = ", on a grid: see its `nearest`" if law.is_discrete else ""
    raise ValueError(
        f"{name}value[{row}] is {comparisons.value[row]:g} (item {comparisons.a[row]} against "
        f"{comparisons.b[row]}), which {type(law).__name__} cannot produce: its values lie in "
        f"[−{edge:g}, {edge:g}]{grid}"
    )


def error_bound(
    model: Model, comparisons: Comparisons, norm: Array, partition: AbstractPartition = ONE
) -> Array:
    """σ²‖∇L‖ ≥ ‖θ − θ*‖₂, with the largest σ of the problem; inf without a prior."""
    std = model.prior_std.astype(norm.dtype)
    if std.ndim:
        std = partition.largest(jnp.broadcast_to(std, (comparisons.num_items,)))
    return jnp.where(jnp.isinf(std), jnp.inf, jnp.square(std) * norm)


@functools.partial(jax.jit, static_argnames=("max_steps", "solver", "is_held"))
def implicit_scores(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    partition: AbstractPartition = ONE,
    *,
    solver: AbstractSolver,
    max_steps: int,
    is_held: bool,
) -> Array:
    """The optimal scores with their derivatives; NaN where they were not found.

    `is_held` says that the prior is known to hold all scores (`_graph.is_held`).
    """

    # Everything traced is a parameter: the rule must not close over it.
    def found(parameters) -> Array:
        model, comparisons, initial, partition = parameters
        outcome = solve(
            model,
            refused(model.law, comparisons),
            initial,
            None,
            solver=solver,
            max_steps=max_steps,
            partition=partition,
        )
        converged = outcome.converged
        if not is_held:
            converged &= ~_graph.released(model, comparisons, outcome.x, partition)[1]
        return jnp.where(partition.spread(converged), outcome.x, jnp.nan)

    def slope(parameters, scores: Array) -> Array:
        model, comparisons, _, _ = parameters
        return gradient(model, comparisons, scores)

    def hessian(parameters, scores: Array):
        model, comparisons, _, partition = parameters
        here = problem(model, comparisons, partition)
        point = here.evaluate(scores)
        product = functools.partial(here.product, point.curvature)
        return product, functools.partial(solver.solve_linear, here, point)

    parameters = (model, comparisons, initial, partition)
    scores = implicit_minimiser(found, slope, hessian)(parameters)
    return scores if is_held else _graph.released(model, comparisons, scores, partition)[0]
