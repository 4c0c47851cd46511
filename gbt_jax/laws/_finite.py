"""Laws with finitely many values: wins and losses, ties, grades, best of n, arbitrary tables."""

import abc
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._special import (
    log_cosh,
    log_cosh_ratio,
    log_sinhc_ratio,
    log_tied_cosh,
    quotient_and_error,
)
from .._util._arrays import ArrayLike, floating, is_concrete, non_negative, whole_number
from ._base import AbstractRootLaw
from ._rows import table
from ._sampling import truncated_exponential
from ._tilting import SymmetricMeasure, cumulant


class AbstractFiniteLaw(AbstractRootLaw):
    """A law on finitely many values. Subclasses define `atoms`, `cgf` and `sample`."""

    @abc.abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Ascending values of the support and the logarithms of their root probabilities.

        Values are a vector, the same for all comparisons. Probabilities are a vector, or have one
        row per comparison, with values along the last axis.
        """

    @property
    def is_discrete(self) -> bool:
        """True."""
        return True

    def nearest(self, value: ArrayLike) -> Float[Array, "..."]:
        """The value of the support nearest to `value`: rounds graded data onto the law's grid."""
        value = floating(value)
        return self.atoms()[0].astype(value.dtype)[self._nearest_index(value)]

    def in_support(self, value: ArrayLike) -> Array:
        """Whether `value` is one of the law's values, up to rounding."""
        value = floating(value)
        return jnp.abs(value - self.nearest(value)) <= self._tolerance(value.dtype)

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f(value)."""
        value = floating(value)
        log_probabilities = self.atoms()[1].astype(value.dtype)
        at_nearest = _entries(log_probabilities, self._nearest_index(value))
        return jnp.where(self.in_support(value), at_nearest, -jnp.inf)

    def step_up(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next value above; inf at the top."""
        value = floating(value)
        values = self.atoms()[0].astype(value.dtype)
        index = jnp.searchsorted(values, value + self._tolerance(value.dtype), side="right")
        return jnp.append(values, jnp.inf)[index] - value

    def step_down(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next value below; inf at the bottom. The support is symmetric."""
        return self.step_up(-floating(value))

    def _nearest_index(self, value: Array) -> Array:
        values = self.atoms()[0].astype(value.dtype)
        middles = 0.5 * (values[1:] + values[:-1])
        return jnp.searchsorted(middles, value)

    def _tolerance(self, dtype) -> Array:
        return 32 * jnp.finfo(dtype).eps * jnp.asarray(self.max_value, dtype)


@final
class Binary(AbstractFiniteLaw):
    """Win or loss, ±1: Φ(t) = log cosh t, so P(r = 1) = 1/(1 + e^{−2t}).

    Scores are half the usual Bradley-Terry logits; `BradleyTerry` gives the logits.
    """

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log cosh t."""
        return log_cosh(floating(t))

    def atoms(self) -> tuple[Array, Array]:
        """±1, half each."""
        return _two_points(1.0)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws that are a win with probability 1/(1 + e^{−2t})."""
        return _draw_sign(2 * floating(t), key, shape)


@final
class BradleyTerry(AbstractFiniteLaw):
    """Win or loss as ±½: Φ(t) = log cosh(t/2), so P(a beats b) = 1/(1 + e^{−t}).

    Scores are the usual Bradley-Terry logits.
    """

    @property
    def max_value(self) -> Array | float:
        """½."""
        return 0.5

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log cosh(t/2)."""
        return log_cosh(0.5 * floating(t))

    def atoms(self) -> tuple[Array, Array]:
        """±½, half each."""
        return _two_points(0.5)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws that are a win with probability 1/(1 + e^{−t})."""
        return 0.5 * _draw_sign(floating(t), key, shape)


@final
class KNary(AbstractFiniteLaw):
    """The uniform law on K evenly spaced grades of [−1, 1].

    Φ(t) = ℓ(K x) − ℓ(x) with x = t/(K−1) and ℓ(x) = log(sinh x / x). K = 2 is `Binary`, K → ∞ is
    `Uniform`. `nearest` rounds other values onto the grid. `num_levels` is K.
    """

    num_levels: int = eqx.field(static=True)

    def __init__(self, num_levels: int):
        self.num_levels = whole_number("num_levels", num_levels, at_least=2)

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """ℓ(K x) − ℓ(x)."""
        return log_sinhc_ratio(floating(t), self.num_levels)

    def atoms(self) -> tuple[Array, Array]:
        """−1, …, 1 in steps of 2/(K−1)."""
        k = self.num_levels
        return jnp.asarray(_grid(k)), jnp.full(k, -np.log(k))

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws whose number of levels below the preferred end is truncated geometric."""
        t = floating(t)
        last = self.num_levels - 1
        rate = 2 * jnp.abs(t) / last
        below = jnp.floor(truncated_exponential(rate, self.num_levels, key=key, shape=shape))
        value = 1 - 2 * jnp.minimum(below, last) / last
        return jnp.where(t < 0, -value, value)


@final
class Davidson(AbstractFiniteLaw):
    """Loss, tie or win, −1, 0, 1, with tie mass ν ≥ 0: Φ(t) = log((ν + 2 cosh t)/(ν + 2)).

    Davidson's (1970) model of ties. ν = 0 is `Binary`; `Scaled(Davidson(ν), ½)` has the scores of
    `BradleyTerry`. `tie_mass` is one number, or one per comparison, such as one per judge.
    """

    tie_mass: Array

    def __init__(self, tie_mass: ArrayLike):
        self.tie_mass = non_negative("tie_mass", tie_mass)

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log((ν + 2 cosh t)/(ν + 2))."""
        t = floating(t)
        return log_tied_cosh(t, self.tie_mass.astype(t.dtype))

    def atoms(self) -> tuple[Array, Array]:
        """−1, 0, 1 with masses 1, ν, 1."""
        one = jnp.ones_like(self.tie_mass)
        masses = jnp.stack([one, self.tie_mass, one], axis=-1) / (self.tie_mass[..., None] + 2)
        return jnp.asarray(_grid(3), masses.dtype), jnp.log(masses)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws from the three outcomes."""
        return _draw_atom(self.atoms(), floating(t), key, shape)


@final
class Binomial(AbstractFiniteLaw):
    """The share of n independent rounds won, scaled to [−1, 1]: Φ(t) = n log cosh(t/n).

    `num_rounds` is n.
    """

    num_rounds: int = eqx.field(static=True)

    def __init__(self, num_rounds: int):
        self.num_rounds = whole_number("num_rounds", num_rounds, at_least=1)

    @property
    def max_value(self) -> Array | float:
        """1."""
        return 1.0

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """n log cosh(t/n)."""
        return self.num_rounds * log_cosh_ratio(floating(t), self.num_rounds)

    def atoms(self) -> tuple[Array, Array]:
        """n+1 grades with binomial(n, ½) masses."""
        n = self.num_rounds
        logs = np.cumsum(np.concatenate([[0.0], np.log(np.arange(1, n + 1))]))
        log_choose = logs[n] - logs - logs[::-1]
        return jnp.asarray(_grid(n + 1)), jnp.asarray(log_choose - n * np.log(2.0))

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Binomial draws: each round is won with probability 1/(1 + e^{−2t/n})."""
        t = floating(t)
        n = self.num_rounds
        x, _ = quotient_and_error(t, n)
        chance = jax.nn.sigmoid(2 * x)
        won = jax.random.binomial(key, n, chance, shape=(*shape, *t.shape), dtype=t.dtype)
        return (2 * won - n) / n


@final
class Finite(AbstractFiniteLaw):
    """Any symmetric law on finitely many values: Φ(t) = log Σ p_i e^{r_i t}.

    `values` must be pairs ±r (and possibly 0), both of a pair with the same probability.
    Probabilities are positive and are divided by their sum.
    """

    values: Array = table()
    probabilities: Array = table()

    def __init__(self, values: ArrayLike, probabilities: ArrayLike):
        values, probabilities = floating(values), floating(probabilities)
        if is_concrete(values, probabilities):
            order = _check_finite(np.asarray(values), np.asarray(probabilities))
            values, probabilities = values[order], probabilities[order]
        self.values = values
        self.probabilities = probabilities / jnp.sum(probabilities)

    @property
    def max_value(self) -> Array | float:
        """The largest value."""
        return self.values[-1]

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log Σ p_i e^{r_i t}."""
        t = floating(t)
        half = self.values.size // 2
        values, chances = self.values.astype(t.dtype), self.probabilities.astype(t.dtype)
        weight = 0.5 * (chances + chances[::-1])[half:]
        # A pair ±r has twice the mass of either value; an unpaired 0 has its own mass.
        weight = weight * jnp.where(jnp.arange(weight.size) < self.values.size % 2, 1, 2)
        magnitude = 0.5 * (values - values[::-1])[half:]
        return cumulant(t, SymmetricMeasure.from_magnitudes(magnitude, weight))

    def atoms(self) -> tuple[Array, Array]:
        """The given values, ascending, and the logarithms of their probabilities."""
        return self.values, jnp.log(self.probabilities)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws from the given values."""
        return _draw_atom(self.atoms(), floating(t), key, shape)


def _check_finite(values: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The order that sorts the values; raises unless the law is symmetric."""
    if values.ndim != 1 or values.shape != probabilities.shape:
        raise ValueError(
            "values and probabilities must be vectors of one length, not of shapes "
            f"{values.shape} and {probabilities.shape}"
        )
    if values.size < 2:
        raise ValueError(f"a law needs at least two values, not {values.size}")
    if not np.isfinite(values).all():
        raise ValueError(f"values must be finite, not {values[~np.isfinite(values)][0]}")
    good = np.isfinite(probabilities) & (probabilities > 0)
    if not good.all():
        bad = np.flatnonzero(~good)[0]
        raise ValueError(
            f"probabilities must be positive and finite; that of value {values[bad]:g} is "
            f"{probabilities[bad]:g} (leave out values that cannot occur)"
        )
    order = np.argsort(values)
    values, probabilities = values[order], probabilities[order]
    if (np.diff(values) <= 0).any():
        twice = values[1:][np.diff(values) <= 0][0]
        raise ValueError(f"value {twice:g} is listed twice: add its probabilities")
    tolerance = 64 * np.finfo(values.dtype).eps
    skew = np.abs(values + values[::-1]) > tolerance * np.abs(values).max()
    if skew.any():
        alone = values[skew][-1]
        raise ValueError(
            f"the support is not symmetric: {alone:g} is a value and {-alone:g} is not. A root "
            "law is the law between equals, so r and −r are equally likely"
        )
    uneven = np.abs(probabilities - probabilities[::-1]) > 1e4 * tolerance * probabilities
    if uneven.any():
        where = np.flatnonzero(uneven)[-1]
        raise ValueError(
            f"the law is not symmetric: {values[where]:g} has probability "
            f"{probabilities[where]:g}, {-values[where]:g} has {probabilities[::-1][where]:g}"
        )
    return order


def _two_points(value: float) -> tuple[Array, Array]:
    return jnp.asarray([-value, value]), jnp.full(2, -np.log(2.0))


def _grid(size: int) -> np.ndarray:
    """`size` evenly spaced points of [−1, 1], symmetric to the last bit."""
    return (2 * np.arange(size) - (size - 1)) / (size - 1)


def _draw_sign(logit: Array, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    won = jax.random.bernoulli(key, jax.nn.sigmoid(logit), (*shape, *logit.shape))
    return jnp.where(won, 1, -1).astype(logit.dtype)


def _draw_atom(
    atoms: tuple[Array, Array], t: Array, key: PRNGKeyArray, shape: tuple[int, ...]
) -> Array:
    values, log_masses = (x.astype(t.dtype) for x in atoms)
    logits = log_masses + t[..., None] * values
    return values[jax.random.categorical(key, logits, shape=(*shape, *logits.shape[:-1]))]


def _entries(rows: Array, index: Array) -> Array:
    """rows[index] of a vector; of several rows one entry of each, along the last axis."""
    if rows.ndim == 1:
        return rows[index]
    index = jnp.broadcast_to(index, jnp.broadcast_shapes(index.shape, rows.shape[:-1]))
    rows = jnp.broadcast_to(rows, (*index.shape, rows.shape[-1]))
    return jnp.take_along_axis(rows, index[..., None], axis=-1)[..., 0]
