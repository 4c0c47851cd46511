"""Ctrl-C ends a command at once, also where Python cannot interrupt what runs.

Python raises `KeyboardInterrupt` between two of its own instructions. A program that XLA compiles
or runs may take minutes between two of them, so a thread ends the process if the main thread does
not. It removes the temporary files that would be left.
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
_PATIENCE = 1.0  # seconds that the main thread has to end by itself

temporary_files: set[Path] = set()  # that are being written
written_files: list[Path] = []  # that were put in their places


def describe_interruption() -> str:
    """What an interruption has left behind, in one line."""
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
