"""Refits with other comparisons: the scores of a new fit, and nothing compiled."""

import jax
import numpy as np
import pytest
from problems import random_comparisons, random_pairs
from test_ladder import PROGRAMS

import gbt_jax as gbt
from gbt_jax import laws

MODEL = gbt.Model(laws.Uniform(), 2.0)


def one_row(rng: np.random.Generator, num_items: int) -> gbt.Comparisons:
    a, b = rng.choice(num_items, 2, replace=False)
    return gbt.Comparisons([a], [b], rng.uniform(-0.9, 0.9, 1), num_items=num_items)


def assert_same(fit: gbt.Fit, cold: gbt.Fit) -> None:
    distance = np.linalg.norm(np.asarray(fit.scores) - np.asarray(cold.scores))
    assert distance <= fit.error_bound + cold.error_bound
    assert fit.error_bound < 1e-10


def test_added_removed_and_changed_comparisons():
    rows, added = random_comparisons(60, 700), random_comparisons(60, 5, seed=9)
    fit = gbt.refit(
        gbt.fit(MODEL, rows), added=added, removed=[3, 699], changed=([0, 1], [0.5, -0.25])
    )
    value, weight = np.array(rows.value), np.ones(705)
    value[:2], weight[[3, 699]] = (0.5, -0.25), 0
    a, b = (np.concatenate([x, y]) for x, y in ((rows.a, added.a), (rows.b, added.b)))
    value = np.concatenate([value, added.value])
    expected = gbt.Comparisons(a, b, value, weight, num_items=60)
    assert_same(fit, gbt.fit(MODEL, expected))
    assert len(fit.comparisons) == 705


@pytest.mark.parametrize("std", [2.0, np.inf])
def test_votes_that_arrive_compile_nothing(std):
    rng, model = np.random.default_rng(0), gbt.Model(laws.Uniform(), std)
    fit = gbt.fit(model, random_comparisons(60, 600))
    fit = gbt.refit(fit, added=one_row(rng, 60))
    before = len(PROGRAMS)
    for number in range(1, 41):
        fit = gbt.refit(fit, added=one_row(rng, 60), removed=[number], changed=([0], [0.1]))
    assert len(PROGRAMS) == before
    cold = gbt.fit(model, fit.comparisons)
    np.testing.assert_allclose(fit.scores, cold.scores, atol=1e-12)


@pytest.mark.slow
def test_five_hundred_votes_one_by_one():
    """Scores stay within the certificates of a new fit, and programs and arrays do not pile up."""
    rng = np.random.default_rng(1)
    fit = gbt.fit(MODEL, random_comparisons(80, 5000))
    counts = []
    for number in range(1, 501):
        fit = gbt.refit(fit, changed=(rng.integers(0, 5000, 1), rng.uniform(-0.9, 0.9, 1)))
        if number % 100 == 0:
            assert_same(fit, gbt.fit(MODEL, fit.comparisons))
            counts.append((len(PROGRAMS), len(jax.live_arrays())))
    assert np.ptp(np.array(counts)[1:], axis=0).max() == 0


def test_a_group_is_changed_and_a_failed_one_comes_back():
    a, b = random_pairs(5, 30)
    group = np.repeat(["ada", "bob"], 15)
    value = np.random.default_rng(2).uniform(-0.9, 0.9, 30)
    value[20] = 3.0  # outside the support
    fits = gbt.fit(MODEL, gbt.Comparisons.from_labels(a, b, value, group=group))
    assert list(fits.failures()) == ["bob"]
    mended = gbt.refit(fits, changed=([20], [0.3]))
    assert not mended.failures()
    value[20] = 0.3
    cold = gbt.fit(MODEL, gbt.Comparisons.from_labels(a, b, value, group=group))
    np.testing.assert_allclose(mended.scores, cold.scores, atol=1e-12)
    with pytest.raises(TypeError, match=r"refit\(fit\['ada'\]\) for one group"):
        gbt.refit(fits, added=one_row(np.random.default_rng(0), 5))


def test_what_cannot_be_changed_is_named():
    fit = gbt.fit(MODEL, random_comparisons(6, 20))
    with pytest.raises(ValueError, match="Comparisons of the same 6 items"):
        gbt.refit(fit, added=random_comparisons(7, 2))
    with pytest.raises(ValueError, match="removed"):
        gbt.refit(fit, removed=[20])
    with pytest.raises(ValueError, match="changed has 2 rows"):
        gbt.refit(fit, changed=([0, 1], [0.5]))
    with pytest.raises(ValueError, match=r"value\[4\]"):
        gbt.refit(fit, changed=([4], [2.0]))
    with pytest.raises(TypeError, match="a Fit is needed"):
        gbt.refit(None)
