"""Users of all sizes, packed into chunks of a few fixed shapes.

A chunk is a disjoint union of users, one after the other, that one compiled program solves. Its
arrays are padded to one of a few shapes, so that a second data set compiles nothing.

Why unions alone, and no dense factorisations of tiny users: with conjugate gradients that run for
each user apart, the union is the faster at every size of user (`benchmarks/users.py --switch`).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Shape(NamedTuple):
    """Room for users, for their items (padding takes one at least), and for their rows."""

    users: int
    items: int
    rows: int

    def holds(self, users, items, rows):
        """Whether there is room for so many (numbers or arrays)."""
        return (users <= self.users) & (items < self.items) & (rows <= self.rows)


# Small chunks stay in a core's cache, and slow users hold up few others there. Larger ones, by
# factors of four, are for users too large for the ones before.
SHAPES = tuple(Shape(rows // 4, rows // 2, rows) for rows in (2**11, *(4**k for k in range(7, 15))))
_USUAL = SHAPES[1]


class Chunk(NamedTuple):
    """Some users in a shape: what is sent to the solver, and where its answers go."""

    shape: Shape
    users: np.ndarray  # which users, in order
    slots: np.ndarray  # which scores of the data: the first items of the chunk
    rows: np.ndarray  # which rows of the data: the first rows of the chunk
    owner: np.ndarray  # items ↦ position in `users`; padding belongs to a problem of its own
    a: np.ndarray
    b: np.ndarray

    def padded(self, column: np.ndarray) -> np.ndarray:
        """A column of the data in the order of the chunk, followed by zeros."""
        result = np.zeros(self.shape.rows, column.dtype)
        result[: self.rows.size] = column[self.rows]
        return result


def plan(num_items: np.ndarray, num_rows: np.ndarray) -> Iterator[tuple[Shape, np.ndarray]]:
    """Which users go together: neighbours in size, since a chunk waits for its slowest user."""
    order = np.argsort(num_rows, kind="stable")
    items, rows = np.cumsum(num_items[order]), np.cumsum(num_rows[order])
    start = 0
    while start < order.size:
        used_items, used_rows = (x[start - 1] if start else 0 for x in (items, rows))
        stop = min(
            start + _USUAL.users,
            int(np.searchsorted(items, used_items + _USUAL.items)),
            int(np.searchsorted(rows, used_rows + _USUAL.rows, "right")),
        )
        stop = max(stop, start + 1)
        size = stop - start, items[stop - 1] - used_items, rows[stop - 1] - used_rows
        shape = next((shape for shape in SHAPES if shape.holds(*size)), None)
        if shape is None:
            raise ValueError(
                f"user number {order[start]} has {size[2]} comparisons of {size[1]} items, more "
                "than a chunk can hold: fit it alone, with `fit`"
            )
        yield shape, order[start:stop]
        start = stop


def pack(
    shape: Shape,
    users: np.ndarray,
    item_offsets: np.ndarray,
    row_offsets: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> Chunk:
    """Lay the users out; a and b number the items within each user."""
    num_items = item_offsets[users + 1] - item_offsets[users]
    num_rows = row_offsets[users + 1] - row_offsets[users]
    rows = _ranges(row_offsets[users], num_rows)
    shift = np.repeat(np.cumsum(num_items) - num_items, num_rows)
    # Padding compares the last item with itself, so that the owners of rows ascend too.
    ends = np.full((2, shape.rows), shape.items - 1, np.int32)
    ends[0, : rows.size], ends[1, : rows.size] = a[rows] + shift, b[rows] + shift
    owner = np.full(shape.items, shape.users, np.int32)
    owner[: num_items.sum()] = np.repeat(np.arange(users.size), num_items)
    return Chunk(shape, users, _ranges(item_offsets[users], num_items), rows, owner, *ends)


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start+1, … of each length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)
