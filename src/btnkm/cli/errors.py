"""Usage errors, and what every command says of standard output."""

from __future__ import annotations

STDOUT = "standard output"
CLOSED = f"{STDOUT} must be open, got it closed; send it to a file, or add -o FILE and --quiet."


class UsageError(ValueError):
    """A command line that is not valid."""
