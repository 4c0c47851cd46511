"""One battery for all laws: cgf, mean and variance, their derivatives, dtypes, the inverse."""

import functools
import math
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from law_battery import LAWS, evaluator, every_law, over_laws

from gbt_jax import laws

_SIZES = np.append(np.geomspace(1e-3, 30, 25), [100.0, 700.0])
GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])


@every_law
def test_cgf_is_zero_at_zero_even_and_convex(case):
    cgf, _, variance = (np.asarray(x) for x in evaluator(case)(GRID))
    assert cgf[GRID == 0] == 0
    np.testing.assert_array_equal(cgf, cgf[::-1])
    share = (GRID[1:-1] - GRID[:-2]) / (GRID[2:] - GRID[:-2])
    chord = (1 - share) * cgf[:-2] + share * cgf[2:]
    assert np.all(cgf[1:-1] <= chord * (1 + 1e-14))
    assert np.all(cgf[1:-1] < chord, where=np.abs(GRID[1:-1]) < 5)
    assert np.all(variance > 0, where=np.abs(GRID) < 100)


@every_law
def test_mean_is_odd_increasing_and_within_the_support(case):
    mean = np.asarray(evaluator(case)(GRID)[1])
    assert mean[GRID == 0] == 0
    np.testing.assert_array_equal(mean, -mean[::-1])
    assert np.all(np.diff(mean) >= 0)
    assert np.all(np.diff(mean) > 0, where=np.abs(GRID[1:]) < 5)
    assert np.all(np.abs(mean) <= case.law.max_value)


@every_law
def test_grad_of_cgf_is_mean_and_variance(case):
    first = jax.grad(lambda t: case.law.cgf(t))
    by_grad = jax.jit(jax.vmap(lambda t: (first(t), jax.grad(first)(t))))(GRID)
    np.testing.assert_allclose(by_grad, evaluator(case)(GRID)[1:], rtol=1e-13, atol=1e-300)


# Beyond SPECIAL_POINTS: where the laws of the battery change form.
SWITCH_POINTS = (0.25, 2 / 3, 0.8, 1 / 1.05, 1.0, 2.0, 4.0, 7.0, 20.0, 60.0, 189.3, 283.9)
FINITE_POINTS = np.asarray(
    [0.0, 1e-300, -1e-300, 1e-12, 1e-4, *SWITCH_POINTS, -1.0, 30.0, 100.0, -100.0, 700.0, 1e4, 1e6]
)


def _nest(derive, function, order):
    return functools.reduce(lambda f, _: derive(f), range(order), function)


@pytest.mark.slow
@every_law
def test_derivatives_to_order_four_are_finite_in_every_mode(case):
    # Counts have no float beyond e^709; every other cumulant of every law is a float.
    points = FINITE_POINTS[np.abs(FINITE_POINTS) <= 700] if case.is_integer else FINITE_POINTS
    results = {}
    for name, derive in (("forward", jax.jacfwd), ("reverse", jax.grad)):

        @jax.jit
        def derivatives(t, derive=derive):
            orders = [_nest(derive, case.law.cgf, order) for order in range(1, 5)]
            return jnp.stack([jax.vmap(f)(t) for f in orders])

        results[name] = np.asarray(derivatives(jnp.asarray(points)))
        for order, values in enumerate(results[name], start=1):
            assert np.isfinite(values).all(), (name, order, points[~np.isfinite(values)])
    np.testing.assert_allclose(results["forward"], results["reverse"], rtol=1e-11, atol=1e-300)
    jacobian = jax.jit(jax.jacrev(jax.jacrev(lambda t: jnp.sum(case.law.cgf(t)))))
    np.testing.assert_allclose(
        np.diag(jacobian(jnp.asarray(points))), results["forward"][1], rtol=1e-13, atol=1e-300
    )


@every_law
def test_vmap_equals_loop(case):
    t = GRID[::6]
    loop = np.stack([evaluator(case)(x) for x in t], axis=1)
    np.testing.assert_allclose(jax.vmap(evaluator(case))(t), loop, rtol=1e-13, atol=1e-300)


def _use_every_method(law, t):
    draws = law.sample(t, key=jax.random.key(0), shape=(2,))
    results = [law.cgf(t), law.mean(t), law.variance(t), law.inverse_mean(0.1 * law.mean(t))]
    results += [draws, law.log_prob(draws, t), law.log_root(draws)]
    return results + ([law.step_up(draws), law.step_down(draws)] if law.is_discrete else [])


@every_law
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_in_is_dtype_out(case, dtype):
    t = jnp.asarray([0.3, -1.7], dtype)
    for result in jax.eval_shape(lambda t: _use_every_method(case.law, t), t):
        assert result.dtype == dtype


@every_law
def test_integers_and_python_scalars(case):
    expected = evaluator(case)(2.0)
    np.testing.assert_array_equal(evaluator(case)(2), expected)
    for t in (2, jnp.asarray(2)):
        for result in jax.eval_shape(lambda t=t: _use_every_method(case.law, t)):
            assert result.dtype == jnp.float64


_WITHOUT_X64 = """
import jax
before = dict(jax.config.values)
import gbt_jax
assert dict(jax.config.values) == before, "importing gbt_jax changed JAX's configuration"
import numpy as np
from law_battery import LAWS, evaluator
from test_laws import _use_every_method
jax.config.update("jax_numpy_dtype_promotion", "strict")
for case in LAWS:
    for result in jax.eval_shape(lambda: _use_every_method(case.law, 0.8)):
        assert result.dtype == np.float32, case.label
    assert np.isfinite(evaluator(case)(2)).all(), case.label
print("float32 throughout")
"""


def test_without_x64_and_import_changes_no_configuration():
    here = pathlib.Path(__file__).parent
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _WITHOUT_X64],
        env=environment | {"PYTHONPATH": str(here), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "float32 throughout" in run.stdout


PARAMETRIC = tuple(case for case in LAWS if case.parameters)
every_parametric_law = over_laws(PARAMETRIC)


def _central_difference(function, parameters, relative_step):
    """∂function/∂parameters, in the last axis."""
    columns = []
    for i, parameter in enumerate(parameters):
        step = np.zeros(len(parameters))
        step[i] = relative_step * parameter
        columns.append((function(parameters + step) - function(parameters - step)) / (2 * step[i]))
    return np.stack(columns, axis=-1)


def _assert_derivative(found, expected, value):
    """Up to the error of central differences, a small part of each function's own size.

    Functions along the first axis, points along the second.
    """
    error = np.abs(np.asarray(found) - expected)
    value = np.abs(np.asarray(value))[..., None]
    largest = np.max(value, axis=1, keepdims=True)
    allowed = 1e-6 * np.abs(expected) + 1e-8 * value + 1e-10 * largest
    assert np.all(error <= allowed), np.max(error / np.where(allowed > 0, allowed, 1))


@every_parametric_law
@pytest.mark.slow
def test_parameters_are_differentiable(case):
    t = jnp.asarray([0.0, 0.3, -2.0, 25.0, 80.0])  # Beta: series up to 60, then asymptotics

    def function(parameters):
        law = case.make(*parameters)
        return jnp.stack([law.cgf(t), law.mean(t), law.variance(t)])

    jacobian = jax.jacrev(function)

    @jax.jit
    def orders(parameters):
        return function(parameters), jacobian(parameters), jax.jacfwd(jacobian)(parameters)

    parameters = jnp.asarray(case.parameters)
    value, first, second = orders(parameters)
    assert np.any(np.asarray(first) != 0)
    _assert_derivative(first, _central_difference(lambda p: orders(p)[0], parameters, 1e-5), value)
    _assert_derivative(second, _central_difference(lambda p: orders(p)[1], parameters, 1e-5), first)


@every_parametric_law
@pytest.mark.slow
def test_inverse_mean_is_differentiable_in_parameters(case):
    m = jnp.asarray([0.0, 0.2, -0.35]) * min(1.0, float(case.law.max_value))

    def function(parameters):
        return case.make(*parameters).inverse_mean(m)[None]

    @jax.jit
    def orders(parameters):
        reverse, forward = jax.jacrev(function), jax.jacfwd(function)
        return function(parameters), reverse(parameters), forward(parameters)

    parameters = jnp.asarray(case.parameters)
    value, reverse, forward = orders(parameters)
    expected = _central_difference(lambda p: orders(p)[0], parameters, 1e-5)
    assert np.any(expected != 0)
    _assert_derivative(reverse, expected, value)
    _assert_derivative(forward, expected, value)


@every_law
def test_inverse_mean_round_trips_and_ends(case):
    edge = float(case.law.max_value)
    shares = np.asarray([0.0, 1e-300, -1e-12, 0.01, -0.3, 0.5, 0.9, -0.999, 0.999999, -0.999999])
    m = shares * edge if math.isfinite(edge) else shares * 1e6
    beyond = np.asarray([edge, -edge, 1.001 * edge, -2 * edge, np.inf, np.nan])
    inverse = jax.jit(lambda m: case.law.inverse_mean(m))
    t, at_ends, outside = np.split(inverse(np.append(m, beyond)), [10, 12])
    np.testing.assert_array_equal(at_ends, [np.inf, -np.inf])
    assert np.isnan(outside).all() or not math.isfinite(edge)
    assert np.isfinite(t).all()
    np.testing.assert_array_equal(np.sign(t), np.sign(m))
    # Rounding t moves the mean by up to |t| ε Φ''(t), which may exceed ε |m|.
    eps = np.finfo(float).eps
    _, mean, variance = evaluator(case)(t)
    allowed = 8 * eps * (np.abs(m) + np.abs(t * variance))
    assert np.all(np.abs(mean - m) <= allowed)
    single = inverse(jnp.asarray(m[3:7], jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, t[3:7], rtol=1e-4)


@every_law
@pytest.mark.slow
def test_derivatives_of_inverse_mean(case):
    """t' = 1/Φ'', t'' = −Φ'''/Φ''³."""
    m = jnp.asarray([0.0, 1e-8, 0.1, -0.6, 0.95]) * min(1.0, float(case.law.max_value))

    @jax.jit
    def orders(m):
        t = case.law.inverse_mean(m)
        variance, third = jax.jvp(case.law.variance, (t,), (jnp.ones_like(t),))
        reverse, forward = jax.grad(case.law.inverse_mean), jax.jacfwd(case.law.inverse_mean)
        firsts = jax.vmap(reverse)(m), jax.vmap(forward)(m)
        return variance, third, firsts, jax.vmap(jax.jacfwd(reverse))(m)

    variance, third, firsts, second = orders(m)
    for first in firsts:
        np.testing.assert_allclose(first, 1 / variance, rtol=1e-12)
    np.testing.assert_allclose(second, -third / variance**3, rtol=1e-10, atol=1e-14)


@every_law
def test_steps(case):
    law = case.law
    if not law.is_discrete:
        for step in (law.step_up, law.step_down):
            with pytest.raises(TypeError, match="no steps: between any two of its values"):
                step(0.0)
        return
    values = case.support() if law.atoms() is not None else np.arange(-9.0, 10)
    np.testing.assert_allclose(law.step_up(values)[:-1], np.diff(values), rtol=1e-13)
    np.testing.assert_allclose(law.step_down(values)[1:], np.diff(values), rtol=1e-13)
    between = 0.7 * values[:-1] + 0.3 * values[1:]
    np.testing.assert_allclose(between + law.step_up(between), values[1:], atol=1e-13)
    np.testing.assert_allclose(between - law.step_down(between), values[:-1], atol=1e-13)
    if law.atoms() is not None:
        assert law.step_up(values[-1]) == law.step_down(values[0]) == np.inf
        assert law.step_up(values[0] - 1) == pytest.approx(1)


@every_parametric_law
def test_new_parameter_values_do_not_retrace(case):
    traces = []

    @jax.jit
    def evaluate(law, t):
        traces.append(1)
        return law.cgf(t), law.mean(t), law.variance(t)

    first = evaluate(case.law, 0.5)
    other = jax.tree.map(lambda p: 1.25 * p, case.law)
    second = evaluate(other, 0.5)
    evaluate(case.make(*(jnp.asarray(1.1 * p) for p in case.parameters)), 0.7)
    assert len(traces) == 1
    assert first[0] != second[0]


def test_nearest_rounds_onto_the_grid():
    np.testing.assert_allclose(
        laws.KNary(5).nearest(np.asarray([-7.0, -0.6, 0.2, 0.26, 0.9])), [-1, -0.5, 0, 0.5, 1]
    )
