"""Labels of groups and items: integers or strings, numbered from 0 in ascending order."""

from typing import Any, NamedTuple, final

import jax
import numpy as np

from .._util._arrays import ArrayLike


@final
class Labels:
    """The labels of groups and items; `None` without labels.

    A pytree without leaves and content: other labels cause no retracing, and transformations drop
    labels. `layout` caches the result of `sort_by_group`.
    """

    def __init__(self, groups: np.ndarray | None = None, items: np.ndarray | None = None):
        self.groups, self.items = groups, items
        self.layout: Any = None

    def __repr__(self) -> str:
        counts = [None if x is None else x.size for x in (self.groups, self.items)]
        return f"Labels(groups={counts[0]}, items={counts[1]})"


jax.tree_util.register_pytree_node(Labels, lambda _: ((), None), lambda *_: Labels())


def number_labels(name: str, labels: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(sorted distinct labels, index of each entry's label) of integers or strings."""
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
    # A dictionary finds the distinct strings in a tenth of the time of a sort.
    first: dict[Any, int] = {}
    seen = np.fromiter((first.setdefault(x, len(first)) for x in array.tolist()), np.int64)
    distinct = np.array(list(first), array.dtype)
    order = np.argsort(distinct)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return distinct[order], place[seen]


class Nodes(NamedTuple):
    """Items of groups, numbered together, group by group."""

    a: np.ndarray  # the index of each row's first item
    b: np.ndarray  # the index of each row's second item
    group: np.ndarray  # the group of each item, ascending
    item: np.ndarray  # the index of each item within its group


def number_nodes(group: np.ndarray, a: np.ndarray, b: np.ndarray, num_items: int) -> Nodes:
    """Number the pairs (group, item) that occur in rows."""
    base = group.astype(np.int64) * num_items
    distinct, number = np.unique(np.concatenate([base + a, base + b]), return_inverse=True)
    size = max(num_items, 1)
    return Nodes(number[: a.size], number[a.size :], distinct // size, distinct % size)
