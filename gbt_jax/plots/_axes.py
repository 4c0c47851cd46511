"""What the plots share: axes, names, colours and argument checks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._curvature import refuse_unfinished
from .._inference._fit import Fit, refuse_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which colour-blind readers can distinguish: blue, vermilion, green,
# purple, orange and sky blue.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
FAINT = "#999999"  # for lines behind the data, on white and on black
_ROW_HEIGHT = 0.24  # inches, for a line of small text
_MAX_HEIGHT = 200.0  # inches: an image has less than 65,536 pixels, at up to 300 an inch


def check_axes(ax: "Axes | None") -> None:
    """Raise if matplotlib is missing, or if `ax` is not an Axes."""
    try:
        import matplotlib.axes
    except ImportError as error:
        raise ImportError(
            "gbt_jax.plots draws with matplotlib, which is not installed: pip install "
            '"gbt-jax[plots]"'
        ) from error
    if ax is not None and not isinstance(ax, matplotlib.axes.Axes):
        raise TypeError(f"ax must be one matplotlib Axes, not {type(ax).__name__}")


def get_axes(ax: "Axes | None", width: float, height: float) -> "Axes":
    """The axes to draw into: the given ones, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def height_of_rows(count: int) -> float:
    """The height of a figure with so many lines of names, in inches."""
    return min(1.3 + _ROW_HEIGHT * max(count, 3), _MAX_HEIGHT)


def check_fit(fit: Fit, function: str) -> None:
    """Raise unless `fit` is one successful fit without groups."""
    refuse_groups(fit, f"plots.{function}", "a plot shows one group")
    refuse_unfinished(fit)


def item_names(labels: Sequence | np.ndarray | None, fit: Fit) -> list[str]:
    """The name of each item on one line: from `labels`, or by default the label in the fit."""
    num_items = fit.comparisons.num_items
    labels = fit.item if labels is None else labels
    if isinstance(labels, str) or len(labels) != num_items:
        found = "one string" if isinstance(labels, str) else len(labels)
        raise ValueError(f"labels must have one name per item ({num_items}), not {found}")
    return [" ".join(str(label).split()) for label in labels]


def shorten(name: str, length: int = 28) -> str:
    """A name for matplotlib: the middle of a long name becomes …, and dollars are escaped."""
    if len(name) > length:
        head = 2 * (length - 1) // 3
        name = f"{name[:head].rstrip()}…{name[head + 1 - length :].lstrip()}"
    return name.replace("$", r"\$")


def set_title(ax: "Axes", title: str, *notes: str) -> None:
    """Set the title, with notes on how to read the plot below it."""
    lines = [title, *(note for note in notes if note)]
    ax.set_title("\n".join(lines), loc="left", fontsize="medium")


def selection_note(kind: str, kept: int, total: int, which: str) -> str:
    """Which of all are drawn: 'the best 30 of 200 items'; empty if all are."""
    return f"the {which} {kept:,} of {total:,} {kind}" if kept < total else ""


def format_change(value: float) -> str:
    """A change with two digits and its sign; 0 has none."""
    return f"{value:+.2g}".replace("-", "−") if value else "0"


def remove_frame(ax: "Axes", *sides: str) -> None:
    """Hide sides of the frame that carry no scale."""
    for side in sides:
        ax.spines[side].set_visible(False)
