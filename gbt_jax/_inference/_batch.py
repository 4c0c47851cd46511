"""Fits of many groups in one call, packed into separately solved chunks of a few shapes."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from .._data._chunks import Chunk, Shape, pack, plan
from .._data._comparisons import Comparisons
from .._data._groups import GroupedRows, sort_by_group
from .._data._partition import AbstractPartition
from .._model import Model, per_item_on_host
from .._util._arrays import as_array
from .._util._compilation import quick_options
from .._util._limits import QUICK_ROWS
from .._util._progress import Progress
from .._util._threads import in_threads, num_workers
from ..laws import AbstractRootLaw
from ..solvers._solvers import NewtonCG
from ._existence import may_be_unbounded, unbounded_items
from ._gauge import is_prior_strong
from ._optimum import Known, find_optimum
from ._results import RESULTS


class Answer(NamedTuple):
    """Scores, and the statistics of each group's fit, as JAX or NumPy arrays."""

    scores: Any
    result_code: Any
    error_bound: Any
    gradient_norm: Any
    newton_steps: Any
    cg_steps: Any


def fit_groups(
    model: Model,
    comparisons: Comparisons,
    initial: Array | None,
    tolerances: Array | None,
    *,
    solver: NewtonCG,
    max_steps: int,
    progress: bool,
    sharding: Mesh | NamedSharding | None,
) -> Answer:
    """Fit every group: the same scores as separate fits, in a fraction of the time."""
    data = _Data.of(model, comparisons, initial)
    answers = _blank_answers(comparisons)
    bar = Progress(len(comparisons), enabled=progress)
    mesh = None if sharding is None else _mesh_of_groups(sharding)
    lanes = 1 if mesh is None else mesh.size
    solve_chunk = _quick_solve_chunk() if len(comparisons) <= QUICK_ROWS else _solve_chunk

    def work(plans: list[_Plan]) -> int:
        """Solve chunks of one shape, store their answers, and return the number of rows."""
        chunks = [data.pack(*one) for one in plans]
        inputs = [data.input(chunk) for chunk in chunks]
        options = {
            "shape": chunks[0].shape,
            "solver": solver,
            "max_steps": max_steps,
            "known": Known(all(_is_prior_strong(one) for one in inputs)),
            "is_merged": comparisons.is_merged,
        }
        if mesh is None:
            found = [solve_chunk(inputs[0], tolerances, **options)]
        else:
            inputs += [_empty_chunk(inputs[0])] * (lanes - len(inputs))
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *inputs)
            together = _solve_sharded(stacked, tolerances, mesh=mesh, **options)
            found = [Answer(*(np.asarray(x)[i] for x in together)) for i in range(len(chunks))]
        for chunk, answer in zip(chunks, found, strict=False):
            _store(answers, chunk, answer)
        return sum(chunk.rows.size for chunk in chunks)

    # One thread per core: each solves a chunk at a time, so memory is bounded by the chunks.
    for done in in_threads(work, _batch_plans(data.layout, lanes), _num_workers(lanes)):
        bar.advance(done)
    bar.close()
    return Answer(*(as_array(x) for x in answers))  # compiles nothing


def _blank_answers(comparisons: Comparisons) -> Answer:
    count, dtype = comparisons.num_groups or 0, np.dtype(comparisons.value.dtype)
    return Answer(
        scores=np.full(comparisons.num_items, np.nan, dtype),
        result_code=np.zeros(count, np.int32),
        error_bound=np.zeros(count, dtype),
        gradient_norm=np.zeros(count, dtype),
        newton_steps=np.zeros(count, np.int32),
        cg_steps=np.zeros(count, np.int32),
    )


def _store(answers: Answer, chunk: Chunk, answer: Answer) -> None:
    answers.scores[chunk.nodes] = np.asarray(answer.scores)[chunk.items]
    for whole, part in zip(answers[1:], answer[1:], strict=True):
        whole[chunk.groups] = np.asarray(part)[: chunk.groups.size]


class _Input(NamedTuple):
    """The input of the solver for a chunk, as NumPy arrays; those of the law may be of JAX."""

    law: AbstractRootLaw
    owner: Any
    a: Any
    b: Any
    value: Any
    weight: Any
    prior_std: Any  # of each item
    prior_mean: Any
    initial: Any
    is_unbounded: Any  # for each problem


class _Data(NamedTuple):
    """The data on the host, with rows sorted by group."""

    model: Model
    layout: GroupedRows
    value: np.ndarray
    weight: np.ndarray
    prior_std: np.ndarray
    prior_mean: np.ndarray
    initial: np.ndarray | None
    may_be_unbounded: bool
    is_merged: bool

    @staticmethod
    def of(model: Model, comparisons: Comparisons, initial: Array | None) -> "_Data":
        layout, dtype = sort_by_group(comparisons), np.dtype(comparisons.value.dtype)
        return _Data(
            model=model,
            layout=layout,
            value=np.asarray(comparisons.value)[layout.row],
            weight=np.asarray(comparisons.weight)[layout.row],
            prior_std=per_item_on_host(model.prior_std, comparisons, dtype),
            prior_mean=per_item_on_host(model.prior_mean, comparisons, dtype),
            initial=None if initial is None else np.asarray(initial),
            may_be_unbounded=may_be_unbounded(model),
            is_merged=comparisons.is_merged,
        )

    def pack(self, shape: Shape, groups: np.ndarray) -> Chunk:
        layout = self.layout
        return pack(shape, groups, layout.item_offsets, layout.row_offsets, layout.a, layout.b)

    def input(self, chunk: Chunk) -> _Input:
        std = self.prior_std[chunk.nodes]
        inputs = _Input(
            # Padding rows may have the parameters of any row.
            self.model.law.at_rows(chunk.pad(self.layout.row)),
            chunk.owner,
            chunk.a,
            chunk.b,
            chunk.pad(self.value),
            chunk.pad(self.weight),
            # Error bounds use the largest σ, so padding takes the smallest.
            chunk.at_items(std, std.min(initial=np.inf)),
            chunk.at_items(self.prior_mean[chunk.nodes], 0),
            None if self.initial is None else chunk.at_items(self.initial[chunk.nodes], 0),
            np.zeros(chunk.shape.num_problems, bool),
        )
        if self.may_be_unbounded:
            union = _union(inputs, shape=chunk.shape, is_merged=self.is_merged)
            items = unbounded_items(union.model, union.comparisons).items
            inputs.is_unbounded[chunk.owner[items % chunk.owner.size]] = True
        return inputs


class _Union(NamedTuple):
    """The groups of a chunk as one problem, without the comparisons of unbounded groups."""

    model: Model
    comparisons: Comparisons
    partition: AbstractPartition
    is_unbounded: Array


_Plan = tuple[Shape, np.ndarray]


def _batch_plans(layout: GroupedRows, lanes: int) -> Iterator[list[_Plan]]:
    """Yield the plans of all chunks, in lists of up to `lanes` with the same shape."""
    plans: list[_Plan] = []
    for one in plan(layout.num_items, layout.num_rows, max(lanes, _num_workers(lanes))):
        if plans and (plans[0][0] != one[0] or len(plans) == lanes):
            yield plans
            plans = []
        plans.append(one)
    if plans:
        yield plans


def _num_workers(lanes: int) -> int:
    return 1 if lanes > 1 else num_workers()


def _is_prior_strong(inputs: _Input) -> bool:
    return is_prior_strong(
        inputs.prior_std, inputs.a, inputs.b, inputs.weight, inputs.prior_std.size
    )


def _empty_chunk(inputs: _Input) -> _Input:
    """A chunk without comparisons, for an idle device."""
    return inputs._replace(weight=np.zeros_like(inputs.weight), value=np.zeros_like(inputs.value))


@functools.partial(jax.jit, static_argnames=("shape", "is_merged"))
def _union(inputs: _Input, *, shape: Shape, is_merged: bool) -> _Union:
    partition = shape.partition(inputs.owner)
    is_unbounded = jnp.reshape(inputs.is_unbounded, partition.shape)
    stays = ~partition.at(inputs.a).spread(is_unbounded)
    comparisons = Comparisons(
        inputs.a,
        inputs.b,
        jnp.where(stays, inputs.value, 0),
        jnp.where(stays, inputs.weight, 0),
        num_items=shape.items,
        is_merged=is_merged,
    )
    model = Model(inputs.law, inputs.prior_std, inputs.prior_mean)
    return _Union(model, comparisons, partition, is_unbounded)


def _fit_chunk(
    inputs: _Input,
    tolerances: Array | None,
    *,
    shape: Shape,
    solver: NewtonCG,
    max_steps: int,
    known: Known,
    is_merged: bool,
) -> Answer:
    union = _union(inputs, shape=shape, is_merged=is_merged)
    model, comparisons, partition, is_unbounded = union
    found = find_optimum(
        model,
        comparisons,
        inputs.initial,
        tolerances,
        solver=solver,
        max_steps=max_steps,
        known=known,
        partition=partition,
    )
    per_problem = (
        jnp.where(is_unbounded, RESULTS.no_finite_optimum.code, found.result_code),
        jnp.where(is_unbounded, jnp.inf, found.error_bound),
        jnp.where(is_unbounded, jnp.nan, found.gradient_norm),
        found.newton_steps,
        found.inner_steps,
    )
    scores = jnp.where(partition.spread(is_unbounded), jnp.nan, found.scores)
    return Answer(scores, *(jnp.reshape(x, shape.num_problems) for x in per_problem))


_STATIC = ("shape", "solver", "max_steps", "known", "is_merged")
_solve_chunk = jax.jit(_fit_chunk, static_argnames=_STATIC)


@functools.cache
def _quick_solve_chunk():
    return jax.jit(_fit_chunk, static_argnames=_STATIC, compiler_options=quick_options())


@functools.partial(jax.jit, static_argnames=("mesh", *_STATIC))
def _solve_sharded(
    inputs: _Input, tolerances: Array | None, *, mesh: Mesh, **options: Any
) -> Answer:
    """Solve one chunk per device: devices do not synchronise inside loops."""

    def on_one_device(inputs, tolerances):
        one = jax.tree.map(lambda leaf: leaf[0], inputs)
        return jax.tree.map(lambda leaf: leaf[None], _solve_chunk(one, tolerances, **options))

    spec = PartitionSpec(mesh.axis_names)
    everywhere = PartitionSpec()
    return jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(spec, everywhere),
        out_specs=spec,
        check_vma=False,  # outputs are not replicated
    )(inputs, tolerances)


def _mesh_of_groups(sharding: object) -> Mesh:
    """The devices of a mesh along one axis, of type Auto as `shard_map` requires."""
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else sharding
    if not isinstance(mesh, Mesh):
        raise TypeError(
            "sharding must be a Mesh or a NamedSharding of devices, as "
            f'sharding=jax.make_mesh((4,), ("groups",)), not {type(sharding).__name__}'
        )
    return Mesh(mesh.devices.ravel(), ("groups",), axis_types=(AxisType.Auto,))
