"""Continuous laws on a bounded interval, given by a log-density and evaluated by quadrature.

Double-exponential (tanh-sinh) quadrature on [0, R], half of the symmetric support: with
x = R/(1 + e^{−π sinh s}) the trapezoidal rule in s converges exponentially for densities that are
smooth inside, also if singular at 0 and R. Its nodes cluster geometrically at R, as exp(r t)
requires for t up to a million. The result is a measure with finitely many points, whose
cumulants `_tilting` computes stably.
"""

import functools
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._util._arrays import ArrayLike, floating, is_concrete, positive
from .._util._roots import bisect
from ._base import AbstractRootLaw
from ._rows import table
from ._tilting import SymmetricMeasure, cumulant

_MIN_LEVEL, _MAX_LEVEL = 3, 8
_LAST_EXPONENT = 60.0  # nodes reach within e^{−60} of the ends


@functools.cache
def _nodes(level: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, 1−x, weight) of double-exponential quadrature on [0, 1], step 2^{−level}."""
    step = 2.0**-level
    last = np.arcsinh(_LAST_EXPONENT / np.pi)
    s = step * np.arange(-int(last / step), int(last / step) + 1)
    exponent = np.pi * np.sinh(s)
    x, gap = 1 / (1 + np.exp(-exponent)), 1 / (1 + np.exp(exponent))
    return x, gap, step * np.pi * np.cosh(s) * x * gap


def interval_nodes(level: int) -> tuple[Array, Array]:
    """Nodes in [0, 1] and the logarithms of their weights."""
    x, _, weight = _nodes(level)
    return jnp.asarray(x), jnp.log(jnp.asarray(weight))


class _PlainFunction(eqx.Module):
    """A function without arrays, as a pytree that jit and vmap accept."""

    function: Callable[[Array], Array] = eqx.field(static=True)

    def __call__(self, r: Array) -> Array:
        return self.function(r)


@final
class Density(AbstractRootLaw):
    """The law with density proportional to exp(log_density(r)) on [−max_value, max_value].

    `log_density` is elementwise, written with `jax.numpy`, even, and smooth inside the interval
    except at 0; it need not be normalised. It may be an Equinox module, whose arrays are then
    parameters of the law, of any shape and the same for all comparisons. The constructor doubles
    the number of quadrature nodes until mean and variance agree at tilts from 0 to 1e6, and raises
    `ValueError` if they never do. `num_nodes_log2` fixes the number, for use under tracing.
    """

    half_width: Array  # of the support; `max_value` is a property, so it cannot name a field
    num_nodes_log2: int = eqx.field(static=True)
    log_density: Callable[[Array], Array] = table()

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        max_value: ArrayLike = 1.0,
        *,
        num_nodes_log2: int | None = None,
    ):
        if is_concrete(max_value) and np.isposinf(np.asarray(max_value)).any():
            raise ValueError(
                "max_value must be finite: the tails of a law on the whole line decide whether "
                "its exponential moments exist (a Laplace or Student law lacks some of them, "
                "so it is no root law), and a quadrature cannot check the tails"
            )
        is_leaf = jax.tree.structure(log_density) == jax.tree.structure(0)
        self.log_density = _PlainFunction(log_density) if is_leaf else log_density
        self.half_width = positive("max_value", max_value)
        if self.half_width.ndim:
            raise ValueError(
                "max_value must be one number, not an array of shape "
                f"{self.half_width.shape}: for intervals of several widths scale one law, "
                "Scaled(Density(log_density), scale) with one scale per comparison"
            )
        if num_nodes_log2 is None:
            num_nodes_log2 = _choose_level(log_density, self.half_width)
        self.num_nodes_log2 = num_nodes_log2

    @property
    def max_value(self) -> Array | float:
        """The end of the interval, as given."""
        return self.half_width

    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """log ∫ exp(r t) f(r) dr."""
        t = floating(t)
        measure, _ = _measure(self.log_density, self.half_width, self.num_nodes_log2)
        return cumulant(t, measure.astype(t.dtype))

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log_density(value), normalised."""
        value = floating(value)
        _, log_mass = _measure(self.log_density, self.half_width, self.num_nodes_log2)
        inside = self.in_support(value)
        log_density = self.log_density(jnp.where(inside, value, 0))
        return jnp.where(inside, log_density - log_mass.astype(value.dtype), -jnp.inf)

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Draws by inversion: first a cell of the quadrature, then a point inside it."""
        t = floating(t)
        cell_key, inside_key = jax.random.split(key)
        edges = jnp.asarray(_cell_edges(), t.dtype)
        low, high = edges[:-1], edges[1:]
        mass = functools.partial(self._log_mass, t[..., None])
        full_shape = (*shape, *t.shape)
        cell = jax.random.categorical(cell_key, mass(low, high), shape=full_shape)
        low, high = low[cell], high[cell]
        share = jnp.log(jax.random.uniform(inside_key, full_shape, t.dtype))
        goal = share + self._log_mass(t, low, high)

        found = bisect(lambda x: self._log_mass(t, low, x) < goal, low, high)
        return _position(found)[0] * self.half_width.astype(t.dtype)

    def _log_mass(self, t: Array, low: Array, high: Array) -> Array:
        """log ∫ f(r) e^{rt} dr between two values of the quadrature variable."""
        node, weight = np.polynomial.legendre.leggauss(10)
        node, weight = jnp.asarray(node, t.dtype), jnp.asarray(weight, t.dtype)
        s = (0.5 * (high + low))[..., None] + (0.5 * (high - low))[..., None] * node
        fraction, log_slope = _position(s)
        r = fraction * self.half_width.astype(t.dtype)
        terms = self.log_density(r) + r * t[..., None] + log_slope + jnp.log(weight)
        width = jnp.where(high > low, high - low, jnp.finfo(t.dtype).tiny)
        return jax.nn.logsumexp(terms, axis=-1) + jnp.log(width)


def _cell_edges() -> np.ndarray:
    """Edges of cells for sampling in s: s in [−6, 6] maps to r/R = ±1/(1+e^{−π sinh(|s|−3)})."""
    return np.linspace(-6, 6, 97)


def _position(s: Array) -> tuple[Array, Array]:
    """r/R in (−1, 1) at position s, and the logarithm of its slope (up to a constant)."""
    half = jnp.abs(s) - 3
    exponent = np.pi * jnp.sinh(half)
    fraction = jax.nn.sigmoid(exponent)
    log_slope = (
        jnp.log(jnp.cosh(half)) + jax.nn.log_sigmoid(exponent) + jax.nn.log_sigmoid(-exponent)
    )
    return jnp.sign(s) * fraction, log_slope


def _measure(log_density, half_width: Array, level: int) -> tuple[SymmetricMeasure, Array]:
    """The quadrature's measure on [0, R], normalised, and the log of the total mass on [−R, R]."""
    x, gap, weight = (jnp.asarray(part, half_width.dtype) for part in _nodes(level))
    gap = gap * half_width
    # The density is evaluated strictly inside, where its logarithm and its derivatives are finite,
    # and corrected to first order for the rounding of the node: if the density vanishes at R, like
    # R − r, the rounding of a node at R(1 − 10⁻⁶) would cost six digits.
    # Nodes that round to R are moved below it, and keep their derivative in R.
    edge = jax.lax.stop_gradient(half_width)
    beyond = jax.lax.stop_gradient(x * half_width) - jnp.nextafter(edge, jnp.zeros_like(edge))
    r = x * half_width - jnp.maximum(beyond, 0)
    rounding = jax.lax.stop_gradient(jnp.where(x > 0.5, (half_width - r) - gap, 0))
    log_values, correction = jax.jvp(log_density, (r,), (rounding,))
    log_terms = log_values + correction + jnp.log(weight)
    log_half_mass = jax.nn.logsumexp(log_terms)
    measure = SymmetricMeasure(r, gap, jnp.zeros_like(gap), jnp.exp(log_terms - log_half_mass))
    return measure, log_half_mass + jnp.log(2 * half_width)


def _choose_level(log_density, half_width: Array) -> int:
    """The smallest level at which doubling the nodes changes nothing; raises if there is none."""
    if not is_concrete(log_density, half_width):
        raise ValueError("num_nodes_log2 must be given if a Density is constructed under tracing")
    _check_log_density(log_density, half_width)
    tilts = np.asarray([0, 1e-2, 1, 10, 100, 1e3, 1e4, 1e6])
    scaled_tilts = jnp.asarray(tilts, half_width.dtype) / half_width
    finest, _ = _measure(log_density, half_width, _MAX_LEVEL)
    # The nodes of each level are a subset of the finest ones: levels differ in weights only.
    levels = np.arange(_MIN_LEVEL, _MAX_LEVEL + 1)
    index = np.arange(finest.weight.size) - finest.weight.size // 2
    chosen = index % 2 ** (_MAX_LEVEL - levels[:, None]) == 0
    weights = jnp.where(chosen, finest.weight, 0)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)

    def mean_and_variance(weight):
        measure = finest._replace(weight=weight)
        return cumulant(scaled_tilts, measure, 1)[1:], cumulant(scaled_tilts, measure, 2)

    moments = np.concatenate(jax.vmap(mean_and_variance)(weights), axis=-1)
    changes = np.abs(moments[1:] / moments[:-1] - 1)
    # Convergence is exponential: after a change of √ε the next level is exact, but a threshold
    # near ε also catches the slow convergence of a density that is not smooth. A tilt of τ weighs
    # values within R/τ of the end, where rounding r gives log_density an error of ε τ.
    eps = float(jnp.finfo(half_width.dtype).eps)
    converged = np.all(changes < eps * (1e3 + np.concatenate([tilts[1:], tilts])), axis=-1)
    if converged.any():
        return int(levels[1 + np.argmax(converged)])
    raise ValueError(
        f"the quadrature of log_density has not converged: doubling {2**_MAX_LEVEL} nodes per unit "
        f"still changes mean or variance by a relative {changes[-1].max():.1e}. The density is not "
        "smooth inside (0, max_value), or far narrower than the interval; use Finite for a law "
        "with jumps"
    )


def _check_log_density(log_density, half_width: Array) -> None:
    r = half_width * jnp.linspace(0, 1, 33, dtype=half_width.dtype)[:-1]
    up, down = np.asarray(log_density(r)), np.asarray(log_density(-r))
    if up.shape != r.shape:
        raise ValueError(f"log_density must be elementwise: {r.shape} in gave {up.shape} out")
    for position, value in zip(np.asarray(r), up, strict=True):
        if np.isnan(value) or value == np.inf:
            raise ValueError(f"log_density({position:g}) is {value}: not a density")
    if np.isposinf(np.asarray(log_density(half_width))):
        raise ValueError(
            f"log_density is infinite at the end of the support, {half_width:g}: quadrature misses "
            "the mass between the end and the next float below. Use Beta for such laws"
        )
    if not np.allclose(up, down, rtol=1e-4, atol=1e-4):
        worst = int(np.nanargmax(np.abs(up - down)))
        raise ValueError(
            f"the law is not symmetric: log_density({r[worst]:g}) is {up[worst]:g}, "
            f"log_density({-r[worst]:g}) is {down[worst]:g}"
        )
    if not np.isfinite(up).any():
        raise ValueError("log_density is −inf everywhere: it cannot be normalised")
