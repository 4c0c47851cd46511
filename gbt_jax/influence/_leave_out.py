"""Scores without some rows: the exact law on the rows that move most, its curvature elsewhere.

Leaving a comparison out may move a score beyond the range where the law's curvature at the optimum
is accurate, but only on few rows, near the comparison. Let S be a set of rows that includes the
ones left out, u = Xᵀ Δθ (X has their columns e_a − e_b), and replace every other row by its second
order. Then the loss without the rows is, up to a constant,

    ½ Δθᵀ M Δθ + Σ_{j ∈ S} h_j(u_j),
    h_j(u) = w (Φ(t + u) − Φ(t) − Φ'(t) u − ½ Φ''(t) u²)    for rows that stay,
    h_j(u) = −ρ u − ½ c u²,  ρ = w (Φ'(t) − r),  c = w Φ''(t)    for rows that are left out.

Its minimum has Δθ = N X λ, so it is a problem in |S| numbers λ with P = Xᵀ N X:

    ½ λᵀ P λ + Σ h_j((P λ)_j),    stationary where λ + h'(P λ) = 0,

convex, and solved by damped Newton's method, (I + diag(h'') P) δ = −(λ + h'). If S has only the
rows left out, the solution is the Newton step of `_influence`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax import Array, lax

from .._curvature import DenseCurvature
from .._data._comparisons import Comparisons
from .._inference._fit import Fit
from .._inference._ladder import row_derivatives
from .._model import Model

_MOVING_ROWS = 32  # on the largest Tournesol problem: errors below 1%; with 16 below 6%
_MOST_ROUNDS = 60
_BLOCK = 128  # columns at a time, to bound the matrix of rows × columns


class _Small(NamedTuple):
    """Problems in |S| numbers, stacked."""

    t: Array
    value: Array
    weight: Array
    is_left_out: Array
    inner: Array  # P


def refined_changes(
    fit: Fit, made: DenseCurvature, sets: np.ndarray, predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(changes of scores, items × sets; whether each was found), one set of rows left out each.

    `sets` has the rows of a set along its second axis, and `predicted` has the changes by one
    Newton step.
    """
    starts = range(0, sets.shape[0], _BLOCK)
    blocks = [slice(start, start + _BLOCK) for start in starts]
    found = [_refine_block(fit, made, sets[block], predicted[:, block]) for block in blocks]
    changes = [np.zeros((fit.scores.size, 0), predicted.dtype), *(change for change, _ in found)]
    settled = [np.zeros(0, bool), *(is_settled for _, is_settled in found)]
    return np.concatenate(changes, axis=1), np.concatenate(settled)


def _refine_block(
    fit: Fit, made: DenseCurvature, sets: np.ndarray, predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    count = sets.shape[0]
    rows = _with_moving_rows(fit, sets, predicted)
    # Few fixed shapes, so that most blocks compile nothing: unused columns repeat the first.
    width = 2 ** max(count - 1, 0).bit_length()
    padded = np.concatenate([rows, np.repeat(rows[:1], width - count, axis=0)])
    weights, settled = _solve(
        fit.model, fit.comparisons, fit.scores, made.reduced, padded, left_out=sets.shape[1]
    )
    weights = np.asarray(weights)[:count]
    a, b = np.asarray(fit.comparisons.a)[rows], np.asarray(fit.comparisons.b)[rows]
    number = np.broadcast_to(np.arange(count)[:, None], rows.shape)
    entries = np.stack([weights, -weights]), (np.stack([number, number]), np.stack([a, b]))
    flat = entries[0].ravel(), tuple(x.ravel() for x in entries[1])
    pulls = scipy.sparse.csr_matrix(flat, (count, fit.scores.size))
    return (pulls @ np.asarray(made.reduced)).T, np.asarray(settled)[:count]


def _with_moving_rows(fit: Fit, sets: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Each set followed by the other rows whose differences are predicted to move most."""
    a, b = np.asarray(fit.comparisons.a), np.asarray(fit.comparisons.b)
    _, curvature = row_derivatives(fit.model, fit.comparisons, fit.scores)
    moved = np.abs(predicted[a] - predicted[b]) * np.sqrt(curvature)[:, None]
    np.put_along_axis(moved, sets.T, -1, axis=0)
    most = min(_MOVING_ROWS, a.size - sets.shape[1])
    if not most:
        return sets
    others = np.argpartition(-moved, most - 1, axis=0)[:most].T
    return np.concatenate([sets, others], axis=1)


@functools.partial(jax.jit, static_argnames=("left_out",))
def _solve(
    model: Model,
    comparisons: Comparisons,
    scores: Array,
    reduced: Array,
    rows: Array,
    *,
    left_out: int,
) -> tuple[Array, Array]:
    """(λ, whether it was found) of stacked problems, without the first `left_out` rows of each."""
    a, b, model = comparisons.a[rows], comparisons.b[rows], model.at_rows(rows)

    def entries(first: Array, second: Array) -> Array:
        return reduced[first[:, :, None], second[:, None, :]]

    small = _Small(
        t=scores[a] - scores[b],
        value=comparisons.value[rows],
        weight=comparisons.weight[rows],
        is_left_out=jnp.arange(rows.shape[1]) < left_out,
        inner=entries(a, a) - entries(a, b) - entries(b, a) + entries(b, b),
    )
    point = _evaluate(model, small, jnp.zeros_like(small.t))
    length = jnp.ones_like(point.energy)
    state = (point, _newton_step(small, point), length, jnp.zeros((), jnp.int32))

    def is_open(state) -> Array:
        point, step, _, rounds = state
        return jnp.any(~_is_settled(point, step)) & (rounds < _MOST_ROUNDS)

    def advance(state):
        point, step, length, rounds = state
        tried = _evaluate(model, small, point.weights + length[:, None] * step)
        accepted = tried.energy <= point.energy + tried.noise
        new = jax.tree.map(lambda x, y: _choose(accepted, x, y), tried, point)
        turned = _choose(accepted, _newton_step(small, tried), step)
        return new, turned, jnp.where(accepted, 1, 0.5 * length), rounds + 1

    point, step, _, _ = lax.while_loop(is_open, advance, state)
    return point.weights, _is_settled(point, step)


class _Point(NamedTuple):
    """The evaluation of the small problems at λ."""

    weights: Array
    energy: Array
    noise: Array  # rounding errors of the energy
    slope: Array  # λ + h'
    curvature: Array  # h''


def _evaluate(model: Model, small: _Small, weights: Array) -> _Point:
    u = jnp.einsum("kij,kj->ki", small.inner, weights)
    law, t = model.law, small.t
    mean, variance = law.mean(t), law.variance(t)
    residual, curvature = small.weight * (mean - small.value), small.weight * variance
    stays = small.weight * (law.cgf(t + u) - law.cgf(t) - mean * u - 0.5 * variance * u * u)
    gone = -residual * u - 0.5 * curvature * u * u
    terms = jnp.where(small.is_left_out, gone, stays)
    slope = jnp.where(
        small.is_left_out,
        -residual - curvature * u,
        small.weight * (law.mean(t + u) - mean - variance * u),
    )
    quadratic = 0.5 * weights * u
    size = jnp.sum(jnp.abs(terms) + jnp.abs(quadratic) + small.weight * jnp.abs(u), axis=-1)
    return _Point(
        weights=weights,
        energy=jnp.sum(terms + quadratic, axis=-1),
        noise=16 * jnp.finfo(t.dtype).eps * size,
        slope=weights + slope,
        curvature=jnp.where(
            small.is_left_out, -curvature, small.weight * (law.variance(t + u) - variance)
        ),
    )


def _newton_step(small: _Small, point: _Point) -> Array:
    size = point.weights.shape[-1]
    matrix = jnp.eye(size, dtype=point.slope.dtype) + point.curvature[:, :, None] * small.inner
    return -jnp.linalg.solve(matrix, point.slope[..., None])[..., 0]


def _is_settled(point: _Point, step: Array) -> Array:
    largest = jnp.max(jnp.abs(point.weights), axis=-1)
    # A relative step of √ε is enough: it squares the error.
    precise = float(jnp.finfo(step.dtype).eps) ** 0.5 * largest
    return jnp.max(jnp.abs(step), axis=-1) <= precise


def _choose(accepted: Array, yes: Array, no: Array) -> Array:
    return jnp.where(accepted.reshape(accepted.shape + (1,) * (yes.ndim - 1)), yes, no)
