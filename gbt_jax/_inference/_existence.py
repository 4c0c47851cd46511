"""Existence of a finite optimum if some scores have no prior."""

from typing import Any, NamedTuple

import numpy as np

from .._data._comparisons import Comparisons
from .._model import Model, precision_on_host


def may_be_unbounded(model: Model) -> bool:
    """Whether some score has no prior, under a law that allows separation; for concrete models."""
    is_bounded = np.isfinite(np.asarray(model.law.max_value)).any()
    return bool(np.isinf(np.asarray(model.prior_std)).any() and is_bounded)


class Unbounded(NamedTuple):
    """Items whose scores are unbounded, and whether all items are known to be connected."""

    items: np.ndarray
    is_connected: bool


def unbounded_items(model: Model, comparisons: Comparisons) -> Unbounded:
    """Items whose scores grow without bound (separation), so that no finite optimum exists.

    The loss decreases without bound as a set of items moves up if and only if each of its
    comparisons with other items has the extreme value r = r_max in favour of the set, and no item
    of the set has a prior. In the directed graph with an arrow from loser to winner for extreme
    values, and arrows both ways for other values and between all items with a prior, an optimum
    exists if and only if each connected component is strongly connected (Ford's condition for the
    Bradley-Terry model). The result is the items of strong components that no arrow leaves. If
    those have a prior, the other scores decrease without bound, and the result is the items of
    strong components that no arrow enters.
    """
    from scipy.sparse.csgraph import connected_components

    values, counts = np.asarray(comparisons.value), np.asarray(comparisons.weight) > 0
    # Values from `top` on are extreme, up to rounding: one number, or one per row.
    top = np.asarray(model.law.max_value, values.dtype) * (1 - 64 * np.finfo(values.dtype).eps)
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    a_loses, b_loses = values <= -top, values >= top
    # An arrow to the winner, and one back unless the value is extreme; rows of weight 0 are loops.
    low, high = np.where(a_loses, a, b), np.where(a_loses, b, a)
    back = np.flatnonzero(counts & ~a_loses & ~b_loses)
    precision = precision_on_host(model, comparisons, comparisons.value.dtype)
    # An additional node connects all items with a prior.
    with_prior = np.flatnonzero(precision > 0).astype(a.dtype)
    node = np.full(with_prior.size, comparisons.num_items, a.dtype)
    tails = np.concatenate([low, high[back], with_prior, node])
    heads = np.concatenate([np.where(counts, high, low), low[back], node, with_prior])
    arrows = _adjacency(tails, heads, comparisons.num_items + min(with_prior.size, 1))
    num_strong, strong = connected_components(arrows, directed=True, connection="strong")
    if num_strong <= 1:  # the usual case: no second search
        # Items with a prior are connected here even if comparisons do not connect them.
        return Unbounded(np.zeros(0, int), is_connected=not with_prior.size)
    num_weak, weak = connected_components(arrows, directed=True, connection="weak")
    if num_weak == num_strong:
        return Unbounded(np.zeros(0, int), is_connected=False)
    ends = strong[tails], strong[heads]
    left, entered = (np.isin(strong, end[ends[0] != ends[1]]) for end in ends)
    first = np.unique(strong, return_index=True)[1]  # an item of each
    runs = np.bincount(weak[first], minlength=num_weak)[weak] > 1
    if with_prior.size:
        runs &= strong != strong[-1]
    at_the_top = runs & ~left
    items = np.flatnonzero(at_the_top if at_the_top.any() else runs & ~entered)
    return Unbounded(items, is_connected=False)


def _adjacency(tails: np.ndarray, heads: np.ndarray, size: int) -> Any:
    """A sparse matrix with an entry from each tail to each of its heads.

    SciPy sorts pairs to find parallel ones, which takes three times as long as a counting sort. In
    a matrix with one arrow per row, two transpositions sort arrows by head and then by tail.
    """
    import scipy.sparse

    start = np.arange(tails.size + 1, dtype=tails.dtype)
    by_head = scipy.sparse.csr_matrix((tails, heads, start), (tails.size, size)).tocsc()
    ones = np.ones(tails.size)
    arrows = scipy.sparse.csc_matrix((ones, by_head.data, by_head.indptr), (size, size)).tocsr()
    arrows.sum_duplicates()
    return arrows
