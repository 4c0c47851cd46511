"""Newton's method for a batch of problems, in float64 or long double.

The Hessian is diag(1/σ²) + a Laplacian. Its elimination never subtracts (as Grassmann, Taksar and
Heyman's), so that solutions for non-negative right-hand sides, and the inverse, are right entry by
entry whatever the weights. Above `DENSE` items LAPACK solves in float64.
"""

from typing import NamedTuple

import numpy as np
import reference_laws
import scipy.linalg
from adversarial import LawSpec
from reference_laws import Array

DENSE = 100
LONG = np.longdouble
EPS = float(np.finfo(LONG).eps)
_MAX_STEPS = {np.dtype(np.float64): 400, np.dtype(LONG): 60}


class Batch(NamedTuple):
    """Problems of one setting, stacked, in one dtype."""

    law: LawSpec
    a: Array
    b: Array
    value: Array
    weight: Array
    precision: Array
    mean: Array
    component: Array  # labels of connected components, distinct in the whole batch

    def take(self, chosen: Array) -> "Batch":
        """A subset of the problems."""
        columns = {name: getattr(self, name)[chosen] for name in self._fields[1:]}
        return Batch(_take_law(self.law, chosen), **columns)

    def astype(self, dtype) -> "Batch":
        """The same in another dtype."""
        names = ("value", "weight", "precision", "mean")
        return self._replace(**{name: getattr(self, name).astype(dtype) for name in names})


def _take_law(law: LawSpec, chosen: Array) -> LawSpec:
    def take(x):
        if isinstance(x, LawSpec):
            return _take_law(x, chosen)
        return x[chosen] if np.ndim(x) == 2 else x

    return LawSpec(law.name, tuple(take(x) for x in law.parameters))


class Point(NamedTuple):
    """Derivatives of the losses at some scores."""

    gradient: Array
    unit: Array
    curvature: Array  # w Φ''(t), one per row


def evaluate(batch: Batch, scores: Array) -> Point:
    lanes = np.arange(len(scores))[:, None]
    at_a, at_b = scores[lanes, batch.a], scores[lanes, batch.b]
    residual, variance = reference_laws.moments(batch.law, at_a - at_b, batch.value)
    counts = batch.weight > 0
    pull = np.where(counts, batch.weight * residual, 0)
    curvature = np.where(counts, batch.weight * variance, 0)
    size = np.where(
        counts, batch.weight * (np.abs(residual + batch.value) + np.abs(batch.value)), 0
    )
    size = size + curvature * (np.abs(at_a) + np.abs(at_b))
    gap = scores - batch.mean
    slope, unit = batch.precision * gap, batch.precision * (np.abs(scores) + np.abs(batch.mean))
    np.add.at(slope, (lanes, batch.a), pull)
    np.subtract.at(slope, (lanes, batch.b), pull)
    np.add.at(unit, (lanes, batch.a), size)
    np.add.at(unit, (lanes, batch.b), size)
    return Point(slope, unit, curvature)


def centre(batch: Batch, scores: Array) -> Array:
    """Scores with the mean that the prior sets per component, or mean zero without a prior."""
    label = batch.component - batch.component.min()
    sums = np.zeros((4, label.max() + 1), scores.dtype)
    gap = np.where(batch.precision > 0, scores - batch.mean, 0)
    columns = batch.precision, batch.precision * gap, np.ones_like(scores), scores
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, label, column)
    held = sums[0] > 0
    level = np.where(held, sums[1], sums[3]) / np.where(held, sums[0], np.maximum(sums[2], 1))
    return scores - level[label]


def start(batch: Batch) -> Array:
    """The prior mean; items without a prior get the mean of their component."""
    at_prior = np.where(batch.precision > 0, batch.mean, 0)
    label = batch.component - batch.component.min()
    sums = np.zeros((2, label.max() + 1), at_prior.dtype)
    np.add.at(sums[0], label, batch.precision)
    np.add.at(sums[1], label, batch.precision * at_prior)
    level = (sums[1] / np.where(sums[0] > 0, sums[0], 1))[label]
    return np.where(batch.precision > 0, batch.mean, level)


# ---------------------------------------------------------------------------- linear elimination


class Elimination(NamedTuple):
    """Conductances and pivots of eliminated items; pivots are 0 in the null space."""

    conductance: Array
    pivot: Array

    def solve(self, rhs: Array) -> Array:
        """x with M x = rhs, of shape (lanes, items, columns); 0 at items with pivot 0."""
        n, x = rhs.shape[1], rhs.copy()
        safe = np.where(self.pivot > 0, self.pivot, 1)
        for k in range(n):
            share = self.conductance[:, k, k + 1 :] / safe[:, k, None]
            x[:, k + 1 :] += share[:, :, None] * x[:, k, None, :]
        for k in range(n - 1, -1, -1):
            flow = (self.conductance[:, k, k + 1 :, None] * x[:, k + 1 :]).sum(axis=1)
            x[:, k] = np.where(self.pivot[:, k, None] > 0, (x[:, k] + flow) / safe[:, k, None], 0)
        return x


def _eliminate(batch: Batch, curvature: Array) -> Elimination:
    """M = diag(precision) + Laplacian, eliminated item by item with additions only."""
    n = batch.precision.shape[1]
    conductance = _conductances(batch, curvature)
    ground, pivot = batch.precision.copy(), np.empty_like(batch.precision)
    for k in range(n):
        row = conductance[:, k, k + 1 :]
        pivot[:, k] = ground[:, k] + row.sum(axis=1)
        share = row / np.where(pivot[:, k] > 0, pivot[:, k], 1)[:, None]
        conductance[:, k + 1 :, k + 1 :] += share[:, :, None] * row[:, None, :]
        ground[:, k + 1 :] += share * ground[:, k, None]
    return Elimination(conductance, pivot)


def _conductances(batch: Batch, curvature: Array) -> Array:
    lanes, n = batch.precision.shape
    matrix = np.zeros((lanes, n, n), curvature.dtype)
    lane = np.arange(lanes)[:, None]
    np.add.at(matrix, (lane, batch.a, batch.b), curvature)
    np.add.at(matrix, (lane, batch.b, batch.a), curvature)
    matrix[:, np.arange(n), np.arange(n)] = 0
    return matrix


class Factorisation:
    """The same for large problems: Cholesky in float64, the null space projected out."""

    def __init__(self, batch: Batch, curvature: Array):
        matrices = _conductances(batch, curvature.astype(float))
        self.scale, self.factor = [], []
        for i in range(len(matrices)):
            precision, label = batch.precision[i].astype(float), batch.component[i]
            diagonal = precision + matrices[i].sum(axis=1)
            matrix = np.diag(diagonal) - matrices[i]
            for number in np.unique(label[precision == 0]):
                member = label == number
                if not precision[member].any():
                    unit = diagonal[member].mean() or 1.0
                    matrix[np.ix_(member, member)] += unit / member.sum()
            scale = 1 / np.sqrt(np.diag(matrix))
            self.scale.append(scale)
            self.factor.append(_cholesky(scale[:, None] * matrix * scale))

    def solve(self, rhs: Array) -> Array:
        """x with M x = rhs."""
        columns = zip(self.scale, self.factor, rhs, strict=True)
        found = [
            scale[:, None] * scipy.linalg.cho_solve(factor, scale[:, None] * one.astype(float))
            for scale, factor, one in columns
        ]
        return np.stack(found).astype(rhs.dtype)


def _cholesky(matrix: Array) -> tuple[Array, bool]:
    """Cholesky factors; the diagonal is increased where rounding makes the matrix indefinite.

    Steps are then shorter. If they do not reach rounding level the reference is uncertain.
    """
    for more in (0, 1e-13, 1e-9, 1e-5):
        try:
            return scipy.linalg.cho_factor(matrix + more * np.eye(len(matrix)))
        except (np.linalg.LinAlgError, ValueError):
            continue
    return scipy.linalg.cho_factor(np.eye(len(matrix)))


def factorise(batch: Batch, curvature: Array) -> Elimination | Factorisation:
    is_small = batch.precision.shape[1] <= DENSE
    return _eliminate(batch, curvature) if is_small else Factorisation(batch, curvature)


# -------------------------------------------------------------------------------- Newton's method


def newton(batch: Batch, scores: Array) -> tuple[Array, Array]:
    """Damped Newton steps until they stop shrinking: (scores, sizes of the last steps)."""
    dtype = scores.dtype
    sizes, best = np.full(len(scores), np.inf), np.full(len(scores), np.inf)
    stalled = np.zeros(len(scores), int)
    active = np.arange(len(scores))
    goal = 1e-10 if dtype == np.float64 else 4 * EPS
    scores = scores.copy()
    for _ in range(_MAX_STEPS[dtype]):
        part = batch.take(active)
        scores[active], size = _step(part, scores[active])
        sizes[active] = size
        shrinks = size < 0.7 * best[active]
        stalled[active] = np.where(shrinks, 0, stalled[active] + 1)
        best[active] = np.minimum(best[active], size)
        reach = 1 + np.abs(scores[active]).max(axis=1)
        is_large = size > 1e-4 * reach  # far from the optimum, steps may grow
        limit = np.where(is_large, 100, 6)
        open_ = (size > goal * reach) & (stalled[active] < limit) & np.isfinite(size)
        active = active[open_]
        if not active.size:
            break
    return scores, sizes


def _step(batch: Batch, scores: Array) -> tuple[Array, Array]:
    """One step of each problem, of full length if the slope allows, and its largest entry."""
    point = evaluate(batch, scores)
    step = factorise(batch, point.curvature).solve(-point.gradient[:, :, None])[:, :, 0]
    step = _without_level(batch, step)
    rate = reference_laws.concordance(batch.law)
    moved = np.where(batch.weight > 0, rate * np.abs(_differences(batch, step)), 0)
    c = moved.max(axis=1)
    # Self-concordance: a step of length log(1 + c)/c lowers the loss from any point.
    damped = np.where(c > 0, np.log1p(c) / np.where(c > 0, c, 1), 1)
    # A step far beyond the range of the quadratic model may end on a plateau.
    room = (4 + 2 * rate * np.abs(_differences(batch, scores))) / np.maximum(moved, 1e-300)
    wanted = np.minimum(1, room.min(axis=1))
    before = (point.gradient * step).sum(axis=1)
    after = (evaluate(batch, scores + wanted[:, None] * step).gradient * step).sum(axis=1)
    is_good = (after <= 0.1 * np.abs(before)) | (c < 1e-6)
    step = np.where(is_good, wanted, np.minimum(damped, wanted))[:, None] * step
    return scores + step, np.abs(step).max(axis=1)


def _differences(batch: Batch, scores: Array) -> Array:
    lanes = np.arange(len(scores))[:, None]
    return scores[lanes, batch.a] - scores[lanes, batch.b]


def _without_level(batch: Batch, step: Array) -> Array:
    """Steps whose mean is zero on components without a prior."""
    free = batch._replace(mean=0 * batch.mean)
    label = batch.component - batch.component.min()
    held = np.zeros(label.max() + 1, step.dtype)
    np.add.at(held, label, batch.precision)
    return np.where(held[label] > 0, step, centre(free._replace(precision=0 * step), step))


def project(inverse: Array, label: Array, precision: Array) -> Array:
    """The inverse with zero sums over components without a prior."""
    for number in np.unique(label):
        member = label == number
        if not precision[member].any():
            inverse[member] -= inverse[member].mean(axis=0)
            inverse[:, member] -= inverse[:, member].mean(axis=1, keepdims=True)
    return inverse
