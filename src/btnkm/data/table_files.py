"""Tables in files, text or Parquet, read block by block; and what a pass over the rows tells."""

from __future__ import annotations

import difflib
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .csv_file import Block, CsvFile, DataError, Dialect, read_stream
from .frames import category_name, objects, split_columns
from .text import (
    BOOLEAN,
    DATE,
    FLAG,
    NUMBER,
    TEXT,
    FirstText,
    InvalidValue,
    TypeGuess,
    decode,
    is_missing,
)

Array = np.ndarray
PARQUET_ROWS = 8192  # of a block
MAX_DISTINCT = 20  # values of a target that are remembered


class ParquetFile:
    """Parquet files: one, a folder, or a pattern; ``total`` rows, of which ``done`` are read."""

    unit, measure = "row", "rows"
    unnamed: tuple[str, ...] = ()

    def __init__(self, path: str) -> None:
        if find_spec("pyarrow") is None:
            raise ImportError(
                f"{path} is a Parquet file, which needs pyarrow; run: pip install 'btnkm[cli]'"
            )
        import pyarrow as pa

        from .readers import kind_of_type, parquet_types

        self.path = self.name = path
        types, self.total = parquet_types(path)
        self.done = 0
        self.kinds = {
            name: BOOLEAN if pa.types.is_boolean(of) else kind_of_type(of) or NUMBER
            for name, of in types.items()
        }
        self.names = list(types)

    def blocks(self, wanted: Iterable[str] | None = None) -> Iterator[Block]:
        """Yield all rows, block by block, with the columns that are wanted."""
        from .readers import parquet_batches

        self.done = 0
        columns = None if wanted is None else list(wanted)
        for table in parquet_batches(self.path, PARQUET_ROWS, columns):
            begin, self.done = self.done, self.done + len(table)
            if len(table):
                chosen = {name: table.column(name) for name in columns or table.column_names}
                yield Block(chosen, range(begin + 1, self.done + 1))


TableFile = CsvFile | ParquetFile


def open_table(path: str, dialect: Dialect, *, again: bool = True) -> TableFile:
    """Return the table in a file; a pipe is copied if it must be read ``again``."""
    if path == "-":
        return CsvFile(path, read_stream(path, again=again), dialect)
    if os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path)):
        return ParquetFile(path)
    if not stat.S_ISREG(os.stat(path).st_mode):
        return CsvFile(path, read_stream(path, again=again), dialect)
    with open(path, "rb") as file:
        if file.read(4) == b"PAR1":
            return ParquetFile(path)
    if dialect.separator is None and {".tsv", ".tab"} & set(Path(path.lower()).suffixes):
        dialect = dialect._replace(separator="\t")
    return CsvFile(path, None, dialect)


def check_columns(table: TableFile, names: Iterable[str], what: str) -> None:
    """Raise an error if a table lacks a column; ``what`` says what needs it."""
    for name in names:
        if name in table.names:
            continue
        similar = [known for known in table.names if known.lower() == name.lower()]
        similar += difflib.get_close_matches(name, table.names, n=1)
        listed = ", ".join(map(repr, table.names[:12])) + (", …" if len(table.names) > 12 else "")
        hint = f"Did you mean {similar[0]!r}?" if similar else f"Its columns are {listed}."
        error = DataError(f"has no column {name!r} ({what}). {hint}", table.name)
        error.where["column"] = name
        raise error


def values_of(table: TableFile, block: Block, name: str, kind: str | None) -> Array:
    """Return a column in the form of ``split_columns``; None keeps the type it has in the file."""
    column = block.columns[name]
    try:
        if isinstance(table, CsvFile):
            return decode(column, kind or TEXT, table.dialect)
        return _from_arrow(name, column, kind)
    except InvalidValue as invalid:
        raise DataError(
            f"must hold {invalid.expected}, got {invalid.value!r}; fix the value, or leave it "
            "empty.",
            table.name,
            column=name,
            **{table.unit: block.positions[invalid.index]},
        ) from None


def _from_arrow(name: str, column: Any, kind: str | None) -> Array:
    import pyarrow as pa

    if pa.types.is_floating(column.type):
        infinite = np.isinf(column.to_numpy(zero_copy_only=False))
        if np.any(infinite):
            index = int(np.flatnonzero(infinite)[0])
            raise InvalidValue(index, str(column[index]), "a finite number")
    (values,), _ = split_columns(pa.table({name: column}), least=0)
    if values.dtype == object and kind in (NUMBER, FLAG, BOOLEAN, DATE):
        return decode(["" if v is None else v for v in values.tolist()], kind, Dialect())
    if kind == TEXT and values.dtype != object:
        items = column.to_pylist()
        return objects([None if v is None or v != v else category_name(v) for v in items])
    return values


@dataclass
class Scan:
    """Statistics of a table from a pass over all its rows."""

    # type of every column; one without any value counts as numbers
    kinds: dict[str, str] = field(default_factory=dict)
    guesses: dict[str, TypeGuess] = field(default_factory=dict)  # of columns of text files
    n_rows: int = 0
    n_missing: int = 0  # rows without a target
    first_missing: int = 0  # line or row of the first of these
    distinct: set[Any] = field(default_factory=set)  # the first few values of the target

    @property
    def first_texts(self) -> dict[str, FirstText]:
        """Columns that became text after many values of another type."""
        return {name: g.first_text for name, g in self.guesses.items() if g.first_text is not None}

    @property
    def two_whole_numbers(self) -> bool:
        """Whether the target has two values, both of them whole numbers."""
        return len(self.distinct) == 2 and all(map(is_whole, self.distinct))

    @property
    def few_whole_numbers(self) -> bool:
        """Whether the target has only a few values, all of them whole numbers."""
        return 2 < len(self.distinct) < MAX_DISTINCT and all(map(is_whole, self.distinct))

    def add_target(self, values: Sequence[Any], missing: Sequence[bool], block: Block) -> None:
        """Take the target's values of a block into account."""
        self.n_rows += len(block)
        if any(missing):
            if not self.n_missing:
                self.first_missing = block.positions[list(missing).index(True)]
            self.n_missing += sum(missing)
        if len(self.distinct) < MAX_DISTINCT:
            present = dict.fromkeys(v for v, m in zip(values, missing, strict=True) if not m)
            self.distinct |= {_as_number(v) for v in list(present)[:MAX_DISTINCT]}


def scan(table: TableFile, blocks: Iterable[Block], inputs: Iterable[str], target: str) -> Scan:
    """Go through the blocks of a table; of text every value is looked at."""
    result = Scan()
    names = [*inputs, target]
    if not isinstance(table, CsvFile):
        result.kinds = {name: table.kinds[name] for name in names}
        for block in blocks:
            values = block.columns[target].to_pylist()
            result.add_target(values, [v is None or v != v for v in values], block)
        return result
    guesses = result.guesses = {name: TypeGuess() for name in names}
    for block in blocks:
        for name, guess in guesses.items():
            guess.update(block.columns[name], block.positions, table.dialect)
        values = [v.strip() for v in block.columns[target]]
        result.add_target(values, [is_missing(v, table.dialect) for v in values], block)
    result.kinds = {name: guess.kind or NUMBER for name, guess in guesses.items()}
    return result


def _as_number(value: Any) -> Any:
    """Return the number that a text stands for, so that 1 and 1.0 are equal, or the text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def is_whole(value: Any) -> bool:
    """Whether a value is a float without a fraction."""
    return isinstance(value, float) and value.is_integer()
