"""The comparisons the first place rests on: which would change it, and which move it most."""

import math
from typing import NamedTuple

import numpy as np

from .._curvature import curvature
from .._data._groups import sort_by_group
from .._inference._fit import Fit
from .._inference._results import RESULTS
from ..frames import Ranking, Votes
from ..influence._counterfactuals import FlipSet, flip_set
from ..influence._influence import leave_out
from ..influence._sensitivity import sensitivity
from ._html import counted, label, named, number, table, text

_MOST_ITEMS = 4096  # with a matrix for their curvature
_MOST_ROWS = 50_000  # of which every refit takes a look
_LIMIT = 30  # comparisons left out together
_CANDIDATES = 12  # by derivatives, of which refits tell the order
_SHOWN = 8


class _Group(NamedTuple):
    """One group's fit, with where its comparisons and items are in the votes."""

    name: str
    fit: Fit
    items: np.ndarray  # codes
    rows: np.ndarray  # positions in the votes


def top_section(ranking: Ranking, *, most_groups: int, unit: float, decimals: int) -> str:
    """For each of the largest groups, what its first place rests on.

    `unit` times a score is what the page shows, with so many decimals.
    """
    sizes = sort_by_group(ranking.fit.comparisons).num_rows
    is_fitted = np.asarray(ranking.fit.result == RESULTS.successful)
    order = np.argsort(-sizes, kind="stable")
    order = order[is_fitted[order]]
    if not order.size:
        return "<p>No fit succeeded: there is no first place.</p>"
    parts = [_one_group(ranking, int(i), unit, decimals) for i in order[:most_groups]]
    left = int(np.count_nonzero(is_fitted)) - min(order.size, most_groups)
    if left:
        verb = "is" if left == 1 else "are"
        parts.append(
            f"<p>{counted(left, 'smaller group')} {verb} left out here, to save time: only "
            "the largest are looked at.</p>"
        )
    rows = "<p>Rows are those of the data, counted from 1 below the header.</p>"
    return "\n".join([rows, *parts])


def _one_group(ranking: Ranking, i: int, unit: float, decimals: int) -> str:
    votes, layout = ranking.votes, sort_by_group(ranking.fit.comparisons)
    label = ranking.fit.groups[i].item()
    name = votes.group_name(label)
    head = f"<h3>{named(name)}</h3>" if votes.group_labels else ""
    num_items, rows = int(layout.num_items[i]), slice(*layout.row_offsets[i : i + 2])
    if num_items > _MOST_ITEMS or rows.stop - rows.start > _MOST_ROWS:
        return (
            f"{head}<p>Left out: with {counted(num_items, 'item')} and "
            f"{counted(rows.stop - rows.start, 'comparison')} it would take too long (the most "
            f"are {_MOST_ITEMS:,} and {_MOST_ROWS:,}).</p>"
        )
    fit = ranking.fit[label]
    group = _Group(name, fit, fit.item, layout.row[rows])
    return head + _rests_on(votes, group, unit, decimals)


def _rests_on(votes: Votes, group: _Group, unit: float, decimals: int) -> str:
    made = curvature(group.fit)
    scores = np.asarray(group.fit.scores)
    first, second = np.argsort(-scores, kind="stable")[:2]
    lead = number(unit * float(scores[first] - scores[second]), decimals)
    names = [named(votes.label(group.items[i])) for i in (first, second)]
    parts = [f"<p>{names[0]} is first, {lead} ahead of {names[1]}."]
    try:
        flips = flip_set(group.fit, top=1, limit=_LIMIT, using=made)
        parts.append(_flips(votes, group, flips))
    except ValueError as error:
        parts.append(f" What would change that: left out ({text(error)}).</p>")
    parts.append(_most_influential(votes, group, made, (int(first), int(second)), unit, decimals))
    return "\n".join(parts)


def _flips(votes: Votes, group: _Group, flips: FlipSet) -> str:
    """The comparisons without which somebody else is first. Ends the paragraph."""
    total = counted(flips.num_comparisons, "comparison")
    if not flips.is_found:
        return f" No set of up to {flips.limit} of {total} was found without which it is not.</p>"
    winner = named(votes.label(group.items[int(np.argmax(np.asarray(flips.fit.scores)))]))
    which = "this one" if flips.rows.size == 1 else f"these {flips.rows.size}"
    rows = [_cells(votes, int(group.rows[row])) for row in flips.rows]
    return (
        f" Without {which} of {total}, {winner} is first; a refit confirms it. The set is small, "
        "not proven to be the smallest.</p>"
        + _table(votes, "Without these, another is first", rows)
    )


def _most_influential(
    votes: Votes, group: _Group, made, leaders: tuple[int, int], unit: float, decimals: int
) -> str:
    first, second = leaders
    weight = np.asarray(group.fit.comparisons.weight)
    slope = np.asarray(sensitivity(group.fit, wrt="weight", items=np.array([first]), using=made))[0]
    effect = np.abs(np.nan_to_num(slope * weight))
    candidates = np.argsort(-effect, kind="stable")[:_CANDIDATES]
    candidates = candidates[effect[candidates] > 0]
    if not candidates.size:
        return "<p>No comparison moves the score of the first.</p>"
    changes = unit * np.asarray(leave_out(group.fit, comparisons=candidates, exact=True))
    own, lead = changes[first], changes[first] - changes[second]
    order = np.argsort(-np.abs(np.nan_to_num(own)), kind="stable")[:_SHOWN]
    rows = [
        _cells(votes, int(group.rows[candidates[i]]))
        + [_signed(x[i], decimals) for x in (own, lead)]
        for i in order
    ]
    caption = "What moves the first most: how its score and lead change without each"
    return _table(votes, caption, rows, ("Change of score", "Change of lead"))


def _table(votes: Votes, caption: str, rows: list[list[str]], more: tuple[str, ...] = ()) -> str:
    head = ("Row", "Better", "Worse", "By", *(("Weight",) if _is_weighted(votes) else ()), *more)
    return table(caption, head, rows, "n--".ljust(len(head), "n"))


def _is_weighted(votes: Votes) -> bool:
    return bool(np.any(votes.weight != 1))


def _cells(votes: Votes, index: int) -> list[str]:
    """One comparison, the better item first; a tie in the order of the table."""
    a, b, value = votes.a[index], votes.b[index], float(votes.value[index])
    better, worse = (b, a) if value < 0 else (a, b)
    by = "tie" if value == 0 else f"{abs(value):g}"
    weight = [f"{float(votes.weight[index]):.3g}"] if _is_weighted(votes) else []
    names = label(votes.label(better)), label(votes.label(worse))
    return [f"{int(votes.row[index]) + 1}", *names, by, *weight]


def _signed(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "not known"
    shown = number(value, decimals)
    return f"+{shown}" if value > 0 and any(c in "123456789" for c in shown) else shown
