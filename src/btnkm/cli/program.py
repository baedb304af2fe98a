"""The program ``btnkm``."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from ..io.atomic_write import naming
from ..version import __version__
from . import COMMANDS
from .console import CLOSED, STDOUT, UsageError
from .options import Help, command_parser

_EPILOG = """\
examples:
  btnkm demo                                            fit a small data set
  btnkm fit houses.csv --target price -o houses.btn     fit and save a model
  btnkm predict houses.btn new.csv -o predicted.csv     predict new rows
  btnkm explain houses.btn                              print how important inputs are
  btnkm fit --help                                      options and examples of a command

exit codes:
  0    success
  1    failure: a file cannot be read or written, or a value is not valid
  2    usage error: the command line is not valid
  130  interrupted by Ctrl-C or SIGTERM before a result was saved

With --json a command prints one JSON object on standard output and nothing else. An error is a
JSON object on standard error, {"error": "...", "file": ..., "line": ..., "column": ...}.
"""
SHELLS = ("bash", "zsh", "fish")
_COMPLETION_EXAMPLES = """\
  eval "$(btnkm completion bash)"                              # in ~/.bashrc
  btnkm completion zsh > "${fpath[1]}/_btnkm"                  # in a folder of zsh's fpath
  btnkm completion fish > ~/.config/fish/completions/btnkm.fish
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others."""

    json = False

    def error(self, message: str) -> NoReturn:
        """Print a usage error and exit with 2."""
        _print_error(f"{message}; see {self.prog} --help", Parser.json)
        sys.exit(2)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands, or one that knows the options of a single command."""
    parser = Parser(
        prog="btnkm",
        description="Regression and classification for tables, with prediction intervals and exact "
        "explanations. The models are Bayesian tensor-network kernel machines.",
        epilog=_EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"btnkm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        if only in (None, name) and name == "completion":
            _add_completion(commands)
        elif only in (None, name):
            import_module(f".{name}", __package__).add_parser(commands)
        else:
            commands.add_parser(name, help=text, add_help=False)
    return parser


def _add_completion(commands: Any) -> None:
    """Add the command that prints a completion script, written by shtab."""
    parser = command_parser(
        commands,
        "completion",
        "Print a script with which your shell completes commands, options, their values and file "
        "names.",
        _COMPLETION_EXAMPLES,
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    parser.set_defaults(run=_print_completion)


def _print_completion(arguments: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(build_parser(), shell=arguments.shell))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 for a failure, 2 for a usage error.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the name of the program; by default those of the process.
    """
    argv = sys.argv[1:] if argv is None else argv
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # for terminals without ± or █
    Parser.json = "--json" in argv
    if sys.stdout is None and ("--quiet" not in argv or Parser.json):
        _print_error(CLOSED, Parser.json)
        return 1
    command = next((word for word in argv if not word.startswith("-")), "")
    try:
        arguments = build_parser(command).parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        with _interrupted_by_sigterm():
            status = int(arguments.run(arguments))
        if sys.stdout is not None:
            with naming(STDOUT):
                sys.stdout.flush()
        return status
    except BrokenPipeError:  # as of btnkm ... | head
        _discard_stdout()
        return 1
    except (OSError, ValueError, ImportError, MemoryError) as error:
        _print_error(_message(error), arguments.json, **getattr(error, "where", {}))
        if getattr(error, "filename", None) == STDOUT:
            _discard_stdout()
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as stop:
        _print_error(str(stop) or "Stopped.", arguments.json, begin="")
        return 130


def _open_closed_streams() -> None:
    """Open streams that a shell has closed (2>&-): the next file would take their place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _discard_stdout() -> None:
    """Discard what is not written yet, or Python prints an error when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that results are kept and incomplete files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        import tempfile

        return f"{tempfile.gettempdir()}: {error.strerror} for temporary files; free some space."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}."
    return str(error) or type(error).__name__


def _print_error(message: str, as_json: bool, begin: str = "error: ", **where: Any) -> None:
    if as_json:
        error = {"error": message, "file": None, "line": None, "column": None, **where}
        message = json.dumps(error, ensure_ascii=False)
        begin = ""
    print(f"{begin}{message}", file=sys.stderr)
