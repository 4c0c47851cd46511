"""gbt_jax: to rounding level, to a loose bound, in float32; Jacobians and uncertainties.

Also two baselines for a fit: one jitted gradient of the loss, and one copy of the rows in memory
(two indices and a value each, 16 bytes).
"""

from functools import partial

import jax
import numpy as np
from protocol import Problem, Solve, serve

import gbt_jax as gbt


def model_of(problem: Problem, dtype: type = np.float64) -> gbt.Model:
    law = {"uniform": gbt.laws.Uniform, "bradley-terry": gbt.laws.BradleyTerry}[problem.law]()
    return gbt.Model(law, np.asarray(problem.prior_std, dtype))


def comparisons_of(problem: Problem, dtype: type = np.float64) -> gbt.Comparisons:
    value = problem.value.astype(dtype)
    return gbt.Comparisons(problem.a, problem.b, value, num_items=problem.num_items)


def fit(problem: Problem, dtype: type = np.float64, **tolerances: float) -> Solve:
    """`fit` of one problem, or of many as groups."""
    model = model_of(problem, dtype)
    if problem.num_users == 1:
        rows = comparisons_of(problem, dtype)
        return lambda: np.asarray(gbt.fit(model, rows, **tolerances).scores)
    rows = gbt.Comparisons(
        problem.a,
        problem.b,
        problem.value.astype(dtype),
        num_items=problem.num_items,
        group=problem.owner[problem.a],
    )

    def solve() -> np.ndarray:
        # Groups have no scores for items without comparisons; these get the prior mean.
        scores = np.zeros(problem.num_items)
        scores[rows.item_labels] = gbt.fit(model, rows, **tolerances).scores
        return scores

    return solve


def fitted(problem: Problem) -> gbt.Fit:
    return gbt.fit(model_of(problem), comparisons_of(problem))


def jacobian(problem: Problem) -> Solve:
    """Every score in every value, from the fit on."""
    given = fitted(problem)
    return lambda: np.asarray(gbt.sensitivity(given))


def std(problem: Problem) -> Solve:
    given = fitted(problem)
    return lambda: np.asarray(gbt.std(given))


def with_std(problem: Problem) -> Solve:
    def solve() -> np.ndarray:
        found = fitted(problem)
        return np.stack([found.scores, gbt.std(found)])

    return solve


def with_likelihood_intervals(problem: Problem) -> Solve:
    """Rows: score, distances down and up at which its log-likelihood has fallen by 1."""

    def solve() -> np.ndarray:
        found = fitted(problem)
        score, lower, upper = gbt.uncertainty.likelihood_intervals(found)
        return np.stack([score, score - lower, upper - score])

    return solve


def one_gradient(problem: Problem) -> Solve:
    slope = jax.jit(jax.grad(gbt.negative_log_posterior, argnums=2))
    model, rows = model_of(problem), comparisons_of(problem)
    scores = jax.numpy.asarray(fit(problem)())

    def solve() -> np.ndarray:
        slope(model, rows, scores).block_until_ready()
        return np.zeros(0)

    solve()
    return solve


def one_copy(problem: Problem) -> Solve:
    source = np.ones((problem.value.size, 2))
    target = np.zeros_like(source)

    def solve() -> np.ndarray:
        np.copyto(target, source)
        return target[:0]

    return solve


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    serve(
        {
            "fit": fit,
            "fit, rtol 1e-3": partial(fit, rtol=1e-3),
            "fit, float32": partial(fit, dtype=np.float32),
            "jacobian": jacobian,
            "std": std,
            "fit with std": with_std,
            "fit with likelihood intervals": with_likelihood_intervals,
            "one gradient": one_gradient,
            "one copy": one_copy,
        }
    )
