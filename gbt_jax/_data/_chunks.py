"""Groups of all sizes, packed into chunks of a few fixed shapes.

A chunk is a disjoint union of groups, one after the other, that one compiled program solves; a
large group is alone in its own. Its arrays are padded to one of a few shapes, so that a second data
set compiles nothing.

Why unions, and no dense factorisations of tiny groups: with conjugate gradients that run for each
group apart, the union is the faster for groups of every size (`benchmarks/groups.py --switch`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax import Array

from .._util._arrays import ranges
from ._partition import ONE, TILE, AbstractPartition, Tiles


class Shape(NamedTuple):
    """Room for groups, for their items in whole tiles (padding takes one), and for their rows."""

    groups: int
    items: int
    rows: int

    def holds(self, groups: int, items: int, rows: int) -> bool:
        """Whether there is room for so many."""
        return groups <= self.groups and items + TILE <= self.items and rows <= self.rows

    @property
    def num_problems(self) -> int:
        """Users, and in a union one more that owns the padding."""
        return 1 if self.groups == 1 else self.groups + 1

    def partition(self, owner: Array) -> AbstractPartition:
        """Who owns the tiles of items."""
        return ONE if self.groups == 1 else Tiles(owner, self.num_problems)


# Usual chunks stay in a core's cache, and slow groups hold up few others there. Smaller ones are
# for little data. A group is alone or not by its own size, so that its program, and with it the
# last bit of its scores, does not depend on others.
_UNIONS = tuple(Shape(rows // 8, 5 * rows // 8, rows) for rows in (2**11, 2**14))
_ROWS_ALONE = (2**11, 2**12, 2**13, 3 * 2**12, 2**14, 2**16, 2**18)
_ALONE = tuple(Shape(1, rows // 2, rows) for rows in _ROWS_ALONE)
SHAPES = _UNIONS + _ALONE  # larger groups have a shape of their own, see `_alone`
_MOST_ALONE = 2**30
_MOST_ROWS_IN_UNION = 2**10


class Chunk(NamedTuple):
    """Some groups in a shape: what is sent to the solver, and where its answers go."""

    shape: Shape
    groups: np.ndarray  # which groups, in order
    nodes: np.ndarray  # which scores of the data
    items: np.ndarray  # where they are in the chunk; all other items are padding
    rows: np.ndarray  # which rows of the data: the first rows of the chunk
    owner: np.ndarray  # tiles ↦ position in `groups`; padding belongs to a problem of its own
    a: np.ndarray
    b: np.ndarray

    def pad(self, column: np.ndarray) -> np.ndarray:
        """A column of the data in the order of the chunk, followed by zeros."""
        result = np.zeros(self.shape.rows, column.dtype)
        result[: self.rows.size] = column[self.rows]
        return result

    def at_items(self, column: np.ndarray, padding: float | int | np.floating) -> np.ndarray:
        """A column of the nodes in the order of the chunk's items."""
        result = np.full(self.shape.items, padding, column.dtype)
        result[self.items] = column
        return result


def plan(
    num_items: np.ndarray, num_rows: np.ndarray, num_workers: int
) -> Iterator[tuple[Shape, np.ndarray]]:
    """Which groups go together: neighbours in size, since a chunk waits for its slowest group.

    The largest come first, and there are a few chunks for each worker even if the data are few,
    so that all of them end together.
    """
    order = np.argsort(-num_rows, kind="stable")
    large = (num_rows > _MOST_ROWS_IN_UNION) | (num_items >= _MOST_ROWS_IN_UNION)
    padded = TILE * _tiles(num_items)
    for group in order[large[order]]:
        size = int(padded[group]), int(num_rows[group])
        if max(size) > _MOST_ALONE:
            raise ValueError(
                f"group number {group} has {size[1]} comparisons of {num_items[group]} items, more "
                "than a chunk can hold: fit it alone, with `fit`"
            )
        yield _alone(*size), np.array([group])
    order = order[~large[order]]
    items, rows = (np.cumsum(np.append(0, x[order])) for x in (padded, num_rows))
    usual = _UNIONS[-1]
    least = max(_UNIONS[0].rows, _MOST_ROWS_IN_UNION)
    most_rows = min(usual.rows, max(least, int(rows[-1]) // (2 * num_workers) + 1))
    start = 0
    while start < order.size:
        stop = min(
            start + usual.groups,
            int(np.searchsorted(items, items[start] + usual.items - TILE, "right")) - 1,
            int(np.searchsorted(rows, rows[start] + most_rows, "right")) - 1,
        )
        size = stop - start, int(items[stop] - items[start]), int(rows[stop] - rows[start])
        yield next(shape for shape in _UNIONS if shape.holds(*size)), order[start:stop]
        start = stop


def _alone(items: int, rows: int) -> Shape:
    """The shape for one group.

    Beyond the usual ones, powers of two: to solve hundreds of thousands of rows takes longer than
    to compile a program for them, and much longer if most of them were padding.
    """
    usual = (shape for shape in _ALONE if shape.holds(1, items, rows))
    larger = Shape(1, _power_of_two(items + TILE), _power_of_two(rows))
    return next(usual, larger)


def _power_of_two(size: int) -> int:
    """The smallest that is as large."""
    return 1 << (size - 1).bit_length()


def pack(
    shape: Shape,
    groups: np.ndarray,
    item_offsets: np.ndarray,
    row_offsets: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> Chunk:
    """Lay the groups out; a and b number the items within each group."""
    num_items = item_offsets[groups + 1] - item_offsets[groups]
    num_rows = row_offsets[groups + 1] - row_offsets[groups]
    rows = ranges(row_offsets[groups], num_rows)
    tiles, num_tiles = _tiles(num_items), shape.items // TILE
    starts, used = np.cumsum(tiles) - tiles, int(tiles.sum())

    def places(within: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Of an item within its group, whose tiles start there; see `Tiles`."""
        return within % TILE * num_tiles + start + within // TILE

    # Padding rows compare padding items with themselves, so that the owners of rows ascend too;
    # all of them in turn, since sums into one and the same place would wait for each other.
    spare = (num_tiles * np.arange(TILE)[:, None] + np.arange(used, num_tiles)).ravel()
    ends = np.resize(spare.astype(np.int32), (2, shape.rows))
    ends[1] = ends[0]
    row_starts = np.repeat(starts, num_rows)
    ends[0, : rows.size], ends[1, : rows.size] = (places(x[rows], row_starts) for x in (a, b))
    owner = np.full(num_tiles, shape.num_problems - 1, np.int32)
    owner[:used] = np.repeat(np.arange(groups.size), tiles)
    within = ranges(np.zeros_like(num_items), num_items)
    items = places(within, np.repeat(starts, num_items))
    nodes = ranges(item_offsets[groups], num_items)
    return Chunk(shape, groups, nodes, items, rows, owner, *ends)


def _tiles(num_items: np.ndarray) -> np.ndarray:
    return -(-num_items // TILE)
