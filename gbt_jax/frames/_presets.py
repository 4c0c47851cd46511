"""Common table layouts: their columns, and how outcomes are encoded.

A preset says which column has which role, and the kind of outcome:

- words: a cell says who won, or by how much (`words`, with the value of each)
- item: a cell names the item that won, or says left, right or tie
- grade: a number between −max_value and max_value; `positive_favours` gives its sign convention
- counts: two numbers, whose difference is the outcome
- win: the first column is the winner of every row
"""

from typing import NamedTuple

from ._files import TableError
from ._suggestions import unknown_message


class Preset(NamedTuple):
    """The layout of a kind of table, with a suitable law and prior."""

    about: str
    outcome: str  # words, item, grade, counts or win
    a: str
    b: str
    value: str | None = None  # the column of outcomes
    value_b: str | None = None  # with counts: those of b
    weight: str | None = None  # used if present
    date: str | None = None  # used with a half-life
    judge: str | None = None  # used if present
    by: tuple[str, ...] = ()  # group columns
    words: dict[str, float] | None = None  # 1 is the end of the scale, for a
    max_value: float | None = None  # of grades; None for counts
    positive_favours: str | None = None
    law: str = "binary"
    prior_std: float = 1.0


_WINNERS = {"model_a": 1.0, "model_b": -1.0, "tie": 0.0, "tie (bothbad)": 0.0, "both_bad": 0.0}
_VERDICTS = {"A>>B": 1.0, "A>B": 0.5, "A=B": 0.0, "B>A": -0.5, "B>>A": -1.0}

PRESETS = {
    "arena": Preset(
        "votes of a chatbot arena: winner is model_a, model_b, tie or tie (bothbad)",
        outcome="words",
        a="model_a",
        b="model_b",
        value="winner",
        judge="judge",
        date="tstamp",
        words=_WINNERS,
        max_value=1.0,
        law="davidson:1",
    ),
    "judge": Preset(
        "graded verdicts: A>>B, A>B, A=B, B>A or B>>A",
        outcome="words",
        a="model_a",
        b="model_b",
        value="verdict",
        judge="judge",
        date="date",
        words=_VERDICTS,
        max_value=1.0,
        law="knary:5",
    ),
    "crowd": Preset(
        "answers of workers: label is the better item, or left, right or tie",
        outcome="item",
        a="left",
        b="right",
        value="label",
        judge="worker",
        date="date",
        max_value=1.0,
    ),
    "tournesol": Preset(
        "Tournesol's public data set: score from −10, for video_a, to 10, for video_b",
        outcome="grade",
        a="video_a",
        b="video_b",
        value="score",
        date="week_date",
        by=("public_username", "criteria"),
        max_value=10.0,
        positive_favours="b",
        law="uniform",
        prior_std=7.0,
    ),
    "sports": Preset(
        "matches: the difference of home_score and away_score",
        outcome="counts",
        a="home_team",
        b="away_team",
        value="home_score",
        value_b="away_score",
        weight="weight",
        date="date",
        law="skellam:2.7",
    ),
    "pairs": Preset(
        "one winner and one loser per row, with an optional weight",
        outcome="win",
        a="winner",
        b="loser",
        weight="weight",
        judge="judge",
        date="date",
        max_value=1.0,
    ),
    "chosen": Preset(
        "preference data: chosen over rejected, with an optional margin (and its max_value)",
        outcome="win",
        a="chosen",
        b="rejected",
        value="margin",
        judge="judge",
        date="date",
        max_value=1.0,
    ),
}

# Without a preset nothing is assumed: the caller names the columns and the scale.
GRADES = Preset(
    "grades: columns, scale and sign are given",
    outcome="grade",
    a="a",
    b="b",
    value="value",
    law="uniform",
)


def find_preset(name: str | None) -> Preset:
    """A preset, or an error that lists them."""
    if name is None:
        return GRADES
    if name not in PRESETS:
        raise TableError(unknown_message("preset", name, PRESETS))
    return PRESETS[name]
