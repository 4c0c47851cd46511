"""Columns of a table as arrays; what cannot be used is an error with its row and content.

Rows are counted from 1, below the header.
"""

import os
from typing import Any, NoReturn, final

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute

from ._files import TableError, read_table

pc: Any = pyarrow.compute  # whose functions are made when it is imported


@final
class Columns:
    """A table with its name, from a file or from somebody's data frame.

    - `name`: of the file, or `table`.
    - `native`: the data frame given, whose kind the results have; None for files.
    """

    def __init__(self, table: Any, *, encoding: str = "utf-8", delimiter: str | None = None):
        if isinstance(table, str | os.PathLike):
            self.name, self.native = os.fspath(table), None
            self._table = read_table(table, encoding=encoding, delimiter=delimiter)
        else:
            self.name, self.native = "table", table
            self._table = _from_frame(table)
        if not self._table.num_rows:
            self.refuse("there are no rows, only the header: nothing to compare")

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._table.schema.names

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._table.num_rows

    def refuse(self, message: str) -> NoReturn:
        """Raise an error that names the table."""
        raise TableError(f"{self.name}: {message}")

    def refuse_row(self, row: int, message: str) -> NoReturn:
        """Raise an error that names the table and a row, given by its position from 0."""
        self.refuse(f"row {row + 1}: {message}")

    def cell(self, name: str, row: int) -> Any:
        """What one cell holds."""
        return self._table[name][row].as_py()

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
        order = pc.array_sort_indices(whole.dictionary).to_numpy()
        number = np.empty(order.size, np.int64)
        number[order] = np.arange(order.size)
        codes = number[whole.indices.to_numpy()].reshape(len(names), -1)
        return codes, whole.dictionary.take(pa.array(order))

    def numbers(self, name: str) -> np.ndarray:
        """Finite numbers."""
        column = self._filled(name)
        if pa.types.is_string(column.type):
            # A space before or after a number is common in files made by hand.
            column = pc.utf8_trim_whitespace(column)
            bad = pc.invert(pc.match_substring_regex(column, _NUMBER))
            self._refuse_first(name, bad, "is no number")
        elif not _is_number(column.type):
            self.refuse(f"column {name!r} must hold numbers, not {column.type}")
        found = np.asarray(column.cast(pa.float64()).to_numpy())
        self._refuse_first(name, pa.array(~np.isfinite(found)), "is not finite")
        return found

    def texts(self, name: str) -> tuple[np.ndarray, list[str]]:
        """Codes of the cells as text, and the text of each code."""
        column = self._filled(name).cast(pa.string())
        encoded = column.dictionary_encode().combine_chunks()
        return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

    def days(self, name: str) -> np.ndarray:
        """Dates, as days since 1970, with fractions."""
        column = self._filled(name)
        if pa.types.is_string(column.type):
            bad = pc.invert(pc.match_substring_regex(column, _DATE))
            self._refuse_first(name, bad, "is no date such as 2024-05-31 or 2024-05-31T12:00:00")
        problem = None
        for kind in (pa.timestamp("ms"), pa.timestamp("ms", "UTC")):  # without and with a zone
            try:
                moments = column.cast(kind, safe=False)
                return moments.cast(pa.int64()).to_numpy() / 86_400_000
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                problem = error
        self.refuse(f"column {name!r} must hold dates of one kind: {problem}")

    def _column(self, name: str) -> pa.ChunkedArray:
        count = self.names.count(name)
        if count == 0:
            listed = ", ".join(self.names)
            self.refuse(f"there is no column {name!r}; its columns are: {listed}")
        if count > 1:
            self.refuse(f"{count} columns are named {name!r}")
        column = self._table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_large_string(column.type) or _is_string_view(column.type):
            column = column.cast(pa.string())
        return column

    def _filled(self, name: str) -> pa.ChunkedArray:
        column = self._column(name)
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            self.refuse_row(row, f"column {name!r} is empty")
        return column

    def _label_column(self, name: str) -> pa.ChunkedArray:
        column = self._filled(name)
        if pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        if not pa.types.is_string(column.type):
            self.refuse(f"column {name!r} must hold strings or integers, not {column.type}")
        return column

    def _refuse_first(self, name: str, bad: Any, complaint: str) -> None:
        row = pc.index(bad, True).as_py()
        if row >= 0:
            self.refuse_row(row, f"column {name!r} {complaint}: {self.cell(name, row)!r}")


_NUMBER = r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?)$"
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$"


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_string_view(kind: pa.DataType) -> bool:
    return pa.types.is_string_view(kind)


def _from_frame(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    try:
        frame = nw.from_native(table, eager_only=True)
    except TypeError as error:
        raise TableError(
            "a table must be a data frame (pandas, Polars, PyArrow) or the name of a file, not "
            f"{type(table).__name__}"
        ) from error
    try:
        return frame.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TableError(f"table: a column holds values of different kinds ({error})") from error


def like(native: Any, table: pa.Table) -> Any:
    """The table as one of the kind of `native`; of PyArrow for None."""
    if native is None or isinstance(native, pa.Table):
        return table
    return nw.from_arrow(table, backend=nw.get_native_namespace(native)).to_native()
