"""The linear algebra inside Newton's method, on matrices that NumPy solves."""

import jax.numpy as jnp
import numpy as np
import pytest

from gbt_jax import _newton
from gbt_jax._partition import ONE, TILE, Tiles

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
            jnp.asarray(np.diag(matrix)),
            tolerance=1e-15,
            max_steps=100,
        )
        expected = np.linalg.solve(matrix, rhs)
        np.testing.assert_allclose(found.direction, expected, rtol=1e-11)
        np.testing.assert_allclose(found.decrease, rhs @ expected, rtol=1e-11)
        assert 0 < int(found.steps) < 100
        np.testing.assert_allclose(
            _newton.cholesky_solve(jnp.asarray(matrix), jnp.asarray(rhs)), expected, rtol=1e-11
        )


def test_problems_side_by_side_do_not_see_each_other(systems):
    widths = [-(-n // TILE) * TILE for n in SIZES]
    starts = np.cumsum([0, *widths[:-1]])
    whole, rhs = np.eye(sum(widths)), np.zeros(sum(widths))
    for (matrix, part), start in zip(systems, starts, strict=True):
        here = slice(start, start + len(part))
        whole[here, here], rhs[here] = matrix, part
    owner = jnp.asarray(np.repeat(np.arange(3), np.asarray(widths) // TILE), jnp.int32)
    partition = Tiles(owner, 3)

    def product(v):
        blocks = [slice(start, start + width) for start, width in zip(starts, widths, strict=True)]
        return jnp.concatenate([jnp.asarray(whole[block, block]) @ v[block] for block in blocks])

    def solve(rhs):
        return _newton.conjugate_gradients(
            product,
            jnp.asarray(rhs),
            jnp.asarray(np.diag(whole)),
            tolerance=1e-15,
            max_steps=100,
            partition=partition,
        )

    found = solve(rhs)
    for number, ((matrix, part), start) in enumerate(zip(systems, starts, strict=True)):
        expected = np.linalg.solve(matrix, part)
        here = slice(start, start + len(part))
        np.testing.assert_allclose(found.direction[here], expected, rtol=1e-10)
        np.testing.assert_allclose(found.decrease[number], part @ expected, rtol=1e-10)
    # Nothing to do for one of them: no steps, no change for the others. NaN stays at home.
    for value in (0.0, np.nan):
        alone = rhs.copy()
        alone[starts[1] : starts[2]] = value
        other = solve(alone)
        assert int(other.steps[1]) == 0
        np.testing.assert_array_equal(other.direction[starts[1] : starts[2]], value)
        np.testing.assert_allclose(
            other.direction[: starts[1]], found.direction[: starts[1]], rtol=1e-13
        )


def test_sums_over_problems():
    entries = np.arange(1.0, 33.0)
    owner = jnp.asarray([0, 0, 2, 2], jnp.int32)
    tiles = Tiles(owner, 3)
    x = jnp.asarray(entries)
    np.testing.assert_array_equal(tiles.total(x), [entries[:16].sum(), 0, entries[16:].sum()])
    np.testing.assert_array_equal(tiles.largest(x), [16, 0, 32])
    np.testing.assert_array_equal(
        tiles.spread(jnp.asarray([1.0, 2.0, 3.0])), np.repeat([1.0, 3.0], 16)
    )
    rows = tiles.at(jnp.asarray([0, 15, 16, 31]))
    np.testing.assert_array_equal(rows.total(jnp.ones(4)), [2, 0, 2])
    assert ONE.shape == ()
    assert tiles.shape == rows.shape == (3,)
    np.testing.assert_array_equal(ONE.total(x), entries.sum())
