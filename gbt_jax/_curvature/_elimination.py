"""The diagonal of N and draws without a dense N, by elimination of items with few comparisons.

Given its neighbours S, the score of an item is normal with mean Σ α_j θ_j, α_j = e_j/d, and
variance 1/d, where e_j are the entries −M of its comparisons, p its prior precision and
d = p + Σ e_j. Eliminating it connects its neighbours and adds its prior to theirs:

    e_jk ← e_jk + e_j e_k/d,    p_j ← p_j + p e_j/d,

sums of positive numbers, without cancellation. Items that are not neighbours are eliminated
together. The remaining items, each with many neighbours, are inverted as a dense matrix, and
back-substitution gives the rest: N_iS = α N_SS and N_ii = 1/d + α N_SS α, where all entries of N_SS
are known because elimination connected S. Draws use the same back-substitution: θ_i = α θ_S + z/√d.
"""

from typing import Any, NamedTuple

import numpy as np

# Functions import SciPy's matrices, because the import takes half as long as that of JAX.
Sparse = Any  # a symmetric csr_array of SciPy
_MOST_NEIGHBOURS = 16  # of an item that is eliminated
_LEAST_SHARE = 0.01  # share of eliminated items below which elimination ends


class _Round(NamedTuple):
    """Items eliminated together, with their neighbours, padded to the same number."""

    items: np.ndarray
    variance: np.ndarray  # 1/d
    neighbours: np.ndarray
    share: np.ndarray  # α, 0 for padding


class Elimination(NamedTuple):
    """M = diag(p) + Bᵀ diag(c) B in parts: eliminated items, and the matrix of the others."""

    rounds: list[_Round]
    items: np.ndarray
    matrix: np.ndarray


def eliminate(
    a: np.ndarray, b: np.ndarray, curvature: np.ndarray, precision: np.ndarray
) -> Elimination:
    """Eliminate items until most remaining ones have many neighbours."""
    import scipy.sparse

    size = precision.size
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    adjacency = scipy.sparse.coo_array((np.tile(curvature, 2), ends), (size, size)).tocsr()
    adjacency.eliminate_zeros()
    rounds, items, precision = [], np.arange(size), precision.astype(float)
    while True:
        chosen = _independent_items(adjacency)
        if np.count_nonzero(chosen) <= _LEAST_SHARE * items.size:
            break
        one, adjacency, precision = _eliminate_items(adjacency, precision, items, chosen)
        rounds.append(one)
        items = items[~chosen]
    matrix = -adjacency.toarray()
    matrix[np.diag_indices(items.size)] = precision + np.asarray(adjacency.sum(axis=1)).ravel()
    return Elimination(rounds, items, matrix)


def inverse_diagonal(of: Elimination) -> np.ndarray:
    """The diagonal of M⁻¹, for a matrix of a few thousand items."""
    if not of.rounds:
        return _dense_diagonal(of.matrix)
    size = of.items.size + sum(one.items.size for one in of.rounds)
    inverse = np.zeros((size, size))  # only the required entries are touched
    inverse[np.ix_(of.items, of.items)] = dense_inverse(of.matrix)[0]
    for one in reversed(of.rounds):
        _back_substitute(inverse, one)
    return inverse.diagonal().copy()


def normal_draws(of: Elimination, num: int, generator: np.random.Generator) -> np.ndarray:
    """Draws from the normal distribution of mean 0 and covariance M⁻¹, one per column."""
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


def _independent_items(adjacency: Sparse) -> np.ndarray:
    """An independent set of items with few neighbours: those ordered before all neighbours."""
    degree = np.diff(adjacency.indptr)
    order = degree + np.random.default_rng(degree.size).random(degree.size)
    order = np.where(degree <= _MOST_NEIGHBOURS, order, np.inf)
    first = np.full(degree.size, np.inf)
    owner = np.repeat(np.arange(degree.size), degree)
    np.minimum.at(first, owner, order[adjacency.indices])
    return np.isfinite(order) & (order < first)


def _eliminate_items(
    adjacency: Sparse, precision: np.ndarray, items: np.ndarray, chosen: np.ndarray
) -> tuple[_Round, Sparse, np.ndarray]:
    """(the round, the adjacency matrix of the remaining items, their prior precisions)."""
    rows = adjacency[chosen]
    total = precision[chosen] + np.asarray(rows.sum(axis=1)).ravel()
    variance = 1 / total
    outward = rows[:, ~chosen]
    share = outward.multiply(variance[:, None]).tocsr()
    remaining = (adjacency[~chosen][:, ~chosen] + outward.T @ share).tocsr()
    remaining.setdiag(0)
    remaining.eliminate_zeros()
    updated = precision[~chosen] + share.T @ precision[chosen]
    counts = np.diff(outward.indptr)
    width = int(counts.max(initial=0))
    place = np.arange(outward.nnz) - np.repeat(outward.indptr[:-1], counts)
    owner = np.repeat(np.arange(counts.size), counts)
    neighbours, shares = np.zeros((counts.size, width), int), np.zeros((counts.size, width))
    neighbours[owner, place] = items[~chosen][outward.indices]
    shares[owner, place] = variance[owner] * outward.data
    return _Round(items[chosen], variance, neighbours, shares), remaining, updated


def _back_substitute(inverse: np.ndarray, one: _Round) -> None:
    """Back-substitute: the entries of N of eliminated items with neighbours and on the diagonal."""
    inner = inverse[one.neighbours[:, :, None], one.neighbours[:, None, :]]
    across = np.einsum("ij,ijk->ik", one.share, inner)
    own = one.variance + np.sum(one.share * across, axis=1)
    # Padding (share 0, item 0) is skipped.
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
    """The diagonal of the inverse: squared norms of the columns of the inverse Cholesky factor."""
    inverse = np.tril(_lapack("trtri", _lapack("potrf", matrix.T)))
    return np.einsum("ij,ij->j", inverse, inverse)


def _lapack(name: str, matrix: np.ndarray) -> np.ndarray:
    """Call a LAPACK routine on the lower triangle: NumPy does not have all of them."""
    import scipy.linalg

    if not matrix.size:  # all items were eliminated
        return matrix
    (routine,) = scipy.linalg.get_lapack_funcs((name,), (matrix,))
    result, status = routine(matrix, lower=1)
    if status:
        raise RuntimeError(f"the Hessian could not be factorised ({name} returned {status})")
    return result
