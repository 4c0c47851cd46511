"""Root laws: their distribution at equal scores, and moments against the score difference."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..laws import AbstractRootLaw
from ._axes import COLOURS, FAINT, check_axes, get_axes, remove_frame, set_title, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Literal["density", "mean", "variance"]

_NUM_POINTS = 801
_REACH = 4.0  # standard deviations of an unbounded law
_SATURATION = 0.9  # of a bounded law's largest value: the mean is drawn up to there
_MANY_VALUES = 60  # with more values, stems are left out
_STYLES = ("-", "--", "-.", ":")


def law(
    law: AbstractRootLaw | Mapping[str, AbstractRootLaw],
    *,
    what: Curve = "density",
    max_difference: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """A root law, or several in one picture: f, Φ' or Φ''.

    **Arguments:**

    - `law`: a law, or laws by name.
    - `what`: `"density"` is f(r), the distribution at equal scores, as a line for a density and as
      stems for probabilities; it needs the law's `log_prob`. `"mean"` is E[r] = Φ'(t) and
      `"variance"` Var[r] = Φ''(t) over the score difference t.
    - `max_difference`: the largest |t|. By default the mean is there 90% of the largest value, or
      three standard deviations if there is no largest value.
    - `ax`: the `Axes` to draw into, by default those of a new figure.

    **Returns:** the `Axes`. A density that is infinite at the ends is cut off there.
    """
    check_axes(ax)
    named = _laws_by_name(law)
    if what not in get_args(Curve):
        raise ValueError(f"what must be one of {', '.join(get_args(Curve))}, not {what!r}")
    if max_difference is not None and not 0 < max_difference < np.inf:
        raise ValueError(f"max_difference must be positive and finite, not {max_difference}")
    if what == "density":
        return _draw_roots(named, ax)
    return _draw_moments(named, what, max_difference or _default_difference(named), ax)


def _draw_moments(
    named: dict[str, AbstractRootLaw], what: str, reach: float, ax: "Axes | None"
) -> "Axes":
    t = np.linspace(-reach, reach, _NUM_POINTS)
    curves = [_evaluate(getattr(one, what), t) for one in named.values()]
    ax = get_axes(ax, 6.4, 4.2)
    for number, (name, curve) in enumerate(zip(named, curves, strict=True)):
        ax.plot(t, curve, label=shorten(name), **_style(number))
    if what == "mean":
        ax.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
        ax.axvline(0, color=FAINT, linewidth=0.8, zorder=1)
    else:
        ax.set_ylim(bottom=0)
    titles = {"mean": "expected comparison", "variance": "variance of the comparison"}
    symbols = {"mean": "E[r] = Φ′(t)", "variance": "Var[r] = Φ″(t)"}
    ax.set_xlabel("score difference t")
    ax.set_ylabel(symbols[what])
    return _finish(ax, named, titles[what])


def _draw_roots(named: dict[str, AbstractRootLaw], ax: "Axes | None") -> "Axes":
    extents = [_extent(one) for one in named.values()]
    reach = 1.08 * max(extents)
    curves = [_root(one, extent) for one, extent in zip(named.values(), extents, strict=True)]
    ax = get_axes(ax, 6.4, 4.2)
    ceiling = 0.0
    for number, (name, (r, f)) in enumerate(zip(named, curves, strict=True)):
        extent = extents[number]
        if named[name].is_discrete:
            _draw_stems(ax, r, f, number, shorten(name), len(named))
            ceiling = max(ceiling, f.max())
            continue
        is_bounded = np.isfinite(float(named[name].max_value))
        ends = ([-reach, -extent], [extent, reach]) if is_bounded else ([], [])
        zero = np.zeros(len(ends[0]))
        x, y = np.concatenate([ends[0], r, ends[1]]), np.concatenate([zero, f, zero])
        ax.plot(x, y, label=shorten(name), **_style(number))
        inside = np.abs(r) < 0.99 * extent
        is_infinite = is_bounded and f.max() > 2 * f[inside].max()
        ceiling = max(ceiling, f[inside].max() if is_infinite else f.max())
    ax.set_xlim(-reach, reach)
    ax.set_ylim(0, 1.08 * ceiling)
    kinds = {one.is_discrete: None for one in named.values()}
    names = {False: "density", True: "probability"}
    ax.set_xlabel("comparison r")
    ax.set_ylabel(" or ".join(names[kind] for kind in kinds) + " f(r)")
    return _finish(ax, named, "distribution at equal scores")


def _draw_stems(
    ax: "Axes", values: np.ndarray, chances: np.ndarray, number: int, name: str, count: int
) -> None:
    """Draw the stems of one of several laws, a few points beside those of the others."""
    from matplotlib.transforms import ScaledTranslation

    style = _style(number)
    beside = 5 * (number - 0.5 * (count - 1)) / 72
    where = ax.transData + ScaledTranslation(beside, 0, ax.figure.dpi_scale_trans)
    is_crowded = values.size > _MANY_VALUES
    marker = "os^DvP"[number % 6]
    size = 2 if is_crowded else 6
    color = style["color"]
    ax.plot(values, chances, marker, color=color, markersize=size, label=name, transform=where)
    if not is_crowded:
        ax.vlines(values, 0, chances, color=color, linestyle=style["linestyle"], transform=where)


def _root(law: AbstractRootLaw, extent: float) -> tuple[np.ndarray, np.ndarray]:
    """Values of the support, and f there."""
    if law.is_discrete:
        values = _support(law, extent)
    elif np.isfinite(float(law.max_value)):
        # Dense where densities rise at the ends, and never at the ends, where some are infinite.
        values = -extent * np.cos((np.arange(_NUM_POINTS) + 0.5) * np.pi / _NUM_POINTS)
    else:
        values = np.linspace(-extent, extent, _NUM_POINTS)
    return values, np.exp(_evaluate(law.log_prob, values, 0.0))


def _support(law: AbstractRootLaw, extent: float) -> np.ndarray:
    """Values of a discrete law; only some of them if there are very many."""
    atoms = law.atoms()
    if atoms is None:
        start = np.linspace(-1.01 * extent, extent, _NUM_POINTS)
        values = start + _evaluate(law.step_up, start)
        values = values[np.abs(values) <= 1.005 * extent]
    else:
        values = np.asarray(atoms[0], float)
    # Equal sums may differ by rounding.
    _, first = np.unique(np.round(values / extent, 5), return_index=True)
    return values[first]


def _extent(law: AbstractRootLaw) -> float:
    """The largest value, or for an unbounded law one that few values exceed."""
    largest = float(law.max_value)
    if np.isfinite(largest):
        return largest
    # Rare counts are nearly always 0: show at least two steps.
    steps = 2.5 * float(_evaluate(law.step_up, 0.0)) if law.is_discrete else 0.0
    return max(_REACH * _root_std(law), steps)


def _root_std(law: AbstractRootLaw) -> float:
    return float(np.sqrt(_evaluate(law.variance, 0.0)))


def _default_difference(named: dict[str, AbstractRootLaw]) -> float:
    """Where all bounded laws saturate, or less if an unbounded law would grow too large."""
    bounded, unbounded = [], []
    for one in named.values():
        largest = float(one.max_value)
        is_bounded = np.isfinite(largest)
        goal = _SATURATION * largest if is_bounded else 3 * _root_std(one)
        (bounded if is_bounded else unbounded).append(float(_evaluate(one.inverse_mean, goal)))
    return min([max(bounded), *unbounded] if bounded else unbounded)


def _laws_by_name(
    law: AbstractRootLaw | Mapping[str, AbstractRootLaw],
) -> dict[str, AbstractRootLaw]:
    named = {law_name(law): law} if isinstance(law, AbstractRootLaw) else law
    if not isinstance(named, Mapping) or not named:
        raise TypeError(f"law must be a root law, or a dictionary of root laws, not {law!r}")
    for name, one in named.items():
        if not isinstance(one, AbstractRootLaw):
            raise TypeError(f"law {name!r} must be a root law, not {one!r}")
        if one.num_rows is not None:
            raise ValueError(
                f"{type(one).__name__} has parameters for {one.num_rows} comparisons: draw the law "
                "of one of them, law.at_rows(0)"
            )
    return {str(name): one for name, one in named.items()}


def law_name(law: AbstractRootLaw) -> str:
    """The expression of a law: Beta(0.5), Scaled(Binary(), 0.5), Finite(…)."""
    parts = []
    for field in dataclasses.fields(law):
        value = getattr(law, field.name)
        if isinstance(value, AbstractRootLaw):
            parts.append(law_name(value))
        elif isinstance(value, int | float):
            parts.append(f"{value:g}")
        elif isinstance(value, jax.Array | np.ndarray) and value.ndim == 0:
            parts.append(f"{float(value):.4g}")
        else:
            return f"{type(law).__name__}(…)"
    return f"{type(law).__name__}({', '.join(parts)})"


def _evaluate(method: Callable, *arguments: np.ndarray | float) -> np.ndarray:
    """Evaluate a law's method as one compiled program, instead of one program per operation."""
    return np.asarray(eqx.filter_jit(method)(*map(jnp.asarray, arguments)), float)


def _style(number: int) -> dict:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _STYLES[number % len(_STYLES)],
        "linewidth": 1.8,
    }


def _finish(ax: "Axes", named: dict[str, AbstractRootLaw], title: str) -> "Axes":
    remove_frame(ax, "top", "right")
    alone = len(named) == 1
    if not alone:
        ax.legend(framealpha=0.9)
    set_title(ax, f"{shorten(next(iter(named)), 60)}: {title}" if alone else title)
    return ax
