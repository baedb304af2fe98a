"""Files as tables: text or Parquet, gone through block by block."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..data.frames import category_name, split_columns
from .csv_files import CsvTable, Dialect, Part, standard_input
from .errors import DataError
from .parse import BOOLEAN, DATE, DURATION, FLAG, NUMBER, TEXT, BadValue, Marks, decode

Array = np.ndarray
PARQUET_ROWS = 8192  # of a block
_KINDS = {"dates": DATE, "durations": DURATION, "numbers": NUMBER, "text": TEXT, "": NUMBER}


class ParquetTable:
    """Parquet files: one, a folder, or a pattern.

    Attributes
    ----------
    names : list of str
    kinds : dict of str to str
        What every column holds.
    total, done : int
        Rows, and those read so far.
    """

    unit, measure = "row", "rows"
    unnamed: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        if find_spec("pyarrow") is None:
            raise ImportError(
                f"{path} must be read by pyarrow, which is not installed; "
                "run: pip install 'btnkm[cli]'"
            )
        import pyarrow as pa

        from ..data.parquet import kind_of_type, parquet_types

        self.path = self.name = path
        types, self.total = parquet_types(path)
        self.done = 0
        self.kinds = {
            name: BOOLEAN if pa.types.is_boolean(of) else _KINDS[kind_of_type(of)]
            for name, of in types.items()
        }
        self.names = list(types)

    def parts(self, wanted: Iterable[str] | None = None) -> Iterator[Part]:
        """Yield all rows, block by block, with the columns that are wanted."""
        from ..data.parquet import parquet_batches

        self.done = 0
        columns = None if wanted is None else list(wanted)
        for table in parquet_batches(self.path, PARQUET_ROWS, columns):
            begin, self.done = self.done, self.done + len(table)
            found = {name: table.column(name) for name in columns or table.column_names}
            if len(table):
                yield Part(found, range(begin + 1, self.done + 1))


Table = CsvTable | ParquetTable


def open_table(path: str, dialect: Dialect, *, again: bool = True) -> Table:
    """Return the table in a file; one that is a pipe is copied if it must be read ``again``."""
    if path == "-":
        return CsvTable(path, standard_input(again), dialect)
    if os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path)):
        return ParquetTable(path)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        return CsvTable(path, standard_input(again, path), dialect)
    with open(path, "rb") as file:
        if file.read(4) == b"PAR1":
            return ParquetTable(path)
    if dialect.separator is None and {".tsv", ".tab"} & set(Path(path.lower()).suffixes):
        dialect = dialect._replace(separator="\t")
    return CsvTable(path, None, dialect)


def values_of(table: Table, part: Part, name: str, kind: str | None) -> Array:
    """Return a column as ``split_columns`` would; of the kind it has, or text, if that is None."""
    column = part.columns[name]
    try:
        if isinstance(column, tuple):
            assert isinstance(table, CsvTable)
            return decode(column, kind or TEXT, table.dialect.marks)
        return _from_arrow(name, column, kind)
    except BadValue as bad:
        raise bad_value(table, part, name, bad) from None


def bad_value(table: Table, part: Part, name: str, bad: BadValue) -> DataError:
    """Return the sentence about a value, with where it is."""
    return DataError(
        f"must hold {bad.expected}, got {bad.value!r}; mend the value, or leave it empty.",
        table.name,
        column=name,
        **{table.unit: part.places[bad.place]},
    )


def check_columns(table: Table, names: Iterable[str], what: str) -> None:
    """Say so if a table lacks a column."""
    for name in names:
        if name not in table.names:
            some = ", ".join(map(repr, table.names[:12])) + (", …" if len(table.names) > 12 else "")
            raise DataError(
                f"must have the column {name!r} ({what}), got {some}; look at the spelling.",
                table.name,
                column=name,
            )


def _from_arrow(name: str, column: Any, kind: str | None) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        infinite = np.isinf(column.to_numpy(zero_copy_only=False))
        if np.any(infinite):
            place = int(np.flatnonzero(infinite)[0])
            raise BadValue(place, str(column[place]), "a finite number")
    (found,), _ = split_columns(pa.table({name: column}), least=0)
    if found.dtype == object and kind in (NUMBER, FLAG, BOOLEAN, DATE):
        return decode(["" if v is None else v for v in found.tolist()], kind, Marks())
    if kind == TEXT and found.dtype != object:
        levels = [None if v is None or v != v else category_name(v) for v in column.to_pylist()]
        found = np.empty(len(levels), dtype=object)
        found[:] = levels
    return found
