"""A progress bar for a terminal; silent anywhere else."""

import sys
import time
from typing import TextIO, final


@final
class Progress:
    """How much is done, at what rate, and the time left, on one line of a terminal."""

    def __init__(
        self,
        total: int,
        *,
        enabled: bool,
        unit: str = "comparisons",
        stream: TextIO | None = None,
    ):
        self._stream = sys.stderr if stream is None else stream
        self._enabled = enabled and self._stream.isatty()
        self._total, self._done, self._unit = total, 0, unit
        self._started = self._shown = time.monotonic()

    def advance(self, amount: int) -> None:
        """Count more as done, and show it a few times a second."""
        self._done += amount
        now = time.monotonic()
        if self._enabled and (now - self._shown > 0.2 or self._done >= self._total):
            self._shown = now
            self._stream.write("\r" + self._line(now - self._started).ljust(79))
            self._stream.flush()

    def close(self) -> None:
        """Leave the line."""
        if self._enabled:
            self._stream.write("\n")
            self._stream.flush()

    def _line(self, seconds: float) -> str:
        share = self._done / max(self._total, 1)
        rate = self._done / max(seconds, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        bar = "█" * round(20 * share) + "░" * (20 - round(20 * share))
        return f"{share:4.0%} {bar} {self._done:,} {self._unit}, {rate:,.0f}/s, {left:.0f} s left"
