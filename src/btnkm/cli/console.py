"""Output of the commands: results on stdout, notes and progress on stderr, or JSON; errors."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any

from ..io.atomic_write import naming

STDOUT = "standard output"
CLOSED = f"{STDOUT} must be open, got it closed; send it to a file, or add -o FILE and --quiet."
NARROW, WIDE = 48, 100  # limits of the width


class UsageError(ValueError):
    """A command line that is not valid."""


class Console:
    """The output of a command, as its options ``json``, ``quiet`` and ``verbose`` ask for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.json = bool(arguments.json)
        self.quiet = bool(arguments.quiet)
        self.verbose = bool(arguments.verbose)
        self.notes: list[str] = []
        self._beyond = False  # whether a note has told of rows beyond the training range

    @property
    def width(self) -> int:
        """Width of the text."""
        return min(max(shutil.get_terminal_size((80, 24)).columns, NARROW), WIDE)

    def say(self, text: str = "") -> None:
        """Print a line of the result, unless it is JSON."""
        if not self.json and not self.quiet:
            _print(text)

    def title(self, text: str) -> None:
        """Print a headline and an empty line."""
        self.say(textwrap.fill(text, self.width) + "\n")

    def note(self, text: str) -> None:
        """Print a note to the user; with JSON it is part of the result."""
        if text in self.notes:
            return
        self.notes.append(text)
        if not self.json and not self.quiet:
            line = f"note: {text}"
            if sys.stderr.isatty():
                line = textwrap.fill(line, self.width, subsequent_indent="      ")
            print(line, file=sys.stderr)

    def result(self, values: dict[str, Any]) -> None:
        """Print the result and the notes as JSON, if asked for."""
        if self.json:
            from ..explain.fitted import plain

            _print(json.dumps(plain({**values, "notes": self.notes}), ensure_ascii=False))

    @contextmanager
    def library(self) -> Iterator[None]:
        """Show warnings of the library as notes, and send what it prints to stderr."""
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # such as deprecations
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: self._show(message)
            yield

    def _show(self, message: Any) -> None:
        """Show a warning of the library as a note; of models of several folds, only the first."""
        from ..data.beyond import ExtrapolationWarning

        if isinstance(message, ExtrapolationWarning):
            if self._beyond:
                return
            self._beyond = True
        self.note(str(message))

    @contextmanager
    def progress(self, what: str, unit: str = "", *, mute: bool = False) -> Iterator[Bar]:
        """Yield a progress bar on stderr, or a silent one without a terminal or without rich.

        The number of "sweeps" is not known in advance: they have a line instead of a bar.
        """
        mute = mute or self.json or self.quiet or self.verbose or not sys.stderr.isatty()
        if mute or find_spec("rich") is None:
            yield Bar()
            return
        from rich.console import Console as Terminal
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            SpinnerColumn,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        amount = DownloadColumn() if unit == "bytes" else TaskProgressColumn()
        text = TextColumn("{task.description}", markup=False)
        looks: tuple[Any, ...] = (text, BarColumn(), amount, TimeRemainingColumn())
        if unit == "sweeps":
            looks = (SpinnerColumn(), text, TimeElapsedColumn())
        terminal = Terminal(stderr=True)
        with Progress(*looks, console=terminal, transient=True) as progress:
            yield Bar(progress, progress.add_task(what, total=None))


def _print(text: str) -> None:
    with naming(STDOUT):
        print(text)


class Bar:
    """A progress bar, or nothing."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def update(self, done: float, total: float, what: str | None = None) -> None:
        """Show how much is done."""
        if self._progress is not None:
            more = {} if what is None else {"description": what}
            self._progress.update(self._task, completed=done, total=total or None, **more)


def clipped(text: str, width: int) -> str:
    """Return a text of at most ``width`` characters."""
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"


def facts(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Return lines with a name and a value, which is wrapped."""
    longest = max(len(name) for name, _ in rows)
    lines = []
    for name, value in rows:
        begin = f"  {name:{longest}}  "
        lines += textwrap.wrap(
            value, width, initial_indent=begin, subsequent_indent=" " * len(begin)
        ) or [begin.rstrip()]
    return "\n".join(lines)


def importances(sobol: Any, width: int, most: int) -> str:
    """Return the importance of each input, alone and with others, as lines with bars.

    ``sobol`` is of ``explain.sobol_indices``; bars are left out if there is no room.
    """
    if not sobol.variance:
        return "The data show no effect of any input."
    order = sobol.order.tolist()
    names = {j: str(sobol.names[j]) for j in order[:most]}
    room = width - len("    100.0%  100.0% ± 10.0%  ")
    longest = max(len("input"), *map(len, names.values()))
    broad = min(longest, max(room - 12, room // 2))  # names are clipped before bars are left out
    bars = min(room - broad, 30)
    top = max(float(sobol.total.max()), 1e-300)
    lines = [
        "Importance of each input (fraction of variance)",
        f"  {'input':{broad}}   alone  with others",
    ]
    for j, name in names.items():
        bar = "█" * round(bars * sobol.total[j] / top) if bars > 4 else ""
        line = f"{sobol.first[j]:6.1%}  {sobol.total[j]:6.1%} ± {sobol.total_std[j]:5.1%}"
        lines.append(f"  {clipped(name, broad):{broad}}  {line}  {bar}".rstrip())
    if len(order) > most:
        lines.append(f"  and {len(order) - most} less important inputs")
    return "\n".join(lines)


def number(value: float, like: float | None = None) -> str:
    """Return a number with four digits, or with as many decimals as ``like`` then has."""
    size = abs(value if like is None else like)
    if not (size == 0.0 or 1e-3 <= size < 1e9):
        return f"{value:.4g}"
    return f"{value:.{max(3 - math.floor(math.log10(size or 1.0)), 0)}f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> str:
    """Return aligned lines: the first column to the left, the others to the right."""
    every = [list(head), *map(list, rows)]
    widths = [max(len(row[j]) for row in every) for j in range(len(head))]
    lines = []
    for row in every:
        cells = [
            f"{cell:<{w}}" if j == 0 else f"{cell:>{w}}"
            for j, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + (" " * gap).join(cells)).rstrip())
    return "\n".join(lines)


def counted(n: int, what: str) -> str:
    """Return a number and a noun: 1 row, 2 rows."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
