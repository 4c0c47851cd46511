"""`check`: every finding in a table that was made to have it, and none in a sound one."""

import numpy as np
import pyarrow as pa
import pytest

from gbt_jax import frames

RNG = np.random.default_rng(0)
NUM_ITEMS, NUM_JUDGES = 6, 8
PAIRS = [(a, b) for a in range(NUM_ITEMS) for b in range(a)]


def grades(rng=RNG, num_judges=NUM_JUDGES):
    """A sound table: every judge grades every pair once, on a scale of 10, with some noise."""
    judge, pair = np.divmod(np.arange(num_judges * len(PAIRS)), len(PAIRS))
    a, b = np.array(PAIRS)[rng.permuted(np.arange(len(PAIRS)))[pair]].T
    swapped = rng.random(a.size) < 0.5
    a, b = np.where(swapped, b, a), np.where(swapped, a, b)
    value = np.clip(np.round(2 * (a - b) + rng.normal(0, 4, a.size)), -9, 9)
    return {"a": a, "b": b, "value": np.where(value == 0, 1, value), "judge": judge}


SOUND = grades()
# Every item has lost and won, else the table would not be sound.
OPTIONS = {"positive_favours": "a", "max_value": 10}


def check(data, **options):
    return frames.check(pa.table(data), **(OPTIONS | {"judge": "judge"} | options))


def names(findings):
    return {finding.name for finding in findings}


def finding(findings, name):
    (found,) = [x for x in findings if x.name == name]
    assert found.what
    assert found.advice
    assert found.what in str(findings)
    assert found.advice in str(findings)
    return found


def pairs(text, **columns):
    """Winners and losers from words such as `ab bc`."""
    winner, loser = zip(*text.split(), strict=True)
    return pa.table({"winner": winner, "loser": loser} | columns)


def test_nothing_is_found_in_a_sound_table():
    found = check(SOUND)
    assert names(found) == set()
    assert not found.has_problems
    assert "no problems found" in str(found)
    assert (found.num_rows, found.num_items, found.num_groups) == (120, 6, 1)
    # Without judges, repeats and contradictions are the opinions of different people.
    assert names(check(SOUND, judge=None)) <= {"repeats", "contradictions"}


def test_items_compared_with_themselves():
    found = frames.check(pairs("ab ba cc ac ca"), "pairs")
    selves = finding(found, "self_pairs")
    assert (selves.severity, selves.number) == ("error", 1)
    assert selves.examples == ("row 3 ('c' against 'c', value 1)",)
    assert found.has_problems
    assert next(iter(found)) is selves
    # Of no weight they do no harm.
    weight = [1, 1, 0, 1, 1]
    assert "self_pairs" not in names(frames.check(pairs("ab ba cc ac ca", weight=weight), "pairs"))


def test_parts_that_nothing_connects():
    apart = finding(frames.check(pairs("ab ba bc cb xy yx"), "pairs"), "components")
    assert (apart.severity, apart.number) == ("warning", 2)
    assert [example.split()[0] for example in apart.examples] == ["'x'", "'y'"]
    even = finding(frames.check(pairs("ab ba xy yx"), "pairs"), "components")
    assert len(even.examples) == 2
    # A row without weight connects nothing.
    weight = [1, 1, 1, 1, 0]
    found = frames.check(pairs("ab ba xy yx ax", weight=weight), "pairs")
    assert "components" in names(found)
    assert "components" not in names(frames.check(pairs("ab ba xy yx ax"), "pairs"))
    # Groups are apart by themselves.
    by_user = pairs("ab ba ab xy", user=["u", "u", "v", "v"])
    apart = finding(frames.check(by_user, "pairs", by="user"), "components")
    assert "2 disconnected components in 1 of 2 groups" in apart.what
    assert "(v)" in apart.examples[0]


def test_items_that_never_lose_or_never_win():
    found = frames.check(pairs("ab bc cb ad bd"), "pairs")
    for name, item in (("never_loses", "'a'"), ("never_wins", "'d'")):
        side = finding(found, name)
        assert (side.number, side.examples) == (1, (item,))
    assert not {"never_loses", "never_wins"} & names(frames.check(pairs("ab bc ca"), "pairs"))
    # An item of ties alone neither wins nor loses, however ties count.
    tied = {"model_a": ["a", "b", "c"], "model_b": ["b", "a", "a"]}
    tied["winner"] = ["model_a", "model_a", "tie"]
    for ties in ("model", "half"):
        found = frames.check(pa.table(tied), "arena", ties=ties)
        assert not {"never_loses", "never_wins"} & names(found)


def test_repeats_and_contradictions():
    found = frames.check(pairs("ab ab ba bc ca"), "pairs")
    again = finding(found, "repeats")
    assert (again.severity, again.number) == ("note", 1)
    assert again.examples == ("row 2 ('a' against 'b', value 1)",)
    both = finding(found, "contradictions")
    assert (both.severity, both.number) == ("note", 1)
    judge = ["x", "y", "z", "x", "x"]
    found = frames.check(pairs("ab ab ba bc ca", judge=judge), "pairs")
    assert not {"repeats", "contradictions"} & names(found)
    found = frames.check(pairs("ab ab ba bc ca", judge=["x"] * 5), "pairs")
    both = finding(found, "contradictions")
    assert both.severity == "warning"
    assert "by the same judge" in both.what
    # A tie and a win are neither the same nor opposite, however ties count.
    tied = {"model_a": ["a", "a", "b"], "model_b": ["b", "b", "a"]}
    tied["winner"] = ["tie", "model_b", "model_a"]
    for ties in ("model", "half"):
        found = frames.check(pa.table(tied), "arena", ties=ties)
        assert finding(found, "repeats").number == 1  # b won twice, once on each side
        assert "contradictions" not in names(found)


def test_saturation():
    ends = SOUND | {"value": np.where(np.arange(120) < 70, 10, SOUND["value"])}
    crowded = finding(check(ends), "saturation")
    assert (crowded.severity, crowded.number) == ("warning", 70)
    assert "58% of the answers" in crowded.what
    fewer = SOUND | {"value": np.where(np.arange(120) < 55, 10, SOUND["value"])}
    assert "saturation" not in names(check(fewer))
    # Wins and losses have no scale to be at the ends of, margins have.
    assert "saturation" not in names(frames.check(pairs("ab bc ca"), "pairs"))
    margins = {"chosen": list("abc"), "rejected": list("bca"), "margin": [5, 5, 1]}
    found = frames.check(pa.table(margins), "chosen", max_value=5)
    assert finding(found, "saturation").number == 2


def test_sides_swapped_in_half_of_the_table():
    first_half = np.arange(120) < 60
    swapped = SOUND | {"value": np.where(first_half, -SOUND["value"], SOUND["value"])}
    halves = finding(check(swapped, judge=None), "halves_disagree")
    assert halves.severity == "warning"
    assert halves.number > 60
    # Swapped everywhere, nobody can tell.
    assert "halves_disagree" not in names(check(SOUND | {"value": -SOUND["value"]}, judge=None))
    assert "halves_disagree" not in names(check(SOUND, judge=None))
    # Answers by chance agree by chance.
    for seed in range(3):
        chance = SOUND | {"value": np.random.default_rng(seed).choice([-5, 5], 120)}
        assert "halves_disagree" not in names(check(chance, judge=None))
    # One judge alone is two halves as well.
    alone = swapped | {"judge": np.zeros(120, int)}
    assert "halves_disagree" in names(check(alone))


def test_sides_swapped_within_groups():
    """Halves of every group, also where each group stands in one half of the table."""
    groups = [grades(np.random.default_rng(seed), 4) for seed in (1, 2)]
    data = {name: np.concatenate([group[name] for group in groups]) for name in SOUND}
    data["user"] = np.arange(120) // 60
    assert "halves_disagree" not in names(check(data, judge=None, by="user"))
    swapped = np.where(np.arange(120) % 60 < 30, -1, 1)
    data["value"] = data["value"] * swapped
    assert "halves_disagree" in names(check(data, judge=None, by="user"))


def test_a_judge_against_all_others():
    value = np.where(SOUND["judge"] == 3, -SOUND["value"], SOUND["value"])
    against = finding(check(SOUND | {"value": value}), "judges_against_all")
    assert (against.severity, against.number) == ("warning", 1)
    assert against.examples == ("3: 15 answers",)


def test_judges_with_one_answer():
    """A single one, or always the same one."""
    judge = SOUND["judge"].copy()
    judge[-1] = 99
    single = finding(check(SOUND | {"judge": judge}), "single_answers")
    assert (single.severity, single.number, single.examples) == ("note", 1, ("99",))
    value = np.where(SOUND["judge"] == 2, 4, SOUND["value"])
    same = finding(check(SOUND | {"value": value}), "same_answer")
    assert (same.severity, same.number) == ("warning", 1)
    assert same.examples == ("2: 15 times 4",)
    # Groups are judges where there are no others; of winners and losers all rows are alike.
    by_user = pairs("ab ba bc cb ca ac ab", user=list("uuuuuuv"))
    found = frames.check(by_user, "pairs", by="user")
    assert finding(found, "single_answers").examples == ("v",)
    assert "same_answer" not in names(found)
    # A tie that counts half for each side is still one answer.
    tied = {"model_a": ["a", "b"], "model_b": ["b", "a"], "winner": ["tie", "model_a"]}
    found = frames.check(pa.table(tied | {"judge": ["x", "y"]}), "arena", ties="half")
    assert finding(found, "single_answers").number == 2


def test_sparsity():
    found = finding(frames.check(pairs("ab ba ac da be eb"), "pairs"), "sparsity")
    assert (found.severity, found.number, found.examples) == ("note", 2, ("'c'", "'d'"))
    assert "(40%)" in found.what
    chain = finding(frames.check(pairs("ab cd ef"), "pairs"), "sparsity")
    assert (chain.severity, chain.number) == ("warning", 6)
    assert "sparsity" not in names(frames.check(pairs("ab bc ca"), "pairs"))


def test_order_text_and_counts():
    data = {"model_a": ["a", "a", "b", "c"], "model_b": ["b", "b", "b", "d"]}
    data |= {"winner": ["tie", "model_a", "model_b", "model_a"], "topic": [1, 1, 2, 2]}
    found = frames.check(pa.table(data), "arena", by="topic")
    order = [{"error": 0, "warning": 1, "note": 2}[x.severity] for x in found]
    assert order == sorted(order)
    assert len(set(order)) == 3
    assert str(found).startswith("table: 4 comparisons of 4 items in 2 groups, 1 tie\n")
    votes = frames.read_votes(pa.table(data), "arena", by="topic")
    assert str(frames.check(votes)) == str(found)


def test_what_cannot_be_read_or_weighs_nothing():
    with pytest.raises(frames.TableError, match="row 2: column 'loser' is empty"):
        frames.check(pa.table({"winner": ["a", "b"], "loser": ["b", None]}), "pairs")
    found = frames.check(pairs("ab ba", weight=[0, 0]), "pairs")
    assert finding(found, "no_weight").severity == "error"
    assert names(frames.check(pairs("ab"), "pairs")) == {"never_loses", "never_wins", "sparsity"}
