"""The Hessian of a fit as a value: against matrices inverted in 140 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws

SIZE = 40
# Two components, an item with no comparison, and one pair compared many times.
ROWS = random_comparisons(25, 70)
A = np.concatenate([ROWS.a, [30, 31, 32, 33, 30, 30]])
B = np.concatenate([ROWS.b, [31, 32, 33, 30, 31, 31]])
VALUE = np.concatenate([ROWS.value, [0.1, -0.5, 0.8, 0.2, 0.3, 0.0]])
COMPARISONS = gbt.Comparisons(A, B, VALUE, num_items=SIZE)
COMPONENTS = [range(25), range(30, 34), *([item] for item in (*range(25, 30), *range(34, 40)))]
HELD = [*range(25), *range(30, 34)]
STDS = np.geomspace(0.3, 5, SIZE)
PRIORS = {"one": 2.0, "per item": STDS, "weak": 1e5, "none": np.inf}


def exact(fit):
    """(N, n_aa + n_bb − 2 n_ab of the rows, log det M) in 140 digits, rounded at the end.

    Without a prior a tiny one stands in, and what it adds to the levels is taken off again.
    """
    tiny = mpmath.mpf(10) ** -40
    std = np.broadcast_to(np.asarray(fit.model.prior_std), (SIZE,))
    t = np.asarray(fit.scores)[A] - np.asarray(fit.scores)[B]
    with mpmath.workdps(140):
        matrix = mpmath.zeros(SIZE)
        for item in range(SIZE):
            matrix[item, item] = tiny if np.isinf(std[item]) else 1 / mpmath.mpf(std[item]) ** 2
        for a, b, x in zip(A.tolist(), B.tolist(), t.tolist(), strict=True):
            row = 1 / mpmath.mpf(x) ** 2 - 1 / mpmath.sinh(x) ** 2 if x else mpmath.mpf(1) / 3
            matrix[a, a] += row
            matrix[b, b] += row
            matrix[a, b] -= row
            matrix[b, a] -= row
        inverse = matrix**-1
        pairs = list(zip(A.tolist(), B.tolist(), strict=True))
        differences = [inverse[a, a] + inverse[b, b] - 2 * inverse[a, b] for a, b in pairs]
        log_determinant = mpmath.log(mpmath.det(matrix))
        if np.isinf(std).all():
            for component in COMPONENTS:
                log_determinant -= mpmath.log(tiny)
                for a in component:
                    for b in component:
                        inverse[a, b] -= 1 / (tiny * len(component))
        entries = np.array(inverse.tolist(), dtype=float)
        return entries, np.array(differences, dtype=float), float(log_determinant)


@pytest.fixture(scope="module", params=PRIORS)
def case(request):
    fit = gbt.fit(gbt.Model(laws.Uniform(), PRIORS[request.param]), COMPARISONS)
    return fit, *exact(fit)


@pytest.mark.parametrize("dense", [True, False])
def test_agrees_with_the_inverse(case, dense):
    fit, expected, differences, log_determinant = case
    made = gbt.curvature(fit, dense=dense)
    scale = np.abs(expected).max()
    rhs = np.random.default_rng(0).normal(size=(SIZE, 3))
    np.testing.assert_allclose(made.solve(rhs), expected @ rhs, rtol=1e-11, atol=1e-12 * scale)
    np.testing.assert_allclose(made.solve(rhs[:, 0]), made.solve(rhs)[:, 0], atol=1e-12 * scale)
    np.testing.assert_allclose(made.diagonal(), np.diag(expected), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(made.entries(A, B), expected[A, B], rtol=1e-10, atol=1e-12)
    # Differences within a component keep all digits, whatever the prior.
    np.testing.assert_allclose(made.difference_variance(A, B), differences, rtol=1e-11)
    # Between components their levels count.
    is_free = bool(np.isinf(np.asarray(fit.model.prior_std)).all())
    apart = np.inf if is_free else expected[0, 0] + expected[31, 31] - 2 * expected[0, 31]
    np.testing.assert_allclose(made.difference_variance([0], [31])[0], apart, rtol=1e-11)
    if isinstance(made, gbt.DenseCurvature):
        np.testing.assert_allclose(made.log_determinant, log_determinant, rtol=1e-11)


@pytest.mark.slow
def test_a_large_graph_is_not_made_dense():
    comparisons = random_comparisons(5000, 20_000)
    fit = gbt.fit(gbt.Model(laws.Uniform(), 3.0), comparisons)
    made = gbt.curvature(fit)
    assert isinstance(made, gbt.IterativeCurvature)
    rhs = np.random.default_rng(1).normal(size=(5000, 70))
    solved = np.asarray(made.solve(rhs))
    product = jax.vmap(
        lambda v: jax.jvp(
            jax.grad(gbt.negative_log_posterior, argnums=2),
            (fit.model, comparisons, fit.scores),
            (
                jax.tree.map(jnp.zeros_like, fit.model),
                jax.tree.map(
                    lambda x: (
                        np.zeros(x.shape, jax.dtypes.float0)
                        if jnp.issubdtype(x.dtype, jnp.integer)
                        else jnp.zeros_like(x)
                    ),
                    comparisons,
                ),
                v,
            ),
        )[1],
        1,
        1,
    )
    np.testing.assert_allclose(product(jnp.asarray(solved)), rhs, atol=1e-11)
    pairs = np.array([3, 3, 7]), np.array([5, 3, 4999])
    np.testing.assert_allclose(
        made.entries(*pairs),
        made.solve(np.eye(5000)[:, [3, 7]])[[5, 3, 4999], [0, 0, 1]],
        rtol=1e-10,
    )


@pytest.mark.parametrize("std", [np.inf, 1e6, 3.0])
@pytest.mark.slow
def test_long_paths(std):
    """Where conjugate gradients have most to do; N of a path is known: resistances add up."""
    size = 100
    a = np.arange(size - 1)
    path = gbt.Comparisons(a, a + 1, np.zeros(size - 1), num_items=size)
    fit = gbt.fit(gbt.Model(laws.Gaussian(1.0), std), path)
    first, last = np.zeros(size - 1, int), a + 1
    found = [gbt.curvature(fit, dense=d).difference_variance(first, last) for d in (True, False)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    if np.isinf(std):
        np.testing.assert_allclose(found[0], last, rtol=1e-11)


def test_pairs_are_checked_and_broadcast(case):
    fit, expected, _, _ = case
    for dense in (True, False):
        made = gbt.curvature(fit, dense=dense)
        np.testing.assert_allclose(
            made.entries(0, [1, 2]), expected[0, [1, 2]], rtol=1e-9, atol=1e-11
        )
        with pytest.raises(ValueError, match="b has 40, and there are 40 of them"):
            made.entries([0], [40])


def test_levels_lost_in_rounding_are_refused():
    loose = gbt.fit(gbt.Model(laws.Uniform(), 1e8 * np.linspace(1, 2, SIZE)), COMPARISONS)
    with pytest.raises(ValueError, match="give these items one prior_std"):
        gbt.curvature(loose)
    anchored = np.full(SIZE, np.inf)
    anchored[[0, 30]] = 1.0
    fit = gbt.fit(gbt.Model(laws.Uniform(), anchored), COMPARISONS)
    made = gbt.curvature(fit)
    # Two anchored components: what holds them is known, though most of their items have no prior.
    inverse = np.linalg.inv(
        np.asarray(
            jax.hessian(lambda x: gbt.negative_log_posterior(fit.model, COMPARISONS, x))(fit.scores)
        )[np.ix_(HELD, HELD)]
    )
    place = {item: number for number, item in enumerate(HELD)}
    a, b = place[3], place[32]
    expected = inverse[a, a] + inverse[b, b] - 2 * inverse[a, b]
    np.testing.assert_allclose(made.difference_variance(3, 32), [expected], rtol=1e-10)
    assert np.isposinf(made.difference_variance(3, 27)[0])


def test_a_fit_that_failed_has_no_curvature():
    fit = gbt.fit(gbt.Model(laws.Uniform()), COMPARISONS, max_steps=1, throw=False)
    with pytest.raises(ValueError, match="did not find the optimum \\(max_steps_reached\\)"):
        gbt.curvature(fit)
    with pytest.raises(TypeError, match="curvature takes a Fit, not Model"):
        gbt.curvature(fit.model)
