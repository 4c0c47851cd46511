"""The line of stages on a terminal: never full too early, and gone at the end."""

import io
import re
import threading
import time

import pytest

from gbt_jax._util import _progress
from gbt_jax._util._progress import Progress, begin_stage, clear_stages, show_stages


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self) -> list[str]:
        return self.getvalue().split("\r")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(_progress, "_REFRESH", 0.002)


def wait_for(screen: Terminal, text: str) -> str:
    """The last line, once it has this text."""
    until = time.monotonic() + 10
    while text not in screen.lines()[-1]:
        assert time.monotonic() < until, f"{text!r} is not on {screen.lines()[-1]!r}"
        time.sleep(0.002)
    return screen.lines()[-1]


def test_stages_cover_all_of_it():
    screen, shares = Terminal(), []
    names = ("reading", "fitting", "intervals", "ranks", "writing")
    with show_stages(names, enabled=True, stream=screen):
        for number, name in enumerate(names, 1):
            begin_stage(name)
            begin_stage("polishing")  # of another command
            shares.append(int(wait_for(screen, f"{number}/5 {name}, ").split("%")[0]))
            bar = Progress(200, enabled=True, unit="draws", stream=Terminal())
            bar.advance(50)
            bar.advance(150)
            line = wait_for(screen, "200 of 200 draws")
            shares.append(int(line.split("%")[0]))
            bar.close()
        assert re.search(r"^100% █{20} 5/5 writing: 200 of 200 draws, \d+ s *$", line)
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert max(shares[:-1]) < 100
    assert all(len(line) <= 79 for line in screen.lines())
    assert screen.lines()[-2:] == [" " * 79, ""]  # nothing is left
    assert not [one for one in threading.enumerate() if one.name == "gbt stages"]


def test_stages_within_stages_change_nothing():
    screen, inner = Terminal(), Terminal()
    with show_stages(("reading", "fitting"), enabled=True, stream=screen):
        with show_stages(("fitting", "ranks"), enabled=True, stream=inner):
            begin_stage("fitting")
            wait_for(screen, "2/2 fitting")
        assert inner.getvalue() == ""
        wait_for(screen, "2/2 fitting")


def test_a_message_takes_the_stages_off():
    screen = Terminal()
    with show_stages(("reading",), enabled=True, stream=screen):
        wait_for(screen, "reading")
        clear_stages()
        shown = screen.getvalue()
        assert shown.endswith("\r" + " " * 79 + "\r")
        time.sleep(0.02)
        assert screen.getvalue() == shown


def test_an_error_takes_the_stages_off():
    screen = Terminal()
    with pytest.raises(KeyError), show_stages(("reading",), enabled=True, stream=screen):  # noqa: PT012
        wait_for(screen, "reading")
        raise KeyError
    assert screen.lines()[-1] == ""
    begin_stage("reading")  # nothing is shown, and nothing fails


@pytest.mark.parametrize(("stream", "enabled"), [(io.StringIO(), True), (Terminal(), False)])
def test_silent_without_a_terminal(stream, enabled):
    with show_stages(("reading",), enabled=enabled, stream=stream):
        begin_stage("reading")
        time.sleep(0.02)
    assert stream.getvalue() == ""
