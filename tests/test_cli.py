import csv
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gbt_jax as gbt
from gbt_jax import cli
from gbt_jax.cli import _session

ARENA = """model_a,model_b,winner
tea,milk,model_a
tea,juice,model_a
milk,juice,tie
juice,tea,model_b
milk,tea,tie (bothbad)
juice,milk,model_a
"""
GRADES = ["--positive-favours", "a", "--max-value", "1"]


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    # The settings of a program are not for the other tests of this process.
    monkeypatch.setattr(_session, "start", lambda *_: None)
    Path("votes.csv").write_text(ARENA)

    def command(*arguments: str):
        code = cli.main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return command


def program(*arguments: str, before=(), **settings) -> subprocess.Popen:
    """The program itself, in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.Popen([*before, sys.executable, "-m", "gbt_jax", *arguments], **pipes)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_fit_into_a_pipe_is_csv(run):
    code, out, err = run("fit", "votes.csv", "--preset", "arena")
    assert code == 0
    found = rows(out)
    assert [row["item"] for row in found] == ["tea", "juice", "milk"]
    comparisons = gbt.Comparisons(
        [2, 2, 1, 0, 1, 0], [1, 0, 0, 2, 2, 1], [1.0, 1, 0, -1, 0, 1], num_items=3
    )
    scores = gbt.fit(gbt.Model(gbt.laws.Davidson(1.0)), comparisons).scores
    expected = np.asarray(scores)[[2, 0, 1]]
    np.testing.assert_allclose([float(row["score"]) for row in found], expected, rtol=1e-9)
    assert "6 comparisons of 3 items; law davidson:1, prior σ 1" in err
    assert "2 ties, all counted" in err
    assert "converged" in err


def test_quiet_says_nothing_else(run):
    code, out, err = run("fit", "votes.csv", "--preset", "arena", "-q")
    assert (code, err) == (0, "")
    assert len(rows(out)) == 3


def test_json_has_facts(run):
    _, out, _ = run("fit", "votes.csv", "--preset", "arena", "--json", "-q")
    found = json.loads(out)
    assert found["facts"][0]["converged"] is True
    assert [row["rank"] for row in found["rows"]] == [1, 2, 3]


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.json", "out.jsonl", "out.parquet"])
def test_files_by_suffix(run, name):
    code, out, _ = run("fit", "votes.csv", "--preset", "arena", "-o", name, "-q")
    assert (code, out) == (0, "")
    if name.endswith(".json"):
        found = json.loads(Path(name).read_text())["rows"]
    else:
        found = gbt.frames.read_table(name).to_pylist()
    assert [row["item"] for row in found] == ["tea", "juice", "milk"]
    assert sorted(os.listdir()) == sorted([name, "votes.csv"])  # nothing temporary is left


def test_elo_and_anchor(run):
    _, plain, _ = run("fit", "votes.csv", "--preset", "arena")
    _, elo, _ = run("fit", "votes.csv", "--preset", "arena", "--elo", "--anchor", "milk")
    points = {row["item"]: float(row["score"]) for row in rows(elo)}
    scores = {row["item"]: float(row["score"]) for row in rows(plain)}
    assert points["milk"] == pytest.approx(1000)
    # exp(2 (θ_tea − θ_milk)) are the odds of a win, and 400 points multiply odds by ten
    odds = 2 * (scores["tea"] - scores["milk"])
    assert points["tea"] - 1000 == pytest.approx(400 * odds / np.log(10))
    code, _, err = run("fit", "votes.csv", "--preset", "arena", "--elo", "--anchor", "mlik")
    assert code == 2
    assert err == "gbt: unknown anchor 'mlik'; did you mean 'milk'?\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fit", "nothing.csv", "--preset", "arena"], "nothing.csv: no such file"),
        (
            ["fit", "votes.csv", "--preset", "arenas"],
            "did you mean 'arena'?",
        ),
        (["fit", "votes.csv", "--preset", "pairs"], "votes.csv: unknown column 'loser'"),
        (["fit", "votes.csv"], "votes.csv"),
        (["fit", "votes.csv", "--preset", "arena", "--law", "nary"], "unknown law 'nary'"),
        (["fit", "votes.csv", "--preset", "arena", "--law", "binary"], "row 3"),
        (
            ["fit", "votes.csv", "--preset", "arena", "--law", "binary"],
            "--law davidson:1, or --ties",
        ),
        (["fit", "votes.csv", "--preset", "arena", "--half-life", "9"], "unknown column 'tstamp'"),
        (["fit", "votes.csv", "--a", "model_a"], "--positive-favours"),
        (["fit", "votes.csv", "--preset", "arena", "--ties", "x"], "--ties must be"),
        (
            ["fit", "votes.csv", "--preset", "arena", "--prior-std", "0"],
            "--prior-std must be",
        ),
        (["fit", "votes.csv", "--preset", "arena", "--level", "95"], "--level must"),
        (["fit", "votes.csv", "--preset", "arena", "-o", "no/out.csv"], "does not exist"),
        (["fit", "votes.csv", "--preset", "arena", "-o", "out.xls"], "out.xls"),
        (["fit", "votes.csv", "--preset", "arena", "--seed", "x"], "seed"),
        (["fit"], "file"),
        (["fits"], "fits"),
        (["audit", "votes.csv", "--preset", "arena", "--by", "winner"], "--group"),
        (["audit", "votes.csv", "--preset", "arena", "--group", "x"], "'x'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, arguments, complaint):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("gbt: ")
    assert err.count("\n") == 1
    assert complaint.lower() in err.lower()


def test_a_bad_row_is_named(run):
    Path("bad.csv").write_text(ARENA + "tea,juice,modelb\n")
    code, _, err = run("fit", "bad.csv", "--preset", "arena")
    assert code == 2
    assert "bad.csv: row 7" in err
    assert "'modelb'" in err


def test_no_optimum_is_not_silent(run):
    Path("wins.csv").write_text("winner,loser\ntea,milk\ntea,juice\nmilk,juice\n")
    code, out, err = run("fit", "wins.csv", "--preset", "pairs", "--prior-std", "inf")
    assert (code, out) == (2, "")
    assert "no finite optimum" in err
    assert "tea" in err


def test_one_failed_group_does_not_sink_the_others(run):
    Path("two.csv").write_text(
        "winner,loser,day\nx,y,1\ny,x,1\nx,y,1\nx,y,2\nx,z,2\n", encoding="utf-8"
    )
    options = ["--preset", "pairs", "--by", "day", "--prior-std", "inf"]
    code, out, err = run("fit", "two.csv", *options)
    assert code == 1
    assert "2: " in err
    found = rows(out)
    assert [row["day"] for row in found] == ["1", "1", "2", "2", "2"]
    assert [row["score"] == "" for row in found] == [False, False, True, True, True]


def test_check_says_what_it_found(run):
    code, out, _ = run("check", "votes.csv", "--preset", "arena")
    assert code == 0
    assert "6 comparisons of 3 items, 2 ties" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    Path("split.csv").write_text(ARENA + "beer,wine,model_a\n")
    code, out, _ = run("check", "split.csv", "--preset", "arena")
    assert code == 1
    assert "warning: the comparison graph has 2 disconnected" in out
    code, out, _ = run("check", "split.csv", "--preset", "arena", "--json")
    assert code == 1
    assert "components" in [finding["name"] for finding in json.loads(out)["findings"]]


def test_audit_names_rows_of_the_table(run):
    command = "audit", "votes.csv", "--preset", "arena"
    _, out, _ = run(*command, "--json")
    (resilience,) = json.loads(out)["checks"]
    code, out, _ = run(*command, "--check-monotone", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["top"] == "tea"
    monotone, again = found["checks"]
    assert monotone["holds"]
    assert "raising a comparison" in monotone["claim"]
    assert monotone["checked"] > 0
    assert again == resilience
    assert resilience["holds"]
    flip = found["flips"]["removal"]
    assert flip["is_found"]
    removed = {row["row"] for row in flip["rows"]}
    header, *lines = ARENA.splitlines(keepends=True)
    rest = [line for i, line in enumerate(lines, 1) if i not in removed]
    Path("rest.csv").write_text("".join([header, *rest]))
    _, again, _ = run("fit", "rest.csv", "--preset", "arena", "-q")
    assert rows(again)[0]["item"] == flip["top_after"] != "tea"
    strongest = found["influences"][0]
    assert ARENA.splitlines()[strongest["row"]].startswith(f"{strongest['a']},{strongest['b']}")
    code, shown, _ = run("audit", "votes.csv", "--preset", "arena", "-q")
    assert (code, shown) == (0, "")
    _, shown, _ = run("audit", "votes.csv", "--preset", "arena")
    assert "First place: tea" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_simulate_then_fit(run):
    options = ["--items", "3", "--comparisons", "6", "--law", "davidson:1"]
    code, out, err = run("simulate", *options, "-o", "sim.csv", "--truth", "truth.csv")
    assert (code, out) == (0, "")
    truth = {row["item"]: float(row["score"]) for row in rows(Path("truth.csv").read_text())}
    assert len(truth) == 3
    command = err.strip().removeprefix("rank them with: gbt ").split()
    code, out, _ = run(*command, "-q")
    assert code == 0
    assert {row["item"] for row in rows(out)} <= set(truth)
    _, printed, _ = run("simulate", *options)
    assert printed == Path("sim.csv").read_text()
    _, other, _ = run("simulate", *options, "--seed", "1")
    assert other != printed


def test_demo_shows_a_ranking(run):
    code, out, _ = run("demo")
    assert code == 0
    assert "Darjeeling" in out
    assert "95% interval" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    shown = [line.split() for line in out.splitlines() if re.match(r"(rank|   [123]) ", line)]
    assert len(shown) == 4
    assert shown == [line.split() for line in readme.splitlines() if line.split() in shown]


def test_presets_are_listed(run):
    code, out, _ = run("presets")
    assert code == 0
    assert all(name in out for name in gbt.frames.PRESETS)


def test_report_is_written(run):
    code, _, err = run("report", "votes.csv", "--preset", "arena", "-o", "page.html")
    assert code == 0
    assert "page.html" in err
    assert "juice" in Path("page.html").read_text(encoding="utf-8")
    code, _, err = run("report", "votes.csv", "--preset", "arena", "-o", "no/page.html")
    assert code == 2
    assert "does not exist" in err


def test_no_report_without_a_ranking(run):
    Path("wins.csv").write_text("winner,loser\nx,y\n")
    code, _, err = run("report", "wins.csv", "--preset", "pairs", "--prior-std", "inf")
    assert code == 2
    assert "Traceback" not in err
    assert not Path("report.html").exists()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(run, start, end):
    Path("win.csv").write_bytes((start + ARENA.replace("\n", end)).encode())
    code, out, _ = run("fit", "win.csv", "--preset", "arena", "-q")
    assert code == 0
    assert [row["item"] for row in rows(out)] == ["tea", "juice", "milk"]


def test_latin_1_is_asked_for(run):
    Path("latin.csv").write_bytes(ARENA.replace("tea", "thé").encode("latin-1"))
    code, _, err = run("fit", "latin.csv", "--preset", "arena", "-q")
    assert code == 2
    assert "latin.csv" in err
    assert "--encoding latin-1" in err
    code, out, _ = run("fit", "latin.csv", "--preset", "arena", "--encoding", "latin-1", "-q")
    assert code == 0
    assert rows(out)[0]["item"] == "thé"


@pytest.mark.parametrize("text", ["", "\n", "model_a,model_b,winner\n"])
def test_empty_files(run, text):
    Path("empty.csv").write_text(text)
    code, out, err = run("fit", "empty.csv", "--preset", "arena")
    assert (code, out) == (2, "")
    assert err.startswith("gbt: empty.csv: ")


def test_help_does_not_import_jax(tmp_path):
    source = "import sys, gbt_jax.cli as c; c.main(['--help']); print('jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert "Commands" in done.stdout
    assert done.stdout.endswith("False\n")


def test_a_closed_pipe_is_no_failure(tmp_path):
    path = tmp_path / "sim.csv"
    lines = [f"item{i:05},item{i + 1:05}\n" for i in range(20_000)]
    path.write_text("winner,loser\n" + "".join(lines))
    source = (
        "import sys; from gbt_jax.cli import main; from gbt_jax.frames import _files, read_table;"
        "from gbt_jax.cli import _fit;"
        f"_fit.fit = None; table = read_table({str(path)!r});"
        "from gbt_jax import cli;"
        "code = 0\n"
        "try:\n    _files.write_text(table, sys.stdout.buffer); sys.stdout.flush()\n"
        "except Exception as error:\n    code = cli._report_failure(error)\n"
        "sys.exit(code)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(), said) == (0, b"")


@pytest.mark.slow
def test_the_program_itself(tmp_path):
    """In processes of its own: a terminal, a pipe that closes, a full disk, a full file."""
    votes = tmp_path / "votes.csv"
    votes.write_text(ARENA)
    environment = os.environ | {"GBT_JAX_CACHE": str(tmp_path / "cache"), "COLUMNS": "80"}
    fit = ["fit", str(votes), "--preset", "arena"]

    with program(*fit, env=environment, stdin=subprocess.DEVNULL) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert len(rows(out.decode())) == 3
    assert any((tmp_path / "cache").iterdir())  # programs are kept for the next time

    terminal, end = pty.openpty()
    with program(*fit, env=environment, stdout=end) as process:
        process.wait()
        os.close(end)
        shown = b""
        while select.select([terminal], [], [], 0.5)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                break
    os.close(terminal)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())  # without colours
    assert "95% interval" in plain
    assert max(len(line) for line in plain.splitlines()) <= 80

    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full, program(*fit, env=environment, stdout=full) as process:
            _, err = process.communicate()
        assert process.returncode == 2
        assert err.decode().splitlines()[-1].startswith("gbt: ")
        assert b"Traceback" not in err

    target = tmp_path / "out.csv"
    target.write_text("what was there")

    without_cache = environment | {"GBT_JAX_CACHE": "/proc/none"}
    no_room = ["bash", "-c", 'ulimit -f 0 && exec "$@"', "bash"]
    with program(*fit, "-o", str(target), before=no_room, env=without_cache) as process:
        _, err = process.communicate()
    assert process.returncode == 2, err
    assert b"Traceback" not in err
    assert target.read_text() == "what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "out.csv", "votes.csv"]


@pytest.mark.slow
def test_ten_million_rows(run):
    size = 10_000_000
    random = np.random.default_rng(0)
    first = random.integers(0, 200, size)
    second = (first + random.integers(1, 200, size)) % 200
    better = random.random(size) < 1 / (1 + np.exp(-(second - first) / 100))
    import pyarrow as pa

    winner, loser = np.where(better, first, second), np.where(better, second, first)
    gbt.frames.write_table(pa.table({"winner": winner, "loser": loser}), "many.csv")
    code, out, _ = run("fit", "many.csv", "--preset", "pairs", "-q")
    assert code == 0
    scores = {int(row["item"]): float(row["score"]) for row in rows(out)}
    # P(a beats b) = 1/(1 + exp(−2 (θ_a − θ_b))) under Binary: θ = −item/200, but for a constant.
    found = np.array([scores[i] for i in range(200)])
    np.testing.assert_allclose(found - found.mean(), 0.4975 - np.arange(200) / 200, atol=0.02)


@pytest.mark.parametrize(("size", "is_quick"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_programs_for_small_files_are_compiled_quickly(tmp_path, size, is_quick):
    table = tmp_path / "votes.csv"
    table.write_bytes(b"a" * size)
    script = "import os, sys; from gbt_jax.cli import _session; _session.start(sys.argv[1])\n"
    script += "import jax; print(os.environ.get('XLA_FLAGS', ''), jax.numpy.ones(2) + 1)"
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(table)], capture_output=True, text=True, env=environment
    )
    flags = "--xla_backend_optimization_level=0 " if is_quick else " "
    assert (done.stdout, done.stderr) == (f"{flags}[2. 2.]\n", "")
