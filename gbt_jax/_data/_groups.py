"""Rows sorted by group, on the host.

Groups are fitted independently under one model. A batch of groups is a disjoint union of comparison
graphs: item i of two groups is two items with separate scores, numbered group by group.
"""

from typing import NamedTuple

import numpy as np

from ._comparisons import Comparisons


class GroupedRows(NamedTuple):
    """Rows sorted by group, with indices of items within their group, as NumPy arrays."""

    row: np.ndarray  # the position of each row in the comparisons
    row_offsets: np.ndarray  # the rows of group g are row_offsets[g]:row_offsets[g + 1]
    item_offsets: np.ndarray  # the items of group g are item_offsets[g]:item_offsets[g + 1]
    a: np.ndarray
    b: np.ndarray

    @property
    def num_rows(self) -> np.ndarray:
        """The number of rows of each group."""
        return np.diff(self.row_offsets)

    @property
    def num_items(self) -> np.ndarray:
        """The number of items of each group."""
        return np.diff(self.item_offsets)

    @property
    def owner(self) -> np.ndarray:
        """The group of each row."""
        return np.repeat(np.arange(self.num_rows.size), self.num_rows)


def sort_by_group(comparisons: Comparisons) -> GroupedRows:
    """The rows of comparisons sorted by group; comparisons without groups are one group."""
    labels = comparisons.labels
    if labels.layout is None:
        labels.layout = _layout(comparisons)
    return labels.layout


def _layout(comparisons: Comparisons) -> GroupedRows:
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
