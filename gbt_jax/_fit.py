"""`fit`: the unique maximum a posteriori, how close it is, and a function to differentiate."""

import functools
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float

from . import _graph
from ._arrays import floating, is_concrete, whole_number
from ._comparisons import Comparisons
from ._compilation import quick_options
from ._gauge import is_regularised
from ._model import Model
from ._optimum import Known, differentiable_optimum, map_optimum, refuse_outside
from ._results import RESULTS as RESULTS
from ._solvers import AbstractSolver, NewtonCG, NewtonCholesky

_DENSE_ITEMS = 48  # up to here a dense factorisation is faster than conjugate gradients
MAX_STEPS = 256


class FitError(RuntimeError):
    """A fit failed; `fit` holds what was found, with its `result`."""

    def __init__(self, message: str, fit: "Fit"):
        super().__init__(message)
        self.fit = fit


class Stats(NamedTuple):
    """The work that a fit took."""

    newton_steps: Array
    cg_steps: Array


@final
class Fit(eqx.Module):
    """Scores, and what is known about them.

    - `scores`: θ*, one per item; a higher score is better.
    - `error_bound`: at least ‖scores − θ*‖₂, certified: σ² times ‖∇L‖ and a bound of its rounding
      errors; inf without a prior.
    - `gradient_norm`: ‖∇L‖₂ at the scores.
    - `result`: how the fit ended (as `result_code` inside jit). It is `RESULTS.successful` only if
      the gradient, computed anew from the comparisons, is zero up to rounding, or if the error
      bound meets the tolerances.
    - `stats`: the numbers of Newton and conjugate-gradient steps.
    - `model`, `comparisons`: what was fitted.
    """

    scores: Float[Array, " items"]
    error_bound: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    result_code: Array
    stats: Stats
    model: Model
    comparisons: Comparisons

    @property
    def result(self) -> RESULTS:
        """How the fit ended."""
        return RESULTS(int(self.result_code))


def fit(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = MAX_STEPS,
    throw: bool = True,
) -> Fit:
    """The maximum a posteriori scores: argmin L(θ).

    **Arguments:**

    - `solver`: `NewtonCG()`, `NewtonCholesky()` or `LBFGS()`; chosen by size by default.
    - `initial`: scores to start from, used if they are better than the prior mean.
    - `rtol`, `atol`: stop when the error bound is below atol + rtol‖θ‖. By default the iterations
      continue to machine precision.
    - `max_steps`: how many Newton steps at most.
    - `throw`: raise `FitError` on failure; otherwise see `Fit.result`. Under `jit`, `vmap` or
      `grad` nothing can be raised: pass `throw=False` and look at `Fit.result_code`, or use
      `map_scores`.

    Without comparisons the scores are the prior mean. A value outside the law's support is an
    error that names the row. Parameters of the law are one number, or one per comparison.
    Derivatives of the scores are those of the optimum, as in `map_scores`; the other fields have
    none.
    """
    _check(model, comparisons)
    is_known = is_concrete(model, comparisons, initial)
    if throw and not is_known:
        raise ValueError(
            "fit cannot raise on failure under a JAX transformation (jit, vmap, grad): pass "
            "throw=False and check result_code, or use map_scores, which gives NaN on failure"
        )
    solver = _default_solver(comparisons) if solver is None else solver
    if not isinstance(solver, AbstractSolver):
        raise TypeError(f"solver must be NewtonCG(), NewtonCholesky() or LBFGS(), not {solver!r}")
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    dtype = comparisons.value.dtype
    start = None if initial is None else _initial(initial, comparisons, dtype)
    tolerances = as_tolerances(rtol, atol, dtype)
    options = {"solver": solver, "max_steps": max_steps}
    if not is_known:
        return _program(model, comparisons, start, tolerances, known=Known(), **options)
    # Inside of somebody's jit or scan, a fit of constants is computed at once.
    with jax.ensure_compile_time_eval():
        unbounded = _unbounded(model, comparisons)
        if unbounded.items.size:
            result = _without_optimum(model, comparisons)
        else:
            known = Known(is_regularised(model, comparisons), unbounded.is_connected)
            is_small = comparisons.num_items <= _DENSE_ITEMS
            run = _quick_program() if is_small else _program
            result = run(model, comparisons, start, tolerances, known=known, **options)
        if result.result is not RESULTS.successful:
            refuse_outside(model.law, comparisons)
            if throw:
                raise FitError(_explain(result, unbounded.items), result)
    return result


def map_scores(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    max_steps: int = MAX_STEPS,
) -> Float[Array, " items"]:
    """The maximum a posteriori scores as a function for JAX: jit, vmap and differentiate it.

    Derivatives of any order, forward and reverse, with respect to values, weights, prior mean,
    prior std and every parameter of the law, by the implicit function theorem. The optimum does
    not depend on `initial`: derivatives with respect to it are zero. Where the optimum is not
    found, scores and derivatives are NaN.
    """
    _check(model, comparisons)
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    solver = _default_solver(comparisons) if solver is None else solver
    start = None
    if initial is not None:
        start = jax.lax.stop_gradient(_initial(initial, comparisons, comparisons.value.dtype))
    return map_optimum(
        model,
        comparisons,
        start,
        solver=solver,
        max_steps=max_steps,
        known=Known(is_regularised(model, comparisons)),
    )


def _default_solver(comparisons: Comparisons) -> AbstractSolver:
    return NewtonCholesky() if comparisons.num_items <= _DENSE_ITEMS else NewtonCG()


def as_tolerances(rtol: float | None, atol: float | None, dtype) -> Array | None:
    """(rtol, atol), or None where both are 0 or not given: then rounding alone ends a fit."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a non-negative number, not {value}")
    return jnp.asarray([rtol or 0, atol or 0], dtype) if rtol or atol else None


def _fit(model, comparisons, initial, tolerances, *, solver, max_steps, known) -> Fit:
    found = differentiable_optimum(
        model, comparisons, initial, tolerances, solver=solver, max_steps=max_steps, known=known
    )
    return Fit(
        scores=found.scores,
        error_bound=found.error_bound,
        gradient_norm=found.gradient_norm,
        result_code=found.result_code,
        stats=Stats(found.newton_steps, found.inner_steps),
        model=model,
        comparisons=comparisons,
    )


_STATIC = ("max_steps", "solver", "known")
_program = jax.jit(_fit, static_argnames=_STATIC)


@functools.cache
def _quick_program():
    # With few items, compiling is all that counts.
    return jax.jit(_fit, static_argnames=_STATIC, compiler_options=quick_options())


def _without_optimum(model: Model, comparisons: Comparisons) -> Fit:
    dtype = comparisons.value.dtype
    nan, zero = jnp.asarray(jnp.nan, dtype), jnp.zeros((), jnp.int32)
    return Fit(
        scores=jnp.full(comparisons.num_items, nan),
        error_bound=jnp.asarray(jnp.inf, dtype),
        gradient_norm=nan,
        result_code=jnp.asarray(RESULTS.no_finite_optimum.value, jnp.int32),
        stats=Stats(zero, zero),
        model=model,
        comparisons=comparisons,
    )


def _unbounded(model: Model, comparisons: Comparisons) -> _graph.Unbounded:
    if not _graph.may_be_unbounded(model):
        return _graph.Unbounded(np.zeros(0, int), is_connected=False)
    return _graph.unbounded_items(model, comparisons)


def _explain(result: Fit, unbounded: np.ndarray) -> str:
    message = result.result.message
    if unbounded.size:
        shown = ", ".join(str(item) for item in unbounded[:10])
        more = f" and {unbounded.size - 10} more" if unbounded.size > 10 else ""
        message += f". Items with no bound: {shown}{more}"
    return message


def _initial(initial: ArrayLike, comparisons: Comparisons, dtype) -> Array:
    start = floating(initial).astype(dtype)
    if start.shape != (comparisons.num_items,):
        raise ValueError(
            f"initial must hold one score per item, {comparisons.num_items}, not {start.shape}"
        )
    if is_concrete(start) and not np.isfinite(start).all():
        item = int(np.flatnonzero(~np.isfinite(start))[0])
        raise ValueError(f"initial[{item}] is {start[item]}: scores must be finite")
    return start


def _check(model: Model, comparisons: Comparisons) -> None:
    """Refuse what is no model, no comparisons, or a prior of a wrong length."""
    if not isinstance(model, Model):
        raise TypeError(f"fit takes a Model first, not {type(model).__name__}")
    if not isinstance(comparisons, Comparisons):
        raise TypeError(f"fit takes Comparisons second, not {type(comparisons).__name__}")
    model.check_prior(comparisons.num_items, "item")
    model.check_rows(len(comparisons))
