"""The program ``btnkm``."""

from __future__ import annotations

import argparse
import os
import sys

from . import __version__


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 if something failed, 2 if misused.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the program's name; those of the process by default.
    """
    from .reproduce import command

    parser = argparse.ArgumentParser(
        prog="btnkm", description="Bayesian tensor-network kernel machines."
    )
    parser.add_argument("--version", action="version", version=f"btnkm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command.add_parser(commands)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130
