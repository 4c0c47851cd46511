"""The comparison graph, with nodes at the height of their scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._data._graph import components
from .._inference._fit import Fit
from .._util._arrays import whole_number
from ._arrangement import Arrangement, arrange
from ._axes import (
    FAINT,
    check_axes,
    check_fit,
    get_axes,
    item_names,
    remove_frame,
    selection_note,
    set_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize

_MARKER = 9.0  # points across
_TITLE = "comparisons between items, by score"
_FONT_SIZES = (9.0, 8.0, 7.0, 6.0)  # the first at which no names overlap


def comparison_graph(
    fit: Fit,
    *,
    labels: Sequence | np.ndarray | None = None,
    top: int = 40,
    ax: "Axes | None" = None,
) -> "Axes":
    """Items as nodes at the height of their score, coloured by it; lines join compared pairs.

    The width of a line shows the number of comparisons of the pair (the sum of their weights).
    Components are side by side. Horizontal positions have no meaning: neighbours are close, and
    names do not overlap.

    **Arguments:**

    - `labels`: the items' names, by default the labels of the comparisons.
    - `top`: how many items at most: those with the most comparisons.
    - `ax`: the `Axes` to draw into, by default those of a new figure. Names are arranged for its
      current size.

    **Returns:** the `Axes`.
    """
    check_axes(ax)
    check_fit(fit, "comparison_graph")
    names = item_names(labels, fit)
    most = whole_number("top", top, at_least=1)
    merged = fit.comparisons.merge_repeats()
    a, b, weight = (np.asarray(x) for x in (merged.a, merged.b, merged.weight))
    degree = np.bincount(np.append(a, b), np.append(weight, weight), len(names))
    items = np.argsort(-degree, kind="stable")[:most]
    items = items[np.argsort(-np.asarray(fit.scores)[items], kind="stable")]
    place = np.full(len(names), -1)
    place[items] = np.arange(items.size)
    inside = (place[a] >= 0) & (place[b] >= 0)
    pairs, counts = np.stack([place[a], place[b]], axis=1)[inside], weight[inside].astype(float)
    scores = np.asarray(fit.scores, float)[items]
    # Items that were never compared are one block, not a component each.
    component = components(fit.comparisons)[items]
    component = np.where(degree[items] > 0, component, len(names))
    is_new = ax is None
    ax = get_axes(ax, 7.0 + 0.07 * items.size, 5.5 + 0.05 * items.size)
    notes = selection_note("items", items.size, len(names), "most compared"), _width_note(counts)
    set_title(ax, _TITLE, *notes)
    norm = _draw_scale(ax, scores)
    if is_new:
        _apply_layout(ax)
    box = ax.get_window_extent()
    width, height = box.width / ax.figure.dpi, box.height / ax.figure.dpi
    arranged = arrange(
        np.asarray(norm(scores)) * height,
        component,
        pairs,
        [names[item] for item in items],
        width,
        marker=_MARKER,
        sizes=_FONT_SIZES,
    )
    ax.set_xlim(0, width)
    _draw(ax, scores, arranged, pairs, counts, norm)
    if not arranged.has_all_names:
        set_title(ax, _TITLE, *notes, "some names are left out for lack of room")
    return ax


def _apply_layout(ax: "Axes") -> None:
    """Compute the layout of a new figure, which sets the size of its axes."""
    from matplotlib.figure import Figure

    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()


def _width_note(counts: np.ndarray) -> str:
    """The meaning of the width of lines."""
    if not counts.size:
        return "there are no comparisons between them"
    low, high = counts.min(), counts.max()
    times = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    return f"line width: comparisons of a pair, {times}"


def _draw_scale(ax: "Axes", scores: np.ndarray) -> "Normalize":
    """The common scale of heights and colours: a node is at the height of its colour in the bar."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = (scores.min(), scores.max()) if scores.size else (0.0, 0.0)
    margin = 0.08 * (high - low) or 1.0
    # Names are below their nodes.
    norm = Normalize(low - 1.5 * margin, high + margin)
    ax.figure.colorbar(ScalarMappable(norm, "viridis"), ax=ax, label="score")
    ax.set_ylim(norm.vmin, norm.vmax)
    ax.set_xticks([])
    ax.set_yticks([])
    remove_frame(ax, "top", "right", "left", "bottom")
    return norm


def _draw(
    ax: "Axes",
    scores: np.ndarray,
    arranged: Arrangement,
    pairs: np.ndarray,
    counts: np.ndarray,
    norm: "Normalize",
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    points = np.stack([arranged.across, scores], axis=1)
    lines = LineCollection(
        points[pairs].tolist(),
        linewidths=0.4 + 2.6 * np.sqrt(counts / counts.max(initial=1)),
        colors=FAINT,
        alpha=float(np.clip(1.5 * scores.size / max(counts.size, 1), 0.08, 0.6)),
        zorder=1,
    )
    ax.add_collection(lines)
    ax.scatter(
        *points.T,
        s=_MARKER**2,
        c=scores,
        cmap="viridis",
        norm=norm,
        edgecolors="black",
        linewidths=0.6,
        zorder=2,
    )
    halo = withStroke(linewidth=2, foreground=ax.get_facecolor())
    for (x, y), name in zip(points, arranged.names, strict=True):
        ax.annotate(
            name,
            (x, y),
            (0, -0.5 * _MARKER - 1),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=arranged.size,
            path_effects=[halo],
            zorder=3,
        )
