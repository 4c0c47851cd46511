"""Comparison graphs, as pairs of item numbers.

The items of a pair differ. Where pairs are distinct each is listed once, with a < b.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from .._util._arrays import whole_number
from .._util._random import generator_of
from ._draws import number_between, pick_index, popularity


class Pairs(NamedTuple):
    """Items `a[i]` and `b[i]` are compared, for each i: two columns of int32."""

    a: Int[np.ndarray, " rows"]
    b: Int[np.ndarray, " rows"]


def complete(num_items: int) -> Pairs:
    """The complete graph.

    **Arguments:**

    - `num_items`: how many items.

    **Returns:** `Pairs`, every pair once: n(n−1)/2 of them.
    """
    num_items = whole_number("num_items", num_items, at_least=0)
    return _pairs(*triangle(np.arange(num_items * (num_items - 1) // 2)))


def chain(num_items: int) -> Pairs:
    """The path graph, which has the largest diameter of all connected graphs.

    **Arguments:**

    - `num_items`: how many items.

    **Returns:** `Pairs`, each item with the next: n−1 of them.
    """
    item = np.arange(whole_number("num_items", num_items, at_least=0))
    return _pairs(item[:-1], item[1:])


def erdos_renyi(num_items: int, probability: float, *, key: PRNGKeyArray) -> Pairs:
    """The random graph G(n, p).

    **Arguments:**

    - `num_items`: how many items.
    - `probability`: each pair is included with this probability, independently of the others.
    - `key`: a key of `jax.random`.

    **Returns:** `Pairs`, about p·n(n−1)/2 of them. Time and memory are proportional to their
    number, not to that of all pairs.
    """
    num_items = whole_number("num_items", num_items, at_least=0)
    generator = generator_of(key)
    included = _random_subset(generator, num_items * (num_items - 1) // 2, probability)
    return _pairs(*triangle(included))


def bipartite(
    num_first: int, num_second: int, probability: float = 1.0, *, key: PRNGKeyArray | None = None
) -> Pairs:
    """The bipartite graph of items 0, …, `num_first` − 1 and the `num_second` items that follow.

    **Arguments:**

    - `num_first`, `num_second`: how many items are on each side.
    - `probability`: each pair is included with this probability, independently of the others.
    - `key`: a key of `jax.random`, needed if `probability` is below 1.

    **Returns:** `Pairs`.
    """
    num_first = whole_number("num_first", num_first, at_least=0)
    num_second = whole_number("num_second", num_second, at_least=0)
    total = num_first * num_second
    if number_between("probability", probability, 0, 1) == 1:
        cell = np.arange(total)
    elif key is None:
        raise ValueError(
            f"probability {probability!r} needs a key: pass key=jax.random.key(0), for example"
        )
    else:
        cell = _random_subset(generator_of(key), total, probability)
    return _pairs(cell // max(num_second, 1), num_first + cell % max(num_second, 1))


def random_pairs(num_items: int, num_comparisons: int, *, key: PRNGKeyArray) -> Pairs:
    """Independent pairs: all ordered pairs of different items are equally likely.

    **Arguments:**

    - `num_items`: how many items, at least 2.
    - `num_comparisons`: how many pairs.
    - `key`: a key of `jax.random`.

    **Returns:** `Pairs`, which may repeat.
    """
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

    The histogram of degrees falls as degree^−γ: item k (from 0) has the share s ∝ (k+1)^{−1/(γ−1)}.

    **Arguments:**

    - `num_items`: how many items, at least 2.
    - `num_comparisons`: how many pairs.
    - `exponent`: γ, at least 1.1. Social and citation networks have 2 < γ < 3, Zipf's law is γ = 2,
      and ∞ is `random_pairs`.
    - `key`: a key of `jax.random`.

    **Returns:** `Pairs`, which may repeat, most of all those of the first items.
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


def _random_subset(generator: np.random.Generator, total: int, probability: float) -> np.ndarray:
    """Numbers below `total`, ascending, each included with the same probability, independently.

    The gaps between them are geometric (Batagelj and Brandes 2005), so the others cost nothing.
    """
    if number_between("probability", probability, 0, 1) == 0:
        return np.zeros(0, np.int64)
    last, parts = -1, [np.zeros(0, np.int64)]
    while last < total - 1:
        # Four standard deviations more than expected: a second round is rare.
        expected = (total - 1 - last) * probability
        size = int(expected + 4 * np.sqrt(expected)) + 8
        # Gaps beyond the end are equivalent: clip them, since sums must fit int64.
        gaps = np.minimum(generator.geometric(probability, size), total + 1)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    number = np.concatenate(parts)
    return number[number < total]


def _pairs(a: np.ndarray, b: np.ndarray) -> Pairs:
    return Pairs(a.astype(np.int32), b.astype(np.int32))
