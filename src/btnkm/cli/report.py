"""``btnkm report``: a page about a model."""

from __future__ import annotations

import argparse
from typing import Any

from .console import Console
from .errors import UsageError
from .options import add_output_options, add_table_options, command_parser, dialect_of, output_file

_EXAMPLES = """\
  btnkm report houses.btn -o houses.html
  btnkm report houses.btn -o houses.html --data test.csv --target price --title Houses
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "report",
        "Write one HTML file that tells what a model has found, and lets its reader ask what if; "
        "it needs no network. With rows that the fit has not seen it also tells how well these are "
        "predicted, and how honest the intervals are.",
        _EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="a file that fit has saved")
    parser.add_argument(
        "-o", "--output", type=output_file, required=True, metavar="FILE", help="the page, .html"
    )
    parser.add_argument("--title", metavar="TEXT", help="above the page")
    parser.add_argument("--data", metavar="TABLE", help="rows that the fit has not seen")
    parser.add_argument("--target", metavar="COLUMN", help="what is predicted, in that table")
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    from ..data.table_files import open_table
    from .models import load_model, rows_with_targets
    from .output import check_output

    console = Console(arguments)
    if arguments.output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"--output must end with .html or .htm, got {str(arguments.output)!r}; rename it."
        )
    check_output(arguments.output, table=arguments.data, model=arguments.model)
    if (arguments.data is None) != (arguments.target is None):
        raise UsageError("--data and --target must come together; name both, or none.")
    model = load_model(arguments.model)
    rows = None
    if arguments.data is not None:
        table = open_table(arguments.data, dialect_of(arguments), again=False)
        with console.progress(f"reading {table.name}", table.measure) as bar:
            rows = rows_with_targets(model, table, arguments.target, console.note, bar.update)
    with console.library():
        model.report(arguments.output, rows, arguments.target, title=arguments.title)
    console.say(f"Wrote {arguments.output}")
    found = {"model": arguments.model, "output": str(arguments.output)}
    console.result({**found, "rows": None if rows is None else len(rows)})
    return 0
