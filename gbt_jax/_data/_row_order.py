"""The order of rows in which consecutive scatter-adds hit different items."""

import numpy as np

_LANES, _LANE_ROWS = 8, 512
_RUNS = 0.25  # of all rows that repeat an item of the row before: then order matters


def interleaved_order(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Numbers of rows in a better order, or None if theirs is good.

    Tables are often sorted by an item. Consecutive rows of one item are added to the same entry,
    and each addition waits three times as long for the one before as it takes. So the eight parts
    of each block of rows are interleaved; the rest has too few rows to matter.
    """
    block = _LANES * _LANE_ROWS
    whole = a.size // block * block
    if not whole or max(np.mean(end[1:] == end[:-1]) for end in (a, b)) <= _RUNS:
        return None
    order = np.arange(a.size)
    lanes = order[:whole].reshape(-1, _LANES, _LANE_ROWS)
    order[:whole] = lanes.swapaxes(1, 2).ravel()
    return order
