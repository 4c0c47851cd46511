"""Refits with one comparison changed at a time: each refit is a user of `fit_users`."""

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
    """How far a rises or b falls, whichever is less, when a row gets a higher value.

    With a lower value: how far a falls or b rises. NaN where a refit finds no optimum.
    """

    least: np.ndarray
    rounding: np.ndarray  # how far `least` may be off


def stepped_rises(subject: Fit | UserFits, rows: np.ndarray, values: np.ndarray) -> Rises:
    """For each of the `rows`, which get the new `values` one at a time."""
    least, error = _refitted(subject, rows, values)
    # Both fits are certified to so much; without a prior nothing is, but rounding is small.
    certified = np.where(np.isfinite(error), 2 * error, 0)
    largest = float(np.nanmax(np.abs(np.asarray(subject.scores)), initial=0))
    return Rises(least, certified + 1e-9 * (1 + largest))


def _refitted(
    subject: Fit | UserFits, rows: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(rises, how far the refits, certified, may be off)."""
    if isinstance(subject, UserFits):
        return _batched(subject.model, subject.comparisons, subject.scores, rows, values)
    own = subject.model.prior_std.ndim or subject.model.prior_mean.ndim
    if own or subject.comparisons.is_merged:  # which users of `fit_users` cannot have
        found = [_single(subject, *one) for one in zip(rows, values, strict=True)]
        least, error = np.array(found).reshape(-1, 2).T
        return least, error
    scores = np.asarray(subject.scores)
    return _batched(subject.model, _as_user(subject), scores, rows, values)


def _single(old: Fit, row: int, value: float) -> tuple[float, float]:
    rows = old.comparisons.with_values(old.comparisons.value.at[row].set(value))
    found = find(old.model, rows, initial=old.scores, throw=False)
    if found.result is not RESULTS.successful:
        return float("nan"), float("nan")
    moved = jnp.sign(value - old.comparisons.value[row]) * (found.scores - old.scores)
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
        num_given=len(rows),
    )


def _batched(
    model: Model, data: UserComparisons, scores: np.ndarray, rows: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    owner = np.searchsorted(data.row_offsets, rows, "right") - 1
    work = np.cumsum(np.diff(data.row_offsets)[owner])
    least, error, start = np.empty(rows.size), np.empty(rows.size), 0
    while start < rows.size:
        done = work[start - 1] if start else 0
        stop = max(int(np.searchsorted(work, done + _ROWS_AT_ONCE, "right")), start + 1)
        block = slice(start, stop)
        some = _block(model, data, scores, owner[block], rows[block], values[block])
        least[block], error[block] = some
        start = stop
    return least, error


def _block(
    model: Model,
    data: UserComparisons,
    scores: np.ndarray,
    owner: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    counts = np.diff(data.row_offsets)[owner], np.diff(data.item_offsets)[owner]
    row_offsets, item_offsets = (np.cumsum(np.append(0, count)) for count in counts)
    copies = ranges(data.row_offsets[owner], counts[0])
    slots = ranges(data.item_offsets[owner], counts[1])
    value = data.value[copies]
    value[row_offsets[:-1] + rows - data.row_offsets[owner]] = values
    copied = UserComparisons(
        users=np.arange(rows.size),
        items=data.items[slots],
        item_offsets=item_offsets,
        row_offsets=row_offsets,
        a=data.a[copies],
        b=data.b[copies],
        value=value,
        weight=data.weight[copies],
        row=data.row[copies],
        num_given=data.num_given,
    )
    prior = (x if x.ndim == 0 else x[owner] for x in (model.prior_std, model.prior_mean))
    fits = fit_users(Model(model.law, *prior), copied)
    moved = fits.scores - scores[slots]
    direction = np.sign(values - data.value[rows])
    first, second = (moved[item_offsets[:-1] + end[rows]] for end in (data.a, data.b))
    is_found = fits.result_codes == RESULTS.successful.value
    least = np.minimum(direction * first, -direction * second)
    return np.where(is_found, least, np.nan), fits.error_bounds
