"""Swiss tournaments: who meets whom depends on the results so far."""

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._data._comparisons import Comparisons
from .._util._arrays import ArrayLike, whole_number
from .._util._random import generator_of
from ..laws import AbstractRootLaw
from ._outcomes import drawn_values, finite_scores


def swiss(
    scores: ArrayLike,
    num_rounds: int,
    law: AbstractRootLaw,
    *,
    key: PRNGKeyArray,
) -> Comparisons:
    """A Swiss tournament: in every round items meet others with about as many points.

    A positive value is a point, zero half a point, and results follow the law at θ_a − θ_b. In
    each round the first in the standing meets the second, the third the fourth, and so on. Items
    with equal points are ordered at random, so the pairs of the first round are random. With an odd
    number of items, the last of those with the fewest byes has a bye, which is worth a point.

    A pair that met before exchanges opponents with the nearest pair in the standing that makes two
    new pairs. Such a pair exists in each of the first n//2 rounds, which thus have no rematch.
    Later, a pair meets again if no exchange avoids it.

    **Arguments:**

    - `scores`: the true scores of at least 2 items.
    - `num_rounds`: how many rounds.
    - `law`: the law of the results.
    - `key`: a key of `jax.random`.

    **Returns:** `Comparisons` in the order of the rounds, n//2 rows for each.
    """
    true = finite_scores(scores)
    if true.size < 2:
        raise ValueError(f"scores must have at least 2 items, not {true.size}")
    num_rounds = whole_number("num_rounds", num_rounds, at_least=1)
    pairing_key, value_key = jax.random.split(key)
    generator = generator_of(pairing_key)
    points, num_out = np.zeros(true.size), np.zeros(true.size, int)
    opponents = np.full((true.size, num_rounds), -1, np.int32)
    rounds = []
    for number in range(num_rounds):
        standing = np.lexsort((generator.random(true.size), -points)).astype(np.int32)
        if true.size % 2:
            out = np.flatnonzero(num_out[standing] == num_out.min())[-1]
            num_out[standing[out]] += 1
            points[standing[out]] += 1
            standing = np.delete(standing, out)
        a, b = _pair_neighbours(standing, opponents[:, :number])
        opponents[a, number], opponents[b, number] = b, a
        round_key = jax.random.fold_in(value_key, number)
        value = drawn_values(law, true[a] - true[b], key=round_key)
        points[a] += 0.5 + 0.5 * np.sign(value)
        points[b] += 0.5 - 0.5 * np.sign(value)
        rounds.append((a, b, value))
    a, b, value = (np.concatenate(column) for column in zip(*rounds, strict=True))
    return Comparisons(a, b, value, num_items=true.size)


def _pair_neighbours(standing: np.ndarray, opponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair neighbours in the standing; pairs that met exchange opponents with a pair nearby.

    After r rounds x and y, who met, have at most 2(r−1) other opponents. A pair (u, v) excludes
    both exchanges, x–u, y–v and x–v, y–u, only if it contains two of these. So at most r−1 pairs
    do, and among any r other pairs one allows an exchange: the nearest are enough.
    """
    a, b = standing[0::2].copy(), standing[1::2].copy()
    num_played = opponents.shape[1]
    for place in np.flatnonzero((opponents[a] == b[:, None]).any(axis=1)):
        x, y = a[place], b[place]
        if y not in opponents[x]:  # settled by an exchange with an earlier pair
            continue
        near = np.arange(max(place - num_played, 0), min(place + num_played + 1, a.size))
        near = near[near != place]
        near = near[np.argsort(np.abs(near - place), kind="stable")]
        u, v = a[near], b[near]
        straight = ~(np.isin(u, opponents[x]) | np.isin(v, opponents[y]))
        crossed = ~(np.isin(v, opponents[x]) | np.isin(u, opponents[y]))
        possible = np.flatnonzero(straight | crossed)
        if possible.size:
            i = possible[0]
            other = (u[i], v[i]) if straight[i] else (v[i], u[i])
            a[place], b[place] = x, other[0]
            a[near[i]], b[near[i]] = y, other[1]
    return a, b
