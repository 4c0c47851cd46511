"""The log-posterior against its formula; draws against closed forms and quadrature."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.signal
from problems import incidence, random_comparisons

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._curvature import DenseCurvature
from gbt_jax.uncertainty._diagnostics import _effective_sample_size, diagnostics
from gbt_jax.uncertainty._sampling import _diagnose, _Walk, whitening

# Two components, of items 0 to 3 and 4 to 6, and item 7 alone.
A, B = np.array([0, 1, 2, 3, 0, 4, 5, 4]), np.array([1, 2, 3, 0, 2, 5, 6, 5])
VALUE = np.array([0.3, -0.8, 0.5, 0.1, -0.4, 0.9, 0.2, 0.6])
ROWS = gbt.Comparisons(A, B, VALUE, [1.0, 2, 1, 1, 3, 1, 1, 1], num_items=8)
GROUPS = ([0, 1, 2, 3], [4, 5, 6], [7])
NOISE, PRIOR = 1.2, 1.5  # of the Gaussian model
NUM, KEY = 1000, jax.random.key(7)


def assert_means(draws, expected, *, within=4.5):
    """Averages over chains × draws × anything, within so many Monte-Carlo standard errors."""
    flat = draws.reshape(*draws.shape[:2], -1)
    size = _effective_sample_size(flat).reshape(draws.shape[2:])
    error = np.std(draws, axis=(0, 1)) / np.sqrt(size)
    assert np.all(np.abs(draws.mean(axis=(0, 1)) - expected) < within * error)
    return error


def gaussian_law(prior_precision):
    """Mean and covariance of the exact posterior, a pseudo-inverse where there is no prior."""
    matrix, weight = incidence(ROWS), np.asarray(ROWS.weight)
    hessian = prior_precision * np.eye(8) + NOISE**2 * matrix.T @ (weight[:, None] * matrix)
    N = np.linalg.pinv(hessian, hermitian=True)
    return N @ matrix.T @ (weight * VALUE), N


@pytest.fixture(scope="module")
def gaussian():
    return gbt.fit(gbt.Model(laws.Gaussian(NOISE), PRIOR), ROWS)


@pytest.fixture(scope="module")
def samples(gaussian):
    pytest.importorskip("blackjax")
    return gbt.uncertainty.sample_posterior(gaussian, NUM, key=KEY)


def test_log_posterior_is_what_the_formula_says():
    rows, std = random_comparisons(5, 12), 1.7
    model = gbt.Model(laws.Uniform(), std)
    density = gbt.uncertainty.log_posterior(model, rows)
    scores = np.random.default_rng(0).normal(size=(3, 5))
    t = scores @ incidence(rows).T
    r = np.asarray(rows.value)
    expected = np.sum(r * t - np.log(np.sinh(t) / t), axis=1) - np.sum(scores**2, axis=1) / (
        2 * std**2
    )
    found = jax.jit(jax.vmap(density))(scores)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    slope = (r - (1 / np.tanh(t) - 1 / t)) @ incidence(rows) - scores / std**2
    np.testing.assert_allclose(jax.vmap(jax.grad(density))(scores), slope, rtol=1e-10)
    # −L, and a pytree: an argument of somebody's jitted function, compiled once for all data.
    loss = gbt.negative_log_posterior(model, rows, scores[0])
    traces = []

    @jax.jit
    def evaluated(function, x):
        traces.append(1)
        return function(x)

    np.testing.assert_allclose(evaluated(density, scores[0]), -loss, rtol=1e-14)
    other = gbt.uncertainty.log_posterior(model, rows.with_values(-rows.value))
    np.testing.assert_allclose(evaluated(other, -scores[0]), -loss, rtol=1e-14)
    assert len(traces) == 1


def test_log_posterior_refuses():
    model = gbt.Model(laws.Uniform(), 1.0)
    with pytest.raises(ValueError, match=r"value\[1\] is 1\.5 \(item 1 against 2\), which Uniform"):
        gbt.uncertainty.log_posterior(
            model, gbt.Comparisons([0, 1], [1, 2], [0.5, 1.5], num_items=3)
        )
    rows = random_comparisons(3, 4)
    with pytest.raises(ValueError, match=r"one number per item, 3, not \(1,\)"):
        gbt.uncertainty.log_posterior(model, rows)(jnp.zeros(1))
    with pytest.raises(TypeError, match="takes a Model first, not Comparisons"):
        gbt.uncertainty.log_posterior(rows, model)  # pyright: ignore
    with pytest.raises(TypeError, match="takes Comparisons second, not list"):
        gbt.uncertainty.log_posterior(model, [])  # pyright: ignore
    with pytest.raises(ValueError, match=r"prior_std must be one number or one per item \(3\)"):
        gbt.uncertainty.log_posterior(gbt.Model(laws.Uniform(), np.ones(2)), rows)


def test_gaussian_posterior_is_normal(samples):
    """Means and covariances of all items: within components, between them, and of item 7."""
    mean, N = gaussian_law(PRIOR**-2)
    draws = np.asarray(samples.scores)
    assert draws.shape == (4, NUM, 8)
    assert samples.flat.shape == (4 * NUM, 8)
    np.testing.assert_array_equal(samples.flat[NUM], draws[1, 0])
    assert_means(draws, mean)
    centred = draws - mean
    error = assert_means(centred[..., :, None] * centred[..., None, :], N)
    assert np.all(error < 0.05 * np.outer(np.sqrt(np.diag(N)), np.sqrt(np.diag(N))))
    assert np.all(samples.r_hat < 1.01)
    assert np.all(samples.effective_sample_size > 2000)
    assert samples.num_divergences == 0
    assert 0.7 < samples.acceptance_rate < 0.95
    assert 1 <= samples.leapfrog_steps < 10  # a standard normal, whatever the scales of the scores
    assert 0.3 < samples.step_size < 2


def test_same_key_same_draws(gaussian, samples):
    again = gbt.uncertainty.sample_posterior(gaussian, NUM, key=KEY, using=gbt.curvature(gaussian))
    np.testing.assert_array_equal(again.scores, samples.scores)
    other = gbt.uncertainty.sample_posterior(gaussian, NUM, key=jax.random.key(8))
    assert np.all(np.asarray(other.scores) != np.asarray(samples.scores))


def test_without_a_prior_components_have_mean_zero(samples):
    """The posterior on scores of mean zero, its covariance the pseudo-inverse; item 7 is fixed."""
    fit = gbt.fit(gbt.Model(laws.Gaussian(NOISE), jnp.inf), ROWS)
    free = gbt.uncertainty.sample_posterior(fit, NUM, key=KEY)
    draws = np.asarray(free.scores)
    for group in GROUPS:
        np.testing.assert_allclose(draws[..., group].mean(axis=-1), 0, atol=1e-13)
    mean, N = gaussian_law(0)
    assert_means(draws[..., :7], mean[:7])
    centred = (draws - mean)[..., :7]
    assert_means(centred[..., :, None] * centred[..., None, :], N[:7, :7])
    assert np.isnan(free.r_hat[7])
    assert np.isnan(free.effective_sample_size[7])
    assert np.all(free.r_hat[:7] < 1.01)
    # A weak prior: the same differences, and levels as wide as it.
    weak = gbt.fit(gbt.Model(laws.Gaussian(NOISE), 1e6), ROWS)
    wide = np.asarray(gbt.uncertainty.sample_posterior(weak, NUM, key=KEY).scores)
    assert_means((wide[..., 0] - wide[..., 1]), mean[0] - mean[1])
    assert_means(wide[..., :4].mean(axis=-1) ** 2, 1e12 / 4)
    assert_means(wide[..., 7] ** 2, 1e12)


def test_two_items_against_quadrature():
    """Six wins of seven under a wide prior: t = θ_0 − θ_1 is skewed, and its level is normal."""
    pytest.importorskip("blackjax")
    rows = gbt.Comparisons([0, 0], [1, 1], [1.0, -1.0], [6.0, 1.0], num_items=2)
    fit = gbt.fit(gbt.Model(laws.Binary(), 2.0), rows)
    draws = np.asarray(gbt.uncertainty.sample_posterior(fit, NUM, key=KEY).scores)

    def density(t):
        return np.exp(5 * t - t * t / 16) / np.cosh(t) ** 7

    def moment(function):
        return scipy.integrate.quad(lambda t: function(t) * density(t), -30, 30, points=[0, 1])[0]

    mass = moment(lambda t: 1)
    mean = moment(lambda t: t) / mass
    t = draws[..., 0] - draws[..., 1]
    error = assert_means(t, mean)
    # The optimum would be wrong by many of these errors: the test can see the difference.
    assert abs(float(fit.scores[0] - fit.scores[1]) - mean) > 5 * error
    for power in (2, 3):
        expected = moment(lambda t, power=power: (t - mean) ** power) / mass
        assert_means((t - mean) ** power, expected)
    assert_means((t < 0.0) * 1.0, moment(lambda t: t < 0) / mass)
    level = draws.mean(axis=-1)
    assert_means(level, 0)
    assert_means(level**2, 2.0)


def test_single_precision():
    pytest.importorskip("blackjax")
    rows = ROWS.with_values(VALUE.astype(np.float32))
    fit = gbt.fit(gbt.Model(laws.Gaussian(NOISE), PRIOR), rows)
    found = gbt.uncertainty.sample_posterior(fit, NUM, key=KEY)
    assert isinstance(found, gbt.uncertainty.PosteriorSamples)
    for array in (found.scores, found.r_hat, found.effective_sample_size, found.flat):
        assert array.dtype == jnp.float32
    assert_means(np.asarray(found.scores, float), gaussian_law(PRIOR**-2)[0])


def test_prior_alone():
    """Without comparisons there is nothing to walk through: independent normal draws."""
    pytest.importorskip("blackjax")
    std, mean, empty = np.array([0.5, 1.0, 3.0]), np.array([1.0, 0.0, -2.0]), np.zeros(0)
    rows = gbt.Comparisons(empty, empty, empty, num_items=3)
    fit = gbt.fit(gbt.Model(laws.Binary(), std, mean), rows)
    draws = np.asarray(gbt.uncertainty.sample_posterior(fit, NUM, key=KEY, chains=2).scores)
    assert draws.shape == (2, NUM, 3)
    assert_means(draws, mean)
    assert_means((draws - mean) ** 2, std**2)


def test_diagnostics_are_those_of_blackjax():
    """On draws that mix, that move slowly, and whose chains differ; an odd number of draws."""
    blackjax = pytest.importorskip("blackjax")
    if not hasattr(blackjax.diagnostics, "ess_bulk"):
        pytest.skip("this blackjax has no rank-normalised diagnostics")
    mixed, slow, apart = np.random.default_rng(0).normal(size=(3, 4, 1201, 2))
    slow = scipy.signal.lfilter([1], [1, -0.9], slow, axis=1)
    draws = np.concatenate([mixed, slow, apart + 0.2 * np.arange(4)[:, None, None]], axis=-1)
    r_hat, size = diagnostics(draws)
    assert r_hat[:2].max() < 1.01 < r_hat[4:].min()
    assert size[:2].min() > 4000 > 500 > size[2:4].max()
    with jax.numpy_dtype_promotion("standard"):
        expected_r_hat = jax.jit(blackjax.diagnostics.rhat)(draws)
        expected_size = jax.jit(blackjax.diagnostics.ess_bulk)(draws)
    np.testing.assert_allclose(r_hat, expected_r_hat, rtol=1e-10)
    np.testing.assert_allclose(size[:4], expected_size[:4], rtol=1e-8)
    # Between chains that stay apart correlations are positive to the last lag, where blackjax
    # takes off half of the last pair.
    np.testing.assert_allclose(size[4:], expected_size[4:], rtol=2e-3)


def test_whitening_is_a_square_root():
    """C Cᵀ = R with as many columns as R has rank, for items of very different precision."""
    weight = np.array([1e-4, 2, 1, 1e6, 3, 1, 1e-3, 1])
    for std in (PRIOR, jnp.inf, np.array([1e-3, 1, 2, 3, 1, 1, 1, 5])):
        fit = gbt.fit(gbt.Model(laws.Gaussian(NOISE), std), ROWS.with_weights(weight))
        made = gbt.curvature(fit)
        assert isinstance(made, DenseCurvature)
        factor = whitening(made)
        space = made.null_space
        split = np.unique(np.asarray(space.component)[np.asarray(space.share) > 0])
        assert factor.shape == (8, 8 - split.size)
        assert np.linalg.matrix_rank(factor, tol=1e-9) == 8 - split.size
        scale = np.sqrt(np.abs(np.diag(made.reduced))) + (np.arange(8) == 7)
        error = np.abs(factor @ factor.T - made.reduced) / np.outer(scale, scale)
        assert error.max() < 1e-12


def walk(is_divergent):
    shape = is_divergent.shape
    one = jnp.ones(shape)
    return _Walk(jnp.zeros((*shape, 0)), jnp.asarray(is_divergent), one, one, one)


def test_doubtful_draws_are_not_silent():
    draws = np.random.default_rng(0).normal(size=(4, 500, 3))
    diverged = np.zeros((4, 500), bool)
    fixed = np.zeros(3, bool)
    assert _diagnose(draws, walk(diverged), fixed).num_divergences == 0
    diverged[1, 3:5] = True
    with pytest.warns(RuntimeWarning, match="2 of 2000 draws diverged.*raise target_acceptance"):
        _diagnose(draws, walk(diverged), fixed)
    apart = draws + np.array([0, 1, 0])[None, None] * np.arange(4)[:, None, None]
    with pytest.warns(RuntimeWarning, match=r"R-hat of 1 items exceeds 1\.01.*item 1.*more draws"):
        _diagnose(apart, walk(~diverged & False), fixed)
    stuck = np.where(np.arange(3) == 2, np.nan, draws)
    with pytest.warns(RuntimeWarning, match="is nan for item 2"):
        _diagnose(stuck, walk(diverged & False), fixed)
    _diagnose(stuck, walk(diverged & False), np.array([False, False, True]))


def test_what_cannot_be_sampled_is_refused(gaussian, monkeypatch):
    pytest.importorskip("blackjax")
    stopped = gbt.fit(gbt.Model(laws.Uniform(), 9.0), ROWS, max_steps=1, throw=False)
    with pytest.raises(ValueError, match="did not find the optimum"):
        gbt.uncertainty.sample_posterior(stopped, 10, key=KEY)
    with pytest.raises(ValueError, match="num must be an integer of at least 4, not 3"):
        gbt.uncertainty.sample_posterior(gaussian, 3, key=KEY)
    with pytest.raises(ValueError, match="chains must be an integer of at least 1, not 0"):
        gbt.uncertainty.sample_posterior(gaussian, 10, key=KEY, chains=0)
    with pytest.raises(ValueError, match="warmup must be an integer of at least 1"):
        gbt.uncertainty.sample_posterior(gaussian, 10, key=KEY, warmup=0)
    with pytest.raises(ValueError, match="max_doublings must be an integer of at least 1"):
        gbt.uncertainty.sample_posterior(gaussian, 10, key=KEY, max_doublings=0)
    with pytest.raises(ValueError, match=r"target_acceptance must lie between 0 and 1, not 1\.0"):
        gbt.uncertainty.sample_posterior(gaussian, 10, key=KEY, target_acceptance=1.0)
    with pytest.raises(ValueError, match=r"using=curvature\(fit, dense=True\)"):
        gbt.uncertainty.sample_posterior(
            gaussian, 10, key=KEY, using=gbt.curvature(gaussian, dense=False)
        )
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(ImportError, match=r'pip install "gbt-jax\[nuts\]"'):
        gbt.uncertainty.sample_posterior(gaussian, 10, key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "law",
    [laws.Uniform(), laws.BradleyTerry(), laws.Davidson(0.5), laws.Skellam(2.0), laws.Beta(0.4)],
    ids=lambda law: type(law).__name__,
)
def test_identities_of_every_posterior(law):
    """By parts, E[∇L] = 0 and E[(θ − θ*) ∇Lᵀ] = I, under every law."""
    pytest.importorskip("blackjax")
    rng = np.random.default_rng(1)
    scores = jnp.asarray(rng.normal(size=10))
    a = rng.integers(0, 10, 40)
    b = (a + rng.integers(1, 10, 40)) % 10
    value = law.sample(scores[a] - scores[b], key=jax.random.key(2))
    rows = gbt.Comparisons(a, b, value, num_items=10)
    model = gbt.Model(law, 1.0)
    fit = gbt.fit(model, rows)
    samples = gbt.uncertainty.sample_posterior(fit, NUM, key=KEY)
    assert samples.num_divergences == 0
    slopes = -jax.vmap(jax.vmap(jax.grad(gbt.uncertainty.log_posterior(model, rows))))(
        samples.scores
    )
    assert_means(np.asarray(slopes), 0)
    moved = np.asarray(samples.scores - fit.scores)
    assert_means(moved[..., :, None] * np.asarray(slopes)[..., None, :], np.eye(10))
