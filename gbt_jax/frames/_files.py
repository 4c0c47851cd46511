"""Tables from files and to files: CSV, TSV, Parquet and JSON lines, by the ending of the name.

Cells of text files stay text until somebody asks for numbers: a label such as 007 comes out as it
went in.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

STANDARD_INPUT = "-"
_COMPRESSED = (".gz", ".bz2", ".zst")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_READ = (*_DELIMITERS, ".parquet", *_JSON_LINES)
_WRITTEN = (*_DELIMITERS, ".parquet", *_JSON_LINES, ".json")
_BLOCK = 2**24  # bytes of text parsed at a time: no row is longer


class TableError(ValueError):
    """A table that cannot be used; the message names the file, the row and its content."""


def read_table(
    path: str | os.PathLike, *, encoding: str = "utf-8", delimiter: str | None = None
) -> pa.Table:
    """The table in a file, or in standard input (`-`, as CSV).

    Cells of CSV and TSV files are strings, and null where they are empty.
    """
    name = os.fspath(path)
    kind = ".csv" if name == STANDARD_INPUT else _suffix(name)
    if kind not in _READ:
        raise TableError(f"{name}: the name must end in {', '.join(_READ)} (and .gz if packed)")
    if name != STANDARD_INPUT and not Path(name).is_file():
        raise TableError(f"{name}: there is no such file")
    try:
        if kind == ".parquet":
            return pyarrow.parquet.read_table(name)
        if kind in _JSON_LINES:
            return pyarrow.json.read_json(name)
        return _read_text(name, delimiter or _DELIMITERS[kind], encoding)
    except LookupError as error:
        raise TableError(f"{name}: there is no encoding {encoding!r}") from error
    except (pa.ArrowInvalid, UnicodeError, OSError) as error:
        raise TableError(f"{name}: {_explained(str(error), encoding)}") from error


def _suffix(name: str) -> str:
    path = Path(name)
    if path.suffix in _COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.lower()


def _read_text(name: str, delimiter: str, encoding: str) -> pa.Table:
    # A file is opened twice: for the names in its header, and with the types of its columns.
    given = io.BytesIO(sys.stdin.buffer.read()) if name == STANDARD_INPUT else None

    def source() -> Any:
        return name if given is None else io.BytesIO(given.getvalue())

    read = pyarrow.csv.ReadOptions(encoding=encoding, block_size=_BLOCK)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pyarrow.csv.open_csv(source(), read, parse) as opened:
        names = opened.schema.names
    text = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    try:
        return pyarrow.csv.read_csv(source(), read, parse, text)
    except pa.ArrowInvalid:
        # Threads do not know how many rows came before theirs; one alone names the bad one.
        alone = pyarrow.csv.ReadOptions(encoding=encoding, block_size=_BLOCK, use_threads=False)
        return pyarrow.csv.read_csv(source(), alone, parse, text)


def _explained(message: str, encoding: str) -> str:
    """What Arrow says, in the words of this package."""
    if "Empty CSV" in message:
        return "the file is empty: a header with the names of the columns is needed"
    if "UTF8" in message or "decode" in message:
        return f"the text is not {encoding}: give its encoding, such as latin-1 ({message})"
    return message.removeprefix("CSV parse error: ")


def write_table(table: pa.Table, path: str | os.PathLike, *, facts: Any = None) -> None:
    """Write a table whole or not at all; `facts` go into .json, beside the rows.

    It is written to a temporary file in the same folder, which then takes the name.
    """
    kind = check_written(path)
    with replacing(path) as stream:
        if kind == ".parquet":
            pyarrow.parquet.write_table(table, stream)
        elif kind in _DELIMITERS:
            write_text(table, stream, _DELIMITERS[kind])
        else:
            text = as_json(table, facts) if kind == ".json" else as_json_lines(table)
            stream.write(text.encode())


def check_written(path: str | os.PathLike) -> str:
    """The ending of a name to write to, or an error: known before the work begins."""
    name, kind = os.fspath(path), Path(path).suffix.lower()
    if kind not in _WRITTEN:
        raise TableError(f"{name}: the name must end in one of {', '.join(_WRITTEN)}")
    if not Path(name).absolute().parent.is_dir():
        raise TableError(f"{name}: there is no folder {Path(name).absolute().parent}")
    return kind


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file when all is written, and nothing otherwise."""
    target = Path(path).absolute()
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as stream:
            temporary = Path(stream.name)
            yield stream  # pyright: ignore[reportReturnType]
            stream.flush()
            os.fsync(stream.fileno())
        # Files made this way are readable by their owner alone; others expect the usual mode.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except OSError as error:
        raise TableError(f"{os.fspath(path)}: cannot be written ({error.strerror})") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(table: pa.Table, stream: Any, delimiter: str = ",") -> None:
    """Write CSV, quoting only what needs it."""
    options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    pyarrow.csv.write_csv(table, stream, options)


def as_json(table: pa.Table, facts: Any = None) -> str:
    """One object: the facts of the fit, and the rows."""
    return json.dumps({"facts": facts, "rows": rows_of(table)}, ensure_ascii=False, indent=1) + "\n"


def as_json_lines(table: pa.Table) -> str:
    """One object per row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows_of(table))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dictionaries, with None for what is no number: JSON knows no NaN."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    is_number = not isinstance(value, float) or abs(value) < float("inf")  # NaN is not less
    return value if is_number else None
