"""What can be wrong, told in one sentence: with the command line, or with a file."""

from __future__ import annotations

from typing import Any

STDOUT = "standard output"
CLOSED = f"{STDOUT} must be open, got it closed; send it to a file, or add -o FILE and --quiet."


class Misuse(ValueError):
    """A command line that cannot be meant."""


class DataError(ValueError):
    """Something wrong with a file, at a line (of text) or row (of Parquet) and column if known.

    Parameters
    ----------
    message : str
        What must be, what came, and what to do.
    file : str
    line, row : int, optional
        Counted from 1.
    column : str, optional
    """

    def __init__(
        self,
        message: str,
        file: str,
        *,
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        found = {"file": file, "line": line, "row": row, "column": column}
        self.where: dict[str, Any] = {k: v for k, v in found.items() if v is not None}
        parts = [file]
        parts += [f"line {line:,}"] if line is not None else []
        parts += [f"row {row:,}"] if row is not None else []
        parts += [f"column {column!r}"] if column is not None else []
        super().__init__(f"{', '.join(parts)}: {message}")
