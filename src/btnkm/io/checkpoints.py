"""Checkpoints of a fit: the state of every restart, in one file that is always complete."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..execution.restarts import Restart
from ..warn import warn
from .atomic_write import file_path, folder_error, whole_file

_KIND = b"btnkm checkpoint 3\n"
_DIGEST = hashlib.sha256().digest_size
# parameters that do not change the result, or cannot be compared between processes
_FREE = {"callback", "verbose", "n_jobs", "memory_limit", "warm_start"}


def signature(model: Any, table_stats: Any, data: Any) -> dict[str, str]:
    """Return what must be the same for a fit to resume: parameters, and a digest of the rows.

    Errors name the first difference: other parameters may well lead to other rows.
    """
    digest = hashlib.sha256(repr(table_stats.n).encode())
    batch = table_stats.sample
    for column in (*batch.columns, batch.y, batch.weight):
        plain = column if column.dtype.kind != "O" else np.array([repr(v) for v in column.tolist()])
        digest.update(np.ascontiguousarray(plain).tobytes())
    digest.update(f"{data.n:.9e} {data.square:.9e}".encode())
    parameters = {
        f"the parameter {name}": repr(value)
        for name, value in model.get_params(deep=False).items()
        # a generator cannot be compared; the seeds drawn from it are in the file
        if name not in _FREE and (name != "random_state" or isinstance(value, int | None))
    }
    return {
        "the estimator": type(model).__name__,
        **parameters,
        "the columns": repr(table_stats.names),
        "the rows": digest.hexdigest(),
    }


def check_path(path: Any) -> Path:
    """Return the path of a checkpoint, or say why none can be written there."""
    place = file_path(path, "fit.checkpoint", "checkpoint")
    try:
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise folder_error(error, place.parent, "checkpoint") from None
    return place


class Checkpoint:
    """The state of a fit, which resumes if its file exists.

    Uses pickle: load only trusted files.

    Parameters
    ----------
    path : Path
    every : int
        Sweeps between two writes.
    signed : dict
        See ``signature``.
    """

    def __init__(self, path: Path, every: int, signed: Mapping[str, str]) -> None:
        self.path = path
        self.every = every
        self.signed = dict(signed)
        self.runs: dict[str, list[Restart]] = {}
        self.history: list[dict[str, Any]] = []
        self.seeds: Any = None
        self._sweeps = 0
        self._failed = False
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            content = self.path.read_bytes()
            head, body = content[: len(_KIND) + _DIGEST], content[len(_KIND) + _DIGEST :]
            if head != _KIND + hashlib.sha256(body).digest():
                raise ValueError("the checksum differs")
            signed, state = pickle.loads(body)
        except Exception as error:
            raise ValueError(
                "checkpoint must name a checkpoint of btnkm or a new file, got "
                f"{str(self.path)!r}, which cannot be read; delete it or name another."
            ) from error
        for what in dict.fromkeys((*self.signed, *signed)):
            if self.signed.get(what) != signed.get(what):
                differs = "differ" if what in ("the columns", "the rows") else "differs"
                raise ValueError(
                    f"a fit must resume with the data and parameters it started with, but {what} "
                    f"{differs} from what {str(self.path)!r} has; delete the file to start over, "
                    "or name another."
                )
        self.runs, self.history, self.seeds = state

    def write(self) -> None:
        """Write the file; a process killed meanwhile leaves the old one.

        Where writing fails the fit continues, and the next write is tried none the less.
        """
        runs = {
            key: [restart.at_rest() for restart in restarts] for key, restarts in self.runs.items()
        }
        body = pickle.dumps((self.signed, (runs, self.history, self.seeds)))
        try:
            with whole_file(self.path, private=True) as draft:
                draft.write_bytes(_KIND + hashlib.sha256(body).digest() + body)
        except OSError as error:
            if not self._failed:
                warn(
                    f"the checkpoint {str(self.path)!r} could not be written "
                    f"({error.strerror or error}): the fit continues, but sweeps since the last "
                    "write would be lost if it stopped.",
                )
            self._failed = True

    def swept(self) -> None:
        """Count a sweep, and write the file if it is due."""
        self._sweeps += 1
        if self._sweeps % self.every == 0:
            self.write()
