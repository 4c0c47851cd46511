"""The Hessian of a fit as a value: factorised once, then solves and entries of its inverse.

With M = ∇²L(θ*) = diag(1/σ²) + Bᵀ diag(w Φ''(t)) B and N = M⁻¹, everything that is said about how
scores respond, and how sure they are, is read off N.

Comparisons say nothing of the common level of a connected component, so along u_c, the constant
unit vector of component c, M has the prior's precision p_c alone (where the prior is the same over
the component, else c is not split off):

    M u_c = p_c u_c,    N = R + Σ_c u_c u_cᵀ/p_c,    R u_c = 0.

R is kept apart from the levels: a weak prior makes them huge, and differences of scores of one
component, which do not depend on them, would lose digits. Without a prior N stands for the
inverse on scores whose mean over each component is zero, R.
"""

import abc
import functools
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import ArrayLike, Float

from ._arrays import as_indices
from ._comparisons import Comparisons
from ._fit import RESULTS, Fit
from ._graph import component_labels
from ._model import Model
from ._newton import conjugate_gradients
from ._objective import dense_hessian, evaluate, hessian_product

_DENSE_ITEMS = 4096  # N takes 128 MB
_BLOCK = 64  # right-hand sides at a time, without a factorisation


class Levels(eqx.Module):
    """The directions u_c that are split off, and N along them."""

    component: Array  # of each item, the number of one of its items
    share: Array  # of each item, the square of its entry of u_c; 0 where nothing is split off
    variance: Array  # of each item, 1/p_c; 0 where nothing is split off or p_c is 0
    precision: Array  # of each item, p_c
    added: Array  # of each item, κ_c; 0 where nothing is split off
    is_loose: Array  # whether a level that is not split off is lost in rounding

    @property
    def is_free(self) -> Array:
        """Items whose component no prior holds."""
        return (self.share > 0) & (self.precision == 0)

    def removed(self, x: Array) -> Array:
        """Columns without their components along u_c."""
        return x - self._means(x)

    def apply(self, x: Array) -> Array:
        """Σ_c u_c u_cᵀ x / p_c."""
        return self.variance[:, None] * self._means(x)

    def entries(self, a: Array, b: Array) -> Array:
        """Entries of the same matrix."""
        together = self.component[a] == self.component[b]
        return jnp.where(together, (self.share * self.variance)[a], 0)

    def differences(self, items: ArrayLike, a: Array, b: Array) -> Array:
        """The same matrix times e_a − e_b, at some items; NaN where there is no prior to say."""
        own = jnp.where(self.is_free, jnp.nan, self.variance)

        def column(end: Array) -> Array:
            together = self.component[jnp.asarray(items)][:, None] == self.component[end][None, :]
            return jnp.where(together, (self.share * own)[end][None, :], 0)

        return column(a) - column(b)

    def _means(self, x: Array) -> Array:
        totals = jax.ops.segment_sum(x, self.component, x.shape[0])
        return self.share[:, None] * totals[self.component]


class AbstractCurvature(eqx.Module):
    """M = ∇²L at the optimum, ready for solves with it; made by `curvature`."""

    levels: eqx.AbstractVar[Levels]

    @property
    def num_items(self) -> int:
        """The size of M."""
        return self.levels.share.size

    @abc.abstractmethod
    def reduced_solve(self, rhs: Array) -> Array:
        """R @ rhs, of columns."""

    @abc.abstractmethod
    def reduced_entries(self, a: Array, b: Array) -> Array:
        """R at rows a and columns b, one entry each."""

    def solve(self, rhs: ArrayLike) -> Float[Array, " items *columns"]:
        """N @ rhs for a vector or the columns of a matrix."""
        given = jnp.asarray(rhs)
        columns = given.reshape(given.shape[0], -1)
        return (self.reduced_solve(columns) + self.levels.apply(columns)).reshape(given.shape)

    def entries(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_ab for each pair of items; without a prior, under the constraint of mean zero."""
        first, second = self._pairs(a, b)
        return self.reduced_entries(first, second) + self.levels.entries(first, second)

    def diagonal(self) -> Float[Array, " items"]:
        """n_aa for each item; without a prior, under the constraint of mean zero."""
        items = np.arange(self.num_items)
        return self.entries(items, items)

    def difference_variance(self, a: ArrayLike, b: ArrayLike) -> Float[Array, " pairs"]:
        """n_aa + n_bb − 2 n_ab for each pair of items; inf where nothing relates the two."""
        first, second = self._pairs(a, b)
        own = [self.reduced_entries(x, x) for x in (first, second)]
        reduced = own[0] + own[1] - 2 * self.reduced_entries(first, second)
        apart = self.levels.component[first] != self.levels.component[second]
        levels = [self.levels.entries(x, x) for x in (first, second)]
        free = self.levels.is_free
        unknown = apart & (free[first] | free[second])
        return jnp.where(unknown, jnp.inf, reduced + jnp.where(apart, levels[0] + levels[1], 0))

    def _pairs(self, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
        ends = (as_indices(name, x, self.num_items) for name, x in (("a", a), ("b", b)))
        first, second = np.broadcast_arrays(*ends)
        return jnp.asarray(first), jnp.asarray(second)


@final
class DenseCurvature(AbstractCurvature):
    """By a Cholesky factorisation: `reduced` is R, the rest of N is in `levels`."""

    reduced: Float[Array, "items items"]
    log_determinant: Float[Array, ""]  # of M; without a prior, of M on scores of mean zero
    levels: Levels

    def reduced_solve(self, rhs: Array) -> Array:
        """A product."""
        return self.reduced @ rhs

    def reduced_entries(self, a: Array, b: Array) -> Array:
        """Looked up."""
        return self.reduced[a, b]


@final
class IterativeCurvature(AbstractCurvature):
    """By conjugate gradients on the list of comparisons: for graphs too large for a matrix."""

    model: Model
    comparisons: Comparisons
    row_curvature: Array
    hessian_diagonal: Array
    levels: Levels

    def reduced_solve(self, rhs: Array) -> Array:
        """Blocks of columns, each until its last one has ended."""
        width = min(_BLOCK, rhs.shape[1])
        blocks = range(0, rhs.shape[1], max(width, 1))
        # Padding with zeros ends at once and saves compilations.
        padded = jnp.pad(rhs, ((0, 0), (0, -rhs.shape[1] % max(width, 1))))
        solved = [_checked_block(self, padded[:, start : start + width]) for start in blocks]
        return jnp.concatenate([*solved, rhs[:, :0]], axis=1)[:, : rhs.shape[1]]

    def reduced_entries(self, a: Array, b: Array) -> Array:
        """One solve for each distinct item of the shorter list."""
        if np.unique(np.asarray(a)).size < np.unique(np.asarray(b)).size:
            a, b = b, a
        columns, place = np.unique(np.asarray(b), return_inverse=True)
        found = np.zeros(place.size, self.row_curvature.dtype)
        for start in range(0, columns.size, _BLOCK):
            wanted = np.flatnonzero((place >= start) & (place < start + _BLOCK))
            block = np.zeros((self.comparisons.num_items, _BLOCK), found.dtype)
            chosen = columns[start : start + _BLOCK]
            block[chosen, np.arange(chosen.size)] = 1
            solved = np.asarray(_checked_block(self, jnp.asarray(block)))
            found[wanted] = solved[np.asarray(a)[wanted], place[wanted] - start]
        return jnp.asarray(found)


def curvature(fit: Fit, *, dense: bool | None = None) -> AbstractCurvature:
    """The factorised Hessian of a fit, to be made once and reused.

    Up to 4,096 items it is a `DenseCurvature` (a matrix of items × items, all entries at hand),
    beyond an `IterativeCurvature` (every solve is an iteration); `dense` chooses otherwise.
    """
    if not isinstance(fit, Fit):
        raise TypeError(f"curvature takes a Fit, not {type(fit).__name__}")
    if fit.result is not RESULTS.successful:
        raise ValueError(
            f"the fit did not find the optimum ({fit.result.name}), so nothing can be said about "
            "how it responds"
        )
    is_dense = fit.comparisons.num_items <= _DENSE_ITEMS if dense is None else dense
    made = (_dense if is_dense else _iterative)(fit.model, fit.comparisons, fit.scores)
    if made.levels.is_loose:
        raise ValueError(
            "items that are compared with each other have different priors, all of them so weak "
            "that rounding hides what they say of the common level: give these items one prior_std"
        )
    return made


def curvature_of(fit: Fit, using: AbstractCurvature | None) -> AbstractCurvature:
    """The curvature that was made already, if it can be this fit's, or a new one."""
    if using is None:
        return curvature(fit)
    if using.num_items != fit.comparisons.num_items:
        raise ValueError(
            f"the curvature is one of {using.num_items} items, and the fit has "
            f"{fit.comparisons.num_items}"
        )
    return using


@jax.jit
def _dense(model: Model, comparisons: Comparisons, scores: Array) -> DenseCurvature:
    point = evaluate(model, comparisons, scores)
    levels = _levels(model, comparisons, point.diagonal)
    # κ u_c u_cᵀ is added to M, at the scale of its component, and taken off the inverse again.
    size, added = scores.size, levels.added
    together = levels.component[:, None] == levels.component[None, :]
    outer = jnp.where(together, levels.share[:, None], 0)
    matrix = dense_hessian(comparisons, point) + added[:, None] * outer
    scale = lax.rsqrt(jnp.diagonal(matrix))
    scaled = matrix * scale[:, None] * scale[None, :]
    factor = lax.linalg.cholesky(scaled, symmetrize_input=False)
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(size, dtype=scores.dtype))
    whole = inverse * scale[:, None] * scale[None, :]
    along = jnp.where(levels.share > 0, 1 / (added + levels.precision), 0)
    reduced = whole - along[:, None] * outer
    # Each component has Σ share = 1: a sum over its items weighted so counts it once.
    instead = jnp.where(levels.precision > 0, jnp.log(levels.precision), 0)
    correction = jnp.where(levels.share > 0, instead - jnp.log(added + levels.precision), 0)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)) - jnp.log(scale))
    log_determinant += jnp.sum(levels.share * correction)
    reduced = 0.5 * (reduced + reduced.T)
    return DenseCurvature(reduced=reduced, log_determinant=log_determinant, levels=levels)


@jax.jit
def _iterative(model: Model, comparisons: Comparisons, scores: Array) -> IterativeCurvature:
    point = evaluate(model, comparisons, scores)
    levels = _levels(model, comparisons, point.diagonal)
    return IterativeCurvature(
        model=model,
        comparisons=comparisons,
        row_curvature=point.curvature,
        hessian_diagonal=point.diagonal,
        levels=levels,
    )


def _checked_block(of: IterativeCurvature, rhs: Array) -> Array:
    solved, error = _solve_block(of, rhs)
    if error > float(jnp.finfo(rhs.dtype).eps) ** 0.5:
        raise RuntimeError(
            f"conjugate gradients did not solve with the Hessian: a residual of {float(error):.0e} "
            "of the right-hand side is left"
        )
    return solved


@jax.jit
def _solve_block(of: IterativeCurvature, rhs: Array) -> tuple[Array, Array]:
    """R @ rhs and the largest relative residual, with κ u_c u_cᵀ added to M as in `_dense`.

    Solved twice, the second time for what rounding left of the first.
    """
    levels = of.levels

    def product(v: Array) -> Array:
        image = hessian_product(of.model, of.comparisons, of.row_curvature, v)
        return image + levels.added * (v - levels.removed(v[:, None])[:, 0])

    solve = functools.partial(
        conjugate_gradients,
        product,
        diagonal=of.hessian_diagonal + levels.added * levels.share,
        tolerance=float(jnp.finfo(rhs.dtype).eps),
        max_steps=20 * of.num_items + 100,
    )

    def column(b: Array) -> tuple[Array, Array]:
        x = solve(rhs=b).direction
        x = x + solve(rhs=b - product(x)).direction
        size = jnp.linalg.norm(b)
        return x, jnp.linalg.norm(b - product(x)) / jnp.where(size > 0, size, 1)

    solved, errors = jax.vmap(column, 1, (1, 0))(levels.removed(rhs))
    return levels.removed(solved), jnp.max(errors, initial=0)


def _levels(model: Model, comparisons: Comparisons, diagonal: Array) -> Levels:
    size = diagonal.size
    component = component_labels(comparisons)
    _, precision = model.prior(size, diagonal.dtype)
    totals = jnp.stack([jnp.ones_like(diagonal), precision, diagonal], axis=-1)
    totals = jax.ops.segment_sum(totals, component, size)[component]
    count, prior, whole = jnp.moveaxis(totals, -1, 0)
    lowest = jax.ops.segment_min(precision, component, size)[component]
    highest = jax.ops.segment_max(precision, component, size)[component]
    is_split = lowest == highest
    known = is_split & (precision > 0)
    weak = float(jnp.finfo(diagonal.dtype).eps) ** 0.5 * whole
    return Levels(
        component=component,
        share=jnp.where(is_split, 1 / count, 0),
        variance=jnp.where(known, 1 / jnp.where(known, precision, 1), 0),
        precision=precision,
        added=jnp.where(is_split, jnp.where(whole > 0, whole, 1) / count, 0),
        is_loose=jnp.any(~is_split & (prior < weak)),
    )
