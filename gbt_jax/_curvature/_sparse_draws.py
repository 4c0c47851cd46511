"""Draws from the normal distribution with the Hessian as precision, without a factorisation.

A draw of covariance N = M⁻¹ is N g with g of covariance M = P + Bᵀ C B, and such a g needs square
roots of diagonal matrices only: g = P^½ z + Bᵀ C^½ z'. The systems are solved on the host, where
SciPy's product of a sparse matrix with many columns takes a hundredth of the time of conjugate
gradients on the list of comparisons, and repeated comparisons of a pair are one entry.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from .._util._progress import Progress
from .._util._threads import in_threads, num_workers
from ._null_space import NullSpace

_COLUMNS = 16  # per block: wider blocks make products no faster
# The relative residual at which a system counts as solved. In the norm of D^−½ it bounds the error
# along every eigenvector of the scaled matrix, down to eigenvalues of about this size, as the
# variance of a draw requires. Each further digit costs four steps.
_TOLERANCE = 1e-8
_FAILURE = 1e-5  # the recomputed relative residual above which a solve raises an error


class NormalDraws(NamedTuple):
    """Draws x of covariance R (N without the null space), one per column, and M x."""

    x: np.ndarray
    image: np.ndarray


class SparseHessian(NamedTuple):
    """M as a sparse matrix, the square roots of its parts, and the vectors that are split off.

    Repeated comparisons of a pair are merged, and those without curvature dropped.
    """

    matrix: Any  # M, a csr_array
    edge_roots: Any  # Bᵀ C^½, a csr_array of items × pairs
    prior_roots: np.ndarray  # P^½
    scale: np.ndarray  # the diagonal of M + Σ_c κ_c u_c u_cᵀ
    added: np.ndarray  # κ_c for each item
    shares: Any  # Uᵀ, a csr_array of components × items with the entries of u_c
    spread: Any  # U

    @property
    def num_items(self) -> int:
        """The size of M."""
        return self.prior_roots.size

    @property
    def num_pairs(self) -> int:
        """The number of pairs of items that are compared."""
        return self.edge_roots.shape[1]

    def remove(self, x: np.ndarray) -> np.ndarray:
        """Columns without their components along u_c."""
        return x - self.spread @ (self.shares @ x)

    def product(self, x: np.ndarray) -> np.ndarray:
        """(M + Σ_c κ_c u_c u_cᵀ) x: κ keeps weak common levels from slowing convergence."""
        return self.matrix @ x + self.added[:, None] * (self.spread @ (self.shares @ x))

    def right_sides(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """Draws with mean 0 and covariance M, one per column."""
        drawn = self.prior_roots[:, None] * generator.standard_normal((self.num_items, num))
        for column in range(num):  # one column at a time, to save memory
            drawn[:, column] += self.edge_roots @ generator.standard_normal(self.num_pairs)
        return drawn


def sparse_hessian(
    a: np.ndarray, b: np.ndarray, curvature: np.ndarray, null_space: NullSpace
) -> SparseHessian:
    """Construct M from the comparisons and their w Φ''."""
    import scipy.sparse

    size = null_space.share.size
    first, second, merged = _merge_pairs(a, b, np.asarray(curvature, float), size)
    number = np.arange(first.size)
    shape = size, first.size
    roots = np.sqrt(merged)
    ends = np.concatenate([first, second]), np.tile(number, 2)
    edge_roots = scipy.sparse.coo_array((np.concatenate([roots, -roots]), ends), shape).tocsr()
    precision = np.asarray(null_space.precision, float)
    matrix = (edge_roots @ edge_roots.T + scipy.sparse.diags_array(precision)).tocsr()
    share, added = (np.asarray(x, float) for x in (null_space.share, null_space.added))
    entries = np.sqrt(share), (np.asarray(null_space.component), np.arange(size))
    shares = scipy.sparse.coo_array(entries, (size, size)).tocsr()
    return SparseHessian(
        matrix=matrix,
        edge_roots=edge_roots,
        prior_roots=np.sqrt(precision),
        scale=matrix.diagonal() + added * share,
        added=added,
        shares=shares,
        spread=shares.T.tocsr(),
    )


def _merge_pairs(
    a: np.ndarray, b: np.ndarray, curvature: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first items, second items, curvatures) of the pairs whose comparisons have curvature."""
    used = (curvature > 0) & (a != b)
    low, high = np.minimum(a, b)[used].astype(np.int64), np.maximum(a, b)[used]
    pairs, place = np.unique(low * size + high, return_inverse=True)
    return *np.divmod(pairs, size), np.bincount(place, curvature[used], pairs.size)


def normal_draws(of: SparseHessian, num: int, generator: np.random.Generator) -> NormalDraws:
    """Draws in blocks of columns by threads; the result does not depend on their number."""
    widths = [min(_COLUMNS, num - start) for start in range(0, num, _COLUMNS)]
    x, image = np.empty((2, of.num_items, num))

    def draw(width: int, own: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        right_sides = of.remove(of.right_sides(width, own))
        return _solve(of, right_sides), right_sides

    tasks = zip(widths, generator.spawn(len(widths)), strict=True)
    starts = itertools.accumulate(widths, initial=0)
    found = in_threads(lambda task: draw(*task), tasks, num_workers())
    bar = Progress(num, enabled=False, unit="draws")  # shown by `show_stages` only
    for start, (solved, right_sides) in zip(starts, found, strict=False):
        columns = slice(start, start + solved.shape[1])
        x[:, columns], image[:, columns] = solved, right_sides
        bar.advance(solved.shape[1])
    return NormalDraws(x, image)


def _solve(of: SparseHessian, rhs: np.ndarray) -> np.ndarray:
    """R @ rhs for columns without components along u_c."""
    solved = _conjugate_gradients(of, rhs)
    left = rhs - of.product(solved)
    if np.any(_norms(of, left) > _FAILURE * _norms(of, rhs)):
        solved += _conjugate_gradients(of, left)  # solve for the residual
        left = rhs - of.product(solved)
    worst = np.max(_norms(of, left) - _FAILURE * _norms(of, rhs), initial=0)
    if not worst <= 0:
        raise RuntimeError("conjugate gradients did not solve with the Hessian")
    return of.remove(solved)


def _conjugate_gradients(of: SparseHessian, rhs: np.ndarray) -> np.ndarray:
    """Conjugate gradients, scaled by the diagonal, until the last column has converged."""
    solved, left = np.zeros_like(rhs), rhs.copy()
    direction = left / of.scale[:, None]
    size = np.einsum("ij,ij->j", left, direction)
    goal = _TOLERANCE**2 * size
    for _ in range(20 * of.num_items + 100):
        if not np.any(size > goal):
            break
        image = of.product(direction)
        step = _ratio(size, np.einsum("ij,ij->j", direction, image))
        solved += step * direction
        left -= step * image
        scaled = left / of.scale[:, None]
        before, size = size, np.einsum("ij,ij->j", left, scaled)
        direction *= _ratio(size, before)
        direction += scaled
    return solved


def _norms(of: SparseHessian, columns: np.ndarray) -> np.ndarray:
    """Norms of columns in the metric of D^−½."""
    return np.sqrt(np.einsum("ij,ij->j", columns, columns / of.scale[:, None]))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above/below, with 0/0 = 0."""
    return above / np.where(below > 0, below, 1)
