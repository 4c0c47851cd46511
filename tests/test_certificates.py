"""`successful` is the certificate's word, in every mode; derivatives through `fit` are implicit."""

import csv
import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pyarrow
import pytest
from problems import data_file, incidence, random_comparisons, random_pairs

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._data._partition import ONE
from gbt_jax._inference import _certify, _maximise
from gbt_jax._inference._gauge import Regularised, find_gauge
from gbt_jax._inference._objective import exact_sums
from gbt_jax._inference._optimum import is_certified

pytestmark = pytest.mark.certificate

RESULTS = gbt.RESULTS


def certificate(model, comparisons, scores):
    gauge = find_gauge(model, comparisons, is_regularised=False)
    return jax.jit(_certify.certify)(model, comparisons, scores, gauge)


def exact_gradient(comparisons, scores, sigma):
    """Of Binary, with 40 digits."""
    with mpmath.workdps(40):
        theta = [mpmath.mpf(float(x)) for x in scores]
        total = [x / mpmath.mpf(sigma) ** 2 for x in theta]
        columns = (comparisons.a, comparisons.b, comparisons.value, comparisons.weight)
        for a, b, r, w in zip(*(np.asarray(x).tolist() for x in columns), strict=True):
            slope = mpmath.mpf(w) * (mpmath.tanh(theta[a] - theta[b]) - mpmath.mpf(r))
            total[a] += slope
            total[b] -= slope
        return mpmath.sqrt(mpmath.fsum(x * x for x in total))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spread", [0, 12], ids=["even", "weights over 12 decades"])
def test_gradient_is_within_its_bound(dtype, spread):
    """At any scores σ²(‖g‖ + ‖ρ‖) is at least σ² times the exact gradient, and not much more."""
    rng = np.random.default_rng(0)
    a, b = random_pairs(12, 300)
    value = rng.choice([-1.0, 1.0], 300).astype(dtype)
    weight = (10 ** rng.uniform(-spread / 2, spread / 2, 300)).astype(dtype)
    rows = gbt.Comparisons(a, b, value, weight, num_items=12)
    model = gbt.Model(laws.Binary(), np.asarray(0.5, dtype))
    best = np.asarray(gbt.fit(model, rows, throw=False).scores)
    for size in (0.0, 1e-12, 1e-3, 1.0):
        scores = jnp.asarray(best + size * rng.normal(size=12), dtype)
        found = certificate(model, rows, scores)
        exact = float(exact_gradient(rows, scores, 0.5)) * 0.25
        assert float(found.error_bound) >= exact
        slack = 2000 * float(jnp.finfo(dtype).eps) * float(weight.sum())
        assert float(found.error_bound) <= 1.01 * exact + slack
        assert bool(found.is_certified) == (size <= 1e-12)


def test_sums_do_not_depend_on_the_order_of_rows():
    """Of terms that cancel to the last digits; added one by one they leave 1e-11."""
    rng = np.random.default_rng(1)
    a, b = random_pairs(5, 100_000)
    slopes = rng.normal(size=100_000) * 10 ** rng.uniform(-3, 3, 100_000)
    sizes = np.bincount(a, np.abs(slopes), 5) + np.bincount(b, np.abs(slopes), 5)
    found = []
    for order in (np.arange(a.size), rng.permutation(a.size), np.argsort(a)):
        rows = gbt.Comparisons(a[order], b[order], np.zeros(a.size), num_items=5)
        sums = jax.jit(functools.partial(exact_sums, partition=ONE))
        high, low, anchor = sums(rows, jnp.asarray(slopes[order]), jnp.asarray(sizes.max()))
        errors = jnp.asarray(np.finfo(float).eps * sizes)
        error = _certify._low_error(rows, jnp.asarray(slopes[order]), errors, anchor, ONE)
        found.append(np.asarray(high))
        exact = [
            mpmath.fsum([*slopes[a == item].tolist(), *(-slopes[b == item]).tolist()])
            for item in range(5)
        ]
        for item in range(5):
            with mpmath.workdps(40):
                off = abs(mpmath.mpf(float(high[item])) + float(low[item]) - exact[item])
            assert off <= float(jnp.max(error)) + 1e-15 * abs(exact[item])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_wrong_point_is_never_certified():
    """The certificate knows nothing of a solver: scores from anywhere are judged alike."""
    rows, sigma = random_comparisons(20, 200), np.inf
    for law, sigma in ((laws.Uniform(), 2.0), (laws.Uniform(), np.inf), (laws.Gaussian(), 1e5)):
        model = gbt.Model(law, sigma)
        best = gbt.fit(model, rows).scores
        assert bool(certificate(model, rows, best).is_certified)
        # With a firm prior a certified distance far below the scores is success as well.
        for size in (1e-5, 1.0, 1e8) if sigma == 2.0 else (1e-9, 1e-5, 1.0, 1e8):
            moved = best + size * jnp.asarray(np.random.default_rng(3).normal(size=20))
            assert not bool(certificate(model, rows, moved).is_certified), (law, sigma, size)
        # A common level is no fault of the differences, but where the prior says it is.
        assert not bool(certificate(gbt.Model(law, 2.0), rows, best + 1.0).is_certified)


def test_no_optimum_is_not_certified_under_tracing():
    """Item 0 wins always: whatever the steps, there is no success, and scores are NaN."""
    a, b = np.array([0, 0, 1, 2, 2]), np.array([1, 2, 2, 1, 1])
    rows = gbt.Comparisons(a, b, np.array([1.0, 1.0, 1.0, 1.0, -1.0]), num_items=3)
    for law in (laws.Binary(), laws.Davidson(1.0), laws.KNary(5), laws.Uniform()):
        model = gbt.Model(law, np.inf)
        assert np.isnan(jax.jit(gbt.map_scores)(model, rows)).all()
        traced = jax.jit(functools.partial(gbt.fit, throw=False))(model, rows)
        assert traced.result in (RESULTS.precision_lost, RESULTS.max_steps_reached)
        assert gbt.fit(model, rows, throw=False).result == RESULTS.no_finite_optimum


def test_rounding_that_hides_a_part_is_named():
    """Two heavy pairs, joined by one row that is lost beside them: nobody can tell how they lie."""
    a, b = np.array([0, 0, 2, 2, 1]), np.array([1, 1, 3, 3, 2])
    value, weight = np.array([0.5, -0.2, 0.5, 0.1, 0.3]), np.array([1e9, 1e9, 1e9, 1e9, 1e-9])
    rows = gbt.Comparisons(a, b, value, weight, num_items=4)
    model = gbt.Model(laws.Uniform(), np.inf)
    for solver in (gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky()):
        fit = gbt.fit(model, rows, solver=solver, throw=False)
        assert fit.result == RESULTS.precision_lost
    with pytest.raises(gbt.FitError, match="rounding hides the optimum"):
        gbt.fit(model, rows)
    even = rows.with_weights(np.ones(5))
    assert gbt.fit(model, even).result == RESULTS.successful


def test_levels_of_components_without_a_prior():
    """Each has mean zero, whatever prior_mean says; a weak prior has its own level."""
    rows = gbt.Comparisons([0, 1, 3], [1, 2, 4], [0.5, -0.3, 0.2], num_items=6)
    for mean in (0.0, 5.0, np.arange(6.0)):
        scores = np.asarray(gbt.fit(gbt.Model(laws.Uniform(), np.inf, mean), rows).scores)
        for part in ([0, 1, 2], [3, 4], [5]):
            np.testing.assert_allclose(scores[part].mean(), 0, atol=1e-15)
    scores = np.asarray(gbt.fit(gbt.Model(laws.Uniform(), 1e7, 5.0), rows).scores)
    np.testing.assert_allclose(scores[:3].mean(), 5, rtol=1e-12)
    start = jnp.asarray(scores) + 1e9
    warm = gbt.fit(gbt.Model(laws.Uniform(), 1e7, 5.0), rows, initial=start)
    np.testing.assert_allclose(warm.scores, scores, rtol=1e-10)


@pytest.mark.parametrize("std", [np.inf, 1e7, 2.0])
@pytest.mark.parametrize(
    "solver", [gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky()], ids=["cg", "cholesky"]
)
def test_derivatives_with_a_weak_prior_or_none(std, solver):
    """In values, weights and prior mean, to second order, against central differences."""
    rows = random_comparisons(6, 14, seed=4)

    @jax.jit
    def scores(value, weight, mean):
        model = gbt.Model(laws.Uniform(), std, mean)
        data = gbt.Comparisons(rows.a, rows.b, value, weight, num_items=6)
        return gbt.map_scores(model, data, solver=solver)

    point = rows.value, rows.weight, jnp.asarray(np.random.default_rng(5).normal(size=6))
    rng = np.random.default_rng(6)
    along = tuple(jnp.asarray(0.1 * rng.normal(size=x.shape)) for x in point)

    def at(s):
        return tuple(x + s * d for x, d in zip(point, along, strict=True))

    first = jax.jit(lambda p: jax.jvp(scores, p, along)[1])
    for function, derivative in (
        (lambda s: scores(*at(s)), first(point)),
        (lambda s: first(at(s)), jax.jit(lambda p: jax.jvp(first, (p,), (along,))[1])(point)),
    ):
        h = 1e-3
        sides = (8 * (function(h) - function(-h)) - (function(2 * h) - function(-2 * h))) / (12 * h)
        np.testing.assert_allclose(derivative, sides, atol=1e-8 * (1 + np.abs(sides).max()))
    cotangent = jnp.asarray(rng.normal(size=6))
    back = jax.jit(lambda p: jax.vjp(scores, *p)[1](cotangent))(point)
    total = sum(float(jnp.vdot(x, d)) for x, d in zip(back, along, strict=True))
    np.testing.assert_allclose(total, np.vdot(cotangent, first(point)), rtol=1e-9)


def test_derivatives_through_fit_are_those_of_the_optimum():
    """Also from the optimum itself, where no step is taken; forward, reverse, and under jit."""
    rows, model = random_comparisons(6, 14), gbt.Model(laws.Uniform(), 2.0)
    best = gbt.fit(model, rows).scores
    expected = jax.jacrev(lambda v: gbt.map_scores(model, rows.with_values(v)))(rows.value)

    def scores(value):
        return gbt.fit(model, rows.with_values(value), initial=best, throw=False).scores

    for transform in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.jit(transform(scores))(rows.value), expected, rtol=1e-10)
    bound = jax.grad(lambda v: gbt.fit(model, rows.with_values(v), throw=False).error_bound)
    np.testing.assert_array_equal(bound(rows.value), 0)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.jacfwd, jax.vmap])
def test_fit_that_cannot_raise_says_what_to_write(transform):
    rows, model = random_comparisons(6, 14), gbt.Model(laws.Uniform(), 2.0)

    def total(value):
        return jnp.sum(gbt.fit(model, rows.with_values(value)).scores)

    value = rows.value[None] if transform is jax.vmap else rows.value
    with pytest.raises(ValueError, match=r"throw=False .* map_scores"):
        transform(total)(value)


def test_constants_inside_of_jit_and_scan():
    rows, model = random_comparisons(6, 14), gbt.Model(laws.Uniform(), 2.0)
    expected = gbt.fit(model, rows).scores

    @jax.jit
    def inside(x):
        return x + gbt.fit(model, rows).scores

    np.testing.assert_array_equal(inside(jnp.zeros(6)), expected)

    def step(total, _):
        return total + gbt.fit(model, rows).scores, None

    total, _ = jax.lax.scan(step, jnp.zeros(6), length=3)
    np.testing.assert_allclose(total, 3 * expected, rtol=1e-15)

    @jax.jit
    def made_inside(x):
        model = gbt.Model(laws.Gaussian(2), np.inf)
        rows = gbt.Comparisons([0, 0, 1], [1, 2, 2], [1, 0, -1], num_items=3)
        return x + gbt.fit(model, rows).scores

    np.testing.assert_allclose(made_inside(jnp.zeros(3)), [1 / 12, -1 / 6, 1 / 12], atol=1e-15)
    with pytest.raises(gbt.FitError, match="no finite optimum"):
        jax.jit(lambda x: x + gbt.fit(*lost_problem()).scores[0])(1.0)


def lost_problem():
    return gbt.Model(laws.Binary(), np.inf), gbt.Comparisons([0], [1], [1.0], num_items=2)


def test_rows_that_make_no_sense_give_nan_under_tracing():
    """A negative or infinite weight, an item against itself, a value outside of the support."""
    rows, model = random_comparisons(6, 14), gbt.Model(laws.Uniform(), 2.0)

    @jax.jit
    def scores(a, value, weight):
        return gbt.map_scores(model, gbt.Comparisons(a, rows.b, value, weight, num_items=6))

    @jax.jit
    def result(a, value, weight):
        data = gbt.Comparisons(a, rows.b, value, weight, num_items=6)
        return gbt.fit(model, data, throw=False).result

    good = rows.a, rows.value, rows.weight
    assert np.isfinite(scores(*good)).all()
    for bad in (
        (rows.a, rows.value, rows.weight.at[3].set(-1e-3)),
        (rows.a, rows.value, rows.weight.at[3].set(np.inf)),
        (rows.a, rows.value, rows.weight.at[3].set(np.nan)),
        (rows.a, rows.value.at[3].set(1.5), rows.weight),
        (rows.a, rows.value.at[3].set(np.nan), rows.weight),
        (rows.a.at[3].set(rows.b[3]), rows.value, rows.weight),
    ):
        assert np.isnan(scores(*bad)).all()
        assert result(*bad) == RESULTS.invalid_data


def test_tolerances_are_certified():
    rows = random_comparisons(30, 300)
    for dtype in ("float64", "float32"):
        data = gbt.Comparisons(rows.a, rows.b, rows.value.astype(dtype), num_items=30)
        model = gbt.Model(laws.Uniform(), np.asarray(2.0, dtype))
        loose = gbt.fit(model, data, rtol=1e-2)
        assert float(loose.error_bound) <= 1e-2 * float(jnp.linalg.norm(loose.scores))
        best = gbt.fit(gbt.Model(laws.Uniform(), 2.0), rows).scores
        distance = float(jnp.linalg.norm(best - loose.scores.astype("float64")))
        assert distance <= float(loose.error_bound)
    # Tighter than float32 can certify: the iterations go to rounding, which is success too.
    assert gbt.fit(model, data, rtol=1e-9).result == RESULTS.successful


def test_arena_votes_as_weighted_rows():
    """1.67 million votes of 129 models, each outcome of a pair one row with its count."""
    rng = np.random.default_rng(0)
    a, b = np.triu_indices(129, 1)
    skill = rng.normal(size=129)
    votes = rng.poisson(1_670_000 / a.size * np.exp(rng.normal(size=a.size) - 0.5))
    tied = rng.binomial(votes, 0.3)
    won = rng.binomial(votes - tied, 1 / (1 + np.exp(-2 * (skill[a] - skill[b]))))
    counts = np.concatenate([won, tied, votes - tied - won]).astype(float)
    value = np.repeat([1.0, 0.0, -1.0], a.size)
    rows = gbt.Comparisons(np.tile(a, 3), np.tile(b, 3), value, counts, num_items=129)
    for std in (np.inf, 1e4, 3.0):
        fit = gbt.fit(gbt.Model(laws.Davidson(1.0), std), rows)
        assert float(fit.gradient_norm) < 1e-9
        assert int(fit.stats.newton_steps) < 20


def test_tables_publish_certified_rankings():
    """LLMFAO without a prior, through the path that `gbt fit` and `gbt report` take."""
    frames = pytest.importorskip("gbt_jax.frames")
    with open(data_file("llmfao/crowd-comparisons.csv"), encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(0).permutation(len(rows))
    columns = {
        name: [rows[i][name] for i in order] for name in ("left", "right", "winner", "worker")
    }
    table = pyarrow.table(columns)
    ranking = frames.fit_table(table, "crowd", value="winner", law="davidson:1", prior_std=np.inf)
    assert len(set(ranking.table["score"].to_pylist())) == 59
    assert ranking.fit.gradient_norm[0] < 1e-9


def test_strong_priors_need_no_gauge():
    gauge = find_gauge(
        gbt.Model(laws.Uniform(), 2.0), random_comparisons(6, 14), is_regularised=True
    )
    assert isinstance(gauge, Regularised)
    x = jnp.arange(6.0)
    for project in (gauge.centre, gauge.project_direction, gauge.project_residual):
        np.testing.assert_array_equal(project(x), x)


@pytest.mark.parametrize("std", [0.5, 1e5])
def test_a_large_common_level_costs_no_steps(std):
    """Scores around 1e6 have the differences, and the number of steps, of those around 0."""
    rows = random_comparisons(40, 300)
    low = gbt.fit(gbt.Model(laws.Uniform(), std), rows, solver=gbt.solvers.NewtonCG())
    high = gbt.fit(gbt.Model(laws.Uniform(), std, 1e6), rows, solver=gbt.solvers.NewtonCG())
    assert int(high.stats.newton_steps) == int(low.stats.newton_steps)
    np.testing.assert_allclose(high.scores - 1e6, low.scores, atol=1e-9)


@pytest.mark.parametrize("std", [1.0, 10.0])
def test_long_sums_in_float32(std):
    """30,000 rows of three items: their level is the prior's, not what rounding makes of it."""
    rng = np.random.default_rng(0)
    a, b = random_pairs(3, 30_000)
    value = rng.choice([-1.0, 1.0], a.size)
    exact = gbt.fit(gbt.Model(laws.Binary(), std), gbt.Comparisons(a, b, value, num_items=3)).scores
    rows = gbt.Comparisons(a, b, value.astype("float32"), num_items=3)
    model = gbt.Model(laws.Binary(), np.float32(std))
    for scores in (gbt.fit(model, rows).scores, jax.jit(gbt.map_scores)(model, rows)):
        np.testing.assert_allclose(scores, exact, atol=2e-5)


def test_parts_of_the_graph_are_looked_at_where_rows_leave_a_fit_open(monkeypatch):
    """Weights over twelve decades: no light row alone determines its scores, but parts do."""
    asked = []

    def spy(*problem, known):
        asked.append(bool(is_certified(*problem, known=known)))
        return asked[-1]

    monkeypatch.setattr(_maximise, "is_certified", spy)
    rng, (a, b) = np.random.default_rng(0), random_pairs(12, 120)
    weight, value = 10.0 ** rng.uniform(-12, 0, 120), rng.uniform(-0.9, 0.9, 120)
    rows = gbt.Comparisons(a, b, value, weight, num_items=12)
    fit = gbt.fit(gbt.Model(laws.Gaussian(), np.inf), rows)
    assert asked == [True]
    # Least squares on rows scaled by √w, which squares no condition number.
    scale = np.sqrt(weight)
    expected = np.linalg.lstsq(scale[:, None] * incidence(rows), scale * value, rcond=1e-14)[0]
    np.testing.assert_allclose(fit.scores, expected - expected.mean(), atol=1e-6)
    # Rows of one weight settle it: the other program is not asked.
    gbt.fit(fit.model, rows.with_weights(np.ones(120)))
    assert asked == [True]


def test_tiny_weights_do_not_vanish():
    """Squares of their gradients underflow; the bound does not, and nothing is called zero."""
    rows = gbt.Comparisons([0], [1], np.float32([1.0]), np.float32([1e-24]), num_items=2)
    fit = gbt.fit(gbt.Model(laws.Gaussian(), np.float32(1e12)), rows, rtol=1e-3, throw=False)
    distance = float(np.linalg.norm(np.asarray(fit.scores) - [1 / 3, -1 / 3]))
    assert fit.result != RESULTS.successful or distance <= float(fit.error_bound) < 1e-3
    rows = gbt.Comparisons([0], [1], np.float32([1.0]), np.float32([1e-23]), num_items=2)
    assert float(gbt.fit(gbt.Model(laws.Gaussian()), rows, throw=False).error_bound) >= 1e-23
    weight = np.float32([1e-36, 50e-36])
    rows = gbt.Comparisons([0, 1], [1, 0], np.float32([1, 1]), weight, num_items=2)
    early = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows, max_steps=1, throw=False)
    assert early.result != RESULTS.successful
    fit = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows, throw=False)
    if fit.result == RESULTS.successful:
        np.testing.assert_allclose(fit.scores[1] - fit.scores[0], np.log(50) / 2, rtol=1e-4)


@pytest.mark.parametrize("mean", [0.0, 1e5, 1e7])
def test_separation_at_a_large_level(mean):
    """One win, σ = 1e6 in float32: the tail of the law is lost in rounding, at every level."""
    rows = gbt.Comparisons([0], [1], np.float32([1.0]), num_items=2)
    model = gbt.Model(laws.Binary(), np.float32(1e6), np.float32(mean))
    assert gbt.fit(model, rows, throw=False).result == RESULTS.precision_lost


def test_priors_and_indices_that_make_no_sense_under_tracing():
    rows = random_comparisons(3, 9)

    @jax.jit
    def scores(a, std):
        data = gbt.Comparisons(a, rows.b, rows.value, num_items=3)
        return gbt.map_scores(gbt.Model(laws.Uniform(), std), data)

    assert np.isfinite(scores(rows.a, jnp.ones(3))).all()
    for a, std in (
        (rows.a, jnp.asarray([-5.0, 1.0, 1.0])),
        (rows.a, jnp.asarray([0.0, 1.0, 1.0])),
        (rows.a, jnp.asarray([np.nan, 1.0, 1.0])),
        (rows.a.at[0].set(5), jnp.ones(3)),
        (rows.a.at[0].set(-1), jnp.ones(3)),
    ):
        assert np.isnan(scores(a, std)).all()


def test_padding_may_hold_anything():
    rows, model = random_comparisons(3, 9), gbt.Model(laws.Uniform(), 2.0)

    @jax.jit
    def scores(value):
        weight = rows.weight.at[4].set(0)
        return gbt.map_scores(model, gbt.Comparisons(rows.a, rows.b, value, weight, num_items=3))

    np.testing.assert_array_equal(
        scores(rows.value.at[4].set(np.nan)), scores(rows.value.at[4].set(0))
    )


def test_rows_that_nothing_merges_stay_in_order():
    """So that parameters per row stay with their rows."""
    rows = gbt.Comparisons([2, 0], [1, 1], [1.0, 0.0], num_items=3)
    model = gbt.Model(laws.Davidson(np.array([5.0, 0.1])))
    expected = gbt.fit(model, rows).scores
    np.testing.assert_allclose(gbt.fit(model, rows.merge_repeats()).scores, expected, atol=1e-14)
