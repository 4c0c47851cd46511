"""`fit`: the unique maximum a posteriori, how close it is, and a function to differentiate."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jaxtyping import ArrayLike, Float

from .._data._comparisons import Comparisons
from .._data._groups import Labels, sort_by_group
from .._model import Model
from .._util._arrays import floating, is_concrete, whole_number
from .._util._compilation import quick_options
from .._util._limits import DENSE_FIT_ITEMS
from ..solvers._solvers import AbstractSolver, NewtonCG, NewtonCholesky
from ._batch import Answer, fit_groups
from ._existence import Unbounded, may_be_unbounded, unbounded_items
from ._gauge import is_regularised
from ._optimum import Known, differentiable_optimum, map_optimum
from ._results import RESULTS, Result
from ._validity import describe_invalid_row, refuse_outside

MAX_STEPS = 256
_NAMED = 10  # items or groups in a message


class FitError(RuntimeError):
    """A fit failed; `fit` holds what was found, with its `result`."""

    def __init__(self, message: str, fit: "Fit"):
        super().__init__(message)
        self.fit = fit


class Stats(NamedTuple):
    """The work that a fit took."""

    newton_steps: Array
    cg_steps: Array


@final
class Fit(eqx.Module):
    """Scores, and what is known about them.

    - `scores`: θ*, one per item (of each group); a higher score is better. NaN where data are
      invalid or no finite optimum exists.
    - `error_bound`: at least ‖scores − θ*‖₂, certified: σ² times ‖∇L‖ and a bound of its rounding
      errors; inf without a prior.
    - `gradient_norm`: ‖∇L‖₂ at the scores.
    - `result`: how the fit ended. It is `RESULTS.successful` only if the gradient, computed anew
      from the comparisons, is zero up to rounding, or if the error bound meets the tolerances.
    - `stats`: the numbers of Newton and conjugate-gradient steps.
    - `model`, `comparisons`: what was fitted.

    With groups, `error_bound`, `gradient_norm`, `result` and `stats` have one entry per group.
    `fit[label]` is the fit of one group, and a fit iterates over the labels of its groups.
    """

    scores: Float[Array, " items"]
    error_bound: Float[Array, "*groups"]
    gradient_norm: Float[Array, "*groups"]
    result: Result
    stats: Stats
    model: Model
    comparisons: Comparisons

    @property
    def groups(self) -> np.ndarray:
        """The label of each group, ascending."""
        return self.comparisons.group_labels

    @property
    def group(self) -> np.ndarray:
        """The label of each score's group."""
        if self.comparisons.group is None:
            raise TypeError("this fit has no groups")
        return self.groups[np.asarray(self.comparisons.group)]

    @property
    def item(self) -> np.ndarray:
        """The label of each score's item."""
        return self.comparisons.item_labels

    def __getitem__(self, group: Any) -> "Fit":
        return _without_groups(self, self.comparisons.number_of(group))

    def __iter__(self) -> Iterator:
        if self.comparisons.num_groups is None:
            raise TypeError("this fit has no groups to iterate over")
        return iter(self.groups.tolist())

    def __contains__(self, group: Any) -> bool:
        return bool(np.any(self.groups == group))

    def __repr__(self) -> str:
        if not is_concrete(self.scores):
            return f"Fit({self.comparisons!r}, traced)"
        return f"Fit({self.comparisons!r}, {self.result!r})"

    def failures(self) -> dict[Any, str]:
        """What went wrong, for the label of each group whose fit was not successful."""
        failed = np.flatnonzero(self.result != RESULTS.successful)
        return {self.groups[i].item(): explain(_without_groups(self, int(i))) for i in failed}


def fit(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = MAX_STEPS,
    throw: bool | None = None,
    progress: bool = False,
    sharding: Mesh | NamedSharding | None = None,
) -> Fit:
    """The maximum a posteriori scores: argmin L(θ), of every group.

    **Arguments:**

    - `solver`: `solvers.NewtonCG()`, `NewtonCholesky()` or `LBFGS()`; chosen by size by default.
      Groups are packed together for conjugate gradients, and fitted one by one with the others.
    - `initial`: scores to start from, used if they are better than the prior mean and the fit
      from there succeeds.
    - `rtol`, `atol`: stop when the error bound is below atol + rtol‖θ‖. By default the iterations
      continue to machine precision.
    - `max_steps`: how many Newton steps at most.
    - `throw`: raise `FitError` if the fit, or that of any group, fails. By default a single fit
      raises, and with groups failures are returned: see `Fit.result` and `Fit.failures`. Under
      `jit`, `vmap` or `grad` nothing can be raised: pass `throw=False` and look at `Fit.result`,
      or use `map_scores`.
    - `progress`: show a progress bar on a terminal while groups are fitted.
    - `sharding`: a `Mesh`, of any axes, or a `NamedSharding`; its devices share the groups.

    **Returns:** a `Fit`. Without comparisons the scores are the prior mean. A value outside the
    law's support is an error that names the row; with groups it is a failure of its group, and no
    group's scores depend on another's. Derivatives of the scores are those of the optimum, as in
    `map_scores`; the other fields have none.
    """
    _check(model, comparisons)
    is_known = is_concrete(model, comparisons, initial)
    has_groups = comparisons.num_groups is not None
    throw = not has_groups if throw is None else throw
    if throw and not is_known:
        raise ValueError(
            "fit cannot raise on failure under a JAX transformation (jit, vmap, grad): pass "
            "throw=False and check result, or use map_scores, which gives NaN on failure"
        )
    if sharding is not None and not has_groups:
        raise ValueError("sharding spreads groups over devices, and these comparisons have none")
    if solver is not None and not isinstance(solver, AbstractSolver):
        raise TypeError(f"solver must be NewtonCG(), NewtonCholesky() or LBFGS(), not {solver!r}")
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    start = None if initial is None else _initial(initial, comparisons)
    tolerances = as_tolerances(rtol, atol, comparisons.value.dtype)
    options = {"solver": solver or _default_solver(comparisons), "max_steps": max_steps}
    if not is_known:
        found = _program(model, comparisons, start, tolerances, known=Known(), **options)
        return _as_fit(found, model, comparisons)
    # Inside of somebody's jit or scan, a fit of constants is computed at once.
    with jax.ensure_compile_time_eval():
        if not has_groups:
            found = _fit_one(model, comparisons, start, tolerances, **options)
            if start is not None and found.result_code != RESULTS.successful.code:
                # Far from the optimum rows are saturated, and say nothing of the way back.
                found = _fit_one(model, comparisons, None, tolerances, **options)
        elif isinstance(options["solver"], NewtonCG):
            more = {"progress": progress, "sharding": sharding}
            found = fit_groups(model, comparisons, start, tolerances, **options, **more)
        else:
            found = _fit_one_by_one(model, comparisons, start, tolerances, **options)
        fitted = _as_fit(found, model, comparisons)
        if not np.all(fitted.result == RESULTS.successful):
            if not has_groups:
                refuse_outside(model.law, comparisons)
            if throw:
                raise FitError(explain(fitted), fitted)
    return fitted


def map_scores(
    model: Model,
    comparisons: Comparisons,
    *,
    solver: AbstractSolver | None = None,
    initial: ArrayLike | None = None,
    max_steps: int = MAX_STEPS,
) -> Float[Array, " items"]:
    """The maximum a posteriori scores as a function for JAX: jit, vmap and differentiate it.

    Derivatives of any order, forward and reverse, with respect to values, weights, prior mean,
    prior std and every parameter of the law, by the implicit function theorem. The optimum does
    not depend on `initial`: derivatives with respect to it are zero. Where the optimum (of a group)
    is not found, scores and derivatives are NaN.
    """
    _check(model, comparisons)
    max_steps = whole_number("max_steps", max_steps, at_least=1)
    start = None
    if initial is not None:
        start = jax.lax.stop_gradient(_initial(initial, comparisons))
    return map_optimum(
        model,
        comparisons,
        start,
        comparisons.partition,
        solver=solver or _default_solver(comparisons),
        max_steps=max_steps,
        known=Known(is_regularised(model, comparisons)),
    )


def _default_solver(comparisons: Comparisons) -> AbstractSolver:
    is_small = comparisons.num_groups is None and comparisons.num_items <= DENSE_FIT_ITEMS
    return NewtonCholesky() if is_small else NewtonCG()


def as_tolerances(rtol: float | None, atol: float | None, dtype) -> Array | None:
    """(rtol, atol), or None where both are 0 or not given: then rounding alone ends a fit."""
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a non-negative number, not {value}")
    return jnp.asarray([rtol or 0, atol or 0], dtype) if rtol or atol else None


def _solve(model, comparisons, initial, tolerances, *, solver, max_steps, known) -> Answer:
    if comparisons.num_groups is not None and not isinstance(solver, NewtonCG):
        raise ValueError("inside a JAX transformation groups are fitted by NewtonCG() alone")
    found = differentiable_optimum(
        model,
        comparisons,
        initial,
        tolerances,
        comparisons.partition,
        solver=solver,
        max_steps=max_steps,
        known=known,
    )
    return Answer(
        scores=found.scores,
        result_code=found.result_code,
        error_bound=found.error_bound,
        gradient_norm=found.gradient_norm,
        newton_steps=found.newton_steps,
        cg_steps=found.inner_steps,
    )


_STATIC = ("max_steps", "solver", "known")
_program = jax.jit(_solve, static_argnames=_STATIC)


@functools.cache
def _quick_program():
    # With few items, compiling is all that counts.
    return jax.jit(_solve, static_argnames=_STATIC, compiler_options=quick_options())


def _fit_one(model, comparisons, start, tolerances, *, solver, max_steps) -> Answer:
    """The fit of comparisons without groups."""
    unbounded = _unbounded(model, comparisons)
    if unbounded.items.size:
        return _no_optimum(comparisons)
    known = Known(is_regularised(model, comparisons), unbounded.is_connected)
    run = _quick_program() if comparisons.num_items <= DENSE_FIT_ITEMS else _program
    options = {"solver": solver, "max_steps": max_steps, "known": known}
    return run(model, comparisons, start, tolerances, **options)


def _fit_one_by_one(model, comparisons, start, tolerances, **options) -> Answer:
    """One group after the other, for solvers that take a single problem."""
    blank = _as_fit(_no_optimum(comparisons), model, comparisons)
    offsets, answers = sort_by_group(comparisons).item_offsets, []
    for number in range(comparisons.num_groups or 0):
        own = _without_groups(blank, number)
        first = None if start is None else start[offsets[number] : offsets[number + 1]]
        found = _fit_one(own.model, own.comparisons, first, tolerances, **options)
        answers.append(found)
    if not answers:
        return _no_optimum(comparisons)
    scores, *others = zip(*answers, strict=True)
    return Answer(jnp.concatenate(scores), *(jnp.stack(column) for column in others))


def _no_optimum(comparisons: Comparisons) -> Answer:
    dtype, shape = comparisons.value.dtype, comparisons.partition.shape
    none = jnp.zeros(shape, jnp.int32)
    return Answer(
        scores=jnp.full(comparisons.num_items, jnp.nan, dtype),
        result_code=jnp.full(shape, RESULTS.no_finite_optimum.code, jnp.int32),
        error_bound=jnp.full(shape, jnp.inf, dtype),
        gradient_norm=jnp.full(shape, jnp.nan, dtype),
        newton_steps=none,
        cg_steps=none,
    )


def _as_fit(found: Answer, model: Model, comparisons: Comparisons) -> Fit:
    return Fit(
        scores=found.scores,
        error_bound=found.error_bound,
        gradient_norm=found.gradient_norm,
        result=Result(found.result_code),
        stats=Stats(found.newton_steps, found.cg_steps),
        model=model,
        comparisons=comparisons,
    )


def select_groups(fitted: Fit, start: int, stop: int) -> Fit:
    """The fit of the groups with these numbers."""
    layout, comparisons = sort_by_group(fitted.comparisons), fitted.comparisons
    items = slice(layout.item_offsets[start], layout.item_offsets[stop])
    rows = slice(layout.row_offsets[start], layout.row_offsets[stop])
    chosen, owner = layout.row[rows], np.asarray(comparisons.group)[items]
    first = layout.item_offsets[layout.owner[rows]] - items.start
    count = items.stop - items.start
    prior = (fitted.model.prior_std, fitted.model.prior_mean)
    prior = [_part(x, comparisons, slice(start, stop), items) for x in prior]
    labels = Labels(comparisons.group_labels[start:stop], comparisons.item_labels[items])
    per_group = fitted.error_bound, fitted.gradient_norm, fitted.result.code, *fitted.stats
    bound, norm, code, newton, cg = (x[start:stop] for x in per_group)
    return Fit(
        scores=fitted.scores[items],
        error_bound=bound,
        gradient_norm=norm,
        result=Result(code),
        stats=Stats(newton, cg),
        model=Model(fitted.model.law.at_rows(chosen), *prior),
        comparisons=comparisons._replace(
            a=jnp.asarray(layout.a[rows] + first, np.int32),
            b=jnp.asarray(layout.b[rows] + first, np.int32),
            value=comparisons.value[chosen],
            weight=comparisons.weight[chosen],
            group=jnp.asarray(owner - start, np.int32),
            num_items=int(count),
            num_groups=stop - start,
            labels=labels,
        ),
    )


def _without_groups(fitted: Fit, number: int) -> Fit:
    """The fit of one group, with items of its own."""
    one = select_groups(fitted, number, number + 1)
    rows = one.comparisons
    prior = (one.model.prior_std, one.model.prior_mean)
    model = Model(one.model.law, *(x[0] if x.shape == (1,) else x for x in prior))
    return Fit(
        scores=one.scores,
        error_bound=one.error_bound[0],
        gradient_norm=one.gradient_norm[0],
        result=one.result[0],
        stats=Stats(*(count[0] for count in one.stats)),
        model=model,
        comparisons=rows._replace(
            group=None, num_groups=None, labels=Labels(None, rows.labels.items)
        ),
    )


def _part(parameter: Array, comparisons: Comparisons, groups: slice, items: slice) -> Array:
    """A parameter of the prior for some groups: one number, by item, or by group."""
    if parameter.ndim == 0:
        return parameter
    return parameter[items if parameter.size == comparisons.num_items else groups]


def _unbounded(model: Model, comparisons: Comparisons) -> Unbounded:
    if not may_be_unbounded(model):
        return Unbounded(np.zeros(0, int), is_connected=False)
    return unbounded_items(model, comparisons)


def explain(fitted: Fit) -> str:
    """What went wrong, with the row, the items or the groups that are concerned."""
    if fitted.comparisons.num_groups is not None:
        failures = fitted.failures()
        lines = [f"{label!r}: {message}" for label, message in list(failures.items())[:_NAMED]]
        more = f" … and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
        count = f"{len(failures)} of {fitted.comparisons.num_groups} groups failed. "
        return count + "; ".join(lines) + more
    message = fitted.result.message
    if fitted.result == RESULTS.no_finite_optimum:
        unbounded = unbounded_items(fitted.model, fitted.comparisons).items
        shown = ", ".join(str(fitted.item[item].item()) for item in unbounded[:_NAMED])
        more = f" and {unbounded.size - _NAMED} more" if unbounded.size > _NAMED else ""
        message += f". Items with no bound: {shown}{more}"
    elif fitted.result == RESULTS.invalid_data:
        message = describe_invalid_row(fitted.model.law, fitted.comparisons)
    return message


def check_fit(fitted: object) -> None:
    """Raise for what is no `Fit`."""
    if not isinstance(fitted, Fit):
        raise TypeError(f"a Fit is needed, not {type(fitted).__name__}")


def refuse_groups(fitted: object, function: str, reason: str) -> None:
    """Raise for a fit with groups, and say how `function` is called for one of them."""
    check_fit(fitted)
    assert isinstance(fitted, Fit)
    if fitted.comparisons.num_groups is not None:
        label = repr(fitted.groups[0].item()) if fitted.groups.size else "label"
        raise TypeError(f"{reason}: call {function}(fit[{label}]) for one group")


def _initial(initial: ArrayLike, comparisons: Comparisons) -> Array:
    start = floating(initial).astype(comparisons.value.dtype)
    if start.shape != (comparisons.num_items,):
        raise ValueError(
            f"initial must hold one score per item, {comparisons.num_items}, not {start.shape}"
        )
    if is_concrete(start) and not np.isfinite(start).all():
        item = int(np.flatnonzero(~np.isfinite(start))[0])
        raise ValueError(f"initial[{item}] is {start[item]}: scores must be finite")
    return start


def _check(model: Model, comparisons: Comparisons) -> None:
    """Refuse what is no model, no comparisons, or a prior of a wrong length."""
    if not isinstance(model, Model):
        raise TypeError(f"fit takes a Model first, not {type(model).__name__}")
    if not isinstance(comparisons, Comparisons):
        raise TypeError(f"fit takes Comparisons second, not {type(comparisons).__name__}")
    model.check_prior(comparisons)
    model.check_rows(len(comparisons))
