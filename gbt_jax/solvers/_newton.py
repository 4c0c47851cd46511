"""Damped Newton's method for a strongly convex function given by its gradient and Hessian products.

A `Problem` is a set of functions independent of comparisons. The direction solves ∇²L d = −∇L,
either inexactly by preconditioned conjugate gradients, to a precision that grows as the gradient
shrinks (so that convergence is superlinear), or by a Cholesky factorisation. The step is halved
until the gradient shrinks, or until it ends before the minimum of L along it: L is convex, so it
decreases up to there, and half of the step achieves at least half of the decrease of the best
length. Gradients decide this: losses are costly, take as long to compile, and near the optimum
their differences are below rounding errors.

Iterations continue to machine precision: until the gradient is at the level of its own rounding
errors, or stops shrinking close to that level.

Independent problems may be concatenated (an `AbstractPartition`). Each has its own step length, its
own conjugate gradients and its own end, after which it is frozen: its solution does not depend on
the other problems.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._data._partition import ONE, AbstractPartition

_DECREASE = 0.7  # accept a point whose gradient is below this multiple of the smallest so far
_MAX_HALVINGS = 200
# The longest step, relative to 1 + the largest score. Where rows are saturated the curvature is
# uninformative, and the gradients of very large scores are lost in rounding.
_LONGEST = 1e3
_MAX_REFINEMENTS = 30  # conjugate-gradient steps with a Cholesky factor as preconditioner
_NEAR = 1e6  # multiple of the last rounding level below which the level is recomputed
_NOISE_FACTOR = 2.0  # gradients below this multiple of the rounding level count as zero
_STALL_FACTOR = 1e3  # above this multiple, a gradient that stops shrinking is a failure
_STALL_STEPS = 3
_SETTLED = 1e-3  # the last step, relative to 1 + the largest score


@runtime_checkable
class Point(Protocol):
    """The evaluation of a problem at a point."""

    gradient: Array
    norm: Array  # of the gradient, √(gᵀ g)
    size: Array  # √(gᵀ D⁻¹ g)
    curvature: Any
    diagonal: Array  # D, of the Hessian


@runtime_checkable
class Refinement(Protocol):
    """A gradient as accurate as the precision allows, with its norms and its rounding errors."""

    gradient: Array
    norm: Array
    size: Array
    noise: Array  # rounding errors, in the norm of `size`


def _identity(x: Array) -> Array:
    return x


class Projection(NamedTuple):
    """Projections that remove a null space from directions and, transposed, from residuals."""

    direction: Callable[[Array], Array] = _identity
    residual: Callable[[Array], Array] = _identity


NO_PROJECTION = Projection()


class Problem(NamedTuple):
    """A function to minimise, or several concatenated ones.

    If the Hessian is singular, or nearly so, along known directions, `projection` removes them from
    steps, and `dense` returns the Hessian regularised along them.
    """

    evaluate: Callable[[Array], Any]  # x ↦ Point
    refine: Callable[[Array, Any], Any]  # x, its Point ↦ Refinement
    loss: Callable[[Array], Array]  # x ↦ L(x)
    product: Callable[[Any, Array], Array]  # curvature, v ↦ ∇²L v
    dense: Callable[[Any], Array]  # Point ↦ ∇²L
    partition: AbstractPartition
    projection: Projection = NO_PROJECTION


class Solution(NamedTuple):
    """The last iterate and its status; numbers per problem."""

    x: Array
    norm: Array  # of the gradient
    converged: Array
    newton_steps: Array
    inner_steps: Array


class Descent(NamedTuple):
    """A solution d of ∇²L d = −g."""

    direction: Array
    steps: Array


# problem, point, −∇L (0 for problems without a step), relative precision ↦ d
Direction = Callable[[Problem, Any, Array, Array], Descent]


def cg_direction(max_steps: int) -> Direction:
    """Directions by conjugate gradients, preconditioned by the diagonal."""

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
    """The direction by a dense factorisation, for a single problem."""
    del forcing
    step = cholesky_solve(problem.dense(point), downhill, problem.projection)
    return Descent(step, jnp.ones((), jnp.int32))


def cholesky_solve(matrix: Array, rhs: Array, projection: Projection) -> Array:
    """Solve a positive semidefinite system, in which rows may be zero.

    Scaling to a unit diagonal makes the factorisation as accurate as the problem allows if items
    have very different weights. A small shift prevents its failure if rounding makes the matrix
    indefinite. Conjugate gradients, preconditioned by the factor, remove the errors of the shift
    and of rounding: usually in two steps, in more if eigenvalues are below the shift.
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
    # They take no step if rounding leaves no curvature: then use the factor alone.
    first = projection.direction(solve(projection.residual(rhs)))
    return jnp.where(found.steps > 0, found.direction, first)


def scale_by_diagonal(diagonal: Array) -> Callable[[Array], Array]:
    """The preconditioner r ↦ D⁻¹ r, with 0 where the diagonal is 0."""
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

    With r ↦ C r as preconditioner, iterate until √(rᵀ C r) of the residual r is `tolerance` times
    that of the right-hand side. A right-hand side of 0 takes no steps, and NaN gives NaN.
    `projection` is applied to the solution and to the residuals.
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
        # A converged problem is frozen: its step length is 0.
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
    # Numbers are stacked, because each separate one is a kernel.
    state = (
        partition.spread(zero) + jnp.zeros_like(rhs),
        rhs,
        start,
        jnp.stack([rho_start, zero]),
    )
    x, _, _, (_, steps) = lax.while_loop(is_open, advance, state)
    return Descent(x, steps.astype(jnp.int32))


class _Numbers(NamedTuple):
    """The numbers of a problem's state, stacked because each separate one is a kernel."""

    length: Array  # of the step being tried
    norm: Array
    noise: Array  # rounding errors of the gradient, when last computed
    smallest: Array  # smallest size of the gradient so far


class _Counts(NamedTuple):
    """The counters of a problem's state, stacked too."""

    stalled: Array
    halvings: Array
    newton_steps: Array
    inner_steps: Array
    done: Array


class _State(NamedTuple):
    x: Array  # the last accepted point
    step: Array  # the current direction; zero once a problem has ended
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
    """Minimise from `start` until `is_close(x, gradient norm)`, or to machine precision.

    Each round tries one point, the start in the first. If it is better, it is accepted and gives a
    new direction; otherwise the step is halved. A single evaluation in a single loop keeps
    compilation short.
    """
    final = lax.while_loop(
        lambda state: jnp.any(_is_running(_Counts(*state.counts), max_steps)),
        functools.partial(_advance, problem, direction, is_close, max_steps),
        _initial_state(problem.partition, start),
    )
    numbers, counts = _Numbers(*final.numbers), _Counts(*final.counts)
    steps = counts.newton_steps, counts.inner_steps
    return Solution(final.x, numbers.norm, counts.done > 0, *steps)


def _initial_state(partition: AbstractPartition, start: Array) -> _State:
    """The state before the first evaluation, with gradients of infinite norm."""
    infinite = jnp.full(partition.shape, jnp.inf, start.dtype)
    none = jnp.zeros(partition.shape, jnp.int32)
    numbers = _Numbers(jnp.ones_like(infinite), infinite, infinite, infinite)
    counts = _Counts(none, none, none, none, none)
    return _State(start, jnp.zeros_like(start), jnp.stack(numbers), jnp.stack(counts))


def _is_running(counts: _Counts, max_steps: int) -> Array:
    failed = (counts.newton_steps >= max_steps) | (counts.halvings >= _MAX_HALVINGS)
    return (counts.done == 0) & ~failed


def _advance(
    problem: Problem, direction: Direction, is_close: Callable, max_steps: int, state: _State
) -> _State:
    """Evaluate the tried point; if it is accepted compute a direction, otherwise halve the step."""
    partition, old, counts = problem.partition, _Numbers(*state.numbers), _Counts(*state.counts)
    tried = state.x + partition.spread(old.length) * state.step
    point = problem.evaluate(tried)
    is_open = _is_running(counts, max_steps)
    is_smaller = point.size < _DECREASE * old.smallest
    selected = is_open & (~is_smaller | (point.size <= _NEAR * old.noise))
    point, noise = _refine(problem, tried, point, selected, old.noise)
    is_smaller = point.size < _DECREASE * old.smallest
    near_rounding = (point.size <= _STALL_FACTOR * noise) & jnp.isfinite(noise)
    stalled = jnp.where(near_rounding & (point.size >= 0.5 * old.smallest), counts.stalled + 1, 0)
    settled = _is_settled(state.step, tried, partition)
    # Accept if the gradient is smaller than all so far (repeated, this converges to an optimum), if
    # it is at rounding level, or if the loss still decreases along the step.
    still_falls = partition.inner(point.gradient, state.step) <= 0
    is_good = is_smaller | (near_rounding & settled) | (still_falls & jnp.isfinite(point.size))
    accepted = is_open & is_good
    at_rounding = near_rounding & (point.size <= _NOISE_FACTOR * noise)
    ended = at_rounding | is_close(tried, point.norm) | (stalled >= _STALL_STEPS)
    done = ended & settled & jnp.isfinite(point.norm)
    needs_direction = accepted & ~done
    downhill = jnp.where(partition.spread(needs_direction), -point.gradient, 0)
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
        newton_steps=counts.newton_steps + needs_direction.astype(jnp.int32),
        inner_steps=counts.inner_steps + jnp.where(needs_direction, inner, 0),
        done=done.astype(jnp.int32),
    )
    # A start that is not accepted ends the problem: halving cannot change it.
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


def _refine(
    problem: Problem, x: Array, point: Any, selected: Array, last: Array
) -> tuple[Any, Array]:
    """(the point with a refined gradient, its noise) for the problems in `selected`.

    Other problems keep their point and the last noise. Refinement takes a pass over the data, and
    is needed only if the gradient approaches the last noise or stops shrinking.
    """

    def refine_gradient() -> tuple[Array, ...]:
        found = problem.refine(x, point)
        return found.gradient, found.norm, found.size, found.noise

    rough = point.gradient, point.norm, point.size, last
    found = lax.cond(jnp.any(selected), refine_gradient, lambda: rough)
    # The result of a problem must not depend on the other problems.
    at_items = problem.partition.spread(selected)
    gradient = jnp.where(at_items, found[0], rough[0])
    norm, size, noise = (
        jnp.where(selected, x, y) for x, y in zip(found[1:], rough[1:], strict=True)
    )
    return point._replace(gradient=gradient, norm=norm, size=size), noise


def _forcing(size: Array, noise: Array) -> Array:
    """The relative precision of the solve for the next direction.

    It gives superlinear convergence, up to the rounding level. The gradient is measured relative to
    the terms of its sum, so that a start near the optimum gets a finer solve than one far from it.
    Of the powers from 0.5 to 0.9, factors from 1 to 5 and caps from 0.2 to 0.5 these took the
    fewest steps on the problems of benchmarks/peer_problems.py.
    """
    terms = noise / jnp.finfo(size.dtype).eps
    forcing = jnp.minimum(0.3, (4 * size / terms) ** 0.9)
    return jnp.maximum(forcing, 0.5 * noise / size)


def _first_length(step: Array, x: Array, partition: AbstractPartition) -> Array:
    """The first step length: 1, or less if the step is too long."""
    moved, reach = (partition.largest(jnp.abs(entries)) for entries in (step, x))
    return jnp.minimum(1, _LONGEST * (1 + reach) / jnp.where(moved > 0, moved, 1))


def _is_settled(step: Array, x: Array, partition: AbstractPartition) -> Array:
    """Whether a step is small: without a finite optimum gradients vanish, but steps do not."""
    moved, reach = (partition.largest(jnp.abs(entries)) for entries in (step, x))
    return moved <= _SETTLED * (1 + reach)
