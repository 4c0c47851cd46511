"""Parts of the comparison graph, against SciPy."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from gbt_jax._graph import component_numbers


def expected(a: np.ndarray, b: np.ndarray, weight: np.ndarray, size: int) -> np.ndarray:
    joined = weight > 0
    graph = scipy.sparse.coo_array(
        (np.ones(np.count_nonzero(joined)), (a[joined], b[joined])), (size, size)
    )
    return connected_components(graph, directed=False)[1]


@pytest.mark.parametrize("rows_per_item", [0, 0.3, 0.6, 1.0, 3.0])
def test_components_of_random_graphs(rows_per_item):
    rng = np.random.default_rng(0)
    for size in (1, 2, 17, 400):
        rows = int(rows_per_item * size)
        a, b = rng.integers(0, size, (2, rows))
        weight = rng.choice([0.0, 0.5], rows, p=[0.2, 0.8])
        found = component_numbers(a, b, weight, size)
        np.testing.assert_array_equal(found, expected(a, b, weight, size))


def test_components_of_long_chains():
    size = 5000
    for order in (np.arange(size), np.random.default_rng(0).permutation(size)):
        a, b = order[:-1], order[1:]
        weight = np.ones(size - 1)
        weight[size // 2] = 0
        found = component_numbers(a, b, weight, size)
        np.testing.assert_array_equal(found, expected(a, b, weight, size))
        assert found.max() == 1


def test_components_of_nothing():
    none = np.zeros(0, int)
    assert component_numbers(none, none, np.zeros(0), 0).shape == (0,)
    np.testing.assert_array_equal(component_numbers(none, none, np.zeros(0), 3), [0, 1, 2])
