"""Many users: the same answers as one by one, whoever the neighbours are."""

import io

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from problems import counting_law, random_comparisons, tournesol_problems

import gbt_jax as gbt
from gbt_jax._data import _chunks, _user_comparisons
from gbt_jax._inference import _users
from gbt_jax import laws
from gbt_jax._inference._optimum import Known
from gbt_jax._util._progress import Progress

MODEL = gbt.Model(laws.Uniform(), 7.0)
SIZES = (2, 5, 8, 9, 16, 17, 40, 200, 2100)  # the last is too large for a union


def columns(sizes=SIZES, seed=0, repeats=2):
    """user, a, b, value: `repeats` users of each size, with twice as many rows as items."""
    rng = np.random.default_rng(seed)
    user, a, b = [], [], []
    for number, size in enumerate(np.repeat(sizes, repeats)):
        first = rng.integers(0, size, 2 * size)
        user.append(np.full(2 * size, 7 * number + 3))
        a.append(1000 + first)
        b.append(1000 + (first + 1 + rng.integers(0, max(size - 1, 1), 2 * size)) % size)
    user, a, b = (np.concatenate(column) for column in (user, a, b))
    value = rng.uniform(-0.95, 0.95, user.size)
    order = rng.permutation(user.size)
    return tuple(column[order] for column in (user, a, b, value))


def comparisons_of(users, a, b, value, label):
    """One user's comparisons, items numbered in the order of their labels: built on its own."""
    rows = users == label
    items, ends = np.unique(np.concatenate([a[rows], b[rows]]), return_inverse=True)
    count = int(rows.sum())
    return gbt.Comparisons(ends[:count], ends[count:], value[rows], num_items=items.size), items


@pytest.fixture(scope="module")
def data():
    return columns()


@pytest.fixture(scope="module")
def fits(data):
    return gbt.fit_users(MODEL, gbt.UserComparisons.from_arrays(*data))


def test_columns_are_sorted_and_numbered_compactly():
    user = ["zoe", "ada", "zoe", "ada"]
    users = gbt.UserComparisons.from_arrays(user, [5, 5, 9, 7], [9, 7, 5, 5], [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(users.users, ["ada", "zoe"])
    np.testing.assert_array_equal(users.items, [5, 7, 5, 9])
    np.testing.assert_array_equal(users.item_offsets, [0, 2, 4])
    np.testing.assert_array_equal(users.row, [1, 3, 0, 2])
    np.testing.assert_array_equal(users.a, [0, 1, 0, 1])
    np.testing.assert_array_equal(users.b, [1, 0, 1, 0])
    np.testing.assert_array_equal(users.value, [0.2, 0.4, 0.1, 0.3])
    assert len(users) == 2
    assert "2 users, 4 scores, 4 comparisons" in repr(users)


def test_labels_may_be_large_negative_or_text():
    number = np.array([-5, 10**15, -5, 10**15])
    text = np.array(["minus", "plus", "minus", "plus"])
    item = np.array([10**12, -1, 3, 4])
    other = np.array([7, 3, -1, 10**12])
    value = np.array([0.1, -0.2, 0.3, 0.4])
    by_number = gbt.fit_users(MODEL, gbt.UserComparisons.from_arrays(number, item, other, value))
    by_text = gbt.fit_users(
        MODEL, gbt.UserComparisons.from_arrays(text, item.astype(str), other.astype(str), value)
    )
    expected = dict(
        zip(zip(by_number.user, by_number.item, strict=True), by_number.scores, strict=True)
    )
    for user, label, score in zip(by_text.user, by_text.item, by_text.scores, strict=True):
        key = (-5 if user == "minus" else 10**15, int(label))
        np.testing.assert_allclose(score, expected[key], atol=1e-14)


def test_narrow_integers_do_not_overflow():
    user, item = np.array([-20000, 5, 20000], np.int16), np.array([-100, 45, 100], np.int8)
    users = gbt.UserComparisons.from_arrays(user, item, item[::-1] + np.int8(1), [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(users.users, [-20000, 5, 20000])
    np.testing.assert_array_equal(users.items, [-100, 101, 45, 46, -99, 100])


@pytest.mark.parametrize("kind", [np.int64, np.uint64, "U9", "S9"])
@pytest.mark.parametrize("hashes", ["good", "all the same"])
def test_labels_are_numbered_as_numpy_does(kind, hashes, monkeypatch):
    if hashes == "all the same":
        monkeypatch.setattr(
            _user_comparisons, "_hashes", lambda labels: np.zeros(labels.size, np.uint64)
        )
    for span in (3, 30, 10**12):
        labels = np.random.default_rng(span).integers(0, span, 200).astype(kind)
        distinct, code = _user_comparisons._codes(labels)
        expected = np.unique(labels, return_inverse=True)
        np.testing.assert_array_equal(distinct, expected[0])
        np.testing.assert_array_equal(code, expected[1])


def test_columns_that_do_not_fit_together_are_refused():
    make = gbt.UserComparisons.from_arrays
    with pytest.raises(ValueError, match="user has 1, a has 2, b has 2, value has 2"):
        make([1], [1, 2], [2, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match="a must be a vector of integers or strings"):
        make([1], [1.5], [2], [0.5])
    with pytest.raises(ValueError, match="value must be a vector of numbers"):
        make([1], [1], [2], ["much"])
    with pytest.raises(ValueError, match="both be integers or both strings"):
        make([1], [1], ["x"], [0.5])
    with pytest.raises(ValueError, match=r"prior_std must be one number or one per user \(1\)"):
        gbt.fit_users(gbt.Model(laws.Uniform(), np.ones(3)), make([1], [1], [2], [0.5]))
    with pytest.raises(TypeError, match="UserComparisons come second"):
        gbt.fit_users(MODEL, random_comparisons(3, 4))


def test_equals_a_loop_of_fits(data, fits):
    assert len(fits) == 2 * len(SIZES)
    assert not fits.failures()
    for user in fits:
        alone, items = comparisons_of(*data, user)
        found = fits.for_user(user)
        assert found.result == gbt.RESULTS.successful
        np.testing.assert_array_equal(fits.item[fits.user == user], items)
        assert float(found.error_bound) < 1e-11
        # Stationarity, in NumPy alone.
        scores, a, b = (np.asarray(x) for x in (found.scores, alone.a, alone.b))
        t = scores[a] - scores[b]
        residual = 1 / np.tanh(t) - 1 / t - np.asarray(alone.value)
        slope = scores / 49 + np.bincount(a, residual, scores.size)
        slope -= np.bincount(b, residual, scores.size)
        assert np.abs(slope).max() < 1e-9
        if user % 4 == 0:
            np.testing.assert_allclose(scores, gbt.fit(MODEL, alone).scores, atol=1e-12)
    assert fits.cg_steps.min() > 0
    assert set(fits) == set(data[0].tolist())
    with pytest.raises(KeyError):
        fits.for_user(4)
    assert "x" not in fits


def test_order_of_rows_does_not_matter(data, fits):
    order = np.random.default_rng(1).permutation(data[0].size)
    shuffled = gbt.fit_users(
        MODEL, gbt.UserComparisons.from_arrays(*(column[order] for column in data))
    )
    np.testing.assert_allclose(shuffled.scores, fits.scores, atol=1e-12)


def test_chunking_changes_no_bit(data, fits, monkeypatch):
    """Chunks of other shapes, and therefore other neighbours and other padding."""
    unions = (_chunks.Shape(3, 96, 200), _chunks.Shape(3, 304, 600))
    monkeypatch.setattr(_chunks, "_UNIONS", unions)
    monkeypatch.setattr(_chunks, "_MOST_ROWS_IN_UNION", 500)
    np.testing.assert_array_equal(
        gbt.fit_users(MODEL, gbt.UserComparisons.from_arrays(*data)).scores, fits.scores
    )


def test_no_user_can_spoil_another(data, fits):
    """Bad data of every kind: their own result, and not one bit of difference for the others."""
    user, a, b, value = data
    weight = np.ones_like(value)
    bad = {
        -1: (1, 2, np.nan, 1.0),
        -2: (1, 2, 1.5, 1.0),
        -3: (1, 2, 0.5, -1.0),
        -4: (1, 1, 0.5, 1.0),
        -5: (1, 2, 0.5, np.inf),
        -6: (1, 2, -np.inf, 1.0),
        -7: (1, 2, 0.5, 1e308),
    }
    extra = np.array([(label, *row) for label, row in bad.items()]).repeat(3, axis=0)
    everyone = gbt.UserComparisons.from_arrays(
        np.append(user, extra[:, 0].astype(int)),
        np.append(a, extra[:, 1].astype(int)),
        np.append(b, extra[:, 2].astype(int)),
        np.append(value, extra[:, 3]),
        np.append(weight, extra[:, 4]),
    )
    together = gbt.fit_users(MODEL, everyone)
    failures = together.failures()
    assert failures == {
        **dict.fromkeys([-1, -2, -3, -4, -5, -6], gbt.RESULTS.invalid_data),
        -7: gbt.RESULTS.non_finite,
    }
    good = together.user >= 0
    np.testing.assert_array_equal(together.scores[good], fits.scores)
    refused = ~good & (together.user != -7)
    assert np.isnan(together.scores[refused]).all()
    for index, label in enumerate((-1, -2, -3, -4, -5, -6)):
        assert label in together
        first = user.size + 3 * index
        with pytest.raises(
            ValueError, match=rf"user {label} has bad data: row {first} compares 1 "
        ):
            together.for_user(label)


def test_without_a_prior_each_user_has_its_own_fate():
    user = [1, 1, 1, 2, 2, 2, 3]
    a, b = [0, 1, 2, 0, 1, 0, 5], [1, 2, 0, 1, 2, 2, 6]
    value = [1.0, 1, 1, 1, 1, 1, -1]
    users = gbt.UserComparisons.from_arrays(user, a, b, value)
    fits = gbt.fit_users(gbt.Model(laws.Binary(), jnp.inf), users)
    assert fits.failures() == {2: gbt.RESULTS.no_finite_optimum, 3: gbt.RESULTS.no_finite_optimum}
    np.testing.assert_allclose(fits[1].scores, 0, atol=1e-14)
    assert np.isnan(np.asarray(fits[2].scores)).all()
    held = gbt.fit_users(gbt.Model(laws.Binary(), np.array([np.inf, 2.0, np.inf])), users)
    assert held.failures() == {3: gbt.RESULTS.no_finite_optimum}
    np.testing.assert_allclose(
        held[2].scores,
        gbt.fit(gbt.Model(laws.Binary(), 2.0), held[2].comparisons).scores,
        atol=1e-14,
    )


def test_one_prior_per_user(data):
    users = gbt.UserComparisons.from_arrays(*data)
    std = np.geomspace(0.1, 50, len(users))
    mean = np.linspace(-1, 1, len(users))
    fits = gbt.fit_users(gbt.Model(laws.Uniform(), std, mean), users)
    for number in (0, 3, 6, 9, 17):
        label = users.users[number].item()
        alone, _ = comparisons_of(*data, label)
        expected = gbt.fit(gbt.Model(laws.Uniform(), std[number], mean[number]), alone)
        np.testing.assert_allclose(fits[label].scores, expected.scores, atol=1e-12)
        assert float(fits[label].model.prior_std) == std[number]


def test_weak_priors_centre_each_component():
    user, a, b, value = columns((6, 30), repeats=3)
    fits = gbt.fit_users(
        gbt.Model(laws.Uniform(), 1e6), gbt.UserComparisons.from_arrays(user, a, b, value)
    )
    assert not fits.failures()
    for label in fits:
        expected = gbt.fit(gbt.Model(laws.Uniform(), 1e6), fits[label].comparisons)
        np.testing.assert_allclose(fits[label].scores, expected.scores, atol=1e-8)
        assert abs(float(jnp.sum(fits[label].scores))) < 1e-10


def test_workers_keep_the_callers_precision(data):
    users = gbt.UserComparisons.from_arrays(*data)
    with jax.enable_x64(False):
        assert gbt.fit_users(gbt.Model(laws.Uniform(), 7.0), users).scores.dtype == np.float32


def test_no_users():
    none = gbt.UserComparisons.from_arrays([], [], [], [])
    fits = gbt.fit_users(MODEL, none)
    assert len(fits) == 0
    assert fits.scores.shape == (0,)
    assert gbt.map_user_scores(MODEL, none).shape == (0,)


def test_steps_run_out_user_by_user(data):
    users = gbt.UserComparisons.from_arrays(*data)
    fits = gbt.fit_users(MODEL, users, max_steps=1)
    assert set(fits.failures().values()) == {gbt.RESULTS.max_steps_reached}
    loose = gbt.fit_users(MODEL, users, atol=1e-2)
    assert not loose.failures()
    assert 1e-9 < loose.error_bounds.max() <= 1e-2


def test_a_second_data_set_compiles_nothing():
    law, traces = counting_law()

    def run(seed, sizes):
        data = gbt.UserComparisons.from_arrays(*columns(sizes, seed, repeats=1))
        gbt.fit_users(gbt.Model(law(jnp.asarray(1.0 + seed)), 7.0), data)

    def in_chunks():
        return [shape for shape in traces if shape != (31,)]  # but for the check of the law

    run(0, (5, 12, 30))
    seen = len(in_chunks())
    assert seen > 0
    run(1, (3, 8, 9, 14, 70, 33))
    assert len(in_chunks()) == seen
    assert len(_chunks.SHAPES) <= 12


@pytest.mark.parametrize(("items", "rows"), [(200, 3_000_000), (400_000, 300_000), (10, 2**30)])
def test_large_users_are_not_mostly_padding(items, rows):
    ((shape, users),) = _chunks.plan(np.array([items]), np.array([rows]), 2)
    assert users.tolist() == [0]
    assert rows <= shape.rows < 2 * rows
    assert items < shape.items <= 4 * max(items, rows)
    with pytest.raises(ValueError, match="more than a chunk can hold"):
        next(_chunks.plan(np.array([items]), np.array([2**30 + 1]), 2))


@pytest.fixture(scope="module")
def mesh():
    devices = jax.devices("cpu")
    assert len(devices) == 8
    return jax.make_mesh((8,), ("users",), axis_types=(jax.sharding.AxisType.Auto,))


@pytest.mark.slow
def test_sharded_over_devices(data, fits, mesh):
    users = gbt.UserComparisons.from_arrays(*data)
    sharded = gbt.fit_users(MODEL, users, sharding=mesh)
    np.testing.assert_array_equal(sharded.scores, fits.scores)
    np.testing.assert_array_equal(sharded.cg_steps, fits.cg_steps)
    ((plan,), *_) = _users._in_lanes(users, 1)
    chunk = _users._pack(users, *plan)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 8), _users._input(MODEL, users, chunk))
    text = (
        _users._solve_sharded.lower(
            MODEL.law, stacked, None, mesh=mesh, shape=chunk.shape, max_steps=9, known=Known()
        )
        .compile()
        .as_text()
    )
    assert "while" in text
    for collective in ("all-reduce", "all-gather", "collective-permute", "all-to-all"):
        assert collective not in text


@pytest.fixture(scope="module")
def many_small_users():
    users = gbt.UserComparisons.from_arrays(*columns((5,), repeats=900))
    return users, gbt.fit_users(MODEL, users).scores


def four_devices(kind: str):
    axis, devices = jax.sharding.AxisType, jax.devices()[:4]
    if kind == "two axes":
        return jax.make_mesh((2, 2), ("rack", "users"), devices=devices)
    types = {"auto": (axis.Auto,), "explicit": (axis.Explicit,)}.get(kind)
    mesh = jax.make_mesh((4,), ("users",), axis_types=types, devices=devices)
    if kind == "named sharding":
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("users"))
    return mesh


@pytest.mark.skipif(jax.device_count() < 4, reason="XLA_FLAGS asks for other devices")
@pytest.mark.parametrize("kind", ["default", "auto", "explicit", "two axes", "named sharding"])
def test_any_mesh_shares_the_users(kind, many_small_users):
    users, expected = many_small_users
    sharded = gbt.fit_users(MODEL, users, sharding=four_devices(kind))
    np.testing.assert_array_equal(sharded.scores, expected)


def test_what_is_no_mesh_is_refused(many_small_users):
    mesh = jax.make_mesh((1,), ("users",), devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec("users")
    device = jax.devices()[0]
    without_devices = jax.sharding.NamedSharding(mesh.abstract_mesh, spec)
    for given in (4, spec, jax.sharding.SingleDeviceSharding(device), without_devices):
        with pytest.raises(TypeError, match=r"sharding=jax\.make_mesh\(\(4,\), \(\"users\",\)\)"):
            gbt.fit_users(MODEL, many_small_users[0], sharding=given)  # type: ignore[arg-type]


def test_one_problem_sharded_over_its_comparisons(mesh):
    comparisons = random_comparisons(60, 800)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("users"))
    sharded = jax.device_put(comparisons, rows)
    assert len(sharded.value.sharding.device_set) == 8
    np.testing.assert_allclose(
        gbt.fit(MODEL, sharded).scores, gbt.fit(MODEL, comparisons).scores, atol=1e-12
    )


@pytest.mark.parametrize("program", ["users", "newton-cg", "cholesky", "gradient"])
def test_programs_for_other_machines(program):
    """What CUDA, ROCm and TPU would run is produced here, so nothing is for this machine only."""
    comparisons = random_comparisons(10, 20)
    if program == "users":
        users = gbt.UserComparisons.from_arrays(*columns((5, 30), repeats=1))
        ((plan,),) = _users._in_lanes(users, 1)
        chunk = _users._pack(users, *plan)
        options = {"shape": chunk.shape, "max_steps": 9, "known": Known()}
        arguments = (MODEL.law, _users._input(MODEL, users, chunk))
        function = lambda law, inputs: _users._solve_chunk(law, inputs, None, **options)  # noqa: E731
    elif program == "gradient":
        arguments = (MODEL, comparisons)
        function = jax.grad(lambda m, c: jnp.sum(gbt.map_scores(m, c) ** 2))
    else:
        arguments = (MODEL, comparisons)
        solver = gbt.solvers.NewtonCG() if program == "newton-cg" else gbt.solvers.NewtonCholesky()
        function = lambda m, c: gbt.fit(m, c, solver=solver, max_steps=9, throw=False)  # noqa: E731
    leaves, tree = jax.tree.flatten(arguments)
    flat = jax.jit(lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves))))
    for platform in ("cuda", "rocm", "tpu"):
        exported = jax.export.export(flat, platforms=[platform])(*leaves)
        assert exported.platforms == (platform,)
        assert "while" in exported.mlir_module()


@pytest.mark.slow
def test_tournesol_in_both_precisions():
    problems = tournesol_problems()
    user = np.repeat(np.arange(len(problems)), [len(problem) for problem in problems])
    a, b, value = (
        np.concatenate([np.asarray(getattr(problem, name)) for problem in problems])
        for name in ("a", "b", "value")
    )
    double = gbt.fit_users(MODEL, gbt.UserComparisons.from_arrays(user, a, b, value))
    single = gbt.fit_users(
        MODEL, gbt.UserComparisons.from_arrays(user, a, b, value.astype(np.float32))
    )
    assert not double.failures()
    assert not single.failures()
    assert single.scores.dtype == np.float32
    assert np.all(np.abs(single.scores - double.scores) <= 1e-4 * (1 + np.abs(double.scores)))
    for number, problem in enumerate(problems):
        expected = gbt.fit(MODEL, problem)
        np.testing.assert_allclose(double[number].scores, expected.scores, atol=1e-10)


@pytest.mark.slow
def test_gradients_through_all_users(data):
    users = gbt.UserComparisons.from_arrays(*columns((5, 12, 30), repeats=2))

    def objective(std, scale):
        model = gbt.Model(laws.Scaled(laws.Uniform(), scale), std)
        return jnp.sum(jnp.sin(gbt.map_user_scores(model, users)))

    at = jnp.asarray(3.0), jnp.asarray(1.2)
    gradient = jax.grad(objective, argnums=(0, 1))(*at)
    step = 1e-4
    for index in (0, 1):
        up, down = (
            objective(*(x + sign * step * (i == index) for i, x in enumerate(at)))
            for sign in (1, -1)
        )
        np.testing.assert_allclose(gradient[index], (up - down) / (2 * step), rtol=1e-6)
    fits = gbt.fit_users(gbt.Model(laws.Scaled(laws.Uniform(), at[1]), at[0]), users)
    np.testing.assert_allclose(
        gbt.map_user_scores(fits.model, users), fits.scores, rtol=1e-12, atol=1e-13
    )
    # One std per user: each user's scores depend on its own alone.
    stds = jnp.full(len(users), 3.0)
    jacobian = jax.jacrev(lambda std: gbt.map_user_scores(gbt.Model(laws.Uniform(), std), users))(
        stds
    )
    owner = np.repeat(np.arange(len(users)), np.diff(users.item_offsets))
    others = owner[:, None] != np.arange(len(users))
    np.testing.assert_array_equal(np.asarray(jacobian)[others], 0)
    assert np.all(np.abs(np.asarray(jacobian)[~others]) > 0)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar_on_a_terminal_only():
    screen = Terminal()
    bar = Progress(1_000_000, enabled=True, stream=screen)
    bar.advance(250_000)
    bar.advance(750_000)
    bar.close()
    last = screen.getvalue().split("\r")[-1]
    assert last.startswith("100% ████████████████████ 1,000,000 comparisons, ")
    assert "s left" in last
    assert all(len(line) <= 80 for line in screen.getvalue().replace("\n", "").split("\r"))
    for stream, enabled in ((io.StringIO(), True), (Terminal(), False)):
        bar = Progress(10, enabled=enabled, stream=stream)
        bar.advance(10)
        bar.close()
        assert stream.getvalue() == ""
