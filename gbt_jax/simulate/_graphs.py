"""Who is compared with whom: graphs as pairs of item numbers.

No pair has an item twice. Where pairs are distinct each is listed once, with a < b.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from .._util._arrays import whole_number
from .._util._random import generator_of
from ._draws import between, pick_index, popularity


class Pairs(NamedTuple):
    """Items `a[i]` and `b[i]` are compared, for each i: two columns of int32."""

    a: Int[np.ndarray, " rows"]
    b: Int[np.ndarray, " rows"]


def complete(num_items: int) -> Pairs:
    """Every pair once: n(n−1)/2 of them."""
    num_items = whole_number("num_items", num_items, at_least=0)
    return _pairs(*triangle(np.arange(num_items * (num_items - 1) // 2)))


def chain(num_items: int) -> Pairs:
    """Each item and the next, n−1 pairs: the connected graph whose ends are furthest apart."""
    item = np.arange(whole_number("num_items", num_items, at_least=0))
    return _pairs(item[:-1], item[1:])


def erdos_renyi(num_items: int, probability: float, *, key: PRNGKeyArray) -> Pairs:
    """G(n, p): each pair is in with `probability`, independently of the others.

    Time and memory are those of the pairs that are in, about p·n(n−1)/2, not of all pairs.
    """
    num_items = whole_number("num_items", num_items, at_least=0)
    generator = generator_of(key)
    return _pairs(*triangle(_chosen(generator, num_items * (num_items - 1) // 2, probability)))


def bipartite(
    num_first: int, num_second: int, probability: float = 1.0, *, key: PRNGKeyArray | None = None
) -> Pairs:
    """Items 0, …, `num_first` − 1, each with each of the `num_second` that follow them.

    Every such pair is in with `probability`, independently; below 1 that needs a `key`.
    """
    num_first = whole_number("num_first", num_first, at_least=0)
    num_second = whole_number("num_second", num_second, at_least=0)
    total = num_first * num_second
    if between("probability", probability, 0, 1) == 1:
        cell = np.arange(total)
    elif key is None:
        raise ValueError(f"a probability below 1 needs a key (probability is {probability!r})")
    else:
        cell = _chosen(generator_of(key), total, probability)
    return _pairs(cell // max(num_second, 1), num_first + cell % max(num_second, 1))


def random_pairs(num_items: int, num_comparisons: int, *, key: PRNGKeyArray) -> Pairs:
    """Independent pairs, all ordered pairs of different items equally likely; repeats happen."""
    num_items = whole_number("num_items", num_items, at_least=2)
    size = whole_number("num_comparisons", num_comparisons, at_least=0)
    generator = generator_of(key)
    a = generator.integers(num_items, size=size, dtype=np.int32)
    b = generator.integers(num_items - 1, size=size, dtype=np.int32)
    return _pairs(a, b + (b >= a))


def power_law(
    num_items: int, num_comparisons: int, *, exponent: float = 2.5, key: PRNGKeyArray
) -> Pairs:
    """Independent pairs of items of very different popularity: P(a, b) ∝ s_a s_b for a ≠ b.

    The shares s fall with the item's number so that the histogram of degrees falls as
    degree^−γ, with γ the `exponent`, from 1.1: item k (from 0) has s ∝ (k+1)^{−1/(γ−1)}. Social
    and citation networks have 2 < γ < 3, Zipf's law is γ = 2, and ∞ is `random_pairs`. Repeats
    happen, most of all among the first items.
    """
    num_items = whole_number("num_items", num_items, at_least=2)
    size = whole_number("num_comparisons", num_comparisons, at_least=0)
    share, generator = popularity(num_items, exponent), generator_of(key)
    # a has its marginal law, s_a(1−s_a); b is drawn from what remains when a is cut out.
    a = pick_index(generator, np.cumsum(share * (1 - share)), size)
    ends = np.concatenate([[0.0], np.cumsum(share)])
    height = generator.random(size) * (ends[-1] - share[a])
    height = np.where(height < ends[a], height, ends[a + 1] + (height - ends[a]))
    b = np.searchsorted(ends[1:], height, "right")
    return _pairs(a, np.minimum(b, num_items - 1 - (a == num_items - 1)))


def triangle(number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair low < high of each number, in the order (0,1), (0,2), (1,2), (0,3), …

    number = high(high−1)/2 + low. The root is rounded, which may move it across an integer.
    """
    high = (0.5 + np.sqrt(0.25 + 2.0 * number)).astype(np.int64)
    high -= high * (high - 1) // 2 > number
    high += high * (high + 1) // 2 <= number
    return number - high * (high - 1) // 2, high


def _chosen(generator: np.random.Generator, total: int, probability: float) -> np.ndarray:
    """Numbers below `total`, ascending, each with the same probability, independently.

    The gaps between them are geometric (Batagelj and Brandes 2005), so the others cost nothing.
    """
    if between("probability", probability, 0, 1) == 0:
        return np.zeros(0, np.int64)
    last, parts = -1, [np.zeros(0, np.int64)]
    while last < total - 1:
        # Four standard deviations more than expected: seldom is there a second round.
        expected = (total - 1 - last) * probability
        size = int(expected + 4 * np.sqrt(expected)) + 8
        # A gap beyond the end is as good as any other there, and sums must fit int64.
        gaps = np.minimum(generator.geometric(probability, size), total + 1)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    number = np.concatenate(parts)
    return number[number < total]


def _pairs(a: np.ndarray, b: np.ndarray) -> Pairs:
    return Pairs(a.astype(np.int32), b.astype(np.int32))
