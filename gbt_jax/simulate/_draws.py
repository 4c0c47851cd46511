"""Random draws on the host: weighted numbers, and distinct numbers for many groups.

Sizes here are random, and JAX would compile for each: NumPy draws everything but the values.
"""

import numpy as np

from .._util._arrays import ranges

_AT_ONCE = 2**22  # numbers in one race: a few times 32 megabytes


def number_between(name: str, value: float, low: float | int, high: float | int) -> float:
    """A number from low to high, or an error that names it."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be from {low:g} to {high:g}, not {value!r}")
    return float(value)


def popularity(num_items: int, exponent: float) -> np.ndarray:
    """Shares of items, descending, whose histogram falls as share^−γ with γ = `exponent`.

    The item of rank k has a share proportional to k^{−1/(γ−1)}: γ = 2 is Zipf's law, ∞ all equal.
    """
    if not exponent >= 1.1:  # below, the first share is almost 1 and the rest is lost in rounding
        raise ValueError(f"exponent must be at least 1.1, not {exponent!r}")
    share = np.arange(1, num_items + 1) ** (-1 / (exponent - 1))
    return share / share.sum()


def pick_index(generator: np.random.Generator, cumulative: np.ndarray, size: int) -> np.ndarray:
    """Independent numbers, drawn by the shares whose cumulative sums are given."""
    place = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], "right")
    return np.minimum(place, cumulative.size - 1)  # a product may round up to the last sum


def distinct_numbers(
    generator: np.random.Generator,
    count: np.ndarray,
    total: np.ndarray,
    share: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """For each group g, `count[g] ≥ 1` different numbers below `total[g]`: (group, number) sorted.

    They are drawn one after the other without replacement, with equal probabilities or by their
    `share` (descending; each total is then its size).
    """
    stride = int(total.max())  # group·stride + number stands for both
    if share is None:
        is_crowded, cumulative = 2 * count > total, None
    else:
        cumulative = np.cumsum(share)
        is_crowded = cumulative[count - 1] > 0.5 * cumulative[-1]
    codes = [_redraw_repeats(generator, np.where(is_crowded, 0, count), total, cumulative, stride)]
    crowded = np.flatnonzero(is_crowded)
    work = np.cumsum(total[crowded]) // _AT_ONCE
    for part in np.split(crowded, np.flatnonzero(np.diff(work)) + 1):
        codes.append(_race(generator, part, count[part], total[part], share, stride))
    code = np.sort(np.concatenate(codes))
    return code // stride, code % stride


def _redraw_repeats(
    generator: np.random.Generator,
    count: np.ndarray,
    total: np.ndarray,
    cumulative: np.ndarray | None,
    stride: int,
) -> np.ndarray:
    """Draw as many as are missing and drop repeats, until none is missing.

    A repeat has a probability of at most ½ where this is used, so few rounds are needed.
    """
    code, done, missing = np.zeros(0, np.int64), [], count
    while missing.any():
        owner = np.repeat(np.arange(count.size), missing)
        if cumulative is None:
            number = generator.integers(total[owner])
        else:
            number = pick_index(generator, cumulative, owner.size)
        # Sort, since the hash tables of np.unique take ten times as long.
        code = np.sort(np.concatenate([code, owner * stride + number]))
        code = code[np.append(True, code[1:] != code[:-1])]
        owner = code // stride
        found = np.bincount(owner, minlength=count.size)
        missing = np.where(found > 0, count - found, 0)
        # Complete groups are not sorted again.
        is_done = missing[owner] == 0
        done.append(code[is_done])
        code = code[~is_done]
    return np.concatenate([code, *done])


def _race(
    generator: np.random.Generator,
    groups: np.ndarray,
    count: np.ndarray,
    total: np.ndarray,
    share: np.ndarray | None,
    stride: int,
) -> np.ndarray:
    """Draw an exponential time for each number, its share as rate; take the first `count`.

    The first of independent exponential times is i with probability share_i/Σ share, and the
    remaining times of the others are exponential again: the same law as sequential draws.
    """
    if not groups.size:
        return np.zeros(0, np.int64)
    owner, start = np.repeat(groups, total), np.cumsum(total) - total
    number = ranges(np.zeros_like(total), total)
    time = generator.standard_exponential(number.size)
    if share is not None:
        time /= share[number]
    order = np.lexsort((time, owner))
    taken = order[ranges(start, count)]
    return owner[taken] * stride + number[taken]
