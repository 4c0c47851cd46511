"""Leaving comparisons out: predictions from the curvature against refits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import incidence, random_comparisons

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._data import _graph
from gbt_jax.influence import _leave_out

ROWS = random_comparisons(40, 300)
MODEL = gbt.Model(laws.Uniform(), 2.0)


@pytest.fixture(scope="module")
def fit():
    return gbt.fit(MODEL, ROWS)


def test_exact_for_the_gaussian_law():
    """The loss is quadratic, so one Newton step is the refit: rows, groups and changes."""
    gaussian = gbt.fit(gbt.Model(laws.Gaussian(1.0), 1.3), ROWS)
    matrix, value = incidence(ROWS), np.asarray(ROWS.value)

    def without(rows):
        kept = np.setdiff1d(np.arange(300), rows)
        hessian = np.eye(40) / 1.69 + matrix[kept].T @ matrix[kept]
        return np.linalg.solve(hessian, matrix[kept].T @ value[kept]) - np.asarray(gaussian.scores)

    for dense in (True, False):
        using = gbt.curvature(gaussian, dense=dense)
        found = gbt.influence.leave_out(gaussian, using=using)
        assert found.shape == (40, 300)
        for row in (0, 17, 299):
            np.testing.assert_allclose(found[:, row], without([row]), atol=1e-13)
        np.testing.assert_allclose(
            gbt.influence.leave_out(gaussian, comparisons=[299, 17], using=using),
            found[:, jnp.asarray([299, 17])],
            atol=1e-14,
        )
        judge = np.arange(300) % 7
        groups = gbt.influence.leave_out(gaussian, groups=judge, using=using)
        assert groups.shape == (40, 7)
        np.testing.assert_allclose(groups[:, 3], without(np.flatnonzero(judge == 3)), atol=1e-12)


@pytest.mark.slow
def test_close_to_refits(fit):
    found = gbt.influence.leave_out(fit, comparisons=np.arange(25))
    exact = gbt.influence.leave_out(fit, comparisons=np.arange(25), exact=True)
    size = np.linalg.norm(np.asarray(exact), axis=0)
    error = np.linalg.norm(np.asarray(found - exact), axis=0)
    assert np.all(error < 0.1 * size)
    judge = ["ada"] * 20 + ["bob"] * 280
    together = gbt.influence.leave_out(fit, groups=judge)[:, 0]
    refitted = gbt.influence.leave_out(fit, groups=judge, exact=True)[:, 0]
    assert np.linalg.norm(together - refitted) < 0.1 * np.linalg.norm(refitted)


@pytest.mark.slow
@pytest.mark.parametrize("law", [laws.Uniform(), laws.Binary(), laws.Skellam(1.0)])
def test_large_changes_are_followed(law):
    """Few comparisons and a weak prior: one Newton step is far off, the law itself is not."""
    rows = random_comparisons(60, 120, seed=4)
    values = {"Uniform": rows.value, "Binary": np.sign(rows.value)}
    rows = rows.with_values(values.get(type(law).__name__, np.round(4 * np.asarray(rows.value))))
    sparse = gbt.fit(gbt.Model(law, 7.0), rows)
    step = np.asarray(gbt.influence.leave_out(sparse, refined=0))
    top = np.argsort(-np.linalg.norm(step, axis=0))[:12]
    exact = np.asarray(gbt.influence.leave_out(sparse, comparisons=top, exact=True))
    size = np.linalg.norm(exact, axis=0)
    found = np.asarray(gbt.influence.leave_out(sparse))[:, top]
    assert np.all(np.linalg.norm(found - exact, axis=0) < 0.05 * size)
    assert np.any(np.linalg.norm(step[:, top] - exact, axis=0) > 0.1 * size)
    # The columns that are refined are the largest, and no others.
    some = np.asarray(gbt.influence.leave_out(sparse, refined=3))
    np.testing.assert_array_equal(some[:, top[3:]], step[:, top[3:]])
    np.testing.assert_allclose(some[:, top[:3]], found[:, :3], rtol=1e-6, atol=1e-8)
    judge = np.arange(120) % 40
    groups = np.asarray(gbt.influence.leave_out(sparse, groups=judge))[:, :5]
    refitted = np.asarray(gbt.influence.leave_out(sparse, groups=judge, exact=True))[:, :5]
    size = np.linalg.norm(refitted, axis=0)
    assert np.all(np.linalg.norm(groups - refitted, axis=0) < 0.05 * size)


def test_a_large_group_is_refitted():
    rows = random_comparisons(20, 1300)
    fit = gbt.fit(MODEL, rows)
    judge = np.arange(1300) < 600
    found = gbt.influence.leave_out(fit, groups=judge)[:, 1]
    left = gbt.fit(MODEL, rows.with_weights(~judge))
    np.testing.assert_allclose(found, left.scores - fit.scores, atol=1e-10)


def test_what_is_not_found_is_refitted(fit, monkeypatch):
    """Where the small problem does not settle the answer is that of a refit."""
    monkeypatch.setattr(_leave_out, "_MOST_ROUNDS", 0)
    _leave_out._solve.clear_cache()
    found = gbt.influence.leave_out(fit, comparisons=[4, 5])
    _leave_out._solve.clear_cache()
    exact = gbt.influence.leave_out(fit, comparisons=[4, 5], exact=True)
    np.testing.assert_allclose(found, exact, atol=1e-12)


def test_what_if(fit):
    gone = gbt.what_if(fit, removed=[3, 8])
    kept = np.setdiff1d(np.arange(300), [3, 8])
    fewer = gbt.Comparisons(ROWS.a[kept], ROWS.b[kept], ROWS.value[kept], num_items=40)
    np.testing.assert_allclose(gone.fit.scores, gbt.fit(MODEL, fewer).scores, atol=1e-12)
    np.testing.assert_array_equal(gone.change, gone.fit.scores - fit.scores)
    assert np.linalg.norm(gone.predicted - gone.change) < 0.3 * np.linalg.norm(gone.change)
    # A small change is predicted to first order: the error falls with its square.
    errors = []
    for step in (1e-3, 1e-4):
        small = gbt.what_if(fit, changed=([5], [float(ROWS.value[5]) + step]))
        expected = step * gbt.sensitivity(fit, comparisons=[5])[:, 0]
        np.testing.assert_allclose(small.predicted, expected, atol=1e-12)
        errors.append(np.linalg.norm(small.predicted - small.change))
    assert errors[1] < 0.02 * errors[0]
    more = gbt.what_if(fit, added=gbt.Comparisons([0], [1], [0.9], num_items=40))
    assert len(more.fit.comparisons) == 301
    assert more.change[0] > 0 > more.change[1]
    # A new comparison with the expected value changes nothing.
    neutral = laws.Uniform().mean(fit.scores[0] - fit.scores[1])
    same = gbt.what_if(fit, added=gbt.Comparisons([0], [1], [neutral], num_items=40))
    np.testing.assert_allclose(same.change, 0, atol=1e-14)


def test_a_bridge_without_a_prior():
    """0 – 1 – 2 with the pair (0, 1) compared twice: only the other comparison is a bridge."""
    rows = gbt.Comparisons([0, 1, 0], [1, 2, 1], [0.2, 0.5, 0.4], num_items=3)
    fit = gbt.fit(gbt.Model(laws.Uniform(), jnp.inf), rows)
    found = np.asarray(gbt.influence.leave_out(fit))
    assert np.isnan(found[:, 1]).all()
    assert np.isfinite(found[:, [0, 2]]).all()


def test_a_bridge_under_a_weak_prior():
    """Where the step's denominator is lost in rounding, the answer is a refit's."""
    rows = gbt.Comparisons([0, 1, 1, 2], [1, 2, 2, 3], [0.7, 0.2, 0.4, -0.3], num_items=4)
    weak = gbt.fit(gbt.Model(laws.Uniform(), 1e8), rows)
    exact = gbt.influence.leave_out(weak, exact=True)
    np.testing.assert_allclose(gbt.influence.leave_out(weak), exact, rtol=1e-3, atol=1e-6)
    groups = gbt.influence.leave_out(weak, groups=[0, 1, 2, 0])
    assert np.isfinite(np.asarray(groups)).all()


def test_an_optimum_that_is_lost_has_no_influence():
    """49 wins and one loss: without the loss, and without a prior, the winner has no bound."""
    values = np.append(np.ones(49), -1.0)
    rows = gbt.Comparisons(np.zeros(50, int), np.ones(50, int), values, num_items=2)
    fit = gbt.fit(gbt.Model(laws.Binary(), np.inf), rows)
    found = np.asarray(gbt.influence.leave_out(fit, comparisons=[49, 0]))
    assert np.isnan(found[:, 0]).all()
    assert np.isfinite(found[:, 1]).all()


def test_bridges_on_paths_and_in_groups():
    """On a path every row is a bridge; a second row beside one frees it."""
    size = 300
    weight = np.exp(np.random.default_rng(0).normal(size=size))
    a = np.append(np.arange(size - 1), 7)
    path = gbt.Comparisons(a, a + 1, np.full(size, 0.3), weight, num_items=size)
    found = np.asarray(gbt.influence.leave_out(gbt.fit(gbt.Model(laws.Uniform(), jnp.inf), path)))
    free = np.isin(np.arange(size), [7, size - 1])
    np.testing.assert_array_equal(np.isnan(found).all(axis=0), ~free)
    rows = gbt.Comparisons([0, 1, 0, 2], [1, 2, 1, 3], [0.2, 0.5, 0.4, 0.1], num_items=4)
    fit = gbt.fit(gbt.Model(laws.Uniform(), jnp.inf), rows)
    for exact in (False, True):
        groups = np.asarray(gbt.influence.leave_out(fit, groups=[0, 1, 2, 2], exact=exact))
        np.testing.assert_array_equal(np.isnan(groups).all(axis=0), [False, True, True])
    # With a prior nothing falls apart.
    held = gbt.fit(gbt.Model(laws.Uniform(), 3.0), path)
    assert np.isfinite(np.asarray(gbt.influence.leave_out(held))).all()


def test_bridges_are_those_whose_removal_splits():
    for seed in range(12):
        rows = random_comparisons(12, 15, seed)  # one shape; those beyond have no weight
        is_there = np.arange(15) < 4 + seed % 12
        rows = rows.with_weights(is_there & (np.random.default_rng(seed).integers(0, 4, 15) > 0))
        weight = np.asarray(rows.weight)

        def count(weight, rows=rows):
            return np.unique(_graph.components(rows.with_weights(weight))).size

        splits = [count(np.where(np.arange(len(rows)) == k, 0, weight)) for k in range(len(rows))]
        np.testing.assert_array_equal(_graph.bridges(rows), np.asarray(splits) > count(weight))


def test_weak_priors_leave_levels_alone():
    """Changes within a component sum to zero, however weak the prior."""
    weak = gbt.fit(gbt.Model(laws.Uniform(), 1e8), ROWS)
    predicted = gbt.what_if(weak, changed=([5], [0.1])).predicted
    assert abs(float(jnp.mean(predicted))) < 1e-14
    beta = gbt.fit(gbt.Model(laws.Beta(2.0), 1e8), ROWS)
    (moved,) = jnp.asarray(gbt.sensitivity(beta, wrt="law").beta)[None]
    assert abs(float(jnp.mean(moved))) < 1e-13


def test_rows_that_join_components():
    """A row of weight 0 between two components: its weight moves their levels."""
    rows = gbt.Comparisons([0, 2, 0], [1, 3, 2], [0.5, -0.3, 0.9], [1.0, 1, 0], num_items=4)
    model = gbt.Model(laws.Uniform(), 2.0)
    fit = gbt.fit(model, rows)
    expected = jax.jacrev(lambda w: gbt.map_scores(model, rows.with_weights(w)))(rows.weight)
    for dense in (True, False):
        using = gbt.curvature(fit, dense=dense)
        found = gbt.sensitivity(fit, wrt="weight", using=using)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    free = gbt.fit(gbt.Model(laws.Uniform(), jnp.inf), rows)
    assert np.isnan(np.asarray(gbt.sensitivity(free, wrt="weight"))[:, 2]).any()
    assert np.isposinf(gbt.curvature(free).difference_variance([0], [2])[0])
    joined = gbt.what_if(free, added=gbt.Comparisons([0], [2], [0.1], num_items=4))
    assert np.isnan(np.asarray(joined.predicted)).any()
    assert np.isfinite(np.asarray(joined.change)).all()


def test_merged_and_single_precision_comparisons():
    votes = gbt.Comparisons(
        [0, 0, 0, 1], [1, 1, 1, 2], [1.0, 1, -1, 1], num_items=3
    ).merge_repeats()
    fit = gbt.fit(gbt.Model(laws.Binary(), 1.0), votes)
    more = gbt.what_if(fit, added=gbt.Comparisons([2], [0], [1.0], num_items=3))
    assert len(more.fit.comparisons) == 3
    single = gbt.fit(MODEL, ROWS.with_values(np.asarray(ROWS.value, np.float32)))
    changed = gbt.what_if(single, added=gbt.Comparisons([0], [1], [0.5], num_items=40))
    assert changed.fit.scores.dtype == changed.predicted.dtype == jnp.float32
    assert gbt.influence.leave_out(single, comparisons=[]).shape == (40, 0)


def test_what_cannot_be_answered_is_refused(fit):
    with pytest.raises(ValueError, match="comparisons has 300, and there are 300 of them"):
        gbt.influence.leave_out(fit, comparisons=[300])
    with pytest.raises(ValueError, match="refined must be an integer of at least 0"):
        gbt.influence.leave_out(fit, refined=-1)
    with pytest.raises(ValueError, match=r"one label per comparison \(300\)"):
        gbt.influence.leave_out(fit, groups=["ada"])
    with pytest.raises(ValueError, match="comparisons or groups, not both"):
        gbt.influence.leave_out(fit, comparisons=[1], groups=np.zeros(300))
    with pytest.raises(ValueError, match=r"changed has 2 rows and values of shape \(1,\)"):
        gbt.what_if(fit, changed=([1, 2], [0.1]))
    with pytest.raises(ValueError, match="removed has -1"):
        gbt.what_if(fit, removed=[-1])
    with pytest.raises(ValueError, match="added must be Comparisons of the same 40 items"):
        gbt.what_if(fit, added=random_comparisons(41, 3))
    other = gbt.curvature(gbt.fit(MODEL, gbt.Comparisons([0], [1], [0.5], num_items=2)))
    with pytest.raises(ValueError, match="one of 2 items, and the fit has 40"):
        gbt.influence.leave_out(fit, using=other)
    with pytest.raises(ValueError, match=r"value\[300\] is 1\.5"):
        gbt.what_if(fit, added=gbt.Comparisons([0], [1], [1.5], num_items=40))
