"""Damped Newton's method for a strongly convex function given by its gradient and Hessian products.

Nothing here knows about comparisons: a `Problem` is a handful of functions. The direction solves
∇²L d = −∇L, either inexactly by preconditioned conjugate gradients, to a precision that grows as
the gradient shrinks (so that convergence stays superlinear), or by a Cholesky factorisation. The
step is halved until the gradient shrinks, or until it ends before the lowest point of L along it:
L is convex, so that it falls all the way there, and half the way gains at least half of what the
best length would. Gradients tell all that; losses are costly, take as long to compile, and near the
optimum their differences drown in rounding errors.

Iterations end where rounding ends them: when the gradient is at the level of its own rounding
errors, or when it has stopped shrinking close to it.

Independent problems may be laid side by side (an `AbstractPartition`). Each has its own step
length, its own conjugate gradients and its own end, and stands still from there: what it finds does
not depend on its neighbours.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._data._partition import ONE, AbstractPartition

_FLATTER = 0.7  # of the smallest gradient so far: good, wherever along the step
_MAX_HALVINGS = 200
# The longest step, relative to 1 + the largest score. Where rows are saturated the curvature says
# little, and scores so large that rounding hides the way back must not be tried.
_LONGEST = 1e3
_MAX_REFINEMENTS = 30  # of a solve with a Cholesky factor
_NEAR = 1e6  # of the rounding levels last known: from here on they are computed anew
_NOISE_FACTOR = 2.0  # gradients below this many rounding levels are zero as far as one can tell
_STALL_FACTOR = 1e3  # beyond this many, a gradient that stops shrinking is a failure
_STALL_STEPS = 3
_SETTLED = 1e-3  # the last step, relative to 1 + the largest score


@runtime_checkable
class Point(Protocol):
    """What a problem tells at a point."""

    gradient: Array
    norm: Array  # of the gradient, √(gᵀ g)
    size: Array  # √(gᵀ D⁻¹ g)
    curvature: Any
    diagonal: Array  # D, of the Hessian


@runtime_checkable
class Refinement(Protocol):
    """A gradient as exact as the precision allows, with its norms and its rounding errors."""

    gradient: Array
    norm: Array
    size: Array
    noise: Array  # rounding errors, in the norm of `size`


def _identity(x: Array) -> Array:
    return x


class Projection(NamedTuple):
    """Projections that remove a null space: of directions, and their transpose, of residuals."""

    direction: Callable[[Array], Array] = _identity
    residual: Callable[[Array], Array] = _identity


NO_PROJECTION = Projection()


class Problem(NamedTuple):
    """A function to minimise, or several side by side.

    Where the Hessian is singular, or nearly so, along directions that are known, `projection`
    removes them from steps, and `dense` adds to the Hessian what makes it definite there.
    """

    evaluate: Callable[[Array], Any]  # x ↦ Point
    refine: Callable[[Array, Any], Any]  # x, its Point ↦ Refinement
    loss: Callable[[Array], Array]  # x ↦ L(x)
    product: Callable[[Any, Array], Array]  # curvature, v ↦ ∇²L v
    dense: Callable[[Any], Array]  # Point ↦ ∇²L
    partition: AbstractPartition
    projection: Projection = NO_PROJECTION


class Solution(NamedTuple):
    """Where the iterations ended, and why; numbers per problem."""

    x: Array
    norm: Array  # of the gradient
    converged: Array
    newton_steps: Array
    inner_steps: Array


class Descent(NamedTuple):
    """A solution d of ∇²L d = −g."""

    direction: Array
    steps: Array


# problem, point, −∇L of those problems that take a step, relative precision ↦ d
Direction = Callable[[Problem, Any, Array, Array], Descent]


def cg_direction(max_steps: int) -> Direction:
    """Directions by conjugate gradients with the diagonal as preconditioner."""

    def direction(problem: Problem, point: Any, downhill: Array, forcing: Array) -> Descent:
        return conjugate_gradients(
            lambda v: problem.product(point.curvature, v),
            downhill,
            scale_by_diagonal(point.diagonal),
            tolerance=forcing,
            max_steps=max_steps,
            partition=problem.partition,
            projection=problem.projection,
        )

    return direction


def cholesky_direction(problem: Problem, point: Any, downhill: Array, forcing: Array) -> Descent:
    """Directions by a dense factorisation, of one problem."""
    del forcing
    step = cholesky_solve(problem.dense(point), downhill, problem.projection)
    return Descent(step, jnp.ones((), jnp.int32))


def cholesky_solve(matrix: Array, rhs: Array, projection: Projection) -> Array:
    """Solve a positive semidefinite system whose diagonal may vanish where its row does.

    Scaling to a unit diagonal makes the factorisation as accurate as the problem allows when
    items have very different weights. A small shift keeps it from failing where rounding makes the
    matrix indefinite. Conjugate gradients with the factor as preconditioner remove what the shift
    and rounding left: usually in two steps, in more where eigenvalues are below the shift.
    """
    diagonal = jnp.diagonal(matrix)
    scale = lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1))
    scaled = matrix * scale[:, None] * scale[None, :]
    eps = float(jnp.finfo(matrix.dtype).eps)
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    factor = lax.linalg.cholesky(scaled + eps ** (2 / 3) * eye, symmetrize_input=False)

    def solve(residual: Array) -> Array:
        return scale * jax.scipy.linalg.cho_solve((factor, True), scale * residual)

    found = conjugate_gradients(
        lambda v: matrix @ v,
        rhs,
        solve,
        tolerance=0.5 * eps,
        max_steps=_MAX_REFINEMENTS,
        projection=projection,
    )
    # They take no step where rounding leaves no curvature: there the factor's word must do.
    first = projection.direction(solve(projection.residual(rhs)))
    return jnp.where(found.steps > 0, found.direction, first)


def scale_by_diagonal(diagonal: Array) -> Callable[[Array], Array]:
    """The preconditioner r ↦ D⁻¹ r; 0 where the diagonal is."""
    inverse = jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)
    return lambda residual: inverse * residual


def conjugate_gradients(
    product: Callable[[Array], Array],
    rhs: Array,
    precondition: Callable[[Array], Array],
    *,
    tolerance: Array | float,
    max_steps: int,
    partition: AbstractPartition = ONE,
    projection: Projection = NO_PROJECTION,
) -> Descent:
    """Solve a positive semidefinite system.

    With r ↦ C r as preconditioner, until √(rᵀ C r) of the residual r is `tolerance` times that of
    the right-hand side: no steps if that is 0, and NaN for NaN.
    What `projection` removes stays out of the solution and of the residuals.
    """
    rhs = projection.residual(rhs)
    start = projection.direction(precondition(rhs))
    rho_start = partition.inner(rhs, start)
    target = tolerance * tolerance * rho_start

    def is_open(state):
        rho, steps = state[-1]
        return jnp.any((rho > target) & (steps < max_steps))

    def advance(state):
        x, residual, direction, (rho, steps) = state
        image = product(direction)
        curvature = partition.inner(direction, image)
        moves = (rho > target) & (curvature > 0) & (steps < max_steps)
        # A problem that has ended stands still: its length is 0.
        ratio = jnp.where(moves, rho / jnp.where(moves, curvature, 1), 0)
        length = partition.spread(ratio)
        x = x + length * direction
        residual = projection.residual(residual - length * image)
        preconditioned = projection.direction(precondition(residual))
        rho_next = partition.inner(residual, preconditioned)
        share = jnp.where(moves, rho_next / jnp.where(moves, rho, 1), 0)
        direction = preconditioned + partition.spread(share) * direction
        rho = jnp.where(moves, rho_next, jnp.where(curvature > 0, rho, 0))
        return x, residual, direction, jnp.stack([rho, steps + moves.astype(rho.dtype)])

    zero = 0 * rho_start  # NaN for NaN
    # One array of numbers, because every separate one is a kernel.
    state = (
        partition.spread(zero) + jnp.zeros_like(rhs),
        rhs,
        start,
        jnp.stack([rho_start, zero]),
    )
    x, _, _, (_, steps) = lax.while_loop(is_open, advance, state)
    return Descent(x, steps.astype(jnp.int32))


class _Numbers(NamedTuple):
    """Where a problem is; stacked in the loop, because every separate number is a kernel."""

    length: Array  # of the step being tried
    norm: Array
    noise: Array  # of the gradient, when it was last computed
    smallest: Array  # size of the gradient so far


class _Counts(NamedTuple):
    """How far a problem is; stacked too."""

    stalled: Array
    halvings: Array
    newton_steps: Array
    inner_steps: Array
    done: Array


class _State(NamedTuple):
    x: Array  # the last accepted point
    step: Array  # the direction being tried from there; zero once a problem is done
    numbers: Array
    counts: Array


def minimise(
    problem: Problem,
    start: Array,
    direction: Direction,
    *,
    is_close: Callable[[Array, Array], Array],
    max_steps: int,
) -> Solution:
    """Minimise from `start` until `is_close(x, gradient norm)`, or rounding, ends it.

    Each round tries one point. If it is better (always so in the first round, which tries the start
    itself), it is accepted and a new direction computed from it; otherwise the step is halved. One
    evaluation in one loop keeps compilation short.
    """
    final = lax.while_loop(
        lambda state: jnp.any(_goes_on(_Counts(*state.counts), max_steps)),
        functools.partial(_advance, problem, direction, is_close, max_steps),
        _initial_state(problem.partition, start),
    )
    numbers, counts = _Numbers(*final.numbers), _Counts(*final.counts)
    steps = counts.newton_steps, counts.inner_steps
    return Solution(final.x, numbers.norm, counts.done > 0, *steps)


def _initial_state(partition: AbstractPartition, start: Array) -> _State:
    """Before the first evaluation: any gradient is smaller than the infinite one."""
    infinite = jnp.full(partition.shape, jnp.inf, start.dtype)
    none = jnp.zeros(partition.shape, jnp.int32)
    numbers = _Numbers(jnp.ones_like(infinite), infinite, infinite, infinite)
    counts = _Counts(none, none, none, none, none)
    return _State(start, jnp.zeros_like(start), jnp.stack(numbers), jnp.stack(counts))


def _goes_on(counts: _Counts, max_steps: int) -> Array:
    failed = (counts.newton_steps >= max_steps) | (counts.halvings >= _MAX_HALVINGS)
    return (counts.done == 0) & ~failed


def _advance(
    problem: Problem, direction: Direction, is_close: Callable, max_steps: int, state: _State
) -> _State:
    """One round: evaluate the point being tried; where it is accepted turn, elsewhere halve."""
    partition, old, counts = problem.partition, _Numbers(*state.numbers), _Counts(*state.counts)
    tried = state.x + partition.spread(old.length) * state.step
    point = problem.evaluate(tried)
    is_open = _goes_on(counts, max_steps)
    is_flatter = point.size < _FLATTER * old.smallest
    asks = is_open & (~is_flatter | (point.size <= _NEAR * old.noise))
    point, noise = _refine(problem, tried, point, asks, old.noise)
    is_flatter = point.size < _FLATTER * old.smallest
    near_rounding = (point.size <= _STALL_FACTOR * noise) & jnp.isfinite(noise)
    stalled = jnp.where(near_rounding & (point.size >= 0.5 * old.smallest), counts.stalled + 1, 0)
    settled = _is_settled(state.step, tried, partition)
    # The gradient is smaller than any so far (which ends at an optimum if it goes on) or cannot be
    # told from rounding errors, or else the loss still falls along the step.
    still_falls = partition.inner(point.gradient, state.step) <= 0
    is_good = is_flatter | (near_rounding & settled) | (still_falls & jnp.isfinite(point.size))
    accepted = is_open & is_good
    at_rounding = near_rounding & (point.size <= _NOISE_FACTOR * noise)
    ended = at_rounding | is_close(tried, point.norm) | (stalled >= _STALL_STEPS)
    done = ended & settled & jnp.isfinite(point.norm)
    turns = accepted & ~done
    downhill = jnp.where(partition.spread(turns), -point.gradient, 0)
    step, inner = direction(problem, point, downhill, _forcing(point.size, noise))
    numbers = _Numbers(
        length=_first_length(step, tried, partition),
        norm=point.norm,
        noise=noise,
        smallest=jnp.minimum(old.smallest, point.size),
    )
    following = _Counts(
        stalled=stalled,
        halvings=jnp.zeros_like(counts.halvings),
        newton_steps=counts.newton_steps + turns.astype(jnp.int32),
        inner_steps=counts.inner_steps + jnp.where(turns, inner, 0),
        done=done.astype(jnp.int32),
    )
    # A start that is not accepted ends the problem: no smaller step can mend it.
    again = jnp.where(jnp.isfinite(old.smallest), counts.halvings + 1, _MAX_HALVINGS)
    halved = jnp.stack(old._replace(length=0.5 * old.length))
    waiting = jnp.stack(counts._replace(halvings=again))
    here = partition.spread(accepted)
    return _State(
        x=jnp.where(here, tried, state.x),
        step=jnp.where(here, step, state.step),
        numbers=jnp.where(accepted, jnp.stack(numbers), halved),
        counts=jnp.where(accepted, jnp.stack(following), waiting),
    )


def _refine(problem: Problem, x: Array, point: Any, asks: Array, last: Array) -> tuple[Any, Array]:
    """(the point with a refined gradient, its noise) for those who ask.

    The others keep their point and the last noise. It takes a pass over the data, and matters at
    the end alone: where the gradient comes near the last noise, or stops shrinking.
    """

    def look() -> tuple[Array, ...]:
        found = problem.refine(x, point)
        return found.gradient, found.norm, found.size, found.noise

    rough = point.gradient, point.norm, point.size, last
    found = lax.cond(jnp.any(asks), look, lambda: rough)
    # What a problem gets must not depend on its neighbours.
    at_items = problem.partition.spread(asks)
    gradient = jnp.where(at_items, found[0], rough[0])
    norm, size, noise = (jnp.where(asks, x, y) for x, y in zip(found[1:], rough[1:], strict=True))
    return point._replace(gradient=gradient, norm=norm, size=size), noise


def _forcing(size: Array, noise: Array) -> Array:
    """How precisely to solve for the next direction.

    Superlinear, but no more than rounding can use. The gradient is measured against the terms that
    it sums, so that a start near the optimum is not solved as coarsely as one far from it. Of the
    powers from 0.5 to 0.9, factors from 1 to 5 and caps from 0.2 to 0.5 these took the fewest steps
    on the problems of benchmarks/peer_problems.py.
    """
    terms = noise / jnp.finfo(size.dtype).eps
    forcing = jnp.minimum(0.3, (4 * size / terms) ** 0.9)
    return jnp.maximum(forcing, 0.5 * noise / size)


def _first_length(step: Array, x: Array, partition: AbstractPartition) -> Array:
    """1, or less for a step that is too long."""
    moved, reach = (partition.largest(jnp.abs(entries)) for entries in (step, x))
    return jnp.minimum(1, _LONGEST * (1 + reach) / jnp.where(moved > 0, moved, 1))


def _is_settled(step: Array, x: Array, partition: AbstractPartition) -> Array:
    """Whether a step is small: without an optimum gradients vanish too, but steps do not."""
    moved, reach = (partition.largest(jnp.abs(entries)) for entries in (step, x))
    return moved <= _SETTLED * (1 + reach)
