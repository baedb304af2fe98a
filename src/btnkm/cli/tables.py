"""Rows of tables: those that a model is fitted to, and those that a fitted model reads."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.beyond import Beyond
from ..data.csv_file import SEPARATORS, Block, CsvFile, DataError
from ..data.frames import Frame
from ..data.readers import BATCH_ROWS
from ..data.table_files import TableFile, check_columns, is_whole, open_table, scan, values_of
from ..data.text import BOOLEAN, DATE, DURATION, FLAG, NUMBER, TEXT, TypeGuess, plural
from .console import Bar, Console, UsageError, counted
from .info import input_kind, is_classifier
from .options import CLASSIFIER_LIKELIHOODS, dialect_of, model_parameters, seed_of
from .output import on_screen, rows_to

Array = np.ndarray
Rows = tuple[Frame, Array, Array | None]
MAX_IN_MEMORY = 2**22  # values of a table in memory, about 64 MB of text; larger ones are streamed
FORMS = {
    DATE: "write dates as 2020-12-31",
    NUMBER: "write numbers as 1000.5, without separators of thousands, or add --decimal , for "
    "decimal commas",
}


class Training:
    """A table with a target and perhaps weights, to which a model is fitted.

    A small table is read once and kept in memory; a larger one is read again in every pass.
    ``kinds`` holds the type of every input, ``n_rows`` counts the rows with a target, and
    ``test_fraction`` of the rows, drawn by the random seed, are held out for a test.
    """

    def __init__(
        self, arguments: argparse.Namespace, console: Console, test_fraction: float = 0.0
    ) -> None:
        self.arguments, self.console = arguments, console
        self.target, self.weight = arguments.target, arguments.weight
        self.exposure = getattr(arguments, "exposure", None)
        self.test_fraction = test_fraction
        self.table = open_table(arguments.data, dialect_of(arguments))
        self.name = self.table.name
        inputs = self._inputs()
        more = filter(None, [self.weight, self.exposure])
        self._wanted = list(dict.fromkeys([*inputs, self.target, *more]))
        self._kept: list[Block] | None = []
        with console.progress(f"reading {self.name}", self.table.measure) as bar:
            self.scan = scan(self.table, self._first_pass(bar), inputs, self.target)
        self.kinds = {name: self._kind(name) for name in inputs}
        self.classify, self.reason = self._classify()
        self.n_rows = self.scan.n_rows - self.scan.n_missing
        self._check_rows()
        self._note()

    @property
    def in_memory(self) -> bool:
        """Whether the table is held in memory."""
        return self._kept is not None

    def _first_pass(self, bar: Bar) -> Iterator[Block]:
        """Yield all blocks, and keep them as long as the table is small."""
        table, n_values = self.table, 0
        columns = self._wanted
        if not isinstance(table, CsvFile) and table.total * len(columns) > MAX_IN_MEMORY:
            columns, self._kept = [self.target], None  # Parquet knows its types
        for block in table.blocks(columns):
            n_values += len(block) * len(columns)
            if n_values > MAX_IN_MEMORY:
                self._kept = None
            if self._kept is not None:
                self._kept.append(block)
            bar.update(table.done, table.total)
            yield block

    def _inputs(self) -> list[str]:
        given, table = self.arguments, self.table
        check_columns(table, [self.target], "--target")
        check_columns(table, [self.weight] if self.weight else [], "--weight")
        if self.weight == self.target:
            raise UsageError(
                f"--weight must not be the target, got {self.target!r}; name another column."
            )
        check_columns(table, [self.exposure] if self.exposure else [], "--exposure")
        if self.exposure in (self.target, self.weight) and self.exposure:
            raise UsageError(
                f"--exposure must be a column of its own, got {self.exposure!r}; name another."
            )
        for option in ("only", "drop", "number", "text"):
            check_columns(table, getattr(given, option) or (), f"--{option}")
        both = set(given.number or ()) & set(given.text or ())
        if both:
            raise UsageError(
                f"a column must be either --number or --text, got {both.pop()!r} as both; leave "
                "one out."
            )
        others = {self.target, self.weight, self.exposure, *(given.drop or ())}
        candidates = table.names if given.only is None else given.only
        inputs = list(dict.fromkeys(name for name in candidates if name not in others))
        if not inputs:
            raise UsageError(
                "at least one column must be an input, got none; check --only and --drop."
            )
        return inputs

    def _kind(self, name: str) -> str:
        if name in (self.arguments.number or ()):
            return NUMBER
        return TEXT if name in (self.arguments.text or ()) else self.scan.kinds[name]

    def _classify(self) -> tuple[bool, str]:
        """Return whether the target holds classes, and why."""
        given, likelihood = self.arguments, self.arguments.likelihood
        of_classes = likelihood in CLASSIFIER_LIKELIHOODS
        of_numbers = likelihood is not None and not of_classes
        regress = given.regress or of_numbers or self.target in (given.number or ())
        classify = given.classify or of_classes
        if regress and classify:
            raise UsageError(
                f"the likelihood must fit the target, got {likelihood} and "
                f"{'--classify' if given.classify else '--regress'}; leave one of them out."
            )
        if not classify:
            self._check_target(regress)
        if regress or classify:
            return classify, ""
        kind = self._kind(self.target)
        if kind in (TEXT, BOOLEAN):
            return True, {TEXT: "the target is text", BOOLEAN: "the target is boolean"}[kind]
        if self.scan.two_whole_numbers:
            low, high = sorted(self.scan.distinct)
            return True, f"the target is always {low:g} or {high:g}; --regress treats it as numbers"
        few = "it has few different values; --classify treats them as classes"
        return False, few if self.scan.few_whole_numbers else ""

    def _check_target(self, regress: bool) -> None:
        """Raise an error for a target that holds neither numbers nor classes."""
        guess = self.scan.guesses.get(self.target, TypeGuess())
        kind, message, where = self._kind(self.target), "", {}
        if not regress and guess.first_text is not None:
            text = guess.first_text
            message = f"got {text.value!r} after {plural(text.kind)}; fix the value, leave it empty"
            message += ", or add --classify."
            where = {self.table.unit: text.position}
        elif not regress and guess.looks_like is not None:
            what = guess.looks_like
            message = f"got what looks like {plural(what)}; {FORMS[what]}, or add --classify."
        elif not regress and guess.decimal_commas:
            message = "got numbers with decimal commas; add --decimal , or --classify."
        elif kind in (DATE, DURATION):
            message = f"got {plural(kind)}; convert the column."
        if message:
            message = f"a target must hold numbers or classes, {message}"
            raise DataError(message, self.name, column=self.target, **where)

    def _check_rows(self) -> None:
        if self.scan.n_rows == 0:
            raise DataError("must have rows, got only a header.", self.name)
        if self.n_rows < 2:
            raise DataError(
                f"must have at least 2 rows with a target, got {self.n_rows}; add rows.",
                self.name,
                column=self.target,
            )

    def _note(self) -> None:
        """Print notes on what a user may not expect."""
        note, scan = self.console.note, self.scan
        table, given = self.table, self.arguments
        if isinstance(table, CsvFile):
            if table.separator not in ",\t" and given.separator is None:
                note(f"{self.name} is read as separated by {SEPARATORS[table.separator]}.")
            for name in set(table.unnamed) & set(self.kinds):
                note(f"a column without a name is called {name!r}; --drop {name!r} leaves it out.")
        for name, text in scan.first_texts.items():
            if self.kinds.get(name) == TEXT and name not in (given.text or ()):
                note(
                    f"column {name!r} is read as text because of {text.value!r} in {table.unit} "
                    f"{text.position:,} of {self.name}, among {plural(text.kind)}; --number "
                    f"{name!r} makes this an error."
                )
        for name, kind in self.kinds.items():
            guess = scan.guesses.get(name, TypeGuess())
            if name in (given.text or ()) or name in (given.number or ()):
                continue
            if guess.looks_like is not None and guess.first_text is None:
                note(f"column {name!r} is read as text; {FORMS[guess.looks_like]}.")
            if guess.leading_zero is not None and kind == NUMBER:
                note(
                    f"column {name!r} is read as numbers; --text {name!r} keeps leading zeros, as "
                    f"in {guess.leading_zero!r}."
                )
        commas = [name for name, g in scan.guesses.items() if g.decimal_commas]
        commas = [name for name in commas if self.kinds.get(name) == TEXT]
        if commas:
            note(f"column {commas[0]!r} seems to have decimal commas; --decimal , reads them.")
        if scan.n_missing:
            note(
                f"left out {counted(scan.n_missing, 'row')} without {self.target!r}, the "
                f"first in {table.unit} {scan.first_missing:,}."
            )
        if not self.classify and len(scan.distinct) == 1:
            (value,) = scan.distinct
            note(f"every row has the same target ({value:g}): there is nothing to predict.")
        if self.reason and not self.classify:
            note(f"{self.target!r} is treated as numbers, although {self.reason}.")

    def __iter__(self) -> Iterator[Rows]:
        """Yield the rows to fit to, in batches."""
        return self._batches(test=False)

    def test_rows(self) -> Iterator[Rows]:
        """Yield the rows kept for a test, in batches."""
        return self._batches(test=True)

    @cached_property
    def all_rows(self) -> Rows:
        """All rows with a target."""
        rows = _concatenate(list(map(self._decode, self._blocks())))
        if self._kept is not None:
            self._kept.clear()  # their text is no longer needed
        return rows

    def fit_arguments(self) -> tuple[object, ...]:
        """Return what a model is fitted to: (X, y, weight) in memory, or this table as batches."""
        if not self.in_memory:
            if self.exposure:
                raise UsageError(
                    "--exposure needs a table that fits in memory, got a larger one; give the "
                    "logarithm of the exposure as an input."
                )
            if model_parameters(self.arguments).get("calibration") is not None:
                raise UsageError(
                    "--calibration cv needs a table that fits in memory, got a larger one; hold "
                    "out rows and use btnkm calibrate."
                )
            return (self,)
        rows = next(iter(self), None)
        if rows is None:
            raise DataError("must have rows to fit to, got none; lower --test.", self.name)
        return rows

    def _batches(self, test: bool) -> Iterator[Rows]:
        rng = np.random.default_rng([seed_of(self.arguments), 1])
        for X, y, weight in self._read():
            chosen = np.full(len(y), not test)
            if self.test_fraction:  # the same draws in every pass
                chosen = (rng.random(len(y)) < self.test_fraction) == test
            if np.all(chosen):
                yield X, y, weight
            elif np.any(chosen):
                yield X.take(chosen), y[chosen], None if weight is None else weight[chosen]

    def _read(self) -> Iterator[Rows]:
        """Yield all rows: in one batch if they are in memory, or else in large ones."""
        if self.in_memory:
            yield self.all_rows
            return
        parts: list[Rows] = []
        with self.console.progress(f"reading {self.name}", self.table.measure) as bar:
            for block in self._blocks():
                parts.append(self._decode(block))
                bar.update(self.table.done, self.table.total)
                if sum(len(y) for _, y, _ in parts) >= BATCH_ROWS:
                    yield _concatenate(parts)
                    parts = []
        if sum(len(y) for _, y, _ in parts):
            yield _concatenate(parts)

    def _blocks(self) -> Iterator[Block]:
        return iter(self._kept) if self._kept is not None else self.table.blocks(self._wanted)

    def _decode(self, block: Block) -> Rows:
        """Return the rows of a block that have a target."""
        y, present = self._targets(block)
        X = Frame({k: values_of(self.table, block, k, kind) for k, kind in self.kinds.items()})
        if self.exposure:
            X.columns[self.exposure] = self._exposures(block, present)
        weight = None
        if self.weight:
            weight = values_of(self.table, block, self.weight, NUMBER)
            wrong = ~(weight >= 0) & present
            if np.any(wrong):
                index = int(np.flatnonzero(wrong)[0])
                raise DataError(
                    f"a weight must be a number of at least 0, got {weight[index]:g}; fix it.",
                    self.name,
                    column=self.weight,
                    **{self.table.unit: block.positions[index]},
                )
        if np.all(present):
            return X, y, weight
        return X.take(present), y[present], None if weight is None else weight[present]

    def _exposures(self, block: Block, present: Array) -> Array:
        """Return the exposure of each row of a block."""
        values = values_of(self.table, block, str(self.exposure), NUMBER)
        wrong = ~((values > 0) & np.isfinite(values)) & present
        if np.any(wrong):
            index = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"an exposure must be a number above 0, got {values[index]:g}; fix it.",
                self.name,
                column=self.exposure,
                **{self.table.unit: block.positions[index]},
            )
        return values

    def _targets(self, block: Block) -> tuple[Array, Array]:
        """Return numbers or labels, and which rows have one."""
        kind = self._kind(self.target)
        if not self.classify:
            kind = FLAG if kind == BOOLEAN else NUMBER
            y = values_of(self.table, block, self.target, kind)
            return y, ~np.isnan(y)
        if kind in (DATE, DURATION):
            kind = TEXT
        values = values_of(self.table, block, self.target, kind)
        if values.dtype == object:
            return values, np.array([v is not None for v in values.tolist()])
        present = ~np.isnan(values)
        filled = np.where(present, values, 0.0)
        if kind == BOOLEAN:
            return filled.astype(bool), present
        whole = all(map(is_whole, self.scan.distinct))
        whole = whole and bool(np.all(filled == np.round(filled)))
        return (filled.astype(np.int64) if whole else filled), present


def _concatenate(parts: list[Rows]) -> Rows:
    names = parts[0][0].column_names()
    X = Frame({name: np.concatenate([part[name] for part, *_ in parts]) for name in names})
    weights = [weight for *_, weight in parts if weight is not None]
    return X, np.concatenate([y for _, y, _ in parts]), np.concatenate(weights) if weights else None


class Inputs:
    """The columns of a table that a model needs; others are ignored.

    Columns are matched by name, or by position if the model was fitted without names; then
    ``ignored`` columns do not count.
    """

    def __init__(self, model: Any, table: TableFile, ignored: set[str] | None = None) -> None:
        self.table = table
        if hasattr(model, "feature_names_in_"):
            self.names = [str(name) for name in model.feature_names_in_]
            check_columns(table, self.names, "an input of the model")
        else:
            self.names = [name for name in table.names if name not in (ignored or ())]
            if len(self.names) != model.n_features_in_:
                raise DataError(
                    f"must have {model.n_features_in_} columns, as the model was fitted without "
                    f"names, got {len(self.names)}; leave out the others.",
                    table.name,
                )
        self.exposure = model.fitted_.exposure_name
        # numbers in Parquet may be categories: the model converts them itself
        kinds = [input_kind(column) for column in model.columns_]
        self.kinds = [None if kind == TEXT else kind for kind in kinds]

    def of(self, block: Block) -> Frame:
        """Return the inputs in the rows of a block."""
        pairs = zip(self.names, self.kinds, strict=True)
        return Frame({name: values_of(self.table, block, name, kind) for name, kind in pairs})

    def with_exposure(self, X: Frame, block: Block) -> Frame:
        """Return the inputs with the column of the exposures, if the model has one."""
        if self.exposure is None:
            return X
        values = values_of(self.table, block, self.exposure, NUMBER)
        return Frame({**X.columns, self.exposure: values})


class Unseen:
    """Counts rows with values that no training row had, by input.

    These are categories, missing values, and numbers materially beyond the range.
    """

    def __init__(self, model: Any) -> None:
        self.columns = model.columns_
        self.categories: dict[str, int] = {}
        self.missing: dict[str, int] = {}
        self._first: dict[str, Any] = {}
        self._fitted, self.beyond = model.fitted_, Beyond()

    def count(self, X: Frame) -> None:
        """Count the rows of a table with the model's inputs in order."""
        for column, (name, values) in zip(self.columns, X.columns.items(), strict=True):
            if column.categories is not None:
                codes = column.encode(values)
                missing, new = np.isnan(codes), codes < 0
                if np.any(new):
                    self.categories[name] = self.categories.get(name, 0) + int(np.sum(new))
                    self._first.setdefault(name, values[new][0])
            else:
                missing = values != values  # NaN and NaT
            if np.any(missing) and not column.basis.knows_missing:
                self.missing[name] = self.missing.get(name, 0) + int(np.sum(missing))
        used, pairs = set(self._fitted.active), enumerate(X.columns.values())
        codes = [self.columns[j].encode(values) if j in used else None for j, values in pairs]
        self.beyond.count(self.columns, codes)

    def report(self, note: Any) -> dict[str, Any]:
        """Print a note for every such column; return the counts for JSON."""
        for name, n in self.categories.items():
            note(
                f"column {name!r} has categories that no training row had in {counted(n, 'row')}, "
                f"first {self._first[name]!r}."
            )
        for name, n in self.missing.items():
            note(
                f"column {name!r} has missing values in {counted(n, 'row')}, but had none in the "
                "training rows."
            )
        if self.beyond.columns:
            note(self.beyond.sentence(widens=self._fitted.widenings is not None))
        beyond = {str(name): count for name, (count, _) in self.beyond.columns.items()}
        return {
            "unseen_categories": self.categories,
            "unseen_missing": self.missing,
            "beyond_range": beyond,
        }


def write_rows(
    model: Any,
    table: TableFile,
    kept: list[str],
    path: Path | None,
    new_columns: Callable[[Frame], list[dict[str, Any]]],
    console: Console,
    what: str,
    header: Sequence[str] = (),
    *,
    exposed: bool = False,
) -> tuple[int, dict[str, Any]]:
    """Write the kept and the new columns of a table, block by block.

    Return the number of rows, and the counts of ``Unseen``. A table without rows has the header.
    With ``exposed``, rows have the column of the model's exposures, if it has one.
    """
    inputs, unseen, n = Inputs(model, table), Unseen(model), 0
    exposure = [inputs.exposure] if exposed and inputs.exposure else []
    check_columns(table, exposure, "the exposure of the model")
    with (
        model.fitted_.silent_beyond(),  # at the end there is a note about all blocks together
        rows_to(path) as rows,
        console.library(),
        console.progress(f"{what} {table.name}", table.measure, mute=on_screen(path)) as bar,
    ):
        for block in table.blocks(dict.fromkeys([*inputs.names, *exposure, *kept])):
            X = inputs.of(block)
            try:
                parts = new_columns(inputs.with_exposure(X, block) if exposure else X)
            except ValueError as error:
                raise DataError(str(error), table.name) from None
            for columns in parts:
                rows.write({**{name: block.columns[name] for name in kept}, **columns})
            unseen.count(X)
            n += len(block)
            bar.update(table.done, table.total)
        if not n and header:
            rows.write({name: [] for name in (*kept, *header)})
    return n, unseen.report(console.note)


def rows_with_targets(model: Any, table: TableFile, target: str, note: Any, watch: Any) -> Frame:
    """Return the inputs of a model and the target, in all rows that have a target."""
    if model.fitted_.exposed:
        raise UsageError(
            "targets cannot be compared with a model with an exposure yet, got one; leave out "
            "--data and --target, or compare them with the output of btnkm predict."
        )
    check_columns(table, [target], "--target")
    inputs = Inputs(model, table, {target})
    kind, convert = _type_of_targets(model)
    frames, targets, n_missing = [], [], 0
    for block in table.blocks(dict.fromkeys([*inputs.names, target])):
        watch(table.done, table.total)
        y = values_of(table, block, target, kind)
        present = np.array([v is not None and v == v for v in y.tolist()])
        n_missing += int(np.sum(~present))
        frames.append(inputs.of(block).take(present))
        targets.append(y[present])
    if not sum(map(len, targets)):
        raise DataError("must have rows with a target, got none.", table.name, column=target)
    if n_missing:
        note(f"left out {counted(n_missing, 'row')} without {target!r}.")
    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in inputs.names}
    return Frame(columns | {target: np.concatenate(targets).astype(convert)})


def _type_of_targets(model: Any) -> tuple[str, Any]:
    """Return the type in which targets are read, and the one to which they are converted."""
    if not is_classifier(model):
        return FLAG, float
    kind = model.classes_.dtype.kind
    if kind == "b":
        return FLAG, bool
    return (NUMBER, model.classes_.dtype) if kind in "iuf" else (TEXT, object)
