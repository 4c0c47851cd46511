"""The smallest changes that move a score or a ranking, confirmed by refits."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws

ROWS = random_comparisons(8, 30, seed=3)
MODEL = gbt.Model(laws.Uniform(), 2.0)


@pytest.fixture(scope="module")
def fit():
    return gbt.fit(MODEL, ROWS)


def without(rows):
    weight = np.ones(30)
    weight[list(rows)] = 0
    return np.asarray(gbt.fit(MODEL, ROWS.with_weights(weight)).scores)


def reversed_at(rows):
    value = np.array(ROWS.value)
    value[list(rows)] *= -1
    return np.asarray(gbt.fit(MODEL, ROWS.with_values(value)).scores)


def test_a_small_change_does_what_is_wanted(fit):
    """To first order, so the error falls with the square; and no smaller change would do."""
    errors = []
    for delta in (1e-2, 1e-3):
        needed = gbt.influence.required_change(fit, 5, delta)
        errors.append(abs(float(needed.achieved) - delta))
        slope = np.asarray(gbt.sensitivity(fit, items=[5]))[0]
        np.testing.assert_allclose(needed.change, delta * slope / (slope @ slope), atol=1e-12)
        refitted = gbt.fit(MODEL, ROWS.with_values(ROWS.value + needed.change))
        np.testing.assert_allclose(needed.fit.scores, refitted.scores, atol=1e-12)
    assert errors[1] < 0.02 * errors[0]
    down = gbt.influence.required_change(fit, 5, -0.2)
    assert -0.25 < down.achieved < -0.15


def test_values_stay_in_the_support(fit):
    """Against a general optimiser with bounds; beyond what values can do is an error."""
    slope = np.asarray(gbt.sensitivity(fit, items=[5]))[0]
    value = np.asarray(ROWS.value)
    reach = np.sum(np.abs(slope) - slope * value)
    for share in (0.5, 0.9, 0.999, 1.0):
        change = np.asarray(gbt.influence.required_change(fit, 5, share * reach).change)
        assert np.all(np.abs(value + change) <= 1)
        assert slope @ change == pytest.approx(share * reach, rel=1e-12)
        if share < 0.99:
            # The wanted effect as one more, heavy, equation of a bounded least-squares problem.
            matrix = np.concatenate([np.eye(30), 1e4 * slope[None, :]])
            target = np.append(np.zeros(30), 1e4 * share * reach)
            best = scipy.optimize.lsq_linear(
                matrix, target, bounds=(-1 - value, 1 - value), method="bvls", tol=1e-14
            )
            np.testing.assert_allclose(change, best.x, atol=1e-4)
    with pytest.raises(ValueError, match="no values inside the law's support move this score by"):
        gbt.influence.required_change(fit, 5, 1.01 * reach)
    assert not np.any(gbt.influence.required_change(fit, 5, 0.0).change)


def test_discrete_and_unbounded_laws():
    votes = ROWS.with_values(np.sign(ROWS.value))
    needed = gbt.influence.required_change(gbt.fit(gbt.Model(laws.Binary(), 1.0), votes), 2, 0.1)
    assert 0.05 < needed.achieved < 0.15
    # Linear: the change does exactly what is wanted, however large.
    gaussian = gbt.fit(gbt.Model(laws.Gaussian(0.7), 1.0), ROWS)
    assert gbt.influence.required_change(gaussian, 2, 50.0).achieved == pytest.approx(
        50.0, rel=1e-12
    )
    nothing = gbt.Comparisons([0], [1], [0.3], num_items=3)
    with pytest.raises(ValueError, match="by more than 0"):
        gbt.influence.required_change(gbt.fit(MODEL, nothing), 2, 0.1)


@pytest.mark.parametrize("by", ["removal", "reversal"])
def test_flip_sets_against_all_small_sets(fit, by):
    """Every pair of neighbours in the ranking; one row where one is enough, by trying all."""
    refit = without if by == "removal" else reversed_at
    order = np.argsort(-np.asarray(fit.scores))
    made = gbt.curvature(fit)
    excess = []
    for above, below in itertools.pairwise(order):
        flips = gbt.influence.flip_set(fit, below, above, by=by, using=made)
        assert flips.is_found
        scores = refit(flips.rows)
        assert scores[below] > scores[above]
        np.testing.assert_allclose(flips.fit.scores, scores, atol=1e-10)
        assert f"{flips.rows.size} of 30 comparisons is enough" in str(flips)
        # No row of the set can be spared.
        for row in flips.rows:
            rest = refit(np.setdiff1d(flips.rows, [row]))
            assert rest[below] <= rest[above]
        excess.append(flips.rows.size - 1)
    single = [
        any(refit([row])[below] > refit([row])[above] for row in range(30))
        for above, below in itertools.pairwise(order[:4])
    ]
    assert [more == 0 for more in excess[:3]] == single


def test_the_top(fit):
    order = np.argsort(-np.asarray(fit.scores))
    flips = gbt.influence.flip_set(fit, top=2)
    assert flips.is_found
    assert set(np.argsort(-without(flips.rows))[:2]) != set(order[:2])
    assert "another set of the top 2: leaving out" in str(flips)


def test_nothing_found_is_said(fit):
    order = np.argsort(-np.asarray(fit.scores))
    flips = gbt.influence.flip_set(fit, int(order[0]), int(order[-1]), limit=1)
    assert not flips.is_found
    assert flips.rows.size == 0
    assert "no set of up to 1 of 30 comparisons was found" in str(flips)
    np.testing.assert_array_equal(flips.fit.scores, fit.scores)


def test_without_a_prior_an_optimum_may_be_lost():
    """Wins and losses in a cycle: leaving one out, somebody only wins."""
    cycle = gbt.Comparisons([0, 1, 2, 0], [1, 2, 0, 1], [1.0, 1, 1, 1], num_items=3)
    fit = gbt.fit(gbt.Model(laws.Binary(), np.inf), cycle)
    order = np.argsort(-np.asarray(fit.scores))
    flips = gbt.influence.flip_set(fit, int(order[0]), int(order[2]))
    assert flips.is_found == (flips.rows.size > 0)
    if flips.is_found:
        assert flips.fit.result == gbt.RESULTS.successful


def test_weak_priors_and_components():
    """Levels cost no digits, and without a prior what falls apart changes no places."""
    strong = gbt.influence.required_change(gbt.fit(gbt.Model(laws.Uniform(), np.inf), ROWS), 5, 0.3)
    weak = gbt.influence.required_change(gbt.fit(gbt.Model(laws.Uniform(), 1e9), ROWS), 5, 0.3)
    np.testing.assert_allclose(weak.change, strong.change, atol=1e-7)
    # Item 0 hangs on two comparisons: without them it has no place, and so no other one.
    rows = gbt.Comparisons(
        [0, 0, 1, 2, 1, 2], [1, 2, 2, 3, 3, 1], [0.8, 0.7, 0.1, 0.3, 0.2, 0.1], num_items=4
    )
    free = gbt.fit(gbt.Model(laws.Uniform(), np.inf), rows)
    flips = gbt.influence.flip_set(free, 0, 1)
    assert not {0, 1} <= set(flips.rows.tolist())
    pairs = gbt.Comparisons([0, 2], [1, 3], [0.5, 0.2], num_items=4)
    apart = gbt.fit(gbt.Model(laws.Uniform(), np.inf), pairs)
    for question in ({"first": 0, "second": 2}, {"top": 1}):
        with pytest.raises(ValueError, match="no common scale"):
            gbt.influence.flip_set(apart, **question)


def test_what_cannot_be_asked_is_refused(fit):
    for arguments, message in (
        (((0,), {}), "two items, first and second, or top"),
        (((0, 0), {}), "item 0 cannot change places with itself"),
        (((0, 8), {}), "first and second has 8"),
        (((0, 1), {"top": 2}), "two items or top, not both"),
        (((), {"top": 8}), "top is 8, and there are 8 items"),
        (((0, 1), {"by": "magic"}), "by must be one of removal, reversal"),
    ):
        with pytest.raises(ValueError, match=message):
            gbt.influence.flip_set(fit, *arguments[0], **arguments[1])
    with pytest.raises(ValueError, match="delta must be a finite number"):
        gbt.influence.required_change(fit, 0, np.inf)
    with pytest.raises(ValueError, match="item has -1"):
        gbt.influence.required_change(fit, -1, 0.1)
