"""Likelihood intervals: against 40-digit arithmetic, SciPy and closed forms."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.optimize
from problems import counting_law, random_pairs, tournesol_problems

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax.uncertainty._likelihood import likelihood_intervals

SIZE, NUM_ROWS = 12, 40
A, B = random_pairs(SIZE, NUM_ROWS)
RNG = np.random.default_rng(3)
CASES = {
    "Uniform": (laws.Uniform(), RNG.uniform(-1, 1, NUM_ROWS)),
    "Binary": (laws.Binary(), RNG.choice([-1.0, 1.0], NUM_ROWS)),
    "Skellam": (laws.Skellam(0.7), RNG.integers(-3, 4, NUM_ROWS).astype(float)),
}
CGF = {
    "Uniform": lambda t: mpmath.log(mpmath.sinh(t) / t) if t else t,
    "Binary": lambda t: mpmath.log(mpmath.cosh(t)),
    "Skellam": lambda t: (mpmath.cosh(t) - 1) * mpmath.mpf(0.7),
}


def rise(cgf, fit, item):
    """s ↦ g_item(s) in arbitrary precision."""
    rows, scores = fit.comparisons, [mpmath.mpf(float(x)) for x in fit.scores]
    columns = (np.asarray(x).tolist() for x in (rows.a, rows.b, rows.value, rows.weight))
    terms = []
    for a, b, value, weight in zip(*columns, strict=True):
        if weight and item in (a, b):
            sign = 1 if item == a else -1
            terms.append((sign * (scores[a] - scores[b]), sign * mpmath.mpf(value), weight))
    return lambda s: mpmath.fsum(w * (cgf(t + s) - cgf(t) - r * s) for t, r, w in terms)


def distances(found):
    """(left, right): how far the ends of intervals are from the scores."""
    estimate, lower, upper = (np.asarray(x) for x in found)
    return estimate - lower, upper - estimate


def errors_and_bounds(cgf, fit, found, drop=1.0):
    """Relative errors of all finite distances, and what they may be.

    The bound is what rounding the values r once more, by 4 ε, does: g moves by 4 ε Σ w |r| s, and
    the root by that over its slope. Besides, ε^(2/3) is allowed, and ε for rounding the end.
    """
    rows, eps = fit.comparisons, float(jnp.finfo(fit.scores.dtype).eps)
    pull = np.asarray(rows.weight, float) * np.maximum(1, np.abs(rows.value))
    pull = np.bincount(rows.a, pull, SIZE) + np.bincount(rows.b, pull, SIZE)
    errors, bounds = [], []
    with mpmath.workdps(60):
        for item in range(fit.scores.size):
            g = rise(cgf, fit, item)
            score = mpmath.mpf(float(found.estimate[item]))
            for sign, end in ((-1, found.lower[item]), (1, found.upper[item])):
                if np.isfinite(end):
                    s, step = sign * (mpmath.mpf(float(end)) - score), mpmath.mpf(10) ** -12
                    # The line through two close points shows the slope, and where the root is.
                    here = g(sign * s)
                    slope = (g(sign * s * (1 + step)) - here) / (s * step)
                    errors.append(abs(float((drop - here) / (slope * s))))
                    rounding = pull[item] / slope * 4 + abs(float(end)) / s
                    bounds.append(eps ** (2 / 3) + eps * float(rounding))
    return np.array(errors), np.array(bounds)


def assert_exact(cgf, fit, found, drop=1.0):
    """All finite distances are, and the others are infinite on the right side."""
    errors, bounds = errors_and_bounds(cgf, fit, found, drop)
    np.testing.assert_array_equal(found.estimate, fit.scores)
    assert not np.isnan(np.stack([found.lower, found.upper])).any()
    assert not (np.isposinf(found.lower) | np.isneginf(found.upper)).any()
    assert (errors < bounds).all(), (errors / bounds).max()
    return errors


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_40_digits(name):
    """Small and large weights, drops and priors, all in one compiled program."""
    law, value = CASES[name]
    mixed = np.exp(np.random.default_rng(0).uniform(-18, 18, NUM_ROWS))
    for weight, std, drop in (
        (np.ones(NUM_ROWS), 2.0, 1.0),
        (np.ones(NUM_ROWS), 2.0, 1e-3),
        (np.full(NUM_ROWS, 1e8), 1e2, 1.0),
        (np.full(NUM_ROWS, 1e-8), 2.0, 30.0),
        (mixed, 1e2, 1.0),
    ):
        rows = gbt.Comparisons(A, B, value, weight, num_items=SIZE)
        fit = gbt.fit(gbt.Model(law, std), rows)
        found = likelihood_intervals(fit, drop=drop)
        errors = assert_exact(CGF[name], fit, found, drop)
        # One item has lost all of its binary comparisons: for a large weight it is far away, and
        # its values, rounded once more, would move its right end.
        assert errors.size >= 2 * SIZE - 1
        assert np.sort(errors)[-2] < 1e-9


def test_gaussian_law_has_a_closed_form():
    """g is a parabola: slope s + curvature s²/2 = drop."""
    weight = np.exp(RNG.normal(size=NUM_ROWS))
    rows = gbt.Comparisons(A, B, RNG.normal(size=NUM_ROWS), weight, num_items=SIZE)
    fit = gbt.fit(gbt.Model(laws.Gaussian(0.8), 0.7), rows)
    residual = weight * (0.64 * (fit.scores[A] - fit.scores[B]) - rows.value)
    slope = np.bincount(A, residual, SIZE) - np.bincount(B, residual, SIZE)
    curvature = 0.64 * (np.bincount(A, weight, SIZE) + np.bincount(B, weight, SIZE))
    found = likelihood_intervals(fit, drop=2.5)
    root = np.sqrt(slope**2 + 2 * 2.5 * curvature)
    left, right = distances(found)
    np.testing.assert_allclose(right, (root - slope) / curvature, rtol=1e-12)
    np.testing.assert_allclose(left, (root + slope) / curvature, rtol=1e-12)
    # The prior holds scores back from where they are the most likely: one side is the longer.
    np.testing.assert_array_equal(right > left, slope < 0)


def test_published_values():
    """A test of solidago has these uncertainties of three items, equal in two comparisons."""
    rows = gbt.Comparisons([0, 0], [1, 2], [0.0, 0.0], num_items=3)
    found = likelihood_intervals(gbt.fit(gbt.Model(laws.Uniform(), 7.0), rows))
    for distance in distances(found):
        np.testing.assert_allclose(distance, [1.8, 2.7, 2.7], atol=0.1)


def test_sides_that_nothing_holds():
    """0 only wins, 3 only loses, 4 has no comparison but one of weight 0."""
    value = np.full(5, 0.3)
    rows = gbt.Comparisons([0, 0, 1, 2, 4], [1, 2, 2, 3, 0], value, [1.0, 1, 1, 1, 0], num_items=5)
    # Averages of values at the edge count as such, although rounding leaves them short of it.
    weight = np.full(15, 0.1)
    a, b = np.tile([0, 0, 1, 2, 1], 3), np.tile([1, 2, 2, 3, 3], 3)
    merged = gbt.Comparisons(a, b, np.tile(value, 3), weight, num_items=5).merge_repeats()
    assert (merged.value < 0.3).all()
    for one in (rows, merged):
        fit = gbt.fit(gbt.Model(laws.Scaled(laws.Binary(), 0.3), 3.0), one)
        found = likelihood_intervals(fit)
        np.testing.assert_array_equal(np.isfinite(found.upper), [False, True, True, True, False])
        np.testing.assert_array_equal(np.isfinite(found.lower), [True, True, True, False, False])
        assert_exact(lambda t: CGF["Binary"](mpmath.mpf(0.3) * t), fit, found)


def test_far_from_where_curvature_is_felt():
    """Values against scores that priors hold far apart: the parabolas point anywhere."""
    rows = gbt.Comparisons([0, 1, 2, 0], [1, 2, 3, 3], [1.0, -1, 1, -1], num_items=4)
    for far in (10.0, 100.0, 1e4):
        mean = np.array([far, 0, -far, 3])
        fit = gbt.fit(gbt.Model(laws.Binary(), 1.0, mean), rows)
        errors = assert_exact(CGF["Binary"], fit, likelihood_intervals(fit))
        assert errors.size == 6
        assert errors.max() < 1e-12


@pytest.mark.slow
def test_values_close_to_the_edge():
    """Scores of 1e6, held by little or nothing but the prior."""
    for short in (0.0, 1e-6, 1e-9):
        close = gbt.Comparisons(
            [0, 1, 2], [1, 2, 3], [1 - short, short - 1, 1 - short], num_items=4
        )
        fit = gbt.fit(gbt.Model(laws.Uniform(), 1e6), close)
        assert_exact(CGF["Uniform"], fit, likelihood_intervals(fit))


def test_single_precision():
    law, value = CASES["Uniform"]
    for weight in (1.0, 1e3, 1e8):
        rows = gbt.Comparisons(
            A, B, value.astype(np.float32), np.full(NUM_ROWS, weight, np.float32), num_items=SIZE
        )
        fit = gbt.fit(gbt.Model(law, 2.0), rows)
        found = likelihood_intervals(fit)
        assert found.lower.dtype == found.upper.dtype == jnp.float32
        assert assert_exact(CGF["Uniform"], fit, found).max() < 1e-2


@pytest.mark.slow
def test_tournesol_against_scipy():
    rows = tournesol_problems()[0]
    fit = gbt.fit(gbt.Model(laws.Uniform(), 7.0), rows)
    left, right = distances(likelihood_intervals(fit))
    a, b, value = (np.asarray(x) for x in (rows.a, rows.b, rows.value))
    scores = np.asarray(fit.scores)

    def loss(t, r):
        safe = np.where(t == 0, 1, np.abs(t))
        cgf = np.where(t == 0, 0, safe + np.log1p(-np.exp(-2 * safe)) - np.log(2 * safe))
        return cgf - r * t

    for item in range(0, rows.num_items, 10):
        t = np.concatenate([(scores[a] - scores[b])[a == item], (scores[b] - scores[a])[b == item]])
        r = np.concatenate([value[a == item], -value[b == item]])
        for sign, distance in ((-1, left[item]), (1, right[item])):

            def excess(s, t=t, r=r, sign=sign):
                return np.sum(loss(t + sign * s, r) - loss(t, r)) - 1

            expected = scipy.optimize.brentq(excess, 0, 1e3, xtol=1e-13)
            np.testing.assert_allclose(distance, expected, rtol=1e-9)


def test_groups_have_what_their_own_fits_have():
    """Also beside a group with a value that makes no sense, and one with a single extreme row."""
    rng = np.random.default_rng(5)
    group = np.repeat(["ada", "bob", "cyd", "dan"], [30, 20, 10, 1])
    a, b = random_pairs(9, 61, 7)
    value = np.append(rng.uniform(-0.9, 0.9, 60), 1.0)
    value[35] = 1.5
    rows = gbt.Comparisons.from_labels(a, b, value, group=group)
    fits = gbt.fit(gbt.Model(laws.Uniform(), 2.0), rows)
    found = likelihood_intervals(fits, drop=0.5)
    assert found.lower.shape == fits.scores.shape
    alone = likelihood_intervals(fits["ada"], drop=0.5)
    mine = fits.group == "ada"
    for together, part in zip(found, alone, strict=True):
        np.testing.assert_allclose(np.asarray(together)[mine], part, rtol=1e-13)
    lost = fits.group == "bob"
    assert lost.any()
    for ends in found:
        assert np.isnan(np.asarray(ends)[lost]).all()
        assert not np.isnan(np.asarray(ends)[~lost]).any()
    only_wins = fits.group == "dan"
    assert np.isfinite(np.asarray(found.upper)[only_wins]).sum() == 1
    none = gbt.Comparisons([], [], [], num_items=0, group=[])
    empty = likelihood_intervals(gbt.fit(gbt.Model(laws.Uniform()), none))
    assert all(part.shape == (0,) for part in empty)


@pytest.mark.slow
def test_other_values_and_drops_compile_nothing():
    law, traces = counting_law()
    model = gbt.Model(law(jnp.asarray(1.0)), 2.0)
    rows = gbt.Comparisons(A, B, np.linspace(-0.5, 0.5, NUM_ROWS), num_items=SIZE)
    fits = [gbt.fit(model, rows.with_values(x * rows.value)) for x in (1.0, 0.5)]
    likelihood_intervals(fits[0])
    count = len(traces)
    likelihood_intervals(fits[1], drop=2)
    assert len(traces) == count


def test_nothing_to_compare():
    """Without comparisons, or items, nothing holds a score."""
    for size in (3, 0):
        rows = gbt.Comparisons([], [], [], num_items=size)
        found = likelihood_intervals(gbt.fit(gbt.Model(laws.Binary()), rows))
        assert found.lower.shape == (size,)
        assert np.isneginf(found.lower).all()
        assert np.isposinf(found.upper).all()


def test_what_makes_no_sense_is_refused():
    rows = gbt.Comparisons([0, 1], [1, 0], [1.0, 1.0], num_items=2)
    fit = gbt.fit(gbt.Model(laws.Binary()), rows)
    for drop in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="drop must be positive and finite, not"):
            likelihood_intervals(fit, drop=drop)
    with pytest.raises(ValueError, match=r"drop must be one number, not an array of shape \(2,\)"):
        likelihood_intervals(fit, drop=[1.0, 2.0])
    with pytest.raises(TypeError, match="a Fit is needed, not Model"):
        likelihood_intervals(fit.model)  # pyright: ignore
    lost = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows.with_values([1.0, -1.0]), throw=False)
    with pytest.raises(ValueError, match=r"did not find the optimum \(no_finite_optimum\)"):
        likelihood_intervals(lost)
