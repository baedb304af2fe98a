"""``btnkm calibrate``: recalibrate a model by rows that it was not fitted to."""

from __future__ import annotations

import argparse
from typing import Any

from ..data.csv_file import DataError
from .console import Console, UsageError, counted, facts
from .info import load_model
from .options import (
    FilePath,
    add_model,
    add_output_options,
    add_table,
    add_table_options,
    command_parser,
    dialect_of,
    output_file,
)
from .output import check_output

_EXAMPLES = """\
  btnkm calibrate houses.btn test.csv -o calibrated.btn
  btnkm calibrate sold.btn test.csv --target sold -o calibrated.btn
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "calibrate",
        "Recalibrate a model by rows that it was not fitted to, and save it to another file. "
        "Intervals of a regressor become conformal: on average over all rows, at least as many "
        "targets as their level says are inside, if new rows are like the held-out ones. It takes "
        "39 rows for intervals of level 0.95. Probabilities of a classifier are recalibrated by a "
        "temperature. Means, and explanations, stay as they are.",
        _EXAMPLES,
    )
    add_model(parser)
    add_table(parser)
    parser.add_argument(
        "--target",
        metavar="COLUMN",
        help="column with the target in that table (default: its name in the fit)",
    )
    parser.add_argument(
        "-o",
        "--output",
        action=FilePath,
        type=output_file,
        required=True,
        metavar="MODEL",
        help="file to save the recalibrated model to",
    )
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Recalibrate the model, save it, and print what has changed."""
    from ..core.recalibration import plain_form
    from ..data.table_files import open_table
    from .tables import rows_with_targets

    console = Console(arguments)
    check_output(arguments.output, table=arguments.data, model=arguments.model)
    model = load_model(arguments.model)
    if model.fitted_.exposed:
        raise UsageError(
            "a model with an exposure cannot be recalibrated by the program; use "
            "model.calibrate(X, y, exposure=...) in Python."
        )
    target = arguments.target or model.fitted_.target_name
    if target is None:
        raise DataError("the model has no name of its target; add --target.", arguments.model)
    table = open_table(arguments.data, dialect_of(arguments), again=False)
    with console.progress(f"reading {table.name}", table.measure) as bar:
        rows = rows_with_targets(model, table, target, console.note, bar.update)
    with console.library():
        try:
            model.calibrate(rows, target)
        except ValueError as error:
            raise DataError(str(error), table.name) from None
        model.save(arguments.output)
    described = plain_form(model.fitted_.calibration)
    assert described is not None
    console.title(f"Saved {arguments.output}, recalibrated {described['summary']}")
    lines = [("rows", f"{counted(len(rows), 'row')} of {table.name}")]
    if "highest_level" in described:
        lines.append(("guarantee", f"intervals up to level {described['highest_level']:.3g}"))
    console.say(facts(lines, console.width))
    console.result(
        {
            "model": arguments.model,
            "data": table.name,
            "output": str(arguments.output),
            "target": target,
            "calibration": described,
        }
    )
    return 0
