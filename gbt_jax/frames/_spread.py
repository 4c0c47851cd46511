"""How sure the scores of a table are: exact where a matrix can be had, estimated beyond."""

import functools
from typing import NamedTuple

import jax
import numpy as np

from .._curvature import AbstractCurvature, IterativeCurvature, curvature
from .._fit import RESULTS, Fit
from .._gauge import is_regularised
from .._uncertainty import in_parts, normal_quantile, rank_intervals, std
from .._user_fits import UserFits

_TOGETHER_ITEMS = 256  # of a group, up to which groups are done together
_MATRIX_ITEMS = 8192  # up to which the inverse of the Hessian is made
_FEW_DRAWS = 100  # beyond, where every draw is a solve


class Spread(NamedTuple):
    """One entry per score, in the order of `UserFits.scores`; NaN where a fit failed."""

    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rank: np.ndarray
    rank_lower: np.ndarray
    rank_upper: np.ndarray


def spread_of(fits: UserFits, level: float, num_draws: int, seed: int) -> Spread:
    """Standard deviations, intervals and ranks.

    Those of groups of more than 8,192 items are estimates from a hundred draws.
    """
    sizes = np.diff(fits.comparisons.item_offsets)
    is_large = sizes > _TOGETHER_ITEMS
    # Runs of small groups are done together, and each large group alone.
    starts = np.flatnonzero(np.append(True, is_large[1:] | is_large[:-1])[: sizes.size])
    # One key for all: groups have nothing to do with each other, so neither need their draws.
    key = jax.random.key(seed)
    parts = [np.zeros((4, 0))]
    for start, stop in zip(starts, np.append(starts[1:], sizes.size), strict=True):
        part = fits.part(int(start), int(stop))
        make = _of_large if is_large[start] else _of_small
        parts.append(np.stack(make(part, level, num_draws, key)))
    deviation, *ranks = np.concatenate(parts, axis=1)
    half = normal_quantile(level) * deviation
    return Spread(deviation, fits.scores - half, fits.scores + half, *ranks)


def _of_small(fits: UserFits, level: float, num_draws: int, key) -> list[np.ndarray]:
    parts = [np.zeros((4, 0))]
    for part in in_parts(fits):
        made = curvature(part)
        ranks = rank_intervals(part, level=level, key=key, num=num_draws, using=made)
        parts.append(np.stack([np.sqrt(made.diagonal()), *ranks]))
    return list(np.concatenate(parts, axis=1))


def _of_large(fits: UserFits, level: float, num_draws: int, key) -> list[np.ndarray]:
    """Of a single group."""
    if fits.result_codes[0] != RESULTS.successful.value:
        return [np.full(fits.scores.size, np.nan)] * 4
    fit = fits.for_user(fits.users[0].item())
    ranks = functools.partial(_ranks, fit, level)
    if fits.scores.size <= _MATRIX_ITEMS:
        is_firm = is_regularised(fit.model.prior_std, fit.comparisons.weight)
        made = None if is_firm else curvature(fit, dense=True)  # one matrix for both
        return [np.asarray(std(fit, using=made)), *ranks(key=key, num=num_draws, using=made)]
    made, (key, own) = curvature(fit, dense=False), jax.random.split(key)
    assert isinstance(made, IterativeCurvature)
    estimate = made.estimated_diagonal(_FEW_DRAWS, key=own).value
    return [np.sqrt(estimate), *ranks(key=key, num=min(num_draws, _FEW_DRAWS), using=made)]


def _ranks(fit: Fit, level: float, using: AbstractCurvature | None, **options) -> tuple:
    """Rank intervals; NaN where parts that nothing connects have no common scale."""
    if using is not None and using.levels.is_free.any():
        component = np.asarray(using.levels.component)
        if component.min() != component.max():
            return (np.full(fit.scores.size, np.nan),) * 3
    return rank_intervals(fit, level=level, using=using, **options)
