"""First answers: fits of many sizes in one process, compilation included.

    pip install scikit-learn
    python benchmarks/first_answers.py [--sizes 60] [--steady 30] [--seed 0]

Each size is new: so many items and rows as nobody fitted before, and `std` for each. Beside it the
same by SciPy (Newton's method with sparse matrices) and, for the fit, by scikit-learn (a logistic
regression). Then the same fits again, padded to the ladder of shapes and in their exact shapes, and
votes that arrive one by one on the largest Tournesol problem.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from scipy.special import expit
from single import tournesol
from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

import gbt_jax as gbt
from gbt_jax._inference import _maximise

jax.config.update("jax_enable_x64", True)
MODEL = gbt.Model(gbt.laws.BradleyTerry(), 1.0)
PROGRAM = "/jax/core/compile/backend_compile_duration"
DENSE_ITEMS = 1500  # up to which SciPy's inverse of a dense matrix is the faster


class Data(NamedTuple):
    """Wins and losses between random pairs."""

    a: np.ndarray
    b: np.ndarray
    won: np.ndarray
    num_items: int

    @property
    def comparisons(self) -> gbt.Comparisons:
        """The same with values ±½."""
        value = np.where(self.won, 0.5, -0.5)
        return gbt.Comparisons(self.a, self.b, value, num_items=self.num_items)


def draw(rng: np.random.Generator) -> Data:
    """10 to 5,000 items and 50 to 100,000 rows, both log-uniform."""
    items, rows = (
        int(np.exp(rng.uniform(np.log(low), np.log(high))))
        for low, high in ((10, 5000), (50, 100_000))
    )
    a = rng.integers(0, items, rows)
    b = (a + rng.integers(1, items, rows)) % items
    scores = rng.normal(size=items)
    return Data(a, b, rng.random(rows) < expit(scores[a] - scores[b]), items)


def scipy_fit(data: Data) -> tuple[np.ndarray, scipy.sparse.csc_array]:
    """(scores, the Hessian) of the same model by Newton's method."""
    rows = data.a.size
    ends = np.repeat(np.arange(rows), 2), np.stack([data.a, data.b], axis=1).ravel()
    incidence = scipy.sparse.csr_array((np.tile([1.0, -1.0], rows), ends), (rows, data.num_items))
    prior = scipy.sparse.eye_array(data.num_items, format="csc")
    scores, step = np.zeros(data.num_items), np.full(data.num_items, np.inf)
    while True:
        expected = expit(incidence @ scores)
        weight = scipy.sparse.diags_array(expected * (1 - expected))
        hessian = (prior + incidence.T @ weight @ incidence).tocsc()
        if np.abs(step).max() < 1e-10:
            return scores, hessian
        gradient = scores + incidence.T @ (expected - data.won)
        if hessian.nnz > 0.2 * data.num_items**2:
            step = scipy.linalg.solve(hessian.toarray(), gradient, assume_a="pos")
        else:
            step = scipy.sparse.linalg.spsolve(hessian, gradient)
        scores = scores - step


def scipy_std(hessian: scipy.sparse.csc_array) -> np.ndarray:
    """Square roots of the diagonal of the inverse, by the faster of two ways."""
    size = hessian.indptr.size - 1
    if size <= DENSE_ITEMS or hessian.nnz > 20 * size:
        factor = scipy.linalg.cholesky(hessian.toarray(), lower=True)
        inverse = scipy.linalg.solve_triangular(factor, np.eye(size), lower=True)
        return np.sqrt(np.einsum("ij,ij->j", inverse, inverse))
    solve = scipy.sparse.linalg.splu(hessian).solve
    starts = range(0, size, 256)
    blocks = (np.eye(size, min(256, size - k), -k) for k in starts)
    parts = [np.diagonal(solve(block), -start) for start, block in zip(starts, blocks, strict=True)]
    return np.sqrt(np.concatenate(parts))


def sklearn_fit(data: Data) -> np.ndarray:
    """Scores by a logistic regression with a ridge."""
    rows = data.a.size
    ends = np.repeat(np.arange(rows), 2), np.stack([data.a, data.b], axis=1).ravel()
    incidence = scipy.sparse.csr_matrix((np.tile([1.0, -1.0], rows), ends), (rows, data.num_items))
    regression = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=1000)
    return regression.fit(incidence, data.won).coef_[0]


def seconds(function: Callable, *arguments) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start, result


def show_first_answers(num: int, seed: int) -> None:
    """Fits and standard deviations of new sizes, one after the other."""
    programs: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: programs.append(event) if event == PROGRAM else None
    )
    rng = np.random.default_rng(seed)
    times: dict[str, list[float]] = {}
    counts, worst = {"fit": 0, "std": 0}, 0.0
    for _ in range(num):
        data = draw(rng)
        rows = data.comparisons
        before = len(programs)
        fit_time, fitted = seconds(gbt.fit, MODEL, rows)
        counts["fit"] += len(programs) - before
        before = len(programs)
        std_time, std = seconds(gbt.uncertainty.std, fitted)
        counts["std"] += len(programs) - before
        peer_time, (scores, hessian) = seconds(scipy_fit, data)
        peer_std_time, peer_std = seconds(scipy_std, hessian)
        other_time, _ = seconds(sklearn_fit, data)
        worst = max(worst, np.abs(scores - fitted.scores).max(), np.abs(peer_std - std).max())
        found = {
            "gbt_jax fit": fit_time,
            "gbt_jax std": std_time,
            "SciPy fit": peer_time,
            "SciPy std": peer_std_time,
            "scikit-learn fit": other_time,
        }
        for name, value in found.items():
            times.setdefault(name, []).append(value)
    print(f"{num} new sizes, largest difference from SciPy {worst:.0e}")
    for name, column in times.items():
        numbers = f"{sum(column):6.2f} s, median {1e3 * np.median(column):5.1f} ms"
        print(f"  {name:17} {numbers}, worst {1e3 * max(column):5.0f} ms")
    own, peer = (sum(times[f"{x} fit"]) + sum(times[f"{x} std"]) for x in ("gbt_jax", "SciPy"))
    print(f"  programs compiled: {counts['fit']} for fits, {counts['std']} for std")
    print(f"  total: {own:.1f} s, {own / peer:.2f} times SciPy's")
    print(f"  fits alone: {sum(times['gbt_jax fit']) / sum(times['SciPy fit']):.2f} times SciPy's")


def show_steady_state(num: int, seed: int) -> None:
    """What padding costs once everything is compiled."""
    rng, ladder = np.random.default_rng(seed), _maximise.pad
    ratios = []
    for _ in range(num):
        rows = draw(rng).comparisons
        best = {}
        for _ in range(15):
            for name, pad in (("padded", ladder), ("exact", lambda *x: x)):
                _maximise.pad = pad
                best[name] = min(best.get(name, np.inf), seconds(gbt.fit, MODEL, rows)[0])
        ratios.append(best["padded"] / best["exact"])
    _maximise.pad = ladder
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    print(f"{num} sizes at steady state, padded / exact shapes: median {middle:.2f}", end="")
    print(f" (10% {low:.2f}, 90% {high:.2f})")


def show_refits(num: int, seed: int) -> None:
    """Votes that arrive one by one, beside fits without the old scores."""
    rng, problems = np.random.default_rng(seed), tournesol()
    if not problems:
        print("votes one by one: skipped, there is no file of Tournesol's comparisons")
        return
    rows = max(problems, key=len)
    model, size = gbt.Model(gbt.laws.Uniform(), 7.0), rows.num_items
    fitted = gbt.fit(model, rows)
    times: dict[str, list[float]] = {"refit": [], "refit to 1e-6": [], "fit": []}
    for _ in range(num):
        a, b = rng.choice(size, 2, replace=False)
        vote = gbt.Comparisons([a], [b], rng.uniform(-1, 1, 1), num_items=size)
        for name, rtol in (("refit to 1e-6", 1e-6), ("refit", None)):
            took, found = seconds(functools.partial(gbt.refit, fitted, added=vote, rtol=rtol))
            times[name].append(took)
        fitted = found
        times["fit"].append(seconds(gbt.fit, model, fitted.comparisons)[0])
    print(f"{num} votes on {size:,} items and {len(rows):,} comparisons, median of each:", end="")
    medians = {name: 1e3 * float(np.median(column[1:])) for name, column in times.items()}
    print(", ".join(f" {name} {median:.1f} ms" for name, median in medians.items()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="First answers of many sizes in one process.")
    parser.add_argument("--sizes", type=int, default=60)
    parser.add_argument("--steady", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    show_first_answers(given.sizes, given.seed)
    show_steady_state(given.steady, given.seed + 1)
    show_refits(100, given.seed + 2)
