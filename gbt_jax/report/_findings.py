"""The findings of `check`, the worst first."""

import re

from ..frames import Finding, Findings
from ._html import text


def findings_section(findings: Findings) -> str:
    """Each finding with its advice and examples."""
    if not findings.findings:
        return "<p>No problems found.</p>"
    return "\n".join(_finding(finding) for finding in findings)


def _finding(finding: Finding) -> str:
    what = text(finding.what[:1].upper() + finding.what[1:])
    advice = re.sub("`([^`]+)`", r"<code>\1</code>", text(finding.advice))
    examples = "".join(
        f'<li><bdi class="label">{text(example)}</bdi></li>' for example in finding.examples
    )
    more = finding.number - len(finding.examples)
    rest = f" ({len(finding.examples)} of {finding.number:,})" if more > 0 else ""
    listed = f"<p>Examples{rest}:</p><ul>{examples}</ul>" if examples else ""
    severity = text(finding.severity)
    return (
        f'<article class="finding {severity}"><h3><span class="severity">{severity}</span> '
        f"{what}</h3><p>{advice}</p>{listed}</article>"
    )
