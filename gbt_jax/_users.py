"""`fit_users`: thousands of users in one call, each with its own optimum and its own result."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float

from . import _chunks, _graph
from ._arrays import is_concrete, whole_number
from ._comparisons import Comparisons
from ._compilation import quick_options
from ._fit import MAX_STEPS, RESULTS, as_tolerances
from ._gauge import is_firm
from ._model import Model
from ._optimum import Known, find_optimum, map_optimum
from ._partition import AbstractPartition
from ._progress import Progress
from ._solvers import NewtonCG
from ._user_comparisons import UserComparisons
from ._user_fits import Answer, UserFits
from ._workers import in_threads, num_workers
from .laws import AbstractRootLaw

_FEW_ROWS = 8192  # of all users, up to which compiling takes longer than solving


def fit_users(
    model: Model,
    user_comparisons: UserComparisons,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = MAX_STEPS,
    progress: bool = False,
    sharding: Mesh | NamedSharding | None = None,
) -> UserFits:
    """Fit every user: the same scores as a loop of `fit`, in a fraction of the time.

    **Arguments:**

    - `model`: one law for all, its parameters one number or one per comparison in the order of the
      columns given; `prior_std` and `prior_mean` one number, or one per user in the order of
      `user_comparisons.users`.
    - `rtol`, `atol`, `max_steps`: as in `fit`, for each user.
    - `progress`: show a progress bar on a terminal.
    - `sharding`: a `Mesh`, of any axes, or a `NamedSharding`; all devices of its mesh share the
      users.

    Nothing is raised for a user whose fit fails: see its result code, `UserFits.failures` and
    `UserFits.for_user`. No user's answer depends on any other's.
    """
    _check(model, user_comparisons)
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    dtype = jnp.asarray(user_comparisons.value[:0]).dtype
    tolerances = as_tolerances(rtol, atol, dtype)
    fits = UserFits(model, user_comparisons, np.dtype(dtype))
    bar = Progress(user_comparisons.value.size, enabled=progress)
    mesh = None if sharding is None else _mesh_of_users(sharding)
    lanes = 1 if mesh is None else mesh.size
    is_small = user_comparisons.value.size <= _FEW_ROWS
    solve_chunk = _quick_solve_chunk() if is_small else _solve_chunk

    def work(group: list[_Plan]) -> int:
        """Solve chunks of one shape, and put the answers where they belong."""
        chunks = [_pack(user_comparisons, *one) for one in group]
        inputs = [_input(model, user_comparisons, chunk) for chunk in chunks]
        laws = [_law_of(model, user_comparisons, chunk) for chunk in chunks]
        options = {
            "shape": chunks[0].shape,
            "max_steps": max_steps,
            "known": Known(all(_is_firm(one) for one in inputs)),
        }
        if mesh is None:
            answers = [solve_chunk(laws[0], inputs[0], tolerances, **options)]
        else:
            inputs += [_emptied(inputs[0])] * (lanes - len(inputs))
            per_lane = zip(laws + [laws[0]] * (lanes - len(laws)), inputs, strict=True)
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *per_lane)
            together = _solve_sharded(*stacked, tolerances, mesh=mesh, **options)
            answers = [Answer(*(np.asarray(x)[i] for x in together)) for i in range(len(chunks))]
        for chunk, answer in zip(chunks, answers, strict=False):
            fits.put(chunk, answer)
        return sum(chunk.rows.size for chunk in chunks)

    # One thread per core: each solves a chunk at a time, so memory is bounded by the chunks.
    for done in in_threads(work, _in_lanes(user_comparisons, lanes), _num_workers(lanes)):
        bar.advance(done)
    bar.close()
    return fits


def map_user_scores(
    model: Model, user_comparisons: UserComparisons, *, max_steps: int = MAX_STEPS
) -> Float[Array, " scores"]:
    """All users' scores, in the order of `UserFits.scores`, as a function of the model for JAX.

    Differentiable, to any order, in the prior's and the law's parameters, shared or one per user
    (of the law, one per comparison in the order of the columns given):
    for gradients of anything that is computed from everybody's scores. NaN for a user whose
    optimum was not found.
    """
    _check(model, user_comparisons)
    data, place, start = user_comparisons, np.zeros(user_comparisons.items.size, int), 0
    pieces = [jnp.zeros(0, jnp.asarray(data.value[:0]).dtype)]
    for (one,) in _in_lanes(data, 1):
        chunk = _pack(data, *one)
        union = _union(_law_of(model, data, chunk), _input(model, data, chunk), shape=chunk.shape)
        scores = map_optimum(
            union.model,
            union.comparisons,
            None,
            union.partition,
            solver=NewtonCG(),
            max_steps=max_steps,
            known=Known(),
        )
        # A factor, because the derivatives of what was not found are NaN too.
        is_unbounded = union.partition.spread(jnp.asarray(union.is_unbounded))
        factor = jnp.where(is_unbounded, jnp.nan, 1)
        pieces.append(scores * factor.astype(scores.dtype))
        place[chunk.slots] = start + chunk.items
        start += chunk.shape.items
    return jnp.concatenate(pieces)[place]


class _Input(NamedTuple):
    """A chunk as the solver takes it, arrays of NumPy or JAX; the last three per problem."""

    owner: Any
    is_item: Any
    a: Any
    b: Any
    value: Any
    weight: Any
    prior_std: Any
    prior_mean: Any
    is_unbounded: Any


class _Union(NamedTuple):
    """The users of a chunk as one problem; those without an optimum keep no comparisons."""

    model: Model
    comparisons: Comparisons
    partition: AbstractPartition
    is_unbounded: Array


_Plan = tuple[_chunks.Shape, np.ndarray]


def _in_lanes(data: UserComparisons, lanes: int) -> Iterator[list[_Plan]]:
    """The plans of all chunks, up to `lanes` of one shape at a time."""
    group: list[_Plan] = []
    sizes = np.diff(data.item_offsets), np.diff(data.row_offsets)
    for one in _chunks.plan(*sizes, max(lanes, _num_workers(lanes))):
        if group and (group[0][0] != one[0] or len(group) == lanes):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _num_workers(lanes: int) -> int:
    return 1 if lanes > 1 else num_workers()


def _pack(data: UserComparisons, shape: _chunks.Shape, users: np.ndarray) -> _chunks.Chunk:
    return _chunks.pack(shape, users, data.item_offsets, data.row_offsets, data.a, data.b)


def _input(model: Model, data: UserComparisons, chunk: _chunks.Chunk) -> _Input:
    # Problems without a user have the prior of the first one.
    number = np.full(chunk.shape.num_problems, chunk.users[0])
    number[: chunk.users.size] = chunk.users
    is_item = np.zeros(chunk.shape.items, bool)
    is_item[chunk.items] = True
    inputs = _Input(
        chunk.owner,
        is_item,
        chunk.a,
        chunk.b,
        chunk.padded(data.value),
        chunk.padded(data.weight),
        _per_problem(model.prior_std, number),
        _per_problem(model.prior_mean, number),
        np.zeros(number.size, bool),
    )
    if is_concrete(model) and _graph.may_be_unbounded(model):
        union = _union(_law_of(model, data, chunk), inputs, shape=chunk.shape)
        items = _graph.unbounded_items(union.model, union.comparisons).items
        inputs.is_unbounded[chunk.owner[items % chunk.owner.size]] = True
    return inputs


def _law_of(model: Model, data: UserComparisons, chunk: _chunks.Chunk) -> AbstractRootLaw:
    """The law of a chunk's rows; padding has the parameters of any row."""
    return model.law.at_rows(chunk.padded(data.row))


def _per_problem(parameter: Array, number: np.ndarray) -> np.ndarray | Array:
    if not is_concrete(parameter):
        return (
            jnp.broadcast_to(parameter, number.shape) if parameter.ndim == 0 else parameter[number]
        )
    values = np.asarray(parameter)
    return np.full(number.size, values) if values.ndim == 0 else values[number]


def _is_firm(inputs: _Input) -> bool:
    return is_firm(inputs.prior_std, inputs.a, inputs.b, inputs.weight, inputs.is_item.size)


def _emptied(inputs: _Input) -> _Input:
    """A chunk without comparisons, for a device that has nothing left to do."""
    return inputs._replace(weight=np.zeros_like(inputs.weight), value=np.zeros_like(inputs.value))


@functools.partial(jax.jit, static_argnames=("shape",))
def _union(law: AbstractRootLaw, inputs: _Input, *, shape: _chunks.Shape) -> _Union:
    partition = shape.partition(inputs.owner)
    std, mean = (partition.spread(x) for x in (inputs.prior_std, inputs.prior_mean))
    is_unbounded = jnp.reshape(inputs.is_unbounded, partition.shape)
    stays = ~partition.at(inputs.a).spread(is_unbounded)
    comparisons = Comparisons(
        inputs.a,
        inputs.b,
        jnp.where(stays, inputs.value, 0),
        jnp.where(stays, inputs.weight, 0),
        num_items=shape.items,
    )
    model = Model(law, std, jnp.where(inputs.is_item, mean, 0))
    return _Union(model, comparisons, partition, is_unbounded)


def _fit_chunk(
    law: AbstractRootLaw,
    inputs: _Input,
    tolerances: Array | None,
    *,
    shape: _chunks.Shape,
    max_steps: int,
    known: Known,
) -> Answer:
    model, comparisons, partition, is_unbounded = _union(law, inputs, shape=shape)
    found = find_optimum(
        model,
        comparisons,
        None,
        tolerances,
        solver=NewtonCG(),
        max_steps=max_steps,
        known=known,
        partition=partition,
    )
    per_problem = (
        jnp.where(is_unbounded, RESULTS.no_finite_optimum.value, found.result_code),
        jnp.where(is_unbounded, jnp.inf, found.error_bound),
        jnp.where(is_unbounded, jnp.nan, found.gradient_norm),
        found.newton_steps,
        found.inner_steps,
    )
    scores = jnp.where(partition.spread(is_unbounded), jnp.nan, found.scores)
    return Answer(scores, *(jnp.reshape(x, shape.num_problems) for x in per_problem))


_STATIC = ("shape", "max_steps", "known")
_solve_chunk = jax.jit(_fit_chunk, static_argnames=_STATIC)


@functools.cache
def _quick_solve_chunk():
    return jax.jit(_fit_chunk, static_argnames=_STATIC, compiler_options=quick_options())


@functools.partial(jax.jit, static_argnames=("mesh", *_STATIC))
def _solve_sharded(
    law: AbstractRootLaw,
    inputs: _Input,
    tolerances: Array | None,
    *,
    mesh: Mesh,
    shape: _chunks.Shape,
    max_steps: int,
    known: Known,
) -> Answer:
    """One chunk per device, with its law, stacked: no device waits for another inside a loop."""

    def on_one_device(law, inputs, tolerances):
        own_law, one = jax.tree.map(lambda leaf: leaf[0], (law, inputs))
        answer = _solve_chunk(
            own_law, one, tolerances, shape=shape, max_steps=max_steps, known=known
        )
        return jax.tree.map(lambda leaf: leaf[None], answer)

    spec = PartitionSpec(mesh.axis_names)
    everywhere = PartitionSpec()
    return jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=(spec, spec, everywhere),
        out_specs=spec,
        check_vma=False,  # nothing is replicated that could get out of step
    )(law, inputs, tolerances)


def _mesh_of_users(sharding: object) -> Mesh:
    """The devices of a mesh in a row. `shard_map` places data on axes of the type Auto alone."""
    mesh = sharding.mesh if isinstance(sharding, NamedSharding) else sharding
    if not isinstance(mesh, Mesh):
        raise TypeError(
            "sharding must be a Mesh or a NamedSharding of devices, as "
            f'sharding=jax.make_mesh((4,), ("users",)), not {type(sharding).__name__}'
        )
    return Mesh(mesh.devices.ravel(), ("users",), axis_types=(AxisType.Auto,))


def _check(model: Model, data: UserComparisons) -> None:
    if not isinstance(model, Model):
        raise TypeError(f"a Model comes first, not {type(model).__name__}")
    if not isinstance(data, UserComparisons):
        raise TypeError(f"UserComparisons come second, not {type(data).__name__}")
    model.check_prior(len(data), "user")
    model.check_rows(data.num_given)
