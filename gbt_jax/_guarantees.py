"""What is promised of every fit, checked on this one, and on anybody's estimator.

- Monotone: raising the value of a comparison of a with b raises a's score and lowers b's. For a
  fit ∂θ*_a/∂r = w (n_aa − n_ab), which is positive for every law and graph.
- A new comparison with the value Φ'(θ*_a − θ*_b) leaves all scores alone; above it a rises.
- Resilient: under a law bounded by r_max, adding, removing or changing one comparison of weight 1
  moves the scores by at most 2√2 r_max σ² in l2, since the loss is 1/σ²-strongly convex and its
  gradient changes by at most 2 r_max at two items. Unbounded laws have no such constant.

An estimator is any function from `Comparisons` to scores.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import final

import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from ._arrays import as_indices
from ._comparisons import Comparisons
from ._curvature import curvature, refuse_unfinished
from ._fit import RESULTS, Fit
from ._influence import what_if
from ._sensitivity import solved_differences
from ._stepped_refits import stepped_rises
from ._user_fits import UserFits, check_one_fit

Estimator = Callable[[Comparisons], ArrayLike]
_CONFIRMED = 5  # of each kind of change, those with the largest predicted effect


@final
@dataclasses.dataclass(frozen=True)
class Report:
    """A claim, whether it holds, by how much, and the case that comes closest to breaking it."""

    claim: str
    holds: bool
    margin: float  # negative where the claim fails
    worst: str
    checked: int
    numbers: dict[str, float]

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        lines = [f"{verdict}: {self.claim}", f"  cases checked  {self.checked}"]
        lines += [f"  margin         {self.margin:.4g}", f"  worst case     {self.worst}"]
        lines += [f"  {name} = {number:.6g}" for name, number in self.numbers.items()]
        return "\n".join(lines)


def check_monotone(
    subject: Fit | UserFits | Estimator,
    comparisons: Comparisons | None = None,
    *,
    step: float | None = None,
    rows: ArrayLike | None = None,
) -> Report:
    """Whether raising a comparison's value raises the first item's score and lowers the second's.

    For a fit, or the fits of many users at once, of a continuous law by the sign of the
    derivatives of all comparisons; of a discrete law by refits, each comparison one step up. For
    an estimator, which comes with its `comparisons`, by calling it with each value raised by
    `step`.

    **Arguments:**

    - `rows`: only these comparisons (of many users, in the order of their `UserComparisons`).
    """
    if isinstance(subject, Fit | UserFits):
        if comparisons is not None or step is not None:
            raise ValueError("comparisons and step are for estimators: a fit has its own")
        if isinstance(subject, Fit):
            refuse_unfinished(subject)
        return _monotone_fits(subject, as_indices("rows", rows, subject.comparisons.value.size))
    _check_estimator(subject, "check_monotone")
    if comparisons is None or step is None or not step > 0:
        raise ValueError("an estimator is checked with comparisons and a positive step")
    chosen = as_indices("rows", rows, len(comparisons))
    raised = np.asarray(comparisons.value) + step
    rises = _steps_of_estimator(subject, comparisons, raised, chosen)
    largest = float(np.max(np.abs(np.asarray(subject(comparisons))), initial=0))
    rounding = np.full(rises.size, 1e-9 * (1 + largest))
    return _monotone(rises, rounding, "score per step", lambda k: _row(comparisons, chosen[k]), {})


def check_new_comparison(fit: Fit, a: int, b: int) -> Report:
    """Whether a new comparison pulls where it should: up above Φ'(θ_a − θ_b), down below it.

    That value, which changes nothing, is among the report's `numbers`; the refits are with the
    largest and the smallest value of the law's support (or that value ± 1).
    """
    check_one_fit(fit, "check_new_comparison")
    first, second = as_indices("a and b", np.array([a, b]), fit.comparisons.num_items)
    if first == second:
        raise ValueError(f"item {a} cannot be compared with itself")
    law = fit.model.law
    neutral = float(law.mean(fit.scores[first] - fit.scores[second]))
    edge = float(law.max_value)
    ends = (
        (edge, -edge) if math.isfinite(edge) else (math.floor(neutral) + 1, math.ceil(neutral) - 1)
    )
    changes = []
    for value in ends:
        row = _new_row(fit, first, second, value)
        change = np.asarray(what_if(fit, added=row).change)
        changes.append((change[first], change[second]))
    (up, up_other), (down, down_other) = changes
    margin = min(up, -up_other, -down, down_other)
    return Report(
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
) -> Report:
    """How far one comparison, added, removed or changed to an extreme, moves the scores in l2.

    For a fit the changes with the largest predicted effect are refitted and held against
    2√2 r_max σ² (the paper's constant, 4√2 r_max σ², is twice that); an unbounded law fails, with
    an example. For an estimator, which comes with its `comparisons`, the extreme values
    ±`max_value` and the `bound` to hold, every comparison is removed and changed.
    """
    if isinstance(subject, Fit):
        if comparisons is not None or max_value is not None or bound is not None:
            raise ValueError("comparisons, max_value and bound are for estimators")
        if np.isinf(np.asarray(subject.model.prior_std)).any():
            raise ValueError("without a prior nothing bounds what a comparison does: 2√2 r_max σ²")
        if not math.isfinite(float(subject.model.law.max_value)):
            return _growing_example(subject)
        return _resilience_of_fit(subject)
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
    return _resilience(cases, bound, {})


def _check_estimator(subject: object, function: str) -> None:
    """Raise for what is no function, and so neither a fit nor an estimator."""
    if not callable(subject):
        check_one_fit(subject, function)


def _monotone_fits(subject: Fit | UserFits, rows: np.ndarray) -> Report:
    """A fit is the fits of one user."""
    numbers = {}
    if isinstance(subject, UserFits):
        is_good = subject.result_codes == RESULTS.successful.value
        owner = np.searchsorted(subject.comparisons.row_offsets, rows, "right") - 1
        rows = rows[is_good[owner]]
        numbers = {"users": len(subject), "users without an optimum": np.sum(~is_good)}
    rows = rows[np.asarray(subject.comparisons.weight)[rows] > 0]
    law, value = subject.model.law, np.asarray(subject.comparisons.value)[rows]
    if law.is_discrete:
        higher = np.asarray(law.step_up(jnp.asarray(value)))
        can_rise = np.isfinite(higher) & (higher > 0)
        rows, raised = rows[can_rise], (value + higher)[can_rise]
        rises, error = stepped_rises(subject, rows, raised)
        is_lost = np.isnan(rises)
        if is_lost.any():  # the score goes up without bound: the right way
            numbers["refits without an optimum"] = is_lost.sum()
            rows, rises, error = rows[~is_lost], rises[~is_lost], error[~is_lost]
        # Both fits are certified to so much; without a prior nothing is, but rounding is small.
        certified = np.where(np.isfinite(error), 2 * error, 0)
        rounding, unit = certified + 1e-9 * (1 + _largest_score(subject)), "score per step"
    else:
        made = curvature(subject)
        a, b = made.edges.a[rows], made.edges.b[rows]
        # Levels of components are common to both terms and left out of both.
        across = made.reduced_entries(a, b)
        rises = np.minimum(*(np.asarray(made.reduced_entries(x, x) - across) for x in (a, b)))
        rounding, unit = np.zeros(rises.size), "score per unit of value, at weight 1"
    names = {name: float(number) for name, number in numbers.items()}
    return _monotone(rises, rounding, unit, lambda k: _row_of(subject, rows[k]), names)


def _largest_score(subject: Fit | UserFits) -> float:
    return float(np.nanmax(np.abs(np.asarray(subject.scores)), initial=0))


def _row_of(subject: Fit | UserFits, row: int) -> str:
    if isinstance(subject, Fit):
        return _row(subject.comparisons, row)
    data = subject.comparisons
    user = int(np.searchsorted(data.row_offsets, row, "right")) - 1
    first, second = (data.items[data.item_offsets[user] + end[row]] for end in (data.a, data.b))
    who = f"user {data.users[user].item()!r}, row {data.row[row]}"
    return f"{who}, {first.item()!r} against {second.item()!r}"


def _row(comparisons: Comparisons, row: int) -> str:
    return f"row {row}, item {int(comparisons.a[row])} against {int(comparisons.b[row])}"


def _steps_of_estimator(
    estimator: Estimator, comparisons: Comparisons, raised: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    before = np.asarray(estimator(comparisons))
    a, b = (np.asarray(x) for x in (comparisons.a, comparisons.b))
    rises = []
    for row in rows:
        after = np.asarray(estimator(_with_value(comparisons, row, float(raised[row]))))
        moved = after - before
        rises.append(min(moved[a[row]], -moved[b[row]]))
    return np.asarray(rises)


def _monotone(
    rises: np.ndarray,
    rounding: np.ndarray,
    unit: str,
    name: Callable[[int], str],
    numbers: dict[str, float],
) -> Report:
    claim = "raising a comparison raises its first item and lowers its second"
    if not rises.size:
        return Report(claim, True, math.inf, "no comparison can be raised", 0, numbers)
    least = int(np.argmin(rises + rounding))
    holds = bool(np.all(rises + rounding > 0))
    return Report(claim, holds, float(rises[least]), f"{name(least)} ({unit})", rises.size, numbers)


def _resilience_of_fit(fit: Fit) -> Report:
    made, rows, law = curvature(fit), fit.comparisons, fit.model.law
    edge = float(law.max_value)
    ones = jnp.ones(len(rows), fit.scores.dtype)
    lengths = np.linalg.norm(np.asarray(solved_differences(made, rows.a, rows.b, ones)), axis=0)
    t = fit.scores[rows.a] - fit.scores[rows.b]
    value, weight, expected = (np.asarray(x) for x in (rows.value, rows.weight, law.mean(t)))
    far = np.where(value > 0, -edge, edge)
    against = np.where(expected > 0, -edge, edge)
    cases = []
    counted = weight > 0
    for row in _largest(lengths * np.abs(expected - value) * weight, counted):
        change = what_if(fit, removed=np.array([row]), using=made).change
        cases.append((_distance(change, 0) / weight[row], f"row {row} removed"))
    for row in _largest(lengths * np.abs(far - value) * weight, counted):
        change = what_if(fit, changed=(np.array([row]), far[[row]]), using=made).change
        cases.append((_distance(change, 0) / weight[row], f"row {row} set to {far[row]:g}"))
    for row in _largest(lengths * np.abs(against - expected), counted):
        a, b = int(rows.a[row]), int(rows.b[row])
        change = what_if(fit, added=_new_row(fit, a, b, against[row]), using=made).change
        cases.append((_distance(change, 0), f"{against[row]:g} added between {a} and {b}"))
    sigma = float(np.max(np.asarray(fit.model.prior_std)))
    bound = 2 * math.sqrt(2) * edge * sigma**2
    return _resilience(cases, bound, {"4√2 r_max σ² (the paper's bound)": 2 * bound})


def _growing_example(fit: Fit) -> Report:
    distances = {}
    for value in (1.0, 1e2, 1e4, 1e6):
        new = _new_row(fit, 0, 1, value)
        distances[f"change by a new comparison of {value:g}"] = _distance(
            what_if(fit, added=new).change, 0
        )
    return Report(
        claim="one comparison moves the scores by a bounded amount",
        holds=False,
        margin=-math.inf,
        worst=f"{type(fit.model.law).__name__} is unbounded: values between items 0 and 1",
        checked=len(distances),
        numbers=distances,
    )


def _resilience(cases: list[tuple[float, str]], bound: float, numbers: dict) -> Report:
    distance, worst = max(cases, default=(0.0, "no comparisons"))
    return Report(
        claim=f"one comparison moves the scores by at most {bound:.4g} in l2",
        holds=bool(distance <= bound),
        margin=bound - distance,
        worst=worst,
        checked=len(cases),
        numbers={"worst change": distance, "bound": bound, **numbers},
    )


def _new_row(fit: Fit, a: int, b: int, value: float) -> Comparisons:
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
    return float(np.linalg.norm(np.asarray(scores) - np.asarray(others)))
