"""Time and memory of `gbt fit` on large tables, from the start of the process to its end.

    python benchmarks/large_tables.py [--only tennis many]

- `tennis`: 916,641 matches of 28,534 players, simulated after the careers of professionals: a few
  players have a thousand matches, half of them fewer than six; players meet others of about their
  own strength and time, so that repeated pairs and long chains of players are frequent. Also with
  `--no-intervals`.
- `many`: 10 million comparisons of 200 items.

Each table is written as CSV into a temporary folder and ranked by a process of its own, with an
empty compilation cache. Prints the time, the largest memory, and whether the bars are met.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

# The parent's memory would count as the child's, which begins as a copy of it: so a small process
# starts the command and reports the memory of its child.
_MEASURE = (
    "import json, resource, subprocess, sys, time; start = time.perf_counter();"
    "done = subprocess.run(sys.argv[1:], capture_output=True, text=True);"
    "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
    "print(json.dumps([done.returncode, done.stderr, time.perf_counter() - start,"
    " used.ru_utime + used.ru_stime, used.ru_maxrss]))"
)


class Bar(NamedTuple):
    """What a command may take."""

    seconds: float
    gigabytes: float


class Case(NamedTuple):
    """A table, the options that rank it, and the bar."""

    write: Callable[[Path], None]
    options: tuple[str, ...]
    bar: Bar


def write_tennis(path: Path, players: int = 28_534, matches: int = 916_641) -> None:
    """Winner, loser and date, in the order of dates."""
    random = np.random.default_rng(0)
    weeks = 2600
    skill = random.standard_normal(players)
    counts = matches_of_players(random, skill, 2 * matches)
    # Those who play more have longer careers, of at most 17 years.
    career = np.clip(weeks * counts / 1200 * random.uniform(0.5, 1.5, players), 1, 900)
    debut = random.uniform(0, weeks - career)
    who = np.repeat(np.arange(players), counts)
    week = (debut[who] + career[who] * random.random(who.size)).astype(int)
    # In a week those of about the same strength meet.
    level = skill[who] + 0.5 * random.standard_normal(who.size)
    order = np.lexsort((level, week))
    a, b = who[order].reshape(-1, 2).T
    b = np.where(a == b, (b + 1) % players, b)
    is_won = random.random(matches) < 1 / (1 + np.exp(-2 * (skill[a] - skill[b])))
    names = np.array([f"player{number:05}" for number in range(players)])
    date = np.datetime64("1974-01-07") + 7 * week[order][::2]
    winner, loser = np.where(is_won, a, b), np.where(is_won, b, a)
    write(path, {"winner": names[winner], "loser": names[loser], "date": date.astype(str)})


def matches_of_players(random: np.random.Generator, skill: np.ndarray, total: int) -> np.ndarray:
    """How many matches each player has: a power law from 1 to 1,800; better players have more."""
    activity = (1 - random.random(skill.size)) ** (-1 / 0.6) * np.exp(0.5 * skill)
    scale = 1.0
    for _ in range(100):
        scale *= total / np.clip(scale * activity, 1, 1800).sum()
    counts = np.clip(scale * activity, 1, 1800).astype(int)
    missing = total - counts.sum()
    often = np.argsort(-counts)[: abs(missing)]
    counts[often] += np.sign(missing)
    return counts


def write_many(path: Path, items: int = 200, size: int = 10_000_000) -> None:
    """Wins between any two items."""
    random = np.random.default_rng(0)
    first = random.integers(0, items, size)
    second = (first + random.integers(1, items, size)) % items
    is_won = random.random(size) < 1 / (1 + np.exp((first - second) / 100))
    names = np.array([f"model{number:03}" for number in range(items)])
    winner, loser = np.where(is_won, first, second), np.where(is_won, second, first)
    write(path, {"winner": names[winner], "loser": names[loser]})


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    pyarrow.csv.write_csv(pa.table(columns), path)


CASES = {
    "tennis": Case(write_tennis, (), Bar(30, 4)),
    "tennis, no intervals": Case(write_tennis, ("--no-intervals",), Bar(30, 4)),
    "many": Case(write_many, (), Bar(40, 4)),
}


def run(case: Case, table: Path, cache: Path) -> tuple[float, float, float, str]:
    """(seconds, seconds of work, gigabytes, remarks) of the command."""
    gbt = [sys.executable, "-m", "gbt_jax", "fit", str(table), "--preset", "pairs"]
    command = [*gbt, "-o", str(table.with_suffix(".ranking.csv")), *case.options]
    environment = os.environ | {"GBT_JAX_CACHE": str(cache)}
    measure = [sys.executable, "-c", _MEASURE, *command]
    done = subprocess.run(measure, check=True, capture_output=True, text=True, env=environment)

    code, remarks, seconds, work, peak = json.loads(done.stdout)
    if code:
        raise SystemExit(f"{' '.join(command)} failed: {remarks}")
    unit = 1e-9 if sys.platform == "darwin" else 1.024e-6  # bytes there, kibibytes elsewhere
    return seconds, work, peak * unit, remarks


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of `gbt fit` on large tables.")
    parser.add_argument("--only", nargs="+", choices=["tennis", "many"], default=["tennis", "many"])
    chosen = parser.parse_args().only
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, case) in enumerate(CASES.items()):
            kind = re.split(",", name)[0]
            if kind not in chosen:
                continue
            table = Path(folder, f"{kind}.csv")
            if not table.exists():
                case.write(table)
            seconds, work, memory, remarks = run(case, table, Path(folder, f"cache{number}"))
            is_met = seconds <= case.bar.seconds and memory <= case.bar.gigabytes
            print(
                f"{name}: {seconds:.1f} s ({work:.1f} s of work), {memory:.2f} GB; bar "
                f"{case.bar.seconds:g} s and {case.bar.gigabytes:g} GB: "
                f"{'met' if is_met else 'missed'}",
                *remarks.splitlines(),
                sep="\n  ",
                flush=True,
            )


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"in {time.perf_counter() - started:.0f} s")
