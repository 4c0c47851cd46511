"""Parameters of a law per comparison: they stay with their rows wherever rows go.

References are independent of the package: the closed form of the Gaussian law, SciPy, and a Newton
method in NumPy for Davidson's law (`davidson_scores`). For the Gaussian law there is also an
equivalent problem with one parameter for all rows (`gaussian_pair`).
"""

import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from problems import incidence, random_pairs

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._inference._fit import select_groups

ITEMS, ROWS = 10, 30
A, B = random_pairs(ITEMS, ROWS, seed=3)
RNG = np.random.default_rng(5)
TIE_MASS = RNG.uniform(0.2, 4.0, ROWS)
SCALE = RNG.uniform(0.4, 3.0, ROWS)
WEIGHT = RNG.uniform(0.5, 2.0, ROWS)
TERNARY = RNG.integers(-1, 2, ROWS).astype(float)
STD = 1.5


def comparisons(value, weight=WEIGHT, rows=slice(None), num_items=ITEMS):
    columns = (np.asarray(x)[rows] for x in (A, B, value, weight))
    return gbt.Comparisons(*columns, num_items=num_items)


def davidson_derivatives(t, nu):
    whole = nu + 2 * np.cosh(t)
    mean = 2 * np.sinh(t) / whole
    return mean, (2 * nu * np.cosh(t) + 4) / whole**2


def davidson_system(value=TERNARY, weight=WEIGHT, nu=TIE_MASS, a=A, b=B):
    """(scores, Hessian) by Newton's method in NumPy."""
    matrix = np.zeros((len(a), ITEMS))
    matrix[np.arange(len(a)), a] += 1
    matrix[np.arange(len(a)), b] -= 1
    theta = np.zeros(ITEMS)
    for _ in range(50):
        mean, variance = davidson_derivatives(matrix @ theta, nu)
        hessian = np.eye(ITEMS) / STD**2 + matrix.T @ ((weight * variance)[:, None] * matrix)
        theta = theta - np.linalg.solve(
            hessian, theta / STD**2 + matrix.T @ (weight * (mean - value))
        )
    return theta, hessian


def davidson_scores(**changes):
    return davidson_system(**changes)[0]


@pytest.fixture(scope="module")
def davidson():
    return gbt.fit(gbt.Model(laws.Davidson(TIE_MASS), STD), comparisons(TERNARY))


@pytest.fixture(scope="module")
def gaussian_pair():
    """A fit with a standard deviation per row, and an equivalent one with 1 for all.

    w (s² t²/2 − r t) = w s² (t²/2 − (r/s²) t).
    """
    value, weight = RNG.normal(size=ROWS), WEIGHT.copy()
    weight[[4, 17]] = 0
    own = gbt.fit(gbt.Model(laws.Gaussian(SCALE), STD), comparisons(value, weight))
    same = comparisons(value / SCALE**2, weight * SCALE**2)
    return own, gbt.fit(gbt.Model(laws.Gaussian(1.0), STD), same)


@pytest.mark.parametrize("num_rows", [4095, 4096, 20_000])
def test_gaussian_closed_form_in_any_order(num_rows):
    rng = np.random.default_rng(0)
    a = np.sort(rng.integers(0, 40, num_rows))
    b = (a + 1 + rng.integers(0, 39, num_rows)) % 40
    value, weight = rng.normal(size=num_rows), rng.uniform(0.5, 2, num_rows)
    std = rng.uniform(0.3, 3, num_rows)
    matrix = incidence(gbt.Comparisons(a, b, value, num_items=40))
    hessian = np.eye(40) / STD**2 + matrix.T @ ((weight * std**2)[:, None] * matrix)
    expected = np.linalg.solve(hessian, matrix.T @ (weight * value))
    everything = np.arange(num_rows)
    for order in (everything, everything[::-1], rng.permutation(num_rows)):
        rows = gbt.Comparisons(a[order], b[order], value[order], weight[order], num_items=40)
        fit = gbt.fit(gbt.Model(laws.Gaussian(std[order]), STD), rows)
        np.testing.assert_allclose(fit.scores, expected, rtol=1e-11, atol=1e-12)
        assert np.linalg.norm(fit.scores - expected) <= fit.error_bound + 1e-12


def _log_sinhc(x):
    x = np.where(np.abs(x) < 1e-9, 1e-9, np.abs(x))
    return x + np.log1p(-np.exp(-2 * x)) - np.log(2 * x)


SCIPY_CASES = {
    "Scaled": (
        lambda p: laws.Scaled(laws.Uniform(), p),
        lambda t, p: _log_sinhc(p * t),
        SCALE * RNG.uniform(-0.9, 0.9, ROWS),
    ),
    "Davidson": (
        laws.Davidson,
        lambda t, p: np.log((p + 2 * np.cosh(t)) / (p + 2)),
        TERNARY,
    ),
    "Skellam": (
        laws.Skellam,
        lambda t, p: p * (np.cosh(t) - 1),
        RNG.integers(-3, 4, ROWS).astype(float),
    ),
}


@pytest.mark.parametrize("name", SCIPY_CASES)
def test_scores_are_what_scipy_finds(name):
    make, cgf, value = SCIPY_CASES[name]
    rows = comparisons(value)
    matrix = incidence(rows)

    def loss(theta):
        t = matrix @ theta
        return theta @ theta / (2 * STD**2) + np.sum(WEIGHT * (cgf(t, SCALE) - value * t))

    found = scipy.optimize.minimize(loss, np.zeros(ITEMS), method="BFGS", options={"gtol": 1e-7})
    model = gbt.Model(make(SCALE), STD)
    fit = gbt.fit(model, rows)
    np.testing.assert_allclose(fit.scores, found.x, atol=2e-6)
    np.testing.assert_allclose(
        gbt.negative_log_posterior(model, rows, fit.scores), loss(np.asarray(fit.scores)), rtol=1e-9
    )
    order = np.random.default_rng(1).permutation(ROWS)
    permuted = gbt.fit(gbt.Model(make(SCALE[order]), STD), comparisons(value, rows=order))
    np.testing.assert_allclose(permuted.scores, fit.scores, rtol=1e-12, atol=1e-13)


def test_derivatives_in_parameters_per_row(davidson):
    rows, model = davidson.comparisons, davidson.model

    def scores(nu):
        return gbt.map_scores(gbt.Model(laws.Davidson(nu), STD), rows)

    def reference(nu):
        return davidson_scores(nu=nu)

    nu, step = TIE_MASS, 1e-4
    np.testing.assert_allclose(scores(jnp.asarray(nu)), reference(nu), rtol=1e-11, atol=1e-12)
    units = step * np.eye(ROWS)
    central = np.stack([reference(nu + e) - reference(nu - e) for e in units], 1) / (2 * step)
    jacobian = jax.jacfwd(scores)(jnp.asarray(nu))
    np.testing.assert_allclose(jacobian, central, atol=1e-8)
    gradient = jax.grad(lambda nu: jnp.sum(jnp.sin(scores(nu))))(jnp.asarray(nu))
    np.testing.assert_allclose(gradient, np.cos(reference(nu)) @ central, atol=1e-7)
    second = jax.hessian(lambda nu: scores(nu)[0])(jnp.asarray(nu))
    slopes = jax.jacfwd(lambda nu: scores(nu)[0])
    for row in (0, 13):
        change = slopes(jnp.asarray(nu + units[row])) - slopes(jnp.asarray(nu - units[row]))
        np.testing.assert_allclose(second[row], change / (2 * step), atol=1e-7)
    found = gbt.sensitivity(davidson, wrt="law").tie_mass
    np.testing.assert_allclose(found, central, atol=1e-8)
    some = gbt.sensitivity(davidson, wrt="law", comparisons=[7, 2], items=[3, 1]).tie_mass
    np.testing.assert_allclose(some, central[np.ix_([3, 1], [7, 2])], atol=1e-8)
    assert model.law.num_rows == ROWS


def test_sensitivity_to_shared_parameters_beside_those_of_rows():
    values, masses = np.array([-1.0, -0.5, 0.5, 1.0]), np.array([1.0, 2.0, 2.0, 1.0])

    def make(scale, masses):
        return gbt.Model(laws.Scaled(laws.Finite(values, masses), scale), STD)

    # Averages of repeats: they need not be values that a comparison takes when scales are moved.
    inside = SCALE * RNG.uniform(-0.9, 0.9, ROWS)
    rows = gbt.Comparisons(A, B, inside, WEIGHT, num_items=ITEMS, is_merged=True)
    found = gbt.sensitivity(gbt.fit(make(SCALE, masses), rows), wrt="law")
    assert found.law.probabilities.shape == (ITEMS, 4)

    def scores(scale, shift):
        # As the law keeps them: normalised probabilities, the first of which is moved.
        law = make(scale, masses).law
        moved = law.law.probabilities.at[0].add(shift)
        law = jax.tree.map(lambda x: moved if x is law.law.probabilities else x, law)
        return gbt.map_scores(gbt.Model(law, STD), rows)

    step = 1e-5
    by_mass = (scores(SCALE, step) - scores(SCALE, -step)) / (2 * step)
    np.testing.assert_allclose(found.law.probabilities[:, 0], by_mass, atol=1e-7)
    unit = step * np.eye(ROWS)[6]
    by_scale = (scores(SCALE + unit, 0.0) - scores(SCALE - unit, 0.0)) / (2 * step)
    np.testing.assert_allclose(found.scale[:, 6], by_scale, atol=1e-7)


def test_uncertainty_and_sensitivity(davidson):
    theta, hessian = davidson_system()
    inverse = np.linalg.inv(hessian)
    np.testing.assert_allclose(gbt.std(davidson), np.sqrt(np.diag(inverse)), rtol=1e-10)
    half = scipy.stats.norm.ppf(0.975) * np.sqrt(np.diag(inverse))
    np.testing.assert_allclose(gbt.intervals(davidson).upper, theta + half, rtol=1e-9, atol=1e-10)
    some, step = np.array([11, 2, 20]), 1e-4
    by_weight = []
    for row in some:
        ends = [
            davidson_scores(weight=WEIGHT + sign * step * np.eye(ROWS)[row]) for sign in (1, -1)
        ]
        by_weight.append((ends[0] - ends[1]) / (2 * step))
    found = gbt.sensitivity(davidson, wrt="weight", comparisons=some)
    np.testing.assert_allclose(found, np.stack(by_weight, 1), atol=1e-8)
    found = gbt.sensitivity(davidson, comparisons=some)
    expected = WEIGHT[some] * (inverse[:, A[some]] - inverse[:, B[some]])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    variance = davidson_derivatives(theta[A] - theta[B], TIE_MASS)[1]
    responses = gbt.influence.response_sensitivity(davidson)
    np.testing.assert_allclose(responses[np.arange(ROWS), A], variance, rtol=1e-9)


def test_influence_is_that_of_refits(davidson):
    # So few rows that all of them are in the refined problem: exact, not an approximation.
    before = davidson_scores()
    some = np.array([8, 0, 25])

    def change(rows):
        kept = np.setdiff1d(np.arange(ROWS), rows)
        parts = {"value": TERNARY, "weight": WEIGHT, "nu": TIE_MASS, "a": A, "b": B}
        return davidson_scores(**{name: x[kept] for name, x in parts.items()}) - before

    expected = np.stack([change([row]) for row in some], 1)
    found = gbt.influence.leave_out(davidson, comparisons=some)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    np.testing.assert_allclose(
        gbt.influence.leave_out(davidson, comparisons=some, exact=True), expected, atol=1e-10
    )
    groups = np.arange(ROWS) % 3
    by_group = np.stack([change(np.flatnonzero(groups == g)) for g in range(3)], 1)
    np.testing.assert_allclose(
        gbt.influence.leave_out(davidson, groups=groups), by_group, atol=1e-7
    )


def test_what_if_takes_the_law_of_added_comparisons(davidson):
    value, own = np.array([1.0, 0.0]), np.array([0.3, 5.0])
    added = gbt.Comparisons([0, 4], [1, 2], value, num_items=ITEMS)
    expected = davidson_scores(
        value=np.append(TERNARY, value),
        weight=np.append(WEIGHT, [1.0, 1.0]),
        nu=np.append(TIE_MASS, own),
        a=np.append(A, [0, 4]),
        b=np.append(B, [1, 2]),
    )
    answer = gbt.what_if(davidson, added=added, added_law=laws.Davidson(own))
    np.testing.assert_allclose(answer.fit.scores, expected, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(answer.predicted, answer.change, atol=0.1)
    # A scalar fit may get rows with other parameters too.
    one = gbt.fit(gbt.Model(laws.Davidson(1.0), STD), davidson.comparisons)
    answer = gbt.what_if(one, added=added, added_law=laws.Davidson(2.0))
    law = answer.fit.model.law
    np.testing.assert_array_equal(law.tie_mass, np.append(np.ones(ROWS), [2.0, 2.0]))
    with pytest.raises(ValueError, match=r"for each of the fit's 30 comparisons.*added_law="):
        gbt.what_if(davidson, added=added)
    with pytest.raises(ValueError, match=r"parameters for 3 comparisons, .* shape \(2,\)"):
        gbt.what_if(davidson, added=added, added_law=laws.Davidson([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="Binary cannot be added to Davidson"):
        gbt.what_if(davidson, added=added, added_law=laws.Binary())
    with pytest.raises(ValueError, match="none are added"):
        gbt.what_if(davidson, removed=[0], added_law=laws.Davidson(1.0))


def test_new_comparisons_need_a_law(davidson):
    with pytest.raises(ValueError, match=r"none for new ones: give .* law=Davidson"):
        gbt.predict(davidson, 0, 1)
    with pytest.raises(ValueError, match="none for new ones"):
        gbt.check_new_comparison(davidson, 0, 1)
    with pytest.raises(ValueError, match="none for new ones"):
        gbt.calibration(davidson, davidson.comparisons)
    with pytest.raises(ValueError, match=r"for 2 comparisons, and the new ones have shape \(\)"):
        gbt.predict(davidson, 0, 1, law=laws.Davidson([1.0, 2.0]))
    with pytest.raises(TypeError, match="law must be a root law, not float"):
        gbt.predict(davidson, 0, 1, law=1.0)
    report = gbt.check_new_comparison(davidson, 0, 1, law=laws.Davidson(0.6))
    t = float(davidson.scores[0] - davidson.scores[1])
    neutral = float(davidson_derivatives(t, 0.6)[0])
    assert report.holds
    np.testing.assert_allclose(report.numbers["value that changes nothing"], neutral, rtol=1e-9)


def test_predictions_have_the_law_of_their_row(davidson):
    a, b, own = np.array([0, 3, 5]), np.array([1, 2, 9]), np.array([0.1, 1.0, 8.0])
    together = gbt.predict(davidson, a, b, law=laws.Davidson(own))
    for row in range(3):
        alone = gbt.predict(davidson, a[row], b[row], law=laws.Davidson(own[row]))
        np.testing.assert_allclose(together.mean[row], alone.mean, rtol=1e-12)
        np.testing.assert_allclose(together.variance[row], alone.variance, rtol=1e-12)
        for value in (-1.0, 0.0):
            np.testing.assert_allclose(
                together.log_prob(value)[row], alone.log_prob(value), rtol=1e-11
            )
    by_value = together.log_prob(np.array([[-1.0], [0.0], [1.0]]))
    np.testing.assert_allclose(np.exp(by_value).sum(axis=0), 1, rtol=1e-9)
    drawn = together.sample(key=jax.random.key(0), shape=(20_000,))
    np.testing.assert_allclose(drawn.mean(axis=0), together.mean, atol=0.03)


def test_gaussian_predictions_and_calibration(gaussian_pair):
    fit = gaussian_pair[0]
    own, rng = SCALE[:8], np.random.default_rng(2)
    a, b, weight = A[:8], B[:8], np.array([1.0, 1, 0, 1, 1, 1, 0, 1])
    value = rng.normal(size=8)
    held_out = gbt.Comparisons(a, b, value, weight, num_items=ITEMS)
    t, v = (
        np.asarray(fit.scores[a] - fit.scores[b]),
        np.asarray(gbt.uncertainty.difference_std(fit, a, b)) ** 2,
    )
    spread = np.sqrt(own**2 + own**4 * v)
    expected = scipy.stats.norm.logpdf(value, own**2 * t, spread)
    found = gbt.calibration(fit, held_out, bins=2, law=laws.Gaussian(own))
    np.testing.assert_allclose(found.log_score, expected[weight > 0].mean(), rtol=1e-9)
    roots = scipy.stats.norm.logpdf(value, 0, own)
    np.testing.assert_allclose(found.root_log_score, roots[weight > 0].mean(), rtol=1e-9)
    squares = (own**2 + own**4 * v)[weight > 0]
    np.testing.assert_allclose(found.expected_squared_error, squares.mean(), rtol=1e-9)


def test_consequences_of_an_equivalent_problem(gaussian_pair):
    own, same = gaussian_pair
    close = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(own.scores, same.scores, **close)
    np.testing.assert_allclose(
        gbt.uncertainty.covariance(own), gbt.uncertainty.covariance(same), **close
    )
    for ours, theirs in zip(
        *(gbt.uncertainty.profile_intervals(x) for x in gaussian_pair), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)
    for ours, theirs in zip(
        *(gbt.uncertainty.likelihood_intervals(x) for x in gaussian_pair), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, **close)
    drawn = [gbt.uncertainty.bootstrap(x, 8, key=jax.random.key(1)) for x in gaussian_pair]
    np.testing.assert_allclose(*drawn, atol=2e-3)
    assert np.std(np.asarray(drawn[0])) > 0.1  # the draws differ by far more than that
    first, second = np.argsort(-np.asarray(own.scores))[:2]
    flips = [gbt.influence.flip_set(x, int(first), int(second)) for x in gaussian_pair]
    np.testing.assert_array_equal(flips[0].rows, flips[1].rows)
    assert flips[0].is_found
    reports = [gbt.check_monotone(x) for x in gaussian_pair]
    np.testing.assert_allclose(reports[0].margin, reports[1].margin, rtol=1e-8)
    assert not gbt.check_resilience(own).holds


def test_robust_covariance_of_the_formula(gaussian_pair):
    fit = gaussian_pair[0]
    rows, matrix = fit.comparisons, incidence(fit.comparisons)
    weight, value = np.asarray(rows.weight), np.asarray(rows.value)
    residual = value - SCALE**2 * (matrix @ np.asarray(fit.scores))
    hessian = np.eye(ITEMS) / STD**2 + matrix.T @ ((weight * SCALE**2)[:, None] * matrix)
    inverse = np.linalg.inv(hessian)
    middle = matrix.T @ ((weight * residual**2)[:, None] * matrix)
    np.testing.assert_allclose(
        gbt.uncertainty.robust_covariance(fit), inverse @ middle @ inverse, rtol=1e-9, atol=1e-12
    )


def test_likelihood_intervals_of_each_row_s_law(davidson):
    found, theta = gbt.uncertainty.likelihood_intervals(davidson), davidson_scores()
    item = int(np.argmax(np.bincount(np.append(A, B))))
    sign = np.where(item == A, 1.0, -1.0)[(item == A) | (item == B)]
    rows = np.flatnonzero((item == A) | (item == B))
    t, r = sign * (theta[A] - theta[B])[rows], sign * TERNARY[rows]
    nu, weight = TIE_MASS[rows], WEIGHT[rows]

    def rise(s):
        change = np.log((nu + 2 * np.cosh(t + s)) / (nu + 2 * np.cosh(t)))
        return np.sum(weight * (change - r * s)) - 1

    right, left = found.upper[item] - found.estimate[item], found.lower[item] - found.estimate[item]
    np.testing.assert_allclose(right, scipy.optimize.brentq(rise, 1e-9, 50), rtol=1e-9)
    np.testing.assert_allclose(left, scipy.optimize.brentq(rise, -50, -1e-9), rtol=1e-9)


def test_monotone_by_steps_of_each_row(davidson):
    before = davidson_scores()
    rises = []
    for row in range(TERNARY.size):
        step = 1 if TERNARY[row] < 1 else -1  # a value at the top is lowered
        value = TERNARY.copy()
        value[row] += step
        moved = step * (davidson_scores(value=value) - before)
        rises.append(min(moved[A[row]], -moved[B[row]]))
    report = gbt.check_monotone(davidson)
    assert report.holds
    assert report.checked == len(rises)
    np.testing.assert_allclose(report.margin, min(rises), rtol=1e-7)
    # Steps are those of each row: of size s under Scaled(·, s).
    law = laws.Scaled(laws.Davidson(TIE_MASS), SCALE)
    scaled = gbt.fit(gbt.Model(law, STD), comparisons(SCALE * TERNARY))
    report = gbt.check_monotone(scaled)
    assert report.holds
    assert report.checked == len(rises)


def test_edges_of_each_row():
    law = laws.Scaled(laws.Uniform(), SCALE)
    value = 0.9 * SCALE * np.where(np.arange(ROWS) % 2, 1, -1)
    fit = gbt.fit(gbt.Model(law, STD), comparisons(value))
    report = gbt.check_resilience(fit)
    assert report.holds
    np.testing.assert_allclose(report.numbers["bound"], 2 * np.sqrt(2) * SCALE.max() * STD**2)
    change = gbt.influence.required_change(fit, 2, 0.3)
    changed = np.asarray(value + change.change)
    assert np.all(np.abs(changed) <= SCALE * (1 + 1e-12))
    assert np.any(np.isclose(np.abs(changed), SCALE))  # the edge is reached, and not passed
    np.testing.assert_allclose(change.achieved, 0.3, atol=0.1)
    outside = value.copy()
    outside[12] = SCALE[12] * 1.01
    assert outside[12] < SCALE.max()
    message = rf"value\[12\] is .* Scaled cannot produce: its values lie in \[−{SCALE[12]:.3g}"
    with pytest.raises(ValueError, match=message):
        gbt.fit(gbt.Model(law, STD), comparisons(outside))


def test_separation_under_edges_of_each_row():
    # Item 0 wins every comparison: each by the most that its own row allows.
    scale = np.array([0.5, 2.0, 1.0, 3.0, 0.7])
    a, b = np.array([0, 0, 1, 2, 1]), np.array([1, 2, 2, 3, 3])
    sign = np.array([1.0, 1, -0.2, 0.1, 0.3])
    rows = gbt.Comparisons(a, b, scale * sign, num_items=4)
    model = gbt.Model(laws.Scaled(laws.Uniform(), scale), prior_std=np.inf)
    with pytest.raises(gbt.FitError, match="Items with no bound: 0"):
        gbt.fit(model, rows)
    assert np.isnan(gbt.map_scores(model, rows)).all()  # found under tracing too
    inside = rows.with_values(scale * np.where(sign == 1, 0.9, sign))
    scores = gbt.fit(model, inside).scores
    slack = laws.Scaled(laws.Uniform(), scale).mean(scores[a] - scores[b]) - inside.value
    balance = np.zeros(4)
    np.add.at(balance, a, np.asarray(slack))
    np.add.at(balance, b, -np.asarray(slack))
    np.testing.assert_allclose(balance, 0, atol=1e-10)


GROUPS, PER_GROUP = 12, 12


@pytest.fixture(scope="module")
def many():
    """Columns of groups with 12 rows of 5 items each, in a random order, and a fit of them."""
    rng = np.random.default_rng(8)
    pairs = [(i, j) for i in range(5) for j in range(i)]
    a, b = np.array((pairs + pairs[:2]) * GROUPS).T
    group = np.repeat(np.arange(GROUPS), PER_GROUP)
    order = rng.permutation(group.size)
    group, a, b = columns = [x[order] for x in (group, a, b)]
    nu, scale = rng.uniform(0.2, 4, group.size), rng.uniform(0.5, 2, group.size)
    value = scale * rng.integers(-1, 2, group.size)
    data = gbt.Comparisons(a, b, value, num_items=5, group=group)
    model = gbt.Model(laws.Scaled(laws.Davidson(nu), scale), STD)
    return columns, nu, scale, value, data, gbt.fit(model, data)


def _alone(many, label):
    columns, nu, scale, value, _, _ = many
    own = np.flatnonzero(columns[0] == label)
    rows = gbt.Comparisons(columns[1][own], columns[2][own], value[own], num_items=5)
    law = laws.Scaled(laws.Davidson(nu[own]), scale[own])
    return own, gbt.fit(gbt.Model(law, STD), rows)


def test_groups_are_single_fits(many):
    _, nu, scale, _, data, fits = many
    widths, ends = gbt.std(fits), gbt.uncertainty.likelihood_intervals(fits)
    part = select_groups(fits, 3, 7)
    part_widths = np.asarray(gbt.std(part)).reshape(4, 5)
    for label in range(GROUPS):
        own, alone = _alone(many, label)
        slots = slice(5 * label, 5 * label + 5)
        np.testing.assert_allclose(fits.scores[slots], alone.scores, rtol=1e-10, atol=1e-11)
        np.testing.assert_array_equal(fits[label].model.law.scale, scale[own])
        np.testing.assert_array_equal(fits[label].model.law.law.tie_mass, nu[own])
        np.testing.assert_allclose(widths[slots], gbt.std(alone), rtol=1e-9)
        np.testing.assert_allclose(gbt.std(fits[label]), gbt.std(alone), rtol=1e-9)
        expected = gbt.uncertainty.likelihood_intervals(alone)
        np.testing.assert_allclose(ends.upper[slots], expected.upper, rtol=1e-8)
        if 3 <= label < 7:
            np.testing.assert_allclose(part_widths[label - 3], gbt.std(alone), rtol=1e-9)
    refitted = gbt.fit(part.model, part.comparisons)
    np.testing.assert_allclose(refitted.scores, fits.scores[15:35], rtol=1e-12, atol=1e-13)
    report = gbt.check_monotone(fits)
    assert report.holds
    singles = [gbt.check_monotone(fits[label]) for label in (0, 5)]
    assert report.margin <= min(single.margin for single in singles) + 1e-9
    assert report.checked == data.value.size


def test_groups_on_several_devices(many):
    # As many groups as two devices share, each device with a chunk and its rows' parameters.
    (group, a, b), copies = many[0], 30
    owner = np.concatenate([group + GROUPS * k for k in range(copies)])
    rng = np.random.default_rng(3)
    scale, sign = rng.uniform(0.5, 2, owner.size), rng.integers(-1, 2, owner.size)
    ends = np.tile(a, copies), np.tile(b, copies)
    data = gbt.Comparisons(*ends, scale * sign, num_items=5, group=owner)
    model = gbt.Model(laws.Scaled(laws.Davidson(0.8), scale), STD)
    axis_types = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((2,), ("groups",), axis_types, devices=jax.devices()[:2])
    sharded, plain = gbt.fit(model, data, sharding=mesh), gbt.fit(model, data)
    assert not sharded.failures()
    np.testing.assert_allclose(sharded.scores, plain.scores, rtol=1e-10, atol=1e-11)


def test_derivatives_of_groups_in_parameters_per_row(many):
    _, nu, scale, _, data, _ = many

    def total(scale):
        model = gbt.Model(laws.Scaled(laws.Davidson(nu), scale), STD)
        return jnp.sum(jnp.sin(gbt.map_scores(model, data)))

    gradient = jax.grad(total)(jnp.asarray(scale))
    for label in (0, 7):
        own, alone = _alone(many, label)
        slopes = gbt.sensitivity(alone, wrt="law").scale
        np.testing.assert_allclose(gradient[own], jnp.cos(alone.scores) @ slopes, atol=1e-9)


def test_bad_rows_of_groups_are_found_by_their_own_law(many):
    columns, _, _, value, data, fits = many
    wrong = value.copy()
    row = int(np.flatnonzero((value != 0) & (columns[0] == 4))[-1])  # others are before it
    wrong[row] = 1.001 * value[row]
    bad = gbt.fit(fits.model, data.with_values(wrong))
    assert list(bad.failures()) == [4]
    assert bad[4].result == gbt.RESULTS.invalid_data
    assert re.match(rf"row {row} compares \d with \d", bad.failures()[4])
    assert len(fits.failures()) == 0


CONSTANT = {
    "Davidson": (lambda p: laws.Davidson(0.8 * p), TERNARY),
    "Scaled": (lambda p: laws.Scaled(laws.Uniform(), 1.3 * p), RNG.uniform(-1.2, 1.2, ROWS)),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_equal_parameters_are_one_parameter(name):
    make, value = CONSTANT[name]
    rows = comparisons(value)
    one, each = (gbt.fit(gbt.Model(make(p), STD), rows) for p in (np.ones(()), np.ones(ROWS)))
    key, new = jax.random.key(0), make(np.ones(()))
    first, second = np.argsort(-np.asarray(one.scores))[:2].tolist()
    answers = []
    for fit in (one, each):
        answers.append(
            {
                "scores": fit.scores,
                "intervals": gbt.intervals(fit),
                "weights": gbt.sensitivity(fit, wrt="weight"),
                "prior": gbt.sensitivity(fit, wrt="prior_std"),
                "influence": gbt.influence.leave_out(fit, comparisons=[3, 1]),
                "profile": gbt.uncertainty.profile_intervals(fit, [0, 4]),
                "robust": gbt.uncertainty.robust_covariance(fit, groups=np.arange(ROWS) % 4),
                "mean": gbt.predict(fit, 0, 1, law=new).mean,
                "score": gbt.calibration(fit, rows, law=new, bins=2).statistic,
                "monotone": gbt.check_monotone(fit, rows=[0, 5, 6]).margin,
                "resilience": gbt.check_resilience(fit).margin,
                "flips": gbt.influence.flip_set(fit, first, second, by="reversal").rows,
                "change": gbt.influence.required_change(fit, 0, 0.05).change,
                "draws": gbt.uncertainty.posterior_samples(fit, 3, key=key),
            }
        )
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-8), answers[0], answers[1]
    )
    by_row = gbt.sensitivity(each, wrt="law")
    shared = gbt.sensitivity(one, wrt="law")
    for x, y in zip(jax.tree.leaves(by_row), jax.tree.leaves(shared), strict=True):
        np.testing.assert_allclose(x.sum(axis=1), y, rtol=1e-8, atol=1e-10)


def test_lengths_are_checked(many):
    rows, data = comparisons(TERNARY), many[4]
    wrong = gbt.Model(laws.Davidson(np.ones(ROWS - 1)), STD)
    message = r"tie_mass of Davidson has 29 numbers, and there are 30 comparisons"
    for call in (gbt.fit, gbt.map_scores, gbt.uncertainty.log_posterior):
        with pytest.raises(ValueError, match=message):
            call(wrong, rows)
    with pytest.raises(ValueError, match=message):
        gbt.negative_log_posterior(wrong, rows, np.zeros(ITEMS))
    with pytest.raises(ValueError, match="has 29 numbers, and there are 144 comparisons"):
        gbt.fit(wrong, data)
    with pytest.raises(ValueError, match=r"law.std of Scaled has 2 numbers.*merged row"):
        gbt.fit(gbt.Model(laws.Scaled(laws.Gaussian([1.0, 2.0]), 1.0)), rows.merge_repeats())
    unequal = laws.Sum(laws.Gaussian(np.ones(3)), laws.Skellam(np.ones(2)))
    with pytest.raises(ValueError, match=r"first.std has 3, second.rate has 2"):
        gbt.fit(gbt.Model(unequal), rows)
    with pytest.raises(ValueError, match=r"std of Gaussian has shape \(2, 15\)"):
        gbt.fit(gbt.Model(laws.Gaussian(np.ones((2, 15)))), rows)
    with pytest.raises(ValueError, match="a table needs one law for all rows"):
        gbt.frames.law_named(laws.Gaussian(np.ones(3)))


class Mixture(laws.AbstractRootLaw):
    """Normal differences of several widths, equally often."""

    widths: jax.Array = laws.table()

    def cgf(self, t):
        exponents = 0.5 * jnp.square(self.widths * jnp.asarray(t)[..., None])
        return jax.nn.logsumexp(exponents, axis=-1) - jnp.log(self.widths.size)


class Undeclared(laws.AbstractRootLaw):
    """The same without the declaration."""

    widths: jax.Array

    def cgf(self, t):
        exponents = 0.5 * jnp.square(self.widths * jnp.asarray(t)[..., None])
        return jax.nn.logsumexp(exponents, axis=-1) - jnp.log(self.widths.size)


class Wide(laws.AbstractRootLaw):
    """A law of one's own with a parameter per comparison."""

    width: jax.Array

    def cgf(self, t):
        return 0.5 * jnp.square(self.width * jnp.asarray(t))


def test_tables_are_declared_and_never_guessed():
    # As many values as comparisons, on purpose.
    rows = gbt.Comparisons([0, 1, 0], [1, 2, 2], [1.0, 0.0, -1.0], num_items=3)
    law = laws.Finite([-1.0, 0.0, 1.0], [1.0, 0.7, 1.0])
    assert law.num_rows is None
    assert law.at_rows(np.array([2, 0])) is law
    expected = gbt.fit(gbt.Model(laws.Davidson(0.7)), rows).scores
    np.testing.assert_allclose(gbt.fit(gbt.Model(law), rows).scores, expected, atol=1e-13)
    widths = jnp.asarray([0.5, 1.0, 2.0])
    mixture = Mixture(widths)
    assert mixture.num_rows is None
    scores = gbt.fit(gbt.Model(mixture), rows).scores
    slopes = np.asarray(mixture.mean(scores[rows.a] - scores[rows.b]) - rows.value)
    np.testing.assert_allclose(incidence(rows).T @ slopes, -scores, atol=1e-12)
    with pytest.raises(ValueError, match=r"widths of Undeclared .* gbt_jax\.laws\.table"):
        gbt.Model(Undeclared(widths))
    fit = gbt.fit(gbt.Model(Wide(widths)), rows)
    same = gbt.fit(gbt.Model(laws.Gaussian(widths)), rows)
    np.testing.assert_allclose(fit.scores, same.scores, atol=1e-13)
    with pytest.raises(ValueError, match="Wide of row 1 is not convex"):
        gbt.Model(Wide(jnp.asarray([1.0, 0.0, 2.0])))


def _each_law():
    p = np.linspace(0.4, 2.0, 5)
    uniform, finite = laws.Uniform(), laws.Finite([-1.0, 0.0, 1.0], [1.0, 2.0, 1.0])
    return {
        "Gaussian": (laws.Gaussian, p),
        "Skellam": (laws.Skellam, p),
        "SymmetrizedPoisson": (laws.SymmetrizedPoisson, p),
        "Beta": (laws.Beta, p),
        "Davidson": (laws.Davidson, np.append(0.0, p[1:])),
        "Scaled": (lambda x: laws.Scaled(laws.Davidson(x), x), p),
        "Finite": (lambda x: laws.Scaled(finite, x), p),
        "Sum": (lambda x: laws.Sum(laws.Davidson(x), laws.Scaled(laws.Binary(), x)), p),
        "two densities": (lambda x: laws.Sum(laws.Scaled(uniform, x), laws.Beta(x)), p),
    }


@pytest.mark.parametrize("name", _each_law())
def test_every_method_is_that_of_each_row(name):
    make, parameters = _each_law()[name]
    law, each = make(jnp.asarray(parameters)), [make(x) for x in parameters]
    t = jnp.linspace(-1, 1.5, 5)
    assert law.num_rows == 5
    value = law.sample(t, key=jax.random.key(1))
    methods = {"cgf": t, "mean": t, "variance": t, "in_support": value, "log_root": value}
    if law.is_discrete:
        methods |= {"step_up": value, "step_down": value}
    lanes = law.at_rows(np.arange(5)[:, None])
    picked = law.at_rows(np.array([3, 3, 0]))
    for method, argument in methods.items():
        expected = [getattr(one, method)(x) for one, x in zip(each, argument, strict=True)]
        np.testing.assert_allclose(
            getattr(law, method)(argument), expected, rtol=1e-12, err_msg=method
        )
        twice = jnp.stack([argument, argument], axis=1)
        np.testing.assert_allclose(getattr(lanes, method)(twice)[:, 1], expected, rtol=1e-12)
        some = getattr(picked, method)(argument[np.array([3, 3, 0])])
        np.testing.assert_allclose(some, np.asarray(expected)[[3, 3, 0]], rtol=1e-12)
    expected = [one.log_prob(v, x) for one, v, x in zip(each, value, t, strict=True)]
    np.testing.assert_allclose(law.log_prob(value, t), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(law.inverse_mean(law.mean(t)), t, rtol=1e-8, atol=1e-9)
    drawn = law.sample(0.3, key=jax.random.key(0), shape=(4000,))
    assert drawn.shape == (4000, 5)
    error = np.sqrt(law.variance(0.3) / 4000)
    assert np.all(np.abs(drawn.mean(axis=0) - law.mean(0.3)) < 5 * error)


def test_simulated_comparisons_have_the_law_of_their_row():
    count = 70_000  # more than one block of draws, the last one padded
    std = np.where(np.arange(count) % 7 == 3, 1e6, 1e-6)
    pairs = random_pairs(6, count)
    drawn = gbt.simulate.comparisons(laws.Gaussian(std), np.zeros(6), pairs, key=jax.random.key(0))
    size = np.abs(np.asarray(drawn.value))
    assert np.all((size > 1) == (std > 1))
    with pytest.raises(ValueError, match="parameters for 4 comparisons, and there are 70000"):
        gbt.simulate.comparisons(
            laws.Gaussian(np.ones(4)), np.zeros(6), pairs, key=jax.random.key(0)
        )


@pytest.mark.parametrize("nu", [0.0, 1e-3, 0.7, 1e6])
def test_davidson_in_its_tie_mass(nu):
    # ∂Φ/∂ν, ∂Φ'/∂ν and ∂Φ''/∂ν with 50 digits.
    points = np.array([0.0, 1e-8, -0.3, 1.0, 5.0, 20.0, 100.0, -300.0])
    orders = [
        lambda nu, t: laws.Davidson(nu).cgf(t),
        lambda nu, t: laws.Davidson(nu).mean(t),
        lambda nu, t: laws.Davidson(nu).variance(t),
    ]
    with mpmath.workdps(50):
        exact = []
        for t in map(mpmath.mpf, points):
            whole = nu + 2 * mpmath.cosh(t)
            sinh, cosh = mpmath.sinh(t), mpmath.cosh(t)
            exact.append(
                (
                    1 / whole - 1 / (mpmath.mpf(nu) + 2),
                    -2 * sinh / whole**2,
                    (4 * cosh**2 - 2 * nu * cosh - 8) / whole**3,
                )
            )
        exact = np.array(exact, float)
    for order, function in enumerate(orders):
        found = jax.vmap(jax.grad(function), (None, 0))(jnp.asarray(nu), jnp.asarray(points))
        np.testing.assert_allclose(found, exact[:, order], rtol=1e-12, atol=1e-300)


def test_float32_stays_float32():
    rows = gbt.Comparisons(A, B, TERNARY.astype(np.float32), num_items=ITEMS)
    model = gbt.Model(laws.Davidson(TIE_MASS.astype(np.float32)), np.float32(STD))
    fit = gbt.fit(model, rows)
    assert fit.scores.dtype == jnp.float32
    np.testing.assert_allclose(fit.scores, davidson_scores(weight=np.ones(ROWS)), atol=2e-6)
