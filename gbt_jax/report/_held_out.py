"""Calibration on held-out comparisons.

A tenth of the comparisons, drawn with a fixed seed, is held out, and a refit of the rest predicts
them: on its training data a fit looks better than it is.
"""

from typing import NamedTuple

import numpy as np

from .._data._comparisons import Comparisons
from .._data._graph import components
from .._data._groups import sort_by_group
from .._inference._maximise import fit
from .._inference._results import RESULTS
from ..frames import Ranking
from ..prediction._calibration import Calibration, calibration

_ENOUGH = 300  # rows, of which a tenth makes three bins of ten
_PER_BIN = 10
_MOST_BINS = 10
_MOST_HELD = 2000  # more would narrow the band, not change the picture
_MOST_ITEMS = 4096  # their curvature is a dense matrix
_SEED = 0


class HeldOut(NamedTuple):
    """A calibration, with the sizes of its data."""

    calibration: Calibration
    num_held: int
    num_fitted: int
    num_groups: int  # the largest ones


class _Pool(NamedTuple):
    """The comparisons of several groups as one problem with separate items."""

    a: np.ndarray
    b: np.ndarray
    value: np.ndarray
    weight: np.ndarray
    row: np.ndarray  # of the table; both halves of a split tie have the same
    num_items: int
    num_groups: int


def held_out_calibration(ranking: Ranking) -> HeldOut | str:
    """The calibration over the largest groups, or the reason why it is missing."""
    pool = _pool(ranking)
    if isinstance(pool, str):
        return pool
    rows = np.unique(pool.row[pool.weight > 0])
    if rows.size < _ENOUGH:
        return (
            f"Too few comparisons to hold some out: {rows.size:,}, and {_ENOUGH:,} are needed. "
            "On its training data the fit would look better than it is."
        )
    size = min(rows.size // 10, _MOST_HELD)
    chosen = np.random.default_rng(_SEED).choice(rows, size, replace=False)
    try:
        return _calibrate(ranking, pool, np.isin(pool.row, chosen))
    except (ValueError, np.linalg.LinAlgError) as error:
        return f"Not computed: {error}."


def _pool(ranking: Ranking) -> _Pool | str:
    """The largest groups, up to the number of items that a dense curvature can handle."""
    found, data = ranking.fit, ranking.fit.comparisons
    layout = sort_by_group(data)
    items, rows = layout.num_items, layout.num_rows
    is_fitted = np.asarray(found.result == RESULTS.successful)
    order = np.argsort(-rows, kind="stable")
    order = order[is_fitted[order]]
    if not order.size:
        return "No fit succeeded, so there is nothing to predict."
    largest = items[order[0]]
    order = order[np.cumsum(items[order]) <= _MOST_ITEMS]
    if not order.size:
        return f"Not computed: there are {largest:,} items, more than the limit of {_MOST_ITEMS:,}."
    a, b, value, weight = (np.asarray(x) for x in (data.a, data.b, data.value, data.weight))
    mine = np.flatnonzero(np.isin(np.asarray(data.group)[a], order))
    nodes, (first, second) = np.unique(np.stack([a[mine], b[mine]]), return_inverse=True)
    columns = value[mine], weight[mine], ranking.votes.row[mine]
    return _Pool(first, second, *columns, nodes.size, order.size)


def _calibrate(ranking: Ranking, pool: _Pool, is_held: np.ndarray) -> HeldOut | str:
    model = ranking.fit.model
    rows = Comparisons(
        pool.a, pool.b, pool.value, np.where(is_held, 0, pool.weight), num_items=pool.num_items
    )
    found = fit(model, rows, throw=False)
    if found.result != RESULTS.successful:
        return f"Not computed: without a tenth of the comparisons, {found.result.message}."
    kept = is_held & (pool.weight > 0)
    if np.isinf(float(model.prior_std)):  # components have no common scale
        part = components(rows)
        kept &= part[pool.a] == part[pool.b]
    size = np.unique(pool.row[kept]).size
    if size < 3 * _PER_BIN:
        return f"Not computed: only {size:,} of the held-out comparisons can be predicted."
    held = Comparisons(
        *(x[kept] for x in (pool.a, pool.b, pool.value, _repeats(pool))), num_items=pool.num_items
    )
    bins = min(size // _PER_BIN, _MOST_BINS)
    num_fitted = np.unique(pool.row[~is_held & (pool.weight > 0)]).size
    return HeldOut(calibration(found, held, bins=bins), size, num_fitted, pool.num_groups)


def _repeats(pool: _Pool) -> np.ndarray:
    """Integer weights are repeats; otherwise, as with decay, each row of the table counts once.

    The two halves of a split tie share the count of their row.
    """
    total = np.bincount(pool.row, pool.weight)[pool.row]
    is_whole = np.all(total == np.round(total))
    return pool.weight if is_whole else pool.weight / np.where(total > 0, total, 1)
