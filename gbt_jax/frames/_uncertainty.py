"""Standard deviations, intervals and ranks of all scores: exact or estimated by size."""

from typing import NamedTuple

import jax
import numpy as np

from .._curvature import AbstractCurvature, IterativeCurvature, curvature
from .._data._groups import sort_by_group
from .._inference._fit import Fit, select_groups
from .._inference._gauge import is_regularised
from .._inference._results import RESULTS
from .._util._limits import ELIMINATION_ITEMS, SMALL_CURVATURE_ITEMS
from ..uncertainty._laplace import in_parts, normal_quantile, rank_intervals, ranks_of_fit, std

_FEW_DRAWS = 100  # for large groups, where every draw is a solve


class RankOptions(NamedTuple):
    """Arguments of `rank_intervals`."""

    level: float
    num: int
    min_comparisons: float


class Uncertainty(NamedTuple):
    """One entry per score, in the order of `Fit.scores`; NaN where unknown."""

    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rank: np.ndarray
    rank_lower: np.ndarray
    rank_upper: np.ndarray


def score_uncertainty(fit: Fit, options: RankOptions, seed: int) -> Uncertainty:
    """Standard deviations, intervals and ranks.

    For groups of more than 8,192 items they are estimated from 100 draws.
    """
    sizes = sort_by_group(fit.comparisons).num_items
    is_large = sizes > SMALL_CURVATURE_ITEMS
    # Consecutive small groups are processed together, each large group alone.
    starts = np.flatnonzero(np.append(True, is_large[1:] | is_large[:-1])[: sizes.size])
    # One key for all: draws of different groups are never combined.
    key = jax.random.key(seed)
    parts = [np.zeros((4, 0))]
    for start, stop in zip(starts, np.append(starts[1:], sizes.size), strict=True):
        part = select_groups(fit, int(start), int(stop))
        make = _large_group if is_large[start] else _small_groups
        parts.append(np.stack(make(part, options, key)))
    deviation, *ranks = np.concatenate(parts, axis=1)
    half = normal_quantile(options.level) * deviation
    scores = np.asarray(fit.scores)
    return Uncertainty(deviation, scores - half, scores + half, *ranks)


def _small_groups(fit: Fit, options: RankOptions, key) -> list[np.ndarray]:
    parts = [np.zeros((4, 0))]
    for part in in_parts(fit):
        made = curvature(part)
        ranks = rank_intervals(part, key=key, using=made, **options._asdict())
        parts.append(np.stack([np.sqrt(made.diagonal()), *ranks]))
    return list(np.concatenate(parts, axis=1))


def _large_group(fit: Fit, options: RankOptions, key) -> list[np.ndarray]:
    """The same for a fit with a single group."""
    (label,) = fit
    fit = fit[label]
    if fit.result != RESULTS.successful:
        return [np.full(fit.scores.size, np.nan)] * 4
    if fit.scores.size <= ELIMINATION_ITEMS:
        is_known = is_regularised(fit.model, fit.comparisons)
        made = None if is_known else curvature(fit, dense=True)  # one matrix for both
        return [np.asarray(std(fit, using=made)), *_ranks(fit, options, key, made)]
    made, (key, own) = curvature(fit, dense=False), jax.random.split(key)
    assert isinstance(made, IterativeCurvature)
    estimate = made.estimated_diagonal(_FEW_DRAWS, key=own).value
    few = options._replace(num=min(options.num, _FEW_DRAWS))
    return [np.sqrt(estimate), *_ranks(fit, few, key, made)]


def _ranks(fit: Fit, options: RankOptions, key, using: AbstractCurvature | None) -> tuple:
    """Rank intervals; NaN if components have no common scale."""
    ranks = ranks_of_fit(fit, key=key, using=using, **options._asdict())
    return (np.full(fit.scores.size, np.nan),) * 3 if ranks is None else ranks
