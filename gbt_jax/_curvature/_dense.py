"""The curvature as a dense matrix."""

from typing import Any, final

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._inference._fit import Fit
from .._util._random import generator_of
from ._base import AbstractCurvature, Edges
from ._blocks import block_curvature
from ._null_space import NullSpace


@final
class DenseCurvature(AbstractCurvature):
    """The dense inverse of the Hessian: `reduced` is R, the rest of N is in `null_space`."""

    reduced: Float[Any, "items items"]
    log_determinant: Float[Any, ""]  # of M; without a prior, of M on scores of mean zero
    edges: Edges
    null_space: NullSpace

    def reduced_solve(self, rhs: Any) -> Any:
        """R @ rhs by a matrix product."""
        return self.reduced @ rhs

    def reduced_entries(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Entries of the matrix."""
        return self.reduced[a, b]

    def reduced_draws(self, num: int, *, key: PRNGKeyArray) -> np.ndarray:
        """Draws by the Cholesky factor of R + Σ_c u_c u_cᵀ/(p_c + κ_c), projected off u_c."""
        null_space, reduced = self.null_space, self.reduced
        together = null_space.component[:, None] == null_space.component[None, :]
        factor = np.linalg.cholesky(
            reduced + together * (null_space.share / null_space.regularised)[:, None]
        )
        normal = generator_of(key).standard_normal((self.num_items, num), reduced.dtype)
        return null_space.remove(factor @ normal)


def dense_curvature(fit: Fit) -> DenseCurvature:
    """The curvature of a fit without groups: its only block."""
    found, size = block_curvature(fit), fit.comparisons.num_items
    return DenseCurvature(
        reduced=found.blocks[0][0, :size, :size] if size else np.zeros((0, 0)),
        log_determinant=found.log_determinants[0],
        edges=found.edges,
        null_space=found.null_space,
    )
