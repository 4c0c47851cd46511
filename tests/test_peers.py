"""The contest with other packages: its judge, its protocol, its tables, and its ratios."""

import json
import os
import subprocess
import sys
from pathlib import Path

import mpmath
import numpy as np
import peer_history
import peer_problems
import peer_report
import peer_rows
import peer_work
import peers
import pytest
from contestants import losses
from contestants.protocol import Problem, timed

BENCHMARKS = Path(peers.__file__).parent
POINTS = [s * 10.0**k for k in range(-8, 3) for s in (1, -1, 2.9, 3.1)]


def test_the_judge_knows_the_laws():
    exact = {
        "uniform": (
            lambda t: mpmath.log(mpmath.sinh(t) / t),
            lambda t: mpmath.coth(t) - 1 / t,
            lambda t: 1 / t**2 - 1 / mpmath.sinh(t) ** 2,
        ),
        "bradley-terry": (
            lambda t: mpmath.log(mpmath.cosh(t / 2)),
            lambda t: mpmath.tanh(t / 2) / 2,
            lambda t: 1 / (2 * mpmath.cosh(t / 2)) ** 2,
        ),
    }
    with mpmath.workdps(60):
        for name, functions in exact.items():
            for function, reference in zip(losses.LAWS[name], functions, strict=True):
                want = [float(reference(mpmath.mpf(t))) for t in POINTS]
                np.testing.assert_allclose(function(np.array(POINTS)), want, rtol=2e-15)


def test_the_gradient_is_that_of_the_loss():
    problem = peer_problems.one(
        peer_problems.random_pairs(6, 30, np.random.default_rng(0)), 6, "uniform", 2.0
    )
    scores, step = np.linspace(-1, 1, 6), 1e-6
    for item in range(6):
        moved = step * np.eye(6)[item]
        slope = losses.loss(problem, scores + moved) - losses.loss(problem, scores - moved)
        np.testing.assert_allclose(
            losses.gradient(problem, scores)[item], slope / (2 * step), rtol=1e-7
        )


@pytest.mark.parametrize("law", ["uniform", "bradley-terry"])
def test_values_are_drawn_from_the_law(law):
    rng = np.random.default_rng(0)
    for t in (-3.0, -0.2, 0.0, 1.0, 8.0):
        values = peer_problems.drawn(law, np.full(40_000, t), rng)
        mean = losses.LAWS[law].mean(np.array([t]))[0]
        spread = np.sqrt(losses.LAWS[law].variance(np.array([t]))[0] / values.size)
        assert abs(values.mean() - mean) < 5 * spread
    assert np.abs(values).max() <= (1 if law == "uniform" else 0.5)


def test_users_are_told_apart():
    problem = peer_problems.many_users(20)
    users = list(problem.by_user())
    assert len(users) == problem.num_users == 20
    again = peer_problems.together(users)
    for name in ("a", "b", "value", "owner"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    shuffled = np.random.default_rng(0).permutation(problem.value.size)
    mixed = problem._replace(
        a=problem.a[shuffled], b=problem.b[shuffled], value=problem.value[shuffled]
    )
    for one, other in zip(mixed.by_user(), users, strict=True):
        order = np.lexsort((one.value, one.b, one.a)), np.lexsort((other.value, other.b, other.a))
        np.testing.assert_array_equal(one.value[order[0]], other.value[order[1]])


def test_every_contestant_has_the_methods_that_compete():
    """Their names stand in the scripts, which cannot be imported here."""
    for work in (*peer_work.WORK, *peer_work.TRIALS, peer_work.COLD):
        for entry in work.entries:
            script = BENCHMARKS / "contestants" / f"with_{entry.contestant}.py"
            assert f'"{entry.method}"' in script.read_text(encoding="utf-8"), (work.name, entry)
            if entry.contestant != peer_work.OURS:
                folder = BENCHMARKS / "contestants" / "requirements"
                assert (folder / f"{peers.ENVIRONMENTS[entry.contestant]}.txt").exists()
    names = [work.name for work in (*peer_work.WORK, *peer_work.TRIALS)]
    assert len(set(names)) == len(names)


def run(script: str, method: str, problem: Path, answer: Path) -> dict:
    command = [sys.executable, str(BENCHMARKS / "contestants" / script)]
    done = subprocess.run(
        [*command, method, str(problem), str(answer)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_contestants_agree_and_fail_aloud(tmp_path):
    problem = peer_problems.many_users(3)
    problem.save(str(tmp_path / "problem.npz"))
    found = {}
    for script, method in (
        ("with_gbt_jax.py", "fit"),
        ("with_scipy.py", "sparse Newton, tightest"),
        ("with_scipy.py", "L-BFGS-B, tightest"),
        ("with_scipy.py", "dense Newton"),
    ):
        reply = run(script, method, tmp_path / "problem.npz", tmp_path / "answer.npy")
        assert reply["seconds"] > 0
        found[method] = np.load(tmp_path / "answer.npy")
        assert np.abs(losses.gradient(problem, found[method])).max() < 1e-5
        np.testing.assert_allclose(found[method], found["fit"], atol=1e-5)
    reply = run("with_scipy.py", "no such", tmp_path / "problem.npz", tmp_path / "answer.npy")
    assert "no such" in reply["error"]


def test_a_turn_is_filled_with_calls(monkeypatch):
    now, takes = [0.0], [3.0, 1.0, 2.0, 5.0]
    monkeypatch.setattr("contestants.protocol.time.perf_counter", lambda: now[0])

    def solve():
        now[0] += takes.pop(0)
        return np.array([len(takes)])

    assert timed(solve, 0) == (np.array([3]), 3.0)
    assert timed(solve, 2.5) == (np.array([1]), 1.0)
    assert takes == [5.0]


def test_a_contestant_that_takes_too_long_is_stopped(tmp_path):
    problem = peer_problems.erdos_renyi()
    problem.save(str(tmp_path / "problem.npz"))
    contestant = peers.Contestant("scipy", sys.executable)
    where = str(tmp_path / "problem.npz"), str(tmp_path / "answer.npy")
    assert "no answer within" in contestant.ask("dense Newton", *where, limit=1e-3)["error"]
    assert contestant.process is None
    assert contestant.ask("sparse Newton", *where, limit=60)["seconds"] > 0
    contestant.stop()


@pytest.mark.parametrize("failing", [1, 3])
def test_a_cold_process_that_fails_is_reported(failing, tmp_path, monkeypatch):
    def alone(self, method, problem, to, limit):
        calls.append(method)
        if len(calls) == failing:
            return {"error": "why"}
        np.save(to, np.zeros(100))
        return {"seconds": 0.1, "process_seconds": 1 / len(calls)}

    monkeypatch.setattr(peers.Contestant, "alone", alone)
    monkeypatch.setattr(peers, "COLD", peer_work.COLD._replace(entries=peer_work.COLD.entries[:1]))
    contest = peers.Contest({"gbt_jax": sys.executable}, str(tmp_path), limit=1, repeats=1)
    calls = []
    (row,) = contest.cold()
    assert row["failed"] == "why"
    assert "seconds" not in row
    assert "why" in peer_report.cold_table([dict.fromkeys(peer_rows.FIELDS) | row])
    calls = [""] * failing  # none of the next ones fails
    (row,) = contest.cold()
    assert row["first_seconds"] == 1 / (failing + 1)
    assert row["seconds"] == 1 / (failing + 4)
    assert row["ratio"] == 1


def test_single_precision_has_a_heading_of_its_own():
    row = dict.fromkeys(peer_rows.FIELDS) | {"work": "float32", "contestant": "scipy"}
    row |= {"method": "L-BFGS-B, float32", "seconds": 0.5, "error": 0.05, "apart": 1e-3}
    assert "Single precision" not in peer_report.page([])
    text = peer_report.page([row]).split("## Single precision")[1]
    assert "SciPy L-BFGS-B, float32 | no error, and a gradient of 5e-02" in text
    assert peer_work.FLOAT32.make().value.dtype == np.float32


def test_contestants_compute_in_float32(tmp_path):
    problem = peer_problems.binary(20, 400, 1.0)()
    problem = problem._replace(value=problem.value.astype(np.float32))
    problem.save(str(tmp_path / "problem.npz"))
    where = tmp_path / "problem.npz", tmp_path / "answer.npy"
    for script, method in (
        ("with_gbt_jax.py", "fit, float32"),
        ("with_scipy.py", "L-BFGS-B, tightest, float32"),
    ):
        run(script, method, *where)
        error = np.abs(losses.gradient(problem, np.load(where[1]).astype(float))).max()
        assert 1e-9 < error < 1e-2, method  # float64 would do better


def test_judgement(tmp_path):
    problem = peer_problems.erdos_renyi()
    for kind, method in (("jacobian", "jacobian"), ("std", "std")):
        problem.save(str(tmp_path / "problem.npz"))
        run("with_scipy.py", method, tmp_path / "problem.npz", tmp_path / "answer.npy")
        answer = np.load(tmp_path / "answer.npy")
        judge = peers.Judge(problem, kind)
        assert judge.worth(answer, False)["error"] < 1e-9
        assert judge.worth(1.01 * answer, False)["error"] > 1e-3


def test_tables_are_those_of_the_csv():
    rows = peer_rows.read()
    assert {row["work"] for row in rows} >= {"dense", "users", "binary-1e6", "cold", "undefeated"}
    assert peer_report.PAGE.read_text(encoding="utf-8") == peer_report.page(rows)
    assert peer_report.summary(rows) in peer_report.README.read_text(encoding="utf-8")


def test_rows_of_a_work_replace_its_former_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_rows, "CSV", tmp_path / "results" / "peers.csv")
    row = {"work": "dense", "contestant": "gbt_jax", "method": "fit", "seconds": 0.5, "ratio": 1.0}
    peer_rows.keep([row, row | {"contestant": "scipy", "seconds": np.nan, "failed": "why, x"}])
    peer_rows.keep([row | {"work": "users"}])
    peer_rows.keep([row | {"seconds": 0.25}])
    found = peer_rows.read()
    assert [(one["work"], one["seconds"]) for one in found] == [("users", 0.5), ("dense", 0.25)]


def test_targets_want_accuracy_too():
    ours = {"error": 1e-12}
    peer = {"error": 1e-6, "ratio": 5.0, "target": 4.0, "seconds": 1.0}
    assert peer_report.target(peer, ours) == "4 met"
    assert peer_report.target(peer | {"ratio": 3.9}, ours) == "4 **missed**"
    assert peer_report.target(peer, {"error": 1e-5}) == "4 **missed**"


def test_a_fallen_ratio_is_seen(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peer_history, "HISTORY", tmp_path / "history.jsonl")
    assert peer_history.show({"x": 4.0}) == 0
    peer_history.write({"x": 4.0})
    assert peer_history.show({"x": 3.3}) == 0
    assert "fallen" not in capsys.readouterr().out
    assert peer_history.show({"x": 3.1}) == 1
    assert "fallen" in capsys.readouterr().out


@pytest.mark.slow
def test_ratios_have_not_collapsed():
    """Against what was last written down; generous, since tests run side by side here."""
    last = peer_history.read()[-1]["ratios"]
    # Programs are compiled as for users, not as for tests.
    environment = os.environ | {"PYTHONWARNINGS": "default", "XLA_FLAGS": ""}
    script = [sys.executable, str(BENCHMARKS / "peers.py"), "--watch"]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = {}
    for line in done.stdout.splitlines():
        if " times ours" in line:
            name, ratio = line.split(" times ours")[0].rsplit(maxsplit=1)
            found[name.strip()] = float(ratio)
    assert found.keys() == last.keys()
    for name, ratio in found.items():
        assert ratio > 0.4 * last[name], name


def test_problem_files_keep_everything(tmp_path):
    problem = peer_problems.binary(10, 30, np.inf)()
    problem.save(str(tmp_path / "problem.npz"))
    again = Problem.load(str(tmp_path / "problem.npz"))
    assert again.law == "bradley-terry"
    assert np.isinf(again.prior_std)
    np.testing.assert_array_equal(again.value, problem.value)
