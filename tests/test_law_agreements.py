"""Laws that are the same under two names, and sums whose law is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from law_battery import LAWS
from scipy import stats

from gbt_jax import laws

T = np.asarray([0.0, 1e-8, -1e-3, 0.3, -1.0, 2.0, 7.0, -25.0, 59.0, 61.0, 300.0])


def _assert_same(one, two, rtol=1e-13, t=T):
    for method in ("cgf", "mean", "variance"):
        np.testing.assert_allclose(
            getattr(one, method)(t), getattr(two, method)(t), rtol=rtol, atol=1e-300
        )


TWINS = {
    "Beta(1) = Uniform": (laws.Beta(1.0), laws.Uniform()),
    "KNary(2) = Binary": (laws.KNary(2), laws.Binary()),
    "KNary(3) = Davidson(1)": (laws.KNary(3), laws.Davidson(1.0)),
    "Davidson(0) = Binary": (laws.Davidson(0.0), laws.Binary()),
    "Davidson(2) = Binomial(2)": (laws.Davidson(2.0), laws.Binomial(2)),
    "Binomial(1) = Binary": (laws.Binomial(1), laws.Binary()),
    "Scaled(Binary, ½) = BradleyTerry": (laws.Scaled(laws.Binary(), 0.5), laws.BradleyTerry()),
    "Scaled(Davidson, ½)": (
        laws.Scaled(laws.Davidson(0.8), 0.5),
        laws.Finite([-0.5, 0, 0.5], [1, 0.8, 1]),
    ),
    "Scaled twice": (
        laws.Scaled(laws.Scaled(laws.Beta(0.7), 0.5), 4.0),
        laws.Scaled(laws.Beta(0.7), 2.0),
    ),
    "Binomial(2) = half a sum": (
        laws.Binomial(2),
        laws.Scaled(laws.Sum(laws.Binary(), laws.Binary()), 0.5),
    ),
    "Skellam adds up": (laws.Sum(laws.Skellam(0.4), laws.Skellam(1.1)), laws.Skellam(1.5)),
    "Gaussian adds up": (laws.Sum(laws.Gaussian(0.6), laws.Gaussian(0.8)), laws.Gaussian(1.0)),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins(name):
    _assert_same(*TWINS[name])


def test_twins_have_one_log_prob():
    value = np.asarray([-1.0, -0.5, 0.0, 0.5, 1.0])
    for name in ("Beta(1) = Uniform", "KNary(2) = Binary", "Binomial(2) = half a sum"):
        one, two = TWINS[name]
        np.testing.assert_allclose(one.log_prob(value, 0.7), two.log_prob(value, 0.7), atol=1e-13)


def test_many_levels_tend_to_uniform():
    """The variance of K levels is that of Uniform times 1 + 2/(K−1)."""
    t = T[np.abs(T) < 61]
    _assert_same(laws.KNary(100_001), laws.Uniform(), rtol=5e-5, t=t)
    with pytest.raises(AssertionError):
        _assert_same(laws.KNary(101), laws.Uniform(), rtol=5e-5, t=t)


def test_beta_2_closed_form():
    t = np.asarray([0.5, -1.0, 3.0, 20.0, 100.0])
    closed = np.log(3 * (t * np.cosh(t) - np.sinh(t)) / t**3)
    np.testing.assert_allclose(laws.Beta(2.0).cgf(t), closed, rtol=1e-13)


def test_small_beta_tends_to_binary():
    t = np.asarray([0.0, 0.1, 1.0, 3.0])
    _assert_same(laws.Beta(1e-6), laws.Binary(), rtol=1e-3, t=t)
    _assert_same(laws.Beta(1e-9), laws.Binary(), rtol=1e-6, t=t)


FINITE = tuple(case for case in LAWS if isinstance(case.law, laws.AbstractFiniteLaw))


@pytest.mark.parametrize("case", FINITE, ids=lambda case: case.label)
def test_finite_laws_equal_finite_of_their_atoms(case):
    values, log_masses = case.law.atoms()
    table = laws.Finite(values, jnp.exp(log_masses))
    _assert_same(case.law, table)
    np.testing.assert_allclose(
        case.law.log_prob(values, 0.4), table.log_prob(values, 0.4), rtol=1e-12
    )


def test_scaled_atoms():
    values, log_masses = laws.Scaled(laws.KNary(4), 0.3).atoms()
    np.testing.assert_allclose(values, 0.3 * np.linspace(-1, 1, 4), atol=1e-16)
    np.testing.assert_allclose(log_masses, -np.log(4))


def test_continuous_laws_equal_density_of_their_root():
    for law in (laws.Uniform(), laws.Beta(2.0)):
        density = laws.Density(law.log_root)
        _assert_same(law, density, rtol=1e-12)
        value = np.linspace(-0.95, 0.95, 9)
        np.testing.assert_allclose(
            density.log_prob(value, 2.0), law.log_prob(value, 2.0), rtol=1e-12
        )


def test_density_ignores_normalisation():
    one = laws.Density(lambda r: -(r**4))
    two = laws.Density(lambda r: 3.0 - r**4)
    _assert_same(one, two)
    np.testing.assert_allclose(one.log_prob(0.3, 1.0), two.log_prob(0.3, 1.0), rtol=1e-13)


def test_two_uniforms_add_to_a_triangle():
    total = laws.Sum(laws.Uniform(), laws.Uniform())
    value = np.asarray([-1.9, -1.0, -0.3, 0.0, 0.4, 1.5])
    np.testing.assert_allclose(np.exp(total.log_root(value)), (2 - np.abs(value)) / 4, rtol=1e-12)
    assert total.log_prob(2.1, 0.0) == -np.inf
    tilted = np.log((2 - np.abs(value)) / 4) + 1.3 * value - 2 * laws.Uniform().cgf(1.3)
    np.testing.assert_allclose(total.log_prob(value, 1.3), tilted, rtol=1e-12)


def test_binary_plus_uniform_is_uniform_on_twice_the_interval():
    total = laws.Sum(laws.Binary(), laws.Uniform())
    _assert_same(total, laws.Scaled(laws.Uniform(), 2.0), rtol=1e-12)
    value = np.asarray([-1.7, -0.2, 0.9, 1.99])
    np.testing.assert_allclose(np.exp(total.log_root(value)), 0.25, rtol=1e-13)
    assert not total.is_discrete


def test_gaussian_plus_uniform():
    total = laws.Sum(laws.Gaussian(0.5), laws.Uniform())
    value = np.asarray([-4.0, -1.0, 0.0, 0.7, 2.5])
    normal = stats.norm(scale=0.5)
    # Survival functions, as the distribution function cancels in the tail.
    size = np.abs(value)
    expected = 0.5 * (normal.sf(size - 1) - normal.sf(size + 1))
    np.testing.assert_allclose(np.exp(total.log_root(value)), expected, rtol=1e-10)


def test_davidson_plus_skellam():
    total = laws.Sum(laws.Davidson(0.8), laws.Skellam(1.7))
    value = np.arange(-6.0, 7.0)
    skellam = stats.skellam(0.85, 0.85).pmf
    expected = (skellam(value - 1) + 0.8 * skellam(value) + skellam(value + 1)) / 2.8
    np.testing.assert_allclose(np.exp(total.log_root(value)), expected, rtol=1e-10)
    assert total.log_root(0.5) == -np.inf


def test_integer_laws_against_scipy():
    k = np.arange(-30.0, 31.0)
    for rate in (0.05, 1.3, 40.0):
        expected = stats.skellam(rate / 2, rate / 2).logpmf(k)
        shown = np.isfinite(expected) & (expected > -250)
        np.testing.assert_allclose(
            laws.Skellam(rate).log_root(k)[shown], expected[shown], rtol=1e-10
        )
        expected = stats.poisson(rate).logpmf(np.abs(k)) - np.where(k == 0, 0, np.log(2))
        np.testing.assert_allclose(laws.SymmetrizedPoisson(rate).log_root(k), expected, rtol=1e-12)


def test_bradley_terry_is_the_logistic_model():
    t = np.asarray([-3.0, 0.0, 0.4, 11.0])
    np.testing.assert_allclose(
        np.exp(laws.BradleyTerry().log_prob(0.5, t)), jax.nn.sigmoid(t), rtol=1e-14
    )
    np.testing.assert_allclose(
        np.exp(laws.Binary().log_prob(1.0, t)), jax.nn.sigmoid(2 * t), rtol=1e-14
    )


def test_tie_odds_of_davidson():
    """P(tie)² / (P(win) P(loss)) is ν² at every score difference."""
    logs = laws.Davidson(0.8).log_prob(np.asarray([-1.0, 0.0, 1.0]), 1.9)
    np.testing.assert_allclose(2 * logs[1] - logs[0] - logs[2], 2 * np.log(0.8), rtol=1e-12)
