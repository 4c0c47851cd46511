"""Ctrl-C: a command ends within two seconds, in one line, and leaves no partial file."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from gbt_jax._util import _interrupts

BLOCKED = """
import hashlib, sys
from pathlib import Path
from gbt_jax._util import _interrupts as interrupts

partial = Path(sys.argv[1])
partial.write_text("half")
interrupts.temporary_files.add(partial)
with interrupts.end_on_interrupt():
    print("begins", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # minutes in C, which Python cannot interrupt
"""


COMMAND = """
import sys
from gbt_jax.cli import main

print("begins", flush=True)
sys.exit(main())
"""


def interrupt(process: subprocess.Popen) -> tuple[float, str, str]:
    """(seconds to the end, standard output, standard error) after Ctrl-C."""
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return time.monotonic() - start, out, err


def start(command: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_code_that_python_cannot_interrupt(tmp_path):
    partial = tmp_path / ".0.part"
    process = start(["-c", BLOCKED, str(partial)])
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    seconds, _, err = interrupt(process)
    assert (process.returncode, err) == (130, "gbt: interrupted, nothing was written\n")
    assert seconds < 2
    assert not partial.exists()


LATER = [pytest.param(delay, marks=pytest.mark.slow) for delay in (1.0, 4.0, 9.0)]


@pytest.mark.parametrize("delay", [0.1, 0.3, 0.5, 0.7, *LATER])
def test_commands_end_at_any_time(tmp_path, delay):
    votes = tmp_path / "votes.csv"
    rng = np.random.default_rng(0)
    a = rng.integers(0, 60, 4000)
    b = (a + rng.integers(1, 60, 4000)) % 60
    winner = rng.choice(["model_a", "model_b", "tie"], 4000)
    lines = [f"m{x},m{y},{w}\n" for x, y, w in zip(a, b, winner, strict=True)]
    votes.write_text("model_a,model_b,winner\n" + "".join(lines))
    # Takes minutes: imports in the first second, then compiles, then runs.
    arguments = ["audit", str(votes), "--preset", "arena", "--check-monotone"]
    process = start(["-c", COMMAND, *arguments])
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(delay)
    seconds, out, err = interrupt(process)
    assert (process.returncode, out) == (130, "")
    assert err == "gbt: interrupted, nothing was written\n"
    assert seconds < 2


def test_a_signal_that_the_caller_ignores_stays_ignored():
    script = "import signal; from gbt_jax._util._interrupts import end_on_interrupt as end\n"
    script += "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    script += "with end(): signal.raise_signal(signal.SIGINT)\nprint('continues')"
    process = start(["-c", script])  # such as under nohup
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "continues\n", "")


def test_an_interruption_after_the_output_says_so(monkeypatch, capsys, tmp_path):
    from gbt_jax import cli

    output = tmp_path / "ranking.csv"
    votes = tmp_path / "votes.csv"
    votes.write_text("model_a,model_b,winner\nx,y,model_a\ny,z,model_a\nz,x,tie\n")

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gbt_jax.cli._fit.note", stop)  # of the lines after the file is written
    assert cli.main(["fit", str(votes), "--preset", "arena", "-o", str(output)]) == 130
    assert capsys.readouterr().err == f"gbt: interrupted after {output} was written\n"
    assert output.exists()


def test_files_that_the_main_thread_removes_meanwhile_do_not_keep_a_command_alive(monkeypatch):
    class Vanishing:
        def unlink(self, missing_ok):
            _interrupts.temporary_files.clear()
            raise PermissionError

    codes = []
    monkeypatch.setattr(_interrupts.os, "_exit", codes.append)
    monkeypatch.setattr(_interrupts, "temporary_files", {Vanishing(), Vanishing()})
    _interrupts._end()
    assert codes == [_interrupts.EXIT_CODE]
