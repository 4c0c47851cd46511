"""Ctrl-C ends a command at once, also while compiled code runs.

Python raises `KeyboardInterrupt` between two bytecode instructions. XLA may compile or run a
program for minutes between two of them, so a thread ends the process if the main thread does not.
The thread first removes temporary files.
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
_PATIENCE = 1.0  # seconds in which the main thread may end by itself

temporary_files: set[Path] = set()  # being written
written_files: list[Path] = []  # complete, under their final names


def describe_interruption() -> str:
    """One line that names the files written before the interruption."""
    if not written_files:
        return "interrupted, nothing was written"
    return f"interrupted after {', '.join(map(str, written_files))} was written"


@contextlib.contextmanager
def end_on_interrupt() -> Iterator[None]:
    """End the process soon after Ctrl-C, whatever the main thread does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals arrive in the main thread only
        return
    # Python's handler in C writes the number of each signal to this socket at once.
    watched, signalled = socket.socketpair()
    signalled.setblocking(False)
    before = signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
    is_over = threading.Event()
    arguments = watched, is_over
    threading.Thread(target=_watch, args=arguments, name="gbt interrupts", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        signalled.close()


def _watch(watched: socket.socket, is_over: threading.Event) -> None:
    with watched:
        while numbers := watched.recv(16):
            if signal.SIGINT in numbers and not is_over.wait(_PATIENCE):
                _end()


def _end() -> None:
    clear_stages()
    for path in temporary_files:
        path.unlink(missing_ok=True)
    print(f"gbt: {describe_interruption()}", file=sys.stderr, flush=True)
    os._exit(EXIT_CODE)
