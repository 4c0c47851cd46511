"""Groups: the same answers as one by one, whatever the other groups are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import (
    comparisons_of_group,
    group_columns,
    tournesol_problems,
    with_full_optimisation,
)

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._data._groups import sort_by_group

MODEL = gbt.Model(laws.Uniform(), 7.0)
SIZES = (2, 5, 8, 9, 16, 17, 40, 200, 2100)  # the last is too large for a union


@pytest.fixture(scope="module")
def data():
    return group_columns(SIZES)


@pytest.fixture(scope="module")
def rows(data):
    return gbt.Comparisons.from_labels(*data[1:], group=data[0])


@pytest.fixture(scope="module")
def fit(rows):
    return gbt.fit(MODEL, rows)


@pytest.fixture(scope="module")
def small():
    """Four groups of three items, whose rows alternate."""
    return gbt.Comparisons.from_labels(
        np.repeat(["x", "z", "y", "x"], 4),
        np.repeat(["y", "y", "x", "z"], 4),
        np.linspace(-0.8, 0.9, 16),
        np.linspace(0.5, 2.0, 16),
        group=["ada", "bob", "cyd", "dan"] * 4,
    )


# ------------------------------------------------------------------------------------------ labels


def test_rows_keep_their_order_and_items_are_numbered_by_group():
    rows = gbt.Comparisons.from_labels(
        [5, 5, 9, 7], [9, 7, 5, 5], [0.1, 0.2, 0.3, 0.4], group=["zoe", "ada", "zoe", "ada"]
    )
    np.testing.assert_array_equal(rows.group_labels, ["ada", "zoe"])
    np.testing.assert_array_equal(rows.item_labels, [5, 7, 5, 9])
    np.testing.assert_array_equal(rows.group, [0, 0, 1, 1])
    np.testing.assert_array_equal(rows.a, [2, 0, 3, 1])
    np.testing.assert_array_equal(rows.b, [3, 1, 2, 0])
    np.testing.assert_array_equal(rows.value, [0.1, 0.2, 0.3, 0.4])
    assert (rows.num_groups, rows.num_items, len(rows)) == (2, 4, 4)
    assert repr(rows) == "Comparisons(4 rows, 4 items, 2 groups)"
    # The same with item numbers, of which not every group has all.
    numbered = gbt.Comparisons(
        [0, 0, 2, 1], [2, 1, 0, 0], [0.1, 0.2, 0.3, 0.4], num_items=3, group=[9, -4, 9, -4]
    )
    np.testing.assert_array_equal(numbered.group_labels, [-4, 9])
    np.testing.assert_array_equal(numbered.item_labels, [0, 1, 0, 2])
    np.testing.assert_array_equal(numbered.a, rows.a)
    np.testing.assert_array_equal(numbered.b, rows.b)


def test_labels_may_be_large_negative_or_text():
    number = np.array([-5, 10**15, -5, 10**15])
    text = np.array(["minus", "plus", "minus", "plus"])
    item, other = np.array([10**12, -1, 3, 4]), np.array([7, 3, -1, 10**12])
    value = np.array([0.1, -0.2, 0.3, 0.4])
    make = gbt.Comparisons.from_labels
    by_number = gbt.fit(MODEL, make(item, other, value, group=number))
    by_text = gbt.fit(MODEL, make(item.astype(str), other.astype(str), value, group=text))
    expected = dict(
        zip(zip(by_number.group, by_number.item, strict=True), by_number.scores, strict=True)
    )
    for group, label, score in zip(by_text.group, by_text.item, by_text.scores, strict=True):
        key = (-5 if group == "minus" else 10**15, int(label))
        np.testing.assert_allclose(score, expected[key], atol=1e-14)


def test_narrow_integers_do_not_overflow():
    group, item = np.array([-20000, 5, 20000], np.int16), np.array([-100, 45, 100], np.int8)
    rows = gbt.Comparisons.from_labels(item, item[::-1] + np.int8(1), [0.1, 0.2, 0.3], group=group)
    np.testing.assert_array_equal(rows.group_labels, [-20000, 5, 20000])
    np.testing.assert_array_equal(rows.item_labels, [-100, 101, 45, 46, -99, 100])


@pytest.mark.parametrize("kind", [np.int64, np.uint64, "U9", "S9", object])
@pytest.mark.parametrize("span", [3, 30, 10**8])
def test_labels_are_ordered_as_numpy_does(kind, span):
    rng = np.random.default_rng(span)
    group, a = (rng.integers(0, span, 200) for _ in range(2))
    columns = group, a, a + 1 + rng.integers(0, span, 200)
    if kind is object:
        columns = tuple(column.astype(str) for column in columns)
    group, a, b = (column.astype(kind) for column in columns)
    rows = gbt.Comparisons.from_labels(a, b, np.zeros(200), group=group)
    np.testing.assert_array_equal(rows.group_labels, np.unique(group))
    np.testing.assert_array_equal(rows.item_labels[rows.a], a)
    np.testing.assert_array_equal(rows.item_labels[rows.b], b)
    for end in (rows.a, rows.b):
        np.testing.assert_array_equal(rows.group_labels[np.asarray(rows.group)[end]], group)
    pairs = list(zip(np.asarray(rows.group).tolist(), rows.item_labels.tolist(), strict=True))
    assert pairs == sorted(set(pairs))


def test_labels_survive_other_values_and_weights(small):
    again = small.with_values(-small.value).with_weights(2 * small.weight)
    np.testing.assert_array_equal(again.group_labels, ["ada", "bob", "cyd", "dan"])
    np.testing.assert_array_equal(again.item_labels, small.item_labels)
    np.testing.assert_array_equal(again.value, -small.value)
    np.testing.assert_array_equal(again.weight, 2 * small.weight)
    alone = gbt.Comparisons.from_labels(["x", "y"], ["y", "z"], [0.1, 0.2])
    np.testing.assert_array_equal(alone.with_weights([1.0, 2.0]).item_labels, ["x", "y", "z"])
    np.testing.assert_array_equal(small.merge_repeats().group_labels, small.group_labels)
    np.testing.assert_array_equal(small.merge_repeats().item_labels, small.item_labels)


def test_other_labels_cause_no_retrace():
    traces = []

    @jax.jit
    def scores(model, rows):
        traces.append(rows.num_groups)
        return gbt.map_scores(model, rows)

    columns = ["x", "y", "x", "y"], ["y", "z", "y", "z"], [0.1, 0.2, -0.3, 0.4]
    first = gbt.Comparisons.from_labels(*columns, group=["ada", "ada", "bob", "bob"])
    second = gbt.Comparisons.from_labels([7, 8, 7, 8], [8, 9, 8, 9], columns[2], group=[5, 5, 3, 3])
    found = scores(MODEL, first), scores(MODEL, second)
    assert traces == [2]
    # In the second data set the groups are in the other order.
    np.testing.assert_allclose(jnp.roll(found[1], 3), found[0], atol=1e-14)


def test_columns_that_do_not_fit_together_are_refused():
    make = gbt.Comparisons.from_labels
    with pytest.raises(ValueError, match="a has 2, b has 2, group has 1"):
        make([1, 2], [2, 1], [0.5, 0.5], group=[1])
    with pytest.raises(ValueError, match="a has 2, value has 1, weight has 1"):
        make([1, 2], [2, 1], [0.5], group=[1, 1])
    with pytest.raises(ValueError, match="a must be a vector of integers or strings"):
        make([1.5], [2], [0.5], group=[1])
    with pytest.raises(ValueError, match="group must be a vector of integers or strings"):
        make([1], [2], [0.5], group=[1.5])
    with pytest.raises(ValueError, match="value must be a vector of numbers"):
        make([1], [2], ["much"], group=[1])
    with pytest.raises(ValueError, match="both be integers or both strings"):
        make([1], ["x"], [0.5], group=[1])
    with pytest.raises(ValueError, match=r"prior_std must be .* item \(2\) or one per group \(1\)"):
        gbt.fit(gbt.Model(laws.Uniform(), np.ones(3)), make([1], [2], [0.5], group=[1]))
    with pytest.raises(ValueError, match="a, b and group must not be traced"):
        jax.jit(lambda g: gbt.Comparisons([0], [1], [0.5], num_items=2, group=g).value)(
            jnp.array([1])
        )


# -------------------------------------------------------------------------------------------- fits


def test_equals_a_loop_of_fits(data, fit):
    assert fit.groups.size == 2 * len(SIZES)
    assert not fit.failures()
    for label in fit:
        alone, items = comparisons_of_group(*data, label)
        found = fit[label]
        assert found.result == gbt.RESULTS.successful
        np.testing.assert_array_equal(fit.item[fit.group == label], items)
        np.testing.assert_array_equal(found.item, items)
        assert float(found.error_bound) < 1e-11
        # Stationarity, in NumPy alone.
        scores, a, b = (np.asarray(x) for x in (found.scores, alone.a, alone.b))
        t = scores[a] - scores[b]
        residual = 1 / np.tanh(t) - 1 / t - np.asarray(alone.value)
        slope = scores / 49 + np.bincount(a, residual, scores.size)
        slope -= np.bincount(b, residual, scores.size)
        assert np.abs(slope).max() < 1e-9
        if label % 4 == 0:
            np.testing.assert_allclose(scores, gbt.fit(MODEL, alone).scores, atol=1e-12)
    assert fit.stats.cg_steps.min() > 0
    assert set(fit) == set(data[0].tolist())


def test_one_number_per_group_and_a_scalar_for_a_single_fit(small):
    fit = gbt.fit(MODEL, small)
    for one, shape in ((fit, (4,)), (fit["bob"], ()), (gbt.fit(MODEL, fit["bob"].comparisons), ())):
        columns = one.error_bound, one.gradient_norm, one.result.code, *one.stats
        assert [column.shape for column in columns] == [shape] * 5
    assert fit.scores.shape == fit.group.shape == fit.item.shape == (12,)
    one = fit["cyd"]
    assert one.comparisons.num_groups is None
    np.testing.assert_array_equal(one.scores, fit.scores[fit.group == "cyd"])
    np.testing.assert_array_equal(one.item, ["x", "y", "z"])
    np.testing.assert_array_equal(one.comparisons.value, small.value[2::4])
    np.testing.assert_array_equal(one.error_bound, fit.error_bound[2])
    np.testing.assert_array_equal(one.stats.cg_steps, fit.stats.cg_steps[2])
    assert repr(fit) == "Fit(Comparisons(16 rows, 12 items, 4 groups), RESULTS<4 successful>)"


def test_labels_of_groups_are_keys(small):
    fit = gbt.fit(MODEL, small)
    assert list(fit) == ["ada", "bob", "cyd", "dan"]
    assert "ada" in fit
    for unknown in ("eve", 0, ("ada",), None):
        assert unknown not in fit
        with pytest.raises(KeyError):
            fit[unknown]
    single = fit["ada"]
    for use in (iter, lambda fit: fit[0], lambda fit: fit.group, lambda fit: 0 in fit):
        with pytest.raises(TypeError, match="no groups"):
            use(single)


def test_order_of_rows_does_not_matter(data, fit):
    order = np.random.default_rng(1).permutation(data[0].size)
    group, *columns = (column[order] for column in data)
    shuffled = gbt.fit(MODEL, gbt.Comparisons.from_labels(*columns, group=group))
    np.testing.assert_allclose(shuffled.scores, fit.scores, atol=1e-12)


@pytest.mark.parametrize("solver", [gbt.solvers.NewtonCholesky(), gbt.solvers.LBFGS()])
def test_every_solver_takes_groups(small, solver):
    """Also beside a group with bad data."""
    value = small.value.at[0].set(np.nan)
    expected, found = (
        gbt.fit(MODEL, small.with_values(value), solver=one) for one in (None, solver)
    )
    names = ["invalid_data", "successful", "successful", "successful"]
    assert found.result.names.tolist() == expected.result.names.tolist() == names
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-9)


@pytest.mark.parametrize("solver", [None, gbt.solvers.NewtonCholesky()])
def test_initial_scores(small, solver):
    """The optimum takes fewer steps, and a start far away does no harm."""
    expected = gbt.fit(MODEL, small, solver=solver)
    warm = gbt.fit(MODEL, small, initial=expected.scores, solver=solver)
    np.testing.assert_allclose(warm.scores, expected.scores, atol=1e-12)
    assert np.all(warm.stats.newton_steps < expected.stats.newton_steps)
    for far in (1e3, 1e8):
        lost = gbt.fit(MODEL, small, initial=far * np.arange(12.0), solver=solver)
        assert not lost.failures()
        np.testing.assert_allclose(lost.scores, expected.scores, atol=1e-9)
    with pytest.raises(ValueError, match="one score per item, 12"):
        gbt.fit(MODEL, small, initial=np.zeros(4))


def test_one_prior_per_group(data, rows):
    std, mean = np.geomspace(0.1, 50, rows.num_groups), np.linspace(-1, 1, rows.num_groups)
    fit = gbt.fit(gbt.Model(laws.Uniform(), std, mean), rows)
    for number in (0, 3, 6, 9, 17):
        label = fit.groups[number].item()
        alone, _ = comparisons_of_group(*data, label)
        expected = gbt.fit(gbt.Model(laws.Uniform(), std[number], mean[number]), alone)
        np.testing.assert_allclose(fit[label].scores, expected.scores, atol=1e-12)
        assert float(fit[label].model.prior_std) == std[number]
    by_item = gbt.Model(laws.Uniform(), *(x[np.asarray(rows.group)] for x in (std, mean)))
    np.testing.assert_array_equal(gbt.fit(by_item, rows).scores, fit.scores)


def test_one_prior_per_item(small):
    std, mean = np.geomspace(0.2, 5, 12), np.linspace(-1, 1, 12)
    fit = gbt.fit(gbt.Model(laws.Uniform(), std, mean), small)
    for number, label in enumerate(fit):
        own = slice(3 * number, 3 * number + 3)
        np.testing.assert_array_equal(fit[label].model.prior_std, std[own])
        model = gbt.Model(laws.Uniform(), std[own], mean[own])
        expected = gbt.fit(model, fit[label].comparisons)
        np.testing.assert_allclose(fit[label].scores, expected.scores, atol=1e-12)


def test_weak_priors_centre_each_component():
    group, *columns = group_columns((6, 30), repeats=3)
    model = gbt.Model(laws.Uniform(), 1e6)
    fit = gbt.fit(model, gbt.Comparisons.from_labels(*columns, group=group))
    assert not fit.failures()
    for label in fit:
        expected = gbt.fit(model, fit[label].comparisons)
        np.testing.assert_allclose(fit[label].scores, expected.scores, atol=1e-8)
        assert abs(float(jnp.sum(fit[label].scores))) < 1e-10


def test_threads_keep_the_callers_precision(data):
    group, *columns = data
    with jax.enable_x64(False):
        rows = gbt.Comparisons.from_labels(*columns, group=group)
        assert gbt.fit(gbt.Model(laws.Uniform(), 7.0), rows).scores.dtype == np.float32


def test_no_groups():
    none = gbt.Comparisons.from_labels([], [], [], group=[])
    for solver in (None, gbt.solvers.NewtonCholesky()):
        fit = gbt.fit(MODEL, none, solver=solver)
        assert list(fit) == []
        assert fit.scores.shape == fit.error_bound.shape == fit.result.code.shape == (0,)
        assert fit.failures() == {}
    assert gbt.map_scores(MODEL, none).shape == (0,)


# ---------------------------------------------------------------------------------------- failures


@with_full_optimisation
def test_no_group_can_spoil_another(data, fit):
    """Bad data of every kind: their own result, and not one bit of difference for the others."""
    group, a, b, value = data
    weight = np.ones_like(value)
    bad = {
        -1: (1, 2, np.nan, 1.0),
        -2: (1, 2, 1.5, 1.0),
        -3: (1, 2, 0.5, -1.0),
        -4: (1, 1, 0.5, 1.0),
        -5: (1, 2, 0.5, np.inf),
        -6: (1, 2, -np.inf, 1.0),
        -7: (1, 2, 0.5, 1e308),
    }
    extra = np.array([(label, *row) for label, row in bad.items()]).repeat(3, axis=0)
    everything = gbt.Comparisons.from_labels(
        np.append(a, extra[:, 1].astype(int)),
        np.append(b, extra[:, 2].astype(int)),
        np.append(value, extra[:, 3]),
        np.append(weight, extra[:, 4]),
        group=np.append(group, extra[:, 0].astype(int)),
    )
    together = gbt.fit(MODEL, everything)
    failures = together.failures()
    assert list(failures) == [-7, -6, -5, -4, -3, -2, -1]
    good = together.group >= 0
    np.testing.assert_array_equal(together.scores[good], fit.scores)
    assert "overflows" in failures[-7]
    assert together[-7].result == gbt.RESULTS.non_finite
    for index, (label, (first, second, *_)) in enumerate(list(bad.items())[:6]):
        assert label in together
        one = together[label]
        assert one.result == gbt.RESULTS.invalid_data
        assert np.isnan(one.scores).all()
        row = group.size + 3 * index
        assert failures[label].startswith(f"row {row} compares {first} with {second}, value ")
    assert len([together[label] for label in together]) == fit.groups.size + 7


def test_a_failure_names_the_row_and_its_labels(small):
    bad = small.with_values(small.value.at[6].set(1.5))
    fit = gbt.fit(MODEL, bad)
    assert list(fit.failures()) == ["cyd"]
    assert fit.failures()["cyd"].startswith(
        "row 6 compares 'z' with 'y', value 1.5, weight 1.1; values must lie in the support of "
        "Uniform"
    )
    with pytest.raises(gbt.FitError, match=r"1 of 4 groups failed\. 'cyd': row 6") as error:
        gbt.fit(MODEL, bad, throw=True)
    np.testing.assert_array_equal(error.value.fit.scores, fit.scores)
    assert not gbt.fit(MODEL, small, throw=True).failures()
    with pytest.raises(ValueError, match="cannot raise on failure under a JAX transformation"):
        jax.jit(lambda rows: gbt.fit(MODEL, rows, throw=True).scores)(small)


def test_a_single_fit_says_what_failed():
    rows = gbt.Comparisons.from_labels(["x", "x"], ["y", "z"], [1.0, 1.0])
    fit = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows, throw=False)
    with pytest.raises(TypeError, match="no groups"):
        fit.failures()


def test_without_a_prior_each_group_has_its_own_fate():
    group, value = [1, 1, 1, 2, 2, 2, 3], [1.0, 1, 1, 1, 1, 1, -1]
    a, b = [0, 1, 2, 0, 1, 0, 5], [1, 2, 0, 1, 2, 2, 6]
    rows = gbt.Comparisons.from_labels(a, b, value, group=group)
    for solver in (None, gbt.solvers.NewtonCholesky()):
        fit = gbt.fit(gbt.Model(laws.Binary(), jnp.inf), rows, solver=solver)
        names = ["successful", "no_finite_optimum", "no_finite_optimum"]
        assert fit.result.names.tolist() == names
        assert fit.failures()[2].endswith("Items with no bound: 0")
        assert fit.failures()[3].endswith("Items with no bound: 6")
        np.testing.assert_allclose(fit[1].scores, 0, atol=1e-14)
        assert np.isnan(np.asarray(fit[2].scores)).all()
    held = gbt.fit(gbt.Model(laws.Binary(), np.array([np.inf, 2.0, np.inf])), rows)
    assert list(held.failures()) == [3]
    np.testing.assert_allclose(
        held[2].scores,
        gbt.fit(gbt.Model(laws.Binary(), 2.0), held[2].comparisons).scores,
        atol=1e-14,
    )


def test_steps_run_out_group_by_group(rows):
    fit = gbt.fit(MODEL, rows, max_steps=1)
    assert np.all(fit.result == gbt.RESULTS.max_steps_reached)
    loose = gbt.fit(MODEL, rows, atol=1e-2)
    assert not loose.failures()
    assert 1e-9 < loose.error_bound.max() <= 1e-2


# ------------------------------------------------------------------------------------- derivatives


def test_scores_and_gradients_under_jit(small):
    """With the comparisons as an argument, and groups whose rows alternate."""
    fit = gbt.fit(MODEL, small)
    mix = jnp.asarray(np.random.default_rng(0).normal(size=12))

    @jax.jit
    def scores(rows):
        return gbt.map_scores(MODEL, rows)

    @jax.jit
    def total(value, weight, rows):
        return mix @ gbt.map_scores(MODEL, rows.with_values(value).with_weights(weight))

    np.testing.assert_allclose(scores(small), fit.scores, atol=1e-10)
    at = small.value, small.weight
    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))(*at, small)
    step = 1e-5
    for which in (0, 1):
        for row in range(16):
            ends = []
            for sign in (1, -1):
                moved = list(at)
                moved[which] = at[which].at[row].add(sign * step)
                ends.append(total(*moved, small))
            np.testing.assert_allclose(
                gradient[which][row], (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-9
            )


def test_a_fit_under_jit_has_the_results_of_its_groups(small):
    bad = small.with_values(small.value.at[5].set(-7.0))
    found = jax.jit(lambda rows: gbt.fit(MODEL, rows))(bad)
    expected = gbt.fit(MODEL, bad)
    np.testing.assert_array_equal(found.result.code, expected.result.code)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-10)
    assert np.isnan(np.asarray(gbt.map_scores(MODEL, bad))[3:6]).all()
    assert np.isfinite(gbt.map_scores(MODEL, bad)).sum() == 9


@pytest.mark.slow
def test_gradients_in_the_law_and_the_prior():
    group, *columns = group_columns((5, 12, 30), repeats=2)
    rows = gbt.Comparisons.from_labels(*columns, group=group)

    def objective(std, scale):
        model = gbt.Model(laws.Scaled(laws.Uniform(), scale), std)
        return jnp.sum(jnp.sin(gbt.map_scores(model, rows)))

    at = jnp.asarray(3.0), jnp.asarray(1.2)
    gradient = jax.grad(objective, argnums=(0, 1))(*at)
    step = 1e-4
    for index in (0, 1):
        up, down = (
            objective(*(x + sign * step * (i == index) for i, x in enumerate(at)))
            for sign in (1, -1)
        )
        np.testing.assert_allclose(gradient[index], (up - down) / (2 * step), rtol=1e-6)
    fit = gbt.fit(gbt.Model(laws.Scaled(laws.Uniform(), at[1]), at[0]), rows)
    np.testing.assert_allclose(gbt.map_scores(fit.model, rows), fit.scores, rtol=1e-12, atol=1e-13)
    # One std per group: the scores of each group depend on its own alone.
    jacobian = jax.jacrev(lambda std: gbt.map_scores(gbt.Model(laws.Uniform(), std), rows))(
        jnp.full(rows.num_groups, 3.0)
    )
    others = np.asarray(rows.group)[:, None] != np.arange(rows.num_groups)
    np.testing.assert_array_equal(np.asarray(jacobian)[others], 0)
    assert np.all(np.abs(np.asarray(jacobian)[~others]) > 0)


@pytest.mark.slow
def test_tournesol_in_both_precisions():
    problems = tournesol_problems()
    group = np.repeat(np.arange(len(problems)), [len(problem) for problem in problems])
    a, b, value = (
        np.concatenate([np.asarray(getattr(problem, name)) for problem in problems])
        for name in ("a", "b", "value")
    )
    double, single = (
        gbt.fit(MODEL, gbt.Comparisons.from_labels(a, b, value.astype(kind), group=group))
        for kind in (np.float64, np.float32)
    )
    assert not double.failures()
    assert not single.failures()
    assert single.scores.dtype == np.float32
    expected = np.asarray(double.scores)
    off = np.abs(np.asarray(single.scores) - expected)
    assert np.all(off <= 1e-4 * (1 + np.abs(expected)))
    offsets = sort_by_group(double.comparisons).item_offsets
    for number, problem in enumerate(problems):
        expected = gbt.fit(MODEL, problem)
        own = double.scores[offsets[number] : offsets[number + 1]]
        np.testing.assert_allclose(own, expected.scores, atol=1e-10)
