"""Scores from paired comparisons with generalized Bradley-Terry models, in JAX."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from . import datasets as datasets
    from . import frames as frames
    from . import guarantees as guarantees
    from . import influence as influence
    from . import laws as laws
    from . import plots as plots
    from . import prediction as prediction
    from . import report as report
    from . import simulate as simulate
    from . import solvers as solvers
    from . import uncertainty as uncertainty
    from ._api import *  # noqa: F403

    __version__: str

# Rooms that are themselves offered: imported when they are named.
_ROOMS = (
    "datasets",
    "frames",
    "guarantees",
    "influence",
    "laws",
    "plots",
    "prediction",
    "report",
    "simulate",
    "solvers",
    "uncertainty",
)


def __getattr__(name: str):
    """The name's value. JAX is imported here, not before: `gbt --help` has no use for it."""
    if name in _ROOMS:
        return _importlib.import_module(f".{name}", __name__)
    if name == "__version__":
        return _importlib.import_module("importlib.metadata").version("gbt-jax")
    names = {} if name.startswith("_") else vars(_importlib.import_module("._api", __name__))
    if name not in names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = names[name]
    return globals()[name]


def __dir__() -> list[str]:
    api = _importlib.import_module("._api", __name__)
    return sorted(
        {name for name in dir(api) if not name.startswith("_")} | {*_ROOMS, "__version__"}
    )
