"""What scores would be with other comparisons: predicted from the curvature, and refitted.

Leaving rows S out of the sum changes the gradient at θ* by −X ρ and the Hessian by −X C Xᵀ, where
X has the columns e_a − e_b, ρ = w (Φ'(t) − r) and C = diag(w Φ''(t)). One Newton step from θ* is

    Δθ = (M − X C Xᵀ)⁻¹ X ρ = N X (I − C Xᵀ N X)⁻¹ ρ,

with nothing to factorise but a matrix of the size of S; for one row, ρ N x / (1 − c xᵀ N x).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float

from ._comparisons import Comparisons
from ._curvature import AbstractCurvature, curvature
from ._fit import Fit, fit
from ._objective import evaluate, gradient
from ._sensitivity import as_indices, solved_differences


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
    using: AbstractCurvature | None = None,
) -> WhatIf:
    """Refit with other comparisons, from the scores as they are.

    **Arguments:**

    - `added`: comparisons of the same items.
    - `removed`: the numbers of rows to leave out.
    - `changed`: (numbers of rows, their new values).
    - `using`: the fit's `curvature`, if it has been made already.
    """
    made = curvature(fit) if using is None else using
    rows = _with_changes(fit.comparisons, added, removed, changed)
    refitted = _refit(fit, rows)
    predicted = -made.solve(gradient(fit.model, rows, fit.scores))
    return WhatIf(refitted, refitted.scores - fit.scores, predicted)


def influence(
    fit: Fit,
    *,
    comparisons: ArrayLike | None = None,
    groups: Sequence | np.ndarray | None = None,
    exact: bool = False,
    using: AbstractCurvature | None = None,
) -> Float[Array, "items left_out"]:
    """The change of every score when each comparison is left out.

    By one Newton step with the Hessian that is left (`exact=True` refits instead). Without a prior,
    NaN for a comparison that alone connects two parts.

    **Arguments:**

    - `comparisons`: only these rows, one column each.
    - `groups`: one label per comparison; all comparisons of a label are left out together, one
      column per label in ascending order.
    - `using`: the fit's `curvature`, if it has been made already.
    """
    made = curvature(fit) if using is None else using
    size = len(fit.comparisons)
    if groups is None:
        chosen = as_indices("comparisons", comparisons, size)
        if not exact:
            return _of_rows(fit, made, chosen)
        sets = [np.array([row]) for row in chosen]
    else:
        if comparisons is not None:
            raise ValueError("choose comparisons or groups, not both")
        labels, member = np.unique(np.asarray(groups), return_inverse=True)
        if member.shape != (size,):
            raise ValueError(f"groups must have one label per comparison ({size})")
        sets = [np.flatnonzero(member == number) for number in range(labels.size)]
    change = _refitted_change if exact else _group_change
    columns = [change(fit, made, rows) for rows in sets]
    return jnp.stack(columns, axis=1) if columns else jnp.zeros((fit.scores.size, 0))


def _with_changes(
    rows: Comparisons,
    added: Comparisons | None,
    removed: ArrayLike | None,
    changed: tuple[ArrayLike, ArrayLike] | None,
) -> Comparisons:
    size = len(rows)
    if changed is not None:
        which = as_indices("changed", changed[0], size)
        rows = rows.with_values(rows.value.at[which].set(jnp.asarray(changed[1])))
    if removed is not None:
        rows = rows.with_weights(rows.weight.at[as_indices("removed", removed, size)].set(0))
    if added is None:
        return rows
    if not isinstance(added, Comparisons) or added.num_items != rows.num_items:
        raise ValueError(f"added must be Comparisons of the same {rows.num_items} items")
    columns = (
        np.concatenate([getattr(part, name) for part in (rows, added)])
        for name in ("a", "b", "value", "weight")
    )
    return Comparisons(*columns, num_items=rows.num_items)


def _refit(old: Fit, rows: Comparisons) -> Fit:
    return fit(old.model, rows, initial=old.scores)


def _refitted_change(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> Array:
    del made
    return _refit(old, _with_changes(old.comparisons, None, rows, None)).scores - old.scores


def _of_rows(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> Array:
    """Each row alone."""
    a, b = old.comparisons.a[rows], old.comparisons.b[rows]
    residual, row_curvature = _residuals(old)
    held = 1 - row_curvature[rows] * made.difference_variance(a, b)
    # What rounding leaves of nothing is nothing: the row alone holds two parts together.
    is_bridge = held <= 64 * jnp.finfo(held.dtype).eps
    factor = jnp.where(is_bridge, jnp.nan, residual[rows] / jnp.where(is_bridge, 1, held))
    return solved_differences(made, a, b, factor)


def _group_change(old: Fit, made: AbstractCurvature, rows: np.ndarray) -> Array:
    """Several rows together."""
    a, b = old.comparisons.a[rows], old.comparisons.b[rows]
    residual, row_curvature = _residuals(old)
    solved = solved_differences(made, a, b, jnp.ones(rows.size, old.scores.dtype))
    inner = solved[a] - solved[b]
    left = jnp.eye(rows.size, dtype=inner.dtype) - row_curvature[rows][:, None] * inner
    return solved @ jnp.linalg.solve(left, residual[rows])


@jax.jit
def _residuals(old: Fit) -> tuple[Array, Array]:
    """(ρ, c) of every row."""
    rows = old.comparisons
    point = evaluate(old.model, rows, old.scores)
    expected = old.model.law.mean(old.scores[rows.a] - old.scores[rows.b])
    return rows.weight * (expected - rows.value), point.curvature
