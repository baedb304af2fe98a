"""Tables of separated values, read block by block, with the line of everything that is wrong."""

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

from .errors import DataError
from .parse import Marks

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Of a block: so many rows, fewer if they are long. More of them would leave the processor's cache,
# fewer cost the model more calls.
PART_ROWS, PART_FIELDS = 2048, 2**16
CHUNK, LONGEST_LINE = 2**18, 2**24  # bytes
_WRONG = {
    "unexpected end of data": "the quotation mark that opens here is never closed; close it",
    "field larger than field limit": "a field must be shorter than 131,072 characters: a quotation "
    "mark that opens here may never be closed; close it",
    "new-line character seen": "lines must end with LF or CRLF, got CR; convert the line ends",
    "expected after": "a quotation mark within quotation marks must be doubled; double it",
}


class Part(NamedTuple):
    """Some rows of a table as they came: columns by name, and the line or row each is in."""

    columns: dict[str, Any]  # lists of str, or arrays of Arrow
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)


class Dialect(NamedTuple):
    """How the text of a table is to be read."""

    separator: str | None = None  # None: what the header has most of
    encoding: str = "utf-8"
    marks: Marks = Marks()


class CsvTable:
    """A file of separated values with a header, or what comes from standard input.

    Parameters
    ----------
    path : str
        "-" for standard input.
    stream : binary file or None
        What to read; None opens the file, as often as it is gone through.
    dialect : Dialect

    Attributes
    ----------
    names : list of str
        Of the columns; those without one are called after their place, and listed in ``unnamed``.
    total, done : int
        Bytes of the file, 0 where nobody knows, and those read so far.
    """

    unit, measure = "line", "bytes"

    def __init__(self, path: str, stream: Any, dialect: Dialect) -> None:
        self.path = path
        self.name = "standard input" if path == "-" else path
        self.dialect = dialect
        self.done, self.total = 0, os.path.getsize(path) if stream is None else 0
        self._stream = stream
        self._raw: Any = None
        self._begun: _Reader | None = self._open()
        self.separator, header = self._begun.separator, self._begun.header
        if stream is None:  # nothing stays open but while it is read
            self._begun = None
            self._close()
        self.names, self.unnamed = self._names(header)

    def parts(self, wanted: Iterable[str] | None = None) -> Iterator[Part]:
        """Yield all rows, block by block, with the columns that are wanted."""
        reader, self._begun = self._begun or self._open(), None
        chosen = self.names if wanted is None else list(wanted)
        places = {name: j for j, name in enumerate(self.names)}
        most = max(1, min(PART_ROWS, PART_FIELDS // len(self.names)))
        try:
            while block := reader.read(len(self.names), most):
                lines, rows = block
                columns: list[Any] = list(zip(*rows, strict=True))
                self.done = self._raw.tell() if self.total else 0
                yield Part({name: columns[places[name]] for name in chosen}, lines)
        finally:
            self._close()

    def _close(self) -> None:
        if self._stream is None and self._raw is not None:
            self._raw.close()

    def _open(self) -> _Reader:
        if self._stream is not None:
            if self._raw is not None and not self._stream.seekable():
                raise DataError("must be read again, which a pipe cannot; use a file.", self.name)
            if self._raw is not None:
                self._stream.seek(0)
            self._raw = self._stream
        else:
            self._raw = open(self.path, "rb", CHUNK)  # noqa: SIM115
        try:
            return _Reader(_unpacked(self._raw, self.name), self.name, self.dialect)
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
                f"every column must have a name of its own, got {twice[0]!r} {twice[1]} "
                "times; rename them.",
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
        self.separator = dialect.separator or _most_of(first)
        self.csv = csv.reader(
            chain([first], lines), delimiter=self.separator, strict=True, skipinitialspace=True
        )
        self.line = 1  # in which the next row begins
        self.header: list[str] = []
        while not self.header:
            found = self._rows(1)
            if not found:
                raise DataError("must have a header and rows, got blank lines only.", name)
            self.header = found[0][1]

    def read(self, width: int, most: int) -> tuple[Sequence[int], list[list[str]]] | None:
        """Return up to so many rows, as wide as the header, and their lines; None at the end."""
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
        """Return the next rows, blank ones included, each with the line in which it begins."""
        rows: list[list[str]] = []
        begin = self.line
        try:
            rows.extend(islice(self.csv, most))
        except csv.Error as error:
            line = begin + sum(map(_height, rows))  # what came before it is in the list
            known = (said for sign, said in _WRONG.items() if sign in str(error))
            said = next(known, f"cannot be read ({error}); mend the line")
            raise DataError(f"{said}.", self.name, line=line) from None
        self.line = self.csv.line_num + 1
        if self.line - begin == len(rows):
            return list(zip(range(begin, self.line), rows, strict=True))
        lines = accumulate(map(_height, rows[:-1]), initial=begin)
        return list(zip(lines, rows, strict=True))

    def _lines(self, file: Any) -> Iterator[str]:
        number = 1  # of the first line of a chunk
        while raw := self._chunk(file, number):
            try:
                text = raw.decode(self.encoding)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"must be {self.encoding}, got the byte 0x{raw[error.start]:02x}; convert the "
                    "file, or name its encoding, as in --encoding latin-1.",
                    self.name,
                    line=number + raw.count(b"\n", 0, error.start),
                ) from None
            if "\0" in text:
                raise DataError(
                    "must be text, got a NUL byte; the file is damaged, or no text at all.",
                    self.name,
                    line=number + text.count("\n", 0, text.index("\0")),
                )
            yield from io.StringIO(text, newline="\n")
            number += raw.count(b"\n")

    def _chunk(self, file: Any, number: int) -> bytes:
        """Return some whole lines: what a pipe has now, or many of a file."""
        try:
            some: bytes = file.read1(CHUNK)
            if some.endswith(b"\n"):
                return some
            rest: bytes = file.readline(LONGEST_LINE)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(
                f"must be whole, got a damaged gzip file ({error}); fetch it again.",
                self.name,
                line=number,
            ) from None
        if len(rest) == LONGEST_LINE:
            raise DataError(
                f"must have lines below {LONGEST_LINE >> 20} MiB, got a longer one; is it text?",
                self.name,
                line=number + some.count(b"\n"),
            )
        return some + rest


def _height(row: list[str]) -> int:
    """Return how many lines a row takes."""
    return 1 + sum(field.count("\n") for field in row)


def standard_input(again: bool, path: str | None = None) -> Any:
    """Return standard input, or another pipe, which can be read ``again`` if it must be."""
    if path is None and sys.stdin is None:
        raise DataError("must be open, got it closed; name a file.", "standard input")
    stream = sys.stdin.buffer if path is None else open(path, "rb")  # noqa: SIM115
    if not again:
        return stream
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115  # it vanishes with the process
    shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


def _unpacked(raw: Any, name: str) -> Any:
    """Return a file that gives the bytes of the text, or say what else it is."""
    start = raw.peek(4)[:4]
    if start[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("must be UTF-8, got UTF-16; save it as CSV in UTF-8.", name, line=1)
    if start == b"PK\x03\x04":
        raise DataError(
            "must be a table of text or Parquet, got a workbook or a zip file; save it as CSV.",
            name,
        )
    if start == b"PAR1":
        raise DataError("must be text here, got Parquet; name the file, which is no pipe.", name)
    return raw


def _most_of(header: str) -> str:
    """Return the separator that a header has most of, outside of quotation marks."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=bare.count)


def _advice(row: list[str], width: int, separator: str) -> str:
    what = SEPARATORS.get(separator, repr(separator))
    if len(row) > width:
        return f"put quotation marks around fields that hold {what}."
    return "complete the row, or take it out."
