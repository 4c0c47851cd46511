"""The package keeps its shape: who imports whom, what is shipped, what must not be there."""

import ast
import graphlib
import importlib.metadata
import importlib.resources
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import gbt_jax

ROOT = Path(__file__).parents[1]

# Layers of rooms, top to bottom, as in the design: a room imports only from rooms of layers above
# its own, and siblings in one layer do not import each other. A new room gets a place here.
LAYERS = (
    ("_util",),
    ("_special",),
    ("laws",),
    ("_data",),
    ("_model",),
    ("solvers",),
    ("_inference",),
    ("_curvature",),
    ("uncertainty", "influence", "prediction"),
    ("guarantees",),  # checks read sensitivities, from influence
    ("datasets", "simulate"),
    ("_api",),
    ("frames",),
    ("plots",),
    ("report",),
    ("cli",),
    ("__main__",),
)

# Rooms at the edge, and the extra whose packages each may import.
EXTRAS = {"frames": "frames", "plots": "plots", "report": "cli", "cli": "cli"}


class Import(NamedTuple):
    """`gbt_jax` module (as a tuple of names below the package) imported by a file, on a line."""

    target: tuple[str, ...]
    line: int


def modules(package: Path) -> dict[tuple[str, ...], Path]:
    """Module name, as a tuple of names below the package, to file; () is the package itself."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        *folders, stem = path.relative_to(package).with_suffix("").parts
        found[(*folders,) if stem == "__init__" else (*folders, stem)] = path
    return found


def inner_imports(name: tuple[str, ...], path: Path, package: str) -> Iterator[Import]:
    """What a file imports from its own package, at the top or inside functions alike."""
    folder = name if path.stem == "__init__" else name[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top, *rest = alias.name.split(".")
                if top == package:
                    yield Import(tuple(rest), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                base = (*folder[: len(folder) - node.level + 1], *parts)
            elif parts[0] == package:
                base = tuple(parts[1:])
            else:
                continue
            for alias in node.names:
                yield Import((*base, alias.name), node.lineno)


def direction_faults(package: Path, layers: tuple[tuple[str, ...], ...]) -> list[str]:
    """Every import against the direction of `layers`, unknown room and cycle in a package."""
    known = modules(package)
    layer_of = {room: number for number, layer in enumerate(layers) for room in layer}
    faults, within_rooms = [], {}
    for name, path in known.items():
        if not name:
            continue  # the package's own __init__ may import every room
        where, room = path.relative_to(package.parent), name[0]
        if room not in layer_of:
            faults.append(f"{where}: add room {room!r} to LAYERS in tests/test_layout.py, in place")
            continue
        for target, line in inner_imports(name, path, package.name):
            imported = target if target in known else target[:-1]
            if not imported:
                if target != ("__version__",):
                    faults.append(f"{where}:{line} imports from the package itself: name the room")
            elif imported[0] == room:
                within_rooms.setdefault(name, set()).add(imported)
            elif imported[0] not in layer_of or layer_of[imported[0]] >= layer_of[room]:
                faults.append(
                    f"{where}:{line} imports {imported[0]!r}, which is not above {room!r}"
                )
    try:
        graphlib.TopologicalSorter(within_rooms).prepare()
    except graphlib.CycleError as error:
        faults.append("cycle: " + " → ".join(".".join(name) for name in error.args[1]))
    return faults


def dotted(node: ast.AST) -> str:
    """`a.b.c` for an attribute chain of plain names, else ''."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def private_uses(package: Path) -> list[str]:
    """Uses of private parts of JAX and Equinox, and of global configuration."""
    forbidden = re.compile(r"(jax\._src|(equinox|eqx)\.internal)\b|.*\bconfig\.update$")
    faults = []
    for room, path in modules(package).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [dotted(node)]
            place = f"{path.relative_to(package.parent)}:{getattr(node, 'lineno', 0)}"
            # The command line is a program, not a library: what it configures is its own.
            allowed = "jax.config.update" if room[:1] == ("cli",) else None
            used = [name for name in names if forbidden.match(name) and name != allowed]
            faults += [f"{place} uses {name}" for name in used]
    return faults


def outside_imports(package: Path, room: str | None = None) -> set[str]:
    """Other people's packages that importing this one imports, or one of its rooms."""
    found = set()
    for name, path in modules(package).items():
        if (name[0] if name and name[0] in EXTRAS else None) != room:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {package.name}


def text_files() -> Iterator[Path]:
    """The repository's own text files: caches, environments and builds left out."""
    skipped = re.compile(r"\.git$|\.venv|__pycache__|\.egg-info$|\.\w+_cache$|\.hypothesis$")
    names = {"build", "dist", "site", ".ipynb_checkpoints"}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if not skipped.match(f) and f not in names]
        for path in (Path(folder, name) for name in files if name != ".git"):  # of a worktree
            if path.suffix not in {".png", ".parquet", ".gz", ".npz", ".pyc"}:
                yield path


# Written in pieces, so that this file does not contain what it forbids.
PLACES = re.compile(
    r"(?<![\w.)\]}$])/(?:root|home|Users|work|opt|mnt|tmp)" + r"/\w"
    r"|pypi" + r"\.|python" + r"hosted|index" + r"-url"
)


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "pack"
    for name, source in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return package


def test_imports_point_up():
    assert direction_faults(ROOT / "gbt_jax", LAYERS) == []
    listed = [room for layer in LAYERS for room in layer]
    rooms = {name[0] for name in modules(ROOT / "gbt_jax") if name}
    assert sorted(listed) == sorted(rooms), "a room is listed twice, or does not exist"


def test_no_private_parts_and_no_global_configuration():
    assert private_uses(ROOT / "gbt_jax") == []


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("low.py", "from .high import f", "low.py:1 imports 'high'"),
        ("low.py", "def f():\n    from pack import high", "low.py:2 imports 'high'"),
        ("low.py", "import pack.high.part", "low.py:1 imports 'high'"),
        ("mid/one.py", "from .. import high", "one.py:1 imports 'high'"),
        ("mid/one.py", "from ..twin import f", "one.py:1 imports 'twin'"),
        ("mid/one.py", "from . import two", "cycle"),
        ("mid/one.py", "from . import f", "cycle"),
        ("low.py", "from pack import f", "imports from the package itself"),
        ("new.py", "", "add room 'new'"),
    ],
)
def test_direction_check_can_fail(tmp_path, name, source, complaint):
    good = {
        "__init__.py": "from .high import f\nfrom . import mid, low",
        "low.py": "import math\nfrom jax import numpy",
        "mid/__init__.py": "from .one import f\nfrom .two import f",
        "mid/one.py": "from ..low import f",
        "mid/two.py": "from .one import f\nfrom pack.low import f",
        "twin.py": "from .low import f",
        "high.py": "from . import low, mid\nfrom .mid import f\nfrom . import __version__",
    }
    layers = (("low",), ("mid", "twin"), ("high",))
    assert direction_faults(write_tree(tmp_path / "good", good), layers) == []
    faults = direction_faults(write_tree(tmp_path / "bad", {**good, name: source}), layers)
    assert len(faults) == 1
    assert complaint in faults[0]


@pytest.mark.parametrize(
    "source",
    [
        "from jax._src import core",
        "import jax._src.core",
        "from jax import _src",
        "import jax\nx = jax._src.core",
        "import equinox.internal as eqxi",
        "from equinox import internal",
        "import equinox as eqx\nx = eqx.internal.while_loop",
        "import jax\njax.config.update('jax_enable_x64', True)",
        "from jax import config\nconfig.update('jax_enable_x64', True)",
    ],
)
def test_private_check_can_fail(tmp_path, source):
    assert private_uses(write_tree(tmp_path, {"__init__.py": source})) != []


def test_imports_only_declared_dependencies():
    """numpy and scipy come with jax; extras are imported inside the functions that need them."""
    requirements = [*project()["dependencies"], *(importlib.metadata.requires("jax") or ())]
    declared = {re.split(r"[^\w-]", line)[0] for line in requirements if "extra" not in line}
    assert outside_imports(ROOT / "gbt_jax") <= declared
    for room, extra in EXTRAS.items():
        lines = [*project()["optional-dependencies"][extra]]
        lines += project()["optional-dependencies"]["frames"] if "gbt-jax[frames]" in lines else []
        own = {re.split(r"[^\w-]", line)[0] for line in lines}
        assert outside_imports(ROOT / "gbt_jax", room) <= declared | own


def test_version_has_one_place():
    version = project()["version"]
    assert gbt_jax.__version__ == version, "reinstall the package: its version has changed"
    for path in modules(ROOT / "gbt_jax").values():
        assert version not in path.read_text(encoding="utf-8"), path


def test_lowest_jax_is_said_once():
    """The dependencies, the CUDA extra and the README name the same JAX."""
    lines = [*project()["dependencies"], *project()["optional-dependencies"]["cuda"]]
    lowest = {line.split(">=")[1] for line in lines if line.startswith("jax") and "typ" not in line}
    assert len(lowest) == 1
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"JAX {lowest.pop()} or newer" in readme


def test_types_are_shipped():
    assert (importlib.resources.files("gbt_jax") / "py.typed").is_file()


def test_no_machine_paths_or_registries():
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if PLACES.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


@pytest.mark.parametrize("line", ["cd /ho" + "me/me", "'/wo" + "rk/a'", "https://py" + "pi.org/"])
def test_place_check_can_fail(line):
    assert PLACES.search(line)
