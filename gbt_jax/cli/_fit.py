"""`gbt fit`: a ranking from a table."""

import sys
from typing import Annotated, Any

import typer

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
        str | None, typer.Option(help="Item with an Elo of 1000; by default a score of 0 has it.")
    ] = None,
) -> int:
    """Rank the items of FILE: scores, intervals and ranks.

    Prints a table on a terminal, and CSV into a pipe.
    """
    from ..frames._files import check_output_name

    if output is not None:
        check_output_name(output)
    _session.start()
    votes = table.votes()
    ranking = model.ranking(votes, progress=not printing.quiet)
    failures = ranking.failures()
    for failure in failures:
        warn(failure)
    if len(failures) == ranking.fit.groups.size:
        return 2
    if elo or anchor is not None:
        ranking = ranking.to_elo(anchor=_label(anchor, votes))
    for line in summary(ranking):
        note(line, quiet=printing.quiet)
    _write(ranking, output, as_json=printing.json, digits=0 if elo else 2)
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
    split = sum(fact["components"] > 1 for fact in facts)
    if split:
        where = f" in {split:,} groups" if len(facts) > 1 else ""
        lines.append(f"the comparison graph is disconnected{where}: see column component")
    return lines


def _write(ranking: Any, output: str | None, *, as_json: bool, digits: int) -> None:
    from ..frames._files import as_json as json_text
    from ..frames._files import write_table, write_text

    if output is not None:
        write_table(ranking.arrow, output, facts=ranking.facts)
        if not as_json:
            return
    if as_json:
        sys.stdout.write(json_text(ranking.arrow, ranking.facts))
    elif sys.stdout.isatty():
        show_ranking(ranking, digits=digits)
    else:
        write_text(ranking.arrow, sys.stdout.buffer)
    sys.stdout.flush()
