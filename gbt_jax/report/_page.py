"""`report_html` and `write_report`: the sections put together.

The policy in the page's head lets nothing be loaded, and nothing be run or styled but what is
written here, known by its hash: a label that slipped through as HTML would still be dead.
"""

import base64
import hashlib
import importlib.resources
import math
import os
import string
from datetime import UTC, datetime
from typing import TypedDict, Unpack

from ..frames import Findings, Ranking
from ..frames._files import replacing
from ._calibration_plot import calibration_section
from ._findings import findings_section
from ._html import text
from ._provenance import data_name, provenance
from ._ranking_table import ranking_data, ranking_section, shown_rows
from ._summary import summary
from ._top import top_section


class ReportOptions(TypedDict, total=False):
    """What a page may be told.

    - `title`: of the page; the name of the data if it is None.
    - `elo`: show scores on the scale of Elo, as `Ranking.to_elo()` gives them.
    - `preset`, `seed`: as they were given to `fit_table`, to be named; left out if None.
    - `made`: when, to be named.
    - `top_groups`: how many of the largest groups are asked what their first place rests on, which
      takes some seconds each; 3 unless told.
    """

    title: str | None
    elo: bool
    preset: str | None
    seed: int | None
    made: datetime | None
    top_groups: int


def report_html(ranking: Ranking, findings: Findings, **options: Unpack[ReportOptions]) -> str:
    """A ranking with its doubts as a page of HTML that stands alone.

    The ranking, to be sorted and searched, the doctor's findings, the calibration on comparisons
    kept aside, what the first places rest on, and where all of it comes from. The same arguments
    give the same page.

    **Arguments:**

    - `ranking`: of `fit_table`, with scores as they were fitted (see `elo`).
    - `findings`: of `check`, for the same votes.
    - the options of `ReportOptions`.
    """
    elo = options.get("elo") or False
    shown = shown_rows(ranking, elo)
    name = options.get("title") or f"Ranking of {data_name(ranking.votes)}"
    style, script = _asset("page.css"), _asset("page.js")
    groups = options.get("top_groups", 3)
    return string.Template(_asset("page.html")).substitute(
        title=text(name),
        policy=_policy(style, script),
        style=style,
        summary=summary(ranking, findings, elo),
        ranking=ranking_section(shown),
        findings=findings_section(findings),
        calibration=calibration_section(ranking),
        top=top_section(
            ranking,
            most_groups=groups,
            unit=_elo_unit(ranking) if elo else 1.0,
            decimals=shown.decimals + 1,
        ),
        provenance=provenance(
            ranking,
            preset=options.get("preset"),
            seed=options.get("seed"),
            made=options.get("made"),
        ),
        data=ranking_data(shown),
        script=script,
    )


def write_report(
    path: str | os.PathLike,
    ranking: Ranking,
    findings: Findings,
    **options: Unpack[ReportOptions],
) -> None:
    """Write `report_html` to a file, whole or not at all; `made` is now unless told."""
    options.setdefault("made", datetime.now(UTC))
    page = report_html(ranking, findings, **options)
    with replacing(path) as stream:
        stream.write(page.encode())


def _asset(name: str) -> str:
    file = importlib.resources.files(__package__ or "") / name
    return file.read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}"


def _source(content: str) -> str:
    """How a policy names what it allows."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _elo_unit(ranking: Ranking) -> float:
    """Elo points per unit of score."""
    return 400 * 2 * float(ranking.fit.model.law.max_value) / math.log(10)
