"""Output files: rows as text or Parquet, written block by block; complete or absent."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..io.atomic_write import check_folder, naming, whole_file
from .console import CLOSED, STDOUT, UsageError

FORMATS = (".csv", ".tsv", ".parquet", ".pq")


class TextRows:
    """Rows written to a text file."""

    def __init__(self, file: Any, separator: str) -> None:
        self._csv = csv.writer(file, delimiter=separator, lineterminator="\n")
        self._has_header = False

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write rows, the first time with a header; missing values are empty."""
        if not self._has_header:
            self._csv.writerow(list(columns))
            self._has_header = True
        self._csv.writerows(zip(*map(_items, columns.values()), strict=True))


class ParquetRows:
    """Rows written to a Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Write rows; the first ones determine the types."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: _arrow(values) for name, values in columns.items()})
        if self._writer is None:
            fields = [
                pa.field(f.name, pa.string() if pa.types.is_null(f.type) else f.type)
                for f in table.schema
            ]
            self._schema = pa.schema(fields)
            self._writer = pq.ParquetWriter(self._path, self._schema)
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


def check_output(path: Path | None, option: str = "--output", **read: str | Path | None) -> None:
    """Raise an error before any work if a file cannot be written, or if it is one that is read.

    Files that are read are given as in ``table="t.csv"``.
    """
    if path is None:
        return
    check_folder(path, option)
    if not path.is_file():
        return
    for what, given in read.items():
        if given is not None and _is_among(path, os.fspath(given)):
            raise UsageError(
                f"{option} must not be the {what} itself, got {str(path)!r}; name another file."
            )


def _is_among(path: Path, given: str) -> bool:
    """Whether a file is the same as another, or one in a folder or of a pattern."""
    if given == "-":
        with suppress(AttributeError, OSError, ValueError):  # without such a file
            return os.path.samestat(path.stat(), os.fstat(sys.stdin.fileno()))
        return False
    if os.path.isdir(given):
        return Path(os.path.realpath(given)) in Path(os.path.realpath(path)).parents
    files = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
    return any(path.samefile(file) for file in files if os.path.isfile(file))


def check_rows_output(path: Path | None, json: bool, *, table: str, model: str) -> None:
    """Raise an error if rows cannot be written to a path, or to standard output (None)."""
    if path is None:
        if json:
            raise UsageError("--json needs a file for the rows; add -o FILE.")
        return
    check_format(path)
    check_output(path, table=table, model=model)


def check_format(path: Path) -> None:
    """Raise an error if the name of a file does not end with a known format."""
    suffix = _suffix(path)
    if path.exists() and not path.is_file():
        return  # text, for example to /dev/null
    if suffix not in FORMATS:
        raise UsageError(
            f"the output must end with .csv, .tsv, .csv.gz, .tsv.gz or .parquet, got {str(path)!r};"
            " rename it."
        )
    if suffix in (".parquet", ".pq") and find_spec("pyarrow") is None:
        raise ImportError("writing Parquet files needs pyarrow; run: pip install 'btnkm[cli]'")


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = suffixes[-1:] == [".gz"]
    last = suffixes[-2:-1] if compressed else suffixes[-1:]
    suffix = last[0] if last else ""
    return "" if compressed and suffix not in (".csv", ".tsv") else suffix


def on_screen(path: Path | None) -> bool:
    """Whether rows go to a terminal, where a progress bar would mix with them."""
    return path is None and sys.stdout is not None and sys.stdout.isatty()


@contextmanager
def rows_to(path: Path | None) -> Iterator[TextRows | ParquetRows]:
    """Yield a writer of rows to a file, in the format of its name, or to stdout."""
    if path is None:
        if sys.stdout is None:
            raise OSError(CLOSED)
        text = io.TextIOWrapper(sys.stdout.buffer, "utf-8", newline="", write_through=True)
        try:
            with naming(STDOUT):
                yield TextRows(text, ",")
        finally:
            text.detach()
        return
    with whole_file(path) as draft:
        if _suffix(path) in (".parquet", ".pq"):
            rows = ParquetRows(draft)
            try:
                yield rows
            finally:
                rows.close()
            return
        compressed = path.suffix.lower() == ".gz"
        opened: Any = gzip.open if compressed else open
        with opened(draft, "wt", encoding="utf-8", newline="") as file:
            yield TextRows(file, "\t" if _suffix(path) == ".tsv" else ",")


def write_text(path: Path, text: str) -> None:
    """Write a file, completely or not at all."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _items(values: Any) -> Sequence[Any]:
    """Return values for a text file."""
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    elif hasattr(values, "tolist"):
        values = values.tolist()
    return ["" if v is None or v != v else v for v in values]


def _arrow(values: Any) -> Any:
    import pyarrow as pa

    if hasattr(values, "to_pylist"):
        return values
    plain = getattr(values, "dtype", None)
    return pa.array(values if plain is not None and plain.kind in "biuf" else list(values))
