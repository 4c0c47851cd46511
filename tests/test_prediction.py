"""Predictions against closed forms and SciPy's quadrature; calibration of right and wrong fits."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from problems import incidence, random_comparisons, random_pairs

import gbt_jax as gbt
from gbt_jax import laws

ROWS = random_comparisons(24, 60)
NOISE, PRIOR = 0.7, 1.3  # of the Gaussian model
MEANS, STDS = (x.ravel() for x in np.meshgrid([0.0, 0.3, 2.0, -7.0], [0.05, 1.0, 30.0]))


@pytest.fixture(scope="module")
def gaussian():
    return gbt.fit(gbt.Model(laws.Gaussian(NOISE), PRIOR), ROWS)


@pytest.fixture(scope="module")
def score_covariance():
    """N of the Gaussian model, by the definition."""
    matrix = incidence(ROWS)
    return np.linalg.inv(np.eye(24) / PRIOR**2 + NOISE**2 * matrix.T @ matrix)


def with_law(fit, law):
    return eqx.tree_at(lambda fit: fit.model.law, fit, law)


def prior_alone(means, stds):
    """A fit, and its curvature, of twelve pairs of items with such differences under the prior.

    Without comparisons the posterior is the prior, whatever the law.
    """
    mean, std = np.resize(means, 12), np.resize(stds, 12)
    prior_mean = np.stack([mean, np.zeros(12)], axis=1).ravel()
    model = gbt.Model(laws.Gaussian(), np.repeat(std / np.sqrt(2), 2), prior_mean)
    empty = np.zeros(0)
    fit = gbt.fit(model, gbt.Comparisons(empty, empty, empty, num_items=24))
    return fit, gbt.curvature(fit)


def predictions(law, means, stds):
    fit, made = prior_alone(means, stds)
    return gbt.predict(with_law(fit, law), np.arange(0, 24, 2), np.arange(1, 24, 2), using=made)


def normal_average(function, mean, std, kinks):
    """E[function(t)] by adaptive quadrature over ± 12 standard deviations."""
    ends = mean - 12 * std, mean + 12 * std
    points = sorted({mean, *(k for k in kinks if ends[0] < k < ends[1])})
    value, _ = scipy.integrate.quad(
        lambda t: function(t) * math.exp(-0.5 * ((t - mean) / std) ** 2) / (std * math.tau**0.5),
        *ends,
        points=points,
        epsabs=1e-13,
        epsrel=1e-10,
        limit=500,
    )
    return value


def test_gaussian_closed_forms(gaussian, score_covariance):
    a, b = np.arange(23), np.arange(1, 24)
    found, N = gbt.predict(gaussian, a, b), score_covariance
    theta = N @ incidence(ROWS).T @ np.asarray(ROWS.value)
    t, v = theta[a] - theta[b], N[a, a] + N[b, b] - 2 * N[a, b]
    std = np.sqrt(NOISE**2 + NOISE**4 * v)
    for name, expected in {
        "difference": t,
        "difference_variance": v,
        "mean": NOISE**2 * t,
        "expected_at_map": NOISE**2 * t,
        "law_variance": NOISE**2,
        "score_variance": NOISE**4 * v,
        "variance": std**2,
        "std": std,
    }.items():
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-11, err_msg=name)
    for value in (0.0, 0.3, -5.0, 80.0):
        expected = scipy.stats.norm.logpdf(value, NOISE**2 * t, std)
        np.testing.assert_allclose(found.log_prob(value), expected, rtol=1e-12)


def test_scales_of_law_and_scores_may_differ():
    """A likelihood far narrower or far wider than the distribution of t."""
    for noise, std in ((100.0, 1.0), (0.01, 3.0), (1.0, 1e-9), (1.0, 0.0001), (1.0, 100.0)):
        found = predictions(laws.Gaussian(noise), [0.0, 0.4], std)
        whole = np.sqrt(noise**2 + (noise**2 * std) ** 2)
        np.testing.assert_allclose(found.std, whole, rtol=1e-12)
        mean = noise**2 * np.resize([0, 0.4], 12)
        value = mean + np.linspace(-4, 4, 12) * whole
        expected = scipy.stats.norm.logpdf(value, mean, whole)
        np.testing.assert_allclose(found.log_prob(value), expected, rtol=1e-10)


def test_binary_against_quadrature():
    found = predictions(laws.Binary(), MEANS, STDS)
    chance, other = (np.exp(np.asarray(found.log_prob(r))) for r in (1.0, -1.0))
    np.testing.assert_allclose(chance + other, 1, rtol=1e-12)
    np.testing.assert_allclose(chance - other, found.mean, atol=1e-13)
    np.testing.assert_allclose(found.variance, 1 - np.asarray(found.mean) ** 2, atol=1e-13)
    for i, (mean, std) in enumerate(zip(MEANS, STDS, strict=True)):
        exact = normal_average(lambda t: 0.5 + 0.5 * math.tanh(t), mean, std, (-1, 0, 1))
        np.testing.assert_allclose(chance[i], exact, rtol=1e-9, atol=1e-13)
        exact = normal_average(lambda t: 1 - math.tanh(t) ** 2, mean, std, (-1, 0, 1))
        np.testing.assert_allclose(found.law_variance[i], exact, rtol=1e-9, atol=1e-13)
    draws = np.asarray(found.sample(key=jax.random.key(0), shape=(20_000,)))
    assert draws.shape == (20_000, 12)
    assert set(np.unique(draws)) == {-1, 1}
    error = np.asarray(found.std) / np.sqrt(20_000)
    assert np.all(np.abs(draws.mean(axis=0) - found.mean) < 4 * error)


def test_far_tails():
    """An upset that only wrong scores can explain: log E[1/(1 + e^{2t})], t far above 0."""
    found = predictions(laws.Binary(), [50.0, 400.0], [5.0, 1.0]).log_prob(-1.0)
    for mean, std, value in ((50.0, 5.0, found[0]), (400.0, 1.0, found[1])):
        t = np.linspace(mean - 30 * std, mean + 10 * std, 200_001)
        terms = -np.logaddexp(0, 2 * t) + scipy.stats.norm.logpdf(t, mean, std)
        exact = scipy.special.logsumexp(terms) + np.log(t[1] - t[0])
        np.testing.assert_allclose(value, exact, rtol=1e-11)


def test_uniform_against_quadrature():
    def density(r, t):
        """e^{rt} t/(2 sinh t), without overflow."""
        size = max(abs(t), 1e-12)
        return math.exp(r * t - size) * size / -math.expm1(-2 * size)

    def langevin(t):
        return t / 3 - t**3 / 45 if abs(t) < 1e-3 else 1 / math.tanh(t) - 1 / t

    found = predictions(laws.Uniform(), MEANS, STDS)
    values = np.array([-1.0, -0.2, 0.7])
    log_prob = np.asarray(found.log_prob(values[:, None]))
    assert log_prob.shape == (3, 12)
    for i, (mean, std) in enumerate(zip(MEANS, STDS, strict=True)):
        exact = normal_average(langevin, mean, std, (-3, 0, 3))
        np.testing.assert_allclose(found.mean[i], exact, rtol=1e-9, atol=1e-12)
        square = normal_average(lambda t: langevin(t) ** 2, mean, std, (-3, 0, 3))
        np.testing.assert_allclose(found.score_variance[i], square - exact**2, atol=1e-11)
        for j, r in enumerate(values):
            exact = normal_average(lambda t, r=r: density(r, t), mean, std, (-9, -3, 0, 3, 9))
            np.testing.assert_allclose(np.exp(log_prob[j, i]), exact, rtol=1e-8, atol=1e-13)
    assert np.isneginf(found.log_prob(1.01)).all()
    assert np.isneginf(found.log_prob(np.inf)).all()


def test_skellam_mass_and_moments():
    """E[Φ'(t)] = λ sinh(m) e^{v/2}, E[Φ'(t)²] = λ² (cosh(2m) e^{2v} − 1)/2: tails that grow."""
    mean, std = np.resize([0.0, 0.5, -1.0, 0.2], 12), np.resize([0.3, 1.0, 0.5, 3.0], 12)
    found = predictions(laws.Skellam(2.7), mean, std)
    exact = 2.7 * np.sinh(mean) * np.exp(std**2 / 2)
    np.testing.assert_allclose(found.mean, exact, rtol=1e-11, atol=1e-11)
    noise = 2.7 * np.cosh(mean) * np.exp(std**2 / 2)
    np.testing.assert_allclose(found.law_variance, noise, rtol=1e-11)
    squares = 2.7**2 * (np.cosh(2 * mean) * np.exp(2 * std**2) - 1) / 2
    np.testing.assert_allclose(found.score_variance, squares - exact**2, rtol=1e-11)
    counts, narrow = np.arange(-150.0, 151), std <= 0.5
    mass = np.exp(np.asarray(found.log_prob(counts[:, None])))[:, narrow]
    np.testing.assert_allclose(mass.sum(axis=0), 1, rtol=1e-11)
    np.testing.assert_allclose(counts @ mass, exact[narrow], atol=1e-9)
    second = (found.variance + found.mean**2)[narrow]
    np.testing.assert_allclose(counts**2 @ mass, second, rtol=1e-9)


def test_arrays_are_loops(gaussian):
    a, b = np.array([[0], [5]]), np.array([1, 2, 7])
    using = gbt.curvature(gaussian)
    together = gbt.predict(gaussian, a, b, using=using)
    log_prob = together.log_prob(0.2)
    assert together.mean.shape == log_prob.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        alone = gbt.predict(gaussian, a[i, 0], b[j], using=using)
        assert alone.mean.shape == alone.log_prob(0.2).shape == ()
        np.testing.assert_allclose(alone.mean, together.mean[i, j], rtol=1e-13)
        np.testing.assert_allclose(alone.variance, together.variance[i, j], rtol=1e-13)
        np.testing.assert_allclose(alone.log_prob(0.2), log_prob[i, j], rtol=1e-13)
    other = gbt.predict(gaussian, b, a, using=using)  # the same pairs the other way round
    np.testing.assert_allclose(other.mean, -together.mean, rtol=1e-12)
    np.testing.assert_allclose(other.log_prob(-0.2), log_prob, rtol=1e-12)
    assert gbt.predict(gaussian, [], []).log_prob(0.1).shape == (0,)
    iterative = gbt.predict(gaussian, a, b, using=gbt.curvature(gaussian, dense=False))
    np.testing.assert_allclose(iterative.variance, together.variance, rtol=1e-10)


@pytest.mark.slow
def test_many_pairs_come_in_batches():
    """More than one batch, not a multiple of it: the same numbers."""
    fit = gbt.fit(gbt.Model(laws.Gaussian(NOISE), PRIOR), ROWS)
    a, b = random_pairs(24, 5000)
    found = gbt.predict(fit, a, b)
    np.testing.assert_allclose(found.mean, NOISE**2 * (fit.scores[a] - fit.scores[b]), atol=1e-14)


def test_single_precision(gaussian):
    rows = ROWS.with_values(np.asarray(ROWS.value, np.float32))
    fit = gbt.fit(gaussian.model, rows)
    single, double = (gbt.predict(x, [0, 3], [1, 4]) for x in (fit, gaussian))
    for name in ("mean", "variance", "std", "expected_at_map"):
        assert getattr(single, name).dtype == jnp.float32
        np.testing.assert_allclose(getattr(single, name), getattr(double, name), rtol=2e-5)
    assert single.log_prob(0.3).dtype == jnp.float32
    np.testing.assert_allclose(single.log_prob(0.3), double.log_prob(0.3), rtol=2e-5)
    assert single.sample(key=jax.random.key(0)).dtype == jnp.float32
    rough, exact = gbt.calibration(fit, rows), gbt.calibration(gaussian, ROWS)
    np.testing.assert_allclose(rough.statistic, exact.statistic, rtol=1e-3)


def test_a_law_of_ones_own(gaussian):
    class Plain(laws.AbstractRootLaw):
        def cgf(self, t):
            return 0.5 * jnp.square(NOISE * jnp.asarray(t))

    found = gbt.predict(with_law(gaussian, Plain()), 0, 1, using=gbt.curvature(gaussian))
    expected = gbt.predict(gaussian, 0, 1)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-9)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9)
    with pytest.raises(NotImplementedError, match="Plain has no log_prob"):
        found.log_prob(0.1)


def test_what_cannot_be_predicted_is_refused(gaussian):
    free = gbt.fit(gbt.Model(laws.Gaussian(NOISE), jnp.inf), ROWS.with_weights(ROWS.a % 2 == 0))
    component = np.asarray(gbt.curvature(free).null_space.component)
    apart = int(np.flatnonzero(component != component[0])[0])
    together = int(np.flatnonzero(component == component[0])[1])
    assert np.isfinite(gbt.predict(free, together, 0).mean)
    with pytest.raises(ValueError, match=f"items {apart} and 0 are in different components.*prior"):
        gbt.predict(free, [together, apart], 0)
    with pytest.raises(ValueError, match="item 5 cannot be compared with itself"):
        gbt.predict(gaussian, [1, 5], 5)
    with pytest.raises(ValueError, match="b has 24, and there are 24"):
        gbt.predict(gaussian, 0, 24)
    stopped = eqx.tree_at(lambda fit: fit.result.code, gaussian, jnp.asarray(1))
    for refused in (lambda: gbt.predict(stopped, 0, 1), lambda: gbt.calibration(stopped, ROWS)):
        with pytest.raises(ValueError, match=r"did not find the optimum \(max_steps_reached\)"):
            refused()


def simulated(law, seed, num_rows=300, num_held_out=600):
    """Comparisons of 20 items under scores from a standard normal prior: (seen, held out)."""
    scores = np.random.default_rng(seed).normal(size=20)
    a, b = random_pairs(20, num_rows + num_held_out, seed)
    value = np.asarray(law.sample(jnp.asarray(scores[a] - scores[b]), key=jax.random.key(seed)))
    parts = slice(None, num_rows), slice(num_rows, None)
    return [gbt.Comparisons(a[s], b[s], value[s], num_items=20) for s in parts]


@pytest.mark.parametrize(
    "law",
    [laws.Binary(), pytest.param(laws.Uniform(), marks=pytest.mark.slow)],
    ids=["Binary", "Uniform"],
)
def test_calibration_tells_right_from_wrong(law):
    seen, held_out = simulated(law, seed=1)
    fit = gbt.fit(gbt.Model(law, 1.0), seen)
    right = gbt.calibration(fit, held_out)
    assert right.degrees_of_freedom == 10
    low, high = scipy.stats.chi2.ppf([0.005, 0.995], 10)
    assert low < right.statistic < high
    assert right.p_value == pytest.approx(scipy.stats.chi2.sf(right.statistic, 10))
    assert right.log_score > right.root_log_score + 3 * right.log_score_error
    assert abs(right.squared_error / right.expected_squared_error - 1) < 0.15
    large = eqx.tree_at(lambda fit: fit.scores, fit, 3 * fit.scores)
    narrow = gbt.fit(gbt.Model(law, 0.03), seen)  # a prior that holds scores at nothing
    for wrong in (gbt.calibration(large, held_out), gbt.calibration(narrow, held_out)):
        assert wrong.statistic > 3 * high
        assert wrong.p_value < 1e-12
        assert wrong.log_score < right.log_score - 2 * right.log_score_error


@pytest.mark.slow
def test_statistic_is_chi_square():
    """Over many data sets, with items that share their errors among many held-out rows."""
    law = laws.Binary()
    found = []
    for seed in range(60):
        seen, held_out = simulated(law, seed, num_rows=60, num_held_out=400)
        found.append(gbt.calibration(gbt.fit(gbt.Model(law, 1.0), seen), held_out).statistic)
    assert abs(np.mean(found) - 10) < 4 * np.sqrt(20 / 60)
    assert 0.6 < np.std(found) / np.sqrt(20) < 1.4


def test_calibration_by_definition(gaussian, score_covariance):
    """The Gaussian law: everything linear, so sums and covariances by dense matrices."""
    held_out = random_comparisons(24, 61, seed=5)
    weight = np.random.default_rng(0).integers(0, 3, 61).astype(float)
    found = gbt.calibration(gaussian, held_out.with_weights(weight), bins=3)
    matrix = incidence(held_out)
    matrix *= np.where(matrix @ np.asarray(gaussian.scores) < 0, -1, 1)[:, None]
    predicted = NOISE**2 * matrix @ np.asarray(gaussian.scores)
    observed = np.asarray(held_out.value) * np.sign(matrix[np.arange(61), held_out.a])
    kept = np.flatnonzero(weight > 0)
    order = kept[np.argsort(predicted[kept])]
    member = np.floor(3 * (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum())
    sums = np.zeros((3, 61))
    sums[member.astype(int), order] = weight[order]
    count = sums.sum(axis=1)
    assert count.max() - count.min() <= 3
    np.testing.assert_allclose(found.count, count)
    np.testing.assert_allclose(found.predicted, sums @ predicted / count)
    np.testing.assert_allclose(found.observed, sums @ observed / count)
    # Repeats are independent given the scores, and share these: weight once, and squared.
    shared = NOISE**4 * matrix @ score_covariance @ matrix.T
    covariance = sums @ shared @ sums.T + NOISE**2 * np.diag(count)
    np.testing.assert_allclose(found.standard_error, np.sqrt(np.diag(covariance)) / count)
    gap = sums @ (observed - predicted)
    np.testing.assert_allclose(found.statistic, gap @ np.linalg.solve(covariance, gap))
    variance = NOISE**2 + np.diag(shared)
    log_scores = scipy.stats.norm.logpdf(observed, predicted, np.sqrt(variance))
    repeated = np.repeat(log_scores, weight.astype(int))
    np.testing.assert_allclose(found.log_score, repeated.mean())
    np.testing.assert_allclose(found.log_score_error, scipy.stats.sem(repeated))
    root = scipy.stats.norm.logpdf(observed, 0, NOISE)
    np.testing.assert_allclose(found.root_log_score, np.average(root, weights=weight))
    squares = np.average((observed - predicted) ** 2, weights=weight)
    np.testing.assert_allclose(found.squared_error, squares)
    expected = np.average(variance, weights=weight)
    np.testing.assert_allclose(found.expected_squared_error, expected)


def test_unrelated_pairs_add_their_variances():
    """Nothing shared: the standard error is √Σ var / n, and the bins are independent."""
    fit, made = prior_alone([0.5, -1.0, 2.0], [1.0, 0.3])
    fit = with_law(fit, laws.Binary())
    a, b = np.arange(0, 24, 2), np.arange(1, 24, 2)
    held_out = gbt.Comparisons(a, b, np.resize([1.0, 1, -1], 12), num_items=24)
    found = gbt.calibration(fit, held_out, bins=2, using=made)
    pairs = gbt.predict(fit, a, b, using=made)
    order = np.argsort(np.abs(np.asarray(pairs.mean)), kind="stable")
    halves = np.asarray(pairs.variance)[order].reshape(2, 6)
    np.testing.assert_allclose(found.standard_error, np.sqrt(halves.sum(axis=1)) / 6, rtol=1e-12)
    z = (found.observed - found.predicted) / found.standard_error
    np.testing.assert_allclose(found.statistic, np.sum(z**2), rtol=1e-12)
    # Repeats of a pair are independent but for its scores, which they share.
    weight = np.resize([1.0, 2, 4], 12)
    found = gbt.calibration(fit, held_out.with_weights(weight), bins=1, using=made)
    variance = weight * np.asarray(pairs.law_variance)
    variance = variance + weight**2 * np.asarray(pairs.score_variance)
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance.sum()) / weight.sum())


def test_orientation_and_padding_do_not_matter(gaussian):
    held_out = random_comparisons(24, 60, seed=4)
    found = gbt.calibration(gaussian, held_out, bins=4)
    other = gbt.Comparisons(held_out.b, held_out.a, -held_out.value, num_items=24)
    padded = gbt.Comparisons(
        np.append(held_out.a, [3, 0]),
        np.append(held_out.b, [3, 1]),
        np.append(held_out.value, [0.5, 0.1]),
        np.append(held_out.weight, [0.0, 0.0]),
        num_items=24,
    )
    for same in (
        gbt.calibration(gaussian, other, bins=4),
        gbt.calibration(gaussian, padded, bins=4),
    ):
        np.testing.assert_allclose(same.statistic, found.statistic, rtol=1e-9)
        np.testing.assert_allclose(same.predicted, found.predicted, rtol=1e-11)
        np.testing.assert_allclose(same.log_score, found.log_score, rtol=1e-12)
    few = gbt.calibration(gaussian, gbt.Comparisons([0], [1], [0.5], num_items=24))
    assert few.degrees_of_freedom == few.count.size == 1
    assert np.isfinite(few.statistic)


def test_calibration_prints_a_table(gaussian):
    text = str(gbt.calibration(gaussian, random_comparisons(24, 50, seed=3), bins=5))
    assert len(text.splitlines()) == 1 + 5 + 3
    assert max(map(len, text.splitlines())) <= 80
    assert "on 5 degrees of freedom" in text


def test_what_cannot_be_calibrated_is_refused(gaussian):
    with pytest.raises(ValueError, match="held_out compares 13 items, and the fit has 24"):
        gbt.calibration(gaussian, random_comparisons(13, 4))
    binary = with_law(gaussian, laws.Binary())
    with pytest.raises(ValueError, match=r"held_out: value\[1\] is 0\.5 \(item 4 against 5\)"):
        gbt.calibration(binary, gbt.Comparisons([0, 4], [1, 5], [1.0, 0.5], num_items=24))
    with pytest.raises(ValueError, match="held_out is merged"):
        gbt.calibration(gaussian, ROWS.merge_repeats())
    with pytest.raises(ValueError, match="no comparisons of positive weight"):
        gbt.calibration(gaussian, ROWS.with_weights(np.zeros(60)))
    with pytest.raises(TypeError, match="held_out must be Comparisons, not list"):
        gbt.calibration(gaussian, [1])  # pyright: ignore
    with pytest.raises(ValueError, match="bins must be an integer of at least 1, not 0"):
        gbt.calibration(gaussian, ROWS, bins=0)
