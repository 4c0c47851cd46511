"""`RESULTS`: the ways in which a fit can end."""

from typing import Any, ClassVar, final

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Int

from .._util._arrays import is_concrete

_MESSAGES = {
    "successful": "the optimum was found, and certified to rounding or to the tolerances",
    "max_steps_reached": (
        "the iterations ended before the optimum was reached: raise max_steps, loosen rtol or "
        "atol, or give the scores a prior (a finite prior_std)"
    ),
    "non_finite": (
        "the loss or its gradient overflows: check for extreme values, weights or initial scores, "
        "or compute in float64"
    ),
    "no_finite_optimum": (
        "without a prior these data have no finite optimum: give a finite prior_std, or leave "
        "out the items that only win or only lose"
    ),
    "invalid_data": (
        "a value is outside the law's support or not finite, a weight is negative or not finite, "
        "or an item is compared with itself"
    ),
    "precision_lost": (
        "rounding hides the optimum: some scores are determined so weakly that this precision "
        "cannot locate them, or they have no finite optimum (values at the edge of the support, "
        "weights of very different sizes). Compute in float64, rescale the weights, or give a "
        "smaller prior_std"
    ),
}
_NAMES = np.array(list(_MESSAGES))


@final
class Result(eqx.Module):
    """How a fit ended, or the fit of each group: a member of `RESULTS`, as a pytree.

    `==` compares element by element, inside `jit` too: `fit.result == gbt.RESULTS.successful`.
    """

    code: Int[Array, "..."] | np.ndarray | np.integer

    def __eq__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, other: object
    ) -> Array | np.ndarray | np.bool_:
        if not isinstance(other, Result):
            raise TypeError(f"compare a result with a member of RESULTS, not {other!r}")
        codes = (np.asarray(x) if is_concrete(x) else x for x in (self.code, other.code))
        first, second = codes
        return first == second

    def __ne__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, other: object
    ) -> Array | np.ndarray | np.bool_:
        return ~(self == other)

    def __hash__(self) -> int:
        return hash(np.asarray(self.code).tobytes())

    def __getitem__(self, group: int) -> "Result":
        # Raises for a single result. On the host, because JAX would compile the index.
        codes: Any = np.asarray(self.code) if is_concrete(self.code) else self.code
        return Result(codes[group])

    @property
    def name(self) -> str:
        """The name of a single result."""
        return str(_NAMES[int(self.code)])

    @property
    def names(self) -> np.ndarray:
        """The name of each result."""
        return _NAMES[np.asarray(self.code)]

    @property
    def message(self) -> str:
        """The explanation of a single result, and what to do."""
        return _MESSAGES[self.name]

    def __repr__(self) -> str:
        if not is_concrete(self.code):
            return "RESULTS<traced>"
        if np.ndim(self.code) == 0:
            return f"RESULTS.{self.name}"
        names, counts = np.unique(self.names, return_counts=True)
        listed = ", ".join(f"{count:,} {name}" for name, count in zip(names, counts, strict=True))
        return f"RESULTS<{listed}>"


@final
class RESULTS:
    """The ways in which a fit can end; compare them by `==`."""

    successful: ClassVar[Result] = Result(np.int32(0))
    max_steps_reached: ClassVar[Result] = Result(np.int32(1))
    non_finite: ClassVar[Result] = Result(np.int32(2))
    no_finite_optimum: ClassVar[Result] = Result(np.int32(3))
    invalid_data: ClassVar[Result] = Result(np.int32(4))
    precision_lost: ClassVar[Result] = Result(np.int32(5))
