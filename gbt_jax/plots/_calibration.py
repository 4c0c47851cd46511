"""Observed against predicted comparisons, with the band expected of a calibrated model."""

from typing import TYPE_CHECKING

from .._curvature import AbstractCurvature
from .._data._comparisons import Comparisons
from .._inference._fit import Fit
from ..prediction._calibration import Calibration
from ..prediction._calibration import calibration as calibrate
from ..uncertainty._laplace import normal_quantile
from ._axes import COLOURS, FAINT, check_axes, check_fit, get_axes, remove_frame, set_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def calibration(
    calibration_or_fit: Calibration | Fit,
    held_out: Comparisons | None = None,
    *,
    bins: int | None = None,
    level: float = 0.95,
    using: AbstractCurvature | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """The mean comparison of each bin, observed against predicted, with the expected band.

    If model and fit are right, each dot lies in the band with probability `level`. The numbers at
    the dots count the comparisons of their bins.

    **Arguments:**

    - `calibration_or_fit`: the result of `gbt_jax.calibration`, or a fit.
    - `held_out`: comparisons that the fit has not seen; only with a fit.
    - `bins`, `using`: options of `gbt_jax.calibration`; only with a fit.
    - `level`: the level of the band.
    - `ax`: the `Axes` to draw into, by default those of a new figure.

    **Returns:** the `Axes`.
    """
    check_axes(ax)
    quantile = normal_quantile(level)
    found = _as_calibration(calibration_or_fit, held_out, bins, using)
    predicted, half = found.predicted, quantile * found.standard_error
    ax = get_axes(ax, 5.6, 5.2)
    ax.axline((0, 0), slope=1, color=FAINT, linewidth=1, zorder=1)
    band = f"{100 * level:g}% band of a calibrated model"
    colour = COLOURS[5]
    ax.fill_between(
        predicted, predicted - half, predicted + half, color=colour, alpha=0.25, linewidth=0
    )
    # The band does not show where its bins are, and with one bin it has no width.
    ax.vlines(
        predicted, predicted - half, predicted + half, color=colour, linewidth=1.5, label=band
    )
    ax.plot(
        predicted,
        found.observed,
        "o",
        color=COLOURS[0],
        label="observed, with the count",
        markersize=6,
    )
    for x, y, count in zip(predicted, found.observed, found.count, strict=True):
        ax.annotate(
            f"{count:.4g}", (x, y), (6, 0), textcoords="offset points", va="center", fontsize=7
        )
    ax.set_xlabel("predicted mean comparison")
    ax.set_ylabel("observed mean comparison")
    ax.legend(fontsize="small")
    remove_frame(ax, "top", "right")
    set_title(
        ax,
        f"calibration: {found.count.sum():,.6g} comparisons in {found.count.size} bins",
        f"χ²({found.degrees_of_freedom}) = {found.statistic:.3g}, p = {found.p_value:.2g}",
    )
    return ax


def _as_calibration(
    given: Calibration | Fit,
    held_out: Comparisons | None,
    bins: int | None,
    using: AbstractCurvature | None,
) -> Calibration:
    options = {"bins": bins, "using": using}
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(given, Calibration):
        if held_out is not None or options:
            raise TypeError("held_out, bins and using need a Fit: a Calibration has its own bins")
        return given
    check_fit(given, "calibration")
    if held_out is None:
        raise TypeError(
            "pass the fit together with held_out comparisons, which it has not seen, or the result "
            "of gbt_jax.calibration"
        )
    return calibrate(given, held_out, **options)
