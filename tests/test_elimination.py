"""Deviations and draws without the inverse, against the inverse of the matrix itself."""

import jax
import numpy as np
import pytest
from problems import random_pairs

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._curvature._elimination import eliminate, inverse_diagonal, normal_draws
from gbt_jax._curvature._make import regularised_draws

SIZE = 300


def matrix_of(a, b, curvature, precision):
    """diag(p) + Bᵀ diag(c) B."""
    matrix = np.diag(precision).astype(float)
    for first, second, entry in zip(a, b, curvature, strict=True):
        matrix[first, first] += entry
        matrix[second, second] += entry
        matrix[first, second] -= entry
        matrix[second, first] -= entry
    return matrix


def dense_core(size=40):
    """Everybody with everybody among the first 40, and chains that hang on them."""
    a, b = np.triu_indices(size, 1)
    rest = np.arange(size, SIZE)
    return np.append(a, rest), np.append(b, rest - size)


GRAPHS = {
    "chain": (np.arange(SIZE - 1), np.arange(1, SIZE)),
    "star": (np.zeros(SIZE - 1, int), np.arange(1, SIZE)),
    "core": dense_core(),
    "sparse": random_pairs(SIZE, 500),
    "dense": random_pairs(SIZE, 9000),
    "none": (np.zeros(0, int), np.zeros(0, int)),
}
ALL_GO = {"chain", "star", "none"}


@pytest.fixture(scope="module", params=GRAPHS)
def case(request):
    a, b = GRAPHS[request.param]
    rng = np.random.default_rng(1)
    curvature, precision = rng.uniform(0.1, 3, a.size), rng.uniform(0.05, 2, SIZE)
    curvature[::17] = 0  # comparisons that say nothing
    inverse = np.linalg.inv(matrix_of(a, b, curvature, precision))
    return request.param, eliminate(a, b, curvature, precision), inverse


def test_diagonal(case):
    name, elimination, inverse = case
    np.testing.assert_allclose(inverse_diagonal(elimination), np.diag(inverse), rtol=1e-12)
    gone = sum(one.items.size for one in elimination.rounds)
    assert gone + elimination.items.size == SIZE
    assert (elimination.items.size == 0) == (name in ALL_GO)
    assert (gone == 0) == (name == "dense")


def test_draws(case):
    """Entries of a covariance of 4,000 draws are off by √((n_aa n_bb + n_ab²)/4000), or so."""
    _, elimination, inverse = case
    drawn = normal_draws(elimination, 4000, np.random.default_rng(2))
    assert drawn.shape == (SIZE, 4000)
    diagonal = np.diag(inverse)
    error = np.sqrt((np.outer(diagonal, diagonal) + inverse**2) / 4000)
    off = (drawn @ drawn.T / 4000 - inverse) / error
    assert np.abs(off).max() < 6
    assert 0.9 < np.sqrt(np.mean(off**2)) < 1.1
    assert np.abs(drawn.mean(axis=1) / np.sqrt(diagonal / 4000)).max() < 5


@pytest.fixture(scope="module")
def fit():
    a, b = GRAPHS["chain"]
    value = np.random.default_rng(3).uniform(-9, 9, SIZE - 1)
    rows = gbt.Comparisons(a, b, value, num_items=SIZE)
    return gbt.fit(gbt.Model(laws.Gaussian(1.3), 2.0), rows)


def test_a_chain_of_which_nothing_is_left(fit):
    """Scores whose every item was eliminated, from the fit to its ranks."""
    a, b = GRAPHS["chain"]
    matrix = matrix_of(a, b, np.full(SIZE - 1, 1.3**2), np.full(SIZE, 1 / 2.0**2))
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(gbt.std(fit), np.sqrt(np.diag(inverse)), rtol=1e-10)
    drawn = regularised_draws(fit, 4000, jax.random.key(0))
    assert drawn is not None
    np.testing.assert_allclose(np.cov(drawn), inverse, atol=6 * inverse.max() * np.sqrt(2 / 4000))
    whole = gbt.uncertainty.posterior_samples(fit, 4000, key=jax.random.key(0))
    np.testing.assert_array_equal(whole, np.asarray(fit.scores) + drawn.T)


def test_ranks_do_not_depend_on_how_they_are_drawn(fit):
    found = gbt.rank_intervals(fit, key=jax.random.key(0), num=2000)
    made = gbt.curvature(fit)
    expected = gbt.rank_intervals(fit, key=jax.random.key(1), num=2000, using=made)
    np.testing.assert_array_equal(found.estimate, expected.estimate)
    for ends, others in ((found.lower, expected.lower), (found.upper, expected.upper)):
        # A tail of 2.5% of 2,000 draws is known to some ±14%: ranks of 300 to a few.
        assert np.abs(ends - others).max() <= 20
        assert abs(np.mean(ends - others)) <= 1
    assert np.mean(found.upper - found.lower) < SIZE / 2
