"""Ctrl-C ends a command at once, whatever its main thread does.

Python would raise `KeyboardInterrupt` between two bytecode instructions. XLA may compile or run a
program for minutes between two of them, and an exception within an import or a callback of another
library is lost or leaves it half initialised. So nothing is raised: a thread removes temporary
files, says what was written, and ends the process.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ._progress import clear_stages

EXIT_CODE = 128 + signal.SIGINT

temporary_files: set[Path] = set()  # being written
written_files: list[Path] = []  # complete, under their final names
renaming = threading.Lock()  # held while a temporary file gets its final name


def describe_interruption() -> str:
    """One line that names the files written before the interruption."""
    if not written_files:
        return "interrupted, nothing was written"
    return f"interrupted after {', '.join(map(str, written_files))} was written"


@contextlib.contextmanager
def end_on_interrupt() -> Iterator[None]:
    """End the process on Ctrl-C, unless the caller handles or ignores that signal."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    # Python's handler in C writes the number of each signal to this socket at once.
    watched, signalled = socket.socketpair()
    signalled.setblocking(False)
    before = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(watched,), name="gbt interrupts", daemon=True).start()
    signal.signal(signal.SIGINT, _raise_nothing)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.set_wakeup_fd(before)
        signalled.close()


def _raise_nothing(*_: object) -> None:
    """Do nothing: the watching thread handles the signal."""


def _watch(watched: socket.socket) -> None:
    with watched:
        while numbers := watched.recv(16):
            if signal.SIGINT in numbers:
                _end()


def _end() -> None:
    try:
        with renaming:
            clear_stages()
            for path in tuple(temporary_files):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            print(f"gbt: {describe_interruption()}", file=sys.stderr, flush=True)
    finally:
        os._exit(EXIT_CODE)
