"""By conjugate gradients on the list of comparisons: for graphs too large for a matrix."""

import functools
import math
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._data._comparisons import Comparisons
from .._inference._objective import hessian_product
from .._model import Model
from ..solvers._newton import conjugate_gradients, scale_by_diagonal
from ._base import AbstractCurvature, Edges
from ._levels import Levels, parts_of_hessian

_BLOCK = 64  # right-hand sides at a time


class Estimate(NamedTuple):
    """What random probes say, and the standard error of it."""

    value: Array
    error: Array


@final
class IterativeCurvature(AbstractCurvature):
    """By conjugate gradients on the list of comparisons: for graphs too large for a matrix."""

    model: Model
    comparisons: Comparisons
    hessian_diagonal: Array
    edges: Edges
    levels: Levels

    def reduced_solve(self, rhs: Array) -> Array:
        """Blocks of columns, each until its last one has ended."""
        width = min(_BLOCK, rhs.shape[1])
        blocks = range(0, rhs.shape[1], max(width, 1))
        # Padding with zeros ends at once and saves compilations.
        padded = jnp.pad(rhs, ((0, 0), (0, -rhs.shape[1] % max(width, 1))))
        solved = [_checked_block(self, padded[:, start : start + width]) for start in blocks]
        return jnp.concatenate([*solved, rhs[:, :0]], axis=1)[:, : rhs.shape[1]]

    def reduced_entries(self, a: Array, b: Array) -> Array:
        """One solve for each distinct item of the shorter list."""
        if np.unique(np.asarray(a)).size < np.unique(np.asarray(b)).size:
            a, b = b, a
        columns, place = np.unique(np.asarray(b), return_inverse=True)
        found = np.zeros(place.size, self.edges.curvature.dtype)
        for start in range(0, columns.size, _BLOCK):
            wanted = np.flatnonzero((place >= start) & (place < start + _BLOCK))
            block = np.zeros((self.comparisons.num_items, _BLOCK), found.dtype)
            chosen = columns[start : start + _BLOCK]
            block[chosen, np.arange(chosen.size)] = 1
            solved = np.asarray(_checked_block(self, jnp.asarray(block)))
            found[wanted] = solved[np.asarray(a)[wanted], place[wanted] - start]
        return jnp.asarray(found)

    def reduced_draws(self, num: int, *, key: Array) -> Array:
        """Draws with the covariance M, solved with M: no factorisation is needed."""
        return self.reduced_solve(self._pulls(num, key=key))

    def _pulls(self, num: int, *, key: Array) -> Array:
        """Draws with mean 0 and covariance M: P^½ z + Bᵀ C^½ z', for M = P + Bᵀ C B."""
        prior, row = jax.random.split(key)
        a, b, curvature = self.edges
        precision, dtype = self.levels.precision, curvature.dtype
        of_items = jax.random.normal(prior, (self.num_items, num), dtype)
        of_rows = jnp.sqrt(curvature)[:, None] * jax.random.normal(row, (a.size, num), dtype)
        return (jnp.sqrt(precision)[:, None] * of_items).at[a].add(of_rows).at[b].add(-of_rows)

    def estimated_diagonal(self, num: int = 100, *, key: Array) -> Estimate:
        """n_aa for each item from `num` solves instead of one per item.

        Of a normal vector x with precision matrix M, Var(x_i) = 1/m_ii + Var(E[x_i | the others]),
        and the conditional mean is x_i − (M x)_i/m_ii: what is left to estimate from draws is its
        mean square, to a relative standard error of √(2/num).
        """
        own, level = jax.random.split(key)
        # The level of a component is drawn with the precision p + κ of the matrix that is solved
        # with, and put right afterwards: a weak prior would drown the rest.
        levels, held = self.levels, self.levels.held
        width = jnp.sqrt(levels.share)[:, None] * levels.common_draws(num, key=level)
        pulls = self._pulls(num, key=own)
        x = self.reduced_solve(pulls) + lax.rsqrt(held)[:, None] * width
        image = levels.remove(pulls) + jnp.sqrt(held)[:, None] * width
        diagonal = self.hessian_diagonal + levels.added * levels.share
        squares = jnp.square(x - image / diagonal[:, None])
        mean = jnp.mean(squares, axis=1)
        instead = levels.share * (levels.variance - 1 / held)
        return Estimate(1 / diagonal + mean + instead, math.sqrt(2 / num) * mean)

    def estimated_log_determinant(
        self, num: int = 30, *, key: Array, lanczos_steps: int = 100
    ) -> Estimate:
        """log det M by stochastic Lanczos quadrature, `num` probes of so many products each.

        The error is the standard error over probes and the difference that half the steps make.
        """
        steps = min(lanczos_steps, self.num_items)
        signs = jax.random.rademacher(key, (num, self.num_items), self.edges.curvature.dtype)
        logs, half_logs = _quadratures(self, signs, steps=steps)
        mean, spread = jnp.mean(logs), jnp.std(logs, ddof=1) / math.sqrt(num)
        truncated = jnp.abs(mean - jnp.mean(half_logs))
        known = _known_log_determinant(self)
        return Estimate(known + mean, jnp.sqrt(jnp.square(spread) + jnp.square(truncated)))


def iterative_curvature(
    model: Model, comparisons: Comparisons, scores: Array
) -> IterativeCurvature:
    """Evaluate M at the scores."""
    curvature, diagonal, levels = parts_of_hessian(model, comparisons, scores)
    return IterativeCurvature(
        model=model,
        comparisons=comparisons,
        hessian_diagonal=diagonal,
        edges=Edges(comparisons.a, comparisons.b, curvature),
        levels=levels,
    )


def _checked_block(of: IterativeCurvature, rhs: Array) -> Array:
    solved, error = _solve_block(of, rhs)
    if error > float(jnp.finfo(rhs.dtype).eps) ** 0.5:
        raise RuntimeError(
            f"conjugate gradients did not solve with the Hessian: a residual of {float(error):.0e} "
            "of the right-hand side is left"
        )
    return solved


@jax.jit
def _solve_block(of: IterativeCurvature, rhs: Array) -> tuple[Array, Array]:
    """R @ rhs and the largest relative residual, with κ u_c u_cᵀ added to M as in `_dense.py`.

    Solved twice, the second time for what rounding left of the first.
    """
    levels = of.levels

    product = functools.partial(_held_product, of)
    solve = functools.partial(
        conjugate_gradients,
        product,
        precondition=scale_by_diagonal(of.hessian_diagonal + levels.added * levels.share),
        tolerance=float(jnp.finfo(rhs.dtype).eps),
        max_steps=20 * of.num_items + 100,
    )

    def column(b: Array) -> tuple[Array, Array]:
        x = solve(rhs=b).direction
        x = x + solve(rhs=b - product(x)).direction
        size = jnp.linalg.norm(b)
        return x, jnp.linalg.norm(b - product(x)) / jnp.where(size > 0, size, 1)

    solved, errors = jax.vmap(column, 1, (1, 0))(levels.remove(rhs))
    return levels.remove(solved), jnp.max(errors, initial=0)


def _held_product(of: IterativeCurvature, v: Array) -> Array:
    """M v with κ u_c u_cᵀ added to M as in `_dense.py`."""
    image = hessian_product(of.model, of.comparisons, of.edges.curvature, v)
    return image + of.levels.added * (v - of.levels.remove(v[:, None])[:, 0])


def _known_log_determinant(of: IterativeCurvature) -> Array:
    """What is known of log det M: the diagonal, and the levels put right as in `_dense.py`."""
    levels = of.levels
    instead = jnp.log(jnp.where(levels.precision > 0, levels.precision, 1))
    correction = jnp.where(levels.share > 0, instead - jnp.log(levels.held), 0)
    scales = jnp.log(of.hessian_diagonal + levels.added * levels.share)
    return jnp.sum(scales) + jnp.sum(levels.share * correction)


@functools.partial(jax.jit, static_argnames=("steps",))
def _quadratures(of: IterativeCurvature, signs: Array, *, steps: int) -> tuple[Array, Array]:
    """zᵀ log(S) z of each probe z by `steps` of Lanczos' method, and by half as many.

    S = D^−½ M D^−½ has a unit diagonal, and so a narrower spectrum than M.
    """
    scale = lax.rsqrt(of.hessian_diagonal + of.levels.added * of.levels.share)

    def advance(state, _):
        before, here, off = state
        image = scale * _held_product(of, scale * here) - off * before
        middle = jnp.vdot(here, image)
        image = image - middle * here
        size = jnp.linalg.norm(image)
        # An exhausted space ends in zeros: what follows has no weight in the quadrature.
        goes_on = size > 1e-10
        following = jnp.where(goes_on, image / jnp.where(goes_on, size, 1), 0)
        size = jnp.where(goes_on, size, 0)
        return (here, following, size), (middle, size)

    def probe(z: Array) -> tuple[Array, Array]:
        start = z / jnp.linalg.norm(z)
        state = (jnp.zeros_like(start), start, jnp.zeros((), z.dtype))
        _, (middle, off) = lax.scan(advance, state, length=steps)

        def integral(count: int) -> Array:
            tridiagonal = jnp.diag(middle[:count])
            tridiagonal += jnp.diag(off[: count - 1], 1) + jnp.diag(off[: count - 1], -1)
            values, vectors = jnp.linalg.eigh(tridiagonal)
            weights = jnp.square(vectors[0])
            logs = jnp.log(jnp.where(values > 0, values, 1))
            return z.size * jnp.sum(jnp.where(weights > 0, weights * logs, 0))

        return integral(steps), integral(max(steps // 2, 1))

    return jax.lax.map(probe, signs, batch_size=_BLOCK)
