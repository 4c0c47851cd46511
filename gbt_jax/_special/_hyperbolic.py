"""log cosh and its derivatives, and hyperbolic functions accurate up to overflow.

The family log cosh → tanh → sech² → −2 tanh sech² is closed under differentiation, so three
functions with three rules give every order with no subtraction of nearly equal numbers:
tanh² + sech² = 1 is never used.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._exact import exp_minus, quotient_and_error


def magnitude(t: Array) -> Array:
    """|t| whose derivative at 0 is 1, so that even functions F(|t|) differentiate to any order.

    `jnp.abs` has derivative 0 at 0, which would make F''(|t|) vanish there.
    """
    return jnp.where(t < 0, -t, t)


def _odd(t: Array, value_at_magnitude: Array) -> Array:
    return jnp.where(t < 0, -value_at_magnitude, value_at_magnitude)


def log_cosh(t: Array) -> Array:
    """log cosh t: t²/2 near 0, |t| − log 2 far away."""
    return log_cosh_ratio(t, 1)


def tanh(t: Array) -> Array:
    """tanh t, with sech² (not 1 − tanh²) as its derivative."""
    return _tanh_ratio(t, 1)


def _decay(t: Array, divisor: int) -> tuple[Array, Array, Array]:
    """x = |t|/divisor, q = exp(−2x) and 1 − q, each to the last digits however large x is."""
    x, error = quotient_and_error(jnp.abs(t), divisor)
    if divisor == 1:
        error = jnp.zeros_like(x)
    return x, exp_minus(2 * x, 2 * error), -jnp.expm1(-2 * x)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def log_cosh_ratio(t: Array, divisor: int) -> Array:
    """log cosh(t/n) for an integer n, as accurate as if t/n were not rounded."""
    x, q, one_minus_q = _decay(t, divisor)
    # Below 1: cosh² = 1 + sinh² and sinh² x = (1−q)²/(4q), all terms positive.
    # Above:   cosh x = e^x (1 + q)/2.
    near = x < 1
    log_term = jnp.log1p(jnp.where(near, one_minus_q * one_minus_q / (4 * q), q))
    return jnp.where(near, 0.5 * log_term, x + (log_term - np.log(2.0).astype(x.dtype)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _tanh_ratio(t: Array, divisor: int) -> Array:
    _, q, one_minus_q = _decay(t, divisor)
    return _odd(t, one_minus_q / (1 + q))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _sech2_ratio(t: Array, divisor: int) -> Array:
    _, q, _ = _decay(t, divisor)
    return 4 * q / ((1 + q) * (1 + q))


@log_cosh_ratio.defjvp
def _log_cosh_jvp(divisor, primals, tangents):
    (t,), (dt,) = primals, tangents
    return log_cosh_ratio(t, divisor), _tanh_ratio(t, divisor) / divisor * dt


@_tanh_ratio.defjvp
def _tanh_jvp(divisor, primals, tangents):
    (t,), (dt,) = primals, tangents
    return _tanh_ratio(t, divisor), _sech2_ratio(t, divisor) / divisor * dt


@_sech2_ratio.defjvp
def _sech2_jvp(divisor, primals, tangents):
    (t,), (dt,) = primals, tangents
    value = _sech2_ratio(t, divisor)
    return value, -2 / divisor * _tanh_ratio(t, divisor) * value * dt


@jax.custom_jvp
def sinh(t: Array) -> Array:
    """sinh t, accurate up to overflow (exp(t + log ½) is not: t + log ½ is rounded)."""
    u = jnp.abs(t)
    growth = jnp.expm1(jnp.minimum(u, 1))
    near = 0.5 * (growth + growth / (1 + growth))
    root = jnp.exp(0.5 * u)  # e^u = root², whose half does not overflow before sinh does
    far = (0.5 * root) * root - 0.5 / root / root
    return _odd(t, jnp.where(u < 1, near, far))


@jax.custom_jvp
def cosh(t: Array) -> Array:
    """cosh t, accurate up to overflow."""
    root = jnp.exp(0.5 * jnp.abs(t))
    return (0.5 * root) * root + 0.5 / root / root


@jax.custom_jvp
def cosh_minus_one(t: Array) -> Array:
    """cosh t − 1 = 2 sinh²(t/2), accurate near 0 and up to overflow."""
    half = sinh(0.5 * t)
    return 2 * half * half


sinh.defjvps(lambda dt, _, t: cosh(t) * dt)
cosh.defjvps(lambda dt, _, t: sinh(t) * dt)
cosh_minus_one.defjvps(lambda dt, _, t: sinh(t) * dt)
