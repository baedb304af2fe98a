"""``btnkm predict``: rows in, distributions out, block by block."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..data.csv_file import DataError
from .console import Console, counted
from .errors import UsageError
from .options import (
    add_output_options,
    add_rows_output,
    add_table_options,
    command_parser,
    dialect_of,
    names,
    probabilities,
    probability,
)

_EXAMPLES = """\
  btnkm predict houses.btn new.csv -o predicted.csv
  btnkm predict houses.btn new.csv --interval 0.9 --quantiles 0.1,0.5,0.9 -o predicted.parquet
  btnkm predict houses.btn new.csv --keep id,city -o predicted.csv.gz
  btnkm predict sold.btn - < new.csv
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "predict",
        "Predict every row of a table: mean and standard deviation (noise included), or the most "
        "probable class and the probability of each. Inputs are found by their names; other "
        "columns do no harm. Memory does not grow with the rows, and an output is whole or "
        "not there.",
        _EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="a file that fit has saved")
    parser.add_argument("data", metavar="TABLE", help="a file, or - for standard input")
    add_rows_output(parser)
    parser.add_argument(
        "--interval",
        type=probability,
        metavar="LEVEL",
        help="also low and high, between which y lies with this probability; of classes, "
        "between which the probability of each lies",
    )
    parser.add_argument(
        "--quantiles", type=probabilities, metavar="Q,…", help="also quantiles, such as q0.5"
    )
    parser.add_argument(
        "--keep",
        type=names,
        action="extend",
        nargs="?",
        const=[],
        metavar="A,B",
        help="also these columns of the table, or all if none is named",
    )
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="before the name of every new column"
    )
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, predict and write one block after the other."""
    from ..data.table_files import check_columns, open_table
    from .models import Inputs, Unseen, is_classifier, load_model
    from .output import check_rows_output, on_screen, rows_to

    console = Console(arguments)
    path: Path | None = arguments.output
    check_rows_output(path, console.json, table=arguments.data, model=arguments.model)
    model = load_model(arguments.model)
    if arguments.quantiles and is_classifier(model):
        raise UsageError("--quantiles must be of numbers, got a model of classes; leave them out.")
    table = open_table(arguments.data, dialect_of(arguments), again=False)
    inputs = Inputs(model, table)
    keep = arguments.keep
    kept = table.names if keep == [] else keep or []
    check_columns(table, kept, "--keep")
    answer = Answer(model, arguments)
    twice = set(kept) & set(answer.columns)
    if twice:
        raise UsageError(
            f"every column must have a name of its own, got {twice.pop()!r} from the table and "
            "from the model; name columns with --keep, or add --prefix."
        )
    wanted = list(dict.fromkeys([*inputs.names, *kept]))
    mute = on_screen(path)
    start, n, unseen = time.perf_counter(), 0, Unseen(model)
    with (
        rows_to(path) as rows,
        console.library(),
        console.progress(f"predicting {table.name}", table.measure, mute=mute) as bar,
    ):
        for block in table.blocks(wanted):
            X = inputs.of(block)
            rows.write({**{name: block.columns[name] for name in kept}, **answer.of(X, table.name)})
            unseen.count(X)
            n += len(block)
            bar.update(table.done, table.total)
        if not n:  # a header, for those who read it
            nothing: list[Any] = []
            rows.write({name: nothing for name in (*kept, *answer.columns)})
    seconds = time.perf_counter() - start
    told = unseen.report(console.note)
    if path is not None:
        console.say(f"Wrote {counted(n, 'prediction')} to {path} in {seconds:.1f} s")
    console.result(
        {
            "model": arguments.model,
            "data": table.name,
            "output": str(path),
            "rows": n,
            "columns": [*kept, *answer.columns],
            **told,
            "seconds": seconds,
        }
    )
    return 0


class Answer:
    """What is told of every row.

    Parameters
    ----------
    model : estimator
    arguments : Namespace
        With ``interval``, ``quantiles`` and ``prefix``.

    Attributes
    ----------
    columns : list of str
    """

    def __init__(self, model: Any, arguments: argparse.Namespace) -> None:
        from .models import is_classifier

        self.model = model
        self.level, self.quantiles = arguments.interval, arguments.quantiles or []
        self.classes = [str(c) for c in model.classes_.tolist()] if is_classifier(model) else None
        found = ["mean", "std"]
        if self.classes is not None:
            found = ["label", *(f"probability {name}" for name in self.classes)]
            if self.level:
                found += [f"{end} {name}" for name in self._bounded for end in ("low", "high")]
        elif self.level:
            found += ["low", "high"]
        found += [f"q{q:g}" for q in self.quantiles]
        self.columns = [arguments.prefix + name for name in found]

    @property
    def _bounded(self) -> list[str]:
        """Classes whose probability has an interval: of two the second says all."""
        assert self.classes is not None
        return self.classes[1:] if len(self.classes) == 2 else self.classes

    def of(self, X: Any, file: str) -> dict[str, Any]:
        """Return the columns for some rows of a file."""
        try:
            values = self._numbers(X) if self.classes is None else self._labels(X)
        except ValueError as error:
            raise DataError(str(error), file) from None
        return dict(zip(self.columns, values, strict=True))

    def _numbers(self, X: Any) -> list[Any]:
        distribution = self.model.predict_dist(X)
        found = [distribution.mean, distribution.std]
        if self.level:
            found += list(distribution.interval(self.level).T)
        if self.quantiles:
            found += list(distribution.quantile(self.quantiles).T)
        return found

    def _labels(self, X: Any) -> list[Any]:
        probabilities = self.model.predict_proba(X)
        found = [self.model.classes_[probabilities.argmax(axis=1)], *probabilities.T]
        if self.level:
            ends = self.model.predict_proba_interval(X, self.level)
            ends = ends.reshape(len(ends), -1)  # low and high of each class in turn
            found += list(ends.T)
        return found
