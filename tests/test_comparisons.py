"""Comparisons: what they hold, what they refuse, and labels of items."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import laws


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0, 1], [1], [0.1, 0.2]), "different lengths: a has 2, b has 1, value has 2"),
        (([0.5, 1.0], [1, 2], [0.1, 0.2]), "a must hold integers"),
        (([0, -1], [1, 2], [0.1, 0.2]), r"a\[1\] is -1: items are numbered from 0"),
        (([0, 1], [1, 3], [0.1, 0.2]), r"b\[1\] is 3: .* num_items − 1 = 2"),
        (([0, 1], [1, 1], [0.1, 0.2]), r"row 1 compares item 1 with itself \(value 0.2\)"),
        (([0, 1], [1, 2], [0.1, np.nan]), r"value\[1\] is nan"),
        (([0, 1], [1, 2], [-np.inf, 0.2]), r"value\[0\] is -inf"),
        (([0, 1], [1, 2], [0.1, 0.2], [1.0, np.inf]), r"weight\[1\] is inf"),
        (([0, 1], [1, 2], [0.1, 0.2], [-2.0, 1.0]), r"weight\[0\] is -2.0: .* not be negative"),
        (([[0, 1]], [1, 2], [0.1, 0.2]), "a must be a vector"),
    ],
)
def test_bad_rows_are_named(columns, message):
    with pytest.raises(ValueError, match=message):
        gbt.Comparisons(*columns, num_items=3)


def test_num_items_is_checked():
    with pytest.raises(ValueError, match="num_items must be an integer"):
        gbt.Comparisons([0], [1], [0.5], num_items=2.5)


def test_padding_may_compare_an_item_with_itself():
    padded = gbt.Comparisons([0, 0], [1, 0], [0.5, 0.0], [1.0, 0.0], num_items=2)
    plain = gbt.Comparisons([0], [1], [0.5], num_items=2)
    model = gbt.Model(laws.Uniform())
    np.testing.assert_array_equal(gbt.fit(model, padded).scores, gbt.fit(model, plain).scores)


def test_under_tracing_it_is_a_plain_pytree():
    def total(value):
        return jnp.sum(gbt.Comparisons([0, 1], [1, 2], value, num_items=3).value)

    assert jax.jit(total)(jnp.array([0.5, 7.0])) == 7.5
    leaves = jax.tree.leaves(random_comparisons(4, 6))
    assert [leaf.shape for leaf in leaves] == [(6,)] * 4


def test_merged_has_the_same_optimum():
    base = random_comparisons(5, 40, seed=3)  # many repeats, both orders
    weights = np.random.default_rng(0).uniform(0, 2, 40)
    weights[::7] = 0
    comparisons = base.with_weights(weights)
    merged = comparisons.merge_repeats()
    assert len(merged) <= 10
    assert np.all(np.asarray(merged.a) < np.asarray(merged.b))
    model = gbt.Model(laws.Uniform(), 2.0)
    np.testing.assert_allclose(
        gbt.fit(model, merged).scores, gbt.fit(model, comparisons).scores, atol=1e-14
    )


def test_merged_wins_and_losses_may_average_off_the_grid():
    votes = gbt.Comparisons([0, 1, 0], [1, 0, 1], [1.0, 1.0, 1.0], num_items=2)
    merged = votes.merge_repeats()
    np.testing.assert_allclose(merged.value, [1 / 3])
    model = gbt.Model(laws.Binary())
    np.testing.assert_allclose(
        gbt.fit(model, merged).scores, gbt.fit(model, votes).scores, atol=1e-15
    )
    with pytest.raises(ValueError, match="cannot be used under a transformation"):
        jax.jit(lambda c: c.merge_repeats().value)(votes)


def test_with_values_and_weights_check_too():
    comparisons = random_comparisons(4, 6)
    assert np.all(np.asarray(comparisons.with_values(np.zeros(6)).value) == 0)
    with pytest.raises(ValueError, match=re.escape("weight[2] is -1.0")):
        comparisons.with_weights([1.0, 1, -1, 1, 1, 1])


def test_items_with_labels():
    value = np.array([0.5, -0.25, 0.75], np.float32)
    rows = gbt.Comparisons.from_labels(["tea", "rum", "tea"], ["rum", "ale", "ale"], value)
    np.testing.assert_array_equal(rows.item_labels, ["ale", "rum", "tea"])
    np.testing.assert_array_equal(rows.a, [2, 1, 2])
    np.testing.assert_array_equal(rows.b, [1, 0, 0])
    assert rows.value.dtype == np.float32
    assert repr(rows) == "Comparisons(3 rows, 3 items)"
    fit = gbt.fit(gbt.Model(laws.Uniform()), rows)
    np.testing.assert_array_equal(fit.item, ["ale", "rum", "tea"])
    plain = gbt.Comparisons([2, 1, 2], [1, 0, 0], value, num_items=3)
    np.testing.assert_array_equal(plain.item_labels, [0, 1, 2])
    np.testing.assert_array_equal(gbt.fit(fit.model, plain).scores, fit.scores)
    for labels in ([[1, 2]], "tea", [None], [1.5]):
        with pytest.raises(ValueError, match="a must be a vector of integers or strings"):
            gbt.Comparisons.from_labels(labels, [1], [0.5])
    with pytest.raises(ValueError, match="row 1 compares item 0 with itself"):
        gbt.Comparisons.from_labels(["x", "x"], ["y", "x"], [0.5, 0.5])


def test_values_outside_the_support_are_refused_by_fit():
    off = gbt.Comparisons([0, 1], [1, 2], [0.3, 1.2], num_items=3)
    with pytest.raises(ValueError, match=r"value\[1\] is 1.2 \(item 1 against 2\).* Uniform"):
        gbt.fit(gbt.Model(laws.Uniform()), off)
    with pytest.raises(ValueError, match=r"value\[1\] is 1.2 \(item 1 against 2\).* Uniform"):
        gbt.fit(gbt.Model(laws.Uniform()), off, throw=False)
    half = gbt.Comparisons([0, 1], [1, 2], [0.0, 0.5], num_items=3)
    with pytest.raises(ValueError, match=r"value\[1\] is 0.5 .*KNary.* `nearest"):
        gbt.fit(gbt.Model(laws.KNary(3)), half)
    # Without a prior too, where such data have no optimum either.
    with pytest.raises(ValueError, match=r"value\[1\] is 1.2 "):
        gbt.fit(gbt.Model(laws.Binary(), jnp.inf), off.with_values([1.0, 1.2]))
    law = laws.KNary(3)
    rounded = half.with_values(law.nearest(half.value))
    assert gbt.fit(gbt.Model(law), rounded).result == gbt.RESULTS.successful


def test_model_refuses_bad_priors_and_laws():
    with pytest.raises(ValueError, match="prior_std must be positive"):
        gbt.Model(laws.Uniform(), 0.0)
    with pytest.raises(ValueError, match="prior_mean must be finite"):
        gbt.Model(laws.Uniform(), 1.0, np.nan)
    with pytest.raises(ValueError, match="prior_std must be one number or one per item"):
        gbt.fit(gbt.Model(laws.Uniform(), np.ones(3)), random_comparisons(4, 6))

    class Laplace(laws.AbstractRootLaw):
        def cgf(self, t):
            return -jnp.log(1 - jnp.square(t))

    with pytest.raises(ValueError, match="lacks exponential moments"):
        gbt.Model(Laplace())
