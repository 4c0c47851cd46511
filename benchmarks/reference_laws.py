"""Φ'(t) − r and Φ''(t) of every law in NumPy, in float64 or long double, without `gbt_jax`.

Written from the definitions: finite laws and `Density` by sums over their points, Φ' − r as the
mean of v − r, so that nothing cancels at the edge of the support; `Uniform` with a power series
near 0; `Beta` by the continued fraction of I_{β+½}/I_{β−½} and by Hankel's expansion far out.
`exact_residuals` has Φ' − r with 50 digits, by mpmath.
"""

import functools
from typing import Any, NamedTuple

import mp_reference
import numpy as np
from adversarial import FINITE_MASSES, FINITE_VALUES, LawSpec, minus_four_squares

Array = np.ndarray
_CHUNK = 2_000_000  # entries of rows × points at a time: 32 MB in long double


class Moments(NamedTuple):
    """Derivatives of Φ(t) − r t in t."""

    residual: Array  # Φ'(t) − r
    variance: Array  # Φ''(t)


def moments(law: LawSpec, t: Array, value: Array) -> Moments:
    """Φ'(t) − value and Φ''(t), in the dtype of t. Parameters per row have the shape of t."""
    dtype = t.dtype.type
    if law.name == "Scaled":
        scale = np.asarray(law.parameters[1], dtype)
        inner = moments(law.parameters[0], scale * t, value / scale)
        return Moments(scale * inner.residual, scale * scale * inner.variance)
    if law.name == "Sum":
        first, second = law.parameters
        share = np.where(t < 0, -first.top, first.top).astype(dtype)  # bounded: the first law is
        one, two = moments(first, t, share), moments(second, t, value - share)
        return Moments(one.residual + two.residual, one.variance + two.variance)
    if law.name in _CLOSED:
        parameters = [np.asarray(x, dtype) for x in law.parameters]
        return _CLOSED[law.name](t, value, *parameters)
    return _point_moments(t, value, *points(law, t.dtype))


def concordance(law: LawSpec) -> Any:
    """c with |Φ'''| ≤ c Φ'': twice the largest value where there is one."""
    if law.name == "Scaled":
        return np.asarray(law.parameters[1]) * concordance(law.parameters[0])
    if law.name == "Sum":
        return max(concordance(law.parameters[0]), concordance(law.parameters[1]))
    unbounded = {"Gaussian": 0.0, "Skellam": 1.0, "SymmetrizedPoisson": 1.5}
    return unbounded[law.name] if law.name in unbounded else 2 * law.top


# ----------------------------------------------------------------------------- laws with points


def points(law: LawSpec, dtype) -> tuple[Array, Array]:
    """Points of the support and their masses; masses per row stand in the last axis but one."""
    if law.name in ("Binary", "BradleyTerry"):
        return np.array([-law.top, law.top], dtype), np.ones(2, dtype)
    if law.name == "Davidson":
        tie = np.asarray(law.parameters[0], dtype)
        return np.array([-1, 0, 1], dtype), np.stack(
            [np.ones_like(tie), tie, np.ones_like(tie)], -1
        )
    if law.name == "KNary":
        count = law.parameters[0]
        return np.arange(1 - count, count, 2).astype(dtype) / dtype.type(count - 1), np.ones(
            count, dtype
        )
    if law.name == "Binomial":
        return np.array([-2, -1, 0, 1, 2], dtype) / 2, np.array([1, 4, 6, 4, 1], dtype)
    if law.name == "Finite":
        return np.array(FINITE_VALUES, dtype), np.array(FINITE_MASSES, dtype)
    if law.name == "Density":
        return _density_points(np.dtype(dtype))
    raise ValueError(f"no reference for the law {law.name}")


def _point_moments(t: Array, value: Array, values: Array, masses: Array) -> Moments:
    """Means over the tilted points, some rows at a time."""
    shape = t.shape
    value = np.broadcast_to(value, shape).reshape(-1)
    flat = t.reshape(-1)
    if masses.ndim > 1:
        masses = np.broadcast_to(masses, (*shape, values.size)).reshape(-1, values.size)
    residual, variance = np.empty_like(flat), np.empty_like(flat)
    step = max(1, _CHUNK // values.size)
    for start in range(0, flat.size, step):
        rows = slice(start, start + step)
        mass = masses[rows] if masses.ndim > 1 else masses
        tilt = flat[rows, None] * values
        chance = mass * np.exp(tilt - tilt.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        gap = values - value[rows, None]
        # Near t = 0 the two ends of the support cancel: there p(v) − p(−v) = −p(v) expm1(−2tv).
        is_near = np.abs(tilt).max(axis=1) < 0.5
        pairs = -chance * values * np.expm1(np.where(is_near[:, None], -2 * tilt, 0))
        near = pairs[:, values > 0].sum(axis=1) - value[rows]
        residual[rows] = np.where(is_near, near, (chance * gap).sum(axis=1))
        variance[rows] = (chance * (gap - residual[rows, None]) ** 2).sum(axis=1)
    return Moments(residual.reshape(shape), variance.reshape(shape))


@functools.cache
def _density_points(dtype: np.dtype) -> tuple[Array, Array]:
    """Gauss-Legendre points of panels that shrink by 4 towards both ends."""
    node, weight = _legendre(24)
    edges = np.concatenate([[0], 4.0 ** np.arange(-30, 1)]).astype(np.longdouble)
    half = (edges[1:] - edges[:-1]) / 2
    gap = (half[:, None] * node + ((edges[1:] + edges[:-1]) / 2)[:, None]).reshape(-1)
    masses = (half[:, None] * weight).reshape(-1) * np.exp(minus_four_squares(1 - gap))
    values = 1 - gap
    both = np.concatenate([-values, values[::-1]]), np.concatenate([masses, masses[::-1]])
    return both[0].astype(dtype), both[1].astype(dtype)


def _legendre(count: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights in long double: NumPy's, improved by Newton's method."""
    x = np.polynomial.legendre.leggauss(count)[0].astype(np.longdouble)
    slope = x
    for _ in range(3):
        before, here = np.ones_like(x), x
        for k in range(2, count + 1):
            before, here = here, ((2 * k - 1) * x * here - (k - 1) * before) / k
        slope = count * (x * here - before) / (x * x - 1)
        x = x - here / slope
    return x, 2 / ((1 - x * x) * slope * slope)


# --------------------------------------------------------------------------------- closed forms


def _gaussian(t: Array, value: Array, std: Array) -> Moments:
    return Moments(std * std * t - value, std * std + 0 * t)


def _skellam(t: Array, value: Array, rate: Array) -> Moments:
    return Moments(rate * np.sinh(t) - value, rate * np.cosh(t))


def _symmetrized_poisson(t: Array, value: Array, rate: Array) -> Moments:
    odd, even = rate * np.sinh(t), rate * np.cosh(t)
    tanh = np.tanh(odd)
    inside = np.clip(odd, -500, 500)
    bump = np.where(np.abs(odd) < 500, (even / np.cosh(inside)) ** 2, 0)
    return Moments(odd + even * tanh - value, even + odd * tanh + bump)


def _uniform(t: Array, value: Array) -> Moments:
    """coth t − 1/t, and 1/t² − 1/sinh² t."""
    size = np.abs(t)
    is_near = size < 1
    far = np.where(is_near, 1, size)
    decay = np.exp(-2 * far)
    end = np.where(t < 0, -1, 1).astype(t.dtype)
    gap = 1 / far - 2 * decay / (1 - decay)  # 1 − coth t + 1/t
    square = np.where(is_near, t * t, 0)
    first, second = np.zeros_like(t), np.zeros_like(t)
    coefficients = _langevin_coefficients()
    for k in range(len(coefficients) - 1, -1, -1):
        first = first * square + t.dtype.type(coefficients[k])
        second = second * square + t.dtype.type((2 * k + 1) * coefficients[k])
    return Moments(
        np.where(is_near, t * first - value, (end - value) - end * gap),
        np.where(is_near, second, 1 / far**2 - 4 * decay / (1 - decay) ** 2),
    )


@functools.cache
def _langevin_coefficients() -> tuple[np.longdouble, ...]:
    """Coefficients of t^{2k+1} in coth t − 1/t: 2^{2n} B_{2n}/(2n)! with n = k + 1."""
    mp = mp_reference.mp
    with mp.workdps(40):
        terms = [4**n * mp.bernoulli(2 * n) / mp.factorial(2 * n) for n in range(1, 25)]
        return tuple(np.longdouble(mp.nstr(term, 30)) for term in terms)


def _beta(t: Array, value: Array, beta: Array) -> Moments:
    """ρ = I_{β+½}/I_{β−½} and 1 − (2β/t) ρ − ρ²."""
    size, beta = np.abs(t), np.broadcast_to(beta, t.shape)
    is_far = size > 80 + beta * beta
    near = np.where(is_far, 1, size)
    # ρ_k = t/(2(β + k) + 1 + t ρ_{k+1}), from a k at which it does not matter any more.
    ratio = np.zeros_like(t)
    for k in range(int(60 + 1.5 * np.max(near, initial=0)), -1, -1):
        ratio = near / (2 * (beta + k) + 1 + near * ratio)
    far = np.where(is_far, size, 1e6)
    low, high = _hankel(beta - t.dtype.type(0.5), far), _hankel(beta + t.dtype.type(0.5), far)
    gap = np.where(is_far, (low - high) / low, 1 - ratio)  # 1 − ρ
    mean = np.where(is_far, 1 - gap, ratio)
    safe = np.where(size > 1e-4, size, 1)
    # 1 − ρ² − 2βρ/t with 1 − ρ² = gap (1 + ρ)
    variance = np.where(
        size > 1e-4, gap * (1 + mean) - 2 * beta * mean / safe, 1 / (2 * beta + 1) + 0 * t
    )
    end = np.where(t < 0, -1, 1).astype(t.dtype)
    is_central = size < 1
    return Moments(
        np.where(is_central, end * mean - value, (end - value) - end * gap),
        np.maximum(variance, np.finfo(t.dtype).tiny),
    )


def _hankel(order: Array, t: Array) -> Array:
    """S with I_order(t) = exp(t) S/√(2πt), for t far above order²."""
    total = term = np.ones_like(t)
    for k in range(1, 40):
        term = term * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * t)
        total = total + term
    return total


_CLOSED = {
    "Gaussian": _gaussian,
    "Skellam": _skellam,
    "SymmetrizedPoisson": _symmetrized_poisson,
    "Uniform": _uniform,
    "Beta": _beta,
}


# --------------------------------------------------------------------------------------- mpmath


def exact_residuals(law: LawSpec, t: list, value: Array) -> list:
    """Φ'(t) − r with at least 50 digits, for t of mpmath and one value per row."""
    mp = mp_reference.mp
    with mp.workdps(60):
        return [
            mp_reference._evaluate(*_mp_law(law, row), t[row])[1] - mp.mpf(float(value[row]))
            for row in range(len(t))
        ]


def _mp_law(law: LawSpec, row: int) -> tuple[str, tuple]:
    """The law of one row as `mp_reference` names it."""
    if law.name == "Scaled":
        scale = np.asarray(law.parameters[1])
        return "Scaled", (
            *_mp_law(law.parameters[0], row),
            float(scale if scale.ndim == 0 else scale[row]),
        )
    if law.name == "Sum":
        return "Sum", (*_mp_law(law.parameters[0], row), *_mp_law(law.parameters[1], row))
    if law.name == "Finite":
        return "Finite", (FINITE_VALUES, FINITE_MASSES)
    if law.name == "Density":
        return "Density", (minus_four_squares, 1.0)
    parameters = [np.asarray(x) for x in law.parameters]
    return law.name, tuple((x if x.ndim == 0 else x[row]).item() for x in parameters)
