"""Read and write tables: CSV, TSV, Parquet and JSON lines, by the suffix of the file name.

Cells of text files stay text until numbers are requested: the label 007 stays 007.
"""

import codecs
import contextlib
import io
import json
import os
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from .._util._interrupts import renaming, temporary_files, written_files

STANDARD_INPUT = "-"
_COMPRESSED = (".gz", ".bz2", ".zst")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_JSON_LINES = (".jsonl", ".ndjson")
_READ = (*_DELIMITERS, ".parquet", *_JSON_LINES)
_WRITTEN = (*_DELIMITERS, ".parquet", *_JSON_LINES, ".json")
_BLOCK = 2**24  # bytes of text parsed at a time; a row may not be longer
_LONGEST = 60  # characters of a row in a message


class TableError(ValueError):
    """A table is invalid; the message names the file, the row and its content."""


def read_table(
    path: str | os.PathLike, *, encoding: str = "utf-8", delimiter: str | None = None
) -> pa.Table:
    """Read the table in a file, or in standard input (`-`, as CSV).

    **Arguments:**

    - `path`: the file, of type .csv, .tsv, .parquet, .jsonl or .ndjson; .gz may follow.
    - `encoding`: the encoding of a text file.
    - `delimiter`: the delimiter of a text file, by default that of its type.

    **Returns:** a PyArrow table. Cells of CSV and TSV files are strings, and null where they are
    empty.
    """
    name = os.fspath(path)
    kind = ".csv" if name == STANDARD_INPUT else _suffix(name)
    if kind not in _READ:
        raise TableError(f"{name}: the file name must end in {', '.join(_READ)} (.gz may follow)")
    if name != STANDARD_INPUT and not Path(name).is_file():
        raise TableError(f"{name}: no such file")
    if delimiter is not None and len(delimiter) != 1:
        raise TableError(f"a delimiter must be a single character, not {delimiter!r}")
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise TableError(f"{name}: unknown encoding {encoding!r}") from error
    try:
        if kind == ".parquet":
            return pyarrow.parquet.read_table(name)
        if kind in _JSON_LINES:
            return _read_json_lines(name, encoding)
        return _read_text(name, delimiter or _DELIMITERS[kind], encoding)
    except (pa.ArrowInvalid, UnicodeError, OSError) as error:
        raise TableError(f"{name}: {_explain(str(error), encoding)}") from error


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
    # Rows of the wrong length are skipped here, and raise an error below.
    names_only = pyarrow.csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda row: "skip"
    )
    with pyarrow.csv.open_csv(source(), read, names_only) as opened:
        names = opened.schema.names
    text = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    try:
        return pyarrow.csv.read_csv(source(), read, parse, text)
    except pa.ArrowInvalid:
        # With several threads Arrow does not know the number of the bad row.
        alone = pyarrow.csv.ReadOptions(encoding=encoding, block_size=_BLOCK, use_threads=False)
        return pyarrow.csv.read_csv(source(), alone, parse, text)


def _read_json_lines(name: str, encoding: str) -> pa.Table:
    with pa.input_stream(name) as stream:
        content = stream.read()
    if codecs.lookup(encoding).name != "utf-8":
        content = content.decode(encoding).encode()
    try:
        content.decode()  # Arrow does not check
        found = _parse_json(content, pa.schema([]))
        # A label may look like a date: read such columns as text.
        texts = [(x.name, pa.string()) for x in found.schema if pa.types.is_timestamp(x.type)]
        return _parse_json(content, pa.schema(texts)) if texts else found
    except pa.ArrowInvalid as error:
        # Arrow counts the rows of a block, from 0.
        raise pa.ArrowInvalid(_json_fault(content) or str(error)) from error


def _parse_json(content: bytes, known: pa.Schema) -> pa.Table:
    return pyarrow.json.read_json(
        io.BytesIO(content),
        pyarrow.json.ReadOptions(block_size=_BLOCK),
        pyarrow.json.ParseOptions(explicit_schema=known),
    )


def _json_fault(content: bytes) -> str | None:
    """The first line that is not an object, or whose cells change their type."""
    kinds: dict[str, str] = {}
    lines = (line for line in content.decode("utf-8-sig").split("\n") if line.strip())
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            return f"row {number} is not valid JSON ({error}): {_abbreviate(line)}"
        if not isinstance(row, dict):
            return f"row {number} is not a JSON object: {_abbreviate(line)}"
        for name, cell in row.items():
            kind = _json_kind(cell)
            if kind and kinds.setdefault(name, kind) != kind:
                was = f"{kind}, but earlier rows have {kinds[name]}"
                return f"row {number}: {name!r} is {was}: {_abbreviate(json.dumps(cell))}"
    return None


def _json_kind(cell: Any) -> str | None:
    """The JSON type of a cell; None for null, which may stand for any type."""
    if isinstance(cell, bool):
        return "true or false"
    kinds = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(cell))


def _abbreviate(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _explain(message: str, encoding: str) -> str:
    """Rewrite an error message of Arrow."""
    if "Empty CSV" in message or "Empty JSON" in message:
        return "there are no rows: the file needs a header with column names, and rows"
    row = re.search(r"Row #(\d+)", message)  # counted with the header
    where = f"row {int(row[1]) - 1}: " if row else ""
    if "UTF8" in message or "decode" in message:
        detail = "" if row else f" ({message})"
        advice = "set the encoding, such as encoding='latin-1'"
        return f"{where}the text is not {encoding}: {advice}{detail}"
    cells = re.search(r"Expected (\d+) columns, got (\d+): (.*)", message, re.DOTALL)
    if cells:
        expected, found, text = cells.groups()
        cells = f"the row has {found} cells, but the header has {expected}"
        return f"{where}{cells}: {_abbreviate(text)}"
    return message.removeprefix("CSV parse error: ").removeprefix("JSON parse error: ")


def write_table(table: Any, path: str | os.PathLike, *, facts: Any = None) -> None:
    """Write a table atomically: to a temporary file in the same folder, which is then renamed.

    **Arguments:**

    - `table`: a pandas, Polars or PyArrow table.
    - `path`: the file, of type .csv, .tsv, .parquet, .jsonl, .ndjson or .json.
    - `facts`: facts such as `Ranking.facts`, stored beside the rows of a .json file.
    """
    kind = check_output_name(path)
    if not isinstance(table, pa.Table):
        import narwhals as nw  # only data frames need it

        table = nw.from_native(table, eager_only=True).to_arrow()
    with atomic_write(path) as stream:
        if kind == ".parquet":
            pyarrow.parquet.write_table(table, stream)
        elif kind in _DELIMITERS:
            write_text(table, stream, _DELIMITERS[kind])
        else:
            text = as_json(table, facts) if kind == ".json" else as_json_lines(table)
            stream.write(text.encode())


def check_output_name(path: str | os.PathLike) -> str:
    """The suffix of an output file; raise early if the file cannot be written."""
    name, kind = os.fspath(path), Path(path).suffix.lower()
    if kind not in _WRITTEN:
        raise TableError(f"{name}: the file name must end in {', '.join(_WRITTEN)}")
    check_folder(path)
    return kind


def check_folder(path: str | os.PathLike) -> None:
    """Raise if an output path is a folder, or if its folder does not exist."""
    name, folder = os.fspath(path), Path(path).absolute().parent
    if not folder.is_dir():
        raise TableError(f"{name}: the folder {folder} does not exist")
    if Path(path).is_dir():
        raise TableError(f"{name}: this is a folder")


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """A stream to a temporary file that replaces `path` only if everything was written."""
    target = Path(path).resolve()  # keep a link, replace its target
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    temporary_files.add(temporary)
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode)  # keep permissions
        with renaming:
            temporary.replace(target)
            written_files.append(Path(path))
    except OSError as error:
        reason = error.strerror or error
        raise TableError(f"{os.fspath(path)}: cannot write the file ({reason})") from error
    finally:
        temporary.unlink(missing_ok=True)
        temporary_files.discard(temporary)


def write_text(table: pa.Table, stream: Any, delimiter: str = ",") -> None:
    """Write CSV, in which text is quoted and numbers are not."""
    options = pyarrow.csv.WriteOptions(delimiter=delimiter, quoting_style="needed")
    pyarrow.csv.write_csv(table, stream, options)


def as_json(table: pa.Table, facts: Any = None) -> str:
    """One JSON object with the facts of the fit and the rows."""
    whole = {"facts": _json_value(facts), "rows": rows_as_dicts(table)}
    return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"


def as_json_lines(table: pa.Table) -> str:
    """One JSON object per row."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows_as_dicts(table))


def rows_as_dicts(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as dictionaries, with None for NaN and infinity, which JSON lacks."""
    return [{name: _json_value(value) for name, value in row.items()} for row in table.to_pylist()]


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_json_value(part) for part in value]
    is_number = not isinstance(value, float) or abs(value) < float("inf")  # NaN is not less
    return value if is_number else None
