"""The loss and its gradient in NumPy, for hand-written contestants and for judging.

Φ, Φ' and Φ'' of both laws are within a few units of rounding of the truth, at any t: near 0 from
series whose terms are all positive, far from it from exponentials that cannot overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from protocol import Problem

NEAR = 3.0  # a series of 14 terms below, exponentials from here on
# sinh(x)/x − 1 = x² Σ_k x^2k/(2k + 3)!, and cosh(x) − sinh(x)/x = x² Σ_k (2k + 2) x^2k/(2k + 3)!
SINHC = [1 / factorial(2 * k + 3) for k in range(14)]
SINHC_SLOPE = [(2 * k + 2) / factorial(2 * k + 3) for k in range(14)]


def polynomial(coefficients: list[float], x: np.ndarray) -> np.ndarray:
    """Evaluate a polynomial by Horner's rule, constant first."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def in_pieces(
    t: np.ndarray,
    border: float,
    near: Callable[[np.ndarray], np.ndarray],
    far: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """An even function: `near` of |t| below the border, `far` of |t| beyond."""
    x = np.abs(np.asarray(t, float))
    beyond = x >= border
    if not beyond.any():
        return near(x)
    out = np.empty_like(x)
    out[beyond] = far(x[beyond])
    out[~beyond] = near(x[~beyond])
    return out


def uniform(t: np.ndarray) -> np.ndarray:
    """log(sinh(t)/t)."""
    return in_pieces(
        t,
        NEAR,
        lambda x: np.log1p(x * x * polynomial(SINHC, x * x)),
        lambda x: x - np.log(2 * x) + np.log1p(-np.exp(-2 * x)),
    )


def uniform_mean(t: np.ndarray) -> np.ndarray:
    """coth(t) − 1/t."""

    def near(x: np.ndarray) -> np.ndarray:
        square = x * x
        return x * polynomial(SINHC_SLOPE, square) / (1 + square * polynomial(SINHC, square))

    return np.copysign(in_pieces(t, NEAR, near, lambda x: 1 / np.tanh(x) - 1 / x), t)


def uniform_variance(t: np.ndarray) -> np.ndarray:
    """1/t² − 1/sinh(t)²."""

    def near(x: np.ndarray) -> np.ndarray:
        excess = polynomial(SINHC, x * x)
        sinhc = 1 + x * x * excess
        return excess * (1 + sinhc) / sinhc**2

    def far(x: np.ndarray) -> np.ndarray:
        return (1 / x) ** 2 - 4 * np.exp(-2 * x) / np.expm1(-2 * x) ** 2

    return in_pieces(t, NEAR, near, far)


def bradley_terry(t: np.ndarray) -> np.ndarray:
    """log(cosh(t/2))."""
    return in_pieces(
        t,
        2.0,
        lambda x: -0.5 * np.log1p(-(np.tanh(x / 2) ** 2)),
        lambda x: x / 2 - np.log(2) + np.log1p(np.exp(-x)),
    )


def bradley_terry_mean(t: np.ndarray) -> np.ndarray:
    """tanh(t/2)/2."""
    return 0.5 * np.tanh(0.5 * np.asarray(t, float))


def bradley_terry_variance(t: np.ndarray) -> np.ndarray:
    """1/(2 cosh(t/2))²."""
    tail = np.exp(-np.abs(t))
    return tail / (1 + tail) ** 2


class Law(NamedTuple):
    """Φ and its two derivatives."""

    potential: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    variance: Callable[[np.ndarray], np.ndarray]


LAWS = {
    "uniform": Law(uniform, uniform_mean, uniform_variance),
    "bradley-terry": Law(bradley_terry, bradley_terry_mean, bradley_terry_variance),
}


def loss(problem: Problem, scores: np.ndarray) -> float:
    """L at the scores."""
    t = scores[problem.a] - scores[problem.b]
    prior = scores @ scores / (2 * problem.prior_std**2)
    return float(prior + np.sum(LAWS[problem.law].potential(t) - problem.value * t))


def gradient(problem: Problem, scores: np.ndarray) -> np.ndarray:
    """∇L at the scores."""
    t = scores[problem.a] - scores[problem.b]
    residual = LAWS[problem.law].mean(t) - problem.value
    wins = np.bincount(problem.a, residual, scores.size)
    return scores / problem.prior_std**2 + wins - np.bincount(problem.b, residual, scores.size)
