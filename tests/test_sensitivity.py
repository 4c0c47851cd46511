"""Sensitivities: against automatic differentiation of `map_scores`, refits and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import incidence, random_comparisons

import gbt_jax as gbt
from gbt_jax import laws

ROWS = random_comparisons(30, 80, weight=np.random.default_rng(3).uniform(0.2, 3, 80))
STDS = np.geomspace(0.5, 3, 30)
MODELS = {
    "one prior": gbt.Model(laws.Uniform(), 1.5, 0.2),
    "per item": gbt.Model(laws.Beta(2.5), STDS, np.linspace(-1, 1, 30)),
    "none": gbt.Model(laws.Uniform(), jnp.inf),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_values_and_weights(name):
    model = MODELS[name]
    fit = gbt.fit(model, ROWS)
    for wrt, change in (("value", ROWS.with_values), ("weight", ROWS.with_weights)):
        derivative = jax.jacrev(lambda x, c=change: gbt.map_scores(model, c(x)))
        expected = jax.jit(derivative)(getattr(ROWS, wrt))
        for dense in (True, False):
            using = gbt.curvature(fit, dense=dense)
            found = gbt.sensitivity(fit, wrt=wrt, using=using)
            assert found.shape == (30, 80)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
            rows, items = [5, 70, 5], [2, 29]
            for options, part in (
                ({"comparisons": rows}, found[:, jnp.asarray(rows)]),
                ({"items": items}, found[jnp.asarray(items)]),
                ({"items": items, "comparisons": rows}, found[np.ix_(items, rows)]),
                ({"items": np.arange(30), "comparisons": 7}, found[:, 7:8]),
            ):
                some = gbt.sensitivity(fit, wrt=wrt, using=using, **options)
                np.testing.assert_allclose(some, part, rtol=1e-9, atol=1e-12)
    # Its own value raises a's score and lowers b's.
    found = np.asarray(gbt.sensitivity(fit))
    rows = np.arange(80)
    assert np.all(found[ROWS.a, rows] > 0)
    assert np.all(found[ROWS.b, rows] < 0)


def test_priors_and_laws():
    shared, own = MODELS["one prior"], MODELS["per item"]
    for model in (shared, own):
        fit = gbt.fit(model, ROWS)
        for wrt in ("prior_mean", "prior_std"):
            others = {"prior_std": model.prior_std, "prior_mean": model.prior_mean}
            expected = jax.jit(
                jax.jacrev(
                    lambda x, w=wrt, o=others, m=model: gbt.map_scores(
                        gbt.Model(m.law, **{**o, w: x}), ROWS
                    )
                )
            )(getattr(model, wrt))
            found = gbt.sensitivity(fit, wrt=wrt)
            assert found.shape == (30, *getattr(model, wrt).shape)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
            np.testing.assert_array_equal(
                gbt.sensitivity(fit, wrt=wrt, items=[4, 2]), found[jnp.asarray([4, 2])]
            )
    free = gbt.fit(MODELS["none"], ROWS)
    np.testing.assert_array_equal(gbt.sensitivity(free, wrt="prior_std"), 0)
    fit = gbt.fit(own, ROWS)
    found = gbt.sensitivity(fit, wrt="law")
    assert isinstance(found, laws.Beta)
    (moved,) = jax.tree.leaves(found)
    step = 1e-4
    up, down = (
        gbt.fit(gbt.Model(laws.Beta(2.5 + s * step), STDS, own.prior_mean), ROWS).scores
        for s in (1, -1)
    )
    np.testing.assert_allclose(moved, (up - down) / (2 * step), rtol=1e-6, atol=1e-9)


def test_gaussian_closed_form():
    """θ* = N Bᵀ w r for the Gaussian law of unit variance: linear, so exactly that matrix."""
    fit = gbt.fit(gbt.Model(laws.Gaussian(1.0), 0.7), ROWS)
    matrix, weight = incidence(ROWS), np.asarray(ROWS.weight)
    hessian = np.eye(30) / 0.49 + matrix.T * weight @ matrix
    expected = np.linalg.solve(hessian, matrix.T * weight)
    np.testing.assert_allclose(gbt.sensitivity(fit), expected, rtol=1e-12, atol=1e-13)


def test_response():
    fit = gbt.fit(MODELS["one prior"], ROWS)
    expected = jax.jacfwd(lambda x: laws.Uniform().mean(x[ROWS.a] - x[ROWS.b]))(fit.scores)
    np.testing.assert_allclose(
        gbt.influence.response_sensitivity(fit), expected, rtol=1e-12, atol=1e-15
    )


def test_what_cannot_be_answered_is_refused():
    fit = gbt.fit(MODELS["one prior"], ROWS)
    with pytest.raises(ValueError, match="items has 30, and there are 30 of them, from 0"):
        gbt.sensitivity(fit, items=[1, 30])
    with pytest.raises(ValueError, match="comparisons has -1"):
        gbt.sensitivity(fit, comparisons=[-1])
    with pytest.raises(ValueError, match="items must be a list of integers"):
        gbt.sensitivity(fit, items=[0.5])
    with pytest.raises(ValueError, match="wrt must be one of value, weight"):
        gbt.sensitivity(fit, wrt="scores")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="Uniform has no parameters"):
        gbt.sensitivity(fit, wrt="law")
    with pytest.raises(ValueError, match="not with wrt='prior_std'"):
        gbt.sensitivity(fit, wrt="prior_std", comparisons=[1])
    failed = gbt.fit(MODELS["one prior"], ROWS, max_steps=1, throw=False)
    with pytest.raises(ValueError, match="did not find the optimum"):
        gbt.sensitivity(failed)
