"""Functions of a fit: each takes a fit with groups, or says how to call it for one of them."""

import inspect
from collections.abc import Callable

import jax
import numpy as np
import pytest

import gbt_jax as gbt
from gbt_jax import _api, guarantees, influence, laws, plots, prediction, uncertainty
from gbt_jax._inference._fit import select_groups

KEY = jax.random.key(0)
MODEL = gbt.Model(laws.Uniform(), 1.5)
Call = Callable[[Callable, gbt.Fit], object]


def row_of(fit: gbt.Fit) -> gbt.Comparisons:
    return gbt.Comparisons([0], [1], [0.5], num_items=fit.comparisons.num_items)


# Further arguments of the functions that take one group. Every call would run with a `Fit`.
ONE_GROUP: dict[str, Call] = {
    "check_new_comparison": lambda f, fit: f(fit, 0, 1),
    "check_resilience": lambda f, fit: f(fit),
    "covariance": lambda f, fit: f(fit),
    "flip_set": lambda f, fit: f(fit, top=1),
    "influence.leave_out": lambda f, fit: f(fit),
    "refit": lambda f, fit: f(fit, added=row_of(fit)),
    "required_change": lambda f, fit: f(fit, 0, 0.1),
    "robust_covariance": lambda f, fit: f(fit),
    "sample_posterior": lambda f, fit: f(fit, 4, key=KEY, warmup=1),
    "what_if": lambda f, fit: f(fit, added=row_of(fit)),
    "plots.calibration": lambda f, fit: f(fit, row_of(fit)),
    "plots.comparison_graph": lambda f, fit: f(fit),
    "plots.influence": lambda f, fit: f(fit),
    "plots.ranking": lambda f, fit: f(fit),
    "plots.sensitivity": lambda f, fit: f(fit),
}
ALL_GROUPS: dict[str, Call] = {
    "bootstrap": lambda f, fit: f(fit, 2, key=KEY),
    "calibration": lambda f, fit: f(fit, row_of(fit)).statistic,
    "check_monotone": lambda f, fit: f(fit).margin,
    "curvature": lambda f, fit: f(fit).diagonal(),
    "difference_std": lambda f, fit: f(fit, [0], [1]),
    "intervals": lambda f, fit: f(fit),
    "likelihood_intervals": lambda f, fit: f(fit),
    "posterior_samples": lambda f, fit: f(fit, 2, key=KEY),
    "predict": lambda f, fit: f(fit, [0], [1]).mean,
    "prob_better": lambda f, fit: f(fit, [0], [1]),
    "profile_intervals": lambda f, fit: f(fit),
    "rank_intervals": lambda f, fit: f(fit, key=KEY, num=10),
    "response_sensitivity": lambda f, fit: f(fit),
    "sensitivity": lambda f, fit: f(fit),
    "std": lambda f, fit: f(fit),
}
# Scores of the groups other than the second.
OTHERS = np.repeat([True, False, True], 3)
ROOMS = (_api, uncertainty, influence, prediction, guarantees)


@pytest.fixture(scope="module")
def fit():
    """Three groups of three items, whose rows alternate."""
    return gbt.fit(
        MODEL,
        gbt.Comparisons(
            [0, 1, 2, 0, 1, 2, 1, 2, 0],
            [1, 2, 0, 2, 0, 1, 0, 1, 2],
            [0.5, -0.2, 0.1, 0.3, 0.4, -0.9, 0.7, 0.2, -0.3],
            num_items=3,
            group=[7, 8, 9] * 3,
        ),
    )


@pytest.fixture(scope="module")
def spoilt(fit):
    """The same, but for a weight of the second group that is none."""
    return gbt.fit(MODEL, fit.comparisons.with_weights(np.where(np.arange(9) == 4, -1.0, 1.0)))


def function_named(name: str) -> Callable:
    if name.startswith("plots."):
        return getattr(plots, name[6:])
    name = name.removeprefix("influence.")
    return next(getattr(room, name) for room in ROOMS if hasattr(room, name))


def test_every_public_function_of_a_fit_is_listed():
    found = set()
    for room in (*ROOMS, plots):
        for name, function in vars(room).items():
            if not name.startswith("_") and inspect.isfunction(function):
                first = next(iter(inspect.signature(function).parameters.values()))
                if "Fit" in str(first.annotation):
                    found.add(f"plots.{name}" if room is plots else name)
    listed = {name.removeprefix("influence.") for name in (*ONE_GROUP, *ALL_GROUPS)}
    assert found == listed


@pytest.mark.parametrize("name", ONE_GROUP)
def test_groups_are_refused_with_the_way_out(name, fit):
    with pytest.raises(TypeError, match=rf"group.*: call {name}\(fit\[7\]\) for one group"):
        ONE_GROUP[name](function_named(name), fit)


def test_a_label_stands_in_the_message_as_it_is_typed():
    rows = gbt.Comparisons.from_labels([0, 1], [1, 2], [0.5, -0.2], group=["ada", "ada"])
    fit = gbt.fit(MODEL, rows)
    with pytest.raises(
        TypeError,
        match=r"^scores of different groups are independent: call covariance\(fit\['ada'\]\) for",
    ):
        gbt.uncertainty.covariance(fit)


@pytest.mark.parametrize("name", ["influence.leave_out", "what_if", "required_change"])
def test_a_curvature_that_was_made_already_changes_nothing(name, fit):
    made = gbt.curvature(fit)

    def with_made(fit, *args, **options):
        return function_named(name)(fit, *args, using=made, **options)

    with pytest.raises(TypeError, match=rf"{name}\(fit\[7\]\)"):
        ONE_GROUP[name](with_made, fit)


@pytest.mark.parametrize("name", [*ONE_GROUP, *ALL_GROUPS])
def test_what_is_no_fit_is_refused(name):
    call = ONE_GROUP.get(name) or ALL_GROUPS[name]

    class NoFit:
        comparisons = gbt.Comparisons([0], [1], [0.5], num_items=3)

    with pytest.raises(TypeError, match=r"a Fit is needed, not NoFit|takes a Fit .*, not NoFit"):
        call(function_named(name), NoFit())  # pyright: ignore[reportArgumentType]


# --------------------------------------------------------------------- the same as group by group


@pytest.mark.parametrize("name", ["std", "intervals", "likelihood_intervals", "profile_intervals"])
def test_the_same_bits_as_group_by_group(name, fit):
    call, function = ALL_GROUPS[name], function_named(name)
    whole = jax.tree.leaves(call(function, fit))
    for number, label in enumerate(fit):
        own = jax.tree.leaves(call(function, fit[label]))
        for many, one in zip(whole, own, strict=True):
            np.testing.assert_array_equal(many[3 * number : 3 * number + 3], one)


@pytest.mark.parametrize("name", ["difference_std", "prob_better", "predict", "calibration"])
def test_pairs_of_the_first_group(name, fit):
    call, function = ALL_GROUPS[name], function_named(name)
    np.testing.assert_allclose(call(function, fit), call(function, fit[7]), rtol=1e-12)


def test_monotone_margins(fit):
    whole = gbt.check_monotone(fit)
    alone = [gbt.check_monotone(fit[label]) for label in fit]
    assert whole.holds
    assert whole.checked == sum(one.checked for one in alone) == 9
    assert whole.margin == min(one.margin for one in alone)
    assert whole.numbers == {"groups": 3, "groups without an optimum": 0}


def test_matrices_have_a_block_for_each_group(fit):
    rows = fit.comparisons
    owner = np.asarray(rows.group)[np.asarray(rows.a)]
    for name, axis in (("sensitivity", 0), ("response_sensitivity", 1)):
        found = np.moveaxis(np.asarray(ALL_GROUPS[name](function_named(name), fit)), axis, 0)
        for number, label in enumerate(fit):
            block = found[3 * number : 3 * number + 3]
            one = np.asarray(ALL_GROUPS[name](function_named(name), fit[label]))
            np.testing.assert_allclose(
                block[:, owner == number], np.moveaxis(one, axis, 0), rtol=1e-12
            )
            np.testing.assert_array_equal(block[:, owner != number], 0)


def test_draws_and_ranks_have_a_column_for_each_score(fit):
    for name in ("bootstrap", "posterior_samples"):
        drawn = np.asarray(ALL_GROUPS[name](function_named(name), fit))
        assert drawn.shape == (2, 9)
        assert np.isfinite(drawn).all()
    ranks = gbt.rank_intervals(fit, key=KEY, num=10)
    np.testing.assert_array_equal(np.sort(np.reshape(ranks.estimate, (3, 3))), [[1, 2, 3]] * 3)


def test_counterfactuals_move_their_own_group(fit):
    changed = {"removed": [4], "changed": ([7], [-0.9])}  # rows of the second group
    found = gbt.what_if(fit, **changed)
    expected = gbt.what_if(fit[8], removed=[1], changed=([2], [-0.9]))
    for many, one in ((found.change, expected.change), (found.predicted, expected.predicted)):
        np.testing.assert_allclose(many[3:6], one, atol=1e-12)
        np.testing.assert_allclose(many[OTHERS], 0, atol=1e-13)


def test_the_bootstrap_of_groups_is_that_of_each(fit):
    drawn = np.asarray(gbt.uncertainty.bootstrap(fit, 300, key=KEY))
    alone = np.asarray(gbt.uncertainty.bootstrap(fit[9], 300, key=KEY))
    np.testing.assert_allclose(drawn[:, 6:].mean(axis=0), alone.mean(axis=0), atol=0.15)
    np.testing.assert_allclose(drawn[:, 6:].std(axis=0), alone.std(axis=0), rtol=0.3)


def test_profiles_of_some_items_are_for_one_group(fit):
    for options in ({"items": [0]}, {"using": gbt.curvature(fit)}):
        with pytest.raises(ValueError, match=r"profile_intervals\(fit\[label\], …\)"):
            gbt.uncertainty.profile_intervals(fit, **options)


# --------------------------------------------------------------------------------- failed groups


@pytest.mark.parametrize("name", ["std", "intervals", "likelihood_intervals", "profile_intervals"])
def test_a_failed_group_has_nan_and_spoils_no_other(name, fit, spoilt):
    assert spoilt.result.names.tolist() == ["successful", "invalid_data", "successful"]
    call, function = ALL_GROUPS[name], function_named(name)
    columns = zip(*(jax.tree.leaves(call(function, x)) for x in (spoilt, fit)), strict=True)
    for found, good in columns:
        assert np.isnan(found[3:6]).all()
        np.testing.assert_array_equal(found[OTHERS], good[OTHERS])


def test_a_failed_group_has_no_ranks(spoilt):
    for ends in gbt.rank_intervals(spoilt, key=KEY, num=10):
        np.testing.assert_array_equal(np.isnan(ends), ~OTHERS)


def test_a_failed_group_spoils_no_draw_and_no_counterfactual(fit, spoilt):
    for name in ("bootstrap", "posterior_samples"):
        drawn = np.asarray(ALL_GROUPS[name](function_named(name), spoilt))
        assert np.isnan(drawn[:, 3:6]).all()
        assert np.isfinite(drawn[:, OTHERS]).all()
    found, expected = (gbt.what_if(x, removed=[0]) for x in (spoilt, fit))
    for name in ("change", "predicted"):
        many, good = (np.asarray(getattr(x, name)) for x in (found, expected))
        assert np.isnan(many[3:6]).all()
        np.testing.assert_allclose(many[OTHERS], good[OTHERS], rtol=1e-10, atol=1e-12)
    mended = gbt.what_if(spoilt, removed=[4])
    assert not mended.fit.failures()
    assert np.isnan(mended.change[3:6]).all()
    report = gbt.check_monotone(spoilt)
    assert report.holds
    assert (report.checked, report.numbers["groups without an optimum"]) == (6, 1)
    assert report.first_not_evaluated.startswith("group 8, row 1, item 1 against 2")


def test_a_failed_group_spoils_no_derivative(fit, spoilt):
    owner = np.asarray(fit.comparisons.group)[np.asarray(fit.comparisons.a)]
    for name in ("sensitivity", "response_sensitivity"):
        found, good = (np.asarray(ALL_GROUPS[name](function_named(name), x)) for x in (spoilt, fit))
        if name == "response_sensitivity":
            found, good = found.T, good.T
        assert np.isnan(found[:, owner == 1][~OTHERS]).any()
        kept = np.ix_(OTHERS, owner != 1)
        np.testing.assert_allclose(found[kept], good[kept], rtol=1e-12, atol=1e-15)


def test_merging_hides_no_bad_row(spoilt):
    """A negative weight, beside a repeat of its pair."""
    rows = spoilt.comparisons
    ends = (np.append(x, x[4]) for x in (rows.a, rows.b, rows.value))
    repeated = rows._with_rows(*ends, np.append(rows.weight, 5.0))
    merged = gbt.fit(MODEL, repeated.merge_repeats())
    assert merged.result.names.tolist() == spoilt.result.names.tolist()
    np.testing.assert_allclose(merged[9].scores, spoilt[9].scores, atol=1e-12)


def test_a_part_of_the_groups_is_a_fit(fit):
    part = select_groups(fit, 1, 3)
    assert list(part) == [8, 9]
    np.testing.assert_array_equal(part.scores, fit.scores[3:])
    np.testing.assert_array_equal(gbt.std(part), gbt.std(fit)[3:])
