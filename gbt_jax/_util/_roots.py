"""Roots of increasing functions, one of each entry of an array, all searched at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

_MAX_STEPS = 200  # every second one at least halves a bracket, or doubles x without one


class Value(NamedTuple):
    """Of increasing functions, at one point each."""

    value: Array
    slope: Array
    noise: Array | float  # how far rounding may have moved the value


class _Bracket(NamedTuple):
    """Where the search for each root is."""

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

    `evaluate(x, is_open)` tells f and its slope, and is asked about all entries while any is open.
    f is below zero at 0; entries that are not open stay at `start`.
    """
    far, zero = jnp.full_like(start, jnp.inf), jnp.zeros_like(start)
    end = lax.while_loop(
        lambda at: jnp.any(at.is_open) & (at.steps < _MAX_STEPS),
        lambda at: _advance(at, evaluate(at.x, at.is_open)),
        _Bracket(start, zero, far, far, far, is_open, jnp.asarray(0)),
    )
    return jnp.where(end.is_open, jnp.nan, end.x)


def _advance(at: _Bracket, found: Value) -> _Bracket:
    """Newton's step where it stays in the bracket and steps shrink; else halve it, or double."""
    is_low = found.value < 0  # NaN, from overflow, is too far
    low, high = jnp.where(is_low, at.x, at.low), jnp.where(is_low, at.high, at.x)
    newton = at.x - found.value / found.slope
    # From far above, rounding may take Newton's step to the lower end: 8 ε of the way stay.
    eps = float(jnp.finfo(newton.dtype).eps)
    newton = jnp.where(is_low, newton, jnp.maximum(newton, low + 8 * eps * at.x))
    move, is_inside = jnp.abs(newton - at.x), (newton > low) & (newton < high)
    is_shrinking = jnp.isinf(high) | (move <= 0.5 * at.earlier_move)
    fallback = jnp.where(jnp.isinf(high), 2 * at.x, 0.5 * low + 0.5 * high)
    following = jnp.where(is_inside & is_shrinking, newton, fallback)
    # The last step is Newton's too: it squares an error that is small already.
    ends = (move <= eps ** (2 / 3) * at.x) | (jnp.abs(found.value) <= found.noise)
    ends = jnp.isfinite(found.value) & (ends | (high - low <= 4 * eps * at.x))
    following = jnp.where(ends, jnp.where(is_inside, newton, at.x), following)
    following = jnp.where(at.is_open, following, at.x)
    moved = jnp.abs(following - at.x)
    return _Bracket(following, low, high, at.last_move, moved, at.is_open & ~ends, at.steps + 1)


def bisect(is_before: Callable[[Array], Array], near: Array, far: Array) -> Array:
    """Where a condition that holds near ceases to hold on the way to far."""

    def halve(_, ends):
        near, far = ends
        middle = 0.5 * (near + far)
        before = is_before(middle)
        return jnp.where(before, middle, near), jnp.where(before, far, middle)

    return lax.fori_loop(0, jnp.finfo(far.dtype).nmant, halve, (near, far))[1]
