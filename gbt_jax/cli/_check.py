"""`gbt check`: problems in a table that make its ranking misleading."""

import json
import sys
from typing import Any

from .._util._progress import begin_stage, show_stages
from . import _session
from ._options import PrintOptions, TableOptions
from ._session import console, with_option_names

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def check(table: TableOptions, printing: PrintOptions) -> int:
    """Find problems in FILE: disconnected components, swapped sides, repeats, sparsity …

    The exit code is 1 if there are errors or warnings, 0 if there are only notes.
    """
    with show_stages(["reading", "checking"], enabled=not printing.quiet):
        _session.start(table.file)
        from ..frames import check as find

        votes = table.votes()
        begin_stage("checking")
        findings = find(votes)
    if printing.json:
        listed = [finding._asdict() for finding in findings]
        problems = {"name": findings.name, "has_problems": findings.has_problems}
        sys.stdout.write(json.dumps(problems | {"findings": listed}, indent=1) + "\n")
    elif not printing.quiet:
        _show(findings)
    return 1 if findings.has_problems else 0


def _show(findings: Any) -> None:
    from rich.padding import Padding
    from rich.text import Text

    terminal = console()
    first, *_ = str(findings).splitlines()
    terminal.print(Text(first))
    if not findings.findings:
        terminal.print("no problems found")
    for finding in findings:
        head = Text(f"\n{finding.severity}: ", style=_COLOURS[finding.severity])
        terminal.print(head + Text(with_option_names(finding.what), style="default"))
        terminal.print(Padding(Text(with_option_names(finding.advice)), (0, 0, 0, 2)))
        for example in finding.examples:
            terminal.print(Padding(Text(f"· {example}", style="dim"), (0, 0, 0, 2)))
