"""``btnkm predict``: predict the rows of a table, block by block."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from .console import Console, UsageError, counted
from .info import is_classifier, load_model
from .options import (
    add_model,
    add_names,
    add_output_options,
    add_rows_output,
    add_table,
    add_table_options,
    command_parser,
    dialect_of,
    probabilities,
    probability,
)
from .output import check_rows_output

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
        "Predict the target for every row of a table. For a regressor, the output is the mean and "
        "the standard deviation of the target (including noise). For a classifier, it is the most "
        "probable class and the probability of each class. Columns are matched by name. Columns "
        "that the model does not use are ignored. The table may be larger than memory. If the "
        "command fails, no output file is written.",
        _EXAMPLES,
    )
    add_model(parser)
    add_table(parser)
    add_rows_output(parser)
    parser.add_argument(
        "--interval",
        type=probability,
        metavar="LEVEL",
        help="add columns low and high: an interval that contains the target (for a classifier, "
        "the probability of the class) with this probability, such as 0.9",
    )
    parser.add_argument(
        "--quantiles",
        type=probabilities,
        metavar="Q,…",
        help="add these quantiles of the target, in columns such as q0.5 (regressors only)",
    )
    keep_help = "copy these columns of the table to the output; without names, all of them"
    add_names(parser, "--keep", keep_help, nargs="?", const=[])
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="prefix for the names of the predicted columns"
    )
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, predict and write block by block."""
    from ..data.table_files import check_columns, open_table
    from .tables import write_rows

    console = Console(arguments)
    path: Path | None = arguments.output
    check_rows_output(path, console.json, table=arguments.data, model=arguments.model)
    model = load_model(arguments.model)
    if arguments.quantiles and is_classifier(model):
        raise UsageError("--quantiles needs a regressor, got a classifier; leave it out.")
    if model.fitted_.exposed and model.fitted_.exposure_name is None:
        console.note(
            "the model was fitted with an exposure, whose column has no name: predictions are for "
            "an exposure of 1."
        )
    table = open_table(arguments.data, dialect_of(arguments), again=False)
    keep = arguments.keep
    kept = table.names if keep == [] else keep or []
    check_columns(table, kept, "--keep")
    output = Output(model, arguments)
    repeated = set(kept) & set(output.columns)
    if repeated:
        raise UsageError(
            f"column names must be unique, got {repeated.pop()!r} from the table and from the "
            "model; name columns with --keep, or add --prefix."
        )
    begin = time.perf_counter()
    n, counts = write_rows(
        model,
        table,
        kept,
        path,
        lambda X: [output.of(X)],
        console,
        "predicting",
        output.columns,
        exposed=True,
    )
    seconds = time.perf_counter() - begin
    if path is not None:
        console.say(f"Wrote {counted(n, 'prediction')} to {path} in {seconds:.1f} s")
    console.result(
        {
            "model": arguments.model,
            "data": table.name,
            "output": str(path),
            "rows": n,
            "columns": [*kept, *output.columns],
            **counts,
            "seconds": seconds,
        }
    )
    return 0


class Output:
    """The columns that are predicted: their names in ``columns``, and their values for rows."""

    def __init__(self, model: Any, arguments: argparse.Namespace) -> None:
        self.model = model
        self.level, self.quantiles = arguments.interval, arguments.quantiles or []
        self.classes = [str(c) for c in model.classes_.tolist()] if is_classifier(model) else None
        names = ["mean", "std"]
        if self.classes is not None:
            names = ["label", *(f"probability {name}" for name in self.classes)]
            if self.level:
                names += [
                    f"{end} {name}" for name in self._with_interval for end in ("low", "high")
                ]
        elif self.level:
            names += ["low", "high"]
        names += [f"q{q:g}" for q in self.quantiles]
        self.columns = [arguments.prefix + name for name in names]

    @property
    def _with_interval(self) -> list[str]:
        """Classes whose probability gets an interval: of two classes only the second."""
        assert self.classes is not None
        return self.classes[1:] if len(self.classes) == 2 else self.classes

    def of(self, X: Any) -> dict[str, Any]:
        """Return the columns for some rows."""
        values = self._numbers(X) if self.classes is None else self._labels(X)
        return dict(zip(self.columns, values, strict=True))

    def _numbers(self, X: Any) -> list[Any]:
        distribution = self.model.predict_dist(X, exposure=self.model.fitted_.exposure_name)
        columns = [distribution.mean, distribution.std]
        if self.level:
            columns += list(distribution.interval(self.level).T)
        if self.quantiles:
            columns += list(distribution.quantile(self.quantiles).T)
        return columns

    def _labels(self, X: Any) -> list[Any]:
        probabilities = self.model.predict_proba(X)
        columns = [self.model.classes_[probabilities.argmax(axis=1)], *probabilities.T]
        if self.level:
            ends = self.model.predict_proba_interval(X, self.level)
            ends = ends.reshape(len(ends), -1)  # low and high of each class
            columns += list(ends.T)
        return columns
