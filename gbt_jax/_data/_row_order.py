"""Permute rows so that consecutive scatter-adds hit different items."""

import numpy as np

_LANES, _LANE_ROWS = 8, 512
_RUNS = 0.25  # the share of rows that repeat an item of the row before, above which order matters


def interleaved_order(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """A permutation of rows that interleaves runs of one item, or None if there are few of them.

    Tables are often sorted by item. Consecutive rows of one item are added to the same entry, and
    waiting for the previous addition takes three times as long as an addition. So the eight parts
    of each block of rows are interleaved; the remaining rows are too few to matter.
    """
    block = _LANES * _LANE_ROWS
    whole = a.size // block * block
    if not whole or max(np.mean(end[1:] == end[:-1]) for end in (a, b)) <= _RUNS:
        return None
    order = np.arange(a.size)
    lanes = order[:whole].reshape(-1, _LANES, _LANE_ROWS)
    order[:whole] = lanes.swapaxes(1, 2).ravel()
    return order
