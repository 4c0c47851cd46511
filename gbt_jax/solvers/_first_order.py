"""L-BFGS, from optax: the first-order alternative to Newton's method.

Scores are scaled by 1/√(diagonal of the Hessian at the start), which removes most of the bad
conditioning of comparison graphs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from ._newton import Problem, Solution

_NOISE_FACTOR = 2.0
_STALL_FACTOR = 1e3
_STALL_STEPS = 30


def minimise(
    problem: Problem,
    start: Array,
    *,
    is_close: Callable[[Array, Array], Array],
    max_steps: int,
    memory_size: int,
) -> Solution:
    """Minimise from `start` until `is_close(x, gradient norm)`, or to machine precision."""
    import optax  # slow to import, and used by this solver only

    first = problem.evaluate(start)
    unit = lax.rsqrt(jnp.where(first.diagonal > 0, first.diagonal, 1))
    optimiser = optax.lbfgs(memory_size=memory_size)

    def place(z: Array) -> Array:
        return start + problem.projection.direction(unit * z)

    def slope(point: Any) -> Array:
        return unit * problem.projection.residual(point.gradient)

    def loss(z: Array) -> Array:
        return problem.loss(place(z))

    def is_done(state) -> Array:
        z, point, _, _, stalled, _ = state
        noise = problem.refine(place(z), point).noise
        near = (point.size <= _STALL_FACTOR * noise) & jnp.isfinite(noise)
        at_rounding = near & (point.size <= _NOISE_FACTOR * noise)
        return at_rounding | is_close(place(z), point.norm) | ((stalled >= _STALL_STEPS) & near)

    def is_open(state):
        _, point, _, _, _, steps = state
        return ~is_done(state) & (steps < max_steps) & jnp.all(jnp.isfinite(point.gradient))

    def advance(state):
        z, point, memory, smallest, stalled, steps = state
        # optax mixes integer widths, which strict dtype promotion rejects.
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = optimiser.update(
                slope(point),
                memory,
                z,
                value=loss(z),
                grad=slope(point),
                value_fn=loss,
            )
        z = z + updates
        point = problem.evaluate(place(z))
        stalled = jnp.where(point.size < 0.9 * smallest, 0, stalled + 1)
        return z, point, memory, jnp.minimum(point.size, smallest), stalled, steps + 1

    zero = jnp.zeros_like(start)
    none = jnp.zeros((), jnp.int32)
    state = (zero, first, optimiser.init(zero), first.size, none, none)
    final = lax.while_loop(is_open, advance, state)
    z, point, _, _, _, steps = final
    return Solution(place(z), point.norm, is_done(final), steps, steps)
