"""Scores from paired comparisons with generalized Bradley-Terry models, in JAX."""

import importlib.metadata as _metadata

from . import laws as laws

__version__ = _metadata.version("gbt-jax")
