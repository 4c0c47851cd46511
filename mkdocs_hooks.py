r"""MkDocs hook: formulas become MathML when the site is built.

`pymdownx.arithmatex` finds \(...\) and \[...\] in the Markdown and marks them. This hook converts
what it marked. Browsers draw MathML themselves, so a reader loads no script and no font.
"""

import html
import re

from latex2mathml.converter import convert

_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def to_mathml(latex: str, display: str = "inline") -> str:
    """MathML of a formula, `display` "inline" or "block".

    Raises `ValueError` for an unknown command: latex2mathml copies it into the page as it is.
    """
    mathml = convert(latex, display=display)
    if unknown := re.search(r"\\\w*", mathml):
        raise ValueError(f"unknown LaTeX command {unknown[0]!r} in the formula {latex!r}")
    if "<mi>&</mi>" in mathml:
        raise ValueError(f"'&' outside of an array or matrix in the formula {latex!r}")
    return mathml


def on_page_content(content: str, **_) -> str:
    """Replace every formula that arithmatex marked in a page's HTML."""

    def replace(match: re.Match[str]) -> str:
        latex = html.unescape(match["latex"]).strip()
        if match["tag"] == "span":
            return to_mathml(latex)
        return f'<div class="formula">{to_mathml(latex, "block")}</div>'

    return _FORMULA.sub(replace, content)
