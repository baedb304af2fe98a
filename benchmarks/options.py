"""What the command lines of benchmarks share."""

from __future__ import annotations


def names(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
