"""Partitions of vectors into independent problems, with sums and maxima over each problem.

Concatenated problems (such as groups) are one problem with a disconnected graph. To give each of
them its own step lengths and its own end, a solver needs the problem of each entry.
"""

import abc
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int

from .._util._arrays import gather


class AbstractPartition(eqx.Module):
    """A partition of the entries of a vector into problems.

    Quantities with one number per problem have the shape `shape`: () for one problem.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a quantity with one number per problem."""

    @abc.abstractmethod
    def total(self, entries: Array) -> Array:
        """The sum over each problem, along the first axis."""

    @abc.abstractmethod
    def inner(self, x: Array, y: Array) -> Array:
        """The inner product over each problem."""

    @abc.abstractmethod
    def largest(self, entries: Array) -> Array:
        """The maximum over each problem of non-negative entries; 0 for an empty one."""

    @abc.abstractmethod
    def spread(self, per_problem: Array) -> Array:
        """Broadcast one number per problem to the entries."""

    @abc.abstractmethod
    def at(self, index: Array) -> "AbstractPartition":
        """The partition of rows, where row i belongs to the problem of entry `index[i]`."""


@final
class One(AbstractPartition):
    """All entries belong to one problem."""

    @property
    def shape(self) -> tuple[int, ...]:
        """()."""
        return ()

    def total(self, entries: Array) -> Array:
        """The sum."""
        return jnp.sum(entries, axis=0)

    def inner(self, x: Array, y: Array) -> Array:
        """x · y."""
        return jnp.vdot(x, y)

    def largest(self, entries: Array) -> Array:
        """The maximum."""
        return jnp.max(entries, axis=0, initial=0)

    def spread(self, per_problem: Array) -> Array:
        """The number, which broadcasts."""
        return per_problem

    def at(self, index: Array) -> "One":
        """The same partition."""
        del index
        return self


ONE = One()


@final
class Leading(AbstractPartition):
    """The first `count` entries are one problem; the entries after them are padding.

    Padding rows have weight 0, so that a partition of rows needs no mask.
    """

    count: Int[Array, ""]

    @property
    def shape(self) -> tuple[int, ...]:
        """()."""
        return ()

    def total(self, entries: Array) -> Array:
        """The sum."""
        return ONE.total(self._cut(entries))

    def inner(self, x: Array, y: Array) -> Array:
        """x · y."""
        return ONE.inner(self._cut(x), y)

    def largest(self, entries: Array) -> Array:
        """The maximum."""
        return ONE.largest(self._cut(entries))

    def spread(self, per_problem: Array) -> Array:
        """The number itself."""
        return per_problem

    def at(self, index: Array) -> One:
        """One problem."""
        return ONE.at(index)

    def _cut(self, entries: Array) -> Array:
        counts = jnp.arange(entries.shape[0], dtype=jnp.int32) < self.count
        return jnp.where(counts.reshape(-1, *(1,) * (entries.ndim - 1)), entries, 0)


@final
class Columns(AbstractPartition):
    """Each of `count` columns of a matrix is a problem."""

    count: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """(count,)."""
        return (self.count,)

    def total(self, entries: Array) -> Array:
        """Sums of columns."""
        return jnp.sum(entries, axis=0)

    def inner(self, x: Array, y: Array) -> Array:
        """Inner products of columns."""
        return jnp.sum(x * y, axis=0)

    def largest(self, entries: Array) -> Array:
        """Maxima of columns."""
        return jnp.max(entries, axis=0, initial=0)

    def spread(self, per_problem: Array) -> Array:
        """The vector of numbers, which broadcasts."""
        return per_problem

    def at(self, index: Array) -> "Columns":
        """The same partition."""
        del index
        return self


TILE = 8  # entries: groups are padded to a multiple


@final
class Segments(AbstractPartition):
    """Entry i belongs to problem `index[i]` of `count`."""

    index: Int[Array, " entries"]
    count: int = eqx.field(static=True)
    is_sorted: bool = eqx.field(static=True, default=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """(count,)."""
        return (self.count,)

    def total(self, entries: Array) -> Array:
        """Sums of segments."""
        return jax.ops.segment_sum(
            entries, self.index, self.count, indices_are_sorted=self.is_sorted
        )

    def inner(self, x: Array, y: Array) -> Array:
        """Inner products of segments."""
        return self.total(x * y)

    def largest(self, entries: Array) -> Array:
        """Maxima of segments."""
        start = jnp.zeros((self.count, *entries.shape[1:]), entries.dtype)
        return start.at[self.index].max(entries, indices_are_sorted=self.is_sorted)

    def spread(self, per_problem: Array) -> Array:
        """Gather by the index."""
        return gather(per_problem, self.index)

    def at(self, index: Array) -> "Segments":
        """The segments of rows, in any order."""
        return Segments(self.index[index], self.count, is_sorted=False)


@final
class Tiles(AbstractPartition):
    """Entries in tiles of `TILE`, each of which belongs to problem `index[tile]`, ascending.

    The last tile of a problem is padded with unused entries. Entry i is in tile i mod (number of
    tiles): operations inside tiles are then arithmetic of whole vectors, and segment sums and
    gathers run over tiles only.
    """

    index: Int[Array, " tiles"]
    count: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """(count,)."""
        return (self.count,)

    def total(self, entries: Array) -> Array:
        """Sums of tiles, then of segments of them."""
        return self._segments.total(_reduce(jnp.add, list(self._as_tiles(entries))))

    def inner(self, x: Array, y: Array) -> Array:
        """Sums of products."""
        pairs = zip(self._as_tiles(x), self._as_tiles(y), strict=True)
        return self._segments.total(_reduce(jnp.add, [one * other for one, other in pairs]))

    def largest(self, entries: Array) -> Array:
        """Maxima of tiles, then of segments of them."""
        return self._segments.largest(_reduce(jnp.maximum, list(self._as_tiles(entries))))

    def spread(self, per_problem: Array) -> Array:
        """Gather one number per tile, and repeat it."""
        return jnp.tile(self._segments.spread(per_problem), TILE)

    def at(self, index: Array) -> Segments:
        """The segments of rows."""
        return Segments(self.index[index % self.index.size], self.count)

    @property
    def _segments(self) -> Segments:
        return Segments(self.index, self.count)

    def _as_tiles(self, entries: Array) -> Array:
        return entries.reshape(TILE, -1, *entries.shape[1:])


def _reduce(combine: Callable[[Array, Array], Array], terms: list[Array]) -> Array:
    """Reduce the terms pairwise, in an order that does not depend on compilation."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = [combine(x, y) for x, y in zip(terms[:half], terms[half:], strict=True)]
    return terms[0]
