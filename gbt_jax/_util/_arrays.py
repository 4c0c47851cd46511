"""Conversion and validation of the arrays that users pass."""

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer


@runtime_checkable
class SupportsArray(Protocol):
    """A column of a data frame, or anything else that `numpy.asarray` converts."""

    def __array__(self) -> np.ndarray: ...


# Accepted by public functions: arrays of JAX and NumPy, numbers, lists, columns of data frames.
ArrayLike = jax.typing.ArrayLike | Sequence[Any] | SupportsArray
Integer = int | np.integer  # an index of an item, a row or a group


def is_concrete(*values: object) -> bool:
    """Whether no array in the given pytrees is traced by a transformation."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def eager_constants() -> contextlib.AbstractContextManager:
    """A context in which constants are evaluated eagerly, also inside a user's jit or scan.

    Outside of a trace it does nothing: `ensure_compile_time_eval` would evaluate each constant of
    the programs traced inside the context by a separate compiled program.
    """
    is_tracing = isinstance(jax.device_put(0), Tracer)
    return jax.ensure_compile_time_eval() if is_tracing else contextlib.nullcontext()


def as_array(value: ArrayLike, dtype: Any = None) -> Array:
    """`jnp.asarray` without compiling a program for a number or for each shape of a NumPy array.

    NumPy arrays are copied, since the caller may modify them later. Masked arrays raise
    `ValueError`, as in JAX. Concrete values stay concrete inside `jit`, where `jnp.asarray` would
    trace them.
    """
    if isinstance(value, Tracer):
        return jnp.asarray(value, dtype)
    with jax.ensure_compile_time_eval():
        if type(value) is np.ndarray:
            return jax.device_put(np.array(value, dtype))
        if dtype is None and type(value) in (int, float):
            return jax.device_put(value)  # weakly typed, as by `jnp.asarray`
        return jnp.asarray(value, dtype)


def floating(value: ArrayLike) -> Array:
    """`value` as an array of floats: a float32 or float64 array keeps its dtype."""
    array = as_array(value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else as_array(array, float)


def gather(entries: Array, index: Array) -> Array:
    """`entries[index]` for an index known to be in range: no wrapping, no filling, fewer kernels.

    Indices of concrete comparisons are checked by the constructor. A traced index out of range
    reads the nearest entry.
    """
    return entries.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


# Options of `.at[index].add` for such an index; an index out of range adds nothing.
IN_RANGE: Any = {"mode": "drop", "wrap_negative_indices": False}


def positive(name: str, value: ArrayLike) -> Array:
    """A parameter that must be positive and finite; checked unless it is traced."""
    return _check_sign(name, value, "positive", lambda x: x > 0)


def non_negative(name: str, value: ArrayLike) -> Array:
    """A parameter that must be non-negative and finite; checked unless it is traced."""
    return _check_sign(name, value, "non-negative", lambda x: x >= 0)


def whole_number(name: str, value: object, *, at_least: int) -> int:
    """A static integer parameter (it sets shapes) with a lower bound."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, not {value!r}")
    return int(value)


def as_indices(name: str, indices: ArrayLike | None, size: int) -> np.ndarray:
    """Checked indices of rows or items, from 0 to `size` − 1; all of them for None."""
    if indices is None:
        return np.arange(size)
    array = np.atleast_1d(np.asarray(indices))
    if not array.size:
        array = array.astype(int)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be a list of integers, not {array.dtype} of shape {array.shape}"
        )
    bad = array[(array < 0) | (array >= size)]
    if bad.size:
        raise ValueError(f"{name} has {bad[0]}, and there are {size} of them, from 0")
    return array


def group_numbers(groups: object, size: int) -> tuple[np.ndarray, int]:
    """(index of each row's label among the sorted labels, number of labels) of `size` rows."""
    labels, member = np.unique(np.asarray(groups), return_inverse=True)
    if member.shape != (size,):
        raise ValueError(f"groups must have one label per comparison ({size})")
    return member, labels.size


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenated ranges start, start + 1, … of the given lengths."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1])) + np.repeat(starts - (ends - lengths), lengths)


def _check_sign(name: str, value: ArrayLike, adjective: str, accept) -> Array:
    array = floating(value)
    if is_concrete(array):
        values = np.asarray(array)
        good = np.isfinite(values) & accept(values)
        if not good.all():
            raise ValueError(f"{name} must be {adjective} and finite, not {values[~good].flat[0]}")
    return array
