"""What the page says first: how much was compared, how it was fitted, and whether that worked."""

import numpy as np

from .._inference._results import RESULTS
from ..frames import Findings, Ranking
from ..frames._law_names import name_of
from ._html import brief, counted, named, text

_SHOWN = 20  # failures named one by one


def summary(ranking: Ranking, findings: Findings, elo: bool) -> str:
    """A paragraph, and a box with the fits that failed."""
    return f"{_failures(ranking)}<p>{' '.join(_sentences(ranking, findings, elo))}</p>"


def _sentences(ranking: Ranking, findings: Findings, elo: bool) -> list[str]:
    """The paragraph, as HTML."""
    votes, model = ranking.votes, ranking.fit.model
    size = counted(findings.num_rows, "comparison") + " of " + counted(findings.num_items, "item")
    if votes.group_labels:
        columns = " and ".join(text(name) for name in votes.group_labels)
        size += f" in {counted(votes.num_groups, 'group')} by {columns}, each a ranking of its own"
    ties = f", {counted(votes.num_ties, 'tie')} among them" if votes.num_ties else ""
    dropped = f" ({votes.num_dropped:,} left out)" if votes.num_dropped else ""
    prior = float(model.prior_std)
    held = f"a normal prior of standard deviation σ = {brief(prior)} on every score"
    held = held if np.isfinite(prior) else "no prior (σ = ∞)"
    scale = "Scores are on the scale of Elo; higher" if elo else "A higher score"
    return [
        f"{size}{ties}{dropped}.",
        f"Scores are fitted by the law <strong>{text(name_of(model.law))}</strong> with {held}.",
        f"{scale} is better. Intervals of scores and ranks are at a level of "
        f"{brief(100 * ranking.level)}%, from the curvature at the optimum (Laplace’s "
        "approximation).",
        *_unranked(ranking),
        _convergence(ranking),
        _verdict(findings),
    ]


def _unranked(ranking: Ranking) -> list[str]:
    """How many items of groups that have ranks have none."""
    owner = np.asarray(ranking.fit.comparisons.group)
    is_ranked = ranking.arrow["rank"].is_valid().to_numpy()
    has_ranks = np.zeros(ranking.fit.groups.size, bool)
    has_ranks[owner[is_ranked]] = True
    count = int(np.count_nonzero(has_ranks[owner] & ~is_ranked))
    if not count:
        return []
    verb = "has" if count == 1 else "have"
    return [f"{counted(count, 'item')} {verb} too few comparisons for a rank."]


def _convergence(ranking: Ranking) -> str:
    has_failed = np.asarray(ranking.fit.result != RESULTS.successful)
    failed, size = int(has_failed.sum()), has_failed.size
    if failed:
        verb = "has" if failed == 1 else "have"
        return f"<strong>{failed:,} of {counted(size, 'fit')} {verb} failed.</strong>"
    bound = float(np.max(np.asarray(ranking.fit.error_bound), initial=0))
    which = "The fit" if size == 1 else f"All {size:,} fits"
    if not np.isfinite(bound):  # without a prior nothing is certified
        return f"{which} converged."
    each = "" if size == 1 else "each "
    shown = f"{bound:.2g}".replace("-", "−")
    return f"{which} converged, {each}to within {shown} of the optimum (certified)."


def _verdict(findings: Findings) -> str:
    """What the doctor has to say, in one sentence."""
    found = [finding.severity for finding in findings]
    listed = [
        counted(found.count(name), name) for name in ("error", "warning", "note") if name in found
    ]
    if not listed:
        return "The data raise no doubts."
    return f'Findings on the data: <a href="#findings">{" and ".join(_joined(listed))}</a>.'


def _joined(parts: list[str]) -> list[str]:
    return parts if len(parts) < 3 else [", ".join(parts[:-1]), parts[-1]]


def _failures(ranking: Ranking) -> str:
    """The fits that failed, by group; nothing if there are none."""
    votes, fit = ranking.votes, ranking.fit
    failed = np.flatnonzero(fit.result != RESULTS.successful)
    if not failed.size:
        return ""
    lines = []
    for i in failed[:_SHOWN]:
        where = named(votes.group_name(fit.groups[i])) + ": " if votes.group_labels else ""
        lines.append(f"<li>{where}{text(fit.result[i].message)}</li>")
    if failed.size > _SHOWN:
        lines.append(f"<li>and {failed.size - _SHOWN:,} more</li>")
    what = f"{failed.size:,} of {counted(fit.groups.size, 'fit')} failed; there are no scores of:"
    what = what if votes.group_labels else "The fit failed, and there are no scores:"
    return (
        f'<div class="failure" role="alert"><p><strong>{what}</strong></p>'
        f"<ul>{''.join(lines)}</ul></div>"
    )
