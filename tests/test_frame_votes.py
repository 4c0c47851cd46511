"""Tables read as comparisons: presets, cells of every kind, ties, weights and dates, by hand."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gbt_jax import frames

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def read(data, preset=None, **options):
    return frames.read_votes(pa.table(data), preset, **options)


def told(votes):
    """(a, b, value) of each comparison."""
    a, b = ([votes.label(i) for i in codes] for codes in (votes.a, votes.b))
    return list(zip(a, b, votes.value.tolist(), strict=True))


PRESETS = {
    "arena": (
        {
            "model_a": "xyxy",
            "model_b": "yzzx",
            "winner": ["model_a", "model_b", "tie", "tie (bothbad)"],
        },
        [1, -1, 0, 0],
    ),
    "judge": (
        {"model_a": "xyxyx", "model_b": "yzzxy", "verdict": ["A>>B", "A>B", "A=B", "B>A", "B>>A"]},
        [1, 0.5, 0, -0.5, -1],
    ),
    "crowd": (
        {
            "left": "xyxyx",
            "right": "yzzxy",
            "label": ["x", "z", "tie", "left", "right"],
            "worker": [1, 2, 3, 4, 5],
        },
        [1, -1, 0, 1, -1],
    ),
    "tournesol": (
        {
            "public_username": "uuv",
            "video_a": "xyx",
            "video_b": "yzz",
            "criteria": "ccc",
            "score": [-10, 3, 0],
        },
        [10, -3, 0],
    ),
    "sports": (
        {"home_team": "xyx", "away_team": "yzz", "home_score": [3, 0, 1], "away_score": [1, 2, 1]},
        [2, -2, 0],
    ),
    "pairs": ({"winner": "xyx", "loser": "yzz"}, [1, 1, 1]),
    "chosen": ({"chosen": "xyx", "rejected": "yzz"}, [1, 1, 1]),
}


@pytest.mark.parametrize("preset", frames.PRESETS)
def test_presets(preset):
    data, values = PRESETS[preset]
    columns = {name: list(column) for name, column in data.items()}
    votes = read(columns, preset)
    a, b = frames.PRESETS[preset].a, frames.PRESETS[preset].b
    assert told(votes) == list(zip(columns[a], columns[b], values, strict=True))
    assert votes.num_ties == values.count(0)
    # Every column may have another name, and then the preset's name counts for nothing.
    named = frames.PRESETS[preset]._asdict()
    parts = [part for part in ("a", "b", "value", "value_b", "judge") if named[part] in columns]
    renamed = {f"my {name}": column for name, column in columns.items()}
    options = {part: f"my {named[part]}" for part in parts}
    options["by"] = [f"my {name}" for name in named["by"]]
    assert told(read(renamed, preset, **options)) == told(votes)
    with pytest.raises(frames.TableError, match=rf"table: unknown column '{a}'; .*'my {a}'"):
        read(renamed, preset, **{part: name for part, name in options.items() if part != "a"})


def test_grades_need_a_side_and_a_scale():
    data = {"a": [1, 2], "b": [2, 3], "value": [1.5, -2]}
    assert told(read(data, positive_favours="a", max_value=2)) == [(1, 2, 1.5), (2, 3, -2)]
    assert told(read(data, positive_favours="b", max_value=2)) == [(1, 2, -1.5), (2, 3, 2)]
    endless = read(data, positive_favours="a", max_value=np.inf)  # values stay what they are
    assert endless.max_value is None
    assert endless.values_under(frames.law_named("gaussian:1")).tolist() == [1.5, -2]
    with pytest.raises(frames.TableError, match="grades need positive_favours"):
        read(data, max_value=2)
    with pytest.raises(frames.TableError, match="grades need max_value"):
        read(data, positive_favours="a")
    margins = {"chosen": ["x"], "rejected": ["y"], "margin": [3]}
    assert told(read(margins, "chosen", max_value=4)) == [("x", "y", 3)]
    with pytest.raises(
        frames.TableError, match="'margin' holds margins: max_value, the largest one"
    ):
        read(margins, "chosen")


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_tables(kind):
    for labels in (["x", "y", "z"], [3, 1, 2**62]):
        votes = frames.read_votes(KINDS[kind]({"winner": labels, "loser": labels[::-1]}), "pairs")
        assert [row[:2] for row in told(votes)] == list(zip(labels, labels[::-1], strict=True))
        assert votes.items.to_pylist() == sorted(labels)


def test_columns_of_every_dtype():
    wanted = [("x", "y", 1.0), ("y", "z", 1.0)]
    frame = pd.DataFrame({"winner": ["x", "y"], "loser": ["y", "z"]}, index=[7, 9])
    for dtype in ("category", "object", "string"):
        assert told(frames.read_votes(frame.astype(dtype), "pairs")) == wanted
    text = pl.DataFrame(frame)
    for dtype in (pl.Categorical, pl.Enum(["x", "y", "z"]), pl.String):
        assert told(frames.read_votes(text.cast(dtype), "pairs")) == wanted
    numbers = pd.DataFrame({"winner": [1, 2], "loser": [2, 3]})
    for dtype in ("Int64", "category", "int8", "uint64"):
        assert told(frames.read_votes(numbers.astype(dtype), "pairs")) == [(1, 2, 1), (2, 3, 1)]
    for weight in (["1", " 2.5 "], [decimal.Decimal(1), decimal.Decimal("2.5")], [1, 2.5]):
        votes = frames.read_votes(frame.assign(weight=pd.Series(weight, index=[7, 9])), "pairs")
        assert votes.weight.tolist() == [1, 2.5]


GOOD = {"winner": ["x", "y"], "loser": ["y", "z"]}
REFUSED = {
    "missing label": (GOOD | {"winner": ["x", None]}, "row 2: column 'winner' is empty"),
    "blank label": (GOOD | {"loser": ["y", " "]}, "row 2: column 'loser' is empty"),
    "missing number": (GOOD | {"weight": [np.nan, 1]}, "row 1: column 'weight' is empty"),
    "all missing": (GOOD | {"winner": [None, None]}, "row 1: column 'winner' is empty"),
    "float labels": (GOOD | {"winner": [1.5, 2]}, "'winner' must hold strings or integers, not"),
    "mixed labels": (GOOD | {"winner": ["x", 5]}, "row 2: .* of different types: 5 after 'x'"),
    "tuples": (
        GOOD | {"winner": [("x", 1), ("y", 2)]},
        r"row 1: .*\(.*neither text nor a number",
    ),
    "two kinds": (GOOD | {"winner": [1, 2]}, "winner holds int64, loser holds string"),
    "huge label": (
        {"winner": np.array([1, 2**63], np.uint64), "loser": np.array([2, 3], np.uint64)},
        "row 2: column 'winner' is too large for a label: 9223372036854775808",
    ),
    "comma": (GOOD | {"weight": ["1", "1,5"]}, "row 2: column 'weight' is not a number: '1,5'"),
    "nan": (GOOD | {"weight": ["1", "nan"]}, "row 2: column 'weight' is not a number: 'nan'"),
    "inf": (GOOD | {"weight": [1, np.inf]}, "row 2: column 'weight' is not finite: inf"),
    "overflow": (GOOD | {"weight": ["1", "1e400"]}, "row 2: .* is not finite: '1e400'"),
    "flags": (GOOD | {"weight": [True, False]}, "'weight' must hold numbers, not bool"),
    "negative": (GOOD | {"weight": [1, -2]}, "row 2: the weight -2 of 'weight' is negative"),
    "no rows": ({"winner": [], "loser": []}, "there are no rows below the header"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_cells_that_cannot_be_used(name):
    data, message = REFUSED[name]
    with pytest.raises(frames.TableError, match=f"^table: .*{message}"):
        frames.read_votes(pd.DataFrame(data), "pairs")


def test_outcomes_that_are_unknown_or_out_of_range():
    arena = {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["tie", "Model_A"]}
    with pytest.raises(frames.TableError, match=r"row 2: .* 'Model_A'; it must be one of mo"):
        read(arena, "arena")
    with pytest.raises(frames.TableError, match=r"'winner' must hold text or numbers, not list"):
        read(arena | {"winner": [["tie"], ["tie"]]}, "arena")
    crowd = {"left": ["x", "y"], "right": ["y", "z"], "label": ["y", "x"]}
    with pytest.raises(frames.TableError, match=r"row 2: .*'x'; it must be 'y', 'z'"):
        read(crowd, "crowd")
    sports = {"home_team": ["x"], "away_team": ["y"], "home_score": [-1], "away_score": [2]}
    with pytest.raises(frames.TableError, match="row 1: the count -1 of 'home_score' is negative"):
        read(sports, "sports")
    grades = {"a": ["x", "y"], "b": ["y", "z"], "value": [1, -3]}
    with pytest.raises(frames.TableError, match=r"column 'value' gives -3, .* outside ±2"):
        read(grades, positive_favours="a", max_value=2)
    with pytest.raises(frames.TableError, match="row 1: the margin -1 of 'margin' is negative"):
        read({"chosen": ["x"], "rejected": ["y"], "margin": [-1]}, "chosen", max_value=2)


def test_columns_that_are_there_and_not_wanted():
    """A weight, a judge and a margin count where they are, and an empty name leaves them out."""
    data = GOOD | {"weight": [2, 3], "judge": ["u", None]}
    with pytest.raises(frames.TableError, match="row 2: column 'judge' is empty"):
        read(data, "pairs")
    votes = read(data, "pairs", judge="")
    assert (votes.judge, votes.weight.tolist()) == (None, [2, 3])
    assert read(data, "pairs", judge="", weight="").weight.tolist() == [1, 1]
    margins = {"chosen": ["x"], "rejected": ["y"], "margin": [3]}
    assert told(read(margins, "chosen", value="")) == [("x", "y", 1)]


def test_an_item_may_be_called_left_or_tie():
    crowd = {"left": ["right", "b"], "right": ["left", "tie"], "label": ["left", "tie"]}
    assert told(read(crowd, "crowd")) == [("right", "left", -1), ("b", "tie", -1)]


def test_options_that_cannot_be():
    for options, message in (
        ({"positive_favours": "b"}, "positive_favours has no effect on this kind of table"),
        ({"max_value": 2}, "max_value has no effect on this kind of table"),
        ({"value_b": "loser"}, "value_b has no effect on this kind of table"),
        ({"half_life": "10"}, "half_life must be a positive number of days, not '10'"),
        ({"half_life": 10}, "unknown column 'date'"),
        ({"ties": "forget"}, "ties must be 'model', 'half' or 'drop', not 'forget'"),
        ({"by": "user"}, "unknown column 'user'"),
    ):
        with pytest.raises(frames.TableError, match=message):
            read(GOOD, "pairs", **options)
    for scale in (0, -1, np.nan, -np.inf, "2"):
        with pytest.raises(frames.TableError, match="max_value must be a positive number"):
            read({"a": [1], "b": [2], "value": [0]}, positive_favours="a", max_value=scale)
    with pytest.raises(frames.TableError, match="positive_favours must be 'a' or 'b', not 'c'"):
        read({"a": [1], "b": [2], "value": [0]}, positive_favours="c", max_value=1)
    with pytest.raises(frames.TableError, match="unknown preset 'chess'; known: 'arena', 'judge'"):
        read(GOOD, "chess")
    with pytest.raises(TypeError, match="unknown option 'colour'; known: 'a', 'b'"):
        read(GOOD, "pairs", colour="red")
    for table in ([GOOD], GOOD, None, np.zeros((2, 2)), pl.LazyFrame(GOOD)):
        with pytest.raises(frames.TableError, match=f"not {type(table).__name__}"):
            frames.read_votes(table, "pairs")
    twice = pd.DataFrame([["x", "y", "z"]], columns=["winner", "loser", "loser"])
    with pytest.raises(frames.TableError, match="loser"):
        frames.read_votes(twice, "pairs")


def test_ties():
    data, _ = PRESETS["arena"]
    columns = {name: list(column) for name, column in data.items()}
    half = read(columns, "arena", ties="half")
    assert told(half) == [
        *[("x", "y", 1), ("y", "z", -1)],
        *[("x", "z", 1), ("x", "z", -1), ("y", "x", 1), ("y", "x", -1)],
    ]
    assert half.weight.tolist() == [1, 1, 0.5, 0.5, 0.5, 0.5]
    assert half.row.tolist() == [0, 1, 2, 2, 3, 3]
    dropped = read(columns, "arena", ties="drop")
    assert told(dropped) == [("x", "y", 1), ("y", "z", -1)]
    assert (dropped.num_ties, dropped.num_dropped) == (2, 2)
    assert (half.num_ties, half.num_dropped) == (2, 0)
    only_ties = columns | {"winner": ["tie"] * 4}
    with pytest.raises(frames.TableError, match="all rows are ties, so ties='drop' leaves none"):
        read(only_ties, "arena", ties="drop")
    goals = {"home_team": ["x"], "away_team": ["y"], "home_score": [1], "away_score": [1]}
    with pytest.raises(frames.TableError, match="needs a largest win, and counts have none"):
        read(goals, "sports", ties="half")


ZONE = datetime.timezone(datetime.timedelta(hours=12))
DATES = {
    "days": ["2024-01-01", "2024-01-11", "2024-01-21"],
    "spaces": [" 2024-01-01", "2024-01-11 ", "2024-01-21"],
    "moments": ["2024-01-01T12:00:00", "2024-01-11 12:00", "2024-01-21T12:00:00.123456789"],
    # Noon twelve hours east of Greenwich is midnight there.
    "zones": ["2024-01-01T00:00:00Z", "2024-01-11T12:00:00+12:00", "2024-01-21T12:00:00+1200"],
    "dates": [datetime.date(2024, 1, day) for day in (1, 11, 21)],
    "datetimes": [datetime.datetime(2024, 1, day, 12, tzinfo=ZONE) for day in (1, 11, 21)],
    "seconds": [1_704_067_200 + day * 86_400 for day in (0, 10, 20)],
    "seconds as text": [f"{1_704_067_200 + day * 86_400}.0" for day in (0, 10, 20)],
}


@pytest.mark.parametrize("name", DATES)
def test_half_lives(name):
    """Ten days are half a life: a quarter, a half and the whole of the weights."""
    data = {"winner": ["x", "y", "x"], "loser": ["y", "z", "z"], "weight": [1, 3, 5]}
    data["when"] = DATES[name]
    for make in KINDS.values():
        votes = frames.read_votes(make(data), "pairs", date="when", half_life=10)
        np.testing.assert_allclose(votes.weight, [0.25, 1.5, 5], rtol=1e-6)


def test_dates_that_are_none():
    for dates, message in (
        (["2024-01-01", "11/01/2024"], "row 2: column 'date' is not a date such as .*'11/01/2024'"),
        (["2024-01-01", "2024-02-30"], "row 2: column 'date' is not a date: '2024-02-30'"),
        (["2024-01-01", "2024-01-01T00:00:00Z"], "row 2: .* has a time zone, but the first"),
        (["2024-01-01", None], "row 2: column 'date' is empty"),
        ([2023, 2024], "row 1: .* seconds since 1970 .*: 2023"),
        ([20230101, 20240101], "row 1: .* seconds since 1970"),
        ([1_704_067_200_000] * 2, "row 1: .* seconds since 1970"),
        ([datetime.time(1)] * 2, "column 'date' must hold dates, not time"),
    ):
        with pytest.raises(frames.TableError, match=message):
            read(GOOD | {"date": dates}, "pairs", half_life=1)


def test_files_are_freed_once_read(tmp_path):
    """Names and size stay, which messages need; cells of data frames belong to the caller."""
    path = tmp_path / "games.csv"
    table = pa.table({"winner": ["x", "y"], "loser": ["y", "z"]})
    frames.write_table(table, path)
    votes = frames.read_votes(path, "pairs")
    assert told(votes) == [("x", "y", 1), ("y", "z", 1)]
    assert votes.columns.names == ["winner", "loser"]
    assert votes.columns.num_rows == 2
    with pytest.raises(RuntimeError, match="released"):
        votes.columns.cell("winner", 0)
    assert frames.read_votes(table, "pairs").columns.cell("winner", 0) == "x"
