"""Time to simulate a million comparisons: graph and values.

    python benchmarks/simulation.py [--rows 1000000]

The first call for a law includes compilation; the second does not.
"""

import argparse
import time
from collections.abc import Callable

import jax

import gbt_jax as gbt
from gbt_jax import laws, simulate

ITEMS = 10_000
LAWS = {
    "Uniform": laws.Uniform(),
    "BradleyTerry": laws.BradleyTerry(),
    "Davidson(1)": laws.Davidson(1.0),
    "KNary(21)": laws.KNary(21),
    "Gaussian(1)": laws.Gaussian(1.0),
    "Skellam(2.7)": laws.Skellam(2.7),
    "Beta(2)": laws.Beta(2.0),
}


def seconds(make: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(make())
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to simulate comparisons.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    jax.config.update("jax_enable_x64", True)
    key = jax.random.key(0)
    graphs: dict[str, Callable[[], simulate.Pairs]] = {
        "random pairs": lambda: simulate.random_pairs(ITEMS, rows, key=key),
        "Erdős–Rényi": lambda: simulate.erdos_renyi(ITEMS, 2 * rows / ITEMS**2, key=key),
        "power law": lambda: simulate.power_law(ITEMS, rows, key=key),
    }
    for name, make in graphs.items():
        print(f"{name:16} {seconds(make):6.2f} s", flush=True)
    scores = simulate.scores(gbt.Model(laws.Uniform()), ITEMS, key=key)
    pairs = graphs["random pairs"]()
    print(f"values of {rows:,} comparisons, first and second call")
    for name, law in LAWS.items():
        made = lambda law=law: simulate.comparisons(law, scores, pairs, key=key).value  # noqa: E731
        print(f"{name:16} {seconds(made):6.2f} s {seconds(made):6.2f} s", flush=True)


if __name__ == "__main__":
    main()
