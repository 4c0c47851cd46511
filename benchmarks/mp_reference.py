"""High-precision reference values of cumulant-generating functions, independent of gbt_jax.

``cumulants`` returns Φ, Φ', Φ'', Φ''' of a root law at one point with a relative error below
1e-40, computed with mpmath. ``textbook`` returns the usual float64 formulas, so that a benchmark
can show their errors. Run the file to check every law against independent computations.

Compare with the reference inside ``mp.workdps(60)``: at mpmath's default precision a difference
of two numbers is itself rounded to 53 bits.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray
from scipy import special

mp: Any = mpmath.mp  # its functions are created at run time, so type checkers do not see them

Cumulants = tuple[mpf, mpf, mpf, mpf]
FloatArray = NDArray[np.float64]
FloatFunction = Callable[[Any], FloatArray]

_RESULT_DIGITS = 60
_BASE_BITS = 270  # 81 digits: 40 promised, 40 for the sign changes of Φ''' and for rounding


def cumulants(law: str, parameters: tuple, t: float) -> Cumulants:
    """Φ(t), Φ'(t), Φ''(t), Φ'''(t), each with a relative error below 1e-40."""
    values = _evaluate(law, parameters, mpf(t))
    with mp.workdps(_RESULT_DIGITS):
        phi, first, second, third = (+value for value in values)
    return phi, first, second, third


# ------------------------------------------------------------------------------------ precision


def _working_bits(law: str, parameters: tuple, t: mpf) -> int:
    """Working precision in bits that makes up for cancellation in the formulas of this law.

    This is the only place where precision is chosen. There are three sources of cancellation:

    * Small arguments. The formulas of Uniform and KNary subtract terms in t^-3 to leave one in t
      (four powers), after 1 - exp(-2t) has lost another: five powers of t. The sums of Finite
      lose at most three powers of t times the smallest support point.
    * Large arguments. Where moments, or the Riccati equation, give a variance like t^-2 and a
      third cumulant like t^-3 (Beta, Density), three powers of t.
    * Near-Gaussian or near-binary Beta laws: at most three powers of β, or one of 1/β.

    Exponential tails need no extra bits, because no formula below subtracts there: two-point
    laws are written with cosh and sinh, KNary with csch², and Finite takes its moments about its
    most probable point. Nor do the positive power series of Beta near t = 0.
    """
    powers_of_small, powers_of_large, extra = 0, 0, 0
    unit = mpf(1)
    if law == "Uniform":
        powers_of_small = 5
    elif law == "KNary":
        powers_of_small, unit = 5, mpf(1) / (parameters[0] - 1)
    elif law == "Finite":
        powers_of_small = 3
        unit = min((abs(mpf(value)) for value in parameters[0] if value != 0), default=unit)
    elif law == "Beta":
        powers_of_large = 3
        magnitude = mp.mag(mpf(parameters[0]))
        extra = max(3 * magnitude, -magnitude, 0)
    elif law == "Density":
        powers_of_large, unit = 3, mpf(parameters[1])
    magnitude = mp.mag(t * unit) if t else 0
    bits = _BASE_BITS + extra + max(-powers_of_small * magnitude, powers_of_large * magnitude, 0)
    return 32 * math.ceil(bits / 32)  # rounded up, so that caches per precision are reused


def _evaluate(law: str, parameters: tuple, t: mpf, effort: int = 1) -> Cumulants:
    """Cumulants at an exact t, with ``effort`` times the precision that should be enough."""
    exact = effort * _BASE_BITS + 2 * t.man.bit_length()  # enough for products of exact inputs
    with mp.workprec(exact):
        if law == "Scaled":
            inner, inner_parameters, scale = parameters
            factor = mpf(scale)
            values = _evaluate(inner, inner_parameters, factor * t, effort)
            return _rescale(values, mpf(1), factor)
        if law == "Sum":
            one = _evaluate(parameters[0], parameters[1], t, effort)
            two = _evaluate(parameters[2], parameters[3], t, effort)
            return (one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3])
    with mp.workprec(effort * _working_bits(law, parameters, t)):
        if law == "Finite":
            values, probabilities = parameters
            return _finite(values, probabilities, t)
        phi, first, second, third = _LAWS[law](*parameters, abs(t))
        return (phi, first, second, third) if t >= 0 else (phi, -first, second, -third)


def _rescale(values: Cumulants, weight: mpf, factor: mpf) -> Cumulants:
    """Cumulants of weight Φ(factor t) from those of Φ at factor t."""
    phi, first, second, third = values
    return (
        weight * phi,
        weight * factor * first,
        weight * factor**2 * second,
        weight * factor**3 * third,
    )


# -------------------------------------------------------------------- laws, all of them at t ≥ 0


def _log_cosh(x: mpf) -> mpf:
    return mp.log1p(2 * mp.sinh(x / 2) ** 2)


def _binary(t: mpf) -> Cumulants:
    """Masses ½ at ±1: log cosh t."""
    tanh, sech2 = mp.tanh(t), 1 / mp.cosh(t) ** 2
    return _log_cosh(t), tanh, sech2, -2 * tanh * sech2


def _bradley_terry(t: mpf) -> Cumulants:
    """Masses ½ at ±½: log cosh(t/2)."""
    return _rescale(_binary(t / 2), mpf(1), mpf(1) / 2)


def _binomial(n: int, t: mpf) -> Cumulants:
    """Mean of n signs: n log cosh(t/n)."""
    return _rescale(_binary(t / n), mpf(n), mpf(1) / n)


def _davidson(nu: float, t: mpf) -> Cumulants:
    """Masses 1, ν, 1 at -1, 0, 1 over their sum: log((ν + 2 cosh t)/(ν + 2))."""
    tie = mpf(nu)
    sinh, cosh = mp.sinh(t), mp.cosh(t)
    total = tie + 2 * cosh
    return (
        mp.log1p(4 * mp.sinh(t / 2) ** 2 / (tie + 2)),
        2 * sinh / total,
        (2 * tie * cosh + 4) / total**2,
        2 * sinh * (tie**2 - 2 * tie * cosh - 8) / total**3,
    )


def _coth_and_csch2(q: mpf) -> tuple[mpf, mpf]:
    """coth x and 1/sinh² x from q = exp(-2x)."""
    return (1 + q) / (1 - q), 4 * q / (1 - q) ** 2


def _uniform(t: mpf) -> Cumulants:
    """Uniform density on [-1, 1]: log(sinh t / t)."""
    if t == 0:
        return mpf(0), mpf(0), mpf(1) / 3, mpf(0)
    q = mp.exp(-2 * t)
    coth, csch2 = _coth_and_csch2(q)
    return (
        t + mp.log((1 - q) / (2 * t)),
        coth - 1 / t,
        1 / t**2 - csch2,
        2 * coth * csch2 - 2 / t**3,
    )


def _k_nary(k: int, t: mpf) -> Cumulants:
    """K evenly spaced points of [-1, 1]: log(sinh Kx / (K sinh x)) with x = t/(K - 1)."""
    if t == 0:
        return mpf(0), mpf(0), mpf(k + 1) / (3 * (k - 1)), mpf(0)
    q = mp.exp(-2 * t / (k - 1))
    coth, csch2 = _coth_and_csch2(q)
    coth_k, csch2_k = _coth_and_csch2(q**k)
    return (
        t + mp.log((1 - q**k) / (k * (1 - q))),
        (k * coth_k - coth) / (k - 1),
        (csch2 - k**2 * csch2_k) / (k - 1) ** 2,
        2 * (k**3 * coth_k * csch2_k - coth * csch2) / (k - 1) ** 3,
    )


def _finite(values: tuple, probabilities: tuple, t: mpf) -> Cumulants:
    """Log of a sum of exponentials, for t of either sign.

    The central moments are taken about a point c. About the most probable point under the tilted
    law, E[(r-c)²] is at most (number of points) times the variance: nothing cancels, even when
    nearly all the mass is there. Near t = 0 the centre of symmetry is used instead, so that what
    should be exactly zero at t = 0 is.
    """
    points = [mpf(value) for value in values]
    masses = [mpf(probability) for probability in probabilities]
    weights = [mass * mp.exp(t * point) for point, mass in zip(points, masses, strict=True)]
    total = mp.fsum(weights)
    centre = mpf(0)
    if abs(t) * max(abs(point) for point in points) > 1:
        centre = max(zip(weights, points, strict=True))[1]
    gaps = [point - centre for point in points]
    one, two, three = (
        mp.fsum(weight * gap**power for weight, gap in zip(weights, gaps, strict=True)) / total
        for power in (1, 2, 3)
    )
    return (
        mp.log(total / mp.fsum(masses)),
        mp.fdot(weights, points) / total,
        two - one**2,
        three - 3 * one * two + 2 * one**3,
    )


def _gaussian(std: float, t: mpf) -> Cumulants:
    """Normal law: σ² t²/2."""
    variance = mpf(std) ** 2
    return variance * t**2 / 2, variance * t, variance, mpf(0)


def _skellam(rate: float, t: mpf) -> Cumulants:
    """Difference of two Poisson counts of mean λ/2: λ(cosh t - 1)."""
    lam = mpf(rate)
    odd, even = lam * mp.sinh(t), lam * mp.cosh(t)
    return 2 * lam * mp.sinh(t / 2) ** 2, odd, even, odd


def _symmetrized_poisson(rate: float, t: mpf) -> Cumulants:
    """A Poisson count of mean λ with a random sign: λ(cosh t - 1) + log cosh(λ sinh t)."""
    phi, odd, even, _ = _skellam(rate, t)
    if odd < 10**4:
        log_cosh, tanh, sech2, _ = _binary(odd)
    else:  # the other terms are below exp(-20000), and exp(odd) may be too large even for mpmath
        log_cosh, tanh, sech2 = odd - mp.log(2), mpf(1), mpf(0)
    return (
        phi + log_cosh,
        odd + even * tanh,
        even + odd * tanh + even**2 * sech2,
        odd + even * tanh + 3 * even * odd * sech2 - 2 * even**3 * sech2 * tanh,
    )


def _from_moments(excess: mpf, m1: mpf, m2: mpf, m3: mpf) -> Cumulants:
    """Cumulants from M - 1, M', M'', M''', with M = E[exp(t r)]."""
    total = 1 + excess
    first, second, third = m1 / total, m2 / total, m3 / total
    return (
        mp.log1p(excess),
        first,
        second - first**2,
        third - 3 * first * second + 2 * first**3,
    )


def _beta(beta: float, t: mpf) -> Cumulants:
    """Density ∝ (1 - r²)^(β-1) on [-1, 1]: log ₀F₁(; β+½; t²/4)."""
    shape = mpf(beta)
    if t == 0:
        return mpf(0), mpf(0), 1 / (2 * shape + 1), mpf(0)
    if 2 * t > mp.prec and 20 * t > shape**2:  # exp(-2t) is negligible, and signs cancel little
        return _beta_far(shape, t)
    return _beta_near(shape, t)


def _beta_near(shape: mpf, t: mpf) -> Cumulants:
    """M = Σ x^k / (k! (β+½)_k), x = t²/4, and its derivatives: sums of positive terms.

    The terms from k = 2 on are summed over the second one, as integers over 2^bits.
    """
    bits = mp.prec
    x = t**2 / 4
    one = x / (shape + mpf(1) / 2)
    two = one * x / (2 * (shape + mpf(3) / 2))
    x_int = int(mp.ldexp(x, bits))
    step = int(mp.ldexp(mpf(1), bits))
    denominator = int(mp.ldexp(shape + mpf(3) / 2, bits))  # β - ½ + k at k = 2
    sum0 = sum1 = sum2 = sum3 = 0
    k, term = 2, step
    while term:
        once = 2 * k * term
        twice = (2 * k - 1) * once
        sum0 += term
        sum1 += once
        sum2 += twice
        sum3 += (2 * k - 2) * twice
        k += 1
        denominator += step
        term = term * x_int // (k * denominator)
    scale = mp.ldexp(two, -bits)
    return _from_moments(
        one + scale * sum0,
        (2 * one + scale * sum1) / t,
        (2 * one + scale * sum2) / t**2,
        scale * sum3 / t**3,
    )


def _beta_far(shape: mpf, t: mpf) -> Cumulants:
    """Hankel's expansion of the Bessel functions, and the Riccati equation of their ratio."""
    half = mpf(1) / 2
    series = _hankel(shape - half, t)
    phi = (
        t
        + mp.log(series)
        - mp.log(2 * mp.pi * t) / 2
        + (shape - half) * mp.log(2 / t)
        + _log_gamma(shape + half, mp.prec)
    )
    first = _hankel(shape + half, t) / series
    second = 1 - 2 * shape / t * first - first**2
    third = 2 * shape / t**2 * first - 2 * shape / t * second - 2 * first * second
    return phi, first, second, third


def _hankel(order: mpf, t: mpf) -> mpf:
    """S such that I_order(t) = exp(t) S / sqrt(2πt), up to a relative exp(-2t)."""
    square = 4 * order**2
    total = term = mpf(1)
    k = 0
    while abs(term) > mp.eps * abs(total):
        k += 1
        if k > 2 * t:
            raise ArithmeticError("Hankel's expansion does not reach the working precision")
        term *= ((2 * k - 1) ** 2 - square) / (8 * k * t)
        total += term
    return total


@lru_cache(maxsize=256)
def _log_gamma(x: mpf, _bits: int) -> mpf:
    return mp.loggamma(x)


def _density(log_density: Callable[[mpf], mpf], max_value: float, t: mpf) -> Cumulants:
    """Any even density on [-R, R], by tanh-sinh quadrature of its moments over [0, R].

    mp.quad would do away from the edges, but its nodes are rounded next to them, where
    (1 - r²)^(β-1) is singular and where all the mass is at large t. The step is halved until all
    four results settle.
    """
    sums = [mpf(0)] * 5
    previous: Cumulants | None = None
    for level in range(3, 13):
        for r, mass in _density_nodes(log_density, max_value, level, mp.prec):
            half = mp.sinh(t * r / 2)
            half2 = half**2
            excess = 2 * half2 * mass
            cosh = mass + excess
            sinh = 2 * half * mp.sqrt(1 + half2) * mass
            sums[0] += mass
            sums[1] += excess
            sums[2] += r * sinh
            sums[3] += r**2 * cosh
            sums[4] += r**3 * sinh
        result = _from_moments(*(value / sums[0] for value in sums[1:]))
        if previous is not None and _disagreement(previous, result) < mpf(10) ** -42:
            return result
        previous = result
    raise ArithmeticError("the quadrature of this density does not converge")


@lru_cache(maxsize=64)
def _density_nodes(
    log_density: Callable[[mpf], mpf], max_value: float, level: int, bits: int
) -> list[tuple[mpf, mpf]]:
    """Nodes r and masses that this level adds, for r = R/(1 + exp(-π sinh s)), s = j/2^level."""
    edge = mpf(max_value)
    nodes = []
    with mp.workprec(bits):
        for side in (1, -1):
            largest = mpf(0)
            j = 0 if side == 1 else 1
            while True:
                if level == 3 or j % 2:
                    s = mpf(side * j) / 2**level
                    ratio = mp.exp(mp.pi * mp.sinh(s))
                    y, gap = ratio / (1 + ratio), 1 / (1 + ratio)
                    with mp.workprec(bits - mp.mag(gap)):  # so that R - r is right to all bits
                        r = edge * (1 - gap) if side == 1 else edge * y
                        density = mp.exp(log_density(r))
                    jacobian = mp.cosh(s) * y * gap
                    mass = jacobian * density
                    nodes.append((r, mass))
                    largest = max(largest, mass)
                    if jacobian < mp.eps and mass <= mp.eps * largest:
                        break
                j += 1
    return nodes


_LAWS: dict[str, Callable[..., Cumulants]] = {
    "Binary": _binary,
    "BradleyTerry": _bradley_terry,
    "KNary": _k_nary,
    "Davidson": _davidson,
    "Binomial": _binomial,
    "Uniform": _uniform,
    "Beta": _beta,
    "Gaussian": _gaussian,
    "Skellam": _skellam,
    "SymmetrizedPoisson": _symmetrized_poisson,
    "Density": _density,
}


# --------------------------------------------------------------------- textbook float64 formulas


def textbook(law: str, parameters: tuple) -> tuple[FloatFunction, FloatFunction, FloatFunction]:
    """Φ, Φ', Φ'' by the usual formulas in float64, with their overflows and cancellations."""
    functions = _TEXTBOOK[law](*parameters)
    phi, first, second = (_quiet(function) for function in functions)
    return phi, first, second


def _quiet(function: Callable[[FloatArray], FloatArray]) -> FloatFunction:
    """The function on float64 arrays, without numpy's warnings."""

    def quiet(t: Any) -> FloatArray:
        with np.errstate(all="ignore"):
            return function(np.asarray(t, dtype=np.float64))

    return quiet


_Formulas = tuple[
    Callable[[FloatArray], Any],
    Callable[[FloatArray], Any],
    Callable[[FloatArray], Any],
]


def _textbook_binary() -> _Formulas:
    return (
        lambda t: np.log(np.cosh(t)),
        lambda t: np.tanh(t),
        lambda t: 1 - np.tanh(t) ** 2,
    )


def _textbook_bradley_terry() -> _Formulas:
    return (
        lambda t: np.log(np.cosh(t / 2)),
        lambda t: np.tanh(t / 2) / 2,
        lambda t: (1 - np.tanh(t / 2) ** 2) / 4,
    )


def _textbook_k_nary(k: int) -> _Formulas:
    m = k - 1
    return (
        lambda t: np.log(np.sinh(k * t / m) / (k * np.sinh(t / m))),
        lambda t: (k / np.tanh(k * t / m) - 1 / np.tanh(t / m)) / m,
        lambda t: (1 / np.sinh(t / m) ** 2 - k**2 / np.sinh(k * t / m) ** 2) / m**2,
    )


def _textbook_davidson(nu: float) -> _Formulas:
    def first(t: FloatArray) -> FloatArray:
        return 2 * np.sinh(t) / (nu + 2 * np.cosh(t))

    return (
        lambda t: np.log((nu + 2 * np.cosh(t)) / (nu + 2)),
        first,
        lambda t: 2 * np.cosh(t) / (nu + 2 * np.cosh(t)) - first(t) ** 2,
    )


def _textbook_binomial(n: int) -> _Formulas:
    return (
        lambda t: n * np.log(np.cosh(t / n)),
        lambda t: np.tanh(t / n),
        lambda t: (1 - np.tanh(t / n) ** 2) / n,
    )


def _textbook_finite(values: tuple, probabilities: tuple) -> _Formulas:
    points = np.asarray(values, dtype=np.float64)
    masses = np.asarray(probabilities, dtype=np.float64)
    masses = masses / masses.sum()

    def mean(t: FloatArray, power: int) -> FloatArray:
        weights = special.softmax(t[..., None] * points + np.log(masses), axis=-1)
        return (weights * points**power).sum(axis=-1)

    return (
        lambda t: special.logsumexp(t[..., None] * points, axis=-1, b=masses),
        lambda t: mean(t, 1),
        lambda t: mean(t, 2) - mean(t, 1) ** 2,
    )


def _textbook_uniform() -> _Formulas:
    return (
        lambda t: np.log(np.sinh(t) / t),
        lambda t: 1 / np.tanh(t) - 1 / t,
        lambda t: 1 / t**2 - 1 / np.sinh(t) ** 2,
    )


def _textbook_beta(beta: float) -> _Formulas:
    def phi(t: FloatArray) -> FloatArray:
        x = np.abs(t)
        log_bessel = np.log(special.ive(beta - 0.5, x)) + x
        return special.gammaln(beta + 0.5) + (beta - 0.5) * np.log(2 / x) + log_bessel

    def first(t: FloatArray) -> FloatArray:
        x = np.abs(t)
        return np.sign(t) * special.ive(beta + 0.5, x) / special.ive(beta - 0.5, x)

    return phi, first, lambda t: 1 - 2 * beta / t * first(t) - first(t) ** 2


def _textbook_gaussian(std: float) -> _Formulas:
    return (
        lambda t: std**2 * t**2 / 2,
        lambda t: std**2 * t,
        lambda t: np.full_like(t, std**2),
    )


def _textbook_skellam(rate: float) -> _Formulas:
    return (
        lambda t: rate * (np.cosh(t) - 1),
        lambda t: rate * np.sinh(t),
        lambda t: rate * np.cosh(t),
    )


def _textbook_symmetrized_poisson(rate: float) -> _Formulas:
    def second(t: FloatArray) -> FloatArray:
        tanh = np.tanh(rate * np.sinh(t))
        skellam = rate * np.cosh(t) + rate * np.sinh(t) * tanh
        return skellam + (rate * np.cosh(t)) ** 2 * (1 - tanh**2)

    return (
        lambda t: rate * (np.cosh(t) - 1) + np.log(np.cosh(rate * np.sinh(t))),
        lambda t: rate * np.sinh(t) + rate * np.cosh(t) * np.tanh(rate * np.sinh(t)),
        second,
    )


_TEXTBOOK: dict[str, Callable[..., _Formulas]] = {
    "Binary": _textbook_binary,
    "BradleyTerry": _textbook_bradley_terry,
    "KNary": _textbook_k_nary,
    "Davidson": _textbook_davidson,
    "Binomial": _textbook_binomial,
    "Finite": _textbook_finite,
    "Uniform": _textbook_uniform,
    "Beta": _textbook_beta,
    "Gaussian": _textbook_gaussian,
    "Skellam": _textbook_skellam,
    "SymmetrizedPoisson": _textbook_symmetrized_poisson,
}


# ------------------------------------------------------------------------------------ self-check


def _disagreement(one: Cumulants, two: Cumulants) -> mpf:
    """Largest relative difference, not counting values that are zero in float64."""
    worst = mpf(0)
    with mp.workprec(max(mp.prec, _BASE_BITS)):
        for a, b in zip(one, two, strict=True):
            size = max(abs(a), abs(b))
            if size > mpf("1e-330"):
                worst = max(worst, abs(a - b) / size)
    return worst


def _atoms(law: str, parameters: tuple) -> list[tuple[mpf, mpf]]:
    """Points and masses (up to a factor) of a discrete law, straight from its definition."""
    if law == "Binary":
        return [(mpf(-1), mpf(1)), (mpf(1), mpf(1))]
    if law == "BradleyTerry":
        return [(mpf(-1) / 2, mpf(1)), (mpf(1) / 2, mpf(1))]
    if law == "KNary":
        (k,) = parameters
        return [(mpf(2 * i - k + 1) / (k - 1), mpf(1)) for i in range(k)]
    if law == "Davidson":
        return [(mpf(-1), mpf(1)), (mpf(0), mpf(parameters[0])), (mpf(1), mpf(1))]
    if law == "Binomial":
        (n,) = parameters
        return [(mpf(2 * i - n) / n, mpf(math.comb(n, i))) for i in range(n + 1)]
    if law == "Finite":
        return [(mpf(v), mpf(p)) for v, p in zip(*parameters, strict=True)]
    if law == "Skellam":  # the convolution of two Poisson laws
        lam = mpf(parameters[0])
        masses = [mp.exp(-lam / 2) * (lam / 2) ** n / mp.factorial(n) for n in range(500)]
        return [
            (mpf(d), mp.fdot(masses[max(d, 0) : 500 + min(d, 0)], masses[max(-d, 0) :]))
            for d in range(-250, 251)
        ]
    if law == "SymmetrizedPoisson":
        lam = mpf(parameters[0])
        masses = [mp.exp(-lam) * lam**n / mp.factorial(n) for n in range(500)]
        return [(mpf(s * n), masses[n]) for n in range(500) for s in (-1, 1)]
    return []


_SLOW_POINTS = (0.01, 1.0, 30.0)


def _by_definition(law: str, parameters: tuple, t: float) -> Cumulants | None:
    """Cumulants from raw moments, summed or integrated by brute force; None where too slow."""
    if law in ("Scaled", "Sum"):
        return _compound_by_definition(law, parameters, t)
    if law in ("Gaussian", "Uniform", "Beta", "Density"):
        return _by_quadrature(law, parameters, t) if t in _SLOW_POINTS else None
    infinite = law in ("Skellam", "SymmetrizedPoisson")
    if infinite and t not in (0.01, 1.0):
        return None
    small = max(0.0, -math.log10(abs(t))) if t else 0.0
    digits = int(120 + 5 * small)
    atoms = _atoms(law, parameters)
    reach = float(abs(t) * 2 * max(point for point, _ in atoms))
    if reach > 3000 or (len(atoms) > 50 and t not in _SLOW_POINTS):
        return None
    if not infinite:
        digits += int(2 * reach / 2.3)  # raw moments cancel like exp(-2 reach)
    with mp.workdps(digits):
        atoms = _atoms(law, parameters)
        weights = [mass * mp.exp(mpf(t) * point) for point, mass in atoms]
        norm = mp.fsum(mass for _, mass in atoms)
        moments = [
            mp.fsum(w * p**n for w, (p, _) in zip(weights, atoms, strict=True)) / norm
            for n in range(4)
        ]
        return _from_moments(moments[0] - 1, *moments[1:])


def _by_quadrature(law: str, parameters: tuple, t: float) -> Cumulants | None:
    """Cumulants of a continuous law from moments by mp.quad; None where that is hopeless."""

    def gaussian(r: mpf) -> mpf:
        return -((r / std) ** 2) / 2

    def sech_power(y: mpf) -> mpf:
        return -2 * shape * mp.log(mp.cosh(y))

    with mp.workdps(80):
        x = mpf(t)
        value: Callable[[mpf], mpf] = mpf
        if law == "Gaussian":
            std = mpf(parameters[0])
            log_density, middle = gaussian, std**2 * x
            free = [-21 * std, mpf(0), 21 * std]
            tilted = [middle + end for end in free]
        elif law == "Density":
            log_density, edge = parameters
            if log_density is _arcsine_log_density:
                return None  # the nodes of mp.quad are too coarse at its poles
            free = tilted = mp.linspace(-mpf(edge), mpf(edge), 9)
        else:  # r = tanh y turns (1 - r²)^(β-1) dr into sech^(2β) y dy, which has no pole
            shape = mpf(parameters[0]) if parameters else mpf(1)
            if shape < 0.5:
                return None
            log_density, value = sech_power, mp.tanh
            free = tilted = mp.linspace(-2 - 100 / shape, 2 + 100 / shape, 21)

        def moment(n: int, slope: mpf, ends: list[mpf]) -> mpf:
            return mp.quad(
                lambda y: value(y) ** n * mp.exp(slope * value(y) + log_density(y)), ends
            )

        norm = moment(0, mpf(0), free)
        m0, m1, m2, m3 = (moment(n, x, tilted) / norm for n in range(4))
        phi, first, second, third = _from_moments(m0 - 1, m1, m2, m3)
        if law == "Gaussian" and abs(third) < 1e-50:
            third = mpf(0)
        return phi, first, second, third


def _compound_by_definition(law: str, parameters: tuple, t: float) -> Cumulants | None:
    """Scaled and Sum of finite laws, from the atoms of the compound law itself."""
    with mp.workdps(200):
        if law == "Scaled":
            inner = _atoms(parameters[0], parameters[1])
            pairs = inner and [(mpf(parameters[2]) * p, m) for p, m in inner]
        else:
            one, two = (_atoms(parameters[i], parameters[i + 1]) for i in (0, 2))
            pairs = one and two and [(p + q, m * n) for p, m in one for q, n in two]
        if not pairs:
            return None
        return _by_definition("Finite", tuple(zip(*pairs, strict=True)), t)


def _bessel_check(parameters: tuple, t: float) -> Cumulants | None:
    """Beta through mpmath's own ₀F₁ and its contiguous functions, at generous precision."""
    shape, x = mpf(parameters[0]), mpf(t)
    if abs(t) < 1e-12 or abs(t) > 2e6:
        return None
    with mp.workdps(160):
        c, z = shape + mpf(1) / 2, x**2 / 4
        f0, f1, f2, f3 = (mp.hyp0f1(c + n, z) / mp.rf(c, n) for n in range(4))
        # d/dz takes each to the next, and z' = t/2.
        return _from_moments(
            f0 - 1, x / 2 * f1, f1 / 2 + x**2 / 4 * f2, 3 * x / 4 * f2 + x**3 / 8 * f3
        )


def _derivative_check(law: str, parameters: tuple, t: float) -> Cumulants:
    """Φ', Φ'', Φ''' as numerical derivatives of Φ."""

    def phi(x: mpf) -> mpf:
        with mp.workprec(4 * mp.prec):
            return _evaluate(law, parameters, x, effort=8)[0]

    with mp.workdps(100):
        first, second, third = (mp.diff(phi, mpf(t), n) for n in (1, 2, 3))
        return phi(mpf(t)), first, second, third


def _cosine_log_density(r: mpf) -> mpf:
    """1 + cos(πr)/2, an arbitrary even density."""
    return mp.log(1 + mp.cospi(r) / 2)


def _uniform_log_density(_r: mpf) -> mpf:
    return mpf(0)


def _arcsine_log_density(r: mpf) -> mpf:
    return -mp.log((1 - r) * (1 + r)) / 2


def _parabola_log_density(r: mpf) -> mpf:
    return mp.log((1 - r) * (1 + r))


_CASES: list[tuple[str, tuple]] = [
    ("Binary", ()),
    ("BradleyTerry", ()),
    *(("KNary", (k,)) for k in (2, 3, 21, 100, 1001)),
    *(("Davidson", (nu,)) for nu in (0.0, 0.1, 1.0, 5.3, 1e6)),
    *(("Binomial", (n,)) for n in (1, 2, 7, 40)),
    ("Finite", ((-1.0, -0.3, 0.0, 0.3, 1.0), (0.1, 0.2, 0.4, 0.2, 0.1))),
    ("Finite", ((-1.0, -0.999, 0.999, 1.0), (1e-30, 0.5, 0.5, 1e-30))),
    ("Finite", ((2.5, -2.5, 1e-3, -1e-3), (0.3, 0.3, 0.7, 0.7))),
    ("Finite", (tuple(i / 10 for i in range(-10, 11)), (1.0,) * 21)),
    ("Uniform", ()),
    *(("Beta", (beta,)) for beta in (0.05, 0.5, 1.0, 2.0, 3.7, 10.0, 100.0)),
    *(("Gaussian", (std,)) for std in (0.3, 1.0, 7.0)),
    *(("Skellam", (rate,)) for rate in (0.1, 2.7)),
    *(("SymmetrizedPoisson", (rate,)) for rate in (0.1, 2.7)),
    ("Scaled", ("Binary", (), 0.3)),
    ("Scaled", ("Uniform", (), 2.5)),
    ("Scaled", ("KNary", (21,), 10.1)),
    ("Sum", ("Davidson", (5.3,), "KNary", (5,))),
    ("Sum", ("Uniform", (), "Skellam", (0.7,))),
    ("Density", (_cosine_log_density, 1.0)),
    ("Density", (_uniform_log_density, 1.0)),
    ("Density", (_arcsine_log_density, 1.0)),
    ("Density", (_parabola_log_density, 1.0)),
]

# The same law under another name.
_TWINS: dict[tuple[str, tuple], tuple[str, tuple]] = {
    ("Binary", ()): ("KNary", (2,)),
    ("BradleyTerry", ()): ("Scaled", ("Davidson", (0.0,), 0.5)),
    ("KNary", (3,)): ("Davidson", (1.0,)),
    ("Davidson", (0.0,)): ("Binary", ()),
    ("Binomial", (1,)): ("Binary", ()),
    ("Binomial", (2,)): ("Davidson", (2.0,)),
    ("Beta", (1.0,)): ("Uniform", ()),
    ("Scaled", ("Binary", (), 0.3)): ("Finite", ((-0.3, 0.3), (0.5, 0.5))),
    ("Density", (_uniform_log_density, 1.0)): ("Uniform", ()),
    ("Density", (_arcsine_log_density, 1.0)): ("Beta", (0.5,)),
    ("Density", (_parabola_log_density, 1.0)): ("Beta", (2.0,)),
}


def _grid(law: str) -> list[float]:
    """Points of both signs from 0 to 1e6, fewer of them for Density."""
    sizes = [1e-300, 1e-12, 1e-8, 1e-4, 0.01, 0.1, 0.3, 1, 5, 30, 100, 345, 700, 6e3, 1e4, 1e6]
    generator = random.Random(1)
    sizes += [10 ** generator.uniform(-300, 6) for _ in range(20)]
    sizes += [10 ** generator.uniform(-3, 6) for _ in range(20)]
    if law == "Density":
        sizes = [1e-300, 1e-8, 0.01, 1.0, 5.0, 30.0, 700.0, 1e4, 1e6]
    return [0.0] + [sign * size for size in sizes for sign in (1.0, -1.0)]


def _check(law: str, parameters: tuple) -> tuple[dict[str, mpf], int, float]:
    """Worst disagreement of each check, the number of definition points, and seconds per call."""
    grid = _grid(law)
    start = time.perf_counter()
    results = [cumulants(law, parameters, t) for t in grid]
    seconds = (time.perf_counter() - start) / len(grid)
    worst: dict[str, mpf] = {}

    def note(check: str, result: Cumulants, other: Cumulants) -> None:
        worst[check] = max(worst.get(check, mpf(0)), _disagreement(result, other))

    defined = 0
    for t, result in zip(grid, results, strict=True):
        if t == 0:
            assert result[0] == result[1] == result[3] == 0 < result[2], (law, parameters)
        note("precision", result, _evaluate(law, parameters, mpf(t), effort=2))
        if (law, parameters) in _TWINS:
            note("twin", result, cumulants(*_TWINS[law, parameters], t))
        if t < 0:  # the slower checks on one side, symmetry for the other
            with mp.workdps(_RESULT_DIGITS):
                mirrored = (result[0], -result[1], result[2], -result[3])
            assert _disagreement(mirrored, cumulants(law, parameters, -t)) < 1e-55
            continue
        definition = _by_definition(law, parameters, t)
        if definition is not None and t != 0:
            defined += 1
            note("definition", result, definition)
        if law == "Beta" and (bessel := _bessel_check(parameters, t)) is not None:
            note("0F1", result, bessel)
        if law not in ("Density", "Gaussian") and t in (0.01, 0.3, 1.0, 5.0, 30.0):
            note("derivative", result, _derivative_check(law, parameters, t))
    return worst, defined, seconds


def _label(parameter: Any) -> str:
    """A short name for one parameter."""
    if callable(parameter):
        return parameter.__name__.strip("_")
    if isinstance(parameter, tuple):
        inside = [_label(item) for item in parameter]
        return "(" + ",".join(inside if len(inside) < 6 else [f"{len(inside)} values"]) + ")"
    return str(parameter)


def _main() -> None:
    """Check every law and print one line for each."""
    failed = False
    for law, parameters in _CASES:
        worst, defined, seconds = _check(law, parameters)
        shown = "  ".join(f"{k} {mp.nstr(v, 2)}" for k, v in worst.items())
        verdict = "ok  " if max(worst.values()) < mpf("1e-40") else "FAIL"
        failed |= verdict == "FAIL"
        name = law + _label(parameters)
        print(f"{verdict} {name:58s} {1e3 * seconds:6.2f} ms  [{defined}] {shown}", flush=True)
    if failed:
        raise SystemExit("the reference disagrees with itself")


if __name__ == "__main__":
    _main()
