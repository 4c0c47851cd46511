"""Φ(t) = log((ν + 2 cosh t)/(ν + 2)), the cumulants of a law on −1, 0, 1 with tie mass ν ≥ 0.

With D = ν + 2 cosh t, six functions are closed under differentiation in t and in ν:

    Φ                            ∂_t = m              ∂_ν = −k
    m = 2 sinh t / D             ∂_t = v              ∂_ν = −m h
    v = (2ν cosh t + 4)/D²       ∂_t = m g            ∂_ν = h (m² − v)
    g = (ν² − 2ν cosh t − 8)/D²  ∂_t = −m (2v + 3g)   ∂_ν = h (3v − m²)
    h = 1/D                      ∂_t = −m h           ∂_ν = −h²
    k = 1/(ν+2) − 1/D            ∂_t = m h            ∂_ν = −k (h + 1/(ν+2))

Each is computed from q = e^{−|t|} and E = q D = 1 + νq + q², a sum of positive terms. So Φ, m, v, h
and k never subtract near-equal numbers, and g does so only around its own zero.

Mean and variance share one exponential, e^{−|t|/2}. XLA stores shared subexpressions in memory, and
on the CPU writing a temporary array of a million rows may take longer than computing it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ._exact import squared_exponential
from ._hyperbolic import one_minus_square


class _Parts(NamedTuple):
    q: Array
    tie: Array  # νq, which may be nonzero where q underflows
    whole: Array  # E


def _parts(t: Array, tie_mass: Array) -> _Parts:
    root = jnp.exp(-0.5 * jnp.abs(t))
    # The maximum keeps XLA from merging the exponentials, as in squared_exponential.
    q, tie = squared_exponential(root), (tie_mass * root) * jnp.maximum(root, 0)
    return _Parts(q, tie, 1 + tie + q * q)


@jax.custom_jvp
def _cgf(t: Array, tie_mass: Array) -> Array:
    u = jnp.abs(t)
    # Φ = log1p((2 cosh t − 2)/(ν + 2)) as long as cosh t does not overflow.
    near = u < 0.9 * math.log(float(jnp.finfo(t.dtype).max))
    u_near = jnp.where(near, u, 0)
    rest, fall = _parts(u_near, tie_mass), -jnp.expm1(-u_near)
    excess = (fall / rest.q) * (fall / (tie_mass + 2))
    far = u + jnp.log(_parts(t, tie_mass).whole / (tie_mass + 2))
    return jnp.where(near, jnp.log1p(excess), far)


@jax.custom_jvp
def _mean(t: Array, tie_mass: Array) -> Array:
    q, _, whole = _parts(t, tie_mass)
    fall = one_minus_square(jnp.abs(t), q)
    return jnp.where(t < 0, -fall, fall) / whole


@jax.custom_jvp
def _variance(t: Array, tie_mass: Array) -> Array:
    q, tie, whole = _parts(t, tie_mass)
    pair = 2 * q / whole
    return (tie / whole) * ((1 + q * q) / whole) + pair * pair


@jax.custom_jvp
def _third_ratio(t: Array, tie_mass: Array) -> Array:
    """g, the third cumulant divided by the mean."""
    q, tie, whole = _parts(t, tie_mass)
    pair = 2 * q / whole
    return (tie / whole) * ((tie - (1 + q * q)) / whole) - 2 * pair * pair


@jax.custom_jvp
def _inverse(t: Array, tie_mass: Array) -> Array:
    """h = 1/(ν + 2 cosh t)."""
    parts = _parts(t, tie_mass)
    return parts.q / parts.whole


@jax.custom_jvp
def _inverse_drop(t: Array, tie_mass: Array) -> Array:
    """k = 1/(ν+2) − h = (1 − q)²/((ν + 2) E)."""
    fall = -jnp.expm1(-jnp.abs(t))
    return (fall / (tie_mass + 2)) * (fall / _parts(t, tie_mass).whole)


def _define_rule(function: Any, in_t: Callable, in_tie_mass: Callable) -> None:
    """Define the derivatives of a function of (t, ν); only those with a tangent are computed."""

    @functools.partial(function.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        value = function(*primals)
        tangent = jnp.zeros_like(value)
        for rule, direction in zip((in_t, in_tie_mass), tangents, strict=True):
            if not isinstance(direction, SymbolicZero):
                tangent = tangent + rule(*primals) * direction
        return value, tangent


_define_rule(_cgf, _mean, lambda t, nu: -_inverse_drop(t, nu))
_define_rule(_mean, _variance, lambda t, nu: -_mean(t, nu) * _inverse(t, nu))
_define_rule(
    _variance,
    lambda t, nu: _mean(t, nu) * _third_ratio(t, nu),
    lambda t, nu: _inverse(t, nu) * (_mean(t, nu) * _mean(t, nu) - _variance(t, nu)),
)
_define_rule(
    _third_ratio,
    lambda t, nu: -_mean(t, nu) * (2 * _variance(t, nu) + 3 * _third_ratio(t, nu)),
    lambda t, nu: _inverse(t, nu) * (3 * _variance(t, nu) - _mean(t, nu) * _mean(t, nu)),
)
_define_rule(
    _inverse,
    lambda t, nu: -_mean(t, nu) * _inverse(t, nu),
    lambda t, nu: -_inverse(t, nu) * _inverse(t, nu),
)
_define_rule(
    _inverse_drop,
    lambda t, nu: _mean(t, nu) * _inverse(t, nu),
    lambda t, nu: -_inverse_drop(t, nu) * (_inverse(t, nu) + 1 / (nu + 2)),
)


def log_tied_cosh(t: Array, tie_mass: Array) -> Array:
    """log((ν + 2 cosh t)/(ν + 2)), elementwise in t and in ν ≥ 0, which broadcast."""
    return _cgf(*jnp.broadcast_arrays(t, tie_mass))
