"""`curvature`: the factorised Hessian of a fit, dense or iterative by size."""

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
    """The factorised Hessian of a fit, to construct once and reuse.

    **Arguments:**

    - `fit`: the fit.
    - `dense`: whether to form a matrix of items × items; by default up to 4,096 items.

    **Returns:** a `DenseCurvature`, or an `IterativeCurvature`, which iterates for every solve. For
    a fit with groups it is a `BlockCurvature`, with a matrix for each group and NaN for groups
    whose fit failed.
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
            "connected items have different priors, all of them so weak that rounding hides their "
            "common level: give these items one prior_std"
        )
    return made


def variances(fit: Fit, using: AbstractCurvature | None = None) -> Float[Array, " items"]:
    """`AbstractCurvature.diagonal`, computed without the rest of N."""
    if using is not None or fit.comparisons.num_groups is not None:
        return curvature_of(fit, using).diagonal()
    elimination = _elimination(fit)
    if elimination is None:
        return curvature(fit).diagonal()
    return as_array(inverse_diagonal(elimination), fit.scores.dtype)


def regularised_draws(fit: Fit, num: int, key: PRNGKeyArray) -> np.ndarray | None:
    """`AbstractCurvature.draws` by elimination, or None where elimination is not faster."""
    elimination = _elimination(fit)
    if elimination is None:
        return None
    return normal_draws(elimination, num, generator_of(key)).astype(fit.scores.dtype)


def _elimination(fit: Fit) -> Elimination | None:
    """The elimination of M, if the prior regularises all items and their number suits."""
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
    """Raise unless the argument is a fit that found the optimum; groups are not checked."""
    check_fit(fit)
    if fit.comparisons.num_groups is None and fit.result != RESULTS.successful:
        raise ValueError(
            f"the fit did not find the optimum ({fit.result.name}), so its curvature is undefined"
        )


def curvature_of(fit: Fit, using: AbstractCurvature | None) -> AbstractCurvature:
    """The given curvature, checked against the size of the fit, or a new one."""
    if using is None:
        return curvature(fit)
    if using.num_items != fit.scores.size:
        raise ValueError(
            f"the curvature is one of {using.num_items} items, and the fit has {fit.scores.size}"
        )
    return using
