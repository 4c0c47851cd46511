"""Scores with their intervals, the best on top."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._curvature import AbstractCurvature
from .._data._graph import components
from .._inference._fit import Fit
from .._util._arrays import whole_number
from ..uncertainty._laplace import intervals
from ._axes import (
    COLOURS,
    FAINT,
    check_axes,
    check_fit,
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


def ranking(
    fit: Fit,
    *,
    labels: Sequence | np.ndarray | None = None,
    level: float = 0.95,
    top: int | None = 30,
    using: AbstractCurvature | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Scores as dots with their `intervals` as bars, the best on top.

    Equal scores are in the order of their items. Without a prior, the components of the comparison
    graph have no common scale: they are drawn one below the other, the largest first, each with its
    own best item on top.

    **Arguments:**

    - `labels`: the items' names, by default the labels of the comparisons.
    - `level`: the level of the intervals.
    - `top`: how many items at most, the best ones; None is all.
    - `using`: the fit's `curvature`, if it has been made already.
    - `ax`: the `Axes` to draw into, by default those of a new figure.

    **Returns:** the `Axes`.
    """
    check_axes(ax)
    check_fit(fit, "ranking")
    names = item_names(labels, fit)
    most = len(names) if top is None else whole_number("top", top, at_least=1)
    scores = np.asarray(fit.scores, float)
    _, lower, upper = (np.asarray(x, float) for x in intervals(fit, level=level, using=using))
    group = _groups_without_common_scale(fit)
    order = np.lexsort((-scores, group))[:most]
    ax = get_axes(ax, 6.4, height_of_rows(order.size))
    place = np.arange(order.size)
    ax.hlines(place, lower[order], upper[order], color=COLOURS[0], linewidth=2, alpha=0.5)
    ax.plot(scores[order], place, "o", color=COLOURS[0], markersize=5)
    for boundary in np.flatnonzero(np.diff(group[order])):
        ax.axhline(boundary + 0.5, color=FAINT, linewidth=0.8, linestyle="--")
    ax.set_yticks(place, [shorten(names[item]) for item in order])
    ax.set_ylim(max(order.size, 1) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=FAINT, alpha=0.3)
    ax.set_axisbelow(True)
    remove_frame(ax, "top", "right", "left")
    ax.set_xlabel("score")
    num_groups = group.max(initial=0) + 1
    apart = f"no prior: {num_groups} components without a common scale" if num_groups > 1 else ""
    which = "first" if apart else "best"
    set_title(
        ax,
        f"scores and {100 * level:g}% intervals",
        selection_note("items", order.size, len(names), which),
        apart,
    )
    return ax


def _groups_without_common_scale(fit: Fit) -> np.ndarray:
    """The component of each item, large ones first, if not all have a prior; else all 0."""
    rows = fit.comparisons
    _, precision = fit.model.prior(rows, fit.scores.dtype)
    if (np.asarray(precision) > 0).all():
        return np.zeros(rows.num_items, int)
    component = components(rows)
    by_size = np.argsort(-np.bincount(component), kind="stable")
    return np.argsort(by_size)[component]
