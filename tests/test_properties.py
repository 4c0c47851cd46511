"""The paper's theorems about one fit, on random graphs, laws and priors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from problems import incidence

import gbt_jax as gbt
from gbt_jax import laws

NUM_ITEMS, NUM_ROWS = 7, 13  # one shape, padded, so that each law compiles once; row 12 is spare
PAIRS = np.stack(np.triu_indices(NUM_ITEMS, 1), axis=1)
LAWS = {
    "Binary": laws.Binary(),
    "BradleyTerry": laws.BradleyTerry(),
    "KNary": laws.KNary(5),
    "Davidson": laws.Davidson(1.0),
    "Binomial": laws.Binomial(3),
    "Uniform": laws.Uniform(),
    "Beta": laws.Beta(0.5),
    "Gaussian": laws.Gaussian(0.8),
    "Skellam": laws.Skellam(1.5),
    "SymmetrizedPoisson": laws.SymmetrizedPoisson(0.7),
    "Scaled": laws.Scaled(laws.Uniform(), 3.0),
    "Density": laws.Density(lambda r: -(r**2)),
}
EDGES = {name: float(law.max_value) for name, law in LAWS.items()}
BOUNDED = [name for name, edge in EDGES.items() if np.isfinite(edge)]
CONTINUOUS = [name for name, law in LAWS.items() if not law.is_discrete]


def over_laws(names):
    """Run a test on each law."""
    return pytest.mark.parametrize("name", names)


every_law = over_laws(LAWS)
ten_times = settings(max_examples=10, deadline=None, derandomize=True)


@functools.cache
def values(name):
    """What a comparison may be: any value of the law's support, within reason."""
    law, edge = LAWS[name], min(EDGES[name], 5.0)
    if not law.is_discrete:
        return st.floats(-edge, edge)
    atoms = law.atoms()
    support = range(-5, 6) if atoms is None else np.asarray(atoms[0]).tolist()
    return st.sampled_from([float(value) for value in support])


@st.composite
def problems(draw, name):
    """A model, and comparisons of different pairs: at least one real row, the rest padding."""
    chosen = draw(st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=12, unique=True))
    flip = draw(st.booleans())
    a, b, value = np.zeros(NUM_ROWS, int), np.zeros(NUM_ROWS, int), np.zeros(NUM_ROWS)
    a[: len(chosen)], b[: len(chosen)] = (PAIRS[chosen][:, ::-1] if flip else PAIRS[chosen]).T
    value[: len(chosen)] = draw(st.lists(values(name), min_size=len(chosen), max_size=len(chosen)))
    weight = (np.arange(NUM_ROWS) < len(chosen)).astype(float)
    model = gbt.Model(LAWS[name], draw(st.floats(0.1, 20.0)))
    return model, gbt.Comparisons(a, b, value, weight, num_items=NUM_ITEMS)


def solve(model, comparisons):
    return np.asarray(gbt.fit(model, comparisons).scores)


slope_of_loss = jax.jit(jax.grad(gbt.negative_log_posterior, argnums=2))
sensitivity = jax.jit(
    jax.jacfwd(lambda value, m, c: gbt.map_scores(m, c.with_values(value))),
)


def components(comparisons):
    label = np.arange(NUM_ITEMS)
    rows = np.flatnonzero(comparisons.weight)
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    for _ in range(NUM_ITEMS):
        for row in rows:
            label[a[row]] = label[b[row]] = min(label[a[row]], label[b[row]])
    return label


@every_law
@ten_times
@given(data=st.data())
def test_zero_mean_bound_and_certificate(name, data):
    model, comparisons = data.draw(problems(name))
    scores, variance = solve(model, comparisons), float(model.prior_std) ** 2
    label = components(comparisons)
    for component in np.unique(label):
        assert abs(scores[label == component].sum()) <= 1e-11 * (1 + np.abs(scores).max())
    if name in BOUNDED:
        degree = np.abs(incidence(comparisons)).T @ np.asarray(comparisons.weight)
        assert np.all(np.abs(scores) <= 2 * degree * EDGES[name] * variance + 1e-12)
    assert np.linalg.norm(slope_of_loss(model, comparisons, scores)) <= 1e-12 * len(comparisons)
    start = scores + np.random.default_rng(0).normal(size=NUM_ITEMS)
    slope = np.asarray(slope_of_loss(model, comparisons, start))
    assert np.linalg.norm(start - scores) <= variance * np.linalg.norm(slope) * (1 + 1e-9)


@every_law
@ten_times
@given(data=st.data())
def test_scores_rise_with_their_comparisons(name, data):
    """One step of the support up, or a twentieth of the way on a continuous one."""
    model, comparisons = data.draw(problems(name))
    value = np.array(comparisons.value)
    step = float(LAWS[name].step_up(value[0])) if name not in CONTINUOUS else 0.05
    assume(np.isfinite(step) and value[0] + step <= EDGES[name])
    before = solve(model, comparisons)
    value[0] += step
    after = solve(model, comparisons.with_values(value))
    a, b = int(comparisons.a[0]), int(comparisons.b[0])
    assert after[a] > before[a]
    assert after[b] < before[b]


@over_laws(["Binary", "Davidson", "Uniform", "Skellam"])
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_derivatives_are_those_of_the_theory(name, data):
    """∂θ/∂r = N Bᵀ w with N = M⁻¹: its own score rises most, and none by more than σ²."""
    model, comparisons = data.draw(problems(name))
    scores = solve(model, comparisons)
    jacobian = np.asarray(sensitivity(comparisons.value, model, comparisons))
    b, weight = incidence(comparisons), np.asarray(comparisons.weight)
    precision = 1 / float(model.prior_std) ** 2
    curvature = weight * np.asarray(LAWS[name].variance(b @ scores))
    inverse = np.linalg.inv(precision * np.eye(NUM_ITEMS) + b.T @ np.diag(curvature) @ b)
    np.testing.assert_allclose(jacobian, inverse @ b.T * weight, rtol=1e-8, atol=1e-10)
    assert np.all(np.abs(jacobian) <= (1 + 1e-9) / precision)
    first, second = np.asarray(comparisons.a), np.asarray(comparisons.b)
    for row in np.flatnonzero(weight):
        assert jacobian[first[row], row] > 0 > jacobian[second[row], row]
        assert np.argmax(jacobian[:, row]) == first[row]


@over_laws(BOUNDED)
@ten_times
@given(data=st.data())
def test_no_comparison_moves_scores_far(name, data):
    """Changed, removed or added, it moves them by 2√2 r_max σ² at most."""
    model, comparisons = data.draw(problems(name))
    scores, edge = solve(model, comparisons), EDGES[name]
    value, weight = np.array(comparisons.value), np.array(comparisons.weight)
    first, spare = np.eye(NUM_ROWS)[0] > 0, np.eye(NUM_ROWS)[12] > 0
    changed = comparisons.with_values(np.where(first, np.where(value > 0, -edge, edge), value))
    removed = comparisons.with_weights(np.where(first, 0, weight))
    added = gbt.Comparisons(
        np.where(spare, 2, comparisons.a),
        np.where(spare, 5, comparisons.b),
        np.where(spare, edge, value),
        np.where(spare, 1, weight),
        num_items=NUM_ITEMS,
    )
    limit = 2 * np.sqrt(2) * edge * float(model.prior_std) ** 2
    for other in (changed, removed, added):
        assert np.linalg.norm(solve(model, other) - scores) <= limit * (1 + 1e-9)


@over_laws(CONTINUOUS)
@ten_times
@given(data=st.data())
def test_the_expected_comparison_changes_nothing(name, data):
    """A comparison added at Φ'(θ_ab) moves nothing; above it θ_a rises and θ_b falls."""
    model, comparisons = data.draw(problems(name))
    scores = solve(model, comparisons)
    neutral = float(LAWS[name].mean(scores[2] - scores[5]))
    above = neutral + 0.5 * (min(EDGES[name], neutral + 1) - neutral)
    spare = np.eye(NUM_ROWS)[12] > 0

    def with_extra(extra):
        return gbt.Comparisons(
            np.where(spare, 2, comparisons.a),
            np.where(spare, 5, comparisons.b),
            np.where(spare, extra, comparisons.value),
            np.where(spare, 1, comparisons.weight),
            num_items=NUM_ITEMS,
        )

    same = solve(model, with_extra(neutral))
    np.testing.assert_allclose(same, scores, atol=1e-10 * (1 + np.abs(scores).max()))
    assume(above > neutral)  # beyond, rounding leaves no room below the edge
    higher = solve(model, with_extra(above))
    assert higher[2] > scores[2]
    assert higher[5] < scores[5]


def test_repeats_are_weights():
    model = gbt.Model(laws.Uniform(), 3.0)
    twice = gbt.Comparisons([0, 0, 1], [1, 1, 2], [0.4, 0.4, -0.2], num_items=3)
    weighted = gbt.Comparisons([0, 1], [1, 2], [0.4, -0.2], [2.0, 1.0], num_items=3)
    np.testing.assert_allclose(solve(model, twice), solve(model, weighted), atol=1e-15)


def test_binary_scores_are_half_the_logits():
    a, b = [0, 1, 2, 0, 2], [1, 2, 0, 2, 1]
    votes = gbt.Comparisons(a, b, [1.0, 1, 1, 1, -1], num_items=3)
    halves = gbt.Comparisons(a, b, [0.5, 0.5, 0.5, 0.5, -0.5], num_items=3)
    binary = solve(gbt.Model(laws.Binary(), jnp.inf), votes)
    logits = solve(gbt.Model(laws.BradleyTerry(), jnp.inf), halves)
    np.testing.assert_allclose(2 * binary, logits, atol=1e-14)
