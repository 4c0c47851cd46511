"""Draws by the sparse Hessian, and what tables say of estimates: against exact inverses."""

import json

import jax
import numpy as np
import pyarrow as pa
import pytest

import gbt_jax as gbt
from gbt_jax import frames, laws
from gbt_jax._curvature import IterativeCurvature, _sparse_draws
from gbt_jax._curvature._sparse_draws import normal_draws, sparse_hessian
from gbt_jax.cli import _session, main
from gbt_jax.frames import _uncertainty

SIZE = 60


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


def power_law_pairs(size, num_rows, seed=0):
    """Few items of many comparisons, and many of few; every item is compared."""
    rng = np.random.default_rng(seed)
    share = (1 - rng.random(size)) ** -0.7
    a = np.append(np.arange(size), rng.choice(size, num_rows - size, p=share / share.sum()))
    b = rng.choice(size, num_rows, p=share / share.sum())
    return a, np.where(a == b, (b + 1) % size, b)


def won_table(size, num_rows, seed=0):
    a, b = power_law_pairs(size, num_rows, seed)
    names = np.array([f"item{i:04}" for i in range(size)])
    is_won = np.random.default_rng(seed + 1).random(num_rows) < 0.5 + 0.4 * np.sign(b - a)
    return pa.table(
        {"winner": names[np.where(is_won, a, b)], "loser": names[np.where(is_won, b, a)]}
    )


@pytest.fixture(scope="module", params=[1.0, 1e4, np.inf])
def case(request):
    """Curvatures of seven decades, repeated pairs both ways, rows that say nothing, two parts."""
    rng = np.random.default_rng(0)
    a, b = power_law_pairs(SIZE - 5, 400)
    a, b = np.append(a, [56, 57, 58, 59, 3]), np.append(b, [57, 58, 59, 56, 3])
    curvature = 10.0 ** rng.uniform(-5, 2, a.size)
    curvature[::11] = 0
    curvature[:60] = 1.0  # connected, whatever the others say
    precision = np.full(SIZE, request.param**-2.0)
    matrix = np.diag(precision)
    for first, second, entry in zip(a, b, curvature, strict=True):
        if first != second:
            matrix[[first, second], [first, second]] += entry
            matrix[[first, second], [second, first]] -= entry
    diagonal = np.diag(matrix).copy()
    null_space = gbt._curvature._null_space.null_space_of(a, b, curvature, precision, diagonal)
    return sparse_hessian(a, b, curvature, null_space), matrix


def test_the_matrix_and_its_root(case):
    made, matrix = case
    np.testing.assert_allclose(made.matrix.toarray(), matrix, rtol=1e-12, atol=1e-13)
    root = made.edge_roots.toarray()
    np.testing.assert_allclose(
        root @ root.T + np.diag(made.prior_roots**2), matrix, rtol=1e-12, atol=1e-13
    )


def test_draws_are_solutions(case):
    """Of M x = g, both without the null space."""
    made, matrix = case
    drawn = normal_draws(made, 37, np.random.default_rng(1))
    np.testing.assert_allclose(drawn.x, made.remove(drawn.x), atol=1e-9)
    image, size = matrix @ drawn.x, np.abs(drawn.image).max(axis=0)
    assert np.max(np.abs(image - drawn.image) / size) < 1e-6
    whole = made.product(made.spread.toarray())  # u_c are eigenvectors of M + Σ κ u uᵀ
    np.testing.assert_allclose(made.shares @ made.remove(whole), 0, atol=1e-9)


def test_covariance_of_draws(case):
    made, matrix = case
    drawn = normal_draws(made, 4000, np.random.default_rng(2)).x
    projector = made.remove(np.eye(SIZE))
    expected = projector @ np.linalg.pinv(projector @ matrix @ projector, 1e-12) @ projector
    own = np.sqrt(np.diag(expected)) + 1e-12
    found = drawn @ drawn.T / drawn.shape[1]
    assert np.abs((found - expected) / np.outer(own, own)).max() < 0.1


def test_threads_change_nothing(case, monkeypatch):
    made, _ = case
    first = normal_draws(made, 50, np.random.default_rng(3)).x
    monkeypatch.setattr(_sparse_draws, "num_workers", lambda: 1)
    np.testing.assert_array_equal(normal_draws(made, 50, np.random.default_rng(3)).x, first)


def test_a_solve_that_fails_is_an_error(case, monkeypatch):
    made, _ = case
    monkeypatch.setattr(_sparse_draws, "_TOLERANCE", 0.5)
    with pytest.raises(RuntimeError, match="did not solve"):
        normal_draws(made, 5, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("num", [100, 400])
def test_estimates_are_as_exact_as_they_say(num):
    """Of 3,000 items, against the exact elimination."""
    size = 3000
    a, b = power_law_pairs(size, 30_000)
    value = np.where(
        np.random.default_rng(5).random(a.size) < 0.5 + 0.3 * np.sign(b - a), 1.0, -1.0
    )
    fit = gbt.fit(gbt.Model(laws.Binary()), gbt.Comparisons(a, b, value, num_items=size))
    exact = np.asarray(gbt.std(fit))
    made = gbt.curvature(fit, dense=False)
    assert isinstance(made, IterativeCurvature)
    sample = made.sample(num, key=jax.random.key(0))
    variance, error = (np.asarray(x) for x in sample.diagonal)
    null_space = made.null_space
    known = 1 / (made.hessian_diagonal + null_space.added * null_space.share)
    known += null_space.share * (null_space.variance - 1 / null_space.regularised)
    errors = (variance - exact**2) / (np.sqrt(2 / num) * (exact**2 - known))
    assert 0.9 < errors.std() < 1.1
    assert np.abs(errors).max() < 5
    # What is said of all of them is what the worst of them needs.
    worst = np.max(error / (2 * variance))
    relative = np.abs(np.sqrt(variance) / exact - 1)
    assert worst < 0.6 / np.sqrt(num)
    assert np.mean(relative < worst) > 0.95
    # The draws themselves: no conditional mean, so twice as noisy or more.
    spread = np.mean(np.square(sample.reduced + sample.common), axis=1)
    assert abs(np.mean(spread / exact**2) - 1) < 4 / np.sqrt(num * size / 50)


@pytest.fixture
def table():
    return won_table(400, 3000)


def by_item(ranking):
    return ranking.arrow.sort_by("item").to_pydict()


def test_a_table_says_how_exact_it_is(table, monkeypatch):
    exact = frames.fit_table(table, "pairs")
    assert exact.facts[0]["std_error"] == 0
    assert exact.facts[0]["rank_draws"] == 1000
    monkeypatch.setattr(_uncertainty, "ELIMINATION_ITEMS", 300)
    monkeypatch.setattr(_uncertainty, "_MOST_WORK", 200 * 3400)
    estimated = frames.fit_table(table, "pairs")
    (facts,) = estimated.facts
    assert facts["rank_draws"] == 200
    assert 0.001 < facts["std_error"] < 0.05
    first, second = by_item(exact), by_item(estimated)
    relative = np.array(second["std"]) / np.array(first["std"]) - 1
    assert 0 < np.abs(relative).max() < 4 * facts["std_error"]
    assert np.mean(np.abs(relative) < facts["std_error"]) > 0.9
    assert first["rank"] == second["rank"]
    for name in ("rank_lower", "rank_upper"):
        apart = np.abs(np.array(first[name]) - np.array(second[name]))
        assert np.median(apart) <= 8  # of 400 ranks


def test_the_command_says_it_too(table, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(_session, "start", lambda *_: None)
    monkeypatch.setattr(_uncertainty, "ELIMINATION_ITEMS", 300)
    frames.write_table(table, tmp_path / "games.csv")
    assert main(["fit", str(tmp_path / "games.csv"), "--preset", "pairs", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "std and ranks estimated from 1,000 draws; standard error of a std at most " in err
    (facts,) = json.loads(out)["facts"]
    assert 0 < facts["std_error"] < 0.05


OPTIONS = {
    "one": {},
    "few": {"min_comparisons": 4},
    "apart": {"prior_std": np.inf},
    "groups": {"by": "group"},
}


@pytest.mark.parametrize("name", ["one", "few", "groups", slow("apart")])
def test_without_intervals(name):
    """The same table, with empty columns in place of uncertainty."""
    names = ["x", "y", "y", "z", "z", "x", "p", "q", "x", "y"]
    other = ["y", "x", "z", "y", "x", "z", "q", "p", "y", "x"]
    data = {"winner": names, "loser": other, "group": [1] * 8 + [2] * 2}
    if name == "groups":
        data["weight"] = [1.0] * 8 + [0.0] * 2  # a group that has no ranks
    given = frames.fit_table(pa.table(data), "pairs", draws=50, **OPTIONS[name])
    found = frames.fit_table(pa.table(data), "pairs", intervals=False, **OPTIONS[name])
    empty = ("std", "lower", "upper", "rank_lower", "rank_upper")
    for column in given.arrow.schema.names:
        expected = [None] * len(found.arrow) if column in empty else given.arrow[column].to_pylist()
        assert found.arrow[column].to_pylist() == expected, column
    for fact in found.facts:
        assert fact["std_error"] is fact["rank_draws"] is None
    elo = found.to_elo().arrow
    assert elo["std"].null_count == len(elo)
    assert elo["score"].null_count == 0
