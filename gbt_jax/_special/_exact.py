"""Error-free transformations: a rounded result together with its rounding error.

They matter in tails. exp(-x) turns a relative error ε of x into a relative error x·ε of the result,
so at x = 700 rounding the argument costs 700 units in the last place. Carrying the rounding error
of the argument along costs a few multiplications and keeps all digits.
"""

import jax.numpy as jnp
from jax import Array, lax


def _split(x: Array) -> tuple[Array, Array]:
    """x = high + low exactly, each with at most half of the significand's bits.

    `lax.reduce_precision` is a rounding that the compiler must keep, unlike the classical
    (c·x − (c·x − x)), which it may rearrange.
    """
    info = jnp.finfo(x.dtype)
    half = lax.reduce_precision(x, exponent_bits=info.nexp, mantissa_bits=info.nmant // 2 - 1)
    return half, x - half


def product_and_error(x: Array, y: Array) -> tuple[Array, Array]:
    """(p, e) with p = x·y rounded and p + e = x·y to twice the working precision (Dekker)."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    info = jnp.finfo(product.dtype)
    # The parts of a tiny product underflow, and so does its error, which tails do not amplify.
    usable = jnp.isfinite(product) & (jnp.abs(product) > float(info.tiny) / float(info.eps) ** 2)
    return product, lax.stop_gradient(jnp.where(usable, error, 0))


def quotient_and_error(x: Array, divisor: float | int) -> tuple[Array, Array]:
    """(q, e) with q = x/divisor rounded and q + e = x/divisor to twice the working precision."""
    divisor_array = jnp.asarray(divisor, x.dtype)
    quotient = x / divisor_array
    product, product_error = product_and_error(quotient, divisor_array)
    # x − product is exact, because the two agree almost to the last place.
    error = ((x - product) - product_error) / divisor_array
    return quotient, lax.stop_gradient(jnp.where(jnp.isfinite(quotient), error, 0))


def difference_and_error(x: Array, y: Array) -> tuple[Array, Array]:
    """(d, e) with d = x − y rounded and d + e = x − y exactly (Knuth)."""
    difference = x - y
    y_seen = x - difference
    x_seen = difference + y_seen
    return difference, lax.stop_gradient((x - x_seen) - (y - y_seen))


def exp_minus(x: Array, error: Array) -> Array:
    """exp(−(x + error)) for an error at rounding level, to first order in it."""
    value = jnp.exp(-x)
    return value - value * error


def squared_exponential(root: Array) -> Array:
    """root² for root = exp(…), by a multiplication.

    XLA would rewrite e^a·e^a as e^{2a}, another exponential; the maximum prevents this.
    """
    return root * jnp.maximum(root, 0)
