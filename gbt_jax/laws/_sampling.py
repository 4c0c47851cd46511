"""Sampling functions used by several laws."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import PRNGKeyArray


def truncated_exponential(
    rate: Array, length: float | int, *, key: PRNGKeyArray, shape: tuple[int, ...]
) -> Array:
    """Draws from the density proportional to exp(−rate·v) on [0, length], by inversion.

    v = −log(1 − U (1 − e^{−rate·length})) / rate, which tends to U·length as the rate goes to 0.
    """
    uniform = jax.random.uniform(key, (*shape, *rate.shape), rate.dtype)
    rate = jnp.maximum(rate, jnp.finfo(rate.dtype).tiny ** 0.5)
    return -jnp.log1p(uniform * jnp.expm1(-rate * length)) / rate
