"""Padding to few shapes: the same scores, and no program for a new size."""

import jax
import numpy as np
import pytest
from problems import random_comparisons, random_pairs
from scipy.optimize import minimize

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._inference._ladder import rungs

PROGRAM = "/jax/core/compile/backend_compile_duration"
PROGRAMS: list[str] = []


def note(event: str, duration_secs: float, **_: str | int) -> None:
    if event == PROGRAM:
        PROGRAMS.append(event)


jax.monitoring.register_event_duration_secs_listener(note)


def scipy_scores(comparisons: gbt.Comparisons, std, mean, slope) -> np.ndarray:
    """The optimum of Gaussian comparisons of variance `slope`: a linear system."""
    a, b, value = (np.asarray(x) for x in (comparisons.a, comparisons.b, comparisons.value))
    size = comparisons.num_items
    incidence = np.zeros((value.size, size))
    incidence[np.arange(value.size), a] += 1
    incidence[np.arange(value.size), b] -= 1
    precision = np.broadcast_to(1 / np.square(std), (size,))
    hessian = np.diag(precision) + incidence.T @ (slope[:, None] * incidence)
    return np.linalg.solve(hessian, incidence.T @ value + precision * mean)


def test_rungs_hold_every_size_and_are_few():
    counts = np.unique(np.geomspace(1, 1e6, 400).astype(int))
    found = {(n, m): rungs(int(n), int(m)) for n in counts for m in (0, *counts)}
    for size, rung in found.items():
        assert np.all(np.asarray(rung) >= size)
        assert rungs(*rung) == rung
    assert len({rows for _, rows in found.values()}) <= 20
    assert len({items for items, _ in found.values()}) <= 6
    assert rungs(48, 600) == (48, 4096)
    assert rungs(49, 600) == (512, 4096)
    assert rungs(49, 20_000) == (512, 24_576)


@pytest.mark.parametrize(("num_items", "num_rows"), [(2, 1), (49, 513), (60, 700), (600, 700)])
def test_padded_fits_with_parameters_of_rows_and_items(num_items, num_rows):
    rng = np.random.default_rng(num_rows)
    rows = random_comparisons(num_items, num_rows)
    deviation, std = rng.uniform(0.5, 2, num_rows), rng.uniform(0.5, 2, num_items)
    mean = rng.normal(size=num_items)
    fit = gbt.fit(gbt.Model(laws.Gaussian(deviation), std, mean), rows)
    expected = scipy_scores(rows, std, mean, np.square(deviation))
    np.testing.assert_allclose(fit.scores, expected, atol=1e-11)
    again = gbt.fit(fit.model, rows, initial=expected)
    np.testing.assert_allclose(again.scores, expected, atol=1e-11)
    assert np.all(np.linalg.norm(fit.scores - expected) <= fit.error_bound + 1e-11)


def test_padded_fits_without_a_prior():
    a, b = random_pairs(70, 900)
    value = np.where(np.random.default_rng(1).random(900) < 0.5, 0.5, -0.5)
    rows = gbt.Comparisons(a, b, value, num_items=70)
    fit = gbt.fit(gbt.Model(laws.BradleyTerry(), np.inf), rows)

    def loss(x):
        return np.sum(np.logaddexp(0, -2 * value * (x[a] - x[b])))

    best = minimize(loss, np.zeros(70), method="BFGS", options={"gtol": 1e-7}).x
    np.testing.assert_allclose(fit.scores, best - best.mean(), atol=1e-5)
    assert abs(float(fit.scores.mean())) < 1e-12


@pytest.mark.parametrize("std", [1.0, np.inf])
@pytest.mark.parametrize("num_items", [20, 100])
def test_the_bits_of_scores_do_not_depend_on_padding(num_items, std):
    rng = np.random.default_rng(0)
    rows = random_comparisons(num_items, 600)
    model = gbt.Model(laws.Uniform(), std)
    columns = rows.a, rows.b, rows.value, np.ones(600)
    filler = (*random_pairs(num_items, 77, 5), rng.uniform(-0.9, 0.9, 77), np.zeros(77))
    more = (np.concatenate(pair) for pair in zip(columns, filler, strict=True))
    fit, other = gbt.fit(model, rows), gbt.fit(model, gbt.Comparisons(*more, num_items=num_items))
    assert np.array_equal(fit.scores, other.scores)
    assert fit.error_bound == other.error_bound
    if std == 1:  # items without comparisons stay at the prior mean
        larger = gbt.Comparisons(*columns, num_items=num_items + 13)
        fitted = gbt.fit(model, larger).scores
        assert np.array_equal(fit.scores, fitted[:num_items])
        assert np.array_equal(fitted[num_items:], np.zeros(13))


@pytest.mark.parametrize("std", [1.0, np.inf])
def test_a_new_size_compiles_nothing(std):
    model = gbt.Model(laws.BradleyTerry(), std)

    def answer(num_items: int, num_rows: int) -> None:
        a, b = random_pairs(num_items, num_rows)
        value = np.where(np.arange(num_rows) % 2, 0.5, -0.5)
        fit = gbt.fit(model, gbt.Comparisons(a, b, value, num_items=num_items))
        gbt.std(fit)
        gbt.intervals(fit)
        gbt.uncertainty.rank_intervals(fit, key=jax.random.key(0))
        gbt.sensitivity(fit)
        gbt.influence.what_if(fit, removed=[0])
        gbt.influence.leave_out(fit, groups=np.arange(num_rows) // (num_rows // 3))
        gbt.predict(fit, [0, 1], [1, 2])

    answer(60, 600)
    before = len(PROGRAMS)
    for num_items, num_rows in ((61, 600), (60, 601), (99, 1234), (203, 1536)):
        answer(num_items, num_rows)
    assert len(PROGRAMS) == before


@pytest.mark.parametrize("law", [laws.Uniform(), laws.Gaussian(np.ones(0))])
@pytest.mark.parametrize("num_items", [0, 3, 60])
def test_no_comparisons_give_the_prior_mean(law, num_items):
    none = np.zeros(0, int)
    rows = gbt.Comparisons(none, none, np.zeros(0), num_items=num_items)
    fit = gbt.fit(gbt.Model(law, 2.0, 0.5), rows)
    assert np.array_equal(fit.scores, np.full(num_items, 0.5))
