"""`fit_table`: a table of scores, ranks and intervals from a table of comparisons."""

import math
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Unpack, final

import numpy as np
import pyarrow as pa

from .._data._comparisons import Comparisons
from .._data._graph import component_numbers
from .._data._groups import sort_by_group
from .._data._incidence import item_sums_on_host
from .._inference._existence import unbounded_items
from .._inference._fit import Fit
from .._inference._maximise import fit
from .._inference._results import RESULTS
from .._model import Model
from .._util._arrays import whole_number
from .._util._progress import FIT_STAGES, begin_stage, show_stages
from ..laws import AbstractRootLaw
from ._columns import as_native_frame
from ._law_names import law_name, law_named
from ._suggestions import unknown_message
from ._uncertainty import RankOptions, Uncertainty, no_uncertainty, score_uncertainty
from ._votes import VoteOptions, Votes, as_votes

RESULT_COLUMNS = (
    "item",
    "score",
    "std",
    "lower",
    "upper",
    "rank",
    "rank_lower",
    "rank_upper",
    "comparisons",
    "component",
)
_NAMED = 5  # items in a message


@final
@dataclass(frozen=True)
class Ranking:
    """Scores with their labels, best first within each group.

    - `arrow`: the PyArrow table with group columns, then `RESULT_COLUMNS`. `std`, `lower` and
      `upper` use Laplace's approximation, rank intervals use its draws; null where a fit failed.
      Items without a rank (see `fit_table`) come last in their group.
    - `std_error`: for each group the largest relative standard error of a standard deviation, 0
      where they are exact; `rank_draws`: the number of draws behind its intervals of ranks. NaN
      where there are none.
    - `votes`: the comparisons that were read. `fit`: their fit, with one group per ranking.
    - `level`: the level of the intervals. `is_elo`: whether scores are on the Elo scale.
    """

    arrow: pa.Table
    votes: Votes
    fit: Fit
    level: float
    is_elo: bool = False
    std_error: np.ndarray | None = None
    rank_draws: np.ndarray | None = None

    @property
    def table(self) -> Any:
        """The table as the same kind of data frame as the input; PyArrow for files."""
        return as_native_frame(self.votes.columns.native, self.arrow)

    @property
    def facts(self) -> list[dict[str, Any]]:
        """Law, σ, size and convergence of each group's fit, and how exact its intervals are."""
        votes, fit, layout = self.votes, self.fit, sort_by_group(self.fit.comparisons)
        components = np.maximum.reduceat(
            self.arrow["component"].to_numpy(), layout.item_offsets[:-1]
        )
        # A split tie is two entries of one comparison; rows of weight 0 do not count.
        counts = np.bincount(votes.group, _is_counted(votes), votes.num_groups)
        # On the host: JAX would compile the index.
        norm, bound = np.asarray(fit.gradient_norm), np.asarray(fit.error_bound)
        return [
            votes.group_of(group)
            | {
                "law": law_name(fit.model.law),
                "prior_std": float(fit.model.prior_std),
                "items": int(layout.num_items[i]),
                "comparisons": int(counts[group]),
                "components": int(components[i]),
                "converged": bool(fit.result[i] == RESULTS.successful),
                "result": fit.result[i].name,
                "gradient_norm": float(norm[i]),
                "error_bound": float(bound[i]),
                "std_error": _known_entry(self.std_error, i, float),
                "rank_draws": _known_entry(self.rank_draws, i, int),
            }
            for i, group in enumerate(fit)
        ]

    def failures(self) -> list[str]:
        """One message per group whose fit failed."""
        return [
            f"{self.votes.group_name(group) or self.votes.name}: {self._failure(group)}"
            for group in self.fit.failures()
        ]

    def _failure(self, group: int) -> str:
        one = self.fit[group]
        if one.result != RESULTS.no_finite_optimum:
            return one.result.message
        unbounded = unbounded_items(one.model, one.comparisons).items
        names = [repr(self.votes.label(one.item[i])) for i in unbounded[:_NAMED]]
        more = f" and {unbounded.size - _NAMED} more" if unbounded.size > _NAMED else ""
        return f"{one.result.message}. Unbounded items: {', '.join(names)}{more}"

    def to_elo(
        self,
        *,
        scale: float = 400.0,
        base: float = 10.0,
        center: float = 1000.0,
        anchor: Any = None,
    ) -> "Ranking":
        """Scores, standard deviations and intervals on the Elo scale.

        Under every bounded law the odds of the extreme outcomes are
        P(r_max)/P(−r_max) = exp(2 r_max θ_ab), and a lead of `scale` points multiplies them by
        `base`: Binary, BradleyTerry and Davidson give the same Elo.

        **Arguments:**

        - `scale`, `base`: a lead of `scale` points multiplies the odds by `base`.
        - `center`: the rating of a score of 0, or of the item `anchor` in each group.
        - `anchor`: the label of an item.

        **Returns:** a `Ranking`. An unbounded law raises an error.
        """
        if self.is_elo:
            raise ValueError("these scores are already on the Elo scale")
        edge = float(self.fit.model.law.max_value)
        if not math.isfinite(edge):
            name = type(self.fit.model.law).__name__
            raise ValueError(f"{name} is unbounded, so its scores have no Elo scale")
        if not (scale > 0 and base > 1 and math.isfinite(scale * base * center)):
            raise ValueError(
                "scale must be positive, base above 1 and center finite, not "
                f"{scale}, {base} and {center}"
            )
        factor = scale * 2 * edge / math.log(base)
        zero = 0.0 if anchor is None else self._anchors(anchor)
        table = self.arrow
        for name in ("score", "std", "lower", "upper"):
            shift = 0.0 if name == "std" else center - factor * zero
            column = _column(factor * _floats(table, name) + shift)
            table = table.set_column(table.schema.get_field_index(name), name, column)
        return replace(self, arrow=table, is_elo=True)

    def _anchors(self, anchor: Any) -> np.ndarray:
        """The anchor's score in the group of each row."""
        is_anchor = np.array([label == anchor for label in self.arrow["item"].to_pylist()])
        group = self.fit.group  # rows are ordered by group, as scores are
        score = np.full(self.votes.num_groups, np.nan)
        score[group[is_anchor]] = _floats(self.arrow, "score")[is_anchor]
        missing = np.setdiff1d(group, group[is_anchor])
        if missing.size:
            self._refuse_anchor(anchor, missing[0])
        return score[group]

    def _refuse_anchor(self, anchor: Any, group: Any) -> NoReturn:
        """Raise for an anchor that is not among the items of a group."""
        labels = [self.votes.label(item) for item in self.fit.item[self.fit.group == group]]
        if anchor not in self.votes.items.to_pylist():
            raise ValueError(unknown_message("anchor", anchor, labels, brief=True))
        name = self.votes.group_name(group)
        raise ValueError(f"the anchor {anchor!r} was not compared in group {name!r}")


def fit_table(
    table: Any,
    preset: str | None = None,
    *,
    law: str | AbstractRootLaw | None = None,
    prior_std: float | None = None,
    level: float = 0.95,
    draws: int = 1000,
    min_comparisons: float = 0.0,
    seed: int = 0,
    intervals: bool = True,
    progress: bool = False,
    **options: Unpack[VoteOptions],
) -> Ranking:
    """Rank the items of a table of comparisons.

    **Arguments:**

    - `table`: a pandas, Polars or PyArrow table, a file name, or `Votes`.
    - `preset`: the kind of table, one of `PRESETS`; its law and prior are the defaults.
    - `law`: a law, or its name: `"uniform"`, `"knary:21"`, `"davidson:1"`, `"skellam:2.7"` …
    - `prior_std`: σ of the scores; `inf` for none (maximum likelihood).
    - `level`: the level of score and rank intervals. `draws`, `seed`: the number of posterior draws
      for rank intervals, and their random seed. Groups of more than 8,192 items have fewer draws,
      at least 100, and their standard deviations are estimated from the same draws.
    - `intervals`: whether to compute standard deviations and intervals, which for large tables take
      longer than the fit; their columns are empty otherwise.
    - `min_comparisons`: items whose comparisons have less total weight, or none, get no rank, and
      other items are not ranked against them.
    - `progress`: show a progress bar on a terminal, through all stages.
    - the options of `VoteOptions`: columns, groups (`by`), ties, weights and decay.

    **Returns:** a `Ranking`. A group whose fit fails has empty scores and does not affect the
    others: see `Ranking.failures` and `Ranking.facts`.
    """
    with show_stages(("reading", *FIT_STAGES), enabled=progress):
        begin_stage("reading")
        votes = as_votes(table, preset, options)
        chosen = law_named(votes.preset.law if law is None else law)
        model = _checked_model(votes, chosen, prior_std)
        ranks = _checked_options(level, draws, min_comparisons)
        votes.refuse_self_comparisons()
        _refuse_clashes(votes)
        value = votes.values_under(chosen)
        comparisons = Comparisons(
            votes.a, votes.b, value, votes.weight, num_items=len(votes.items), group=votes.group
        )
        begin_stage("fitting")
        found = fit(model, comparisons, progress=progress)
        if np.any(found.result == RESULTS.invalid_data):
            votes.refuse_outside(chosen)
        if intervals:
            uncertainty = score_uncertainty(found, ranks, seed)
        else:
            uncertainty = no_uncertainty(found, min_comparisons)
    table = pa.table(_result_columns(votes, found, uncertainty))
    draws_made, error = uncertainty.rank_draws, uncertainty.std_error
    return Ranking(table, votes, found, level, std_error=error, rank_draws=draws_made)


def _checked_model(votes: Votes, law: AbstractRootLaw, prior_std: float | None) -> Model:
    if prior_std is not None and np.ndim(prior_std):
        raise ValueError("prior_std must be one number for all groups")
    return Model(law, votes.preset.prior_std if prior_std is None else prior_std)


def _checked_options(level: float, draws: int, min_comparisons: float) -> RankOptions:
    whole_number("draws", draws, at_least=1)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    if not 0 <= min_comparisons < np.inf:
        raise ValueError(f"min_comparisons must be a non-negative number, not {min_comparisons}")
    return RankOptions(level, draws, min_comparisons)


def _result_columns(votes: Votes, found: Fit, uncertainty: Uncertainty) -> dict[str, pa.Array]:
    rows, group, scores = found.comparisons, found.group, np.asarray(found.scores)
    a, b = np.asarray(rows.a), np.asarray(rows.b)
    counts = item_sums_on_host(a, b, _is_counted(votes), rows.num_items)
    order = np.lexsort((found.item, -scores, np.isnan(uncertainty.rank), group))
    columns = {
        "score": scores,
        "std": uncertainty.std,
        "lower": uncertainty.lower,
        "upper": uncertainty.upper,
        "rank": uncertainty.rank,
        "rank_lower": uncertainty.rank_lower,
        "rank_upper": uncertainty.rank_upper,
        "comparisons": counts,
        "component": _components(rows, group),
    }
    labels = {
        name: labels.take(pa.array(group[order])) for name, labels in votes.group_labels.items()
    }
    labels["item"] = votes.items.take(pa.array(found.item[order]))
    whole = ("rank", "rank_lower", "rank_upper", "comparisons", "component")
    return labels | {name: _column(x[order], name in whole) for name, x in columns.items()}


def _refuse_clashes(votes: Votes) -> None:
    for name in votes.group_labels:
        if name in RESULT_COLUMNS:
            votes.columns.refuse(
                f"rename the group column {name!r}: the result has a column of that name"
            )


def _is_counted(votes: Votes) -> np.ndarray:
    """1 for each comparison, 0 for the second half of a split tie and for rows of weight 0."""
    is_new = np.append(True, votes.row[1:] != votes.row[:-1])[: len(votes)]
    return ((votes.weight > 0) & is_new).astype(np.int64)


def _column(values: np.ndarray, is_whole: bool = False) -> pa.Array:
    """Numbers as a column, null for NaN."""
    missing = np.isnan(values)
    filled = np.where(missing, 0, values)
    kept = filled.astype(np.int64) if is_whole else filled.astype(np.float64)
    return pa.array(kept, mask=missing)


def _known_entry(values: np.ndarray | None, index: int, kind: type) -> Any:
    """An entry as a Python number, None for NaN."""
    return None if values is None or np.isnan(values[index]) else kind(values[index])


def _floats(table: pa.Table, name: str) -> np.ndarray:
    """A column with NaN for null."""
    return table[name].to_numpy().astype(float)


def _components(rows: Comparisons, group: np.ndarray) -> np.ndarray:
    """The connected component of each score in its group, 1 for the largest."""
    a, b, weight = (np.asarray(x) for x in (rows.a, rows.b, rows.weight))
    component = component_numbers(a, b, weight, rows.num_items)
    members = np.bincount(component)
    number = members.size
    owner = np.zeros(number, np.int64)
    owner[component] = group
    order = np.lexsort((np.arange(number), -members, owner))
    place = np.empty(number, np.int64)
    place[order] = np.arange(number) - np.searchsorted(owner[order], owner[order])
    return place[component] + 1
