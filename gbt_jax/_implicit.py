"""Derivatives of an optimum with respect to everything it depends on, without its iterations.

At x*(p) = argmin L(·, p) the gradient vanishes for every p, so differentiating ∇L(x*(p), p) = 0
gives

    ∇²L dx* = −∂_p∇L dp.

This one rule in forward form is enough: the right-hand side is linear in dp and the solve is
symmetric, so JAX transposes it for reverse mode, and applies it to itself for higher orders. It
knows the optimality condition, not the solver: nothing is differentiated through iterations.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax


def implicit_minimiser(
    solve: Callable[[Any], Array],
    gradient: Callable[[Any, Array], Array],
    hessian: Callable[[Any, Array], tuple[Callable[[Array], Array], Callable[[Array], Array]]],
) -> Callable[[Any], Array]:
    """The function p ↦ argmin L(·, p), with its derivative.

    **Arguments:**

    - `solve`: parameters (a pytree) ↦ the minimiser, NaN where it was not found.
    - `gradient`: parameters, x ↦ ∇L.
    - `hessian`: parameters, x ↦ (v ↦ ∇²L v, b ↦ its solution), both symmetric.

    Derivatives with respect to integer leaves are zero; those of a minimiser that was not found
    are NaN.
    """

    @jax.custom_jvp
    def minimiser(floats: Any, others: Any) -> Array:
        return solve(eqx.combine(floats, others))

    @minimiser.defjvp
    def _(primals, tangents):
        (floats, others), (directions, _) = primals, tangents
        x = minimiser(floats, others)
        parameters = eqx.combine(floats, others)
        _, change = jax.jvp(lambda p: gradient(eqx.combine(p, others), x), (floats,), (directions,))
        product, linear_solve = hessian(parameters, x)
        moved = lax.custom_linear_solve(
            product, -change, lambda _, b: linear_solve(b), symmetric=True
        )
        # A factor, not a choice between two values: its transpose makes reverse mode NaN as well.
        return x, moved * jnp.where(jnp.isfinite(x), 1, jnp.nan).astype(moved.dtype)

    def call(parameters: Any) -> Array:
        return minimiser(*eqx.partition(parameters, eqx.is_inexact_array))

    return call
