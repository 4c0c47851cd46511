"""Laplace's approximation of the posterior: the normal law with mean θ* and covariance N.

To second order around θ* the posterior is exp(−½ (θ − θ*)ᵀ M (θ − θ*)); for the Gaussian law this
is exact. Without a prior only differences are identified: standard deviations and intervals of
scores are then those under the constraint that scores of a connected component have mean zero.

With groups, items are numbered as in `Fit.scores`, ranks are within groups, and results of a group
whose fit failed are NaN.
"""

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._curvature import (
    AbstractCurvature,
    IterativeCurvature,
    Sample,
    curvature,
    curvature_of,
    regularised_draws,
    variances,
)
from .._curvature._null_space import NullSpace
from .._data._graph import component_numbers
from .._data._groups import sort_by_group
from .._data._incidence import item_sums_on_host
from .._inference._fit import Fit, check_fit, refuse_groups, select_groups
from .._model import precision_on_host
from .._util._arrays import ArrayLike, as_array, as_indices, whole_number

_SCORES_AT_ONCE = 2**15  # in a batch of groups whose ranks are drawn


class Intervals(NamedTuple):
    """Estimates (of scores, or of ranks), and the ends of their intervals, one for each item."""

    estimate: Array
    lower: Array
    upper: Array


def std(fit: Fit, *, using: AbstractCurvature | None = None) -> Float[Array, " items"]:
    """The standard deviation of each score, √n_aa.

    It is exact, also for graphs too large for a matrix. There it takes a solve for each item;
    `curvature(fit).estimated_diagonal` estimates it from a hundred solves.

    **Arguments:**

    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** one standard deviation per item.
    """
    return as_array(np.sqrt(variances(fit, using)))


def covariance(fit: Fit, *, using: AbstractCurvature | None = None) -> Float[Array, "items items"]:
    """N, the covariance matrix of the scores.

    **Arguments:**

    - `fit`: a fit without groups, or that of one group.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** a matrix of items × items.
    """
    refuse_groups(fit, "covariance", "scores of different groups are independent")
    return curvature_of(fit, using).solve(np.eye(fit.scores.size, dtype=fit.scores.dtype))


def difference_std(
    fit: Fit, a: ArrayLike, b: ArrayLike, *, using: AbstractCurvature | None = None
) -> Float[Array, " pairs"]:
    """The standard deviation of θ_a − θ_b.

    **Arguments:**

    - `a`, `b`: item numbers, which broadcast.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** one per pair; inf where neither comparisons nor a prior relate the two items.
    """
    return as_array(np.sqrt(curvature_of(fit, using).difference_variance(a, b)))


def prob_better(
    fit: Fit, a: ArrayLike, b: ArrayLike, *, using: AbstractCurvature | None = None
) -> Float[Array, " pairs"]:
    """The probability that θ_a > θ_b.

    **Arguments:**

    - `a`, `b`: item numbers, which broadcast.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** one per pair; ½ where neither comparisons nor a prior relate the two items, or
    where a equals b.
    """
    from scipy.special import ndtr  # takes long to import

    width = difference_std(fit, a, b, using=using)
    ends = (as_indices(name, x, fit.scores.size) for name, x in (("a", a), ("b", b)))
    first, second = np.broadcast_arrays(*ends)
    scores, same = np.asarray(fit.scores), first == second
    gap = np.where(same, 0, scores[first] - scores[second])
    return as_array(ndtr(gap / np.where(same, 1, width)).astype(scores.dtype))


def intervals(
    fit: Fit, *, level: float = 0.95, using: AbstractCurvature | None = None
) -> Intervals:
    """Equal-tailed intervals of the scores: θ*_a ± z √n_aa.

    **Arguments:**

    - `level`: the posterior probability of each interval, between 0 and 1.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** `Intervals` with one entry per item.
    """
    half = normal_quantile(level) * np.asarray(std(fit, using=using))
    scores, half = np.asarray(fit.scores), half.astype(fit.scores.dtype)
    return Intervals(*(as_array(x) for x in (scores, scores - half, scores + half)))


def normal_quantile(level: float) -> float:
    """z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    return statistics.NormalDist().inv_cdf(0.5 * (1 + level))


def posterior_samples(
    fit: Fit,
    num: int,
    *,
    key: PRNGKeyArray,
    using: AbstractCurvature | None = None,
) -> Float[Array, "num items"]:
    """Independent draws of all scores from the normal approximation of the posterior.

    **Arguments:**

    - `num`: how many draws.
    - `key`: a key of `jax.random`.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** draws × items.
    """
    num = whole_number("num", num, at_least=1)
    drawn = regularised_draws(fit, num, key) if using is None else None
    if drawn is None:
        drawn = curvature_of(fit, using).draws(num, key=key)
    return as_array(np.asarray(fit.scores) + np.asarray(drawn).T)


def rank_intervals(
    fit: Fit,
    *,
    level: float = 0.95,
    key: PRNGKeyArray,
    num: int = 1000,
    min_comparisons: float = 0.0,
    using: AbstractCurvature | None = None,
) -> Intervals:
    """Ranks of the scores, and equal-tailed intervals of the ranks from `num` draws of all scores.

    Items that have comparisons are ranked against each other, those of a group within the group. An
    item without comparisons (all of its rows have weight 0) has no rank, NaN, and other items are
    not ranked against it: only the prior determines its score. The interval always contains the
    rank; with thousands of items that have few comparisons, it can be wide and lie to one side of
    the rank (see `min_comparisons`).

    **Arguments:**

    - `level`: the posterior probability of each interval, between 0 and 1.
    - `key`: a key of `jax.random`.
    - `num`: how many draws.
    - `min_comparisons`: items whose rows have less weight in total are not ranked either.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** `Intervals` with one entry per item.

    Without a prior, components have no common scale: ranks across them raise an error (NaN for a
    group that has several). Many groups are processed in batches to save memory, unless `using` is
    given.
    """
    normal_quantile(level)  # raises for an invalid level
    num = whole_number("num", num, at_least=1)
    if not 0 <= min_comparisons < np.inf:
        raise ValueError(f"min_comparisons must be a non-negative number, not {min_comparisons}")
    check_fit(fit)
    options: dict[str, Any] = {"level": level, "num": num, "min_comparisons": min_comparisons}
    if fit.comparisons.num_groups is None:
        ranks = ranks_of_fit(fit, key=key, using=using, **options)
        if ranks is None:
            raise ValueError(
                "without a prior, items of different components have no common scale, and so no "
                "ranks: pass a finite prior_std, fit each component by itself, or leave out items "
                "with few comparisons by min_comparisons"
            )
        return ranks
    if using is not None:
        made = curvature_of(fit, using)
        is_ranked = is_ranked_item(fit, min_comparisons)
        return _rank_intervals(fit.scores, _owner(fit), is_ranked, made, level, num, key)
    blank = as_array(np.zeros(0, fit.scores.dtype))
    parts = [Intervals(blank, blank, blank)]
    for part in group_batches(fit):
        key, own = jax.random.split(key)
        parts.append(rank_intervals(part, key=own, using=curvature(part), **options))
    return Intervals(*(as_array(np.concatenate(x)) for x in zip(*parts, strict=True)))


def _owner(fit: Fit) -> np.ndarray:
    """The number of each item's group."""
    group = fit.comparisons.group
    return np.zeros(fit.scores.size, int) if group is None else np.asarray(group)


def ranks_of_fit(
    fit: Fit,
    *,
    level: float,
    key: PRNGKeyArray,
    num: int,
    min_comparisons: float,
    using: AbstractCurvature | None,
) -> Intervals | None:
    """`rank_intervals` of one fit; None if the items to be ranked have no common scale."""
    owner, is_ranked = _owner(fit), is_ranked_item(fit, min_comparisons)
    drawn = regularised_draws(fit, num, key) if using is None else None
    if drawn is not None:
        return _ranks_of_draws(np.asarray(fit.scores), owner, is_ranked, drawn, level)
    made = curvature_of(fit, using)
    if _incomparable_items(made.null_space, owner, is_ranked).any():
        return None
    return _rank_intervals(fit.scores, owner, is_ranked, made, level, num, key)


def ranks_of_sample(
    fit: Fit, made: IterativeCurvature, sample: Sample, *, level: float, min_comparisons: float
) -> Intervals | None:
    """`ranks_of_fit` from given draws."""
    owner, is_ranked = _owner(fit), is_ranked_item(fit, min_comparisons)
    if _incomparable_items(made.null_space, owner, is_ranked).any():
        return None
    is_single = _is_single_component(made, owner, is_ranked)
    drawn = sample.reduced if is_single else sample.reduced + sample.common
    return _ranks_of_draws(np.asarray(fit.scores), owner, is_ranked, drawn, level)


def is_ranked_item(fit: Fit, least: float) -> np.ndarray:
    """A mask of the items whose rows have a positive total weight, of at least `least`."""
    rows = fit.comparisons
    a, b, weight = (np.asarray(x) for x in (rows.a, rows.b, rows.weight))
    total = item_sums_on_host(a, b, weight, rows.num_items)
    # Up to rounding: ten rows of weight 0.1 are one comparison.
    return (total > 0) & (total >= least * (1 - 1e-6))


def _rank_intervals(
    scores: ArrayLike,
    owner: np.ndarray,
    is_ranked: np.ndarray,
    made: AbstractCurvature,
    level: float,
    num: int,
    key: PRNGKeyArray,
) -> Intervals:
    is_known = is_ranked & ~_incomparable_items(made.null_space, owner, is_ranked)
    draw = made.reduced_draws if _is_single_component(made, owner, is_known) else made.draws
    return _ranks_of_draws(
        np.asarray(scores), owner, is_known, np.asarray(draw(num, key=key)), level
    )


def _is_single_component(made: AbstractCurvature, owner: np.ndarray, is_ranked: np.ndarray) -> bool:
    """Whether the ranked items of every owner lie in one component.

    Then they share its level, which does not affect ranks and would only cost digits.
    """
    component, whose = np.asarray(made.null_space.component)[is_ranked], owner[is_ranked]
    return np.array_equal(component, component[np.searchsorted(whose, whose)])


def _ranks_of_draws(
    middle: np.ndarray, owner: np.ndarray, is_ranked: np.ndarray, drawn: np.ndarray, level: float
) -> Intervals:
    """Ranks of the scores `middle`, and their intervals from draws of deviations, one per column.

    They are NaN for items that are not ranked.
    """
    num = drawn.shape[1]
    kept = np.flatnonzero(is_ranked & np.isfinite(middle) & np.isfinite(drawn).all(axis=1))
    middle, owner, size = middle[kept], owner[kept], middle.size
    scores = np.ascontiguousarray((middle[:, None] + drawn[kept]).T)
    ranks = np.sort(_drawn_ranks(scores, owner), axis=0)
    # The smallest rank that at least this share of the draws does not exceed.
    tails = 0.5 * (1 - level), 0.5 * (1 + level)
    lower, upper = (ranks[max(int(np.ceil(num * tail - 1e-9)) - 1, 0)] for tail in tails)
    rank = ranks_within(middle, owner)
    # The rank at the mode can lie outside. In a draw the rank of a is 1 + the
    # number of items b with θ_b > θ_a, whose mean is 1 + Σ_b P(θ_b > θ_a). For the best item every
    # term is positive, although none counts at the mode: with thousands of items of wide
    # posteriors the sum is large, varies little around its mean, and is hardly ever 0.
    ends = rank, np.minimum(lower, rank), np.maximum(upper, rank)
    found = np.full((3, size), np.nan)
    found[:, kept] = ends
    return Intervals(*(as_array(column) for column in found))


def ranks_within(scores: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Ranks within each owner, 1 for the highest score; equal scores have the best of their ranks.

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
    """Ranks of many draws, one draw per row; no two scores of a draw are equal."""
    # One sort for all owners: scores are shifted so that the ranges of owners do not overlap.
    span = 2 * np.abs(drawn).max(initial=0) + 1
    order = np.argsort(span * owner - drawn, axis=1)
    positions = np.empty(order.shape, np.int32)
    np.put_along_axis(positions, order, np.arange(owner.size, dtype=np.int32)[None], axis=1)
    return positions - np.searchsorted(owner, owner) + 1


def ranks_of_scores(fit: Fit, min_comparisons: float) -> np.ndarray:
    """The `estimate` of `rank_intervals`, which needs no curvature; NaN for a group that failed.

    NaN, too, for a group that ranks items of several components without a prior.
    """
    rows, scores = fit.comparisons, np.asarray(fit.scores)
    a, b, weight = (np.asarray(x) for x in (rows.a, rows.b, rows.weight))
    component = component_numbers(a, b, weight, rows.num_items)
    prior = np.bincount(component, precision_on_host(fit.model, rows, scores.dtype))[component]
    owner, is_ranked = _owner(fit), is_ranked_item(fit, min_comparisons) & np.isfinite(scores)
    kept = is_ranked & ~_mask_incomparable(component, prior == 0, owner, is_ranked)
    ranks = np.full(scores.size, np.nan)
    ranks[kept] = ranks_within(scores[kept], owner[kept])
    return ranks


def _incomparable_items(
    null_space: NullSpace, owner: np.ndarray, is_ranked: np.ndarray
) -> np.ndarray:
    """A mask of the items of owners that rank several components, some of them without a prior."""
    component, is_free = np.asarray(null_space.component), np.asarray(null_space.is_free)
    return _mask_incomparable(component, is_free, owner, is_ranked)


def _mask_incomparable(
    component: np.ndarray, is_free: np.ndarray, owner: np.ndarray, is_ranked: np.ndarray
) -> np.ndarray:
    count = int(owner.max(initial=-1)) + 1
    lowest, highest = np.full(count, component.size), np.full(count, -1)
    np.minimum.at(lowest, owner[is_ranked], component[is_ranked])
    np.maximum.at(highest, owner[is_ranked], component[is_ranked])
    has_free = np.zeros(count, bool)
    has_free[owner[is_ranked & is_free]] = True
    return ((lowest < highest) & has_free)[owner]


def group_batches(fit: Fit) -> Iterator[Fit]:
    """Split a fit into batches of groups whose draws fit into memory."""
    offsets, start = sort_by_group(fit.comparisons).item_offsets, 0
    while start < offsets.size - 1:
        stop = int(np.searchsorted(offsets, offsets[start] + _SCORES_AT_ONCE, "right")) - 1
        stop = max(stop, start + 1)
        yield select_groups(fit, start, stop)
        start = stop
