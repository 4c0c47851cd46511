"""`Comparisons`: pairs of items with outcomes, weights and groups."""

import dataclasses
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .._util._arrays import ArrayLike, Integer, as_array, floating, is_concrete, whole_number
from ._labels import Labels, number_labels, number_nodes
from ._partition import ONE, AbstractPartition, Segments


@final
class Comparisons(eqx.Module):
    """A list of comparisons between items, numbered from 0.

    Row i compares `a[i]` with `b[i]`, with outcome `value[i]`; a positive value means that a is
    better than b. `weight[i]` is a non-negative number of repeats: 0 is padding, n is n repeats.

    Groups (users, judges, leagues) are fitted independently under one model: the same item of two
    groups is two items. They are numbered together, group by group, so that `a` and `b` are
    positions in `Fit.scores`, and `num_items` counts the items of all groups.

    **Arguments:**

    - `a`, `b`, `value`, `weight`: one entry per comparison.
    - `num_items`: items are numbered from 0 to `num_items` − 1 (in every group).
    - `group`: an integer label for each comparison, if there are several groups.
    - `is_merged`: values are averages of repeats, as `merge_repeats` makes them.

    Without groups, the constructor checks every row of concrete arrays. With groups, an invalid row
    (a value that is not finite, a negative weight, an item compared with itself) invalidates the
    fit of its group only. Values and weights may be traced by a JAX transformation.
    """

    a: Int[Array, " rows"]
    b: Int[Array, " rows"]
    value: Float[Array, " rows"]
    weight: Float[Array, " rows"]
    group: Int[Array, " items"] | None  # of each item, ascending from 0
    num_items: int = eqx.field(static=True)
    num_groups: int | None = eqx.field(static=True)
    is_merged: bool = eqx.field(static=True)
    labels: Labels

    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        value: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        num_items: Integer,
        group: ArrayLike | None = None,
        is_merged: bool = False,
    ):
        self.num_items = whole_number("num_items", num_items, at_least=0)
        self.is_merged = is_merged
        self.group, self.num_groups, self.labels = None, None, Labels()
        if group is not None:
            a, b = self._number_groups(group, a, b)
            self.value, self.weight = _columns_of_groups(value, weight, a.size)
        else:
            if is_concrete(a, b, value, weight):
                a, b = _indices("a", a, self.num_items), _indices("b", b, self.num_items)
                value, weight = _checked_columns(a, b, value, weight)
            self.value = floating(value)
            weights = jnp.ones_like(self.value) if weight is None else floating(weight)
            self.weight = as_array(weights, self.value.dtype)
        self.a, self.b = as_array(a, np.int32), as_array(b, np.int32)

    @classmethod
    def from_labels(
        cls,
        a: ArrayLike,
        b: ArrayLike,
        value: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        group: ArrayLike | None = None,
    ) -> "Comparisons":
        """Comparisons of items, and optionally groups, with labels: integers or strings.

        Items and groups are numbered in the order of their labels. `Fit.item` and `Fit.group` are
        the labels of each score. A float32 column of values keeps its dtype.

        **Arguments:**

        - `a`, `b`: the labels of the items, one per comparison.
        - `value`, `weight`: as in `Comparisons`.
        - `group`: the label of each comparison's group.

        **Returns:** the `Comparisons`.
        """
        first, second = np.asarray(a), np.asarray(b)
        for name, x in (("a", first), ("b", second)):
            number_labels(name, x[:1] if x.ndim else x)  # checks labels by column
        kinds = [_kind(x) for x in (first, second)]
        if first.shape == second.shape and first.size and kinds[0] != kinds[1]:
            raise ValueError(
                f"a and b must both be integers or both strings, not {first.dtype} and "
                f"{second.dtype}"
            )
        items, number = number_labels("a and b", np.concatenate([first, second]))
        ends = number[: first.size], number[first.size :]
        if group is None:
            made = cls(*ends, value, weight, num_items=items.size)
            return made._replace(labels=Labels(None, items))
        groups, owner = number_labels("group", group)
        made = cls(*ends, value, weight, num_items=items.size, group=owner)
        return made._replace(labels=Labels(groups, items[made.labels.items]))

    def __len__(self) -> int:
        return self.value.shape[-1]

    def __repr__(self) -> str:
        groups = "" if self.num_groups is None else f", {self.num_groups:,} groups"
        return f"Comparisons({len(self):,} rows, {self.num_items:,} items{groups})"

    @property
    def partition(self) -> AbstractPartition:
        """The partition of items into groups."""
        if self.group is None or self.num_groups is None:
            return ONE
        return Segments(self.group, self.num_groups)

    @property
    def group_labels(self) -> np.ndarray:
        """The label of each group; its index if a transformation dropped the labels."""
        labels = self.labels.groups
        return np.arange(self.num_groups or 1) if labels is None else labels

    @property
    def item_labels(self) -> np.ndarray:
        """The label of each item; its index if a transformation dropped the labels."""
        labels = self.labels.items
        return np.arange(self.num_items) if labels is None else labels

    def number_of(self, group: Any) -> int:
        """The index of the group with this label."""
        if self.num_groups is None:
            raise TypeError("these comparisons have no groups")
        labels = self.group_labels
        is_text = labels.dtype.kind in "US"
        if isinstance(group, str | bytes if is_text else int | np.integer):
            place = int(np.searchsorted(labels, group))
            if place < labels.size and labels[place] == group:
                return place
        raise KeyError(group)

    def with_values(self, value: ArrayLike) -> "Comparisons":
        """The same pairs with other outcomes."""
        return self._with_columns(value, self.weight)

    def with_weights(self, weight: ArrayLike) -> "Comparisons":
        """The same pairs and outcomes with other weights."""
        return self._with_columns(self.value, weight)

    def merge_repeats(self) -> "Comparisons":
        """Merge rows of the same pair, with the same optimum: add weights and average values.

        The loss of n rows of a pair, Σ w_i (Φ(t) − r_i t), depends on the sums of w and w·r alone.
        Averages may lie between the values of a discrete law, so merged values are checked against
        the interval of the support only. Rows of weight 0 are dropped. An invalid weight makes the
        merged row invalid.
        """
        if not is_concrete(self):
            raise ValueError(
                "merge_repeats() changes shapes, so it cannot be used under a transformation"
            )
        a, b = np.asarray(self.a), np.asarray(self.b)
        value, weight = np.asarray(self.value), np.asarray(self.weight)
        weight = np.where(weight < 0, np.nan, weight)
        kept = weight != 0
        low, high = np.minimum(a, b)[kept], np.maximum(a, b)[kept]
        signed = np.where(a < b, value, -value)[kept]
        keys = low.astype(np.int64) * self.num_items + high
        pair, first, row = np.unique(keys, return_index=True, return_inverse=True)
        # Pairs in the order of their first rows: without repeats the order of rows is unchanged.
        order = np.argsort(first)
        pair, row = pair[order], np.argsort(order)[row]
        total = np.bincount(row, weight[kept], pair.size).astype(value.dtype)
        with np.errstate(invalid="ignore"):  # infinite weights are rejected by `fit`
            mean = np.bincount(row, weight[kept] * signed, pair.size).astype(value.dtype) / total
        size = max(self.num_items, 1)
        return self._with_rows(pair // size, pair % size, mean, total, is_merged=True)

    def _with_columns(self, value: ArrayLike, weight: ArrayLike) -> "Comparisons":
        if self.group is not None:
            columns = _columns_of_groups(value, weight, len(self))
            return self._replace(value=columns[0], weight=columns[1])
        settings = {"num_items": self.num_items, "is_merged": self.is_merged}
        made = Comparisons(self.a, self.b, value, weight, **settings)
        return made._replace(labels=self.labels)

    def _with_rows(
        self, a: ArrayLike, b: ArrayLike, value: ArrayLike, weight: ArrayLike, **changes
    ) -> "Comparisons":
        """Comparisons with other rows of the same items and groups, unchecked."""
        columns = {"value": floating(value), "weight": floating(weight)}
        ends = {"a": as_array(a, np.int32), "b": as_array(b, np.int32)}
        labels = Labels(self.labels.groups, self.labels.items)
        return self._replace(**ends, **columns, labels=labels, **changes)

    def _replace(self, **changes: Any) -> "Comparisons":
        """A copy with changed fields, unchecked."""
        made = object.__new__(Comparisons)
        for field in dataclasses.fields(Comparisons):
            value = changes.get(field.name, getattr(self, field.name))
            object.__setattr__(made, field.name, value)
        return made

    def _number_groups(
        self, group: ArrayLike, a: ArrayLike, b: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Number the items of all groups, and return a and b as these indices."""
        if not is_concrete(group, a, b):
            raise ValueError("a, b and group must not be traced: they set the number of scores")
        first, second = _indices("a", a, self.num_items), _indices("b", b, self.num_items)
        groups, owner = number_labels("group", group)
        sizes = {"a": first.size, "b": second.size, "group": owner.size}
        _check_lengths(sizes)
        nodes = number_nodes(owner, first, second, self.num_items)
        self.num_items, self.num_groups = nodes.group.size, groups.size
        self.group = as_array(nodes.group, np.int32)
        self.labels = Labels(groups, nodes.item)
        return nodes.a, nodes.b


def _kind(labels: np.ndarray) -> str:
    """`i` for integers, `U` for text, else the kind of the dtype."""
    if labels.dtype.kind == "O":
        return "U" if all(isinstance(label, str) for label in labels.flat) else "O"
    return {"u": "i", "S": "U"}.get(labels.dtype.kind, labels.dtype.kind)


def _indices(name: str, index: ArrayLike, num_items: int) -> np.ndarray:
    """Checked indices of items; raises with the first invalid row."""
    array = np.asarray(index)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector, not an array of shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold integers (row 0 is {array[0]!r}, {array.dtype})")
    bad = (array < 0) | (array >= num_items)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{name}[{row}] is {array[row]}: items are numbered from 0 to num_items − 1 = "
            f"{num_items - 1}"
        )
    return array


def _columns_of_groups(
    value: ArrayLike, weight: ArrayLike | None, size: int
) -> tuple[Array, Array]:
    """Values and weights of grouped rows, whose entries `fit` checks group by group."""
    values = floating(_vector("value", value))
    weights = jnp.ones_like(values) if weight is None else floating(_vector("weight", weight))
    _check_lengths({"a": size, "value": values.size, "weight": weights.size})
    return values, as_array(weights, values.dtype)


def _vector(name: str, numbers: ArrayLike) -> Any:
    if not is_concrete(numbers):
        return numbers
    array = np.asarray(numbers)
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be a vector of numbers, not {array.dtype} of shape {array.shape}"
        )
    return array


def _numbers(name: str, numbers: ArrayLike) -> np.ndarray:
    array = np.asarray(floating(numbers))
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector, not an array of shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{name}[{row}] is {array[row]}: every {name} must be finite")
    return array


def _checked_columns(
    a: np.ndarray, b: np.ndarray, value: ArrayLike, weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Checked values and weights; raises with the first invalid row."""
    values = _numbers("value", value)
    weights = np.ones_like(values) if weight is None else _numbers("weight", weight)
    _check_lengths({"a": a.size, "b": b.size, "value": values.size, "weight": weights.size})
    negative = np.flatnonzero(weights < 0)
    if negative.size:
        row = int(negative[0])
        raise ValueError(f"weight[{row}] is {weights[row]}: weights must not be negative")
    selves = np.flatnonzero((a == b) & (weights > 0))
    if selves.size:
        row = int(selves[0])
        raise ValueError(
            f"row {row} compares item {a[row]} with itself (value {values[row]}); give it weight 0 "
            "if it is padding"
        )
    return values, weights


def _check_lengths(sizes: dict[str, int]) -> None:
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ValueError(f"the columns have different lengths: {listed}")
