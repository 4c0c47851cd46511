"""Items and rows that pad a problem are no part of its answer."""

import jax
import numpy as np
import pytest

import gbt_jax as gbt
from gbt_jax import influence


def _problem(num_items: int, num_rows: int) -> gbt.Comparisons:
    draw = np.random.default_rng(num_items)
    a = draw.integers(0, num_items, num_rows)
    b = (a + draw.integers(1, num_items, num_rows)) % num_items
    return gbt.Comparisons(a, b, draw.uniform(-0.9, 0.9, num_rows), num_items=num_items)


@pytest.mark.parametrize("num_items", [3, 49])
def test_tolerances_are_met_whatever_the_first_prior_mean_is(num_items):
    mean = np.where(np.arange(num_items) == 0, 50.0, 0.0)
    model = gbt.Model(gbt.laws.Uniform(), prior_std=10.0, prior_mean=mean)
    for rtol in (1e-5, 1e-4, 1e-3):
        fit = gbt.fit(model, _problem(num_items, 5 * num_items), rtol=rtol)
        assert fit.error_bound <= rtol * np.linalg.norm(fit.scores)


def test_an_outlying_prior_mean_costs_the_same_at_every_place():
    rows, size = _problem(60, 240), 60
    found = []
    for place in (0, 59):
        to = np.roll(np.arange(size), place)  # the item 0 gets this number
        mean = np.zeros(size)
        mean[to[0]] = 1e9
        moved = gbt.Comparisons(to[rows.a], to[rows.b], rows.value, num_items=size)
        model = gbt.Model(gbt.laws.Uniform(), prior_mean=mean)
        found.append(float(gbt.fit(model, moved).error_bound))
    assert found[0] == pytest.approx(found[1], rel=0.2)


@pytest.mark.parametrize("num_items", [3, 48, 80])
def test_without_comparisons_scores_are_the_prior_means(num_items):
    draw, none = np.random.default_rng(0), np.zeros(0, int)
    rows = gbt.Comparisons(none, none, np.zeros(0), num_items=num_items)
    for _ in range(30):
        mean, std = 3 * draw.normal(size=num_items), np.exp(2 * draw.normal(size=num_items))
        fit = gbt.fit(gbt.Model(gbt.laws.Uniform(), prior_std=std, prior_mean=mean), rows)
        np.testing.assert_array_equal(fit.scores, mean)


def test_no_items_may_have_priors_of_their_own():
    none = np.zeros(0, int)
    rows = gbt.Comparisons(none, none, np.zeros(0), num_items=0)
    model = gbt.Model(gbt.laws.Uniform(), prior_std=np.zeros(0), prior_mean=np.zeros(0))
    assert gbt.fit(model, rows).scores.shape == (0,)


def test_a_matrix_that_is_asked_for_is_not_padded(monkeypatch):
    from gbt_jax._inference import _maximise

    sizes, program = [], _maximise._program

    def note(model, comparisons, *rest, **options):
        sizes.append(comparisons.num_items)
        return program(model, comparisons, *rest, **options)

    monkeypatch.setattr(_maximise, "_program", note)
    gbt.fit(gbt.Model(gbt.laws.Uniform()), _problem(60, 90), solver=gbt.solvers.NewtonCholesky())
    assert sizes == [60]


def test_parts_with_a_prior_may_come_off():
    a, b = np.array([0, 1, 3, 4]), np.array([1, 2, 4, 5])
    value = np.array([0.3, -0.2, 0.4, 0.1])
    std = np.array([1, 1, 1, np.inf, np.inf, np.inf])
    model = gbt.Model(gbt.laws.Uniform(), prior_std=std)
    fit = gbt.fit(model, gbt.Comparisons(a, b, value, num_items=6))
    changes = np.asarray(influence.leave_out(fit, groups=["a", "b", "c", "d"]))
    for row in (0, 1):
        kept = np.arange(4) != row
        left = gbt.Comparisons(a[kept], b[kept], value[kept], num_items=6)
        again = gbt.fit(model, left).scores
        np.testing.assert_allclose(changes[:, row], again - fit.scores, atol=1e-12)
    assert np.isnan(changes[:, 2:]).all()


def test_rows_of_weight_zero_cannot_overflow():
    # cosh(1000) overflows: between the items 1 and 2, whose scores no comparison relates.
    rows = gbt.Comparisons([0, 2, 1], [1, 3, 2], [1, 2, 0], [1, 1, 0], num_items=4)
    model = gbt.Model(gbt.laws.Skellam(1.0), prior_std=1.0, prior_mean=np.array([0, 0, 1e3, 1e3]))
    fit = gbt.fit(model, rows)
    apart = gbt.fit(model, gbt.Comparisons([0, 2], [1, 3], [1, 2], num_items=4))
    np.testing.assert_array_equal(fit.scores, apart.scores)
    np.testing.assert_allclose(gbt.std(fit), gbt.std(apart), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(gbt.map_scores)(model, rows), fit.scores, rtol=1e-12)


def test_padding_compares_no_distant_items():
    mean, std = np.full(12, 1e5), np.where(np.arange(12) < 4, np.inf, 1.0)
    rows = gbt.Comparisons([0, 1, 2], [1, 2, 0], [1, 0, -1], num_items=12)
    fit = gbt.fit(gbt.Model(gbt.laws.Skellam(1.0), std, mean), rows)
    assert fit.result == gbt.RESULTS.successful
    np.testing.assert_array_equal(fit.scores[4:], mean[4:])
