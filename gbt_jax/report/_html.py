"""Text, numbers and small tables as HTML; every label passes through here.

Labels are untrusted text: they are escaped, stripped of characters that HTML does not allow, and
isolated (`<bdi>`), so that right-to-left text does not reorder its neighbours.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Control characters (but tab and line feed), halves of surrogate pairs and noncharacters.
_NOT_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LONG = 80  # characters of a label, beyond which it may be cut and is its own tooltip


def clean(value: Any) -> str:
    """The text of a value without characters that HTML does not allow."""
    return _NOT_TEXT.sub("\ufffd", str(value))


def text(value: Any) -> str:
    """Escaped text for element content or a quoted attribute."""
    return html.escape(clean(value), quote=True)


def label(value: Any) -> str:
    """A label of the data."""
    shown = text(value)
    title = f' title="{shown}"' if len(clean(value)) > _LONG else ""
    return f'<bdi class="label"{title}>{shown}</bdi>'


def inline_label(value: Any) -> str:
    """A label within a sentence, cut if it is long."""
    whole = clean(value)
    if len(whole) <= _LONG:
        return f"<bdi>{text(whole)}</bdi>"
    return f'<bdi title="{text(whole)}">{text(whole[:_LONG])}…</bdi>'


def number(value: float | None, decimals: int = 3) -> str:
    """A number with fixed decimals and a minus sign; a dash if unknown."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    shown = f"{value:,.{decimals}f}"
    if not re.search("[1-9]", shown):
        shown = shown.lstrip("-")
    return shown.replace("-", "−")


def compact(value: float) -> str:
    """A number with up to four digits, however large or small."""
    return "∞" if math.isinf(value) else f"{value:.4g}".replace("-", "−")


def plural(size: int, one: str, many: str | None = None) -> str:
    """`1 item`, `1,234 items`."""
    return f"{size:,} {one if size == 1 else many or one + 's'}"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], kinds: str) -> str:
    """A table of cells that are HTML already; `kinds` has an n for each column of numbers."""
    classes = [' class="n"' if kind == "n" else "" for kind in kinds]
    names = (f'<th scope="col"{c}>{text(x)}</th>' for x, c in zip(head, classes, strict=True))
    lines = [f"<thead><tr>{''.join(names)}</tr></thead>", "<tbody>"]
    for row in rows:
        cells = (f"<td{c}>{cell}</td>" for cell, c in zip(row, classes, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join([*lines, "</tbody>"])
    wide = f'<div class="wide" tabindex="0" role="region" aria-label="{text(caption)}">'
    return f"{wide}<table><caption>{text(caption)}</caption>\n{body}</table></div>"
