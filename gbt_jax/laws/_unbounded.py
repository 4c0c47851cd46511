"""Laws with unbounded support: measured differences and counts.

Scores under these laws are not Lipschitz-resilient: one extreme comparison can move them
arbitrarily far.
"""

from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from .._special import cosh_minus_one, log_cosh, log_hyp0f1, magnitude, sinh
from .._util._arrays import ArrayLike, floating, positive
from ._base import AbstractRootLaw


@final
class Gaussian(AbstractRootLaw):
    """Differences with standard deviation σ₀ between equals: Φ(t) = σ₀² t²/2, E[r] = σ₀² t.

    `std` is one number, or one per comparison, such as one per instrument.
    """

    std: Array

    def __init__(self, std: ArrayLike = 1.0):
        self.std = positive("std", std)

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """σ₀² t²/2."""
        t = floating(t)
        scaled = self.std.astype(t.dtype) * t
        return 0.5 * scaled * scaled

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """The normal log-density."""
        value = floating(value)
        std = self.std.astype(value.dtype)
        return -0.5 * (value / std) ** 2 - jnp.log(std) - 0.5 * np.log(2 * np.pi).astype(std.dtype)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Normal draws with mean σ₀² t and standard deviation σ₀."""
        t = floating(t)
        std = self.std.astype(t.dtype)
        noise = jax.random.normal(key, (*shape, *jnp.broadcast_shapes(t.shape, std.shape)), t.dtype)
        return std * std * t + std * noise


class _AbstractIntegerLaw(AbstractRootLaw):
    """A law on all integers."""

    @property
    def is_discrete(self) -> bool:
        """True."""
        return True

    def in_support(self, value: ArrayLike) -> Array:
        """Whether `value` is an integer, up to rounding."""
        value = floating(value)
        off = jnp.abs(value - jnp.round(value))
        tolerance = 32 * jnp.finfo(value.dtype).eps * jnp.maximum(1, jnp.abs(value))
        return jnp.isfinite(value) & (off <= jnp.minimum(tolerance, 0.25))

    def step_up(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next integer above."""
        value = floating(value)
        start = jnp.where(self.in_support(value), jnp.round(value), jnp.floor(value))
        return start + 1 - value

    def step_down(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next integer below."""
        return self.step_up(-floating(value))


@final
class Skellam(_AbstractIntegerLaw):
    """The difference of two Poisson(λ/2) counts, such as goals: Φ(t) = λ (cosh t − 1).

    `rate` is one number, or one per comparison, such as larger rates for longer matches.
    """

    rate: Array

    def __init__(self, rate: ArrayLike):
        self.rate = positive("rate", rate)

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """λ (cosh t − 1)."""
        t = floating(t)
        return cosh_minus_one(t, self.rate.astype(t.dtype))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f(k) = −λ + log I_|k|(λ)."""
        value = floating(value)
        rate = self.rate.astype(value.dtype)
        k = jnp.abs(jnp.where(self.in_support(value), jnp.round(value), 0))
        # I_k(λ) = (λ/2)^k / k! · ₀F₁(; k+1; λ²/4)
        log_bessel = k * jnp.log(0.5 * rate) - lax.lgamma(k + 1) + log_hyp0f1(rate, k + 0.5)
        return jnp.where(self.in_support(value), log_bessel - rate, -jnp.inf)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws of Poisson(λ eᵗ/2) − Poisson(λ e⁻ᵗ/2)."""
        t = floating(t)
        rate = 0.5 * self.rate.astype(t.dtype)
        for_key, against_key = jax.random.split(key)
        scored = _draw_poisson(rate * jnp.exp(t), for_key, shape)
        conceded = _draw_poisson(rate * jnp.exp(-t), against_key, shape)
        return scored - conceded


@final
class SymmetrizedPoisson(_AbstractIntegerLaw):
    """A Poisson(λ) count with a random sign: Φ(t) = λ(cosh t − 1) + log cosh(λ sinh t).

    `rate` is one number, or one per comparison.
    """

    rate: Array

    def __init__(self, rate: ArrayLike):
        self.rate = positive("rate", rate)

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """λ(cosh t − 1) + log cosh(λ sinh t)."""
        t = floating(t)
        rate = self.rate.astype(t.dtype)
        w = sinh(t, rate)
        # Where sech² w underflows, log cosh is linear. Its derivatives in t would multiply that
        # zero by powers of cosh t, which overflow: 0·inf is NaN. So the linear form is used.
        far = jnp.abs(w) > 400
        linear = magnitude(w) - np.log(2.0).astype(t.dtype)
        return cosh_minus_one(t, rate) + jnp.where(far, linear, log_cosh(jnp.where(far, 0, w)))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f(k): e^{−λ} at 0, half of the Poisson mass at ±k."""
        value = floating(value)
        rate = self.rate.astype(value.dtype)
        k = jnp.abs(jnp.where(self.in_support(value), jnp.round(value), 0))
        log_poisson = k * jnp.log(rate) - rate - lax.lgamma(k + 1)
        halved = jnp.where(k > 0, -np.log(2.0).astype(rate.dtype), 0)
        return jnp.where(self.in_support(value), log_poisson + halved, -jnp.inf)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws of the sign with odds e^{2λ sinh t}, then of the count from Poisson(λ e^{±t})."""
        t = floating(t)
        rate = self.rate.astype(t.dtype)
        sign_key, count_key = jax.random.split(key)
        full_shape = (*shape, *jnp.broadcast_shapes(t.shape, rate.shape))
        chance = jax.nn.sigmoid(2 * sinh(t, rate))
        sign = jnp.where(jax.random.bernoulli(sign_key, chance, full_shape), 1, -1).astype(t.dtype)
        return sign * _draw_poisson(rate * jnp.exp(sign * t), count_key, ())


def _draw_poisson(rate: Array, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return jax.random.poisson(key, rate, (*shape, *rate.shape)).astype(rate.dtype)
