"""The loss of a model on comparisons, its gradient and its Hessian, over the list of comparisons.

    L(θ) = Σ_a (θ_a − μ_a)²/(2σ_a²) + Σ_rows w (Φ(t) − r t),    t = θ_a − θ_b
    ∇L   = (θ − μ)/σ² + Bᵀ w (Φ'(t) − r)
    ∇²L  = diag(1/σ²) + Bᵀ diag(w Φ''(t)) B

with B the incidence matrix, (Bθ)_row = θ_a − θ_b. Nothing of the size items × items is formed
unless `dense_hessian` is asked for.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import ArrayLike, Float

from ._arrays import IN_RANGE, floating, gather
from ._comparisons import Comparisons
from ._model import Model
from ._partition import ONE, AbstractPartition

_LANES, _LANE_ROWS = 8, 512
# How much larger gradients may be beside their errors item by item than they are all together.
_UNEVEN = 0.5
_RUNS = 0.25  # of all rows that repeat an item of the row before: then order matters


def interleave_rows(model: Model, comparisons: Comparisons) -> tuple[Model, Comparisons]:
    """Permute rows so that consecutive scatter-adds hit different items.

    Tables are often sorted by an item. Consecutive rows of one item are added to the same entry,
    and each addition waits three times as long for the one before as it takes. So the eight parts
    of each block of rows are interleaved; the rest has too few rows to matter. Parameters of the
    law per comparison are permuted along with their rows.
    """
    block = _LANES * _LANE_ROWS
    whole = len(comparisons) // block * block

    def interleave(column: Array) -> Array:
        lanes = column[:whole].reshape(-1, _LANES, _LANE_ROWS)
        return column.at[:whole].set(jnp.swapaxes(lanes, 1, 2).reshape(-1))

    if not whole:
        return model, comparisons
    ends = comparisons.a, comparisons.b
    in_runs = [jnp.mean(end[1:] == end[:-1], dtype=jnp.float32) > _RUNS for end in ends]
    is_in_runs = in_runs[0] | in_runs[1]
    permuted = lax.cond(
        is_in_runs, lambda rows: jax.tree.map(interleave, rows), lambda rows: rows, comparisons
    )
    if model.law.num_rows is not None:
        number = jnp.arange(len(comparisons))
        model = model.at_rows(jnp.where(is_in_runs, interleave(number), number))
    return model, permuted


def negative_log_posterior(
    model: Model, comparisons: Comparisons, scores: ArrayLike
) -> Float[Array, ""]:
    """L(θ): the negative log-posterior of the scores, up to a constant.

    Each row of `comparisons` counts once, with its weight. Differentiable in every argument and
    jitted; `jax.vmap` it over stacked comparisons and scores for many users. `prior_std=inf`
    contributes nothing; without comparisons only the prior is left.
    """
    model.check_rows(len(comparisons))
    return _loss(model, comparisons, floating(scores))


def losses(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    partition: AbstractPartition = ONE,
) -> Array:
    """L(θ) of each problem."""
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    t = _differences(comparisons, scores)
    value, weight = _columns(comparisons, scores.dtype)
    prior = partition.total(precision * jnp.square(scores - mean))
    rows = weight * (model.law.cgf(t) - value * t)
    return 0.5 * prior + partition.at(comparisons.a).total(rows)


_loss = jax.jit(losses)


def gradient(model: Model, comparisons: Comparisons, scores: Array) -> Array:
    """∇L(θ)."""
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    residual = weight * (model.law.mean(_differences(comparisons, scores)) - value)
    return _add_differences(precision * (scores - mean), comparisons, residual)


class Evaluation(NamedTuple):
    """What one pass over the comparisons tells at a point.

    `size` measures the gradient in the norm √(gᵀ D⁻¹ g), D the diagonal of the Hessian: a bound,
    within the graph's conditioning, of the distance to the optimum in the metric of the curvature.
    Unlike ‖g‖ it gives each item its own scale, so that one item with a huge weight does not hide
    the others. With a partition, each problem has its own `norm` and `size`.
    """

    gradient: Array
    norm: Array  # ‖∇L‖₂
    size: Array
    curvature: Array  # w Φ''(t), one per comparison
    diagonal: Array
    sums: Array  # squares of the sums, added up one by one, that make up each gradient


def evaluate(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    partition: AbstractPartition = ONE,
) -> Evaluation:
    """Gradient and curvature together."""
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    t = _differences(comparisons, scores)
    slopes, curvature = weight * (model.law.mean(t) - value), weight * model.law.variance(t)
    pull = precision * (scores - mean)
    if _has_long_sums(comparisons, scores.dtype):
        sizes = item_sums(comparisons, jnp.abs(slopes))
        high, low, _ = exact_sums(comparisons, slopes, sizes, partition)
        gradient, sums = (pull + high) + low, jnp.zeros_like(pull)
    else:
        # Column by column: an array of pairs would be filled entry by entry, not by vectors.
        first, second = _scatter(comparisons, slopes)
        gradient, sums = pull + (first - second), jnp.square(first) + jnp.square(second)
    diagonal = precision + item_sums(comparisons, curvature)
    return Evaluation(
        gradient=gradient,
        norm=jnp.sqrt(partition.inner(gradient, gradient)),
        size=jnp.sqrt(partition.inner(gradient, gradient * _inverse(diagonal))),
        curvature=curvature,
        diagonal=diagonal,
        sums=sums,
    )


class Rounding(NamedTuple):
    """Of a gradient: in the norm of its `size`, and of each entry."""

    noise: Array
    errors: Array


def rounding(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    point: Evaluation,
    partition: AbstractPartition = ONE,
) -> Rounding:
    """The rounding errors of an evaluated gradient.

    It takes a pass of its own, nearly as long as the one for the gradient. Row by row, because sums
    of items cannot tell terms that are all of one size from few large ones.

    Errors of heavy items would hide the gradients of light ones in the norm of `size`. So `noise`
    is at most `size` over `_UNEVEN` times the root mean square of gradient/error over items.
    """
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    at_a, at_b = gather(scores, comparisons.a), gather(scores, comparisons.b)
    expected = model.law.mean(at_a - at_b)
    # Every term is rounded to a relative ε, and so is t = θ_a − θ_b, by ε times the scores.
    moved = jnp.abs(at_a) + jnp.abs(at_b)
    terms = weight * (jnp.abs(expected) + jnp.abs(value)) + point.curvature * moved
    squares = item_sums(comparisons, terms * terms)
    # A sum S of n terms of one size and sign, added one by one, is off by ε S √(n/36) or so, and
    # n = S²/Q with Q the sum of their squares. Sums that change sign on the way have a small S.
    # The ratio first: fourth powers of weights overflow long before their squares do.
    drift = point.sums * (point.sums / (36 * jnp.where(squares > 0, squares, 1)))
    pull = precision * (scores - mean)
    held = precision * jnp.abs(scores)  # the scores in the pull are rounded, too
    total = pull * pull + held * held + squares + drift
    eps, errors = float(jnp.finfo(scores.dtype).eps), jnp.sqrt(total)
    whole = eps * jnp.sqrt(partition.inner(total, _inverse(point.diagonal)))
    ratios = point.gradient * _inverse(errors)
    num_items = partition.total((errors > 0).astype(errors.dtype))
    ratio = jnp.sqrt(partition.inner(ratios, ratios) / jnp.maximum(num_items, 1))
    even = eps * point.size / jnp.where(ratio > 0, _UNEVEN * ratio, 1)
    return Rounding(jnp.where(ratio > 0, jnp.minimum(whole, even), whole), eps * errors)


def _inverse(diagonal: Array) -> Array:
    """0 for 0: what no prior and no comparison holds has no gradient either."""
    return jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)


def hessian_product(
    model: Model, comparisons: Comparisons, curvature: Array, direction: Array
) -> Array:
    """∇²L · direction."""
    _, precision = model.prior(comparisons.num_items, direction.dtype)
    slopes = curvature * _differences(comparisons, direction)
    return _add_differences(precision * direction, comparisons, slopes)


@jax.jit
def row_derivatives(model: Model, comparisons: Comparisons, scores: Array) -> tuple[Array, Array]:
    """(w (Φ'(t) − r), w Φ''(t)) of every comparison: its derivatives in t."""
    t, (value, weight) = _differences(comparisons, scores), _columns(comparisons, scores.dtype)
    return weight * (model.law.mean(t) - value), weight * model.law.variance(t)


def dense_hessian(comparisons: Comparisons, point: Evaluation) -> Array:
    """∇²L as a matrix, at an evaluated point."""
    return hessian_matrix(comparisons, point.curvature, point.diagonal)


def hessian_matrix(comparisons: Comparisons, curvature: Array, diagonal: Array) -> Array:
    """∇²L as a matrix, from w Φ''(t) of each comparison and its diagonal."""
    size = comparisons.num_items
    matrix = jnp.zeros((size, size), curvature.dtype)
    half = matrix.at[comparisons.a, comparisons.b].add(-curvature)
    return half + half.T + jnp.diag(diagonal)


def _differences(comparisons: Comparisons, scores: Array) -> Array:
    """B θ."""
    return gather(scores, comparisons.a) - gather(scores, comparisons.b)


def _has_long_sums(comparisons: Comparisons, dtype) -> bool:
    """Whether items have so many rows that rounding of their sums would exceed that of the rows."""
    most = 64 if jnp.finfo(dtype).bits < 64 else 4096
    return len(comparisons) > most * comparisons.num_items


def exact_sums(
    comparisons: Comparisons, rows: Array, sizes: Array, partition: AbstractPartition
) -> tuple[Array, Array, Array]:
    """Bᵀ rows in two parts, of which the first has no rounding errors in any order of rows.

    Each row is split into a multiple of ε A and a rest, where the anchor A, a power of two, is
    above all `sizes`, which are at least Σ |rows| of each item. Returns (sums of the multiples,
    sums of the rests, A of each problem).
    """
    exponent = jnp.frexp(partition.largest(sizes))[1]
    anchor = jnp.ldexp(jnp.ones((), rows.dtype), exponent + 1)
    at_rows = partition.at(comparisons.a).spread(anchor)
    high = (rows + at_rows) - at_rows
    zero = jnp.zeros(comparisons.num_items, rows.dtype)
    low = _add_differences(zero, comparisons, rows - high)
    return _add_differences(zero, comparisons, high), low, anchor


def item_sums(comparisons: Comparisons, rows: Array) -> Array:
    """For each item the sum of its rows."""
    zero = jnp.zeros(comparisons.num_items, rows.dtype)
    added = zero.at[comparisons.a].add(rows, **IN_RANGE)
    return added.at[comparisons.b].add(rows, **IN_RANGE)


def _add_differences(entries: Array, comparisons: Comparisons, rows: Array) -> Array:
    """entries + Bᵀ rows."""
    added = entries.at[comparisons.a].add(rows, **IN_RANGE)
    return added.at[comparisons.b].subtract(rows, **IN_RANGE)


def _scatter(comparisons: Comparisons, rows: Array) -> tuple[Array, Array]:
    """For each item the sum of the rows in which it stands first, and of those where second."""
    n = comparisons.num_items
    first = jax.ops.segment_sum(rows, comparisons.a, n)
    return first, jax.ops.segment_sum(rows, comparisons.b, n)


def _columns(comparisons: Comparisons, dtype) -> tuple[Array, Array]:
    return comparisons.value.astype(dtype), comparisons.weight.astype(dtype)
