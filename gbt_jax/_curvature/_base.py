"""The interface of factorised Hessians."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._util._arrays import ArrayLike, as_array, as_indices, is_concrete
from ._null_space import NullSpace


class Edges(NamedTuple):
    """The comparisons that make up the Hessian: both items, and w Φ''(t)."""

    a: Any
    b: Any
    curvature: Any


class AbstractCurvature(eqx.Module):
    """M = ∇²L at the optimum, factorised for solves; `curvature` constructs it.

    Its arrays are NumPy arrays, so that nothing is compiled for each size. Under `jit` they are
    traced, and only solves are available. Methods not named `reduced_…` return JAX arrays.
    """

    edges: eqx.AbstractVar[Edges]
    null_space: eqx.AbstractVar[NullSpace]

    @property
    def num_items(self) -> int:
        """The size of M."""
        return self.null_space.share.size

    @abc.abstractmethod
    def reduced_solve(self, rhs: Any) -> Any:
        """R @ rhs, for a matrix of columns."""

    @abc.abstractmethod
    def reduced_entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """R at rows a and columns b, one entry each."""

    @abc.abstractmethod
    def reduced_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """Draws from the normal distribution of mean 0 and covariance R, one per column."""

    def solve(self, rhs: ArrayLike) -> Float[Array, " items *columns"]:
        """N @ rhs for a vector or the columns of a matrix."""
        given = np.asarray(rhs) if is_concrete(self, rhs) else as_array(rhs)
        columns = given.reshape(given.shape[0], -1)
        solved = self.reduced_solve(columns) + self.null_space.apply(columns)
        return as_array(solved.reshape(given.shape))

    def entries(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_ab for each pair of items; without a prior, under the constraint of mean zero."""
        first, second = self._pairs(a, b)
        found = self.reduced_entries(first, second) + self.null_space.entries(first, second)
        return as_array(found)

    def diagonal(self) -> Float[Array, " items"]:
        """n_aa for each item; without a prior, under the constraint of mean zero."""
        items = np.arange(self.num_items)
        return self.entries(items, items)

    def difference_variance(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_aa + n_bb − 2 n_ab for each pair of items; inf if unconnected and without a prior."""
        first, second = self._pairs(a, b)
        own = [self.reduced_entries(x, x) for x in (first, second)]
        reduced = own[0] + own[1] - 2 * self.reduced_entries(first, second)
        apart = self.null_space.component[first] != self.null_space.component[second]
        common = [self.null_space.entries(x, x) for x in (first, second)]
        free = self.null_space.is_free
        unknown = apart & (free[first] | free[second])
        known = reduced + np.where(apart, common[0] + common[1], 0)
        # Rounding can leave a variance of zero slightly negative.
        return as_array(np.where(unknown, np.inf, np.maximum(known, 0)).astype(reduced.dtype))

    def draws(self, num: int, *, key: PRNGKeyArray) -> Float[Array, " items num"]:
        """Independent draws from the normal distribution of covariance N, one per column.

        They have mean 0. Without a prior the scores of each draw have mean zero.
        """
        own, level = jax.random.split(key)
        null_space = self.null_space
        width = np.sqrt(null_space.share * null_space.variance)
        common = width[:, None] * null_space.common_draws(num, key=level)
        return as_array(self.reduced_draws(num, key=own) + common)

    def _pairs(self, a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        ends = (as_indices(name, x, self.num_items) for name, x in (("a", a), ("b", b)))
        first, second = np.broadcast_arrays(*ends)
        return first, second
