"""Fits of real data, with and without a prior, in several orders of their rows, against SciPy.

The data are those of LLMFAO (votes with ties), Tournesol (sliders) and international football (goal
differences). A reference solves each of them by Newton's method with sparse matrices of SciPy, and
gradients are summed in long double.
"""

import csv
import functools
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from problems import data_file, tournesol_problems
from scipy.sparse.csgraph import connected_components

import gbt_jax as gbt
from gbt_jax import RESULTS, laws

pytestmark = pytest.mark.certificate

NAMES = ("llmfao", "tournesol", "football")
ORDERS = ("as given", "shuffled", "sorted")
PRIORS = {"prior": 1.0, "no prior": np.inf}
EPS = np.finfo(float).eps


class Data(NamedTuple):
    law: laws.AbstractRootLaw
    comparisons: gbt.Comparisons


# ------------------------------------------------------------------------------------------- data


@functools.cache
def data(name: str) -> Data:
    return {"llmfao": llmfao, "tournesol": tournesol, "football": football}[name]()


def read(*path: str) -> list[dict]:
    with open(data_file("/".join(path)), encoding="utf-8") as file:
        return list(csv.DictReader(file))


def numbered(pairs: list[tuple[str, str]], values: list[float]) -> gbt.Comparisons:
    items: dict[str, int] = {}
    codes = [[items.setdefault(name, len(items)) for name in pair] for pair in pairs]
    a, b = np.array(codes).T
    return gbt.Comparisons(a, b, np.array(values), num_items=len(items))


def llmfao() -> Data:
    """8,931 votes for the left answer, for the right one, or for neither."""
    rows = read("llmfao", "crowd-comparisons.csv")
    value = {"left": 1.0, "right": -1.0, "tie": 0.0}
    pairs = [(row["left"], row["right"]) for row in rows]
    return Data(laws.Davidson(1.0), numbered(pairs, [value[row["winner"]] for row in rows]))


def football() -> Data:
    rows = read("football", "results_2018_2024.csv")
    rows = [row for row in rows if row["home_score"].isdigit() and row["away_score"].isdigit()]
    pairs = [(row["home_team"], row["away_team"]) for row in rows]
    goals = [float(row["home_score"]) - float(row["away_score"]) for row in rows]
    return Data(laws.Skellam(2.7), numbered(pairs, goals))


def tournesol() -> Data:
    """The largest problem without its sliders at an end, where scores would be infinite."""
    largest = max(tournesol_problems(), key=len)
    value = np.asarray(largest.value)
    inside = np.abs(value) < 1
    a, b = np.asarray(largest.a)[inside], np.asarray(largest.b)[inside]
    pairs = [(str(x), str(y)) for x, y in zip(a, b, strict=True)]
    return Data(laws.Uniform(), numbered(pairs, value[inside].tolist()))


def in_order(comparisons: gbt.Comparisons, order: str) -> gbt.Comparisons:
    a, b = np.asarray(comparisons.a), np.asarray(comparisons.b)
    rows = {
        "as given": np.arange(a.size),
        "shuffled": np.random.default_rng(0).permutation(a.size),
        "sorted": np.lexsort((b, a)),
    }[order]
    return replaced(comparisons, *(np.asarray(x)[rows] for x in columns(comparisons)))


def columns(comparisons: gbt.Comparisons) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(getattr(comparisons, x)) for x in ("a", "b", "value", "weight"))


def replaced(comparisons: gbt.Comparisons, *rows: np.ndarray) -> gbt.Comparisons:
    return gbt.Comparisons(*rows, num_items=comparisons.num_items)


# -------------------------------------------------------------------------------------- reference


def mean_and_variance(name: str, t):
    """Φ' and Φ'' of the law, written with NumPy for any of its dtypes."""
    if name == "llmfao":
        total = 1 + 2 * np.cosh(t)
        return 2 * np.sinh(t) / total, (2 * np.cosh(t) + 4) / total**2
    if name == "football":
        rate = t.dtype.type(2.7)
        return rate * np.sinh(t), rate * np.cosh(t)
    far = np.abs(t) > 0.02
    safe = np.where(far, t, 1)
    near = t / 3 - t**3 / 45 + 2 * t**5 / 945 - t**7 / 4725
    slope = 1 / 3 - t**2 / 15 + 2 * t**4 / 189 - t**6 / 675
    mean = np.where(far, 1 / np.tanh(safe) - 1 / safe, near)
    return mean, np.where(far, 1 / safe**2 - 1 / np.sinh(safe) ** 2, slope)


def slope_and_size(name: str, comparisons: gbt.Comparisons, std: float, scores):
    """∇L and Σ |terms| of its entries, in long double."""
    a, b, value, weight = columns(comparisons)
    theta = np.asarray(scores).astype(np.longdouble)
    mean, variance = mean_and_variance(name, theta[a] - theta[b])
    pull = weight * (mean - value)
    size = weight * (
        np.abs(mean) + np.abs(value) + variance * (np.abs(theta[a]) + np.abs(theta[b]))
    )
    precision = 0 if np.isinf(std) else 1 / np.longdouble(std) ** 2
    slope, total = precision * theta, precision * np.abs(theta)
    np.add.at(slope, a, pull)
    np.subtract.at(slope, b, pull)
    np.add.at(total, a, size)
    np.add.at(total, b, size)
    return slope, total


@functools.cache
def reference(name: str, prior: str) -> np.ndarray:
    """The optimum by Newton's method: sparse matrices in float64, gradients in long double."""
    comparisons, std = data(name).comparisons, PRIORS[prior]
    n = comparisons.num_items
    a, b, _, weight = columns(comparisons)
    label = connected_components(scipy.sparse.coo_matrix((weight, (a, b)), (n, n)))[1]
    # Without a prior the first item of every component stays where it is.
    free = np.ones(n, bool)
    if np.isinf(std):
        free[np.unique(label, return_index=True)[1]] = False
    theta = np.zeros(n, np.longdouble)
    for _ in range(60):
        slope = slope_and_size(name, comparisons, std, theta)[0]
        curvature = weight * mean_and_variance(name, (theta[a] - theta[b]).astype(float))[1]
        half = scipy.sparse.coo_matrix((curvature, (a, b)), (n, n)).tocsr()
        laplacian = scipy.sparse.csgraph.laplacian(half + half.T)
        hessian = (laplacian + scipy.sparse.eye(n) / std**2).tocsc()[free][:, free]
        step = np.zeros(n)
        step[free] = -scipy.sparse.linalg.spsolve(hessian, slope[free].astype(float))
        reach = 2 * np.abs(step).max()  # |Φ'''| ≤ 2 Φ'' for these laws: self-concordance
        theta = theta + step * (np.log1p(reach) / reach if reach > 0.1 else 1)
        if reach <= 1e-15:
            break
    if np.isinf(std):
        theta = theta - (np.bincount(label, theta.astype(float)) / np.bincount(label))[label]
    return theta.astype(float)


def fitted(name: str, prior: str, comparisons: gbt.Comparisons, **options) -> gbt.Fit:
    return gbt.fit(gbt.Model(data(name).law, PRIORS[prior]), comparisons, **options)


def assert_at_optimum(name: str, prior: str, comparisons: gbt.Comparisons, fit: gbt.Fit) -> None:
    best = reference(name, prior)
    assert fit.result == RESULTS.successful
    slope, size = slope_and_size(name, comparisons, PRIORS[prior], fit.scores)
    assert np.linalg.norm(slope.astype(float)) <= 64 * EPS * np.linalg.norm(size.astype(float))
    gap = np.asarray(fit.scores) - best
    if np.isfinite(PRIORS[prior]):
        assert np.linalg.norm(gap) <= fit.error_bound + 4 * EPS * np.linalg.norm(best)
        assert fit.error_bound <= 1e-9
    assert np.abs(gap).max() <= 1e-9 * (1 + np.abs(best).max())


# ------------------------------------------------------------------------------------------ tests


def every_problem(test):
    """Each data set with each prior."""
    test = pytest.mark.parametrize("prior", PRIORS)(test)
    return pytest.mark.parametrize("name", NAMES)(test)


@every_problem
@pytest.mark.parametrize("order", ORDERS)
def test_scores_are_those_of_scipy(name, prior, order):
    comparisons = in_order(data(name).comparisons, order)
    assert_at_optimum(name, prior, comparisons, fitted(name, prior, comparisons))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "solver", [gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky()], ids=["cg", "cholesky"]
)
@pytest.mark.parametrize("prior", PRIORS)
def test_solvers_on_llmfao(prior, solver, order):
    comparisons = in_order(data("llmfao").comparisons, order)
    fit = fitted("llmfao", prior, comparisons, solver=solver)
    assert_at_optimum("llmfao", prior, comparisons, fit)


def test_tournesol_has_no_optimum_without_a_prior():
    """With the sliders at their ends, some items only win or only lose."""
    largest = max(tournesol_problems(), key=len)
    fit = gbt.fit(gbt.Model(laws.Uniform(), np.inf), largest, throw=False)
    assert fit.result == RESULTS.no_finite_optimum
    assert gbt.fit(gbt.Model(laws.Uniform(), 7.0), largest).result == RESULTS.successful


def split_in_two(comparisons):
    """Every row as two rows of a quarter and three quarters."""
    a, b, value, weight = (np.tile(x, 2) for x in columns(comparisons))
    half = weight.size // 2
    weight = weight * np.where(np.arange(weight.size) < half, 0.25, 0.75)
    return replaced(comparisons, a, b, value, weight), np.arange(comparisons.num_items)


def flipped(comparisons):
    """(a, b, r) as (b, a, −r), in every other row."""
    a, b, value, weight = columns(comparisons)
    odd = np.arange(a.size) % 2 == 1
    ends = np.where(odd, b, a), np.where(odd, a, b)
    value = np.where(odd, -value, value)
    return replaced(comparisons, *ends, value, weight), np.arange(comparisons.num_items)


def relabelled(comparisons):
    new = np.random.default_rng(1).permutation(comparisons.num_items)
    a, b, value, weight = columns(comparisons)
    return replaced(comparisons, new[a], new[b], value, weight), new


def merged(comparisons):
    return comparisons.merge_repeats(), np.arange(comparisons.num_items)


def reversed_rows(comparisons):
    rows = (x[::-1] for x in columns(comparisons))
    return replaced(comparisons, *rows), np.arange(comparisons.num_items)


@every_problem
@pytest.mark.parametrize("change", [merged, split_in_two, flipped, relabelled, reversed_rows])
def test_same_data_in_other_words(name, prior, change):
    """Scores agree within their certificates, or to 1e-9 where there is no prior."""
    comparisons = data(name).comparisons
    other, new = change(comparisons)
    one, two = fitted(name, prior, comparisons), fitted(name, prior, other)
    gap = np.asarray(one.scores) - np.asarray(two.scores)[new]
    if np.isfinite(PRIORS[prior]):
        assert np.linalg.norm(gap) <= one.error_bound + two.error_bound
    assert np.abs(gap).max() <= 1e-9 * (1 + np.abs(one.scores).max())
