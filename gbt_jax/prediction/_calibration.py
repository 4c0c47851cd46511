"""Calibration of predictions: expected against observed comparisons."""

import dataclasses
from typing import final

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import chdtrc

from .._curvature import AbstractCurvature, curvature_of
from .._data._comparisons import Comparisons
from .._data._incidence import group_columns
from .._inference._fit import Fit, check_fit
from .._inference._validity import refuse_outside
from .._util._arrays import whole_number
from ..laws import AbstractRootLaw
from ._predict import Prediction, map_over_pairs, predict


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted against observed comparisons, in bins of the predicted mean and over all.

    Per bin: `count`, `predicted` and `observed` means, and the `standard_error` of the observed
    mean under the predictive distribution. Over all:

    - `statistic`: deviationsᵀ covariance⁻¹ deviations of the bins' means, approximately chi-square
      with `degrees_of_freedom` if model and fit are right; see `p_value`.
    - `log_score`, the mean of log p(value), with its `log_score_error`; `root_log_score` is that of
      the root law, t = 0.
    - `squared_error`, the mean of (value − mean)², and its expectation under the predictive
      distribution, `expected_squared_error`.
    """

    count: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    standard_error: np.ndarray
    statistic: float
    degrees_of_freedom: int
    log_score: float
    log_score_error: float
    root_log_score: float
    squared_error: float
    expected_squared_error: float

    @property
    def p_value(self) -> float:
        """The probability of a statistic at least as large, if model and fit are right."""
        return float(chdtrc(self.degrees_of_freedom, self.statistic))

    def __str__(self) -> str:
        lines = [f"{'count':>10} {'predicted':>11} {'observed':>11} {'std error':>11} {'z':>8}"]
        deviation = (self.observed - self.predicted) / self.standard_error
        rows = zip(
            self.count, self.predicted, self.observed, self.standard_error, deviation, strict=True
        )
        lines += [
            f"{n:>10.6g} {p:>11.4g} {o:>11.4g} {e:>11.3g} {z:>8.2f}" for n, p, o, e, z in rows
        ]
        lines += [
            f"chi-square     {self.statistic:.4g} on {self.degrees_of_freedom} degrees of freedom, "
            f"p = {self.p_value:.2g}",
            f"log score      {self.log_score:.5g} ± {self.log_score_error:.2g} (the root law alone "
            f"{self.root_log_score:.5g})",
            f"squared error  {self.squared_error:.4g} (expected {self.expected_squared_error:.4g})",
        ]
        return "\n".join(lines)


def calibration(
    fit: Fit,
    held_out: Comparisons,
    *,
    bins: int = 10,
    law: AbstractRootLaw | None = None,
    using: AbstractCurvature | None = None,
) -> Calibration:
    """Compare a fit's predictions with held-out comparisons.

    A comparison (a, b, r) is equivalent to (b, a, −r). Each is oriented so that the item with the
    higher score comes first and the predicted mean is not negative, and sorted by that mean into
    bins of equal counts. Errors of comparisons that share items are correlated: standard errors and
    statistic add, to first order, the covariance of the expected values that the curvature gives.

    **Arguments:**

    - `held_out`: comparisons of the same items, repeats not merged. Weight n is n repeats; rows of
      weight 0 are left out.
    - `bins`: the largest number of bins; each has at least one comparison.
    - `law`: the law of the held-out comparisons, by default that of the fit; its parameters are
      one number, or one per held-out comparison. It must be given where the fit's law has
      parameters per comparison.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** a `Calibration`, which prints as a table.
    """
    check_fit(fit)
    bins = whole_number("bins", bins, at_least=1)
    rows, law = _orient_rows(fit, held_out, law)
    made = curvature_of(fit, using)
    prediction = predict(fit, rows.a, rows.b, law=law, using=made)
    mean, variance, value, weight = (
        np.asarray(x, float)
        for x in (prediction.mean, prediction.variance, rows.value, rows.weight)
    )
    member = _equal_count_bins(mean, weight, bins)
    count, expected, seen = (np.bincount(member, weight * x) for x in (1, mean, value))
    covariance = _covariance(prediction, rows, made, member)
    deviation = seen - expected
    log_scores = np.asarray(prediction.log_prob(value), float)
    root_scores = map_over_pairs(_root_log_prob, law, value, dtype=prediction.mean.dtype)
    average = np.average(log_scores, weights=weight)
    spread = np.average(np.square(log_scores - average), weights=weight)
    return Calibration(
        count=count,
        predicted=expected / count,
        observed=seen / count,
        standard_error=np.sqrt(np.diagonal(covariance)) / count,
        statistic=float(deviation @ np.linalg.solve(covariance, deviation)),
        degrees_of_freedom=count.size,
        log_score=float(average),
        log_score_error=float(np.sqrt(spread / max(weight.sum() - 1, 1))),
        root_log_score=float(np.average(root_scores, weights=weight)),
        squared_error=float(np.average(np.square(value - mean), weights=weight)),
        expected_squared_error=float(np.average(variance, weights=weight)),
    )


def _orient_rows(
    fit: Fit, held_out: Comparisons, law: AbstractRootLaw | None
) -> tuple[Comparisons, AbstractRootLaw]:
    """The rows of positive weight, the better item first, and their law; raise for invalid rows."""
    if not isinstance(held_out, Comparisons):
        raise TypeError(f"held_out must be Comparisons, not {type(held_out).__name__}")
    if held_out.num_items != fit.comparisons.num_items:
        raise ValueError(
            f"held_out compares {held_out.num_items} items, and the fit has "
            f"{fit.comparisons.num_items}"
        )
    if held_out.is_merged:
        raise ValueError(
            "held_out is merged, and averages have no predictive distribution: pass the "
            "comparisons before merge_repeats()"
        )
    law = fit.model.law_for_new_rows(law, (len(held_out),))
    refuse_outside(law, held_out, "held_out: ")
    columns = held_out.a, held_out.b, held_out.value, held_out.weight
    kept = np.asarray(held_out.weight) > 0
    if not kept.any():
        raise ValueError("held_out has no comparisons of positive weight")
    a, b, value, weight = (np.asarray(x)[kept] for x in columns)
    scores = np.asarray(fit.scores)
    turned = scores[a] < scores[b]
    a, b = np.where(turned, b, a), np.where(turned, a, b)
    value = np.where(turned, -value, value)
    oriented = held_out._with_rows(a, b, value, weight)
    return oriented, law.at_rows(np.flatnonzero(kept))


def _equal_count_bins(predicted: np.ndarray, weight: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each row, by the middle of its share of the sorted weight; no bin is empty."""
    order = np.argsort(predicted, kind="stable")
    middle = np.cumsum(weight[order]) - 0.5 * weight[order]
    member = np.empty(order.size, int)
    member[order] = np.minimum(bins * middle / weight.sum(), bins - 1).astype(int)
    return np.unique(member, return_inverse=True)[1]


def _covariance(
    prediction: Prediction, rows: Comparisons, made: AbstractCurvature, member: np.ndarray
) -> np.ndarray:
    """The covariance of the bins' sums: of comparisons between known scores, plus of the scores.

    Cov(Φ'(t), Φ'(t')) is E[Φ''(t)] E[Φ''(t')] Cov(t, t') to first order, so the second part is
    Gᵀ N G, where G has the derivatives of the bins' sums in the scores. The variance of each row in
    it is replaced by its Var[Φ'(t)], which is larger.
    """
    weight, mean, slope, difference_variance, score_variance = (
        np.asarray(x, float)
        for x in (
            rows.weight,
            prediction.mean,
            prediction.law_variance,
            prediction.difference_variance,
            prediction.score_variance,
        )
    )
    dtype = prediction.mean.dtype
    pull = jnp.asarray(weight * slope, dtype)
    G = np.asarray(group_columns(rows, pull, member, int(member.max()) + 1), float)
    shared = G.T @ np.asarray(made.solve(jnp.asarray(G, dtype)), float)
    excess = np.maximum(score_variance - np.square(slope) * difference_variance, 0)
    # A correct prediction without variance deviates by rounding errors only.
    rounding = np.square(float(jnp.finfo(dtype).eps) * mean)
    own = weight * slope + np.square(weight) * (excess + rounding)
    return 0.5 * (shared + shared.T) + np.diag(np.bincount(member, own))


def _root_log_prob(law: AbstractRootLaw, value: Array) -> Array:
    return law.log_prob(value, jnp.zeros_like(value))
