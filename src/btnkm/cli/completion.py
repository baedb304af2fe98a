"""``btnkm completion``: a completion script for the shell, written by shtab."""

from __future__ import annotations

import argparse
from typing import Any

from .options import command_parser

SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """\
  eval "$(btnkm completion bash)"                              # in ~/.bashrc
  btnkm completion zsh > "${fpath[1]}/_btnkm"                  # in a folder of zsh's fpath
  btnkm completion fish > ~/.config/fish/completions/btnkm.fish
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "completion",
        "Print a script with which your shell completes commands, options, their values and file "
        "names.",
        _EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from .program import build_parser

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0
