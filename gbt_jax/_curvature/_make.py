"""`curvature`: the factorised Hessian of a fit or of many, dense or not by its size."""

import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._inference._fit import Fit, check_fit
from .._inference._gauge import is_regularised
from .._inference._ladder import row_derivatives
from .._inference._results import RESULTS
from .._model import precision_on_host
from .._util._arrays import as_array
from .._util._limits import (
    DENSE_CURVATURE_ITEMS,
    ELIMINATION_ITEMS,
    SMALL_CURVATURE_ITEMS,
)
from .._util._random import generator_of
from ._base import AbstractCurvature
from ._blocks import block_curvature
from ._dense import dense_curvature
from ._elimination import Elimination, eliminate, inverse_diagonal, normal_draws
from ._iterative import iterative_curvature


def curvature(fit: Fit, *, dense: bool | None = None) -> AbstractCurvature:
    """The factorised Hessian of a fit, to be made once and reused.

    Up to 4,096 items it is a `DenseCurvature` (a matrix of items × items, all entries at hand),
    beyond an `IterativeCurvature` (every solve is an iteration); `dense` chooses otherwise. Of a
    fit with groups it is a `BlockCurvature`, a matrix for each group; NaN for a group whose fit
    failed.
    """
    refuse_unfinished(fit)
    if fit.comparisons.num_groups is not None:
        return block_curvature(fit)
    is_dense = fit.comparisons.num_items <= DENSE_CURVATURE_ITEMS if dense is None else dense
    made = (
        dense_curvature(fit)
        if is_dense
        else iterative_curvature(fit.model, fit.comparisons, fit.scores)
    )
    if made.null_space.is_lost:
        raise ValueError(
            "items that are compared with each other have different priors, all of them so weak "
            "that rounding hides what they say of the common level: give these items one prior_std"
        )
    return made


def variances(fit: Fit, using: AbstractCurvature | None = None) -> Float[Array, " items"]:
    """n_aa for each item, as `AbstractCurvature.diagonal` has it, without the rest of N."""
    if using is not None or fit.comparisons.num_groups is not None:
        return curvature_of(fit, using).diagonal()
    elimination = _elimination(fit)
    if elimination is None:
        return curvature(fit).diagonal()
    return as_array(inverse_diagonal(elimination), fit.scores.dtype)


def regularised_draws(fit: Fit, num: int, key: PRNGKeyArray) -> np.ndarray | None:
    """Draws as `AbstractCurvature.draws` has them, where that is faster without N."""
    elimination = _elimination(fit)
    if elimination is None:
        return None
    return normal_draws(elimination, num, generator_of(key)).astype(fit.scores.dtype)


def _elimination(fit: Fit) -> Elimination | None:
    """M with items of few comparisons eliminated, if the prior holds all and there are many."""
    refuse_unfinished(fit)
    if fit.comparisons.num_groups is not None:
        return None
    rows, size = fit.comparisons, fit.comparisons.num_items
    is_known = is_regularised(fit.model, rows)
    if not (is_known and SMALL_CURVATURE_ITEMS < size <= ELIMINATION_ITEMS):
        return None
    _, row_curvature = row_derivatives(fit.model, rows, fit.scores)
    precision = precision_on_host(fit.model, rows, fit.scores.dtype)
    return eliminate(np.asarray(rows.a), np.asarray(rows.b), row_curvature, precision)


def refuse_unfinished(fit: Fit) -> None:
    """Raise for what is no fit, or one that did not find the optimum; groups fail one by one."""
    check_fit(fit)
    if fit.comparisons.num_groups is None and fit.result != RESULTS.successful:
        raise ValueError(
            f"the fit did not find the optimum ({fit.result.name}), so nothing can be said about "
            "how it responds"
        )


def curvature_of(fit: Fit, using: AbstractCurvature | None) -> AbstractCurvature:
    """The curvature that was made already, if it can be this fit's, or a new one."""
    if using is None:
        return curvature(fit)
    if using.num_items != fit.scores.size:
        raise ValueError(
            f"the curvature is one of {using.num_items} items, and the fit has {fit.scores.size}"
        )
    return using
