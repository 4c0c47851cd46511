"""By a Cholesky factorisation: all entries at hand."""

from typing import final

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from .._data._comparisons import Comparisons
from .._data._incidence import weighted_matrix
from .._inference._fit import Fit
from .._util._arrays import as_array
from .._util._limits import SMALL_CURVATURE_ITEMS
from ._base import AbstractCurvature, Edges
from ._blocks import block_curvature
from ._levels import Levels, parts_of_hessian


@final
class DenseCurvature(AbstractCurvature):
    """By a Cholesky factorisation: `reduced` is R, the rest of N is in `levels`."""

    reduced: Float[Array, "items items"]
    log_determinant: Float[Array, ""]  # of M; without a prior, of M on scores of mean zero
    edges: Edges
    levels: Levels

    def reduced_solve(self, rhs: Array) -> Array:
        """A product."""
        return self.reduced @ rhs

    def reduced_entries(self, a: Array, b: Array) -> Array:
        """Looked up."""
        return self.reduced[a, b]

    def reduced_draws(self, num: int, *, key: Array) -> Array:
        """With the Cholesky factor of R + Σ_c u_c u_cᵀ/(p_c + κ_c), less the part along u_c."""
        levels = self.levels
        together = levels.component[:, None] == levels.component[None, :]
        filled = self.reduced + jnp.where(together, (levels.share / levels.held)[:, None], 0)
        factor = lax.linalg.cholesky(filled, symmetrize_input=False)
        normal = jax.random.normal(key, (self.num_items, num), self.reduced.dtype)
        return levels.remove(factor @ normal)


def dense_curvature(fit: Fit) -> DenseCurvature:
    """Factorise M at the scores: small ones as a group's, to the same bits."""
    rows = fit.comparisons
    if rows.num_items > SMALL_CURVATURE_ITEMS:
        return _factorise(rows, *parts_of_hessian(fit.model, rows, fit.scores))
    found = block_curvature(fit)
    size = rows.num_items
    return DenseCurvature(
        reduced=as_array(found.blocks[0][0, :size, :size]),
        log_determinant=as_array(found.log_determinants[0]),
        edges=found.edges,
        levels=jax.tree.map(jnp.asarray, found.levels),
    )


@jax.jit
def _factorise(
    comparisons: Comparisons, curvature: Array, diagonal: Array, levels: Levels
) -> DenseCurvature:
    # κ u_c u_cᵀ is added to M, at the scale of its component, and taken off the inverse again.
    size, added = diagonal.size, levels.added
    together = levels.component[:, None] == levels.component[None, :]
    outer = jnp.where(together, levels.share[:, None], 0)
    matrix = weighted_matrix(comparisons, curvature, diagonal) + added[:, None] * outer
    scale = lax.rsqrt(jnp.diagonal(matrix))
    scaled = matrix * scale[:, None] * scale[None, :]
    factor = lax.linalg.cholesky(scaled, symmetrize_input=False)
    inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(size, dtype=diagonal.dtype))
    whole = inverse * scale[:, None] * scale[None, :]
    reduced = whole - outer / levels.held[:, None]
    # Each component has Σ share = 1: a sum over its items weighted so counts it once.
    instead = jnp.where(levels.precision > 0, jnp.log(levels.precision), 0)
    correction = jnp.where(levels.share > 0, instead - jnp.log(levels.held), 0)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factor)) - jnp.log(scale))
    log_determinant += jnp.sum(levels.share * correction)
    reduced = 0.5 * (reduced + reduced.T)
    return DenseCurvature(
        reduced=reduced,
        log_determinant=log_determinant,
        edges=Edges(comparisons.a, comparisons.b, curvature),
        levels=levels,
    )
