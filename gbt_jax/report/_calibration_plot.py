"""Observed against expected comparisons as a plot and as a table."""

import math
from statistics import NormalDist

import numpy as np

from ..frames import Ranking
from ..prediction._calibration import Calibration
from ._held_out import HeldOut, held_out_calibration
from ._html import compact, number, plural, table, text

_WIDTH, _HEIGHT = 400, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 42  # margins


def calibration_section(ranking: Ranking) -> str:
    """The plot with a caption, or the reason why it is missing."""
    found = held_out_calibration(ranking)
    if isinstance(found, str):
        return f"<p>{text(found)}</p>"
    half = NormalDist().inv_cdf(0.5 + ranking.level / 2)
    low, high = _band(found.calibration, half)
    is_outside = (found.calibration.observed < low) | (found.calibration.observed > high)
    return "\n".join(
        [
            f"<p>{_method(ranking, found)}</p>",
            f"<figure>{_drawing(found.calibration, low, high, is_outside)}",
            f"<figcaption>{_caption(ranking, is_outside)}</figcaption></figure>",
            f"<p>{_total(found.calibration)}</p>",
            f"<details><summary>The numbers</summary>{_numbers(found.calibration, half)}</details>",
        ]
    )


def _band(found: Calibration, half: float) -> tuple[np.ndarray, np.ndarray]:
    reach = half * found.standard_error
    return found.predicted - reach, found.predicted + reach


def _method(ranking: Ranking, found: HeldOut) -> str:
    total = ranking.votes.num_groups
    where = ""
    if total > 1:
        which = "the largest" if found.num_groups == 1 else f"the {found.num_groups:,} largest"
        all_of_them = found.num_groups == total
        where = f" of all {total:,} groups" if all_of_them else f" of {which} of {total:,} groups"
    return (
        f"{plural(found.num_held, 'comparison')}{where}, drawn at random, were held out. The "
        f"other {found.num_fitted:,} were refitted to predict them. The ranking above uses all "
        "comparisons."
    )


def _caption(ranking: Ranking, is_outside: np.ndarray) -> str:
    outside, size = int(is_outside.sum()), is_outside.size
    return (
        f"Each dot is one of {size} bins of the held-out comparisons, oriented so that the item "
        "with the higher score comes first. The horizontal axis is the expected mean outcome, the "
        "vertical axis the observed one. If law and scores are right, a dot lies in the band "
        f"around the diagonal with probability {compact(100 * ranking.level)}%. Dots above it "
        "mean differences larger than predicted; dots below mean an overconfident ranking. "
        f"Here {outside} of {size} {'lies' if outside == 1 else 'lie'} outside."
    )


def _total(found: Calibration) -> str:
    p = found.p_value
    verdict = "no sign of a misfit" if p >= 0.05 else "a sign that law or scores do not fit"
    verdict = verdict if p >= 0.001 else "law or scores do not fit well"
    gain = found.log_score - found.root_log_score
    change = "more" if gain >= 0 else "less"
    return (
        f"All bins together: χ² = {compact(found.statistic)} on {found.degrees_of_freedom} degrees "
        f"of freedom, p {f'= {p:.2g}' if p >= 1e-4 else '&lt; 0.0001'}: {verdict}. A comparison’s "
        f"log score is {compact(found.log_score)} ± {found.log_score_error:.1g} on average, "
        f"{compact(abs(gain))} {change} than with all scores equal."
    )


def _numbers(found: Calibration, half: float) -> str:
    columns = (found.count, found.predicted, found.observed, half * found.standard_error)
    rows = [
        [f"{count:,.6g}", number(predicted), number(observed), "±" + number(margin)]
        for count, predicted, observed, margin in zip(*columns, strict=True)
    ]
    head = ("Comparisons", "Expected", "Observed", "Band")
    return table("Expected and observed comparisons by bin", head, rows, "nnnn")


def _drawing(found: Calibration, low: np.ndarray, high: np.ndarray, is_outside: np.ndarray) -> str:
    reach = float(found.predicted.max()) * 1.05 or 1.0
    bottom = min(0.0, float(low.min()), float(found.observed.min()))
    top = max(reach, float(high.max()), float(found.observed.max()))
    margin = 0.04 * (top - bottom)
    bottom, top = bottom - margin * (bottom < 0), top + margin

    def x(value: float) -> str:
        return f"{_LEFT + value / reach * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(value: float) -> str:
        share = (value - bottom) / (top - bottom)
        return f"{_HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP):.1f}"

    upper = [f"{x(p)},{y(v)}" for p, v in zip(found.predicted, high, strict=True)]
    lower = [f"{x(p)},{y(v)}" for p, v in zip(found.predicted, low, strict=True)]
    parts = [_grid(x, y, reach, bottom, top)]
    parts.append(f'<polygon class="band" points="{" ".join(upper + lower[::-1])}"/>')
    parts.append(f'<path class="diagonal" d="M{x(0)} {y(0)}L{x(reach)} {y(min(reach, top))}"/>')
    for p, o, out in zip(found.predicted, found.observed, is_outside, strict=True):
        kind = "dot outside" if out else "dot"
        parts.append(f'<circle class="{kind}" cx="{x(p)}" cy="{y(o)}" r="4"/>')
    name = "Observed against expected comparisons; the numbers are in the table below"
    return (
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{name}">'
        f"{''.join(parts)}</svg>"
    )


def _grid(x, y, reach: float, bottom: float, top: float) -> str:
    """Lines and numbers of both axes, and their names."""
    right, base = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in _ticks(0, reach):
        parts.append(f'<path class="grid" d="M{x(tick)} {_TOP}V{base}"/>')
        parts.append(f'<text x="{x(tick)}" y="{base + 15}" class="middle">{compact(tick)}</text>')
    for tick in _ticks(bottom, top):
        parts.append(f'<path class="grid" d="M{_LEFT} {y(tick)}H{right}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y(tick)}" dy="4" class="end">{compact(tick)}</text>'
        )
    middle = (_LEFT + right) / 2, (_TOP + base) / 2
    parts.append(f'<text x="{middle[0]}" y="{_HEIGHT - 8}" class="middle">expected</text>')
    parts.append(
        f'<text transform="translate(13 {middle[1]}) rotate(-90)" class="middle">observed</text>'
    )
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between `low` and `high`."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]
