"""Annotations say what is accepted and returned: all of them are checked while calls run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # every function is checked in a process of its own

CALLS = Path(__file__).parent / "typed_calls.py"
CHECKED = """
import importlib, pkgutil, runpy, sys
import jax, jaxtyping
with jaxtyping.install_import_hook("gbt_jax", "beartype.beartype"):
    import gbt_jax
    for module in pkgutil.walk_packages(gbt_jax.__path__, "gbt_jax."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
jax.config.update("jax_enable_x64", sys.argv[2] == "64")
runpy.run_path(sys.argv[1], run_name="__main__")
try:
    gbt_jax.Model(gbt_jax.laws.Uniform(), prior_std={})
except jaxtyping.TypeCheckError:
    print("checked")
"""


def run_checked(bits: str) -> subprocess.CompletedProcess:
    """The calls in a process of their own, whose imports are checked."""
    command = [sys.executable, "-c", CHECKED, str(CALLS), bits]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_calls_keep_to_their_annotations_in_float64():
    done = run_checked("64")
    assert done.stdout == "checked\n", done.stderr[-3000:]


def test_calls_keep_to_their_annotations_in_float32():
    done = run_checked("32")
    assert done.stdout == "checked\n", done.stderr[-3000:]
