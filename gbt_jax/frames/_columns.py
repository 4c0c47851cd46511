"""Columns of a table as arrays; an error names the row and the content of the bad cell.

Rows are counted from 1, below the header.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ._files import TableError, read_table
from ._suggestions import unknown_message

pc: Any = pyarrow.compute  # type checkers do not see its functions, made at import


@final
class Columns:
    """A table with its name, from a file or a data frame.

    - `name`: the name of the file, or `table`.
    - `native`: the data frame given, None for files. Results are returned as the same kind.
    """

    def __init__(self, table: Any, *, encoding: str = "utf-8", delimiter: str | None = None):
        if isinstance(table, str | os.PathLike):
            self.name, self.native = os.fspath(table), None
            self._source = _arrow_source(read_table(table, encoding=encoding, delimiter=delimiter))
        else:
            self.name, self.native = "table", table
            self._source = (
                _arrow_source(table) if isinstance(table, pa.Table) else _frame_source(table)
            )
        if not self.num_rows:
            self.refuse("there are no rows below the header")

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._source.names

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._source.num_rows

    def refuse(self, message: str) -> NoReturn:
        """Raise an error that names the table."""
        raise TableError(f"{self.name}: {message}")

    def refuse_row(self, row: int, message: str) -> NoReturn:
        """Raise an error that names the table and a row, given by its position from 0."""
        self.refuse(f"row {row + 1}: {message}")

    def cell(self, name: str, row: int) -> Any:
        """The content of one cell."""
        return self._column(name)[row].as_py()

    def release(self) -> None:
        """Free the content of a file that was read, of which names and size are kept."""
        if self.native is None:
            self._source = self._source._replace(column=_refuse_released)
            pa.default_memory_pool().release_unused()

    def labels(self, *names: str) -> tuple[np.ndarray, pa.Array]:
        """Codes of all cells of these columns, and the label of each code, ascending.

        Strings or integers; in several columns of the same kind. One row of codes per column.
        """
        columns = [self._label_column(name) for name in names]
        kinds = {column.type for column in columns}
        if len(kinds) > 1:
            listed = ", ".join(f"{n} holds {c.type}" for n, c in zip(names, columns, strict=True))
            self.refuse(f"labels must be all strings or all integers: {listed}")
        chunks = [chunk for column in columns for chunk in column.chunks]
        encoded = pa.chunked_array(chunks, type=columns[0].type).dictionary_encode()
        whole = encoded.combine_chunks() if encoded.num_chunks != 1 else encoded.chunk(0)
        self._refuse_blank(names, whole)
        order = pc.array_sort_indices(whole.dictionary).to_numpy()
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        codes = number[whole.indices.to_numpy()].reshape(len(names), -1)
        return codes, whole.dictionary.take(pa.array(order))

    def numbers(self, name: str) -> np.ndarray:
        """Finite numbers."""
        column = self._complete_column(name)
        if pa.types.is_string(column.type):
            # A space before or after a number is common in files made by hand.
            column = pc.utf8_trim_whitespace(column)
            bad = pc.invert(pc.match_substring_regex(column, _NUMBER))
            self._refuse_first(name, bad, "is not a number")
        elif not _is_number(column.type):
            self.refuse(f"column {name!r} must hold numbers, not {column.type}")
        # safe=False rounds integers of more than 53 bits, as everywhere.
        found = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())
        self._refuse_first(name, pa.array(~np.isfinite(found)), "is not finite")
        return found

    def texts(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Codes of the cells as text, and the text of each code."""
        column = self._complete_column(name)
        if not (pa.types.is_string(column.type) or _is_number(column.type)):
            self.refuse(f"column {name!r} must hold text or numbers, not {column.type}")
        encoded = column.cast(pa.string()).dictionary_encode().combine_chunks()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def days(self, name: str) -> np.ndarray:
        """Dates, as days since 1970, with fractions. Numbers are seconds since 1970."""
        column = self._complete_column(name)
        if _is_number(column.type) or _starts_with_number(column):
            return self._days_of_seconds(name)
        if pa.types.is_string(column.type):
            return _days(self._moments(name, pc.utf8_trim_whitespace(column)))
        if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
            self.refuse(f"column {name!r} must hold dates, not {column.type}")
        return _days(column)

    def _days_of_seconds(self, name: str) -> np.ndarray:
        seconds = self.numbers(name)
        outside = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
        self._refuse_first(
            name,
            pa.array(outside),
            "is not a date: write dates as 2024-05-31, or as seconds since 1970 (from 1973 on)",
        )
        return seconds / 86_400

    def _moments(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Dates written as text, all with a time zone or all without."""
        bad = pc.invert(pc.match_substring_regex(column, _DATE))
        self._refuse_first(name, bad, f"is not a date such as {_DATES}")
        has_zone = pc.match_substring_regex(column, _ZONE)
        zoned = has_zone[0].as_py()
        other = pc.invert(has_zone) if zoned else has_zone
        complaint = "has a time zone, but the first row has none"
        if zoned:
            complaint = "has no time zone, but the first row has one"
        self._refuse_first(name, other, complaint)
        column = pc.replace_substring_regex(column, r"\.\d+", "")  # parts of a second
        kind = pa.timestamp("s", "UTC" if zoned else None)
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            row = _first_uncastable_row(column, kind)  # such as February 30
            self.refuse_row(row, f"column {name!r} is not a date: {self.cell(name, row)!r}")

    def _column(self, name: str) -> pa.ChunkedArray:
        count = self.names.count(name)
        if count == 0:
            self.refuse(unknown_message("column", name, self.names))
        if count > 1:
            self.refuse(f"{count} columns are named {name!r}")
        try:
            column = self._source.column(self.names.index(name))
        except _CellError as error:
            self.refuse_row(error.row, f"column {name!r} holds {error}")
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_large_string(column.type) or _is_string_view(column.type):
            column = column.cast(pa.string())
        return column

    def _complete_column(self, name: str) -> pa.ChunkedArray:
        column = self._column(name)
        if column.null_count:
            row = _first(pc.is_null(column))
            self.refuse_row(row or 0, f"column {name!r} is empty")
        return column

    def _label_column(self, name: str) -> pa.ChunkedArray:
        column = self._complete_column(name)
        if pa.types.is_integer(column.type):
            if pa.types.is_uint64(column.type):
                largest = pa.scalar(2**63 - 1, pa.uint64())
                self._refuse_first(name, pc.greater(column, largest), "is too large for a label")
            return column.cast(pa.int64())
        if not pa.types.is_string(column.type):
            self.refuse(f"column {name!r} must hold strings or integers, not {column.type}")
        return column

    def _refuse_blank(self, names: tuple[str, ...], encoded: pa.DictionaryArray) -> None:
        """Raise for a label of white space; empty cells of files are null already."""
        if not pa.types.is_string(encoded.dictionary.type):
            return
        lengths = pc.binary_length(pc.utf8_trim_whitespace(encoded.dictionary)).to_numpy()
        blank = _first(lengths == 0)
        if blank is not None:
            place = _first(encoded.indices.to_numpy() == blank)
            column, row = divmod(place or 0, self.num_rows)
            self.refuse_row(row, f"column {names[column]!r} is empty")

    def _refuse_first(self, name: str, bad: Any, complaint: str) -> None:
        row = _first(bad)
        if row is not None:
            self.refuse_row(row, f"column {name!r} {complaint}: {self.cell(name, row)!r}")


def _first(mask: Any) -> int | None:
    """The first position at which a mask of NumPy or Arrow is true."""
    places = np.flatnonzero(np.asarray(mask))
    return int(places[0]) if places.size else None


_NUMBER = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)$"
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"
_DATES = "2024-05-31 or 2024-05-31T12:00:00"
# Years, days, 20240531 and milliseconds lie outside, so none of them is mistaken for seconds.
_FIRST_SECOND, _LAST_SECOND = 1e8, 1e11


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_string_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind)


def _starts_with_number(column: pa.ChunkedArray) -> bool:
    is_text = pa.types.is_string(column.type)
    return is_text and pc.match_substring_regex(column[0], rf"^\s*{_NUMBER[1:]}").as_py()


def _days(column: pa.ChunkedArray) -> np.ndarray:
    moments = column.cast(pa.timestamp("ms"), safe=False)  # of UTC, where there is a zone
    return moments.cast(pa.int64()).to_numpy() / 86_400_000


def _first_uncastable_row(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that cannot be cast, by bisection."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


class _Source(NamedTuple):
    """A table whose columns are converted on access, by position."""

    names: list[str]
    num_rows: int
    column: Callable[[int], pa.ChunkedArray]


class _CellError(Exception):
    """A column of a data frame with mixed types, or of a type that is neither text nor a number."""

    def __init__(self, row: int, message: str):
        Exception.__init__(self, message)
        self.row = row


def _arrow_source(table: pa.Table) -> _Source:
    return _Source(table.schema.names, table.num_rows, table.column)


def _refuse_released(position: int) -> NoReturn:
    raise RuntimeError("the columns of this file were released")


def _frame_source(table: Any) -> _Source:
    import narwhals as nw  # not needed for files

    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError as error:
        raise TableError(
            "a table must be a pandas or Polars data frame (collect a lazy one), a PyArrow table "
            f"or a file name, not {type(table).__name__}"
        ) from error
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"table: {error}") from error

    def column(position: int) -> pa.ChunkedArray:
        series = frame[:, position]
        try:
            return pa.chunked_array([series.to_arrow()])
        except pa.ArrowException as error:
            raise _first_mismatch(series.to_list()) from error

    return _Source([str(name) for name in frame.columns], len(frame), column)


def _is_missing(cell: Any) -> bool:
    is_nan = isinstance(cell, float) and cell != cell
    return cell is None or is_nan or type(cell).__name__ in ("NAType", "NaTType")  # of pandas


def _first_mismatch(cells: list[Any]) -> _CellError:
    """The first cell whose type differs from the one before it; missing cells have any type."""
    rows = [row for row, cell in enumerate(cells) if not _is_missing(cell)]
    for before, row in itertools.pairwise(rows):
        if type(cells[before]) is not type(cells[row]):
            mixed = f"{cells[row]!r} after {cells[before]!r}"
            return _CellError(row, f"values of different types: {mixed}")
    return _CellError(rows[0], f"{cells[rows[0]]!r}, which is neither text nor a number")


def as_native_frame(native: Any, table: pa.Table) -> Any:
    """The table as the same kind of data frame as `native`; PyArrow if that is None."""
    if native is None or isinstance(native, pa.Table):
        return table
    import narwhals as nw

    return nw.from_arrow(table, backend=nw.get_native_namespace(native)).to_native()
