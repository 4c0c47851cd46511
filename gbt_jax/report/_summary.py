"""The first paragraph: the size of the data, the model and the convergence."""

import numpy as np

from .._inference._results import RESULTS
from ..frames import Findings, Ranking
from ..frames._law_names import law_name
from ._html import compact, inline_label, plural, text

_SHOWN = 20  # failures named one by one


def summary(ranking: Ranking, findings: Findings, elo: bool) -> str:
    """A paragraph, after a box with the fits that failed."""
    return f"{_failures(ranking)}<p>{' '.join(_sentences(ranking, findings, elo))}</p>"


def _sentences(ranking: Ranking, findings: Findings, elo: bool) -> list[str]:
    """The paragraph, as HTML."""
    votes, model = ranking.votes, ranking.fit.model
    size = plural(findings.num_rows, "comparison") + " of " + plural(findings.num_items, "item")
    if votes.group_labels:
        columns = " and ".join(text(name) for name in votes.group_labels)
        size += f" in {plural(votes.num_groups, 'group')} by {columns}, each ranked separately"
    ties = f", {plural(votes.num_ties, 'tie')} among them" if votes.num_ties else ""
    dropped = f" ({votes.num_dropped:,} left out)" if votes.num_dropped else ""
    prior = float(model.prior_std)
    with_prior = f"a normal prior of standard deviation σ = {compact(prior)} on every score"
    with_prior = with_prior if np.isfinite(prior) else "no prior (σ = ∞)"
    scale = "Scores are on the Elo scale; higher" if elo else "A higher score"
    return [
        f"{size}{ties}{dropped}.",
        f"Scores are fitted with the law <strong>{text(law_name(model.law))}</strong> and "
        f"{with_prior}.",
        f"{scale} is better. Score and rank intervals have a level of "
        f"{compact(100 * ranking.level)}% and use the curvature at the optimum (Laplace’s "
        "approximation).",
        *_unranked_items(ranking),
        _convergence(ranking),
        _verdict(findings),
    ]


def _unranked_items(ranking: Ranking) -> list[str]:
    """The number of items without a rank, in groups with ranks."""
    owner = np.asarray(ranking.fit.comparisons.group)
    is_ranked = ranking.arrow["rank"].is_valid().to_numpy()
    has_ranks = np.zeros(ranking.fit.groups.size, bool)
    has_ranks[owner[is_ranked]] = True
    count = int(np.count_nonzero(has_ranks[owner] & ~is_ranked))
    if not count:
        return []
    verb = "has" if count == 1 else "have"
    return [f"{plural(count, 'item')} {verb} too few comparisons for a rank."]


def _convergence(ranking: Ranking) -> str:
    has_failed = np.asarray(ranking.fit.result != RESULTS.successful)
    failed, size = int(has_failed.sum()), has_failed.size
    if failed:
        verb = "has" if failed == 1 else "have"
        return f"<strong>{failed:,} of {plural(size, 'fit')} {verb} failed.</strong>"
    bound = float(np.max(np.asarray(ranking.fit.error_bound), initial=0))
    which = "The fit" if size == 1 else f"All {size:,} fits"
    if not np.isfinite(bound):  # without a prior there is no certificate
        return f"{which} converged."
    each = "" if size == 1 else "each "
    shown = f"{bound:.2g}".replace("-", "−")
    return f"{which} converged, {each}to within {shown} of the optimum (certified)."


def _verdict(findings: Findings) -> str:
    """The numbers of findings, in one sentence."""
    found = [finding.severity for finding in findings]
    listed = [
        plural(found.count(name), name) for name in ("error", "warning", "note") if name in found
    ]
    if not listed:
        return "The check of the data found no problems."
    return f'Findings on the data: <a href="#findings">{" and ".join(_join(listed))}</a>.'


def _join(parts: list[str]) -> list[str]:
    return parts if len(parts) < 3 else [", ".join(parts[:-1]), parts[-1]]


def _failures(ranking: Ranking) -> str:
    """The fits that failed, by group; nothing if there are none."""
    votes, fit = ranking.votes, ranking.fit
    failed = np.flatnonzero(fit.result != RESULTS.successful)
    if not failed.size:
        return ""
    lines = []
    for i in failed[:_SHOWN]:
        where = inline_label(votes.group_name(fit.groups[i])) + ": " if votes.group_labels else ""
        lines.append(f"<li>{where}{text(fit.result[i].message)}</li>")
    if failed.size > _SHOWN:
        lines.append(f"<li>and {failed.size - _SHOWN:,} more</li>")
    what = f"{failed.size:,} of {plural(fit.groups.size, 'fit')} failed and have no scores:"
    what = what if votes.group_labels else "The fit failed, so there are no scores:"
    return (
        f'<div class="failure" role="alert"><p><strong>{what}</strong></p>'
        f"<ul>{''.join(lines)}</ul></div>"
    )
