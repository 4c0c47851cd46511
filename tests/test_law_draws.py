"""log_prob and sample of every law: total mass, moments, and draws that follow the mass."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from law_battery import LAWS, evaluator, every_law, log_prob, over_laws
from scipy import special, stats

NUM_DRAWS = 4_000


def _quadrature(case, t):
    """Nodes and weights on the support of a continuous law that has four smooth pieces."""
    edge = float(case.law.max_value)
    if not math.isfinite(edge):  # Gaussian: 12 standard deviations about the mean
        _, centre, variance = (float(x) for x in evaluator(case)(t))
        edge = 12 * variance**0.5
        node, weight = special.roots_legendre(200)
        return centre + edge * node, edge * weight
    if case.edge_power:
        node, weight = special.roots_jacobi(200, case.edge_power, case.edge_power)
        return edge * node, edge * weight * ((1 - node) * (1 + node)) ** -case.edge_power
    node, weight = special.roots_legendre(100)
    pieces = edge * np.asarray([-0.75, -0.25, 0.25, 0.75])[:, None]
    return (pieces + 0.25 * edge * node).ravel(), np.tile(0.25 * edge * weight, 4)


@every_law
def test_log_prob_has_mass_one_and_the_right_moments(case):
    for t in case.tilts(0.0, 0.7, -3.0, 30.0):
        value, weight = (case.support(), 1.0) if case.law.is_discrete else _quadrature(case, t)
        mass = weight * np.exp(log_prob(case)(value, t))
        mean, variance = (float(x) for x in evaluator(case)(t)[1:])
        np.testing.assert_allclose(mass.sum(), 1, rtol=1e-10)
        np.testing.assert_allclose((mass * value).sum(), mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose((mass * (value - mean) ** 2).sum(), variance, rtol=1e-6)


@every_law
def test_log_prob_outside_the_support(case):
    law, edge = case.law, float(case.law.max_value)
    outside = [np.inf, -np.inf]
    if math.isfinite(edge):
        outside += [1.01 * edge, -3 * edge]
    if law.is_discrete:
        outside += [0.123, -0.377]
    outside = np.asarray(outside)
    assert not np.any(law.in_support(outside))
    for t in (0.0, 3.0, -3.0):
        np.testing.assert_array_equal(log_prob(case)(outside, t), -np.inf)
    inside = case.support() if law.is_discrete else np.linspace(-0.9, 0.9, 7) * min(1, edge)
    assert np.all(law.in_support(inside))
    assert np.all(np.isfinite(log_prob(case)(inside, 0.3)))


@functools.cache
def _draws(case):
    """Tilts, and draws at each: one column per tilt."""
    t = np.asarray(case.tilts(0.0, 0.7, -0.7, 1.5, -4.0, 5.0, 40.0, -1e4))
    draw = jax.jit(lambda t, key: case.law.sample(t, key=key, shape=(NUM_DRAWS,)))
    return t, np.asarray(draw(t, jax.random.key(20)))


@every_law
def test_shapes_of_samples(case):
    key = jax.random.key(1)
    assert jax.eval_shape(lambda: case.law.sample(0.3, key=key)).shape == ()
    t = jnp.zeros((1, 4))
    assert jax.eval_shape(lambda: case.law.sample(t, key=key)).shape == (1, 4)
    drawn = jax.eval_shape(lambda: case.law.sample(t, key=key, shape=(2, 3)))
    assert drawn.shape == (2, 3, 1, 4)


@every_law
@pytest.mark.slow
def test_samples_have_the_right_moments(case):
    law = case.law
    t, draws = _draws(case)
    assert draws.shape == (NUM_DRAWS, *t.shape)
    assert np.all(law.in_support(draws))
    _, mean, variance = (np.asarray(x) for x in evaluator(case)(t))
    rounding = 1e3 * np.finfo(float).eps * np.abs(mean)  # of the average of many draws
    mean_error = np.abs(draws.mean(axis=0) - mean)
    assert np.all(mean_error <= 5 * np.sqrt(variance / NUM_DRAWS) + rounding), mean_error
    # The variance of (r − mean)² is κ₄ + 2κ₂²; κ₄ as a second difference of κ₂.
    h = 0.01
    above, below = (np.asarray(evaluator(case)(t + step)[2]) for step in (h, -h))
    fourth = (above - 2 * variance + below) / h**2
    standard_error = np.sqrt(np.maximum(fourth + 2 * variance**2, 0) / NUM_DRAWS)
    # At the symmetric point of two values (r − mean)² is constant: only the mean's error is left.
    slack = 0.01 * variance / np.sqrt(NUM_DRAWS) + rounding**2
    spread = ((draws - mean) ** 2).mean(axis=0)
    assert np.all(np.abs(spread - variance) <= 5 * (standard_error + slack)), spread


def _distribution_function(case, t):
    """The distribution function by the trapezoidal rule, r = max·tanh y."""
    edge = float(case.law.max_value)
    if not math.isfinite(edge):
        _, mean, variance = evaluator(case)(t)
        law = stats.norm(mean, np.sqrt(variance))
        return law.cdf
    y = np.linspace(-17, 17, 20_001)
    density = np.exp(log_prob(case)(edge * np.tanh(y), t)) / np.cosh(y) ** 2
    cumulated = np.concatenate([[0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    limit = 1 - 1e-15
    return lambda r: np.interp(
        np.arctanh(np.clip(r / edge, -limit, limit)), y, cumulated / cumulated[-1]
    )


@every_law
@pytest.mark.slow
def test_samples_follow_log_prob(case):
    for t, draws in zip(_draws(case)[0], _draws(case)[1].T, strict=True):
        if abs(t) > 5:  # too narrow for the trapezoidal rule, or one value only
            continue
        if case.law.is_discrete:
            values = case.support()
            expected = NUM_DRAWS * np.exp(log_prob(case)(values, t))
            nearest = np.argmin(np.abs(draws[:, None] - values), axis=1)
            counts = np.bincount(nearest, minlength=values.size)
            rare = expected < 8
            expected = np.append(expected[~rare], expected[rare].sum() + 1e-9)
            counts = np.append(counts[~rare], counts[rare].sum())
            statistic = np.sum((counts - expected) ** 2 / np.maximum(expected, 1))
            assert stats.chi2.sf(statistic, max(1, len(counts) - 1)) > 1e-4, (t, statistic)
        else:
            result = stats.kstest(draws, _distribution_function(case, t))
            assert result.pvalue > 1e-4, (t, result)


@over_laws(
    tuple(c for c in LAWS if c.label in ("Beta(0.3)", "Uniform", "Density(bell)", "Skellam(1.3)"))
)
@pytest.mark.slow
def test_draws_in_float32(case):
    t = jnp.asarray([0.0, -1.5, 3.0], jnp.float32)
    draw = jax.jit(lambda t, key: case.law.sample(t, key=key, shape=(NUM_DRAWS,)))
    draws = draw(t, jax.random.key(4))
    assert draws.dtype == jnp.float32
    assert np.all(case.law.in_support(draws))
    _, mean, variance = (np.asarray(x, float) for x in evaluator(case)(t))
    error = np.abs(np.mean(np.asarray(draws, float), axis=0) - mean)
    assert np.all(error <= 5 * np.sqrt(variance / NUM_DRAWS))
