"""Convergence diagnostics of chains: R-hat and the effective sample size."""

import numpy as np


def diagnostics(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R-hat, bulk effective sample size) of each item, from chains × draws × items.

    Vehtari et al. (2021): chains are split in halves, and draws are replaced by the normal scores
    of their ranks. R-hat is the larger of that of the draws and that of their distances from the
    median.
    """
    half = scores.shape[1] // 2
    halves = np.concatenate([scores[:, :half], scores[:, half : 2 * half]]).astype(float)
    ranked = _normal_scores(halves)
    folded = _normal_scores(np.abs(halves - np.median(halves, axis=(0, 1))))
    r_hat = np.maximum(_scale_reduction(ranked), _scale_reduction(folded))
    return r_hat, _effective_sample_size(ranked)


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    from scipy.special import ndtri  # these take long to import
    from scipy.stats import rankdata

    pooled = draws.reshape(-1, draws.shape[-1])
    ranks = rankdata(pooled, axis=0).reshape(draws.shape)
    return ndtri((ranks - 3 / 8) / (pooled.shape[0] + 1 / 4))


def _scale_reduction(draws: np.ndarray) -> np.ndarray:
    """√(V/W): V is the variance of draws estimated from all chains, W that within chains."""
    num = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((num - 1) / num + between / within)


def _effective_sample_size(draws: np.ndarray) -> np.ndarray:
    """The number of draws over 1 + 2 Σ ρ_lag, truncated by Geyer's initial monotone sequence."""
    chains, num = draws.shape[:2]
    centred = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * num, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, 2 * num, axis=1)[:, :num].mean(axis=0) / num
    within = covariance[0] * num / (num - 1)
    whole = covariance[0] + draws.mean(axis=1).var(axis=0, ddof=1)
    correlation = 1 - (within - covariance) / whole
    correlation[0] = 1
    even, odd = correlation[: num - num % 2 : 2], correlation[1::2]
    pairs = np.minimum.accumulate(even + odd, axis=0)
    is_kept = np.logical_and.accumulate(even + odd > 0, axis=0)
    # The lag after the last kept pair counts once, if it is positive.
    following = np.take_along_axis(
        np.vstack([even, np.zeros_like(even[:1])]), is_kept.sum(axis=0)[None], axis=0
    )[0]
    time = 2 * np.sum(pairs, axis=0, where=is_kept) - 1 + np.maximum(following, 0)
    # Antithetic chains can beat N independent draws, but estimates above N log10 N are unreliable.
    time = np.maximum(time, 1 / np.log10(chains * num))
    return np.where(np.isnan(within), np.nan, chains * num / time)
