"""The verdict on scores: what the gradient is, what rounding can have done to it, what follows.

It is computed from the rows as given and knows nothing of the solver that found the scores. Row i
adds s_i = w (Φ'(t) − r), t = θ_a − θ_b, to the gradient at a, and takes it off at b. With ε the
spacing of floats at 1, what is computed for s_i is off by at most

    e_i = ε w (C |Φ'(t)| + |Φ'(t) − r| + Φ''(t) (|t| + |θ_a| + |θ_b|)),

where C ε bounds the relative error of Φ' (of the law's own parameters, rounded to this precision,
too), Φ''(t) |t| is what rounding t does, and Φ''(t)(|θ_a| + |θ_b|) what rounding the scores does:
no scores of this precision have a smaller gradient. The sums over an item's rows are split as
s_i = h_i + l_i, h_i a multiple of ε A with A above every item's Σ|s|: sums of h are exact in any
order, and those of l are smaller by ε. So the gradient is known up to ρ = Σ e_i and little more.

- `error_bound`: L is 1/σ²-strongly convex, so ‖θ − θ*‖₂ ≤ σ² (‖g‖ + ‖ρ‖), for the largest σ.
- `is_certified`: g is zero as far as arithmetic can tell, or the error bound is far below the
  scores; and where no prior determines the scores (`_gauge`), rounding leaves no part of the graph
  undetermined against the rest.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from ._arrays import IN_RANGE, gather
from ._comparisons import Comparisons
from ._gauge import AbstractGauge, ComponentGauge
from ._graph import connected_labels
from ._model import Model
from ._partition import ONE, AbstractPartition

# Of Φ', in units of ε: `benchmarks/law_accuracy.py` finds at most 4 for the laws of this package,
# and rounding a law's parameters adds at most 2.
_LAW_ERROR = 6.0
# The root mean square of g/ρ that counts as zero, for items with one row. A solver that adds up n
# terms of one sign one by one is off by √n times the rounding of one.
_ZERO = 2.0
# A certified distance below this power of ε, relative to ‖θ − μ‖, is success as well. It decides
# where items have weights of very different sizes.
_DISTANCE = 0.4
# How far a score difference may be off, relative to its size and the law's own scale, where nothing
# but rounding determines it; and how many standard deviations of rounding that must exceed.
_RESOLUTION, _DEVIATIONS = 0.01, 4.0
# What is left of a gradient must be smaller than that by this power of ε.
_LEFT = 0.25


class Certificate(NamedTuple):
    """What is known of scores, for each problem."""

    gradient_norm: Array  # ‖∇L‖₂
    error_bound: Array  # ≥ ‖θ − θ*‖₂; inf without a prior
    is_certified: Array


class _Rows(NamedTuple):
    slope: Array  # w (Φ' − r)
    error: Array  # its rounding error, at most
    curvature: Array  # w Φ''
    t: Array
    reach: Array  # |θ_a| + |θ_b|


def certify(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    gauge: AbstractGauge,
    partition: AbstractPartition = ONE,
) -> Certificate:
    """Recompute the gradient, bound its rounding errors, and say what they prove."""
    rows = _evaluate(model, comparisons, scores)
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    pull, eps = precision * (scores - mean), float(jnp.finfo(scores.dtype).eps)
    row_errors = _item_sums(comparisons, rows.error)
    high, low, low_error = _exact_sums(comparisons, rows.slope, row_errors / eps, partition)
    gradient = (pull + high) + low
    # 1/σ², the difference, the product and the two sums above are rounded too.
    pull_error = eps * (6 * jnp.abs(pull) + precision * (jnp.abs(scores) + jnp.abs(mean)))
    errors = row_errors + low_error + pull_error + 2 * eps * (jnp.abs(high) + jnp.abs(low))
    norm, error_norm = (jnp.sqrt(partition.inner(x, x)) for x in (gradient, errors))
    # The norms are sums of so many rounded squares.
    variance = prior_variance(model, comparisons, scores.dtype, partition)
    bound = variance * (norm + error_norm) * (1 + eps * (scores.size + 8))
    bound = jnp.where(jnp.isinf(variance), jnp.inf, bound)
    is_certified = _is_zero(comparisons, gradient, errors, partition)
    if isinstance(gauge, ComponentGauge):
        weak = gauge.is_weak, partition
        is_certified = _judge_weak(model, comparisons, rows, gradient, errors, is_certified, *weak)
    moved = jnp.sqrt(partition.inner(scores - mean, scores - mean))
    is_certified |= (bound <= eps**_DISTANCE * moved) & jnp.isfinite(bound)
    return Certificate(norm, bound, is_certified & jnp.isfinite(norm) & jnp.isfinite(error_norm))


def _is_zero(
    comparisons: Comparisons, gradient: Array, errors: Array, partition: AbstractPartition
) -> Array:
    """Whether the gradient of each problem is zero as far as arithmetic can tell.

    Item by item on the scale of its own errors: an item of little weight counts as much as others.
    """
    ratio = jnp.where(errors > 0, gradient / jnp.where(errors > 0, errors, 1), 0)
    num_items = partition.total((errors > 0).astype(errors.dtype))
    num_rows = partition.at(comparisons.a).total((comparisons.weight > 0).astype(errors.dtype))
    # The mean over items of n is 2 rows/items.
    return partition.inner(ratio, ratio) <= _ZERO**2 * (num_items + 2 * num_rows)


def prior_variance(
    model: Model, comparisons: Comparisons, dtype, partition: AbstractPartition = ONE
) -> Array:
    """The largest σ² of each problem; inf without a prior."""
    std = model.prior_std.astype(dtype)
    if std.ndim:
        std = partition.largest(jnp.broadcast_to(std, (comparisons.num_items,)))
    return jnp.square(std)


def _evaluate(model: Model, comparisons: Comparisons, scores: Array) -> _Rows:
    at_a, at_b = gather(scores, comparisons.a), gather(scores, comparisons.b)
    value, weight = (x.astype(scores.dtype) for x in (comparisons.value, comparisons.weight))
    t = at_a - at_b
    expected, variance = model.law.mean(t), model.law.variance(t)
    curvature = weight * variance
    size = weight * (_LAW_ERROR * jnp.abs(expected) + jnp.abs(expected - value))
    reach = jnp.abs(at_a) + jnp.abs(at_b)
    error = float(jnp.finfo(scores.dtype).eps) * (size + curvature * (jnp.abs(t) + reach))
    return _Rows(weight * (expected - value), error, curvature, t, reach)


def _item_sums(comparisons: Comparisons, rows: Array) -> Array:
    """For each item the sum over its rows."""
    sums = jnp.zeros(comparisons.num_items, rows.dtype).at[comparisons.a].add(rows, **IN_RANGE)
    return sums.at[comparisons.b].add(rows, **IN_RANGE)


def _exact_sums(
    comparisons: Comparisons, slopes: Array, sizes: Array, partition: AbstractPartition
) -> tuple[Array, Array, Array]:
    """(sums of the high parts, sums of the low parts, how far rounding moved the latter).

    `sizes` are at least Σ|s| of each item.
    """
    eps = float(jnp.finfo(slopes.dtype).eps)
    # A power of two above all sizes, so that adding it rounds to multiples of ε times it.
    _, exponent = jnp.frexp(partition.largest(sizes))
    anchor = jnp.ldexp(jnp.ones_like(slopes, shape=()), exponent + 1)
    at_rows = partition.at(comparisons.a).spread(anchor)
    high = (slopes + at_rows) - at_rows
    low = slopes - high

    def differences(rows: Array) -> Array:
        sums = jnp.zeros(comparisons.num_items, rows.dtype).at[comparisons.a].add(rows, **IN_RANGE)
        return sums.at[comparisons.b].subtract(rows, **IN_RANGE)

    if eps * len(comparisons) < 1e-9:  # far more rows than an item has, and few enough
        count = jnp.asarray(len(comparisons), slopes.dtype)
    else:
        count = _item_sums(comparisons, (slopes != 0).astype(slopes.dtype))
    low_error = jnp.square(eps * count) * partition.spread(anchor)
    return differences(high), differences(low), low_error


def _judge_weak(
    model: Model,
    comparisons: Comparisons,
    rows: _Rows,
    gradient: Array,
    errors: Array,
    is_zero: Array,
    is_weak: Array,
    partition: AbstractPartition,
) -> Array:
    """The verdict where no prior, or a weak one, determines how parts of the graph lie.

    Where all parts are determined (`_has_undetermined_parts`), the gradient may be zero in the
    metric of the Hessian's diagonal only: an item of little weight is then known to fewer digits
    than its own rows would allow.
    """

    def look() -> Array:
        _, precision = model.prior(comparisons.num_items, rows.t.dtype)
        diagonal = precision + _item_sums(comparisons, rows.curvature)
        weights = jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)
        sizes = (partition.inner(x, x * weights) for x in (gradient, errors))
        is_lost = _has_undetermined_parts(model, comparisons, rows, gradient, partition)
        weak = partition.largest(is_weak.astype(jnp.int32)) > 0
        return jnp.where(weak, (is_zero | jnp.less_equal(*sizes)) & ~is_lost, is_zero)

    return lax.cond(jnp.any(is_weak), look, lambda: is_zero)


def _has_undetermined_parts(
    model: Model,
    comparisons: Comparisons,
    rows: _Rows,
    gradient: Array,
    partition: AbstractPartition,
) -> Array:
    """Whether rounding hides how some part of the graph lies against the rest.

    The sum of the gradients of a part is its one equation. It determines the part against a
    neighbour if moving the row between them by `_RESOLUTION` changes the sum by more than the noise
    in it: rounding, and many times what is left of the gradient. The two are one part from then on.
    Parts that end without such a row, or a prior that determines them likewise, are undetermined if
    any row joins them to others. Without a finite optimum the rows between two parts have lost
    their curvature, so that they are seen here as well.

    Rows above the noise of a whole problem join its items at once, which is usually all.
    """
    dtype, size = rows.t.dtype, comparisons.num_items
    eps, counts = float(jnp.finfo(dtype).eps), comparisons.weight > 0
    first, second = comparisons.a, comparisons.b
    _, precision = model.prior(size, dtype)
    unit = lax.rsqrt(model.law.variance(jnp.zeros_like(rows.t)))
    # Not finer than the spacing of the scores themselves.
    step = _RESOLUTION * (unit + jnp.abs(rows.t)) + 64 * eps ** (1 - _LEFT) * rows.reach
    gain = jnp.where(counts, rows.curvature * step, 0)
    # Rounding errors of rows are independent of each other.
    squares = _DEVIATIONS**2 * _item_sums(comparisons, jnp.square(rows.error))
    squares += jnp.square(gradient / eps**_LEFT)
    pull = precision * _item_maxima(comparisons, jnp.where(counts, step, 0))

    def is_apart(label: Array) -> Array:
        """Rows between parts, not both of them determined by a prior."""
        held, noise = (jax.ops.segment_sum(x, label, size)[label] for x in (pull, squares))
        is_pinned = held > jnp.sqrt(noise)
        return counts & (label[first] != label[second]) & ~(is_pinned[first] & is_pinned[second])

    def join(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Each part joins the neighbour behind its best row, if that exceeds its noise."""
        is_joined, label, _ = state
        noise = jnp.sqrt(jax.ops.segment_sum(squares, label, size))
        own, other = label[first], label[second]
        across = jnp.where(own != other, gain, 0)
        best = jnp.zeros(size, dtype).at[own].max(across).at[other].max(across)
        # One row for each part: of equals the first.
        number, chosen = jnp.arange(len(comparisons)), jnp.full(size, len(comparisons))
        for part in (own, other):
            is_best = (across == best[part]) & (across > noise[part])
            chosen = chosen.at[part].min(jnp.where(is_best, number, number.size))
        is_new = jnp.zeros(number.size + 1, bool).at[chosen].set(True)[:-1]
        is_joined = is_joined | is_new
        return is_joined, connected_labels(comparisons, is_joined), jnp.any(is_new)

    whole = partition.at(first).spread(jnp.sqrt(partition.total(squares)))
    is_joined = gain > whole
    label = connected_labels(comparisons, is_joined)
    goes_on = jnp.any(is_apart(label))
    _, label, _ = lax.while_loop(lambda state: state[2], join, (is_joined, label, goes_on))
    return partition.at(first).largest(is_apart(label).astype(jnp.int32)) > 0


def _item_maxima(comparisons: Comparisons, rows: Array) -> Array:
    zero = jnp.zeros(comparisons.num_items, rows.dtype)
    return zero.at[comparisons.a].max(rows, **IN_RANGE).at[comparisons.b].max(rows, **IN_RANGE)
