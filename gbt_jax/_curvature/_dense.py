"""One matrix, all entries at hand."""

from typing import Any, final

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._inference._fit import Fit
from .._util._random import generator_of
from ._base import AbstractCurvature, Edges
from ._blocks import block_curvature
from ._levels import Levels


@final
class DenseCurvature(AbstractCurvature):
    """By a Cholesky factorisation: `reduced` is R, the rest of N is in `levels`."""

    reduced: Float[Any, "items items"]
    log_determinant: Float[Any, ""]  # of M; without a prior, of M on scores of mean zero
    edges: Edges
    levels: Levels

    def reduced_solve(self, rhs: Any) -> Any:
        """A product."""
        return self.reduced @ rhs

    def reduced_entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Looked up."""
        return self.reduced[a, b]

    def reduced_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """With the Cholesky factor of R + Σ_c u_c u_cᵀ/(p_c + κ_c), less the part along u_c."""
        levels, reduced = self.levels, self.reduced
        together = levels.component[:, None] == levels.component[None, :]
        factor = np.linalg.cholesky(reduced + together * (levels.share / levels.held)[:, None])
        normal = generator_of(key).standard_normal((self.num_items, num), reduced.dtype)
        return levels.remove(factor @ normal)


def dense_curvature(fit: Fit) -> DenseCurvature:
    """That of the only group."""
    found, size = block_curvature(fit), fit.comparisons.num_items
    return DenseCurvature(
        reduced=found.blocks[0][0, :size, :size] if size else np.zeros((0, 0)),
        log_determinant=found.log_determinants[0],
        edges=found.edges,
        levels=found.levels,
    )
