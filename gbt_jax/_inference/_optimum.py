"""The certified, differentiable optimum as a pure function of model and comparisons."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from .._data._comparisons import Comparisons
from .._data._partition import ONE, AbstractPartition
from .._model import Model, per_item
from ..solvers._implicit import implicit_minimiser
from ..solvers._newton import Problem, Projection
from ..solvers._solvers import AbstractSolver
from ._certify import certify, prior_variance
from ._gauge import AbstractGauge, find_gauge
from ._objective import (
    dense_hessian,
    evaluate,
    gradient,
    hessian_product,
    losses,
    refine,
)
from ._results import RESULTS
from ._validity import invalid_rows


class Known(NamedTuple):
    """Facts about a problem known before compilation: hashable, and safe to leave False."""

    is_regularised: bool = False  # the prior determines every level (`_gauge.is_regularised`)
    is_connected: bool = False  # comparisons connect all items
    # Use the quick certificate; `is_certified`, a separate program, has the full one.
    is_quick: bool = False
    is_padded: bool = False  # the last rows have weight 0

    def find_gauge(
        self, model: Model, comparisons: Comparisons, partition: AbstractPartition = ONE
    ) -> AbstractGauge:
        """The gauge of the problem, using these facts."""
        return find_gauge(
            model,
            comparisons,
            partition,
            is_regularised=self.is_regularised,
            is_connected=self.is_connected,
        )


class Optimum(NamedTuple):
    """Scores, and the statistics of each problem."""

    scores: Array
    error_bound: Array
    gradient_norm: Array
    result_code: Array
    newton_steps: Array
    inner_steps: Array


def find_optimum(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    tolerances: Array | None,
    *,
    solver: AbstractSolver,
    max_steps: int,
    known: Known,
    partition: AbstractPartition = ONE,
) -> Optimum:
    """Solve from the better of the prior mean and the initial scores, and certify the result.

    `tolerances` are (rtol, atol) of the error bound; None iterates to machine precision. Problems
    with invalid rows are solved without comparisons and get NaN.
    """
    is_bad = _is_invalid(model, comparisons, partition)
    comparisons = _without_rows(comparisons, is_bad, partition)
    gauge = known.find_gauge(model, comparisons, partition)
    mean, precision = model.prior(comparisons, comparisons.value.dtype)
    # The solver works on scores minus their common level, to avoid cancellation.
    relative = eqx.tree_at(lambda model: model.prior_mean, model, mean - gauge.level)
    start = gauge.centre_relative(jnp.where(precision > 0, relative.prior_mean, 0))
    if initial is not None:
        warm = gauge.centre_relative(initial - gauge.level)
        is_better = jnp.less(*(losses(relative, comparisons, x, partition) for x in (warm, start)))
        start = jnp.where(partition.spread(is_better), warm, start)

    def allowed_error(x: Array) -> Array:
        assert tolerances is not None
        return tolerances[1] + tolerances[0] * jnp.sqrt(partition.inner(x, x))

    def is_close(x: Array, norm: Array) -> Array:
        """Whether the error bound meets the tolerances; certified only if the gradient may."""
        if tolerances is None:
            return jnp.asarray(False)
        x = x + gauge.level
        variance = prior_variance(model, comparisons, x.dtype, partition)
        may_be = variance * norm <= allowed_error(x)
        bound = lax.cond(
            jnp.any(may_be),
            lambda: certify(model, comparisons, x, gauge, partition, is_quick=True).error_bound,
            lambda: jnp.full_like(norm, jnp.inf),
        )
        return may_be & (bound <= allowed_error(x))

    num_used = None
    if known.is_padded:
        numbers = jnp.arange(1, len(comparisons) + 1, dtype=jnp.int32)
        num_used = jnp.max(jnp.where(comparisons.weight > 0, numbers, 0), initial=0)
    # Padding is at its optimum from the start: a solver of one problem need not mask it.
    whole = partition if partition.shape else ONE
    outcome = solver.minimise(
        problem(relative, comparisons, gauge, whole, num_used=num_used),
        start,
        is_close=is_close,
        max_steps=max_steps,
    )
    x = gauge.centre_relative(outcome.x)
    # An item without comparisons has the prior mean as its score, to the last bit.
    scores = jnp.where(x == relative.prior_mean, mean, x + gauge.level)
    verdict = certify(model, comparisons, scores, gauge, partition, is_quick=known.is_quick)
    is_right, bound = verdict.is_certified, verdict.error_bound
    if tolerances is not None:
        is_right |= (bound <= allowed_error(scores)) & jnp.isfinite(bound)
    code = _result_code(is_right, outcome.converged, verdict.gradient_norm, is_bad)
    return Optimum(
        scores=jnp.where(partition.spread(is_bad), jnp.nan, scores),
        error_bound=jnp.where(is_bad, jnp.inf, bound),
        gradient_norm=jnp.where(is_bad, jnp.nan, verdict.gradient_norm),
        result_code=code,
        newton_steps=outcome.newton_steps,
        inner_steps=outcome.inner_steps,
    )


@functools.partial(jax.jit, static_argnames=("known",))
def is_certified(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    partition: AbstractPartition,
    *,
    known: Known,
) -> Array:
    """The full certificate, for scores that the quick one did not certify."""
    # Rows of weight 0 may have any value.
    comparisons = _without_rows(comparisons, jnp.asarray(False), partition)
    gauge = known.find_gauge(model, comparisons, partition)
    return certify(model, comparisons, scores, gauge, partition).is_certified


def _result_code(is_right: Array, has_ended: Array, norm: Array, is_bad: Array) -> Array:
    """The code in `RESULTS`: success if certified, otherwise the reason of the failure."""
    failure = jnp.where(has_ended, RESULTS.precision_lost.code, RESULTS.max_steps_reached.code)
    code = jnp.where(is_right, RESULTS.successful.code, failure)
    code = jnp.where(jnp.isfinite(norm), code, RESULTS.non_finite.code)
    return jnp.where(is_bad, RESULTS.invalid_data.code, code).astype(jnp.int32)


def problem(
    model: Model,
    comparisons: Comparisons,
    gauge: AbstractGauge,
    partition: AbstractPartition = ONE,
    *,
    num_used: Array | None = None,
) -> Problem:
    """The `Problem` of a model and comparisons, for a solver."""
    return Problem(
        functools.partial(evaluate, model, comparisons, partition=partition),
        functools.partial(refine, model, comparisons, partition=partition),
        functools.partial(losses, model, comparisons, partition=partition),
        functools.partial(
            hessian_product, model, comparisons, partition=partition, num_used=num_used
        ),
        lambda point: gauge.fill(dense_hessian(comparisons, point)),
        partition,
        Projection(
            gauge.skip_if_regularised(gauge.project_direction),
            gauge.skip_if_regularised(gauge.project_residual),
        ),
    )


def _is_invalid(model: Model, comparisons: Comparisons, partition: AbstractPartition) -> Array:
    """Whether a problem has an invalid row or prior, possible with groups and under tracing."""
    a, b, size = comparisons.a, comparisons.b, comparisons.num_items
    is_bad = invalid_rows(
        model.law, a, b, comparisons.value, comparisons.weight, is_merged=comparisons.is_merged
    )
    is_bad |= (jnp.minimum(a, b) < 0) | (jnp.maximum(a, b) >= size)
    std = per_item(model.prior_std, comparisons)
    no_std = partition.largest((~(std > 0)).astype(jnp.int32))
    return jnp.maximum(partition.at(a).largest(is_bad.astype(jnp.int32)), no_std) > 0


def _without_rows(
    comparisons: Comparisons, is_bad: Array, partition: AbstractPartition
) -> Comparisons:
    """Weight 0 for the rows of invalid problems; rows of weight 0 cannot give NaN.

    Their value may be NaN, and their law may overflow between items with very different scores. So
    they have the value 0 and compare an item with itself.
    """
    stays = ~partition.at(comparisons.a).spread(is_bad)
    weight = jnp.where(stays, comparisons.weight, 0)
    counts = weight > 0
    b = jnp.where(counts, comparisons.b, comparisons.a)
    value = jnp.where(counts, comparisons.value, 0)
    columns = b, value, weight
    return eqx.tree_at(lambda rows: (rows.b, rows.value, rows.weight), comparisons, columns)


@functools.partial(jax.jit, static_argnames=("max_steps", "solver", "known"))
def differentiable_optimum(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    tolerances: Array | None,
    partition: AbstractPartition = ONE,
    *,
    solver: AbstractSolver,
    max_steps: int,
    known: Known,
) -> Optimum:
    """`find_optimum`, with derivatives of the scores in model and comparisons."""

    # All traced values are parameters: the rule must not close over them.
    def minimise(parameters) -> tuple[Array, Optimum]:
        model, comparisons, initial, tolerances, partition = parameters
        found = find_optimum(
            model,
            comparisons,
            initial,
            tolerances,
            solver=solver,
            max_steps=max_steps,
            known=known,
            partition=partition,
        )
        return found.scores, found

    def slope(parameters, scores: Array) -> Array:
        model, comparisons, *_ = parameters
        return gradient(model, comparisons, scores)

    def solve(parameters, scores: Array, rhs: Array) -> Array:
        """N @ rhs, without the levels of components that the gauge fixes."""
        model, comparisons, *_, partition = parameters
        gauge = known.find_gauge(model, comparisons, partition)
        here = problem(model, comparisons, gauge, partition)
        point = here.evaluate(scores)
        product = functools.partial(here.product, point.curvature)
        solved = lax.custom_linear_solve(
            product,
            gauge.project_residual(rhs),
            lambda _, b: solver.solve_linear(here, point, b),
            symmetric=True,
        )
        return gauge.project_direction(solved)

    def centre(parameters, scores: Array) -> Array:
        model, comparisons, *_, partition = parameters
        gauge = known.find_gauge(model, comparisons, partition)
        return gauge.centre(scores)

    parameters = (model, comparisons, initial, tolerances, partition)
    scores, found = implicit_minimiser(minimise, slope, solve, centre)(parameters)
    return found._replace(scores=scores)


def map_optimum(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    partition: AbstractPartition = ONE,
    *,
    solver: AbstractSolver,
    max_steps: int,
    known: Known,
) -> Array:
    """The optimal scores, with derivatives; NaN where they were not found."""
    found = differentiable_optimum(
        model,
        comparisons,
        initial,
        None,
        partition,
        solver=solver,
        max_steps=max_steps,
        known=known,
    )
    # A factor instead of `where`, so that derivatives are NaN too.
    is_found = found.result_code == RESULTS.successful.code
    return found.scores * jnp.where(partition.spread(is_found), 1, jnp.nan).astype(
        found.scores.dtype
    )
