"""Many users at once: what one call of `fit_users` costs beside other ways to do the same.

    python benchmarks/users.py [--users N]      against SciPy and against a loop of `fit`
    python benchmarks/users.py --switch         a union against dense factorisations, by size
    python benchmarks/users.py --rows N         the time to sort columns of N rows
    python benchmarks/users.py --many N         N users with bounded memory, and time per user

Users have 5 to 60 items each (log-uniform) and twice as many comparisons, Uniform law, σ = 7, and
everyone is solved to a gradient of 1e-9 (`atol` = σ² times that). All times are after compilation,
best of a few, contestants interleaved. The slow contestants run on a sample of the users, and their
time is multiplied up. SciPy is the reference: L-BFGS-B user by user (ftol 0, gtol 1e-9, analytic
gradient), and Newton's method on all users as one problem, with a sparse Hessian and conjugate
gradients preconditioned by its diagonal.
"""

import argparse
import csv
import os
import resource
import threading
import time
from collections.abc import Callable

import jax
import numpy as np
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
from peer_work import TOURNESOL
from single import best_times, tournesol

import gbt_jax as gbt
from gbt_jax import laws

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
    mean = langevin(theta[user, a] - theta[user, b])
    value = np.clip(mean + 0.4 * rng.normal(size=user.size), -1, 1)
    return gbt.UserComparisons.from_arrays(user, a, b, value)


def langevin(t: np.ndarray) -> np.ndarray:
    small = np.abs(t) < 1e-2
    x = np.where(small, 1.0, t)
    return np.where(small, t / 3 - t**3 / 45 + 2 * t**5 / 945, 1 / np.tanh(x) - 1 / x)


def langevin_slope(t: np.ndarray) -> np.ndarray:
    x = np.abs(t)
    small = x < 1e-1
    x = np.where(small, 1.0, x)
    far = 1 / x**2 - 4 * np.exp(-2 * x) / np.expm1(-2 * x) ** 2
    return np.where(small, 1 / 3 - t**2 / 15 + 2 * t**4 / 189 - t**6 / 675, far)


def log_sinhc(t: np.ndarray) -> np.ndarray:
    x = np.abs(t)
    small = x < 1e-2
    x = np.where(small, 1.0, x)
    far = x + np.log(-np.expm1(-2 * x) / (2 * x))
    return np.where(small, t**2 / 6 - t**4 / 180, far)


def scipy_lbfgs(a: np.ndarray, b: np.ndarray, value: np.ndarray, num_items: int) -> np.ndarray:
    """One user by SciPy's L-BFGS-B."""

    def loss(x):
        t = x[a] - x[b]
        residual = langevin(t) - value
        gradient = x / SIGMA**2 + np.bincount(a, residual, num_items)
        gradient -= np.bincount(b, residual, num_items)
        return x @ x / (2 * SIGMA**2) + np.sum(log_sinhc(t) - value * t), gradient

    options = {"ftol": 0, "gtol": TOLERANCE, "maxiter": 10_000, "maxfun": 100_000}
    start = np.zeros(num_items)
    return scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x


def scipy_newton(data: gbt.UserComparisons) -> np.ndarray:
    """All users as one problem: damped Newton, sparse Hessian, preconditioned CG."""
    shift = np.repeat(data.item_offsets[:-1], np.diff(data.row_offsets))
    a, b, n = data.a + shift, data.b + shift, data.items.size
    row = np.arange(a.size)
    signs = np.concatenate([np.ones(a.size), -np.ones(a.size)])
    incidence = scipy.sparse.csr_matrix(
        (signs, (np.tile(row, 2), np.concatenate([a, b]))), (a.size, n)
    )
    transposed = incidence.T.tocsr()
    x = np.zeros(n)

    def loss(x):
        t = incidence @ x
        return x @ x / (2 * SIGMA**2) + np.sum(log_sinhc(t) - data.value * t)

    current = loss(x)
    for _ in range(50):
        t = incidence @ x
        gradient = x / SIGMA**2 + transposed @ (langevin(t) - data.value)
        size = float(np.abs(gradient).max())
        if size <= TOLERANCE:
            break
        weights = scipy.sparse.diags_array(langevin_slope(t))
        hessian = transposed @ weights @ incidence + scipy.sparse.identity(n) / SIGMA**2
        inverse = 1 / hessian.diagonal()
        jacobi = scipy.sparse.linalg.LinearOperator((n, n), lambda v, d=inverse: d * v)
        forcing = min(0.1, size)
        step, _ = scipy.sparse.linalg.cg(hessian.tocsr(), -gradient, rtol=forcing, M=jacobi)
        length = 1.0
        while loss(x + length * step) > current + 1e-4 * length * (gradient @ step) + 1e-12:
            length /= 2
        x = x + length * step
        current = loss(x)
    return x


def gradient_norms(data: gbt.UserComparisons, scores: np.ndarray) -> float:
    """The largest gradient of any score, in NumPy alone."""
    shift = np.repeat(data.item_offsets[:-1], np.diff(data.row_offsets))
    a, b = data.a + shift, data.b + shift
    residual = langevin(scores[a] - scores[b]) - data.value
    gradient = scores / SIGMA**2
    gradient += np.bincount(a, residual, scores.size) - np.bincount(b, residual, scores.size)
    return float(np.abs(gradient).max())


def show_contest(num_users: int) -> None:
    data = simulated(num_users)
    fits = gbt.fit_users(MODEL, data, atol=ERROR_BOUND)
    sample = np.random.default_rng(1).choice(num_users, min(300, num_users), replace=False)
    alone = [fits.for_user(int(data.users[i])).comparisons for i in sample]
    host = [(*map(np.asarray, (c.a, c.b, c.value)), c.num_items) for c in alone]
    share = sum(len(c) for c in alone) / data.value.size
    newton = scipy_newton(data)

    def each(function: Callable) -> Callable:
        return lambda: [function(one) for one in (host if function is by_scipy else alone)]

    def by_scipy(one):
        return scipy_lbfgs(*one)

    def by_fit(one):
        return gbt.fit(MODEL, one, atol=ERROR_BOUND).scores

    times = best_times(
        {
            "fit_users": lambda: gbt.fit_users(MODEL, data, atol=ERROR_BOUND).scores,
            "SciPy Newton, all in one": lambda: scipy_newton(data),
            "SciPy L-BFGS-B, one by one": each(by_scipy),
            "fit, one by one": each(by_fit),
        },
        3,
    )
    for name in ("SciPy L-BFGS-B, one by one", "fit, one by one"):
        times[name] /= share
    print(f"{num_users:,} users, {data.value.size:,} comparisons, {data.items.size:,} scores")
    print(f"largest gradient: fit_users {gradient_norms(data, fits.scores):.0e}, ", end="")
    print(f"SciPy Newton {gradient_norms(data, newton):.0e}")
    print(f"scores apart by {np.abs(fits.scores - newton).max():.0e}")
    for name, seconds in times.items():
        print(f"{name:28} {seconds:9.3f} s = {seconds / times['fit_users']:7.1f} × fit_users")


def show_switch() -> None:
    """Tiny users vmapped with dense factorisations, in stacks of one padded shape, or a union.

    On one core: jaxlib 0.10 hangs where two threads factorise batches at a time.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    @jax.jit
    def dense(stack: gbt.Comparisons):
        solver = gbt.NewtonCholesky()
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
        show_contest(arguments.users)


if __name__ == "__main__":
    main()
