"""The certificate on problems made to break it: success is success, and the error bound holds.

Problems come from `benchmarks/adversarial.py`, optima in long double from
`benchmarks/reference_optimum.py`, and `benchmarks/verdicts.py` defines what is wrong.
`benchmarks/torture.py` runs many more of them.
"""

import dataclasses
import functools

import adversarial
import jax
import numpy as np
import pytest
import reference_laws
import reference_optimum
from adversarial import LawSpec, Problem, Setting
from hypothesis import given, settings
from hypothesis import strategies as st
from torture import fit_answer, group_answers, stacked_answers, traced_answer
from verdicts import SUCCESS, Answer, Judge, Kind

import gbt_jax as gbt

pytestmark = pytest.mark.certificate

SMALL, MEDIUM = adversarial.SHAPES[:2]
SETTINGS = {
    "BradleyTerry": Setting("BradleyTerry", SMALL, "float64", False),
    "BradleyTerry in float32": Setting("BradleyTerry", MEDIUM, "float32", False),
    "Davidson": Setting("Davidson", MEDIUM, "float64", True),
    "KNary": Setting("KNary", SMALL, "float32", True),
    "Finite": Setting("Finite", SMALL, "float64", False),
    "Uniform": Setting("Uniform", MEDIUM, "float64", False),
    "Uniform in float32": Setting("Uniform", SMALL, "float32", False),
    "Beta per row": Setting("Beta per row", SMALL, "float64", False),
    "Gaussian per row": Setting("Gaussian per row", MEDIUM, "float32", True),
    "Skellam": Setting("Skellam", SMALL, "float64", False),
    "SymmetrizedPoisson per row": Setting("SymmetrizedPoisson per row", SMALL, "float64", True),
    "Scaled per row": Setting("Scaled per row", SMALL, "float64", False),
    "Sum": Setting("Sum", SMALL, "float64", False),
}
MILD = {"plausible", "weight 1", "usual prior", "mean 0"}


QUICK = ("BradleyTerry", "BradleyTerry in float32", "Uniform", "Skellam")


def every_setting(names=tuple(SETTINGS)):
    """Run a test on each setting; all but a few are slow."""
    marks = [() if name in QUICK else pytest.mark.slow for name in names]
    pairs = zip(names, marks, strict=True)
    return pytest.mark.parametrize("name", [pytest.param(x, marks=mark) for x, mark in pairs])


def assert_honest(judge: Judge, answers: list[Answer]) -> None:
    for problem, answer, verdict in zip(
        judge.problems, answers, judge.verdicts(answers), strict=True
    ):
        assert not verdict.kind.is_bad, f"{verdict.kind.value}: {verdict.reason}, {problem}"
        if set(problem.kinds) >= MILD and problem.has_prior:
            assert answer.result == SUCCESS, f"{answer.result}, {problem}"


@every_setting()
@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_fits_are_honest(name, seed):
    judge = Judge([adversarial.make(SETTINGS[name], seed)])
    assert_honest(judge, [fit_answer(judge.problems[0])])
    assert_honest(judge, [fit_answer(judge.problems[0], solver=gbt.solvers.NewtonCG())])


@every_setting(["BradleyTerry", "Uniform", "Skellam"])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    shift=st.sampled_from([0.0, 1.0, 1e4, 1e8]),
    scale=st.sampled_from([0.0, 1e-9, 1.0, 1e3]),
)
def test_warm_starts_are_honest(name, seed, shift, scale):
    """The optimum, the optimum with noise, a wild point, and each far from its level."""
    judge = Judge([adversarial.make(SETTINGS[name], seed)])
    best, n = judge.optima[0].scores, judge.problems[0].num_items
    start = np.zeros(n) if best is None else best.astype(float)
    start = start + shift + scale * np.random.default_rng(seed).normal(size=n)
    assert_honest(judge, [fit_answer(judge.problems[0], initial=start)])


@every_setting()
@settings(max_examples=2, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_stacked_scores_are_honest(name, seed):
    """Under vmap a failure is NaN, and everything else the optimum."""
    judge = Judge([adversarial.make(SETTINGS[name], seed + i) for i in range(20)])
    assert_honest(judge, stacked_answers(judge.problems))


@every_setting(["BradleyTerry", "BradleyTerry in float32", "Uniform in float32", "Skellam"])
@settings(max_examples=2, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_groups_are_honest(name, seed):
    judge = Judge([adversarial.make(SETTINGS[name], seed + i) for i in range(20)])
    assert_honest(judge, group_answers(judge))


# ------------------------------------------------------------------------- failures seen in use


def three_items(seed: int) -> Problem:
    """A hundred wins and losses among three items, the lower number first in every row."""
    rng = np.random.default_rng(seed)
    a, b = np.array([(0, 1), (0, 2), (1, 2)])[rng.integers(0, 3, 100)].T.astype(np.int32)
    value = rng.choice([-0.5, 0.5], 100)
    setting = Setting("BradleyTerry", (3, 100), "float64", False)
    prior = np.array(np.inf), np.array(0.0)
    return Problem(
        seed, setting, LawSpec("BradleyTerry"), a, b, value, np.ones(100), *prior, "", ()
    )


def test_three_items_in_one_direction():
    """Without a prior, each of 200 data sets ends at its optimum, and none is called a success
    elsewhere."""
    judge = Judge([three_items(seed) for seed in range(200)])
    for solver in (gbt.solvers.NewtonCG(), gbt.solvers.NewtonCholesky()):
        answers = [fit_answer(problem, solver=solver) for problem in judge.problems]
        assert [answer.result for answer in answers] == [SUCCESS] * 200
        slopes, _ = reference_optimum.gradients(
            judge.problems, np.stack([answer.scores for answer in answers])
        )
        assert np.abs(slopes).max() < 1e-12
        assert_honest(judge, answers)


def test_bounds_of_groups_in_float32():
    """σ = 0.5, weights 1: nothing is extreme, and the bounds have to count rounding."""
    setting = Setting("BradleyTerry", SMALL, "float32", False)
    half = np.array(0.5, np.float32)
    problems = [
        dataclasses.replace(problem, prior_std=half, weight=np.sign(problem.weight), kinds=())
        for problem in (adversarial.make(setting, seed) for seed in range(300))
    ]
    judge = Judge(problems)
    answers = group_answers(judge)
    assert [answer.result for answer in answers if answer] == [SUCCESS] * 300
    assert_honest(judge, [answer for answer in answers if answer])


@pytest.mark.parametrize("order", ["shuffled", "sorted", "reversed"])
def test_parameters_per_row_stay_with_their_rows(order):
    """4,096 rows: enough that `fit` permutes sorted ones."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 8, 4096)
    b = (a + rng.integers(1, 8, 4096)) % 8
    std, value = rng.uniform(0.2, 3, 4096), rng.normal(size=4096)
    rows = np.arange(4096) if order == "shuffled" else np.lexsort((b, a))
    rows = rows[::-1] if order == "reversed" else rows
    columns = a[rows].astype(np.int32), b[rows].astype(np.int32), value[rows], np.ones(4096)
    setting = Setting("Gaussian per row", (8, 4096), "float64", False)
    law = LawSpec("Gaussian", (std[rows],))
    problem = Problem(0, setting, law, *columns, np.array(1.0), np.array(0.0), "", ())
    judge = Judge([problem])
    answer = fit_answer(problem)
    assert answer.result == SUCCESS
    assert_honest(judge, [answer])
    traced = np.asarray(jax.jit(gbt.map_scores)(problem.model(), problem.comparisons()))
    assert_honest(judge, [Answer(SUCCESS, traced)])


# ---------------------------------------------------------------------- the judge itself can judge


@pytest.mark.parametrize(
    ("seed", "answer"),
    [
        # Squares of rounding errors underflow in float32, and hid that no optimum exists.
        (16451, traced_answer),
        # The prior of some items is rounded to more than what saturated rows say of the others.
        (10553, traced_answer),
        # A level that the prior of one item determines, beside rows that outweigh it.
        (14632, functools.partial(fit_answer, solver=gbt.solvers.NewtonCG())),
        # One heavy row must not stand for the rounding of sums that it has no part in.
        (6652, functools.partial(fit_answer, solver=gbt.solvers.NewtonCholesky())),
    ],
)
def test_problems_that_were_certified_wrongly(seed, answer):
    judge = Judge([adversarial.problem(seed)])
    assert_honest(judge, [answer(judge.problems[0])])


def test_reference_of_density_far_out():
    """Near the edge, log f = −4r² has slope −8: Φ'(t) = 1 − 1/(t − 8) up to higher orders."""
    t = np.array([1e6, 1e9, 1e12], np.longdouble)
    found = reference_laws.moments(LawSpec("Density"), t, np.ones(3, np.longdouble))
    np.testing.assert_allclose((-found.residual * (t - 8)).astype(float), 1, rtol=1e-6)
    np.testing.assert_allclose((found.variance * (t - 8) ** 2).astype(float), 1, rtol=1e-6)


def test_reference_has_closed_forms():
    """Gaussian scores are a linear solve, and two items of Binary an inverse tanh."""
    setting, checked = Setting("Gaussian per row", SMALL, "float64", True), 0
    for seed in range(5):
        problem = adversarial.make(setting, seed)
        if set(problem.kinds) & {"any prior", "none prior", "weights over 16 decades"}:
            continue
        curvature = problem.weight * problem.law.parameters[0] ** 2
        matrix, rhs = np.diag(problem.prior_std**-2.0), problem.prior_mean / problem.prior_std**2
        for row, (i, j) in enumerate(zip(problem.a, problem.b, strict=True)):
            arm = (np.arange(6) == i) * 1.0 - (np.arange(6) == j)
            matrix = matrix + curvature[row] * np.outer(arm, arm)
            rhs = rhs + problem.weight[row] * problem.value[row] * arm
        (optimum,) = reference_optimum.optima([problem])
        np.testing.assert_allclose(optimum.scores.astype(float), np.linalg.solve(matrix, rhs), 1e-6)
        checked += 1
    assert checked
    ends = np.array([0, 0, 0]), np.array([1, 1, 1]), np.array([1.0, 1.0, -1.0]), np.ones(3)
    setting = Setting("Binary", (2, 3), "float64", False)
    prior = np.array(np.inf), np.array(0.0)
    problem = Problem(0, setting, LawSpec("Binary"), *ends, *prior, "", ())
    (optimum,) = reference_optimum.optima([problem])
    assert float(optimum.scores[0] - optimum.scores[1]) == pytest.approx(np.arctanh(1 / 3), 1e-15)


def test_judge_can_convict():
    judge = Judge([dataclasses.replace(three_items(0), prior_std=np.array(1.0))])
    best = judge.optima[0].scores.astype(float)
    step = np.array([1e-8, 0, 0])

    def kind(*answer):
        return judge.verdicts([Answer(*answer)])[0].kind

    assert kind(SUCCESS, best, 1e-14) is Kind.RIGHT
    assert kind(SUCCESS, best + 1e-7 * step, 1e-16) is Kind.BOUND_BELOW
    assert kind(SUCCESS, best + step, 1.0) is Kind.FALSE_SUCCESS
    assert kind(SUCCESS, best * np.nan, 1.0) is Kind.FALSE_SUCCESS
    assert kind("no_finite_optimum", best, 1.0) is Kind.WRONG_CLAIM
    assert kind("max_steps_reached", best, 1.0) is Kind.UNEXPLAINED
    problem = three_items(0)
    lost = dataclasses.replace(problem, value=np.where(problem.a == 0, -0.5, problem.value))
    judge = Judge([lost])
    assert kind(SUCCESS, best) is Kind.FALSE_SUCCESS
    assert kind("no_finite_optimum", best) is Kind.EXPLAINED
