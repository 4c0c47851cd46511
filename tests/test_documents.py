"""Every Python example of the documents runs, and so does every notebook."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def python_blocks(text: str) -> str:
    """The ```python blocks of a document as one program, all other lines left empty.

    Lines keep their numbers, so that a traceback points into the document.
    """
    program, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            program.append("")
        else:
            program.append(line if inside else "")
    return "\n".join(program) + "\n"


def run(path: Path) -> subprocess.CompletedProcess:
    """Run a script as a reader would: a fresh interpreter, warnings shown.

    Only how programs are compiled is set as in `conftest.py`, by environment variables.
    """
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS = [path for path in TEXTS if python_blocks(path.read_text(encoding="utf-8")).strip()]


def slow_but_readme(path: Path):
    marks = () if path.name == "README.md" else pytest.mark.slow
    return pytest.param(path, id=path.name, marks=marks)


@pytest.mark.parametrize("document", [slow_but_readme(path) for path in DOCUMENTS])
def test_examples_run(document, tmp_path):
    script = tmp_path / f"{document.stem}.py"
    script.write_text(python_blocks(document.read_text(encoding="utf-8")), encoding="utf-8")
    outcome = run(script)
    assert outcome.returncode == 0, outcome.stderr


def test_output_in_the_readme_is_that_of_its_example(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n.*?```\n+```text\n(.*?)```", text, re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(python_blocks(text), encoding="utf-8")
    (block,), printed = shown, run(script).stdout
    number = r"-?\d+\.\d+"
    words = [re.sub(number, "x", text).replace("]", " ] ").split() for text in (block, printed)]
    assert words[0] == words[1]
    found = [[float(x) for x in re.findall(number, y)] for y in (block, printed)]
    assert len(found[0]) > 5
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_guides_have_examples():
    guides = "README CONTRIBUTING choose-a-law derivatives groups guarantees index tables "
    guides += "uncertainty write-a-law"
    assert {path.stem for path in DOCUMENTS} >= set(guides.split())


def test_first_command_is_the_demo():
    """Which tests/test_cli.py runs."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^python3 -m venv .* && \S+/gbt (.*)$", readme, re.MULTILINE) == ["demo"]


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(ROOT.glob("notebooks/*.py")), ids=lambda path: path.name)
def test_notebooks_run(script):
    outcome = run(script)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.strip()


def test_a_block_that_raises_is_seen(tmp_path):
    text = "# Title\n\n```python\nx = 1\n```\n\nprose\n\n```python\nassert x == 2, x\n```\n"
    script = tmp_path / "bad.py"
    script.write_text(python_blocks(text), encoding="utf-8")
    outcome = run(script)
    assert outcome.returncode != 0
    assert "line 10" in outcome.stderr
