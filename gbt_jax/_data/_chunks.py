"""Packing of groups of all sizes into chunks of a few fixed shapes.

A chunk is a disjoint union of groups that one compiled program solves; a large group is a chunk by
itself. Arrays are padded to one of a few shapes, so that a second data set compiles nothing.

Unions are used instead of dense factorisations of tiny groups: with separate conjugate gradients
for each group, the union is faster for all sizes of groups (`benchmarks/groups.py --switch`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax import Array

from .._util._arrays import ranges
from ._partition import ONE, TILE, AbstractPartition, Tiles


class Shape(NamedTuple):
    """Capacity in groups, in items (in whole tiles, of which padding takes one), and in rows."""

    groups: int
    items: int
    rows: int

    def holds(self, groups: int, items: int, rows: int) -> bool:
        """Whether so many groups, items and rows fit into the shape."""
        return groups <= self.groups and items + TILE <= self.items and rows <= self.rows

    @property
    def num_problems(self) -> int:
        """The number of groups, plus one in a union for the padding."""
        return 1 if self.groups == 1 else self.groups + 1

    def partition(self, owner: Array) -> AbstractPartition:
        """The partition of items into problems, given the problem of each tile."""
        return ONE if self.groups == 1 else Tiles(owner, self.num_problems)


# Usual chunks fit into a core's cache, and a slow group delays few others. The smaller shape is for
# small data. Only its own size decides whether a group is a chunk by itself, so that its program,
# and the last bit of its scores, do not depend on other groups.
_UNIONS = tuple(Shape(rows // 8, 5 * rows // 8, rows) for rows in (2**11, 2**14))
_SINGLE_ROWS = (2**11, 2**12, 2**13, 3 * 2**12, 2**14, 2**16, 2**18)
_SINGLES = tuple(Shape(1, rows // 2, rows) for rows in _SINGLE_ROWS)
SHAPES = _UNIONS + _SINGLES  # larger groups get shapes from `_single_shape`
_MAX_SINGLE = 2**30
_MAX_UNION_ROWS = 2**10


class Chunk(NamedTuple):
    """Groups packed into a shape, with the positions of their items and rows in the data."""

    shape: Shape
    groups: np.ndarray  # the groups, in order
    nodes: np.ndarray  # positions of their scores in the data
    items: np.ndarray  # positions of the same scores in the chunk; other items are padding
    rows: np.ndarray  # positions in the data of the first rows of the chunk
    owner: np.ndarray  # position in `groups` of each tile; padding is a separate problem
    a: np.ndarray
    b: np.ndarray

    def pad(self, column: np.ndarray) -> np.ndarray:
        """A column of the data in the order of the chunk, padded with zeros."""
        result = np.zeros(self.shape.rows, column.dtype)
        result[: self.rows.size] = column[self.rows]
        return result

    def at_items(self, column: np.ndarray, padding: float | int | np.floating) -> np.ndarray:
        """A column of the nodes in the order of the chunk's items, padded."""
        result = np.full(self.shape.items, padding, column.dtype)
        result[self.items] = column
        return result


def plan(
    num_items: np.ndarray, num_rows: np.ndarray, num_workers: int
) -> Iterator[tuple[Shape, np.ndarray]]:
    """Assign groups to chunks by size, since the slowest group determines the time of a chunk.

    The largest groups come first. Also small data are split into several chunks per worker, to
    balance the load.
    """
    order = np.argsort(-num_rows, kind="stable")
    large = (num_rows > _MAX_UNION_ROWS) | (num_items >= _MAX_UNION_ROWS)
    padded = TILE * _tiles(num_items)
    for group in order[large[order]]:
        size = int(padded[group]), int(num_rows[group])
        if max(size) > _MAX_SINGLE:
            raise ValueError(
                f"group number {group} has {size[1]} comparisons of {num_items[group]} items, more "
                "than a chunk can hold: fit it alone, with `fit`"
            )
        yield _single_shape(*size), np.array([group])
    order = order[~large[order]]
    items, rows = (np.cumsum(np.append(0, x[order])) for x in (padded, num_rows))
    usual = _UNIONS[-1]
    least = max(_UNIONS[0].rows, _MAX_UNION_ROWS)
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


def _single_shape(items: int, rows: int) -> Shape:
    """The shape of a chunk of one group.

    Beyond the usual shapes it has powers of two: solving hundreds of thousands of rows takes longer
    than compiling a program for them, and much longer if most of them are padding.
    """
    usual = (shape for shape in _SINGLES if shape.holds(1, items, rows))
    larger = Shape(1, _power_of_two(items + TILE), _power_of_two(rows))
    return next(usual, larger)


def _power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


def pack(
    shape: Shape,
    groups: np.ndarray,
    item_offsets: np.ndarray,
    row_offsets: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> Chunk:
    """Pack groups into a shape; a and b are indices of items within each group."""
    num_items = item_offsets[groups + 1] - item_offsets[groups]
    num_rows = row_offsets[groups + 1] - row_offsets[groups]
    rows = ranges(row_offsets[groups], num_rows)
    tiles, num_tiles = _tiles(num_items), shape.items // TILE
    starts, used = np.cumsum(tiles) - tiles, int(tiles.sum())

    def places(within: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Positions in the chunk of items of groups whose tiles begin at `start`; see `Tiles`."""
        return within % TILE * num_tiles + start + within // TILE

    # Padding rows compare padding items with themselves, so that the owners of rows ascend too.
    # They cycle through the padding items, since consecutive scatter-adds to one item are slow.
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
