"""Time of a command, from the start of the process to its end.

    python benchmarks/cold_start.py [--repeats 5]

Measures a process with an empty compilation cache, a second process that reuses the cache, and
`gbt --help`, which compiles nothing. Prints best and median over the repeats, and the time to
import JAX, which this package cannot reduce. The limits are those of a machine that imports JAX in
0.64 s; on a slower one they are longer in proportion.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GBT = [sys.executable, "-m", "gbt_jax"]


def write_votes(path: Path, num_rows: int = 1000, num_items: int = 50) -> None:
    random = np.random.default_rng(0)
    first = random.integers(0, num_items, num_rows)
    second = (first + random.integers(1, num_items, num_rows)) % num_items
    winner = random.choice(["model_a", "model_b", "tie"], num_rows)
    lines = [f"m{a},m{b},{w}\n" for a, b, w in zip(first, second, winner, strict=True)]
    path.write_text("model_a,model_b,winner\n" + "".join(lines))


def seconds(command: list[str], cache: Path) -> float:
    environment = os.environ | {"GBT_JAX_CACHE": str(cache)}
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Start-up time of the command line.")
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    names = ("import jax", "gbt --help", "gbt fit, first", "gbt fit, again", "gbt demo, first")
    limits = {"gbt --help": 0.5, "gbt fit, first": 3.0, "gbt fit, again": 1.6}
    limits["gbt demo, first"] = 15.0
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        votes = Path(folder) / "votes.csv"
        write_votes(votes)
        fit = [*GBT, "fit", str(votes), "--preset", "arena", "-o", str(votes) + ".out.csv"]
        for repeat in range(repeats):
            cache, other = (Path(folder) / f"{kind}{repeat}" for kind in ("cache", "demo"))
            for name, command, where in (
                ("import jax", [sys.executable, "-c", "import jax.numpy"], cache),
                ("gbt --help", [*GBT, "--help"], cache),
                ("gbt fit, first", fit, cache),
                ("gbt fit, again", fit, cache),
                ("gbt demo, first", [*GBT, "demo"], other),
            ):
                times[name].append(seconds(command, where))
    scale = max(min(times["import jax"]) / 0.64, 1)
    for name, found in times.items():
        limit = f"   limit {scale * limits[name]:.2f} s" if name in limits else ""
        print(f"{name:16} best {min(found):5.2f} s, median {np.median(found):5.2f} s{limit}")


if __name__ == "__main__":
    main()
