"""Who was compared with whom, with what outcome, and how much it counts."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import ArrayLike, Float, Int

from ._arrays import as_array, floating, is_concrete, whole_number


@final
class Comparisons(eqx.Module):
    """A list of comparisons between `num_items` items, numbered from 0.

    Row i says that `a[i]` was compared with `b[i]` with outcome `value[i]`; a positive value says
    that a is better than b. `weight[i]` counts the row that many times: 0 is padding, n is n
    repeats, any non-negative number is allowed. Built from ordinary arrays it checks every row;
    built under a JAX transformation it is a plain pytree. `is_merged` says that values are
    averages of repeats, as `merged` makes them.
    """

    a: Int[Array, " rows"]
    b: Int[Array, " rows"]
    value: Float[Array, " rows"]
    weight: Float[Array, " rows"]
    num_items: int = eqx.field(static=True)
    is_merged: bool = eqx.field(static=True)

    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        value: ArrayLike,
        weight: ArrayLike | None = None,
        *,
        num_items: int,
        is_merged: bool = False,
    ):
        self.num_items = whole_number("num_items", num_items, at_least=0)
        self.is_merged = is_merged
        if is_concrete(a, b, value, weight):
            a, b = _indices("a", a, num_items), _indices("b", b, num_items)
            value = _numbers("value", value)
            weight = np.ones_like(value) if weight is None else _numbers("weight", weight)
            _check_rows(a, b, value, weight)
        self.value = floating(value)
        weights = jnp.ones_like(self.value) if weight is None else floating(weight)
        self.weight = as_array(weights, self.value.dtype)
        self.a, self.b = as_array(a, np.int32), as_array(b, np.int32)

    def __len__(self) -> int:
        return self.value.shape[-1]

    def with_values(self, value: ArrayLike) -> "Comparisons":
        """The same pairs with other outcomes."""
        return self._replace(value, self.weight)

    def with_weights(self, weight: ArrayLike) -> "Comparisons":
        """The same pairs and outcomes with other weights."""
        return self._replace(self.value, weight)

    def merged(self) -> "Comparisons":
        """One row per pair, with the same optimum: weights added up, values averaged by them.

        The loss of n rows of a pair, Σ w_i (Φ(t) − r_i t), depends on the sums of w and w·r alone.
        Averages need not be values that one comparison can take, so their support is checked as an
        interval. Rows of weight 0 are left out.
        """
        if not is_concrete(self):
            raise ValueError("merged() changes shapes, so it cannot be used under a transformation")
        a, b = np.asarray(self.a), np.asarray(self.b)
        value, weight = np.asarray(self.value), np.asarray(self.weight)
        kept = weight > 0
        low, high = np.minimum(a, b)[kept], np.maximum(a, b)[kept]
        signed = np.where(a < b, value, -value)[kept]
        keys = low.astype(np.int64) * self.num_items + high
        pair, first, row = np.unique(keys, return_index=True, return_inverse=True)
        # Pairs in the order of their first rows: where nothing repeats, rows stay where they are.
        order = np.argsort(first)
        pair, row = pair[order], np.argsort(order)[row]
        total = np.bincount(row, weight[kept], pair.size).astype(value.dtype)
        mean = np.bincount(row, weight[kept] * signed, pair.size).astype(value.dtype) / total
        return Comparisons(
            pair // max(self.num_items, 1),
            pair % max(self.num_items, 1),
            mean,
            total,
            num_items=self.num_items,
            is_merged=True,
        )

    def _replace(self, value: ArrayLike, weight: ArrayLike) -> "Comparisons":
        settings = {"num_items": self.num_items, "is_merged": self.is_merged}
        return Comparisons(self.a, self.b, value, weight, **settings)


def _indices(name: str, index: ArrayLike, num_items: int) -> np.ndarray:
    """A vector of item numbers, or an error that names the first bad row."""
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


def _numbers(name: str, numbers: ArrayLike) -> np.ndarray:
    array = np.asarray(floating(numbers))
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector, not an array of shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"{name}[{row}] is {array[row]}: every {name} must be finite")
    return array


def _check_rows(a: np.ndarray, b: np.ndarray, value: np.ndarray, weight: np.ndarray) -> None:
    lengths = {"a": a.size, "b": b.size, "value": value.size, "weight": weight.size}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"the columns have different lengths: {listed}")
    negative = np.flatnonzero(weight < 0)
    if negative.size:
        row = int(negative[0])
        raise ValueError(f"weight[{row}] is {weight[row]}: weights must not be negative")
    selves = np.flatnonzero((a == b) & (weight > 0))
    if selves.size:
        row = int(selves[0])
        raise ValueError(
            f"row {row} compares item {a[row]} with itself (value {value[row]}); give it weight 0 "
            "if it is padding"
        )
