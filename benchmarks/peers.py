"""Compare gbt_jax with other packages in one run.

    python benchmarks/peers.py                    everything (about an hour), then the report
    python benchmarks/peers.py --only dense users some works; replaces their rows
    python benchmarks/peers.py --report           rewrite tables and plots from the CSV
    python benchmarks/peers.py --watch            compare a few ratios with the last record
    python benchmarks/peers.py --watch --write    and record them

Contestants (`contestants/with_*.py`) run in separate processes and environments, which the first
run creates from `contestants/requirements/`. All of them read the same problem files. Their runs
are interleaved: best of five turns after a first call that may compile. In a turn a method is
called until 0.3 seconds have passed. A method that takes longer than `--limit` seconds is stopped;
slow methods get fewer turns.
All answers are judged by the same float64 gradient in NumPy (`contestants/losses.py`).

Results go to `results/peers.csv` (`peer_rows.py`), from which `peer_report.py` writes the tables
and `peer_plots.py` draws the plots. `peer_history.py` records the watched ratios.
"""

import argparse
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import peer_history
import peer_report
import peer_rows
from contestants import losses
from contestants.protocol import Problem
from peer_work import COLD, MEMORY, OURS, QUICK, TRIALS, WORK, Entry, Work

HERE = pathlib.Path(__file__).resolve().parent
CONTESTANTS = HERE / "contestants"
ENVIRONMENTS = {
    "arena_rank": "arena_rank",
    "choix": "plain",
    "evalica": "plain",
    "jax_optimisers": "jax_optimisers",
    "kickscore": "plain",
    "scikit_learn": "plain",
    "scipy": "plain",
    "solidago": "solidago",
    "torch": "solidago",
}
BUDGET = 12.0  # seconds for the repeats of one method
TURN = 0.3  # seconds for one turn, unless one call takes longer


class Contestant:
    """A contestant's process, started by the first request."""

    def __init__(self, name: str, python: str) -> None:
        self.command = [python, str(CONTESTANTS / f"with_{name}.py")]
        self.process: subprocess.Popen[str] | None = None

    def ask(
        self, method: str, problem: str, to: str, limit: float, fill: float = 0
    ) -> dict[str, Any]:
        """The reply to one request; an error if it fails or exceeds the time limit."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        given, answers = self.process.stdin, self.process.stdout
        assert given is not None
        assert answers is not None
        request = {"method": method, "problem": problem, "to": to, "fill": fill}
        given.write(json.dumps(request) + "\n")
        given.flush()
        if not select.select([answers], [], [], limit)[0]:
            self.stop()
            return {"error": f"no answer within {limit:g} s"}
        line = answers.readline()
        if not line:
            self.stop()
            return {"error": "the process died"}
        return json.loads(line)

    def alone(self, method: str, problem: str, to: str, limit: float) -> dict[str, Any]:
        """The reply of a separate process, with its seconds from start to end."""
        start = time.perf_counter()
        try:
            done = subprocess.run(
                [*self.command, method, problem, to],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no answer within {limit:g} s"}
        seconds = time.perf_counter() - start
        if done.returncode:
            return {"error": (done.stderr.strip() or "died").splitlines()[-1]}
        return json.loads(done.stdout.splitlines()[-1]) | {"process_seconds": seconds}

    def stop(self) -> None:
        """Kill the process; the next request starts a new one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


class Judge:
    """Judge answers by their largest gradient and their distance to ours."""

    def __init__(self, problem: Problem, kind: str) -> None:
        self.problem, self.kind, self.ours = problem, kind, np.zeros(0)

    def worth(self, answer: np.ndarray, is_ours: bool) -> dict[str, float]:
        """Errors of an answer; distances are to our first answer."""
        answer = answer.astype(float)
        if self.kind in ("jacobian", "std"):
            return {"error": float(np.abs(self._residual(answer)).max())}
        scores = answer[0] if self.kind == "scores" else answer
        if scores.shape != (self.problem.num_items,):
            return {}  # a yardstick
        if np.isinf(self.problem.prior_std):
            scores = scores - scores.mean()
        error = float(np.abs(losses.gradient(self.problem, scores)).max())
        if is_ours and not self.ours.size:
            self.ours = scores
        apart = float(np.abs(scores - self.ours).max()) if self.ours.size else np.nan
        return {"error": error, "apart": apart}

    def _residual(self, answer: np.ndarray) -> np.ndarray:
        """H J − Bᵀ for the Jacobian; relative errors for variances."""
        hessian = self._hessian()
        if self.kind == "std":
            return np.square(answer) / np.diagonal(np.linalg.inv(hessian)) - 1
        residual, row = hessian @ answer, np.arange(self.problem.value.size)
        residual[self.problem.a, row] -= 1
        residual[self.problem.b, row] += 1
        return residual

    def _hessian(self) -> np.ndarray:
        """The Hessian at the optimum, by Newton's method from 0; these problems are small."""
        a, b, n = self.problem.a, self.problem.b, self.problem.num_items
        scores, hessian = np.zeros(n), np.zeros((n, n))
        for _ in range(20):
            curvature = losses.LAWS[self.problem.law].variance(scores[a] - scores[b])
            hessian = np.zeros((n, n))
            np.add.at(hessian, (a, b), -curvature)
            hessian += hessian.T
            hessian[np.diag_indices(n)] = 1 / self.problem.prior_std**2 - hessian.sum(axis=1)
            scores = scores - np.linalg.solve(hessian, losses.gradient(self.problem, scores))
        return hessian


class Contest:
    """All contestants, and a folder for their problems and answers."""

    def __init__(self, pythons: dict[str, str], folder: str, limit: float, repeats: int) -> None:
        self.contestants = {name: Contestant(name, path) for name, path in pythons.items()}
        self.folder, self.limit, self.repeats = folder, limit, repeats

    def problem(self, work: Work, is_sample: bool = False) -> tuple[str, Problem]:
        """The problem file of a work, written once."""
        path = os.path.join(self.folder, f"{work.name}{'-sample' * is_sample}.npz")
        if os.path.exists(path):
            return path, Problem.load(path)
        whole = work.make()
        if is_sample:
            items = int(np.searchsorted(whole.owner, work.sample or 0))
            rows = whole.a < items
            whole = whole._replace(
                a=whole.a[rows], b=whole.b[rows], value=whole.value[rows], owner=whole.owner[:items]
            )
        whole.save(path)
        return path, whole

    def run(self, work: Work) -> list[dict[str, Any]]:
        """One row per method; their runs are interleaved."""
        files = {False: self.problem(work)}
        if work.sample:
            files[True] = self.problem(work, is_sample=True)
        judges = {key: Judge(problem, work.judged) for key, (_, problem) in files.items()}
        share = {key: files[False][1].value.size / p.value.size for key, (_, p) in files.items()}
        if work.sample:  # our answer on the sample, for distances
            self._ask(work.entries[0]._replace(sample=True), files, judges)
        rows, times = [], []
        for entry in work.entries:
            row, seconds = self._ask(entry, files, judges)
            row |= {"work": work.name, "target": entry.target, "share": share[entry.sample]}
            if seconds is not None:
                row["first_seconds"] = seconds * share[entry.sample]
            rows.append(row)
            times.append([] if seconds is None else [seconds])
            print(f"  {describe(row)}", flush=True)
        firsts = [min(time, default=np.inf) for time in times]
        for turn in range(self.repeats):
            for entry, time_of, first in zip(work.entries, times, firsts, strict=True):
                spent = sum(time_of[1:])
                if first > self.limit or (turn and spent + spent / turn > BUDGET):
                    continue
                if turn == 0 and first > 3 * BUDGET:
                    continue  # compilation is negligible in so long a run
                path, _ = files[entry.sample]
                reply = self.contestants[entry.contestant].ask(
                    entry.method, path, self._answer(entry), self.limit, TURN
                )
                if "seconds" in reply:
                    time_of.append(reply["seconds"])
        for row, time_of in zip(rows, times, strict=True):
            if time_of:
                row["seconds"] = min(time_of) * row["share"]
                row["runs"] = max(len(time_of) - 1, 1)
        ours = rows[0].get("seconds", np.nan)
        for row in rows:
            row["ratio"] = row.get("seconds", np.nan) / ours
        for contestant in self.contestants.values():
            contestant.stop()  # the next work starts in new processes
        return rows

    def cold(self) -> list[dict[str, Any]]:
        """Time whole processes; later ones may reuse the compilation cache."""
        path, problem = self.problem(COLD)
        judge, rows = Judge(problem, "gradient"), []
        with tempfile.TemporaryDirectory() as cache:
            os.environ |= {
                "JAX_COMPILATION_CACHE_DIR": cache,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            for entry in COLD.entries:
                rows.append(self._cold_row(entry, path, judge))
                print(f"  {describe(rows[-1])}", flush=True)
            for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
                del os.environ[name]
        ours = rows[0].get("seconds", np.nan)
        for row in rows:
            row["ratio"] = row.get("seconds", np.nan) / ours
        return rows

    def _cold_row(self, entry: Entry, path: str, judge: Judge) -> dict[str, Any]:
        """Times of the first of four processes and of the best other, or the first error."""
        row: dict[str, Any] = {"contestant": entry.contestant, "method": entry.method}
        row["work"], to, seconds = "cold", self._answer(entry), []
        for _ in range(4):
            reply = self.contestants[entry.contestant].alone(entry.method, path, to, self.limit)
            if "error" in reply:
                return row | {"failed": reply["error"]}
            seconds.append(reply["process_seconds"])
        row |= judge.worth(np.load(to), entry.contestant == OURS)
        return row | {"first_seconds": seconds[0], "seconds": min(seconds[1:])}

    def memory(self, work: Work, rows: list[dict[str, Any]]) -> None:
        """Add the peak memory of a separate process to the row of each method."""
        for entry, row in zip(work.entries, rows, strict=True):
            if entry.sample or "seconds" not in row or row["seconds"] > self.limit / 4:
                continue
            path, _ = self.problem(work)
            contestant = self.contestants[entry.contestant]
            reply = contestant.alone(entry.method, path, self._answer(entry), self.limit)
            row["peak_mb"] = reply.get("peak_mb", np.nan)

    def _answer(self, entry: Entry) -> str:
        return os.path.join(self.folder, f"{entry.contestant}.npy")

    def _ask(
        self,
        entry: Entry,
        files: dict[bool, tuple[str, Problem]],
        judges: dict[bool, Judge],
    ) -> tuple[dict[str, Any], float | None]:
        """A judged first answer and its seconds."""
        row: dict[str, Any] = {"contestant": entry.contestant, "method": entry.method}
        to = self._answer(entry)
        contestant = self.contestants[entry.contestant]
        reply = contestant.ask(entry.method, files[entry.sample][0], to, self.limit)
        if "error" in reply:
            return row | {"failed": reply["error"]}, None
        row |= judges[entry.sample].worth(np.load(to), entry.contestant == OURS)
        return row, reply["seconds"]


def describe(row: dict[str, Any]) -> str:
    """A progress line."""
    name = f"{row['contestant']}: {row['method']}"
    if "failed" in row:
        return f"{name:52} {row['failed']}"
    seconds = row.get("first_seconds", np.nan)
    return f"{name:52} {seconds:9.4f} s, gradient {row.get('error', np.nan):.0e}"


def environments(folder: pathlib.Path) -> dict[str, str]:
    """An interpreter for each contestant; creates missing environments."""
    pythons = {OURS: sys.executable}
    for name in sorted(set(ENVIRONMENTS.values())):
        python = folder / name / "bin" / "python"
        if not python.exists():
            print(f"creating {folder / name}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder / name)], check=True)
            requirements = CONTESTANTS / "requirements" / f"{name}.txt"
            subprocess.run(
                [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements)],
                check=True,
            )
        pythons |= {who: str(python) for who, where in ENVIRONMENTS.items() if where == name}
    return pythons


def run_all(contest: Contest, names: Iterable[str], keep: Callable[[list[dict]], None]) -> None:
    """Run the named works and store their rows one by one."""
    for work in (*WORK, *TRIALS):
        if work.name not in names:
            continue
        if work.needs is not None and not work.needs.exists():
            print(f"{work.name}: skipped, {work.needs} does not exist", flush=True)
            continue
        print(f"{work.name}: {work.title}", flush=True)
        rows = contest.run(work)
        if work.name in MEMORY:
            contest.memory(work, rows)
        keep(rows)
    if "cold" in names:
        print(f"cold: {COLD.title}", flush=True)
        keep(contest.cold())


def watch(write: bool) -> int:
    """Measure ratios of quick works to SciPy in this environment; compare with the last."""
    pythons = {OURS: sys.executable, "scipy": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(pythons, folder, limit=60, repeats=10)
        ratios = {}
        for work in WORK:
            if work.name in QUICK:
                mine = tuple(entry for entry in work.entries if entry[:2] in peer_history.WATCHED)
                for row in contest.run(work._replace(entries=mine)):
                    if row["contestant"] != OURS:
                        ratios[f"{work.name}: {row['method']}"] = round(row["ratio"], 2)
    if write:
        peer_history.write(ratios)
    return peer_history.show(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare gbt_jax with other packages.")
    everything = [work.name for work in (*WORK, *TRIALS)] + ["cold"]
    parser.add_argument("--only", nargs="+", choices=everything, metavar="WORK")
    parser.add_argument("--report", action="store_true", help="rewrite the report from the CSV")
    parser.add_argument("--watch", action="store_true", help="compare a few ratios with the last")
    parser.add_argument("--write", action="store_true", help="with --watch: record the ratios")
    parser.add_argument("--environments", type=pathlib.Path, default=HERE / ".environments")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one answer")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.watch:
        return watch(arguments.write)
    if not arguments.report:
        pythons = environments(arguments.environments)
        with tempfile.TemporaryDirectory() as folder:
            contest = Contest(pythons, folder, arguments.limit, arguments.repeats)
            run_all(contest, arguments.only or everything, peer_rows.keep)
    peer_report.write_report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
