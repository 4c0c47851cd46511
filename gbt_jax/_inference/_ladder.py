"""Padding to few shapes, so that programs compiled for one data set serve the next.

XLA compiles a program for every shape, which takes a hundred times as long as running it. So
concrete problems are padded on the host: with rows of weight 0, which contribute exactly 0, and
with items without comparisons, whose scores are the prior mean. Results are truncated on the host.

Numbers of rows grow by factors of 3/2 and 4/3, numbers of items by 8: rows are most of the work.
Items are at least about a sixteenth of the rows, where their cost is negligible. The amount of
padding within a rung does not change a bit of the scores; another rung may, by the order of sums.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array

from .._data._comparisons import Comparisons
from .._data._row_order import interleaved_order
from .._model import Model
from .._util._arrays import ArrayLike
from .._util._compilation import quick_options
from .._util._limits import DENSE_FIT_ITEMS, LADDER_ROWS
from ..laws import AbstractRootLaw

_FEWEST_ITEMS = 512  # of problems with more items than `DENSE_FIT_ITEMS`


def rungs(num_items: int, num_rows: int) -> tuple[int, int]:
    """The numbers of items and rows to which a problem is padded."""
    if num_items <= DENSE_FIT_ITEMS:
        return DENSE_FIT_ITEMS, rows_rung(num_rows)
    rows = rows_rung(num_rows)
    power = max((num_items - 1).bit_length() + 2, (rows // 16 | 1).bit_length() - 1) // 3
    return max(8**power, _FEWEST_ITEMS), rows


def rows_rung(count: int) -> int:
    """The padded number of rows: 0, 512, 4096, 6144, 8192, 12288 and so on."""
    for size in (0, *LADDER_ROWS):
        if count <= size:
            return size
    power = 1 << (count - 1).bit_length()
    return 3 * power // 4 if count <= 3 * power // 4 else power


def pad(
    model: Model, comparisons: Comparisons, start: Array | None, *, with_items: bool = True
) -> tuple[Model, Comparisons, np.ndarray | None]:
    """Pad a problem without groups to the shape of its rung, and interleave sorted rows.

    With `with_items=False` no items are added.
    """
    order = interleaved_order(np.asarray(comparisons.a), np.asarray(comparisons.b))
    if order is not None:
        model, comparisons = _permute_rows(model, comparisons, order)
    padded = pad_comparisons(comparisons, None if with_items else comparisons.num_items)
    items_size, rows_size = padded.num_items, len(padded)
    # Added items have a usual prior and start at its mean, which is their optimum. They are in no
    # norm (`Leading`).
    std, mean = model.prior_std, model.prior_mean
    usual = np.mean(mean) if mean.size else 0
    if std.ndim:
        std = fill(std, items_size, np.asarray(std)[0] if std.size else 1)
    if mean.ndim:
        mean = fill(mean, items_size, usual)
    if model.law.num_rows or std.ndim or mean.ndim:
        parts = pad_law(model.law, len(comparisons), rows_size), std, mean
        model = eqx.tree_at(lambda m: (m.law, m.prior_std, m.prior_mean), model, parts)
    return model, padded, None if start is None else fill(start, items_size, usual)


def _permute_rows(
    model: Model, comparisons: Comparisons, order: np.ndarray
) -> tuple[Model, Comparisons]:
    """The same comparisons in another order; a law's parameters per row follow their rows."""
    names = "a", "b", "value", "weight"
    columns = {name: np.asarray(getattr(comparisons, name))[order] for name in names}
    return model.at_rows(order), comparisons._replace(**columns)


def pad_comparisons(comparisons: Comparisons, num_items: int | None = None) -> Comparisons:
    """Pad with rows of weight 0, and with items that no other row refers to.

    To `num_items` if that is given, else to those of the rung.
    """
    count = len(comparisons)
    items_size, rows_size = rungs(comparisons.num_items, count)
    items_size = items_size if num_items is None else num_items
    # Rows of weight 0 are spread over items: consecutive scatter-adds to one item are slow.
    others = np.arange(rows_size - count, dtype=np.int32) % items_size
    return comparisons._replace(
        a=np.concatenate([comparisons.a, others]),
        b=np.concatenate([comparisons.b, (others + 1) % items_size]),
        value=fill(comparisons.value, rows_size, 0),
        weight=fill(comparisons.weight, rows_size, 0),
        num_items=items_size,
    )


def fill(column: Array | np.ndarray, size: int, value: Any) -> np.ndarray:
    """The column, padded with a value to this size."""
    padded = np.full(size, value, column.dtype)
    padded[: column.size] = column
    return padded


def row_derivatives(
    model: Model, comparisons: Comparisons, scores: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """(w (Φ'(t) − r), w Φ''(t)) of every comparison, its derivatives in t, on the host."""
    scores = np.asarray(scores)
    t = scores[np.asarray(comparisons.a)] - scores[np.asarray(comparisons.b)]
    size = rows_rung(t.size)
    law = pad_law(model.law, t.size, size)
    mean, variance = (np.asarray(x)[: t.size] for x in _moments()(law, fill(t, size, 0)))
    columns = comparisons.value, comparisons.weight
    value, weight = (np.asarray(x).astype(t.dtype) for x in columns)
    # Between items with very different scores a law may overflow: rows of weight 0 count 0.
    with np.errstate(invalid="ignore"):
        columns = weight * (mean - value), weight * variance
    slope, curvature = (np.where(weight > 0, x, 0) for x in columns)
    return slope, curvature


@functools.cache
def _moments():
    # It runs once per data set, so that compiling takes most of the time.
    return jax.jit(lambda law, t: (law.mean(t), law.variance(t)), compiler_options=quick_options())


def pad_law(law: AbstractRootLaw, count: int, size: int) -> AbstractRootLaw:
    """The law of padded rows; added rows repeat the parameters of the last one."""
    return law.at_rows(np.minimum(np.arange(size), count - 1)) if law.num_rows else law
