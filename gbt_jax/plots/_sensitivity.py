"""How scores respond to comparisons, as a heat map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import ArrayLike

from .._curvature import AbstractCurvature, curvature_of
from .._inference._fit import Fit
from .._util._arrays import as_indices, whole_number
from ..influence._sensitivity import sensitivity as derivatives
from ._axes import (
    check_axes,
    check_fit,
    format_change,
    get_axes,
    height_of_rows,
    item_names,
    selection_note,
    set_title,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AT_ONCE = 2**22  # derivatives: 32 MB
_FEW_CELLS = 120  # up to this number, cells show their values


def sensitivity(
    fit: Fit,
    *,
    labels: Sequence | np.ndarray | None = None,
    comparisons: ArrayLike | None = None,
    items: ArrayLike | None = None,
    top: int = 30,
    using: AbstractCurvature | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """∂score/∂value as a heat map: blue where a score rises with the value, red where it falls.

    A row per item, the best on top; a column "a – b" per comparison, the one that moves the scores
    most (in l2) on the left. Rows of weight 0 have no column.

    **Arguments:**

    - `labels`: the items' names, by default the labels of the comparisons.
    - `comparisons`, `items`: choose among these only.
    - `top`: how many comparisons and how many items at most: the comparisons that move scores
      most, and the items that these move most.
    - `using`: the fit's `curvature`, if it has been made already.
    - `ax`: the `Axes` to draw into, by default those of a new figure.

    **Returns:** the `Axes`.
    """
    check_axes(ax)
    check_fit(fit, "sensitivity")
    names = item_names(labels, fit)
    most = whole_number("top", top, at_least=1)
    made = curvature_of(fit, using)
    rows = as_indices("comparisons", comparisons, len(fit.comparisons))
    rows = rows[np.asarray(fit.comparisons.weight)[rows] > 0]
    all_items = as_indices("items", items, fit.comparisons.num_items)
    lengths = _column_lengths(fit, rows, all_items, made)
    columns = rows[np.argsort(-lengths, kind="stable")[:most]]
    matrix = np.asarray(derivatives(fit, comparisons=columns, items=all_items, using=made), float)
    kept = np.argsort(-np.linalg.norm(matrix, axis=1), kind="stable")[:most]
    # By score, and equal ones by number.
    kept = kept[np.lexsort((all_items[kept], -np.asarray(fit.scores)[all_items[kept]]))]
    matrix, order = matrix[kept], all_items[kept] if columns.size else all_items[:0]
    a, b = np.asarray(fit.comparisons.a)[columns], np.asarray(fit.comparisons.b)[columns]
    pairs = [
        f"{shorten(names[i], 20)} – {shorten(names[j], 20)}" for i, j in zip(a, b, strict=True)
    ]
    has_numbers = matrix.size <= _FEW_CELLS
    column_width = 0.42 if has_numbers else 0.26
    letters = max(map(len, pairs), default=0)
    height = height_of_rows(order.size) + 0.075 * letters
    ax = get_axes(ax, max(3.2 + column_width * columns.size, 5.5), height)
    if matrix.size:
        _draw(ax, matrix, has_numbers)
    ax.set_xticks(np.arange(columns.size), pairs, rotation=90, fontsize="small")
    ax.set_yticks(np.arange(order.size), [shorten(names[item]) for item in order], fontsize="small")
    ax.tick_params(length=0)
    set_title(
        ax,
        "scores (rows) moved by values of comparisons (columns)",
        "" if rows.size else "there are no comparisons",
        selection_note("comparisons", columns.size, rows.size, "strongest"),
        selection_note("items", order.size, all_items.size, "most moved") if columns.size else "",
    )
    return ax


def _column_lengths(
    fit: Fit, rows: np.ndarray, items: np.ndarray, made: AbstractCurvature
) -> np.ndarray:
    """‖∂θ/∂r‖ of each comparison over the items, a block of comparisons at a time."""
    block = max(_AT_ONCE // max(items.size, 1), 1)
    found = [np.zeros(0)]
    for start in range(0, rows.size, block):
        part = derivatives(fit, comparisons=rows[start : start + block], items=items, using=made)
        found.append(np.linalg.norm(np.asarray(part, float), axis=0))
    return np.concatenate(found)


def _draw(ax: "Axes", matrix: np.ndarray, has_numbers: bool) -> None:
    largest = np.abs(matrix).max() or 1.0
    image = ax.imshow(matrix, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="∂score/∂value")
    if not has_numbers:
        return
    for (row, column), value in np.ndenumerate(matrix):
        colour = "white" if abs(value) > 0.6 * largest else "black"
        ax.text(
            column, row, format_change(value), color=colour, ha="center", va="center", fontsize=6
        )
