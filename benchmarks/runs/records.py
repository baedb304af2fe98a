"""Results on disk: one JSON object per line, written at once and never rewritten."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]
_KEYS = {"dataset", "split", "method", "config", "config_hash", "metrics", "code"}


def read_records(path: Any) -> tuple[list[Record], int]:
    """Return the results in a file, which may be missing, and how many lines are no results."""
    path = Path(path)
    if not path.exists():
        return [], 0
    parsed = [
        _parse(line)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    records = [record for record in parsed if record is not None]
    return records, len(parsed) - len(records)


def repair(path: Any) -> bool:
    """Cut off a last line that a killed run left half written, and say whether there was one."""
    path = Path(path)
    if not path.exists():
        return False
    body = path.read_bytes()
    end = body.rfind(b"\n") + 1
    if end == len(body):
        return False
    if _parse(body[end:].decode(errors="replace")) is not None:
        # whole but for its end of line
        with path.open("ab") as file:
            file.write(b"\n")
        return False
    with path.open("r+b") as file:
        file.truncate(end)
    return True


@contextmanager
def claimed(path: Any) -> Iterator[None]:
    """Keep other runs from writing to a file meanwhile; where the system has no such locks, hope.

    A lock ends with its process, however that ends.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"{path} must be written by one run at a time, and another one is at it; wait for "
                "it to end, or write elsewhere."
            ) from None
        yield


def append_record(path: Any, record: Record) -> None:
    """Append one result and wait until it is on disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, sort_keys=True).encode() + b"\n"
    with path.open("ab") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def record_key(record: Record) -> tuple[str, int, str, str]:
    """Return what identifies a result, apart from the code measured; see ``Cell.key``."""
    return record["dataset"], record["split"], record["method"], record["config_hash"]


def _parse(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record if isinstance(record, dict) and record.keys() >= _KEYS else None
