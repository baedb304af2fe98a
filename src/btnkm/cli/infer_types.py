"""What the columns of a table hold, by all of its rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from .csv_files import CsvTable, Part
from .inputs import Table
from .parse import (
    BOOLEAN,
    DATE,
    NUMBER,
    TEXT,
    BadValue,
    Marks,
    decode,
    has_decimal_commas,
    is_missing,
    kind_of,
    leading_zeros,
    seems,
)

FEWEST_BEFORE = 10  # values of another kind, after which text comes as a surprise
MOST_DISTINCT = 20  # of a target's values, that are remembered
Watch = Callable[[int, int], None]


@dataclass
class Turn:
    """Where a column that held something else became text."""

    kind: str
    value: str
    place: int


@dataclass
class Guess:
    """What a column of text can be, by all values so far."""

    kind: str | None = None
    turn: Turn | None = None
    decimal_commas: bool = False
    seems: str | None = None  # what the text is meant to be
    zeros: str | None = None  # the first number that begins with one
    seen: int = 0  # values that are no gaps, counted until they are enough

    def look(self, values: Sequence[str], places: Sequence[int], marks: Marks) -> None:
        """Look at more values."""
        if self.kind == TEXT:
            return
        kind, place = _prefix(values, marks) if self.kind is None else self._goes_on(values, marks)
        before = 0
        if self.seen < FEWEST_BEFORE:
            before = sum(not is_missing(v, marks) for v in values[:place])
        if place == len(values):
            self.kind, self.seen = kind, self.seen + before
            if kind == NUMBER and self.zeros is None:
                self.zeros = leading_zeros(values)
            return
        if self.seen + before >= FEWEST_BEFORE and kind is not None:
            self.turn = Turn(kind, values[place], places[place])
        self.kind = TEXT
        self.seems = seems(values, marks)
        commas = marks.decimal == "." and self.seems is None
        self.decimal_commas = commas and has_decimal_commas(values, marks)

    def _goes_on(self, values: Sequence[str], marks: Marks) -> tuple[str | None, int]:
        try:
            decode(values, self.kind or TEXT, marks, finite=False)
        except BadValue as bad:
            return self.kind, bad.place
        return self.kind, len(values)


def _prefix(values: Sequence[str], marks: Marks) -> tuple[str | None, int]:
    """Return the kind of the first values, and how many are of it."""
    kind = kind_of(values, marks)
    if kind != TEXT:
        return kind, len(values)
    tried = []
    for one in (NUMBER, BOOLEAN, DATE):
        try:
            decode(values, one, marks, finite=False)
        except BadValue as bad:
            tried.append((bad.place, one))
    place, kind = max(tried, key=lambda pair: pair[0])
    return kind, place


@dataclass
class Contents:
    """What a table holds.

    Attributes
    ----------
    kinds : dict of str to str
        Of every column that was looked at; one that holds nothing counts as numbers.
    turns : dict of str to Turn
        Columns that became text after many values of another kind.
    decimal_commas : list of str
        Columns that would be numbers, were commas points.
    seems : dict of str to str
        What columns of text are meant to be: dates or numbers in another guise.
    zeros : dict of str to str
        The first number that begins with a zero, of columns that have such.
    n_rows, n_missing : int
        Rows, and those without a target.
    first_missing : int
        The line or row of the first of these.
    distinct : set
        Values of the target, the first few.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    decimal_commas: list[str] = field(default_factory=list)
    seems: dict[str, str] = field(default_factory=dict)
    zeros: dict[str, str] = field(default_factory=dict)
    n_rows: int = 0
    n_missing: int = 0
    first_missing: int = 0
    distinct: set[Any] = field(default_factory=set)

    @property
    def two_whole_numbers(self) -> bool:
        """Whether the target has two values, both of them whole numbers."""
        return len(self.distinct) == 2 and all(is_whole(v) for v in self.distinct)

    @property
    def few_whole_numbers(self) -> bool:
        """Whether the target has a few values only, all of them whole numbers."""
        return 2 < len(self.distinct) < MOST_DISTINCT and all(is_whole(v) for v in self.distinct)

    def count(self, gaps: Sequence[bool], part: Part) -> None:
        """Take in rows, and which of them have no target."""
        self.n_rows += len(part)
        if any(gaps):
            if not self.n_missing:
                self.first_missing = part.places[list(gaps).index(True)]
            self.n_missing += sum(gaps)


def look_at(table: Table, inputs: Collection[str], target: str, watch: Watch) -> Contents:
    """Return what a table holds; of text every value is looked at."""
    found = Contents()
    if not isinstance(table, CsvTable):
        found.kinds = {name: table.kinds[name] for name in (*inputs, target)}
        for part in table.parts([target]):
            values = part.columns[target].to_pylist()
            gaps = [v is None or v != v for v in values]
            _note(found, [v for v, gap in zip(values, gaps, strict=True) if not gap])
            found.count(gaps, part)
            watch(table.done, table.total)
        return found
    marks = table.dialect.marks
    guesses = {name: Guess() for name in (*inputs, target)}
    for part in table.parts(guesses):
        for name, guess in guesses.items():
            guess.look(part.columns[name], part.places, marks)
        gaps = [is_missing(v, marks) for v in part.columns[target]]
        present = zip(part.columns[target], gaps, strict=True)
        _note(found, [v.strip() for v, gap in present if not gap])
        found.count(gaps, part)
        watch(table.done, table.total)
    found.kinds = {name: guess.kind or NUMBER for name, guess in guesses.items()}
    found.turns = {name: g.turn for name, g in guesses.items() if g.turn is not None}
    found.seems = {name: g.seems for name, g in guesses.items() if g.seems is not None}
    found.zeros = {name: g.zeros for name, g in guesses.items() if g.zeros is not None}
    found.decimal_commas = [name for name, g in guesses.items() if g.decimal_commas]
    return found


def _note(found: Contents, values: list[Any]) -> None:
    if len(found.distinct) < MOST_DISTINCT:
        found.distinct |= {_number(v) for v in list(dict.fromkeys(values))[:MOST_DISTINCT]}


def _number(value: Any) -> Any:
    """Return the number that a text tells, so that 1 and 1.0 are the same, or the text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def is_whole(value: Any) -> bool:
    """Tell a whole number."""
    return isinstance(value, float) and value.is_integer()
