"""The linear algebra inside Newton's method, on matrices that NumPy solves."""

import jax.numpy as jnp
import numpy as np
import pytest

from gbt_jax._data._partition import ONE, TILE, Tiles
from gbt_jax.solvers import _newton

SIZES = (5, 11, 3)  # of problems side by side, which fill up whole tiles


@pytest.fixture(scope="module")
def systems():
    rng = np.random.default_rng(0)
    roots = [rng.normal(size=(n, n)) for n in SIZES]
    return [(root @ root.T + np.eye(len(root)), rng.normal(size=len(root))) for root in roots]


def test_conjugate_gradients(systems):
    for matrix, rhs in systems:
        found = _newton.conjugate_gradients(
            lambda v, m=matrix: jnp.asarray(m) @ v,
            jnp.asarray(rhs),
            _newton.scale_by_diagonal(jnp.asarray(np.diag(matrix))),
            tolerance=1e-15,
            max_steps=100,
        )
        expected = np.linalg.solve(matrix, rhs)
        np.testing.assert_allclose(found.direction, expected, rtol=1e-11)
        assert 0 < int(found.steps) < 100
        np.testing.assert_allclose(
            _newton.cholesky_solve(jnp.asarray(matrix), jnp.asarray(rhs), _newton.NO_PROJECTION),
            expected,
            rtol=1e-11,
        )


def test_cholesky_solve_with_eigenvalues_below_its_shift():
    """Two heavy items that hang on the rest by a thread: the shift hides the thread at first."""
    heavy, thread = 1e6, 1e-6
    matrix = np.array([[heavy, -heavy, 0], [-heavy, heavy, 0], [0, 0, 0.0]])
    matrix += thread * np.array([[1, 0, -1], [0, 0, 0], [-1, 0, 1.0]]) + 1e-6 * np.eye(3)
    rhs = np.array([2e-6, 0, -2e-6])
    found = _newton.cholesky_solve(jnp.asarray(matrix), jnp.asarray(rhs), _newton.NO_PROJECTION)
    # The pair moves as one: its level x and the third score y have 2 equations.
    x, y = np.linalg.solve([[3e-6, -1e-6], [-1e-6, 2e-6]], [2e-6, -2e-6])
    np.testing.assert_allclose(found, [x, x, y], rtol=1e-3)


def test_problems_side_by_side_do_not_see_each_other(systems):
    tiles = [-(-n // TILE) for n in SIZES]
    starts, count = np.cumsum([0, *tiles[:-1]]), sum(tiles)
    # Where the entries of each problem are: entry i is in tile i mod count.
    places = [
        np.arange(n) % TILE * count + start + np.arange(n) // TILE
        for n, start in zip(SIZES, starts, strict=True)
    ]
    whole, rhs = np.eye(TILE * count), np.zeros(TILE * count)
    for (matrix, part), here in zip(systems, places, strict=True):
        whole[np.ix_(here, here)], rhs[here] = matrix, part
    partition = Tiles(jnp.asarray(np.repeat(np.arange(3), tiles), jnp.int32), 3)

    def product(v):
        image = v
        for here in places:
            image = image.at[here].set(jnp.asarray(whole[np.ix_(here, here)]) @ v[here])
        return image

    def solve(rhs):
        return _newton.conjugate_gradients(
            product,
            jnp.asarray(rhs),
            _newton.scale_by_diagonal(jnp.asarray(np.diag(whole))),
            tolerance=1e-15,
            max_steps=100,
            partition=partition,
        )

    found = solve(rhs)
    for (matrix, part), here in zip(systems, places, strict=True):
        expected = np.linalg.solve(matrix, part)
        np.testing.assert_allclose(found.direction[here], expected, rtol=1e-10)
    # Nothing to do for one of them: no steps, no change for the others. NaN stays at home.
    for value in (0.0, np.nan):
        alone = rhs.copy()
        alone[places[1]] = value
        other = solve(alone)
        assert int(other.steps[1]) == 0
        np.testing.assert_array_equal(other.direction[places[1]], value)
        np.testing.assert_allclose(
            other.direction[places[0]], found.direction[places[0]], rtol=1e-13
        )


def test_sums_over_problems():
    entries = np.arange(1.0, 33.0)
    tiled = entries.reshape(TILE, 4)  # entry i is in tile i mod 4
    tiles = Tiles(jnp.asarray([0, 0, 2, 2], jnp.int32), 3)
    x = jnp.asarray(entries)
    first, last = tiled[:, :2], tiled[:, 2:]
    np.testing.assert_array_equal(tiles.total(x), [first.sum(), 0, last.sum()])
    np.testing.assert_array_equal(tiles.inner(x, x), [np.sum(first**2), 0, np.sum(last**2)])
    np.testing.assert_array_equal(tiles.largest(x), [first.max(), 0, last.max()])
    spread = np.asarray(tiles.spread(jnp.asarray([1.0, 2.0, 3.0]))).reshape(TILE, 4)
    np.testing.assert_array_equal(spread, np.tile([1.0, 1.0, 3.0, 3.0], (TILE, 1)))
    rows = tiles.at(jnp.asarray([0, 13, 2, 31]))
    np.testing.assert_array_equal(rows.total(jnp.ones(4)), [2, 0, 2])
    assert ONE.shape == ()
    assert tiles.shape == rows.shape == (3,)
    np.testing.assert_array_equal(ONE.total(x), entries.sum())
