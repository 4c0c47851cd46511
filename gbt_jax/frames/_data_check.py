"""`check`: problems in a table that make its ranking misleading or impossible."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, SupportsIndex, Unpack, final

import numpy as np

from .._data._comparisons import Comparisons
from .._data._graph import component_numbers
from .._inference._maximise import fit
from .._model import Model
from ..laws import Gaussian
from ._votes import VoteOptions, Votes, as_votes

Severity = Literal["error", "warning", "note"]
_EXAMPLES = 5  # examples of each finding
_SATURATED = 0.5  # share of answers at the ends of the scale
_SAME_ANSWERS = 5  # of one judge, fewer may agree by chance
_ROWS_TO_JUDGE = 8  # of one judge, fewer cannot show disagreement
_DISAGREEMENT = -3.0  # standard errors


class Finding(NamedTuple):
    """One problem: how often it occurs, what it means and what to do about it."""

    name: str
    severity: Severity  # error: no fit; warning: the ranking may mislead; note: worth knowing
    number: int
    what: str
    advice: str
    examples: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Findings:
    """The problems that `check` found, the worst first; prints as text."""

    name: str
    num_rows: int
    num_items: int
    num_groups: int
    num_ties: int
    findings: tuple[Finding, ...]

    @property
    def has_problems(self) -> bool:
        """Whether there are errors or warnings."""
        return any(finding.severity != "note" for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        rows = _count(self.num_rows, "comparison", "comparisons")
        head = f"{self.name}: {rows} of {_count(self.num_items, 'item', 'items')}"
        head += f" in {self.num_groups:,} groups" if self.num_groups > 1 else ""
        head += f", {_count(self.num_ties, 'tie', 'ties')}" if self.num_ties else ""
        lines = [head] if self.findings else [head, "no problems found"]
        for finding in self.findings:
            lines += ["", f"{finding.severity}: {finding.what}", f"  {finding.advice}"]
            lines += [f"  - {example}" for example in finding.examples]
        return "\n".join(lines)


def check(table: Any, preset: str | None = None, **options: Unpack[VoteOptions]) -> Findings:
    """Find problems in a table of comparisons that make a ranking misleading or impossible.

    It reports disconnected components, items that never lose or never win, items compared with
    themselves, repeated and contradictory rows, answers at the ends of the scale, sides that seem
    swapped, judges who always give the same answer, and sparsity.

    **Arguments:**

    - `table`: a data frame, a file name, or `Votes`.
    - `preset`, and the options of `VoteOptions`: as in `read_votes`.

    **Returns:** `Findings`. A table that cannot be read raises the same error as `read_votes`.
    """
    votes = as_votes(table, preset, options)
    answers = _one_entry_per_row(votes)
    found = [finding for find in _CHECKS for finding in find(answers)] if len(answers) else _NOTHING
    order = {"error": 0, "warning": 1, "note": 2}
    return Findings(
        name=votes.name,
        num_rows=votes.columns.num_rows,
        num_items=len(votes.items),
        num_groups=votes.num_groups,
        num_ties=votes.num_ties,
        findings=tuple(sorted(found, key=lambda finding: order[finding.severity])),
    )


def _one_entry_per_row(votes: Votes) -> Votes:
    """The rows with positive weight, one entry each: the two halves of a split tie are merged."""
    starts = np.flatnonzero(np.append(True, votes.row[1:] != votes.row[:-1]))
    rows = replace(votes.select(starts), value=np.add.reduceat(votes.value, starts))
    return rows.select(rows.weight > 0)


class _Slots(NamedTuple):
    """The items of each group, numbered together."""

    group: np.ndarray
    item: np.ndarray
    a: np.ndarray  # of each comparison
    b: np.ndarray


def _slots(votes: Votes) -> _Slots:
    size = np.int64(max(len(votes.items), 1))
    keys = np.concatenate([votes.group * size + votes.a, votes.group * size + votes.b])
    distinct, place = np.unique(keys, return_inverse=True)
    return _Slots(distinct // size, distinct % size, place[: len(votes)], place[len(votes) :])


def _item_name(votes: Votes, group: SupportsIndex, item: SupportsIndex) -> str:
    where = votes.group_name(group)
    return f"{votes.label(item)!r}" + (f" ({where})" if where else "")


def _self_comparisons(votes: Votes) -> Iterator[Finding]:
    selves = np.flatnonzero(votes.a == votes.b)
    if selves.size:
        yield Finding(
            "self_pairs",
            "error",
            selves.size,
            f"{_count(selves.size, 'row compares', 'rows compare')} an item with itself",
            "Remove these rows: they carry no information, and `fit` rejects them.",
            tuple(votes.describe(i) for i in selves[:_EXAMPLES]),
        )


def _components(votes: Votes) -> Iterator[Finding]:
    slots = _slots(votes)
    part = component_numbers(slots.a, slots.b, votes.weight, slots.item.size)
    owner = np.zeros(int(part.max(initial=-1)) + 1, np.int64)
    owner[part] = slots.group
    parts = np.bincount(owner, minlength=votes.num_groups)
    split = np.flatnonzero(parts > 1)
    if not split.size:
        return
    order = np.lexsort((-np.bincount(part), owner))  # the largest component of each group first
    is_largest = np.zeros(owner.size, bool)
    is_largest[order] = np.append(True, owner[order][1:] != owner[order][:-1])
    cut_off = ~is_largest[part]
    where = f" in {split.size:,} of {votes.num_groups:,} groups" if votes.num_groups > 1 else ""
    yield Finding(
        "components",
        "warning",
        int(parts[split].sum()),
        f"the comparison graph has {int(parts[split].sum()):,} disconnected components{where}",
        "Only the prior makes scores of different components comparable: collect comparisons "
        "that connect them, or read each component (column `component`) by itself.",
        tuple(
            f"{_item_name(votes, slots.group[i], slots.item[i])} is outside the largest component"
            for i in np.flatnonzero(cut_off)[:_EXAMPLES]
        ),
    )


def _one_sided(votes: Votes) -> Iterator[Finding]:
    slots = _slots(votes)
    lowest = np.full(slots.item.size, np.inf)
    highest = -lowest
    for end, value in ((slots.a, votes.value), (slots.b, -votes.value)):
        np.minimum.at(lowest, end, value)
        np.maximum.at(highest, end, value)
    sides = {"never loses": (lowest >= 0, "lost"), "never wins": (highest <= 0, "won")}
    for name, (is_so, verb) in sides.items():
        items = np.flatnonzero(is_so & (lowest != highest) | is_so & (lowest != 0))
        if items.size:
            yield Finding(
                name.replace(" ", "_"),
                "note",
                items.size,
                f"{_count(items.size, 'item has', 'items have')} never {verb} a comparison",
                "With few comparisons their scores depend on prior_std. If all their answers are "
                "at the end of the scale, only the prior bounds the scores, and without a prior "
                "(inf) there is no optimum.",
                tuple(_item_name(votes, slots.group[i], slots.item[i]) for i in items[:_EXAMPLES]),
            )


def _repeats(votes: Votes) -> Iterator[Finding]:
    """Rows of the same pair by the same judge, with the same or the opposite outcome."""
    rows = votes.select(votes.a != votes.b)
    low, high = np.minimum(rows.a, rows.b), np.maximum(rows.a, rows.b)
    value = np.where(rows.a <= rows.b, rows.value, -rows.value)
    judge = np.zeros(len(rows), np.int64) if rows.judge is None else rows.judge
    order = np.lexsort((value, judge, high, low, rows.group))
    columns = [x[order] for x in (rows.group, low, high, judge)]
    value = value[order]
    same = np.logical_and.reduce([x[1:] == x[:-1] for x in columns])
    again = np.flatnonzero(same & (value[1:] == value[:-1]))
    if again.size:
        yield Finding(
            "repeats",
            "note",
            again.size,
            f"{_count(again.size, 'row repeats', 'rows repeat')} an earlier one: the same pair "
            "with the same outcome",
            "Each of them counts as a comparison. Remove them if they were stored twice.",
            tuple(rows.describe(order[i + 1]) for i in again[:_EXAMPLES]),
        )
    # Values ascend within a pair: a change of sign is between neighbours, ties left out.
    apart = np.flatnonzero(value != 0)
    same = np.logical_and.reduce([x[apart][1:] == x[apart][:-1] for x in columns])
    opposite = np.flatnonzero(same & (value[apart][1:] > 0) & (value[apart][:-1] < 0))
    if opposite.size:
        yield Finding(
            "contradictions",
            "note" if rows.judge is None and not rows.group_labels else "warning",
            opposite.size,
            f"{_count(opposite.size, 'pair was', 'pairs were')} judged both ways"
            + (" by the same judge" if rows.judge is not None else ""),
            "This is expected if judges differ or hesitate. For a single judge, check whether the "
            "sides were swapped when the data were stored.",
            tuple(rows.describe(order[apart[i + 1]]) for i in opposite[:_EXAMPLES]),
        )


def _saturation(votes: Votes) -> Iterator[Finding]:
    if votes.max_value is None:
        return
    levels = np.unique(np.abs(votes.value))
    at_the_end = np.abs(votes.value) == votes.max_value
    share = at_the_end.mean()
    if share > _SATURATED and np.any((levels > 0) & (levels < votes.max_value)):
        yield Finding(
            "saturation",
            "warning",
            int(at_the_end.sum()),
            f"{share:.0%} of the answers are at the ends of the scale",
            "Such answers say which item is better, not by how much. Use a law with mass at the "
            "ends (beta:0.5, or binary for two answers), or check max_value.",
        )


def _swapped_sides(votes: Votes) -> Iterator[Finding]:
    """Whether scores from one half of the answers predict the other half's signs.

    Halves are judges of even and odd number, or else the first and second half of a group's rows.
    """
    rows = votes.select((votes.a != votes.b) & (votes.value != 0))
    if len(rows) < 2 * _ROWS_TO_JUDGE:
        return
    half = _halves(rows)
    expected = _predicted_differences(rows, half)
    known = np.flatnonzero(expected != 0)
    product = np.sign(rows.value[known]) * np.sign(expected[known])
    total = product.sum() / np.sqrt(max(product.size, 1))
    if product.size >= _ROWS_TO_JUDGE and total < _DISAGREEMENT:
        wrong = int(np.count_nonzero(product < 0))
        yield Finding(
            "halves_disagree",
            "warning",
            wrong,
            f"one half of the answers contradicts the other: {wrong:,} of {product.size:,} "
            "have the opposite sign of what the other half predicts",
            "The sides are probably swapped in part of the table: check positive_favours, and "
            "whether files with different sign conventions were joined.",
        )
    if rows.judge is None or rows.judge_labels is None:
        return
    judge = rows.judge[known]
    count = np.bincount(judge, minlength=len(rows.judge_labels))
    agreement = np.bincount(judge, product, len(rows.judge_labels)) / np.sqrt(np.maximum(count, 1))
    against = np.flatnonzero((count >= _ROWS_TO_JUDGE) & (agreement < _DISAGREEMENT))
    if against.size:
        yield Finding(
            "judges_against_all",
            "warning",
            against.size,
            f"{_count(against.size, 'judge contradicts', 'judges contradict')} all others",
            "Their sides are probably swapped, or they misunderstood the question.",
            tuple(
                f"{rows.judge_labels[int(i)].as_py()!r}: {count[i]:,} answers"
                for i in against[:_EXAMPLES]
            ),
        )


def _halves(rows: Votes) -> np.ndarray:
    """0 or 1 for each comparison."""
    if rows.judge is not None and rows.judge.min() != rows.judge.max():
        return rows.judge % 2
    order = np.argsort(rows.group, kind="stable")
    group = rows.group[order]
    start, end = (np.searchsorted(group, group, side) for side in ("left", "right"))
    half = np.empty(len(rows), np.int64)
    half[order] = (np.arange(len(rows)) - start) * 2 // (end - start)
    return half


def _predicted_differences(rows: Votes, half: np.ndarray) -> np.ndarray:
    """Score differences predicted by the other half of each comparison's group; 0 if unknown."""
    owner = 2 * rows.group + half
    size = np.int64(max(len(rows.items), 1))
    data = Comparisons(rows.a, rows.b, np.sign(rows.value), num_items=int(size), group=owner)
    # Least squares with a prior needs no choice of a law, and always has an optimum.
    fitted = fit(Model(Gaussian(1.0)), data)
    scores, keys = np.asarray(fitted.scores), fitted.group * size + fitted.item  # keys ascend
    found = []
    for item in (rows.a, rows.b):
        wanted = (2 * rows.group + 1 - half) * size + item
        place = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        found.append(np.where(keys[place] == wanted, scores[place], np.nan))
    return np.nan_to_num(found[0] - found[1])


def _judges(votes: Votes) -> Iterator[Finding]:
    if votes.judge is not None and votes.judge_labels is not None:
        judge, labels = votes.judge, votes.judge_labels
        names: Callable[[SupportsIndex], str] = lambda i: repr(labels[int(i)].as_py())  # noqa: E731
        kind = ("judge", "judges")
    elif votes.group_labels:
        judge, names, kind = votes.group, votes.group_name, ("group", "groups")
    else:
        return
    count = np.bincount(judge)
    single = np.flatnonzero(count == 1)
    if single.size:
        yield Finding(
            "single_answers",
            "note",
            single.size,
            f"{_count(single.size, kind[0] + ' has', kind[1] + ' have')} a single answer",
            "One comparison carries little information: the scores depend mainly on the prior.",
            tuple(names(i) for i in single[:_EXAMPLES]),
        )
    lowest, highest = np.full(count.size, np.inf), np.full(count.size, -np.inf)
    np.minimum.at(lowest, judge, votes.value)
    np.maximum.at(highest, judge, votes.value)
    is_win = votes.preset.outcome == "win"  # where the winner always comes first
    constant = np.flatnonzero((count >= _SAME_ANSWERS) & (lowest == highest) & (not is_win))
    if constant.size:
        who = _count(constant.size, f"{kind[0]} always gives", f"{kind[1]} always give")
        yield Finding(
            "same_answer",
            "warning",
            constant.size,
            f"{who} the same answer",
            "They may not have looked at the items. Consider leaving them out.",
            tuple(f"{names(i)}: {count[i]:,} times {lowest[i]:g}" for i in constant[:_EXAMPLES]),
        )


def _sparsity(votes: Votes) -> Iterator[Finding]:
    slots = _slots(votes)
    count = np.bincount(np.concatenate([slots.a, slots.b]), minlength=slots.item.size)
    once = np.flatnonzero(count == 1)
    if once.size:
        share = once.size / count.size
        yield Finding(
            "sparsity",
            "warning" if share > 0.5 else "note",
            once.size,
            f"{_count(once.size, 'item was', 'items were')} compared only once ({share:.0%}); "
            f"{count.mean():.1f} comparisons per item on average",
            "Their scores are uncertain: see `lower` and `upper`, and compare them more often.",
            tuple(_item_name(votes, slots.group[i], slots.item[i]) for i in once[:_EXAMPLES]),
        )


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


_NOTHING = [
    Finding(
        "no_weight",
        "error",
        0,
        "no comparison has a weight above 0",
        "Check the weight column, and half_life against the dates.",
    )
]
_CHECKS = (
    _self_comparisons,
    _components,
    _one_sided,
    _repeats,
    _saturation,
    _swapped_sides,
    _judges,
    _sparsity,
)
