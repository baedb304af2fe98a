"""What a command says: results on stdout, notes and progress on stderr, or JSON for machines."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from typing import Any

from ..io.atomic_write import naming
from .errors import STDOUT

NARROW, WIDE = 48, 100  # columns of text, whatever the terminal has


class Console:
    """Where a command says things.

    Parameters
    ----------
    arguments : Namespace
        With ``json``, ``quiet`` and ``verbose``.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.json = bool(arguments.json)
        self.quiet = bool(arguments.quiet)
        self.verbose = bool(arguments.verbose)
        self.notes: list[str] = []

    @property
    def width(self) -> int:
        """Columns to fill."""
        return min(max(shutil.get_terminal_size((80, 24)).columns, NARROW), WIDE)

    def say(self, text: str = "") -> None:
        """Print a result for people."""
        if not self.json and not self.quiet:
            _print(text)

    def title(self, text: str) -> None:
        """Print a line above others, and an empty one below."""
        self.say(textwrap.fill(text, self.width) + "\n")

    def note(self, text: str) -> None:
        """Print what a user should know; machines find it in the result."""
        if text in self.notes:
            return
        self.notes.append(text)
        if not self.json and not self.quiet:
            said = f"note: {text}"
            if sys.stderr.isatty():
                said = textwrap.fill(said, self.width, subsequent_indent="      ")
            print(said, file=sys.stderr)

    def result(self, found: Mapping[str, Any]) -> None:
        """Print the result for machines, with the notes."""
        if self.json:
            _print(json.dumps(plain({**found, "notes": self.notes}), ensure_ascii=False))

    @contextmanager
    def library(self) -> Iterator[None]:
        """Let the library speak as the program does: warnings are notes, lines go to stderr."""
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")  # what is for those who write programs
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: self.note(str(message))
            yield

    @contextmanager
    def progress(self, what: str, unit: str = "", *, mute: bool = False) -> Iterator[Bar]:
        """Yield a bar on stderr, if that is a terminal and rich is there; else one that is mute.

        Of "sweeps" nobody knows how many there will be: they have no bar, but a line.
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
    """How far something is, on the screen if there is one."""

    def __init__(self, progress: Any = None, task: Any = None) -> None:
        self._progress, self._task = progress, task

    def update(self, done: float, total: float, what: str | None = None) -> None:
        """Show that so much is done."""
        if self._progress is not None:
            more = {} if what is None else {"description": what}
            self._progress.update(self._task, completed=done, total=total or None, **more)


def plain(value: Any) -> Any:
    """Return what JSON can tell: no NumPy types, None for numbers that are none or infinite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def clipped(text: str, width: int) -> str:
    """Return text of at most so many characters."""
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"


def facts(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Return lines of a name and what it is, the latter wrapped below itself."""
    most = max(len(name) for name, _ in rows)
    lines = []
    for name, value in rows:
        begin = f"  {name:{most}}  "
        lines += textwrap.wrap(
            value, width, initial_indent=begin, subsequent_indent=" " * len(begin)
        ) or [begin.rstrip()]
    return "\n".join(lines)


def shares(found: Any, width: int, most: int) -> str:
    """Return what each input explains, alone and with others, largest first, and bars.

    ``found`` is of ``explain.sobol_indices``; bars are left out where there is no room.
    """
    if not found.variance:
        return "The model predicts the same for all rows: no input has a share."
    order = found.order.tolist()
    names = {j: str(found.names[j]) for j in order[:most]}
    room = width - len("    100.0%  100.0% ± 10.0%  ")
    longest = max(len("input"), *map(len, names.values()))
    broad = min(longest, max(room - 12, room // 2))  # names are clipped before bars vanish
    bars = min(room - broad, 30)
    top = max(float(found.total.max()), 1e-300)
    lines = [
        "Share of each input in what is explained",
        f"  {'input':{broad}}   alone  with others",
    ]
    for j, name in names.items():
        bar = "█" * round(bars * found.total[j] / top) if bars > 4 else ""
        share = f"{found.first[j]:6.1%}  {found.total[j]:6.1%} ± {found.total_std[j]:5.1%}"
        lines.append(f"  {clipped(name, broad):{broad}}  {share}  {bar}".rstrip())
    if len(order) > most:
        lines.append(f"  and {len(order) - most} more, which explain less")
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], gap: int = 2) -> str:
    """Return aligned lines: the first column to the left, all others to the right."""
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
    """Return a number with what it counts: 1 row, 2 rows."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"
