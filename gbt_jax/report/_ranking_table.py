"""The ranking as data for the page's script, and its first rows as a plain table.

The script replaces the plain table by one that can be sorted and searched.
"""

import json
import math
from typing import Any, NamedTuple

import numpy as np

from .._data._groups import sort_by_group
from ..frames import Ranking
from ._html import clean, compact, inline_label, label, number, plural, text

FIRST = 100  # rows shown at once; a button shows more
_MOST_ROWS = 100_000  # in a page of some ten megabytes
_NUMBERS = ("score", "lower", "upper", "std")
_WHOLE = ("rank", "rank_lower", "rank_upper", "comparisons", "component")


class PageRows(NamedTuple):
    """The rows of a ranking in the page.

    - `columns`: cells by column name, None where unknown; `group` is a position in `groups`.
    - `decimals`: decimals that show two digits of a typical standard deviation.
    - `zero`: the score of an item without comparisons.
    - `start`: the number of the largest group, which is shown first.
    - `left_out`: the number of rows that are not in the page.
    """

    columns: dict[str, list[Any]]
    groups: list[str]
    decimals: int
    zero: float
    start: int
    left_out: int
    level: float
    has_elo: bool


def page_rows(ranking: Ranking, elo: bool) -> PageRows:
    """The rows of a ranking for the page."""
    table = (ranking.to_elo() if elo else ranking).arrow
    owner = np.asarray(ranking.fit.comparisons.group)
    kept = _rows_in_page(owner)
    values = {name: table[name].to_numpy().astype(float)[kept] for name in _NUMBERS}
    decimals = _decimals(values["std"])
    columns: dict[str, list[Any]] = {
        name: [None if math.isnan(x) else round(x, decimals + 3) for x in column.tolist()]
        for name, column in values.items()
    }
    columns |= {name: table[name].take(kept).to_pylist() for name in _WHOLE}
    columns["item"] = [clean(item) for item in table["item"].take(kept).to_pylist()]
    columns["group"] = owner[kept].tolist()
    votes, fit = ranking.votes, ranking.fit
    return PageRows(
        columns=columns,
        groups=[clean(votes.group_name(group)) for group in fit.groups],
        decimals=decimals,
        zero=1000.0 if elo else 0.0,
        start=int(np.argmax(sort_by_group(fit.comparisons).num_rows)),
        left_out=owner.size - kept.size,
        level=ranking.level,
        has_elo=elo,
    )


def _rows_in_page(owner: np.ndarray) -> np.ndarray:
    """Positions of the rows in the page: the best of every group, if there are too many."""
    within = np.arange(owner.size) - np.searchsorted(owner, owner)
    return np.sort(np.argsort(within, kind="stable")[:_MOST_ROWS])


def _decimals(std: np.ndarray) -> int:
    known = std[np.isfinite(std) & (std > 0)]
    if not known.size:
        return 3
    return int(np.clip(1 - math.floor(math.log10(np.median(known))), 0, 9))


def ranking_data(shown: PageRows) -> str:
    """The rows as JSON in which `<` and the like are escaped, so that no label ends the script."""
    data = shown._asdict() | {"first": FIRST}
    written = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        written = written.replace(character, f"\\u{ord(character):04x}")
    return written


def ranking_section(shown: PageRows) -> str:
    """Controls for the script, and the first rows of the largest group."""
    mine = [i for i, group in enumerate(shown.columns["group"]) if group == shown.start]
    scale = _scale(shown, mine)
    body = "\n".join(_row(shown, i, scale) for i in mine[:FIRST])
    return "\n".join(
        [
            _controls(shown),
            '<div class="wide" tabindex="0" role="region" aria-label="Ranking">',
            '<table id="ranking-table"><caption>Items with their scores, best first</caption>',
            f"<thead><tr>{_heads(shown, scale)}</tr></thead>\n<tbody>\n{body}\n</tbody></table>",
            '</div>\n<p><button type="button" id="more" hidden></button></p>',
            _noscript_note(shown, len(mine)),
        ]
    )


def _controls(shown: PageRows) -> str:
    groups = ""
    if len(shown.groups) > 1:
        chosen = {shown.start: " selected"}
        options = "".join(
            f'<option value="{i}"{chosen.get(i, "")}>{text(name)}</option>'
            for i, name in enumerate(shown.groups)
        )
        groups = (
            '<label>Group <select id="group">'
            f'<option value="-1">all groups</option>{options}</select></label>'
        )
    search = '<label>Search <input type="search" id="search"></label>'
    more = ""
    if shown.left_out:
        more = f"<p>{plural(shown.left_out, 'item')} of the lowest ranks are not on this page.</p>"
    return (
        f'<div class="controls" id="controls" hidden>{groups}{search} '
        f'<span id="status" role="status"></span></div>{more}'
    )


def _heads(shown: PageRows, scale: tuple[float, float]) -> str:
    ends = "".join(f"<span>{number(end, shown.decimals)}</span>" for end in scale)
    heads = (
        ("rank", "Rank", "n", ""),
        ("item", "Item", "", ""),
        ("group", "Group", "", ""),
        ("score", "Elo" if shown.has_elo else "Score", "n", ""),
        (
            "width",
            f"{compact(100 * shown.level)}% interval",
            "",
            f'<span id="scale">{ends}</span>',
        ),
        ("lower", "Lower", "n", ""),
        ("upper", "Upper", "n", ""),
        ("std", "Std", "n", ""),
        ("rank_lower", "Ranks", "n", ""),
        ("comparisons", "Comparisons", "n", ""),
        ("component", "Component", "n", ""),
    )
    return "".join(
        f'<th scope="col" data-key="{key}" class="{kind}"{" hidden" if key == "group" else ""}>'
        f"<span>{name}</span>{more}</th>"
        for key, name, kind, more in heads
    )


def _scale(shown: PageRows, rows: list[int]) -> tuple[float, float]:
    """The range of the intervals of these rows."""
    low = [x for x in (shown.columns["lower"][i] for i in rows) if x is not None]
    high = [x for x in (shown.columns["upper"][i] for i in rows) if x is not None]
    return (min(low), max(high)) if low and high else (math.nan, math.nan)


def _row(shown: PageRows, i: int, scale: tuple[float, float]) -> str:
    cell = {name: column[i] for name, column in shown.columns.items()}
    numbers = {name: number(cell[name], shown.decimals) for name in _NUMBERS}
    bar = "" if cell["lower"] is None else _bar(shown, cell, scale)
    ranks = [number(cell[name], 0) for name in ("rank_lower", "rank_upper")]
    return (
        f'<tr><td class="n">{number(cell["rank"], 0)}</td>'
        f'<th scope="row">{label(cell["item"])}</th>'
        f'<td class="n">{numbers["score"]}</td><td class="interval">{bar}</td>'
        f'<td class="n">{numbers["lower"]}</td><td class="n">{numbers["upper"]}</td>'
        f'<td class="n">{numbers["std"]}</td>'
        f'<td class="n">{ranks[0] if ranks[0] == ranks[1] else "–".join(ranks)}</td>'
        f'<td class="n">{number(cell["comparisons"], 0)}</td>'
        f'<td class="n">{number(cell["component"], 0)}</td></tr>'
    )


def _bar(shown: PageRows, cell: dict[str, Any], scale: tuple[float, float]) -> str:
    def place(value: float) -> str:
        return f"{100 * (value - scale[0]) / ((scale[1] - scale[0]) or 1):.2f}"

    is_inside = scale[0] <= shown.zero <= scale[1]
    zero = f'<path class="zero" d="M{place(shown.zero)} 0V10"/>' if is_inside else ""
    low, middle, high = (place(cell[name]) for name in ("lower", "score", "upper"))
    return (
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{zero}'
        f'<path class="span" d="M{low} 5H{high}"/><path class="point" d="M{middle} 5h0"/></svg>'
    )


def _noscript_note(shown: PageRows, size: int) -> str:
    first = min(size, FIRST)
    name = shown.groups[shown.start]
    where = f" of {inline_label(name)}" if len(shown.groups) > 1 else ""
    return (
        f"<noscript><p>The first {first:,} of {size:,} rows{where}. JavaScript is needed for the "
        "others, for sorting and for searching.</p></noscript>"
    )
