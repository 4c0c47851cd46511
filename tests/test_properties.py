"""The paper's theorems about one fit, on random graphs, laws and priors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbt_jax as gbt
from gbt_jax import laws

NUM_ITEMS, NUM_ROWS = 7, 12  # one shape, padded, so that each law compiles once
LAWS = {
    "Binary": laws.Binary(),
    "KNary": laws.KNary(5),
    "Davidson": laws.Davidson(1.0),
    "Binomial": laws.Binomial(3),
    "Uniform": laws.Uniform(),
    "Beta": laws.Beta(0.5),
    "Gaussian": laws.Gaussian(0.8),
    "Skellam": laws.Skellam(1.5),
}
BOUNDED = [name for name, law in LAWS.items() if np.isfinite(float(law.max_value))]


@st.composite
def problems(draw, name):
    """(comparisons, prior std): at least one real row, the rest padding."""
    law = LAWS[name]
    seed = draw(st.integers(0, 2**32 - 1))
    rows = draw(st.integers(1, NUM_ROWS))
    sigma = draw(st.floats(0.1, 20.0))
    rng = np.random.default_rng(seed)
    all_pairs = np.stack(np.triu_indices(NUM_ITEMS, 1), axis=1)
    pairs = rng.permutation(all_pairs)[:rows]
    flip = rng.random(rows) < 0.5
    pairs[flip] = pairs[flip][:, ::-1]
    a, b = np.zeros(NUM_ROWS, int), np.zeros(NUM_ROWS, int)
    a[:rows], b[:rows] = pairs.T
    value = np.array(law.sample(jnp.zeros(NUM_ROWS), key=jax.random.key(seed % 2**31)))
    weight = (np.arange(NUM_ROWS) < rows).astype(float)
    comparisons = gbt.Comparisons(a, b, value * weight, weight, num_items=NUM_ITEMS)
    return comparisons, sigma


def degrees(comparisons):
    ends = np.concatenate([comparisons.a, comparisons.b])
    return np.bincount(ends, np.tile(comparisons.weight, 2), comparisons.num_items)


def components(comparisons):
    label = np.arange(comparisons.num_items)
    for _ in range(comparisons.num_items):
        for a, b, w in zip(comparisons.a, comparisons.b, comparisons.weight, strict=True):
            if w > 0:
                label[a] = label[b] = min(label[a], label[b])
    return label


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_zero_mean_bound_and_certificate(name, data):
    comparisons, sigma = data.draw(problems(name))
    fit = gbt.fit(gbt.Model(LAWS[name], sigma), comparisons)
    scores = np.asarray(fit.scores)
    label = components(comparisons)
    for component in np.unique(label):
        total = scores[label == component].sum()
        assert abs(total) <= 1e-10 * (1 + np.abs(scores).max())
    if name in BOUNDED:
        limit = 2 * degrees(comparisons) * float(LAWS[name].max_value) * sigma**2
        assert np.all(np.abs(scores) <= limit + 1e-12)
    start = scores + np.random.default_rng(0).normal(size=NUM_ITEMS)
    slope = jax.grad(gbt.negative_log_posterior, argnums=2)(fit.model, comparisons, start)
    if np.isfinite(slope).all():
        assert np.linalg.norm(start - scores) <= sigma**2 * np.linalg.norm(slope) * (1 + 1e-9)


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_scores_rise_with_their_comparisons(name, data):
    comparisons, sigma = data.draw(problems(name))
    law, model = LAWS[name], gbt.Model(LAWS[name], sigma)
    before = np.asarray(gbt.fit(model, comparisons).scores)
    value = np.asarray(comparisons.value)
    row = 0
    step = float(law.step_up(value[row])) if law.is_discrete else 0.1
    raised = value.copy()
    raised[row] += step
    if not np.isfinite(step) or not bool(law.in_support(raised[row])):
        return
    after = np.asarray(gbt.fit(model, comparisons.with_values(raised)).scores)
    a, b = int(comparisons.a[row]), int(comparisons.b[row])
    assert after[a] > before[a]
    assert after[b] < before[b]


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_no_comparison_moves_scores_far(name, data):
    comparisons, sigma = data.draw(problems(name))
    law, model = LAWS[name], gbt.Model(LAWS[name], sigma)
    edge = float(law.max_value)
    scores = gbt.fit(model, comparisons).scores
    limit = 2 * np.sqrt(2) * edge * sigma**2
    value, weight = np.asarray(comparisons.value), np.asarray(comparisons.weight)
    first = np.arange(NUM_ROWS) == 0
    changed = comparisons.with_values(np.where(first, np.where(value > 0, -edge, edge), value))
    removed = comparisons.with_weights(np.where(first, 0, weight))
    for other in (changed, removed):
        moved = float(jnp.linalg.norm(gbt.fit(model, other).scores - scores))
        assert moved <= limit * (1 + 1e-9)


@pytest.mark.parametrize("name", ["Uniform", "Beta", "Gaussian"])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_expected_comparison_changes_nothing(name, data):
    comparisons, sigma = data.draw(problems(name))
    model = gbt.Model(LAWS[name], sigma)
    scores = np.asarray(gbt.fit(model, comparisons).scores)
    a, b = 2, 5
    neutral = float(LAWS[name].mean(scores[a] - scores[b]))

    def with_extra(value):
        return gbt.Comparisons(
            np.append(comparisons.a, a),
            np.append(comparisons.b, b),
            np.append(comparisons.value, value),
            np.append(comparisons.weight, 1.0),
            num_items=NUM_ITEMS,
        )

    same = np.asarray(gbt.fit(model, with_extra(neutral)).scores)
    np.testing.assert_allclose(same, scores, atol=1e-10 * (1 + np.abs(scores).max()))
    higher = np.asarray(gbt.fit(model, with_extra(neutral + 0.5 * (1 - neutral))).scores)
    assert higher[a] > scores[a]
    assert higher[b] < scores[b]


def test_repeats_are_weights():
    model = gbt.Model(laws.Uniform(), 3.0)
    twice = gbt.Comparisons([0, 0, 1], [1, 1, 2], [0.4, 0.4, -0.2], num_items=3)
    weighted = gbt.Comparisons([0, 1], [1, 2], [0.4, -0.2], [2.0, 1.0], num_items=3)
    np.testing.assert_allclose(
        gbt.fit(model, twice).scores, gbt.fit(model, weighted).scores, atol=1e-15
    )


def test_binary_scores_are_half_the_logits():
    a, b = [0, 1, 2, 0, 2], [1, 2, 0, 2, 1]
    votes = gbt.Comparisons(a, b, [1.0, 1, 1, 1, -1], num_items=3)
    halves = gbt.Comparisons(a, b, [0.5, 0.5, 0.5, 0.5, -0.5], num_items=3)
    binary = gbt.fit(gbt.Model(laws.Binary(), jnp.inf), votes).scores
    logits = gbt.fit(gbt.Model(laws.BradleyTerry(), jnp.inf), halves).scores
    np.testing.assert_allclose(2 * binary, logits, atol=1e-14)
