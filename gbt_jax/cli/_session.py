"""Settings of JAX for a command, and its output streams."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from .._util._progress import clear_stages

# Names of arguments in messages, but not within quotes, where they are the user's.
_ARGUMENT = re.compile(
    r"(?<![\w'`-])(prior_std|positive_favours|max_value|value_b|half_life|min_comparisons"
    r"|(?:level|ties)(?= must ))(?![\w'`])"
)
_ASSIGNMENT = re.compile(r"(?<![\w'`-])(ties|law|encoding|date)='([\w:-]+)'")


# XLA compiles without optimising in half of the time. For this many bytes, about 30,000 rows, the
# programs then run for milliseconds longer (`benchmarks/cold_start.py`).
_SMALL_FILE = 1 << 20
_QUICK = "--xla_backend_optimization_level"


def start(file: str | None = None) -> None:
    """Import JAX with double precision and a persistent compilation cache.

    For a small file, or without one, programs are compiled quickly rather than run quickly.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _QUICK not in flags and (file is None or _is_small(file)):
        os.environ["XLA_FLAGS"] = f"{flags} {_QUICK}=0".strip()
    import jax

    jax.config.update("jax_enable_x64", True)
    folder = _cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _is_small(file: str) -> bool:
    try:
        return os.path.getsize(file) <= _SMALL_FILE
    except OSError:  # standard input, or a missing file, which the reader reports
        return False


def _cache_folder() -> Path | None:
    """The folder of the compilation cache, or None if it is not writable."""
    named = os.environ.get("GBT_JAX_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(base) / "gbt_jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def note(message: str, *, quiet: bool = False) -> None:
    """Print a note to standard error, unless quiet."""
    if not quiet:
        clear_stages()
        print(message, file=sys.stderr)


def warn(message: str) -> None:
    """Print an error or warning in one line to standard error."""
    clear_stages()
    print(f"gbt: {' '.join(with_option_names(message).split())}", file=sys.stderr)


def with_option_names(message: str) -> str:
    """A message of the library with shell options: `--prior-std` instead of `prior_std`."""
    message = _ASSIGNMENT.sub(lambda found: f"--{found[1]} {found[2]}", message)
    return _ARGUMENT.sub(lambda found: "--" + found[0].replace("_", "-"), message)


def console(**settings: Any) -> Any:
    """A rich console with the width of the terminal, or 80 columns without one."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 80
    return Console(width=width, highlight=False, **settings)
