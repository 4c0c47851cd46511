"""The guarantees: fits keep them, estimators that do not are caught."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from monotonicity import SCORERS, average, average_with_cut, elo, random_fits
from problems import random_comparisons, tournesol_problems

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax.guarantees import _refits

ROWS = random_comparisons(12, 40)


def in_steps(law, rows=ROWS):
    return rows.with_values(law.nearest(rows.value))


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


MODEL = gbt.Model(laws.Uniform(), 2.0)


def map_estimator(rows):
    return gbt.map_scores(MODEL, rows)  # NaN where a value leaves [−1, 1]


@pytest.mark.parametrize("max_value", [None, 1.0])
def test_steps_stay_inside_the_support(max_value):
    """Rows near 1 cannot be raised by 0.2, and are lowered: a's score falls, b's rises."""
    report = gbt.check_monotone(map_estimator, ROWS, step=0.2, max_value=max_value)
    assert report.holds
    assert 1e-3 < report.margin < 1
    assert (report.checked, report.not_evaluated) == (40, 0)
    assert np.any(np.asarray(ROWS.value) + 0.2 > 1)  # otherwise nothing was tested


def test_a_lowered_comparison_can_fail():
    def sign_flipped(rows):
        return -np.asarray(map_estimator(rows))

    caught = gbt.check_monotone(sign_flipped, ROWS, step=0.2, max_value=1.0)
    assert caught.holds is False
    assert caught.margin < 0
    near_the_edge = np.flatnonzero(np.asarray(ROWS.value) > 0.8)
    lowered = gbt.check_monotone(sign_flipped, ROWS, step=0.2, rows=near_the_edge)
    assert lowered.holds is False
    assert "lowered" in lowered.worst
    assert not gbt.check_monotone(average_with_cut, ROWS, step=0.1, max_value=1.0).holds


def test_a_step_at_the_end_of_a_grid_is_not_lost_in_rounding():
    """0.7 + 0.3 is 1 up to rounding, and 1 − 0.3 is in the support too."""
    asked = []

    def estimator(rows):
        asked.append(np.asarray(rows.value).copy())
        return average(rows)

    values = np.array([0.1, 0.4, 0.7, 1.0])
    rows = gbt.Comparisons([0, 1, 2, 3], [1, 2, 3, 0], values + 3e-16, num_items=4)
    report = gbt.check_monotone(estimator, rows, step=0.3, max_value=1.0 + 2e-16)
    assert report.holds
    assert np.max(asked) <= 1 + 4e-16
    changed = [row[i] for i, row in enumerate(asked[1:5])]
    np.testing.assert_allclose(changed, [0.4, 0.7, 1.0, 0.7], atol=1e-12)


def test_what_cannot_be_evaluated_is_counted():
    def without_third_item(rows):
        return average(rows) + np.where(np.arange(12) == 3, np.nan, 0)

    partly = gbt.check_monotone(without_third_item, ROWS, step=0.05)
    third = np.flatnonzero((np.asarray(ROWS.a) == 3) | (np.asarray(ROWS.b) == 3))
    assert partly.holds
    assert (partly.checked, partly.not_evaluated) == (40 - third.size, third.size)
    assert partly.first_not_evaluated.startswith(f"row {third[0]}, item ")
    assert f"not evaluated: {third.size} (first: row {third[0]}, item" in str(partly)

    def nowhere(rows):
        return np.full(rows.num_items, np.nan)

    for report in (
        gbt.check_monotone(nowhere, ROWS, step=0.05),
        gbt.check_resilience(nowhere, ROWS, max_value=1.0, bound=3.0),
    ):
        assert report.holds is None
        assert report.checked == 0
        assert report.not_evaluated in (40, 120)
        assert np.isnan(report.margin)
        assert str(report).startswith("NOT EVALUATED: ")
        assert "holds" not in str(report)
        assert "FAILS" not in str(report)
        assert "nan" not in str(report)


def test_distances_that_are_not_numbers_are_not_evaluated():
    """NaN in one case hides neither the other cases nor a failure among them."""

    def lost_when_removed(rows):
        return average(rows) + (np.nan if np.asarray(rows.weight)[7] == 0 else 0)

    report = gbt.check_resilience(lost_when_removed, ROWS, max_value=1.0, bound=2 * np.sqrt(2))
    assert report.holds
    assert (report.checked, report.not_evaluated) == (119, 1)
    assert report.first_not_evaluated == "row 7 removed"
    assert gbt.check_resilience(lost_when_removed, ROWS, max_value=1.0, bound=1e-3).holds is False

    def unbounded_when_removed(rows):
        return average(rows) + (np.inf if np.asarray(rows.weight)[7] == 0 else 0)

    infinite = gbt.check_resilience(unbounded_when_removed, ROWS, max_value=1.0, bound=9.0)
    assert infinite.holds is False
    assert infinite.worst == "row 7 removed"


def test_fits_without_a_prior_are_stepped_the_other_way():
    """Binary wins in a circle: every other win breaks the circle, and no refit has an optimum."""
    circle = gbt.Comparisons([0, 1, 0], [1, 2, 2], [1.0, 1.0, -1.0], num_items=3)
    report = gbt.check_monotone(gbt.fit(gbt.Model(laws.Binary(), np.inf), circle))
    assert report.holds is None
    assert (report.checked, report.not_evaluated) == (0, 3)
    assert report.first_not_evaluated.startswith("row 0, item 0 against 1")
    # With draws in between, wins are lowered to draws, and everything can be evaluated.
    ternary = gbt.check_monotone(gbt.fit(gbt.Model(laws.KNary(3), np.inf), circle))
    assert ternary.holds
    assert ternary.checked == 3
    assert ternary.margin > 0.1


def test_comparisons_at_the_top_of_a_discrete_law_are_lowered():
    rows = ROWS.with_values(np.ones(40))
    fit = gbt.fit(gbt.Model(laws.KNary(5), 2.0), rows)
    report = gbt.check_monotone(fit, rows=[4, 5])
    assert report.holds
    assert (report.checked, report.not_evaluated) == (2, 0)
    assert "lowered" in report.worst
    rises = []
    for row in (4, 5):
        change = np.asarray(gbt.what_if(fit, changed=([row], [0.5])).change)
        rises += [-change[int(rows.a[row])], change[int(rows.b[row])]]
    assert report.margin == pytest.approx(min(rises), rel=1e-6)


def test_rows_of_groups_without_an_optimum_are_not_evaluated():
    rows = gbt.Comparisons.from_labels(
        [0, 1, 0], [1, 0, 1], [0.5, -0.2, 7.0], group=["ada", "ada", "bob"]
    )
    report = gbt.check_monotone(gbt.fit(MODEL, rows))
    assert report.holds
    assert (report.checked, report.not_evaluated) == (2, 1)
    assert report.first_not_evaluated.startswith("group 'bob', row 2")


def test_known_scorers():
    """Each with its worst case: what holds, and what does not."""
    reports = {
        name: gbt.check_monotone(scorer, ROWS, step=0.05) for name, scorer in SCORERS.items()
    }
    failing = {name for name, report in reports.items() if not report.holds}
    assert failing == {"average without values beyond 0.9", "Elo, gain 1.5"}
    for report in reports.values():
        assert (report.margin > 0) == report.holds
        assert report.worst.startswith("row ")


@pytest.mark.parametrize("law", [laws.Uniform(), laws.KNary(5), laws.Skellam(1.5)])
def test_groups_are_monotone(law):
    fits = random_fits(law, 60)
    report = gbt.check_monotone(fits)
    assert report.holds
    assert report.numbers["groups"] == 60
    least = np.inf
    for label in list(fits)[:4]:
        own = gbt.check_monotone(fits[label])
        least = min(least, own.margin)
        assert own.margin >= report.margin - 1e-9
    rows = np.flatnonzero(fits.group[np.asarray(fits.comparisons.a)] < 4)
    assert gbt.check_monotone(fits, rows=rows).margin == pytest.approx(least, rel=1e-6, abs=1e-10)
    assert report.worst.startswith("group ")


def test_a_violation_would_be_found(monkeypatch):
    """An outlier cut planted into the refits: the check reports it, with its group and row."""
    fits = random_fits(laws.KNary(5), 40)

    def with_cut(model, rows):
        kept = np.abs(rows.value) < 1
        return gbt.fit(model, rows.with_weights(np.where(kept, rows.weight, 0.0)))

    monkeypatch.setattr(_refits, "find", with_cut)
    caught = gbt.check_monotone(fits)
    assert not caught.holds
    assert caught.margin < 0
    assert re.match(r"group \d+, row \d+, item \d+ against \d+", caught.worst)


def test_merged_rows_and_priors_of_items_are_stepped_too():
    law = laws.KNary(5)
    rows = in_steps(law)
    std = np.linspace(1, 2, 12)
    report = gbt.check_monotone(gbt.fit(gbt.Model(law, std), rows), rows=[0, 1, 2])
    assert report.holds
    assert report.margin > 1e-4
    whole = gbt.check_monotone(gbt.fit(gbt.Model(law, np.full(12, 2.0)), rows), rows=[0, 1, 2])
    batch = gbt.check_monotone(gbt.fit(gbt.Model(law, 2.0), rows), rows=[0, 1, 2])
    assert whole.margin == pytest.approx(batch.margin, rel=1e-7)


@pytest.mark.slow
def test_all_of_tournesol_in_one_call():
    columns = [[], [], [], []]
    for number, rows in enumerate(tournesol_problems()):
        parts = np.full(len(rows), number), rows.a, rows.b, rows.value
        for column, part in zip(columns, parts, strict=True):
            column.append(np.asarray(part))
    group, a, b, value = map(np.concatenate, columns)
    rows = gbt.Comparisons.from_labels(a, b, value, group=group)
    report = gbt.check_monotone(gbt.fit(gbt.Model(laws.Uniform(), 7.0), rows))
    assert report.holds
    assert report.checked == len(rows)


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


def test_resilience_needs_a_prior_and_ignores_padding():
    with pytest.raises(ValueError, match="without a prior nothing bounds"):
        gbt.check_resilience(gbt.fit(gbt.Model(laws.Uniform(), np.inf), ROWS))
    padding = ROWS.with_weights(np.zeros(40))
    report = gbt.check_resilience(gbt.fit(gbt.Model(laws.Uniform(), 1.0), padding))
    assert report.holds
    assert report.checked == 0


def test_resilience_of_estimators():
    assert gbt.check_resilience(average, ROWS, max_value=1.0, bound=2 * np.sqrt(2)).holds
    assert not gbt.check_resilience(elo(0.3), ROWS, max_value=1.0, bound=0.05).holds


def test_what_cannot_be_checked_is_refused():
    fit = gbt.fit(gbt.Model(laws.Uniform()), ROWS)
    with pytest.raises(ValueError, match="with comparisons and a positive step"):
        gbt.check_monotone(average, ROWS)
    for options in ({"comparisons": ROWS}, {"step": 0.1}, {"max_value": 1.0}):
        with pytest.raises(ValueError, match="for estimators: a fit has its own"):
            gbt.check_monotone(fit, **options)
    for max_value in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="max_value must be positive, not"):
            gbt.check_monotone(average, ROWS, step=0.1, max_value=max_value)
    with pytest.raises(ValueError, match="with comparisons, max_value and bound"):
        gbt.check_resilience(average, ROWS)
    with pytest.raises(ValueError, match="a and b has 12"):
        gbt.check_new_comparison(fit, 0, 12)
    empty = gbt.Comparisons([], [], jnp.zeros(0), num_items=3)
    assert gbt.check_monotone(gbt.fit(gbt.Model(laws.Uniform()), empty)).checked == 0
