"""Continuous laws on [−1, 1]: sliders and graded preferences."""

import math
from typing import final

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from .._special import log_hyp0f1, log_sinhc
from .._util._arrays import ArrayLike, floating, positive
from ._base import AbstractRootLaw
from ._sampling import truncated_exponential


@final
class Uniform(AbstractRootLaw):
    """The uniform law on [−1, 1]: Φ(t) = log(sinh t / t).

    Φ' is the Langevin function coth t − 1/t, and `inverse_mean` its inverse.
    """

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log(sinh t / t)."""
        return log_sinhc(floating(t))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log ½ on [−1, 1]."""
        value = floating(value)
        return jnp.where(self.in_support(value), jnp.log(jnp.full_like(value, 0.5)), -jnp.inf)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws whose distance from the preferred end is a truncated exponential."""
        t = floating(t)
        value = 1 - truncated_exponential(jnp.abs(t), 2.0, key=key, shape=shape)
        return jnp.clip(jnp.where(t < 0, -value, value), -1, 1)


@final
class Beta(AbstractRootLaw):
    """Density proportional to (1−r²)^{β−1} on [−1, 1]: Φ(t) = log ₀F₁(; β+½; t²/4).

    β = 1 is `Uniform`, β → 0 tends to `Binary` (opinions at the extremes), a large β favours
    values near 0. Φ' = I_{β+½}(t)/I_{β−½}(t). `beta` is one number, or one per comparison.
    """

    beta: Array

    def __init__(self, beta: ArrayLike):
        self.beta = positive("beta", beta)

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log ₀F₁(; β+½; t²/4)."""
        t = floating(t)
        return log_hyp0f1(t, self.beta.astype(t.dtype))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f(r) = (β−1) log(1−r²) − log B(½, β)."""
        value = floating(value)
        beta = self.beta.astype(value.dtype)
        half = jnp.full_like(beta, 0.5)
        log_normaliser = lax.lgamma(half) + lax.lgamma(beta) - lax.lgamma(beta + 0.5)
        # (1−r)(1+r) is accurate at the ends, where 1−r² cancels; 0·log 0 = 0 at β = 1.
        edge = (1 - value) * (1 + value)
        logarithm = jnp.where(beta == 1, 0, jnp.log(jnp.where(edge > 0, edge, 1)))
        at_edge = jnp.where(beta < 1, jnp.inf, jnp.where(beta == 1, 0, -jnp.inf))
        power = jnp.where(edge > 0, (beta - 1) * logarithm, at_edge)
        return jnp.where(self.in_support(value), power - log_normaliser, -jnp.inf)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Exact draws by rejection: r is the marginal of a von Mises–Fisher law.

        In 2β+1 dimensions with concentration |t|, the cosine to the mean direction has density
        proportional to (1−r²)^{β−1} e^{tr}. Wood's (1994) envelope transforms a Beta(β, β)
        variable and accepts at least about two draws in three.
        """
        t = floating(t)
        full_shape = (*shape, *jnp.broadcast_shapes(t.shape, self.beta.shape))
        concentration = jnp.broadcast_to(jnp.abs(t), full_shape)
        beta = jnp.broadcast_to(self.beta.astype(t.dtype), full_shape)
        # b = (−2κ + √(4κ² + (2β)²)) / (2β), written without subtraction.
        b = beta / (concentration + jnp.sqrt(concentration**2 + beta**2))
        centre = (1 - b) / (1 + b)
        # log(1 − centre²) with 1 − centre² = 4b/(1+b)²
        log_edge = jnp.log(4 * b) - 2 * jnp.log1p(b)
        offset = concentration * centre + 2 * beta * log_edge

        def propose(state):
            key, value, accepted = state
            key, untilted_key, uniform_key = jax.random.split(key, 3)
            z = _draw_untilted(beta, key=untilted_key)
            # (1 − (1+b) y)/(1 − (1−b) y) with y = (1 + z)/2
            candidate = ((1 - b) - (1 + b) * z) / ((1 + b) - (1 - b) * z)
            log_ratio = (
                concentration * candidate + 2 * beta * jnp.log1p(-centre * candidate) - offset
            )
            log_uniform = jnp.log(jax.random.uniform(uniform_key, full_shape, t.dtype))
            value = jnp.where(accepted, value, candidate)
            return key, value, accepted | (log_ratio >= log_uniform)

        start = (key, jnp.zeros(full_shape, t.dtype), jnp.zeros(full_shape, bool))
        _, value, _ = lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)
        return jnp.clip(jnp.where(t < 0, -value, value), -1, 1)


def _draw_untilted(beta: Array, *, key: PRNGKeyArray) -> Array:
    """Draws with density proportional to (1−z²)^{β−1} on [−1, 1], one per β, without rejection.

    T = √(2β (U^{−1/β} − 1)) cos 2πV is a Student variable with 2β degrees of freedom (Bailey's
    polar method, 1994), and T/√(2β + T²) has this law.
    """
    radius_key, angle_key = jax.random.split(key)
    radius = 1 - jax.random.uniform(radius_key, beta.shape, beta.dtype)  # in (0, 1]
    turn = jax.random.uniform(angle_key, beta.shape, beta.dtype)
    cosine = jnp.cos(2 * math.pi * turn)
    ratio = jnp.expm1(-jnp.log(radius) / beta) * cosine * cosine  # T²/(2β), up to inf
    return jnp.sign(cosine) * lax.rsqrt(1 + 1 / ratio)
