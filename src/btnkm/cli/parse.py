"""Text of files -> columns as ``btnkm.data.frames.split_columns`` gives them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
# what a column may hold, in the order in which it is tried
NUMBER, BOOLEAN, DATE, TEXT = "number", "boolean", "date", "text"
FLAG = "number or boolean"  # of a model that saw 0 and 1 only: files may have true and false
DURATION = "duration"
EXPECTED = {
    NUMBER: "a number",
    BOOLEAN: "true or false",
    DATE: "a date such as 2024-12-31",
    FLAG: "a number, true or false",
    DURATION: "a duration, which text cannot tell",
}
USUAL = frozenset(MISSING)
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


class Marks(NamedTuple):
    """What stands for a gap, and what divides the whole of a number from its fraction."""

    missing: frozenset[str] = USUAL
    decimal: str = "."


class BadValue(ValueError):
    """A value that is none of its kind: its place among the values, and what is wrong with it."""

    def __init__(self, place: int, value: str, expected: str) -> None:
        super().__init__(expected)
        self.place, self.value, self.expected = place, value, expected


def decode(values: Sequence[str], kind: str, marks: Marks, *, finite: bool = True) -> Array:
    """Return values of a kind: floats, dates in microseconds, or objects with None for a gap.

    Raises
    ------
    BadValue
        For the first that is none; for infinity, too, if they must be ``finite``.
    """
    if kind == TEXT:
        missing = marks.missing
        out = np.empty(len(values), dtype=object)
        out[:] = [None if v.strip() in missing else v for v in values]
        return out
    if kind == DATE:
        return _dates(values, marks)
    if kind == NUMBER:
        found = _numbers(values, marks)
    elif kind in (BOOLEAN, FLAG):
        found = _one_by_one(values, kind, marks)
    else:
        return _nothing(values, kind, marks)
    if finite and np.any(np.isinf(found)):
        place = int(np.flatnonzero(np.isinf(found))[0])
        raise BadValue(place, values[place], "a finite number")
    return found


def kind_of(values: Sequence[str], marks: Marks) -> str | None:
    """Return the first kind that all values are of, or None if they are gaps."""
    if all(is_missing(v, marks) for v in values):
        return None
    for kind in (NUMBER, BOOLEAN, DATE):
        try:
            decode(values, kind, marks, finite=False)
        except BadValue:
            continue
        return kind
    return TEXT


def is_missing(value: str, marks: Marks) -> bool:
    """Tell a gap, with blanks around it or without."""
    return value.strip() in marks.missing


def has_decimal_commas(values: Sequence[str], marks: Marks) -> bool:
    """Tell whether these would be numbers, were commas points."""
    try:
        decode(values, NUMBER, marks._replace(decimal=","), finite=False)
    except BadValue:
        return False
    return True


def seems(values: Sequence[str], marks: Marks) -> str | None:
    """Return what text is meant to be: dates in another order, numbers with marks in thousands."""
    present = [v.strip() for v in values if not is_missing(v, marks)]
    if all(_OTHER_DATE.fullmatch(v) for v in present):
        return DATE
    known = (_GROUPED.fullmatch(v) or _UNGROUPED.fullmatch(v) for v in present)
    if all(known) and any(_GROUPED.fullmatch(v) for v in present):
        return NUMBER
    return None


def leading_zeros(values: Sequence[str]) -> str | None:
    """Return the first number that begins with a zero it has no need of, or None."""
    found = _ZEROS.search("\n".join(["", *values, ""]))  # at once, as nearly no column has any
    return found[1] if found else None


def _numbers(values: Sequence[str], marks: Marks) -> Array:
    if marks.decimal != ".":
        values = [v.replace(".", "?").replace(marks.decimal, ".") for v in values]
    # Python reads 1_000 as a number, and nobody else does
    if "_" not in "".join(values) and marks.missing == USUAL:
        try:  # quick, as nearly all columns are
            return np.array([float(v) if v else np.nan for v in values])
        except ValueError:
            pass
    return _one_by_one(values, NUMBER, marks)


def _one_by_one(values: Sequence[str], kind: str, marks: Marks) -> Array:
    """Return numbers, or booleans as 0 and 1."""
    out = np.empty(len(values))
    for place, value in enumerate(values):
        if is_missing(value, marks):
            out[place] = np.nan
            continue
        truth = None if kind == NUMBER else _TRUTH.get(value.strip().lower())
        if truth is not None:
            out[place] = truth
            continue
        try:
            out[place] = float(value)
        except ValueError:
            out[place] = np.nan
        if kind == BOOLEAN or "_" in value or out[place] != out[place]:
            raise BadValue(place, value, EXPECTED[kind])
    return out


def _dates(values: Sequence[str], marks: Marks) -> Array:
    """Return dates in universal time; those without a zone are taken as such."""
    items: list[Any] = [None if is_missing(v, marks) else v.strip() for v in values]
    for place, value in enumerate(items):
        if value is not None and not _DATE.fullmatch(value):
            raise BadValue(place, values[place], EXPECTED[DATE])
    for place, value in enumerate(items):
        if value is not None and _ZONE.fullmatch(value):
            items[place] = _moved(value, place)
    try:
        return np.array(items, dtype="M8[us]")
    except ValueError:  # the 31st of February
        for place, value in enumerate(items):
            try:
                np.array([value], dtype="M8[us]")
            except ValueError:
                raise BadValue(place, values[place], EXPECTED[DATE]) from None
        raise


def _moved(value: str, place: int) -> datetime:
    """Return a time with a zone in universal time."""
    try:
        return datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise BadValue(place, value, EXPECTED[DATE]) from None


def _nothing(values: Sequence[str], kind: str, marks: Marks) -> Array:
    """Return gaps, where text cannot tell what is wanted."""
    for place, value in enumerate(values):
        if not is_missing(value, marks):
            raise BadValue(place, value, EXPECTED[kind])
    return np.full(len(values), "nat", dtype="m8[us]")
