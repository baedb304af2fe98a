"""Text files of separated values (CSV, TSV), read block by block; errors name the line."""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple

MISSING = frozenset(["", "NA", "N/A", "NaN", "nan", "null", "NULL"])
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Rows of a block, fewer if they have many fields: more would not stay in the processor's cache,
# fewer would mean more calls of the model.
BLOCK_ROWS, BLOCK_FIELDS = 2048, 2**16
CHUNK, LONGEST_LINE = 2**18, 2**24  # bytes
_CSV_ERRORS = {
    "unexpected end of data": "the quotation mark that opens here is never closed; close it",
    "field larger than field limit": "a field must be shorter than 131,072 characters: a quotation "
    "mark that opens here may never be closed; close it",
    "new-line character seen": "lines must end with LF or CRLF, got CR; convert the line endings",
    "expected after": "a quotation mark inside a quoted field must be doubled; double it",
}


class DataError(ValueError):
    """A problem in a file: names the file and, if known, the line (or row) and column.

    Lines of text files and rows of Parquet files are counted from 1.
    """

    def __init__(
        self,
        message: str,
        file: str,
        *,
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        where = {"file": file, "line": line, "row": row, "column": column}
        self.where: dict[str, Any] = {k: v for k, v in where.items() if v is not None}
        parts = [file, *(f"{k} {v:,}" for k, v in self.where.items() if k in ("line", "row"))]
        parts += [] if column is None else [f"column {column!r}"]
        super().__init__(f"{', '.join(parts)}: {message}")


class Dialect(NamedTuple):
    """How the text of a table is written."""

    separator: str | None = None  # None takes the one that occurs most often in the header
    encoding: str = "utf-8"
    missing: frozenset[str] = MISSING  # texts that stand for a missing value
    decimal: str = "."  # decimal mark of numbers


class Block(NamedTuple):
    """Some rows of a file: columns by name, and the line or row at which each row begins."""

    columns: dict[str, Any]  # tuples of str, or arrays of Arrow
    positions: Sequence[int]

    def __len__(self) -> int:
        return len(self.positions)


class CsvFile:
    """A file of separated values with a header, or standard input ("-").

    Without a ``stream`` the file is opened anew for every pass. A column without a name is called
    by its position, and listed in ``unnamed``. Of the ``total`` bytes of the file (0 if unknown),
    ``done`` have been read.
    """

    unit, measure = "line", "bytes"

    def __init__(self, path: str, stream: Any, dialect: Dialect) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else path
        self.dialect = dialect
        self.done, self.total = 0, os.path.getsize(path) if stream is None else 0
        self._stream = stream
        self._raw: Any = None
        self._reader: _Reader | None = self._open()
        self.separator, header = self._reader.separator, self._reader.header
        if stream is None:  # a file is open only while it is read
            self._reader = None
            self._close()
        self.names, self.unnamed = self._names(header)

    def blocks(self, wanted: Iterable[str] | None = None) -> Iterator[Block]:
        """Yield all rows, block by block, with the columns that are wanted."""
        reader, self._reader = self._reader or self._open(), None
        chosen = self.names if wanted is None else list(wanted)
        places = {name: j for j, name in enumerate(self.names)}
        most = max(1, min(BLOCK_ROWS, BLOCK_FIELDS // len(self.names)))
        try:
            while block := reader.read(len(self.names), most):
                lines, rows = block
                columns: list[Any] = list(zip(*rows, strict=True))
                self.done = self._raw.tell() if self.total else 0
                yield Block({name: columns[places[name]] for name in chosen}, lines)
        finally:
            self._close()

    def _close(self) -> None:
        if self._stream is None and self._raw is not None:
            self._raw.close()

    def _open(self) -> _Reader:
        if self._stream is None:
            self._raw = open(self.path, "rb", CHUNK)  # noqa: SIM115
        elif self._raw is None:
            self._raw = self._stream
        elif self._stream.seekable():
            self._stream.seek(0)
        else:
            raise DataError(
                "must be read a second time, which a pipe does not allow; use a file.", self.name
            )
        try:
            return _Reader(_decompressed(self._raw, self.name), self.name, self.dialect)
        except BaseException:
            self._close()
            raise

    def _names(self, header: list[str]) -> tuple[list[str], list[str]]:
        names = [name.strip() for name in header]
        unnamed = [f"column {j + 1}" for j, name in enumerate(names) if not name]
        names = [name or f"column {j + 1}" for j, name in enumerate(names)]
        twice = next(((name, n) for name, n in Counter(names).items() if n > 1), None)
        if twice is not None:
            raise DataError(
                f"column names must be unique, got {twice[0]!r} {twice[1]} times; rename them.",
                self.name,
                line=1,
            )
        return names, unnamed


class _Reader:
    """The rows of an open file."""

    def __init__(self, file: Any, name: str, dialect: Dialect) -> None:
        self.name, self.encoding = name, dialect.encoding
        lines = self._lines(file)
        first = next(lines, None)
        if first is None:
            raise DataError("must have a header and rows, got an empty file.", name)
        first = first.removeprefix("\ufeff")
        self.separator = dialect.separator or _most_frequent_separator(first)
        self.csv = csv.reader(
            chain([first], lines), delimiter=self.separator, strict=True, skipinitialspace=True
        )
        self.line = 1  # where the next row begins
        self.header: list[str] = []
        while not self.header:
            rows = self._rows(1)
            if not rows:
                raise DataError("must have a header and rows, got only blank lines.", name)
            self.header = rows[0][1]

    def read(self, width: int, most: int) -> tuple[Sequence[int], list[list[str]]] | None:
        """Return the lines and fields of up to ``most`` rows; None at the end of the file."""
        while rows := self._rows(most):
            for line, row in rows:
                if row and len(row) != width:
                    raise DataError(
                        f"every row must have {width} fields, as the header has, got {len(row)}; "
                        f"{_advice(row, width, self.separator)}",
                        self.name,
                        line=line,
                    )
            full = [(line, row) for line, row in rows if row]
            if full:
                return [line for line, _ in full], [row for _, row in full]
        return None

    def _rows(self, most: int) -> list[tuple[int, list[str]]]:
        """Return the next rows, blank ones included, with the line at which each begins."""
        rows: list[list[str]] = []
        begin = self.line
        try:
            rows.extend(islice(self.csv, most))
        except csv.Error as error:
            line = begin + sum(map(_height, rows))  # the rows before the error are in the list
            texts = (text for sign, text in _CSV_ERRORS.items() if sign in str(error))
            text = next(texts, f"the line cannot be read ({error}); fix it")
            raise DataError(f"{text}.", self.name, line=line) from None
        self.line = self.csv.line_num + 1
        if self.line - begin == len(rows):
            return list(zip(range(begin, self.line), rows, strict=True))
        lines = accumulate(map(_height, rows[:-1]), initial=begin)
        return list(zip(lines, rows, strict=True))

    def _lines(self, file: Any) -> Iterator[str]:
        number = 1  # of the first line of the chunk
        while raw := self._chunk(file, number):
            try:
                text = raw.decode(self.encoding)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"must be {self.encoding}, got the byte 0x{raw[error.start]:02x}; convert the "
                    "file, or name its encoding, for example --encoding latin-1.",
                    self.name,
                    line=number + raw.count(b"\n", 0, error.start),
                ) from None
            if "\0" in text:
                raise DataError(
                    "must be text, got a NUL byte; the file is damaged or not a text file.",
                    self.name,
                    line=number + text.count("\n", 0, text.index("\0")),
                )
            yield from io.StringIO(text, newline="\n")
            number += raw.count(b"\n")

    def _chunk(self, file: Any, number: int) -> bytes:
        """Return complete lines: what a pipe has ready, or many lines of a file."""
        try:
            begin: bytes = file.read1(CHUNK)
            if begin.endswith(b"\n"):
                return begin
            rest: bytes = file.readline(LONGEST_LINE)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"must be complete, got a damaged gzip file ({error}); get a new copy.",
                self.name,
                line=number,
            ) from None
        if len(rest) == LONGEST_LINE:
            raise DataError(
                f"must have lines below {LONGEST_LINE >> 20} MiB, got a longer one; check that it "
                "is a text file.",
                self.name,
                line=number + begin.count(b"\n"),
            )
        return begin + rest


def _height(row: list[str]) -> int:
    """Return the number of lines of a row."""
    return 1 + sum(field.count("\n") for field in row)


def read_stream(path: str, *, again: bool) -> Any:
    """Return standard input ("-") or a pipe; it is copied if it must be read ``again``."""
    if path == "-" and sys.stdin is None:
        raise DataError("must be open, got it closed; name a file.", "standard input")
    stream = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115
    if not again:
        return stream
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115  # deleted when the process ends
    shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


def _decompressed(raw: Any, name: str) -> Any:
    """Return a file with the bytes of the text; raise an error for other kinds of files."""
    start = raw.peek(4)[:4]
    if start[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("must be UTF-8, got UTF-16; save it as CSV in UTF-8.", name, line=1)
    if start == b"PK\x03\x04":
        raise DataError(
            "must be a text or Parquet file, got a spreadsheet or a zip file; save it as CSV.",
            name,
        )
    if start == b"PAR1":
        raise DataError("must be text, got Parquet from a pipe; give the path of the file.", name)
    return raw


def _most_frequent_separator(header: str) -> str:
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=unquoted.count)


def _advice(row: list[str], width: int, separator: str) -> str:
    if len(row) > width:
        return f"quote fields that contain {SEPARATORS.get(separator, repr(separator))}."
    return "complete the row, or remove it."
