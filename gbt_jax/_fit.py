"""`fit`: the unique maximum a posteriori, how close it is, and a function to differentiate."""

import enum
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
from ._model import Model
from ._newton import Solution
from ._optimum import error_bound, implicit_scores, refuse_outside, refused, solve
from ._partition import ONE
from ._solvers import AbstractSolver, NewtonCG, NewtonCholesky

_DENSE_ITEMS = 48  # up to here a dense factorisation is faster than conjugate gradients
MAX_STEPS = 256


class RESULTS(enum.Enum):
    """How a fit ended; the value is what a batch of fits reports per user."""

    successful = 0
    max_steps_reached = 1
    non_finite = 2
    no_finite_optimum = 3
    invalid_data = 4

    @property
    def message(self) -> str:
        """What it means and what to do."""
        return _MESSAGES[self]


_MESSAGES = {
    RESULTS.successful: "the optimum was found to rounding",
    RESULTS.max_steps_reached: (
        "the iterations ended before the optimum was reached: raise max_steps, loosen rtol or "
        "atol, or give the scores a prior (a finite prior_std)"
    ),
    RESULTS.non_finite: (
        "the loss is not finite at the starting point: look for extreme values, weights or "
        "initial scores, or compute in float64"
    ),
    RESULTS.no_finite_optimum: (
        "without a prior these data have no finite optimum: give a finite prior_std, or leave "
        "out the items that only win or only lose"
    ),
    RESULTS.invalid_data: (
        "a value is outside the law's support or not finite, a weight is negative or not finite, "
        "or an item is compared with itself (`fit` raises for these, `fit_users` goes on)"
    ),
}


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
    - `error_bound`: σ²‖∇L‖ ≥ ‖scores − θ*‖₂, certified by strong convexity; inf without a prior.
    - `gradient_norm`: ‖∇L‖₂ at the scores.
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
    - `rtol`, `atol`: stop when the error bound σ²‖∇L‖ is below atol + rtol‖θ‖. By default the
      iterations go on until rounding ends them.
    - `max_steps`: how many Newton steps at most.
    - `throw`: raise `FitError` on failure; otherwise see `Fit.result`.

    Without comparisons the scores are the prior mean. A value outside the law's support is an
    error that names the row.
    """
    _check(model, comparisons)
    solver = _default_solver(comparisons) if solver is None else solver
    if not isinstance(solver, AbstractSolver):
        raise TypeError(f"solver must be NewtonCG(), NewtonCholesky() or LBFGS(), not {solver!r}")
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    dtype = comparisons.value.dtype
    start = None if initial is None else _initial(initial, comparisons, dtype)
    unbounded = _unbounded(model, comparisons)
    tolerances = as_tolerances(rtol, atol, dtype)
    if unbounded.size:
        result = _without_optimum(model, comparisons)
    else:
        run = program(model, comparisons)
        result = run(model, comparisons, start, tolerances, solver=solver, max_steps=max_steps)
        # The program may still be running: nothing here waits for it.
        if not _graph.is_held(model.prior_std, comparisons.weight):
            result = _released(result)
    is_known = throw or is_concrete(result.result_code)
    if is_known and result.result is not RESULTS.successful:
        refuse_outside(model.law, comparisons)
        if throw:
            raise FitError(_explain(result, unbounded), result)
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
    solver = _default_solver(comparisons) if solver is None else solver
    start = None
    if initial is not None:
        start = jax.lax.stop_gradient(floating(initial).astype(comparisons.value.dtype))
    return implicit_scores(
        model,
        comparisons,
        start,
        solver=solver,
        max_steps=max_steps,
        is_held=_graph.is_held(model.prior_std, comparisons.weight),
    )


def _default_solver(comparisons: Comparisons) -> AbstractSolver:
    return NewtonCholesky() if comparisons.num_items <= _DENSE_ITEMS else NewtonCG()


def as_tolerances(rtol: float | None, atol: float | None, dtype) -> Array | None:
    """(rtol, atol), or None where both are 0 or not given: then rounding alone ends a fit."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a non-negative number, not {value}")
    return jnp.asarray([rtol or 0, atol or 0], dtype) if rtol or atol else None


def program(model: Model, comparisons: Comparisons):
    """The jitted function that makes a `Fit`. With few items, compiling it is all that counts."""
    is_small = comparisons.num_items <= _DENSE_ITEMS
    return _quick_program() if is_small and is_concrete(model, comparisons) else _program


def _fit(model, comparisons, initial, tolerances, *, solver, max_steps) -> Fit:
    rows = refused(model.law, comparisons)
    outcome = solve(model, rows, initial, tolerances, solver=solver, max_steps=max_steps)
    return Fit(
        scores=outcome.x,
        error_bound=error_bound(model, comparisons, outcome.norm),
        gradient_norm=outcome.norm,
        result_code=result_codes(outcome),
        stats=Stats(outcome.newton_steps, outcome.inner_steps),
        model=model,
        comparisons=comparisons,
    )


_STATIC = ("max_steps", "solver")
_program = jax.jit(_fit, static_argnames=_STATIC)


@functools.cache
def _quick_program():
    return jax.jit(_fit, static_argnames=_STATIC, compiler_options=quick_options())


def result_codes(outcome: Solution) -> Array:
    """`RESULTS` of a solver's outcome, per problem."""
    codes = jnp.where(outcome.converged, RESULTS.successful.value, RESULTS.max_steps_reached.value)
    return jnp.where(jnp.isfinite(outcome.norm), codes, RESULTS.non_finite.value)


def withdrawn(codes: Array, runaway: Array) -> Array:
    """Codes without the success of scores that have run away."""
    converged = codes == RESULTS.successful.value
    return jnp.where(runaway & converged, RESULTS.max_steps_reached.value, codes)


@jax.jit
def _released(result: Fit) -> Fit:
    """A fit whose prior is weak or missing, looked at once more: level, and a runaway.

    A program of its own, because most fits do not need it and it takes as long to compile.
    """
    model, comparisons = result.model, result.comparisons
    scores, runaway = _graph.released(model, comparisons, result.scores, ONE)
    code = withdrawn(result.result_code, runaway)
    return eqx.tree_at(lambda fit: (fit.scores, fit.result_code), result, (scores, code))


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


def _unbounded(model: Model, comparisons: Comparisons) -> np.ndarray:
    if not is_concrete(model, comparisons) or not _graph.may_be_unbounded(model):
        return np.zeros(0, int)
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
