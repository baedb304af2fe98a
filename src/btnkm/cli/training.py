"""The rows of a table that a model learns from, gone through as often as need be."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from ..data.frames import Frame
from ..data.readers import BATCH_ROWS
from ..likelihoods import LIKELIHOODS
from .console import Console, counted
from .csv_files import SEPARATORS, CsvTable, Part
from .errors import DataError, Misuse
from .infer_types import is_whole, look_at
from .inputs import Table, check_columns, open_table, values_of
from .options import dialect_of, seed_of
from .parse import BOOLEAN, DATE, DURATION, FLAG, NUMBER, TEXT

Array = np.ndarray
Rows = tuple[Frame, Array, Array | None]
MOST_KEPT = 2**23  # values: of a table with no more they are read once and kept
WRITE = {
    DATE: "write dates as 2020-12-31",
    NUMBER: "write numbers as 1000.5, without marks in thousands, or name decimal commas by "
    "--decimal ,",
}
REGRESSION = ("auto", *LIKELIHOODS)


class Training:
    """Rows with targets, and perhaps weights: ``(X, y, weight)`` block by block.

    Parameters
    ----------
    arguments : Namespace
        As of ``options.add_training_options`` and ``add_table_options``, and ``data``.
    console : Console
    held_out : float, default=0.0
        Share of the rows that are kept for a test, drawn by ``random_state``.

    Attributes
    ----------
    kinds : dict of str to str
        What every input holds.
    classify : bool
    constant : bool
        Whether all targets are the same number.
    n_rows : int
        With a target.
    """

    def __init__(
        self, arguments: argparse.Namespace, console: Console, held_out: float = 0.0
    ) -> None:
        self.arguments, self.console = arguments, console
        self.target, self.weight = arguments.target, arguments.weight
        self.fraction = held_out
        self.table: Table = open_table(arguments.data, dialect_of(arguments))
        self.name = self.table.name
        inputs = self._inputs()
        with console.progress(f"looking at {self.name}", self.table.measure) as bar:
            self.contents = look_at(self.table, inputs, self.target, bar.update)
        self.kinds = {name: self._kind(name) for name in inputs}
        self.classify, self.why = self._classify()
        self.n_rows = self.contents.n_rows - self.contents.n_missing
        self.constant = not self.classify and len(self.contents.distinct) == 1
        self._kept: list[Rows] | None = None
        self._tell()

    def _inputs(self) -> list[str]:
        given, table = self.arguments, self.table
        check_columns(table, [self.target], "--target")
        check_columns(table, [self.weight] if self.weight else [], "--weight")
        if self.weight == self.target:
            raise Misuse(f"--weight must not be the target, got {self.target!r}; name another.")
        for option in ("only", "drop", "number", "text"):
            check_columns(table, getattr(given, option) or (), f"--{option}")
        both = set(given.number or ()) & set(given.text or ())
        if both:
            raise Misuse(
                f"a column must be either --number or --text, got {both.pop()!r} as both; leave "
                "one out."
            )
        beside = {self.target, self.weight, *(given.drop or ())}
        chosen = [
            name
            for name in (table.names if given.only is None else given.only)
            if name not in beside
        ]
        if not chosen:
            raise Misuse("a column must be left as an input, got none; look at --only and --drop.")
        return list(dict.fromkeys(chosen))

    def _kind(self, name: str) -> str:
        if name in (self.arguments.number or ()):
            return NUMBER
        return TEXT if name in (self.arguments.text or ()) else self.contents.kinds[name]

    def _classify(self) -> tuple[bool, str]:
        """Return whether the target holds classes, and why."""
        given, contents = self.arguments, self.contents
        likelihood = given.likelihood
        regress = given.regress or likelihood in REGRESSION or self.target in (given.number or ())
        classify = given.classify or (likelihood is not None and likelihood not in REGRESSION)
        if regress and classify:
            raise Misuse(
                f"the likelihood must fit the target, got {likelihood} and "
                f"{'--classify' if given.classify else '--regress'}; leave one of them out."
            )
        kind = self._kind(self.target)
        if not (regress or classify) and self.target in contents.turns:
            turn = contents.turns[self.target]
            raise DataError(
                f"a target must hold numbers or classes, got {turn.value!r} after {turn.kind}s; "
                "mend the value, leave it empty, or say --classify.",
                self.name,
                column=self.target,
                **{self.table.unit: turn.place},
            )
        if not (regress or classify) and self.target in contents.seems:
            what = contents.seems[self.target]
            raise DataError(
                f"a target must hold numbers or classes, got what seems to be {what}s; "
                f"{WRITE[what]}, or say --classify.",
                self.name,
                column=self.target,
            )
        if not (regress or classify) and self.target in contents.decimal_commas:
            raise DataError(
                "a target must hold numbers or classes, got numbers with decimal commas; say "
                "--decimal , or --classify.",
                self.name,
                column=self.target,
            )
        if kind in (DATE, DURATION) and not classify:
            raise DataError(
                f"a target must hold numbers or classes, got {kind}s; convert the column.",
                self.name,
                column=self.target,
            )
        if regress or classify:
            return classify, ""
        if kind in (TEXT, BOOLEAN):
            return True, {TEXT: "it holds text", BOOLEAN: "it holds true and false"}[kind]
        if contents.two_whole_numbers:
            low, high = sorted(contents.distinct)
            return True, f"it holds {low:g} and {high:g} only; --regress takes it as numbers"
        few = "it holds a few whole numbers; --classify takes it as classes"
        return False, few if contents.few_whole_numbers else ""

    def _tell(self) -> None:
        """Say what a user may not expect."""
        note, contents = self.console.note, self.contents
        if contents.n_rows == 0:
            raise DataError("must have rows, got a header only.", self.name)
        if self.n_rows < 2:
            raise DataError(
                f"must have at least 2 rows with a target, got {self.n_rows}; give more.",
                self.name,
                column=self.target,
            )
        table, given = self.table, self.arguments
        if isinstance(table, CsvTable):
            if table.separator not in ",\t" and given.separator is None:
                note(f"{self.name} is read as separated by {SEPARATORS[table.separator]}.")
            for name in set(table.unnamed) & set(self.kinds):
                note(f"a column without a name is called {name!r}; --drop {name!r} leaves it out.")
        for name, turn in contents.turns.items():
            if self.kinds.get(name) == TEXT and name not in (given.text or ()):
                note(
                    f"column {name!r} is taken as text because of {turn.value!r} in {table.unit} "
                    f"{turn.place:,} of {self.name}, after {turn.kind}s; --number {name!r} makes "
                    "that an error."
                )
        for name, kind in self.kinds.items():
            if name in (given.text or ()) or name in (given.number or ()):
                continue
            if name in contents.seems and name not in contents.turns:
                note(f"column {name!r} is taken as text; {WRITE[contents.seems[name]]}.")
            if name in contents.zeros and kind == NUMBER:
                note(
                    f"column {name!r} is taken as numbers; --text {name!r} keeps zeros, as in "
                    f"{contents.zeros[name]!r}."
                )
        commas = [name for name in contents.decimal_commas if self.kinds.get(name) == TEXT]
        if commas:
            note(f"numbers of {commas[0]!r} seem to have decimal commas; --decimal , reads these.")
        if contents.n_missing:
            note(
                f"{counted(contents.n_missing, 'row')} without {self.target!r} are left out, the "
                f"first in {table.unit} {contents.first_missing:,}."
            )
        if self.constant:
            (value,) = contents.distinct
            note(f"every row has the same target ({value:g}): there is nothing to learn.")
        if self.why and not self.classify:
            note(f"{self.target!r} is taken as numbers: {self.why}.")

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows to learn from."""
        return self._batches(held_out=False)

    def held_out(self) -> Iterator[Rows]:
        """Yield the rows kept for a test."""
        return self._batches(held_out=True)

    def whole(self) -> Rows:
        """Return all rows at once."""
        return _join(list(self._read()))

    def _batches(self, held_out: bool) -> Iterator[Rows]:
        if not self.fraction:
            yield from () if held_out else self._read()
            return
        # the same draws in every pass, as the blocks are the same
        rng = np.random.default_rng([seed_of(self.arguments), 1])
        for X, y, weight in self._read():
            chosen = (rng.random(len(y)) < self.fraction) == held_out
            if np.any(chosen):
                some = None if weight is None else weight[chosen]
                yield X.take(chosen), y[chosen], some

    def _read(self) -> Iterator[Rows]:
        if self._kept is not None:
            yield from self._kept
            return
        keep = self.n_rows * (len(self.kinds) + 2) <= MOST_KEPT
        kept: list[Rows] = []
        wanted = [*self.kinds, self.target, *([self.weight] if self.weight else [])]
        with self.console.progress(f"reading {self.name}", self.table.measure) as bar:
            parts = self.table.parts(dict.fromkeys(wanted))
            for rows in _joined(map(self._rows, parts)):
                bar.update(self.table.done, self.table.total)
                if keep:
                    kept.append(rows)
                yield rows
        if keep:
            self._kept = kept

    def _rows(self, part: Part) -> Rows:
        y, present = self._targets(part)
        columns = {
            name: values_of(self.table, part, name, kind) for name, kind in self.kinds.items()
        }
        weight = None
        if self.weight:
            weight = values_of(self.table, part, self.weight, NUMBER)
            wrong = ~(weight >= 0) & present
            if np.any(wrong):
                place = int(np.flatnonzero(wrong)[0])
                raise DataError(
                    f"a weight must be a number of at least 0, got {weight[place]:g}; mend it.",
                    self.name,
                    column=self.weight,
                    **{self.table.unit: part.places[place]},
                )
        frame = Frame(columns)
        if np.all(present):
            return frame, y, weight
        return frame.take(present), y[present], None if weight is None else weight[present]

    def _targets(self, part: Part) -> tuple[Array, Array]:
        """Return targets or labels, and which rows have one."""
        kind = self._kind(self.target)
        if not self.classify:
            y = values_of(self.table, part, self.target, FLAG if kind == BOOLEAN else NUMBER)
            return y, ~np.isnan(y)
        if kind in (DATE, DURATION):
            kind = TEXT
        values = values_of(self.table, part, self.target, kind)
        if values.dtype == object:
            return values, np.array([v is not None for v in values.tolist()])
        present = ~np.isnan(values)
        filled = np.where(present, values, 0.0)
        if kind == BOOLEAN:
            return filled.astype(bool), present
        whole = all(is_whole(v) for v in self.contents.distinct)
        whole = whole and bool(np.all(filled == np.round(filled)))
        return (filled.astype(np.int64) if whole else filled), present


def _joined(parts: Iterator[Rows]) -> Iterator[Rows]:
    """Yield batches of many rows: each is looked at as a whole, whatever its size."""
    some: list[Rows] = []
    for rows in parts:
        some.append(rows)
        if sum(len(y) for _, y, _ in some) >= BATCH_ROWS:
            yield _join(some)
            some = []
    if sum(len(y) for _, y, _ in some):
        yield _join(some)


def _join(parts: list[Rows]) -> Rows:
    names = parts[0][0].column_names()
    X = Frame({name: np.concatenate([one.columns[name] for one, *_ in parts]) for name in names})
    weights = [weight for *_, weight in parts if weight is not None]
    return X, np.concatenate([y for _, y, _ in parts]), np.concatenate(weights) if weights else None
