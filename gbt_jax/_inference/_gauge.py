"""The gauge: the null space of the comparisons, one common level for each connected component.

Comparisons depend on differences, so for the indicator 1_c of a component the data part of the
Hessian has M 1_c = p, the prior's precisions there, and the data part of the gradient sums to zero
over c. Only the prior determines the level of c: at the optimum Σ_c p (θ − μ) = 0. If p is 0 or
below the rounding errors of the data, neither a gradient nor a linear solve determines the level,
and both drift along 1_c. With the shares

    q = p/Σ_c p,  or 1/|c| and μ = 0 where the component has no prior,

the level is known exactly, and projected out of

    scores      θ ↦ θ − 1 qᵀ(θ − μ)    have Σ_c p (θ − μ) = 0 (mean zero without a prior),
                                       in every component of a problem that has a weak prior,
    directions  x ↦ x − 1 qᵀx          preserve that,
    residuals   r ↦ r − q 1ᵀr          have sum zero, like gradients at such scores.

The last two are transposes of each other, which makes this the deflation of conjugate gradients by
1_c; M maps directions with qᵀx = 0 to residuals with 1ᵀr = 0, and is positive definite on them.
"""

import abc
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._data._comparisons import Comparisons
from .._data._graph import component_labels
from .._data._incidence import item_sums, item_sums_on_host
from .._data._partition import ONE, AbstractPartition
from .._model import Model
from .._util._arrays import ArrayLike, gather, is_concrete

Projector = Callable[[Array], Array]


class AbstractGauge(eqx.Module):
    """The gauge of a problem: it fixes the common level of each connected component."""

    level: eqx.AbstractVar[Array]  # of each item's component, according to the prior

    @abc.abstractmethod
    def centre(self, scores: Array) -> Array:
        """Scores at the level that the prior determines, or with mean zero without a prior."""

    @abc.abstractmethod
    def centre_relative(self, x: Array) -> Array:
        """`centre` of scores minus `level`, which avoids cancellation if `level` is large."""

    @abc.abstractmethod
    def project_direction(self, x: Array) -> Array:
        """x − 1 qᵀx."""

    @abc.abstractmethod
    def project_residual(self, r: Array) -> Array:
        """r − q 1ᵀr."""

    @abc.abstractmethod
    def skip_if_regularised(self, project: Projector) -> Projector:
        """A projection that is skipped if no component needs it.

        For loops that are not differentiated: JAX cannot transpose the condition under `vmap`.
        """

    @abc.abstractmethod
    def fill(self, matrix: Array) -> Array:
        """The Hessian M plus κ q qᵀ, which is definite and has the same solutions."""


@final
class Regularised(AbstractGauge):
    """The gauge of a problem whose prior determines every level: nothing is projected."""

    level: Array

    def centre(self, scores: Array) -> Array:
        """The scores."""
        return scores

    def centre_relative(self, x: Array) -> Array:
        """The scores."""
        return x

    def project_direction(self, x: Array) -> Array:
        """x."""
        return x

    def project_residual(self, r: Array) -> Array:
        """r."""
        return r

    def skip_if_regularised(self, project: Projector) -> Projector:
        """The projection, which is the identity."""
        return project

    def fill(self, matrix: Array) -> Array:
        """M."""
        return matrix


@final
class ComponentGauge(AbstractGauge):
    """The gauge that projects out the levels of components with a weak prior or none."""

    component: Array | None  # a label for each item; None where all items are connected
    share: Array  # q
    mean: Array  # μ, or 0 where the component has no prior
    is_free: Array  # whether the prior of the item's component is weak: its level is projected out
    is_weak: Array  # whether the item's problem has an item with a weak prior, or none
    level: Array

    def centre(self, scores: Array) -> Array:
        """θ − 1 qᵀ(θ − μ)."""
        return scores - self._totals(self.share * (scores - self.mean), self.is_weak)

    def centre_relative(self, x: Array) -> Array:
        """x − 1 qᵀ(x − (μ − level))."""
        return x - self._totals(self.share * (x - (self.mean - self.level)), self.is_weak)

    def project_direction(self, x: Array) -> Array:
        """x − 1 qᵀx."""
        return x - self._totals(self.share * x, self.is_free)

    def project_residual(self, r: Array) -> Array:
        """r − q 1ᵀr."""
        return r - self.share * self._totals(r, self.is_free)

    def skip_if_regularised(self, project: Projector) -> Projector:
        """Skip the projection if no component has a weak prior, which is known at run time only."""
        return lambda x: lax.cond(jnp.any(self.is_free), lambda x: project(x), lambda x: x, x)

    def fill(self, matrix: Array) -> Array:
        """M + κ q qᵀ within each component, with κ the trace of M there."""
        added = self._totals(jnp.diagonal(matrix), self.is_free) * self.share
        outer = added[:, None] * self.share[None, :]
        if self.component is None:
            return matrix + outer
        return matrix + jnp.where(self.component[:, None] == self.component[None, :], outer, 0)

    def _totals(self, x: Array, counts: Array) -> Array:
        """The sum over each item's component, and 0 for items that are not in `counts`."""
        if self.component is None:
            return jnp.where(counts, jnp.sum(x), 0)
        totals = gather(jax.ops.segment_sum(x, self.component, x.size), self.component)
        return jnp.where(counts, totals, 0)


def is_regularised(model: Model, comparisons: Comparisons) -> bool:
    """Whether the prior determines every level, beyond rounding errors; False under tracing."""
    columns = comparisons.a, comparisons.b, comparisons.weight
    if not is_concrete(model.prior_std, columns):
        return False
    return is_prior_strong(model.prior_std, *columns, comparisons.num_items)


def is_prior_strong(
    prior_std: ArrayLike, a: ArrayLike, b: ArrayLike, weight: ArrayLike, num_items: int
) -> bool:
    """Whether a prior determines the level of every component, given the weights of rows."""
    if not np.size(prior_std):
        return True
    weights = np.nan_to_num(np.asarray(weight), nan=0, posinf=0, neginf=0)
    heaviest, largest_std = np.max(weights, initial=0), float(np.max(np.asarray(prior_std)))
    unit = float(heaviest) or 1.0  # sums of huge weights would overflow
    sums = item_sums_on_host(np.asarray(a), np.asarray(b), weights / unit, num_items)
    count = float(np.max(sums, initial=0))
    return largest_std**-2.0 / unit > _weak_precision(weights.dtype, count, count)


def _weak_precision(dtype, total, count):
    """The precision up to which a prior is weak: rounding errors of the data may exceed it.

    `total` is the largest sum of weights of an item, S. Sequential summation of its n rows has an
    error of about ε S √n; the square root of ε leaves half of the digits of a level.
    """
    return float(jnp.finfo(dtype).eps) ** 0.5 * total * count**0.5


def find_gauge(
    model: Model,
    comparisons: Comparisons,
    partition: AbstractPartition = ONE,
    *,
    is_regularised: bool,
    is_connected: bool = False,
) -> AbstractGauge:
    """The gauge of comparisons, or of several concatenated problems.

    `is_regularised` and `is_connected` (all compared items are connected, and no item has a prior)
    are facts known beforehand.
    """
    size, dtype = comparisons.num_items, comparisons.value.dtype
    mean, precision = model.prior(comparisons, dtype)
    means = partition.total(mean) / partition.total(jnp.ones_like(mean))
    level = jnp.broadcast_to(partition.spread(means), (size,))
    if is_regularised:
        return Regularised(level)
    sums = item_sums(comparisons, comparisons.weight)
    total = partition.largest(sums)
    heaviest = partition.at(comparisons.a).largest(comparisons.weight)
    threshold = _weak_precision(dtype, total, total / jnp.where(heaviest > 0, heaviest, 1))
    is_weak = partition.largest(1 / precision) >= 1 / threshold
    weak_items = jnp.broadcast_to(partition.spread(is_weak), (size,))
    counts = (sums > 0).astype(dtype) if is_connected else jnp.ones_like(precision)
    columns = jnp.stack([precision, counts, precision * mean], axis=-1)
    if is_connected:
        component, sums = None, jnp.sum(columns, axis=0)[None, :]
    else:
        component = lax.cond(
            jnp.any(is_weak),
            component_labels,
            lambda rows: jnp.zeros(rows.num_items, jnp.int32),
            comparisons,
        )
        sums = jax.ops.segment_sum(columns, component, size)[component]
    total, members, pull = sums.T
    has_prior = total > 0
    inverse = 1 / jnp.where(has_prior, total, 1)
    return ComponentGauge(
        component=component,
        share=jnp.where(has_prior, precision * inverse, counts / members),
        mean=jnp.where(has_prior, mean, 0),
        # One item with a strong prior determines the level of its component.
        is_free=weak_items & (counts > 0) & (total <= partition.spread(threshold)),
        is_weak=weak_items & (counts > 0),
        level=jnp.where(weak_items, jnp.where(has_prior, pull * inverse, 0), level),
    )
