"""Invalid rows: detection and error messages."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._data._comparisons import Comparisons
from ..laws import AbstractRootLaw
from ._ladder import fill, pad_law, rows_rung


def invalid_rows(
    law: AbstractRootLaw, a: Array, b: Array, value: Array, weight: Array, *, is_merged: bool
) -> Array:
    """Rows with an invalid weight, or with a positive one on a self-pair or an invalid value."""
    is_weight = (weight >= 0) & ~jnp.isinf(weight)
    is_self = (a == b) & (weight > 0)
    return ~is_weight | is_self | outside_support(law, value, weight, is_merged)


def outside_support(law: AbstractRootLaw, value: Array, weight: Array, is_merged: bool) -> Array:
    """Rows of positive weight whose value is outside the law's support."""
    if is_merged:  # averages of values lie in the interval of the support
        edge = jnp.asarray(law.max_value, value.dtype)
        inside = jnp.abs(value) <= edge * (1 + 32 * jnp.finfo(value.dtype).eps)
        inside &= jnp.isfinite(value)
    else:
        inside = law.in_support(value)
    return ~inside & (weight > 0)


_outside_support = jax.jit(outside_support, static_argnames="is_merged")


def refuse_outside(law: AbstractRootLaw, comparisons: Comparisons, name: str = "") -> None:
    """Raise `ValueError` for the first row with a value outside the law's support."""
    count, size = len(comparisons), rows_rung(len(comparisons))
    columns = (fill(x, size, 0) for x in (comparisons.value, comparisons.weight))
    is_outside = _outside_support(
        pad_law(law, count, size), *columns, is_merged=comparisons.is_merged
    )
    rows = np.flatnonzero(is_outside)
    if not rows.size:
        return
    row = int(rows[0])
    edge = float(np.broadcast_to(law.max_value, len(comparisons))[row])
    grid = ", on a grid: see its `nearest`" if law.is_discrete else ""
    raise ValueError(
        f"{name}value[{row}] is {comparisons.value[row]:g} (item {comparisons.a[row]} against "
        f"{comparisons.b[row]}), which {type(law).__name__} cannot produce: its values lie in "
        f"[−{edge:g}, {edge:g}]{grid}"
    )


def describe_invalid_row(
    law: AbstractRootLaw, comparisons: Comparisons, numbers: np.ndarray | None = None
) -> str:
    """The error message of the first invalid row, with the labels of its items.

    `numbers` are the indices of the rows in the original data.
    """
    columns = comparisons.a, comparisons.b, comparisons.value, comparisons.weight
    is_invalid = invalid_rows(law, *columns, is_merged=comparisons.is_merged)
    row = int(np.flatnonzero(is_invalid)[0])
    a, b, value, weight = (np.asarray(column)[row] for column in columns)
    first, second = (repr(comparisons.item_labels[x].item()) for x in (a, b))
    number = row if numbers is None else numbers[row]
    return (
        f"row {number} compares {first} with {second}, value {value:g}, weight {weight:g}; values "
        f"must lie in the support of {type(law).__name__}, weights must be finite and not "
        "negative, and no item is compared with itself"
    )
