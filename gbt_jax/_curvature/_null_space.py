"""The null space of the comparisons: the constant vectors u_c of connected components c.

Comparisons depend on score differences, so along the unit vector u_c the Hessian M has only the
precision p_c of the prior, if that is constant over the component (otherwise u_c is not split off):

    M u_c = p_c u_c,    N = R + Σ_c u_c u_cᵀ/p_c,    R u_c = 0.

R is stored separately: with a weak prior 1/p_c is huge, and differences of scores within a
component, which do not depend on it, would lose digits. Without a prior N is the inverse on scores
whose mean over each component is zero, which is R.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jaxtyping import PRNGKeyArray

from .._data._comparisons import Comparisons
from .._data._graph import component_numbers
from .._data._incidence import item_sums_on_host
from .._inference._ladder import row_derivatives
from .._model import Model, precision_on_host
from .._util._arrays import ArrayLike
from .._util._random import generator_of


class NullSpace(eqx.Module):
    """The vectors u_c that are split off, and N along them: NumPy arrays, or traced ones."""

    # For each item, of its component c:
    component: Any  # the number of one item of c
    share: Any  # the square of an entry of u_c; 0 if u_c is not split off
    variance: Any  # 1/p_c; 0 if u_c is not split off or p_c is 0
    precision: Any  # p_c
    added: Any  # κ_c; 0 if u_c is not split off
    regularised: Any  # p_c + κ_c: the inverse of M + κ_c u_c u_cᵀ along u_c is 1/(p_c + κ_c)
    is_lost: Any  # whether rounding hides the common level of a component that is not split off

    @property
    def is_free(self) -> Array | np.ndarray:
        """Items whose component has no prior."""
        return (self.share > 0) & (self.precision == 0)

    def remove(self, x: Any) -> Any:
        """Columns without their components along u_c."""
        return x - self._means(x)

    def apply(self, x: Any) -> Any:
        """Σ_c u_c u_cᵀ x / p_c."""
        return self.variance[:, None] * self._means(x)

    def entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Entries of Σ_c u_c u_cᵀ / p_c."""
        together = self.component[a] == self.component[b]
        return together * (self.share * self.variance)[a]

    def differences(self, items: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Σ_c u_c u_cᵀ (e_a − e_b) / p_c at some items; NaN for components without a prior."""
        own = np.where(self.is_free, np.nan, self.variance)

        def column(end: np.ndarray) -> np.ndarray:
            together = self.component[items][:, None] == self.component[end][None, :]
            return np.where(together, (self.share * own)[end][None, :], 0)

        return column(a) - column(b)

    def common_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """Standard normal draws, one per column, the same for all items of a component."""
        shape = (self.component.size, num)
        return generator_of(key).standard_normal(shape, self.share.dtype)[self.component]

    def _means(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and isinstance(self.component, np.ndarray):
            # Components are labelled by items: sums over sorted items compile nothing.
            order = np.argsort(self.component, kind="stable")
            first = np.flatnonzero(np.diff(self.component[order], prepend=-1))
            totals = np.zeros_like(x)
            if first.size:
                totals[self.component[order[first]]] = np.add.reduceat(x[order], first, axis=0)
        else:
            totals = jax.ops.segment_sum(x, self.component, x.shape[0])
        return self.share[:, None] * totals[self.component]


def null_space_of(
    a: np.ndarray, b: np.ndarray, weight: np.ndarray, precision: np.ndarray, diagonal: np.ndarray
) -> NullSpace:
    """The null space of a problem, from its comparisons, prior precisions and Hessian diagonal.

    On the host, where finding components compiles nothing.
    """
    size, dtype = diagonal.size, diagonal.dtype
    label = component_numbers(a, b, weight, size)
    count = int(label.max(initial=-1)) + 1
    component, lowest, highest = (np.full(count, start) for start in (size, np.inf, -np.inf))
    np.minimum.at(component, label, np.arange(size))
    np.minimum.at(lowest, label, precision)
    np.maximum.at(highest, label, precision)
    members, prior, whole = (
        np.bincount(label, x, count)[label] for x in (np.ones(size), precision, diagonal)
    )
    is_split = (lowest == highest)[label]
    known = is_split & (precision > 0)
    added = np.where(is_split, np.where(whole > 0, whole, 1) / members, 0)
    share = np.where(is_split, 1 / members, 0)
    weak = float(np.finfo(dtype).eps) ** 0.5 * whole
    numbers = (
        share,
        np.where(known, 1 / np.where(known, precision, 1), 0),
        precision,
        added,
        np.where(share > 0, added + precision, 1),
    )
    return NullSpace(
        component[label].astype(np.int32),
        *(x.astype(dtype) for x in numbers),
        is_lost=np.any(~is_split & (prior < weak)),
    )


def hessian_parts(
    model: Model, comparisons: Comparisons, scores: ArrayLike
) -> tuple[np.ndarray, np.ndarray, NullSpace]:
    """(w Φ'' of each comparison, the diagonal of M, the null space)."""
    _, curvature = row_derivatives(model, comparisons, scores)
    precision = precision_on_host(model, comparisons, curvature.dtype)
    columns = comparisons.a, comparisons.b, comparisons.weight
    a, b, weight = (np.asarray(x) for x in columns)
    sums = item_sums_on_host(a, b, curvature, precision.size)
    diagonal = (precision + sums).astype(precision.dtype)
    return curvature, diagonal, null_space_of(a, b, weight, precision, diagonal)
