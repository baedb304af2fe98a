"""Columns of text -> the type that they hold, and columns as ``frames.split_columns`` has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from .csv_file import MISSING, Dialect
from .frames import objects

Array = np.ndarray
# what a column may hold
NUMBER, BOOLEAN, DATE, DURATION, TEXT = "number", "boolean", "date", "duration", "text"
FLAG = "number or boolean"  # a model that saw only 0 and 1 also takes true and false
EXPECTED = {
    NUMBER: "a number",
    BOOLEAN: "true or false",
    DATE: "a date such as 2024-12-31",
    FLAG: "a number, true or false",
    DURATION: "a duration, which text files cannot hold",
}
MIN_BEFORE_TEXT = 10  # values of another type, after which text is worth a note
# so is text among numbers: at most one value in so many, and so many values of a block
ODD_ONE_IN, MAX_ODD = 20, 5
_TRUTH = {"true": 1.0, "false": 0.0}
_DATE = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)
_OTHER_DATE = re.compile(
    r"(\d{1,2}([./-])\d{1,2}\2(\d{4}|\d\d)|\d{4}([./])\d{1,2}\4\d{1,2})([T ]+\d{1,2}:\d\d.*)?",
    re.ASCII,
)
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}((,\d{3})+(\.\d*)?|(\.\d{3})+,\d*)", re.ASCII)
_UNGROUPED = re.compile(r"[+-]?\d{0,3}([.,]\d*)?", re.ASCII)
_ZEROS = re.compile(r"\n(0\d+)\n", re.ASCII)
_ZONE = re.compile(r".*(Z|:\d\d.*[+-]\d\d(:?\d\d)?)")


class InvalidValue(ValueError):
    """A value, with its position among the values, that is not of the expected type."""

    def __init__(self, index: int, value: str, expected: str) -> None:
        super().__init__(expected)
        self.index, self.value, self.expected = index, value, expected


def plural(kind: str) -> str:
    """Return the plural of a type's name."""
    return kind if kind == TEXT else f"{kind}s"


def decode(values: Sequence[str], kind: str, dialect: Dialect, *, finite: bool = True) -> Array:
    """Return values of a type: floats, dates in microseconds, or objects with None for missing.

    Raises
    ------
    InvalidValue
        For the first value that is not of the type, and for infinity if ``finite``.
    """
    if kind == TEXT:
        missing = dialect.missing
        return objects([None if v.strip() in missing else v for v in values])
    if kind == DATE:
        return _dates(values, dialect)
    if kind == NUMBER:
        numbers = _numbers(values, dialect)
    elif kind in (BOOLEAN, FLAG):
        numbers = _one_by_one(values, kind, dialect)
    else:
        return _all_missing(values, kind, dialect)
    if finite and np.any(np.isinf(numbers)):
        index = int(np.flatnonzero(np.isinf(numbers))[0])
        raise InvalidValue(index, values[index], "a finite number")
    return numbers


def is_missing(value: str, dialect: Dialect) -> bool:
    """Whether a text stands for a missing value, with or without blanks around it."""
    return value.strip() in dialect.missing


def _prefix(values: Sequence[str], dialect: Dialect) -> tuple[str | None, int]:
    """Return the type of the longest possible beginning of the values, and its length."""
    if all(is_missing(v, dialect) for v in values):
        return None, len(values)
    length, best = -1, NUMBER
    for kind in (NUMBER, BOOLEAN, DATE):
        end = _length_of(values, kind, dialect)
        if end == len(values):
            return kind, end
        length, best = max((length, best), (end, kind), key=lambda pair: pair[0])
    return best, length


def _length_of(values: Sequence[str], kind: str, dialect: Dialect) -> int:
    """Return how many values at the beginning are of a type."""
    try:
        decode(values, kind, dialect, finite=False)
    except InvalidValue as invalid:
        return invalid.index
    return len(values)


class FirstText(NamedTuple):
    """The value that makes text of a column whose other values have another type."""

    kind: str
    value: str
    position: int


@dataclass
class TypeGuess:
    """The type of a column of text, from all values seen so far."""

    kind: str | None = None  # None while all values are missing
    # set if text came after at least MIN_BEFORE_TEXT values of another type, or among numbers
    first_text: FirstText | None = None
    decimal_commas: bool = False  # whether text would be numbers if commas were decimal points
    looks_like: str | None = None  # the type that the text was probably meant to have
    leading_zero: str | None = None  # the first number with one
    n_before: int = 0  # values that are not missing, counted up to MIN_BEFORE_TEXT

    def update(self, values: Sequence[str], positions: Sequence[int], dialect: Dialect) -> None:
        """Take more values into account."""
        if self.kind == TEXT:
            return
        if self.kind is None:
            kind, length = _prefix(values, dialect)
        else:
            kind, length = self.kind, _length_of(values, self.kind, dialect)
        before = self.n_before
        if before < MIN_BEFORE_TEXT:
            before += sum(not is_missing(v, dialect) for v in values[:length])
        if length == len(values):
            self.kind, self.n_before = kind, before
            if kind == NUMBER and self.leading_zero is None:
                self.leading_zero = _leading_zero(values)
            return
        if before >= MIN_BEFORE_TEXT and kind is not None:
            self.first_text = FirstText(kind, values[length], positions[length])
        elif (odd := _odd_value(values, dialect)) is not None:
            self.first_text = FirstText(NUMBER, values[odd], positions[odd])
        self.kind = TEXT
        self.looks_like = _looks_like(values, dialect)
        if dialect.decimal == "." and self.looks_like is None:
            commas = dialect._replace(decimal=",")
            self.decimal_commas = _length_of(values, NUMBER, commas) == len(values)


def _odd_value(values: Sequence[str], dialect: Dialect) -> int | None:
    """Return the place of the first value that is no number, if nearly all others are."""
    odd: list[int] = []
    most = min(len(values) // ODD_ONE_IN, MAX_ODD)
    start = 0
    while (end := start + _length_of(values[start:], NUMBER, dialect)) < len(values):
        odd.append(end)
        if len(odd) > most:
            return None
        start = end + 1
    n_numbers = sum(not is_missing(v, dialect) for v in values) - len(odd)
    return odd[0] if odd and n_numbers >= MIN_BEFORE_TEXT else None


def _looks_like(values: Sequence[str], dialect: Dialect) -> str | None:
    """Return what text was meant to be: dates in another order, numbers with digits grouped."""
    present = [v.strip() for v in values if not is_missing(v, dialect)]
    if all(_OTHER_DATE.fullmatch(v) for v in present):
        return DATE
    known = (_GROUPED.fullmatch(v) or _UNGROUPED.fullmatch(v) for v in present)
    if all(known) and any(_GROUPED.fullmatch(v) for v in present):
        return NUMBER
    return None


def _leading_zero(values: Sequence[str]) -> str | None:
    """Return the first number with a needless leading zero, or None."""
    match = _ZEROS.search("\n".join(["", *values, ""]))  # one search, as it is rarely found
    return match[1] if match else None


def _numbers(values: Sequence[str], dialect: Dialect) -> Array:
    if dialect.decimal != ".":
        values = [v.replace(".", "?").replace(dialect.decimal, ".") for v in values]
    # only Python reads 1_000 as a number
    if "_" not in "".join(values) and dialect.missing == MISSING:
        try:  # the fast way, which works for nearly all columns
            return np.array([float(v) if v else np.nan for v in values])
        except ValueError:
            pass
    return _one_by_one(values, NUMBER, dialect)


def _one_by_one(values: Sequence[str], kind: str, dialect: Dialect) -> Array:
    """Return numbers, or booleans as 0 and 1."""
    out = np.empty(len(values))
    for index, value in enumerate(values):
        if is_missing(value, dialect):
            out[index] = np.nan
            continue
        truth = None if kind == NUMBER else _TRUTH.get(value.strip().lower())
        if truth is not None:
            out[index] = truth
            continue
        try:
            out[index] = float(value)
        except ValueError:
            out[index] = np.nan
        if kind == BOOLEAN or "_" in value or out[index] != out[index]:
            raise InvalidValue(index, value, EXPECTED[kind])
    return out


def _dates(values: Sequence[str], dialect: Dialect) -> Array:
    """Return dates in UTC; those without a time zone are taken as UTC."""
    items: list[Any] = [None if is_missing(v, dialect) else v.strip() for v in values]
    for index, value in enumerate(items):
        if value is not None and not _DATE.fullmatch(value):
            raise InvalidValue(index, values[index], EXPECTED[DATE])
    for index, value in enumerate(items):
        if value is not None and _ZONE.fullmatch(value):
            items[index] = _in_utc(value, index)
    try:
        return np.array(items, dtype="M8[us]")
    except ValueError:  # for example February 31
        for index, value in enumerate(items):
            try:
                np.array([value], dtype="M8[us]")
            except ValueError:
                raise InvalidValue(index, values[index], EXPECTED[DATE]) from None
        raise


def _in_utc(value: str, index: int) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise InvalidValue(index, value, EXPECTED[DATE]) from None


def _all_missing(values: Sequence[str], kind: str, dialect: Dialect) -> Array:
    """Return missing values of a type that text cannot hold."""
    for index, value in enumerate(values):
        if not is_missing(value, dialect):
            raise InvalidValue(index, value, EXPECTED[kind])
    return np.full(len(values), "nat", dtype="m8[us]")
