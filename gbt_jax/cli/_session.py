"""The machinery of a command: JAX with its settings, and the two output streams."""

import os
import sys
from pathlib import Path
from typing import Any


def start() -> None:
    """Import JAX as a program does: in double precision, with compiled programs kept on disk."""
    import jax

    jax.config.update("jax_enable_x64", True)
    folder = _cache_folder()
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _cache_folder() -> Path | None:
    """A folder of this program's own, or None where there is no place for one."""
    named = os.environ.get("GBT_JAX_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(base) / "gbt_jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def note(message: str, *, quiet: bool = False) -> None:
    """Tell a person something beside the result."""
    if not quiet:
        print(message, file=sys.stderr)


def warn(message: str) -> None:
    """Tell what must not be missed, quiet or not."""
    print(f"gbt: {' '.join(message.split())}", file=sys.stderr)


def console(**settings: Any) -> Any:
    """A terminal for tables, of its own width, or of 80 columns where there is none."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 80
    return Console(width=width, highlight=False, **settings)
