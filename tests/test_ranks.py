"""Ranks: what is ranked against what, and intervals that hold the rank they stand beside."""

import json

import jax
import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import random_comparisons

import gbt_jax as gbt
from gbt_jax import cli, frames, laws, report
from gbt_jax.frames import _uncertainty

KEY = jax.random.key(0)
NUM_ITEMS, NUM_ROWS = 7, 13  # one shape, so that everything compiles once
PAIRS = list(zip(*np.triu_indices(NUM_ITEMS, 1), strict=True))
thirty_times = settings(max_examples=30, deadline=None, derandomize=True)


def total_weights(rows: gbt.Comparisons) -> np.ndarray:
    totals = np.zeros(rows.num_items)
    for ends in (rows.a, rows.b):
        np.add.at(totals, np.asarray(ends), np.asarray(rows.weight))
    return totals


def check_ranks(ranks, scores, owner, is_ranked):
    """Ranks of the scores of each owner's ranked items, inside of their intervals."""
    for column in ranks:
        np.testing.assert_array_equal(np.isnan(column), ~is_ranked)
    for number in np.unique(owner):
        own = np.flatnonzero(is_ranked & (owner == number))
        expected = scipy.stats.rankdata(-np.asarray(scores)[own], "min")
        np.testing.assert_array_equal(ranks.estimate[own], expected)
        assert np.all(ranks.lower[own] >= 1)
        assert np.all(ranks.upper[own] <= own.size)
    known = np.flatnonzero(is_ranked)
    assert np.all(ranks.lower[known] <= ranks.estimate[known])
    assert np.all(ranks.estimate[known] <= ranks.upper[known])


@st.composite
def sparse_problems(draw):
    """Few items, some of which have no comparison, or one that has faded."""
    # Every item is in some row, if only in one of weight 0: groups have one shape, too.
    chain = [(item, item + 1) for item in range(NUM_ITEMS - 1)]
    others = st.lists(st.sampled_from(PAIRS), min_size=NUM_ROWS - 6, max_size=NUM_ROWS - 6)
    a, b = np.array(chain + draw(others)).T
    weight = draw(st.lists(st.sampled_from([0.0, 1e-6, 1.0]), min_size=NUM_ROWS, max_size=NUM_ROWS))
    value = draw(st.lists(st.floats(-1, 1), min_size=NUM_ROWS, max_size=NUM_ROWS))
    return gbt.Comparisons(a, b, value, weight, num_items=NUM_ITEMS)


@thirty_times
@given(
    sparse_problems(),
    st.floats(0.1, 20.0),
    st.floats(0.02, 0.99),
    st.sampled_from([0.0, 0.5, 2.0]),
)
def test_the_rank_lies_in_its_interval(rows, std, level, least):
    totals = total_weights(rows)
    is_ranked = (totals > 0) & (totals >= least)
    options = {"level": level, "key": KEY, "num": 20, "min_comparisons": least}
    fit = gbt.fit(gbt.Model(laws.Gaussian(0.8), std), rows)
    one = np.zeros(NUM_ITEMS, int)
    check_ranks(gbt.rank_intervals(fit, **options), fit.scores, one, is_ranked)
    # The same rows in two groups, one of which has them in reverse.
    columns = (np.tile(np.asarray(x), 2) for x in (rows.a, rows.b, rows.value, rows.weight))
    a, b, value, weight = columns
    value[NUM_ROWS:] *= -1
    group = np.repeat([0, 1], NUM_ROWS)
    grouped = gbt.Comparisons(a, b, value, weight, num_items=NUM_ITEMS, group=group)
    fits = gbt.fit(gbt.Model(laws.Gaussian(0.8), std), grouped)
    for using in (None, gbt.curvature(fits)):
        check_ranks(
            gbt.rank_intervals(fits, using=using, **options),
            fits.scores,
            fits.group,
            is_ranked[fits.item],
        )


def with_idle_items(rows: gbt.Comparisons, count: int) -> gbt.Comparisons:
    columns = rows.a, rows.b, rows.value, rows.weight
    return gbt.Comparisons(*columns, num_items=rows.num_items + count)


@pytest.mark.parametrize("idle", [11, 391])  # with a matrix, and by elimination
def test_items_without_comparisons_do_not_crowd_the_others(idle):
    rows = random_comparisons(9, 30)
    model = gbt.Model(laws.Gaussian(0.8), 3.0)
    alone, crowded = (
        gbt.rank_intervals(gbt.fit(model, x), level=0.8, key=KEY, num=4000)
        for x in (rows, with_idle_items(rows, idle))
    )
    np.testing.assert_array_equal(crowded.estimate[:9], alone.estimate)
    assert np.isnan(crowded.estimate[9:]).all()
    for name in ("lower", "upper"):
        found, expected = getattr(crowded, name)[:9], getattr(alone, name)
        assert np.abs(found - expected).max() <= 1  # other draws
        assert np.mean(found == expected) >= 7 / 9


def test_items_without_comparisons_need_no_common_scale():
    """Without a prior, an idle item is a component of its own, and is not ranked."""
    rows = with_idle_items(random_comparisons(9, 30), 2)
    fit = gbt.fit(gbt.Model(laws.Gaussian(0.8), np.inf), rows)
    ranks = gbt.rank_intervals(fit, key=KEY, num=50)
    check_ranks(ranks, fit.scores, np.zeros(11, int), np.arange(11) < 9)
    # A pair that stands apart is left out, too, if it has too few comparisons.
    apart = gbt.Comparisons(
        np.append(rows.a, 9), np.append(rows.b, 10), np.append(rows.value, 0.3), num_items=11
    )
    two = gbt.fit(gbt.Model(laws.Gaussian(0.8), np.inf), apart)
    with pytest.raises(ValueError, match=r"no common scale, and so no ranks.*min_comparisons"):
        gbt.rank_intervals(two, key=KEY)
    ranks = gbt.rank_intervals(two, key=KEY, num=50, min_comparisons=2)
    check_ranks(ranks, two.scores, np.zeros(11, int), np.arange(11) < 9)


def test_weights_that_add_up_to_the_least_are_enough():
    rows = gbt.Comparisons([0] * 10, [1] * 10, [0.1] * 10, [0.1] * 10, num_items=2)
    assert sum([0.1] * 10) < 1
    ranks = gbt.rank_intervals(
        gbt.fit(gbt.Model(laws.Gaussian(1.0)), rows), key=KEY, num=20, min_comparisons=1
    )
    np.testing.assert_array_equal(ranks.estimate, [1, 2])
    for least in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="min_comparisons must be a non-negative number"):
            gbt.rank_intervals(
                gbt.fit(gbt.Model(laws.Gaussian(1.0)), rows), key=KEY, min_comparisons=least
            )


def tennis(players: int, matches: int, seed: int = 0):
    """a, b, who won (±1) and weight: few play much, many play once, and most of it has faded."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, players + 1) ** -1.2
    a, b = rng.choice(players, (2, matches), p=share / share.sum())
    b = np.where(a == b, (b + 1) % players, b)
    strength = 0.5 * rng.normal(size=players) + np.linspace(1.5, -0.5, players)
    is_won = rng.random(matches) < 1 / (1 + np.exp(-2 * (strength[a] - strength[b])))
    weight = 0.5 ** (20 * rng.random(matches)) * (rng.random(matches) > 0.1)
    return a, b, np.where(is_won, 1.0, -1.0), weight


@pytest.mark.slow
def test_thousands_of_players():
    """Those of few matches crowd the draws: 344 of 3,000 ranks lay outside of their intervals."""
    rows = gbt.Comparisons(*tennis(3000, 60_000), num_items=3000)
    fit = gbt.fit(gbt.Model(laws.Binary(), 2.0), rows)
    totals, owner = total_weights(rows), np.zeros(3000, int)
    ranks = gbt.rank_intervals(fit, key=KEY, num=300)
    check_ranks(ranks, fit.scores, owner, totals > 0)
    regulars = gbt.rank_intervals(fit, key=KEY, num=300, min_comparisons=50)
    check_ranks(regulars, fit.scores, owner, totals >= 50)
    # Among those who play much the first place is known to a few.
    assert regulars.upper[np.nanargmin(regulars.estimate)] < 10


@pytest.mark.parametrize("path", ["together", "alone", "iterative"])
def test_tables(path, monkeypatch):
    """Ranks in intervals, unranked items last and without ranks, in every way to compute them."""
    sizes = {"together": 40, "alone": 300, "iterative": 300}
    size = sizes[path]
    if path == "iterative":
        monkeypatch.setattr(_uncertainty, "ELIMINATION_ITEMS", 256)
    a, b, value, weight = tennis(size, 5 * size)
    a[0], b[0] = size - 1, 0
    weight[(a == size - 1) | (b == size - 1)] = 0  # there, and without comparisons
    totals = np.bincount(a, weight, size) + np.bincount(b, weight, size)
    is_there = np.bincount(np.append(a, b), minlength=size) > 0
    winner, loser = np.where(value > 0, a, b), np.where(value > 0, b, a)
    data = pa.table({"winner": winner, "loser": loser, "weight": weight})
    for least in (0.0, 1.0):
        ranking = frames.fit_table(
            data, "pairs", prior_std=2.0, draws=50, level=0.5, min_comparisons=least
        )
        rows = ranking.arrow.to_pylist()
        ranked = [row for row in rows if row["rank"] is not None]
        assert len(rows) == is_there.sum()
        assert {row["item"] for row in ranked} == set(
            np.flatnonzero((totals > 0) & (totals >= least)).tolist()
        )
        assert 0 < len(ranked) < len(rows)
        assert [row["rank"] for row in ranked] == list(range(1, len(ranked) + 1))
        assert all(row["rank_lower"] <= row["rank"] <= row["rank_upper"] for row in ranked)
        unranked = rows[len(ranked) :]  # last, the best first
        assert all(row["rank_lower"] is row["rank_upper"] is None for row in unranked)
        scores = [row["score"] for row in unranked]
        assert scores == sorted(scores, reverse=True)


def test_reports_and_commands_say_who_is_not_ranked(tmp_path, capsys):
    file = tmp_path / "votes.csv"
    file.write_text("winner,loser,weight\nx,y,5\ny,x,4\nz,x,1\nidle,x,0\n")
    options = {"prior_std": 1.0, "draws": 20}
    ranking = frames.fit_table(file, "pairs", **options, min_comparisons=2)
    rows = ranking.arrow.to_pylist()
    assert [(row["item"], row["rank"]) for row in rows] == [
        ("x", 1),
        ("y", 2),
        ("z", None),
        ("idle", None),
    ]
    page = report.report_html(ranking, frames.check(ranking.votes))
    assert "2 items have too few comparisons for a rank." in page
    assert page.count('<tr><td class="n">–</td><th scope="row">') == 2
    all_ranked = frames.fit_table(file, "pairs", **options)
    assert "1 item has too few comparisons for a rank." in report.report_html(
        all_ranked, frames.check(ranking.votes)
    )
    cli.main(["fit", str(file), "--preset", "pairs", "--min-comparisons", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    ranks = {row["item"]: row["rank"] for row in found["rows"]}
    assert ranks == {"x": 1, "y": 2, "z": None, "idle": None}
    with pytest.raises(ValueError, match="min_comparisons must be a non-negative number, not -1"):
        frames.fit_table(file, "pairs", min_comparisons=-1)
