"""Scores with other comparisons: predicted from the curvature, and refitted.

Leaving a row out of the sum changes the gradient at θ* by −x ρ and the Hessian by −c x xᵀ, where
x = e_a − e_b, ρ = w (Φ'(t) − r) and c = w Φ''(t). One Newton step from θ* is

    Δθ = (M − c x xᵀ)⁻¹ x ρ = ρ N x / (1 − c xᵀ N x).

`_leave_out` refines large changes from there. Sets of rows are left out by a refit from θ*, which
takes no longer than solving with a matrix of the size of the set.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from .._curvature import AbstractCurvature, DenseCurvature, curvature_of
from .._data._comparisons import Comparisons
from .._data._graph import bridges, components
from .._inference._existence import may_be_unbounded, unbounded_items
from .._inference._fit import Fit, check_fit, refuse_groups
from .._inference._gauge import is_regularised
from .._inference._ladder import row_derivatives
from .._inference._refit import refit, with_changes
from .._model import precision_on_host
from .._util._arrays import ArrayLike, as_array, as_indices, group_numbers, whole_number
from ..laws import AbstractRootLaw
from ._leave_out import refined_changes
from ._sensitivity import solve_differences


class WhatIf(NamedTuple):
    """Scores with other comparisons: the refit, and the prediction of the old curvature."""

    fit: Fit
    change: Array  # of each score, by the refit
    predicted: Array  # to first order in the change of the comparisons


def what_if(
    fit: Fit,
    *,
    added: Comparisons | None = None,
    removed: ArrayLike | None = None,
    changed: tuple[ArrayLike, ArrayLike] | None = None,
    added_law: AbstractRootLaw | None = None,
    using: AbstractCurvature | None = None,
) -> WhatIf:
    """Refit with other comparisons, starting from the scores of the fit.

    **Arguments:**

    - `fit`: the fit.
    - `added`, `removed`, `changed`, `added_law`: as in `refit`.
    - `using`: the fit's `curvature`, if available.

    **Returns:** a `WhatIf`. A group whose fit failed has NaN in `change` and `predicted`; its refit
    may succeed.
    """
    check_fit(fit)
    if added is not None:
        refuse_groups(fit, "what_if", "comparisons are added to one group at a time")
    made = curvature_of(fit, using)
    refitted = refit(fit, added=added, removed=removed, changed=changed, added_law=added_law)
    model, rows, has_scores = refitted.model, refitted.comparisons, np.isfinite(fit.scores)
    # The gradient at the old optimum, from the changed rows.
    old, size = fit.comparisons, len(fit.comparisons)
    pull, _ = row_derivatives(model, rows, fit.scores)
    pull[:size] -= row_derivatives(fit.model, old, fit.scores)[0]
    a, b = np.asarray(rows.a), np.asarray(rows.b)
    new = np.flatnonzero(np.where(has_scores[a], pull, 0))
    predicted = solve_differences(made, a[new], b[new], -pull[new]).sum(axis=1)
    change = np.asarray(refitted.scores) - np.asarray(fit.scores)
    return WhatIf(refitted, as_array(change), as_array(predicted))


def leave_out(
    fit: Fit,
    *,
    comparisons: ArrayLike | None = None,
    groups: Sequence | np.ndarray | None = None,
    exact: bool = False,
    refined: int | None = 500,
    using: AbstractCurvature | None = None,
) -> Float[Array, "items left_out"]:
    """The change of every score when each comparison is left out.

    Each change is one Newton step with the Hessian of the remaining rows. The largest changes are
    refined with the law itself on the rows that move most.

    **Arguments:**

    - `fit`: a fit without groups.
    - `comparisons`: only these rows, one column each.
    - `groups`: one label per comparison; all comparisons of a label are left out together, by a
      refit, with one column per label in ascending order.
    - `exact`: refit without each comparison instead.
    - `refined`: how many columns, those of the largest changes in l2, to refine beyond one Newton
      step; None for all. Without a dense `curvature` (the default up to 4,096 items) none are.
    - `using`: the fit's `curvature`, if available.

    **Returns:** the changes, one column per comparison or label. Without a prior, columns are NaN
    if their comparisons alone connect two parts, or if a refit finds no optimum.
    """
    refuse_groups(fit, "influence.leave_out", "comparisons are left out of one group at a time")
    size = len(fit.comparisons)
    if refined is not None:
        refined = whole_number("refined", refined, at_least=0)
    if groups is not None:
        if comparisons is not None:
            raise ValueError("choose comparisons or groups, not both")
        return _leave_out_sets(fit, _members(groups, size))
    chosen = as_indices("comparisons", comparisons, size)
    if exact:
        return _leave_out_sets(fit, [np.array([row]) for row in chosen])
    made = curvature_of(fit, using)
    changes, is_lost = _leave_out_rows(fit, made, chosen), _lost_steps(fit, made, chosen)
    for column in np.flatnonzero(is_lost):
        changes[:, column] = _refitted_change(fit, chosen[[column]])
    if not isinstance(made, DenseCurvature):
        return as_array(changes)
    most = chosen.size if refined is None else min(refined, chosen.size)
    lengths = np.linalg.norm(changes, axis=0)
    lengths = np.where(np.isfinite(lengths) & ~is_lost, lengths, 0)
    largest = np.argsort(-lengths)[:most]
    largest = largest[lengths[largest] > 0]
    if largest.size:
        sets = chosen[largest][:, None]
        changes[:, largest] = _refine_changes(fit, made, sets, changes[:, largest])
    return as_array(changes)


def _lost_steps(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> np.ndarray:
    """Rows whose Newton step is lost in rounding: without them only a weak prior fixes a part."""
    if is_regularised(old.model, old.comparisons):
        return np.zeros(rows.size, bool)
    precision = np.asarray(made.null_space.precision)
    is_known = (precision[np.asarray(x)[rows]] > 0 for x in (old.comparisons.a, old.comparisons.b))
    return bridges(old.comparisons)[rows] & np.logical_and(*is_known)


def _members(groups: Sequence | np.ndarray, size: int) -> list[np.ndarray]:
    """The rows of each label, labels ascending."""
    member, count = group_numbers(groups, size)
    ends = np.cumsum(np.bincount(member))[:-1]
    return np.split(np.argsort(member, kind="stable"), ends)[:count]


def _leave_out_sets(old: Fit, sets: list[np.ndarray]) -> Array:
    """Changes by refits without sets of rows, one column each."""
    changes = np.full((old.scores.size, len(sets)), np.nan, old.scores.dtype)
    for column, rows in enumerate(sets):
        if not disconnects(old, with_changes(old.comparisons, removed=rows)):
            changes[:, column] = _refitted_change(old, rows)
    return as_array(changes)


def _refine_changes(
    old: Fit, made: DenseCurvature, sets: np.ndarray, predicted: np.ndarray
) -> np.ndarray:
    """Refine the changes that one Newton step predicts for sets of rows left out."""
    changes, is_found = refined_changes(old, made, sets, predicted)
    if may_be_unbounded(old.model):
        left = (with_changes(old.comparisons, removed=rows) for rows in sets)
        is_found &= [not unbounded_items(old.model, rows).items.size for rows in left]
    for column in np.flatnonzero(~is_found):
        changes[:, column] = _refitted_change(old, sets[column])
    return changes


def _refitted_change(old: Fit, rows: np.ndarray) -> np.ndarray:
    refitted = refit(old, removed=rows, throw=False)
    return np.asarray(refitted.scores) - np.asarray(old.scores)


def _leave_out_rows(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> np.ndarray:
    """Changes by one Newton step without each row."""
    a, b = (np.asarray(x)[rows] for x in (old.comparisons.a, old.comparisons.b))
    residual, row_curvature = row_derivatives(old.model, old.comparisons, old.scores)
    remainder = 1 - row_curvature[rows] * np.asarray(made.difference_variance(a, b))
    # Rows of weight 0 change nothing, even if no other row connects their items.
    counts = np.asarray(old.comparisons.weight)[rows] > 0
    is_bridge = np.zeros(rows.size, bool)
    if np.any(np.asarray(made.null_space.precision) == 0):
        is_bridge = bridges(old.comparisons)[rows] & counts
    is_known = counts & ~is_bridge
    factor = np.where(is_known, residual[rows] / np.where(is_known, remainder, 1), np.nan)
    changes = solve_differences(made, a, b, np.where(counts, factor, 0))
    changes[:, ~counts] = 0
    return changes


def disconnects(old: Fit, left: Comparisons) -> bool:
    """Whether the remaining comparisons have more components without a prior than before."""
    if not np.any(np.isinf(np.asarray(old.model.prior_std))):
        return False
    precision = precision_on_host(old.model, old.comparisons, old.scores.dtype)

    def num_free(rows: Comparisons) -> int:
        return int(np.sum(np.bincount(components(rows), precision) == 0))

    return num_free(left) > num_free(old.comparisons)
