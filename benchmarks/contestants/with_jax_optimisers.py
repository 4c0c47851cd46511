"""Optimisers written in JAX, on the same loss: jaxopt, optax and optimistix.

Many users are one problem, and everything is compiled beforehand, in float64 unless a method has
"float32" in its name. The default tolerance is the library's own (jaxopt) or 1e-5 (optax
and optimistix have none).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import jaxopt  # noqa: E402
import lineax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import optimistix  # noqa: E402
from losses import NEAR, SINHC, SINHC_SLOPE  # noqa: E402
from protocol import Method, Problem, Solve, serve  # noqa: E402

MOST_ITEMS_DENSE = 1000
MOST_STEPS = 3_000
Curve = Callable[[jax.Array], jax.Array]


def differentiable(potential: Curve, mean: Curve, variance: Curve) -> Curve:
    """Φ, with Φ' and Φ'' as its first two derivatives."""
    slope, value = jax.custom_jvp(mean), jax.custom_jvp(potential)
    slope.defjvps(lambda dt, _, t: variance(t) * dt)
    value.defjvps(lambda dt, _, t: slope(t) * dt)
    return value


def series(coefficients: list[float], x: jax.Array) -> jax.Array:
    """Of sinh(x)/x, where x is small."""
    return jnp.polyval(jnp.array(coefficients[::-1]), jnp.minimum(x, NEAR) ** 2, unroll=16)


def uniform(t: jax.Array) -> jax.Array:
    """log(sinh(t)/t)."""
    x = jnp.abs(t)
    y = jnp.maximum(x, NEAR)
    far = y - jnp.log(2 * y) + jnp.log1p(-jnp.exp(-2 * y))
    return jnp.where(x < NEAR, jnp.log1p(x * x * series(SINHC, x)), far)


def uniform_mean(t: jax.Array) -> jax.Array:
    """coth(t) − 1/t."""
    x = jnp.abs(t)
    y = jnp.maximum(x, NEAR)
    near = t * series(SINHC_SLOPE, x) / (1 + x * x * series(SINHC, x))
    return jnp.where(x < NEAR, near, jnp.copysign(1 / jnp.tanh(y) - 1 / y, t))


def uniform_variance(t: jax.Array) -> jax.Array:
    """1/t² − 1/sinh(t)²."""
    x = jnp.abs(t)
    y = jnp.maximum(x, NEAR)
    excess = series(SINHC, x)
    sinhc = 1 + x * x * excess
    far = 1 / y**2 - 4 * jnp.exp(-2 * y) / jnp.expm1(-2 * y) ** 2
    return jnp.where(x < NEAR, excess * (1 + sinhc) / sinhc**2, far)


LAWS = {
    "uniform": differentiable(uniform, uniform_mean, uniform_variance),
    "bradley-terry": differentiable(
        lambda t: jnp.logaddexp(t / 2, -t / 2) - jnp.log(2),
        lambda t: jnp.tanh(t / 2) / 2,
        lambda t: jax.nn.sigmoid(t) * jax.nn.sigmoid(-t),
    ),
}


class Rows(NamedTuple):
    """Data of the loss other than the scores."""

    a: jax.Array
    b: jax.Array
    value: jax.Array
    precision: jax.Array


def rows_of(problem: Problem) -> Rows:
    a, b = jnp.asarray(problem.a, jnp.int32), jnp.asarray(problem.b, jnp.int32)
    return Rows(a, b, jnp.asarray(problem.value), jnp.asarray(problem.prior_std**-2))


def loss(law: str, x: jax.Array, rows: Rows) -> jax.Array:
    t = x[rows.a] - x[rows.b]
    return rows.precision * jnp.sum(x**2) / 2 + jnp.sum(LAWS[law](t) - rows.value * t)


Objective = Callable[[jax.Array, Rows], jax.Array]
Optimiser = Callable[[Objective, jax.Array, Rows], jax.Array]


def by_jaxopt(objective: Objective, start: jax.Array, rows: Rows, **options: Any) -> jax.Array:
    return jaxopt.LBFGS(objective, **options).run(start, rows).params


def by_optax(objective: Objective, start: jax.Array, rows: Rows, tolerance: float) -> jax.Array:
    optimiser = optax.lbfgs()

    def value(x: jax.Array) -> jax.Array:
        return objective(x, rows)

    value_and_grad = optax.value_and_grad_from_state(value)

    def step(carry: tuple) -> tuple:
        x, state = carry
        now, gradient = value_and_grad(x, state=state)
        update, state = optimiser.update(
            gradient, state, x, value=now, grad=gradient, value_fn=value
        )
        return optax.apply_updates(x, update), state

    def unfinished(carry: tuple) -> jax.Array:
        count = optax.tree.get(carry[1], "count")
        size = optax.tree.norm(optax.tree.get(carry[1], "grad"))
        return (count == 0) | ((count < MOST_STEPS) & (size > tolerance))

    return jax.lax.while_loop(unfinished, step, (start, optimiser.init(start)))[0]


def by_optimistix(
    objective: Objective,
    start: jax.Array,
    rows: Rows,
    solver: type,
    tolerance: float,
    throw: bool = False,
) -> jax.Array:
    if solver is optimistix.BFGS and start.size > MOST_ITEMS_DENSE:
        raise ValueError(f"BFGS is for at most {MOST_ITEMS_DENSE} items")
    found = optimistix.minimise(
        objective, solver(tolerance, tolerance), start, rows, max_steps=MOST_STEPS, throw=throw
    )
    return found.value


def by_newton(
    objective: Objective, start: jax.Array, rows: Rows, tolerance: float, throw: bool = False
) -> jax.Array:
    """A root of the gradient by optimistix."""
    linear = lineax.CG(rtol=min(1e-3, tolerance), atol=tolerance)
    solver = optimistix.Newton(tolerance, tolerance, linear_solver=linear)
    tags = frozenset([lineax.positive_semidefinite_tag])
    gradient = jax.grad(objective)
    return optimistix.root_find(gradient, solver, start, rows, tags=tags, throw=throw).value


def fit(optimiser: Optimiser) -> Method:
    def method(problem: Problem) -> Solve:
        rows, start = rows_of(problem), jnp.zeros(problem.num_items)
        run = jax.jit(partial(optimiser, partial(loss, problem.law)))
        run(start, rows).block_until_ready()
        return lambda: np.asarray(run(start, rows))

    return method


def in_float32(optimiser: Optimiser) -> Method:
    """Disable float64, so that the library creates no float64 arrays."""

    def method(problem: Problem) -> Solve:
        try:
            with jax.enable_x64(False):
                solve = fit(optimiser)(problem)
        except jax.errors.JaxRuntimeError as error:
            # The message of optimistix comes last, below the frames of a callback.
            said = str(error).split("EquinoxRuntimeError: ")[-1].split(". ")[0]
            raise RuntimeError(said) from error

        def solve_in_float32() -> np.ndarray:
            with jax.enable_x64(False):
                return solve()

        return solve_in_float32

    return method


def jacobian(problem: Problem) -> Solve:
    """Of every score in every value: `jacrev` through optimistix, from the scores on.

    The root finder starts at the scores, and its implicit adjoint factorises the Hessian. Without a
    prior that is singular, unless the scores are constrained to mean 0.
    """
    rows = rows_of(problem)

    def objective(x: jax.Array, rows: Rows) -> jax.Array:
        held = x.size * jnp.mean(x) ** 2 / 2 if problem.prior_std == np.inf else 0
        return loss(problem.law, x, rows) + held

    newton = jax.jit(partial(by_newton, objective, tolerance=1e-10))
    scores = newton(jnp.zeros(problem.num_items), rows)

    @jax.jit
    def run(scores: jax.Array, rows: Rows) -> jax.Array:
        return jax.jacrev(lambda value: newton(scores, rows._replace(value=value)))(rows.value)

    run(scores, rows).block_until_ready()
    return lambda: np.asarray(run(scores, rows))


if __name__ == "__main__":
    bfgs = partial(by_optimistix, solver=optimistix.BFGS)
    lbfgs = partial(by_optimistix, solver=optimistix.LBFGS)
    jaxopt_tightest = partial(by_jaxopt, tol=1e-10, maxiter=MOST_STEPS)
    # In float32 tolerances may be unreachable; optimistix raises by default.
    lbfgs_aloud, newton_aloud = partial(lbfgs, throw=True), partial(by_newton, throw=True)
    serve(
        {
            "jaxopt L-BFGS": fit(by_jaxopt),
            "jaxopt L-BFGS, tightest": fit(jaxopt_tightest),
            "optax L-BFGS": fit(partial(by_optax, tolerance=1e-5)),
            "optax L-BFGS, tightest": fit(partial(by_optax, tolerance=1e-10)),
            "optimistix L-BFGS": fit(partial(lbfgs, tolerance=1e-5)),
            "optimistix L-BFGS, tightest": fit(partial(lbfgs, tolerance=1e-12)),
            "optimistix BFGS": fit(partial(bfgs, tolerance=1e-5)),
            "optimistix BFGS, tightest": fit(partial(bfgs, tolerance=1e-12)),
            "optimistix Newton + CG": fit(partial(by_newton, tolerance=1e-5)),
            "optimistix Newton + CG, tightest": fit(partial(by_newton, tolerance=1e-10)),
            "jaxopt L-BFGS, float32": in_float32(by_jaxopt),
            "jaxopt L-BFGS, tightest, float32": in_float32(jaxopt_tightest),
            "optax L-BFGS, float32": in_float32(partial(by_optax, tolerance=1e-5)),
            "optax L-BFGS, tightest, float32": in_float32(partial(by_optax, tolerance=1e-10)),
            "optimistix L-BFGS, float32": in_float32(partial(lbfgs_aloud, tolerance=1e-5)),
            "optimistix L-BFGS, tightest, float32": in_float32(
                partial(lbfgs_aloud, tolerance=1e-12)
            ),
            "optimistix Newton + CG, float32": in_float32(partial(newton_aloud, tolerance=1e-5)),
            "optimistix Newton + CG, tightest, float32": in_float32(
                partial(newton_aloud, tolerance=1e-10)
            ),
            "jacobian": jacobian,
        }
    )
