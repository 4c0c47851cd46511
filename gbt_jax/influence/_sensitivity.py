"""How scores respond to what they were computed from: the columns of −N ∂_p∇L.

At the optimum ∇L(θ*, p) = 0 for every parameter p, so dθ* = −N ∂_p∇L dp (`_implicit`). Here these
derivatives are laid out as matrices, for all or some items and comparisons, from one factorised
Hessian.
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
from .._inference._objective import gradient
from .._model import Model
from .._util._arrays import ArrayLike, as_indices
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
    - `wrt="weight"`: per unit of weight, so the first-order effect of repeating a comparison.
    - `wrt="prior_mean"`, `wrt="prior_std"`: items × the parameter's own shape: a vector where one
      number is shared by all items.
    - `wrt="law"`: the law with each parameter replaced by items × its own shape: a vector where
      one number is shared by all comparisons, items × comparisons where each has its own.

    **Arguments:**

    - `comparisons`: only these rows of the comparisons, for values, weights and parameters of the
      law that are given per comparison.
    - `items`: only the scores of these items.
    - `using`: the fit's `curvature`, if it has been made already.
    """
    check_fit(fit)
    if wrt not in get_args(Parameter):
        raise ValueError(f"wrt must be one of {', '.join(get_args(Parameter))}, not {wrt!r}")
    made = curvature_of(fit, using)
    chosen = None if items is None else as_indices("items", items, fit.comparisons.num_items)
    if wrt in ("value", "weight"):
        rows = as_indices("comparisons", comparisons, len(fit.comparisons))
        a, b = fit.comparisons.a[rows], fit.comparisons.b[rows]
        if wrt == "value":
            factor = fit.comparisons.weight[rows]
        else:
            expected = fit.model.law.at_rows(rows).mean(fit.scores[a] - fit.scores[b])
            factor = fit.comparisons.value[rows] - expected
        return solve_differences(made, a, b, factor, chosen)
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
    # A law says nothing of the levels of components: what rounding says of them is left out.
    solve = made.reduced_solve if wrt == "law" else made.solve

    def solve_columns(columns: Array) -> Array:
        moved = -solve(columns.reshape(columns.shape[0], -1)).reshape(columns.shape)
        return moved if chosen is None else moved[chosen]

    cross = _cross_derivatives(shared, fit.model, fit.comparisons, fit.scores, wrt=wrt)
    found = jax.tree.map(solve_columns, cross)
    if own is None:
        return found
    rows = as_indices("comparisons", comparisons, len(fit.comparisons))
    return eqx.combine(found, _of_rows(fit, made, own, rows, chosen))


def _of_rows(
    fit: Fit, made: AbstractCurvature, own: Any, rows: np.ndarray, items: np.ndarray | None
) -> Any:
    """−N (e_a − e_b) w ∂_pΦ'(t) of law parameters per comparison, one column each."""
    a, b = fit.comparisons.a[rows], fit.comparisons.b[rows]
    slopes = _mean_slopes(own, fit.model, fit.comparisons, fit.scores)
    return jax.tree.map(lambda slope: solve_differences(made, a, b, -slope[rows], items), slopes)


@jax.jit
def _mean_slopes(own: Any, model: Model, comparisons: Comparisons, scores: Array) -> Any:
    """w ∂_pΦ'(t) of every row, for each parameter: a row depends on its own number alone."""
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
    """The other direction: derivatives of each comparison's expected value in the scores.

    E[r_ab] = Φ'(θ_a − θ_b), so the row of a comparison of a with b is Φ''(θ_ab) (e_a − e_b).
    """
    check_fit(fit)
    rows = fit.comparisons
    variance = fit.model.law.variance(fit.scores[rows.a] - fit.scores[rows.b])
    zero = jnp.zeros((len(rows), rows.num_items), variance.dtype)
    number = jnp.arange(len(rows))
    return zero.at[number, rows.a].add(variance).at[number, rows.b].add(-variance)


def solve_differences(
    made: AbstractCurvature, a: Array, b: Array, factor: Array, items: np.ndarray | None = None
) -> Array:
    """N (e_a − e_b) times a factor for pairs of items, one column each."""
    wanted = np.arange(made.num_items) if items is None else items
    if isinstance(made, DenseCurvature):
        moved = _column_differences(made.reduced[wanted], a, b, factor)
    elif wanted.size <= a.size:
        ends = jnp.zeros((made.num_items, wanted.size), factor.dtype)
        ends = ends.at[wanted, np.arange(wanted.size)].set(1)
        moved = _column_differences(made.reduced_solve(ends).T, a, b, factor)
    else:
        number = jnp.arange(a.size)
        ends = jnp.zeros((made.num_items, a.size), factor.dtype)
        ends = ends.at[a, number].add(1).at[b, number].add(-1)
        moved = made.reduced_solve(ends)[wanted] * factor
    # Within a component e_a − e_b has no part along its level; between two it has.
    apart = np.flatnonzero(made.levels.component[a] != made.levels.component[b])
    if apart.size:
        levels = made.levels.differences(wanted, a[apart], b[apart])
        moved = moved.at[:, apart].add(levels * factor[apart])
    return moved


@jax.jit
def _column_differences(matrix: Array, a: Array, b: Array, factor: Array) -> Array:
    return (matrix[:, a] - matrix[:, b]) * factor


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
