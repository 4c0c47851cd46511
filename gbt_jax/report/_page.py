"""`report_html` and `write_report`: assemble the sections of the page.

The content security policy allows only the style and script of the page, by hash, and loads
nothing: even a label inserted as HTML by mistake could not run a script.
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
from ..frames._files import atomic_write
from ._calibration_plot import calibration_section
from ._findings import findings_section
from ._html import text
from ._provenance import data_name, provenance
from ._ranking_table import page_rows, ranking_data, ranking_section
from ._summary import summary
from ._top import top_section


class ReportOptions(TypedDict, total=False):
    """Options of a report.

    - `title`: title of the page, by default the name of the data.
    - `elo`: show scores on the Elo scale, as `Ranking.to_elo()` does.
    - `preset`, `seed`: the arguments of `fit_table`, to be listed in the provenance.
    - `made`: the time of creation, to be listed in the provenance.
    - `top_groups`: for how many of the largest groups the first place is analysed, which takes some
      seconds each; by default 3.
    """

    title: str | None
    elo: bool
    preset: str | None
    seed: int | None
    made: datetime | None
    top_groups: int


def report_html(ranking: Ranking, findings: Findings, **options: Unpack[ReportOptions]) -> str:
    """A ranking with its diagnostics as a self-contained page of HTML.

    The page has a table that can be sorted and searched, the findings of `check`, the calibration
    on held-out comparisons, the comparisons that decide the first places, and the provenance. The
    same arguments give the same page.

    **Arguments:**

    - `ranking`: the result of `fit_table`, not on the Elo scale (see `elo`).
    - `findings`: the result of `check` for the same votes.
    - the options of `ReportOptions`.

    **Returns:** the page as text.
    """
    elo = options.get("elo") or False
    shown = page_rows(ranking, elo)
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
    """Write `report_html` to a file atomically.

    **Arguments:**

    - `path`: the HTML file.
    - `ranking`, `findings`, and the options of `ReportOptions`: as in `report_html`; `made` is the
      current time by default.
    """
    options.setdefault("made", datetime.now(UTC))
    page = report_html(ranking, findings, **options)
    with atomic_write(path) as stream:
        stream.write(page.encode())


def _asset(name: str) -> str:
    file = importlib.resources.files(__package__ or "") / name
    return file.read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}"


def _source(content: str) -> str:
    """The hash of a style or script in a content security policy."""
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _elo_unit(ranking: Ranking) -> float:
    """Elo points per unit of score."""
    return 400 * 2 * float(ranking.fit.model.law.max_value) / math.log(10)
