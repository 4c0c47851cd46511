"""The comparison graph: its connected components, and whether an optimum exists without a prior."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._comparisons import Comparisons
from ._model import Model


def component_labels(comparisons: Comparisons) -> Array:
    """For each item the smallest item that comparisons connect it with; works under tracing."""
    return connected_labels(comparisons, comparisons.weight > 0)


def connected_labels(comparisons: Comparisons, is_edge: Array) -> Array:
    """For each item the smallest item that rows with `is_edge` connect it with.

    The labels of a row's ends hook onto the smaller label of those two, and labels shortcut through
    labels of labels, so the number of rounds grows with the logarithm of the longest path.
    """
    items = jnp.arange(comparisons.num_items, dtype=jnp.int32)
    a, b = jnp.where(is_edge, comparisons.a, comparisons.b), comparisons.b

    def advance(state):
        labels, _ = state
        grand = labels[labels]
        offered = jnp.minimum(grand[a], grand[b])
        hooked = labels.at[labels[a]].min(offered).at[labels[b]].min(offered)
        updated = jnp.minimum(hooked[hooked], grand)
        # Where everything is connected there is nothing left to find.
        return updated, jnp.any(updated != labels) & jnp.any(updated != 0)

    return lax.while_loop(lambda state: state[1], advance, (items, jnp.asarray(True)))[0]


def component_numbers(a: np.ndarray, b: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """The number of each item's component, from 0, in the order of their first items, on the host.

    As `component_labels`, but rows leave as soon as their ends are known to be connected.
    """
    label, is_open = np.arange(size), weight > 0
    while is_open.any():
        a, b = a[is_open], b[is_open]
        ends = label[a], label[b]
        lower = np.minimum(*ends)
        for end in ends:
            np.minimum.at(label, end, lower)
        while (label[label] != label).any():
            label = label[label]
        is_open = label[a] != label[b]
    return np.unique(label, return_inverse=True)[1]


def bridges(comparisons: Comparisons) -> np.ndarray:
    """Rows without which, alone, their component falls apart.

    Every row outside a spanning forest gets a random number, and marks with it the way between its
    ends in the forest: marks add up bit by bit to 0 exactly on rows of the forest that no other
    row goes around (a false 0 has a chance of 2⁻⁶⁴ a row).
    """
    # Imported where it is used, as below: it takes as long as half of JAX.
    import scipy.sparse.csgraph

    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    rows = np.flatnonzero(np.asarray(comparisons.weight) > 0)
    size = comparisons.num_items
    number = scipy.sparse.coo_matrix((rows + 1.0, (a[rows], b[rows])), (size, size)).tocsr()
    forest = scipy.sparse.csgraph.minimum_spanning_tree(number)
    num_components, label = scipy.sparse.csgraph.connected_components(forest, directed=False)
    in_forest = np.zeros(a.size, bool)
    # Parallel rows have been added up in `number`: the first row of a pair stands for them.
    pair = np.minimum(a, b).astype(np.int64) * size + np.maximum(a, b)
    tree = forest.tocoo()
    wanted = np.minimum(tree.row, tree.col).astype(np.int64) * size + np.maximum(tree.row, tree.col)
    distinct, first = np.unique(pair[rows], return_index=True)
    in_forest[rows[first[np.searchsorted(distinct, np.unique(wanted))]]] = True
    marks = np.zeros(size, np.uint64)
    outside = rows[~in_forest[rows]]
    random = np.random.default_rng(0).integers(1, 2**63, outside.size).astype(np.uint64)
    np.bitwise_xor.at(marks, a[outside], random)
    np.bitwise_xor.at(marks, b[outside], random)
    # One more item above a root of every component makes the forest a tree, walked from its leaves.
    roots = np.unique(label, return_index=True)[1]
    links = (np.ones(num_components), (np.full(num_components, size), roots))
    forest.resize(size + 1, size + 1)
    joined = forest + scipy.sparse.coo_matrix(links, (size + 1, size + 1)).tocsr()
    order, parent = scipy.sparse.csgraph.breadth_first_order(joined, size, directed=False)
    marks = np.append(marks, np.uint64(0))
    for item in order[:0:-1]:
        marks[parent[item]] ^= marks[item]
    child = np.where(parent[a] == b, a, b)
    return in_forest & (marks[child] == 0)


def _edge(model: Model, comparisons: Comparisons) -> Array:
    """Values from here on are the most that a comparison can say: of all rows, or of each."""
    dtype = comparisons.value.dtype
    return jnp.asarray(model.law.max_value, dtype) * (1 - 64 * jnp.finfo(dtype).eps)


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
    top = np.asarray(_edge(model, comparisons))  # one number, or one per row
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    a_crushed, b_crushed = values <= -top, values >= top
    # An arrow to the winner; rows that crush nobody have one back, rows that do not count go home.
    low, high = np.where(a_crushed, a, b), np.where(a_crushed, b, a)
    back = np.flatnonzero(counts & ~a_crushed & ~b_crushed)
    _, precision = model.prior(comparisons.num_items, comparisons.value.dtype)
    held = np.flatnonzero(np.asarray(precision) > 0).astype(a.dtype)
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
