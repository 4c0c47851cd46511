"""`Fit`: scores with error bounds and status, and the fits of single groups."""

from collections.abc import Iterator
from typing import Any, NamedTuple, final

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from .._data._comparisons import Comparisons
from .._data._groups import sort_by_group
from .._data._labels import Labels
from .._model import Model
from .._util._arrays import as_array, is_concrete
from ._existence import unbounded_items
from ._results import RESULTS, Result
from ._validity import describe_invalid_row

_NAMED = 10  # items or groups in a message


class FitError(RuntimeError):
    """Raised if a fit fails; `fit` is the failed fit, with its `result`."""

    def __init__(self, message: str, fit: "Fit"):
        super().__init__(message)
        self.fit = fit


class Stats(NamedTuple):
    """Iteration counts of a fit."""

    newton_steps: Array
    cg_steps: Array


@final
class Fit(eqx.Module):
    """Scores, with their error bound and status.

    - `scores`: θ*, one per item (of each group); a higher score is better. NaN where data are
      invalid or no finite optimum exists.
    - `error_bound`: a certified upper bound of ‖scores − θ*‖₂: σ² times the sum of ‖∇L‖ and a bound
      of its rounding errors; inf without a prior.
    - `gradient_norm`: ‖∇L‖₂ at the scores.
    - `result`: how the fit ended. It is `RESULTS.successful` only if the gradient, recomputed from
      the comparisons, is zero up to rounding, or if the error bound meets the tolerances.
    - `stats`: the numbers of Newton and conjugate-gradient steps.
    - `model`, `comparisons`: the arguments of `fit`.

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
        return fit_of_group(self, self.comparisons.number_of(group))

    def __iter__(self) -> Iterator:
        if self.comparisons.num_groups is None:
            raise TypeError("this fit has no groups to iterate over")
        return iter(self.groups.tolist())

    def __contains__(self, group: Any) -> bool:
        try:
            self.comparisons.number_of(group)
        except KeyError:
            return False
        return True

    def __repr__(self) -> str:
        if not is_concrete(self.scores):
            return f"Fit({self.comparisons!r}, traced)"
        return f"Fit({self.comparisons!r}, {self.result!r})"

    def failures(self) -> dict[Any, str]:
        """The label of each group whose fit failed, with an error message."""
        if self.comparisons.num_groups is None:
            raise TypeError("this fit has no groups: see its result")
        layout, messages = sort_by_group(self.comparisons), {}
        for i in np.flatnonzero(self.result != RESULTS.successful):
            rows = layout.row[layout.row_offsets[i] : layout.row_offsets[i + 1]]
            messages[self.groups[i].item()] = explain(fit_of_group(self, int(i)), rows)
        return messages


def select_groups(fitted: Fit, start: int, stop: int) -> Fit:
    """The fit of the groups `start` to `stop` − 1.

    On the host: JAX would compile a slice for every start.
    """
    layout, comparisons = sort_by_group(fitted.comparisons), fitted.comparisons
    items = slice(layout.item_offsets[start], layout.item_offsets[stop])
    rows = slice(layout.row_offsets[start], layout.row_offsets[stop])
    chosen, numbers = layout.row[rows], np.arange(stop - start)
    first = layout.item_offsets[start:stop] - items.start
    shift = np.repeat(first, layout.num_rows[start:stop])
    prior = (fitted.model.prior_std, fitted.model.prior_mean)
    prior = [_part(x, comparisons, slice(start, stop), items) for x in prior]
    per_group = fitted.error_bound, fitted.gradient_norm, fitted.result.code, *fitted.stats
    bound, norm, code, newton, cg = (as_array(np.asarray(x)[start:stop]) for x in per_group)
    return Fit(
        scores=as_array(np.asarray(fitted.scores)[items]),
        error_bound=bound,
        gradient_norm=norm,
        result=Result(code),
        stats=Stats(newton, cg),
        model=Model(fitted.model.law.at_rows(chosen), *prior),
        comparisons=comparisons._replace(
            a=as_array(layout.a[rows] + shift, np.int32),
            b=as_array(layout.b[rows] + shift, np.int32),
            value=as_array(np.asarray(comparisons.value)[chosen]),
            weight=as_array(np.asarray(comparisons.weight)[chosen]),
            group=as_array(np.repeat(numbers, layout.num_items[start:stop]), np.int32),
            num_items=int(items.stop - items.start),
            num_groups=stop - start,
            labels=Labels(comparisons.group_labels[start:stop], comparisons.item_labels[items]),
        ),
    )


def fit_of_group(fitted: Fit, number: int) -> Fit:
    """The fit of one group, with items numbered within the group."""
    one = select_groups(fitted, number, number + 1)
    rows = one.comparisons
    prior = (np.asarray(x) for x in (one.model.prior_std, one.model.prior_mean))
    model = Model(one.model.law, *(x[0] if x.shape == (1,) else x for x in prior))
    per_group = one.error_bound, one.gradient_norm, one.result.code, *one.stats
    bound, norm, code, newton, cg = (as_array(np.asarray(x)[0]) for x in per_group)
    return Fit(
        scores=one.scores,
        error_bound=bound,
        gradient_norm=norm,
        result=Result(code),
        stats=Stats(newton, cg),
        model=model,
        comparisons=rows._replace(
            group=None, num_groups=None, labels=Labels(None, rows.labels.items)
        ),
    )


def _part(parameter: Array, comparisons: Comparisons, groups: slice, items: slice) -> Array:
    """A parameter of the prior for some groups: one number, by item, or by group."""
    if parameter.ndim == 0:
        return parameter
    return as_array(
        np.asarray(parameter)[items if parameter.size == comparisons.num_items else groups]
    )


def explain(fitted: Fit, numbers: np.ndarray | None = None) -> str:
    """The error message of a failed fit, with the row, items or groups concerned.

    `numbers` are the indices of the rows in the data of all groups.
    """
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
        message = describe_invalid_row(fitted.model.law, fitted.comparisons, numbers)
    return message


def check_fit(fitted: object) -> None:
    """Raise `TypeError` unless the argument is a `Fit`."""
    if not isinstance(fitted, Fit):
        raise TypeError(f"a Fit is needed, not {type(fitted).__name__}")


def refuse_groups(fitted: object, function: str, reason: str) -> None:
    """Raise `TypeError` for a fit with groups, with the call of `function` for one group."""
    check_fit(fitted)
    assert isinstance(fitted, Fit)
    if fitted.comparisons.num_groups is not None:
        label = repr(fitted.groups[0].item()) if fitted.groups.size else "label"
        raise TypeError(f"{reason}: call {function}(fit[{label}]) for one group")
