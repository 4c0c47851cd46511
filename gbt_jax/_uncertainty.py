"""How sure the scores are: the normal law with mean θ* and covariance N (Laplace's).

Near θ* the posterior is exp(−½ (θ − θ*)ᵀ M (θ − θ*)) to second order, which is that of the Gaussian
law exactly. Without a prior only differences are known: standard deviations and intervals of scores
are then those under the constraint that scores of a connected component have mean zero.

Everything here takes a `Fit`, or the `UserFits` of many users: then items are numbered as the
scores are, over all users, ranks are within users, and a user whose fit failed has NaN.
"""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr
from jaxtyping import ArrayLike, Float, PRNGKeyArray

from ._arrays import as_indices, whole_number
from ._curvature import AbstractCurvature, curvature, curvature_of, held_draws, variances
from ._fit import Fit
from ._user_fits import UserFits, check_one_fit

_SCORES_AT_ONCE = 2**15  # of many users, in the work for ranks


class Intervals(NamedTuple):
    """Lower and upper ends, one for each score."""

    lower: Array
    upper: Array


class RankIntervals(NamedTuple):
    """Ranks (1 is best) of the scores, and the ends of their intervals."""

    rank: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def std(fit: Fit | UserFits, *, using: AbstractCurvature | None = None) -> Float[Array, " items"]:
    """The standard deviation of each score, √n_aa.

    Exact, also for graphs too large for a matrix, where it takes a solve for each item; there
    `curvature(fit).estimated_diagonal` is an estimate from a hundred.
    """
    return jnp.sqrt(variances(fit, using))


def covariance(fit: Fit, *, using: AbstractCurvature | None = None) -> Float[Array, "items items"]:
    """N, the covariance of the scores, as a matrix."""
    check_one_fit(fit, "covariance")
    return curvature_of(fit, using).solve(jnp.eye(fit.scores.size, dtype=fit.scores.dtype))


def difference_std(
    fit: Fit | UserFits, a: ArrayLike, b: ArrayLike, *, using: AbstractCurvature | None = None
) -> Float[Array, " pairs"]:
    """The standard deviation of θ_a − θ_b; inf where nothing relates the two."""
    return jnp.sqrt(curvature_of(fit, using).difference_variance(a, b))


def prob_better(
    fit: Fit | UserFits, a: ArrayLike, b: ArrayLike, *, using: AbstractCurvature | None = None
) -> Float[Array, " pairs"]:
    """The probability that θ_a > θ_b; ½ where nothing relates the two, or where a is b."""
    width = difference_std(fit, a, b, using=using)
    ends = (as_indices(name, x, fit.scores.size) for name, x in (("a", a), ("b", b)))
    first, second = np.broadcast_arrays(*ends)
    scores = jnp.asarray(fit.scores)
    gap = scores[first] - scores[second]
    same = jnp.asarray(first == second)
    return ndtr(jnp.where(same, 0, gap / jnp.where(same, 1, width)))


def intervals(
    fit: Fit | UserFits, *, level: float = 0.95, using: AbstractCurvature | None = None
) -> Intervals:
    """Equal-tailed intervals of the scores: θ*_a ± z √n_aa."""
    half = normal_quantile(level) * std(fit, using=using)
    scores = jnp.asarray(fit.scores)
    return Intervals(scores - half, scores + half)


def normal_quantile(level: float) -> float:
    """z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    return statistics.NormalDist().inv_cdf(0.5 * (1 + level))


def posterior_samples(
    fit: Fit | UserFits,
    num: int,
    *,
    key: PRNGKeyArray,
    using: AbstractCurvature | None = None,
) -> Float[Array, "num items"]:
    """Independent draws of all scores."""
    num = whole_number("num", num, at_least=1)
    drawn = held_draws(fit, num, key) if using is None and isinstance(fit, Fit) else None
    if drawn is None:
        drawn = curvature_of(fit, using).draws(num, key=key)
    return jnp.asarray(fit.scores) + jnp.asarray(drawn).T


def rank_intervals(
    fit: Fit | UserFits,
    *,
    level: float = 0.95,
    key: PRNGKeyArray,
    num: int = 1000,
    using: AbstractCurvature | None = None,
) -> RankIntervals:
    """Equal-tailed intervals of the ranks, from `num` draws of all scores.

    Without a prior, components have no common scale: ranks across them are refused (NaN for a
    user who has several). Many users are done in parts, to save memory, unless `using` is given.
    """
    normal_quantile(level)  # refuses what is no level
    num = whole_number("num", num, at_least=1)
    if not isinstance(fit, UserFits):
        check_one_fit(fit, "rank_intervals")
        owner = np.zeros(fit.scores.size, int)
        drawn = held_draws(fit, num, key) if using is None else None
        if drawn is not None:
            return _ranks_of_draws(np.asarray(fit.scores), owner, drawn, level)
        made = curvature_of(fit, using)
        if _incomparable(made, owner).any():
            raise ValueError(
                "without a prior, items that no chain of comparisons connects have no common "
                "scale, and so no ranks: fit the components apart, or give a finite prior_std"
            )
        return _rank_intervals(fit.scores, owner, made, level, num, key)
    if using is not None:
        made = curvature_of(fit, using)
        owner = np.repeat(np.arange(len(fit)), np.diff(fit.comparisons.item_offsets))
        return _rank_intervals(fit.scores, owner, made, level, num, key)
    parts = [RankIntervals(*np.zeros((3, 0)))]
    for part in in_parts(fit):
        key, own = jax.random.split(key)
        ranks = rank_intervals(part, level=level, key=own, num=num, using=curvature(part))
        parts.append(ranks)
    return RankIntervals(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _rank_intervals(
    scores: ArrayLike,
    owner: np.ndarray,
    made: AbstractCurvature,
    level: float,
    num: int,
    key: PRNGKeyArray,
) -> RankIntervals:
    middle = np.asarray(scores)
    # The level of a lone component is common to all, and would only cost digits.
    component = np.asarray(made.levels.component)
    is_lone = np.array_equal(component, np.searchsorted(owner, owner))
    draw = made.reduced_draws if is_lone else made.draws
    found = _ranks_of_draws(middle, owner, np.asarray(draw(num, key=key)), level)
    unknown = np.isnan(middle) | _incomparable(made, owner)
    return RankIntervals(*(np.where(unknown, np.nan, column) for column in found))


def _ranks_of_draws(
    middle: np.ndarray, owner: np.ndarray, drawn: np.ndarray, level: float
) -> RankIntervals:
    """Of scores, and of draws around them, one per column."""
    num = drawn.shape[1]
    scores = np.ascontiguousarray((middle[:, None] + drawn).T)
    ranks = np.sort(_drawn_ranks(scores, owner), axis=0)
    # The smallest rank that so large a share of the draws does not exceed.
    tails = 0.5 * (1 - level), 0.5 * (1 + level)
    lower, upper = (ranks[max(int(np.ceil(num * tail - 1e-9)) - 1, 0)] for tail in tails)
    return RankIntervals(ranks_within(middle, owner), *(x.astype(float) for x in (lower, upper)))


def ranks_within(scores: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """1 for the highest score of each owner, and so on; equal scores have the best of their ranks.

    Owners are numbered from 0, ascending.
    """
    order = np.lexsort((-scores, owner))
    ordered, group = scores[order], owner[order]
    number = np.arange(scores.size)
    starts = np.append(True, group[1:] != group[:-1])[: scores.size]
    is_new = starts | np.append(True, ordered[1:] != ordered[:-1])[: scores.size]
    first = np.maximum.accumulate(np.where(is_new, number, 0))
    ranks = np.empty(scores.size)
    ranks[order] = first - np.maximum.accumulate(np.where(starts, number, 0)) + 1
    return ranks


def _drawn_ranks(drawn: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Ranks of many draws, one along the first axis each; no two scores are equal."""
    finite = np.where(np.isnan(drawn), 0, drawn)
    # One sort for all owners: each has a range of its own, above the last one's.
    span = 2 * np.abs(finite).max(initial=0) + 1
    order = np.argsort(span * owner - finite, axis=1)
    positions = np.empty(order.shape, np.int32)
    np.put_along_axis(positions, order, np.arange(owner.size, dtype=np.int32)[None], axis=1)
    return positions - np.searchsorted(owner, owner) + 1


def _incomparable(made: AbstractCurvature, owner: np.ndarray) -> np.ndarray:
    """Items of owners who have items of several components, some of them without a prior."""
    component, is_free = np.asarray(made.levels.component), np.asarray(made.levels.is_free)
    count = int(owner.max(initial=-1)) + 1
    lowest, highest = np.full(count, component.size), np.full(count, -1)
    np.minimum.at(lowest, owner, component)
    np.maximum.at(highest, owner, component)
    has_free = np.zeros(count, bool)
    has_free[owner[is_free]] = True
    return ((lowest != highest) & has_free)[owner]


def in_parts(fits: UserFits) -> Iterator[UserFits]:
    """Users in groups whose draws fit into memory."""
    offsets, start = fits.comparisons.item_offsets, 0
    while start < len(fits):
        stop = int(np.searchsorted(offsets, offsets[start] + _SCORES_AT_ONCE, "right")) - 1
        stop = max(stop, start + 1)
        yield fits.part(start, stop)
        start = stop
