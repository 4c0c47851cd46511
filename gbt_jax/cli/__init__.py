"""The command `gbt`: files in, rankings out. Needs the extra `cli`.

Nothing here imports JAX before a command runs: `gbt --help` is quick.
"""

import errno
import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the command line, by default the program's own arguments; returns the exit code.

    0 is good, 1 means problems in the data, 2 bad input: one line on standard error says what.
    """
    try:
        from ._app import app
    except ImportError as error:
        print(f'gbt: needs {error.name}: pip install "gbt-jax[cli]"', file=sys.stderr)
        return 2
    try:
        code = app(arguments, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """What a person sees of a failure. Faults of the program itself keep their traceback."""
    if isinstance(error, BrokenPipeError):
        # Whoever read the output has seen enough. What is still buffered must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if hasattr(error, "format_message"):  # of the command line's own parser
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        if message:  # none where help was shown instead
            _say(message)
        return 2
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        _say(f"{name}{error.strerror or error}")
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO) and not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    if isinstance(error, ValueError | ImportError):
        _say(str(error))
        return 2
    raise error


def _say(message: str) -> None:
    print("gbt: " + " ".join(message.split()), file=sys.stderr)
