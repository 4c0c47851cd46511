"""Sandwich covariances by matrices, bootstraps by the closed form of the Gaussian law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import incidence, random_comparisons

import gbt_jax as gbt
from gbt_jax import laws

ROWS = random_comparisons(9, 60, weight=np.random.default_rng(5).uniform(0.2, 3, 60))
MODEL = gbt.Model(laws.Uniform(), 1.5)
JUDGE = np.random.default_rng(6).integers(0, 7, 60)


@pytest.fixture(scope="module")
def fit():
    return gbt.fit(MODEL, ROWS)


def test_sandwich(fit):
    matrix, inverse = incidence(ROWS), np.asarray(gbt.uncertainty.covariance(fit))
    residual = np.asarray(ROWS.value - laws.Uniform().mean(jnp.asarray(matrix) @ fit.scores))
    weight = np.asarray(ROWS.weight)
    middle = matrix.T @ np.diag(weight * residual**2) @ matrix
    found = gbt.uncertainty.robust_covariance(fit)
    np.testing.assert_allclose(found, inverse @ middle @ inverse, rtol=1e-9)
    own = [j == JUDGE for j in range(7)]
    pulls = np.stack([matrix[mine].T @ (weight * residual)[mine] for mine in own])
    clustered = gbt.uncertainty.robust_covariance(fit, groups=[f"judge {j}" for j in JUDGE])
    expected = 7 / 6 * inverse @ pulls.T @ pulls @ inverse
    np.testing.assert_allclose(clustered, expected, rtol=1e-9, atol=1e-12)


def test_padding_weak_priors_and_merged_rows(fit):
    """Padding counts nothing, levels cost no digits, averages do not tell."""
    columns = (np.append(x, y) for x, y in ((ROWS.a, 0), (ROWS.b, 1), (ROWS.value, 0.9)))
    padded = gbt.Comparisons(*columns, np.append(ROWS.weight, 0), num_items=9)
    found = gbt.uncertainty.robust_covariance(gbt.fit(MODEL, padded), groups=np.append(JUDGE, 99))
    np.testing.assert_allclose(
        found, gbt.uncertainty.robust_covariance(fit, groups=JUDGE), rtol=1e-9
    )
    weak, free = (gbt.fit(gbt.Model(laws.Uniform(), std), ROWS) for std in (1e10, np.inf))
    found, expected = (gbt.uncertainty.robust_covariance(x, groups=JUDGE) for x in (weak, free))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    votes = gbt.Comparisons(
        [0, 0, 0, 1], [1, 1, 1, 2], [0.1, 0.5, -1, 1], num_items=3
    ).merge_repeats()
    with pytest.raises(ValueError, match="have lost how their repeats vary"):
        gbt.uncertainty.robust_covariance(gbt.fit(MODEL, votes))


def test_many_rows_and_iterative_solves():
    """More rows than are solved for at a time, and no matrix to solve with."""
    rows = random_comparisons(20, 2500)
    fit = gbt.fit(MODEL, rows)
    matrix, inverse = incidence(rows), np.asarray(gbt.uncertainty.covariance(fit))
    residual = np.asarray(rows.value - laws.Uniform().mean(jnp.asarray(matrix) @ fit.scores))
    expected = inverse @ matrix.T @ np.diag(residual**2) @ matrix @ inverse
    np.testing.assert_allclose(
        gbt.uncertainty.robust_covariance(fit), expected, rtol=1e-8, atol=1e-14
    )


@pytest.mark.parametrize("weights", ["exponential", "multinomial"])
def test_bootstrap_of_the_gaussian_law(weights):
    """Every resample is a linear solve: its scores lie on the curve of some weights."""
    gaussian = gbt.fit(gbt.Model(laws.Gaussian(1.0), 1.5), random_comparisons(9, 400))
    drawn = np.asarray(
        gbt.uncertainty.bootstrap(gaussian, 400, key=jax.random.key(0), weights=weights)
    )
    assert drawn.shape == (400, 9)
    # To first order resamples vary as the sandwich says.
    expected = np.sqrt(np.diag(np.asarray(gbt.uncertainty.robust_covariance(gaussian))))
    np.testing.assert_allclose(drawn.std(axis=0), expected, rtol=0.15)
    np.testing.assert_allclose(drawn.mean(axis=0), gaussian.scores, atol=0.02)
    again = gbt.uncertainty.bootstrap(gaussian, 400, key=jax.random.key(0), weights=weights)
    np.testing.assert_array_equal(drawn, again)


def test_bootstrap_of_groups(fit):
    """Judges vary together: with one comparison each they are comparisons."""
    drawn = np.asarray(gbt.uncertainty.bootstrap(fit, 300, key=jax.random.key(0), groups=JUDGE))
    expected = np.sqrt(np.diag(np.asarray(gbt.uncertainty.robust_covariance(fit, groups=JUDGE))))
    np.testing.assert_allclose(drawn.std(axis=0), expected, rtol=0.5)
    alone = gbt.uncertainty.bootstrap(fit, 20, key=jax.random.key(0), groups=np.arange(60))
    np.testing.assert_allclose(
        alone, gbt.uncertainty.bootstrap(fit, 20, key=jax.random.key(0)), atol=1e-12
    )


def test_each_resample_is_a_fit(fit):
    """With all comparisons in one group its weight is common to them."""
    drawn = gbt.uncertainty.bootstrap(fit, 3, key=jax.random.key(0), groups=np.zeros(60))
    keys = jax.random.split(jax.random.key(0), 3)
    for scores, key in zip(drawn, keys, strict=True):
        factor = jax.random.exponential(key, (1,))
        refitted = gbt.fit(MODEL, ROWS.with_weights(ROWS.weight * factor))
        np.testing.assert_allclose(scores, refitted.scores, atol=1e-5)


def test_without_a_prior():
    """Means are zero; draws with replacement that leave somebody undefeated are NaN."""
    cycle = gbt.Comparisons([0, 1, 2, 0], [1, 2, 0, 1], [1.0, 1, 1, 1], num_items=3)
    votes = gbt.fit(gbt.Model(laws.Binary(), np.inf), cycle)
    drawn = np.asarray(gbt.uncertainty.bootstrap(votes, 30, key=jax.random.key(0)))
    np.testing.assert_allclose(drawn.mean(axis=1), 0, atol=1e-12)
    counted = gbt.uncertainty.bootstrap(votes, 30, key=jax.random.key(0), weights="multinomial")
    is_lost = np.isnan(np.asarray(counted)).any(axis=1)
    for key, lost in zip(jax.random.split(jax.random.key(0), 30), is_lost, strict=True):
        chosen = np.asarray(jax.random.randint(key, (4,), 0, 4))
        is_cycle = {1, 2} <= set(chosen.tolist()) and bool({0, 3} & set(chosen.tolist()))
        assert lost != is_cycle


def test_what_makes_no_sense_is_refused(fit):
    with pytest.raises(ValueError, match="at least two labels"):
        gbt.uncertainty.robust_covariance(fit, groups=np.zeros(60))
    with pytest.raises(ValueError, match=r"one label per comparison \(60\)"):
        gbt.uncertainty.robust_covariance(fit, groups=[1, 2])
    with pytest.raises(ValueError, match=r"one label per comparison \(60\)"):
        gbt.uncertainty.bootstrap(fit, 2, key=jax.random.key(0), groups=[1, 2])
    with pytest.raises(ValueError, match="weights must be one of exponential, multinomial"):
        gbt.uncertainty.bootstrap(fit, 2, key=jax.random.key(0), weights="normal")
    with pytest.raises(ValueError, match="num must be an integer of at least 1"):
        gbt.uncertainty.bootstrap(fit, 0, key=jax.random.key(0))
