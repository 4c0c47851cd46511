"""The guarantees: fits keep them, estimators that do not are caught."""

import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws

ROWS = random_comparisons(12, 40)


def in_steps(law, rows=ROWS):
    return rows.with_values(law.nearest(rows.value))


def average(comparisons):
    """Mean signed value of each item: monotone and resilient."""
    rows = [np.asarray(x) for x in (comparisons.a, comparisons.b)]
    weighted = np.asarray(comparisons.value) * np.asarray(comparisons.weight)
    total = np.bincount(rows[0], weighted, 12) - np.bincount(rows[1], weighted, 12)
    return total / np.maximum(
        np.bincount(rows[0], minlength=12) + np.bincount(rows[1], minlength=12), 1
    )


def average_with_cut(comparisons):
    """The same without values beyond 0.9, as outliers: raising a value may drop it."""
    kept = np.where(np.abs(np.asarray(comparisons.value)) > 0.9, 0.0, comparisons.weight)
    return average(comparisons.with_weights(kept))


def elo(comparisons):
    """Ratings updated row by row."""
    scores = np.zeros(12)
    columns = (np.asarray(x) for x in (comparisons.a, comparisons.b, comparisons.value))
    for a, b, value in zip(*columns, strict=True):
        moved = 0.3 * (value - np.tanh(scores[a] - scores[b]))
        scores[a] += moved
        scores[b] -= moved
    return scores


@pytest.mark.parametrize("std", [0.5, 7.0, 1e4, np.inf])
@pytest.mark.parametrize("law", [laws.Uniform(), laws.Beta(0.7), laws.Gaussian(0.5)])
@pytest.mark.slow
def test_continuous_fits_are_monotone(law, std):
    fit = gbt.fit(gbt.Model(law, std), ROWS)
    report = gbt.check_monotone(fit)
    assert report.holds
    assert report.margin > 0
    assert report.checked == 40
    # The margin is the smallest derivative of a score in a comparison of its own.
    moved, rows = np.asarray(gbt.sensitivity(fit)), np.arange(40)
    smallest = min(moved[ROWS.a, rows].min(), -moved[ROWS.b, rows].max())
    np.testing.assert_allclose(report.margin, smallest, rtol=1e-6)
    assert gbt.check_monotone(fit, rows=[3]).checked == 1


@pytest.mark.parametrize("law", [laws.KNary(5), laws.Skellam(0.5)])
def test_discrete_fits_are_monotone(law):
    rows = in_steps(law) if law.max_value == 1 else ROWS.with_values(np.round(3 * ROWS.value))
    report = gbt.check_monotone(gbt.fit(gbt.Model(law, 2.0), rows), rows=np.arange(10))
    assert report.holds
    assert report.margin > 1e-4
    assert "score per step" in str(report)


def test_estimators_are_told_apart():
    assert gbt.check_monotone(average, ROWS, step=0.05).holds
    caught = gbt.check_monotone(average_with_cut, ROWS, step=0.1)
    assert not caught.holds
    assert caught.margin < 0
    row = int(caught.worst.split()[1].rstrip(","))
    assert 0.8 < float(ROWS.value[row]) <= 0.9
    assert str(caught).startswith("FAILS: raising a comparison")
    order_matters = gbt.check_monotone(elo, ROWS, step=0.05)
    assert order_matters.checked == 40
    assert order_matters.holds == (order_matters.margin > -1e-8)


def test_a_new_comparison_pulls_where_it_should():
    for law in (laws.Uniform(), laws.KNary(3), laws.Skellam(1.0)):
        rows = ROWS.with_values(np.round(ROWS.value)) if law.is_discrete else ROWS
        fit = gbt.fit(gbt.Model(law, 2.0), rows)
        report = gbt.check_new_comparison(fit, 4, 9)
        assert report.holds
        expected = law.mean(fit.scores[4] - fit.scores[9])
        assert report.numbers["value that changes nothing"] == pytest.approx(float(expected))
    fit, moved = gbt.fit(gbt.Model(laws.Uniform(), 2.0), ROWS), []
    for value in (1.0, -1.0):
        change = gbt.what_if(fit, added=gbt.Comparisons([4], [9], [value], num_items=12)).change
        moved += [value * change[4], -value * change[9]]
    assert gbt.check_new_comparison(fit, 4, 9).margin == pytest.approx(float(min(moved)))
    assert max(moved) > 1.01 * min(moved)
    with pytest.raises(ValueError, match="item 4 cannot be compared with itself"):
        gbt.check_new_comparison(fit, 4, 4)


def test_resilience():
    for law, std in ((laws.Uniform(), 0.5), (laws.Binary(), 3.0)):
        rows = ROWS if not law.is_discrete else ROWS.with_values(np.sign(ROWS.value))
        report = gbt.check_resilience(gbt.fit(gbt.Model(law, std), rows))
        assert report.holds
        assert report.numbers["bound"] == pytest.approx(2 * np.sqrt(2) * std**2)
        assert 0 < report.numbers["worst change"] <= report.numbers["bound"]
        assert max(map(len, str(report).splitlines())) <= 80
    # Two items with a tiny prior and one comparison: the bound is nearly reached.
    pair = gbt.Comparisons([0], [1], [1.0], num_items=2)
    close = gbt.check_resilience(gbt.fit(gbt.Model(laws.Binary(), 0.05), pair))
    assert close.holds
    assert close.numbers["worst change"] > 0.98 * close.numbers["bound"]
    unbounded = gbt.check_resilience(gbt.fit(gbt.Model(laws.Gaussian(1.0), 2.0), ROWS))
    assert not unbounded.holds
    changes = list(unbounded.numbers.values())
    assert changes[-1] > 50 * changes[-2] > 50**2 * changes[-3]


def test_resilience_of_estimators():
    assert gbt.check_resilience(average, ROWS, max_value=1.0, bound=2 * np.sqrt(2)).holds
    assert not gbt.check_resilience(elo, ROWS, max_value=1.0, bound=0.05).holds


def test_what_cannot_be_checked_is_refused():
    fit = gbt.fit(gbt.Model(laws.Uniform()), ROWS)
    with pytest.raises(ValueError, match="with comparisons and a positive step"):
        gbt.check_monotone(average, ROWS)
    with pytest.raises(ValueError, match="for estimators: a fit has its own"):
        gbt.check_monotone(fit, ROWS)
    with pytest.raises(ValueError, match="with comparisons, max_value and bound"):
        gbt.check_resilience(average, ROWS)
    with pytest.raises(ValueError, match="a and b has 12"):
        gbt.check_new_comparison(fit, 0, 12)
    empty = gbt.Comparisons([], [], jnp.zeros(0), num_items=3)
    assert gbt.check_monotone(gbt.fit(gbt.Model(laws.Uniform()), empty)).checked == 0
