"""Judge the results and certificates of `gbt_jax` against the reference.

Kinds of verdicts, for one problem solved in one mode:

- **right**: successful, and none of the following.
- **FALSE SUCCESS**: successful, and no finite optimum exists, or the scores are not finite, or the
  gradient at the scores, in long double, is far above its rounding in the dtype,
  ‖∇L‖ > c ε ‖Σ |terms|‖ with c = 64 + 4 √rows, and the error bound is not below ε^0.4 ‖θ − μ‖
  (the other criterion for success) nor, with a tolerance, below rtol ‖θ‖. If an item lacks a prior
  the scores decide: one is further from the optimum than both c |M⁻¹| ε Σ |terms| + 8 ε max |θ*|
  and √ε (1 + max |θ*|), the second only with a gradient that small, or, in any case, than
  1e-2 (1 + max |θ*|).
- **BOUND BELOW TRUE DISTANCE**: successful with a prior, and ‖scores − θ*‖₂ > `error_bound`.
- **WRONG CLAIM**: `no_finite_optimum`, but one exists, unless values are within 64 ulp of the edge.
- **CRASH**: an exception.
- **explained failure**: a failure for which `explanation` returns a reason.
- **UNEXPLAINED failure**: any other failure.
- **not judged**: successful with a small gradient, but the reference optimum is uncertain.

The terms of an entry of the gradient are w(|Φ'| + |r|) + w Φ'' (|θ_a| + |θ_b|) of its rows and
(|θ| + |μ|)/σ² of its prior. Errors of the reference count in favour of `gbt_jax`, and
the first bad verdicts are confirmed with 50 digits.
"""

import dataclasses
import enum
from typing import Literal

import numpy as np
import reference_optimum
from adversarial import Problem
from reference_laws import Array
from reference_optimum import Optimum

SUCCESS = "successful"


# The linear solver, which limits the condition numbers that a fit can handle.
Method = Literal["direct", "conjugate gradients", "first order"]


class Kind(enum.Enum):
    """The kind of a verdict; see the module docstring."""

    RIGHT = "right"
    FALSE_SUCCESS = "FALSE SUCCESS"
    BOUND_BELOW = "BOUND BELOW TRUE DISTANCE"
    WRONG_CLAIM = "WRONG CLAIM"
    CRASH = "CRASH"
    EXPLAINED = "explained failure"
    UNEXPLAINED = "UNEXPLAINED failure"
    NOT_JUDGED = "not judged"

    @property
    def is_bad(self) -> bool:
        """Whether the answer is wrong."""
        return self in (Kind.FALSE_SUCCESS, Kind.BOUND_BELOW, Kind.WRONG_CLAIM, Kind.CRASH)


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outcome of a run: name of the result, scores, the error bound if any, and its rtol."""

    result: str
    scores: Array
    error_bound: float | None = None
    rtol: float = 0.0
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A kind, its reason, and the factor by which a limit was exceeded (to sort by)."""

    kind: Kind
    reason: str = ""
    excess: float = 0.0


class Judge:
    """The reference optima of problems of one setting, computed once for all runs."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        self.optima = reference_optimum.optima(problems)

    def verdicts(self, answers: list[Answer | None], method: Method = "direct") -> list:
        """A verdict for each problem; None where there is no answer."""
        blank = np.zeros(self.problems[0].num_items)
        scores = np.stack([blank if x is None else np.asarray(x.scores, float) for x in answers])
        # Gradients at non-finite scores are not used.
        scores = np.where(np.isfinite(scores).all(axis=1, keepdims=True), scores, 0)
        slope, unit = reference_optimum.gradients(self.problems, scores)
        found = []
        for i, answer in enumerate(answers):
            if answer is None:
                found.append(None)
            elif answer.result == "exception":
                found.append(Verdict(Kind.CRASH, answer.detail, np.inf))
            elif answer.result == SUCCESS:
                sizes = _norm(slope[i]), _norm(unit[i])
                found.append(_judge_success(self.problems[i], self.optima[i], answer, *sizes))
            else:
                found.append(
                    _judge_failure(self.problems[i], self.optima[i], answer.result, method)
                )
        return found

    def confirm(self, number: int, answer: Answer, verdict: Verdict) -> Verdict:
        """Check the verdict against the optimum to 50 digits."""
        problem, optimum = self.problems[number], self.optima[number]
        if verdict.kind is not Kind.BOUND_BELOW or not reference_optimum.is_quick(problem):
            return verdict
        exact, last = reference_optimum.exact_optimum(problem, optimum)
        if not last <= 1e-20:
            return Verdict(Kind.NOT_JUDGED, "no optimum was found in 50 digits")
        distance = reference_optimum.exact_distance(answer.scores, exact)
        assert answer.error_bound is not None
        if distance > answer.error_bound:
            return verdict
        return Verdict(Kind.NOT_JUDGED, f"not confirmed: distance {distance:.3e} in 50 digits")


def _norm(x: Array) -> float:
    return float(np.sqrt((x * x).sum()))


def _judge_success(
    problem: Problem, optimum: Optimum, answer: Answer, slope: float, unit: float
) -> Verdict:
    scores, eps = np.asarray(answer.scores), float(np.finfo(problem.setting.dtype).eps)
    if not np.isfinite(scores).all():
        return Verdict(Kind.FALSE_SUCCESS, "scores are not finite", np.inf)
    if not optimum.exists:
        return Verdict(Kind.FALSE_SUCCESS, "no finite optimum exists", np.inf)
    # The error of a sequential sum of n terms is about ε Σ |terms| √n.
    factor = 64 + 4 * np.sqrt(np.count_nonzero(problem.weight))
    limit = factor * eps * unit
    # A small certified distance also counts as success; the bound itself is checked below.
    moved = _norm(scores - np.broadcast_to(problem.prior_mean, scores.shape))
    promised = max(eps**0.4 * moved, (1 + scores.size * eps) * answer.rtol * _norm(scores))
    is_promised = answer.error_bound is not None and answer.error_bound <= promised
    is_small = slope <= limit or is_promised
    if not is_small and (problem.has_prior or not optimum.is_sure):
        reason = f"gradient {slope:.2e}, rounding {eps * unit:.2e}"
        return Verdict(Kind.FALSE_SUCCESS, reason, slope / max(eps * unit, 1e-300))
    if not optimum.is_sure:
        return Verdict(Kind.NOT_JUDGED, "the reference is uncertain")
    assert optimum.scores is not None
    assert optimum.error is not None
    gap = np.abs(scores.astype(np.longdouble) - optimum.scores).astype(float)
    if problem.has_prior:
        distance, bound = _norm(gap), answer.error_bound
        if bound is not None and not distance - _norm(optimum.error) <= bound:
            reason = f"distance {distance:.3e}, error_bound {bound:.3e}"
            return Verdict(Kind.BOUND_BELOW, reason, distance / max(bound, 1e-300))
        return Verdict(Kind.RIGHT, excess=slope / max(limit, 1e-300))
    largest = float(np.abs(optimum.scores).max())
    allowed = factor * optimum.allowed(problem.setting.dtype) + 8 * eps * largest
    # Items with small weights may exceed their rounding limit, yet have a small error.
    least = np.sqrt(eps) * (1 + largest) if is_small else 0
    limits = np.clip(allowed, least, 1e-2 * (1 + largest))
    excess = float(np.max((gap - optimum.error) / limits))
    if excess > 1:
        reason = f"scores off by {gap.max():.2e}, rounding allows {allowed.max():.2e}"
        return Verdict(Kind.FALSE_SUCCESS, reason, excess)
    return Verdict(Kind.RIGHT, excess=excess)


def _judge_failure(problem: Problem, optimum: Optimum, name: str, method: Method) -> Verdict:
    if name == "no_finite_optimum" and optimum.exists_clearly:
        return Verdict(Kind.WRONG_CLAIM, "a finite optimum exists", 1.0)
    reason = explanation(problem, optimum, method)
    return Verdict(Kind.EXPLAINED if reason else Kind.UNEXPLAINED, reason or name)


def explanation(problem: Problem, optimum: Optimum, method: Method = "direct") -> str | None:
    """The reason why a fit of this problem may fail, or None."""
    dtype = problem.setting.dtype
    eps = float(np.finfo(dtype).eps)
    if not optimum.exists:
        return "no finite optimum exists"
    if not optimum.exists_clearly:
        return "values within rounding of the edge"
    if not optimum.is_sure:
        return "the reference is uncertain"
    assert optimum.scores is not None
    # The mean of the scores does not show how well they are determined.
    counts = problem.weight > 0
    gaps = optimum.scores[problem.a[counts]] - optimum.scores[problem.b[counts]]
    if optimum.condition * eps >= 1e-2:
        return "condition number times ε above 1e-2"
    if method != "direct" and optimum.condition * eps >= 1e-4:
        return "condition number times ε above 1e-4, by conjugate gradients"
    # As in the certificate: row errors are up to 6 ε, times four standard deviations, and scores
    # must be determined to 1%.
    if 24 * optimum.allowed(dtype).max() >= 0.01 * (1 + float(np.abs(gaps).max(initial=0))):
        return "rounding may move scores by 1% of the largest difference"
    weight = problem.weight[problem.weight > 0].astype(float)
    if weight.size and weight.max() * eps >= 0.01 * weight.min():
        return "rounding of the heaviest row hides 1% of the lightest"
    if _overflows(problem):
        return "the loss overflows at the prior mean"
    if method == "first order" and optimum.condition >= 1e6:
        return "ill-conditioned for a first-order method"
    if method != "direct" and reference_optimum.start_condition(problem) * eps >= 1e-4:
        return "condition number at the start times ε above 1e-4, by conjugate gradients"
    return None


def _overflows(problem: Problem) -> bool:
    """Whether cosh overflows at a difference of prior means (0 without a prior)."""
    if problem.law.name not in ("Skellam", "SymmetrizedPoisson"):
        return False
    n = problem.num_items
    start = np.where(np.isinf(problem.prior_std), 0, problem.prior_mean) + np.zeros(n)
    farthest = np.abs(start[problem.a] - start[problem.b])[problem.weight > 0].max(initial=0)
    return bool(farthest > (700 if problem.setting.dtype == "float64" else 80))
