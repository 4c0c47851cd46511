"""Intervals from the profile of the posterior: one score is moved, and all others are refitted.

The profile of a score is the minimum of the loss with that score moved by s and all others free,

    P(s) = min { L(θ) − L(θ*) : cᵀ(θ − θ*) = s },    P'(s) = μ,    ∇L(θ(s)) = μ c,

with c = e_i. It is convex, and s²/(2 n_ii) for a quadratic loss. The interval ends where
P(s) = z²/2, where z is the normal quantile: twice the rise of the loss is there the quantile of χ²
with one degree of freedom. In a component without a prior scores have mean zero, and c is e_i minus
its mean.

The distance and the other scores move together: with x = θ − θ* at distance s, g = ∇L and M = ∇²L,

    min ½ dᵀ M d + gᵀ d  with  cᵀ d = 0    gives    P(s) ≈ L(θ) − L(θ*) − ½ δ,  δ = −gᵀ d,

and μ from M d + g = μ c. Each round takes Newton's step d for the other scores and, where δ is
small, also a step for s, along the chord (x + d)/s. The next round corrects the remaining error.
√(2P) is linear for a quadratic loss, so Newton's step for s solves √(2P) = z.

The systems are solved by conjugate gradients with N, the inverse Hessian at the optimum, as
preconditioner. N is factorised once for all items and rounds. With τ = N c/(cᵀ N c), residuals
r − (τᵀ r) c instead of r keep cᵀ d = 0, and the removed multiples of c add up to μ.
"""

import statistics
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._curvature import AbstractCurvature, DenseCurvature, curvature_of, refuse_unfinished
from .._data._incidence import item_sums_on_host
from .._data._partition import Columns
from .._inference._fit import Fit
from .._inference._results import RESULTS
from .._util._arrays import ArrayLike, as_array, as_indices
from ..solvers._newton import Projection, conjugate_gradients
from ._displacement import DisplacedLoss, Point, centre_columns
from ._laplace import Intervals

_ENTRIES = 2**19  # comparisons × lanes at a time: a few megabytes an array
_MAX_ROUNDS = 500  # three to ten are usual
_MAX_INNER_STEPS = 10_000
_CEILING = 4.0  # the largest rise of the loss that a step may have, in units of z²/2
_CLOSE = 0.2  # the largest δ with which s moves, in the same units
_SUFFICIENT_DECREASE = 1e-4  # of the loss at fixed s, in units of δ
_MOST_NOISE = 0.1  # of z²/2: with more rounding errors an end counts as not found


def profile_intervals(
    fit: Fit,
    items: ArrayLike | None = None,
    *,
    level: float = 0.95,
    using: AbstractCurvature | None = None,
) -> Intervals:
    """The profile interval of each score.

    At an end the loss, minimised over all other scores, is z²/2 above that of the fit, where z is
    the normal quantile of (1 + level)/2. For the `Gaussian` law the ends are θ* ± z √n_ii; for
    other laws they follow the posterior where it is not symmetric.

    **Arguments:**

    - `items`: only these items; all by default. With a few hundred items each takes about as long
      as a fit.
    - `level`: the share of the normal law within ±z, between 0 and 1.
    - `using`: the fit's `curvature`, if it has been made already. Beyond 4,096 items it has no
      matrix, and with thousands of items each takes several times as long as a fit.

    **Returns:** `Intervals` with one entry per item. With a prior every end is finite. NaN for the
    items of a group whose fit failed.

    Items without a prior are profiled under the constraint of mean zero over each connected
    component. The score of an item that is alone in its component is fixed, and both ends equal it.
    Raises `RuntimeError` if an end is not found: if weights are too large for the floating-point
    precision, or if the search runs out of steps (level near 1, binary values, very weak prior).
    """
    refuse_unfinished(fit)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    if fit.comparisons.num_groups is not None:
        if items is not None or using is not None:
            raise ValueError("items and using are for one group: profile_intervals(fit[label], …)")
        return _intervals_of_groups(fit, level)
    chosen = as_indices("items", items, fit.comparisons.num_items)
    made = curvature_of(fit, using)
    goal = 0.5 * statistics.NormalDist().inv_cdf(0.5 + 0.5 * level) ** 2
    ends = np.zeros((2, chosen.size), fit.scores.dtype)
    at_once = _ENTRIES // (2 * max(len(fit.comparisons), fit.comparisons.num_items, 1))
    width = max(min(at_once, chosen.size), 1)
    for start in range(0, chosen.size, width):
        some = chosen[start : start + width]
        # The last chunk is padded: one shape, one compilation.
        padded = np.resize(some, width)
        ends[:, start : start + width] = _distances(fit, made, padded, goal)[:, : some.size]
    scores = fit.scores[chosen]
    return Intervals(scores, scores - ends[0], scores + ends[1])


def _intervals_of_groups(fit: Fit, level: float) -> Intervals:
    """Intervals of one group after the other; NaN for groups whose fit failed."""
    ends = [np.zeros((2, 0))]
    for label in fit:
        one = fit[label]
        is_known = one.result == RESULTS.successful
        found = profile_intervals(one, level=level)[1:] if is_known else [one.scores * np.nan] * 2
        ends.append(np.stack([np.asarray(x) for x in found]))
    lower, upper = np.concatenate(ends, axis=1)
    return Intervals(fit.scores, as_array(lower), as_array(upper))


def _distances(fit: Fit, made: AbstractCurvature, items: np.ndarray, goal: float) -> np.ndarray:
    """The distances of both ends from the scores, ends × items."""
    constraint = _constraints(made, items)
    solved = made.solve(constraint)
    problem = DisplacedLoss(
        model=fit.model,
        comparisons=fit.comparisons,
        scores=fit.scores,
        made=made,
        inverse_diagonal=None if isinstance(made, DenseCurvature) else _inverse_diagonal(made),
        goal=jnp.asarray(goal, solved.dtype),
    )
    found, is_found = _search(problem, constraint, solved)
    if not is_found.all():
        lost = items[np.flatnonzero(~np.asarray(is_found).all(axis=0))[0]]
        raise RuntimeError(
            f"an end of the profile interval of item {lost} was not found: use float64 if weights "
            "are large, else a lower level or a smaller prior_std"
        )
    return np.asarray(found)


def _constraints(made: AbstractCurvature, items: np.ndarray) -> Array:
    """c of each item, as columns."""
    columns = np.zeros((made.num_items, items.size), made.null_space.share.dtype)
    columns[items, np.arange(items.size)] = 1
    return centre_columns(made, columns)


def _inverse_diagonal(made: AbstractCurvature) -> np.ndarray:
    """1/m_ii of each item; 0 where m_ii is 0."""
    a, b, curvature = made.edges
    diagonal = made.null_space.precision + item_sums_on_host(a, b, curvature, made.num_items)
    inverse = np.where(diagonal > 0, 1 / np.where(diagonal > 0, diagonal, 1), 0)
    return inverse.astype(curvature.dtype)


class _Lanes(NamedTuple):
    """One column per end: lower ends first, with −c for c, so that s is positive."""

    c: Array
    projector: Array  # τ, of the preconditioner
    goal: Array  # z²/2


class _Newton(NamedTuple):
    """Newton's step for the other scores at a point."""

    step: Array  # d
    decrease: Array  # δ
    slope: Array  # μ


class _State(NamedTuple):
    """The state of each lane: its displacement x and distance s, and the step to try from there."""

    x: Array
    s: Array
    rise: Array
    noise: Array
    step: Array
    length: Array  # the fraction of the step that is tried
    ceiling: Array  # the largest rise that is accepted
    decrease: Array  # how far below the ceiling a whole step must end
    low: Array  # bounds of the end
    high: Array
    is_open: Array


@jax.jit
def _search(problem: DisplacedLoss, constraint: Array, solved: Array) -> tuple[Array, Array]:
    """(distances, whether they were found), ends × items, from c and N c."""
    c = jnp.concatenate([-constraint, constraint], axis=1)
    image = problem.precondition(c)
    along = jnp.sum(c * image, axis=0)
    lanes = _Lanes(c, image / jnp.where(along > 0, along, 1), problem.goal)
    start = _start_state(lanes, jnp.concatenate([-solved, solved], axis=1))
    end, _ = lax.while_loop(
        lambda state: jnp.any(state[0].is_open) & (state[1] < _MAX_ROUNDS),
        lambda state: (_advance(problem, lanes, state[0]), state[1] + 1),
        (start, 0),
    )
    return end.s.reshape(2, -1), ~end.is_open.reshape(2, -1)


def _start_state(lanes: _Lanes, solved: Array) -> _State:
    """The state before the first evaluation, with a step to the ends for a quadratic loss."""
    variance = jnp.sum(lanes.c * solved, axis=0)
    is_open = ~(variance <= 0)  # a score that is fixed cannot move; NaN is never found
    start = jnp.sqrt(2 * lanes.goal * variance)
    zero = jnp.zeros_like(variance)
    return _State(
        x=jnp.zeros_like(solved),
        s=zero,
        rise=zero,
        noise=zero,
        step=jnp.where(is_open, start / jnp.where(is_open, variance, 1), 0) * solved,
        length=jnp.ones_like(zero),
        ceiling=jnp.full_like(zero, _CEILING * lanes.goal),
        decrease=zero,
        low=zero,
        high=jnp.full_like(zero, jnp.inf),
        is_open=is_open,
    )


def _advance(problem: DisplacedLoss, lanes: _Lanes, at: _State) -> _State:
    """Try the step; find the next one where it is accepted, and shorten it elsewhere."""
    x = at.x + at.length * at.step
    s = jnp.sum(lanes.c * x, axis=0)  # with the rounding errors of x
    point = problem.evaluate(x)
    accepted = at.is_open & (point.rise <= at.ceiling - at.length * at.decrease)
    gradient = jnp.where(accepted, point.gradient, 0)
    newton = _newton_step(problem, lanes, point.curvature, gradient)
    reached = at._replace(x=x, s=s, rise=point.rise, noise=point.noise)
    following = _next_state(lanes, reached, newton)
    shorter = at._replace(length=at.length * _shortening(at, point))
    return jax.tree.map(lambda new, old: jnp.where(accepted, new, old), following, shorter)


def _next_state(lanes: _Lanes, at: _State, newton: _Newton) -> _State:
    """The state after an accepted point, with Newton's step for the other scores."""
    x, s, rise, noise = at.x, at.s, at.rise, at.noise
    step, decrease, slope = newton
    profile, eps = rise - 0.5 * decrease, float(jnp.finfo(s.dtype).eps)
    precise = eps**0.4 * s
    # The profile is certainly below the rise. It is above its estimate minus 16 δ only if the loss
    # is close to a quadratic: an upper bound that contradicts the lower one is dropped.
    low = jnp.where(rise < lanes.goal, s, at.low)
    high = jnp.where(profile - 16 * decrease > lanes.goal, s, at.high)
    high = jnp.where(high - low > precise, high, jnp.inf)
    moves = decrease <= _CLOSE * lanes.goal
    s_step = jnp.where(moves, _next_distance(lanes, profile, slope, s, low, high) - s, 0)
    # The last step squares both errors.
    gap = lanes.goal - profile
    settled = (jnp.abs(gap) <= precise * slope) | (jnp.abs(gap) <= noise)
    settled &= noise <= _MOST_NOISE * lanes.goal
    ends = moves & settled & (decrease <= eps ** (2 / 3) * lanes.goal)
    # With a short step of s the ceiling is low, so that the other scores cannot overshoot.
    room = jnp.maximum(rise, lanes.goal) + 4 * jnp.abs(slope * s_step)
    return at._replace(
        s=jnp.where(ends, s + gap / slope, s),
        step=step + s_step * (x + step) / jnp.where(s > 0, s, 1),
        length=jnp.ones_like(s),
        ceiling=jnp.where(moves, jnp.minimum(_CEILING * lanes.goal, room), rise) + noise,
        decrease=jnp.where(moves, 0, _SUFFICIENT_DECREASE * decrease),
        low=low,
        high=high,
        is_open=at.is_open & ~ends,
    )


def _shortening(at: _State, point: Point) -> Array:
    """The factor by which a rejected step is shortened, between a tenth and a half.

    Where s moves, the convex rise is below the ceiling wherever its chord is. At fixed s, the slope
    along the step is interpolated linearly, and vanishes at about this length.
    """
    room = (at.ceiling - at.rise) / (point.rise - at.rise)
    down, up = at.decrease / _SUFFICIENT_DECREASE, jnp.sum(point.gradient * at.step, axis=0)
    kept = jnp.where(at.decrease > 0, down / (down + up), room)
    return jnp.clip(jnp.where(jnp.isfinite(kept), kept, 0), 0.1, 0.5)


def _next_distance(
    lanes: _Lanes, profile: Array, slope: Array, s: Array, low: Array, high: Array
) -> Array:
    """Newton's step for √(2P) = z, else for P = z²/2, else the middle of the bracket."""
    root = jnp.sqrt(2 * jnp.maximum(profile, 0))
    tries = (
        s + (jnp.sqrt(2 * lanes.goal) - root) * root / slope,
        s + (lanes.goal - profile) / slope,
    )
    middle = jnp.where(jnp.isinf(high), 2 * s, 0.5 * (low + high))
    first, second = ((x >= low) & (x <= high) for x in tries)
    return jnp.where(first, tries[0], jnp.where(second, tries[1], middle))


def _newton_step(
    problem: DisplacedLoss, lanes: _Lanes, curvature: Array, gradient: Array
) -> _Newton:
    """The minimum of ½ dᵀ M d + gᵀ d with cᵀ d = 0, by conjugate gradients."""

    def along(residual: Array) -> Array:
        return jnp.sum(lanes.projector * residual, axis=0)

    downhill = -gradient + along(gradient) * lanes.c
    size = jnp.sum(downhill * problem.precondition(downhill), axis=0)
    # The tolerance falls with the error: convergence is superlinear, down to rounding.
    least = float(jnp.finfo(size.dtype).eps) ** 0.5
    step = conjugate_gradients(
        lambda v: problem.product(curvature, v),
        downhill,
        problem.precondition,
        tolerance=jnp.clip(jnp.sqrt(size / lanes.goal), least, problem.forcing),
        max_steps=_MAX_INNER_STEPS,
        partition=Columns(size.size),
        projection=Projection(residual=lambda r: r - along(r) * lanes.c),
    ).direction
    image = problem.product(curvature, step) + gradient
    return _Newton(step, jnp.sum(downhill * step, axis=0), along(image))
