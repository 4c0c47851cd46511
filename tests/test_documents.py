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


def run_examples(document: Path, folder: Path) -> subprocess.CompletedProcess:
    """Run the examples of a document as one program."""
    script = folder / f"{document.stem}.py"
    script.write_text(python_blocks(document.read_text(encoding="utf-8")), encoding="utf-8")
    return run(script)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS[1:], ids=lambda path: path.name)
def test_examples_run(document, tmp_path):
    outcome = run_examples(document, tmp_path)
    assert outcome.returncode == 0, outcome.stderr


def test_the_readme_shows_what_its_example_prints(tmp_path):
    readme = ROOT / "README.md"
    outcome = run_examples(readme, tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    example = r"```python\n.*?```\n+```text\n(.*?)```"
    (shown,) = re.findall(example, readme.read_text(encoding="utf-8"), re.DOTALL)
    texts, number = (shown, outcome.stdout), r"-?\d+\.\d+"
    words = [re.sub(number, "x", text).replace("]", " ] ").split() for text in texts]
    assert words[0] == words[1]
    found = [[float(x) for x in re.findall(number, text)] for text in texts]
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
