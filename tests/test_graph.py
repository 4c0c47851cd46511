"""Parts of the comparison graph, against SciPy, and optima that exist, against all groups."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import connected_components

import gbt_jax as gbt
from gbt_jax._data._graph import component_labels, component_numbers
from gbt_jax._inference._existence import unbounded_items


def expected(a: np.ndarray, b: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    joined = weight > 0
    graph = scipy.sparse.coo_array(
        (np.ones(np.count_nonzero(joined)), (a[joined], b[joined])), (size, size)
    )
    return connected_components(graph, directed=False)[1]


def by_labels(a: np.ndarray, b: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    """Numbers in place of labels, each of which is the first item of its component."""
    rows = gbt.Comparisons(a, b, np.zeros(a.size), weight, num_items=size)
    first, number = np.unique(component_labels(rows), return_inverse=True)
    np.testing.assert_array_equal(first, np.unique(number, return_index=True)[1])
    return number


both_ways = pytest.mark.parametrize("find", [component_numbers, by_labels])


@both_ways
@pytest.mark.parametrize("rows_per_item", [0, 0.3, 0.6, 1.0, 3.0])
def test_components_of_random_graphs(find, rows_per_item):
    rng = np.random.default_rng(0)
    for size in (2, 17, 400):
        rows = int(rows_per_item * size)
        a = rng.integers(0, size, rows)
        b = (a + rng.integers(1, size, rows)) % size
        weight = rng.choice([0.0, 0.5], rows, p=[0.2, 0.8])
        found = find(a, b, weight, size)
        np.testing.assert_array_equal(found, expected(a, b, weight, size))


@both_ways
def test_components_of_long_chains(find):
    size = 5000
    for order in (np.arange(size), np.random.default_rng(0).permutation(size)):
        a, b = order[:-1], order[1:]
        weight = np.ones(size - 1)
        weight[size // 2] = 0
        found = find(a, b, weight, size)
        np.testing.assert_array_equal(found, expected(a, b, weight, size))
        assert found.max() == 1


@both_ways
def test_components_of_nothing(find):
    none = np.zeros(0, int)
    assert find(none, none, np.zeros(0), 0).shape == (0,)
    for size in (1, 3):
        np.testing.assert_array_equal(find(none, none, np.zeros(0), size), np.arange(size))


def runs_away(a, b, value, counts, held, size) -> bool:
    """Whether a group without a prior could move up, or down, and lower the loss forever."""
    for members in itertools.product([False, True], repeat=size):
        group = np.array(members)
        crossing = counts & (group[a] != group[b])
        says = np.where(group[a], value, -value)[crossing]
        if says.size and not (group & held).any() and abs(says.sum()) == says.size:
            return True
    return False


def test_optima_that_exist():
    """Every group of five items, with parallel rows, draws, weights of 0 and some priors."""
    rng, size, seen = np.random.default_rng(0), 5, set()
    for case in range(200):
        rows = int(rng.integers(1, 12))
        a = rng.integers(0, size, rows)
        b = (a + rng.integers(1, size, rows)) % size
        value = rng.choice([-1.0, 0.0, 1.0], rows, p=[0.45, 0.1, 0.45])
        weight = rng.choice([0.0, 2.0], rows, p=[0.2, 0.8])
        if case % 2:  # so many that a short count of them would be 0
            a, b, value, weight = (np.repeat(x, 256) for x in (a, b, value, weight))
        held = rng.random(size) < 0.2
        std = np.where(held, 1.0, np.inf)
        model = gbt.Model(gbt.laws.Davidson(1.0), std)
        found = unbounded_items(model, gbt.Comparisons(a, b, value, weight, num_items=size)).items
        wanted = runs_away(a, b, value, weight > 0, held, size)
        assert (found.size > 0) == wanted
        assert not held[found].any()
        seen.add(wanted)
    assert seen == {False, True}


def test_items_at_the_top_are_named():
    # 3 and 4 beat all others and drew among themselves; 0 lost to all.
    a, b = np.array([1, 2, 3, 3, 4, 3]), np.array([0, 0, 1, 2, 1, 4])
    value = np.array([1.0, 1, 1, 1, 1, 0])
    rows = gbt.Comparisons(a, b, value, num_items=6)
    found = unbounded_items(gbt.Model(gbt.laws.Davidson(1.0), np.inf), rows).items
    np.testing.assert_array_equal(found, [3, 4])


def test_items_that_fall_are_named():
    # 0 beat 1, which beat 2, which drew with 3; only 0 has a prior.
    rows = gbt.Comparisons([0, 1, 2], [1, 2, 3], [1.0, 1.0, 0.0], num_items=4)
    std = np.array([1.0, np.inf, np.inf, np.inf])
    found = unbounded_items(gbt.Model(gbt.laws.Davidson(1.0), std), rows).items
    np.testing.assert_array_equal(found, [2, 3])
