"""Roots of increasing functions, one per entry of an array, found together."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

_MAX_STEPS = 200  # at least every second step halves the bracket, or doubles x if there is none


class Value(NamedTuple):
    """Values of increasing functions, at one point each."""

    value: Array
    slope: Array
    noise: Array | float  # bound of the rounding error of the value


class _Bracket(NamedTuple):
    """The state of the search for each root."""

    x: Array
    low: Array
    high: Array
    earlier_move: Array
    last_move: Array
    is_open: Array
    steps: Array


def positive_roots(
    evaluate: Callable[[Array, Array], Value], start: Array, is_open: Array
) -> Array:
    """x > 0 with f(x) = 0 by Newton's method in a bracket; NaN where none was found.

    `evaluate(x, is_open)` returns f and its slope for all entries, as long as any is open. f is
    negative at 0. Entries that are not open keep their `start`.
    """
    far, zero = jnp.full_like(start, jnp.inf), jnp.zeros_like(start)
    end = lax.while_loop(
        lambda at: jnp.any(at.is_open) & (at.steps < _MAX_STEPS),
        lambda at: _advance(at, evaluate(at.x, at.is_open)),
        _Bracket(start, zero, far, far, far, is_open, jnp.asarray(0)),
    )
    return jnp.where(end.is_open, jnp.nan, end.x)


def _advance(at: _Bracket, found: Value) -> _Bracket:
    """Take Newton's step if it stays in the bracket and steps shrink; else bisect or double x."""
    is_low = found.value < 0  # NaN, from overflow, counts as too high
    low, high = jnp.where(is_low, at.x, at.low), jnp.where(is_low, at.high, at.x)
    newton = at.x - found.value / found.slope
    # From far above, rounding may take Newton's step to the lower end: stay 8 ε x above it.
    eps = float(jnp.finfo(newton.dtype).eps)
    newton = jnp.where(is_low, newton, jnp.maximum(newton, low + 8 * eps * at.x))
    move, is_inside = jnp.abs(newton - at.x), (newton > low) & (newton < high)
    is_shrinking = jnp.isinf(high) | (move <= 0.5 * at.earlier_move)
    fallback = jnp.where(jnp.isinf(high), 2 * at.x, 0.5 * low + 0.5 * high)
    following = jnp.where(is_inside & is_shrinking, newton, fallback)
    # The last step is Newton's too: it squares a small error.
    ends = (move <= eps ** (2 / 3) * at.x) | (jnp.abs(found.value) <= found.noise)
    ends = jnp.isfinite(found.value) & (ends | (high - low <= 4 * eps * at.x))
    following = jnp.where(ends, jnp.where(is_inside, newton, at.x), following)
    following = jnp.where(at.is_open, following, at.x)
    moved = jnp.abs(following - at.x)
    return _Bracket(following, low, high, at.last_move, moved, at.is_open & ~ends, at.steps + 1)


def bisect(is_before: Callable[[Array], Array], near: Array, far: Array) -> Array:
    """The point between near and far from which a condition that holds at near no longer holds."""

    def halve(_, ends):
        near, far = ends
        middle = 0.5 * (near + far)
        before = is_before(middle)
        return jnp.where(before, middle, near), jnp.where(before, far, middle)

    return lax.fori_loop(0, jnp.finfo(far.dtype).nmant, halve, (near, far))[1]
