"""One comparison raised at a time, and everything refitted: each refit is a user of `fit_users`."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ._arrays import ranges
from ._fit import RESULTS, Fit
from ._fit import fit as find
from ._model import Model
from ._user_comparisons import UserComparisons
from ._user_fits import UserFits
from ._users import fit_users

_ROWS_AT_ONCE = 2**20  # of all refits together


class Rises(NamedTuple):
    """How far a rises or b falls, whichever is less, when a row gets its raised value.

    NaN where a refit finds no optimum; `error` is how far the refit, certified, may be off.
    """

    least: np.ndarray
    error: np.ndarray


def stepped_rises(subject: Fit | UserFits, rows: np.ndarray, raised: np.ndarray) -> Rises:
    """For each of the `rows`, of which `raised` are the new values."""
    if isinstance(subject, UserFits):
        return _batched(subject.model, subject.comparisons, subject.scores, rows, raised)
    own = subject.model.prior_std.ndim or subject.model.prior_mean.ndim
    if own or subject.comparisons.is_merged:  # which users of `fit_users` cannot have
        found = [_single(subject, *one) for one in zip(rows, raised, strict=True)]
        return Rises(*np.array(found).reshape(-1, 2).T)
    scores = np.asarray(subject.scores)
    return _batched(subject.model, _as_user(subject), scores, rows, raised)


def _single(old: Fit, row: int, value: float) -> tuple[float, float]:
    rows = old.comparisons.with_values(old.comparisons.value.at[row].set(value))
    found = find(old.model, rows, initial=old.scores, throw=False)
    if found.result is not RESULTS.successful:
        return float("nan"), float("nan")
    moved = found.scores - old.scores
    return float(jnp.minimum(moved[rows.a[row]], -moved[rows.b[row]])), float(found.error_bound)


def _as_user(fit: Fit) -> UserComparisons:
    rows = fit.comparisons
    return UserComparisons(
        users=np.zeros(1, int),
        items=np.arange(rows.num_items),
        item_offsets=np.array([0, rows.num_items]),
        row_offsets=np.array([0, len(rows)]),
        a=np.asarray(rows.a),
        b=np.asarray(rows.b),
        value=np.asarray(rows.value),
        weight=np.asarray(rows.weight),
        row=np.arange(len(rows)),
    )


def _batched(
    model: Model, data: UserComparisons, scores: np.ndarray, rows: np.ndarray, raised: np.ndarray
) -> Rises:
    owner = np.searchsorted(data.row_offsets, rows, "right") - 1
    work = np.cumsum(np.diff(data.row_offsets)[owner])
    found, start = Rises(np.empty(rows.size), np.empty(rows.size)), 0
    while start < rows.size:
        done = work[start - 1] if start else 0
        stop = max(int(np.searchsorted(work, done + _ROWS_AT_ONCE, "right")), start + 1)
        block = slice(start, stop)
        some = _block(model, data, scores, owner[block], rows[block], raised[block])
        found.least[block], found.error[block] = some
        start = stop
    return found


def _block(
    model: Model,
    data: UserComparisons,
    scores: np.ndarray,
    owner: np.ndarray,
    rows: np.ndarray,
    raised: np.ndarray,
) -> Rises:
    counts = np.diff(data.row_offsets)[owner], np.diff(data.item_offsets)[owner]
    row_offsets, item_offsets = (np.cumsum(np.append(0, count)) for count in counts)
    copies = ranges(data.row_offsets[owner], counts[0])
    slots = ranges(data.item_offsets[owner], counts[1])
    value = data.value[copies]
    value[row_offsets[:-1] + rows - data.row_offsets[owner]] = raised
    copied = UserComparisons(
        users=np.arange(rows.size),
        items=data.items[slots],
        item_offsets=item_offsets,
        row_offsets=row_offsets,
        a=data.a[copies],
        b=data.b[copies],
        value=value,
        weight=data.weight[copies],
        row=copies,
    )
    prior = (x if x.ndim == 0 else x[owner] for x in (model.prior_std, model.prior_mean))
    fits = fit_users(Model(model.law, *prior), copied)
    moved = fits.scores - scores[slots]
    first, second = (moved[item_offsets[:-1] + end[rows]] for end in (data.a, data.b))
    is_found = fits.result_codes == RESULTS.successful.value
    return Rises(np.where(is_found, np.minimum(first, -second), np.nan), fits.error_bounds)
