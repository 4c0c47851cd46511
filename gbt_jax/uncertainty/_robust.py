"""Uncertainty that does not assume the law's variance of comparisons.

- `robust_covariance` is the sandwich N S N. S is the covariance of the gradient, estimated from the
  residuals: Σ w (r − Φ'(t))² x xᵀ with x = e_a − e_b. N uses the law's variance.
  If comparisons of one group (a judge's) are correlated, S = Σ_g s_g s_gᵀ with
  s_g = Σ_{rows of g} w (r − Φ'(t)) x.
- `bootstrap` refits with random weights. They are exponential (the Bayesian bootstrap: every
  comparison keeps some weight, so an optimum exists whenever the data have one) or the counts of
  draws with replacement.

Both keep the prior fixed: they describe how the shrunken scores would vary with other data.
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
_AT_ONCE = 16  # resamples between two updates of the progress bar
_PRECISION = 1e-4  # certified relative l2 error of the scores of a resample: far below their spread


def robust_covariance(
    fit: Fit,
    *,
    groups: Sequence | np.ndarray | None = None,
    using: AbstractCurvature | None = None,
) -> Float[Array, "items items"]:
    """The sandwich covariance N S N of the scores.

    **Arguments:**

    - `groups`: one label per comparison; comparisons with the same label may be correlated. S is
      then multiplied by G/(G − 1) for G groups, which corrects its bias. Without `groups`,
      comparisons are independent, and weight n is n independent repeats.
    - `using`: the fit's `curvature`, if it has been made already.

    **Returns:** a matrix of items × items.
    """
    refuse_groups(fit, "robust_covariance", "scores of different groups are independent")
    made = curvature_of(fit, using)
    model, rows, groups = _drop_padding(fit, groups)
    residual = rows.value - model.law.mean(fit.scores[rows.a] - fit.scores[rows.b])
    if groups is None:
        if rows.is_merged:
            raise ValueError(
                "merged comparisons have lost how their repeats vary: fit them before "
                "merge_repeats()"
            )
        member, count = np.arange(len(rows)), len(rows)
        pull = jnp.sqrt(rows.weight) * residual
        factor = 1.0
    else:
        member, count = group_numbers(groups, len(rows))
        pull = rows.weight * residual
        factor = count / max(count - 1, 1)
        if count < 2:
            raise ValueError("groups must have at least two labels to estimate their spread")
    return factor * _sandwich(made, rows, pull, member, count)


def _drop_padding(
    fit: Fit, groups: Sequence | np.ndarray | None
) -> tuple[Model, Comparisons, np.ndarray | None]:
    """The rows of positive weight, with their model and their groups."""
    rows = fit.comparisons
    kept = np.asarray(rows.weight) > 0
    if groups is not None:
        groups = np.asarray(groups)
        group_numbers(groups, kept.size)  # raises for another length
        groups = groups[kept]
    columns = (x[kept] for x in (rows.a, rows.b, rows.value, rows.weight))
    counted = rows._with_rows(*columns)
    return fit.model.at_rows(np.flatnonzero(kept)), counted, groups


def _sandwich(
    made: AbstractCurvature, rows: Comparisons, pull: Array, member: np.ndarray, count: int
) -> Array:
    """Σ_g N s_g s_gᵀ N, a block of groups at a time."""
    total = np.zeros((rows.num_items,) * 2, pull.dtype)
    order, width = np.argsort(member, kind="stable"), 1024
    starts = np.searchsorted(member[order], np.arange(0, count, width))
    for first, chosen in zip(range(0, count, width), np.split(order, starts[1:]), strict=False):
        some = rows._with_rows(*(x[chosen] for x in (rows.a, rows.b, rows.value, rows.weight)))
        columns = group_columns(some, pull[chosen], member[chosen] - first, width)
        # Rows lie within components: rounding errors in their levels are left out.
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
    """Scores of `num` refits, in which the comparisons' weights are multiplied by random ones.

    The error of each refit is certified below 1e-4 of ‖θ‖₂ (without a prior, up to rounding), far
    below the spread of the refits.

    **Arguments:**

    - `num`: how many refits.
    - `key`: a key of `jax.random`.
    - `groups`: one label per comparison; comparisons with the same label get the same weight.
    - `weights`: `"exponential"`, or `"multinomial"` for draws with replacement, which may leave
      comparisons out. Then a refit without an optimum is NaN, and without a prior each component
      of the remaining graph has mean zero. A row of weight n gets one random weight.
    - `progress`: show a progress bar on a terminal.

    **Returns:** refits × items. Scores of a group whose fit failed are NaN.
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
    # A resample may leave out the row that made the fit of a group fail: its scores stay NaN.
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
    """Refit one resample after the other: side by side, memory limits them on a CPU."""

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
