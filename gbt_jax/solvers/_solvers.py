"""The solvers that `fit` accepts: a method and its settings."""

import abc
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from . import _first_order, _newton
from ._newton import Point, Problem, Solution


class AbstractSolver(eqx.Module):
    """A method that minimises the loss. All solvers find the same, unique optimum."""

    @abc.abstractmethod
    def minimise(
        self,
        problem: Problem,
        start: Array,
        *,
        is_close: Callable[[Array, Array], Array],
        max_steps: int,
    ) -> Solution:
        """Minimise from `start`.

        **Arguments:**

        - `problem`: the functions to minimise with.
        - `start`: the first point.
        - `is_close`: (x, norm of the gradient) ↦ whether the tolerances are met, for each problem.
        - `max_steps`: how many steps at most.

        **Returns:** a `Solution`.
        """

    @abc.abstractmethod
    def solve_linear(self, problem: Problem, point: Point, rhs: Array) -> Array:
        """Solve ∇²L x = rhs at an evaluated point to rounding, for derivatives of the optimum.

        **Arguments:**

        - `problem`, `point`: the problem, and its evaluation at the optimum.
        - `rhs`: the right-hand side.

        **Returns:** x.
        """


@final
class NewtonCG(AbstractSolver):
    """Newton's method with conjugate gradients: memory and time linear in the comparisons.

    **Arguments:**

    - `max_inner_steps`: how many conjugate-gradient steps per Newton step at most.
    """

    max_inner_steps: int = eqx.field(static=True, default=100_000)

    def minimise(
        self,
        problem: Problem,
        start: Array,
        *,
        is_close: Callable[[Array, Array], Array],
        max_steps: int,
    ) -> Solution:
        """Minimise from `start`."""
        direction = _newton.cg_direction(self.max_inner_steps)
        return _newton.minimise(problem, start, direction, is_close=is_close, max_steps=max_steps)

    def solve_linear(self, problem: Problem, point: Point, rhs: Array) -> Array:
        """Solve ∇²L x = rhs by conjugate gradients."""
        return _newton.conjugate_gradients(
            lambda v: problem.product(point.curvature, v),
            rhs,
            _newton.scale_by_diagonal(point.diagonal),
            tolerance=0.5 * float(jnp.finfo(rhs.dtype).eps),
            max_steps=self.max_inner_steps,
            partition=problem.partition,
            projection=problem.projection,
        ).direction


@final
class NewtonCholesky(AbstractSolver):
    """Newton's method with dense factorisations, for few items and any graph."""

    def minimise(
        self,
        problem: Problem,
        start: Array,
        *,
        is_close: Callable[[Array, Array], Array],
        max_steps: int,
    ) -> Solution:
        """Minimise from `start`."""
        return _newton.minimise(
            problem, start, _newton.cholesky_direction, is_close=is_close, max_steps=max_steps
        )

    def solve_linear(self, problem: Problem, point: Point, rhs: Array) -> Array:
        """Solve ∇²L x = rhs by a Cholesky factorisation."""
        return _newton.cholesky_solve(problem.dense(point), rhs, problem.projection)


@final
class LBFGS(AbstractSolver):
    """L-BFGS from optax: uses gradients only. Slower, and an independent check of the others.

    **Arguments:**

    - `memory_size`: how many past steps approximate the Hessian.
    """

    memory_size: int = eqx.field(static=True, default=20)

    def minimise(
        self,
        problem: Problem,
        start: Array,
        *,
        is_close: Callable[[Array, Array], Array],
        max_steps: int,
    ) -> Solution:
        """Minimise from `start`."""
        return _first_order.minimise(
            problem,
            start,
            is_close=is_close,
            max_steps=100 * max_steps,
            memory_size=self.memory_size,
        )

    def solve_linear(self, problem: Problem, point: Point, rhs: Array) -> Array:
        """Solve ∇²L x = rhs by conjugate gradients."""
        return NewtonCG().solve_linear(problem, point, rhs)
