"""Checks of the theorems on a fit, or on any estimator.

- Monotone: raising the value of a comparison of a with b raises a's score and lowers b's. For a
  fit ∂θ*_a/∂r = w (n_aa − n_ab), which is positive for every law and graph.
- A new comparison with the value Φ'(θ*_a − θ*_b) changes no score; a larger one raises a.
- Resilient: under a law bounded by r_max, adding, removing or changing one comparison of weight 1
  moves the scores by at most 2√2 r_max σ² in l2, since the loss is 1/σ²-strongly convex and its
  gradient changes by at most 2 r_max at two items. Unbounded laws have no such constant.

An estimator is any function from `Comparisons` to scores.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np

from .._curvature import curvature, refuse_unfinished
from .._data._comparisons import Comparisons
from .._inference._fit import Fit, refuse_groups
from .._inference._results import RESULTS
from .._util._arrays import ArrayLike, Integer, as_indices
from ..influence._influence import what_if
from ..influence._sensitivity import solve_differences
from ..laws import AbstractRootLaw
from ._refits import Rises, refit_rises

Estimator = Callable[[Comparisons], ArrayLike]
_CONFIRMED = 5  # of each kind of change, those with the largest predicted effect


@final
@dataclasses.dataclass(frozen=True)
class CheckResult:
    """A claim, whether it holds, its margin, and the worst case.

    Cases in which scores are not finite are counted as `not_evaluated`, and do not affect `holds`.
    `holds` is None if no case could be evaluated.
    """

    claim: str
    holds: bool | None
    margin: float  # negative if the claim fails, NaN if it could not be evaluated
    worst: str
    checked: int
    numbers: dict[str, float]
    not_evaluated: int = 0
    first_not_evaluated: str = ""

    @property
    def verdict(self) -> str:
        """`holds` in words."""
        return {True: "holds", False: "FAILS", None: "NOT EVALUATED"}[self.holds]

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.claim}", f"  cases checked  {self.checked}"]
        if self.not_evaluated:
            first = f" (first: {self.first_not_evaluated})"
            lines += [f"  not evaluated: {self.not_evaluated}{first}"]
        if self.holds is not None:
            lines += [f"  margin         {self.margin:.4g}", f"  worst case     {self.worst}"]
        lines += [f"  {name} = {number:.6g}" for name, number in self.numbers.items()]
        return "\n".join(lines)


def check_monotone(
    subject: Fit | Estimator,
    comparisons: Comparisons | None = None,
    *,
    step: float | None = None,
    max_value: float | None = None,
    rows: ArrayLike | None = None,
) -> CheckResult:
    """Whether raising a comparison's value raises the first item's score and lowers the second's.

    A fit of a continuous law, with or without groups, is checked by the sign of the derivatives of
    all comparisons; that of a discrete law by refits, with each comparison one step up. An
    estimator is called with each value raised by `step`. If a value cannot be raised within the
    support, or raising it gives scores of its two items that are not finite, it is lowered instead,
    and a's score must fall. Comparisons for which neither gives finite scores are counted in
    `CheckResult.not_evaluated`.

    **Arguments:**

    - `subject`: a fit, or an estimator: a function from `Comparisons` to scores.
    - `comparisons`: the data of an estimator.
    - `step`: by how much the values of an estimator are raised.
    - `max_value`: an estimator is called with values of up to ±`max_value` only, so that they
      stay inside the support of its law.
    - `rows`: only these comparisons.

    **Returns:** a `CheckResult`.
    """
    if isinstance(subject, Fit):
        if comparisons is not None or step is not None or max_value is not None:
            raise ValueError(
                "comparisons, step and max_value are for estimators: a fit has its own"
            )
        refuse_unfinished(subject)
        return _check_monotone_fit(subject, as_indices("rows", rows, len(subject.comparisons)))
    _check_estimator(subject, "check_monotone")
    if comparisons is None or step is None or not step > 0:
        raise ValueError("an estimator is checked with comparisons and a positive step")
    if max_value is not None and not max_value > 0:
        raise ValueError(f"max_value must be positive, not {max_value}")
    return _check_monotone_estimator(
        subject,
        comparisons,
        step,
        math.inf if max_value is None else max_value,
        as_indices("rows", rows, len(comparisons)),
    )


def check_new_comparison(
    fit: Fit, a: Integer, b: Integer, *, law: AbstractRootLaw | None = None
) -> CheckResult:
    """Whether a new comparison above Φ'(θ_a − θ_b) raises a and lowers b, below it the reverse.

    The refits have the largest and the smallest value of the law's support, or for an unbounded law
    the next integers above and below Φ'(θ_a − θ_b).

    **Arguments:**

    - `fit`: a fit without groups.
    - `a`, `b`: the items of the new comparison.
    - `law`: the law of the new comparison, by default that of the fit. It is required if the fit's
      law has parameters per comparison.

    **Returns:** a `CheckResult`; `numbers` contains Φ'(θ_a − θ_b), the value that changes nothing.
    """
    refuse_groups(fit, "check_new_comparison", "a comparison is added to one group")
    first, second = as_indices("a and b", np.array([a, b]), fit.comparisons.num_items)
    if first == second:
        raise ValueError(f"item {a} cannot be compared with itself")
    own = fit.model.law_for_new_rows(law, ())
    neutral = float(own.mean(fit.scores[first] - fit.scores[second]))
    edge = float(own.max_value)
    ends = (
        (edge, -edge) if math.isfinite(edge) else (math.floor(neutral) + 1, math.ceil(neutral) - 1)
    )
    changes = []
    for value in ends:
        row = _new_row(fit, first, second, value)
        change = np.asarray(what_if(fit, added=row, added_law=law).change)
        changes.append((change[first], change[second]))
    (up, up_other), (down, down_other) = changes
    margin = min(up, -up_other, -down, down_other)
    return CheckResult(
        claim="a comparison above the expected value raises a and lowers b, below it the reverse",
        holds=bool(margin > 0),
        margin=float(margin),
        worst=f"values {ends[0]:g} and {ends[1]:g} between items {first} and {second}",
        checked=2,
        numbers={
            "value that changes nothing": neutral,
            "a's rise": float(up),
            "its fall": float(-down),
        },
    )


def check_resilience(
    subject: Fit | Estimator,
    comparisons: Comparisons | None = None,
    *,
    max_value: float | None = None,
    bound: float | None = None,
) -> CheckResult:
    """How far one comparison, added, removed or changed to an extreme, moves the scores in l2.

    For a fit the changes with the largest predicted effect are refitted and compared with
    2√2 r_max σ² (the paper's constant, 4√2 r_max σ², is twice that); an unbounded law fails, with
    an example. For an estimator every comparison is removed and changed; cases in which it returns
    NaN are counted in `CheckResult.not_evaluated`.

    **Arguments:**

    - `subject`: a fit without groups, or an estimator: a function from `Comparisons` to scores.
    - `comparisons`: the data of an estimator.
    - `max_value`: values are changed to ±`max_value`, for an estimator.
    - `bound`: the bound to check, for an estimator.

    **Returns:** a `CheckResult`.
    """
    if isinstance(subject, Fit):
        refuse_groups(subject, "check_resilience", "the bound is one of a single group")
        if comparisons is not None or max_value is not None or bound is not None:
            raise ValueError("comparisons, max_value and bound are for estimators")
        if np.isinf(np.asarray(subject.model.prior_std)).any():
            raise ValueError("without a prior nothing bounds what a comparison does: 2√2 r_max σ²")
        if not np.isfinite(np.asarray(subject.model.law.max_value)).all():
            return _unbounded_example(subject)
        return _check_resilience_fit(subject)
    _check_estimator(subject, "check_resilience")
    if comparisons is None or max_value is None or bound is None:
        raise ValueError("an estimator is checked with comparisons, max_value and bound")
    before = np.asarray(subject(comparisons))
    cases = []
    for row in range(len(comparisons)):
        weights = np.asarray(comparisons.weight).copy()
        weights[row] = 0
        removed = comparisons.with_weights(weights)
        cases.append((_distance(subject(removed), before), f"row {row} removed"))
        for value in (max_value, -max_value):
            changed = _with_value(comparisons, row, value)
            cases.append((_distance(subject(changed), before), f"row {row} set to {value:g}"))
    return _resilience_result(cases, bound, {})


def _check_estimator(subject: object, function: str) -> None:
    """Raise `TypeError` unless the subject is a function."""
    if not callable(subject):
        raise TypeError(f"{function} takes a Fit or an estimator, not {type(subject).__name__}")


def _check_monotone_fit(fit: Fit, rows: np.ndarray) -> CheckResult:
    data = fit.comparisons
    rows = rows[np.asarray(data.weight)[rows] > 0]
    numbers, is_good = {}, np.ones(rows.size, bool)
    if data.group is not None:
        is_found = np.asarray(fit.result == RESULTS.successful)
        is_good = is_found[np.asarray(data.group)[np.asarray(data.a)[rows]]]
        failed = float(np.sum(~is_found))
        numbers = {"groups": float(is_found.size), "groups without an optimum": failed}
    value, law = np.asarray(data.value)[rows], fit.model.law.at_rows(rows)
    if law.is_discrete:
        up, down = (np.asarray(step(jnp.asarray(value))) for step in (law.step_up, law.step_down))
        up, down = (np.where(is_good & (step > 0), step, np.inf) for step in (up, down))
        steps = _evaluate_steps(functools.partial(refit_rises, fit), rows, value, up, down)
        unit = "score per step"
    else:
        made = curvature(fit)
        a, b = made.edges.a[rows], made.edges.b[rows]
        # Levels of components are common to both terms, and omitted from both.
        across = made.reduced_entries(a, b)
        rises = np.minimum(*(made.reduced_entries(x, x) - across for x in (a, b)))
        steps = _Steps(np.where(is_good, rises, np.nan), np.zeros(rows.size), ~is_good)
        unit = "score per unit of value, at weight 1"
    return _monotone_result(steps, unit, lambda k: _row(data, int(rows[k])), numbers)


def _row(comparisons: Comparisons, row: int) -> str:
    a, b = int(comparisons.a[row]), int(comparisons.b[row])
    first, second = (comparisons.item_labels[item].item() for item in (a, b))
    where = ""
    if comparisons.group is not None:
        where = f"group {comparisons.group_labels[int(comparisons.group[a])].item()!r}, "
    return f"{where}row {row}, item {first!r} against {second!r}"


def _check_monotone_estimator(
    estimator: Estimator, comparisons: Comparisons, step: float, edge: float, rows: np.ndarray
) -> CheckResult:
    value = np.asarray(comparisons.value, float)[rows]
    before = np.asarray(estimator(comparisons), float)
    finite = before[np.isfinite(before)]
    rounding = 1e-9 * (1 + float(np.max(np.abs(finite), initial=0)))
    a, b = (np.asarray(x) for x in (comparisons.a, comparisons.b))

    def rises(rows: np.ndarray, values: np.ndarray) -> Rises:
        found = []
        for row, new in zip(rows.tolist(), values.tolist(), strict=True):
            after = np.asarray(estimator(_with_value(comparisons, row, new)), float)
            moved = np.copysign(1, new - float(comparisons.value[row])) * _moves(after, before)
            found.append(np.minimum(moved[a[row]], -moved[b[row]]))  # NaN if one is
        return Rises(np.asarray(found, float), np.full(len(found), rounding))

    # A step may exceed the edge by rounding: 0.7 + 0.3 is above 1 in some floats.
    slack = 1e-9 * min(edge, step)
    room = np.maximum(edge - value, 0), np.maximum(edge + value, 0)
    up, down = (np.where(step <= x + slack, np.minimum(step, x), np.inf) for x in room)
    steps = _evaluate_steps(rises, rows, value, up, down)
    return _monotone_result(steps, "score per step", lambda k: _row(comparisons, rows[k]), {})


def _moves(after: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The change of each score; NaN if it is not finite before or after."""
    is_known = np.isfinite(after) & np.isfinite(before)
    return np.where(is_known, np.where(is_known, after, 0) - np.where(is_known, before, 0), np.nan)


class _Steps(NamedTuple):
    """The smaller move of each comparison's two scores in the expected direction, or NaN."""

    least: np.ndarray
    rounding: np.ndarray  # a bound of the error of `least`
    is_lowered: np.ndarray


def _evaluate_steps(
    rises: Callable[[np.ndarray, np.ndarray], Rises],
    rows: np.ndarray,
    value: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
) -> _Steps:
    """Step comparisons up, or down if that gives NaN; a step of inf is not taken."""
    found = _Steps(np.full(rows.size, np.nan), np.zeros(rows.size), np.zeros(rows.size, bool))
    for size, is_lowered in ((up, False), (-down, True)):
        tried = np.flatnonzero(np.isnan(found.least) & np.isfinite(size))
        if tried.size:
            found.least[tried], found.rounding[tried] = rises(rows[tried], (value + size)[tried])
            found.is_lowered[tried] = is_lowered
    return found


def _monotone_result(
    steps: _Steps, unit: str, name: Callable[[int], str], numbers: dict[str, float]
) -> CheckResult:
    claim = "raising a comparison raises its first item and lowers its second"
    lost, known = np.flatnonzero(np.isnan(steps.least)), np.flatnonzero(~np.isnan(steps.least))
    left_out = (lost.size, name(int(lost[0]))) if lost.size else (0, "")
    if not known.size:
        holds, margin = (None, math.nan) if lost.size else (True, math.inf)
        worst = "no comparison could be evaluated" if lost.size else "no comparisons"
        return CheckResult(claim, holds, margin, worst, 0, numbers, *left_out)
    at_most = (steps.least + steps.rounding)[known]
    least = int(known[np.argmin(at_most)])
    worst = f"{name(least)}{', lowered' if steps.is_lowered[least] else ''} ({unit})"
    holds, margin = bool(np.all(at_most > 0)), float(steps.least[least])
    return CheckResult(claim, holds, margin, worst, known.size, numbers, *left_out)


def _check_resilience_fit(fit: Fit) -> CheckResult:
    made, rows, law = curvature(fit), fit.comparisons, fit.model.law
    edge = np.broadcast_to(np.asarray(law.max_value), len(rows))
    ones, (a, b, _) = np.ones(len(rows), fit.scores.dtype), made.edges
    lengths = np.linalg.norm(solve_differences(made, a, b, ones), axis=0)
    t = fit.scores[rows.a] - fit.scores[rows.b]
    value, weight, expected = (np.asarray(x) for x in (rows.value, rows.weight, law.mean(t)))
    far = np.where(value > 0, -edge, edge)
    against = np.where(expected > 0, -edge, edge)
    cases = []
    counted = weight > 0
    for row in _largest(lengths * np.abs(expected - value) * weight, counted):
        change = what_if(fit, removed=np.array([row]), using=made).change
        cases.append((_distance(change, 0) / float(weight[row]), f"row {row} removed"))
    for row in _largest(lengths * np.abs(far - value) * weight, counted):
        change = what_if(fit, changed=(np.array([row]), far[[row]]), using=made).change
        moved = _distance(change, 0) / float(weight[row])
        cases.append((moved, f"row {row} set to {far[row]:g}"))
    for row in _largest(lengths * np.abs(against - expected), counted):
        a, b = int(rows.a[row]), int(rows.b[row])
        added = _new_row(fit, a, b, float(against[row]))
        change = what_if(fit, added=added, added_law=_law_of_copy(fit, row), using=made).change
        cases.append((_distance(change, 0), f"{against[row]:g} added between {a} and {b}"))
    sigma = float(np.max(np.asarray(fit.model.prior_std)))
    bound = 2 * math.sqrt(2) * float(np.max(np.asarray(law.max_value))) * sigma**2
    return _resilience_result(cases, bound, {"4√2 r_max σ² (the paper's bound)": 2 * bound})


def _unbounded_example(fit: Fit) -> CheckResult:
    distances = {}
    for value in (1.0, 1e2, 1e4, 1e6):
        new = _new_row(fit, 0, 1, value)
        distances[f"change by a new comparison of {value:g}"] = _distance(
            what_if(fit, added=new, added_law=_law_of_copy(fit, 0)).change, 0
        )
    return CheckResult(
        claim="one comparison moves the scores by a bounded amount",
        holds=False,
        margin=-math.inf,
        worst=f"{type(fit.model.law).__name__} is unbounded: values between items 0 and 1",
        checked=len(distances),
        numbers=distances,
    )


def _resilience_result(cases: list[tuple[float, str]], bound: float, numbers: dict) -> CheckResult:
    known = [case for case in cases if not math.isnan(case[0])]
    lost = [name for distance, name in cases if math.isnan(distance)]
    distance, worst = max(known, default=(0.0, "no comparisons"))
    holds = bool(distance <= bound)
    if lost and not known:
        distance, worst, holds = math.nan, "no case could be evaluated", None
    changes = {} if holds is None else {"worst change": distance}
    return CheckResult(
        claim=f"one comparison moves the scores by at most {bound:.4g} in l2",
        holds=holds,
        margin=bound - distance,
        worst=worst,
        checked=len(known),
        numbers={**changes, "bound": bound, **numbers},
        not_evaluated=len(lost),
        first_not_evaluated=lost[0] if lost else "",
    )


def _law_of_copy(fit: Fit, row: int) -> AbstractRootLaw | None:
    """The law of a new comparison that has the parameters of a row; None for the fit's own."""
    law = fit.model.law
    return None if law.num_rows is None else law.at_rows(row)


def _new_row(fit: Fit, a: Integer, b: Integer, value: float | int) -> Comparisons:
    columns = np.array([a]), np.array([b]), np.array([value], fit.scores.dtype)
    return Comparisons(*columns, num_items=fit.comparisons.num_items)


def _largest(effects: np.ndarray, counted: np.ndarray) -> Iterable[int]:
    rows = np.flatnonzero(counted)
    return rows[np.argsort(-effects[rows])[:_CONFIRMED]].tolist()


def _with_value(comparisons: Comparisons, row: int, value: float) -> Comparisons:
    values = np.asarray(comparisons.value).copy()
    values[row] = value
    return comparisons.with_values(values)


def _distance(scores: ArrayLike, others: ArrayLike) -> float:
    with np.errstate(invalid="ignore"):  # ∞ − ∞ gives NaN: not evaluated
        return float(np.linalg.norm(np.asarray(scores) - np.asarray(others)))
