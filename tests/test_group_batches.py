"""How groups are packed into chunks, spread over devices and compiled: none of it changes a bit."""

import io

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from problems import (
    counting_law,
    group_columns,
    random_comparisons,
    with_full_optimisation,
)

import gbt_jax as gbt
from gbt_jax import laws
from gbt_jax._data import _chunks
from gbt_jax._inference import _batch
from gbt_jax._inference._optimum import Known
from gbt_jax._util._progress import Progress

MODEL = gbt.Model(laws.Uniform(), 7.0)


def grouped(sizes, seed=0, repeats=2) -> gbt.Comparisons:
    group, *columns = group_columns(sizes, seed, repeats)
    return gbt.Comparisons.from_labels(*columns, group=group)


@pytest.fixture(scope="module")
def rows():
    return grouped((2, 5, 8, 9, 16, 17, 40, 200, 2100))  # the last is too large for a union


@pytest.fixture(scope="module")
def fit(rows):
    return gbt.fit(MODEL, rows)


@with_full_optimisation
def test_chunking_changes_no_bit(rows, fit, monkeypatch):
    """Chunks of other shapes, and therefore other neighbours and other padding."""
    unions = (_chunks.Shape(3, 96, 200), _chunks.Shape(3, 304, 600))
    monkeypatch.setattr(_chunks, "_UNIONS", unions)
    monkeypatch.setattr(_chunks, "_MAX_UNION_ROWS", 500)
    np.testing.assert_array_equal(gbt.fit(MODEL, rows).scores, fit.scores)


def test_fewer_groups_change_no_bit(fit):
    """The groups of up to 40 items, without the large ones."""
    small = grouped((2, 5, 8, 9, 16, 17, 40, 200, 2100))
    kept = np.isin(np.asarray(small.group)[np.asarray(small.a)], np.arange(14))
    labels = small.group_labels[np.asarray(small.group)[np.asarray(small.a)]][kept]
    items = (small.item_labels[np.asarray(x)][kept] for x in (small.a, small.b))
    alone = gbt.Comparisons.from_labels(*items, small.value[kept], group=labels)
    found = gbt.fit(MODEL, alone)
    np.testing.assert_array_equal(found.groups, fit.groups[:14])
    np.testing.assert_array_equal(found.scores, fit.scores[: found.scores.size])


def test_a_second_data_set_compiles_nothing():
    law, traces = counting_law()

    def run(seed, sizes):
        gbt.fit(gbt.Model(law(jnp.asarray(1.0 + seed)), 7.0), grouped(sizes, seed, repeats=1))

    def in_chunks():
        return [shape for shape in traces if shape != (31,)]  # but for the check of the law

    run(0, (5, 12, 30))
    seen = len(in_chunks())
    assert seen > 0
    run(1, (3, 8, 9, 14, 70, 33))
    run(2, (2,))
    assert len(in_chunks()) == seen


@pytest.mark.parametrize(("items", "rows"), [(200, 3_000_000), (400_000, 300_000), (10, 2**30)])
def test_large_groups_are_not_mostly_padding(items, rows):
    ((shape, groups),) = _chunks.plan(np.array([items]), np.array([rows]), 2)
    assert groups.tolist() == [0]
    assert rows <= shape.rows < 2 * rows
    assert items < shape.items <= 4 * max(items, rows)
    with pytest.raises(ValueError, match="more than a chunk can hold"):
        next(_chunks.plan(np.array([items]), np.array([2**30 + 1]), 2))


@pytest.fixture(scope="module")
def mesh():
    devices = jax.devices("cpu")
    assert len(devices) == 8
    return jax.make_mesh((8,), ("groups",), axis_types=(jax.sharding.AxisType.Auto,))


def first_chunk(rows):
    """What the solver gets for the first chunk, and its options."""
    data = _batch._Data.of(MODEL, rows, None)
    ((plan,), *_) = _batch._batch_plans(data.layout, 1)
    chunk = data.pack(*plan)
    options = {"shape": chunk.shape, "solver": gbt.solvers.NewtonCG(), "max_steps": 9}
    return data.input(chunk), {**options, "known": Known(), "is_merged": False}


@with_full_optimisation
def test_sharded_over_devices(rows, fit, mesh):
    sharded = gbt.fit(MODEL, rows, sharding=mesh)
    np.testing.assert_array_equal(sharded.scores, fit.scores)
    np.testing.assert_array_equal(sharded.stats.cg_steps, fit.stats.cg_steps)
    inputs, options = first_chunk(rows)
    stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 8), inputs)
    text = _batch._solve_sharded.lower(stacked, None, mesh=mesh, **options).compile().as_text()
    assert "while" in text
    for collective in ("all-reduce", "all-gather", "collective-permute", "all-to-all"):
        assert collective not in text


@pytest.fixture(scope="module")
def many_small_groups():
    rows = grouped((5,), repeats=900)
    return rows, gbt.fit(MODEL, rows).scores


def four_devices(kind: str):
    axis, devices = jax.sharding.AxisType, jax.devices()[:4]
    if kind == "two axes":
        return jax.make_mesh((2, 2), ("rack", "groups"), devices=devices)
    types = {"auto": (axis.Auto,), "explicit": (axis.Explicit,)}.get(kind)
    mesh = jax.make_mesh((4,), ("groups",), axis_types=types, devices=devices)
    if kind == "named sharding":
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("groups"))
    return mesh


@pytest.mark.skipif(jax.device_count() < 4, reason="XLA_FLAGS asks for other devices")
@pytest.mark.parametrize("kind", ["default", "auto", "explicit", "two axes", "named sharding"])
def test_any_mesh_shares_the_groups(kind, many_small_groups):
    rows, expected = many_small_groups
    sharded = gbt.fit(MODEL, rows, sharding=four_devices(kind))
    np.testing.assert_array_equal(sharded.scores, expected)


def test_what_is_no_mesh_is_refused(many_small_groups):
    mesh = jax.make_mesh((1,), ("groups",), devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec("groups")
    device = jax.devices()[0]
    without_devices = jax.sharding.NamedSharding(mesh.abstract_mesh, spec)
    for given in (4, spec, jax.sharding.SingleDeviceSharding(device), without_devices):
        with pytest.raises(TypeError, match=r"sharding=jax\.make_mesh\(\(4,\), \(\"groups\",\)\)"):
            gbt.fit(MODEL, many_small_groups[0], sharding=given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sharding spreads groups over devices"):
        gbt.fit(MODEL, random_comparisons(5, 9), sharding=mesh)


def test_one_problem_sharded_over_its_comparisons(mesh):
    comparisons = random_comparisons(60, 800)
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("groups"))
    sharded = jax.device_put(comparisons, rows)
    assert len(sharded.value.sharding.device_set) == 8
    np.testing.assert_allclose(
        gbt.fit(MODEL, sharded).scores, gbt.fit(MODEL, comparisons).scores, atol=1e-12
    )


@pytest.mark.parametrize("program", ["groups", "newton-cg", "cholesky", "gradient"])
def test_programs_for_other_machines(program):
    """What CUDA, ROCm and TPU would run is produced here, so nothing is for this machine only."""
    arguments = (MODEL, random_comparisons(10, 20))
    if program == "groups":
        inputs, options = first_chunk(grouped((5, 30), repeats=1))
        arguments = (inputs,)
        function = lambda inputs: _batch._solve_chunk(inputs, None, **options)  # noqa: E731
    elif program == "gradient":
        function = jax.grad(lambda m, c: jnp.sum(gbt.map_scores(m, c) ** 2))
    else:
        solver = gbt.solvers.NewtonCG() if program == "newton-cg" else gbt.solvers.NewtonCholesky()
        function = lambda m, c: gbt.fit(m, c, solver=solver, max_steps=9, throw=False)  # noqa: E731
    leaves, tree = jax.tree.flatten(arguments)
    flat = jax.jit(lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves))))
    for platform in ("cuda", "rocm", "tpu"):
        exported = jax.export.export(flat, platforms=[platform])(*leaves)
        assert exported.platforms == (platform,)
        assert "while" in exported.mlir_module()


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
