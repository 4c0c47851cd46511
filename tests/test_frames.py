"""Tables to rankings: against optima found by NumPy, weights by hand, and counted draws."""

import datetime

import jax
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.stats
from problems import data_file, random_pairs, tournesol_problems

from gbt_jax import frames, laws

NAMES = np.array(["007", 'a "b", c', "é\nü", "NA", "d", "e"])
FIRST, SECOND = random_pairs(6, 40, seed=3)
WINS = {"winner": NAMES[FIRST], "loser": NAMES[SECOND]}
WEIGHT = np.random.default_rng(1).uniform(0.2, 2, 40)
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
GOOD = {"winner": ["x", "y"], "loser": ["y", "z"]}


def binary(t):
    """Φ' and Φ'' of log cosh t."""
    return np.tanh(t), 1 / np.cosh(t) ** 2


def uniform(t):
    return 1 / np.tanh(t) - 1 / t, 1 / t**2 - 1 / np.sinh(t) ** 2


def skellam(t):
    return 2.7 * np.sinh(t), 2.7 * np.cosh(t)


def optimum(law, a, b, value, weight, size, std):
    """(θ*, N): Newton's method with matrices, from scores that are not equal."""
    incidence = np.zeros((len(a), size))
    incidence[np.arange(len(a)), a] = 1
    incidence[np.arange(len(a)), b] = -1
    theta = 1e-3 * np.arange(size)
    for _ in range(20):
        mean, variance = law(incidence @ theta)
        gradient = theta / std**2 + incidence.T @ (weight * (mean - value))
        hessian = np.eye(size) / std**2 + (incidence.T * (weight * variance)) @ incidence
        theta = theta - np.linalg.solve(hessian, gradient)
    assert np.abs(gradient).max() < 1e-9
    return theta, np.linalg.inv(hessian)


@pytest.fixture(scope="module")
def ranking():
    table = pd.DataFrame(WINS | {"weight": WEIGHT, "unused": ["text", 1] * 20})
    return frames.fit_table(table, "pairs", prior_std=1.5, draws=4000)


@pytest.fixture(scope="module")
def expected():
    return optimum(binary, FIRST, SECOND, np.ones(40), WEIGHT, 6, 1.5)


def by_item(ranking, column):
    """A column of the result, in the order of `NAMES`."""
    rows = {row["item"]: row[column] for row in ranking.arrow.to_pylist()}
    return np.array([rows[name] for name in NAMES])


def test_scores_are_the_optimum(ranking, expected):
    theta, inverse = expected
    np.testing.assert_allclose(by_item(ranking, "score"), theta, rtol=1e-8)
    std = np.sqrt(np.diag(inverse))
    np.testing.assert_allclose(by_item(ranking, "std"), std, rtol=1e-8)
    for column, sign in (("lower", -1), ("upper", 1)):
        ends = theta + sign * scipy.stats.norm.ppf(0.975) * std
        np.testing.assert_allclose(by_item(ranking, column), ends, rtol=1e-8)
    counts = np.bincount(np.concatenate([FIRST, SECOND]))
    np.testing.assert_array_equal(by_item(ranking, "comparisons"), counts)
    np.testing.assert_array_equal(by_item(ranking, "component"), 1)


def test_ranks_are_counted_in_draws(ranking, expected):
    theta, inverse = expected
    np.testing.assert_array_equal(by_item(ranking, "rank"), scipy.stats.rankdata(-theta))
    drawn = np.random.default_rng(0).multivariate_normal(theta, inverse, 20_000)
    ranks = scipy.stats.rankdata(-drawn, axis=1)
    for column, tail in (("rank_lower", 0.025), ("rank_upper", 0.975)):
        ends = np.quantile(ranks, tail, axis=0, method="inverted_cdf")
        # A quantile of whole numbers jumps where its share falls on a step: allow one.
        assert np.abs(by_item(ranking, column) - ends).max() <= 1
        assert np.mean(by_item(ranking, column) == ends) >= 4 / 6
    assert by_item(ranking, "rank_upper").min() < 6


def test_the_table_and_its_facts(ranking, expected):
    table = ranking.table
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == [
        *["item", "score", "std", "lower", "upper", "rank", "rank_lower", "rank_upper"],
        *["comparisons", "component"],
    ]
    assert table["item"].tolist() == NAMES[np.argsort(-expected[0])].tolist()
    assert all(table[name].dtype == "int64" for name in table.columns[5:])
    (facts,) = ranking.facts
    norm = facts.pop("gradient_norm")
    assert 0 <= norm < 1e-8
    assert facts.pop("error_bound") == pytest.approx(norm * 1.5**2)
    size = {"items": 6, "comparisons": 40, "components": 1}
    end = {"converged": True, "result": "successful", "std_error": 0.0, "rank_draws": 4000}
    assert facts == {"law": "binary", "prior_std": 1.5} | size | end
    assert ranking.failures() == []


def test_groups_are_problems_of_their_own():
    """Two columns of groups, of text and of integers; labels and kinds as they came."""
    user = np.array(["v", "u"])[np.arange(40) % 2]
    topic = np.arange(40) // 20 * 8 + 2
    items = FIRST * 3, SECOND * 3
    data = {"winner": items[0], "loser": items[1], "user": user, "topic": topic}
    results = {}
    for kind, make in KINDS.items():
        found = frames.fit_table(make(data), "pairs", by=["user", "topic"], draws=50)
        assert type(found.table) is type(make(data))
        results[kind] = nw.from_native(found.table, eager_only=True).rows(named=True)
    assert results["pandas"] == results["polars"] == results["pyarrow"]
    rows = results["polars"]
    assert list(rows[0])[:3] == ["user", "topic", "item"]
    keys = [(row["user"], row["topic"]) for row in rows]
    assert sorted(set(keys)) == list(dict.fromkeys(keys)) == [(x, y) for x in "uv" for y in (2, 10)]
    for key in set(keys):
        mine = (user == key[0]) & (topic == key[1])
        present = np.unique([FIRST[mine], SECOND[mine]])
        ends = (np.searchsorted(present, x[mine]) for x in (FIRST, SECOND))
        one = np.ones(mine.sum())
        theta, _ = optimum(binary, *ends, one, one, present.size, 1.0)
        found = {row["item"]: row["score"] for row in rows if (row["user"], row["topic"]) == key}
        np.testing.assert_allclose([found[i * 3] for i in present], theta, rtol=1e-8)
        ranks = [row["rank"] for row in rows if (row["user"], row["topic"]) == key]
        assert min(ranks) == 1
    assert [fact["topic"] for fact in found_facts(data)] == [2, 10, 2, 10]
    clash = pd.DataFrame(WINS | {"rank": user})
    with pytest.raises(frames.TableError, match="rename the group column 'rank'"):
        frames.fit_table(clash, "pairs", by="rank")


def found_facts(data):
    return frames.fit_table(pa.table(data), "pairs", by=["user", "topic"], draws=50).facts


def test_half_ties_count_once():
    """A tie that counts half for each side pulls as a value of 0, and is one comparison."""
    labels = ["x", "y", "z"]
    data = {"model_a": ["x", "y", "x"], "model_b": ["y", "z", "z"], "weight": [1, 2, 3]}
    data["winner"] = ["model_a", "tie", "tie"]
    found = frames.fit_table(pa.table(data), "arena", law="binary", ties="half", weight="weight")
    weight = np.array([1, 2, 3])
    theta, _ = optimum(binary, [0, 1, 0], [1, 2, 2], np.array([1, 0, 0]), weight, 3, 1.0)
    rows = {row["item"]: row for row in found.arrow.to_pylist()}
    np.testing.assert_allclose([rows[x]["score"] for x in labels], theta, atol=1e-9)
    assert [rows[x]["comparisons"] for x in labels] == [2, 2, 2]
    assert found.facts[0]["comparisons"] == 3
    with pytest.raises(frames.TableError, match=r"row 2 .*is a tie, which Binary does not allow"):
        frames.fit_table(pa.table(data), "arena", law="binary")


def test_no_weight_no_comparison():
    """Neither in the counts, nor in the components, nor as a reason to refuse."""
    data = {"winner": ["x", "y", "z", "z"], "loser": ["y", "x", "x", "z"], "weight": [1, 1, 0, 0]}
    found = frames.fit_table(pa.table(data), "pairs")
    rows = {row["item"]: row for row in found.arrow.to_pylist()}
    assert [rows[x]["comparisons"] for x in "xyz"] == [2, 2, 0]
    assert [rows[x]["component"] for x in "xyz"] == [1, 1, 2]
    assert rows["z"]["std"] == pytest.approx(1)
    assert found.facts[0]["components"] == 2
    with pytest.raises(frames.TableError, match=r"row 4 compares 'z' with itself"):
        frames.fit_table(pa.table(data | {"weight": [1.0] * 4}), "pairs")


def test_without_a_prior():
    """No optimum for an undefeated item, no ranks across components, and others unharmed."""
    user = ["won"] * 2 + ["apart"] * 4 + ["fine"] * 2
    winner = ["x", "y", *"xyab", "x", "y"]
    loser = ["y", "z", *"yxba", "y", "x"]
    data = pa.table({"user": user, "winner": winner, "loser": loser})
    found = frames.fit_table(data, "pairs", by="user", prior_std=np.inf, draws=20)
    rows = found.arrow.to_pylist()
    of = {name: [row for row in rows if row["user"] == name] for name in user}
    assert all(row["score"] is row["std"] is row["rank"] is None for row in of["won"])
    assert all(row["rank"] is row["rank_upper"] is None for row in of["apart"])
    np.testing.assert_allclose([row["score"] for row in of["apart"] + of["fine"]], 0, atol=1e-12)
    # Scores of mean zero: the pseudoinverse of the Laplacian, whose weight is 2.
    np.testing.assert_allclose([row["std"] for row in of["apart"] + of["fine"]], np.sqrt(1 / 8))
    assert [row["rank"] for row in of["fine"]] == [1, 1]
    (failure,) = found.failures()
    assert failure.startswith("won: without a prior these data have no finite optimum")
    assert "'x'" in failure
    results = {fact["user"]: (fact["converged"], fact["result"]) for fact in found.facts}
    assert results["won"] == (False, "no_finite_optimum")
    assert results["apart"] == results["fine"] == (True, "successful")


def test_arguments_of_a_fit():
    for options, message in (
        ({"prior_std": np.ones(2)}, "prior_std must be one number"),
        ({"prior_std": -1}, "prior_std must be positive"),
        ({"level": 95}, "level must lie between 0 and 1, not 95"),
        ({"draws": 0}, "draws must be an integer of at least 1"),
        ({"law": "chess"}, "unknown law 'chess'; known: 'bradleyterry', 'binary', 'davidson:"),
    ):
        with pytest.raises(ValueError, match=message):
            frames.fit_table(pa.table(GOOD), "pairs", **options)
    with pytest.raises(TypeError, match="Votes were already read"):
        frames.fit_table(frames.read_votes(pa.table(GOOD), "pairs"), "pairs")


def test_laws_by_name():
    assert isinstance(frames.law_named("BradleyTerry"), laws.BradleyTerry)
    assert frames.law_named("knary:21").num_levels == 21
    assert float(frames.law_named(" skellam:2.7 ").max_value) == np.inf
    law = laws.Beta(0.3)
    assert frames.law_named(law) is law
    for text, message in (
        ("knary", r"write knary:PARAMETER \(number of levels, from 2\)"),
        ("knary:2.5", "write knary:PARAMETER"),
        ("uniform:2", "law 'uniform' takes no parameter"),
    ):
        with pytest.raises(ValueError, match=message):
            frames.law_named(text)


def test_elo_is_in_the_odds(ranking, expected):
    """400 points are odds of ten to one."""
    elo = ranking.to_elo()
    theta = expected[0]
    odds = np.exp(2 * (theta[:, None] - theta))  # of 1/(1 + exp(−2t)) and what is left
    score = by_item(elo, "score")
    np.testing.assert_allclose(10 ** ((score[:, None] - score) / 400), odds, rtol=1e-8)
    np.testing.assert_allclose(score.mean(), 1000)
    assert elo.table["item"].tolist() == ranking.table["item"].tolist()
    for name in ("rank", "rank_lower", "rank_upper", "comparisons"):
        np.testing.assert_array_equal(by_item(elo, name), by_item(ranking, name))
    width = by_item(ranking, "std") * 400 * 2 / np.log(10)
    np.testing.assert_allclose(by_item(elo, "std"), width)
    half = scipy.stats.norm.ppf(0.975) * width
    np.testing.assert_allclose(by_item(elo, "upper") - score, half)
    np.testing.assert_allclose(score - by_item(elo, "lower"), half)
    anchored = ranking.to_elo(anchor="NA", center=1500, scale=100, base=np.e)
    assert by_item(anchored, "score")[3] == pytest.approx(1500)
    np.testing.assert_allclose(by_item(anchored, "score") - 1500, 200 * (theta - theta[3]))
    with pytest.raises(ValueError, match="unknown anchor 'nobody'"):
        ranking.to_elo(anchor="nobody")
    with pytest.raises(ValueError, match="already on the Elo scale"):
        elo.to_elo()
    for options in ({"scale": 0}, {"base": 1}, {"center": np.inf}):
        with pytest.raises(ValueError, match="scale must be positive"):
            ranking.to_elo(**options)


def test_three_laws_have_the_same_elo(ranking):
    """Logits are twice the scores of Binary, and so is their prior; no tie mass changes nothing."""
    table = pa.table(WINS | {"weight": WEIGHT})
    expected = ranking.to_elo().arrow
    for law, prior_std in (("bradleyterry", 3.0), ("davidson:0", 1.5)):
        found = frames.fit_table(table, "pairs", law=law, prior_std=prior_std, draws=4000)
        elo = found.to_elo().arrow
        assert elo["item"].to_pylist() == expected["item"].to_pylist()
        for name in ("score", "std", "lower", "upper"):
            np.testing.assert_allclose(elo[name], expected[name], rtol=1e-7)


def test_elo_with_groups():
    pairs = frames.fit_table(pa.table(GOOD | {"g": [1, 2]}), "pairs", by="g", draws=20)
    scores = pairs.to_elo(anchor="y").arrow.to_pylist()
    assert [row["score"] for row in scores if row["item"] == "y"] == pytest.approx([1000, 1000])
    with pytest.raises(ValueError, match="the anchor 'x' was not compared in group '2'"):
        pairs.to_elo(anchor="x")


@pytest.mark.slow
def test_counts_have_scores_and_no_elo():
    data = {"home_team": ["x"], "away_team": ["y"], "home_score": [3], "away_score": [1]}
    goals = frames.fit_table(pa.table(data), "sports", draws=20)
    one = np.ones(1)
    theta, _ = optimum(skellam, [0], [1], 2 * one, one, 2, 1.0)
    np.testing.assert_allclose(goals.arrow["score"], theta, rtol=1e-8)
    with pytest.raises(ValueError, match="Skellam is unbounded, so its scores have no Elo scale"):
        goals.to_elo()


def test_a_large_group_in_two_parts():
    """Beyond 256 items a group is done alone; without a prior its two parts have no common rank."""
    ring = np.arange(150)
    winner = np.concatenate([ring, ring + 150])
    loser = np.concatenate([(ring + 1) % 150, (ring + 1) % 150 + 150])
    data = pa.table({"winner": winner, "loser": loser})
    held = frames.fit_table(data, "pairs", draws=200).arrow.to_pydict()
    matrix = np.eye(300)
    for a, b in zip(winner, loser, strict=True):  # all scores are 0, of curvature 1
        matrix[a, a] += 1
        matrix[b, b] += 1
        matrix[a, b] -= 1
        matrix[b, a] -= 1
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(held["std"], np.sqrt(inverse[0, 0]), rtol=1e-10)
    assert min(held["rank_lower"]) >= 1
    assert max(held["rank_upper"]) <= 300
    free = frames.fit_table(data, "pairs", prior_std=np.inf, draws=20).arrow.to_pydict()
    laplacian = (matrix - np.eye(300))[:150, :150]
    # Next to 0 is 0: the last digits of that eigenvalue differ between versions of LAPACK.
    variance = np.linalg.pinv(laplacian, 1e-10)[0, 0]
    np.testing.assert_allclose(free["std"], np.sqrt(variance), rtol=1e-8)
    assert free["rank"] == free["rank_lower"] == [None] * 300
    assert sorted(free["component"]) == [1] * 150 + [2] * 150


@pytest.mark.slow
def test_single_precision(expected):
    with jax.enable_x64(False):
        table = pd.DataFrame(WINS | {"weight": WEIGHT})
        found = frames.fit_table(table, "pairs", prior_std=1.5, draws=20)
        assert found.fit.scores.dtype == np.float32
        np.testing.assert_allclose(by_item(found, "score"), expected[0], atol=1e-5)


@pytest.mark.slow
def test_tournesol():
    """Every user and criterion, against matrices for a few of them."""
    found = frames.fit_table(data_file("tournesol/comparisons.csv"), "tournesol", draws=20)
    problems = tournesol_problems()
    facts = found.facts
    assert len(facts) == len(problems)
    assert all(fact["converged"] for fact in facts)
    assert sum(fact["comparisons"] for fact in facts) == sum(map(len, problems))
    scores = np.sort(found.arrow["score"].to_numpy())
    for problem in [x for x in problems if 5 < len(x) < 60][:10]:
        columns = map(np.asarray, (problem.a, problem.b, problem.value, problem.weight))
        theta, _ = optimum(uniform, *columns, problem.num_items, 7.0)
        place = np.searchsorted(scores, theta - 1e-7)
        np.testing.assert_allclose(scores[place], theta, atol=1e-7)


@pytest.mark.slow
def test_football():
    """Ages by Python's own calendar, scores by matrices."""
    path = data_file("football/results_2018_2024.csv")
    table = pd.read_csv(path)
    found = frames.fit_table(path, "sports", half_life=365, draws=20)
    codes, teams = pd.factorize(pd.concat([table["home_team"], table["away_team"]]), sort=True)
    a, b = codes.reshape(2, -1)
    dates = [datetime.date.fromisoformat(date) for date in table["date"]]
    weight = np.array([0.5 ** ((max(dates) - date).days / 365) for date in dates])
    goals = (table["home_score"] - table["away_score"]).to_numpy(float)
    theta, inverse = optimum(skellam, a, b, goals, weight, len(teams), 1.0)
    rows = {row["item"]: row for row in found.arrow.to_pylist()}
    np.testing.assert_allclose([rows[x]["score"] for x in teams], theta, atol=1e-7)
    std = np.sqrt(np.diag(inverse))
    np.testing.assert_allclose([rows[x]["std"] for x in teams], std, rtol=1e-6)
