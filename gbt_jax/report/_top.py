"""The comparisons that decide the first place, and those with the largest influence on it."""

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
from ._html import inline_label, label, number, plural, table, text

_MOST_ITEMS = 4096  # a dense curvature
_MOST_ROWS = 50_000  # per refit
_LIMIT = 30  # comparisons left out together
_CANDIDATES = 12  # by derivatives; refits decide the order
_SHOWN = 8


class _Group(NamedTuple):
    """The fit of one group, with the positions of its comparisons and items in the votes."""

    name: str
    fit: Fit
    items: np.ndarray  # codes
    rows: np.ndarray  # positions in the votes


def top_section(ranking: Ranking, *, most_groups: int, unit: float, decimals: int) -> str:
    """The comparisons that decide the first place, for each of the largest groups.

    Scores are shown times `unit`, with the given decimals.
    """
    sizes = sort_by_group(ranking.fit.comparisons).num_rows
    is_fitted = np.asarray(ranking.fit.result == RESULTS.successful)
    order = np.argsort(-sizes, kind="stable")
    order = order[is_fitted[order]]
    if not order.size:
        return "<p>No fit succeeded, so there is no first place.</p>"
    parts = [_one_group(ranking, int(i), unit, decimals) for i in order[:most_groups]]
    left = int(np.count_nonzero(is_fitted)) - min(order.size, most_groups)
    if left:
        verb = "is" if left == 1 else "are"
        parts.append(
            f"<p>{plural(left, 'smaller group')} {verb} not analysed here, to save time.</p>"
        )
    rows = "<p>Rows are counted from 1 below the header.</p>"
    return "\n".join([rows, *parts])


def _one_group(ranking: Ranking, i: int, unit: float, decimals: int) -> str:
    votes, layout = ranking.votes, sort_by_group(ranking.fit.comparisons)
    label = ranking.fit.groups[i].item()
    name = votes.group_name(label)
    head = f"<h3>{inline_label(name)}</h3>" if votes.group_labels else ""
    num_items, rows = int(layout.num_items[i]), slice(*layout.row_offsets[i : i + 2])
    if num_items > _MOST_ITEMS or rows.stop - rows.start > _MOST_ROWS:
        return (
            f"{head}<p>Not computed: {plural(num_items, 'item')} and "
            f"{plural(rows.stop - rows.start, 'comparison')} exceed the limit of {_MOST_ITEMS:,} "
            f"items or {_MOST_ROWS:,} comparisons.</p>"
        )
    fit = ranking.fit[label]
    group = _Group(name, fit, fit.item, layout.row[rows])
    return head + _top_of_group(votes, group, unit, decimals)


def _top_of_group(votes: Votes, group: _Group, unit: float, decimals: int) -> str:
    made = curvature(group.fit)
    scores = np.asarray(group.fit.scores)
    first, second = np.argsort(-scores, kind="stable")[:2]
    lead = number(unit * float(scores[first] - scores[second]), decimals)
    names = [inline_label(votes.label(group.items[i])) for i in (first, second)]
    parts = [f"<p>{names[0]} is first, {lead} ahead of {names[1]}."]
    try:
        flips = flip_set(group.fit, top=1, limit=_LIMIT, using=made)
        parts.append(_flips(votes, group, flips))
    except ValueError as error:
        parts.append(f" The comparisons that decide this were not computed ({text(error)}).</p>")
    parts.append(_most_influential(votes, group, made, (int(first), int(second)), unit, decimals))
    return "\n".join(parts)


def _flips(votes: Votes, group: _Group, flips: FlipSet) -> str:
    """The comparisons whose removal changes the first place. Ends the paragraph."""
    total = plural(flips.num_comparisons, "comparison")
    if not flips.is_found:
        return (
            f" No set of up to {flips.limit} of {total} was found whose removal changes that.</p>"
        )
    winner = inline_label(votes.label(group.items[int(np.argmax(np.asarray(flips.fit.scores)))]))
    which = "this one" if flips.rows.size == 1 else f"these {flips.rows.size}"
    rows = [_cells(votes, int(group.rows[row])) for row in flips.rows]
    return (
        f" Without {which} of {total}, {winner} is first; a refit confirms it. A smaller set may "
        "exist.</p>" + _table(votes, "Comparisons that decide the first place", rows)
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
        return "<p>No comparison moves the score of the first item.</p>"
    changes = unit * np.asarray(leave_out(group.fit, comparisons=candidates, exact=True))
    own, lead = changes[first], changes[first] - changes[second]
    order = np.argsort(-np.abs(np.nan_to_num(own)), kind="stable")[:_SHOWN]
    rows = [
        _cells(votes, int(group.rows[candidates[i]]))
        + [_format_change(x[i], decimals) for x in (own, lead)]
        for i in order
    ]
    caption = "Comparisons with the largest influence on the score and lead of the first item"
    return _table(votes, caption, rows, ("Change of score without it", "Change of lead without it"))


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


def _format_change(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "unknown"
    shown = number(value, decimals)
    return f"+{shown}" if value > 0 and any(c in "123456789" for c in shown) else shown
