"""Cumulants of a symmetric measure with finitely many points, tilted by exp(r t).

The measure puts mass weight_i on the pair ±magnitude_i (and all of weight_i on a magnitude of 0).
With u = |t| and X the largest magnitude, everything is a sum of positive terms:

* masses relative to the top, e^{−u gap} at +x and e^{−u gap} e^{−2ux} at −x, with gap = X − x;
* Φ  = log1p(Σ weight (cosh ux − 1)), so that it is exact near 0;
* Φ' = Σ weight x (mass⁺ − mass⁻) / Σ weight (mass⁺ + mass⁻), the difference by expm1;
* central moments about the mean, deviations being taken from the top, δ − gap with δ = X − Φ',
  when the mean is near it: this keeps the digits of a variance of 1e-300;
* odd central moments near t = 0, where the two signs cancel, from the odd and even parts in x.

Cumulants beyond the variance follow from central moments by the usual recursion.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from .._special import difference_and_error, exp_minus, product_and_error


class SymmetricMeasure(NamedTuple):
    """A folded symmetric measure; the last magnitude is the largest."""

    magnitude: Array
    gap: Array  # largest magnitude − magnitude
    gap_error: Array  # what rounding the gap threw away
    weight: Array  # mass of ±magnitude together; sums to 1

    @classmethod
    def from_magnitudes(cls, magnitude: Array, weight: Array) -> "SymmetricMeasure":
        """The measure with the given ascending magnitudes."""
        gap, gap_error = difference_and_error(magnitude[-1], magnitude)
        return cls(magnitude, gap, gap_error, weight)

    def astype(self, dtype) -> "SymmetricMeasure":
        """The same measure in another floating dtype."""
        return jax.tree.map(lambda x: x.astype(dtype), self)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def cumulant(t: Array, measure: SymmetricMeasure, order: int = 0) -> Array:
    """The order-th derivative of Φ at t: Φ itself, mean, variance, third cumulant, …"""
    return _evaluate(t, measure, order)


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


@functools.partial(jax.jit, static_argnums=2)
def _evaluate(t: Array, measure: SymmetricMeasure, order: int) -> Array:
    u = jnp.where(t < 0, -t, t)[..., None]
    if order == 0:
        return _log_moment(u, measure)
    masses = _masses(u, measure)
    if order == 1:
        mean, delta = _absolute_mean(measure, masses), _distance_from_top(measure, masses)
        top = measure.magnitude[-1]
        # The same number; but near the top only this form has accurate derivatives in the measure.
        value = jnp.where(mean > 0.5 * top, top - delta, mean)
    else:
        value = _higher_cumulant(order, u, measure, masses)
    return jnp.where(t < 0, -value, value) if order % 2 else value


class _Masses(NamedTuple):
    up: Array  # of +x, relative to the top, times the headroom
    down: Array  # of −x
    difference: Array  # up − down, without subtraction
    total: Array  # Σ weight (up + down)

    def average(self, terms: Array) -> Array:
        """Σ terms / Σ weight (up + down)."""
        return jnp.sum(terms, axis=-1) / self.total


@jax.jit  # traced once for all orders
def _masses(u: Array, measure: SymmetricMeasure) -> _Masses:
    gap = jnp.broadcast_to(measure.gap, (*u.shape[:-1], measure.gap.size))
    exponent, error = product_and_error(u, gap)
    root = exp_minus(0.5 * exponent, 0.5 * (error + u * measure.gap_error))
    up = (root * _headroom(u.dtype)) * root
    x = u * measure.magnitude
    fall = jnp.exp(-x)
    down = (up * fall) * fall
    total = jnp.sum(measure.weight * (up + down), axis=-1)
    return _Masses(up, down, up * -jnp.expm1(-2 * x), total)


def _headroom(dtype) -> float:
    """A power of two by which all masses are multiplied, a little below the fourth root of max.

    It cancels in every ratio, but keeps masses from underflowing that a small total magnifies.
    The derivative of a ratio squares its denominator, the third one takes its fourth power: that
    must not overflow, or the term that holds it vanishes without a sound.
    """
    return 2.0 ** (jnp.finfo(dtype).maxexp // 4 - 2)


def _log_moment(u: Array, measure: SymmetricMeasure) -> Array:
    top = measure.magnitude[-1]
    near = u * top < 0.4 * math.log(float(jnp.finfo(u.dtype).max))  # cosh does not overflow
    x = jnp.where(near, u, 0) * measure.magnitude
    shrink = jnp.expm1(-x)
    excess = jnp.sum(measure.weight * (0.5 * jnp.exp(x) * shrink * shrink), axis=-1)
    u_far = jnp.where(near, 1 / top, u)
    far = jnp.log(_masses(u_far, measure).total / (2 * _headroom(u.dtype))) + u_far[..., 0] * top
    return jnp.where(near[..., 0], jnp.log1p(excess), far)


def _absolute_mean(measure: SymmetricMeasure, masses: _Masses) -> Array:
    return masses.average(measure.weight * measure.magnitude * masses.difference)


def _distance_from_top(measure: SymmetricMeasure, masses: _Masses) -> Array:
    """δ = X − Φ', as a sum of positive terms."""
    below_zero = measure.magnitude[-1] + measure.magnitude
    return masses.average(measure.weight * (measure.gap * masses.up + below_zero * masses.down))


def _higher_cumulant(order: int, u: Array, measure: SymmetricMeasure, masses: _Masses) -> Array:
    """κ_n = μ_n − Σ_{m=2}^{n−2} C(n−1, m−1) κ_m μ_{n−m}, with μ_1 = 0."""
    moments = {k: _central_moment(k, u, measure, masses) for k in range(2, order + 1)}
    cumulants: dict[int, Array] = {}
    for n in range(2, order + 1):
        cumulants[n] = moments[n]
        for m in range(2, n - 1):
            cumulants[n] -= math.comb(n - 1, m - 1) * cumulants[m] * moments[n - m]
    return cumulants[order]


def _central_moment(power: int, u: Array, measure: SymmetricMeasure, masses: _Masses) -> Array:
    x, weight, top = measure.magnitude, measure.weight, measure.magnitude[-1]
    mean = _absolute_mean(measure, masses)[..., None]
    delta = _distance_from_top(measure, masses)[..., None]
    near_top = mean > 0.5 * top
    above = jnp.where(near_top, delta - measure.gap, x - mean)
    below = jnp.where(near_top, delta - (top + x), -x - mean)
    terms = masses.up * above**power + masses.down * below**power
    if power % 2:
        odd_terms = _split_odd_power(power, x, mean, masses)
        terms = jnp.where(u * top < 1, odd_terms, terms)
    return masses.average(weight * terms)


def _split_odd_power(power: int, x: Array, mean: Array, masses: _Masses) -> Array:
    """up (x−m)^k + down (−x−m)^k for odd k, with the parts that cancel at t = 0 taken out.

    (x−m)^k = A + B with A odd and B even in x, so the sum is (up−down) A + (up+down) B, and both
    up − down and B are of the order of t.
    """
    terms = jnp.zeros_like(masses.up)
    for j in range(power + 1):
        mass = masses.up + masses.down if j % 2 else masses.difference
        # The mass, a large number, comes before the power of the mean, which may be 1e-300.
        terms += (-1) ** j * math.comb(power, j) * (x ** (power - j) * mass) * mean**j
    return terms
