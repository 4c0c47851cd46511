"""The Hessian of a fit as a value: against matrices inverted in 140 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._curvature import BlockCurvature, DenseCurvature, IterativeCurvature
from gbt_jax._data._groups import sort_by_group

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
    if isinstance(made, DenseCurvature):
        np.testing.assert_allclose(made.log_determinant, log_determinant, rtol=1e-11)


@pytest.mark.slow
def test_a_large_graph_is_not_made_dense():
    comparisons = random_comparisons(5000, 20_000)
    fit = gbt.fit(gbt.Model(laws.Uniform(), 3.0), comparisons)
    made = gbt.curvature(fit)
    assert isinstance(made, IterativeCurvature)
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
    with pytest.raises(TypeError, match="a Fit is needed, not Model"):
        gbt.curvature(fit.model)


def grouped_fit(dtype=np.float64):
    """Forty groups, one with bad data, every third without a prior."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(40), rng.integers(1, 40, 40))
    a = rng.integers(0, 15, group.size)
    b = (a + 1 + rng.integers(0, 14, group.size)) % 15
    value = np.where(group == 7, 3.0, rng.uniform(-1, 1, group.size)).astype(dtype)
    weight = rng.uniform(0.5, 2, group.size)
    std = np.where(np.arange(40) % 3 == 0, np.inf, 2.0).astype(dtype)
    rows = gbt.Comparisons(a, b, value, weight, num_items=15, group=group)
    return gbt.fit(gbt.Model(laws.Uniform(), std), rows)


def test_groups_are_blocks():
    """The same numbers as each group's own curvature, and none for a group that failed."""
    fits = grouped_fit()
    item_offsets = sort_by_group(fits.comparisons).item_offsets
    made = gbt.curvature(fits)
    assert isinstance(made, BlockCurvature)
    diagonal = np.asarray(made.diagonal())
    rhs = np.random.default_rng(1).normal(size=(diagonal.size, 2))
    solved = np.asarray(made.solve(rhs))
    for number, label in enumerate(fits):
        slots = slice(*item_offsets[number : number + 2])
        if label == 7:
            assert np.isnan(diagonal[slots]).all()
            assert np.isnan(made.log_determinants[number])
        elif number % 5 < 2:
            own = gbt.curvature(fits[label])
            np.testing.assert_allclose(diagonal[slots], own.diagonal(), rtol=1e-10)
            np.testing.assert_allclose(solved[slots], own.solve(rhs[slots]), atol=1e-11)
            np.testing.assert_allclose(
                made.log_determinants[number], own.log_determinant, rtol=1e-10
            )
            pair = slots.start + np.array([0, 1])
            np.testing.assert_allclose(
                made.difference_variance(pair[:1], pair[1:]),
                own.difference_variance([0], [1]),
                rtol=1e-10,
            )
    # Nothing relates items of two groups: their entry is 0, and their difference takes priors.
    first, second = item_offsets[[1, 2]]
    assert made.entries([first], [second])[0] == 0
    variance = made.difference_variance([first], [second])[0]
    assert variance == pytest.approx(diagonal[first] + diagonal[second])
    assert np.isposinf(made.difference_variance([0], [first])[0])
    single = gbt.curvature(grouped_fit(np.float32))
    assert single.diagonal().dtype == jnp.float32
    np.testing.assert_allclose(single.diagonal(), diagonal, rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("std", [2.0, 1e5, np.inf])
def test_draws_and_estimates(std):
    """Covariances of draws, and estimates within their errors: of 120 items, all by 5 of them."""
    some, ring = random_comparisons(120, 240), np.arange(120)  # which leaves no item alone
    ends = np.append(some.a, ring), np.append(some.b, (ring + 1) % 120)
    rows = gbt.Comparisons(*ends, np.append(some.value, np.zeros(120)), num_items=120)
    fit = gbt.fit(gbt.Model(laws.Uniform(), std), rows)
    dense, iterative = (gbt.curvature(fit, dense=way) for way in (True, False))
    exact = np.asarray(dense.diagonal())
    drawn = np.asarray(dense.draws(4000, key=jax.random.key(0)))
    apart = drawn - drawn.mean(axis=0)  # without levels, which are common to all
    expected = np.asarray(dense.reduced_entries(jnp.arange(120), jnp.arange(120)))
    np.testing.assert_allclose(np.mean(apart**2, axis=1), expected, rtol=0.15)
    assert np.mean(np.mean(drawn**2, axis=1) / exact) == pytest.approx(1, abs=0.1)
    found = iterative.estimated_diagonal(400, key=jax.random.key(1))
    errors = (np.asarray(found.value) - exact) / np.asarray(found.error)
    assert np.abs(errors).max() < 5
    assert 0.8 < errors.std() < 1.2
    assert np.mean(np.asarray(found.error) / expected) < 0.07
    log_determinant = iterative.estimated_log_determinant(60, key=jax.random.key(2))
    error = log_determinant.value - dense.log_determinant
    assert abs(error) < 4 * log_determinant.error < 10


@pytest.mark.parametrize(("size", "num_rows"), [(400, 500), (400, 1500), (300, 20_000)])
def test_variances_by_elimination(size, num_rows):
    """Trees and isolated items, a sparse graph with a core, and one that is all core."""
    rng = np.random.default_rng(num_rows)
    weight = np.exp(rng.normal(size=num_rows)) * (rng.random(num_rows) < 0.95)
    rows = random_comparisons(size, num_rows, weight=weight)
    model = gbt.Model(laws.Uniform(), np.exp(rng.normal(size=size)))
    fit = gbt.fit(model, rows)
    expected = jnp.sqrt(gbt.curvature(fit).diagonal())
    np.testing.assert_allclose(gbt.std(fit), expected, rtol=1e-12)
