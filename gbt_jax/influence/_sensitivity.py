"""Sensitivities of scores to data and parameters: the columns of −N ∂_p∇L.

At the optimum ∇L(θ*, p) = 0 for every parameter p, so dθ* = −N ∂_p∇L dp (`_implicit`). The
derivatives are matrices here, for all or some items and comparisons, from one factorised Hessian.
"""

import functools
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .._curvature import AbstractCurvature, DenseCurvature, curvature_of
from .._data._comparisons import Comparisons
from .._inference._fit import Fit, check_fit
from .._inference._ladder import row_derivatives
from .._inference._objective import gradient
from .._model import Model
from .._util._arrays import ArrayLike, as_array, as_indices
from ..laws._rows import partition_rows

Parameter = Literal["value", "weight", "prior_mean", "prior_std", "law"]


def sensitivity(
    fit: Fit,
    *,
    wrt: Parameter = "value",
    comparisons: ArrayLike | None = None,
    items: ArrayLike | None = None,
    using: AbstractCurvature | None = None,
) -> Any:
    """Derivatives of the scores, items along the first axis.

    - `wrt="value"`: ∂θ*_i/∂r of every comparison, items × comparisons, in score units per unit of
      value. Raising a value raises a's score and lowers b's: in the column of a comparison of a
      with b the entry of a is positive, that of b negative.
    - `wrt="weight"`: per unit of weight, the first-order effect of repeating a comparison.
    - `wrt="prior_mean"`, `wrt="prior_std"`: items × the parameter's shape: a vector if all items
      share one number.
    - `wrt="law"`: the law with each parameter replaced by items × its shape: a vector if all
      comparisons share one number, items × comparisons for parameters per comparison.

    **Arguments:**

    - `fit`: the fit, with or without groups.
    - `wrt`: the parameter, as above.

    - `comparisons`: only these rows of the comparisons, for values, weights and parameters of the
      law that are given per comparison.
    - `items`: only the scores of these items.
    - `using`: the fit's `curvature`, if available.

    **Returns:** the derivatives as listed.
    """
    check_fit(fit)
    if wrt not in get_args(Parameter):
        raise ValueError(f"wrt must be one of {', '.join(get_args(Parameter))}, not {wrt!r}")
    made = curvature_of(fit, using)
    chosen = None if items is None else as_indices("items", items, fit.comparisons.num_items)
    if wrt in ("value", "weight"):
        rows = as_indices("comparisons", comparisons, len(fit.comparisons))
        weight = np.asarray(fit.comparisons.weight)
        if wrt == "value":
            factor = weight
        else:
            alone = fit.comparisons._replace(weight=np.ones_like(weight))
            factor = -row_derivatives(fit.model, alone, fit.scores)[0]
        return _scaled_differences(fit, made, factor, rows, chosen)
    is_per_row = wrt == "law" and fit.model.law.num_rows is not None
    if comparisons is not None and not is_per_row:
        raise ValueError(
            "comparisons can be chosen for values, weights and law parameters per comparison, not "
            f"with wrt={wrt!r}"
        )
    part = _parameter(fit.model, wrt)
    if not jax.tree.leaves(part):
        raise ValueError(f"{type(fit.model.law).__name__} has no parameters to be sensitive to")
    own, shared = partition_rows(part) if is_per_row else (None, part)
    # A law does not affect the levels of components: project their rounding errors out.
    solve = made.reduced_solve if wrt == "law" else made.solve

    def solve_columns(columns: Array) -> Array:
        moved = -solve(columns.reshape(columns.shape[0], -1)).reshape(columns.shape)
        return moved if chosen is None else moved[chosen]

    cross = _cross_derivatives(shared, fit.model, fit.comparisons, fit.scores, wrt=wrt)
    found = jax.tree.map(solve_columns, cross)
    if own is None:
        return found
    rows = as_indices("comparisons", comparisons, len(fit.comparisons))
    return eqx.combine(found, _law_derivatives(fit, made, own, rows, chosen))


def _law_derivatives(
    fit: Fit, made: AbstractCurvature, own: Any, rows: np.ndarray, items: np.ndarray | None
) -> Any:
    """−N (e_a − e_b) w ∂_pΦ'(t) of law parameters per comparison, one column each."""
    slopes = _mean_slopes(own, fit.model, fit.comparisons, fit.scores)
    return jax.tree.map(
        lambda slope: _scaled_differences(fit, made, -np.asarray(slope), rows, items), slopes
    )


def _scaled_differences(
    fit: Fit,
    made: AbstractCurvature,
    factor: np.ndarray,
    rows: np.ndarray,
    items: np.ndarray | None,
) -> Array:
    """N (e_a − e_b) of some comparisons, times their factors."""
    a, b = (np.asarray(x)[rows] for x in (fit.comparisons.a, fit.comparisons.b))
    return as_array(solve_differences(made, a, b, factor[rows], items))


@jax.jit
def _mean_slopes(own: Any, model: Model, comparisons: Comparisons, scores: Array) -> Any:
    """w ∂_pΦ'(t) of every row, for each parameter: a row depends on its own entry only."""
    t = scores[comparisons.a] - scores[comparisons.b]
    leaves, structure = jax.tree.flatten(own)

    def slope(number: int) -> Array:
        def mean(parameter: Array) -> Array:
            changed = [*leaves[:number], parameter, *leaves[number + 1 :]]
            law = eqx.combine(jax.tree.unflatten(structure, changed), model.law)
            return law.mean(t)

        parameter = leaves[number]
        return comparisons.weight * jax.jvp(mean, (parameter,), (jnp.ones_like(parameter),))[1]

    return jax.tree.unflatten(structure, [slope(number) for number in range(len(leaves))])


def response_sensitivity(fit: Fit) -> Float[Array, "comparisons items"]:
    """Derivatives of each comparison's expected value with respect to the scores.

    E[r_ab] = Φ'(θ_a − θ_b), so the row of a comparison of a with b is Φ''(θ_ab) (e_a − e_b).

    **Arguments:**

    - `fit`: the fit, with or without groups.

    **Returns:** a matrix of comparisons × items.
    """
    check_fit(fit)
    rows = fit.comparisons
    alone = rows._replace(weight=np.ones(len(rows)))
    _, variance = row_derivatives(fit.model, alone, fit.scores)
    found, number = np.zeros((len(rows), rows.num_items), variance.dtype), np.arange(len(rows))
    found[number, rows.a], found[number, rows.b] = variance, -variance
    return as_array(found)


def solve_differences(
    made: AbstractCurvature,
    a: np.ndarray,
    b: np.ndarray,
    factor: np.ndarray,
    items: np.ndarray | None = None,
) -> np.ndarray:
    """N (e_a − e_b) times a factor for pairs of items, one column each."""
    wanted = np.arange(made.num_items) if items is None else items
    if isinstance(made, DenseCurvature) or wanted.size <= a.size:
        if isinstance(made, DenseCurvature):
            matrix = made.reduced if items is None else made.reduced[wanted]
        else:
            ends = np.zeros((made.num_items, wanted.size), factor.dtype)
            ends[wanted, np.arange(wanted.size)] = 1
            matrix = made.reduced_solve(ends).T
        moved = matrix[:, a]
        moved -= matrix[:, b]
        moved *= factor
    else:
        number = np.arange(a.size)
        ends = np.zeros((made.num_items, a.size), factor.dtype)
        ends[a, number], ends[b, number] = 1, -1
        moved = made.reduced_solve(ends)[wanted] * factor
    # e_a − e_b has a part along the levels only if a and b are in different components.
    apart = np.flatnonzero(made.null_space.component[a] != made.null_space.component[b])
    if apart.size:
        levels = made.null_space.differences(wanted, a[apart], b[apart])
        moved[:, apart] += levels * factor[apart]
    return moved


@functools.partial(jax.jit, static_argnames=("wrt",))
def _cross_derivatives(
    part: Any, model: Model, comparisons: Comparisons, scores: Array, *, wrt: str
) -> Any:
    """∂_p∇L, items × the shape of each parameter."""
    if not jax.tree.leaves(part):
        return part
    return jax.jacfwd(lambda p: gradient(_with_parameter(model, wrt, p), comparisons, scores))(part)


def _parameter(model: Model, wrt: str) -> Any:
    return eqx.filter(getattr(model, wrt), eqx.is_inexact_array)


def _with_parameter(model: Model, wrt: str, part: Any) -> Model:
    whole = eqx.combine(part, getattr(model, wrt))
    return eqx.tree_at(lambda m: getattr(m, wrt), model, whole)
