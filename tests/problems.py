"""Problems that several test files share."""

import csv
import os
import pathlib

import jax
import numpy as np
import pytest

import gbt_jax as gbt
from gbt_jax import laws


def data_file(name: str) -> pathlib.Path:
    """A file of the data that are no part of the repository; without it the test is skipped.

    They are in the folder GBT_JAX_DATA, by default `../shared/data` beside the repository. Where
    CI is set, a missing file is a failure: CI has to run these tests.
    """
    beside = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    path = pathlib.Path(os.environ.get("GBT_JAX_DATA") or beside) / name
    if not path.is_file():
        missing = f"there is no {path}: set GBT_JAX_DATA to the folder of the shared data"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def with_full_optimisation(test):
    """Run a test in CI's last part alone: its bits are equal in the programs that users get.

    They are not where XLA optimises as little as in most tests.
    """
    missing = not os.environ.get("GBT_JAX_FULL_OPTIMISATION")
    reason = "bits depend on compilation: set GBT_JAX_FULL_OPTIMISATION=1"
    skip = pytest.mark.skipif(missing, reason=reason)
    return pytest.mark.slow(pytest.mark.certificate(skip(test)))


def random_pairs(num_items: int, num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of different items."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, num_items, num_rows)
    return a, (a + 1 + rng.integers(0, num_items - 1, num_rows)) % num_items


def random_comparisons(num_items: int, num_rows: int, seed: int = 0, **options) -> gbt.Comparisons:
    """Comparisons with uniform values inside (−0.95, 0.95)."""
    values = np.random.default_rng(seed + 1).uniform(-0.95, 0.95, num_rows)
    return gbt.Comparisons(
        *random_pairs(num_items, num_rows, seed), values, num_items=num_items, **options
    )


def incidence(comparisons: gbt.Comparisons) -> np.ndarray:
    """B with (Bθ)_row = θ_a − θ_b."""
    matrix = np.zeros((len(comparisons), comparisons.num_items))
    rows = np.arange(len(comparisons))
    np.add.at(matrix, (rows, np.asarray(comparisons.a)), 1)
    np.add.at(matrix, (rows, np.asarray(comparisons.b)), -1)
    return matrix


def counting_law() -> tuple[type[laws.AbstractRootLaw], list[tuple[int, ...]]]:
    """A new law with a `scale`, and the shapes it has been traced with so far."""
    traces = []

    class Counting(laws.AbstractRootLaw):
        scale: jax.Array

        def cgf(self, t):
            traces.append(np.shape(t))
            return laws.Scaled(laws.Uniform(), self.scale).cgf(t)

    return Counting, traces


def tournesol_problems() -> list[gbt.Comparisons]:
    """One problem per user and criterion; a negative score of the file prefers video_a."""
    groups: dict[tuple[str, str], list[tuple[str, str, float]]] = {}
    with open(data_file("tournesol/comparisons.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["public_username"], row["criteria"]
            rows = groups.setdefault(key, [])
            rows.append((row["video_a"], row["video_b"], -float(row["score"]) / 10))
    problems = []
    for rows in groups.values():
        items: dict[str, int] = {}
        a = [items.setdefault(first, len(items)) for first, _, _ in rows]
        b = [items.setdefault(second, len(items)) for _, second, _ in rows]
        values = [value for _, _, value in rows]
        problems.append(gbt.Comparisons(a, b, values, num_items=len(items)))
    return problems


def group_columns(sizes, seed: int = 0, repeats: int = 2) -> tuple[np.ndarray, ...]:
    """group, a, b, value: `repeats` groups of each size, with twice as many rows as items."""
    rng = np.random.default_rng(seed)
    group, a, b = [], [], []
    for number, size in enumerate(np.repeat(sizes, repeats)):
        first = rng.integers(0, size, 2 * size)
        group.append(np.full(2 * size, 7 * number + 3))
        a.append(1000 + first)
        b.append(1000 + (first + 1 + rng.integers(0, max(size - 1, 1), 2 * size)) % size)
    group, a, b = (np.concatenate(column) for column in (group, a, b))
    value = rng.uniform(-0.95, 0.95, group.size)
    order = rng.permutation(group.size)
    return tuple(column[order] for column in (group, a, b, value))


def comparisons_of_group(group, a, b, value, label) -> tuple[gbt.Comparisons, np.ndarray]:
    """One group's comparisons and its items, in the order of their labels: built on its own."""
    rows = group == label
    items, ends = np.unique(np.concatenate([a[rows], b[rows]]), return_inverse=True)
    count = int(rows.sum())
    return gbt.Comparisons(ends[:count], ends[count:], value[rows], num_items=items.size), items
