"""Many users side by side, each with a matrix of its own.

The users are one problem whose graph falls apart, and R is zero between them. Matrices of users of
similar sizes are stacked and inverted by LAPACK through NumPy: they are too small for a device to
gain anything, and nothing is compiled for each size.
"""

import functools
from typing import final

import jax
import numpy as np
from jax import Array

from .._arrays import as_array, ranges
from .._compilation import quick_options
from .._fit import RESULTS
from .._random import generator_of
from .._user_comparisons import UserComparisons
from .._user_fits import UserFits
from .._workers import in_threads, num_workers
from ..laws import AbstractRootLaw
from ._base import AbstractCurvature, Edges
from ._levels import Levels, diagonal_of, levels_of

_AT_ONCE = 2**19  # entries of matrices in the work of a thread: a few megabytes


@final
class BlockCurvature(AbstractCurvature):
    """The curvature of `UserFits`: items are numbered as their scores are, over all users."""

    blocks: tuple[np.ndarray, ...]  # users × size × size, each R filled up with zeros
    stack: np.ndarray  # of each item, which of the stacks its user is in,
    number: np.ndarray  # which matrix of the stack that is,
    place: np.ndarray  # and which of its rows is the item's
    log_determinants: np.ndarray  # of M, of each user
    edges: Edges
    levels: Levels

    def reduced_solve(self, rhs: Array) -> Array:
        """A product for each user."""
        given = np.asarray(rhs)
        solved = np.zeros_like(given)
        for which, blocks in enumerate(self.blocks):
            items = np.flatnonzero(self.stack == which)
            at = self.number[items], self.place[items]
            columns = np.zeros((*blocks.shape[:2], given.shape[1]), given.dtype)
            columns[at] = given[items]
            solved[items] = (blocks @ columns)[at]
        return as_array(solved)

    def reduced_draws(self, num: int, *, key: Array) -> Array:
        """As in `_dense.py`, for each user."""
        generator, levels = generator_of(key), self.levels
        component, share = np.asarray(levels.component), np.asarray(levels.share / levels.held)
        drawn = np.empty((self.num_items, num), share.dtype)
        for which, blocks in enumerate(self.blocks):
            items = np.flatnonzero(self.stack == which)
            at = self.number[items], self.place[items]
            count, size = blocks.shape[:2]
            owner, along = np.full((count, size), -1), np.zeros((count, size), share.dtype)
            owner[at], along[at] = component[items], share[items]
            together = (owner[:, :, None] == owner[:, None, :]) & (owner >= 0)[:, :, None]
            filled = blocks + np.where(together, along[:, :, None], 0)
            filled += (owner < 0)[:, :, None] * np.eye(size, dtype=share.dtype)
            factor = _factors(filled)
            normal = generator.standard_normal((count, size, num), share.dtype)
            drawn[items] = (factor @ normal)[at]
        return levels.removed(as_array(drawn))

    def reduced_entries(self, a: Array, b: Array) -> Array:
        """Looked up; zero between users."""
        first, second = np.asarray(a), np.asarray(b)
        stack = self.stack[first]
        together = (stack == self.stack[second]) & (self.number[first] == self.number[second])
        found = np.zeros(first.shape, self.log_determinants.dtype)
        for which, blocks in enumerate(self.blocks):
            here = np.flatnonzero(together & (stack == which))
            x, y = first[here], second[here]
            found[here] = blocks[self.number[x], self.place[x], self.place[y]]
        return as_array(found)


def block_curvature(fits: UserFits) -> BlockCurvature:
    """Invert every user's M."""
    data, law = fits.comparisons, fits.model.law
    sizes = np.diff(data.item_offsets)
    owner = np.repeat(np.arange(len(fits)), sizes)
    row_owner = np.repeat(np.arange(len(fits)), np.diff(data.row_offsets))
    is_good = fits.result_codes == RESULTS.successful.value
    shift = data.item_offsets[row_owner].astype(np.int32)
    a, b = data.a + shift, data.b + shift
    weight = np.where(is_good[row_owner], data.weight, 0).astype(fits.scores.dtype)
    scores = np.where(is_good[owner], fits.scores, 0).astype(fits.scores.dtype)
    std = np.asarray(fits.model.prior_std, scores.dtype)
    precision = np.broadcast_to((1 / std if std.ndim == 0 else 1 / std[owner]) ** 2, owner.shape)
    row_curvature = _row_curvature(law, data.row, weight, scores[a] - scores[b])
    diagonal = diagonal_of(a, b, row_curvature, precision)
    levels = levels_of(a, b, weight, precision, diagonal)
    place = np.arange(owner.size) - data.item_offsets[owner]
    classes, stack = np.unique(_rounded_up(sizes), return_inverse=True)
    blocks, number = [], np.zeros(len(fits), int)
    log_determinants = np.full(len(fits), np.nan)
    parts: list[tuple[np.ndarray, np.ndarray]] = []  # users, and where their matrices go
    for which, size in enumerate(classes.tolist()):
        users = np.flatnonzero(stack == which)
        number[users] = np.arange(users.size)
        blocks.append(np.zeros((users.size, size, size), scores.dtype))
        step = max(_AT_ONCE // size**2, 1)
        starts = range(0, users.size, step)
        parts += [(users[k : k + step], blocks[-1][k : k + step]) for k in starts]

    def work(part: tuple[np.ndarray, np.ndarray]) -> None:
        users, place = part
        found, log_determinants[users] = _inverses(
            users, place.shape[1], data, row_curvature, diagonal, levels
        )
        place[:] = np.where(is_good[users, None, None], found, np.nan)

    for _ in in_threads(work, parts, num_workers()):
        pass
    log_determinants[~is_good] = np.nan
    return BlockCurvature(
        blocks=tuple(blocks),
        stack=stack[owner],
        number=number[owner],
        place=place,
        log_determinants=log_determinants.astype(scores.dtype),
        edges=Edges(as_array(a), as_array(b), as_array(row_curvature)),
        levels=levels,
    )


def _factors(matrices: np.ndarray) -> np.ndarray:
    """Cholesky factors; NaN where a matrix has none, of a user whose fit failed or whose Hessian
    rounding has spoilt."""
    factors = np.full_like(matrices, np.nan)
    try:
        factors = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) > 1:
            factors = np.concatenate([_factors(half) for half in np.array_split(matrices, 2)])
    return factors


def _rounded_up(sizes: np.ndarray) -> np.ndarray:
    """To 1, 2, 3, 4, 6, 8, 12, 16 …: few stacks, and at most half as much again in each."""
    power = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(int)
    return np.where((power >= 4) & (sizes <= 3 * power // 4), 3 * power // 4, power)


def _row_curvature(
    law: AbstractRootLaw, row: np.ndarray, weight: np.ndarray, t: np.ndarray
) -> np.ndarray:
    """w Φ''(t) of each comparison, in a shape that few data sets do not share.

    `row` tells which of the law's rows each is.
    """
    padding = (0, 2 ** max(t.size - 1, 1).bit_length() - t.size)
    found = _variances()(law.at_rows(np.pad(row, padding)), np.pad(t, padding))
    return weight * np.asarray(found)[: t.size]


@functools.cache
def _variances():
    # Run once for each data set, so that compiling is most of it.
    return jax.jit(lambda law, t: law.variance(t), compiler_options=quick_options())


def _inverses(
    users: np.ndarray,
    size: int,
    data: UserComparisons,
    row_curvature: np.ndarray,
    item_diagonal: np.ndarray,
    levels: Levels,
) -> tuple[np.ndarray, np.ndarray]:
    """(R, log det M) of some users, as `_dense.py` finds them."""
    counts, item_counts = (np.diff(x)[users] for x in (data.row_offsets, data.item_offsets))
    rows = ranges(data.row_offsets[users], counts)
    items = ranges(data.item_offsets[users], item_counts)
    where = np.repeat(np.arange(users.size), item_counts)
    place = items - np.repeat(data.item_offsets[users], item_counts)

    def filled(column: np.ndarray | Array, padding: float) -> np.ndarray:
        result = np.full((users.size, size), padding, np.float64)
        result[where, place] = np.asarray(column)[items]
        return result

    flat = np.repeat(np.arange(users.size), counts) * size * size
    flat += data.a[rows].astype(np.int64) * size + data.b[rows]
    half = np.bincount(flat, row_curvature[rows], users.size * size * size)
    half = half.reshape(users.size, size, size)
    component, share = filled(levels.component, -1), filled(levels.share, 0)
    added, precision = filled(levels.added, 0), filled(levels.precision, 0)
    together = component[:, :, None] == component[:, None, :]
    outer = np.where(together, share[:, :, None], 0)
    matrix = added[:, :, None] * outer - half - half.transpose(0, 2, 1)
    diagonal = np.arange(size)
    matrix[:, diagonal, diagonal] += filled(item_diagonal, 1)
    scale = 1 / np.sqrt(matrix[:, diagonal, diagonal])
    scaled = matrix * scale[:, :, None] * scale[:, None, :]
    whole = np.linalg.inv(scaled) * scale[:, :, None] * scale[:, None, :]
    held = filled(levels.held, 1)
    reduced = whole - outer / held[:, :, None]
    reduced = 0.5 * (reduced + reduced.transpose(0, 2, 1))
    reduced *= ((component >= 0)[:, :, None]) & ((component >= 0)[:, None, :])
    instead = np.log(np.where(precision > 0, precision, 1))
    correction = np.where(share > 0, instead - np.log(held), 0)
    determinant = np.linalg.slogdet(scaled)[1] - 2 * np.sum(np.log(scale), axis=1)
    return reduced, determinant + np.sum(share * correction, axis=1)
