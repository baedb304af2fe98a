"""``btnkm report``: an HTML report about a model."""

from __future__ import annotations

import argparse
from typing import Any

from .console import Console, UsageError
from .info import load_model
from .options import (
    FilePath,
    add_model,
    add_output_options,
    add_table_options,
    command_parser,
    dialect_of,
    output_file,
)
from .output import check_output

_EXAMPLES = """\
  btnkm report houses.btn -o houses.html
  btnkm report houses.btn -o houses.html --data test.csv --target price --title Houses
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "report",
        "Write an HTML report about a model. It shows how important the inputs are and what effect "
        "they have. In a panel you can change the inputs and see the prediction. The report is one "
        "file and works offline. With --data and --target, it also shows how accurate the "
        "predictions of held-out rows are.",
        _EXAMPLES,
    )
    add_model(parser)
    parser.add_argument(
        "-o",
        "--output",
        action=FilePath,
        type=output_file,
        required=True,
        metavar="FILE",
        help="file to write the report to, such as model.html",
    )
    parser.add_argument("--title", metavar="TEXT", help="title of the report")
    parser.add_argument(
        "--data",
        action=FilePath,
        metavar="TABLE",
        help="table with rows that the model was not fitted to",
    )
    parser.add_argument("--target", metavar="COLUMN", help="column with the target in that table")
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    from ..data.table_files import open_table
    from .tables import rows_with_targets

    console = Console(arguments)
    if arguments.output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--output must end with .html or .htm, got {str(arguments.output)!r}; rename it."
        )
    check_output(arguments.output, table=arguments.data, model=arguments.model)
    if (arguments.data is None) != (arguments.target is None):
        raise UsageError("--data and --target must come together; give both, or neither.")
    model = load_model(arguments.model)
    rows = None
    if arguments.data is not None:
        table = open_table(arguments.data, dialect_of(arguments), again=False)
        with console.progress(f"reading {table.name}", table.measure) as bar:
            rows = rows_with_targets(model, table, arguments.target, console.note, bar.update)
    with console.library():
        model.report(arguments.output, rows, arguments.target, title=arguments.title)
    console.say(f"Wrote {arguments.output}")
    result = {"model": arguments.model, "output": str(arguments.output)}
    console.result({**result, "rows": None if rows is None else len(rows)})
    return 0
