"""Derivatives of the optimum against central differences of refits, and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import incidence, random_comparisons, random_pairs

import gbt_jax as gbt
from gbt_jax import laws

NUM_ITEMS, NUM_ROWS = 8, 20
SOLVERS = {
    "cg": gbt.solvers.NewtonCG(),
    "cholesky": gbt.solvers.NewtonCholesky(),
    "lbfgs": gbt.solvers.LBFGS(),
}
MAKE_LAW = {
    "Uniform": lambda p: laws.Scaled(laws.Uniform(), p),
    "Beta": lambda p: laws.Beta(p),
    "Davidson": lambda p: laws.Davidson(p),
    "Gaussian": lambda p: laws.Gaussian(p),
    "Skellam": lambda p: laws.Skellam(p),
}


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "value": jnp.asarray(rng.uniform(-0.9, 0.9, NUM_ROWS)),
        "weight": jnp.asarray(rng.uniform(0.5, 2, NUM_ROWS)),
        "prior_mean": jnp.asarray(rng.normal(size=NUM_ITEMS)),
        "prior_std": jnp.asarray(1.7),
        "law": jnp.asarray(1.3),
    }


def scores_of(law_name, solver):
    pairs = random_pairs(NUM_ITEMS, NUM_ROWS)

    def scores(p):
        model = gbt.Model(MAKE_LAW[law_name](p["law"]), p["prior_std"], p["prior_mean"])
        comparisons = gbt.Comparisons(*pairs, p["value"], p["weight"], num_items=NUM_ITEMS)
        return gbt.map_scores(model, comparisons, solver=solver)

    return jax.jit(scores)


def central(function, p, direction, step=2e-3):
    """A sixth-order central difference along a direction of the parameters."""

    def at(s):
        return function(jax.tree.map(lambda x, d: x + s * step * d, p, direction))

    def combine(*values):
        return sum(c * x for c, x in zip((45.0, -9.0, 1.0, -45.0, 9.0, -1.0), values, strict=True))

    total = jax.tree.map(combine, *(at(s) for s in (1, 2, 3, -1, -2, -3)))
    return jax.tree.map(lambda x: x / (60 * step), total)


def random_direction(p, names, seed):
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=x.shape) * (name in names)) for name, x in p.items()}


@pytest.mark.parametrize(
    ("law_name", "solver"), [("Uniform", "cg"), *((name, "cholesky") for name in MAKE_LAW)]
)
def test_first_order(law_name, solver):
    scores, p = scores_of(law_name, SOLVERS[solver]), parameters()

    @jax.jit
    def orders(p, direction, cotangent):
        value, forward = jax.jvp(scores, (p,), (direction,))
        return value, forward, jax.vjp(scores, p)[1](cotangent)[0]

    cotangent = jnp.asarray(np.random.default_rng(9).normal(size=NUM_ITEMS))
    for seed, name in enumerate(p):
        direction = random_direction(p, [name], seed)
        _, forward, backward = orders(p, direction, cotangent)
        expected = central(lambda p, d=direction: orders(p, d, cotangent)[0], p, direction)
        scale = float(jnp.max(jnp.abs(expected)))
        np.testing.assert_allclose(forward, expected, rtol=0, atol=1e-7 * scale)
        along = sum(np.vdot(backward[n], direction[n]) for n in p)
        np.testing.assert_allclose(along, np.vdot(cotangent, forward), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("law_name", ["Uniform", "Davidson"])
def test_second_order(law_name):
    scores, p = scores_of(law_name, SOLVERS["cholesky"]), parameters()

    def objective(p):
        return jnp.sum(jnp.sin(scores(p)))

    direction = random_direction(p, list(p), 5)
    gradient = jax.grad(objective)

    @jax.jit
    def orders(p):
        first, forward_over_reverse = jax.jvp(gradient, (p,), (direction,))
        reverse_over_reverse = jax.grad(
            lambda p: sum(jnp.vdot(g, direction[n]) for n, g in gradient(p).items())
        )(p)
        return first, forward_over_reverse, reverse_over_reverse

    _, forward_over_reverse, reverse_over_reverse = orders(p)
    expected = central(lambda p: orders(p)[0], p, direction)
    for name in p:
        scale = float(jnp.max(jnp.abs(expected[name])))
        for found in (forward_over_reverse[name], reverse_over_reverse[name]):
            np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-7 * scale)


def test_jacobians_agree_and_batch():
    scores, p = scores_of("Uniform", SOLVERS["cg"]), parameters()
    forward, backward = jax.jit(lambda p: (jax.jacfwd(scores)(p), jax.jacrev(scores)(p)))(p)
    for name in p:
        np.testing.assert_allclose(forward[name], backward[name], atol=1e-12)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(parameters(seed) for seed in range(3)))
    together = jax.jit(jax.vmap(jax.jacrev(scores)))(batch)
    for name in p:
        np.testing.assert_allclose(together[name][0], backward[name], atol=1e-11)


def test_hessian_of_a_function_of_the_scores():
    scores, p = scores_of("Gaussian", SOLVERS["cholesky"]), parameters()

    def objective(value):
        return jnp.sum(scores({**p, "value": value}) ** 2)

    @jax.jit
    def orders(value):
        jacobian = jax.jacrev(lambda value: scores({**p, "value": value}))(value)
        return jacobian, jax.hessian(objective)(value)

    jacobian, hessian = orders(p["value"])  # linear in the values: exactly 2 JᵀJ
    np.testing.assert_allclose(hessian, 2 * jacobian.T @ jacobian, atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_gaussian_closed_form(solver):
    comparisons = random_comparisons(NUM_ITEMS, NUM_ROWS)
    model = gbt.Model(laws.Gaussian(0.8), 1.5)
    b = incidence(comparisons)
    inverse = np.linalg.inv(np.eye(NUM_ITEMS) / 2.25 + 0.64 * b.T @ b)

    def scores(value, std):
        return gbt.map_scores(
            gbt.Model(laws.Gaussian(0.8), std),
            comparisons.with_values(value),
            solver=SOLVERS[solver],
        )

    by_value, by_std = jax.jit(
        lambda *at: (jax.jacrev(scores)(*at), jax.jacfwd(scores, argnums=1)(*at))
    )(comparisons.value, 1.5)
    np.testing.assert_allclose(by_value, inverse @ b.T, atol=1e-12)
    optimum = np.asarray(gbt.fit(model, comparisons).scores)
    np.testing.assert_allclose(by_std, inverse @ optimum * 2 / 1.5**3, atol=1e-12)


def test_sensitivity_to_a_value_is_a_column_of_the_inverse_hessian():
    comparisons = random_comparisons(NUM_ITEMS, NUM_ROWS)
    model = gbt.Model(laws.Uniform(), 2.0)
    optimum = gbt.map_scores(model, comparisons)
    hessian = jax.hessian(gbt.negative_log_posterior, argnums=2)(model, comparisons, optimum)
    jacobian = jax.jacrev(lambda v: gbt.map_scores(model, comparisons.with_values(v)))(
        comparisons.value
    )
    expected = np.linalg.inv(hessian) @ incidence(comparisons).T
    np.testing.assert_allclose(jacobian, expected, atol=1e-12)


def test_without_a_prior_derivatives_keep_the_gauge():
    comparisons = random_comparisons(6, 30)
    model = gbt.Model(laws.Uniform(), jnp.inf)

    def scores(value):
        return gbt.map_scores(model, comparisons.with_values(value))

    jacobian = jax.jacrev(scores)(comparisons.value)
    np.testing.assert_allclose(jnp.sum(jacobian, axis=0), 0, atol=1e-13)
    direction = jnp.asarray(np.random.default_rng(0).normal(size=30))
    step = 1e-4
    up, down = (scores(comparisons.value + s * step * direction) for s in (1, -1))
    np.testing.assert_allclose(jacobian @ direction, (up - down) / (2 * step), atol=1e-6)


def test_the_initial_guess_does_not_matter():
    comparisons = random_comparisons(NUM_ITEMS, NUM_ROWS)
    model = gbt.Model(laws.Uniform(), 2.0)
    start = jnp.ones(NUM_ITEMS)
    derivative = jax.jacrev(lambda x: gbt.map_scores(model, comparisons, initial=x))(start)
    np.testing.assert_array_equal(derivative, 0)


@pytest.mark.parametrize(
    ("law", "solver"),
    [(laws.Uniform(), "cholesky"), *((laws.Binary(), name) for name in SOLVERS)],
    ids=["Uniform", *SOLVERS],
)
def test_a_failed_solve_gives_nan(law, solver):
    winner = gbt.Comparisons([0, 1], [1, 2], [1.0, 1.0], num_items=3)
    model = gbt.Model(law, jnp.inf)

    def scores(value):
        comparisons = winner.with_values(value)
        return gbt.map_scores(model, comparisons, solver=SOLVERS[solver])

    @jax.jit
    def orders(value):
        return scores(value), jax.jacrev(scores)(value), jax.jacfwd(scores)(value)

    for found in orders(winner.value):
        assert np.isnan(np.asarray(found)).all()


def test_stacked_problems():
    problems = [random_comparisons(NUM_ITEMS, NUM_ROWS, seed) for seed in range(4)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *problems)
    model = gbt.Model(laws.Uniform(), 2.0)
    together = jax.jit(jax.vmap(gbt.map_scores, in_axes=(None, 0)))(model, stacked)
    for rows, scores in zip(problems, together, strict=True):
        np.testing.assert_allclose(scores, gbt.fit(model, rows).scores, atol=1e-14)
    losses = jax.vmap(gbt.negative_log_posterior, in_axes=(None, 0, 0))(model, stacked, together)
    singles = [
        gbt.negative_log_posterior(model, rows, scores)
        for rows, scores in zip(problems, together, strict=True)
    ]
    np.testing.assert_allclose(losses, singles, rtol=1e-14)

    def total(std):
        fits = jax.vmap(gbt.map_scores, in_axes=(None, 0))(gbt.Model(laws.Uniform(), std), stacked)
        return jnp.sum(fits**2)

    slope = jax.jit(jax.grad(total))(2.0)
    numeric = (total(2.0 + 1e-5) - total(2.0 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, numeric, rtol=1e-8)
