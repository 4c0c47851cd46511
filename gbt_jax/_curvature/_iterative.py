"""The curvature by conjugate gradients, for graphs too large for a dense matrix."""

import functools
import math
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import PRNGKeyArray

from .._data._comparisons import Comparisons
from .._data._incidence import weighted_product
from .._inference._ladder import fill, pad_comparisons, rows_rung
from .._model import Model
from .._util._arrays import as_array
from .._util._random import generator_of
from ..solvers._newton import conjugate_gradients, scale_by_diagonal
from ._base import AbstractCurvature, Edges
from ._null_space import NullSpace, hessian_parts
from ._sparse_draws import SparseHessian, normal_draws, sparse_hessian

_BLOCK = 64  # right-hand sides at a time


class Estimate(NamedTuple):
    """An estimate from random probes, and its standard error."""

    value: Array
    error: Array


class Sample(NamedTuple):
    """Draws of the scores around the optimum, one per column, and the diagonal of N from them.

    A draw is the sum of `reduced` and of `common`, the common levels of components.
    """

    reduced: np.ndarray
    common: np.ndarray
    diagonal: Estimate


class _System(eqx.Module):
    """M + Σ_c κ_c u_c u_cᵀ over the vectors that are split off, padded to few shapes."""

    comparisons: Comparisons
    curvature: Any
    diagonal: Any
    null_space: NullSpace

    def product(self, v: Array) -> Array:
        null_space = self.null_space
        image = weighted_product(self.comparisons, self.curvature, null_space.precision, v)
        return image + null_space.added * (v - null_space.remove(v[:, None])[:, 0])


@final
class IterativeCurvature(AbstractCurvature):
    """Solves by conjugate gradients on the list of comparisons; no dense matrix is formed."""

    hessian_diagonal: np.ndarray
    edges: Edges
    null_space: NullSpace
    system: _System

    def reduced_solve(self, rhs: np.ndarray) -> np.ndarray:
        """R @ rhs by blocks of columns; a block iterates until its last column has converged."""
        size, count = rhs.shape
        solved = np.empty_like(rhs)
        for start in range(0, count, _BLOCK):
            given = rhs[:, start : start + _BLOCK]
            # Columns of zeros take no steps.
            width = 1 if count == 1 else _BLOCK
            block = np.zeros((self.system.diagonal.size, width), rhs.dtype)
            block[:size, : given.shape[1]] = given
            found, error = _solve_block(self.system, block)
            if error > float(np.finfo(rhs.dtype).eps) ** 0.5:
                raise RuntimeError(
                    "conjugate gradients did not solve with the Hessian: the residual is "
                    f"{float(error):.0e} of the right-hand side"
                )
            solved[:, start : start + _BLOCK] = np.asarray(found)[:size, : given.shape[1]]
        return solved

    def reduced_entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Entries of R by one solve for each distinct item of the shorter list."""
        if np.unique(a).size < np.unique(b).size:
            a, b = b, a
        columns, place = np.unique(b, return_inverse=True)
        found = np.zeros(place.size, self.edges.curvature.dtype)
        for start in range(0, columns.size, _BLOCK):
            wanted = np.flatnonzero((place >= start) & (place < start + _BLOCK))
            block = np.zeros((self.num_items, _BLOCK), found.dtype)
            chosen = columns[start : start + _BLOCK]
            block[chosen, np.arange(chosen.size)] = 1
            found[wanted] = self.reduced_solve(block)[a[wanted], place[wanted] - start]
        return found

    def reduced_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """Solve with M for draws of covariance M: no factorisation is needed."""
        drawn = normal_draws(self._sparse_hessian(), num, generator_of(key))
        return drawn.x.astype(self.edges.curvature.dtype)

    def estimated_diagonal(self, num: int = 100, *, key: PRNGKeyArray) -> Estimate:
        """n_aa for each item from `num` solves instead of one per item."""
        return self.sample(num, key=key).diagonal

    def sample(self, num: int, *, key: PRNGKeyArray) -> Sample:
        """Draws, and the diagonal of N estimated from the same draws.

        Of a normal vector x with precision matrix M, Var(x_i) = 1/m_ii + Var(E[x_i | the others]),
        and the conditional mean is x_i − (M x)_i/m_ii. Only its mean square is estimated from
        draws, to a relative standard error of √(2/num).
        """
        own, level = jax.random.split(key)
        # The level of a component is drawn with the precision p + κ of the system, and corrected
        # afterwards: with a weak prior it would dominate the mean square.
        null_space, regularised = self.null_space, self.null_space.regularised
        width = np.sqrt(null_space.share)[:, None] * null_space.common_draws(num, key=level)
        drawn = normal_draws(self._sparse_hessian(), num, generator_of(own))
        x = drawn.x + width / np.sqrt(regularised)[:, None]
        image = drawn.image + np.sqrt(regularised)[:, None] * width
        diagonal = self.hessian_diagonal + null_space.added * null_space.share
        mean = np.mean(np.square(x - image / diagonal[:, None]), axis=1)
        instead = null_space.share * (null_space.variance - 1 / regularised)
        found = 1 / diagonal + mean + instead, math.sqrt(2 / num) * mean
        dtype = self.edges.curvature.dtype
        return Sample(
            reduced=drawn.x.astype(dtype),
            common=(np.sqrt(null_space.variance)[:, None] * width).astype(dtype),
            diagonal=Estimate(*(as_array(x.astype(dtype)) for x in found)),
        )

    def _sparse_hessian(self) -> SparseHessian:
        return sparse_hessian(*self.edges, self.null_space)

    def estimated_log_determinant(
        self, num: int = 30, *, key: PRNGKeyArray, lanczos_steps: int = 100
    ) -> Estimate:
        """log det M by stochastic Lanczos quadrature: `num` probes of `lanczos_steps` products.

        The error combines the standard error over probes and the change from half the steps.
        """
        steps = min(lanczos_steps, self.num_items)
        # Probes are zero at padding items, and stay zero there.
        signs = np.zeros((num, self.system.diagonal.size), self.edges.curvature.dtype)
        signs[:, : self.num_items] = (
            2 * generator_of(key).integers(2, size=(num, self.num_items)) - 1
        )
        logs, half_logs = (np.asarray(x) for x in _quadratures(self.system, signs, steps=steps))
        mean, spread = np.mean(logs), np.std(logs, ddof=1) / math.sqrt(num)
        error = np.hypot(spread, mean - np.mean(half_logs))
        value = _known_log_determinant(self) + mean
        return Estimate(*(as_array(np.asarray(x, signs.dtype)) for x in (value, error)))


def iterative_curvature(
    model: Model, comparisons: Comparisons, scores: Array
) -> IterativeCurvature:
    """The curvature at the scores."""
    curvature, diagonal, null_space = hessian_parts(model, comparisons, scores)
    # Solves have many columns, so items cost as much as rows: their steps are as small.
    padded = pad_comparisons(comparisons, rows_rung(comparisons.num_items))
    size = padded.num_items
    # Padding items have 1 on the diagonal, and no vector is split off.
    own = np.arange(size, dtype=null_space.component.dtype)
    own[: diagonal.size] = null_space.component
    names = {"share": 0, "variance": 0, "precision": 1, "added": 0, "regularised": 1}
    columns = {name: fill(getattr(null_space, name), size, x) for name, x in names.items()}
    return IterativeCurvature(
        hessian_diagonal=diagonal,
        edges=Edges(np.asarray(comparisons.a), np.asarray(comparisons.b), curvature),
        null_space=null_space,
        system=_System(
            comparisons=padded,
            curvature=fill(curvature, padded.value.size, 0),
            diagonal=fill(diagonal + null_space.added * null_space.share, size, 1),
            null_space=NullSpace(own, **columns, is_lost=null_space.is_lost),
        ),
    )


@jax.jit
def _solve_block(system: _System, rhs: Array) -> tuple[Array, Array]:
    """R @ rhs and the largest relative residual.

    The second solve, for the residual of the first, removes rounding errors.
    """
    null_space = system.null_space
    solve = functools.partial(
        conjugate_gradients,
        system.product,
        precondition=scale_by_diagonal(system.diagonal),
        tolerance=float(jnp.finfo(rhs.dtype).eps),
        max_steps=20 * rhs.shape[0] + 100,
    )

    def column(b: Array) -> tuple[Array, Array]:
        x = solve(rhs=b).direction
        x = x + solve(rhs=b - system.product(x)).direction
        size = jnp.linalg.norm(b)
        return x, jnp.linalg.norm(b - system.product(x)) / jnp.where(size > 0, size, 1)

    solved, errors = jax.vmap(column, 1, (1, 0))(null_space.remove(rhs))
    return null_space.remove(solved), jnp.max(errors, initial=0)


def _known_log_determinant(of: IterativeCurvature) -> float:
    """The known part of log det M: the diagonal, and the null space as in `_blocks.py`."""
    null_space = of.null_space
    instead = np.log(np.where(null_space.precision > 0, null_space.precision, 1))
    correction = np.where(null_space.share > 0, instead - np.log(null_space.regularised), 0)
    scales = np.log(of.hessian_diagonal + null_space.added * null_space.share)
    return float(np.sum(scales) + np.sum(null_space.share * correction))


@functools.partial(jax.jit, static_argnames=("steps",))
def _quadratures(system: _System, signs: Array, *, steps: int) -> tuple[Array, Array]:
    """zᵀ log(S) z of each probe z by `steps` of Lanczos' method, and by half as many.

    S = D^−½ M D^−½ has a unit diagonal, and so a narrower spectrum than M.
    """
    scale = lax.rsqrt(system.diagonal)

    def advance(state, _):
        before, here, off = state
        image = scale * system.product(scale * here) - off * before
        middle = jnp.vdot(here, image)
        image = image - middle * here
        size = jnp.linalg.norm(image)
        # An exhausted Krylov space gives zeros, which have no weight in the quadrature.
        is_nonzero = size > 1e-10
        following = jnp.where(is_nonzero, image / jnp.where(is_nonzero, size, 1), 0)
        size = jnp.where(is_nonzero, size, 0)
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
            return jnp.vdot(z, z) * jnp.sum(jnp.where(weights > 0, weights * logs, 0))

        return integral(steps), integral(max(steps // 2, 1))

    return jax.lax.map(probe, signs, batch_size=_BLOCK)
