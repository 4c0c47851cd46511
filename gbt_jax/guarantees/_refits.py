"""Refits with one changed comparison each, as groups of a single fit."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from .._data._groups import GroupedRows, sort_by_group
from .._data._labels import Labels
from .._inference._fit import Fit
from .._inference._maximise import fit as find
from .._inference._results import RESULTS
from .._model import Model, per_item
from .._util._arrays import ranges

_ROWS_AT_ONCE = 2**20  # of all refits together


class Rises(NamedTuple):
    """The rise of a or the fall of b, whichever is less, if a row gets a higher value.

    With a lower value: the fall of a or the rise of b. NaN if a refit finds no optimum.
    """

    least: np.ndarray
    rounding: np.ndarray  # a bound of the error of `least`


def refit_rises(fit: Fit, rows: np.ndarray, values: np.ndarray) -> Rises:
    """The `Rises` of refits in which one of the `rows` each gets its new value."""
    layout = sort_by_group(fit.comparisons)
    place = np.empty(layout.row.size, np.int64)  # of each row among those sorted by group
    place[layout.row] = np.arange(layout.row.size)
    owner = layout.owner[place[rows]]
    work = np.cumsum(layout.num_rows[owner])
    least, error, start = np.empty(rows.size), np.empty(rows.size), 0
    while start < rows.size:
        done = work[start - 1] if start else 0
        stop = max(int(np.searchsorted(work, done + _ROWS_AT_ONCE, "right")), start + 1)
        block = slice(start, stop)
        copies = _Copies(owner[block], rows[block], place[rows[block]], values[block])
        least[block], error[block] = _refit(fit, layout, copies)
        start = stop
    # Both fits have this error bound; without a prior it is inf, but rounding errors are small.
    certified = np.where(np.isfinite(error), 2 * error, 0)
    largest = float(np.nanmax(np.abs(np.asarray(fit.scores)), initial=0))
    return Rises(least, certified + 1e-9 * (1 + largest))


class _Copies(NamedTuple):
    """Copies of groups, each with one row changed."""

    owner: np.ndarray
    row: np.ndarray
    place: np.ndarray  # of the row, among those sorted by group
    value: np.ndarray


def _refit(fit: Fit, layout: GroupedRows, copies: _Copies) -> tuple[np.ndarray, np.ndarray]:
    """(rises, error bounds) of refits."""
    old, owner = fit.comparisons, copies.owner
    counts = layout.num_rows[owner], layout.num_items[owner]
    starts, item_starts = (np.cumsum(count) - count for count in counts)
    sorted_rows = ranges(layout.row_offsets[owner], counts[0])
    items = ranges(layout.item_offsets[owner], counts[1])
    rows, shift = layout.row[sorted_rows], np.repeat(item_starts, counts[0])
    value = np.asarray(old.value)[rows]
    value[starts + copies.place - layout.row_offsets[owner]] = copies.value
    prior = (
        np.asarray(per_item(x, old))[items] for x in (fit.model.prior_std, fit.model.prior_mean)
    )
    copied = old._replace(
        a=jnp.asarray(layout.a[sorted_rows] + shift, np.int32),
        b=jnp.asarray(layout.b[sorted_rows] + shift, np.int32),
        value=jnp.asarray(value),
        weight=old.weight[rows],
        group=jnp.asarray(np.repeat(np.arange(owner.size), counts[1]), np.int32),
        num_items=items.size,
        num_groups=owner.size,
        labels=Labels(),
    )
    start = np.asarray(fit.scores)[items]
    found = find(Model(fit.model.law.at_rows(rows), *prior), copied)
    moved = np.asarray(found.scores) - start
    direction = np.sign(copies.value - np.asarray(old.value)[copies.row])
    ends = (item_starts + x[copies.place] for x in (layout.a, layout.b))
    first, second = (moved[end] for end in ends)
    least = np.minimum(direction * first, -direction * second)
    is_found = found.result == RESULTS.successful
    return np.where(is_found, least, np.nan), np.asarray(found.error_bound)
