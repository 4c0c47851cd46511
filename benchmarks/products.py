"""Time of a Hessian product, by the layout of the comparisons.

    python benchmarks/products.py

Conjugate gradients spend their time in products v ↦ Bᵀ diag(c) B v. Each program runs twenty of
them. The script prints microseconds per product, best of many, and SciPy's time with a CSR matrix:

- rows: two gathers and two scatters over all rows;
- blocks: the same block by block, as `gbt_jax` does up to `BLOCKED_ROWS` rows;
- segments of W: each item's neighbours packed into segments of W, stored by column, so that a
  segment needs only gathers, and the scatter adds segments instead of rows. The layout is built on
  the host by sorting; its time is printed too.

Both run in float64 and float32.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from contestants.protocol import Problem
from peer_problems import TOURNESOL, binary, erdos_renyi, largest, tournesol

from gbt_jax._util._arrays import IN_RANGE, gather
from gbt_jax._util._limits import BLOCK_ROWS

WIDTHS = (4, 8, 16)
REPEATS = 20  # products in one program


def best(function: Callable, *arguments: jax.Array) -> float:
    """Best time of a call in microseconds."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(100):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)


def repeated(product: Callable) -> Callable:
    """Repeat a product, as conjugate gradients do; the factor prevents overflow."""

    def run(v: jax.Array, *arguments: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, REPEATS, lambda _, x: 1e-3 * product(x, *arguments), v)

    return jax.jit(run)


def over_rows(v, a, b, curvature):
    slopes = curvature * (gather(v, a) - gather(v, b))
    first = jnp.zeros_like(v).at[a].add(slopes, **IN_RANGE)
    return first.at[b].subtract(slopes, **IN_RANGE)


def over_blocks(v, a, b, curvature):
    def add_block(block, image):
        columns = (
            jax.lax.dynamic_slice_in_dim(x, block * BLOCK_ROWS, BLOCK_ROWS)
            for x in (a, b, curvature)
        )
        own_a, own_b, weight = columns
        slopes = weight * (gather(v, own_a) - gather(v, own_b))
        first = image.at[own_a].add(slopes, **IN_RANGE)
        return first.at[own_b].subtract(slopes, **IN_RANGE)

    return jax.lax.fori_loop(0, a.size // BLOCK_ROWS, add_block, jnp.zeros_like(v))


def over_segments(v, neighbours, weights, owner, diagonal):
    columns = zip(weights, neighbours, strict=True)
    sums = sum(weight * gather(v, neighbour) for weight, neighbour in columns)
    return diagonal * v - jax.ops.segment_sum(sums, owner, v.size, indices_are_sorted=True)


def segments(problem: Problem, curvature: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """Neighbours and weights (width × segments), the item of each segment, and the diagonal."""
    n, m = problem.num_items, problem.value.size
    item = np.concatenate([problem.a, problem.b])
    order = np.argsort(item, kind="stable")
    item, row = item[order], order % m
    other = np.concatenate([problem.b, problem.a])[order]
    degree = np.bincount(item, minlength=n)
    count = -(-degree // width)
    place = np.arange(2 * m) - np.repeat(np.cumsum(degree) - degree, degree)
    segment = (np.cumsum(count) - count)[item] + place // width
    owner = np.repeat(np.arange(n), count)
    neighbours, weights = np.tile(owner, (width, 1)), np.zeros((width, owner.size))
    neighbours[place % width, segment] = other
    weights[place % width, segment] = curvature[row]
    return neighbours, weights, owner, np.bincount(item, curvature[row], n)


def show(name: str, problem: Problem) -> None:
    rng = np.random.default_rng(0)
    n, m = problem.num_items, problem.value.size
    curvature, v = rng.random(m), rng.normal(size=n)
    ends = np.concatenate([problem.a, problem.b]), np.concatenate([problem.b, problem.a])
    matrix = scipy.sparse.csr_array((np.tile(curvature, 2), ends), (n, n))
    print(f"{name}: {n:,} items, {m:,} rows; SciPy's CSR {best(lambda: matrix @ v):.0f} µs")
    for dtype in (np.float64, np.float32):
        whole = m // BLOCK_ROWS * BLOCK_ROWS  # of blocks; both layouts get these rows
        rows = [jnp.asarray(x[:whole], jnp.int32) for x in (problem.a, problem.b)]
        rows += [jnp.asarray(curvature[:whole], dtype)]
        layout, line = 0.0, f"  {dtype.__name__}:"
        for label, product in (("rows", over_rows), ("blocks", over_blocks)):
            time_of = best(repeated(product), jnp.asarray(v, dtype), *rows)
            line += f" {label} {time_of / REPEATS:.0f} µs,"
        line = line.removesuffix(",")
        for width in WIDTHS:
            start = time.perf_counter()
            neighbours, weights, owner, diagonal = segments(problem, curvature, width)
            layout = time.perf_counter() - start
            time_of = best(
                repeated(over_segments),
                jnp.asarray(v, dtype),
                jnp.asarray(neighbours, jnp.int32),
                jnp.asarray(weights, dtype),
                jnp.asarray(owner, jnp.int32),
                jnp.asarray(diagonal, dtype),
            )
            line += f", segments of {width} {time_of / REPEATS:.0f} µs"
        print(f"{line} (layout {1e6 * layout:.0f} µs)", flush=True)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    show("A = 500, p = 0.2", erdos_renyi())
    if TOURNESOL.exists():
        show("the largest Tournesol problem", largest(tournesol()))
    show("binary", binary(1000, 100_000, 1.0)())
    show("binary", binary(10_000, 1_000_000, 1.0)())


if __name__ == "__main__":
    main()
