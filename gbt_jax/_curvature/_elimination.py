"""The diagonal of N and draws, without all of N: items of few comparisons are eliminated first.

Given its neighbours S, the score of an item is normal with mean Σ α_j θ_j, α_j = e_j/d, and
variance 1/d, where e_j are the entries −M of its comparisons, p its prior precision and
d = p + Σ e_j. Leaving it out joins its neighbours, and hands its prior on to them:

    e_jk ← e_jk + e_j e_k/d,    p_j ← p_j + p e_j/d,

sums of positive numbers that lose no digit. Items that are not neighbours of each other go
together. What remains, where everybody is compared with many, is inverted as a matrix, and the way
back gives the rest: N_iS = α N_SS and N_ii = 1/d + α N_SS α, where all entries of N_SS are known
for they were joined. Draws go the same way back: θ_i = α θ_S + z/√d.
"""

from typing import Any, NamedTuple

import numpy as np

# SciPy's matrices take as long to import as half of JAX: functions import them where they begin.
Sparse = Any  # a symmetric csr_array of SciPy
_MOST_NEIGHBOURS = 16  # of an item that is eliminated
_LEAST_SHARE = 0.01  # of the items left, below which another round does not pay


class _Round(NamedTuple):
    """Items eliminated together, with their neighbours, filled up to the same number."""

    items: np.ndarray
    variance: np.ndarray  # 1/d
    neighbours: np.ndarray
    share: np.ndarray  # α, 0 where filled up


class Elimination(NamedTuple):
    """M = diag(p) + Bᵀ diag(c) B in parts: items eliminated, and the matrix of those left."""

    rounds: list[_Round]
    items: np.ndarray
    matrix: np.ndarray


def eliminate(
    a: np.ndarray, b: np.ndarray, curvature: np.ndarray, precision: np.ndarray
) -> Elimination:
    """Eliminate items until all that are left have many neighbours."""
    import scipy.sparse

    size = precision.size
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    joined = scipy.sparse.coo_array((np.tile(curvature, 2), ends), (size, size)).tocsr()
    joined.eliminate_zeros()
    rounds, items, precision = [], np.arange(size), precision.astype(float)
    while True:
        chosen = _independent(joined)
        if np.count_nonzero(chosen) <= _LEAST_SHARE * items.size:
            break
        one, joined, precision = _eliminate_items(joined, precision, items, chosen)
        rounds.append(one)
        items = items[~chosen]
    matrix = -joined.toarray()
    matrix[np.diag_indices(items.size)] = precision + np.asarray(joined.sum(axis=1)).ravel()
    return Elimination(rounds, items, matrix)


def inverse_diagonal(of: Elimination) -> np.ndarray:
    """The diagonal of M⁻¹, for a matrix of a few thousand items."""
    if not of.rounds:
        return _dense_diagonal(of.matrix)
    size = of.items.size + sum(one.items.size for one in of.rounds)
    inverse = np.zeros((size, size))  # of which only the entries that are needed are touched
    inverse[np.ix_(of.items, of.items)] = dense_inverse(of.matrix)[0]
    for one in reversed(of.rounds):
        _put_back(inverse, one)
    return inverse.diagonal().copy()


def normal_draws(of: Elimination, num: int, generator: np.random.Generator) -> np.ndarray:
    """Draws of the normal law with mean 0 and covariance M⁻¹, one per column."""
    import scipy.linalg

    size = of.items.size + sum(one.items.size for one in of.rounds)
    drawn = generator.standard_normal((size, num))
    if of.items.size:
        factor = _lapack("potrf", of.matrix.T)
        drawn[of.items] = scipy.linalg.solve_triangular(
            factor, drawn[of.items], trans=1, lower=True
        )
    for one in reversed(of.rounds):
        own = np.sqrt(one.variance)[:, None] * drawn[one.items]
        for share, neighbours in zip(one.share.T, one.neighbours.T, strict=True):
            own += share[:, None] * drawn[neighbours]
        drawn[one.items] = own
    return drawn


def _independent(joined: Sparse) -> np.ndarray:
    """Items of few neighbours, no two of them neighbours: those before all their neighbours."""
    degree = np.diff(joined.indptr)
    order = degree + np.random.default_rng(degree.size).random(degree.size)
    order = np.where(degree <= _MOST_NEIGHBOURS, order, np.inf)
    first = np.full(degree.size, np.inf)
    owner = np.repeat(np.arange(degree.size), degree)
    np.minimum.at(first, owner, order[joined.indices])
    return np.isfinite(order) & (order < first)


def _eliminate_items(
    joined: Sparse, precision: np.ndarray, items: np.ndarray, chosen: np.ndarray
) -> tuple[_Round, Sparse, np.ndarray]:
    """(the round, what joins the items that are left, their prior precisions)."""
    rows = joined[chosen]
    total = precision[chosen] + np.asarray(rows.sum(axis=1)).ravel()
    variance = 1 / total
    outward = rows[:, ~chosen]
    share = outward.multiply(variance[:, None]).tocsr()
    among = (joined[~chosen][:, ~chosen] + outward.T @ share).tocsr()
    among.setdiag(0)
    among.eliminate_zeros()
    handed_on = precision[~chosen] + share.T @ precision[chosen]
    counts = np.diff(outward.indptr)
    width = int(counts.max(initial=0))
    place = np.arange(outward.nnz) - np.repeat(outward.indptr[:-1], counts)
    owner = np.repeat(np.arange(counts.size), counts)
    neighbours, shares = np.zeros((counts.size, width), int), np.zeros((counts.size, width))
    neighbours[owner, place] = items[~chosen][outward.indices]
    shares[owner, place] = variance[owner] * outward.data
    return _Round(items[chosen], variance, neighbours, shares), among, handed_on


def _put_back(inverse: np.ndarray, one: _Round) -> None:
    """Entries of N of eliminated items: with their neighbours, and their own."""
    inner = inverse[one.neighbours[:, :, None], one.neighbours[:, None, :]]
    across = np.einsum("ij,ijk->ik", one.share, inner)
    own = one.variance + np.sum(one.share * across, axis=1)
    # Where neighbours were filled up, with item 0, nothing is put.
    row, column = np.nonzero(one.share)
    i, j = one.items[row], one.neighbours[row, column]
    inverse[i, j] = inverse[j, i] = across[row, column]
    inverse[one.items, one.items] = own


def dense_inverse(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """(the inverse, the logarithm of the determinant) of a positive definite matrix."""
    factor = _lapack("potrf", matrix.T)
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(factor))))
    lower = np.tril(_lapack("potri", factor))
    return lower + np.tril(lower, -1).T, log_determinant


def _dense_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Squared lengths of the columns of the inverse Cholesky factor."""
    inverse = np.tril(_lapack("trtri", _lapack("potrf", matrix.T)))
    return np.einsum("ij,ij->j", inverse, inverse)


def _lapack(name: str, matrix: np.ndarray) -> np.ndarray:
    """A routine for lower triangles, from LAPACK itself: NumPy has no name for all of them."""
    import scipy.linalg

    if not matrix.size:  # all items were eliminated
        return matrix
    (routine,) = scipy.linalg.get_lapack_funcs((name,), (matrix,))
    result, status = routine(matrix, lower=1)
    if status:
        raise RuntimeError(f"the Hessian could not be factorised ({name} says {status})")
    return result
