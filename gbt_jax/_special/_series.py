"""Polynomial approximations near 0, from power series in exact arithmetic.

A truncated power series is most accurate at 0 and least at the end of the interval. A truncated
Chebyshev expansion of the same polynomial is about equally accurate everywhere, and needs little
more than half as many terms for full accuracy (economisation; Lanczos).
"""

import math
from collections.abc import Callable
from fractions import Fraction

import jax.numpy as jnp
from jax import Array

NUM_TERMS = 40  # of a power series whose terms fall by a factor of 6 or more: thirty digits
_SPARE = 8  # the truncation error is below eps/8


def bernoulli(count: int) -> list[Fraction]:
    """B_0 … B_{count−1}, exactly."""
    numbers: list[Fraction] = []
    for m in range(count):
        total = sum((math.comb(m + 1, j) * numbers[j] for j in range(m)), Fraction(0))
        numbers.append(Fraction(int(m == 0)) if m == 0 else -total / (m + 1))
    return numbers


def economise(term: Callable[[int], Fraction], end: Fraction, eps: float) -> list[float]:
    """Coefficients, lowest power first, of a polynomial close to Σ_k term(k) u^k on [0, end].

    The error is at most eps/8 of the value at 0, which must not be small beside other values.
    """
    scaled = [term(k) * end**k for k in range(NUM_TERMS)]
    # (u/end)^k = 2^{1−2k} Σ_j C(2k, k−j) T*_j, with half the term of j = 0; T*_j(s) = T_j(2s − 1).
    chebyshev = [
        sum(
            (2 * a * Fraction(math.comb(2 * k, k - j), 4**k) for k, a in enumerate(scaled[j:], j)),
            Fraction(0),
        )
        for j in range(NUM_TERMS)
    ]
    chebyshev[0] /= 2
    allowed = abs(scaled[0]) * Fraction(eps) / _SPARE
    count, left_out = NUM_TERMS, Fraction(0)
    while count > 1 and left_out + abs(chebyshev[count - 1]) <= allowed:
        left_out += abs(chebyshev[count - 1])
        count -= 1
    totals = [Fraction(0)] * count
    before, this = [Fraction(1)], [Fraction(-1), Fraction(2)]  # T*_0 and T*_1
    for coefficient in chebyshev[:count]:
        for power, c in enumerate(before):
            totals[power] += coefficient * c
        # T*_{j+1}(s) = 2 (2s − 1) T*_j − T*_{j−1}
        following = [-2 * c for c in this] + [Fraction(0)]
        for power, c in enumerate(this):
            following[power + 1] += 4 * c
        for power, c in enumerate(before):
            following[power] -= c
        before, this = this, following
    return [float(c / end**k) for k, c in enumerate(totals)]


def horner(coefficients: list[float], u: Array) -> Array:
    """Σ_k coefficients[k] u^k."""
    value = jnp.full_like(u, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * u + coefficient
    return value
