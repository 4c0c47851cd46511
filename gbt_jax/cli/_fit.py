"""`gbt fit`: a ranking from a table."""

import math
import sys
from typing import Annotated, Any

import typer

from .._util._progress import FIT_STAGES, begin_stage, show_stages
from . import _session
from ._options import ModelOptions, PrintOptions, TableOptions
from ._ranking_table import show_ranking
from ._session import note, warn


def fit(
    table: TableOptions,
    model: ModelOptions,
    printing: PrintOptions,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="File to write: .csv, .tsv, .parquet, .json, .jsonl."),
    ] = None,
    elo: Annotated[bool, typer.Option("--elo", help="Print scores on the Elo scale.")] = False,
    anchor: Annotated[
        str | None, typer.Option(help="Item with an Elo of 1000; by default a score of 0 has 1000.")
    ] = None,
    has_intervals: Annotated[
        bool,
        typer.Option(
            "--intervals/--no-intervals",
            help="Compute standard deviations and intervals; without them large tables are faster.",
        ),
    ] = True,
) -> int:
    """Rank the items of FILE: scores, intervals and ranks.

    Prints a table on a terminal, and CSV into a pipe.
    """
    from ..frames._files import check_output_name, write_table

    if output is not None:
        check_output_name(output)
    skipped = () if has_intervals else ("intervals",)
    stages = [name for name in FIT_STAGES if name not in skipped]
    with show_stages(["reading", *stages, "writing"], enabled=not printing.quiet):
        _session.start(table.file)
        votes = table.votes()
        ranking = model.ranking(votes, intervals=has_intervals)
        failures = ranking.failures()
        for failure in failures:
            warn(failure)
        if len(failures) == ranking.fit.groups.size:
            return 2
        if elo or anchor is not None:
            ranking = ranking.to_elo(anchor=_label(anchor, votes))
        if output is not None:
            begin_stage("writing")
            write_table(ranking.arrow, output, facts=ranking.facts)
    for line in summary(ranking):
        note(line, quiet=printing.quiet)
    if output is None or printing.json:
        _print(ranking, as_json=printing.json, digits=0 if elo else 2)
    return 1 if failures else 0


def _label(anchor: str | None, votes: Any) -> Any:
    """The anchor as a label: an integer if labels are integers."""
    if anchor is None or isinstance(votes.label(0), str):
        return anchor
    return int(anchor) if anchor.lstrip("-").isdigit() else anchor


def summary(ranking: Any) -> list[str]:
    """Size, model and convergence in a few lines."""
    votes, facts = ranking.votes, ranking.facts
    groups = f" in {len(facts):,} groups" if len(facts) > 1 else ""
    lines = [
        f"{votes.columns.num_rows:,} comparisons of {len(votes.items):,} items{groups}; "
        f"law {facts[0]['law']}, prior σ {facts[0]['prior_std']:g}"
    ]
    if votes.num_ties:
        treated = f"{votes.num_dropped:,} left out" if votes.num_dropped else "all counted"
        lines.append(f"{votes.num_ties:,} ties, {treated}")
    converged = [fact for fact in facts if fact["converged"]]
    worst = max((fact["gradient_norm"] for fact in converged), default=float("nan"))
    whole = "converged" if len(converged) == len(facts) else f"{len(converged):,} converged"
    lines.append(f"{whole}, largest gradient {worst:.0e}")
    lines += _estimates(facts)
    split = sum(fact["components"] > 1 for fact in facts)
    if split:
        where = f" in {split:,} groups" if len(facts) > 1 else ""
        lines.append(f"the comparison graph is disconnected{where}: see column component")
    return lines


def _estimates(facts: list[dict[str, Any]]) -> list[str]:
    """The error of standard deviations that are estimated, in one line."""
    found = [fact for fact in facts if fact["std_error"]]
    if not found:
        return []
    draws = min(fact["rank_draws"] for fact in found)
    worst = max(fact["std_error"] for fact in found)
    where = "" if len(found) == len(facts) else f" in {len(found):,} groups"
    return [
        f"std and ranks estimated from {draws:,} draws{where}; "
        f"standard error of a std at most {math.ceil(1000 * worst) / 10:g}%"
    ]


def _print(ranking: Any, *, as_json: bool, digits: int) -> None:
    from ..frames._files import as_json as json_text
    from ..frames._files import write_text

    if as_json:
        sys.stdout.write(json_text(ranking.arrow, ranking.facts))
    elif sys.stdout.isatty():
        show_ranking(ranking, digits=digits)
    else:
        write_text(ranking.arrow, sys.stdout.buffer)
    sys.stdout.flush()
