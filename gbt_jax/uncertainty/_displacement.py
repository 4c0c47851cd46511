"""The rise of the loss above its optimum, for many displacements at once.

The rise is small relative to the loss, so it is summed from the rises of single rows. Where even
those lose too many digits, slopes are integrated instead.
"""

from typing import NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._curvature import AbstractCurvature
from .._data._comparisons import Comparisons
from .._data._incidence import differences, transpose, weighted_product
from .._model import Model
from ..laws import AbstractRootLaw
from ._likelihood import gauss_rule

_ROUNDING = 4.0  # rounding errors of a sum, in units of ε times the norm of its terms


class Point(NamedTuple):
    """The rise of the loss, its gradient and w Φ'', one column per displacement."""

    rise: Array
    noise: Array  # a bound on the rounding error of the rise
    gradient: Array
    curvature: Array


@final
class DisplacedLoss(eqx.Module):
    """The loss around its optimum, for displacements given as columns."""

    model: Model
    comparisons: Comparisons
    scores: Array
    made: AbstractCurvature  # at the optimum
    inverse_diagonal: Array | np.ndarray | None  # where there is no matrix N
    goal: Array  # z²/2

    def evaluate(self, x: Array) -> Point:
        """The loss at the displacements x, summed row by row: its rise is small relative to it."""
        law, (weight, value) = self.law(), self.columns()
        start, moved = (
            differences(self.comparisons, self.scores[:, None]),
            differences(self.comparisons, x),
        )
        t = start + moved
        mean, precision = (column[:, None] for column in self.prior())
        pull = precision * (self.scores[:, None] - mean)
        rise, noise = self.data_rise(start, moved)
        slopes = transpose(self.comparisons, weight * (law.mean(t) - value))
        # A weak prior hardly determines the level of a component: keep rounding errors out of it.
        gradient = pull + precision * x + self.made.null_space.remove(slopes)
        return Point(
            rise=rise + jnp.sum(x * (pull + 0.5 * precision * x), axis=0),
            noise=noise,
            gradient=gradient,
            curvature=weight * law.variance(t),
        )

    def data_rise(self, start: Array, moved: Array) -> tuple[Array, Array]:
        """(Σ w (Φ(t) − Φ(t*) − r (t − t*)), a bound on its rounding error), of each lane.

        Where differences lose too many digits, the slopes w (Φ' − r) are integrated instead, as
        in `_likelihood.py`.
        """
        law, (weight, value) = self.law(), self.columns()
        eps = float(jnp.finfo(moved.dtype).eps)
        at_start = law.cgf(start)
        direct = jnp.sum(weight * (law.cgf(start + moved) - at_start - value * moved), axis=0)
        terms = jnp.abs(law.mean(start + moved)) + jnp.abs(law.mean(start)) + jnp.abs(value)
        least = _ROUNDING * eps * jnp.linalg.norm(weight * terms * moved, axis=0)
        lost = _ROUNDING * eps * jnp.linalg.norm(weight * at_start)

        def integrate() -> tuple[Array, Array]:
            def add(total: Array, node: Array) -> tuple[Array, None]:
                slopes = law.mean(start + node[0] * moved) - value
                return total + node[1] * jnp.sum(weight * slopes * moved, axis=0), None

            integral, _ = lax.scan(add, jnp.zeros_like(direct), gauss_rule(moved.dtype))
            better = jnp.abs(integral - direct) <= 4 * (least + lost)
            return jnp.where(better, integral, direct), least + jnp.where(better, 0, lost)

        is_lost = lost > eps ** (2 / 3) * self.goal
        return lax.cond(is_lost, integrate, lambda: (direct, least + lost))

    def product(self, curvature: Array, v: Array) -> Array:
        """M v."""
        return weighted_product(self.comparisons, curvature, self.prior()[1][:, None], v)

    def precondition(self, v: Array) -> Array:
        """N v; without a matrix N, a diagonal approximation, which is exact on the null space."""
        if self.inverse_diagonal is None:
            return self.made.solve(v)
        scaled = self.inverse_diagonal[:, None] * centre_columns(self.made, v)
        return centre_columns(self.made, scaled) + self.made.null_space.apply(v)

    @property
    def forcing(self) -> float:
        """The largest relative tolerance of a linear system.

        The error of δ is that of the solution in the norm of M. With N as preconditioner residuals
        are measured in about this norm, with a diagonal they are not.
        """
        return 0.1 if self.inverse_diagonal is None else 1e-6

    def law(self) -> AbstractRootLaw:
        """The law for arrays of rows × lanes."""
        return self.model.law.at_rows(jnp.arange(len(self.comparisons))[:, None])

    def columns(self) -> tuple[Array, Array]:
        """Weights and values."""
        rows = self.comparisons.weight, self.comparisons.value
        weight, value = (column[:, None].astype(self.scores.dtype) for column in rows)
        return weight, value

    def prior(self) -> tuple[Array, Array]:
        """Means and precisions."""
        return self.model.prior(self.comparisons, self.scores.dtype)


def centre_columns(made: AbstractCurvature, columns: Array | np.ndarray) -> Array:
    """Centre columns to mean zero over each component without a prior."""
    return jnp.where(made.null_space.is_free[:, None], made.null_space.remove(columns), columns)
