"""How far each score can move alone until the log-likelihood has dropped by a given amount.

Let t be the score difference of a row of item i (the score of i first) and r its value, with the
sign for i. When the score of i alone moves by s, the negative log-likelihood changes by

    g_i(s) = Σ_rows w (Φ(t + s) − Φ(t) − r s),    g_i(0) = 0,    g_i convex.

The prior does not enter. The right distance is the s > 0 with g_i(s) = drop, the left one the s > 0
with g_i(−s) = drop. Scores balance likelihood and prior, so g_i may decrease at first. It is
convex, so it crosses `drop` at most once on either side.

It does not cross `drop` if and only if it does not increase at infinity. For a law with values up
to r_max the slope there is Σ w (r_max − r) to the right and Σ w (r_max + r) to the left. It is zero
if and only if every comparison of the item has the extreme value in that direction.

All sides of all items are searched together, by Newton's method in a bracket. Where weights are
large, or in low precision, Φ(t + s) − Φ(t) − r s loses its digits. Then

    g_i(s) = s ∫₀¹ g_i'(s x) dx

by Gauss's rule is used instead, if it agrees with the difference up to the rounding error of the
difference. Its own error is like that of rounding the values r once.
"""

import functools
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from .._curvature import refuse_unfinished
from .._inference._fit import Fit
from .._inference._results import RESULTS
from .._util._arrays import ArrayLike, gather, positive
from .._util._roots import Value, positive_roots
from ..laws import AbstractRootLaw
from ._laplace import Intervals

_NODES = 8  # of Gauss's rule, which is needed where s is small relative to the law's width
_ROUNDING = 4.0  # rounding errors of a sum, in units of ε times the norm of its terms


class _Distances(NamedTuple):
    """Distances from each score to where the likelihood has dropped; inf where it never does."""

    left: Float[Array, " items"]
    right: Float[Array, " items"]


def likelihood_intervals(fit: Fit, *, drop: ArrayLike = 1.0) -> Intervals:
    """Intervals at whose ends the log-likelihood has dropped by `drop`, each score moved alone.

    The upper end of item i is θ_i + s, s > 0, at which Σ w (Φ(t) − r t), over the comparisons of
    i, has risen by `drop` above its value at the fit's scores when every other score stays; the
    lower end is the same on the other side. The prior is left out, so the score itself need not be
    the most likely one. With drop = 1, `estimate − lower` and `upper − estimate` are the left and
    right uncertainties of Tournesol's solidago, computed to rounding and without its cap.

    **Arguments:**

    - `drop`: by how much the log-likelihood drops, a positive number.

    **Returns:** `Intervals`. An end is infinite where no comparison bounds the score: the item has
    none, or all of them have the law's extreme value in that direction. Both ends are NaN for the
    items of a group whose fit failed.
    """
    limit = positive("drop", drop)
    if limit.ndim:
        raise ValueError(f"drop must be one number, not an array of shape {limit.shape}")
    refuse_unfinished(fit)
    rows, scores, weight = fit.comparisons, fit.scores, fit.comparisons.weight
    value = rows.value
    if rows.group is not None:  # groups without an optimum have no weight here
        is_known = jnp.asarray(fit.result == RESULTS.successful)[rows.group]
        keeps = is_known[rows.a]
        scores = jnp.where(is_known, scores, 0)
        value, weight = (jnp.where(keeps, x, 0) for x in (value, weight))
    columns = rows.a, rows.b, value, weight
    found = _distances(fit.model.law, columns, scores, limit.astype(scores.dtype))
    return Intervals(fit.scores, fit.scores - found.left, fit.scores + found.right)


@final
class _Halves(eqx.Module):
    """Every row twice, once for each of its items. Sides are columns: left, right."""

    law: AbstractRootLaw
    item: Array
    t: Array  # the item's own score minus the other's
    value: Array  # positive if the item is the better one
    weight: Array
    cgf: Array  # Φ(t)
    num_items: int = eqx.field(static=True)

    def total(self, terms: Array) -> Array:
        """Weighted sums over the comparisons of each item."""
        return jax.ops.segment_sum(self.weight * terms, self.item, self.num_items)

    def norm(self, terms: Array) -> Array:
        """Norms of the terms of these sums: rounding errors are ε times the norm."""
        return jnp.sqrt(self.total(self.weight * terms**2))

    def rises(self, moved: Array) -> Array:
        """Φ(t + s) − Φ(t) − r s."""
        return self.law.cgf(self.t + moved) - self.cgf - self.value * moved

    def slopes(self, moved: Array) -> Array:
        """Φ'(t + s) − r."""
        return self.law.mean(self.t + moved) - self.value


class _Sizes(NamedTuple):
    """Norms of the terms that are summed for each item."""

    cgf: Array
    slope: Array


@jax.jit
def _distances(
    law: AbstractRootLaw, columns: tuple[Array, ...], scores: Array, drop: Array
) -> _Distances:
    halves = _halves(law, columns, scores)
    is_bounded = _is_bounded(halves)
    sizes = _Sizes(
        halves.norm(halves.cgf),
        halves.norm(jnp.abs(halves.law.mean(halves.t)) + jnp.abs(halves.value)),
    )
    start = jnp.where(is_bounded, _start(halves, drop), 0)
    found = positive_roots(functools.partial(_evaluate, halves, sizes, drop), start, is_bounded)
    left, right = jnp.where(is_bounded, found, jnp.inf).T
    return _Distances(left, right)


def _halves(law: AbstractRootLaw, columns: tuple[Array, ...], scores: Array) -> _Halves:
    a, b, value, weight = (jnp.asarray(column) for column in columns)
    t = gather(scores, a) - gather(scores, b)

    def duplicate(column: Array, sign: int) -> Array:
        return jnp.concatenate([column, sign * column])[:, None].astype(scores.dtype)

    return _Halves(
        law=law.at_rows(jnp.tile(jnp.arange(a.size), 2)[:, None]),
        item=jnp.concatenate([a, b]),
        t=duplicate(t, -1),
        value=duplicate(value, -1),
        weight=duplicate(weight, 1),
        cgf=duplicate(law.cgf(t), 1),
        num_items=scores.size,
    )


def _is_bounded(halves: _Halves) -> Array:
    """Whether a comparison bounds the item on each side: one whose value is not extreme there."""
    dtype = halves.value.dtype
    # Averages of values at the edge (merged comparisons) may be off by rounding.
    edge = jnp.asarray(halves.law.max_value, dtype) * (1 - 64 * jnp.finfo(dtype).eps)
    holds = (halves.weight > 0) & (_signs(dtype) * halves.value < edge)
    return jax.ops.segment_sum(holds.astype(jnp.int32), halves.item, halves.num_items) > 0


def _start(halves: _Halves, drop: Array) -> Array:
    """Roots of the parabolas with the slope and curvature at the scores, exact for a Gaussian law.

    1 where there is no such root, because the curvature vanishes to rounding.
    """
    terms = [halves.law.mean(halves.t) - halves.value, halves.law.variance(halves.t)]
    totals = halves.total(jnp.concatenate(terms, axis=1))
    slope, curvature = _signs(totals.dtype) * totals[:, :1], totals[:, 1:]
    root = jnp.sqrt(slope**2 + 2 * curvature * drop)
    # The form of the root that adds numbers of the same sign.
    start = jnp.where(slope > 0, 2 * drop / (root + slope), (root - slope) / curvature)
    return jnp.where(jnp.isfinite(start) & (start > 0), start, 1)


def _evaluate(
    halves: _Halves, sizes: _Sizes, drop: Array, distance: Array, is_open: Array
) -> Value:
    """g − drop at distances of items × sides."""
    signs, eps = _signs(distance.dtype), float(jnp.finfo(distance.dtype).eps)
    moved = signs * gather(distance, halves.item)
    terms = jnp.concatenate([halves.rises(moved), signs * halves.slopes(moved)], axis=1)
    rise, slope = jnp.split(halves.total(terms), 2, axis=1)
    least = _ROUNDING * eps * (sizes.slope * distance + jnp.abs(rise))
    noise = least + _ROUNDING * eps * sizes.cgf
    # A change of g by its noise moves the root by noise/slope.
    is_lost = is_open & (noise > eps ** (2 / 3) * distance * slope) & (noise > 2 * least)

    def integrate() -> tuple[Array, Array]:
        integral = distance * _mean_slope(halves, moved)
        # Only where it is needed, so that the result of an item does not depend on other items.
        better = is_lost & (jnp.abs(integral - rise) <= 4 * noise)
        return jnp.where(better, integral, rise), jnp.where(better, least, noise)

    rise, noise = lax.cond(jnp.any(is_lost), integrate, lambda: (rise, noise))
    return Value(rise - drop, slope, noise)


def _mean_slope(halves: _Halves, moved: Array) -> Array:
    """∫₀¹ g'(s x) dx by Gauss's rule."""

    def add(total: Array, node: Array) -> tuple[Array, None]:
        return total + node[1] * halves.total(halves.slopes(node[0] * moved)), None

    start = jnp.zeros((halves.num_items, moved.shape[1]), moved.dtype)
    return _signs(moved.dtype) * lax.scan(add, start, gauss_rule(moved.dtype))[0]


def gauss_rule(dtype) -> Array:
    """Nodes and weights for integrals over [0, 1], one pair per row."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return jnp.asarray(np.stack([(1 + nodes) / 2, weights / 2], axis=1), dtype)


def _signs(dtype) -> Array:
    """The directions of the two sides."""
    return jnp.asarray([-1, 1], dtype)
