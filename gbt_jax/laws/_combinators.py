"""Operations that make root laws from root laws: scaling, and sums of independent comparisons."""

from typing import final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._special import product_and_error
from .._util._arrays import ArrayLike, floating, positive
from ._base import AbstractRootLaw
from ._density import interval_nodes
from ._rows import map_rows


@final
class Scaled(AbstractRootLaw):
    """The law of s·r when r follows `law`: Φ(t) = Φ_law(s t), s > 0.

    `Scaled(Binary(), 0.5)` is `BradleyTerry()`. `scale` is one number, or one per comparison,
    such as the discrimination of each judge.
    """

    law: AbstractRootLaw
    scale: Array

    def __init__(self, law: AbstractRootLaw, scale: ArrayLike):
        self.law = law
        self.scale = positive("scale", scale)

    @property
    def max_value(self) -> Array | float:
        """s times the maximum of the inner law."""
        return self.scale * jnp.asarray(self.law.max_value, self.scale.dtype)

    @property
    def is_discrete(self) -> bool:
        """Whether the inner law is discrete."""
        return self.law.is_discrete

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """Φ_law(s t), corrected to first order for the rounding of s·t, which tails amplify."""
        t = floating(t)
        scaled, error = product_and_error(*jnp.broadcast_arrays(self.scale.astype(t.dtype), t))
        return self.law.cgf(scaled) + error * self.law.mean(scaled)

    def atoms(self) -> tuple[Array, Array] | None:
        """The inner law's values times s."""
        inner = self.law.atoms()
        return None if inner is None else (self.scale[..., None] * inner[0], inner[1])

    def in_support(self, value: ArrayLike) -> Array:
        """Whether value/s is in the inner law's support."""
        return self.law.in_support(self._divide_by_scale(value))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f_law(value/s), minus log s for a density."""
        unscaled = self._divide_by_scale(value)
        jacobian = 0 if self.is_discrete else jnp.log(self.scale.astype(unscaled.dtype))
        return self.law.log_root(unscaled) - jacobian

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """s times a draw of the inner law at s·t."""
        t = floating(t)
        scale = self.scale.astype(t.dtype)
        return scale * self.law.sample(scale * t, key=key, shape=shape)

    def step_up(self, value: ArrayLike) -> Float[Array, "..."]:
        """s times the inner law's step."""
        unscaled = self._divide_by_scale(value)
        return self.scale.astype(unscaled.dtype) * self.law.step_up(unscaled)

    def step_down(self, value: ArrayLike) -> Float[Array, "..."]:
        """s times the inner law's step."""
        return self.step_up(-floating(value))

    def _divide_by_scale(self, value: ArrayLike) -> Array:
        value = floating(value)
        return value / self.scale.astype(value.dtype)


@final
class Sum(AbstractRootLaw):
    """The law of r₁ + r₂, independent comparisons of the same pair: Φ = Φ₁ + Φ₂."""

    first: AbstractRootLaw
    second: AbstractRootLaw

    @property
    def max_value(self) -> Array | float:
        """The sum of both maxima."""
        return jnp.asarray(self.first.max_value) + jnp.asarray(self.second.max_value)

    @property
    def is_discrete(self) -> bool:
        """Whether both laws are discrete."""
        return self.first.is_discrete and self.second.is_discrete

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """Φ₁(t) + Φ₂(t)."""
        return self.first.cgf(t) + self.second.cgf(t)

    def atoms(self) -> tuple[Array, Array] | None:
        """The sums of all pairs of values, ascending; equal sums are not merged."""
        ours, theirs = self.first.atoms(), self.second.atoms()
        if ours is None or theirs is None:
            return None
        values, log_masses = (_sums_of_pairs(*parts) for parts in zip(ours, theirs, strict=True))
        if values.ndim == 1:
            order = jnp.argsort(values)
            return values[order], log_masses[..., order]
        values, log_masses = jnp.broadcast_arrays(values, log_masses)
        order = jnp.argsort(values, axis=-1)
        ascending = jnp.take_along_axis(values, order, axis=-1)
        return ascending, jnp.take_along_axis(log_masses, order, axis=-1)

    def in_support(self, value: ArrayLike) -> Array:
        """Whether the value is a sum of a value of each law."""
        value = floating(value)
        if not self.is_discrete:
            edge = jnp.asarray(self.max_value, value.dtype)
            return jnp.isfinite(value) & (jnp.abs(value) <= edge)
        split = self._split_atoms(value)
        if split is None:  # both laws have all integers as support
            return self.first.in_support(value)
        remainder, _, other = split
        return jnp.any(other.in_support(remainder), axis=-1)

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log of the convolution of the two root laws.

        A finite sum when one of them has finitely many values; otherwise, for two continuous laws,
        an integral by double-exponential quadrature over the overlap of their supports.
        """
        value = floating(value)
        split = self._split_atoms(value)
        if split is not None:
            remainder, log_masses, other = split
            return jax.nn.logsumexp(log_masses + other.log_root(remainder), axis=-1)
        if self.first.is_discrete or self.second.is_discrete:
            raise NotImplementedError(
                "log_prob of a sum needs two continuous laws, or one law with finitely many "
                "values (two Skellam laws add to one: use Skellam(rate_1 + rate_2))"
            )
        return self._log_convolution(value)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Sums of one draw from each law at t."""
        t = floating(t)
        t = jnp.broadcast_to(t, self._shape(t))
        first_key, second_key = jax.random.split(key)
        first = self.first.sample(t, key=first_key, shape=shape)
        return first + self.second.sample(t, key=second_key, shape=shape)

    def step_up(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next sum of two values above."""
        value = floating(value)
        split = self._split_atoms(value)
        if split is None:
            return self.first.step_up(value)
        remainder, _, other = split
        return jnp.min(other.step_up(remainder), axis=-1)

    def step_down(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next sum of two values below."""
        return self.step_up(-floating(value))

    def _split_atoms(self, value: Array) -> tuple[Array, Array, AbstractRootLaw] | None:
        """(value minus each atom, log-masses of the atoms, the other law); None without atoms."""
        for law, other in ((self.first, self.second), (self.second, self.first)):
            atoms = law.atoms()
            if atoms is not None:
                values, log_masses = (x.astype(value.dtype) for x in atoms)
                return value[..., None] - values, log_masses, _add_axis(other)
        return None

    def _log_convolution(self, value: Array) -> Array:
        """log ∫ f₁(x) f₂(value − x) dx."""
        widths = [jnp.asarray(law.max_value, value.dtype) for law in (self.first, self.second)]
        # An unbounded law is truncated where its density is below 1e-300 of its peak.
        reach = 40 * jnp.sqrt(self.variance(jnp.zeros_like(value))) + jnp.abs(value)
        low = jnp.maximum(-jnp.minimum(widths[0], reach), value - jnp.minimum(widths[1], reach))
        high = jnp.minimum(jnp.minimum(widths[0], reach), value + jnp.minimum(widths[1], reach))
        fraction, log_weight = interval_nodes(level=6)
        x = low[..., None] + (high - low)[..., None] * fraction.astype(value.dtype)
        first, second = _add_axis(self.first), _add_axis(self.second)
        terms = first.log_root(x) + second.log_root(value[..., None] - x)
        total = jax.nn.logsumexp(terms + log_weight.astype(value.dtype), axis=-1)
        return jnp.where(high > low, total + jnp.log(jnp.maximum(high - low, 0)), -jnp.inf)


def _add_axis(law: AbstractRootLaw) -> AbstractRootLaw:
    """The law for arguments with an additional last axis."""
    return map_rows(law, lambda parameter: parameter[..., None])


def _sums_of_pairs(x: Array, y: Array) -> Array:
    """All sums of an entry of x and one of y, along the last axis."""
    sums = x[..., :, None] + y[..., None, :]
    return sums.reshape(*sums.shape[:-2], -1)
