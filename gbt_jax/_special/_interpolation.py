"""Mean and variance at many points by piecewise Chebyshev interpolation.

Some laws take hundreds of operations per value: a power series, or a sum over quadrature nodes.
Their mean and variance are smooth functions of t, so that a few hundred values determine all others
to full accuracy. With u proportional to |t|, these functions are interpolated:

    Φ'/u and (K + u²) Φ''   in u², for u ≤ 2,
    Φ'   and (K + u²) Φ''   in 1/u, for u from 2 to 5, 5 to 12, 12 to 40, and 40 to ∞,

where K is 1/Φ''(0) in units of u. Each is smooth, also at infinity, and varies by a small factor,
so that small absolute errors are small relative errors. Smoothness is checked at run time: the last
coefficients of every piece must be at rounding level, otherwise every value is computed directly,
as for laws that are narrow or nearly discrete.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# These cuts need the fewest terms of those tried: 27 for Beta(0.05), 23 for Beta(100).
_CUTS = (2.0, 5.0, 12.0, 40.0)
_NARROW = 12.0  # K above which the unit of u grows with K
_TERMS = 30
_NODES = 64  # per piece: twice the number of terms, so that rounding errors of values average out
_LAST = 3  # coefficients that must be at rounding level
_TAIL = 4.0  # rounding level, in units of ε times the smallest value
_SPREAD = 16.0  # bound of Σ |coefficients| over the smallest value: growth of rounding errors
# Fewer values are computed directly: it takes no longer and compiles faster.
MANY_POINTS = 4096


class _Grid(NamedTuple):
    """Chebyshev nodes of every piece, and the matrix from values to coefficients."""

    u: np.ndarray  # pieces × nodes
    is_near: np.ndarray  # pieces × 1
    transform: np.ndarray  # values @ transform = coefficients


@functools.cache
def _grid() -> _Grid:
    # Angles are reduced as integers: the cosine of a large rounded angle is not accurate.
    turns = np.outer(2 * np.arange(_NODES) + 1, np.arange(_TERMS)) % (4 * _NODES)
    cosines = np.cos(np.pi / (2 * _NODES) * turns)
    share = 0.5 * (1 + cosines[:, 1])  # of the interval, in u² or 1/u
    ends = 1 / np.asarray([*_CUTS, np.inf])
    pieces = [_CUTS[0] * np.sqrt(share)]
    pieces += [1 / (low + (high - low) * share) for high, low in itertools.pairwise(ends)]
    transform = 2 / _NODES * cosines
    transform[:, 0] /= 2
    return _Grid(np.stack(pieces), np.arange(len(pieces))[:, None] == 0, transform)


class _Series(NamedTuple):
    """The interpolant of one function."""

    reach: Array  # u/|t|
    inverse_variance: Array  # K
    middle: Array  # of the values of each piece
    coefficients: Array  # pieces × terms


def interpolate(
    evaluate: Callable[[Array], Array],
    t: Array,
    order: int,
    *,
    largest: Array | float,
    variance: Array,
) -> Array:
    """evaluate(t), the mean (order 1) or variance (order 2) of a law at many t.

    `largest` is the law's largest value, `variance` is Φ''(0); both are scalars. Derivatives in t
    need a rule of their own.
    """
    grid, dtype = _grid(), t.dtype
    scale = largest / jnp.maximum(1, largest * largest / (variance * _NARROW))
    reach = jnp.asarray(scale, dtype)
    inverse_variance = reach * reach / variance
    u = jnp.asarray(grid.u, dtype)
    values = evaluate((u / reach).ravel()).reshape(u.shape)
    if order == 1:
        values = jnp.where(grid.is_near, values / u, values)
    else:
        values = values * (inverse_variance + u * u)
    # Coefficients of the deviations from the middle have small rounding errors.
    middle = 0.5 * (values[:, :1] + values[:, -1:])
    coefficients = (values - middle) @ jnp.asarray(grid.transform, dtype)
    smallest = jnp.min(jnp.abs(values), axis=1)
    tail = jnp.max(jnp.abs(coefficients[:, -_LAST:]), axis=1)
    spread = jnp.sum(jnp.abs(coefficients), axis=1)
    eps = float(jnp.finfo(dtype).eps)
    is_smooth = jnp.all((tail <= _TAIL * eps * smallest) & (spread <= _SPREAD * smallest))
    series = _Series(reach, inverse_variance, middle[:, 0], coefficients)
    return lax.cond(
        is_smooth,
        lambda: _sum_series(series, t, order),
        lambda: _evaluate_in_chunks(evaluate, t),
    )


def _evaluate_in_chunks(evaluate: Callable[[Array], Array], t: Array) -> Array:
    """evaluate(t) chunk by chunk, to bound memory."""
    rest = -t.size % MANY_POINTS
    chunks = jnp.pad(t.ravel(), (0, rest)).reshape(-1, MANY_POINTS)
    return lax.map(evaluate, chunks).ravel()[: t.size].reshape(t.shape)


def _sum_series(series: _Series, t: Array, order: int) -> Array:
    """The value of the interpolant by Clenshaw's recurrence."""
    u = jnp.abs(t) * series.reach
    is_near = u < _CUTS[0]
    inverse = 1 / jnp.where(is_near, _CUTS[0], u)
    # The variable of each piece, from −1 to 1.
    x = (2 / _CUTS[0] ** 2) * (u * u) - 1
    ends = [1 / cut for cut in _CUTS] + [0.0]
    for cut, (high, low) in zip(_CUTS, itertools.pairwise(ends), strict=True):
        x = jnp.where(u >= cut, (inverse - low) * (2 / (high - low)) - 1, x)

    def select_piece(numbers: Array) -> Array:
        chosen = numbers[0]
        for cut, number in zip(_CUTS, numbers[1:], strict=True):
            chosen = jnp.where(u >= cut, number, chosen)
        return chosen

    twice, one, two = 2 * x, select_piece(series.coefficients[:, -1]), jnp.zeros_like(u)
    for k in range(_TERMS - 2, 0, -1):
        one, two = twice * one - two + select_piece(series.coefficients[:, k]), one
    rest = x * one - two + select_piece(series.coefficients[:, 0])
    value = select_piece(series.middle) + rest
    if order == 1:
        value = jnp.where(is_near, u, 1) * value
        return jnp.where(t < 0, -value, value)
    return value / (series.inverse_variance + u * u)
