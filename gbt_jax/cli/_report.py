"""`gbt report`: one page with the ranking and what stands behind it."""

from typing import Annotated

import typer

from . import _session
from ._options import ModelOptions, TableOptions
from ._session import note, warn


def report(
    table: TableOptions,
    model: ModelOptions,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Page to write, such as report.html.")
    ] = "report.html",
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    elo: Annotated[bool, typer.Option("--elo", help="Scores on the scale of Elo.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> int:
    """Write a page on FILE that needs no network: ranking, findings, calibration, provenance."""
    from ..frames._files import check_folder

    check_folder(output)
    _session.start()
    from .. import report as pages
    from ..frames import check

    votes = table.votes()
    ranking = model.ranking(votes, progress=not quiet)
    failures = ranking.failures()
    for failure in failures:
        warn(failure)
    if len(failures) == ranking.fit.groups.size:
        return 2
    pages.write_report(
        output,
        ranking,
        check(votes),
        title=title,
        elo=elo,
        preset=table.preset,
        seed=model.seed,
    )
    note(f"wrote {output}", quiet=quiet)
    return 1 if failures else 0
