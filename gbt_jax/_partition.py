"""A disjoint union of problems, and sums and maxima over each of them.

Independent problems (one per user, say) laid one after the other are one problem whose graph falls
apart. What a solver needs to treat them so, each with its own step lengths and its own end, is to
know which problem an entry belongs to.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int


@final
class Partition(eqx.Module):
    """Which of `count` problems each entry belongs to, ascending; `index=None`: one problem.

    Quantities of a problem have the shape () if there is one problem, (count,) otherwise.
    """

    index: Int[Array, " entries"] | None = None
    count: int = eqx.field(static=True, default=1)

    def total(self, entries: Array) -> Array:
        """The sum over each problem."""
        if self.index is None:
            return jnp.sum(entries, axis=0)
        return jax.ops.segment_sum(entries, self.index, self.count, indices_are_sorted=True)

    def inner(self, x: Array, y: Array) -> Array:
        """The inner product over each problem."""
        return jnp.vdot(x, y) if self.index is None else self.total(x * y)

    def largest(self, entries: Array) -> Array:
        """The maximum over each problem of non-negative entries; 0 for an empty one."""
        if self.index is None:
            return jnp.max(entries, axis=0, initial=0)
        start = jnp.zeros(self.count, entries.dtype)
        return start.at[self.index].max(entries, indices_are_sorted=True)

    def spread(self, per_problem: Array) -> Array:
        """Each entry's share: the number of its problem."""
        return per_problem if self.index is None else per_problem[self.index]

    def full(self, value, dtype) -> Array:
        """The same number for every problem."""
        return jnp.full(() if self.index is None else (self.count,), value, dtype)

    def at(self, index: Array) -> "Partition":
        """The partition of rows that refer to entries: row i to entry `index[i]`."""
        return Partition(None if self.index is None else self.index[index], self.count)
