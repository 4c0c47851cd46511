"""log ₀F₁(; β+½; t²/4) and its derivatives in t and β: the Beta law's cgf and its Bessel ratios.

With ν = β−½ this is log[Γ(ν+1) (t/2)^{−ν} I_ν(t)]; its first derivative is I_{ν+1}/I_ν. The
usual second derivative, 1 − (2β/t)Φ' − Φ'², cancels at both ends. Two forms that do not:

**Series** (moderate t). Products of Bessel functions have power series with positive terms. With
c_k = (2β+k)_k / (k! (β+½)_k²) and z = t²/4,

    ₀F₁²        = Σ c_k z^k                         so Φ   = ½ log Σ c_k z^k
    Φ'/t · ₀F₁² = Σ c_k z^k (β+k)/((2β+k)(β+½+k))
    Φ'' · ₀F₁²  = Σ c_k z^k  β   /((2β+k)(β+½+k))

(the last from (2β+k)_k − (β)(2β+k+1)_k/(β+k+½) − k(2β+k+1)_{k−1} collapsing to one positive term):
mean and variance are positive averages under the weights c_k z^k.

**Uniform asymptotics** (large t). y = I_ν as a function of log t solves y'' = (t²+ν²) y, so
g = d log I_ν / d log t solves g' + g² = S² with S = √(t²+ν²). Expanding g = Σ S^{1−n} f_n(p²) with
p = ν/S gives polynomials f_n by a recurrence (Debye's expansion, in logarithmic form). Every f_n,
n ≥ 1, has a factor 1−p² = t²/S², which is divided out analytically. The expansion is uniform in β:
it covers small and large orders where S is large.
"""

import functools
import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ._interpolation import MANY_POINTS, interpolate

# S ≥ t ≥ switch. The n-th term of the expansion is about n!/(2S)^n: 12 terms at S = 60 are below
# 1e-17, 12 terms at S = 20 are below 1e-8. The series needs about t + 8√t terms; its sum grows like
# e^{2t}, which overflows float32 beyond t = 44.
_NUM_ASYMPTOTIC = 14
_SERIES_UNROLL = 8


def _switch(dtype) -> float:
    return 60.0 if jnp.finfo(dtype).eps < 1e-10 else 20.0


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def log_hyp0f1(t: Array, beta: Array, orders: tuple[int, int] = (0, 0)) -> Array:
    """∂_tⁿ ∂_βʲ log ₀F₁(; β+½; t²/4) with orders = (n, j), elementwise in t and β > 0.

    Mean and variance at many points of one law are interpolated.
    """
    if orders in ((1, 0), (2, 0)) and beta.ndim == 0 and t.size >= MANY_POINTS:
        at_points = functools.partial(_evaluate, orders, beta=beta)
        return interpolate(at_points, t, orders[0], largest=1.0, variance=1 / (2 * beta + 1))
    return _evaluate(orders, t, beta)


@functools.partial(log_hyp0f1.defjvp, symbolic_zeros=True)
def _log_hyp0f1_jvp(orders, primals, tangents):
    t, beta = primals
    value = log_hyp0f1(t, beta, orders)
    tangent = jnp.zeros_like(value)
    # A derivative in β is a second series: compute it only where β is perturbed.
    for axis, direction in enumerate(tangents):
        if not isinstance(direction, SymbolicZero):
            raised = (orders[0] + (axis == 0), orders[1] + (axis == 1))
            tangent = tangent + log_hyp0f1(t, beta, raised) * direction
    return value, tangent


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(orders: tuple[int, int], t: Array, beta: Array) -> Array:
    """Orders (0..2, 0) by formula; higher ones by forward differentiation of those.

    Forward differentiation runs through the series' loop. Reverse mode never does, because
    `log_hyp0f1` has its own derivative rule.
    """
    in_t, in_beta = orders
    if in_beta > 0:
        inner = functools.partial(_evaluate, (in_t, in_beta - 1), t)
        return jax.jvp(inner, (beta,), (jnp.ones_like(beta),))[1]
    if in_t > 2:
        lower = functools.partial(_evaluate, (in_t - 1, 0))
        return jax.jvp(lambda s: lower(s, beta), (t,), (jnp.ones_like(t),))[1]
    u = jnp.where(t < 0, -t, t)
    near = u < _switch(t.dtype)
    u_near = jnp.where(near, u, 0)
    u_far = jnp.where(near, _switch(t.dtype), u)
    value = jnp.where(near, _series(in_t, u_near, beta), _asymptotic(in_t, u_far, beta))
    return jnp.where(t < 0, -value, value) if in_t == 1 else value


def _series(order: int, u: Array, beta: Array) -> Array:
    """Φ, Φ' or Φ'' on [0, switch] by the series of positive terms."""
    largest = lax.stop_gradient(jnp.max(u, initial=0))
    # The weights peak near k = t with width √t: nine widths, and a margin for small t.
    num_terms = largest + 9 * jnp.sqrt(largest) + 24
    num_blocks = jnp.ceil(num_terms / _SERIES_UNROLL).astype(jnp.int32)
    u_squared = u * u
    # beta is not broadcast: for the usual scalar beta the divisions below are scalar too.

    def add_block(block, carry):
        term, rest, weighted = carry
        start = (block * _SERIES_UNROLL).astype(u.dtype)
        for offset in range(_SERIES_UNROLL):
            k = start + offset
            common = 1 / ((2 * beta + k) * (beta + k + 0.5))
            weighted = weighted + term * ((beta + k if order == 1 else beta) * common)
            term = term * u_squared * ((beta + k) * common / (k + 1))
            rest = rest + term  # Σ_{k≥1}: the leading 1 is kept apart for the logarithm
        return term, rest, weighted

    zero = jnp.zeros(jnp.broadcast_shapes(u.shape, beta.shape), u.dtype)
    _, rest, weighted = lax.fori_loop(0, num_blocks, add_block, (zero + 1, zero, zero))
    if order == 0:
        return 0.5 * jnp.log1p(rest)
    average = weighted / (1 + rest)
    return u * average if order == 1 else average


def _asymptotic(order: int, u: Array, beta: Array) -> Array:
    """Φ, Φ' or Φ'' on [switch, ∞) by the uniform expansion."""
    nu = beta - 0.5
    s = jnp.sqrt(u * u + nu * nu)
    inverse = 1 / s
    p_squared = (nu * inverse) ** 2
    tables = _debye_polynomials()
    if order == 0:
        return _log_leading(u, nu, s) + _double_series(tables.log, inverse, p_squared)
    if order == 1:
        return u * (1 / (s + nu) + inverse * _double_series(tables.mean, inverse, p_squared))
    # ν/(S(S+ν)) + ½/S² combined, so that β = ν+½ appears without subtraction when it is small.
    leading = (beta * s + 0.5 * nu) * inverse * inverse / (s + nu)
    return leading + inverse * _double_series(tables.variance, inverse, p_squared)


def _log_leading(u: Array, nu: Array, s: Array) -> Array:
    """Φ without the expansion in 1/S.

    Φ = log Γ(ν+1) + ν log 2 + S − ν log(S+ν) − ½ log(2πS) + …, where for large ν the log Γ is
    replaced by Stirling's series and its large parts cancel analytically: d = S−ν = t²/(S+ν).
    """
    large = nu > 10
    nu_large = jnp.where(large, nu, 10)
    nu_small = jnp.where(large, 10, nu)
    d = u * u / (s + nu_large)
    stirling = jnp.zeros_like(nu)
    inverse_square = 1 / (nu_large * nu_large)
    for coefficient in reversed(_STIRLING):
        stirling = stirling * inverse_square + coefficient
    at_large = (
        d
        - nu_large * jnp.log1p(d / (2 * nu_large))
        - 0.5 * jnp.log1p(d / nu_large)
        + stirling / nu_large
    )
    at_small = (
        s
        - nu_small * jnp.log(0.5 * (s + nu_small))
        - 0.5 * jnp.log(2 * math.pi * s)
        + lax.lgamma(nu_small + 1)
    )
    return jnp.where(large, at_large, at_small)


# B_{2k} / (2k (2k−1)): log Γ(ν+1) = ν log ν − ν + ½ log(2πν) + Σ_k coefficient_k ν^{1−2k}.
_STIRLING = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
)


def _double_series(table: np.ndarray, inverse: Array, p_squared: Array) -> Array:
    """Σ_n inverse^n Σ_j table[n−1, j] p^{2j}, n = 1, 2, …

    A loop over n: unrolled, the hundred coefficients of a table take seconds to compile at higher
    orders of differentiation.
    """

    def add_row(value, row):
        polynomial = jnp.full_like(inverse, row[-1])
        for coefficient in row[-2::-1]:
            polynomial = polynomial * p_squared + coefficient
        return (value + polynomial) * inverse, None

    rows = jnp.asarray(table, inverse.dtype)
    return lax.scan(add_row, jnp.zeros_like(inverse), rows, reverse=True)[0]


class _DebyePolynomials(NamedTuple):
    """Tables whose row n−1 holds the coefficients of S^{−n} by powers of p²."""

    log: np.ndarray  # Φ less its leading part
    mean: np.ndarray  # Φ'/t − 1/(S+ν), times S
    variance: np.ndarray  # Φ'' less its leading part, times S


@functools.cache
def _debye_polynomials() -> _DebyePolynomials:
    """The expansion's coefficients, exactly, as polynomials in y = p².

    d/dlog t acts as S → S(1−y) and y → −2y(1−y), so with f_n = (1−y) g_n (n ≥ 1), f_0 = 1,

        2 f_{n+1} = −(1−y)[(1−n) f_n − 2y f_n'] − Σ_{i=1..n} f_i f_{n+1−i}

        Φ   : ∫ S^{1−n} f_n dlog t = S^{1−n} e_n,  −(n−1) e_n − 2y e_n' = g_n       (n ≥ 2)
        Φ'/t: S^{−1−n} g_n                                                         (n ≥ 1)
        Φ'' : S^{−1−n} [(1−n) f_n − 2y f_n' − g_n], less the ½ S^{−2} counted in the leading part
    """
    one_minus_y = [Fraction(1), Fraction(-1)]
    # slopes[n] = (1−n) f_n − 2y f_n'; f_{n+1} = (1−y) g_{n+1}
    f, g, slopes = [[Fraction(1)]], [[Fraction(0)]], [[Fraction(1)]]
    for n in range(_NUM_ASYMPTOTIC + 1):
        bracket = slopes[n]
        for i in range(1, n + 1):
            bracket = _add(bracket, _multiply(g[i], f[n + 1 - i]))
        g.append([-c / 2 for c in bracket])
        f.append(_multiply(one_minus_y, g[-1]))
        slopes.append([(-n - 2 * j) * c for j, c in enumerate(f[-1])])
    log, mean, variance = [], [], []
    for n in range(1, _NUM_ASYMPTOTIC + 1):
        log.append([-c / (n + 2 * j) for j, c in enumerate(g[n + 1])])
        mean.append(g[n])
        variance.append(_add(slopes[n], [-c for c in g[n]]))
    variance[0] = _add(variance[0], [Fraction(-1, 2)])

    return _DebyePolynomials(_table(log), _table(mean), _table(variance))


def _table(rows: list[list[Fraction]]) -> np.ndarray:
    table = np.zeros((len(rows), max(map(len, rows))))
    for n, row in enumerate(rows):
        table[n, : len(row)] = [float(c) for c in row]
    return table


def _add(x: list[Fraction], y: list[Fraction]) -> list[Fraction]:
    return [a + b for a, b in itertools.zip_longest(x, y, fillvalue=Fraction(0))]


def _multiply(x: list[Fraction], y: list[Fraction]) -> list[Fraction]:
    product = [Fraction(0)] * (len(x) + len(y) - 1)
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            product[i + j] += a * b
    return product
