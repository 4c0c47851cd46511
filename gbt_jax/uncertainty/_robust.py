"""Uncertainty that does not take the law's word for the spread of comparisons.

- `robust_covariance`, the sandwich N S N: S is the covariance of the gradient of the data as the
  residuals show it, Σ w (r − Φ'(t))² x xᵀ with x = e_a − e_b, where N has the law's variance.
  Comparisons of one group (a judge's) may depend on each other: then S = Σ_g s_g s_gᵀ with
  s_g = Σ_{rows of g} w (r − Φ'(t)) x.
- `bootstrap`: everything refitted with random weights, many times. Weights are exponential
  (the Bayesian bootstrap: every comparison keeps some weight, so an optimum exists whenever the
  data have one) or the counts of draws with replacement.

Both hold the prior fixed: they say how the scores would vary with other data, shrunk as they are.
"""

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from .._curvature import AbstractCurvature, curvature_of, refuse_unfinished
from .._data._comparisons import Comparisons
from .._data._incidence import group_columns
from .._inference._fit import Fit, refuse_groups
from .._inference._gauge import is_regularised
from .._inference._maximise import MAX_STEPS
from .._inference._optimum import Known, find_optimum
from .._inference._results import RESULTS
from .._model import Model
from .._util._arrays import as_array, group_numbers, whole_number
from .._util._progress import Progress
from .._util._threads import in_threads, num_workers
from ..solvers._solvers import NewtonCG

Weights = Literal["exponential", "multinomial"]
_AT_ONCE = 16  # resamples between two looks at the progress bar
_PRECISION = 1e-4  # certified, of a resample's scores in l2: far below how much they vary


def robust_covariance(
    fit: Fit,
    *,
    groups: Sequence | np.ndarray | None = None,
    using: AbstractCurvature | None = None,
) -> Float[Array, "items items"]:
    """The sandwich covariance N S N of the scores.

    **Arguments:**

    - `groups`: one label per comparison; those of one label may depend on each other. S is then
      multiplied by G/(G − 1) for G groups, without which few groups look too sure. Of single
      comparisons weight n is n independent repeats.
    - `using`: the fit's `curvature`, if it has been made already.
    """
    refuse_groups(fit, "robust_covariance", "scores of different groups are independent")
    made = curvature_of(fit, using)
    model, rows, groups = _drop_padding(fit, groups)
    residual = rows.value - model.law.mean(fit.scores[rows.a] - fit.scores[rows.b])
    if groups is None:
        if rows.is_merged:
            raise ValueError(
                "merged comparisons do not tell how their repeats vary: fit the single ones"
            )
        member, count = np.arange(len(rows)), len(rows)
        pull = jnp.sqrt(rows.weight) * residual
        factor = 1.0
    else:
        member, count = group_numbers(groups, len(rows))
        pull = rows.weight * residual
        factor = count / max(count - 1, 1)
        if count < 2:
            raise ValueError("groups must have at least two labels: their spread is what counts")
    return factor * _sandwich(made, rows, pull, member, count)


def _drop_padding(
    fit: Fit, groups: Sequence | np.ndarray | None
) -> tuple[Model, Comparisons, np.ndarray | None]:
    """The rows that are no padding, with their model and their groups."""
    rows = fit.comparisons
    kept = np.asarray(rows.weight) > 0
    if groups is not None:
        groups = np.asarray(groups)
        group_numbers(groups, kept.size)  # refuses what has another length
        groups = groups[kept]
    columns = (x[kept] for x in (rows.a, rows.b, rows.value, rows.weight))
    counted = rows._with_rows(*columns)
    return fit.model.at_rows(np.flatnonzero(kept)), counted, groups


def _sandwich(
    made: AbstractCurvature, rows: Comparisons, pull: Array, member: np.ndarray, count: int
) -> Array:
    """Σ_g N s_g s_gᵀ N, some groups at a time."""
    total = np.zeros((rows.num_items,) * 2, pull.dtype)
    order, width = np.argsort(member, kind="stable"), 1024
    starts = np.searchsorted(member[order], np.arange(0, count, width))
    for first, chosen in zip(range(0, count, width), np.split(order, starts[1:]), strict=False):
        some = rows._with_rows(*(x[chosen] for x in (rows.a, rows.b, rows.value, rows.weight)))
        columns = group_columns(some, pull[chosen], member[chosen] - first, width)
        # Rows lie within components: what rounding says of their levels is left out.
        solved = made.reduced_solve(np.asarray(columns))
        total += solved @ solved.T
    return as_array(total)


def bootstrap(
    fit: Fit,
    num: int,
    *,
    key: PRNGKeyArray,
    groups: Sequence | np.ndarray | None = None,
    weights: Weights = "exponential",
    progress: bool = False,
) -> Float[Array, "num items"]:
    """Scores of `num` refits, each with random weights on top of those of the comparisons.

    Each is certified to 1e-4 of ‖θ‖₂ (to rounding without a prior), which is more than their
    spread can use.

    **Arguments:**

    - `groups`: one label per comparison; those of one label get one weight.
    - `weights`: `"exponential"`, or `"multinomial"` for draws with replacement, which may leave
      comparisons out: a refit without an optimum is NaN, and without a prior the parts of a graph
      that falls apart have mean zero each. A row gets one weight, also where its own is n repeats.
    - `progress`: show a progress bar on a terminal.

    Scores of a group whose fit failed are NaN.
    """
    refuse_unfinished(fit)
    num = whole_number("num", num, at_least=1)
    if weights not in get_args(Weights):
        raise ValueError(f"weights must be one of {', '.join(get_args(Weights))}, not {weights!r}")
    model, rows, groups = _drop_padding(fit, groups)
    everyone = np.arange(len(rows)), len(rows)
    member, count = everyone if groups is None else group_numbers(groups, len(rows))
    keys = jax.random.split(key, num)
    pieces = [keys[start : start + _AT_ONCE] for start in range(0, num, _AT_ONCE)]
    bar = Progress(num, enabled=progress, unit="resamples")
    known = Known(is_regularised(fit.model, rows))

    def work(keys: Array) -> Array:
        data = model, rows, fit.scores, jnp.asarray(member)
        return _refit_resamples(*data, keys, count=count, weights=weights, known=known)

    found = []
    for scores in in_threads(work, pieces, num_workers()):
        found.append(scores)
        bar.advance(scores.shape[0])
    bar.close()
    # A resample can leave out the row for which the fit of a group failed.
    has_optimum = rows.partition.spread(jnp.asarray(fit.result == RESULTS.successful))
    return jnp.where(has_optimum, jnp.concatenate(found), jnp.nan)


@functools.partial(jax.jit, static_argnames=("count", "weights", "known"))
def _refit_resamples(
    model: Model,
    rows: Comparisons,
    scores: Array,
    member: Array,
    keys: Array,
    *,
    count: int,
    weights: Weights,
    known: Known,
) -> Array:
    """One refit after the other: on a CPU side by side they would wait for memory."""

    def one(key: Array) -> Array:
        if weights == "exponential":
            drawn = jax.random.exponential(key, (count,), scores.dtype)
        else:
            chosen = jax.random.randint(key, (count,), 0, count)
            drawn = jnp.zeros(count, scores.dtype).at[chosen].add(1)
        changed = rows.with_weights(rows.weight * drawn[member])
        tolerances = jnp.asarray([_PRECISION, 0], scores.dtype)
        found = find_optimum(
            model,
            changed,
            scores,
            tolerances,
            solver=NewtonCG(),
            max_steps=MAX_STEPS,
            known=known,
            partition=rows.partition,
        )
        is_found = found.result_code == RESULTS.successful.code
        return jnp.where(rows.partition.spread(is_found), found.scores, jnp.nan)

    return jax.lax.map(one, keys)
