"""The comparison graph: its connected components and its bridges."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._comparisons import Comparisons


def component_labels(comparisons: Comparisons) -> Array:
    """The smallest item of each item's connected component; works under tracing."""
    return connected_labels(comparisons, comparisons.weight > 0)


def connected_labels(comparisons: Comparisons, is_edge: Array) -> Array:
    """The smallest item of each item's connected component in the graph of rows with `is_edge`.

    Each round hooks the labels of both ends of a row onto the smaller of the two, and shortcuts
    labels by labels of labels. The number of rounds is logarithmic in the longest path.
    """
    items = jnp.arange(comparisons.num_items, dtype=jnp.int32)
    a, b = jnp.where(is_edge, comparisons.a, comparisons.b), comparisons.b

    def advance(state):
        labels, _ = state
        grand = labels[labels]
        offered = jnp.minimum(grand[a], grand[b])
        hooked = labels.at[labels[a]].min(offered).at[labels[b]].min(offered)
        updated = jnp.minimum(hooked[hooked], grand)
        # Stop early if all items are connected.
        return updated, jnp.any(updated != labels) & jnp.any(updated != 0)

    return lax.while_loop(lambda state: state[1], advance, (items, jnp.asarray(True)))[0]


def components(comparisons: Comparisons) -> np.ndarray:
    """The index of each item's component, on the host, without compiling for each size."""
    a, b, weight = (np.asarray(x) for x in (comparisons.a, comparisons.b, comparisons.weight))
    return component_numbers(a, b, weight, comparisons.num_items)


def component_numbers(a: np.ndarray, b: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """The index of each item's component, from 0, in the order of their first items, on the host.

    The algorithm is that of `component_labels`, but drops rows whose ends are already connected.
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
    """Rows whose removal disconnects their component.

    Every row outside a spanning forest gets a random number, which marks the path between its ends
    in the forest. The XOR of the marks of a forest row is 0 if and only if no other row closes a
    cycle through it (up to a probability of 2⁻⁶⁴ per row).
    """
    # Imported here because the import takes half as long as that of JAX.
    import scipy.sparse.csgraph

    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    rows = np.flatnonzero(np.asarray(comparisons.weight) > 0)
    size = comparisons.num_items
    number = scipy.sparse.coo_matrix((rows + 1.0, (a[rows], b[rows])), (size, size)).tocsr()
    forest = scipy.sparse.csgraph.minimum_spanning_tree(number)
    num_components, label = scipy.sparse.csgraph.connected_components(forest, directed=False)
    in_forest = np.zeros(a.size, bool)
    # `number` sums parallel rows: the first row of a pair represents them.
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
    # An additional item above a root of every component makes the forest a tree.
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
