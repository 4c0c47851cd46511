"""ℓ(x) = log(sinh x / x), whose derivative is the Langevin function, and ℓ(Kx) − ℓ(x).

Every derivative has two forms:

* |x| < 1: the power series ℓ(x) = Σ_k c_k x^{2k}, c_k = 2^{2k} B_{2k} / (2k (2k)!), which converges
  for |x| < π, economised to about a dozen terms;
* x ≥ 1: with q = e^{−2x} and m = q/(1−q),
      ℓ(x)   = x + log((1−q)/(2x))
      ℓ'(x)  = 1 − 1/x + P_1(m)
      ℓ⁽ⁿ⁾(x) = (−1)ⁿ (n−1)!/xⁿ + P_n(m)      P_1 = 2m, P_{n+1} = −2m(1+m) P_n'
  because dm/dx = −2m(1+m). The coefficients of each P_n have one sign.

The order is static, and the derivative rule of order n evaluates order n+1: no derivative passes
through a `where`. Each order is jitted, so that laws which nest derivatives trace its series once.
"""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
from jax import Array

from ._exact import exp_minus, quotient_and_error, squared_exponential
from ._series import NUM_TERMS, bernoulli, economise, horner

_SWITCH = 1.0


@functools.cache
def _near_coefficients(order: int, num_levels: int | None, eps: float) -> list[float]:
    """Coefficients, by steps of x² from the lowest power, of the order-th derivative in x of ℓ(x).

    With `num_levels`, those of ℓ(Kx/(K−1)) − ℓ(x/(K−1)), for Kx/(K−1) < 1.
    """
    first, numbers = _first_term(order), bernoulli(2 * (NUM_TERMS + _first_term(order)))

    def term(place: int) -> Fraction:
        k = first + place
        c_k = Fraction(4**k, 2 * k * math.factorial(2 * k)) * numbers[2 * k]
        if num_levels is not None:
            c_k *= Fraction(num_levels ** (2 * k) - 1, (num_levels - 1) ** (2 * k))
        return c_k * math.perm(2 * k, order)

    end = Fraction(1) if num_levels is None else Fraction(num_levels - 1, num_levels)
    return economise(term, end**2, eps)


def _first_term(order: int) -> int:
    """The first k ≥ 1 whose power x^{2k} survives `order` differentiations."""
    return max(1, (order + 1) // 2)


@functools.cache
def _tail_polynomial(order: int) -> list[float]:
    """Coefficients of P_n, lowest power first."""
    coefficients = [0, 2]
    for _ in range(order - 1):
        derivative = [k * c for k, c in enumerate(coefficients)][1:]
        times_m = [0, *derivative, 0]
        times_m_squared = [0, 0, *derivative]
        coefficients = [-2 * (x + y) for x, y in zip(times_m, times_m_squared, strict=True)]
    return [float(c) for c in coefficients]


def _near(order: int, x: Array, num_levels: int | None = None) -> Array:
    """ℓ⁽ⁿ⁾ on [0, 1) by its power series; with `num_levels`, the series of the difference."""
    coefficients = _near_coefficients(order, num_levels, float(jnp.finfo(x.dtype).eps))
    return horner(coefficients, x * x) * x ** (2 * _first_term(order) - order)


def _tail(order: int, root: Array, scale: float = 1.0) -> Array:
    """scale·P_n(q/(1−q)), q = root²: the exponentially small part of ℓ⁽ⁿ⁾, n ≥ 1.

    q is never formed alone: it would underflow before the result does.
    """
    _, lowest, *higher = _tail_polynomial(order)
    q = squared_exponential(root)
    polynomial = horner([lowest, *higher], q / (1 - q))
    return (scale * polynomial * root) * root / (1 - q)


def _far(order: int, x: Array) -> Array:
    """ℓ⁽ⁿ⁾ on [1, ∞), n ≥ 1. q may underflow: it is added to terms that do not."""
    q = jnp.exp(-2 * x)
    tail = horner(_tail_polynomial(order), q / (1 - q))
    if order == 1:
        return 1 - 1 / x + tail
    return (-1) ** order * math.factorial(order - 1) * (1 / x) ** order + tail


def _derivative(order: int, x: Array) -> Array:
    """ℓ⁽ⁿ⁾(x) for x ≥ 0, n ≥ 1."""
    near = x < _SWITCH
    series = _near(order, jnp.where(near, x, 0))
    return jnp.where(near, series, _far(order, jnp.where(near, _SWITCH, x)))


def _with_parity(order: int, t: Array, value: Array) -> Array:
    return jnp.where(t < 0, -value, value) if order % 2 else value


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
@functools.partial(jax.jit, static_argnums=(1,))
def log_sinhc(t: Array, order: int = 0) -> Array:
    """The order-th derivative of ℓ(t) = log(sinh t / t)."""
    x = jnp.abs(t)
    if order > 0:
        return _with_parity(order, t, _derivative(order, x))
    near = x < _SWITCH
    far = jnp.where(near, _SWITCH, x)
    q = jnp.exp(-2 * far)  # shared with the other orders, which are often computed too
    far_value = far + jnp.log((1 - q) / (2 * far))
    return jnp.where(near, _near(0, jnp.where(near, x, 0)), far_value)


@log_sinhc.defjvp
def _log_sinhc_jvp(order, primals, tangents):
    (t,), (dt,) = primals, tangents
    return log_sinhc(t, order), log_sinhc(t, order + 1) * dt


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
@functools.partial(jax.jit, static_argnums=(1, 2))
def log_sinhc_ratio(t: Array, num_levels: int, order: int = 0) -> Array:
    """The order-th derivative in t of ℓ(Kx) − ℓ(x), x = t/(K−1).

    This is the log of the average of e^{rt} over K evenly spaced points of [−1, 1]. Both ℓ carry a
    term −log x that cancels in the difference, so it is omitted for x ≥ 1: the remainder is
    |t| − log K + log((1−q^K)/(1−q)), exact in the tail. Below, ℓ(Kx) exceeds ℓ(x) by a factor
    of about K² ≥ 4 and the plain difference is safe; for Kx < 1 one series combines both.
    """
    u = jnp.abs(t)
    x, error = quotient_and_error(u, num_levels - 1)
    y = u + x  # K x
    small, close = y < _SWITCH, x < _SWITCH
    y_far, x_far = jnp.where(small, _SWITCH, y), jnp.where(close, _SWITCH, x)
    root_x, root_y = exp_minus(x_far, error), jnp.exp(-y_far)
    series = _near(order, jnp.where(small, u, 0), num_levels)
    near_x = _near(order, jnp.where(close, x, 0))
    if order == 0:
        # One logarithm serves both of the other branches.
        denominator = jnp.where(close, 2 * y_far, num_levels * (1 - squared_exponential(root_x)))
        logarithm = jnp.log((1 - squared_exponential(root_y)) / denominator)
        value = jnp.where(close, y - near_x, u) + logarithm
        return jnp.where(small, series, value)
    scale_y, scale_x = (num_levels / (num_levels - 1)) ** order, 1 / (num_levels - 1) ** order
    plain = scale_y * _far(order, y_far) - scale_x * near_x
    # e^{−2y} is a rounding-level correction where x ≥ 1 and K is not small, so y may stay rounded.
    tail = _tail(order, root_y, scale_y) - _tail(order, root_x, scale_x)
    if order == 1:
        tail = 1 + tail
    value = jnp.where(small, series, jnp.where(close, plain, tail))
    return _with_parity(order, t, value)


@log_sinhc_ratio.defjvp
def _log_sinhc_ratio_jvp(num_levels, order, primals, tangents):
    (t,), (dt,) = primals, tangents
    value = log_sinhc_ratio(t, num_levels, order)
    return value, log_sinhc_ratio(t, num_levels, order + 1) * dt
