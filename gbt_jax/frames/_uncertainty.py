"""Standard deviations, intervals and ranks of all scores: exact or estimated by size."""

from typing import NamedTuple

import jax
import numpy as np

from .._curvature import IterativeCurvature, Sample, curvature
from .._data._groups import sort_by_group
from .._inference._fit import Fit, select_groups
from .._inference._gauge import is_regularised
from .._inference._results import RESULTS
from .._util._limits import ELIMINATION_ITEMS, SMALL_CURVATURE_ITEMS
from .._util._progress import begin_stage
from ..uncertainty._laplace import (
    Intervals,
    group_batches,
    normal_quantile,
    rank_intervals,
    ranks_of_fit,
    ranks_of_sample,
    ranks_of_scores,
    std,
)

# In large groups every draw is a solve, whose work grows with items and comparisons: 2²⁸ of them
# in all take about ten seconds (`benchmarks/large_tables.py`). With fewer than 100 draws the ends
# of intervals of ranks would be arbitrary.
_FEWEST_DRAWS, _MOST_WORK = 100, 2**28


class RankOptions(NamedTuple):
    """Arguments of `rank_intervals`."""

    level: float
    num: int
    min_comparisons: float


class Uncertainty(NamedTuple):
    """One entry per score, in the order of `Fit.scores`; NaN where unknown.

    One entry per group: `rank_draws` is the number of draws behind the intervals of ranks, and
    `std_error` the largest relative standard error of a standard deviation, 0 where all of them
    are exact; NaN where there are none.
    """

    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rank: np.ndarray
    rank_lower: np.ndarray
    rank_upper: np.ndarray
    rank_draws: np.ndarray
    std_error: np.ndarray


class _Part(NamedTuple):
    """Standard deviations and ranks of the scores of consecutive groups."""

    std: np.ndarray
    ranks: tuple
    rank_draws: np.ndarray
    std_error: np.ndarray


def no_uncertainty(fit: Fit, min_comparisons: float) -> Uncertainty:
    """Ranks without standard deviations and intervals."""
    begin_stage("ranks")
    unknown, none = np.full(fit.scores.size, np.nan), np.full(len(fit.groups), np.nan)
    ranks = ranks_of_scores(fit, min_comparisons)
    return Uncertainty(unknown, unknown, unknown, ranks, unknown, unknown, none, none)


def score_uncertainty(fit: Fit, options: RankOptions, seed: int) -> Uncertainty:
    """Standard deviations, intervals and ranks.

    In groups of more than 8,192 items they are estimated, all from the same draws.
    """
    begin_stage("intervals")
    sizes = sort_by_group(fit.comparisons).num_items
    is_large = sizes > SMALL_CURVATURE_ITEMS
    # Consecutive small groups are processed together, each large group alone.
    starts = np.flatnonzero(np.append(True, is_large[1:] | is_large[:-1])[: sizes.size])
    # One key for all: draws of different groups are never combined.
    key = jax.random.key(seed)
    parts = []
    for start, stop in zip(starts, np.append(starts[1:], sizes.size), strict=True):
        part = select_groups(fit, int(start), int(stop))
        make = _large_group if is_large[start] else _small_groups
        parts.append(make(part, options, key))
    deviation, draws, error = (
        _concatenate([getattr(part, name) for part in parts])
        for name in ("std", "rank_draws", "std_error")
    )
    columns = zip(*(part.ranks for part in parts), strict=True)
    rank, lower, upper = (_concatenate(list(column)) for column in columns)
    half = normal_quantile(options.level) * deviation
    scores = np.asarray(fit.scores)
    return Uncertainty(deviation, scores - half, scores + half, rank, lower, upper, draws, error)


def _concatenate(columns: list) -> np.ndarray:
    return np.concatenate([np.zeros(0), *columns])


def _small_groups(fit: Fit, options: RankOptions, key) -> _Part:
    deviations, ranks = [], []
    for part in group_batches(fit):
        made = curvature(part)
        ranks.append(rank_intervals(part, key=key, using=made, **options._asdict()))
        deviations.append(np.sqrt(made.diagonal()))
    is_fitted = np.asarray(fit.result.code) == RESULTS.successful.code
    return _Part(
        std=_concatenate(deviations),
        ranks=tuple(_concatenate(list(column)) for column in zip(*ranks, strict=True)),
        rank_draws=np.where(is_fitted, options.num, np.nan),
        std_error=np.where(is_fitted, 0.0, np.nan),
    )


def _large_group(fit: Fit, options: RankOptions, key) -> _Part:
    """Standard deviations and ranks of a fit with a single group."""
    (label,) = fit
    fit = fit[label]
    if fit.result != RESULTS.successful:
        unknown, none = np.full(fit.scores.size, np.nan), np.full(1, np.nan)
        return _Part(unknown, (unknown,) * 3, none, none)
    if fit.scores.size > ELIMINATION_ITEMS:
        return _estimates(fit, options, key)
    is_known = is_regularised(fit.model, fit.comparisons)
    made = None if is_known else curvature(fit, dense=True)  # one matrix for both
    deviation = np.asarray(std(fit, using=made))
    begin_stage("ranks")
    ranks = ranks_of_fit(fit, key=key, using=made, **options._asdict())
    return _Part(deviation, _ranks_or_nan(fit, ranks), np.full(1, options.num), np.zeros(1))


def _estimates(fit: Fit, options: RankOptions, key) -> _Part:
    """Standard deviations and ranks from the same draws."""
    made = curvature(fit, dense=False)
    assert isinstance(made, IterativeCurvature)
    num = _draws_for(fit, options.num)
    sample: Sample = made.sample(num, key=key)
    begin_stage("ranks")
    variance, error = (np.asarray(x) for x in sample.diagonal)
    level, _, least = options
    ranks = ranks_of_sample(fit, made, sample, level=level, min_comparisons=least)
    # The relative error of a square root is half that of its argument.
    worst = np.max(error / (2 * variance))
    return _Part(np.sqrt(variance), _ranks_or_nan(fit, ranks), np.full(1, num), np.full(1, worst))


def _draws_for(fit: Fit, most: int) -> int:
    """How many draws a large group has."""
    work = fit.scores.size + len(fit.comparisons)
    return min(most, max(_FEWEST_DRAWS, _MOST_WORK // work))


def _ranks_or_nan(fit: Fit, ranks: Intervals | None) -> tuple:
    """Rank intervals; NaN if components have no common scale."""
    return (np.full(fit.scores.size, np.nan),) * 3 if ranks is None else tuple(ranks)
