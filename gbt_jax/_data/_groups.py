"""Groups of comparisons on the host: labels, and rows in the order of their groups.

Groups share the model and nothing else. A batch of them is a disjoint union of comparison graphs:
item i of two groups is two items, with a score each, numbered group by group.
"""

from typing import TYPE_CHECKING, Any, NamedTuple, final

import jax
import numpy as np
from jaxtyping import ArrayLike

if TYPE_CHECKING:
    from ._comparisons import Comparisons


@final
class Labels:
    """The labels of groups and items, beside the arrays: `None` where there are none.

    A pytree without leaves and without content: transformations neither see labels, so that other
    ones cause no retracing, nor keep them. `layout` keeps what `sort_by_group` found.
    """

    def __init__(self, groups: np.ndarray | None = None, items: np.ndarray | None = None):
        self.groups, self.items = groups, items
        self.layout: GroupedRows | None = None

    def __repr__(self) -> str:
        counts = [None if x is None else x.size for x in (self.groups, self.items)]
        return f"Labels(groups={counts[0]}, items={counts[1]})"


jax.tree_util.register_pytree_node(Labels, lambda _: ((), None), lambda *_: Labels())


def number_labels(name: str, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(distinct labels ascending, the number of each entry's label) of integers or strings."""
    array = np.asarray(labels)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuUS":
        raise ValueError(
            f"{name} must be a vector of integers or strings, not {array.dtype} of shape "
            f"{array.shape}"
        )
    if array.dtype.kind in "iu":
        return np.unique(array, return_inverse=True)
    # A dictionary finds the distinct strings in a tenth of the time of sorting them all.
    first: dict[Any, int] = {}
    seen = np.fromiter((first.setdefault(x, len(first)) for x in array.tolist()), np.int64)
    distinct = np.array(list(first), array.dtype)
    order = np.argsort(distinct)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return distinct[order], place[seen]


class Nodes(NamedTuple):
    """Items of groups, numbered together, group by group."""

    a: np.ndarray  # the number of each row's first item,
    b: np.ndarray  # and of its second
    group: np.ndarray  # the group of each item, ascending
    item: np.ndarray  # and which item of the group it is


def number_nodes(group: np.ndarray, a: np.ndarray, b: np.ndarray, num_items: int) -> Nodes:
    """Number the pairs (group, item) that occur in rows."""
    base = group.astype(np.int64) * num_items
    distinct, number = np.unique(np.concatenate([base + a, base + b]), return_inverse=True)
    size = max(num_items, 1)
    return Nodes(number[: a.size], number[a.size :], distinct // size, distinct % size)


class GroupedRows(NamedTuple):
    """Rows sorted by group, with items numbered within their group. Arrays of NumPy."""

    row: np.ndarray  # where each row stands in the comparisons
    row_offsets: np.ndarray  # the rows of group g are row_offsets[g]:row_offsets[g + 1],
    item_offsets: np.ndarray  # and its items item_offsets[g]:item_offsets[g + 1]
    a: np.ndarray
    b: np.ndarray

    @property
    def num_rows(self) -> np.ndarray:
        """Of each group."""
        return np.diff(self.row_offsets)

    @property
    def num_items(self) -> np.ndarray:
        """Of each group."""
        return np.diff(self.item_offsets)

    @property
    def owner(self) -> np.ndarray:
        """The group of each row."""
        return np.repeat(np.arange(self.num_rows.size), self.num_rows)


def sort_by_group(comparisons: "Comparisons") -> GroupedRows:
    """The rows of comparisons, group by group; those without groups are one."""
    labels = comparisons.labels
    if labels.layout is None:
        labels.layout = _layout(comparisons)
    return labels.layout


def _layout(comparisons: "Comparisons") -> GroupedRows:
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    row = np.arange(a.size)
    if comparisons.group is None or comparisons.num_groups is None:
        ends = np.array([0, a.size]), np.array([0, comparisons.num_items])
        return GroupedRows(row, *ends, a, b)
    group, numbers = np.asarray(comparisons.group), np.arange(comparisons.num_groups + 1)
    item_offsets, owner = np.searchsorted(group, numbers), group[a]
    if (owner[1:] < owner[:-1]).any():
        row = np.argsort(owner, kind="stable")
        a, b, owner = (x[row] for x in (a, b, owner))
    start = item_offsets[owner].astype(a.dtype)
    row_offsets = np.searchsorted(owner, numbers)
    return GroupedRows(row, row_offsets, item_offsets, a - start, b - start)
