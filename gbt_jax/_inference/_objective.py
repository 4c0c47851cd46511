"""The loss of a model on comparisons, its gradient and its Hessian.

    L(θ) = Σ_a (θ_a − μ_a)²/(2σ_a²) + Σ_rows w (Φ(t) − r t),    t = θ_a − θ_b
    ∇L   = (θ − μ)/σ² + Bᵀ w (Φ'(t) − r)
    ∇²L  = diag(1/σ²) + Bᵀ diag(w Φ''(t)) B

with B the incidence matrix, (Bθ)_row = θ_a − θ_b. Only `dense_hessian` forms a matrix
of items × items.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from .._data._comparisons import Comparisons
from .._data._incidence import (
    differences,
    item_sums,
    transpose,
    weighted_matrix,
    weighted_product,
)
from .._data._partition import ONE, AbstractPartition, One
from .._model import Model
from .._util._arrays import ArrayLike, floating, gather

# Lower bound of `size`/`noise`, relative to the root mean square of gradient/error (`refine`).
_UNEVEN = 0.5


def negative_log_posterior(
    model: Model, comparisons: Comparisons, scores: ArrayLike
) -> Float[Array, ""]:
    """L(θ): the negative log-posterior of the scores, up to a constant.

    It is jitted, and differentiable in every argument; `jax.vmap` it over stacked comparisons and
    scores for many data sets.

    **Arguments:**

    - `model`: the model; `prior_std=inf` contributes nothing.
    - `comparisons`: the data; each row counts once, with its weight.
    - `scores`: θ, one per item.

    **Returns:** the loss. Without comparisons it is that of the prior.
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
    mean, precision = model.prior(comparisons, scores.dtype)
    t = differences(comparisons, scores)
    value, weight = _columns(comparisons, scores.dtype)
    prior = partition.total(precision * jnp.square(scores - mean))
    rows = weight * (model.law.cgf(t) - value * t)
    return 0.5 * prior + partition.at(comparisons.a).total(rows)


_loss = jax.jit(losses)


def gradient(model: Model, comparisons: Comparisons, scores: Array) -> Array:
    """∇L(θ)."""
    mean, precision = model.prior(comparisons, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    residual = weight * (model.law.mean(differences(comparisons, scores)) - value)
    return transpose(comparisons, residual, precision * (scores - mean))


class Evaluation(NamedTuple):
    """Gradient and curvature at a point, from one pass over the comparisons.

    `size` measures the gradient in the norm √(gᵀ D⁻¹ g), D the diagonal of the Hessian: a bound, up
    to the graph's conditioning, of the distance to the optimum in the metric of the curvature.
    Unlike ‖g‖ it scales each item separately, so that an item with a huge weight does not mask the
    others. With a partition, each problem has its own `norm` and `size`.
    """

    gradient: Array
    norm: Array  # ‖∇L‖₂
    size: Array
    curvature: Array  # w Φ''(t), one per comparison
    diagonal: Array


def evaluate(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    partition: AbstractPartition = ONE,
) -> Evaluation:
    """Evaluate gradient and curvature."""
    mean, precision = model.prior(comparisons, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    t = differences(comparisons, scores)
    slopes, curvature = weight * (model.law.mean(t) - value), weight * model.law.variance(t)
    gradient = transpose(comparisons, slopes, precision * (scores - mean))
    diagonal = precision + item_sums(comparisons, curvature)
    return Evaluation(
        gradient=gradient,
        norm=jnp.sqrt(partition.inner(gradient, gradient)),
        size=_size(gradient, diagonal, partition),
        curvature=curvature,
        diagonal=diagonal,
    )


class Refinement(NamedTuple):
    """A gradient without rounding errors of its sums, and the rounding errors of its rows.

    Sequential sums lose light rows next to heavy ones, and accumulate errors over many rows. Errors
    of the rows remain; they cancel in the sum over the two items of a row, so that they do not
    affect the common level of its component.
    """

    gradient: Array
    norm: Array
    size: Array
    noise: Array  # rounding errors in the norm of `size`


def refine(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    point: Evaluation,
    partition: AbstractPartition = ONE,
) -> Refinement:
    """The gradient with exact sums, and its rounding errors.

    It takes a separate pass, somewhat longer than that of `evaluate`, needed near the optimum only.

    Errors of heavy items would mask the gradients of light ones in the norm of `size`. So `noise`
    is at most `size` over `_UNEVEN` times the root mean square of gradient/error over items.
    """
    mean, precision = model.prior(comparisons, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    at_a, at_b = gather(scores, comparisons.a), gather(scores, comparisons.b)
    expected = model.law.mean(at_a - at_b)
    slopes = weight * (expected - value)
    # Every term is rounded to a relative ε, and so is t = θ_a − θ_b, by ε times the scores.
    moved = jnp.abs(at_a) + jnp.abs(at_b)
    terms = weight * (jnp.abs(expected) + jnp.abs(value)) + point.curvature * moved
    bound = partition.at(comparisons.a).total(jnp.abs(slopes))
    high, low, _ = exact_sums(comparisons, slopes, bound, partition)
    pull = precision * (scores - mean)
    pull_error = precision * jnp.abs(scores)  # the scores in the pull are rounded, too
    row_squares = item_sums(comparisons, terms * terms)
    squares = pull * pull + pull_error * pull_error + row_squares
    gradient, inverse = (pull + high) + low, _inverse(point.diagonal)
    size = _size(gradient, point.diagonal, partition)
    ratios = gradient * _inverse(jnp.sqrt(squares))
    num_items = partition.total((row_squares > 0).astype(squares.dtype))  # with comparisons
    ratio = jnp.sqrt(partition.inner(ratios, ratios) / jnp.maximum(num_items, 1))
    whole = jnp.sqrt(partition.inner(squares, inverse))
    even = size / jnp.where(ratio > 0, _UNEVEN * ratio, 1)
    eps = float(jnp.finfo(scores.dtype).eps)
    return Refinement(
        gradient=gradient,
        norm=jnp.sqrt(partition.inner(gradient, gradient)),
        size=size,
        noise=eps * jnp.where(ratio > 0, jnp.minimum(whole, even), whole),
    )


def _size(gradient: Array, diagonal: Array, partition: AbstractPartition) -> Array:
    """√(gᵀ D⁻¹ g), at most the largest float.

    If the curvature of all rows of an item underflows by saturation, its gradient is not small.
    Omitting it would accept steps that are far too long.
    """
    info = jnp.finfo(diagonal.dtype)
    inverse = jnp.where(gradient == 0, 0, 1 / jnp.maximum(diagonal, float(info.tiny)))
    return jnp.minimum(jnp.sqrt(partition.inner(gradient, gradient * inverse)), float(info.max))


def _inverse(diagonal: Array) -> Array:
    """1/D, with 0 where D is 0."""
    return jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)


def hessian_product(
    model: Model,
    comparisons: Comparisons,
    curvature: Array,
    direction: Array,
    *,
    partition: AbstractPartition = ONE,
    num_used: Array | None = None,
) -> Array:
    """∇²L · direction; rows from `num_used` on have weight 0."""
    _, precision = model.prior(comparisons, direction.dtype)
    # The bits of a problem must not depend on its position among others.
    return weighted_product(
        comparisons,
        curvature,
        precision,
        direction,
        num_used=num_used,
        in_blocks=isinstance(partition, One),
    )


def dense_hessian(comparisons: Comparisons, point: Evaluation) -> Array:
    """∇²L as a dense matrix, at an evaluated point."""
    return weighted_matrix(comparisons, point.curvature, point.diagonal)


def exact_sums(
    comparisons: Comparisons, rows: Array, bound: Array, partition: AbstractPartition
) -> tuple[Array, Array, Array]:
    """Bᵀ rows in two parts, the first without rounding errors in any order of rows.

    Each row is split into a multiple of ε A and a remainder, where the anchor A of each problem, a
    power of two, is above `bound`, which is at least Σ |rows| of each of its items. Returns (sums
    of the multiples, sums of the remainders, A of each problem).
    """
    anchor = jnp.ldexp(jnp.ones((), rows.dtype), jnp.frexp(bound)[1] + 1)
    high, low = _paired_sums(comparisons, rows, partition.at(comparisons.a).spread(anchor))
    return high, low, anchor


def _paired_sums(comparisons: Comparisons, rows: Array, anchor: Array) -> tuple[Array, Array]:
    """Bᵀ h and Bᵀ (rows − h), h = (rows + A) − A, with the same h in both.

    If two kernels compute h, one may contract a product in `rows` and the sum to a fused
    multiply-add and round h differently, by ε A. An optimisation barrier prevents that except on
    the CPU: there complex numbers hold both parts.
    """

    def sum_as_complex(rows: Array, anchor: Array) -> tuple[Array, Array]:
        high = (rows + anchor) - anchor
        pairs = lax.complex(high, rows - high)
        sums = transpose(comparisons, pairs)
        return sums.real, sums.imag

    def sum_separately(rows: Array, anchor: Array) -> tuple[Array, Array]:
        high = lax.optimization_barrier((rows + anchor) - anchor)
        return transpose(comparisons, high), transpose(comparisons, rows - high)

    anchor = jnp.broadcast_to(anchor, rows.shape)
    return lax.platform_dependent(rows, anchor, cpu=sum_as_complex, default=sum_separately)


def _columns(comparisons: Comparisons, dtype) -> tuple[Array, Array]:
    return comparisons.value.astype(dtype), comparisons.weight.astype(dtype)
