"""Simulated graphs, outcomes and users against the probabilities they are meant to have."""

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

import gbt_jax as gbt
from gbt_jax import laws, simulate
from gbt_jax.simulate import _draws, _graphs

KEY = jax.random.key(0)
MODEL = gbt.Model(laws.Gaussian(1.0), 50.0, 7.0)  # the law adds a standard normal to differences


def listed(pairs) -> list[tuple[int, int]]:
    return list(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True))


def agrees(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Pearson's test, which a right sampler fails once in ten thousand keys."""
    expected = np.sum(counts) * probabilities / np.sum(probabilities)
    return stats.chisquare(np.ravel(counts), np.ravel(expected)).pvalue > 1e-4


@pytest.mark.parametrize("num_items", [0, 1, 2, 7])
def test_graphs_without_chance(num_items):
    every = set(itertools.combinations(range(num_items), 2))
    found = simulate.complete(num_items)
    assert set(listed(found)) == every
    assert found.a.size == len(every)
    assert listed(simulate.erdos_renyi(num_items, 1, key=KEY)) == listed(found)
    assert simulate.erdos_renyi(num_items, 0, key=KEY).b.size == 0
    assert listed(simulate.chain(num_items)) == [(i, i + 1) for i in range(num_items - 1)]
    expected = list(itertools.product(range(num_items), range(num_items, num_items + 3)))
    assert listed(simulate.bipartite(num_items, 3)) == expected
    assert found.a.dtype == found.b.dtype == np.int32


def test_pair_numbers_beyond_float64():
    for high in (2**27 + 1, 2**31 - 2):
        first = high * (high - 1) // 2
        low, found = _graphs.triangle(np.array([first - 1, first, first + high - 1]))
        assert found.tolist() == [high - 1, high, high]
        assert low.tolist() == [high - 2, 0, high - 1]


@pytest.mark.parametrize("graph", ["erdos_renyi", "bipartite"])
def test_every_graph_has_its_probability(graph):
    """With three possible pairs all eight graphs can be counted."""
    possible = [(0, 1), (0, 2), (1, 2)] if graph == "erdos_renyi" else [(0, 1), (0, 2), (0, 3)]
    make = getattr(simulate, graph)
    sizes = (3,) if graph == "erdos_renyi" else (1, 3)
    counts = np.zeros((2, 2, 2))
    for key in jax.random.split(KEY, 1000):
        found = listed(make(*sizes, 0.3, key=key))
        assert len(found) == len(set(found))
        counts[tuple(int(pair in found) for pair in possible)] += 1
    one = np.array([0.7, 0.3])
    assert agrees(counts, one[:, None, None] * one[:, None] * one)


def test_sparse_graph_of_many_items():
    """A million items: of 5·10¹¹ pairs 200,000 are in, and all pairs would not fit memory."""
    num_items, probability = 10**6, 4e-7
    a, b = simulate.erdos_renyi(num_items, probability, key=KEY)
    assert (a < b).all()
    assert np.unique(a.astype(np.int64) * num_items + b).size == a.size
    total = num_items * (num_items - 1) / 2
    assert 1e-4 < stats.binom.cdf(a.size, total, probability) < 1 - 1e-4
    # b has density 2x and a is uniform below b.
    assert stats.kstest((b / num_items) ** 2, "uniform").pvalue > 1e-4
    assert stats.kstest((a + 0.5) / b, "uniform").pvalue > 1e-4
    dense = simulate.erdos_renyi(400, 0.9, key=KEY)
    assert 1e-4 < stats.binom.cdf(dense.a.size, 79800, 0.9) < 1 - 1e-4
    assert simulate.erdos_renyi(num_items, 1e-300, key=KEY).a.size == 0


def test_gaps_go_on_where_too_few_were_drawn():
    class Ones:
        def geometric(self, probability, size):
            return np.ones(size, np.int64)

    found = _graphs._random_subset(Ones(), 1000, 0.01)
    np.testing.assert_array_equal(found, np.arange(1000))


@pytest.mark.parametrize("exponent", [np.inf, 2.5, 1.5])
def test_drawn_pairs_have_their_probabilities(exponent):
    """By popularity, or all alike: item k of four has the share (k+1)^(−1/(γ−1))."""
    if exponent == np.inf:
        a, b = simulate.random_pairs(4, 40_000, key=KEY)
    else:
        a, b = simulate.power_law(4, 40_000, exponent=exponent, key=KEY)
    assert (a != b).all()
    counts = np.zeros((4, 4))
    np.add.at(counts, (a, b), 1)
    share = np.arange(1, 5) ** (-1 / (exponent - 1))
    off = ~np.eye(4, dtype=bool)
    assert agrees(counts[off], np.outer(share, share)[off])


def test_degrees_follow_the_power_law():
    """Hill's estimate of the exponent from the upper tail of degrees."""
    pairs = simulate.power_law(20_000, 10**6, exponent=2.5, key=KEY)
    degree = np.sort(np.bincount(np.concatenate(pairs), minlength=20_000))[::-1]
    exponent = 1 + 1 / np.mean(np.log(degree[:1000] / degree[1000]))
    assert abs(exponent - 2.5) < 0.1


@pytest.mark.parametrize(
    ("count", "share"),
    [(2, None), (3, None), (2, [0.26, 0.23, 0.2, 0.17, 0.14]), (3, [0.6, 0.25, 0.1, 0.03, 0.02])],
)
def test_distinct_numbers_for_many_groups(count, share):
    """Few of five by drawing again, many by a race: each set as if drawn one after the other."""
    counts, total = np.full(20_000, count), np.full(20_000, 5)
    weights = None if share is None else np.array(share)
    group, number = _draws.distinct_numbers(np.random.default_rng(0), counts, total, weights)
    np.testing.assert_array_equal(group, np.repeat(np.arange(20_000), count))
    code = (2**number).reshape(-1, count).sum(axis=1)
    p = np.full(5, 0.2) if share is None else np.array(share)
    expected = np.zeros(32)
    for order in itertools.permutations(range(5), count):
        chance, left = 1.0, 1.0
        for i in order:
            chance, left = chance * p[i] / left, left - p[i]
        expected[sum(2**i for i in order)] += chance
    found = np.bincount(code, minlength=32)
    assert not found[expected == 0].any()  # no number twice
    assert agrees(found[expected > 0], expected[expected > 0])


def test_distinct_numbers_of_groups_of_all_sizes(monkeypatch):
    monkeypatch.setattr(_draws, "_AT_ONCE", 4)  # each crowded group races alone
    total = np.array([1, 50, 3, 400, 2, 6])
    count = np.array([1, 7, 3, 399, 1, 2])
    group, number = _draws.distinct_numbers(np.random.default_rng(0), count, total)
    np.testing.assert_array_equal(np.bincount(group), count)
    assert (number < total[group]).all()
    assert len(set(zip(group.tolist(), number.tolist(), strict=True))) == count.sum()


def test_scores_follow_the_prior():
    scores = np.asarray(simulate.scores(MODEL, 4000, key=KEY))
    assert stats.kstest((scores - 7) / 50, "norm").pvalue > 1e-4
    scale = np.where(np.arange(4000) < 2000, 1.0, 3.0)
    other = gbt.Model(laws.Uniform(), scale, np.arange(4000.0))
    scores = simulate.scores(other, 4000, sampler=jax.random.laplace, key=KEY)
    assert stats.kstest((scores - np.arange(4000.0)) / scale, "laplace").pvalue > 1e-4


def test_comparisons_follow_the_law():
    """More than a block of values, and their moments."""
    law, size = laws.Davidson(1.0), 70_000
    pairs = (np.zeros(size, int), np.ones(size, int))
    value = np.asarray(simulate.comparisons(law, [1.0, 0.4], pairs, key=KEY).value)
    assert set(value.tolist()) == {-1, 0, 1}
    mean, variance = float(law.mean(0.6)), float(law.variance(0.6))
    assert abs(value.mean() - mean) < 4 * np.sqrt(variance / size)
    assert abs(value.var() - variance) < 0.01
    assert (value[: size - 2**16] != value[2**16 :]).any()  # each block has a key of its own


def test_each_row_has_its_difference():
    scores = np.float32(1000) * np.random.default_rng(0).permutation(200).astype(np.float32)
    pairs = simulate.random_pairs(200, 3000, key=KEY)
    found = simulate.comparisons(laws.Gaussian(1.0), scores, pairs, key=KEY)
    assert found.value.dtype == np.float32
    assert found.num_items == 200
    noise = np.asarray(found.value) - (scores[pairs.a] - scores[pairs.b])
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    assert len(simulate.comparisons(laws.Gaussian(1.0), [], simulate.chain(0), key=KEY)) == 0


def test_fits_find_the_scores():
    model = gbt.Model(laws.Uniform(), 2.0)
    scores = simulate.scores(model, 60, key=KEY)
    pairs = simulate.erdos_renyi(60, 0.6, key=KEY)
    fit = gbt.fit(model, simulate.comparisons(model.law, scores, pairs, key=KEY))
    assert np.corrcoef(fit.scores, scores)[0, 1] > 0.97
    # The information of some 35 comparisons, of variance Φ'' at differences of √2·2, per item.
    differences = np.asarray(scores)[pairs.a] - np.asarray(scores)[pairs.b]
    expected = 1 / np.sqrt(0.6 * 59 * np.mean(model.law.variance(differences)))
    assert 0.7 < np.std(fit.scores - scores) / expected < 1.4


def rounds_of(played: gbt.Comparisons, num_rounds: int) -> np.ndarray:
    """(a, b, value) × rounds × games"""
    return np.stack([played.a, played.b, played.value]).reshape(3, num_rounds, -1)


def points_of(rounds: np.ndarray, num_items: int) -> np.ndarray:
    a, b, value = rounds.reshape(3, -1)
    points = np.zeros(num_items)
    np.add.at(points, a.astype(int), (1 + np.sign(value)) / 2)
    np.add.at(points, b.astype(int), (1 - np.sign(value)) / 2)
    return points


@pytest.mark.parametrize("num_items", [2, 3, 8, 11, 24])
def test_swiss_tournaments_have_no_rematch(num_items):
    """In half as many rounds as there are items, whatever the results."""
    num_rounds = num_items // 2
    for key in jax.random.split(KEY, 8):
        played = simulate.swiss(np.zeros(num_items), num_rounds, laws.Davidson(1.0), key=key)
        a, b, _ = rounds_of(played, num_rounds).astype(int)
        assert len({frozenset(pair) for pair in zip(a.flat, b.flat, strict=True)}) == a.size
        for first, second in zip(a, b, strict=True):  # everybody plays, but one of an odd number
            assert np.unique([first, second]).size == num_items - num_items % 2
        if num_items % 2:  # nobody sits out twice
            games = np.bincount(np.append(a, b), minlength=num_items)
            assert games.min() == num_rounds - 1


def test_swiss_rounds_follow_the_standing():
    """With certain results: equals meet, and the best of 32 wins all five rounds."""
    strength = 50.0 * np.random.default_rng(0).permutation(32)
    rounds = rounds_of(simulate.swiss(strength, 5, laws.Davidson(1.0), key=KEY), 5)
    gaps = []
    for number in range(1, 5):
        points = points_of(rounds[:, :number], 32)
        a, b, _ = rounds[:, number].astype(int)
        gaps.append(np.abs(points[a] - points[b]))
    assert not np.any(gaps[:2])  # groups are even, and cannot have met
    assert np.mean(gaps[2:]) < 0.2
    final = points_of(rounds, 32)
    assert final[np.argmax(strength)] == 5
    assert np.sum(final == 5) <= 2  # a second one, where avoiding a rematch kept the two apart


def test_swiss_sits_out_the_last_who_has_a_point_for_it():
    """Of nine, one without a win in the second round; the first one out then is among winners."""
    meets_winner = []
    for key in jax.random.split(KEY, 8):
        rounds = rounds_of(simulate.swiss(50.0 * np.arange(9), 2, laws.Davidson(1.0), key=key), 2)
        wins = points_of(rounds[:, :1], 9)
        first, second = (set(range(9)) - set(x.flat) for x in rounds[:2].swapaxes(0, 1))
        assert wins[second.pop()] == 0
        a, b, _ = rounds[:, 1].astype(int)
        game = np.flatnonzero((a == min(first)) | (b == min(first)))[0]
        meets_winner.append(wins[[a[game], b[game]]].sum() == 1)
    assert sum(meets_winner) >= 4


def test_swiss_goes_on_when_all_have_met():
    rounds = rounds_of(simulate.swiss([0.0, 1.2], 300, laws.Davidson(1.0), key=KEY), 300)
    value = np.where(rounds[0] == 1, rounds[2], -rounds[2])
    expected = float(laws.Davidson(1.0).mean(1.2))
    assert abs(value.mean() - expected) < 4 * value.std() / np.sqrt(300)
    a, b, _ = rounds_of(simulate.swiss(np.zeros(5), 9, laws.Davidson(1.0), key=KEY), 9)
    games = np.bincount(np.append(a, b).astype(int))
    assert games.min() >= 7  # nine sit out in turns: once or twice each


@pytest.fixture(scope="module")
def crowd():
    return simulate.population(MODEL, 10_000, num_items=3000, key=KEY)


def test_population_sizes(crowd):
    """Median 10, thousands for some, and the lognormal law between."""
    data = crowd.comparisons
    size = np.bincount(np.asarray(data.group)[np.asarray(data.a)], minlength=10_000)
    assert np.array_equal(data.group_labels, np.arange(10_000))
    assert 9 <= np.median(size) <= 11
    assert 15 <= np.sum(size > 1000) <= 60
    assert 2000 < size.max() < 50_000
    edges = np.array([5.5, 10.5, 20.5, 50.5, 200.5])
    expected = stats.norm.cdf(np.log(edges / 10) / 1.7)
    assert agrees(np.histogram(size, [0, *edges, np.inf])[0], np.diff([0, *expected, 1]))
    num_slots = np.bincount(np.asarray(data.group), minlength=10_000)
    assert (num_slots <= 2 + size // 2).all()
    assert num_slots[size > 100].mean() > 0.45 * size[size > 100].mean()


def test_population_pairs(crowd):
    """Users compare a pair once; popular items are those of many users."""
    data = crowd.comparisons
    low, high = np.minimum(data.a, data.b), np.maximum(data.a, data.b)
    assert (low < high).all()
    assert np.array_equal(data.group[low], data.group[high])
    code = low.astype(np.int64) * data.num_items + high
    assert np.unique(code).size == code.size
    assert abs(np.mean(data.a < data.b) - 0.5) < 0.01
    num_users = np.bincount(data.item_labels, minlength=3000)
    slope = np.polyfit(np.log(np.arange(30, 3001)), np.log(num_users[29:]), 1)[0]
    assert -0.7 < slope < -0.5  # −2/3, less what the most active, who pick nearly all, add


def test_population_scores_and_values(crowd):
    data, scores = crowd.comparisons, crowd.scores
    assert stats.kstest((scores[::50] - 7) / 50, "norm").pvalue > 1e-4
    noise = data.value - (scores[np.asarray(data.a)] - scores[np.asarray(data.b)])
    assert stats.kstest(noise[::50], "norm").pvalue > 1e-4


def test_population_agreement_and_priors():
    """Users of one small set of items, each with its own prior, in float32."""
    mean, std = np.arange(300, dtype=np.float32), np.linspace(1, 2, 300, dtype=np.float32)
    model = gbt.Model(laws.Gaussian(np.float32(1.0)), std, mean)
    options = {"num_items": 5, "median_comparisons": 10, "log_std": 0, "key": KEY}
    found = simulate.population(model, 300, agreement=0.7, **options)
    assert found.comparisons.value.dtype == found.scores.dtype == np.float32
    assert found.comparisons.value.size == 3000  # all ten pairs of all users
    standard = (found.scores.reshape(300, 5) - mean[:, None]) / std[:, None]
    rest = (standard - np.sqrt(0.7) * found.common) / np.sqrt(0.3)
    assert stats.kstest(rest.ravel(), "norm").pvalue > 1e-4
    same = simulate.population(model, 300, agreement=1.0, **options)
    standard = (same.scores.reshape(300, 5) - mean[:, None]) / std[:, None]
    np.testing.assert_allclose(standard, np.tile(same.common, (300, 1)), atol=1e-4)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: simulate.erdos_renyi(50, 0.3, key=key),
        lambda key: simulate.bipartite(20, 30, 0.3, key=key),
        lambda key: simulate.random_pairs(50, 100, key=key),
        lambda key: simulate.power_law(50, 100, key=key),
        lambda key: simulate.scores(MODEL, 20, key=key),
        lambda key: simulate.comparisons(MODEL.law, np.zeros(9), simulate.chain(9), key=key),
        lambda key: simulate.swiss(np.zeros(9), 3, MODEL.law, key=key),
        lambda key: vars(simulate.population(MODEL, 30, num_items=20, key=key).comparisons),
    ],
)
def test_the_key_decides(draw):
    first, again, other = (
        [np.asarray(x) for x in jax.tree.leaves(draw(jax.random.key(seed)))] for seed in (1, 1, 2)
    )
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: simulate.complete(-1), "num_items must be an integer of at least 0, not -1"),
        (lambda: simulate.chain(2.0), "num_items must be an integer"),
        (
            lambda: simulate.erdos_renyi(5, 1.5, key=KEY),
            "probability must be from 0 to 1, not 1.5",
        ),
        (lambda: simulate.bipartite(2, 3, np.nan, key=KEY), "probability must be .* not nan"),
        (lambda: simulate.bipartite(2, 3, 0.5), "needs a key"),
        (lambda: simulate.random_pairs(1, 5, key=KEY), "num_items must be an integer of at least"),
        (lambda: simulate.power_law(5, -2, key=KEY), "num_comparisons must be .* not -2"),
        (lambda: simulate.power_law(5, 2, exponent=1.0, key=KEY), "exponent must be at least 1.1"),
        (
            lambda: simulate.scores(gbt.Model(laws.Uniform(), np.inf), 3, key=KEY),
            "prior_std is inf",
        ),
        (
            lambda: simulate.scores(gbt.Model(laws.Uniform(), [1.0, 2.0]), 3, key=KEY),
            r"one per item \(3\)",
        ),
        (
            lambda: simulate.scores(MODEL, 3, sampler=lambda *_: np.zeros(4), key=KEY),
            r"shape \(3,\), not \(4,\)",
        ),
        (
            lambda: simulate.comparisons(MODEL.law, [0, np.nan], simulate.chain(2), key=KEY),
            r"scores\[1\] is nan",
        ),
        (
            lambda: simulate.comparisons(MODEL.law, [0.0, 1], simulate.chain(3), key=KEY),
            r"b\[1\] is 2",
        ),
        (lambda: simulate.swiss([0.0], 3, MODEL.law, key=KEY), "at least 2 items, not 1"),
        (lambda: simulate.swiss([0.0, 1], 0, MODEL.law, key=KEY), "num_rounds must be .* not 0"),
        (lambda: simulate.population(MODEL, 0, num_items=5, key=KEY), "num_users must be .* not 0"),
        (lambda: simulate.population(MODEL, 3, num_items=1, key=KEY), "num_items must be .* not 1"),
        (
            lambda: simulate.population(MODEL, 3, num_items=5, agreement=2, key=KEY),
            "agreement must be from 0 to 1, not 2",
        ),
        (
            lambda: simulate.population(MODEL, 3, num_items=5, median_comparisons=0, key=KEY),
            "median_comparisons must be positive",
        ),
        (
            lambda: simulate.population(MODEL, 3, num_items=5, log_std=-1, key=KEY),
            "log_std must be non-negative and finite, not -1",
        ),
        (
            lambda: simulate.population(
                gbt.Model(laws.Uniform(), np.ones(2)), 3, num_items=5, key=KEY
            ),
            r"one per user \(3\)",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_a_law_is_needed():
    with pytest.raises(TypeError, match="law must be a root law"):
        simulate.comparisons(MODEL, [0.0, 1], simulate.chain(2), key=KEY)
