"""`fit_table`: from a table of comparisons to a table of scores, ranks and how sure they are."""

import math
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np
import pyarrow as pa

from .._data._comparisons import Comparisons
from .._data._graph import component_numbers
from .._data._groups import sort_by_group
from .._data._incidence import item_sums_on_host
from .._inference._existence import unbounded_items
from .._inference._fit import Fit, fit
from .._inference._results import RESULTS
from .._model import Model
from .._util._arrays import whole_number
from ..laws import AbstractRootLaw
from ._columns import like
from ._law_names import law_named, name_of
from ._spread import RankOptions, spread_of
from ._votes import VoteOptions, Votes, votes_of

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

    - `arrow`: the table, as PyArrow: group columns, then `RESULT_COLUMNS`. `std`, `lower` and
      `upper` are Laplace's, rank intervals are of its draws; null where a fit failed. Items
      without a rank (see `fit_table`) come last in their group.
    - `votes`, `fit`: what was read, and the fit, with a group for each ranking.
    - `level`: of the intervals; `is_elo`: whether `to_elo` made this.
    """

    arrow: pa.Table
    votes: Votes
    fit: Fit
    level: float
    is_elo: bool = False

    @property
    def table(self) -> Any:
        """The table, of the kind that was given; of PyArrow for files."""
        return like(self.votes.columns.native, self.arrow)

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What is known of each group's fit: law, σ, size, and whether and how well it ended."""
        votes, fit, layout = self.votes, self.fit, sort_by_group(self.fit.comparisons)
        components = np.maximum.reduceat(
            self.arrow["component"].to_numpy(), layout.item_offsets[:-1]
        )
        # Half ties are two entries of one comparison; those of no weight are none.
        counts = np.bincount(votes.group, _is_counted(votes), votes.num_groups)
        return [
            votes.group_of(group)
            | {
                "law": name_of(fit.model.law),
                "prior_std": float(fit.model.prior_std),
                "items": int(layout.num_items[i]),
                "comparisons": int(counts[group]),
                "components": int(components[i]),
                "converged": bool(fit.result[i] == RESULTS.successful),
                "result": fit.result[i].name,
                "gradient_norm": float(fit.gradient_norm[i]),
                "error_bound": float(fit.error_bound[i]),
            }
            for i, group in enumerate(fit)
        ]

    def failures(self) -> list[str]:
        """What went wrong, a line for each group whose fit failed."""
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
        return f"{one.result.message}. Items with no bound: {', '.join(names)}{more}"

    def to_elo(
        self,
        *,
        scale: float = 400.0,
        base: float = 10.0,
        center: float = 1000.0,
        anchor: Any = None,
    ) -> "Ranking":
        """Scores, their deviations and intervals on the scale of Elo.

        The odds of the extreme outcomes are P(r_max)/P(−r_max) = exp(2 r_max θ_ab) under every
        law with a largest value, and `scale` points more multiply them by `base`: Binary,
        BradleyTerry and Davidson give the same Elo. A score of 0, or that of the item `anchor` in
        its group, becomes `center`.
        """
        if self.is_elo:
            raise ValueError("these scores are on the scale of Elo already")
        edge = float(self.fit.model.law.max_value)
        if not math.isfinite(edge):
            name = type(self.fit.model.law).__name__
            raise ValueError(f"{name} has no largest win, whose odds would give an Elo")
        if not (scale > 0 and base > 1 and math.isfinite(scale * base * center)):
            raise ValueError("an Elo scale must be positive, its base above 1, its center finite")
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
            where = self.votes.group_name(missing[0])
            raise ValueError(
                f"the anchor {anchor!r} is no item" + (f" of {where}" if where else "")
            )
        return score[group]


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
    progress: bool = False,
    **options: Unpack[VoteOptions],
) -> Ranking:
    """Rank the items of a table: a pandas, Polars or PyArrow table, a file, or `Votes`.

    **Arguments:**

    - `preset`: the kind of table, one of `PRESETS`; its law and prior are the defaults.
    - `law`: a law, or its name: `"uniform"`, `"knary:21"`, `"davidson:1"`, `"skellam:2.7"` …
    - `prior_std`: σ of the scores; `inf` for none (maximum likelihood).
    - `level`: of intervals of scores and ranks; `draws`, `seed`: for those of ranks.
    - `min_comparisons`: items whose comparisons have less weight in total have no rank, and are
      not among those that others are ranked against; nor are items without any weight.
    - `progress`: show a bar on a terminal.
    - the options of `VoteOptions`: columns, groups (`by`), ties, weights and decay.

    A group whose fit fails has empty scores and does not concern the others: see
    `Ranking.failures` and `Ranking.facts`.
    """
    votes = votes_of(table, preset, options)
    chosen = law_named(votes.preset.law if law is None else law)
    if prior_std is not None and np.ndim(prior_std):
        raise ValueError("prior_std must be one number, for all groups")
    model = Model(chosen, votes.preset.prior_std if prior_std is None else prior_std)
    whole_number("draws", draws, at_least=1)
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")
    if not 0 <= min_comparisons < np.inf:
        raise ValueError(f"min_comparisons must be a non-negative number, not {min_comparisons}")
    votes.refuse_selves()
    _refuse_clashes(votes)
    value = votes.values_under(chosen)
    comparisons = Comparisons(
        votes.a, votes.b, value, votes.weight, num_items=len(votes.items), group=votes.group
    )
    found = fit(model, comparisons, progress=progress)
    if np.any(found.result == RESULTS.invalid_data):
        votes.refuse_outside(chosen)
    columns = _result_columns(votes, found, RankOptions(level, draws, min_comparisons), seed)
    return Ranking(pa.table(columns), votes, found, level)


def _result_columns(
    votes: Votes, found: Fit, options: RankOptions, seed: int
) -> dict[str, pa.Array]:
    rows, group, scores = found.comparisons, found.group, np.asarray(found.scores)
    spread = spread_of(found, options, seed)
    a, b = np.asarray(rows.a), np.asarray(rows.b)
    counts = item_sums_on_host(a, b, _is_counted(votes), rows.num_items)
    order = np.lexsort((found.item, -scores, np.isnan(spread.rank), group))
    columns = {
        "score": scores,
        "std": spread.std,
        "lower": spread.lower,
        "upper": spread.upper,
        "rank": spread.rank,
        "rank_lower": spread.rank_lower,
        "rank_upper": spread.rank_upper,
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
            votes.columns.refuse(f"the group column {name!r} has the name of a result's: rename it")


def _is_counted(votes: Votes) -> np.ndarray:
    """1 for each entry that is a comparison, 0 for the second half of a tie and for no weight."""
    is_new = np.append(True, votes.row[1:] != votes.row[:-1])[: len(votes)]
    return ((votes.weight > 0) & is_new).astype(np.int64)


def _column(values: np.ndarray, is_whole: bool = False) -> pa.Array:
    """Numbers, null where there are none."""
    missing = np.isnan(values)
    filled = np.where(missing, 0, values)
    kept = filled.astype(np.int64) if is_whole else filled.astype(np.float64)
    return pa.array(kept, mask=missing)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    """A column with NaN for null."""
    return table[name].to_numpy().astype(float)


def _components(rows: Comparisons, group: np.ndarray) -> np.ndarray:
    """Of each score, which part of its group's graph it is in: 1 is the largest."""
    columns = (np.asarray(x) for x in (rows.a, rows.b, rows.weight))
    component = component_numbers(*columns, rows.num_items)
    members = np.bincount(component)
    number = members.size
    owner = np.zeros(number, np.int64)
    owner[component] = group
    order = np.lexsort((np.arange(number), -members, owner))
    place = np.empty(number, np.int64)
    place[order] = np.arange(number) - np.searchsorted(owner[order], owner[order])
    return place[component] + 1
