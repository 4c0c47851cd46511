"""Functions of a fit: each takes the fits of many users, or says how to pass one of them."""

import inspect
from collections.abc import Callable

import jax
import numpy as np
import pytest

import gbt_jax as gbt
from gbt_jax import _api, laws, plots

KEY = jax.random.key(0)
ROW = gbt.Comparisons([0], [1], [0.5], num_items=3)

# Further arguments of the functions that take one fit. Every call would run with a `Fit`.
ONE_FIT: dict[str, Callable[[Callable, object], object]] = {
    "bootstrap": lambda f, fit: f(fit, 2, key=KEY),
    "calibration": lambda f, fit: f(fit, ROW),
    "check_new_comparison": lambda f, fit: f(fit, 0, 1),
    "check_resilience": lambda f, fit: f(fit),
    "covariance": lambda f, fit: f(fit),
    "flip_set": lambda f, fit: f(fit, top=1),
    "influence": lambda f, fit: f(fit),
    "predict": lambda f, fit: f(fit, 0, 1),
    "profile_intervals": lambda f, fit: f(fit),
    "required_change": lambda f, fit: f(fit, 0, 0.1),
    "response_sensitivity": lambda f, fit: f(fit),
    "robust_covariance": lambda f, fit: f(fit),
    "sample_posterior": lambda f, fit: f(fit, 4, key=KEY, warmup=1),
    "sensitivity": lambda f, fit: f(fit),
    "what_if": lambda f, fit: f(fit, removed=[0]),
    "plots.calibration": lambda f, fit: f(fit, ROW),
    "plots.comparison_graph": lambda f, fit: f(fit),
    "plots.influence": lambda f, fit: f(fit),
    "plots.ranking": lambda f, fit: f(fit),
    "plots.sensitivity": lambda f, fit: f(fit),
}
MANY_FITS: dict[str, Callable[[Callable, object], object]] = {
    "check_monotone": lambda f, fit: f(fit),
    "curvature": lambda f, fit: f(fit).diagonal(),
    "difference_std": lambda f, fit: f(fit, 0, 1),
    "intervals": lambda f, fit: f(fit),
    "likelihood_intervals": lambda f, fit: f(fit),
    "posterior_samples": lambda f, fit: f(fit, 2, key=KEY),
    "prob_better": lambda f, fit: f(fit, 0, 1),
    "rank_intervals": lambda f, fit: f(fit, key=KEY, num=10),
    "std": lambda f, fit: f(fit),
}


@pytest.fixture(scope="module")
def fits():
    """Two users of three items each, with as many items and rows as there are users and more."""
    users = gbt.UserComparisons.from_arrays(
        ["ada"] * 3 + ["bob"] * 3, [0, 1, 2] * 2, [1, 2, 0] * 2, [0.5, -0.2, 0.1, 0.3, 0.4, -0.9]
    )
    return gbt.fit_users(gbt.Model(laws.Uniform(), 1.0), users)


def function_named(name: str) -> Callable:
    return getattr(plots, name[6:]) if name.startswith("plots.") else getattr(gbt, name)


def test_every_public_function_of_a_fit_is_listed():
    offered = {name: x for name, x in vars(_api).items() if not name.startswith("_")}
    offered |= {f"plots.{name}": x for name, x in vars(plots).items() if not name.startswith("_")}
    found = set()
    for name, function in offered.items():
        if inspect.isfunction(function):
            first = next(iter(inspect.signature(function).parameters.values()))
            if "Fit" in str(first.annotation):
                found.add(name)
    assert found == set(ONE_FIT) | set(MANY_FITS)


@pytest.mark.parametrize("name", ONE_FIT)
def test_fits_of_many_users_are_refused_with_the_way_out(name, fits):
    with pytest.raises(TypeError, match=rf"{name}\(fits\['ada'\]"):
        ONE_FIT[name](function_named(name), fits)


@pytest.mark.parametrize("name", ["sensitivity", "influence", "what_if", "required_change"])
def test_a_curvature_that_was_made_already_changes_nothing(name, fits):
    made = gbt.curvature(fits)

    def with_made(fit, *args, **options):
        return getattr(gbt, name)(fit, *args, using=made, **options)

    with pytest.raises(TypeError, match=rf"{name}\(fits\['ada'\]"):
        ONE_FIT[name](with_made, fits)


@pytest.mark.parametrize("name", [*ONE_FIT, *MANY_FITS])
def test_what_is_no_fit_is_refused(name):
    call = ONE_FIT.get(name) or MANY_FITS[name]
    with pytest.raises(TypeError, match="a Fit is needed, not Model"):
        call(function_named(name), gbt.Model(laws.Uniform()))


@pytest.mark.parametrize("name", sorted(set(MANY_FITS) - {"check_monotone"}))
def test_fits_of_many_users_hold_one_result_per_score(name, fits):
    """Of the first user, what its own fit gives; draws are compared by their shape."""
    call, function = MANY_FITS[name], function_named(name)
    whole, own = (jax.tree.leaves(call(function, fit)) for fit in (fits, fits["ada"]))
    for many, one in zip(whole, own, strict=True):
        many, one = np.asarray(many), np.asarray(one)
        if name in ("posterior_samples", "rank_intervals"):
            assert many.shape[-1] == 2 * one.shape[-1]
        else:
            np.testing.assert_allclose(many[: one.size], one, rtol=1e-6)


def test_a_label_stands_in_the_message_as_it_is_typed():
    users = gbt.UserComparisons.from_arrays([7, 7], [0, 1], [1, 2], [0.5, -0.2])
    fits = gbt.fit_users(gbt.Model(laws.Uniform(), 1.0), users)
    with pytest.raises(TypeError, match=r"sensitivity\(fits\[7\]\)"):
        gbt.sensitivity(fits)  # pyright: ignore[reportArgumentType]
