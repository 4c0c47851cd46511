"""What is no root law is refused, with a message that says why; a law of one's own is accepted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gbt_jax import laws

REFUSED = {
    "asymmetric support": (
        lambda: laws.Finite([-1.0, 0.5], [0.5, 0.5]),
        r"support is not symmetric: 0\.5 is a value and -0\.5 is not",
    ),
    "uneven": (
        lambda: laws.Finite([-1.0, 1.0], [0.4, 0.6]),
        r"not symmetric: 1 has probability 0\.6, -1 has 0\.4",
    ),
    "negative": (
        lambda: laws.Finite([-1.0, 0.0, 1.0], [0.7, -0.4, 0.7]),
        r"positive and finite; that of value 0 is -0\.4",
    ),
    "zero sum": (lambda: laws.Finite([-1.0, 1.0], [0.0, 0.0]), "must be positive and finite"),
    "nan probability": (
        lambda: laws.Finite([-1.0, 1.0], [np.nan, 0.5]),
        "positive and finite; that of value -1 is nan",
    ),
    "nan value": (lambda: laws.Finite([-1.0, np.nan], [0.5, 0.5]), "values must be finite"),
    "one value": (lambda: laws.Finite([0.0], [1.0]), "at least two values, not 1"),
    "twice": (
        lambda: laws.Finite([-1.0, -1.0, 1.0, 1.0], [0.25] * 4),
        "value -1 is listed twice",
    ),
    "lengths": (
        lambda: laws.Finite([-1.0, 0.0, 1.0], [0.5, 0.5]),
        r"vectors of one length, not of shapes \(3,\) and \(2,\)",
    ),
    "matrix": (lambda: laws.Finite(np.eye(2), np.eye(2)), "vectors of one length"),
    "scalar": (lambda: laws.Finite(1.0, 1.0), "vectors of one length"),
    "whole line": (
        lambda: laws.Density(lambda r: -jnp.abs(r), np.inf),
        "max_value must be finite: the tails",
    ),
    "negative width": (lambda: laws.Density(lambda r: 0 * r, -1.0), "max_value must be positive"),
    "asymmetric density": (lambda: laws.Density(lambda r: r), r"not symmetric: log_density\("),
    "nan density": (lambda: laws.Density(lambda r: jnp.log(0.5 - r)), "is nan: not a density"),
    "pole at the end": (
        lambda: laws.Density(lambda r: -0.5 * jnp.log((1 - r) * (1 + r))),
        "infinite at the end of the support.*Beta",
    ),
    "no mass": (lambda: laws.Density(lambda r: jnp.full_like(r, -jnp.inf)), "cannot be normalised"),
    "jump inside": (
        lambda: laws.Density(lambda r: jnp.where(jnp.abs(r) < 0.37, 0.0, -2.0)),
        "has not converged.*not smooth",
    ),
    "needle": (
        lambda: laws.Density(lambda r: -1e9 * (jnp.abs(r) - 0.37) ** 2),
        "has not converged",
    ),
    "not elementwise": (lambda: laws.Density(lambda r: jnp.sum(r)), "must be elementwise"),
    "Beta(0)": (lambda: laws.Beta(0.0), r"beta must be positive and finite, not 0\.0"),
    "Beta(-1)": (lambda: laws.Beta(-1), r"beta must be positive and finite, not -1\.0"),
    "Beta(inf)": (lambda: laws.Beta(np.inf), "beta must be positive and finite, not inf"),
    "Gaussian(0)": (lambda: laws.Gaussian(0), r"std must be positive and finite, not 0\.0"),
    "Skellam(nan)": (lambda: laws.Skellam(np.nan), "rate must be positive and finite, not nan"),
    "SymmetrizedPoisson(0)": (lambda: laws.SymmetrizedPoisson(0.0), "rate must be positive"),
    "KNary(1)": (lambda: laws.KNary(1), "num_levels must be an integer of at least 2, not 1"),
    "KNary(2.5)": (lambda: laws.KNary(2.5), r"an integer of at least 2, not 2\.5"),
    "KNary(True)": (lambda: laws.KNary(True), "num_levels must be an integer"),
    "Binomial(0)": (lambda: laws.Binomial(0), "num_rounds must be an integer of at least 1, not 0"),
    "Davidson(-1)": (
        lambda: laws.Davidson(-1.0),
        r"tie_mass must be non-negative and finite, not -1\.0",
    ),
    "Davidson(vector)": (
        lambda: laws.Davidson([1.0, -2.0]),
        r"tie_mass must be non-negative and finite, not -2\.0",
    ),
    "Density(vector)": (
        lambda: laws.Density(lambda r: 0 * r, [1.0, 2.0]),
        r"max_value must be one number, not an array of shape \(2,\): .*Scaled",
    ),
    "Scaled(0)": (
        lambda: laws.Scaled(laws.Binary(), 0),
        r"scale must be positive and finite, not 0\.0",
    ),
    "Scaled(-1)": (lambda: laws.Scaled(laws.Binary(), -1.0), "scale must be positive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


class Laplace(laws.AbstractRootLaw):
    def cgf(self, t):
        t = jnp.asarray(t)
        return -jnp.log(1 - t * t)


class Skewed(laws.AbstractRootLaw):
    def cgf(self, t):
        return jnp.log(0.25 * jnp.exp(-jnp.asarray(t)) + 0.75 * jnp.exp(jnp.asarray(t)))


class Unnormalised(laws.AbstractRootLaw):
    def cgf(self, t):
        t = jnp.asarray(t)
        return jnp.logaddexp(t, -t)


class Concave(laws.AbstractRootLaw):
    def cgf(self, t):
        return jnp.cos(0.001 * jnp.asarray(t)) - 1


class Dip(laws.AbstractRootLaw):
    """Convex at 0, not further out."""

    def cgf(self, t):
        t = jnp.asarray(t)
        return jnp.log1p(t * t)


class Coin(laws.AbstractRootLaw):
    """A user's law: Φ alone."""

    def cgf(self, t):
        t = jnp.asarray(t)
        return jnp.logaddexp(t, -t) - jnp.log(2.0).astype(t.dtype)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (Laplace(), "lacks exponential moments.*Laplace, Student and Cauchy"),
        (Skewed(), r"not symmetric: cgf\("),
        (Unnormalised(), r"not normalised: cgf\(0\) is 0\.69"),
        (Concave(), "not convex"),
        (Dip(), "not convex"),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, laws.AbstractRootLaw) else "",
)
def test_check_refuses(law, message):
    with pytest.raises(ValueError, match=f"{type(law).__name__}.*{message}"):
        laws.check(law)


def test_check_refuses_what_is_no_law():
    with pytest.raises(TypeError, match="must subclass AbstractRootLaw"):
        laws.check(jnp.tanh)


def test_check_accepts_every_law():
    from law_battery import LAWS

    for case in LAWS:
        laws.check(case.law)
    laws.check(laws.Gaussian(1e-3))
    laws.check(laws.Skellam(1e3))
    laws.check(laws.Beta(100.0))


def test_a_law_of_ones_own_needs_cgf_alone():
    coin, binary = Coin(), laws.Binary()
    laws.check(coin)
    t = jnp.asarray([-3.0, 0.0, 0.2, 5.0])
    for method in ("cgf", "mean", "variance"):
        np.testing.assert_allclose(
            getattr(coin, method)(t), getattr(binary, method)(t), rtol=1e-9, atol=1e-15
        )
    np.testing.assert_allclose(coin.inverse_mean(0.7), np.arctanh(0.7), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(coin.inverse_mean)(0.7), 1 / 0.51, rtol=1e-9)
    assert coin.max_value == np.inf
    assert coin.atoms() is None
    with pytest.raises(NotImplementedError, match=r"Coin has no log_prob.*defines no `log_root`"):
        coin.log_prob(1.0, 0.3)
    with pytest.raises(NotImplementedError, match=r"Coin has no sample.*add it to the class"):
        coin.sample(0.3, key=jax.random.key(0))
    with pytest.raises(TypeError, match="Coin has no steps"):
        coin.step_up(0.0)


def test_a_law_without_cgf_is_abstract():
    class Nothing(laws.AbstractRootLaw):
        pass

    with pytest.raises(TypeError, match="cgf"):
        Nothing()


def test_sum_of_infinite_discrete_and_continuous_says_why():
    total = laws.Sum(laws.Skellam(1.0), laws.Uniform())
    assert total.cgf(0.5) > 0
    with pytest.raises(NotImplementedError, match="two continuous laws, or one law with finitely"):
        total.log_prob(0.5, 0.3)


def test_density_under_tracing_asks_for_its_nodes():
    with pytest.raises(ValueError, match="num_nodes_log2 must be given"):
        jax.jit(lambda edge: laws.Density(lambda r: 0 * r, edge).cgf(1.0))(2.0)
