"""Profile intervals: against SciPy's constrained minima, and closed forms of the Gaussian law."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats
from problems import incidence, random_pairs

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax.uncertainty import _profile
from gbt_jax.uncertainty._profile import profile_intervals

Z = scipy.stats.norm.ppf(0.975)
# Two components, and three items without comparisons.
SIZE = 16
COMPONENTS = [0, 1, 2, 3, 5, 6, 7, 8, 9], [10, 11, 12, 13]
ALONE = np.array([4, 14, 15])
A = np.concatenate([random_pairs(10, 25)[0], [10, 11, 12, 13]])
B = np.concatenate([random_pairs(10, 25)[1], [11, 12, 13, 10]])
RNG = np.random.default_rng(8)


def gaussian_fit(std, weight=1.0, dtype=np.float64):
    """One shape for all, so that little is compiled."""
    value = np.random.default_rng(2).normal(size=A.size).astype(dtype)
    rows = gbt.Comparisons(A, B, value, np.full(A.size, weight, dtype), num_items=SIZE)
    return gbt.fit(gbt.Model(laws.Gaussian(0.8), np.broadcast_to(std, SIZE)), rows)


def gaussian_std(std, weight=1.0):
    """√n_ii; without a prior of scores with mean zero in each component."""
    matrix = incidence(gbt.Comparisons(A, B, np.zeros(A.size), num_items=SIZE))
    laplacian, precision = 0.64 * weight * matrix.T @ matrix, 1 / np.square(std)
    if np.ndim(std):
        return np.sqrt(np.diag(np.linalg.inv(laplacian + np.diag(precision))))
    values, vectors = np.linalg.eigh(laplacian)
    held = np.where(values > 1e-9 * values[-1], values, 0) + precision
    inverse = np.divide(1, held, out=np.zeros(SIZE), where=held > 0)
    return np.sqrt(np.square(vectors) @ inverse)


@pytest.mark.parametrize("dense", [True, False])
def test_exact_for_the_gaussian_law(dense):
    """θ* ± z √n_ii, whatever the prior and the weights."""
    for std, weight in (
        (1.3, 1.0),
        (np.geomspace(0.3, 5, SIZE), 1.0),
        (1e3, 1.0),
        (1.0, 1e8),
        (1e6, 1e8),
        (np.inf, 1.0),
        (np.inf, 1e8),
    ):
        fit = gaussian_fit(std, weight)
        _, lower, upper = profile_intervals(fit, using=gbt.curvature(fit, dense=dense))
        expected = Z * gaussian_std(std, weight)
        if np.isinf(std).all():  # one that is alone is its own mean
            np.testing.assert_array_equal(upper[ALONE], fit.scores[ALONE])
            np.testing.assert_array_equal(lower[ALONE], fit.scores[ALONE])
        else:
            np.testing.assert_allclose(expected[ALONE], Z * np.broadcast_to(std, SIZE)[ALONE])
        # Beyond some scale the scores' own digits are what is left of a distance.
        digits = 4 * np.finfo(float).eps * (1 + np.abs(fit.scores))
        for distance in (upper - fit.scores, fit.scores - lower):
            error = np.abs(distance - expected)
            assert (error <= 1e-10 * expected + digits).all(), (std, weight)


def softplus(x):
    return np.logaddexp(0, x)


# Φ, Φ' and Φ'' in NumPy, of t ≠ 0.
REFERENCES = {
    "Uniform": (
        lambda t: np.log(np.sinh(t) / t),
        lambda t: 1 / np.tanh(t) - 1 / t,
        lambda t: 1 / t**2 - 1 / np.sinh(t) ** 2,
    ),
    "Binary": (
        lambda t: softplus(2 * t) - t - np.log(2),
        np.tanh,
        lambda t: np.cosh(np.clip(t, -300, 300)) ** -2.0,
    ),
    "Skellam": (
        lambda t: 0.7 * (np.cosh(t) - 1),
        lambda t: 0.7 * np.sinh(t),
        lambda t: 0.7 * np.cosh(t),
    ),
}
LAWS = {"Uniform": laws.Uniform(), "Binary": laws.Binary(), "Skellam": laws.Skellam(0.7)}
VALUES = {
    "Uniform": RNG.uniform(-0.9, 0.9, A.size),
    "Binary": RNG.choice([-1.0, 1.0], A.size),
    "Skellam": RNG.integers(-3, 4, A.size).astype(float),
}


def fitted(name, std, value=None):
    """With a row of padding at the end."""
    value = VALUES[name] if value is None else value
    rows = gbt.Comparisons(
        *(np.append(column, 0) for column in (A, B, value, np.ones(A.size))),
        num_items=SIZE,
    )
    return gbt.fit(gbt.Model(LAWS[name], std), rows)


class Reference:
    """SciPy on the loss written out again."""

    def __init__(self, name, fit):
        self.cgf, self.mean, self.variance = REFERENCES[name]
        self.matrix = incidence(fit.comparisons)[:-1]
        self.value = np.asarray(fit.comparisons.value)[:-1]
        self.precision = np.broadcast_to(1 / np.square(fit.model.prior_std), fit.scores.shape)
        self.scores = np.asarray(fit.scores)

    def loss(self, x):
        t = self.matrix @ x
        return 0.5 * self.precision @ x**2 + np.sum(self.cgf(t) - self.value * t)

    def slope(self, x):
        return self.precision * x + self.matrix.T @ (self.mean(self.matrix @ x) - self.value)

    def hessian(self, x):
        rows = self.variance(self.matrix @ x)[:, None] * self.matrix
        return np.diag(self.precision) + self.matrix.T @ rows

    def profile(self, constraint, s):
        """The least rise of the loss with constraint · (θ − θ*) = s."""
        basis = scipy.linalg.null_space(constraint[None])
        start = self.scores + s * constraint / (constraint @ constraint)
        found = scipy.optimize.minimize(
            lambda y: self.loss(start + basis @ y) - self.loss(self.scores),
            np.zeros(basis.shape[1]),
            jac=lambda y: basis.T @ self.slope(start + basis @ y),
            hess=lambda y: basis.T @ self.hessian(start + basis @ y) @ basis,
            method="trust-exact",
            options={"gtol": 1e-10, "maxiter": 1000},
        )
        return found.fun

    def end(self, constraint, guess, goal=Z**2 / 2):
        """The distance at which the profile is as high as the goal, looked for around a guess."""
        return scipy.optimize.brentq(
            lambda s: self.profile(constraint, s) - goal, 0.5 * guess, 1.5 * guess, xtol=1e-13
        )


@pytest.mark.parametrize("name", LAWS)
def test_agrees_with_scipy(name):
    fit = fitted(name, 1.5)
    reference = Reference(name, fit)
    _, lower, upper = profile_intervals(fit)
    wald = Z * np.sqrt(gbt.curvature(fit).diagonal())
    assert np.abs((upper - fit.scores) / wald - 1).max() > 0.01  # not just a Gaussian's
    np.testing.assert_allclose(upper[ALONE], 1.5 * Z, rtol=1e-12)
    np.testing.assert_allclose(lower[ALONE], -1.5 * Z, rtol=1e-12)
    for item in (0, 4, 11):
        for sign, end in ((-1, lower[item]), (1, upper[item])):
            distance = sign * float(end - fit.scores[item])
            expected = reference.end(sign * np.eye(SIZE)[item], distance)
            np.testing.assert_allclose(distance, expected, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("dense", [True, False])
def test_without_a_prior_scores_keep_mean_zero(dense):
    """The mean is that of the item's own component."""
    fit = fitted("Uniform", np.inf)
    reference = Reference("Uniform", fit)
    using = gbt.curvature(fit, dense=dense)
    _, lower, upper = profile_intervals(fit, [12, 3], level=0.9, using=using)
    goal = scipy.stats.norm.ppf(0.95) ** 2 / 2
    for number, (item, members) in enumerate(((12, COMPONENTS[1]), (3, COMPONENTS[0]))):
        constraint = np.eye(SIZE)[item]
        constraint[members] -= 1 / len(members)
        for sign, end in ((-1, lower[number]), (1, upper[number])):
            distance = sign * float(end - fit.scores[item])
            expected = reference.end(sign * constraint, distance, goal)
            np.testing.assert_allclose(distance, expected, rtol=1e-10)


@pytest.mark.parametrize("dense", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_far_out(dense):
    """Binary values and weak priors: the loss has kinks, and ends are far from symmetric."""
    for seed, std, level in ((0, 30.0, 0.95), (0, 100.0, 0.95), (3, 1e3, 0.999), (9, 1e3, 0.1)):
        value = np.random.default_rng(seed).choice([-1.0, 1.0], A.size)
        fit = fitted("Binary", std, value)
        reference = Reference("Binary", fit)
        goal = scipy.stats.norm.ppf(0.5 + level / 2) ** 2 / 2
        ends = profile_intervals(fit, level=level, using=gbt.curvature(fit, dense=dense))
        lower, upper = (np.asarray(end - fit.scores) for end in ends[1:])
        assert np.max(-upper / lower) > 1.5
        for item in range(SIZE):
            for distance in (lower[item], upper[item]):
                rise = reference.profile(np.eye(SIZE)[item], distance)
                np.testing.assert_allclose(rise, goal, rtol=1e-9)


def test_some_items_in_any_order_and_in_parts(monkeypatch):
    fit = gaussian_fit(1.3)
    _, lower, upper = profile_intervals(fit)
    monkeypatch.setattr(_profile, "_ENTRIES", 2 * 3 * A.size)  # three items at a time
    chosen = [15, 2, 2, 9]
    some = profile_intervals(fit, chosen)
    np.testing.assert_allclose(some.lower, lower[jnp.asarray(chosen)], rtol=1e-12)
    np.testing.assert_allclose(some.upper, upper[jnp.asarray(chosen)], rtol=1e-12)
    np.testing.assert_array_equal(some.estimate, fit.scores[jnp.asarray(chosen)])
    none = profile_intervals(fit, [])
    assert none.estimate.shape == none.lower.shape == none.upper.shape == (0,)


def test_single_precision():
    for weight, tolerance in ((1.0, 1e-6), (1e4, 1e-5)):
        fit = gaussian_fit(1.3, weight, np.float32)
        _, lower, upper = profile_intervals(fit)
        assert lower.dtype == upper.dtype == jnp.float32
        expected, scores = Z * gaussian_std(1.3, weight), np.asarray(fit.scores)
        digits = 4 * np.finfo(np.float32).eps * (np.abs(scores) + expected)
        for distance in (np.asarray(upper) - scores, scores - np.asarray(lower)):
            assert (np.abs(distance - expected) <= tolerance * expected + digits).all()
    # Weights that drown the loss in rounding errors are no silent matter.
    with pytest.raises(RuntimeError, match="profile interval of item 0 was not found"):
        profile_intervals(gaussian_fit(1.3, 1e12, np.float32))


def test_what_makes_no_sense_is_refused():
    fit = gaussian_fit(1.3)
    for level in (0.0, 1.0, -0.5, 95, np.nan):
        with pytest.raises(ValueError, match=f"level must lie between 0 and 1, not {level}"):
            profile_intervals(fit, level=level)
    with pytest.raises(ValueError, match="items has 16, and there are 16 of them"):
        profile_intervals(fit, [16])
    with pytest.raises(TypeError, match="a Fit is needed, not Model"):
        profile_intervals(fit.model)  # pyright: ignore
    lost = gbt.fit(
        gbt.Model(laws.Binary(), np.inf), gbt.Comparisons([0], [1], [1.0], num_items=2), throw=False
    )
    with pytest.raises(ValueError, match=r"did not find the optimum \(no_finite_optimum\)"):
        profile_intervals(lost)
