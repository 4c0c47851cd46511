"""`fit_table`: from a table of comparisons to a table of scores, ranks and how sure they are."""

import math
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np
import pyarrow as pa

from .. import _graph
from .._arrays import whole_number
from .._fit import RESULTS
from .._model import Model
from .._user_comparisons import UserComparisons
from .._user_fits import UserFits
from .._users import fit_users
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
    - `votes`, `fits`: what was read, and the fit of each group.
    - `level`: of the intervals; `is_elo`: whether `to_elo` made this.
    """

    arrow: pa.Table
    votes: Votes
    fits: UserFits
    level: float
    is_elo: bool = False

    @property
    def table(self) -> Any:
        """The table, of the kind that was given; of PyArrow for files."""
        return like(self.votes.columns.native, self.arrow)

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What is known of each group's fit: law, σ, size, and whether and how well it ended."""
        votes, fits = self.votes, self.fits
        components = _largest(self.arrow["component"].to_numpy(), fits)
        # Half ties are two entries of one comparison; those of no weight are none.
        counts = np.add.reduceat(_is_counted(votes, fits), fits.comparisons.row_offsets[:-1])
        return [
            votes.group_of(fits.users[i])
            | {
                "law": name_of(fits.model.law),
                "prior_std": float(fits.model.prior_std),
                "items": int(np.diff(fits.comparisons.item_offsets)[i]),
                "comparisons": int(counts[i]),
                "components": int(components[i]),
                "converged": bool(fits.result_codes[i] == RESULTS.successful.value),
                "result": RESULTS(int(fits.result_codes[i])).name,
                "gradient_norm": float(fits.gradient_norms[i]),
                "error_bound": float(fits.error_bounds[i]),
            }
            for i in range(len(fits))
        ]

    def failures(self) -> list[str]:
        """What went wrong, a line for each group whose fit failed."""
        codes = self.fits.result_codes
        failed = np.flatnonzero(codes != RESULTS.successful.value)
        return [self._failure(i, RESULTS(int(codes[i]))) for i in failed.tolist()]

    def _failure(self, number: int, result: RESULTS) -> str:
        user = self.fits.users[number]
        message = f"{self.votes.group_name(user) or self.votes.name}: {result.message}"
        if result is not RESULTS.no_finite_optimum:
            return message
        failed = self.fits.for_user(user.item())
        items = self.fits.item[self.fits.comparisons.item_offsets[number] :]
        unbounded = _graph.unbounded_items(failed.model, failed.comparisons).items
        names = [repr(self.votes.label(items[i])) for i in unbounded[:_NAMED]]
        more = f" and {unbounded.size - _NAMED} more" if unbounded.size > _NAMED else ""
        return f"{message}. Items with no bound: {', '.join(names)}{more}"

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
        edge = float(self.fits.model.law.max_value)
        if not math.isfinite(edge):
            name = type(self.fits.model.law).__name__
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
        group = self.fits.user  # rows are ordered by group, as scores are
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
    users = UserComparisons.from_arrays(votes.group, votes.a, votes.b, value, votes.weight)
    fits = fit_users(model, users, progress=progress)
    if (fits.result_codes == RESULTS.invalid_data.value).any():
        votes.refuse_outside(chosen)
    columns = _result_columns(votes, fits, RankOptions(level, draws, min_comparisons), seed)
    return Ranking(pa.table(columns), votes, fits, level)


def _result_columns(
    votes: Votes, fits: UserFits, options: RankOptions, seed: int
) -> dict[str, pa.Array]:
    data = fits.comparisons
    group = np.repeat(fits.users, np.diff(data.item_offsets))
    spread = spread_of(fits, options, seed)
    ends = np.concatenate([_slots(data, data.a), _slots(data, data.b)])
    counted = np.tile(_is_counted(votes, fits), 2).astype(bool)
    order = np.lexsort((fits.item, -fits.scores, np.isnan(spread.rank), group))
    found = {
        "score": fits.scores,
        "std": spread.std,
        "lower": spread.lower,
        "upper": spread.upper,
        "rank": spread.rank,
        "rank_lower": spread.rank_lower,
        "rank_upper": spread.rank_upper,
        "comparisons": np.bincount(ends[counted], minlength=group.size),
        "component": _components(fits, group),
    }
    labels = {
        name: labels.take(pa.array(group[order])) for name, labels in votes.group_labels.items()
    }
    labels["item"] = votes.items.take(pa.array(fits.item[order]))
    whole = ("rank", "rank_lower", "rank_upper", "comparisons", "component")
    return labels | {name: _column(x[order], name in whole) for name, x in found.items()}


def _refuse_clashes(votes: Votes) -> None:
    for name in votes.group_labels:
        if name in RESULT_COLUMNS:
            votes.columns.refuse(f"the group column {name!r} has the name of a result's: rename it")


def _is_counted(votes: Votes, fits: UserFits) -> np.ndarray:
    """1 for each entry that is a comparison, 0 for the second half of a tie and for no weight."""
    data = fits.comparisons
    is_new = np.append(True, votes.row[1:] != votes.row[:-1])[: len(votes)]
    return ((data.weight > 0) & is_new[data.row]).astype(np.int64)


def _column(values: np.ndarray, is_whole: bool = False) -> pa.Array:
    """Numbers, null where there are none."""
    missing = np.isnan(values)
    filled = np.where(missing, 0, values)
    kept = filled.astype(np.int64) if is_whole else filled.astype(np.float64)
    return pa.array(kept, mask=missing)


def _floats(table: pa.Table, name: str) -> np.ndarray:
    """A column with NaN for null."""
    return table[name].to_numpy().astype(float)


def _slots(data: UserComparisons, item: np.ndarray) -> np.ndarray:
    """The positions of items in the scores of all users."""
    return item + np.repeat(data.item_offsets[:-1], np.diff(data.row_offsets))


def _components(fits: UserFits, group: np.ndarray) -> np.ndarray:
    """Of each score, which part of its group's graph it is in: 1 is the largest."""
    data, size = fits.comparisons, fits.scores.size
    ends = _slots(data, data.a), _slots(data, data.b)
    component = _graph.component_numbers(*ends, data.weight, size)
    members = np.bincount(component)
    number = members.size
    owner = np.zeros(number, np.int64)
    owner[component] = group
    order = np.lexsort((np.arange(number), -members, owner))
    place = np.empty(number, np.int64)
    place[order] = np.arange(number) - np.searchsorted(owner[order], owner[order])
    return place[component] + 1


def _largest(numbers: np.ndarray, fits: UserFits) -> np.ndarray:
    """The largest number of each group's rows; the rows are ordered by group."""
    return np.maximum.reduceat(numbers, fits.comparisons.item_offsets[:-1])
