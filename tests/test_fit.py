import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from problems import (
    counting_law,
    incidence,
    random_comparisons,
    random_pairs,
    tournesol_problems,
)

import gbt_jax as gbt
from gbt_jax import datasets, laws
from gbt_jax._data._row_order import interleaved_order

SOLVERS = [gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky(), gbt.solvers.LBFGS()]


def solver_name(solver):
    return type(solver).__name__


def all_fits(model, comparisons, **options):
    return [gbt.fit(model, comparisons, solver=solver, **options) for solver in SOLVERS]


@pytest.mark.parametrize("solver", SOLVERS, ids=solver_name)
def test_gaussian_closed_form(solver):
    comparisons = random_comparisons(12, 30).with_weights(np.linspace(0.1, 3, 30))
    mean = np.linspace(-1, 2, 12)
    model = gbt.Model(laws.Gaussian(0.7), 1.3, mean)
    b = incidence(comparisons)
    weight, value = np.asarray(comparisons.weight), np.asarray(comparisons.value)
    matrix = np.eye(12) / 1.3**2 + 0.49 * b.T @ np.diag(weight) @ b
    exact = np.linalg.solve(matrix, b.T @ (weight * value) + mean / 1.3**2)
    np.testing.assert_allclose(gbt.fit(model, comparisons, solver=solver).scores, exact, atol=1e-13)


@pytest.mark.parametrize(
    "table", [datasets.journal_citations(), datasets.american_league_1987()], ids=["cites", "mlb"]
)
def test_published_estimates(table):
    model = gbt.Model(laws.BradleyTerry(), jnp.inf)
    for fit in all_fits(model, table.comparisons()):
        reference = int(np.flatnonzero(table.estimates == 0)[0])
        scores = np.asarray(fit.scores - fit.scores[reference])
        np.testing.assert_allclose(scores, table.estimates, atol=5.1e-5)  # four printed digits
        assert abs(float(jnp.sum(fit.scores))) < 1e-12
        assert float(fit.error_bound) == np.inf


@pytest.mark.slow
def test_tournesol_agrees_with_scipy():
    model = gbt.Model(laws.Uniform(), 7.0)
    problems = tournesol_problems()
    assert len(problems) == 6
    for comparisons in problems:
        fit = gbt.fit(model, comparisons)
        assert float(fit.error_bound) < 1e-10
        a, b, r = (np.asarray(x) for x in (comparisons.a, comparisons.b, comparisons.value))

        def gradient(x, a=a, b=b, r=r):
            t = x[a] - x[b]
            small = np.abs(t) < 1e-3
            s = np.where(small, 1.0, t)
            mean = np.where(small, t / 3 - t**3 / 45, 1 / np.tanh(s) - 1 / s)
            g = x / 49
            np.add.at(g, a, mean - r)
            np.add.at(g, b, r - mean)
            return g

        def loss(x, a=a, b=b, r=r):
            t = np.abs(x[a] - x[b])
            s = np.maximum(t, 1e-3)
            far = s + np.log(-np.expm1(-2 * s) / (2 * s))
            cgf = np.where(t < 1e-3, t**2 / 6 - t**4 / 180, far)
            return x @ x / 98 + np.sum(cgf - r * (x[a] - x[b]))

        start = np.asarray(fit.scores) + np.random.default_rng(0).normal(size=fit.scores.size)
        options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0, "gtol": 1e-11}
        found = scipy.optimize.minimize(
            loss, start, jac=gradient, method="L-BFGS-B", options=options
        )
        refined = scipy.optimize.root(gradient, found.x, method="krylov", options={"fatol": 1e-11})
        np.testing.assert_allclose(fit.scores, refined.x, atol=1e-8)


EXTREMES = {
    f"skellam-{rate:g}-sigma-{sigma:g}": (laws.Skellam(rate), sigma, 1e6)
    for rate in (1e-3, 1.0, 1e3)
    for sigma in (1.0, 7.0)
} | {
    f"{type(law).__name__}-edge-sigma-{sigma:g}": (law, sigma, 1.0)
    for law in (laws.Binary(), laws.Uniform())
    for sigma in (1e-3, 1.0, 1e3, 1e6)
}


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_values(name):
    law, sigma, value = EXTREMES[name]
    a, b = random_pairs(30, 100)
    comparisons = gbt.Comparisons(
        np.minimum(a, b), np.maximum(a, b), np.full(100, value), num_items=30
    )
    newton, dense, first_order = all_fits(gbt.Model(law, sigma), comparisons)
    for fit in (newton, dense, first_order):
        assert fit.result == gbt.RESULTS.successful
        # What each claims of its own distance from the optimum covers their disagreement.
        allowed = float(fit.error_bound + dense.error_bound) + 1e-13
        assert float(jnp.linalg.norm(fit.scores - dense.scores)) <= allowed
        level = float(fit.error_bound) + 1e-9 * float(jnp.max(fit.scores))
        assert abs(float(jnp.sum(fit.scores))) <= np.sqrt(30) * level
    scale = 1 + float(jnp.max(jnp.abs(dense.scores)))
    np.testing.assert_allclose(newton.scores, dense.scores, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize("law", [laws.Binary(), laws.Uniform()], ids=["Binary", "Uniform"])
@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3, 1e6])
def test_weights_over_sixteen_decades(law, sigma):
    rng = np.random.default_rng(2)
    a, b = random_pairs(30, 100)
    value = law.sample(jnp.zeros(100), key=jax.random.key(0))
    weight = 10 ** rng.uniform(-8, 8, 100)
    comparisons = gbt.Comparisons(a, b, value, weight, num_items=30)
    model = gbt.Model(law, sigma)
    newton, dense = (gbt.fit(model, comparisons, solver=s, throw=False) for s in SOLVERS[:2])
    for fit in (newton, dense):
        assert np.isfinite(np.asarray(fit.scores)).all()
    apart = float(jnp.linalg.norm(newton.scores - dense.scores))
    assert apart <= float(newton.error_bound + dense.error_bound)
    if sigma <= 1:
        assert newton.result == gbt.RESULTS.successful
        assert apart < 1e-6


@pytest.mark.parametrize("winner_first", [True, False])
def test_very_many_comparisons_of_few_items(winner_first):
    """Long sums, of one sign where winners stand first, round far more than their terms."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 8, 600_000)
    b = (a + rng.integers(1, 8, a.size)) % 8
    value = np.where(rng.random(a.size) < 1 / (1 + np.exp((a - b) / 4)), 1.0, -1.0)
    if winner_first:
        a, b, value = np.where(value > 0, a, b), np.where(value > 0, b, a), np.ones(a.size)
    comparisons = gbt.Comparisons(a, b, value, num_items=8)
    fit = gbt.fit(gbt.Model(laws.Binary(), 7.0), comparisons, solver=gbt.solvers.NewtonCG())
    assert int(fit.stats.newton_steps) <= 12
    merged = gbt.fit(gbt.Model(laws.Binary(), 7.0), comparisons.merge_repeats())
    apart = fit.scores - merged.scores
    assert float(jnp.linalg.norm(apart)) <= float(fit.error_bound + merged.error_bound)
    # Nothing but the prior holds their sum, so that is where rounding shows.
    np.testing.assert_allclose(apart - jnp.mean(apart), 0, atol=1e-12)
    assert float(fit.error_bound) < 1e-4


GRAPHS = {
    "chain": lambda n: (np.arange(n - 1), np.arange(1, n)),
    "star": lambda n: (np.zeros(n - 1, int), np.arange(1, n)),
    "grid": lambda n: _grid(int(np.sqrt(n))),
}


def _grid(side):
    item = np.arange(side * side).reshape(side, side)
    a = np.concatenate([item[:, :-1].ravel(), item[:-1].ravel()])
    return a, np.concatenate([item[:, 1:].ravel(), item[1:].ravel()])


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("sigma", [1.0, 30.0])
def test_hundred_thousand_items(graph, sigma):
    a, b = GRAPHS[graph](100_000)
    law = laws.Uniform()
    num_items = int(max(a.max(), b.max())) + 1
    value = np.random.default_rng(0).uniform(-1, 1, a.size)
    comparisons = gbt.Comparisons(a, b, value, num_items=num_items)
    fit = gbt.fit(gbt.Model(law, sigma), comparisons)
    scores = np.asarray(fit.scores)
    # An independent gradient: the stationarity condition itself, in NumPy.
    t = scores[a] - scores[b]
    safe = np.where(np.abs(t) < 1e-3, 1, t)
    mean = np.where(np.abs(t) < 1e-3, t / 3, 1 / np.tanh(safe) - 1 / safe)
    gradient = scores / sigma**2
    np.add.at(gradient, a, mean - value)
    np.add.at(gradient, b, value - mean)
    assert np.abs(gradient).max() < 1e-7


def test_complete_graph_gaussian_formula():
    a, b = np.triu_indices(40, 1)
    value = np.random.default_rng(1).normal(size=a.size)
    comparisons = gbt.Comparisons(a, b, value, num_items=40)
    total = incidence(comparisons).T @ value
    for solver in SOLVERS[:2]:
        fit = gbt.fit(gbt.Model(laws.Gaussian(0.5), 2.0), comparisons, solver=solver)
        np.testing.assert_allclose(fit.scores, total / (1 / 4 + 0.25 * 40), atol=1e-13)


def test_lonely_items_and_empty_comparisons_keep_the_prior_mean():
    model = gbt.Model(laws.Uniform(), 1.0, 2.5)
    empty = gbt.Comparisons([], [], [], num_items=3)
    np.testing.assert_array_equal(gbt.fit(model, empty).scores, [2.5, 2.5, 2.5])
    assert gbt.fit(model, gbt.Comparisons([], [], [], num_items=0)).scores.shape == (0,)
    pair = gbt.Comparisons([0], [1], [0.5], num_items=3)
    scores = gbt.fit(model, pair).scores
    assert float(scores[2]) == 2.5
    np.testing.assert_allclose(scores[0] + scores[1], 5.0, atol=1e-14)
    free = gbt.fit(gbt.Model(laws.Uniform(), jnp.inf), pair).scores
    assert float(free[2]) == 0
    np.testing.assert_allclose(free[0] - free[1], laws.Uniform().inverse_mean(0.5), rtol=1e-12)


def test_warm_starts():
    comparisons = random_comparisons(30, 100)
    model = gbt.Model(laws.Uniform(), 3.0)
    cold = gbt.fit(model, comparisons, solver=gbt.solvers.NewtonCG())
    absurd = np.random.default_rng(0).normal(size=30) * 1e12
    for fit in all_fits(model, comparisons, initial=absurd):
        np.testing.assert_allclose(fit.scores, cold.scores, atol=1e-12)
    longer = gbt.Comparisons(
        np.append(comparisons.a, 3),
        np.append(comparisons.b, 9),
        np.append(comparisons.value, 0.9),
        num_items=30,
    )
    refit = gbt.fit(model, longer, solver=gbt.solvers.NewtonCG(), initial=cold.scores)
    anew = gbt.fit(model, longer, solver=gbt.solvers.NewtonCG())
    np.testing.assert_allclose(refit.scores, anew.scores, atol=1e-12)
    assert int(refit.stats.newton_steps) < int(anew.stats.newton_steps)
    with pytest.raises(ValueError, match="initial must hold one score per item"):
        gbt.fit(model, comparisons, initial=np.zeros(3))
    with pytest.raises(ValueError, match=r"initial\[1\] is nan"):
        gbt.fit(model, comparisons, initial=np.where(np.arange(30) == 1, np.nan, 0))


@pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e3])
def test_float32(sigma):
    exact = random_comparisons(30, 100)
    single = exact.with_values(np.asarray(exact.value, np.float32))
    double = single.with_values(np.asarray(single.value, np.float64))
    model = gbt.Model(laws.Uniform(), sigma)
    reference = gbt.fit(model, double).scores
    for fit in all_fits(model, single):
        assert fit.scores.dtype == jnp.float32
        scale = 1e-6 * (1 + float(jnp.max(jnp.abs(reference))))
        np.testing.assert_allclose(fit.scores, reference.astype(jnp.float32), atol=10 * scale)


def test_one_prior_per_item():
    comparisons = random_comparisons(6, 20)
    std = np.array([0.1, 1.0, 2.0, np.inf, 1.0, 0.5])
    mean = np.arange(6.0)
    fit = gbt.fit(gbt.Model(laws.Uniform(), std, mean), comparisons)
    slope = jax.grad(gbt.negative_log_posterior, argnums=2)(
        gbt.Model(laws.Uniform(), std, mean), comparisons, fit.scores
    )
    np.testing.assert_allclose(slope, 0, atol=1e-13)
    assert np.isposinf(fit.error_bound)


def test_items_without_a_finite_optimum_are_named():
    model = gbt.Model(laws.Binary(), jnp.inf)
    # 0 beats everyone; 3 and 4 beat each other but lose to 0 alone.
    comparisons = gbt.Comparisons([0, 0, 3, 4], [3, 4, 4, 3], [1.0, 1, 1, 1], num_items=5)
    with pytest.raises(gbt.FitError, match=r"no finite optimum.*no bound: 0") as caught:
        gbt.fit(model, comparisons)
    assert caught.value.fit.result == gbt.RESULTS.no_finite_optimum
    assert np.isnan(np.asarray(caught.value.fit.scores)).all()
    # Two groups, every comparison between them won by the first.
    groups = gbt.Comparisons([0, 1, 2, 3, 0], [1, 0, 3, 2, 2], [1.0, 1, 1, 1, 1], num_items=4)
    result = gbt.fit(model, groups, throw=False)
    assert result.result == gbt.RESULTS.no_finite_optimum
    # With a prior the same data are fine, and one loss is enough without.
    assert gbt.fit(gbt.Model(laws.Binary(), 10.0), groups).result == gbt.RESULTS.successful
    mended = gbt.Comparisons(
        [0, 1, 2, 3, 0, 2], [1, 0, 3, 2, 2, 0], [1.0, 1, 1, 1, 1, 1], num_items=4
    )
    assert gbt.fit(model, mended).result == gbt.RESULTS.successful
    # An anchor on the rest does not hold the winner; one on the winner and the rest does.
    for held, result in (([1], "no_finite_optimum"), ([0, 3], "successful")):
        std = np.full(5, np.inf)
        std[held] = 1.0
        fit = gbt.fit(gbt.Model(laws.Binary(), std), comparisons, throw=False)
        assert fit.result.name == result
    # Unbounded laws always have an optimum.
    single = gbt.Comparisons([0], [1], [50.0], num_items=2)
    assert gbt.fit(gbt.Model(laws.Skellam(1.0), jnp.inf), single).scores[0] > 2


def test_failures_are_never_silent():
    comparisons = random_comparisons(30, 100)
    model = gbt.Model(laws.Uniform(), 7.0)
    with pytest.raises(gbt.FitError, match="raise max_steps"):
        gbt.fit(model, comparisons, max_steps=1)
    unfinished = gbt.fit(model, comparisons, max_steps=1, throw=False)
    assert unfinished.result == gbt.RESULTS.max_steps_reached
    huge = comparisons.with_weights(np.full(100, 1e308))
    broken = gbt.fit(model, huge, throw=False)
    assert broken.result == gbt.RESULTS.non_finite
    with pytest.raises(gbt.FitError, match="overflows"):
        gbt.fit(model, huge)


def test_tolerances_stop_early_and_keep_their_promise():
    comparisons = random_comparisons(80, 300)
    model = gbt.Model(laws.Uniform(), 7.0)
    exact = gbt.fit(model, comparisons, solver=gbt.solvers.NewtonCG())
    loose = gbt.fit(model, comparisons, solver=gbt.solvers.NewtonCG(), atol=1e-2)
    assert float(loose.error_bound) <= 1e-2
    assert float(jnp.linalg.norm(loose.scores - exact.scores)) <= float(loose.error_bound)
    assert int(loose.stats.cg_steps) < int(exact.stats.cg_steps)
    assert float(exact.error_bound) < 1e-11


def test_new_values_do_not_retrace():
    law, traces = counting_law()
    comparisons = random_comparisons(50, 90)

    def loss(std, scale, value):
        model = gbt.Model(law(scale), std)
        return jnp.sum(gbt.map_scores(model, comparisons.with_values(value)) ** 2)

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    gbt.fit(gbt.Model(law(jnp.asarray(1.0)), 2.0), comparisons)
    gradient(jnp.asarray(2.0), jnp.asarray(1.0), comparisons.value)
    model = gbt.Model(law(jnp.asarray(1.1)), 3.0)
    seen = len(traces)
    gbt.fit(model, comparisons.with_values(0.5 * comparisons.value))
    gradient(jnp.asarray(3.0), jnp.asarray(1.2), 0.3 * comparisons.value)
    assert len(traces) == seen


@pytest.mark.parametrize("num_rows", [4095, 4096, 10_000])
def test_the_order_of_rows_does_not_matter(num_rows):
    # From 4,096 rows on, sorted rows are permuted (`interleaved_order`).
    rng = np.random.default_rng(0)
    a = np.sort(rng.integers(0, 40, num_rows))
    b = (a + 1 + rng.integers(0, 39, num_rows)) % 40
    value, weight = rng.uniform(-0.9, 0.9, num_rows), rng.uniform(0.5, 2, num_rows)
    model = gbt.Model(laws.Uniform(), prior_std=2.0)

    def comparisons(order):
        return gbt.Comparisons(a[order], b[order], value[order], weight[order], num_items=40)

    in_order = comparisons(np.arange(num_rows))
    order = interleaved_order(a, b)
    assert (order is None) == (num_rows < 4096)
    if order is not None:
        np.testing.assert_array_equal(np.sort(order), np.arange(num_rows))
        assert np.mean(a[order][1:] == a[order][:-1]) < 0.2 < np.mean(a[1:] == a[:-1])
    sorted_scores = gbt.fit(model, in_order, solver=gbt.solvers.NewtonCG()).scores
    shuffled = gbt.fit(
        model, comparisons(rng.permutation(num_rows)), solver=gbt.solvers.NewtonCG()
    ).scores
    np.testing.assert_allclose(sorted_scores, shuffled, rtol=1e-12, atol=1e-13)


def test_arrays_are_copied_at_the_door():
    a, b, value = np.array([0, 1]), np.array([1, 2]), np.array([0.5, 0.25])
    comparisons = gbt.Comparisons(a, b, value, num_items=3)
    a[0], value[0] = 2, -0.5
    np.testing.assert_array_equal(comparisons.a, [0, 1])
    np.testing.assert_array_equal(comparisons.value, [0.5, 0.25])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 1e-8, 1e-12, 1e-20])
def test_values_of_next_to_nothing_do_not_end_a_fit_early(value, dtype):
    # Slopes w (Φ' − r) are far larger than r here: rounding is measured by terms, not by values.
    apart = gbt.Model(laws.Uniform(), prior_mean=np.array([3, -3], dtype))
    pair = gbt.Comparisons([0], [1], np.array([value], dtype), num_items=2)
    size = 60
    a, b = np.append(0, np.ones(size - 2, int)), np.append(1, np.arange(2, size))
    values = np.append(value, np.full(size - 2, 0.95)).astype(dtype)
    star = gbt.Comparisons(a, b, values, num_items=size)
    eps = float(np.finfo(dtype).eps)
    assert gbt.fit(apart, pair).gradient_norm < 16 * eps
    assert gbt.fit(gbt.Model(laws.Uniform(), dtype(3)), star).gradient_norm < 300 * eps


@pytest.mark.parametrize("solver", SOLVERS)
def test_values_whose_squares_overflow_are_right_or_no_success(solver):
    incidence = np.array([[1, -1, 0], [1, 0, -1]])

    def large(value):
        """The fit, and its largest error relative to the largest score of the closed form."""
        values = np.array([value, 0.5], np.float32)
        rows = gbt.Comparisons([0, 0], [1, 2], values, num_items=3)
        found = gbt.fit(gbt.Model(laws.Gaussian(1.0), 3.0), rows, solver=solver, throw=False)
        hessian = np.eye(3) / 9 + incidence.T @ incidence
        exact = np.linalg.solve(hessian, incidence.T @ values.astype(float))
        return found, np.max(np.abs(np.asarray(found.scores, float) - exact)) / np.max(exact)

    # Fourth powers of this value are beyond float32, its squares are not.
    found, error = large(1e10)
    assert found.result == gbt.RESULTS.successful
    assert error < 1e-6
    # Here squares are, too.
    found, error = large(1e20)
    assert error < 1e-6 or found.result != gbt.RESULTS.successful


def test_masked_arrays_are_refused():
    masked = np.ma.array([0.5, 0.9], mask=[False, True])
    with pytest.raises(ValueError, match="masked"):
        gbt.Comparisons([0, 1], [1, 2], masked, num_items=3)
