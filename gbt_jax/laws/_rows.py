"""Parameters of laws per comparison: find, index, split and concatenate them.

A parameter of a law is one number, or a vector of one number per comparison. A vector of another
kind is declared as such by `table()` in its class: nothing is inferred from lengths.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_TABLE = "gbt_jax.laws.table"


def table(**options: Any) -> Any:
    """Declare a field of a law that holds a table, the same for all comparisons.

    Other arrays of a law are parameters: one number, or a vector of one number per comparison. A
    field that holds a vector of another kind (values with their probabilities, the nodes of a
    quadrature, the weights of a network) is declared in the class:

        values: jax.Array = gbt_jax.laws.table()

    **Arguments:**

    - `options`: those of `equinox.field`, such as `converter` and `default`.

    **Returns:** the field.
    """
    metadata = {**options.pop("metadata", {}), _TABLE: True}
    return eqx.field(metadata=metadata, **options)


class RowParameter(NamedTuple):
    """An array of a law with one number per comparison, and its name."""

    name: str
    value: Any


def row_parameters(law: Any) -> list[RowParameter]:
    """The parameters per comparison, including those of nested laws."""
    found = zip(*_leaves(law)[:2], strict=True)
    return [RowParameter(str(name), leaf) for name, leaf in found if _is_per_row(name, leaf)]


def map_rows(law: Any, function: Callable[[Any], Any]) -> Any:
    """The law with every parameter per comparison replaced by a function of it."""
    names, leaves, structure = _leaves(law)
    is_per_row = [_is_per_row(*one) for one in zip(names, leaves, strict=True)]
    if not any(is_per_row):
        return law
    pairs = zip(leaves, is_per_row, strict=True)
    return jax.tree.unflatten(structure, [function(x) if own else x for x, own in pairs])


def partition_rows(law: Any) -> tuple[Any, Any]:
    """(the parameters per comparison, all other leaves), each with None for the other."""
    names, leaves, structure = _leaves(law)
    is_per_row = [_is_per_row(*one) for one in zip(names, leaves, strict=True)]
    return eqx.partition(law, jax.tree.unflatten(structure, is_per_row))


def concatenate_laws(first: Any, second: Any, counts: tuple[int, int]) -> Any:
    """The law of `counts[0]` rows of the first law followed by `counts[1]` rows of the second.

    The two laws may differ in parameters only. Parameters that differ become one number per row.
    """
    names, leaves, structure = _leaves(first)
    _, others, other_structure = _leaves(second)
    if structure != other_structure:
        raise ValueError(
            f"rows of one fit have laws of one kind: {type(second).__name__} cannot be added to "
            f"{type(first).__name__}, from which it may differ in parameters only"
        )

    def join(name: str | None, old: Any, new: Any) -> Any:
        is_equal = np.array_equal(np.asarray(old), np.asarray(new))
        if name is None and not is_equal:
            raise ValueError(f"rows of one fit share the tables of {type(first).__name__}")
        if name is None or (is_equal and np.ndim(old) == 0):
            return old
        sized = zip((old, new), counts, strict=True)
        dtype = jnp.result_type(old)
        return jnp.concatenate([jnp.broadcast_to(x, n).astype(dtype) for x, n in sized])

    columns = zip(names, leaves, others, strict=True)
    return jax.tree.unflatten(structure, [join(*column) for column in columns])


def _is_per_row(name: str | None, leaf: Any) -> bool:
    return name is not None and isinstance(leaf, Array | np.ndarray) and leaf.ndim > 0


def _leaves(law: Any) -> tuple[list[str | None], list[Any], Any]:
    """(names, leaves, structure) of a law; the name of a leaf of a table is None."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(law)
    names = [_name(law, path) for path, _ in pairs]
    return names, [leaf for _, leaf in pairs], structure


def _name(node: Any, path: tuple[Any, ...]) -> str | None:
    """The name of a leaf, such as `law.std`; None if a field on its path is declared as a table."""
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            if dataclasses.is_dataclass(node):
                fields = {field.name: field for field in dataclasses.fields(node)}
                if key.name in fields and fields[key.name].metadata.get(_TABLE):
                    return None
            node = getattr(node, key.name)
        elif isinstance(key, jax.tree_util.SequenceKey):
            node = node[key.idx]
        elif isinstance(key, jax.tree_util.DictKey):
            node = node[key.key]
        else:
            break
    return jax.tree_util.keystr(path).removeprefix(".")
