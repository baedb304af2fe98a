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
from .errors import CLOSED, STDOUT, UsageError
from .options import Help

_EPILOG = """\
examples:
  btnkm demo                                            a first look, without any data
  btnkm fit houses.csv --target price -o houses.btn     learn
  btnkm predict houses.btn new.csv -o predicted.csv     predict
  btnkm explain houses.btn                              ask why
  btnkm fit --help                                      options and examples of a command

exit codes:
  0    all is well
  1    something failed: a file cannot be read or written, a value is wrong
  2    the command line cannot be meant
  130  stopped, by Ctrl-C or SIGTERM, and nothing was kept

With --json a command prints one JSON object on stdout and nothing else; what went wrong is
{"error": "...", "file": ..., "line": ..., "column": ...} on stderr, with the same exit codes.
"""


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong as everything else does."""

    json = False

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where help is; exit with 2."""
        _complain(f"{message}; see {self.prog} --help", Parser.json)
        sys.exit(2)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; if one is named, the others are known by name alone."""
    parser = Parser(
        prog="btnkm",
        description="Bayesian tensor-network kernel machines: predictions from tables that say how "
        "sure they are.",
        epilog=_EPILOG,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"btnkm {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, told in COMMANDS.items():
        if only in (None, name):
            import_module(f".{name}", __package__).add_parser(commands)
        else:
            commands.add_parser(name, help=told, add_help=False)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 if something failed, 2 if misused.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the program's name; those of the process by default.
    """
    argv = sys.argv[1:] if argv is None else argv
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± or █ still gets the rest
    Parser.json = "--json" in argv
    if sys.stdout is None and ("--quiet" not in argv or Parser.json):
        _complain(CLOSED, Parser.json)
        return 1
    command = next((word for word in argv if not word.startswith("-")), "")
    try:
        arguments = build_parser(command).parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        with _stopped_by_signals():
            status = int(arguments.run(arguments))
        if sys.stdout is not None:
            with naming(STDOUT):
                sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads has seen enough
        _let_go_of_stdout()
        return 1
    except (OSError, ValueError, ImportError, MemoryError) as error:
        _complain(_sentence(error), arguments.json, **getattr(error, "where", {}))
        if getattr(error, "filename", None) == STDOUT:
            _let_go_of_stdout()
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as stop:
        _complain(str(stop) or "Stopped.", arguments.json, begin="")
        return 130


def _open_what_is_closed() -> None:
    """Fill what a shell has closed, as by 2>&-, lest the next file takes the place of it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _let_go_of_stdout() -> None:
    """Send what is not written yet nowhere, or Python complains when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C: what there is to keep is kept, and no half of a file stays behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        import tempfile

        return f"{tempfile.gettempdir()}: {error.strerror} for temporary files; free some."
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}."
    return str(error) or type(error).__name__


def _complain(message: str, as_json: bool, begin: str = "error: ", **where: Any) -> None:
    if as_json:
        found = {"error": message, "file": None, "line": None, "column": None, **where}
        message = json.dumps(found, ensure_ascii=False)
        begin = ""
    print(f"{begin}{message}", file=sys.stderr)
