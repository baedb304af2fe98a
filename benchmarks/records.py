"""Results on disk: one JSON object per line, written at once and never rewritten."""

import json
import os
from pathlib import Path


def read_records(path):
    """Read the results of earlier runs.

    Parameters
    ----------
    path : path-like
        May be missing.

    Returns
    -------
    records : list of dict
    n_broken : int
        Lines that are not complete, as a killed run leaves behind.
    """
    path = Path(path)
    if not path.exists():
        return [], 0
    records, n_broken = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if isinstance(record, dict) and "metrics" in record:
            records.append(record)
        else:
            n_broken += 1
    return records, n_broken


def append_record(path, record):
    """Append one result and wait until it is on disk.

    Parameters
    ----------
    path : path-like
    record : dict
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, sort_keys=True).encode() + b"\n"
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                # Keep half a line of a killed run apart, or it would spoil this one too.
                line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def record_key(record):
    """Return what identifies a result, apart from the code measured; see `Cell.key`."""
    return record["dataset"], record["split"], record["method"], record["config_hash"]
