"""The incidence matrix B: row i has +1 at a and −1 at b, so that (B θ)_i = θ_a − θ_b.

Only this file defines how the predictor of a row depends on the scores. Functions take a vector of
items or rows, or a matrix with one column for each of several problems.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._util._arrays import IN_RANGE, gather
from .._util._limits import BLOCK_ROWS, BLOCKED_ROWS
from ._comparisons import Comparisons


def differences(comparisons: Comparisons, x: Array) -> Array:
    """B x."""
    return gather(x, comparisons.a) - gather(x, comparisons.b)


def transpose(comparisons: Comparisons, rows: Array, onto: Array | None = None) -> Array:
    """Bᵀ rows, added to `onto` if that is given."""
    if onto is None:
        onto = _zeros(comparisons, rows)
    added = onto.at[comparisons.a].add(rows, **IN_RANGE)
    return added.at[comparisons.b].subtract(rows, **IN_RANGE)


def item_sums(comparisons: Comparisons, rows: Array) -> Array:
    """|B|ᵀ rows: the sum over the rows of each item."""
    added = _zeros(comparisons, rows).at[comparisons.a].add(rows, **IN_RANGE)
    return added.at[comparisons.b].add(rows, **IN_RANGE)


def item_maxima(comparisons: Comparisons, rows: Array) -> Array:
    """The maximum over the rows of each item, for non-negative entries; 0 without rows."""
    found = _zeros(comparisons, rows).at[comparisons.a].max(rows, **IN_RANGE)
    return found.at[comparisons.b].max(rows, **IN_RANGE)


def weighted_product(
    comparisons: Comparisons,
    weights: Array,
    diagonal: Array,
    x: Array,
    *,
    num_used: Array | None = None,
    in_blocks: bool = True,
) -> Array:
    """(diag(diagonal) + Bᵀ diag(weights) B) x.

    On a CPU the product is evaluated block by block, so that the data of a block stay in the cache.
    Rows from `num_used` on have weight 0: whole blocks of them are skipped. The last bits of an
    item's sum depend on where blocks end within its rows; `in_blocks=False` avoids that.
    """

    def whole(x: Array) -> Array:
        return transpose(comparisons, weights * differences(comparisons, x), diagonal * x)

    num_blocks, rest = divmod(len(comparisons), BLOCK_ROWS)
    if not (in_blocks and 2 * BLOCK_ROWS <= len(comparisons) <= BLOCKED_ROWS):
        return whole(x)

    def add_rows(start: Array | int, size: int, image: Array, x: Array) -> Array:
        a, b, weight = (
            lax.dynamic_slice_in_dim(column, start, size)
            for column in (comparisons.a, comparisons.b, weights)
        )
        moved = weight * (gather(x, a) - gather(x, b))
        image = image.at[a].add(moved, **IN_RANGE)
        return image.at[b].subtract(moved, **IN_RANGE)

    def by_blocks(x: Array) -> Array:
        def add_block(block: Array, image: Array) -> Array:
            return add_rows(block * BLOCK_ROWS, BLOCK_ROWS, image, x)

        used = num_blocks
        if num_used is not None:
            used = jnp.minimum((num_used + BLOCK_ROWS - 1) // BLOCK_ROWS, num_blocks)
        image = lax.fori_loop(0, used, add_block, diagonal * x)
        return add_rows(num_blocks * BLOCK_ROWS, rest, image, x) if rest else image

    return lax.platform_dependent(x, cpu=by_blocks, default=whole)


def weighted_matrix(comparisons: Comparisons, weights: Array, diagonal: Array) -> Array:
    """A matrix with the off-diagonal entries of Bᵀ diag(weights) B, and the given diagonal."""
    size = comparisons.num_items
    half = jnp.zeros((size, size), weights.dtype)
    half = half.at[comparisons.a, comparisons.b].add(-weights)
    return half + half.T + jnp.diag(diagonal)


def group_columns(
    comparisons: Comparisons, rows: Array | np.ndarray, member: np.ndarray, count: int
) -> Array:
    """Bᵀ diag(rows) with the columns of each of `count` sets summed, items × sets."""
    columns = jnp.zeros((comparisons.num_items, count), rows.dtype)
    columns = columns.at[comparisons.a, member].add(rows)
    return columns.at[comparisons.b, member].add(-rows)


def item_sums_on_host(
    a: np.ndarray, b: np.ndarray, rows: np.ndarray, size: int, *, sign: int = 1
) -> np.ndarray:
    """`item_sums` with NumPy, without compiling for each size; `transpose` for a sign of −1."""
    return np.bincount(a, rows, size) + sign * np.bincount(b, rows, size)


def _zeros(comparisons: Comparisons, rows: Array) -> Array:
    return jnp.zeros((comparisons.num_items, *rows.shape[1:]), rows.dtype)
