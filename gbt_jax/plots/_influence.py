"""The comparisons whose removal changes the scores most."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._curvature import AbstractCurvature
from .._data._comparisons import Comparisons
from .._inference._fit import Fit
from .._util._arrays import as_indices, whole_number
from ..influence._influence import leave_out
from ._axes import (
    COLOURS,
    FAINT,
    check_axes,
    check_fit,
    format_change,
    get_axes,
    height_of_rows,
    item_names,
    remove_frame,
    selection_note,
    set_title,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def influence(
    fit: Fit,
    *,
    item: int | None = None,
    groups: Sequence | np.ndarray | None = None,
    labels: Sequence | np.ndarray | None = None,
    top: int = 20,
    using: AbstractCurvature | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The comparisons whose removal moves the scores most, as bars, the largest change on top.

    The length of a bar is the change of all scores in l2, and its label names the score that
    changes most; with `item` a bar is the change of that item's score, with its sign. A comparison
    is named like "tea over milk 0.5", with ×3 for a weight of 3. Without a prior, a comparison that
    alone connects two parts of the graph has no bar: there is no optimum without it.

    **Arguments:**

    - `item`: the number of the item whose score is shown.
    - `groups`: one label per comparison, such as its judge: one bar per label, for leaving out all
      comparisons with that label together.
    - `labels`: the items' names, by default the labels of the comparisons.
    - `top`: how many bars at most.
    - `using`: the fit's `curvature`, if it has been made already.
    - `ax`: the `Axes` to draw into, by default those of a new figure.

    **Returns:** the `Axes`.
    """
    check_axes(ax)
    check_fit(fit, "influence")
    rows = fit.comparisons
    names = item_names(labels, fit)
    most = whole_number("top", top, at_least=1)
    if item is not None:
        (item,) = as_indices("item", item, rows.num_items)
    if groups is None:
        counted = np.flatnonzero(np.asarray(rows.weight) > 0)
        changes = np.asarray(leave_out(fit, comparisons=counted, using=using), float)
        titles = [_describe(rows, names, row) for row in counted.tolist()]
    else:
        changes = np.asarray(leave_out(fit, groups=groups, using=using), float)
        titles = [shorten(str(label)) for label in np.unique(np.asarray(groups))]
    lengths = np.linalg.norm(changes, axis=0) if item is None else changes[item]
    is_known = np.isfinite(lengths)
    order = np.flatnonzero(is_known)[np.argsort(-np.abs(lengths[is_known]), kind="stable")[:most]]
    ax = get_axes(ax, 8.0, height_of_rows(order.size))
    _draw(ax, lengths[order], [titles[column] for column in order])
    if item is None:
        for place, column in enumerate(order):
            _name_the_most_moved(ax, place, lengths[column], changes[:, column], names)
        # Leave room for the text at the end of the longest bar.
        ax.set_xlim(0, 1.5 * (lengths[order].max(initial=0) or 1))
    kind = "comparisons" if groups is None else "groups"
    if item is None:
        ax.set_xlabel("change of all scores (l2) without it,\nand the score that changes most")
    else:
        ax.set_xlabel(f"change of the score of {shorten(names[item])} without it")
    none = "" if lengths.size else "there are no comparisons"
    lost = np.count_nonzero(~is_known)
    set_title(
        ax,
        f"{kind} whose removal moves scores most",
        selection_note(kind, order.size, int(np.count_nonzero(is_known)), "strongest"),
        f"{lost:,} without which there is no optimum" if lost else none,
    )
    return ax


def _draw(ax: "Axes", lengths: np.ndarray, titles: list[str]) -> None:
    place = np.arange(lengths.size)
    colours = [COLOURS[0] if length >= 0 else COLOURS[1] for length in lengths]
    ax.barh(place, lengths, color=colours, height=0.7)
    ax.axvline(0, color=FAINT, linewidth=0.8)
    ax.set_yticks(place, titles, fontsize="small")
    ax.set_ylim(max(place.size, 1) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=FAINT, alpha=0.3)
    ax.set_axisbelow(True)
    remove_frame(ax, "top", "right", "left")


def _name_the_most_moved(
    ax: "Axes", place: int, length: float, change: np.ndarray, names: list[str]
) -> None:
    if length > 0:
        who = int(np.abs(change).argmax())
        text = f"{shorten(names[who], 16)} {format_change(change[who])}"
        end = (length, place)
        ax.annotate(text, end, (4, 0), textcoords="offset points", va="center", fontsize="small")


def _describe(rows: Comparisons, names: list[str], row: int) -> str:
    """A comparison in words, the better item first: "tea over milk 0.5"."""
    a, b, value, weight = (x[row].item() for x in (rows.a, rows.b, rows.value, rows.weight))
    better, worse = (b, a) if value < 0 else (a, b)
    relation = "over" if value else "even with"
    text = f"{shorten(names[better], 18)} {relation} {shorten(names[worse], 18)}"
    text += f" {abs(value):.3g}" if value else ""
    return text if weight == 1 else f"{text} ×{weight:.3g}"
