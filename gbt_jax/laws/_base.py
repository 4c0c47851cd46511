"""The base class of root laws: every method is derived from the cumulant generating function Φ."""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from .._util._arrays import ArrayLike, as_array, eager_constants, floating, is_concrete
from .._util._roots import Value, positive_roots
from ._rows import map_rows, row_parameters

_CHECKED_ROWS = 32
_Law = TypeVar("_Law", bound="AbstractRootLaw")  # not Self, which beartype refuses in methods


class AbstractRootLaw(eqx.Module):
    """A symmetric law of comparisons between equally good alternatives.

    A parameter of a law is one number, or a vector of one number per comparison: the law of row i
    then uses entry i. See `at_rows`, and [`gbt_jax.laws.table`][] for other vectors.

    A subclass must define `cgf` only, written with `jax.numpy` and elementwise in `t`: scores,
    derivatives and `inverse_mean` follow from it. Define `log_root`, `sample` and the other methods
    that raise here if you need them, and pass an instance to [`gbt_jax.laws.check`][] once.

    Every method is elementwise, broadcasts, and works in the dtype of its first argument.
    """

    def at_rows(self: _Law, index: ArrayLike) -> _Law:
        """The law of the given rows: parameters per comparison are indexed, others are unchanged.

        `index` holds integers, in any shape: the parameters get that shape, and methods broadcast
        them against their arguments. A law without parameters per comparison is returned unchanged.
        """
        rows: Any = np.asarray(index) if is_concrete(index) else index

        def take(parameter: Array) -> Array:
            # On the host where that is possible: JAX would compile the index for every size.
            if is_concrete(parameter, rows):
                return as_array(np.asarray(parameter)[rows])
            return parameter[rows]

        return map_rows(self, take)

    @property
    def num_rows(self) -> int | None:
        """The length of the parameters per comparison; None if all are single numbers."""
        parameters = row_parameters(self)
        for name, value in parameters:
            if value.ndim > 1:
                raise ValueError(
                    f"{name} of {type(self).__name__} has shape {value.shape}: a parameter is one "
                    "number, or a vector of one per comparison (declare other arrays with "
                    "gbt_jax.laws.table)"
                )
            if value.size != parameters[0].value.size:
                raise ValueError(
                    f"parameters of {type(self).__name__} are for different numbers of "
                    f"comparisons: {parameters[0].name} has {parameters[0].value.size}, "
                    f"{name} has {value.size}"
                )
        return parameters[0].value.size if parameters else None

    @abc.abstractmethod
    def cgf(self, t: ArrayLike) -> Float[Array, "..."]:
        """Φ(t) = log E_f[exp(t r)]: zero at 0, even, smooth and strictly convex."""

    def mean(self, t: ArrayLike) -> Float[Array, "..."]:
        """E[r | t] = Φ'(t): the expected comparison at score difference t."""
        return _derivative(self.cgf, floating(t))

    def variance(self, t: ArrayLike) -> Float[Array, "..."]:
        """Var[r | t] = Φ''(t), positive, with correct digits in the tails."""
        return _derivative(self.mean, floating(t))

    def log_prob(self, value: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
        """log p(value | t) = log f(value) + value·t − Φ(t); −inf outside the support.

        A density for continuous laws, a probability for discrete ones.
        """
        value = floating(value)
        t = floating(t).astype(value.dtype)
        # value·t is kept finite where the mass is zero anyway: −inf + inf would be NaN.
        inside = self.in_support(value)
        tilt = jnp.where(inside, value, 0) * t - self.cgf(t)
        return jnp.where(inside, self.log_root(value) + tilt, -jnp.inf)

    def log_root(self, value: ArrayLike) -> Float[Array, "..."]:
        """log f(value), the untilted root law; −inf outside the support."""
        raise NotImplementedError(self._explain_missing("log_root", "log_prob"))

    def sample(
        self, t: ArrayLike, *, key: PRNGKeyArray, shape: tuple[int, ...] = ()
    ) -> Float[Array, "..."]:
        """Exact draws from p(· | t), of shape `shape + t.shape`."""
        raise NotImplementedError(self._explain_missing("sample", "sample"))

    def inverse_mean(self, m: ArrayLike) -> Float[Array, "..."]:
        """The score difference t at which the expected comparison is m: Φ'(t) = m.

        ±inf at the ends of the support, NaN beyond them. Differentiable in m and in the law's
        parameters, to any order.
        """
        m = floating(m)
        m = jnp.broadcast_to(m, self._shape(m))
        edge = jnp.asarray(self.max_value, m.dtype)
        inside = jnp.abs(m) < edge
        target = jnp.where(inside, m, 0)
        root = lax.custom_root(
            lambda t: self.mean(t) - target,
            jnp.zeros_like(target),
            lambda _, start: self._solve_mean(target, start),
            lambda tangent_map, y: y / tangent_map(jnp.ones_like(y)),
        )
        outside = jnp.where(jnp.abs(m) == edge, jnp.copysign(jnp.inf, m), jnp.nan)
        return jnp.where(inside, root, outside)

    @property
    def max_value(self) -> Array | float:
        """The supremum of the support; inf by default."""
        return np.inf

    @property
    def is_discrete(self) -> bool:
        """Whether the support is a set of separate points."""
        return False

    def in_support(self, value: ArrayLike) -> Array:
        """Whether a comparison can take this value."""
        value = floating(value)
        return jnp.isfinite(value) & (jnp.abs(value) <= jnp.asarray(self.max_value, value.dtype))

    def step_up(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next value of the support above; inf where there is none."""
        raise TypeError(self._explain_no_steps())

    def step_down(self, value: ArrayLike) -> Float[Array, "..."]:
        """Distance to the next value of the support below; inf where there is none."""
        raise TypeError(self._explain_no_steps())

    def atoms(self) -> tuple[Array, Array] | None:
        """(values, log-probabilities) of a law with finitely many values; None for others."""
        return None

    def _solve_mean(self, target: Array, start: Array) -> Array:
        """The t with Φ'(t) = target, found for |target| by symmetry."""
        goal = jnp.abs(target)
        noise = 0.5 * float(jnp.finfo(goal.dtype).eps) * goal

        def excess(t: Array, is_open: Array) -> Value:
            del is_open
            return Value(self.mean(t) - goal, self.variance(t), noise)

        root = positive_roots(excess, goal / self.variance(start), jnp.ones_like(goal, bool))
        return jnp.copysign(root, target)

    def _shape(self, t: Array) -> tuple[int, ...]:
        """The shape of a method's result at t: t broadcast against parameters per comparison."""
        return np.broadcast_shapes(t.shape, *(x.value.shape for x in row_parameters(self)))

    def _explain_missing(self, method: str, wanted: str) -> str:
        name = type(self).__name__
        return f"{name} has no {wanted}, because it defines no `{method}`: add it to the class"

    def _explain_no_steps(self) -> str:
        return f"{type(self).__name__} has no steps: between any two of its values there is another"


def _derivative(function: Callable[[Array], Array], t: Array) -> Array:
    """Derivative of an elementwise function, at every entry of t at once."""
    return jax.jvp(function, (t,), (jnp.ones_like(t),))[1]


def check(law: AbstractRootLaw) -> None:
    """Raise `ValueError` for a law that is not a root law of a generalized Bradley-Terry model.

    Φ is evaluated at ± powers of two. It must be 0 at 0, even, finite until it overflows (all
    exponential moments exist) and convex. Laplace, Student and Cauchy laws fail: their exponential
    moments are infinite beyond some t, or everywhere.

    **Arguments:**

    - `law`: the law to check. With parameters per comparison a sample of rows is checked, which
      includes the smallest and the largest value of each parameter.
    """
    name = type(law).__name__
    if not isinstance(law, AbstractRootLaw):
        raise TypeError(f"a root law must subclass AbstractRootLaw; {name} does not")
    t = 2.0 ** np.arange(-4, 11)

    def values(law: AbstractRootLaw) -> tuple[Array, Array]:
        everywhere = jnp.concatenate([jnp.zeros(1), t, -t])
        return law.cgf(everywhere), law.variance(everywhere)

    if law.num_rows is None:
        with eager_constants():  # the model may be constructed under a transformation
            cgf, variance = (np.asarray(x, float) for x in jax.jit(lambda: values(law))())
        _check_values(name, t, cgf, variance)
        return
    rows = _rows_to_check(law)
    if not rows.size:
        return
    named = ", ".join(parameter.name for parameter in row_parameters(law))
    advice = (
        f"{named} of {name} has one number per comparison, but cgf is not elementwise: write cgf "
        "elementwise, or declare a field that holds a table with gbt_jax.laws.table()"
    )

    def evaluate_rows() -> tuple[Array, Array, Array, Array]:
        ones = jnp.ones(rows.size)
        single = jax.vmap(lambda row: law.at_rows(row).cgf(jnp.ones(())))(rows)
        of_rows = jax.vmap(lambda row: values(law.at_rows(row)))(rows)
        return law.at_rows(rows).cgf(ones), single, *of_rows

    try:
        with eager_constants():
            together, single, *of_rows = jax.jit(evaluate_rows)()
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{advice} ({error})") from error
    if together.shape != single.shape or not np.allclose(
        together, single, rtol=1e-4, equal_nan=True
    ):
        raise ValueError(advice)
    for row, *found in zip(rows, *(np.asarray(x, float) for x in of_rows), strict=True):
        _check_values(f"{name} of row {row}", t, *found)


def _rows_to_check(law: AbstractRootLaw) -> np.ndarray:
    """A sample of rows, and the rows where a parameter is smallest or largest."""
    parameters = [np.asarray(parameter.value) for parameter in row_parameters(law)]
    size = parameters[0].size
    some = np.linspace(0, max(size - 1, 0), min(size, _CHECKED_ROWS)).astype(int)
    ends = [end(x) for x in parameters if size for end in (np.argmin, np.argmax)]
    return np.unique(np.append(some, np.asarray(ends, int)))


def _check_values(name: str, t: np.ndarray, cgf: np.ndarray, variance: np.ndarray) -> None:
    (at_zero,), up, down = np.split(cgf, [1, 1 + t.size])
    if not abs(at_zero) <= 1e-6:
        raise ValueError(f"{name} is not normalised: cgf(0) is {at_zero}, but must be 0")
    for i in range(len(t)):
        if not (np.isfinite(up[i]) and np.isfinite(down[i])):
            if i > 0 and up[i - 1] > 1e6:  # finite, but beyond the largest float
                break
            raise ValueError(
                f"{name} lacks exponential moments: E[exp(t r)] is not finite at t = ±{t[i]:g}. "
                "A root law needs all of them (Laplace, Student and Cauchy laws lack them)"
            )
        if abs(up[i] - down[i]) > 1e-4 * abs(up[i]):
            raise ValueError(
                f"{name} is not symmetric: cgf({t[i]:g}) is {up[i]:g}, "
                f"cgf({-t[i]:g}) is {down[i]:g}"
            )
    convex = variance[: 1 + t.size] >= 0
    known = np.append(True, np.isfinite(up) & (up < 1e6))
    bad = np.flatnonzero(~convex & known)
    if bad.size or not variance[0] > 0:
        where = np.append(0.0, t)[bad[0]] if bad.size else 0.0
        raise ValueError(f"{name} is not convex: its variance (cgf'') is not positive at {where:g}")
