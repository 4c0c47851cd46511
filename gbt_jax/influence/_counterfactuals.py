"""Counterfactuals: small changes that move a score, swap two items or change the top.

Both functions search with derivatives, confirm the result by a refit, and return the refit.

- `required_change`: ∂θ*_i/∂r = s with s_row = w (N e_i)ᵀ(e_a − e_b), so of all changes of values
  with s·Δr = δ the smallest in l2 is Δr = δ s/‖s‖². Within the law's support, [−r_max, r_max], the
  smallest is Δr = clip(λ s) with the λ that gives δ.
- `flip_set`: leaving a row out moves θ_first − θ_second by about ρ vᵀx/(1 − c xᵀN x), and reversing
  its value by −2 w r vᵀx, where v = N (e_first − e_second) and x = e_a − e_b.
"""

import dataclasses
from typing import Literal, NamedTuple, final, get_args

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._curvature import AbstractCurvature, curvature_of
from .._inference._fit import Fit, refuse_groups
from .._inference._ladder import row_derivatives
from .._inference._maximise import fit as find
from .._inference._results import RESULTS
from .._util._arrays import Integer, as_indices, whole_number
from ._influence import disconnects

Means = Literal["removal", "reversal"]
_CONTENDERS = 3  # items on either side of the top's edge, whose pairs are tried first


class RequiredChange(NamedTuple):
    """Changes of values that move a score by a given amount to first order, and their effect."""

    change: Array  # of each comparison's value
    fit: Fit  # with the changed values
    achieved: Array  # the change of the score by the refit


def required_change(
    fit: Fit, item: Integer, delta: float, *, using: AbstractCurvature | None = None
) -> RequiredChange:
    """The smallest change of values, in l2, that moves an item's score by `delta` to first order.

    Values stay within the law's support (for a discrete law in its interval, as averages of repeats
    may be). A `delta` out of reach raises an error with the largest change in reach.

    **Arguments:**

    - `fit`: a fit without groups.
    - `item`: the item whose score moves.
    - `delta`: the change of its score.
    - `using`: the fit's `curvature`, if available.

    **Returns:** a `RequiredChange`, with the change of the score by a refit in `achieved`.
    """
    refuse_groups(fit, "required_change", "a score belongs to one group")
    (number,) = as_indices("item", np.array([item]), fit.comparisons.num_items)
    if not np.isfinite(delta):
        raise ValueError(f"delta must be a finite number, not {delta}")
    made = curvature_of(fit, using)
    rows = fit.comparisons
    edge = np.asarray(fit.model.law.max_value, rows.value.dtype)  # one number, or one per row
    # Both items of a row are in one component, so its level cancels.
    unit = (np.arange(fit.scores.size) == number).astype(fit.scores.dtype)
    response = made.reduced_solve(unit[:, None])[:, 0]
    slope = np.asarray(rows.weight) * (response[np.asarray(rows.a)] - response[np.asarray(rows.b)])
    value = np.asarray(rows.value)
    change = _smallest_change(slope, -edge - value, edge - value, float(delta))
    values = np.clip(value + change, -edge, edge).astype(value.dtype)
    changed = rows._with_rows(rows.a, rows.b, values, rows.weight, is_merged=True)
    refitted = find(fit.model, changed, initial=fit.scores)
    achieved = refitted.scores[number] - fit.scores[number]
    return RequiredChange(jnp.asarray(values - value), refitted, achieved)


def _smallest_change(slope: np.ndarray, low: np.ndarray, high: np.ndarray, delta: float):
    """argmin ‖x‖₂ with slope·x = delta and low ≤ x ≤ high: clip(λ slope), for the right λ ≥ 0."""
    slope = np.copysign(1.0, delta) * slope
    moves = slope != 0
    ends = np.where(moves, np.where(slope > 0, high, low), 0)
    reach = np.sum(slope * ends)
    if abs(delta) > reach * (1 + 1e-12):  # up to rounding
        raise ValueError(
            f"delta is {delta:g}, but to first order no values inside the law's support move this "
            f"score by more than {np.copysign(reach, delta):.4g}"
        )
    # Each entry grows as λ slope until it reaches its bound. The total is piecewise linear in λ,
    # with kinks where entries reach their bounds.
    stops = np.full(slope.shape, np.inf)
    np.divide(ends, slope, out=stops, where=moves)
    order = np.argsort(stops)
    stopped = np.cumsum(np.append(0, (slope * ends)[order]))
    squares = np.square(slope[order])
    growing = np.cumsum(np.append(0, squares[::-1]))[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        candidates = (abs(delta) - stopped) / growing
    fits = np.flatnonzero((candidates <= np.append(stops[order], np.inf)) & (growing > 0))
    # No candidate is valid if all entries are at their bounds, at the limit of the reach.
    return np.clip(candidates[fits[0]] * slope, low, high) if fits.size else moves * ends


@final
@dataclasses.dataclass(frozen=True)
class FlipSet:
    """Comparisons whose removal, or reversal, changes a ranking; confirmed by a refit."""

    rows: np.ndarray  # empty if none was found
    is_found: bool
    by: Means
    aim: str
    num_comparisons: int
    limit: int
    fit: Fit  # without the rows, or with them reversed

    def __str__(self) -> str:
        done = {"removal": "leaving out", "reversal": "reversing"}[self.by]
        total = f"{self.num_comparisons} comparisons"
        if not self.is_found:
            return f"{self.aim}: no set of up to {self.limit} of {total} was found by {done} them"
        shown = ", ".join(str(row) for row in self.rows[:10])
        more = f" and {self.rows.size - 10} more" if self.rows.size > 10 else ""
        return f"{self.aim}: {done} {self.rows.size} of {total} is enough (rows {shown}{more})"


def flip_set(
    fit: Fit,
    first: Integer | None = None,
    second: Integer | None = None,
    *,
    top: Integer | None = None,
    by: Means = "removal",
    limit: int = 100,
    using: AbstractCurvature | None = None,
) -> FlipSet:
    """A small set of comparisons whose removal, or reversal, changes a ranking.

    The search is greedy: it takes the comparisons with the largest first-order effect on the gap
    between two items, refits, repeats until the order changes, and prunes the set at the end. A
    refit confirms the change; the set is not proven to be the smallest.

    **Arguments:**

    - `fit`: a fit without groups.
    - `first`, `second`: the two items to swap; or
    - `top`: the size of the top, of which at least one item is to be replaced.
    - `by`: `"removal"` or `"reversal"` (r becomes −r).
    - `limit`: how many comparisons at most.
    - `using`: the fit's `curvature`, if available.

    **Returns:** a `FlipSet`, with `is_found=False` if the search found none.
    """
    refuse_groups(fit, "flip_set", "a ranking is of one group")
    if by not in get_args(Means):
        raise ValueError(f"by must be one of {', '.join(get_args(Means))}, not {by!r}")
    limit = whole_number("limit", limit, at_least=1)
    made = curvature_of(fit, using)
    if top is not None:
        if first is not None or second is not None:
            raise ValueError("choose two items or top, not both")
        _check_connected(made, np.arange(fit.scores.size))
        return _change_of_top(fit, made, _checked_top(fit, top), by, limit)
    pair = as_indices("first and second", _item_pair(first, second), fit.comparisons.num_items)
    if pair[0] == pair[1]:
        raise ValueError(f"item {pair[0]} cannot change places with itself")
    _check_connected(made, pair)
    scores = np.asarray(fit.scores)
    above, below = sorted((int(item) for item in pair), key=lambda item: -scores[item])

    def is_changed(scores: np.ndarray) -> bool:
        return bool(scores[below] > scores[above])

    aim = f"item {below} above item {above}"
    return _Search(fit, made, by, limit, aim).run(above, below, is_changed)


def _check_connected(made: AbstractCurvature, items: np.ndarray) -> None:
    component, is_free = (
        np.asarray(x)[items] for x in (made.null_space.component, made.null_space.is_free)
    )
    if is_free.any() and np.unique(component).size > 1:
        raise ValueError(
            "without a prior, items that no chain of comparisons connects have no common scale: "
            "they cannot change places"
        )


def _item_pair(first: Integer | None, second: Integer | None) -> np.ndarray:
    if first is None or second is None:
        raise ValueError("flip_set takes two items, first and second, or top")
    return np.array([first, second])


def _checked_top(fit: Fit, top: Integer) -> int:
    size = whole_number("top", top, at_least=1)
    if size >= fit.comparisons.num_items:
        raise ValueError(f"top is {top}, and there are {fit.comparisons.num_items} items")
    return size


def _change_of_top(fit: Fit, made: AbstractCurvature, top: int, by: Means, limit: int) -> FlipSet:
    """The smallest flip set of the pairs across the edge of the top."""
    order = np.argsort(-np.asarray(fit.scores), kind="stable")
    members = set(order[:top].tolist())

    def is_changed(scores: np.ndarray) -> bool:
        return set(np.argsort(-scores, kind="stable")[:top].tolist()) != members

    search = _Search(fit, made, by, limit, f"another set of the top {top}")
    pairs = [
        (int(above), int(below))
        for above in order[max(top - _CONTENDERS, 0) : top]
        for below in order[top : top + _CONTENDERS]
    ]
    # The pairs with the fewest predicted rows are searched.
    pairs.sort(key=lambda pair: search.predicted_size(*pair))
    found = [search.run(*pair, is_changed) for pair in pairs[:_CONTENDERS]]
    return min(found, key=lambda flips: (not flips.is_found, flips.rows.size))


class _Search(NamedTuple):
    """The search for flip sets of one fit."""

    fit: Fit
    made: AbstractCurvature
    by: Means
    limit: int
    aim: str

    def run(self, above: int, below: int, is_changed) -> FlipSet:
        """Search for rows that put `below` above `above`, until `is_changed` holds for a refit."""
        now, rows = self.fit, np.zeros(0, int)
        while rows.size < self.limit and not is_changed(np.asarray(now.scores)):
            more = self._next_rows(now, rows, above, below)
            if not more.size:
                break
            tried = self._refit(now, np.append(rows, more))
            while tried is None and more.size > 1:  # without an optimum, try fewer rows at a time
                more = more[: more.size // 2]
                tried = self._refit(now, np.append(rows, more))
            if tried is None:
                break
            now, rows = tried, np.append(rows, more)
        if not is_changed(np.asarray(now.scores)):
            return self._flip_set(np.zeros(0, int), False, self.fit)
        return self._flip_set(*self._prune(now, rows, is_changed))

    def predicted_size(self, above: int, below: int) -> int:
        """The number of rows that close the gap, to first order."""
        gap = float(self.fit.scores[above] - self.fit.scores[below])
        effects = np.sort(_effects(self.fit, self.made, self.by, above, below))
        falls = np.cumsum(np.maximum(-effects[effects < 0], 0))
        return int(np.searchsorted(falls, gap)) + 1

    def _next_rows(self, now: Fit, taken: np.ndarray, above: int, below: int) -> np.ndarray:
        """The fewest further rows that are predicted to close the remaining gap."""
        gap = float(now.scores[above] - now.scores[below])
        effects = _effects(now, self.made, self.by, above, below)
        effects[taken] = 0
        order = np.argsort(effects)
        order = order[effects[order] < 0][: self.limit - taken.size]
        enough = int(np.searchsorted(np.cumsum(-effects[order]), gap)) + 1
        return order[:enough]

    def _refit(self, now: Fit, rows: np.ndarray) -> Fit | None:
        """Refit without the rows, or with them reversed; None if no common scale remains."""
        old = self.fit.comparisons
        # On the host: JAX would recompile for every number of rows.
        weight, value = np.array(old.weight), np.array(old.value)
        if self.by == "removal":
            weight[rows] = 0
            changed = old.with_weights(weight)
        else:
            value[rows] *= -1
            changed = old.with_values(value)
        if disconnects(self.fit, changed):
            return None
        found = find(self.fit.model, changed, initial=now.scores, throw=False)
        return found if found.result == RESULTS.successful else None

    def _prune(self, now: Fit, rows: np.ndarray, is_changed) -> tuple[np.ndarray, bool, Fit]:
        """Drop rows that are not needed, the least important first."""
        for row in rows[::-1].copy():
            fewer = rows[rows != row]
            tried = self._refit(now, fewer) if fewer.size else None
            if tried is not None and is_changed(np.asarray(tried.scores)):
                now, rows = tried, fewer
        return rows, True, now

    def _flip_set(self, rows: np.ndarray, is_found: bool, found: Fit) -> FlipSet:
        total = int(np.count_nonzero(np.asarray(self.fit.comparisons.weight)))
        return FlipSet(np.sort(rows), is_found, self.by, self.aim, total, self.limit, found)


def _effects(now: Fit, made: AbstractCurvature, by: Means, above: int, below: int) -> np.ndarray:
    """The first-order change of θ_above − θ_below if each row is removed or reversed."""
    rows = now.comparisons
    ends = np.zeros(now.scores.size, now.scores.dtype)
    ends[above], ends[below] = 1, -1
    response = made.reduced_solve(ends[:, None])[:, 0]  # levels of components cancel within rows
    along = response[np.asarray(rows.a)] - response[np.asarray(rows.b)]
    if by == "reversal":
        return -2 * np.asarray(rows.weight) * np.asarray(rows.value) * along
    return _removal_factors(now, made) * along


def _removal_factors(now: Fit, made: AbstractCurvature) -> np.ndarray:
    """ρ/(1 − c xᵀN x) of each row."""
    rows = now.comparisons
    residual, row_curvature = row_derivatives(now.model, rows, now.scores)
    remainder = 1 - row_curvature * np.asarray(made.difference_variance(rows.a, rows.b))
    # The remainder is 0 up to rounding for rows that alone connect their items: they are kept.
    is_removable = remainder > float(np.finfo(remainder.dtype).eps) ** 0.5
    return np.where(is_removable, residual / np.where(is_removable, remainder, 1), 0)
