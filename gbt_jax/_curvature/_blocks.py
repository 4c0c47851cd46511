"""The curvature of a fit with groups: one dense block per group.

Groups are one problem with a disconnected graph, so R is zero between them. Blocks of similar sizes
are stacked and inverted by LAPACK through NumPy: they are too small to benefit from a device, and
nothing is compiled for each size.
"""

from typing import Any, final

import numpy as np
from jaxtyping import PRNGKeyArray

from .._data._groups import GroupedRows, sort_by_group
from .._inference._fit import Fit
from .._inference._results import RESULTS
from .._util._arrays import ranges
from .._util._limits import SMALL_CURVATURE_ITEMS
from .._util._random import generator_of
from .._util._threads import in_threads, num_workers
from ._base import AbstractCurvature, Edges
from ._elimination import dense_inverse
from ._null_space import NullSpace, hessian_parts

_AT_ONCE = 2**19  # matrix entries per task of a thread: a few megabytes


@final
class BlockCurvature(AbstractCurvature):
    """The curvature of a fit with groups; items are numbered like their scores."""

    blocks: tuple[np.ndarray, ...]  # stacks of groups × size × size, each R padded with zeros
    stack: np.ndarray  # the index of the stack of each item's group
    number: np.ndarray  # the index of its matrix in the stack
    place: np.ndarray  # the item's row in the matrix
    log_determinants: np.ndarray  # of each group's M
    edges: Edges
    null_space: NullSpace

    def reduced_solve(self, rhs: Any) -> np.ndarray:
        """R @ rhs by a product for each group."""
        given = np.asarray(rhs)
        solved = np.zeros_like(given)
        for which, blocks in enumerate(self.blocks):
            items = np.flatnonzero(self.stack == which)
            at = self.number[items], self.place[items]
            columns = np.zeros((*blocks.shape[:2], given.shape[1]), given.dtype)
            columns[at] = given[items]
            solved[items] = (blocks @ columns)[at]
        return solved

    def reduced_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """Draws as in `_dense.py`, for each group."""
        generator, null_space = generator_of(key), self.null_space
        component, share = (
            np.asarray(null_space.component),
            np.asarray(null_space.share / null_space.regularised),
        )
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
        return null_space.remove(drawn)

    def reduced_entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Entries of the blocks; zero between groups."""
        stack = self.stack[a]
        together = (stack == self.stack[b]) & (self.number[a] == self.number[b])
        found = np.zeros(a.shape, self.log_determinants.dtype)
        for which, blocks in enumerate(self.blocks):
            here = np.flatnonzero(together & (stack == which))
            x, y = a[here], b[here]
            found[here] = blocks[self.number[x], self.place[x], self.place[y]]
        return found


def block_curvature(fit: Fit) -> BlockCurvature:
    """Invert M for every group."""
    rows, layout = fit.comparisons, sort_by_group(fit.comparisons)
    scores, is_good = np.asarray(fit.scores), np.atleast_1d(fit.result == RESULTS.successful)
    sizes = layout.num_items
    owner = np.repeat(np.arange(sizes.size), sizes)
    weight = np.where(is_good[owner[np.asarray(rows.a)]], np.asarray(rows.weight), 0)
    scores = np.where(is_good[owner], scores, 0).astype(scores.dtype)
    counted = rows._replace(weight=weight.astype(scores.dtype))
    row_curvature, diagonal, null_space = hessian_parts(fit.model, counted, scores)
    place = np.arange(owner.size) - layout.item_offsets[owner]
    classes, stack = np.unique(_round_up(sizes), return_inverse=True)
    blocks, number = [], np.zeros(sizes.size, int)
    log_determinants = np.full(sizes.size, np.nan)
    parts: list[tuple[np.ndarray, np.ndarray]] = []  # groups, and the views of their matrices
    for which, size in enumerate(classes.tolist()):
        groups = np.flatnonzero(stack == which)
        number[groups] = np.arange(groups.size)
        blocks.append(np.zeros((groups.size, size, size), scores.dtype))
        step = max(_AT_ONCE // size**2, 1)
        starts = range(0, groups.size, step)
        parts += [(groups[k : k + step], blocks[-1][k : k + step]) for k in starts]
    sorted_curvature = row_curvature[layout.row]

    def work(part: tuple[np.ndarray, np.ndarray]) -> None:
        groups, place = part
        found, log_determinants[groups] = _inverses(
            groups, place.shape[1], layout, sorted_curvature, diagonal, null_space
        )
        place[:] = np.where(is_good[groups, None, None], found, np.nan)

    for _ in in_threads(work, parts, num_workers()):
        pass
    log_determinants[~is_good] = np.nan
    return BlockCurvature(
        blocks=tuple(blocks),
        stack=stack[owner],
        number=number[owner],
        place=place,
        log_determinants=log_determinants.astype(scores.dtype),
        edges=Edges(np.asarray(rows.a), np.asarray(rows.b), row_curvature),
        null_space=null_space,
    )


def _factors(matrices: np.ndarray) -> np.ndarray:
    """Cholesky factors; NaN for matrices that are not positive definite.

    Those belong to groups whose fit failed, or are indefinite by rounding.
    """
    factors = np.full_like(matrices, np.nan)
    try:
        factors = np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        if len(matrices) > 1:
            factors = np.concatenate([_factors(half) for half in np.array_split(matrices, 2)])
    return factors


def _round_up(sizes: np.ndarray) -> np.ndarray:
    """Round up to 1, 2, 3, 4, 6, 8, 12, 16 …: few stacks, with blocks at most 3/2 as large."""
    power = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(int)
    return np.where((power >= 4) & (sizes <= 3 * power // 4), 3 * power // 4, power)


def _inverses(
    groups: np.ndarray,
    size: int,
    layout: GroupedRows,
    row_curvature: np.ndarray,
    item_diagonal: np.ndarray,
    null_space: NullSpace,
) -> tuple[np.ndarray, np.ndarray]:
    """(R, log det M) of some groups."""
    counts, item_counts = (np.diff(x)[groups] for x in (layout.row_offsets, layout.item_offsets))
    rows = ranges(layout.row_offsets[groups], counts)
    items = ranges(layout.item_offsets[groups], item_counts)
    where = np.repeat(np.arange(groups.size), item_counts)
    place = items - np.repeat(layout.item_offsets[groups], item_counts)

    def fill(column: np.ndarray, padding: float | int) -> np.ndarray:
        result = np.full((groups.size, size), padding, np.float64)
        result[where, place] = column[items]
        return result

    flat = np.repeat(np.arange(groups.size), counts) * size * size
    flat += layout.a[rows].astype(np.int64) * size + layout.b[rows]
    half = np.bincount(flat, row_curvature[rows], groups.size * size * size)
    half = half.reshape(groups.size, size, size)
    component, share = fill(null_space.component, -1), fill(null_space.share, 0)
    added, precision = fill(null_space.added, 0), fill(null_space.precision, 0)
    together = component[:, :, None] == component[:, None, :]
    outer = np.where(together, share[:, :, None], 0)
    matrix = added[:, :, None] * outer - half - half.transpose(0, 2, 1)
    diagonal = np.arange(size)
    matrix[:, diagonal, diagonal] += fill(item_diagonal, 1)
    scale = 1 / np.sqrt(matrix[:, diagonal, diagonal])
    scaled = matrix * scale[:, :, None] * scale[:, None, :]
    inverse, log_determinant = _invert(scaled)
    whole = inverse * scale[:, :, None] * scale[:, None, :]
    regularised = fill(null_space.regularised, 1)
    reduced = whole - outer / regularised[:, :, None]
    reduced = 0.5 * (reduced + reduced.transpose(0, 2, 1))
    reduced *= ((component >= 0)[:, :, None]) & ((component >= 0)[:, None, :])
    instead = np.log(np.where(precision > 0, precision, 1))
    correction = np.where(share > 0, instead - np.log(regularised), 0)
    log_determinant -= 2 * np.sum(np.log(scale), axis=1)
    return reduced, log_determinant + np.sum(share * correction, axis=1)


def _invert(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(inverses, logarithms of determinants) of positive definite matrices."""
    if len(matrices) > 1 or matrices.shape[1] <= SMALL_CURVATURE_ITEMS:
        return np.linalg.inv(matrices), np.linalg.slogdet(matrices)[1]
    inverse, log_determinant = dense_inverse(matrices[0])
    return inverse[None], np.array([log_determinant])
