"""The command `gbt`: rankings from files. Needs the extra `cli`.

JAX is imported only when a command runs, so that `gbt --help` is quick.
"""

import errno
import gc
import os
import sys

from .._util._interrupts import (
    EXIT_CODE,
    describe_interruption,
    end_on_interrupt,
    written_files,
)
from . import _session


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    **Arguments:**

    - `arguments`: the arguments of the command, by default those of `sys.argv`.

    **Returns:** the exit code: 0 for success, 1 for problems in the data, 2 for invalid input and
    130 for an interruption. The last two print one line on standard error.
    """
    if arguments is not None:
        return _run(arguments)  # in a Python session, where Ctrl-C raises `KeyboardInterrupt`
    # Imports and traces make many objects that stay: garbage collection finds nothing, and slowly.
    gc.set_threshold(100_000, 50, 50)
    with end_on_interrupt():
        code = _run(None)
        # At once, because Python would clean up JAX for a third of a second.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str] | None) -> int:
    try:
        from ._app import app
        from ._options import InterruptionError
    except ImportError as error:
        message = f'gbt: {error.name} is not installed: pip install "gbt-jax[cli]"'
        print(message, file=sys.stderr)
        return 2
    written_files.clear()
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, InterruptionError):
        _session.warn(describe_interruption())
        return EXIT_CODE
    except Exception as error:
        return _report_failure(error)


def _report_failure(error: Exception) -> int:
    """Print a failure in one line and return the exit code. Bugs keep their traceback."""
    if isinstance(error, BrokenPipeError):
        # The reader has closed the pipe. Buffered output must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if hasattr(error, "format_message"):  # an error of the command-line parser
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        if message:  # empty if help was shown instead
            _session.warn(message)
        return 2
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        _session.warn(f"{name}{error.strerror or error}")
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO) and not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    if isinstance(error, ValueError | ImportError):
        _session.warn(str(error))
        return 2
    raise error
