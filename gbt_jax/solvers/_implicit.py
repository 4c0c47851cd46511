"""Derivatives of an optimum with respect to its parameters, by the implicit function theorem.

At x*(p) = argmin L(·, p) the gradient vanishes for every p, so differentiating ∇L(x*(p), p) = 0
gives

    ∇²L dx* = −∂_p∇L dp.

One rule in forward mode is enough: the right-hand side is linear in dp and the solve is symmetric,
so JAX transposes it for reverse mode, and differentiates it for higher orders. The rule uses the
optimality condition, not the solver: no derivative passes through the iterations.

Where ∇²L is singular, a normalisation x* = c(p, x*) makes x* unique, and the derivative of c makes
its derivative unique.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


def implicit_minimiser(
    minimise: Callable[[Any], tuple[Array, Any]],
    gradient: Callable[[Any, Array], Array],
    solve: Callable[[Any, Array, Array], Array],
    normalise: Callable[[Any, Array], Array],
) -> Callable[[Any], tuple[Array, Any]]:
    """The function p ↦ (argmin L(·, p), statistics), with the derivative of the minimiser.

    **Arguments:**

    - `minimise`: parameters (a pytree) ↦ (the minimiser, a pytree of arrays).
    - `gradient`: parameters, x ↦ ∇L.
    - `solve`: parameters, x, b ↦ a solution of ∇²L y = b, symmetric in b and differentiable.
    - `normalise`: parameters, x ↦ c(p, x).

    **Returns:** the function. Derivatives with respect to integer leaves and derivatives of the
    statistics are zero; those of a minimiser that is NaN are NaN.
    """

    @jax.custom_jvp
    def minimiser(floats: Any, others: Any) -> tuple[Array, Any]:
        return minimise(eqx.combine(floats, others))

    @minimiser.defjvp
    def _(primals, tangents):
        (floats, others), (directions, _) = primals, tangents
        x, facts = minimiser(floats, others)
        parameters = eqx.combine(floats, others)
        _, change = jax.jvp(lambda p: gradient(eqx.combine(p, others), x), (floats,), (directions,))
        moved = solve(parameters, x, -change)
        _, moved = jax.jvp(
            lambda p, x: normalise(eqx.combine(p, others), x), (floats, x), (directions, moved)
        )
        # A factor instead of `where`: its transpose makes reverse mode NaN as well.
        moved = moved * jnp.where(jnp.isfinite(x), 1, jnp.nan).astype(moved.dtype)
        return (x, facts), (moved, jax.tree.map(_no_tangent, facts))

    def call(parameters: Any) -> tuple[Array, Any]:
        return minimiser(*eqx.partition(parameters, eqx.is_inexact_array))

    return call


def _no_tangent(fact: Array) -> Any:
    if jnp.issubdtype(fact.dtype, jnp.inexact):
        return jnp.zeros_like(fact)
    return np.zeros(fact.shape, jax.dtypes.float0)
