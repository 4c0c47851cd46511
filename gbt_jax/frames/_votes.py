"""`Votes`: the comparisons of a table, with their labels, groups and row numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, SupportsIndex, TypedDict, Unpack, final

import numpy as np
import pyarrow as pa

from ..laws import AbstractRootLaw
from ._columns import Columns
from ._files import TableError
from ._presets import Preset, find_preset
from ._suggestions import unknown_message

Ties = Literal["model", "half", "drop"]


class VoteOptions(TypedDict, total=False):
    """How to read a table; every function that takes a table takes these options.

    - `a`, `b`, `value`, `value_b`, `weight`, `date`, `judge`: column names, by default those of the
      preset. `value_b` is the second of two counts. Numeric dates are seconds since 1970. An empty
      name ignores a weight, judge or margin column of the preset.
    - `by`: group columns; each combination of their labels is fitted independently.
    - `positive_favours`: the side that positive grades favour. `max_value`: the largest grade, inf
      if grades are unbounded.
    - `ties`: `"model"` passes them to the law, `"half"` counts half a win for each side, `"drop"`
      leaves them out.
    - `half_life`: days, counted back from the latest date, after which a weight halves.
    - `encoding`, `delimiter`: for text files.
    """

    a: str | None
    b: str | None
    value: str | None
    value_b: str | None
    weight: str | None
    date: str | None
    judge: str | None
    by: str | Sequence[str] | None
    positive_favours: Literal["a", "b"] | None
    max_value: float | None
    ties: Ties
    half_life: float | None
    encoding: str
    delimiter: str | None


@final
@dataclass(frozen=True)
class Votes:
    """Comparisons with their labels. One entry per comparison, in the order of the table.

    - `a`, `b`: codes of items, whose labels are `items`; `value > 0` says that a is better.
    - `value` lies in [−`max_value`, `max_value`], or is a count if that is None.
    - `row`: positions in the table, from 0 (a tie split into halves has two entries).
    - `group`: codes of groups; `group_labels` has the label of each, for each column of `by`.
    - `judge`: codes of judges, whose labels are `judge_labels`; None without a judge column.
    - `num_ties`, `num_dropped`: numbers of rows.
    """

    columns: Columns
    preset: Preset
    a: np.ndarray
    b: np.ndarray
    items: pa.Array
    value: np.ndarray
    weight: np.ndarray
    row: np.ndarray
    max_value: float | None
    group: np.ndarray
    group_labels: dict[str, pa.Array]
    judge: np.ndarray | None
    judge_labels: pa.Array | None
    num_ties: int = 0
    num_dropped: int = 0

    def __len__(self) -> int:
        return self.value.size

    @property
    def name(self) -> str:
        """The name of the file, or `table`."""
        return self.columns.name

    @property
    def num_groups(self) -> int:
        """The number of groups."""
        return int(self.group.max(initial=-1)) + 1

    def label(self, item: SupportsIndex) -> Any:
        """The label of an item's code."""
        return self.items[int(item)].as_py()

    def group_of(self, group: SupportsIndex) -> dict[str, Any]:
        """The labels of a group's code, by column; empty if there are no groups."""
        return {name: labels[int(group)].as_py() for name, labels in self.group_labels.items()}

    def group_name(self, group: SupportsIndex) -> str:
        """The labels of a group's code, joined by commas."""
        return ", ".join(str(label) for label in self.group_of(group).values())

    def describe(self, index: SupportsIndex) -> str:
        """One comparison in words, for messages."""
        a, b = self.label(self.a[index]), self.label(self.b[index])
        value = self.value[index] + 0.0  # no −0
        return f"row {self.row[index] + 1} ({a!r} against {b!r}, value {value:g})"

    def select(self, which: np.ndarray) -> "Votes":
        """These comparisons only (a mask or positions), with all items and groups."""
        names = ("a", "b", "value", "weight", "row", "group", "judge")
        columns = {name: getattr(self, name) for name in names}
        return replace(self, **{name: x if x is None else x[which] for name, x in columns.items()})

    def values_under(self, law: AbstractRootLaw) -> np.ndarray:
        """The values on the scale of a law.

        The largest grade becomes the law's largest value: a win is 1 under Binary, ½ under
        BradleyTerry. Counts, and all values under an unbounded law, are unchanged.
        """
        edge = float(law.max_value)
        value = self.value
        if self.max_value is not None and np.isfinite(edge):
            value = value / self.max_value * edge
        return value

    def refuse_outside(self, law: AbstractRootLaw) -> None:
        """Raise for the first value outside the support of a law."""
        inside = np.asarray(law.in_support(self.values_under(law)))
        outside = np.flatnonzero(~inside & (self.weight > 0))
        if not outside.size:
            return
        index = int(outside[0])
        name, edge = type(law).__name__, float(law.max_value)
        if self.value[index] == 0:
            what = f"is a tie, which {name} does not allow: use a law with ties such as "
            what += "law='davidson:1', or ties='half' or ties='drop'"
        elif self.max_value is None and np.isfinite(edge):
            what = f"is outside ±{edge:g}, the range of {name}: set max_value to the largest grade"
        else:
            scale = f" with max_value {self.max_value:g}" if self.max_value else ""
            what = f"is not a possible outcome of {name}{scale}"
        raise TableError(f"{self.name}: {self.describe(index)} {what}")

    def refuse_self_comparisons(self) -> None:
        """Raise for the first row that compares an item with itself."""
        selves = np.flatnonzero((self.a == self.b) & (self.weight > 0))
        if selves.size:
            row, label = self.row[selves[0]] + 1, self.label(self.a[selves[0]])
            more = f" ({selves.size} rows do so)" if selves.size > 1 else ""
            raise TableError(f"{self.name}: row {row} compares {label!r} with itself{more}")


def read_votes(table: Any, preset: str | None = None, **options: Unpack[VoteOptions]) -> Votes:
    """Read a data frame or a file as comparisons.

    **Arguments:**

    - `table`: a pandas, Polars or PyArrow table, or a file name.
    - `preset`: one of `PRESETS`. Without one the columns `a`, `b` and `value` hold grades, and
      `positive_favours` and `max_value` are required.
    - the options of `VoteOptions`: columns, groups (`by`), ties, weights and decay.

    **Returns:** `Votes`. A cell that cannot be read raises an error that names the file, the row
    and its content; no row is skipped silently.
    """
    _refuse_unknown(options)
    settings = find_preset(preset)
    columns = Columns(
        table,
        encoding=options.get("encoding") or "utf-8",
        delimiter=options.get("delimiter"),
    )
    settings = _with_options(settings, columns, options)
    (a, b), items = columns.labels(settings.a, settings.b)
    value = _values(settings, columns, a, b, items)
    group, group_labels = _groups(settings.by, columns)
    judge, judge_labels = None, None
    if settings.judge is not None:
        (judge,), judge_labels = columns.labels(settings.judge)
    votes = Votes(
        columns=columns,
        preset=settings,
        a=a,
        b=b,
        items=items,
        value=value,
        weight=_weights(settings, columns, options.get("half_life")),
        row=np.arange(columns.num_rows),
        max_value=settings.max_value,
        group=group,
        group_labels=group_labels,
        judge=judge,
        judge_labels=judge_labels,
    )
    columns.release()
    return _with_ties(votes, options.get("ties") or "model")


def _refuse_unknown(options: Any) -> None:
    extra = sorted(set(options) - set(VoteOptions.__annotations__))
    if extra:
        raise TypeError(unknown_message("option", extra[0], VoteOptions.__annotations__))


def _with_options(settings: Preset, columns: Columns, options: VoteOptions) -> Preset:
    """The preset with the caller's options, and without optional columns that are absent."""
    named = ("a", "b", "value", "value_b", "weight", "date", "judge", "max_value")
    given = {name: options.get(name) for name in (*named, "positive_favours")}
    given = {name: x for name, x in given.items() if x is not None}
    by = options.get("by")
    if by is not None:
        given["by"] = tuple(part for part in ([by] if isinstance(by, str) else by) if part)
    for optional in ("weight", "judge", *(["value"] if settings.outcome == "win" else [])):
        is_there = getattr(settings, optional) in columns.names
        if given.get(optional, None if is_there else "") == "":
            given[optional] = None
    chosen = settings._replace(**given)
    _refuse_unused(chosen, columns, options)
    if chosen.outcome == "win" and chosen.value is not None:
        chosen = chosen._replace(law="uniform", max_value=options.get("max_value"))
        if chosen.max_value is None:
            columns.refuse(
                f"column {chosen.value!r} holds margins: max_value, the largest one, is required"
            )
    _check_scale(chosen, columns)
    return chosen._replace(max_value=None) if chosen.max_value == np.inf else chosen


def _refuse_unused(settings: Preset, columns: Columns, options: VoteOptions) -> None:
    """Raise for options that have no effect on this kind of table."""
    is_margin = settings.outcome == "win" and settings.value is not None
    useful = {
        "positive_favours": settings.outcome == "grade",
        "max_value": settings.outcome in ("grade", "counts") or is_margin,
        "value_b": settings.outcome == "counts",
    }
    for name, is_useful in useful.items():
        if options.get(name) is not None and not is_useful:
            columns.refuse(
                f"{name} has no effect on this kind of table ({settings.about}): omit it"
            )


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | float | np.number) and bool(0 < number < np.inf)


def _check_scale(settings: Preset, columns: Columns) -> None:
    favoured, largest = settings.positive_favours, settings.max_value
    if favoured not in (None, "a", "b"):
        raise TableError(f"positive_favours must be 'a' or 'b', not {favoured!r}")
    if largest is not None and not (_is_positive(largest) or largest == np.inf):
        raise TableError(f"max_value must be a positive number, or inf, not {largest!r}")
    if settings.outcome == "grade" and (favoured is None or largest is None):
        missing = "max_value, the largest grade (inf if they are unbounded)"
        if favoured is None:
            missing = "positive_favours, the side that positive grades favour ('a' or 'b')"
        columns.refuse(f"grades need {missing}")


def _values(
    settings: Preset, columns: Columns, a: np.ndarray, b: np.ndarray, items: pa.Array
) -> np.ndarray:
    if settings.outcome == "win" and settings.value is None:
        return np.ones(a.size)
    name = settings.value or ""
    if settings.outcome == "words":
        return _from_words(settings.words or {}, columns, name)
    if settings.outcome == "item":
        return _from_items(columns, name, a, b, items)
    numbers = columns.numbers(name)
    if settings.outcome == "counts":
        other = settings.value_b or ""
        value = numbers - columns.numbers(other)
        for column in (name, other):
            _refuse_negative(columns, column, "count")
        _refuse_beyond(columns, name, value, settings.max_value)
        return value
    if settings.outcome == "win":
        _refuse_negative(columns, name, "margin")
    _refuse_beyond(columns, name, numbers, settings.max_value)
    return -numbers if settings.positive_favours == "b" else numbers


def _refuse_negative(columns: Columns, name: str, what: str) -> None:
    negative = np.flatnonzero(columns.numbers(name) < 0)
    if negative.size:
        row = int(negative[0])
        columns.refuse_row(row, f"the {what} {columns.cell(name, row)!r} of {name!r} is negative")


def _refuse_beyond(columns: Columns, name: str, value: np.ndarray, largest: float | None) -> None:
    beyond = np.flatnonzero(np.abs(value) > (np.inf if largest is None else largest))
    if beyond.size:
        row = int(beyond[0])
        shown = f"column {name!r} gives {value[row]:g}"
        columns.refuse_row(row, f"{shown}, which is outside ±{largest:g} (max_value)")


def _from_words(words: dict[str, float], columns: Columns, name: str) -> np.ndarray:
    codes, texts = columns.texts(name)
    bad = [code for code, text in enumerate(texts) if text not in words]
    if bad:
        row = int(np.flatnonzero(np.isin(codes, bad))[0])
        found, listed = texts[codes[row]], ", ".join(words)
        columns.refuse_row(row, f"column {name!r} is {found!r}; it must be one of {listed}")
    return np.array([words[text] for text in texts])[codes]


def _from_items(
    columns: Columns, name: str, a: np.ndarray, b: np.ndarray, items: pa.Array
) -> np.ndarray:
    """The winner by its label, or by the words left, right and tie."""
    codes, texts = columns.texts(name)
    number = {str(label): code for code, label in enumerate(items.to_pylist())}
    winner = np.array([number.get(text, -1) for text in texts])[codes]
    words = {"left": 1.0, "right": -1.0, "tie": 0.0}
    said = np.array([words.get(text, np.nan) for text in texts])[codes]
    value = np.select([winner == a, winner == b], [1.0, -1.0], said)
    bad = np.flatnonzero(np.isnan(value))
    if bad.size:
        row = int(bad[0])
        pair = ", ".join(repr(items[int(x[row])].as_py()) for x in (a, b))
        columns.refuse_row(
            row,
            f"column {name!r} is {texts[codes[row]]!r}; it must be {pair}, left, right or tie",
        )
    return value


def _groups(by: tuple[str, ...], columns: Columns) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Codes of the combinations that occur, ascending, and their labels."""
    if not by:
        return np.zeros(columns.num_rows, np.int64), {}
    found = [columns.labels(name) for name in by]
    group, first = np.zeros(columns.num_rows, np.int64), np.zeros(1, np.int64)
    for (codes,), labels in found:
        pairs = group * len(labels) + codes
        _, first, group = np.unique(pairs, return_index=True, return_inverse=True)
    return group, {
        name: labels.take(pa.array(codes[first]))
        for name, ((codes,), labels) in zip(by, found, strict=True)
    }


def _weights(settings: Preset, columns: Columns, half_life: float | None) -> np.ndarray:
    weight = np.ones(columns.num_rows)
    if settings.weight is not None:
        _refuse_negative(columns, settings.weight, "weight")
        weight = columns.numbers(settings.weight)
    if half_life is None:
        return weight
    if not _is_positive(half_life):
        raise TableError(f"half_life must be a positive number of days, not {half_life!r}")
    if settings.date is None:
        columns.refuse("half_life needs a column of dates: set date='COLUMN'")
    days = columns.days(settings.date)
    return weight * 0.5 ** ((days.max() - days) / half_life)


def _with_ties(votes: Votes, ties: Ties) -> Votes:
    is_tie = votes.value == 0
    votes = replace(votes, num_ties=int(np.count_nonzero(is_tie)))
    if ties == "model" or (not is_tie.any() and ties in ("half", "drop")):
        return votes
    if ties == "drop":
        if is_tie.all():
            votes.columns.refuse("all rows are ties, so ties='drop' leaves none")
        return replace(votes.select(~is_tie), num_dropped=votes.num_ties)
    if ties != "half":
        raise TableError(f"ties must be 'model', 'half' or 'drop', not {ties!r}")
    if votes.max_value is None:
        votes.columns.refuse("ties='half' needs a largest win, and counts have none: set max_value")
    doubled = votes.select(np.repeat(np.arange(len(votes)), 1 + is_tie))
    tied = np.flatnonzero(doubled.value == 0)
    value, weight = doubled.value.copy(), doubled.weight.copy()
    value[tied] = np.where(np.arange(tied.size) % 2 == 0, 1, -1) * votes.max_value
    weight[tied] /= 2
    return replace(doubled, value=value, weight=weight)


def as_votes(table: Any, preset: str | None, options: VoteOptions) -> Votes:
    """Read a table; `Votes` are returned unchanged."""
    if not isinstance(table, Votes):
        return read_votes(table, preset, **options)
    if preset is not None or options:
        raise TypeError("these Votes were already read: pass preset and columns to read_votes")
    return table
