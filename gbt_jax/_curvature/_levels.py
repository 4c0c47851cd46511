"""The common level of each connected component, which the prior alone decides.

Comparisons say nothing of it, so along u_c, the constant unit vector of component c, M has the
prior's precision p_c alone (where the prior is the same over the component, else c is not split
off):

    M u_c = p_c u_c,    N = R + Σ_c u_c u_cᵀ/p_c,    R u_c = 0.

R is kept apart from the levels: a weak prior makes them huge, and differences of scores of one
component, which do not depend on them, would lose digits. Without a prior N stands for the
inverse on scores whose mean over each component is zero, R.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import ArrayLike

from .._comparisons import Comparisons
from .._graph import component_labels
from .._model import Model


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

    # Jitted, because every operation by itself would be compiled for every shape.
    @jax.jit
    def removed(self, x: Array) -> Array:
        """Columns without their components along u_c."""
        return x - self._means(x)

    @jax.jit
    def apply(self, x: Array) -> Array:
        """Σ_c u_c u_cᵀ x / p_c."""
        return self.variance[:, None] * self._means(x)

    @jax.jit
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

    @property
    def held(self) -> Array:
        """p_c + κ_c of each item: N along u_c is 1/(p_c + κ_c) where κ_c u_c u_cᵀ is added to M."""
        return jnp.where(self.share > 0, self.added + self.precision, 1)

    def common_draws(self, num: int, *, key: Array) -> Array:
        """Standard normal draws, one per column, the same for all items of a component."""
        shape = (self.component.size, num)
        return jax.random.normal(key, shape, self.share.dtype)[self.component]

    def _means(self, x: Array) -> Array:
        totals = jax.ops.segment_sum(x, self.component, x.shape[0])
        return self.share[:, None] * totals[self.component]


def levels_of(model: Model, comparisons: Comparisons, diagonal: Array) -> Levels:
    """The levels of a problem, of whose Hessian the diagonal is given."""
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
