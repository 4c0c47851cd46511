"""`gbt report`: an HTML page with the ranking and its diagnostics."""

from typing import Annotated

import typer

from .._util._progress import FIT_STAGES, begin_stage, show_stages
from . import _session
from ._options import ModelOptions, TableOptions
from ._session import note, warn


def report(
    table: TableOptions,
    model: ModelOptions,
    output: Annotated[
        str, typer.Option("--output", "-o", help="HTML file to write.")
    ] = "report.html",
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    elo: Annotated[bool, typer.Option("--elo", help="Show scores on the Elo scale.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> int:
    """Write a self-contained HTML page: the ranking of FILE, findings, calibration, provenance."""
    from ..frames._files import check_folder

    check_folder(output)
    stages = ["reading", *FIT_STAGES, "checking", "writing"]
    with show_stages(stages, enabled=not quiet):
        _session.start(table.file)
        from .. import report as pages
        from ..frames import check

        votes = table.votes()
        ranking = model.ranking(votes)
        failures = ranking.failures()
        for failure in failures:
            warn(failure)
        if len(failures) == ranking.fit.groups.size:
            return 2
        begin_stage("checking")
        findings = check(votes)
        begin_stage("writing")
        pages.write_report(
            output,
            ranking,
            findings,
            title=title,
            elo=elo,
            preset=table.preset,
            seed=model.seed,
        )
    note(f"wrote {output}", quiet=quiet)
    return 1 if failures else 0
