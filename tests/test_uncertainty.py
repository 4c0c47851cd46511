"""Standard deviations, intervals, ranks: against closed forms and enumerations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from problems import incidence, random_comparisons

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._inference._fit import select_groups

ROWS = random_comparisons(9, 30)
GAUSSIAN = gbt.Model(laws.Gaussian(0.8), 1.5)


@pytest.fixture(scope="module")
def fit():
    return gbt.fit(GAUSSIAN, ROWS)


@pytest.fixture(scope="module")
def posterior_covariance():
    """Of the Gaussian law, whose posterior is normal: (I/σ² + σ0² Laplacian)⁻¹."""
    matrix = incidence(ROWS)
    return np.linalg.inv(np.eye(9) / 1.5**2 + 0.8**2 * matrix.T @ matrix)


@pytest.fixture(scope="module")
def fits():
    """Three groups: one like the problem above, one with one comparison, one with bad data."""
    group = np.append(np.zeros(30, int), [1, 2])
    ends = np.append(ROWS.a, [0, 0]), np.append(ROWS.b, [1, 1])
    value = np.append(ROWS.value, [0.5, np.nan])
    return gbt.fit(GAUSSIAN, gbt.Comparisons(*ends, value, num_items=9, group=group))


def test_against_the_gaussian_closed_form(fit, posterior_covariance):
    expected = posterior_covariance
    np.testing.assert_allclose(gbt.uncertainty.covariance(fit), expected, rtol=1e-12)
    widths = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(gbt.std(fit), widths, rtol=1e-12)
    variance = expected[2, 2] + expected[5, 5] - 2 * expected[2, 5]
    np.testing.assert_allclose(
        gbt.uncertainty.difference_std(fit, [2], [5]), [variance**0.5], rtol=1e-12
    )
    gap = float(fit.scores[2] - fit.scores[5])
    better = scipy.stats.norm.cdf(gap / variance**0.5)
    np.testing.assert_allclose(gbt.prob_better(fit, 2, 5), [better], rtol=1e-12)
    np.testing.assert_allclose(gbt.prob_better(fit, [5, 3], [2, 3]), [1 - better, 0.5], rtol=1e-12)
    for level in (0.5, 0.95):
        ends = gbt.intervals(fit, level=level)
        np.testing.assert_array_equal(ends.estimate, fit.scores)
        for found, quantile in zip(ends[1:], (0.5 - level / 2, 0.5 + level / 2), strict=True):
            expected_end = scipy.stats.norm.ppf(quantile, fit.scores, widths)
            np.testing.assert_allclose(found, expected_end, rtol=1e-9)


def test_draws(fit, posterior_covariance):
    drawn = np.asarray(gbt.uncertainty.posterior_samples(fit, 20_000, key=jax.random.key(0)))
    assert drawn.shape == (20_000, 9)
    np.testing.assert_allclose(drawn.mean(axis=0), fit.scores, atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), posterior_covariance, atol=0.05)
    again = gbt.uncertainty.posterior_samples(fit, 20_000, key=jax.random.key(0))
    np.testing.assert_array_equal(drawn, again)


def test_ranks(fit, posterior_covariance):
    """Against counting in normal draws of another generator."""
    found = gbt.rank_intervals(fit, level=0.8, key=jax.random.key(1), num=20_000)
    np.testing.assert_array_equal(found.estimate, scipy.stats.rankdata(-np.asarray(fit.scores)))
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal(np.asarray(fit.scores), posterior_covariance, 20_000)
    ranks = scipy.stats.rankdata(-drawn, axis=1)
    for ends, tail in ((found.lower, 0.1), (found.upper, 0.9)):
        expected = np.quantile(ranks, tail, axis=0, method="inverted_cdf")
        # A quantile of whole numbers jumps where its share falls on a step: allow one.
        assert np.mean(ends == expected) >= 7 / 9
        assert np.abs(ends - expected).max() <= 1
    assert np.all((found.lower <= found.estimate) & (found.estimate <= found.upper))


def test_groups(fits, fit):
    assert fits.result.names.tolist() == ["successful", "successful", "invalid_data"]
    widths = np.asarray(gbt.std(fits))
    np.testing.assert_allclose(widths[:9], gbt.std(fit), rtol=1e-12)
    np.testing.assert_allclose(widths[9:11], gbt.std(fits[1]), rtol=1e-12)
    assert np.isnan(widths[11:]).all()
    ends = gbt.intervals(fits)
    np.testing.assert_allclose(ends.lower[:9], gbt.intervals(fit).lower, rtol=1e-10)
    np.testing.assert_allclose(
        gbt.prob_better(fits, [9], [10]), gbt.prob_better(fits[1], [0], [1]), rtol=1e-12
    )
    ranks = gbt.rank_intervals(fits, key=jax.random.key(0))
    np.testing.assert_array_equal(ranks.estimate[:9], scipy.stats.rankdata(-np.asarray(fit.scores)))
    np.testing.assert_array_equal(np.sort(ranks.estimate[9:11]), [1, 2])
    assert np.isnan(ranks.upper[11:]).all()
    drawn = gbt.uncertainty.posterior_samples(fits, 5, key=jax.random.key(0))
    assert drawn.shape == (5, 13)
    with pytest.raises(TypeError, match=r"covariance\(fit\[0\]\)"):
        gbt.uncertainty.covariance(fits)


def test_some_of_the_groups(fits):
    part = select_groups(fits, 1, 3)
    assert list(part) == [1, 2]
    np.testing.assert_array_equal(part.scores, fits.scores[9:])
    np.testing.assert_allclose(gbt.std(part)[:2], gbt.std(fits)[9:11], rtol=1e-14)
    np.testing.assert_array_equal(part[1].comparisons.value, fits[1].comparisons.value)


def test_without_a_prior():
    """Scores of mean zero: the covariance is the pseudoinverse of the Laplacian."""
    free = gbt.fit(gbt.Model(laws.Gaussian(0.8), np.inf), ROWS)
    matrix = incidence(ROWS)
    expected = np.linalg.pinv(0.8**2 * matrix.T @ matrix)
    np.testing.assert_allclose(gbt.uncertainty.covariance(free), expected, atol=1e-12)
    apart = gbt.Comparisons([0, 2], [1, 3], [0.3, 0.2], num_items=4)
    two = gbt.fit(gbt.Model(laws.Gaussian(1.0), np.inf), apart)
    assert np.isposinf(gbt.uncertainty.difference_std(two, [0], [2])[0])
    assert gbt.prob_better(two, [0], [2])[0] == 0.5
    with pytest.raises(ValueError, match="no common scale, and so no ranks"):
        gbt.rank_intervals(two, key=jax.random.key(0))
    rows = gbt.Comparisons([0, 2, 0], [1, 3, 1], [0.3] * 3, num_items=4, group=[0, 0, 1])
    several = gbt.fit(gbt.Model(laws.Gaussian(1.0), np.inf), rows)
    ranks = gbt.rank_intervals(several, key=jax.random.key(0), num=50)
    np.testing.assert_array_equal(np.isnan(ranks.estimate), [True] * 4 + [False] * 2)


def test_a_spoilt_group_spoils_no_other():
    """A weight that leaves nothing of the rest of a Hessian: its group alone has no draws."""
    columns = [0, 1, 0, 1], [1, 2, 1, 2], [0.3, 0.2, 0.3, 0.2], [1e18, 1, 1, 1]
    rows = gbt.Comparisons(*columns, num_items=3, group=[0, 0, 1, 1])
    fits = gbt.fit(gbt.Model(laws.Gaussian(1.0), 1.0), rows)
    drawn = np.asarray(gbt.uncertainty.posterior_samples(fits, 5, key=jax.random.key(0)))
    assert np.isfinite(drawn[:, 3:]).all()
    empty = gbt.fit(GAUSSIAN, gbt.Comparisons([], [], [], num_items=0, group=[]))
    assert gbt.rank_intervals(empty, key=jax.random.key(0)).estimate.size == 0


def test_equal_scores_share_a_rank():
    rows = gbt.Comparisons([0, 2], [1, 3], [0.5, 0.0], num_items=4)
    ranks = gbt.rank_intervals(gbt.fit(GAUSSIAN, rows), key=jax.random.key(0), num=50)
    np.testing.assert_array_equal(ranks.estimate, [1, 4, 2, 2])


def test_what_cannot_be_told_is_refused(fit):
    with pytest.raises(ValueError, match="level must lie between 0 and 1, not 95"):
        gbt.intervals(fit, level=95)
    with pytest.raises(ValueError, match="a has 9"):
        gbt.prob_better(fit, 9, 0)
    unfinished = gbt.fit(gbt.Model(laws.Uniform()), ROWS, max_steps=1, throw=False)
    for ask in (
        gbt.std,
        gbt.uncertainty.covariance,
        gbt.intervals,
        gbt.uncertainty.robust_covariance,
    ):
        with pytest.raises(ValueError, match="did not find the optimum"):
            ask(unfinished)
    with pytest.raises(ValueError, match="did not find the optimum"):
        gbt.uncertainty.bootstrap(unfinished, 10, key=jax.random.key(0))


def test_single_precision():
    single = gbt.fit(GAUSSIAN, ROWS.with_values(np.asarray(ROWS.value, np.float32)))
    assert gbt.std(single).dtype == gbt.intervals(single).lower.dtype == jnp.float32
    assert gbt.uncertainty.posterior_samples(single, 3, key=jax.random.key(0)).dtype == jnp.float32
