"""log cosh and its derivatives, and hyperbolic functions accurate up to overflow.

The family log cosh → tanh → sech² → −2 tanh sech² is closed under differentiation, so three
functions with three rules give every order with no subtraction of nearly equal numbers:
tanh² + sech² = 1 is never used.
"""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ._exact import exp_minus, quotient_and_error, squared_exponential
from ._series import NUM_TERMS, bernoulli, economise, horner


def magnitude(t: Array) -> Array:
    """|t| with derivative 1 at 0, so that even functions F(|t|) differentiate to any order.

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


def _decay(t: Array, divisor: int) -> tuple[Array, Array]:
    """x = |t|/divisor and exp(−x), to full accuracy for all x."""
    if divisor == 1:
        return jnp.abs(t), jnp.exp(-jnp.abs(t))
    x, error = quotient_and_error(jnp.abs(t), divisor)
    return x, exp_minus(x, error)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def log_cosh_ratio(t: Array, divisor: int) -> Array:
    """log cosh(t/n) for an integer n, as accurate as if t/n were not rounded."""
    x, root = _decay(t, divisor)
    q, one_minus_q = squared_exponential(root), -jnp.expm1(-2 * x)
    # Below 1: cosh² = 1 + sinh² and sinh² x = (1−q)²/(4q), all terms positive.
    # Above:   cosh x = e^x (1 + q)/2.
    near = x < 1
    log_term = jnp.log1p(jnp.where(near, one_minus_q * one_minus_q / (4 * q), q))
    return jnp.where(near, 0.5 * log_term, x + (log_term - np.log(2.0).astype(x.dtype)))


@functools.cache
def _tanh_coefficients(eps: float) -> list[float]:
    """Coefficients of tanh(x)/x, |x| < ½: Σ_k 4^{k+1} (4^{k+1} − 1) B_{2k+2} / (2k+2)! x^{2k}."""
    numbers = bernoulli(2 * NUM_TERMS + 1)

    def term(place: int) -> Fraction:
        k = place + 1
        return Fraction(4**k * (4**k - 1), math.factorial(2 * k)) * numbers[2 * k]

    return economise(term, Fraction(1, 4), eps)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _tanh_ratio(t: Array, divisor: int) -> Array:
    x, root = _decay(t, divisor)
    q, near = squared_exponential(root), x < 0.5
    u = jnp.where(near, x, 0)
    series = u * horner(_tanh_coefficients(float(jnp.finfo(x.dtype).eps)), u * u)
    return _odd(t, jnp.where(near, series, (1 - q) / (1 + q)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _sech2_ratio(t: Array, divisor: int) -> Array:
    # (2/(e^x + e^{−x}))²: the square underflows only where sech² itself does.
    _, root = _decay(t, divisor)
    sech = 2 * root / (1 + squared_exponential(root))
    return sech * sech


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


@functools.cache
def _sinh_coefficients(eps: float) -> list[float]:
    """Coefficients of sinh(x)/x = Σ_k x^{2k}/(2k+1)!, for |x| < 1."""
    return economise(lambda k: Fraction(1, math.factorial(2 * k + 1)), Fraction(1), eps)


def one_minus_square(x: Array, root: Array) -> Array:
    """1 − root² for root = e^{−x}, x ≥ 0, to full accuracy: 2 root sinh x near x = 0.

    It takes less time than `expm1`, which computes another exponential.
    """
    near = x < 1
    small = jnp.where(near, x, 0)
    sinh = small * horner(_sinh_coefficients(float(jnp.finfo(x.dtype).eps)), small * small)
    return jnp.where(near, 2 * root * sinh, 1 - squared_exponential(root))


# The amplitude is multiplied between the two factors of e^u = (e^{u/2})²: intermediate results
# overflow only where amplitude·cosh t does.


@jax.custom_jvp
def sinh(t: Array, amplitude: Array) -> Array:
    """amplitude·sinh t, accurate up to overflow (exp(t + log ½) is not: t + log ½ is rounded)."""
    u = jnp.abs(t)
    growth = jnp.expm1(jnp.minimum(u, 1))
    near = amplitude * (0.5 * (growth + growth / (1 + growth)))
    root = jnp.exp(0.5 * u)
    far = (0.5 * amplitude * root) * root - (0.5 * amplitude / root) / root
    return _odd(t, jnp.where(u < 1, near, far))


@jax.custom_jvp
def cosh(t: Array, amplitude: Array) -> Array:
    """amplitude·cosh t, accurate up to overflow."""
    root = jnp.exp(0.5 * jnp.abs(t))
    return (0.5 * amplitude * root) * root + (0.5 * amplitude / root) / root


@jax.custom_jvp
def cosh_minus_one(t: Array, amplitude: Array) -> Array:
    """amplitude·(cosh t − 1) = 2·amplitude·sinh²(t/2), accurate near 0 and up to overflow."""
    half = sinh(0.5 * t, jnp.ones_like(t))
    return (2 * amplitude * half) * half


def _define_rule(function, derivative) -> None:
    """Define d[a F(t)] = a F'(t) dt + F(t) da; unused terms are not computed: they may be inf."""

    @functools.partial(function.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        (t, amplitude), (dt, damplitude) = primals, tangents
        value = function(t, amplitude)
        tangent = jnp.zeros_like(value)
        if not isinstance(dt, SymbolicZero):
            tangent = tangent + derivative(t, amplitude) * dt
        if not isinstance(damplitude, SymbolicZero):
            tangent = tangent + function(t, jnp.ones_like(amplitude)) * damplitude
        return value, tangent


_define_rule(sinh, cosh)
_define_rule(cosh, sinh)
_define_rule(cosh_minus_one, sinh)
