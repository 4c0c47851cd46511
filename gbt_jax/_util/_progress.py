"""A progress bar that names the stages of a computation; shown on terminals only."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TextIO, final

_REFRESH = 0.2  # seconds between two drawings
_WIDTH = 79  # of a line of a terminal
FIT_STAGES = ("fitting", "intervals", "ranks")  # of a ranking, after its table is read
# Typical relative durations of the stages of a command; 1 for stages not listed.
_SHARES = {"fitting": 3.0, "intervals": 4.0}


@final
class Stages:
    """One line of a terminal: the stage, the share of the work that is done, the elapsed time.

    A thread redraws it, so that the elapsed time advances while a stage computes.
    """

    def __init__(self, names: Sequence[str], *, stream: TextIO):
        self._names, self._stream = list(names), stream
        self._started, self._place, self._inner, self._detail = time.monotonic(), -1, 0.0, ""
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._is_drawn = False
        draw = self._draw_until_closed
        self._thread = threading.Thread(target=draw, name="gbt stages", daemon=True)
        self._thread.start()

    def begin(self, name: str) -> None:
        """Begin a stage and mark those before it as done. Unknown and earlier names are ignored."""
        if name in self._names[self._place + 1 :]:
            self._place, self._inner, self._detail = self._names.index(name), 0.0, ""

    def advance(self, share: float, detail: str) -> None:
        """Set the share of the stage that is done, and its description."""
        self._inner, self._detail = share, detail

    def close(self) -> None:
        """Clear the line."""
        self._stop.set()
        with self._lock:
            if self._is_drawn:
                self._stream.write("\r" + " " * _WIDTH + "\r")
                self._stream.flush()
                self._is_drawn = False
        self._thread.join()

    def line(self) -> str:
        """The text on the terminal."""
        shares = [_SHARES.get(name, 1.0) for name in self._names]
        place = max(self._place, 0)
        done = (sum(shares[:place]) + self._inner * shares[place]) / sum(shares)
        seconds = time.monotonic() - self._started
        rest = f": {self._detail}, " if self._detail else ", "
        stage = f"{place + 1}/{len(shares)} {self._names[place]}"
        return f"{_bar(done)} {stage}{rest}{seconds:.0f} s"[:_WIDTH]

    def _draw_until_closed(self) -> None:
        while not self._stop.wait(_REFRESH):
            with self._lock:
                if self._stop.is_set():
                    return
                self._is_drawn = True
                self._stream.write("\r" + self.line().ljust(_WIDTH))
                self._stream.flush()


_shown: Stages | None = None  # one line per process


@contextlib.contextmanager
def show_stages(
    names: Sequence[str], *, enabled: bool, stream: TextIO | None = None
) -> Iterator[None]:
    """Show these stages on a terminal inside the context; ignored while others are shown."""
    global _shown
    terminal = sys.stderr if stream is None else stream
    if _shown is not None or not enabled or not terminal.isatty():
        yield
        return
    _shown = Stages(names, stream=terminal)
    try:
        yield
    finally:
        clear_stages()


def begin_stage(name: str) -> None:
    """Begin a stage, if stages are shown."""
    if _shown is not None:
        _shown.begin(name)


def clear_stages() -> None:
    """Clear the stages from the terminal, before other output is printed."""
    global _shown
    if _shown is not None:
        _shown.close()
        _shown = None


@final
class Progress:
    """Amount done, rate and remaining time, on a separate line or on that of `Stages`."""

    def __init__(
        self,
        total: int,
        *,
        enabled: bool,
        unit: str = "comparisons",
        stream: TextIO | None = None,
    ):
        self._stream = sys.stderr if stream is None else stream
        self._enabled = enabled and _shown is None and self._stream.isatty()
        self._total, self._done, self._unit = total, 0, unit
        self._started = self._drawn = time.monotonic()

    def advance(self, amount: int) -> None:
        """Add to the amount done, and redraw the line a few times a second."""
        self._done += amount
        now = time.monotonic()
        if _shown is not None:
            detail = f"{self._done:,} of {self._total:,} {self._unit}"
            _shown.advance(self._done / max(self._total, 1), detail)
        elif self._enabled and (now - self._drawn > _REFRESH or self._done >= self._total):
            self._drawn = now
            self._stream.write("\r" + self._line(now - self._started).ljust(_WIDTH))
            self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._enabled:
            self._stream.write("\n")
            self._stream.flush()

    def _line(self, seconds: float) -> str:
        share = self._done / max(self._total, 1)
        rate = self._done / max(seconds, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        return f"{_bar(share)} {self._done:,} {self._unit}, {rate:,.0f}/s, {left:.0f} s left"


def _bar(share: float) -> str:
    return f"{share:4.0%} " + "█" * int(20 * share) + "░" * (20 - int(20 * share))
