"""Workflows, the lock file and the maths hook agree with pyproject.toml and do their work."""

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEPENDENCIES = [Requirement(line) for line in PROJECT["dependencies"]]
WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def jobs(name: str) -> dict:
    return yaml.safe_load(WORKFLOWS[name].read_text(encoding="utf-8"))["jobs"]


def setup_versions(job: dict) -> list[str]:
    steps = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
    return [step["with"]["python-version"] for step in steps]


def pins(text: str) -> dict[str, Version]:
    found = re.findall(r"(?<![\w-])([\w-]+)==([\w.]+)", text)
    return {canonicalize_name(name): Version(version) for name, version in found}


def test_workflows_use_the_supported_pythons():
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert jobs("tests")["newest"]["strategy"]["matrix"]["python-version"] == classifiers
    oldest = [jobs("tests")["oldest"], jobs("lint")["lint"], jobs("docs")["docs"]]
    assert [setup_versions(job) for job in oldest] == [[classifiers[0]]] * 3


def test_oldest_job_pins_the_lower_bounds():
    commands = " ".join(step.get("run", "") for step in jobs("tests")["oldest"]["steps"])
    lower = {item.name: Version(spec.version) for item in DEPENDENCIES for spec in item.specifier}
    assert pins(commands) == lower


def test_tests_skip_without_published_data_in_workflows():
    for job in jobs("tests").values():
        for step in job["steps"]:
            assert "pytest" not in step.get("run", "") or step["env"]["CI"] == ""


def test_lock_has_exact_versions_that_satisfy_the_project():
    text = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert lines == sorted(lines, key=lambda line: line.split("==")[0].lower())
    locked, extras = pins("\n".join(lines)), PROJECT["optional-dependencies"]
    needed = [Requirement(line) for name in extras if name != "cuda" for line in extras[name]]
    for item in [*DEPENDENCIES, *(item for item in needed if item.name != PROJECT["name"])]:
        assert locked[canonicalize_name(item.name)] in item.specifier, item


def test_formulas_become_mathml():
    page = r'<p>x <span class="arithmatex">\(\Phi' + r"'(t) &lt; 1\)</span></p>"
    hook = runpy.run_path(str(ROOT / "mkdocs_hooks.py"))
    built = hook["on_page_content"](page)
    assert built.startswith('<p>x <math xmlns="http://www.w3.org/1998/Math/MathML"')
    assert re.search(r"<msup><mi>&#x003A6;</mi><m[io]>&#x02032;</m[io]></msup>", built)
    assert "arithmatex" not in built
    with pytest.raises(ValueError, match=r"unknown LaTeX command '\\\\foo'"):
        hook["to_mathml"](r"\foo x")
