"""What every factorised Hessian answers."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._util._arrays import ArrayLike, as_array, as_indices
from ._levels import Levels


class Edges(NamedTuple):
    """The comparisons as far as the Hessian knows them: ends, and w Φ''(t)."""

    a: Array
    b: Array
    curvature: Array


class AbstractCurvature(eqx.Module):
    """M = ∇²L at the optimum, ready for solves with it; made by `curvature`."""

    edges: eqx.AbstractVar[Edges]
    levels: eqx.AbstractVar[Levels]

    @property
    def num_items(self) -> int:
        """The size of M."""
        return self.levels.share.size

    @abc.abstractmethod
    def reduced_solve(self, rhs: Array) -> Array:
        """R @ rhs, of columns."""

    @abc.abstractmethod
    def reduced_entries(self, a: Array, b: Array) -> Array:
        """R at rows a and columns b, one entry each."""

    @abc.abstractmethod
    def reduced_draws(self, num: int, *, key: Array) -> Array:
        """Draws from the normal law of mean 0 and covariance R, one per column."""

    def solve(self, rhs: ArrayLike) -> Float[Array, " items *columns"]:
        """N @ rhs for a vector or the columns of a matrix."""
        given = jnp.asarray(rhs)
        columns = given.reshape(given.shape[0], -1)
        return (self.reduced_solve(columns) + self.levels.apply(columns)).reshape(given.shape)

    def entries(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_ab for each pair of items; without a prior, under the constraint of mean zero."""
        first, second = self._pairs(a, b)
        return self.reduced_entries(first, second) + self.levels.entries(first, second)

    def diagonal(self) -> Float[Array, " items"]:
        """n_aa for each item; without a prior, under the constraint of mean zero."""
        items = np.arange(self.num_items)
        return self.entries(items, items)

    def difference_variance(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_aa + n_bb − 2 n_ab for each pair of items; inf where nothing relates the two."""
        first, second = self._pairs(a, b)
        own = [self.reduced_entries(x, x) for x in (first, second)]
        reduced = own[0] + own[1] - 2 * self.reduced_entries(first, second)
        apart = self.levels.component[first] != self.levels.component[second]
        levels = [self.levels.entries(x, x) for x in (first, second)]
        free = self.levels.is_free
        unknown = apart & (free[first] | free[second])
        known = reduced + jnp.where(apart, levels[0] + levels[1], 0)
        # Rounding can leave a variance of zero slightly negative.
        return jnp.where(unknown, jnp.inf, jnp.maximum(known, 0))

    def draws(self, num: int, *, key: Array) -> Float[Array, " items num"]:
        """Independent draws from the normal law of mean 0 and covariance N, one per column.

        Without a prior scores of mean zero are drawn.
        """
        own, level = jax.random.split(key)
        levels = self.levels
        width = jnp.sqrt(levels.share * levels.variance)
        common = width[:, None] * levels.common_draws(num, key=level)
        return self.reduced_draws(num, key=own) + common

    def _pairs(self, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        ends = (as_indices(name, x, self.num_items) for name, x in (("a", a), ("b", b)))
        first, second = np.broadcast_arrays(*ends)
        return as_array(first), as_array(second)
