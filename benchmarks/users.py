"""Many users at once: what one call of `fit_users` costs beside other ways to do the same.

    python benchmarks/users.py [--users N]      against a loop of `fit`
    python benchmarks/users.py --switch         a union against dense factorisations, by size
    python benchmarks/users.py --rows N         the time to sort columns of N rows
    python benchmarks/users.py --many N         N users with bounded memory, and time per user

Users have 5 to 60 items each (log-uniform) and twice as many comparisons, Uniform law, σ = 7, and
everyone is solved to a gradient of 1e-9 (`atol` = σ² times that). All times are after compilation,
best of a few, contestants interleaved. The loop runs on a sample of the users, and its time is
multiplied up. A chunk waits for its slowest user: how much of the work on rows is of use, at most,
is told too, and what it would be if it were known beforehand who is slow. SciPy and other packages
on ten thousand users: `peers.py --only users`.
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
from gbt_jax._data import _chunks
from gbt_jax import laws
from gbt_jax._util._threads import num_workers

SIGMA, TOLERANCE = 7.0, 1e-9
ERROR_BOUND = SIGMA**2 * TOLERANCE  # the certificate that a gradient of that norm gives
MODEL = gbt.Model(laws.Uniform(), SIGMA)


def simulated(num_users: int, low: int = 5, high: int = 60, seed: int = 0) -> gbt.UserComparisons:
    """Users with `low` to `high` items, random pairs, values around the truth."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high + 1), num_users)).astype(int)
    user = np.repeat(np.arange(num_users), 2 * sizes)
    size = sizes[user]
    a = np.floor(rng.random(user.size) * size).astype(int)
    b = (a + 1 + np.floor(rng.random(user.size) * (size - 1)).astype(int)) % size
    theta = rng.normal(size=(num_users, high))
    mean = losses.uniform_mean(theta[user, a] - theta[user, b])
    value = np.clip(mean + 0.4 * rng.normal(size=user.size), -1, 1)
    return gbt.UserComparisons.from_arrays(user, a, b, value)


def show_loop(num_users: int) -> None:
    data = simulated(num_users)
    fits = gbt.fit_users(MODEL, data, atol=ERROR_BOUND)
    sample = np.random.default_rng(1).choice(num_users, min(300, num_users), replace=False)
    together = [fits.for_user(int(data.users[place])) for place in sample]
    share = sum(len(one.comparisons) for one in together) / data.value.size

    def by_fit() -> list[np.ndarray]:
        return [
            np.asarray(gbt.fit(MODEL, one.comparisons, atol=ERROR_BOUND).scores) for one in together
        ]

    pairs = zip(together, by_fit(), strict=True)
    apart = max(np.abs(np.asarray(one.scores) - alone).max() for one, alone in pairs)
    times = best_times(
        {
            "fit_users": lambda: gbt.fit_users(MODEL, data, atol=ERROR_BOUND).scores,
            "fit, one by one": by_fit,
        },
        3,
    )
    times["fit, one by one"] /= share
    print(f"{num_users:,} users, {data.value.size:,} comparisons, {data.items.size:,} scores")
    print(f"scores apart by {apart:.0e}")
    for name, seconds in times.items():
        print(f"{name:28} {seconds:9.3f} s = {seconds / times['fit_users']:7.1f} × fit_users")
    num_rows, steps = np.diff(data.row_offsets), np.asarray(fits.cg_steps)
    planned = list(_chunks.plan(np.diff(data.item_offsets), num_rows, num_workers()))
    by_steps = np.split(np.argsort(-steps), np.cumsum([users.size for _, users in planned])[:-1])
    shares = [used_share(chunks, num_rows, steps) for chunks in ([u for _, u in planned], by_steps)]
    print(f"of their products at most {shares[0]:.2f} are of use, by steps {shares[1]:.2f}")


def used_share(chunks: list[np.ndarray], num_rows: np.ndarray, steps: np.ndarray) -> float:
    """Of the rows of all products, those of users who still need them: at most so many.

    A chunk makes at least as many products as its slowest user needs.
    """
    made = sum(num_rows[users].sum() * steps[users].max() for users in chunks)
    return (num_rows * steps).sum() / made


def show_switch() -> None:
    """Tiny users vmapped with dense factorisations, in stacks of one padded shape, or a union.

    On one core: jaxlib 0.10 hangs where two threads factorise batches at a time.
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
        gbt.fit_users(MODEL, data)
        stacks = [
            stacked(data, np.arange(start, start + per_stack), size)
            for start in range(0, len(data), per_stack)
        ]
        times = best_times(
            {
                "dense": lambda s=stacks: [jax.block_until_ready(dense(stack)) for stack in s],
                "union": lambda d=data: gbt.fit_users(MODEL, d).scores,
            },
            5,
        )
        each = [1e6 * times[name] / len(data) for name in ("dense", "union")]
        print(
            f"{size // 2 + 1:2} to {size:2} items: dense {each[0]:7.1f} µs per user, union "
            f"{each[1]:7.1f} µs, ratio {each[0] / each[1]:.2f}",
            flush=True,
        )


def stacked(data: gbt.UserComparisons, users: np.ndarray, size: int) -> gbt.Comparisons:
    """Some users, each with room for `size` items and twice as many rows."""
    columns = []
    for column in (data.a, data.b, data.value, data.weight):
        rows = np.zeros((users.size, 2 * size), column.dtype)
        for place, user in enumerate(users):
            own = column[data.row_offsets[user] : data.row_offsets[user + 1]]
            rows[place, : own.size] = own
        columns.append(rows)
    return jax.vmap(lambda a, b, *rest: gbt.Comparisons(a, b, *rest, num_items=size))(*columns)


def show_sorting(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    user = rng.integers(0, num_rows // 40 + 1, num_rows)
    a, b = rng.integers(0, 10**6, num_rows), rng.integers(0, 10**6, num_rows)
    for name, label in (("integers", np.asarray), ("strings", lambda x: x.astype("U7"))):
        columns = label(user), label(a), label(b)
        start = time.perf_counter()
        data = gbt.UserComparisons.from_arrays(*columns, rng.uniform(-1, 1, num_rows))
        print(f"{num_rows:,} rows of {name}: {time.perf_counter() - start:.1f} s, {data}")


def show_many(num_users: int) -> None:
    small = simulated(num_users // 10, seed=1)
    gbt.fit_users(MODEL, small)
    start = time.perf_counter()
    gbt.fit_users(MODEL, small)
    per_row = (time.perf_counter() - start) / small.value.size
    data = simulated(num_users, seed=2)
    before, peak, is_over = resident(), [0.0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.05):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    fits = gbt.fit_users(MODEL, data, progress=True)
    seconds = time.perf_counter() - start
    is_over.set()
    watcher.join()
    above = peak[0] - before
    print(f"{len(data):,} users, {data.value.size:,} comparisons: {seconds:.0f} s, {fits}")
    print(f"time per comparison: {seconds / data.value.size / per_row:.2f} of that at a tenth")
    print(f"memory above the input: {above:.2f} GB")


def resident() -> float:
    """Gigabytes of memory in use now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**30


def show_tournesol() -> None:
    problems = tournesol()
    if not problems:
        return
    with open(TOURNESOL, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    data = gbt.UserComparisons.from_arrays(
        [row["public_username"] + " " + row["criteria"] for row in rows],
        [row["video_a"] for row in rows],
        [row["video_b"] for row in rows],
        [-float(row["score"]) / 10 for row in rows],
    )
    start = time.perf_counter()
    gbt.fit_users(MODEL, data)
    first_call = time.perf_counter() - start
    start = time.perf_counter()
    for problem in problems:
        gbt.fit(MODEL, problem)
    first_loop = time.perf_counter() - start
    times = best_times(
        {
            "call": lambda: gbt.fit_users(MODEL, data).scores,
            "loop": lambda: [gbt.fit(MODEL, problem).scores for problem in problems],
        },
        10,
    )
    print(
        f"{len(problems)} Tournesol problems, one call against one by one: "
        f"{times['call'] / times['loop']:.2f} after compilation, "
        f"{first_call / first_loop:.2f} with it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What many users cost.")
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument(
        "--switch", action="store_true", help="a union against dense factorisations"
    )
    parser.add_argument("--rows", type=int, help="sort columns of this many rows")
    parser.add_argument("--many", type=int, help="this many users, with memory")
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
        show_loop(arguments.users)


if __name__ == "__main__":
    main()
