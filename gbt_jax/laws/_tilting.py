"""Cumulants of a symmetric measure with finitely many points, tilted by exp(r t).

The measure puts mass weight_i on the pair ±magnitude_i (and all of weight_i on a magnitude of 0).
With u = |t| and X the largest magnitude, all quantities are sums of positive terms:

* masses relative to the top, e^{−u gap} at +x and e^{−u gap} e^{−2ux} at −x, with gap = X − x;
* Φ  = log1p(Σ weight (cosh ux − 1)), so that it is exact near 0;
* Φ' = Σ weight x (mass⁺ − mass⁻) / Σ weight (mass⁺ + mass⁻), the difference by expm1;
* central moments about the mean, with deviations δ − gap, δ = X − Φ', if the mean is near the top:
  this keeps full accuracy for a variance of 1e-300;
* odd central moments near t = 0, where the two signs cancel, from the odd and even parts in x.

Cumulants beyond the variance follow from central moments by the usual recursion.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from .._special import (
    MANY_POINTS,
    difference_and_error,
    exp_minus,
    interpolate,
    one_minus_square,
    product_and_error,
)

_UNROLLED_PAIRS = 8  # the longest sum that is unrolled: longer ones take longer to compile
_MANY_PAIRS = 64  # as in quadratures; discrete laws have fewer, and tails that are not smooth
_BLOCK = 4  # terms that a longer sum adds at a time, in one expression


class SymmetricMeasure(NamedTuple):
    """A folded symmetric measure; the last magnitude is the largest."""

    magnitude: Array
    gap: Array  # largest magnitude − magnitude
    gap_error: Array  # the rounding error of the gap
    weight: Array  # mass of ±magnitude together; sums to 1

    @classmethod
    def from_magnitudes(cls, magnitude: Array, weight: Array) -> "SymmetricMeasure":
        """The measure with the given ascending magnitudes."""
        gap, gap_error = difference_and_error(magnitude[-1], magnitude)
        return cls(magnitude, gap, gap_error, weight)

    def astype(self, dtype) -> "SymmetricMeasure":
        """The same measure in another floating dtype."""
        return jax.tree.map(lambda x: x.astype(dtype), self)


class _Masses(NamedTuple):
    up: Array  # of +x, relative to the top, times the headroom and the weight
    down: Array  # of −x
    difference: Array  # up − down, without subtraction


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def cumulant(t: Array, measure: SymmetricMeasure, order: int = 0) -> Array:
    """The order-th derivative of Φ at t: Φ itself, mean, variance, third cumulant, …

    Mean and variance of a quadrature are interpolated where t has many entries.
    """
    if order not in (1, 2):
        return _evaluate(t, measure, order)
    if measure.magnitude.size <= _UNROLLED_PAIRS:
        u = jnp.where(t < 0, -t, t)
        if order == 2:
            return _variance_of_few(u, measure)
        mean = _mean_of_few(u, measure)
        return jnp.where(t < 0, -mean, mean)
    if measure.magnitude.size < _MANY_PAIRS or t.size < MANY_POINTS:
        return _evaluate(t, measure, order)
    at_points = functools.partial(_evaluate, measure=measure, order=order)
    variance = jnp.sum(measure.weight * measure.magnitude * measure.magnitude)
    return interpolate(at_points, t, order, largest=measure.magnitude[-1], variance=variance)


@functools.partial(cumulant.defjvp, symbolic_zeros=True)
def _cumulant_jvp(order, primals, tangents):
    (t, measure), (dt, dmeasure) = primals, tangents
    value = cumulant(t, measure, order)
    tangent = jnp.zeros_like(value)
    if not isinstance(dt, SymbolicZero):
        tangent = tangent + cumulant(t, measure, order + 1) * dt
    if not all(isinstance(d, SymbolicZero) for d in dmeasure):
        directions = SymmetricMeasure(
            *(
                jnp.zeros_like(x) if isinstance(dx, SymbolicZero) else dx
                for x, dx in zip(measure, dmeasure, strict=True)
            )
        )
        along = functools.partial(_evaluate, t, order=order)
        tangent = tangent + jax.jvp(along, (measure,), (directions,))[1]
    return value, tangent


def _mean_of_few(u: Array, measure: SymmetricMeasure) -> Array:
    pairs = _pairs(measure)
    masses = _masses_of_few(u, pairs)
    total = _add(mass.up + mass.down for mass in masses)
    terms = (pair.magnitude * mass.difference for pair, mass in zip(pairs, masses, strict=True))
    return _add(terms) / total


def _variance_of_few(u: Array, measure: SymmetricMeasure) -> Array:
    """Σ_{i<j} p_i p_j (r_i − r_j)², a sum of positive terms that needs no mean.

    Its cost is quadratic in the number of points, but it is one elementwise expression: XLA would
    store the masses in memory if a mean were subtracted from every point.
    """
    pairs = _pairs(measure)
    masses = _masses_of_few(u, pairs)
    total = _add(mass.up + mass.down for mass in masses)
    terms = [
        (mass.up * mass.down) * (4 * pair.magnitude * pair.magnitude)
        for pair, mass in zip(pairs, masses, strict=True)
    ]
    for (x, one), (y, two) in itertools.combinations(zip(pairs, masses, strict=True), 2):
        same_side = one.up * two.up + one.down * two.down
        terms.append(same_side * (x.gap - y.gap) ** 2)
        opposite = one.up * two.down + one.down * two.up
        terms.append(opposite * (x.magnitude + y.magnitude) ** 2)
    return _add(terms) / total / total


def _masses_of_few(u: Array, pairs: list[SymmetricMeasure]) -> list[_Masses]:
    """The masses of all pairs; the last has no gap, and its mass needs no exponential."""
    *lower, top = pairs
    up = jnp.full_like(u, _headroom(u.dtype)) * top.weight
    return [_masses(u, pair) for pair in lower] + [_both_signs(u, top, up)]


@functools.partial(jax.jit, static_argnums=2)
def _evaluate(t: Array, measure: SymmetricMeasure, order: int) -> Array:
    """The cumulant of any number of points, differentiable in the measure."""
    u = jnp.where(t < 0, -t, t)
    if order == 0:
        return _log_moment(u, measure)
    first = _first_moments(u, measure)
    if order == 1:
        top = measure.magnitude[-1]
        # Both forms are equal; near the top only the first has accurate derivatives in the measure.
        value = jnp.where(first.mean > 0.5 * top, top - first.distance, first.mean)
    else:
        value = _higher_cumulant(order, u, measure, first)
    return jnp.where(t < 0, -value, value) if order % 2 else value


def _sum_over_pairs(terms: Callable[[SymmetricMeasure], tuple[Array, ...]], measure):
    """Σ terms(pair) over the pairs of points, for terms of the shape of t.

    Few pairs are unrolled into one elementwise expression, which XLA computes in registers. Many
    pairs are summed block by block, so that only the sums are stored: a matrix of rows × points
    takes kilobytes per row.
    """
    if measure.magnitude.size <= _UNROLLED_PAIRS:
        return _sum_unrolled(terms, measure)
    count = -measure.magnitude.size % _BLOCK
    # Padding: points of weight 0 at the top, whose masses have the size of the others.
    padding = SymmetricMeasure(*(jnp.broadcast_to(x[-1:], count) for x in measure))
    padding = padding._replace(weight=jnp.zeros_like(padding.weight))
    blocks = jax.tree.map(
        lambda x, more: jnp.concatenate([x, more]).reshape(-1, _BLOCK), measure, padding
    )

    def add_block(sums, block):
        return tuple(map(jnp.add, sums, _sum_unrolled(terms, block))), None

    shapes = jax.eval_shape(terms, jax.tree.map(lambda x: x[0], measure))
    start = tuple(jnp.zeros(x.shape, x.dtype) for x in shapes)
    return lax.scan(add_block, start, blocks)[0]


def _sum_unrolled(terms: Callable, measure: SymmetricMeasure) -> tuple[Array, ...]:
    return tuple(_add(parts) for parts in zip(*map(terms, _pairs(measure)), strict=True))


def _pairs(measure: SymmetricMeasure) -> list[SymmetricMeasure]:
    return [SymmetricMeasure(*(x[k] for x in measure)) for k in range(measure.magnitude.size)]


def _add(terms: Iterable[Array]) -> Array:
    return functools.reduce(jnp.add, terms)


def _masses(u: Array, pair: SymmetricMeasure) -> _Masses:
    """The masses of one pair, times its weight."""
    exponent, error = product_and_error(u, pair.gap)
    root = exp_minus(0.5 * exponent, 0.5 * (error + u * pair.gap_error))
    return _both_signs(u, pair, (root * (_headroom(u.dtype) * pair.weight)) * root)


def _both_signs(u: Array, pair: SymmetricMeasure, up: Array) -> _Masses:
    x = u * pair.magnitude
    fall = jnp.exp(-x)
    return _Masses(up, (up * fall) * fall, up * one_minus_square(x, fall))


def _headroom(dtype) -> float:
    """A power of two by which all masses are multiplied, a little below the fourth root of max.

    It cancels in every ratio, and prevents the underflow of masses that a small total magnifies.
    The derivative of a ratio squares its denominator, the third derivative takes its fourth power,
    which must not overflow: the term that contains it would silently become 0.
    """
    return 2.0 ** (jnp.finfo(dtype).maxexp // 4 - 2)


def _log_moment(u: Array, measure: SymmetricMeasure) -> Array:
    top = measure.magnitude[-1]
    near = u * top < 0.4 * math.log(float(jnp.finfo(u.dtype).max))  # cosh does not overflow
    u_near, u_far = jnp.where(near, u, 0), jnp.where(near, 1 / top, u)

    def terms(pair: SymmetricMeasure) -> tuple[Array, Array]:
        x = u_near * pair.magnitude
        shrink = jnp.expm1(-x)
        masses = _masses(u_far, pair)
        return pair.weight * (0.5 * jnp.exp(x) * shrink * shrink), masses.up + masses.down

    excess, total = _sum_over_pairs(terms, measure)
    far = jnp.log(total / (2 * _headroom(u.dtype))) + u_far * top
    return jnp.where(near, jnp.log1p(excess), far)


class _FirstMoments(NamedTuple):
    total: Array  # of all masses
    mean: Array  # Φ' at |t|
    distance: Array  # δ = X − Φ', as a sum of positive terms


def _first_moments(u: Array, measure: SymmetricMeasure) -> _FirstMoments:
    top = measure.magnitude[-1]

    def terms(pair: SymmetricMeasure) -> tuple[Array, Array, Array]:
        up, down, difference = _masses(u, pair)
        below_zero = top + pair.magnitude
        return up + down, pair.magnitude * difference, pair.gap * up + below_zero * down

    total, mean, distance = _sum_over_pairs(terms, measure)
    return _FirstMoments(total, mean / total, distance / total)


def _higher_cumulant(
    order: int, u: Array, measure: SymmetricMeasure, first: _FirstMoments
) -> Array:
    """κ_n = μ_n − Σ_{m=2}^{n−2} C(n−1, m−1) κ_m μ_{n−m}, with μ_1 = 0."""
    # The recursion does not use the moment of order n − 1.
    powers = [*range(2, order - 1), order]

    def terms(pair: SymmetricMeasure) -> tuple[Array, ...]:
        masses = _masses(u, pair)
        return tuple(_central_terms(k, u, pair, masses, measure, first) for k in powers)

    sums = _sum_over_pairs(terms, measure)
    moments = {k: total / first.total for k, total in zip(powers, sums, strict=True)}
    cumulants: dict[int, Array] = {}
    for n in powers:
        cumulants[n] = moments[n]
        for m in range(2, n - 1):
            cumulants[n] -= math.comb(n - 1, m - 1) * cumulants[m] * moments[n - m]
    return cumulants[order]


def _central_terms(
    power: int,
    u: Array,
    pair: SymmetricMeasure,
    masses: _Masses,
    measure: SymmetricMeasure,
    first: _FirstMoments,
) -> Array:
    """The contribution of a pair to the central moment, times the total mass."""
    x, top = pair.magnitude, measure.magnitude[-1]
    near_top = first.mean > 0.5 * top
    above = jnp.where(near_top, first.distance - pair.gap, x - first.mean)
    below = jnp.where(near_top, first.distance - (top + x), -x - first.mean)
    terms = masses.up * above**power + masses.down * below**power
    if power % 2:
        odd_terms = _split_odd_power(power, x, first.mean, masses)
        terms = jnp.where(u * top < 1, odd_terms, terms)
    return terms


def _split_odd_power(power: int, x: Array, mean: Array, masses: _Masses) -> Array:
    """up (x−m)^k + down (−x−m)^k for odd k, without the parts that cancel at t = 0.

    (x−m)^k = A + B with A odd and B even in x, so the sum is (up−down) A + (up+down) B, and both
    up − down and B are of the order of t.
    """
    terms = jnp.zeros_like(masses.up)
    for j in range(power + 1):
        mass = masses.up + masses.down if j % 2 else masses.difference
        # Multiply by the mass, which is large, before the power of the mean, which may be 1e-300.
        terms += (-1) ** j * math.comb(power, j) * (x ** (power - j) * mass) * mean**j
    return terms
