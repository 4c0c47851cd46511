"""A long session of refits: is memory flat, are programs few, and are scores right throughout?

    python benchmarks/soak.py [--updates 100000] [--seed 0]

A stream of votes on 200 items: of ten updates two add a vote, one removes one and seven change one,
so that added rows climb the ladder of shapes. Every thousandth answer is compared with a cold fit:
the two scores may be as far apart as their certified error bounds add up to. The exit code is 1 if
they are further apart, if a fit fails, or if memory grows in the second half by more than 5%.
"""

import argparse
import resource
import sys
import time

import jax
import numpy as np

import gbt_jax as gbt

jax.config.update("jax_enable_x64", True)
PROGRAM = "/jax/core/compile/backend_compile_duration"
ITEMS, ROWS = 200, 400
MODEL = gbt.Model(gbt.laws.Uniform(), 1.0)


def votes(rng: np.random.Generator, count: int) -> gbt.Comparisons:
    """Votes on random pairs."""
    a = rng.integers(0, ITEMS, count)
    b = (a + rng.integers(1, ITEMS, count)) % ITEMS
    return gbt.Comparisons(a, b, rng.uniform(-1, 1, count), num_items=ITEMS)


def update(fit: gbt.Fit, kind: int, rng: np.random.Generator) -> gbt.Fit:
    """One vote added (kinds 0 and 1), removed (2) or changed (the others)."""
    row = rng.integers(0, len(fit.comparisons), 1)
    if kind < 2:
        return gbt.refit(fit, added=votes(rng, 1))
    if kind == 2:
        return gbt.refit(fit, removed=row)
    return gbt.refit(fit, changed=(row, rng.uniform(-1, 1, 1)))


def resident() -> float:
    """Memory of this process in MB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description="A long session of refits.")
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    programs: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **_: programs.append(event) if event == PROGRAM else None
    )
    rng = np.random.default_rng(given.seed)
    fit = gbt.fit(MODEL, votes(rng, ROWS))
    memory, worst, start = [], 0.0, time.perf_counter()
    for number in range(1, given.updates + 1):
        fit = update(fit, number % 10, rng)  # raises if it fails
        if number % 1000 == 0:
            cold = gbt.fit(MODEL, fit.comparisons)
            apart = float(np.linalg.norm(np.asarray(fit.scores) - np.asarray(cold.scores)))
            worst = max(worst, apart / float(fit.error_bound + cold.error_bound))
            memory.append(resident())
        if number % max(given.updates // 10, 1) == 0:
            pace = 1e3 * (time.perf_counter() - start) / number
            print(
                f"{number:7,} updates, {len(fit.comparisons):6,} rows: {pace:.1f} ms each, "
                f"{len(programs)} programs, {resident():,.0f} MB, largest distance from a cold "
                f"fit {worst:.2f} of the certified bounds",
                flush=True,
            )
    half = memory[len(memory) // 2 :]
    growth = half[-1] / half[0] - 1 if half else 0.0
    print(f"memory in the second half: {growth:+.1%}")
    return 1 if worst > 1 or growth > 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
