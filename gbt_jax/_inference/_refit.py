"""`refit`: fit changed comparisons, starting from the scores of a fit."""

import numpy as np

from .._data._comparisons import Comparisons
from .._model import Model
from .._util._arrays import ArrayLike, as_array, as_indices
from ..laws import AbstractRootLaw
from ..laws._rows import concatenate_laws
from ..solvers._solvers import AbstractSolver
from ._fit import Fit, check_fit, refuse_groups
from ._maximise import fit as find


def refit(
    fit: Fit,
    *,
    added: Comparisons | None = None,
    removed: ArrayLike | None = None,
    changed: tuple[ArrayLike, ArrayLike] | None = None,
    added_law: AbstractRootLaw | None = None,
    solver: AbstractSolver | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    throw: bool | None = None,
) -> Fit:
    """Fit with added, removed or changed comparisons, starting from the scores of `fit`.

    After the first refit, added rows replace padding, so that further refits compile nothing.

    **Arguments:**

    - `fit`: the fit.
    - `added`: comparisons of the same items.
    - `removed`: the indices of rows to remove. They get weight 0, so that the indices of other rows
      do not change.
    - `changed`: (indices of rows, their new values).
    - `added_law`: the law of the added comparisons, by default that of the fit. It is of the same
      kind and may have other parameters, one number or one per added comparison. It is required if
      the fit's law has parameters per comparison.
    - `solver`, `rtol`, `atol`, `throw`: as in `fit`. A refit to machine precision takes nearly as
      long as a fit; with `rtol=1e-6` it takes half as long.

    **Returns:** the new `Fit`, certified like any other. Items whose scores are NaN start at 0.
    """
    check_fit(fit)
    if added is not None:
        refuse_groups(fit, "refit", "comparisons are added to one group at a time")
    rows = with_changes(fit.comparisons, added, removed, changed)
    start = np.nan_to_num(np.asarray(fit.scores), nan=0.0)
    model = _with_added_law(fit, added, added_law)
    return find(model, rows, initial=start, solver=solver, rtol=rtol, atol=atol, throw=throw)


def with_changes(
    rows: Comparisons,
    added: Comparisons | None = None,
    removed: ArrayLike | None = None,
    changed: tuple[ArrayLike, ArrayLike] | None = None,
) -> Comparisons:
    """The comparisons with changed values, weight 0 for removed rows, and added rows."""
    size = len(rows)
    if changed is not None:
        which, values = as_indices("changed", changed[0], size), np.atleast_1d(changed[1])
        if values.shape != which.shape:
            raise ValueError(f"changed has {which.size} rows and values of shape {values.shape}")
        value = np.array(rows.value)
        value[which] = values
        rows = rows.with_values(value)
    if removed is not None:
        weight = np.array(rows.weight)
        weight[as_indices("removed", removed, size)] = 0
        rows = rows._replace(weight=as_array(weight))  # valid without a check
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
