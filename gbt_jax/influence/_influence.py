"""What scores would be with other comparisons: predicted from the curvature, and refitted.

Leaving rows S out of the sum changes the gradient at θ* by −X ρ and the Hessian by −X C Xᵀ, where
X has the columns e_a − e_b, ρ = w (Φ'(t) − r) and C = diag(w Φ''(t)). One Newton step from θ* is

    Δθ = (M − X C Xᵀ)⁻¹ X ρ = N X (I − C Xᵀ N X)⁻¹ ρ,

with nothing to factorise but a matrix of the size of S; for one row, ρ N x / (1 − c xᵀ N x). Where
that moves scores far, `_leave_out` goes on from there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._curvature import AbstractCurvature, DenseCurvature, curvature_of
from .._data._comparisons import Comparisons
from .._data._graph import bridges, component_labels
from .._inference._existence import may_be_unbounded, unbounded_items
from .._inference._fit import Fit, check_fit, refuse_groups
from .._inference._gauge import is_regularised
from .._inference._maximise import fit as find
from .._inference._objective import row_derivatives
from .._model import Model
from .._util._arrays import ArrayLike, as_indices, group_numbers, whole_number
from .._util._limits import LEAVE_OUT_ROWS
from ..laws import AbstractRootLaw
from ..laws._rows import concatenate_laws
from ._leave_out import refined_changes
from ._sensitivity import solve_differences


class WhatIf(NamedTuple):
    """Scores with other comparisons: the refit, and what the old curvature predicted."""

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
    """Refit with other comparisons, from the scores as they are.

    **Arguments:**

    - `added`: comparisons of the same items.
    - `removed`: the numbers of rows to leave out.
    - `changed`: (numbers of rows, their new values).
    - `added_law`: the law of the added comparisons, by default that of the fit. It is of the same
      kind and may have other parameters, one number or one per added comparison. It must be given
      where the fit's law has parameters per comparison.
    - `using`: the fit's `curvature`, if it has been made already.

    A group whose fit failed has NaN in `change` and `predicted`, and scores in `fit` if the changes
    mend it.
    """
    check_fit(fit)
    if added is not None:
        refuse_groups(fit, "what_if", "comparisons are added to one group at a time")
    made = curvature_of(fit, using)
    rows = _with_changes(fit.comparisons, added, removed, changed)
    model = _with_added_law(fit, added, added_law)
    has_scores = jnp.isfinite(fit.scores)
    refitted = find(model, rows, initial=jnp.where(has_scores, fit.scores, 0))
    # The gradient at the old optimum, from the rows that are not what they were.
    old, size = fit.comparisons, len(fit.comparisons)
    pull = row_derivatives(model, rows, fit.scores)[0]
    pull = pull.at[:size].add(-row_derivatives(fit.model, old, fit.scores)[0])
    new = np.flatnonzero(jnp.where(has_scores[rows.a], pull, 0))
    predicted = solve_differences(made, rows.a[new], rows.b[new], -pull[new]).sum(axis=1)
    return WhatIf(refitted, refitted.scores - fit.scores, predicted)


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

    By one Newton step with the Hessian that is left, and for the comparisons that move the scores
    most by the law itself on the rows around them. `exact=True` refits instead. Without a prior,
    NaN where comparisons are left out that alone connect two parts, and where a refit finds no
    optimum.

    **Arguments:**

    - `comparisons`: only these rows, one column each.
    - `groups`: one label per comparison; all comparisons of a label are left out together, one
      column per label in ascending order.
    - `refined`: how many columns, those of the largest changes in l2, are more than one Newton
      step; None is all of them. Every group is refined. This takes a dense `curvature`, as fits
      of up to 4,096 items have it.
    - `using`: the fit's `curvature`, if it has been made already.
    """
    refuse_groups(fit, "influence.leave_out", "comparisons are left out of one group at a time")
    size = len(fit.comparisons)
    if refined is not None:
        refined = whole_number("refined", refined, at_least=0)
    if groups is not None:
        if comparisons is not None:
            raise ValueError("choose comparisons or groups, not both")
        return _of_sets(fit, _members(groups, size), exact, using)
    chosen = as_indices("comparisons", comparisons, size)
    if exact:
        return _of_sets(fit, [np.array([row]) for row in chosen], exact, using)
    made = curvature_of(fit, using)
    changes, is_lost = _of_rows(fit, made, chosen), _lost_steps(fit, made, chosen)
    for column in np.flatnonzero(is_lost):
        changes = changes.at[:, column].set(_refitted_change(fit, chosen[[column]]))
    if not isinstance(made, DenseCurvature):
        return changes
    most = chosen.size if refined is None else min(refined, chosen.size)
    lengths = np.linalg.norm(np.asarray(changes), axis=0)
    lengths = np.where(np.isfinite(lengths) & ~is_lost, lengths, 0)
    largest = np.argsort(-lengths)[:most]
    largest = largest[lengths[largest] > 0]
    if not largest.size:
        return changes
    better = _refine_changes(fit, made, chosen[largest][:, None], changes[:, largest])
    return changes.at[:, largest].set(better)


def _lost_steps(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> np.ndarray:
    """Rows whose Newton step is lost in rounding: without them only a weak prior holds a part."""
    if is_regularised(old.model, old.comparisons):
        return np.zeros(rows.size, bool)
    precision = np.asarray(made.levels.precision)
    is_known = (precision[np.asarray(x)[rows]] > 0 for x in (old.comparisons.a, old.comparisons.b))
    return bridges(old.comparisons)[rows] & np.logical_and(*is_known)


def _members(groups: Sequence | np.ndarray, size: int) -> list[np.ndarray]:
    """The rows of each label, labels ascending."""
    member, count = group_numbers(groups, size)
    ends = np.cumsum(np.bincount(member))[:-1]
    return np.split(np.argsort(member, kind="stable"), ends)[:count]


def _of_sets(
    old: Fit, sets: list[np.ndarray], exact: bool, using: AbstractCurvature | None
) -> Array:
    """Sets of rows left out, one column each."""
    made = None if exact else curvature_of(old, using)
    is_weak = not is_regularised(old.model, old.comparisons)
    columns = [jnp.zeros((old.scores.size, 0), old.scores.dtype)]
    for rows in sets:
        if falls_apart(old, _with_changes(old.comparisons, None, rows, None)):
            change = jnp.full_like(old.scores, jnp.nan)
        elif made is None or rows.size > LEAVE_OUT_ROWS or is_weak:
            change = _refitted_change(old, rows)
        else:
            change = _group_change(old, made, rows)
            if isinstance(made, DenseCurvature):
                change = _refine_changes(old, made, rows[None, :], change[:, None])[:, 0]
        columns.append(jnp.asarray(change)[:, None])
    return jnp.concatenate(columns, axis=1)


def _refine_changes(
    old: Fit, made: DenseCurvature, sets: np.ndarray, predicted: Array
) -> np.ndarray:
    """Changes without sets of rows, from what one Newton step says of them."""
    changes, is_found = refined_changes(old, made, sets, np.asarray(predicted))
    if may_be_unbounded(old.model):
        left = (_with_changes(old.comparisons, None, rows, None) for rows in sets)
        is_found &= [not unbounded_items(old.model, rows).items.size for rows in left]
    for column in np.flatnonzero(~is_found):
        changes[:, column] = _refitted_change(old, sets[column])
    return changes


def _with_changes(
    rows: Comparisons,
    added: Comparisons | None,
    removed: ArrayLike | None,
    changed: tuple[ArrayLike, ArrayLike] | None,
) -> Comparisons:
    size = len(rows)
    if changed is not None:
        which, values = as_indices("changed", changed[0], size), np.atleast_1d(changed[1])
        if values.shape != which.shape:
            raise ValueError(f"changed has {which.size} rows and values of shape {values.shape}")
        rows = rows.with_values(rows.value.at[which].set(values.astype(rows.value.dtype)))
    if removed is not None:
        rows = rows.with_weights(rows.weight.at[as_indices("removed", removed, size)].set(0))
    if added is None:
        return rows
    if not isinstance(added, Comparisons) or added.num_items != rows.num_items:
        raise ValueError(f"added must be Comparisons of the same {rows.num_items} items")
    dtype = rows.value.dtype
    columns = (
        np.concatenate([np.asarray(getattr(part, name)) for part in (rows, added)])
        for name in ("a", "b", "value", "weight")
    )
    a, b, value, weight = columns
    columns = value.astype(dtype), weight.astype(dtype)
    return rows._with_rows(a, b, *columns, is_merged=rows.is_merged or added.is_merged)


def _with_added_law(
    fit: Fit, added: Comparisons | None, added_law: AbstractRootLaw | None
) -> Model:
    """The model of the fit's comparisons followed by the added ones."""
    if added is None:
        if added_law is not None:
            raise ValueError("added_law is the law of added comparisons, and none are added")
        return fit.model
    law = fit.model.law_for_new_rows(added_law, (len(added),), "added_law")
    if law is fit.model.law:
        return fit.model
    joined = concatenate_laws(fit.model.law, law, (len(fit.comparisons), len(added)))
    return Model(joined, fit.model.prior_std, fit.model.prior_mean)


def _refitted_change(old: Fit, rows: np.ndarray) -> Array:
    left = _with_changes(old.comparisons, None, rows, None)
    return find(old.model, left, initial=old.scores, throw=False).scores - old.scores


def _of_rows(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> Array:
    """Each row alone."""
    a, b = old.comparisons.a[rows], old.comparisons.b[rows]
    residual, row_curvature = row_derivatives(old.model, old.comparisons, old.scores)
    held = 1 - row_curvature[rows] * made.difference_variance(a, b)
    # Rows of weight 0 change nothing, even where nothing else relates their items.
    counts = np.asarray(old.comparisons.weight)[rows] > 0
    is_bridge = np.zeros(rows.size, bool)
    if np.any(np.asarray(made.levels.precision) == 0):
        is_bridge = bridges(old.comparisons)[rows] & counts
    is_known = jnp.asarray(counts & ~is_bridge)
    factor = jnp.where(is_known, residual[rows] / jnp.where(is_known, held, 1), jnp.nan)
    changes = solve_differences(made, a, b, jnp.where(jnp.asarray(counts), factor, 0))
    return changes if counts.all() else changes.at[:, np.flatnonzero(~counts)].set(0)


def _group_change(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> Array:
    """Several rows together."""
    counted = rows[np.asarray(old.comparisons.weight)[rows] > 0]
    a, b = old.comparisons.a[counted], old.comparisons.b[counted]
    residual, row_curvature = row_derivatives(old.model, old.comparisons, old.scores)
    solved = solve_differences(made, a, b, jnp.ones(counted.size, old.scores.dtype))
    inner = solved[a] - solved[b]
    left = jnp.eye(counted.size, dtype=inner.dtype) - row_curvature[counted][:, None] * inner
    return solved @ jnp.linalg.solve(left, residual[counted])


def falls_apart(old: Fit, left: Comparisons) -> bool:
    """Whether without a prior there are more components in what is left than before."""
    if not np.any(np.isinf(np.asarray(old.model.prior_std))):
        return False
    before, after = (np.unique(component_labels(x)).size for x in (old.comparisons, left))
    return after > before
