"""Whether a finite optimum exists where some scores have no prior."""

from typing import Any, NamedTuple

import numpy as np

from .._data._comparisons import Comparisons
from .._model import Model, precision_on_host


def may_be_unbounded(model: Model) -> bool:
    """Whether some score has no prior, under a law that lets it grow; for concrete models."""
    is_bounded = np.isfinite(np.asarray(model.law.max_value)).any()
    return bool(np.isinf(np.asarray(model.prior_std)).any() and is_bounded)


class Unbounded(NamedTuple):
    """Items whose scores have no bound, and whether all items are known to be connected."""

    items: np.ndarray
    is_connected: bool


def unbounded_items(model: Model, comparisons: Comparisons) -> Unbounded:
    """Items whose scores would grow without bound: no finite optimum exists if there are any.

    Moving a group of items up together lowers the loss forever exactly when every comparison
    between the group and the rest says the most a comparison can say, r = r_max, in favour of the
    group, and no prior holds the group. Draw an arrow from the loser to the winner of such
    comparisons, arrows both ways for all others and between all items that have a prior: then an
    optimum exists if and only if each connected component is strongly connected (Ford's condition
    for the Bradley-Terry model). What is returned are the items at the top, of those parts that no
    arrow leaves; where these have a prior all others fall, and it is the items at the bottom.
    """
    from scipy.sparse.csgraph import connected_components

    values, counts = np.asarray(comparisons.value), np.asarray(comparisons.weight) > 0
    # Values from here on are the most that a comparison can say: of all rows, or of each.
    top = np.asarray(model.law.max_value, values.dtype) * (1 - 64 * np.finfo(values.dtype).eps)
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    a_crushed, b_crushed = values <= -top, values >= top
    # An arrow to the winner; rows that crush nobody have one back, rows that do not count go home.
    low, high = np.where(a_crushed, a, b), np.where(a_crushed, b, a)
    back = np.flatnonzero(counts & ~a_crushed & ~b_crushed)
    precision = precision_on_host(model, comparisons, comparisons.value.dtype)
    held = np.flatnonzero(precision > 0).astype(a.dtype)
    ground = np.full(held.size, comparisons.num_items, a.dtype)
    tails = np.concatenate([low, high[back], held, ground])
    heads = np.concatenate([np.where(counts, high, low), low[back], ground, held])
    # The ground is there if anybody stands on it.
    arrows = _adjacency(tails, heads, comparisons.num_items + min(held.size, 1))
    num_strong, strong = connected_components(arrows, directed=True, connection="strong")
    if num_strong <= 1:  # as usual: no need to search again
        # A prior connects items too, but comparisons may not.
        return Unbounded(np.zeros(0, int), is_connected=not held.size)
    num_weak, weak = connected_components(arrows, directed=True, connection="weak")
    if num_weak == num_strong:
        return Unbounded(np.zeros(0, int), is_connected=False)
    ends = strong[tails], strong[heads]
    left, entered = (np.isin(strong, end[ends[0] != ends[1]]) for end in ends)
    first = np.unique(strong, return_index=True)[1]  # an item of each
    runs = np.bincount(weak[first], minlength=num_weak)[weak] > 1
    if held.size:
        runs &= strong != strong[-1]
    at_the_top = runs & ~left
    items = np.flatnonzero(at_the_top if at_the_top.any() else runs & ~entered)
    return Unbounded(items, is_connected=False)


def _adjacency(tails: np.ndarray, heads: np.ndarray, size: int) -> Any:
    """A sparse matrix with an entry from each tail to each of its heads.

    SciPy sorts pairs to find parallel ones, which takes three times as long as counting does:
    arrows as the only entries of their rows are ordered by heads when their matrix is transposed,
    and then by tails when this one is.
    """
    import scipy.sparse

    start = np.arange(tails.size + 1, dtype=tails.dtype)
    by_head = scipy.sparse.csr_matrix((tails, heads, start), (tails.size, size)).tocsc()
    ones = np.ones(tails.size)
    arrows = scipy.sparse.csc_matrix((ones, by_head.data, by_head.indptr), (size, size)).tocsr()
    arrows.sum_duplicates()
    return arrows
