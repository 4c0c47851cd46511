"""Damped Newton's method for a strongly convex function given by its gradient and Hessian products.

Nothing here knows about comparisons: a `Problem` is a handful of functions. The direction solves
∇²L d = −∇L, either inexactly by preconditioned conjugate gradients, to a precision that grows as
the gradient shrinks (so that convergence stays superlinear), or by a Cholesky factorisation. The
step is halved until the loss falls; near the optimum the first try is accepted.

Iterations end where rounding ends them: when the gradient is at the level of its own rounding
errors, or when it has stopped shrinking close to it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

_SUFFICIENT_DECREASE = 1e-4
_MAX_HALVINGS = 200
_NOISE_FACTOR = 2.0  # gradients below this many rounding levels are zero as far as one can tell
_STALL_FACTOR = 1e3  # beyond this many, a gradient that stops shrinking is a failure
_STALL_STEPS = 3
_SETTLED = 1e-3  # the last step, relative to 1 + the largest score


class Point(Protocol):
    """What a problem tells at a point."""

    loss: Array
    loss_noise: Array
    gradient: Array
    size: Array  # of the gradient, √(gᵀ D⁻¹ g)
    noise: Array  # of its rounding errors, in the same norm
    curvature: Any
    diagonal: Array  # D, of the Hessian


class Problem(NamedTuple):
    """A function to minimise."""

    evaluate: Callable[[Array], Any]  # x ↦ Point
    product: Callable[[Any, Array], Array]  # curvature, v ↦ ∇²L v
    dense: Callable[[Any], Array]  # curvature ↦ ∇²L


class Solution(NamedTuple):
    """Where the iterations ended, and why."""

    x: Array
    point: Any
    converged: Array
    newton_steps: Array
    inner_steps: Array


Direction = Callable[[Problem, Any, Array], tuple[Array, Array]]


def cg_direction(max_steps: int) -> Direction:
    """Directions by conjugate gradients with the diagonal as preconditioner."""

    def direction(problem: Problem, point: Any, forcing: Array) -> tuple[Array, Array]:
        return conjugate_gradients(
            lambda v: problem.product(point.curvature, v),
            -point.gradient,
            point.diagonal,
            tolerance=forcing,
            max_steps=max_steps,
        )

    return direction


def cholesky_direction(problem: Problem, point: Any, forcing: Array) -> tuple[Array, Array]:
    """Directions by a dense factorisation."""
    del forcing
    solution = cholesky_solve(problem.dense(point.curvature), -point.gradient)
    return solution, jnp.ones((), jnp.int32)


def cholesky_solve(matrix: Array, rhs: Array) -> Array:
    """Solve a positive semidefinite system whose diagonal may vanish where its row does.

    Scaling to a unit diagonal makes the factorisation as accurate as the problem allows when
    items have very different weights. A tiny shift regularises the directions that no prior and
    no comparison holds; the right-hand side has no component along them.
    """
    diagonal = jnp.diagonal(matrix)
    scale = lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1))
    scaled = matrix * scale[:, None] * scale[None, :]
    shift = 4 * matrix.shape[0] * jnp.finfo(matrix.dtype).eps
    eye = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    factor = jnp.linalg.cholesky(scaled + shift * eye)

    def solve(b: Array) -> Array:
        return scale * jax.scipy.linalg.cho_solve((factor, True), scale * b)

    first = solve(rhs)
    # Two refinements remove what the shift and rounding left.
    second = first + solve(rhs - matrix @ first)
    return second + solve(rhs - matrix @ second)


def conjugate_gradients(
    product: Callable[[Array], Array],
    rhs: Array,
    diagonal: Array,
    *,
    tolerance: Array | float,
    max_steps: int,
) -> tuple[Array, Array]:
    """Solve a positive semidefinite system; (solution, number of steps).

    With the diagonal D as preconditioner, until √(rᵀ D⁻¹ r) of the residual r is `tolerance` times
    that of the right-hand side.
    """
    inverse = jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)
    start = inverse * rhs
    rho_start = jnp.vdot(rhs, start)

    def is_open(state):
        _, _, _, rho, steps = state
        return (rho > tolerance * tolerance * rho_start) & (steps < max_steps)

    def advance(state):
        x, residual, direction, rho, steps = state
        image = product(direction)
        curvature = jnp.vdot(direction, image)
        length = jnp.where(curvature > 0, rho / jnp.where(curvature > 0, curvature, 1), 0)
        x = x + length * direction
        residual = residual - length * image
        preconditioned = inverse * residual
        rho_next = jnp.where(curvature > 0, jnp.vdot(residual, preconditioned), 0)
        direction = preconditioned + (rho_next / rho) * direction
        return x, residual, direction, rho_next, steps + 1

    state = (jnp.zeros_like(rhs), rhs, start, rho_start, jnp.zeros((), jnp.int32))
    x, _, _, _, steps = lax.while_loop(is_open, advance, state)
    return jnp.where(jnp.isnan(rho_start), jnp.nan, x), steps


class _State(NamedTuple):
    x: Array  # the last accepted point
    point: Any
    step: Array  # the direction being tried from there
    length: Array
    smallest: Array  # size of the gradient so far
    stalled: Array
    done: Array
    halvings: Array
    newton_steps: Array
    inner_steps: Array


def minimise(
    problem: Problem,
    start: Array,
    direction: Direction,
    *,
    is_close: Callable[[Array, Array], Array],
    max_steps: int,
) -> Solution:
    """Minimise from `start` until `is_close(x, gradient norm)`, or rounding, ends it.

    Each round tries one point. If the loss has fallen enough there (always so in the first round,
    which tries the start itself), the point is accepted and a new direction computed from it;
    otherwise the step is halved. One evaluation in one loop keeps compilation short.
    """

    def is_open(state: _State) -> Array:
        more = (state.newton_steps < max_steps) & (state.halvings < _MAX_HALVINGS)
        return ~state.done & more

    def advance(state: _State) -> _State:
        tried = state.x + state.length * state.step
        point = problem.evaluate(tried)
        slope = jnp.vdot(state.point.gradient, state.step)
        target = state.point.loss + _SUFFICIENT_DECREASE * state.length * slope
        accepted = point.loss <= target + state.point.loss_noise
        moved = jnp.max(jnp.abs(state.step), initial=0)
        following = _accept(state, tried, point, moved, is_close)
        halved = state._replace(length=0.5 * state.length, halvings=state.halvings + 1)
        state = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), following, halved)
        return lax.cond(accepted & ~state.done, turn, lambda state: state, state)

    def turn(state: _State) -> _State:
        """A new direction from an accepted point."""
        size = state.point.size
        # Superlinear, but no more than rounding can use. The gradient is measured against the
        # terms that it sums, so that a start near the optimum is not solved as coarsely as one
        # far from it. Of the powers from ½ to 1 and caps from 0.03 to 0.3 these took the fewest
        # steps on the problems of benchmarks/single.py.
        terms = state.point.noise / jnp.finfo(size.dtype).eps
        forcing = jnp.minimum(0.3, (size / terms) ** 0.75)
        forcing = jnp.maximum(forcing, 0.5 * state.point.noise / size)
        step, inner = direction(problem, state.point, forcing)
        return state._replace(
            step=step,
            length=jnp.ones_like(state.length),
            newton_steps=state.newton_steps + 1,
            inner_steps=state.inner_steps + inner,
        )

    final = lax.while_loop(is_open, advance, _initial_state(problem, start))
    return Solution(final.x, final.point, final.done, final.newton_steps, final.inner_steps)


def _initial_state(problem: Problem, start: Array) -> _State:
    """Before the first evaluation: any loss is better than the infinite one."""
    shapes = jax.eval_shape(problem.evaluate, start)
    point = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    infinite, none = jnp.full((), jnp.inf, start.dtype), jnp.zeros((), jnp.int32)
    return _State(
        x=start,
        point=point._replace(loss=infinite),
        step=jnp.zeros_like(start),
        length=jnp.ones((), start.dtype),
        smallest=infinite,
        stalled=none,
        done=jnp.asarray(False),
        halvings=none,
        newton_steps=none,
        inner_steps=none,
    )


def _accept(state: _State, x: Array, point: Any, moved: Array, is_close) -> _State:
    """The state at an accepted point: is it the optimum?"""
    at_rounding = point.size <= _NOISE_FACTOR * point.noise
    near_rounding = point.size <= _STALL_FACTOR * point.noise
    shrunk = point.size < 0.5 * state.smallest
    stalled = jnp.where(shrunk | ~near_rounding, 0, state.stalled + 1)
    # Where there is no optimum gradients vanish too, but Newton's steps do not.
    settled = moved <= _SETTLED * (1 + jnp.max(jnp.abs(x), initial=0))
    norm = jnp.linalg.norm(point.gradient)
    ended = at_rounding | is_close(x, norm) | (stalled >= _STALL_STEPS)
    return state._replace(
        x=x,
        point=point,
        smallest=jnp.minimum(state.smallest, point.size),
        stalled=stalled,
        done=ended & settled & jnp.isfinite(norm),
        halvings=jnp.zeros_like(state.halvings),
    )
