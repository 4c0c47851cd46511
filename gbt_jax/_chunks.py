"""Users of all sizes, packed into chunks of a few fixed shapes.

A chunk is a disjoint union of users that one compiled program solves. Its arrays are padded to one
of a dozen shapes, so that a second data set compiles nothing. Users whose Hessians are small enough
to factorise are laid out in equal blocks; all others one after the other.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax import Array

from ._partition import Blocks, Segments


class Shape(NamedTuple):
    """Capacities of a chunk; `block` is the number of items per user where they are equal."""

    users: int
    items: int
    rows: int
    block: int | None

    def fits(self, items: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Which users may go here."""
        if self.block is None:
            return (items <= self.items) & (rows <= self.rows)
        return (items <= self.block) & (rows <= 8 * self.block)

    @property
    def num_problems(self) -> int:
        """Users, and without blocks one more that owns the padding."""
        return self.users + (self.block is None)

    def partition(self, owner: Array) -> Blocks | Segments:
        """Who owns the items."""
        if self.block is not None:
            return Blocks(self.users, self.block)
        return Segments(owner, self.num_problems)


# Blocks of up to 16 items are factorised: see `benchmarks/users.py --switch` for the measurement.
# Chunks are small, so that they stay in a core's cache and slow users hold up few others; larger
# ones, by factors of four, are for users too large for the ones before.
_BLOCKS = (8, 16)
_SMALLEST = 2**14
SHAPES = (
    *(Shape(_SMALLEST // 2 // block, _SMALLEST // 2, _SMALLEST, block) for block in _BLOCKS),
    *(Shape(2**10, _SMALLEST * 4**k, _SMALLEST * 4**k, None) for k in range(8)),
)


class Chunk(NamedTuple):
    """Some users in a shape: what is sent to the solver, and where its answers go."""

    shape: Shape
    users: np.ndarray  # which users, in order
    slots: np.ndarray  # where the items of these users stand in the chunk, user after user
    owner: np.ndarray  # items ↦ position in `users`
    a: np.ndarray
    b: np.ndarray
    rows: np.ndarray  # which rows of the data, user after user; fewer than there is room for

    def padded(self, column: np.ndarray) -> np.ndarray:
        """A column of the data in the order of the chunk, followed by zeros."""
        result = np.zeros(self.shape.rows, column.dtype)
        result[: self.rows.size] = column[self.rows]
        return result


def plan(num_items: np.ndarray, num_rows: np.ndarray) -> Iterator[tuple[Shape, np.ndarray]]:
    """Which users go together: neighbours in size, since a chunk waits for its slowest user."""
    home = np.full(num_items.size, -1)
    for index in reversed(range(len(SHAPES))):
        home[SHAPES[index].fits(num_items, num_rows)] = index
    if (home < 0).any():
        user = int(np.flatnonzero(home < 0)[0])
        raise ValueError(
            f"user number {user} has {num_rows[user]} comparisons of {num_items[user]} items, more "
            f"than {SHAPES[-1].rows}: fit it alone, with `fit`"
        )
    for index, shape in enumerate(SHAPES):
        members = np.flatnonzero(home == index)
        members = members[np.argsort(num_rows[members], kind="stable")]
        items, rows = np.cumsum(num_items[members]), np.cumsum(num_rows[members])
        start = 0
        while start < members.size:
            used_items = items[start - 1] if start else 0
            used_rows = rows[start - 1] if start else 0
            stop = min(
                start + shape.users, int(np.searchsorted(rows, used_rows + shape.rows, "right"))
            )
            if shape.block is None:
                stop = min(stop, int(np.searchsorted(items, used_items + shape.items, "right")))
            yield shape, members[start:stop]
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
    if shape.block is None:
        first = np.cumsum(num_items) - num_items
    else:
        first = shape.block * np.arange(users.size)
    rows = ranges(row_offsets[users], num_rows)
    shift = np.repeat(first, num_rows)
    # Padding compares the last item with itself, so that the owners of rows ascend too.
    a_padded = np.full(shape.rows, shape.items - 1, np.int32)
    b_padded = a_padded.copy()
    a_padded[: rows.size], b_padded[: rows.size] = a[rows] + shift, b[rows] + shift
    owner = np.full(shape.items, shape.users, np.int32)
    if shape.block is None:
        owner[: num_items.sum()] = np.repeat(np.arange(users.size), num_items)
    else:
        owner = np.repeat(np.arange(shape.users, dtype=np.int32), shape.block)
    return Chunk(shape, users, ranges(first, num_items), owner, a_padded, b_padded, rows)


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start+1, … of each length, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if ends.size else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
