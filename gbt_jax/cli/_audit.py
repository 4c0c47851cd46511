"""`gbt audit`: the comparisons that decide a ranking, and checks of its guarantees."""

import json
import math
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .._util._progress import begin_stage, show_stages
from . import _session
from ._options import ModelOptions, PrintOptions, TableOptions
from ._session import console

_INFLUENCES = 10  # shown


def audit(
    table: TableOptions,
    model: ModelOptions,
    printing: PrintOptions,
    group: Annotated[
        str | None,
        typer.Option(help="Group to audit, if there are several: its labels, separated by commas."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(min=1, help="Largest set of comparisons tried to change the first place."),
    ] = 100,
    is_monotone_checked: Annotated[
        bool,
        typer.Option(
            "--check-monotone",
            help="Also check that every score rises with its comparisons. For laws with steps "
            "this refits after each step: minutes for thousands of comparisons.",
        ),
    ] = False,
) -> int:
    """Find the comparisons that decide the first place, and those with the largest influence.

    Also checks resilience, and monotonicity with --check-monotone. The exit code is 1 if one of
    these checks fails.
    """
    with show_stages(["reading", "fitting", "auditing"], enabled=not printing.quiet):
        _session.start(table.file)
        ranking = model.ranking(table.votes(), intervals=False)
        number = _group_number(ranking, group)
        begin_stage("auditing")
        found = _audit_group(ranking, number, limit, is_monotone_checked)
    if printing.json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    elif not printing.quiet:
        _show(found)
    return 1 if any(check["holds"] is False for check in found["checks"]) else 0


def _group_number(ranking: Any, group: str | None) -> int:
    """The number of the selected group."""
    from ..frames._suggestions import unknown_message

    names = [ranking.votes.group_name(code) for code in ranking.fit.groups]
    if group is None:
        if len(names) == 1:
            return 0
        shown = "; ".join(names[:5]) + (" …" if len(names) > 5 else "")
        raise ValueError(f"there are {len(names)} groups: select one with --group ({shown})")
    wanted = ", ".join(part.strip() for part in group.split(","))
    if wanted not in names:
        raise ValueError(unknown_message("group", group, names))
    return names.index(wanted)


def _audit_group(
    ranking: Any, number: int, limit: int, is_monotone_checked: bool
) -> dict[str, Any]:
    import numpy as np

    from .._curvature import curvature
    from .._data._groups import sort_by_group
    from .._inference._results import RESULTS
    from ..guarantees._checks import check_monotone, check_resilience
    from ..influence._counterfactuals import flip_set

    votes, group = ranking.votes, ranking.fit.groups[number].item()
    one = ranking.fit[group]
    if one.result != RESULTS.successful:
        raise ValueError(ranking.failures()[0])
    layout = sort_by_group(ranking.fit.comparisons)
    rows = layout.row[slice(*layout.row_offsets[number : number + 2])]
    labels = one.item
    one = _with_labels(one, [votes.label(code) for code in labels])
    made = curvature(one)

    def describe_row(row: int) -> dict[str, Any]:
        index = int(rows[row])
        return {
            "row": int(votes.row[index]) + 1,
            "a": votes.label(votes.a[index]),
            "b": votes.label(votes.b[index]),
            "value": float(votes.value[index]),
        }

    def in_table(case: str) -> str:
        """A case of a check, with the row number of the table instead of the group's."""
        row = lambda found: f"row {describe_row(int(found[1]))['row']}"  # noqa: E731
        return re.sub(r"^row (\d+)", row, case)

    best = int(np.argmax(one.scores))
    flips = {}
    for means in ("removal", "reversal"):
        flip = flip_set(one, top=1, by=means, limit=limit, using=made)
        after = int(np.argmax(flip.fit.scores))
        flips[means] = {
            "is_found": flip.is_found,
            "limit": flip.limit,
            "top_after": votes.label(labels[after]) if flip.is_found else None,
            "rows": [describe_row(row) for row in flip.rows.tolist()],
        }
    checks = [check_monotone(one)] if is_monotone_checked else []
    if np.isfinite(float(one.model.law.max_value)) and np.isfinite(one.model.prior_std).all():
        checks.append(check_resilience(one))
    return {
        "group": votes.group_name(group) or None,
        "top": votes.label(labels[best]),
        "comparisons": len(one.comparisons),
        "flips": flips,
        "influences": _largest_influences(one, made, describe_row),
        "checks": [
            {
                "claim": check.claim,
                "verdict": check.verdict,
                "holds": check.holds,
                "margin": None if math.isnan(check.margin) else check.margin,
                "worst": in_table(check.worst),
                "checked": check.checked,
                "not_evaluated": check.not_evaluated,
            }
            for check in checks
        ],
    }


def _largest_influences(
    fit: Any, curvature: Any, describe_row: Callable[[int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """The comparisons whose removal changes the scores most, and the item that each moves most."""
    import numpy as np

    from ..influence._influence import leave_out

    changes = np.asarray(leave_out(fit, using=curvature))
    lengths = np.nan_to_num(np.linalg.norm(changes, axis=0))
    found = []
    for row in np.argsort(-lengths)[:_INFLUENCES].tolist():
        item = int(np.abs(changes[:, row]).argmax())
        moved = {"item": fit.item[item].item(), "item_change": float(changes[item, row])}
        found.append(describe_row(row) | {"change": float(lengths[row])} | moved)
    return found


def _with_labels(fit: Any, labels: list[Any]) -> Any:
    """The fit with the labels of the table, for messages that name items."""
    import equinox as eqx
    import numpy as np

    from .._data._comparisons import Comparisons

    # Labels ascend with the numbers of items, so that the numbers stay the same.
    rows, names = fit.comparisons, np.array(labels)
    a, b = names[np.asarray(rows.a)], names[np.asarray(rows.b)]
    named = Comparisons.from_labels(a, b, rows.value, rows.weight)
    return eqx.tree_at(lambda fit: fit.comparisons, fit, named)


def _show(found: dict[str, Any]) -> None:
    from rich.text import Text

    terminal = console()
    where = f" of {found['group']}" if found["group"] else ""
    terminal.print(Text(f"First place{where}: {found['top']}", style="bold"))
    verbs = {"removal": "leaving out", "reversal": "reversing"}
    for means, flip in found["flips"].items():
        if flip["is_found"]:
            count = f"{len(flip['rows'])} of {found['comparisons']:,} comparisons"
            line = f"· {verbs[means]} {count} puts {flip['top_after']} first"
        else:
            line = f"· no {means} of up to {flip['limit']} comparisons was found to change it"
        terminal.print(Text(line))
    rows = found["flips"]["removal"]["rows"]
    if rows:
        terminal.print(_rows_table(rows[:_INFLUENCES], "\nComparisons that decide the first place"))
    terminal.print(_rows_table(found["influences"], "\nComparisons with the largest influence"))
    terminal.print()
    for check in found["checks"]:
        style = {True: "bold green", False: "red", None: "yellow"}[check["holds"]]
        verdict = Text(f"{check['verdict']}: ", style=style)
        terminal.print(verdict + Text(check["claim"], style="default"))
        lost = f", {check['not_evaluated']:,} not evaluated" if check["not_evaluated"] else ""
        terminal.print(
            Text(f"  {check['checked']:,} cases{lost}; closest: {check['worst']}", "dim")
        )


def _rows_table(rows: list[dict[str, Any]], title: str) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title=title, title_justify="left", header_style="bold")
    for name in ("row", "a", "b", "value"):
        side = "left" if name in ("a", "b") else "right"
        table.add_column(name, justify=side, no_wrap=True, overflow="ellipsis")
    has_change = "change" in rows[0]
    if has_change:
        table.add_column("moves", no_wrap=True, overflow="ellipsis")
    for row in rows:
        cells = [str(row["row"]), Text(str(row["a"])), Text(str(row["b"])), f"{row['value']:g}"]
        if has_change:
            cells.append(Text(f"{row['item']} by {row['item_change']:+.2f}"))
        table.add_row(*cells)
    return table
