"""Tables in files: what is read comes out as it went in, and what is written is whole or not there.

Expected contents are the bytes of the files; the standard library reads what this package writes.
"""

import csv
import gzip
import io
import json
import os
import stat
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from gbt_jax import frames

ROWS = [("007", "é"), ('a "b", c', "two\nlines"), ("é", "NA"), ("null", "007")]


def quoted(row):
    return ['"' + cell.replace('"', '""') + '"' for cell in row]


def separated(by):
    return "".join(by.join(row) + "\n" for row in [("winner", "loser"), *map(quoted, ROWS)])


TEXT = separated(",")
JSON_LINES = "".join(json.dumps({"winner": a, "loser": b}) + "\n" for a, b in ROWS)
SCORES = [1.5, None, -0.25, 1e-300]
TABLE = pa.table({"item": [a for a, _ in ROWS], "score": SCORES, "rank": [1] * 4})


@pytest.fixture
def write(tmp_path):
    """A file with this content, by its name."""

    def written(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def pairs_in(path, **options):
    votes = frames.read_votes(path, "pairs", **options)
    return [(votes.label(a), votes.label(b)) for a, b in zip(votes.a, votes.b, strict=True)]


def refusal(path, preset="pairs", **options):
    """What is said of a file, without its name, which must come first."""
    with pytest.raises(frames.TableError) as caught:
        frames.read_votes(path, preset, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


FILES = {
    "plain.csv": TEXT,
    "no_end_of_line.csv": TEXT.rstrip("\n"),
    "windows.csv": TEXT.replace("\n", "\r\n").replace("two\r\nlines", "two\nlines"),
    "mark.csv": "\ufeff" + TEXT,
    "blank_lines.csv": TEXT + "\n\n",
    "UPPER.CSV": TEXT,
    "packed.csv.gz": gzip.compress(TEXT.encode()),
    "tabs.tsv": separated("\t"),
    "lines.jsonl": JSON_LINES,
    "mark.jsonl": "\ufeff" + JSON_LINES,
    "lines.ndjson": JSON_LINES.replace("\n", "\n\n"),
    "packed.jsonl.gz": gzip.compress(JSON_LINES.encode()),
}


@pytest.mark.parametrize("name", FILES)
def test_labels_come_as_they_are(write, name):
    """Zeros in front, quotes, commas, line ends, words for nothing, other letters."""
    assert pairs_in(write(name, FILES[name])) == ROWS


def test_encodings(write):
    for encoding in ("latin-1", "utf-16", "cp1252"):
        assert pairs_in(write("said.csv", TEXT.encode(encoding)), encoding=encoding) == ROWS
        lines = '{"winner": "é", "loser": "b"}\n'.encode(encoding)
        assert pairs_in(write("said.jsonl", lines), encoding=encoding) == [("é", "b")]
    rows = "winner,loser\n" + "a,b\n" * 999 + "é,b\n"
    said = refusal(write("not_said.csv", rows.encode("latin-1")))
    assert said == "row 1000: the text is not utf-8: set the encoding, such as encoding='latin-1'"
    for name, content in (
        ("header.csv", "winnér,loser\na,b\n".encode("latin-1")),
        ("wide.csv", TEXT.encode("utf-16")),
        ("not_said.jsonl", lines),
    ):
        assert "the text is not utf-8: set the encoding" in refusal(write(name, content))
    assert refusal(write("a.csv", TEXT), encoding="klingon") == "unknown encoding 'klingon'"


def test_other_delimiters(write):
    path = write("semicolons.csv", "winner;loser\na;b\n")
    assert pairs_in(path, delimiter=";") == [("a", "b")]
    assert "known: 'winner;loser'" in refusal(path)
    with pytest.raises(frames.TableError, match="single character, not '::'"):
        frames.read_votes(path, "pairs", delimiter="::")


def test_integers_and_dates_keep_their_kind(write, tmp_path):
    pa.parquet.write_table(pa.table({"winner": [3, 1], "loser": [1, 20]}), tmp_path / "a.parquet")
    lines = '{"winner": 3, "loser": 1}\n{"winner": 1, "loser": 20}\n'
    for path in (tmp_path / "a.parquet", write("a.jsonl", lines)):
        assert pairs_in(path) == [(3, 1), (1, 20)]
    # What looks like a date in JSON is text, as a label and as a date.
    lines = '{"winner": "2024-01-01", "loser": "b", "date": "2024-01-01T00:00:00"}\n'
    lines += '{"winner": "2024-01-01", "loser": "c", "date": "2024-01-11T00:00:00"}\n'
    votes = frames.read_votes(write("dates.jsonl", lines), "pairs", half_life=10)
    assert votes.items.to_pylist() == ["2024-01-01", "b", "c"]
    assert votes.weight.tolist() == [0.5, 1]


NO_ROWS = "there are no rows"
GOOD_LINE = '{"winner": "a", "loser": "b"}\n'
BAD_FILES = {
    "empty.csv": ("", NO_ROWS),
    "mark_only.csv": ("\ufeff", NO_ROWS),
    "header_only.csv": ("winner,loser\n", NO_ROWS),
    "header_without_end.csv": ("winner,loser", NO_ROWS),
    "empty.jsonl": ("", NO_ROWS),
    "few.csv": (
        "winner,loser\na,b\nalone\n",
        "row 2: the row has 1 cells, but the header has 2: alone",
    ),
    "many.csv": (
        "winner,loser\n" + "a,b\n" * 5000 + "a,b,c\n",
        "row 5001: the row has 3 cells, but the header has 2: a,b,c",
    ),
    "unclosed.csv": ('winner,loser\na,b\n"c,d\n', "row 2: the row has 1 cells"),
    "cell.csv": ("winner,loser\na,b\nc,\n", "row 2: column 'loser' is empty"),
    "quoted.csv": ('winner,loser\na,b\n"",c\n', "row 2: column 'winner' is empty"),
    "spaces.csv": ("winner,loser\na,b\nc,  \n", "row 2: column 'loser' is empty"),
    "twice.csv": ("winner,loser,loser\na,b,c\n", "2 columns are named 'loser'"),
    "spaced.csv": (
        "winner, loser\na,b\n",
        "unknown column 'loser'; did you mean ' loser'? known: 'winner', ' loser'",
    ),
    "cell.jsonl": (GOOD_LINE + '{"winner": "a"}\n', "row 2: column 'loser' is empty"),
    "broken.jsonl": (GOOD_LINE + '{"winner": \n', "row 2 is not valid JSON"),
    "list.jsonl": ("[1]\n", "row 1 is not a JSON object: [1]"),
    "kinds.jsonl": (
        GOOD_LINE * 3 + '{"winner": 1, "loser": "b"}\n',
        "row 4: 'winner' is a number, but earlier rows have a string: 1",
    ),
    "not_packed.csv.gz": ("winner,loser\na,b\n", "incorrect header check"),
    "cut.csv.gz": (gzip.compress(TEXT.encode())[:40], "Truncated"),
    "other.parquet": ("winner,loser\n", "Parquet"),
    "table.json": ("[]", "the file name must end in .csv"),
    "table": ("", "the file name must end in .csv"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_cannot_be_read_names_file_row_and_content(write, name):
    content, expected = BAD_FILES[name]
    assert expected in refusal(write(name, content))


def test_files_that_are_not_there(tmp_path):
    assert refusal(tmp_path / "none.csv") == "no such file"
    (tmp_path / "folder.csv").mkdir()
    assert refusal(tmp_path / "folder.csv") == "no such file"


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert pairs_in("-") == ROWS


def read_back(path):
    """By the standard library, apart from Parquet."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    text = path.read_bytes().decode()
    if path.suffix == ".json":
        return json.loads(text)["rows"]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n")[:-1]]
    names, *rows = csv.reader(io.StringIO(text), delimiter="\t" if path.suffix == ".tsv" else ",")
    kinds = (str, lambda cell: float(cell) if cell else None, int)
    cells = ([kind(cell) for kind, cell in zip(kinds, row, strict=True)] for row in rows)
    return [dict(zip(names, row, strict=True)) for row in cells]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.json"])
@pytest.mark.parametrize("kind", [lambda x: x, pl.from_arrow, pa.Table.to_pandas])
def test_what_is_written_can_be_read(tmp_path, name, kind):
    frames.write_table(kind(TABLE), tmp_path / name)
    assert read_back(tmp_path / name) == TABLE.to_pylist()
    assert os.listdir(tmp_path) == [name]


def test_json_has_the_facts_and_no_nan(tmp_path):
    facts = [{"law": "binary", "error_bound": float("inf"), "nested": {"norm": float("nan")}}]
    frames.write_table(TABLE, tmp_path / "a.json", facts=facts)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["facts"] == [
        {"law": "binary", "error_bound": None, "nested": {"norm": None}}
    ]


@pytest.mark.skipif(os.name != "posix", reason="limits of files are POSIX's")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json"])
def test_a_full_disk_leaves_what_was_there(tmp_path, name):
    """The system refuses files of more than 4,096 bytes, as it does on a disk that is full."""
    import resource

    large = pa.table({"item": [f"item {i * 7919}" for i in range(20_000)]})
    (tmp_path / name).write_text("before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(frames.TableError, match=rf"{name}: cannot write .*too large"):
            frames.write_table(large, tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / name).read_text() == "before"
    assert os.listdir(tmp_path) == [name]


def test_an_interruption_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("before")

    def interrupt(*arguments):
        arguments[1].write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("pyarrow.csv.write_csv", interrupt)
    with pytest.raises(KeyboardInterrupt):
        frames.write_table(TABLE, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "before"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_modes_and_links_stay(tmp_path):
    usual, private, link = (tmp_path / name for name in ("usual.csv", "private.csv", "link.csv"))
    (tmp_path / "by_hand").touch()
    private.touch(mode=0o600)
    link.symlink_to(private)
    for path in (usual, link):
        frames.write_table(TABLE, path)
    assert usual.stat().st_mode == (tmp_path / "by_hand").stat().st_mode
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert link.is_symlink()
    assert private.read_bytes() == usual.read_bytes()


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, message in (
        ("a.txt", "a.txt: the file name must end in .csv"),
        ("a.csv.gz", "the file name must end in"),
        ("none/a.csv", "the folder .*none does not exist"),
        ("folder.csv", "is a folder"),
    ):
        with pytest.raises(frames.TableError, match=message):
            frames.write_table(TABLE, tmp_path / name)
    assert os.listdir(tmp_path) == ["folder.csv"]


def test_rows_longer_than_a_megabyte(write):
    long = "x" * 3_000_000
    lines = "".join(json.dumps({"winner": "a", "loser": "b", "text": long}) + "\n" for _ in "12")
    text = f"winner,loser,text\na,b,{long}\na,b,{long}\n"
    for name, content in (("long.jsonl", lines), ("long.csv", text)):
        assert pairs_in(write(name, content)) == [("a", "b")] * 2


@pytest.mark.slow
def test_ten_million_rows(tmp_path):
    path = tmp_path / "large.csv"
    block = "".join(f"item {i % 1000},item {(i * 7 + 1) % 1000 + 1000}\n" for i in range(100_000))
    with open(path, "w", encoding="utf-8") as file:
        file.write("winner,loser\n")
        file.writelines(block for _ in range(100))
        file.write("item 0,\n")
    assert refusal(path) == "row 10000001: column 'loser' is empty"
    with open(path, "r+", encoding="utf-8") as file:
        file.seek(0, os.SEEK_END)
        file.seek(file.tell() - len("item 0,\n"))
        file.truncate()
    votes = frames.read_votes(path, "pairs")
    assert len(votes) == 10_000_000
    assert len(votes.items) == 2000
    pd.testing.assert_index_equal(
        pd.Index(votes.items.take(pa.array(votes.b[-3:])).to_pylist()),
        pd.Index([f"item {(i * 7 + 1) % 1000 + 1000}" for i in range(99_997, 100_000)]),
    )
