"""Reference optimum of a problem, independent of `gbt_jax`, with a bound on its error.

`optima(problems)` solves problems of one setting together: damped Newton steps in float64, then in
long double (80 bits), see `reference_newton.py`. Above `DENSE` items linear systems are solved in
float64 and the gradients stay in long double. `exact_optimum` polishes the scores of a small
problem to 50 digits with mpmath.

Whether a finite optimum exists is decided exactly, by strong connectivity (Ford's condition, with
one additional node for the prior).
"""

import dataclasses
from typing import Any

import mp_reference
import numpy as np
import reference_laws
import scipy.sparse
from adversarial import LawSpec, Problem
from reference_laws import Array
from reference_newton import (
    DENSE,
    EPS,
    LONG,
    Batch,
    centre,
    evaluate,
    factorise,
    newton,
    project,
    start,
)
from scipy.sparse.csgraph import connected_components

_EXACT_STEPS = 12


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The reference for a problem; arrays are None if no finite optimum exists.

    - `exists`: whether a finite optimum exists, exactly; `exists_clearly`: also if values within
      64 ulp of the edge of the support count as values at the edge.
    - `scores`: θ* in long double; `error`: a bound on their error, per item.
    - `inverse`: |M⁻¹| at the optimum, the pseudo-inverse where the Hessian has a null space.
    - `unit`: Σ |terms| of each entry of the gradient: ε times it is the gradient's rounding.
    - `condition`: of the Hessian with unit diagonal, from the norms of it and of its inverse.
    - `is_sure`: whether Newton's method ended at rounding level.
    """

    exists: bool
    exists_clearly: bool
    scores: Array | None = None
    error: Array | None = None
    inverse: Array | None = None
    unit: Array | None = None
    condition: float = np.inf
    is_sure: bool = False

    def allowed(self, dtype: str) -> Array:
        """|M⁻¹| (rounding of the gradient): how far rounding in this dtype can move each score."""
        assert self.inverse is not None
        assert self.unit is not None
        return self.inverse @ (float(np.finfo(dtype).eps) * self.unit)


def optima(problems: list[Problem]) -> list[Optimum]:
    """The reference of each problem; they share their setting."""
    existence = [finite_optimum_exists(problem) for problem in problems]
    chosen = [i for i, exists in enumerate(existence) if exists[0]]
    results = [Optimum(*exists) for exists in existence]
    if chosen:
        batch = _stack([problems[i] for i in chosen])
        with np.errstate(all="ignore"):
            found = _solve(batch)
        for i, one in zip(chosen, found, strict=True):
            results[i] = dataclasses.replace(one, exists_clearly=existence[i][1])
            if not one.is_sure and is_quick(problems[i]):
                results[i] = _polish(problems[i], results[i])
    return results


def is_quick(problem: Problem) -> bool:
    """Whether mpmath takes about a second or less; with quadrature it takes longer."""
    return problem.num_items <= DENSE and problem.law.name != "Density"


def _polish(problem: Problem, optimum: Optimum) -> Optimum:
    """The optimum with scores and error from mpmath, where long double was not enough."""
    scores, step = exact_optimum(problem, optimum)
    rounded = np.array([LONG(float(x)) + LONG(float(x - float(x))) for x in scores])
    error = 2 * step + 2 * EPS * np.abs(rounded).astype(float)
    is_sure = step <= 1e-15 * (1 + float(np.abs(rounded).max()))
    return dataclasses.replace(optimum, scores=rounded, error=error, is_sure=is_sure)


def finite_optimum_exists(problem: Problem) -> tuple[bool, bool]:
    """Whether a finite optimum exists: exactly, and with a margin of 64 ulp at the edge.

    Under separation the loss decreases forever along some v: rows with v_a ≠ v_b have the extreme
    value in favour of the higher item, and v is 0 at items with a prior. So draw an edge for every
    v_a ≤ v_b that the data enforce: an optimum exists if each component is strongly connected.
    """
    top = np.broadcast_to(np.asarray(problem.law.top, float), problem.value.shape)
    value, n = problem.value.astype(float), problem.num_items
    ulp = float(np.finfo(problem.setting.dtype).eps)
    counts = problem.weight > 0
    std = np.broadcast_to(problem.prior_std, (n,))
    held = np.flatnonzero(np.isfinite(std))
    answers = []
    for edge in (top, top * (1 - 64 * ulp)):
        not_lost, not_won = counts & (value > -edge), counts & (value < edge)
        tails = np.concatenate([problem.b[not_lost], problem.a[not_won], held, 0 * held + n])
        heads = np.concatenate([problem.a[not_lost], problem.b[not_won], 0 * held + n, held])
        arrows = scipy.sparse.coo_matrix((np.ones(tails.size), (tails, heads)), (n + 1, n + 1))
        strong = connected_components(arrows, directed=True, connection="strong")[0]
        weak = connected_components(arrows, directed=True, connection="weak")[0]
        answers.append(bool(strong == weak))
    return answers[0], answers[1]


def gradients(problems: list[Problem], scores: Array) -> tuple[Array, Array]:
    """(∇L, Σ |terms|) of problems of one setting at some scores, in long double."""
    with np.errstate(all="ignore"):
        point = evaluate(_stack(problems), np.asarray(scores, LONG))
    return point.gradient, point.unit


def exact_optimum(problem: Problem, optimum: Optimum) -> tuple[list, float]:
    """The optimal scores with about 50 digits, from those in long double, and the last step.

    Newton's steps are not damped: where they grow instead, from a start that is not close enough,
    the last step is inf.
    """
    assert optimum.scores is not None
    mp, n = mp_reference.mp, problem.num_items
    rows = np.flatnonzero(problem.weight > 0)
    law = _take_rows(problem.law, rows)
    std = np.broadcast_to(problem.prior_std, (n,))
    mean = np.broadcast_to(problem.prior_mean, (n,))
    labels = component_numbers(problem)
    with mp.workdps(60):
        precision = [mp.mpf(0) if np.isinf(x) else 1 / mp.mpf(float(x)) ** 2 for x in std]
        scores = [_exactly(x) for x in optimum.scores]
        inverse, _ = _signed_inverse(problem, optimum.scores)
        last = np.inf
        for _ in range(_EXACT_STEPS):
            if last <= 1e-25:
                break
            t = [scores[problem.a[row]] - scores[problem.b[row]] for row in rows]
            slope = [
                p * (x - mp.mpf(float(m))) for p, x, m in zip(precision, scores, mean, strict=True)
            ]
            residual = reference_laws.exact_residuals(law, t, problem.value[rows])
            for row, one in zip(rows, residual, strict=True):
                pull = mp.mpf(float(problem.weight[row])) * one
                slope[problem.a[row]] += pull
                slope[problem.b[row]] -= pull
            steps = [mp.fdot([_exactly(x) for x in inverse[i]], slope) for i in range(n)]
            scores = [x - step for x, step in zip(scores, steps, strict=True)]
            largest = max(abs(float(step)) for step in steps)
            if largest > max(2 * last, 1e-20) or not np.isfinite(largest):
                return scores, np.inf
            last = largest
            for label in np.unique(labels):  # only rounding: Newton's method determines the mean
                members = np.flatnonzero(labels == label)
                total = mp.fsum(precision[i] for i in members)
                if total == 0:
                    level = mp.fsum(scores[i] for i in members) / members.size
                    for i in members:
                        scores[i] -= level
    return scores, last


def exact_distance(scores: Array, exact: list) -> float:
    """‖scores − θ*‖₂ for scores of mpmath."""
    mp = mp_reference.mp
    with mp.workdps(60):
        gaps = [mp.mpf(float(x)) - y for x, y in zip(scores, exact, strict=True)]
        return float(mp.sqrt(mp.fsum(gap * gap for gap in gaps)))


def component_numbers(problem: Problem) -> Array:
    """The label of each item's connected component."""
    n, counts = problem.num_items, problem.weight > 0
    pairs = problem.a[counts], problem.b[counts]
    graph = scipy.sparse.coo_matrix((np.ones(pairs[0].size), pairs), (n, n))
    return connected_components(graph, directed=False)[1]


def _stack(problems: list[Problem]) -> Batch:
    n, size = problems[0].num_items, len(problems)
    std = np.stack([np.broadcast_to(p.prior_std, (n,)) for p in problems]).astype(LONG)
    mean = np.stack([np.broadcast_to(p.prior_mean, (n,)) for p in problems]).astype(LONG)
    labels = np.stack([component_numbers(p) for p in problems])
    return Batch(
        _stack_laws([p.law for p in problems]),
        np.stack([p.a for p in problems]),
        np.stack([p.b for p in problems]),
        np.stack([p.value for p in problems]).astype(LONG),
        np.stack([p.weight for p in problems]).astype(LONG),
        np.where(np.isinf(std), 0, 1 / (std * std)),
        mean,
        labels + n * np.arange(size)[:, None],
    )


def _stack_laws(specs: list[LawSpec]) -> LawSpec:
    columns = []
    for parts in zip(*(spec.parameters for spec in specs), strict=True):
        if isinstance(parts[0], LawSpec):
            columns.append(_stack_laws(list(parts)))
        elif np.ndim(parts[0]) == 1:
            columns.append(np.stack(parts))
        else:  # numbers are those of the block
            columns.append(parts[0])
    return LawSpec(specs[0].name, tuple(columns))


def _take_rows(law: LawSpec, rows: Array) -> LawSpec:
    def take(x):
        if isinstance(x, LawSpec):
            return _take_rows(x, rows)
        return x[rows] if np.ndim(x) == 1 else x

    return LawSpec(law.name, tuple(take(x) for x in law.parameters))


def _solve(batch: Batch) -> list[Optimum]:
    scores = start(batch)
    sizes = np.zeros(len(scores))
    for dtype in (np.dtype(np.float64), np.dtype(LONG)):
        scores, sizes = newton(batch.astype(dtype), scores.astype(dtype))
        scores = centre(batch, scores.astype(LONG))
    point = evaluate(batch, scores)
    lanes, n = scores.shape
    inverse = factorise(batch, point.curvature).solve(np.tile(np.eye(n, dtype=LONG), (lanes, 1, 1)))
    inverse = np.stack(
        [project(inverse[i], batch.component[i], batch.precision[i]) for i in range(lanes)]
    )
    rounding = EPS * (np.abs(inverse) @ point.unit[:, :, None])[:, :, 0]
    step = np.abs((inverse @ point.gradient[:, :, None])[:, :, 0])
    error = 2 * step + 8 * rounding + 2 * EPS * np.abs(scores)
    reach = 1 + scores.max(axis=1) - scores.min(axis=1)  # their mean carries no information
    results = []
    for i in range(lanes):
        is_sure = bool(np.isfinite(scores[i]).all() and error[i].max() <= 1e-3 * reach[i])
        is_sure &= bool(sizes[i] <= max(1e-9 * reach[i], 100 * error[i].max()))
        results.append(
            Optimum(
                exists=True,
                exists_clearly=True,
                scores=scores[i],
                error=error[i].astype(float),
                inverse=np.abs(inverse[i]).astype(float),
                unit=point.unit[i].astype(float),
                condition=_condition(batch, i, point.curvature[i], inverse[i]),
                is_sure=is_sure,
            )
        )
    return results


def _condition(batch: Batch, number: int, curvature: Array, inverse: Array) -> float:
    """The condition number of one Hessian with unit diagonal, given its inverse."""
    diagonal = batch.precision[number].copy()
    for ends in (batch.a, batch.b):
        np.add.at(diagonal, ends[number], curvature)
    root = np.sqrt(diagonal)
    scaled = root[:, None] * np.abs(inverse) * root
    return float(2 * scaled.sum(axis=1).max())


def start_condition(problem: Problem) -> float:
    """The condition number at the scores where a fit starts."""
    batch = _stack([problem])
    with np.errstate(all="ignore"):
        inverse, curvature = _signed_inverse(problem, start(batch)[0])
        return _condition(batch, 0, curvature, inverse)


def _signed_inverse(problem: Problem, scores: Array) -> tuple[Array, Array]:
    """The inverse of the Hessian, and the curvatures of the rows."""
    batch = _stack([problem])
    with np.errstate(all="ignore"):
        point = evaluate(batch, scores[None])
        n = problem.num_items
        inverse = factorise(batch, point.curvature).solve(np.eye(n, dtype=LONG)[None])[0]
    return project(inverse, batch.component[0], batch.precision[0]), point.curvature[0]


def _exactly(x) -> Any:
    """Convert a long double to an mpmath number."""
    high = float(x)
    low = float(x - LONG(high))
    return mp_reference.mp.mpf(high) + mp_reference.mp.mpf(low)
