"""``btnkm reproduce``, which is at home beside the experiments it runs."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import redirect_stdout
from typing import Any

from ..reproduce import command
from .console import Console
from .errors import Misuse
from .options import add_output_options


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    command.add_parser(commands)
    parser = commands.choices["reproduce"]
    add_output_options(parser)
    parser.set_defaults(run=run, verbose=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the experiments; all that is raised on the way is told before the first of them."""
    console = Console(arguments)
    with open(os.devnull, "w") as nowhere:
        quiet = nowhere if console.quiet else sys.stderr
        try:
            if not console.json and not console.quiet:
                return command.reproduce(arguments)
            with redirect_stdout(quiet):
                status = command.reproduce(arguments)
        except (OSError, ValueError) as error:
            raise Misuse(str(error)) from error
    console.result({"experiment": arguments.what, "folder": str(arguments.out), "status": status})
    return status
