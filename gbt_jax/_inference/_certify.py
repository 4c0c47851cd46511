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

# Of Φ', in units of ε: `benchmarks/law_accuracy.py` finds at most 4 for the laws of this package,
# and rounding a law's parameters adds at most 2.
_LAW_ERROR = 6.0
# The root mean square of g/ρ that counts as zero, for items with few rows. A solver that adds up n
# terms of one sign one by one is off by ε √(n/12) of their sum, while ρ is at least 6 ε of it: more
# than that from n = 256 or so.
_ZERO, _LONG = 8.0, 256.0
# A certified distance below this power of ε, relative to ‖θ − μ‖, is success as well. It decides
# where items have weights of very different sizes.
_DISTANCE = 0.4
# How far a score difference may be off, relative to its size and the law's own scale, where nothing
# but rounding determines it; and how many standard deviations of rounding that must exceed.
_RESOLUTION, _DEVIATIONS = 0.01, 4.0
# A gradient beyond its rounding errors must be smaller than that by this power of ε.
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
    *,
    is_quick: bool = False,
) -> Certificate:
    """Recompute the gradient, bound its rounding errors, and say what they prove.

    Where no prior determines the scores, most problems are certified row by row; the others take a
    look at parts of the graph (`_is_known`), which doubles the time to compile. `is_quick` leaves
    it out: these problems are then not certified.
    """
    # In units of the largest weight of each problem: squares of tiny gradients would be 0.
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
    # The norms are sums of so many rounded squares.
    distance = (norm + error_norm) * (1 + eps * (num_items + 8))
    variance = prior_variance(model, comparisons, scores.dtype, partition)
    bound = (variance * unit) * distance
    # Where that underflows there is still a distance; without a prior there is no bound.
    bound = jnp.maximum(bound, jnp.where(distance > 0, float(jnp.finfo(scores.dtype).tiny), 0))
    bound = jnp.where(jnp.isinf(variance), jnp.inf, bound)
    is_certified = _is_zero(comparisons, gradient, errors, row_errors > 0, partition)
    if isinstance(gauge, ComponentGauge):
        sums = _Sums(gradient, errors, precision, pull_error)
        is_weak = partition.largest(gauge.is_weak.astype(jnp.int32)) > 0
        is_plain = is_certified & _is_every_row_known(model, comparisons, rows, sums, partition)
        if is_quick:
            is_weakly_certified = is_plain
        else:
            is_weakly_certified = lax.cond(
                jnp.all(is_plain | ~is_weak),
                lambda: is_plain,
                lambda: _is_known(model, comparisons, scores, sums, is_certified, partition),
            )
        is_certified = jnp.where(is_weak, is_weakly_certified, is_certified)
    moved = _norm(scores - mean, partition)
    is_certified |= (bound < eps**_DISTANCE * moved) & jnp.isfinite(bound)
    is_finite = jnp.isfinite(norm) & jnp.isfinite(error_norm)
    return Certificate(norm * unit, bound, is_certified & is_finite)


def _norm(x: Array, partition: AbstractPartition) -> Array:
    """‖x‖₂ of each problem; squares of very large or small entries do not overflow or vanish."""
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
    """Whether the gradient of each problem is zero as far as arithmetic can tell.

    Item by item on the scale of its own errors: an item of little weight counts as much as others.
    """
    # Beside a weight of 1 a solver cannot see less: the square underflows.
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
    """Of the sums of the n rests that `exact_sums` leaves: n ε Σ |rest|.

    A rest is at most ε A, and at most the slope itself, whose sum is below `row_errors`/ε.
    """
    eps = float(jnp.finfo(slopes.dtype).eps)
    if eps * len(comparisons) < 1e-9:  # all rows of a problem, more than an item has, are few
        counted = (comparisons.weight > 0).astype(slopes.dtype)
        count = partition.spread(partition.at(comparisons.a).total(counted))
    else:
        count = item_sums(comparisons, (slopes != 0).astype(slopes.dtype))
    return count * jnp.minimum(count * eps**2 * partition.spread(anchor), row_errors)


class _Sums(NamedTuple):
    """What `certify` knows of the sums over each item's rows."""

    gradient: Array
    errors: Array  # of rounding, at most
    precision: Array
    pull_errors: Array  # of what the prior says, alone

    @property
    def left(self) -> Array:
        """The gradient, with what exceeds its rounding errors many times over."""
        size, eps = jnp.abs(self.gradient), float(jnp.finfo(self.gradient.dtype).eps)
        return size + jnp.maximum(size - self.errors, 0) / eps**_LEFT


def _law_scale(model: Model, rows: _Rows) -> Array:
    """1/√Φ''(0): of one number where all rows have the same law."""
    middle = jnp.zeros_like(rows.t if model.law.num_rows is not None else rows.t[:1])
    return lax.rsqrt(model.law.variance(middle))


def _is_every_row_known(
    model: Model,
    comparisons: Comparisons,
    rows: _Rows,
    sums: _Sums,
    partition: AbstractPartition,
) -> Array:
    """Whether each row alone determines the difference of its items against all noise.

    That is so in most problems, and one pass over the curvatures shows it: `gain` from below and
    `whole` from above (`_is_known`), since ‖e‖₂ ≤ Σ e, which the sum of `errors` holds twice.
    """
    gains = _RESOLUTION * _law_scale(model, rows) * rows.curvature
    inverse = jnp.where(comparisons.weight > 0, 1 / gains, 0)
    noise = partition.total(_DEVIATIONS * sums.errors + sums.left)
    return partition.at(comparisons.a).largest(inverse) * noise < 1


def _is_known(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    sums: _Sums,
    is_zero: Array,
    partition: AbstractPartition,
) -> Array:
    """The verdict where no prior, or a weak one, determines how parts of the graph lie.

    The sum of the gradients of a part is its one equation. It determines the part against a
    neighbour if moving the rows between them by `_RESOLUTION` changes the sum by more than rounding
    does, and by more than is left of the gradient (many times that, beyond its rounding errors).
    The two are one part from then on. Parts that end without such a row, or a prior that determines
    them likewise, are undetermined if any row joins them to others. Without a finite optimum the
    rows between two parts have lost their curvature, so that they are seen here as well.

    Where all parts are determined, the gradient may be zero in the metric of the Hessian's diagonal
    only: an item of little weight is then known to fewer digits than its own rows would allow, but
    its own Newton step is at most √ε of the resolution.
    """
    # Again, because a branch that captured these columns would have them copied every time.
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
    # Coarser where the scores themselves are, as long as it says something.
    spacing = 64 * eps ** (1 - _LEFT) * rows.reach
    step = jnp.minimum(_RESOLUTION * scale + spacing, 10 * _RESOLUTION * scale)
    gain = jnp.where(counts, rows.curvature * step, 0)
    # Rounding errors of rows are independent of each other.
    squares = _DEVIATIONS**2 * jnp.square(rows.error)
    by_problem = partition.at(comparisons.a)
    pull_squares = _DEVIATIONS**2 * jnp.square(sums.pull_errors)
    noise = 2 * by_problem.total(squares) + partition.total(pull_squares)
    whole = jnp.sqrt(noise) + partition.total(sums.left)
    is_joined = gain > by_problem.spread(whole)

    def has_undetermined_parts() -> Array:
        pull = sums.precision * item_maxima(comparisons, jnp.where(counts, step, 0))
        of_items = item_sums(comparisons, squares) + pull_squares
        parts = _Parts(comparisons, gain, pull, of_items, sums.left)
        return by_problem.largest(parts.undetermined_rows(is_joined).astype(jnp.int32)) > 0

    nothing = jnp.zeros(partition.shape, bool)
    is_one_part = jnp.all(is_joined | ~counts)
    return is_small & ~lax.cond(is_one_part, lambda: nothing, has_undetermined_parts)


class _Parts(NamedTuple):
    """Parts of the graph that rounding cannot separate: one equation each."""

    comparisons: Comparisons
    gain: Array  # by how much the resolution of a row changes the equations at its ends
    pull: Array  # and how much the resolution of an item changes what the prior says
    squares: Array  # of the rounding errors of an item's rows and prior
    left: Array  # of an item's gradient

    def undetermined_rows(self, is_joined: Array) -> Array:
        """Rows between parts, not both of them determined by a prior, when no parts join."""
        label = connected_labels(self.comparisons, is_joined)
        state = is_joined, label, jnp.any(self._is_apart(label))
        _, label, _ = lax.while_loop(lambda state: state[2], self._join, state)
        return self._is_apart(label)

    def _is_apart(self, label: Array) -> Array:
        rows, size = self.comparisons, self.comparisons.num_items
        columns = jnp.stack([self.pull, self.squares, self.left], axis=-1)
        held, noise, remains = jax.ops.segment_sum(columns, label, size)[label].T
        is_pinned = (held > _root(noise)) & (held > remains)
        is_between = (rows.weight > 0) & (label[rows.a] != label[rows.b])
        return is_between & ~(is_pinned[rows.a] & is_pinned[rows.b])

    def _join(self, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """Each part joins the neighbour behind its best row, if its equation tells the two apart.

        All rows to that neighbour must exceed the rounding, and all that leave the part what is
        left.
        """
        is_joined, label, _ = state
        rows, size = self.comparisons, self.comparisons.num_items
        columns = jnp.stack([self.squares, self.left], axis=-1)
        squares, remains = jax.ops.segment_sum(columns, label, size).T
        sides = ((label[rows.a], label[rows.b]), (label[rows.b], label[rows.a]))
        across = jnp.where(label[rows.a] != label[rows.b], self.gain, 0)
        # One row for each part: of equals the first.
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
        is_told_apart = (to_neighbour > _root(squares)) & (total > remains)
        is_new = jnp.zeros(none + 1, bool).at[jnp.where(is_told_apart, chosen, none)].set(True)[:-1]
        is_joined = is_joined | is_new
        return is_joined, connected_labels(rows, is_joined), jnp.any(is_new)


def _root(squares: Array) -> Array:
    """√; squares that have underflowed are as large as the smallest number that does not."""
    return jnp.sqrt(jnp.maximum(squares, float(jnp.finfo(squares.dtype).tiny)))
