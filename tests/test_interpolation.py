"""Mean and variance at many points: interpolated to the last digits, or computed directly."""

import jax
import jax.numpy as jnp
import law_accuracy
import numpy as np
import pytest
from mp_reference import cumulants, mp
from test_law_accuracy import ULP_BAR

from gbt_jax import laws
from gbt_jax._special import MANY_POINTS
from gbt_jax._special._interpolation import _CUTS

# What the certificate assumes of Φ' is 6 units in the last place.
MEAN_BAR, VARIANCE_BAR = 6, 12
BETAS = (0.05, 0.3, 1.0, 3.7, 100.0)


def points(dtype) -> np.ndarray:
    """Around the ends of pieces, in tails and near 0, and at random."""
    rng = np.random.default_rng(0)
    ends = np.asarray(_CUTS, dtype)
    near = [ends, np.nextafter(ends, dtype(np.inf)), np.nextafter(ends, dtype(0))]
    fixed = [0.0, 1e-30, -1e-12, 1e-4, 0.1, -700.0, 1e4, 1e6]
    return np.concatenate([*near, fixed, np.exp(rng.uniform(-5, 8, 150))]).astype(dtype)


def many(t: np.ndarray) -> jax.Array:
    """These points, often enough to be interpolated."""
    return jnp.asarray(np.resize(t, MANY_POINTS + t.size))


def moments(law: laws.AbstractRootLaw, t: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    mean, variance = jax.jit(lambda t: (law.mean(t), law.variance(t)))(t)
    return np.asarray(mean), np.asarray(variance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("beta", BETAS)
def test_beta_to_the_last_digits(beta, dtype):
    t = points(dtype)
    law = laws.Beta(jnp.asarray(beta, dtype))
    truths = [cumulants("Beta", (float(dtype(beta)),), float(x)) for x in t]
    found = moments(law, many(t))
    for order, bar in ((1, MEAN_BAR), (2, VARIANCE_BAR)):
        values = found[order - 1][: t.size]
        errors = law_accuracy.relative_errors(values, [row[order] for row in truths], dtype)
        assert errors.max() <= bar * np.finfo(dtype).eps, (order, t[errors.argmax()])
        # Interpolated indeed: the last digits differ from those of single values.
        assert np.any(values != moments(law, jnp.asarray(t))[order - 1])


def test_density_to_the_last_digits():
    t = points(np.float64)[::4]
    reference = (lambda r: -3 * r * r, mp.mpf(2.5))
    found = moments(laws.Density(lambda r: -3 * r * r, 2.5), many(t))
    truths = [cumulants("Density", reference, float(x)) for x in t]
    for order in (1, 2):
        values = found[order - 1][: t.size]
        errors = law_accuracy.relative_errors(values, [row[order] for row in truths], np.float64)
        assert errors.max() <= ULP_BAR * np.finfo(np.float64).eps, (order, t[errors.argmax()])


@pytest.mark.parametrize(
    "law", [laws.Beta(1e4), laws.Density(lambda r: -300 * r * r)], ids=["Beta", "Density"]
)
def test_narrow_laws_are_computed_directly(law):
    t = np.linspace(-30, 30, 500)
    for whole, single in zip(moments(law, many(t)), moments(law, jnp.asarray(t)), strict=True):
        np.testing.assert_allclose(whole[: t.size], single, rtol=1e-14)


def test_derivatives_of_interpolated_values():
    """In t and in the parameter: the same as one by one."""
    t, direction = np.linspace(-8, 8, 200), np.cos(np.arange(200))

    def total(beta, t):
        return jnp.sum(laws.Beta(beta).mean(t) * jnp.resize(jnp.asarray(direction), t.shape))

    def by_hand(beta):
        lanes = jax.vmap(lambda x: laws.Beta(beta).mean(x))(jnp.asarray(t))
        return lanes @ direction

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    in_beta, in_t = gradient(2.0, jnp.asarray(np.resize(t, 30 * t.size)))
    np.testing.assert_allclose(in_beta, 30 * jax.grad(by_hand)(2.0), rtol=1e-12)
    slope = np.asarray(jax.vmap(laws.Beta(2.0).variance)(jnp.asarray(t))) * direction
    np.testing.assert_allclose(in_t[: t.size], slope, rtol=1e-13)


def test_memory_per_value_of_a_density():
    law, t = laws.Density(lambda r: -3 * r * r), jnp.zeros(100_000)
    for function in (law.mean, law.variance):
        compiled = jax.jit(lambda t, function=function: function(t)).lower(t).compile()
        needed = compiled.memory_analysis().temp_size_in_bytes
        assert needed < 100 * t.size
