"""`fit` and `map_scores`: the unique optimum of a model on comparisons, of every group."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Float

from .._data._comparisons import Comparisons
from .._data._groups import sort_by_group
from .._data._partition import AbstractPartition, Leading
from .._model import Model
from .._util._arrays import (
    ArrayLike,
    as_array,
    eager_constants,
    floating,
    is_concrete,
    whole_number,
)
from .._util._compilation import quick_options
from .._util._limits import DENSE_FIT_ITEMS
from ..solvers._solvers import AbstractSolver, NewtonCG, NewtonCholesky
from ._batch import Answer, fit_groups
from ._existence import Unbounded, may_be_unbounded, unbounded_items
from ._fit import Fit, FitError, Stats, explain, fit_of_group
from ._gauge import is_regularised
from ._ladder import pad
from ._optimum import Known, differentiable_optimum, is_certified, map_optimum
from ._results import RESULTS, Result
from ._validity import refuse_outside

MAX_STEPS = 256


def fit(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = MAX_STEPS,
    throw: bool | None = None,
    progress: bool = False,
    sharding: Mesh | NamedSharding | None = None,
) -> Fit:
    """The maximum a posteriori scores: argmin L(θ), of every group.

    **Arguments:**

    - `model`, `comparisons`: the model and the data.
    - `solver`: `solvers.NewtonCG()`, `NewtonCholesky()` or `LBFGS()`; chosen by size by default.
      `NewtonCG` fits packed groups together, the other solvers fit them one by one.
    - `initial`: scores to start from, used if they are better than the prior mean and the fit
      from there succeeds.
    - `rtol`, `atol`: stop when the error bound is below atol + rtol‖θ‖. By default the iterations
      continue to machine precision.
    - `max_steps`: how many Newton steps at most.
    - `throw`: raise `FitError` if the fit, or that of any group, fails. By default a single fit
      raises, and with groups failures are returned: see `Fit.result` and `Fit.failures`. Under
      `jit`, `vmap` or `grad` nothing can be raised: pass `throw=False` and check `Fit.result`, or
      use `map_scores`.
    - `progress`: show a progress bar on a terminal while groups are fitted.
    - `sharding`: a `Mesh`, of any axes, or a `NamedSharding`; groups are distributed over its
      devices.

    **Returns:** a `Fit`. Without comparisons the scores are the prior mean. A value outside the
    law's support raises an error with its row; with groups it is a failure of its group. The scores
    of a group do not depend on other groups. Derivatives of the scores are those of the optimum, as
    in `map_scores`; the other fields have derivative 0.
    """
    _check_problem(model, comparisons)
    is_known = is_concrete(model, comparisons, initial)
    has_groups = comparisons.num_groups is not None
    throw = not has_groups if throw is None else throw
    if throw and not is_known:
        raise ValueError(
            "fit cannot raise on failure under a JAX transformation (jit, vmap, grad): pass "
            "throw=False and check result, or use map_scores, which gives NaN on failure"
        )
    if sharding is not None and not has_groups:
        raise ValueError("sharding spreads groups over devices, and these comparisons have none")
    start = None if initial is None else _check_initial(initial, comparisons)
    tolerances = as_tolerances(rtol, atol, comparisons.value.dtype)
    options = _solver_options(solver, max_steps, comparisons)
    if not is_known:
        columns = model, comparisons, start, tolerances, comparisons.partition
        found = _program(*columns, known=Known(), **options)
        return _as_fit(found, model, comparisons)
    # Inside a user's jit or scan, a fit of constants is evaluated eagerly.
    with eager_constants():
        solve = _fit_one
        if has_groups and isinstance(options["solver"], NewtonCG):
            solve = functools.partial(fit_groups, progress=progress, sharding=sharding)
        elif has_groups:
            solve = _fit_one_by_one
        found = solve(model, comparisons, start, tolerances, **options)
        has_failed = np.asarray(found.result_code) != RESULTS.successful.code
        if start is not None and has_failed.any():
            # Start again: far from the optimum rows are saturated, and their curvature vanishes.
            again = solve(model, comparisons, None, tolerances, **options)
            found = _choose(has_failed, again, found, comparisons.partition)
        fitted = _as_fit(found, model, comparisons)
        if not np.all(fitted.result == RESULTS.successful):
            if not has_groups:
                refuse_outside(model.law, comparisons)
            if throw:
                raise FitError(explain(fitted), fitted)
    return fitted


def map_scores(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    max_steps: int = MAX_STEPS,
) -> Float[Array, " items"]:
    """The maximum a posteriori scores as a function for JAX: jit, vmap and differentiate it.

    It has derivatives of any order, forward and reverse, with respect to values, weights, prior
    mean, prior std and every parameter of the law, by the implicit function theorem. The optimum
    does not depend on `initial`: derivatives with respect to it are zero.

    **Arguments:**

    - `model`, `comparisons`, `solver`, `initial`, `max_steps`: as in `fit`.

    **Returns:** the scores. If the optimum (of a group) is not found, its scores and their
    derivatives are NaN.
    """
    _check_problem(model, comparisons)
    start = None
    if initial is not None:
        start = jax.lax.stop_gradient(_check_initial(initial, comparisons))
    return map_optimum(
        model,
        comparisons,
        start,
        comparisons.partition,
        known=Known(is_regularised(model, comparisons)),
        **_solver_options(solver, max_steps, comparisons),
    )


def _solver_options(
    solver: AbstractSolver | None, max_steps: int, comparisons: Comparisons
) -> dict[str, Any]:
    """The solver, by default chosen by the size of the problem, and the maximum of steps."""
    if solver is None:
        is_small = comparisons.num_groups is None and comparisons.num_items <= DENSE_FIT_ITEMS
        solver = NewtonCholesky() if is_small else NewtonCG()
    if not isinstance(solver, AbstractSolver):
        raise TypeError(f"solver must be NewtonCG(), NewtonCholesky() or LBFGS(), not {solver!r}")
    return {"solver": solver, "max_steps": whole_number("max_steps", max_steps, at_least=1)}


def as_tolerances(rtol: float | None, atol: float | None, dtype) -> Array | None:
    """(rtol, atol), or None if both are 0 or not given: iterate to machine precision."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a non-negative number, not {value}")
    return jnp.asarray([rtol or 0, atol or 0], dtype) if rtol or atol else None


def _solve(
    model, comparisons, initial, tolerances, partition, *, solver, max_steps, known
) -> Answer:
    if comparisons.num_groups is not None and not isinstance(solver, NewtonCG):
        raise ValueError("inside a JAX transformation only NewtonCG() can fit groups")
    found = differentiable_optimum(
        model,
        comparisons,
        initial,
        tolerances,
        partition,
        solver=solver,
        max_steps=max_steps,
        known=known,
    )
    return Answer(
        scores=found.scores,
        result_code=found.result_code,
        error_bound=found.error_bound,
        gradient_norm=found.gradient_norm,
        newton_steps=found.newton_steps,
        cg_steps=found.inner_steps,
    )


_STATIC = ("max_steps", "solver", "known")
# Results that the quick certificate gives to fits that the full one may certify.
_UNCERTIFIED = RESULTS.precision_lost.code, RESULTS.max_steps_reached.code
_program = jax.jit(_solve, static_argnames=_STATIC)


@functools.cache
def _quick_program():
    # With few items, compiling takes most of the time.
    return jax.jit(_solve, static_argnames=_STATIC, compiler_options=quick_options())


def _fit_one(model, comparisons, start, tolerances, *, solver, max_steps) -> Answer:
    """The fit of comparisons without groups."""
    unbounded = _find_unbounded(model, comparisons)
    if unbounded.items.size:
        return _no_optimum(comparisons)
    known = Known(
        is_regularised(model, comparisons), unbounded.is_connected, is_quick=True, is_padded=True
    )
    run = _quick_program() if comparisons.num_items <= DENSE_FIT_ITEMS else _program
    options = {"solver": solver, "max_steps": max_steps, "known": known}
    # The cost of a dense factorisation is cubic, so its matrix is not padded.
    is_dense = isinstance(solver, NewtonCholesky) and comparisons.num_items > DENSE_FIT_ITEMS
    *problem, start = pad(model, comparisons, start, with_items=not is_dense)
    # Added items are in no norm. Without items, one of the added ones takes their place.
    items = Leading(as_array(np.int32(max(comparisons.num_items, 1))))
    found = run(*problem, start, tolerances, items, **options)
    is_open = not known.is_regularised and int(found.result_code) in _UNCERTIFIED
    if is_open and is_certified(*problem, found.scores, items, known=known):
        found = found._replace(result_code=jnp.asarray(RESULTS.successful.code, jnp.int32))
    return found._replace(scores=as_array(np.asarray(found.scores)[: comparisons.num_items]))


def _fit_one_by_one(model, comparisons, start, tolerances, **options) -> Answer:
    """Fit one group after the other, for solvers of single problems."""
    blank = _as_fit(_no_optimum(comparisons), model, comparisons)
    offsets, answers = sort_by_group(comparisons).item_offsets, []
    for number in range(comparisons.num_groups or 0):
        own = fit_of_group(blank, number)
        first = None if start is None else start[offsets[number] : offsets[number + 1]]
        found = _fit_one(own.model, own.comparisons, first, tolerances, **options)
        answers.append(found)
    if not answers:
        return _no_optimum(comparisons)
    scores, *others = zip(*answers, strict=True)
    return Answer(jnp.concatenate(scores), *(jnp.stack(column) for column in others))


def _choose(
    is_first: np.ndarray, first: Answer, second: Answer, partition: AbstractPartition
) -> Answer:
    """The first answer for some groups, the second for the others."""
    if not is_first.ndim:
        return first if is_first else second
    scores = jnp.where(partition.spread(jnp.asarray(is_first)), first.scores, second.scores)
    others = zip(first[1:], second[1:], strict=True)
    return Answer(scores, *(jnp.where(is_first, x, y) for x, y in others))


def _no_optimum(comparisons: Comparisons) -> Answer:
    dtype, shape = comparisons.value.dtype, comparisons.partition.shape
    none = jnp.zeros(shape, jnp.int32)
    return Answer(
        scores=as_array(np.full(comparisons.num_items, np.nan, dtype)),  # compiles nothing
        result_code=jnp.full(shape, RESULTS.no_finite_optimum.code, jnp.int32),
        error_bound=jnp.full(shape, jnp.inf, dtype),
        gradient_norm=jnp.full(shape, jnp.nan, dtype),
        newton_steps=none,
        cg_steps=none,
    )


def _as_fit(found: Answer, model: Model, comparisons: Comparisons) -> Fit:
    return Fit(
        scores=found.scores,
        error_bound=found.error_bound,
        gradient_norm=found.gradient_norm,
        result=Result(found.result_code),
        stats=Stats(found.newton_steps, found.cg_steps),
        model=model,
        comparisons=comparisons,
    )


def _find_unbounded(model: Model, comparisons: Comparisons) -> Unbounded:
    if not may_be_unbounded(model):
        return Unbounded(np.zeros(0, int), is_connected=False)
    return unbounded_items(model, comparisons)


def _check_initial(initial: ArrayLike, comparisons: Comparisons) -> Array:
    start = floating(initial).astype(comparisons.value.dtype)
    if start.shape != (comparisons.num_items,):
        raise ValueError(
            f"initial must hold one score per item, {comparisons.num_items}, not {start.shape}"
        )
    if is_concrete(start) and not np.isfinite(start).all():
        item = int(np.flatnonzero(~np.isfinite(start))[0])
        raise ValueError(f"initial[{item}] is {start[item]}: scores must be finite")
    return start


def _check_problem(model: Model, comparisons: Comparisons) -> None:
    """Check the types of the arguments, and the lengths of the prior and of law parameters."""
    if not isinstance(model, Model):
        raise TypeError(f"fit takes a Model first, not {type(model).__name__}")
    if not isinstance(comparisons, Comparisons):
        raise TypeError(f"fit takes Comparisons second, not {type(comparisons).__name__}")
    model.check_prior(comparisons)
    model.check_rows(len(comparisons))
