"""The certificate of scores: the gradient, a bound of its rounding errors, and an error bound.

It is computed from the rows as given, independently of the solver. Row i adds s_i = w (Φ'(t) − r),
t = θ_a − θ_b, to the gradient at a, and subtracts it at b. With ε the spacing of floats at 1, the
rounding error of s_i is at most

    e_i = ε w (C |Φ'(t)| + |Φ'(t) − r| + Φ''(t) (|t| + |θ_a| + |θ_b|)),

where C ε bounds the relative error of Φ' (including the rounding of the law's parameters),
Φ''(t) |t| is the effect of rounding t, and Φ''(t)(|θ_a| + |θ_b|) that of rounding the scores: no
scores of this precision have a smaller gradient. The sums over an item's rows are split as
s_i = h_i + l_i, h_i a multiple of ε A with A above every item's Σ|s|: sums of h are exact in any
order, and those of l are smaller by ε. So the error of the gradient is little more than ρ = Σ e_i.

- `error_bound`: L is 1/σ²-strongly convex, so ‖θ − θ*‖₂ ≤ σ² (‖g‖ + ‖ρ‖), for the largest σ.
- `is_certified`: g is zero up to rounding, or the error bound is far below the scores; and where
  no prior determines the scores (`_gauge`), rounding leaves no part of the graph undetermined
  relative to the rest.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from .._data._comparisons import Comparisons
from .._data._graph import connected_labels
from .._data._incidence import item_maxima, item_sums
from .._data._partition import ONE, AbstractPartition
from .._model import Model, per_item
from .._util._arrays import gather
from ._gauge import AbstractGauge, ComponentGauge
from ._objective import exact_sums

# Relative error of Φ' in units of ε: `benchmarks/law_accuracy.py` measures at most 4 for the laws
# of this package, and rounding a law's parameters adds at most 2.
_LAW_ERROR = 6.0
# The root mean square of g/ρ that counts as zero, for items with few rows. Sequential summation of
# n terms of one sign has an error of ε √(n/12) times their sum, while ρ is at least 6 ε times it:
# larger than that from about n = 256.
_ZERO, _LONG = 8.0, 256.0
# An error bound below this power of ε, relative to ‖θ − μ‖, is success as well. It is decisive if
# weights of items have very different sizes.
_DISTANCE = 0.4
# The largest error of a score difference, relative to its size and the law's scale, that counts as
# determined, and the number of standard deviations of rounding that it must exceed.
_RESOLUTION, _DEVIATIONS = 0.01, 4.0
# The part of a gradient beyond its rounding errors is divided by this power of ε.
_EXCESS_POWER = 0.25


class Certificate(NamedTuple):
    """The certificate of scores, for each problem."""

    gradient_norm: Array  # ‖∇L‖₂
    error_bound: Array  # ≥ ‖θ − θ*‖₂; inf without a prior
    is_certified: Array


class _Rows(NamedTuple):
    slope: Array  # w (Φ' − r)
    error: Array  # a bound of its rounding error
    curvature: Array  # w Φ''
    t: Array
    reach: Array  # |θ_a| + |θ_b|


def certify(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    gauge: AbstractGauge,
    partition: AbstractPartition = ONE,
    *,
    is_quick: bool = False,
) -> Certificate:
    """Recompute the gradient, bound its rounding errors, and certify the scores.

    Where no prior determines the scores, most problems are certified row by row. The others need an
    analysis of parts of the graph (`_is_determined`), which doubles the time to compile. `is_quick`
    skips it: these problems are then not certified.
    """
    # In units of the largest weight of each problem, so that squares of gradients do not underflow.
    heaviest = partition.at(comparisons.a).largest(comparisons.weight.astype(scores.dtype))
    unit = jnp.ldexp(jnp.ones((), scores.dtype), jnp.frexp(heaviest)[1])
    weight = comparisons.weight.astype(scores.dtype) / partition.at(comparisons.a).spread(unit)
    comparisons = eqx.tree_at(lambda rows: rows.weight, comparisons, weight)
    rows = _evaluate(model, comparisons, scores)
    mean, precision = model.prior(comparisons, scores.dtype)
    precision = precision / partition.spread(unit)
    pull, eps = precision * (scores - mean), float(jnp.finfo(scores.dtype).eps)
    row_errors = item_sums(comparisons, rows.error)
    largest = partition.largest(row_errors) / eps  # at least Σ |slopes| of any item
    high, low, anchor = exact_sums(comparisons, rows.slope, largest, partition)
    gradient = (pull + high) + low
    # 1/σ², the difference, the product and the two sums above are rounded too.
    pull_error = eps * (6 * jnp.abs(pull) + precision * (jnp.abs(scores) + jnp.abs(mean)))
    errors = row_errors + pull_error + 2 * eps * (jnp.abs(high) + jnp.abs(low))
    errors += _low_error(comparisons, rows.slope, row_errors, anchor, partition)
    norm, error_norm = (_norm(x, partition) for x in (gradient, errors))
    num_items = partition.total(jnp.ones_like(scores))
    # The norms are sums of `num_items` rounded squares.
    distance = (norm + error_norm) * (1 + eps * (num_items + 8))
    variance = prior_variance(model, comparisons, scores.dtype, partition)
    bound = (variance * unit) * distance
    # An underflow must not give a bound of 0; without a prior there is no bound.
    bound = jnp.maximum(bound, jnp.where(distance > 0, float(jnp.finfo(scores.dtype).tiny), 0))
    bound = jnp.where(jnp.isinf(variance), jnp.inf, bound)
    is_certified = _is_zero(comparisons, gradient, errors, row_errors > 0, partition)
    if isinstance(gauge, ComponentGauge):
        sums = _Sums(gradient, errors, precision, pull_error)
        is_weak = partition.largest(gauge.is_weak.astype(jnp.int32)) > 0
        is_plain = is_certified & _is_every_row_determined(
            model, comparisons, rows, sums, partition
        )
        if is_quick:
            is_weakly_certified = is_plain
        else:
            is_weakly_certified = lax.cond(
                jnp.all(is_plain | ~is_weak),
                lambda: is_plain,
                lambda: _is_determined(model, comparisons, scores, sums, is_certified, partition),
            )
        is_certified = jnp.where(is_weak, is_weakly_certified, is_certified)
    moved = _norm(scores - mean, partition)
    is_certified |= (bound < eps**_DISTANCE * moved) & jnp.isfinite(bound)
    is_finite = jnp.isfinite(norm) & jnp.isfinite(error_norm)
    return Certificate(norm * unit, bound, is_certified & is_finite)


def _norm(x: Array, partition: AbstractPartition) -> Array:
    """‖x‖₂ of each problem, without overflow or underflow of squares."""
    largest = partition.largest(jnp.abs(x))
    safe = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
    scaled = x / partition.spread(safe)
    return safe * jnp.sqrt(partition.inner(scaled, scaled))


def _is_zero(
    comparisons: Comparisons,
    gradient: Array,
    errors: Array,
    is_compared: Array,
    partition: AbstractPartition,
) -> Array:
    """Whether the gradient of each problem is zero up to rounding.

    Each item's gradient is scaled by its own errors, so that items of small weight count fully.
    """
    # Relative to a weight of 1 a solver cannot resolve less: the square underflows.
    least = float(jnp.finfo(errors.dtype).tiny) ** 0.5
    ratio = gradient / jnp.maximum(errors, least)
    num_items = jnp.maximum(partition.total(is_compared.astype(errors.dtype)), 1)
    num_rows = partition.at(comparisons.a).total((comparisons.weight > 0).astype(errors.dtype))
    # The mean over items of n is 2 rows/items.
    return partition.inner(ratio, ratio) <= _ZERO**2 * (num_items + 2 * num_rows / _LONG)


def prior_variance(
    model: Model, comparisons: Comparisons, dtype, partition: AbstractPartition = ONE
) -> Array:
    """The largest σ² of each problem; inf without a prior."""
    variance = jnp.square(model.prior_std.astype(dtype))
    if variance.ndim:
        variance = partition.largest(per_item(variance, comparisons))
    return variance


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


def _low_error(
    comparisons: Comparisons,
    slopes: Array,
    row_errors: Array,
    anchor: Array,
    partition: AbstractPartition,
) -> Array:
    """The rounding error of the sums of n remainders from `exact_sums`: n ε Σ |remainder|.

    A remainder is at most ε A, and at most the slope, whose sum is below `row_errors`/ε.
    """
    eps = float(jnp.finfo(slopes.dtype).eps)
    if eps * len(comparisons) < 1e-9:  # the rows of a problem bound those of an item, and are few
        counted = (comparisons.weight > 0).astype(slopes.dtype)
        count = partition.spread(partition.at(comparisons.a).total(counted))
    else:
        count = item_sums(comparisons, (slopes != 0).astype(slopes.dtype))
    return count * jnp.minimum(count * eps**2 * partition.spread(anchor), row_errors)


class _Sums(NamedTuple):
    """Sums over each item's rows, with bounds of their rounding errors."""

    gradient: Array
    errors: Array  # bounds of rounding errors
    precision: Array
    pull_errors: Array  # bounds of those of the prior's part

    @property
    def residual(self) -> Array:
        """|gradient|, with the part beyond its rounding errors amplified."""
        size, eps = jnp.abs(self.gradient), float(jnp.finfo(self.gradient.dtype).eps)
        return size + jnp.maximum(size - self.errors, 0) / eps**_EXCESS_POWER


def _law_scale(model: Model, rows: _Rows) -> Array:
    """1/√Φ''(0): one number if all rows have the same law."""
    middle = jnp.zeros_like(rows.t if model.law.num_rows is not None else rows.t[:1])
    return lax.rsqrt(model.law.variance(middle))


def _is_every_row_determined(
    model: Model,
    comparisons: Comparisons,
    rows: _Rows,
    sums: _Sums,
    partition: AbstractPartition,
) -> Array:
    """Whether each row alone determines the difference of its items above all noise.

    That holds for most problems. One pass over the curvatures verifies it, by a lower bound of
    `gain` and an upper bound of `whole` (`_is_determined`): ‖e‖₂ ≤ Σ e, and the sum of `errors`
    contains Σ e twice.
    """
    gains = _RESOLUTION * _law_scale(model, rows) * rows.curvature
    inverse = jnp.where(comparisons.weight > 0, 1 / gains, 0)
    noise = partition.total(_DEVIATIONS * sums.errors + sums.residual)
    return partition.at(comparisons.a).largest(inverse) * noise < 1


def _is_determined(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    sums: _Sums,
    is_zero: Array,
    partition: AbstractPartition,
) -> Array:
    """Whether the scores are certified if the prior of a component is weak or missing.

    Each part of the graph has one equation: the sum of its gradients. It determines the part
    relative to a neighbour if moving the rows between them by `_RESOLUTION` changes the sum by more
    than rounding does, and by more than `residual`. The two parts are then merged. A remaining part
    that is determined neither by such a row nor by a prior is undetermined if any row connects it
    to others. Without a finite optimum the rows between two parts lose their curvature, which is
    detected here as well.

    If all parts are determined, it is enough that the gradient is zero in the metric of the
    Hessian's diagonal: the score of an item of small weight then has fewer digits than its own rows
    allow, but its Newton step is at most √ε of the resolution.
    """
    # Evaluated again, because XLA would copy columns that the branch captures.
    rows, counts = _evaluate(model, comparisons, scores), comparisons.weight > 0
    eps = float(jnp.finfo(scores.dtype).eps)
    scale = _law_scale(model, rows) + jnp.abs(rows.t)
    diagonal = sums.precision + item_sums(comparisons, rows.curvature)
    weights = jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)
    sizes = (partition.inner(x, x * weights) for x in (sums.gradient, sums.errors))
    reach = _RESOLUTION * item_maxima(comparisons, jnp.where(counts, scale, 0))
    is_far = jnp.abs(sums.gradient) > jnp.maximum(_ZERO * sums.errors, eps**0.5 * reach * diagonal)
    is_near = jnp.less_equal(*sizes) & (partition.largest(is_far.astype(jnp.int32)) == 0)
    is_small = is_zero | is_near
    # The resolution is coarser where the spacing of scores is, up to a limit.
    spacing = 64 * eps ** (1 - _EXCESS_POWER) * rows.reach
    step = jnp.minimum(_RESOLUTION * scale + spacing, 10 * _RESOLUTION * scale)
    gain = jnp.where(counts, rows.curvature * step, 0)
    # Rounding errors of rows are independent of each other.
    squares = _DEVIATIONS**2 * jnp.square(rows.error)
    by_problem = partition.at(comparisons.a)
    pull_squares = _DEVIATIONS**2 * jnp.square(sums.pull_errors)
    noise = 2 * by_problem.total(squares) + partition.total(pull_squares)
    whole = jnp.sqrt(noise) + partition.total(sums.residual)
    is_joined = gain > by_problem.spread(whole)

    def has_undetermined_parts() -> Array:
        pull = sums.precision * item_maxima(comparisons, jnp.where(counts, step, 0))
        item_squares = item_sums(comparisons, squares) + pull_squares
        parts = _Parts(comparisons, gain, pull, item_squares, sums.residual)
        return by_problem.largest(parts.undetermined_rows(is_joined).astype(jnp.int32)) > 0

    nothing = jnp.zeros(partition.shape, bool)
    is_one_part = jnp.all(is_joined | ~counts)
    return is_small & ~lax.cond(is_one_part, lambda: nothing, has_undetermined_parts)


class _Parts(NamedTuple):
    """Parts of the graph, with one equation each."""

    comparisons: Comparisons
    gain: Array  # the change of the equations at a row's ends by its resolution
    pull: Array  # the change of the prior's part by an item's resolution
    squares: Array  # of the rounding errors of an item's rows and prior
    residual: Array  # of an item's gradient

    def undetermined_rows(self, is_joined: Array) -> Array:
        """Rows between the final parts, unless a prior determines both of their parts."""
        label = connected_labels(self.comparisons, is_joined)
        state = is_joined, label, jnp.any(self._rows_between_parts(label))
        _, label, _ = lax.while_loop(lambda state: state[2], self._join, state)
        return self._rows_between_parts(label)

    def _rows_between_parts(self, label: Array) -> Array:
        rows, size = self.comparisons, self.comparisons.num_items
        columns = jnp.stack([self.pull, self.squares, self.residual], axis=-1)
        prior, noise, residual = jax.ops.segment_sum(columns, label, size)[label].T
        is_pinned = (prior > _root(noise)) & (prior > residual)
        is_between = (rows.weight > 0) & (label[rows.a] != label[rows.b])
        return is_between & ~(is_pinned[rows.a] & is_pinned[rows.b])

    def _join(self, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Merge each part with the neighbour of its best row, if its equation separates the two.

        The gain of all rows to that neighbour must exceed the rounding, and the gain of all rows
        that leave the part must exceed the residual.
        """
        is_joined, label, _ = state
        rows, size = self.comparisons, self.comparisons.num_items
        columns = jnp.stack([self.squares, self.residual], axis=-1)
        squares, residual = jax.ops.segment_sum(columns, label, size).T
        sides = ((label[rows.a], label[rows.b]), (label[rows.b], label[rows.a]))
        across = jnp.where(label[rows.a] != label[rows.b], self.gain, 0)
        # One row for each part: the first of equal ones.
        number, none = jnp.arange(len(rows)), len(rows)
        best = jnp.zeros(size, across.dtype)
        for part, _ in sides:
            best = best.at[part].max(across)
        chosen = jnp.full(size, none)
        for part, _ in sides:
            is_best = (across > 0) & (across == best[part])
            chosen = chosen.at[part].min(jnp.where(is_best, number, none))
        neighbour = jnp.full(size, -1, label.dtype)
        for part, other in sides:
            neighbour = neighbour.at[part].max(jnp.where(number == chosen[part], other, -1))
        zero = jnp.zeros(size, across.dtype)
        total, to_neighbour = zero, zero
        for part, other in sides:
            total = total.at[part].add(across)
            to_neighbour = to_neighbour.at[part].add(jnp.where(other == neighbour[part], across, 0))
        is_separated = (to_neighbour > _root(squares)) & (total > residual)
        is_new = jnp.zeros(none + 1, bool).at[jnp.where(is_separated, chosen, none)].set(True)[:-1]
        is_joined = is_joined | is_new
        return is_joined, connected_labels(rows, is_joined), jnp.any(is_new)


def _root(squares: Array) -> Array:
    """√squares; squares that underflow are replaced by the smallest normal number."""
    return jnp.sqrt(jnp.maximum(squares, float(jnp.finfo(squares.dtype).tiny)))
