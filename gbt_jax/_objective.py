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
from jax import Array
from jaxtyping import ArrayLike, Float

from ._arrays import floating
from ._comparisons import Comparisons
from ._model import Model


def negative_log_posterior(
    model: Model, comparisons: Comparisons, scores: ArrayLike
) -> Float[Array, ""]:
    """L(θ): the negative log-posterior of the scores, up to a constant.

    Each row of `comparisons` counts once, with its weight. Differentiable in every argument and
    jitted; `jax.vmap` it over stacked comparisons and scores for many users. `prior_std=inf`
    contributes nothing; without comparisons only the prior is left.
    """
    return _loss(model, comparisons, floating(scores))


@jax.jit
def _loss(model: Model, comparisons: Comparisons, scores: Array) -> Array:
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    t = _differences(comparisons, scores)
    value, weight = _columns(comparisons, scores.dtype)
    data = jnp.sum(weight * (model.law.cgf(t) - value * t))
    return 0.5 * jnp.sum(precision * jnp.square(scores - mean)) + data


def gradient(model: Model, comparisons: Comparisons, scores: Array) -> Array:
    """∇L(θ)."""
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    residual = weight * (model.law.mean(_differences(comparisons, scores)) - value)
    return precision * (scores - mean) + _gather_rows(comparisons, residual)


class Evaluation(NamedTuple):
    """What one pass over the comparisons tells at a point.

    `size` and `noise` measure the gradient and its rounding errors in the norm √(gᵀ D⁻¹ g), D the
    diagonal of the Hessian: an item with light comparisons counts as much as one with heavy ones.
    """

    loss: Array
    loss_noise: Array  # how far rounding may have moved the loss
    gradient: Array
    size: Array
    noise: Array
    curvature: Array  # w Φ''(t), one per comparison
    diagonal: Array


def evaluate(model: Model, comparisons: Comparisons, scores: Array) -> Evaluation:
    """Loss, gradient and curvature together."""
    mean, precision = model.prior(comparisons.num_items, scores.dtype)
    value, weight = _columns(comparisons, scores.dtype)
    t = _differences(comparisons, scores)
    cgf, expected, variance = model.law.cgf(t), model.law.mean(t), model.law.variance(t)
    linear = value * t
    offset = scores - mean
    pull = precision * offset
    prior_terms = 0.5 * pull * offset
    slope = pull + _gather_rows(comparisons, weight * (expected - value))
    curvature = weight * variance
    diagonal = precision + _gather_ends(comparisons, curvature)
    inverse = jnp.where(diagonal > 0, 1 / jnp.where(diagonal > 0, diagonal, 1), 0)
    # Every term is rounded to a relative ε, and so is t = θ_a − θ_b, by ε times the scores.
    eps = jnp.finfo(scores.dtype).eps
    a, b = comparisons.a, comparisons.b
    moved = jnp.abs(scores)[a] + jnp.abs(scores)[b]
    terms = weight * (jnp.abs(expected) + jnp.abs(value)) + curvature * moved
    squares = jnp.vdot(terms * terms, inverse[a] + inverse[b]) + jnp.vdot(pull * pull, inverse)
    return Evaluation(
        loss=jnp.sum(prior_terms) + jnp.sum(weight * (cgf - linear)),
        loss_noise=4 * eps * (jnp.sum(prior_terms) + jnp.sum(weight * (cgf + jnp.abs(linear)))),
        gradient=slope,
        size=jnp.sqrt(jnp.vdot(slope * slope, inverse)),
        noise=eps * jnp.sqrt(squares),
        curvature=curvature,
        diagonal=diagonal,
    )


def hessian_product(
    model: Model, comparisons: Comparisons, curvature: Array, direction: Array
) -> Array:
    """∇²L · direction."""
    _, precision = model.prior(comparisons.num_items, direction.dtype)
    slopes = curvature * _differences(comparisons, direction)
    return precision * direction + _gather_rows(comparisons, slopes)


def hessian_diagonal(model: Model, comparisons: Comparisons, curvature: Array) -> Array:
    """The diagonal of ∇²L."""
    _, precision = model.prior(comparisons.num_items, curvature.dtype)
    return precision + _gather_ends(comparisons, curvature)


def dense_hessian(model: Model, comparisons: Comparisons, curvature: Array) -> Array:
    """∇²L as a matrix."""
    a, b = comparisons.a, comparisons.b
    matrix = jnp.diag(hessian_diagonal(model, comparisons, curvature))
    return matrix.at[jnp.concatenate([a, b]), jnp.concatenate([b, a])].add(
        -jnp.concatenate([curvature, curvature])
    )


def _differences(comparisons: Comparisons, scores: Array) -> Array:
    """B θ."""
    return scores[comparisons.a] - scores[comparisons.b]


def _gather_rows(comparisons: Comparisons, rows: Array) -> Array:
    """Bᵀ rows."""
    ends = jnp.concatenate([comparisons.a, comparisons.b])
    signed = jnp.concatenate([rows, -rows])
    return jax.ops.segment_sum(signed, ends, comparisons.num_items)


def _gather_ends(comparisons: Comparisons, rows: Array) -> Array:
    """|B|ᵀ rows."""
    ends = jnp.concatenate([comparisons.a, comparisons.b])
    return jax.ops.segment_sum(jnp.concatenate([rows, rows]), ends, comparisons.num_items)


def _columns(comparisons: Comparisons, dtype) -> tuple[Array, Array]:
    return comparisons.value.astype(dtype), comparisons.weight.astype(dtype)
