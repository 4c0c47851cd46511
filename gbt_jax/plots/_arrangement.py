"""Horizontal positions of the nodes of a graph whose heights are given.

Each node in turn moves to the cheapest of many positions while the others stay, in a few sweeps.
The cost counts overlapping names, lines that pass through other nodes or their names, long lines
and crowded nodes. The search is deterministic.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._axes import shorten

_LETTER = 0.6  # width of a letter by its size, on average
_NUM_PLACES = 25  # positions tried for each node
_SWEEPS = 8
_MOST_DISTANCES = 2e7  # between nodes and lines, in all sweeps: some seconds
_CLEARANCE = 0.3  # inches between a line and the middle of a node with its name


class Arrangement(NamedTuple):
    """Positions in inches, the font size in points, and names, "" where there is no room."""

    across: np.ndarray
    size: float
    names: list[str]
    has_all_names: bool


def arrange(
    up: np.ndarray,
    component: np.ndarray,
    pairs: np.ndarray,
    names: Sequence[str],
    width: float,
    *,
    marker: float,
    sizes: Sequence[float],
) -> Arrangement:
    """Arrange nodes whose heights are `up`, components side by side, within `width` inches.

    Names are below their nodes, whose size is `marker` points, in the first of the `sizes` in
    which none overlap; in the last one, names without room are left out.
    """
    length = 22 if len(names) <= 12 else 16
    short = [shorten(name, length) for name in names]
    found = Arrangement(np.zeros(len(names)), sizes[0], short, True)
    for size in sizes:
        widths = np.maximum([len(name) * size * _LETTER for name in short], marker) / 72 + 0.06
        tall = (size + marker + 4) / 72
        across = _search_places(up, pairs, widths, tall, *_limits(component, widths, width))
        fits = _has_room(across, up, widths, tall)
        kept = [name if has_room else "" for name, has_room in zip(short, fits, strict=True)]
        found = Arrangement(across, size, kept, bool(fits.all()))
        if found.has_all_names:
            break
    return found


def _limits(
    component: np.ndarray, widths: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """The limits of each node: a part of the width for its component, large components left."""
    number, count = np.unique(component, return_inverse=True, return_counts=True)[1:]
    order = np.argsort(-count, kind="stable")
    ends = np.append(0, np.cumsum(np.sqrt(count[order])))
    ends = ends / max(ends[-1], 1) * width
    part = np.argsort(order)[number]
    low, high = ends[part] + 0.5 * widths, ends[part + 1] - 0.5 * widths
    middle = 0.5 * (ends[part] + ends[part + 1])
    return np.minimum(low, middle), np.maximum(high, middle)


def _search_places(
    up: np.ndarray,
    pairs: np.ndarray,
    widths: np.ndarray,
    tall: float,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    count = up.size
    # Multiples of the golden ratio spread any number of nodes evenly, neighbours in rank apart.
    across = low + (high - low) * ((0.5 + 0.618034 * np.arange(count)) % 1)
    affordable = _MOST_DISTANCES / max(3 * _NUM_PLACES * len(pairs) * count, 1)
    if affordable < 1:  # ignore the lines: so many pass everywhere, wherever nodes are
        pairs, affordable = pairs[:0], _SWEEPS
    sweeps = min(int(affordable), _SWEEPS)
    for _ in range(sweeps):
        for node in range(count):
            is_level = np.abs(up - up[node]) < tall
            apart = 0.5 * (widths[node] + widths[is_level])
            beside = np.append(across[is_level] - apart, across[is_level] + apart)
            even = np.linspace(low[node], high[node], _NUM_PLACES)
            tried = np.concatenate([[across[node]], even, np.clip(beside, low[node], high[node])])
            cost = _cost(node, tried, across, up, pairs, widths, tall)
            across[node] = tried[cost.argmin()]
    return across


def _cost(
    node: int,
    tried: np.ndarray,
    across: np.ndarray,
    up: np.ndarray,
    pairs: np.ndarray,
    widths: np.ndarray,
    tall: float,
) -> np.ndarray:
    """The cost of each tried position of a node, with the others fixed."""
    others = np.arange(up.size) != node
    away, above = tried[:, None] - across[others], up[node] - up[others]
    wanted = 0.5 * (widths[node] + widths[others])
    is_level = np.abs(above) < tall
    overlap = np.maximum(1 - np.abs(away) / wanted, 0) * is_level
    is_overlap = overlap > 0.01
    crowding = 1 / (1 + (np.square(away) + np.square(above)) / 0.5**2)
    is_own = (pairs == node).any(axis=1)
    partner = pairs[is_own].sum(axis=1) - node
    lengths = np.abs(tried[:, None] - across[partner])
    # The lines of the node past other nodes, and other lines past it.
    middle = up - 0.5 * tall
    ends = across[partner], up[partner]
    passing = _closeness(
        (across, middle), (tried[:, None, None], up[node]), tuple(end[:, None] for end in ends)
    )
    numbers = np.arange(up.size)
    passing = np.where((numbers == node) | (numbers == partner[:, None]), 0, passing)
    first, second = pairs[~is_own].T
    passed = _closeness(
        (tried[:, None], middle[node]), (across[first], up[first]), (across[second], up[second])
    )
    return (
        10 * (overlap + is_overlap).sum(axis=1)
        + 0.05 * crowding.sum(axis=1)
        + 0.05 * lengths.sum(axis=1)
        + passing.sum(axis=(1, 2))
        + passed.sum(axis=1)
    )


def _closeness(point: tuple, start: tuple, end: tuple) -> np.ndarray:
    """1 where a line passes through a point, falling to 0 at the clearance; all broadcast."""
    along_x, along_y = end[0] - start[0], end[1] - start[1]
    to_x, to_y = point[0] - start[0], point[1] - start[1]
    squared = np.maximum(np.square(along_x) + np.square(along_y), 1e-12)
    share = np.clip((to_x * along_x + to_y * along_y) / squared, 0, 1)
    distance = np.hypot(to_x - share * along_x, to_y - share * along_y)
    return np.square(np.maximum(1 - distance / _CLEARANCE, 0))


def _has_room(across: np.ndarray, up: np.ndarray, widths: np.ndarray, tall: float) -> np.ndarray:
    """Whether the name of each node overlaps no earlier name that is kept."""
    is_near = np.abs(across[:, None] - across) < 0.5 * (widths[:, None] + widths) - 0.04
    is_near &= np.abs(up[:, None] - up) < tall
    kept = np.ones(up.size, bool)
    for node in range(up.size):
        kept[node] = not (is_near[node, :node] & kept[:node]).any()
    return kept
