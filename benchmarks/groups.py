"""Time of one call of `fit` with many groups, compared with alternatives.

    python benchmarks/groups.py [--groups N]    against a loop of `fit`
    python benchmarks/groups.py --switch        disjoint union or dense factorisations, by size
    python benchmarks/groups.py --rows N        the time to sort columns of N rows
    python benchmarks/groups.py --many N        time per row and memory of N groups

Groups are users with 5 to 60 items each (log-uniform) and twice as many comparisons, Uniform law,
σ = 7. Every group is solved to a gradient of 1e-9 (`atol` = σ² times that). All times are after
compilation, best of a few interleaved runs. The loop runs on a sample of the groups, and its time
is extrapolated. A chunk iterates until its slowest group converges: the script prints an upper
bound on the share of row products that are needed, and the same if chunks were sorted by steps.
`peers.py --only users` measures SciPy and other packages on ten thousand users.
"""

import argparse
import csv
import os
import resource
import threading
import time

import jax
import numpy as np
from contestants import losses
from peer_problems import TOURNESOL
from single import best_times, tournesol

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._data import _chunks
from gbt_jax._data._groups import sort_by_group
from gbt_jax._util._threads import num_workers

SIGMA, TOLERANCE = 7.0, 1e-9
ERROR_BOUND = SIGMA**2 * TOLERANCE  # the certificate that a gradient of that norm gives
MODEL = gbt.Model(laws.Uniform(), SIGMA)


def simulated(num_groups: int, low: int = 5, high: int = 60, seed: int = 0) -> gbt.Comparisons:
    """Groups with `low` to `high` items, random pairs, and noisy values."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high + 1), num_groups)).astype(int)
    group = np.repeat(np.arange(num_groups), 2 * sizes)
    size = sizes[group]
    a = np.floor(rng.random(group.size) * size).astype(int)
    b = (a + 1 + np.floor(rng.random(group.size) * (size - 1)).astype(int)) % size
    theta = rng.normal(size=(num_groups, high))
    mean = losses.uniform_mean(theta[group, a] - theta[group, b])
    value = np.clip(mean + 0.4 * rng.normal(size=group.size), -1, 1)
    return gbt.Comparisons(a, b, value, num_items=high, group=group)


def show_loop(num_groups: int) -> None:
    data = simulated(num_groups)
    fit = gbt.fit(MODEL, data, atol=ERROR_BOUND)
    sample = np.random.default_rng(1).choice(fit.groups, min(100, num_groups), replace=False)
    together = [fit[label] for label in sample]
    share = sum(len(one.comparisons) for one in together) / len(data)

    def by_one() -> list[np.ndarray]:
        return [
            np.asarray(gbt.fit(MODEL, one.comparisons, atol=ERROR_BOUND).scores) for one in together
        ]

    pairs = zip(together, by_one(), strict=True)
    apart = max(np.abs(np.asarray(one.scores) - alone).max() for one, alone in pairs)
    times = best_times(
        {
            "one call": lambda: gbt.fit(MODEL, data, atol=ERROR_BOUND).scores,
            "one by one": by_one,
        },
        3,
    )
    times["one by one"] /= share
    print(f"{num_groups:,} groups, {len(data):,} comparisons, {data.num_items:,} scores")
    print(f"largest difference of scores: {apart:.0e}")
    for name, seconds in times.items():
        print(f"{name:12} {seconds:9.3f} s = {seconds / times['one call']:7.1f} × one call")
    layout, steps = sort_by_group(data), np.asarray(fit.stats.cg_steps)
    num_rows = layout.num_rows
    planned = list(_chunks.plan(layout.num_items, num_rows, num_workers()))
    by_steps = np.split(np.argsort(-steps), np.cumsum([groups.size for _, groups in planned])[:-1])
    shares = [used_share(chunks, num_rows, steps) for chunks in ([g for _, g in planned], by_steps)]
    print(f"share of needed products: at most {shares[0]:.2f}; chunks by steps {shares[1]:.2f}")


def used_share(chunks: list[np.ndarray], num_rows: np.ndarray, steps: np.ndarray) -> float:
    """An upper bound on the share of row products of groups that have not converged yet.

    A chunk computes at least as many products as its slowest group needs.
    """
    made = sum(num_rows[groups].sum() * steps[groups].max() for groups in chunks)
    return (num_rows * steps).sum() / made


def show_switch() -> None:
    """Compare vmapped dense factorisations of padded small groups with their disjoint union.

    Runs on one core: jaxlib 0.10 hangs when two threads factorise batches at the same time.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    @jax.jit
    def dense(stack: gbt.Comparisons):
        solver = gbt.solvers.NewtonCholesky()
        return jax.vmap(lambda one: gbt.map_scores(MODEL, one, solver=solver))(stack)

    for size in (8, 16, 32, 64):
        per_stack = 2**12 // size
        data = simulated(4 * per_stack, size // 2 + 1, size)
        num_groups = data.group_labels.size
        stacks = [
            stacked(data, np.arange(start, start + per_stack), size)
            for start in range(0, num_groups, per_stack)
        ]
        times = best_times(
            {
                "dense": lambda s=stacks: [jax.block_until_ready(dense(stack)) for stack in s],
                "union": lambda d=data: gbt.fit(MODEL, d).scores,
            },
            5,
        )
        each = [1e6 * times[name] / num_groups for name in ("dense", "union")]
        print(
            f"{size // 2 + 1:2} to {size:2} items: dense {each[0]:7.1f} µs per group, union "
            f"{each[1]:7.1f} µs, ratio {each[0] / each[1]:.2f}",
            flush=True,
        )


def stacked(data: gbt.Comparisons, groups: np.ndarray, size: int) -> gbt.Comparisons:
    """Some groups, each padded to `size` items and twice as many rows."""
    layout = sort_by_group(data)
    value, weight = (np.asarray(column)[layout.row] for column in (data.value, data.weight))
    columns = []
    for column in (layout.a, layout.b, value, weight):
        rows = np.zeros((groups.size, 2 * size), column.dtype)
        for place, group in enumerate(groups):
            own = column[layout.row_offsets[group] : layout.row_offsets[group + 1]]
            rows[place, : own.size] = own
        columns.append(rows)
    return jax.vmap(lambda a, b, *rest: gbt.Comparisons(a, b, *rest, num_items=size))(*columns)


def show_sorting(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    group = rng.integers(0, num_rows // 40 + 1, num_rows)
    a, b = rng.integers(0, 10**6, num_rows), rng.integers(0, 10**6, num_rows)
    for name, label in (("integers", np.asarray), ("strings", lambda x: x.astype("U7"))):
        first, second, owner = (label(x) for x in (a, b, group))
        value = rng.uniform(-1, 1, num_rows)
        start = time.perf_counter()
        data = gbt.Comparisons.from_labels(first, second, value, group=owner)
        print(f"{num_rows:,} rows of {name}: {time.perf_counter() - start:.1f} s, {data}")


def show_many(num_groups: int) -> None:
    small = simulated(num_groups // 10, seed=1)
    gbt.fit(MODEL, small)
    start = time.perf_counter()
    gbt.fit(MODEL, small)
    per_row = (time.perf_counter() - start) / len(small)
    data = simulated(num_groups, seed=2)
    before, peak, is_over = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    fit = gbt.fit(MODEL, data, progress=True)
    seconds = time.perf_counter() - start
    is_over.set()
    watcher.join()
    above = peak[0] - before
    print(f"{seconds:.0f} s: {fit}")
    print(f"time per comparison: {seconds / len(data) / per_row:.2f} of that for a tenth of them")
    print(f"memory above the input: {above:.2f} GB")


def resident() -> float:
    """Resident memory in gigabytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**30


def show_tournesol() -> None:
    problems = tournesol()
    if not problems:
        return
    with open(TOURNESOL, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    data = gbt.Comparisons.from_labels(
        [row["video_a"] for row in rows],
        [row["video_b"] for row in rows],
        [-float(row["score"]) / 10 for row in rows],
        group=[row["public_username"] + " " + row["criteria"] for row in rows],
    )
    start = time.perf_counter()
    gbt.fit(MODEL, data)
    first_call = time.perf_counter() - start
    start = time.perf_counter()
    for problem in problems:
        gbt.fit(MODEL, problem)
    first_loop = time.perf_counter() - start
    times = best_times(
        {
            "call": lambda: gbt.fit(MODEL, data).scores,
            "loop": lambda: [gbt.fit(MODEL, problem).scores for problem in problems],
        },
        10,
    )
    print(
        f"{len(problems)} Tournesol problems, time of one call relative to a loop: "
        f"{times['call'] / times['loop']:.2f} after compilation, "
        f"{first_call / first_loop:.2f} with it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of fits with many groups.")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument(
        "--switch", action="store_true", help="disjoint union or dense factorisations"
    )
    parser.add_argument("--rows", type=int, help="time to sort this many rows")
    parser.add_argument("--many", type=int, help="time and memory of this many groups")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.switch:
        show_switch()
    elif arguments.rows:
        show_sorting(arguments.rows)
    elif arguments.many:
        show_many(arguments.many)
    else:
        show_tournesol()
        show_loop(arguments.groups)


if __name__ == "__main__":
    main()
