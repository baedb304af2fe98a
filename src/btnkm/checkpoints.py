"""Checkpoints of a fit: where every start stands, in one file that is whole at any moment."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .execution.starts import Start

_KIND = "btnkm checkpoint 1"
# these change nothing in the result, or are only good for one process
_FREE = {"callback", "verbose", "n_jobs", "memory_limit", "warm_start"}


def signature(model: Any, survey: Any, data: Any) -> dict[str, str]:
    """Return what must be the same for a fit to go on: parameters, and a digest of the rows."""
    digest = hashlib.sha256(repr((survey.names, survey.n)).encode())
    batch = survey.sample
    for column in (*batch.columns, batch.y, batch.weight):
        plain = column if column.dtype.kind != "O" else np.array([repr(v) for v in column.tolist()])
        digest.update(np.ascontiguousarray(plain).tobytes())
    digest.update(f"{data.n:.9e} {data.square:.9e}".encode())
    parameters = {
        f"the parameter {name}": repr(value)
        for name, value in model.get_params(deep=False).items()
        # a generator has no value to compare; the seeds drawn from it are in the file
        if name not in _FREE and (name != "random_state" or isinstance(value, int | None))
    }
    return {"the kind of model": type(model).__name__, **parameters, "the rows": digest.hexdigest()}


class Checkpoint:
    """What is known of a fit that may be interrupted.

    Parameters
    ----------
    path : str or PathLike
    every : int
        Sweeps between two writings.
    signed : dict
        See ``signature``.
    """

    def __init__(self, path: Any, every: int, signed: Mapping[str, str]) -> None:
        self.path = Path(path)
        self.every = every
        self.signed = dict(signed)
        self.runs: dict[str, list[Start]] = {}
        self.history: list[dict[str, Any]] = []
        self.seeds: Any = None
        self._sweeps = 0
        if self.path.exists():
            self._read()

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                kind, signed, content = pickle.load(file)
            if kind != _KIND:
                raise ValueError(kind)
        except Exception:
            raise ValueError(
                f"checkpoint must name a checkpoint of btnkm or a file that is yet to be, got "
                f"{str(self.path)!r}, which cannot be read; delete it or name another."
            ) from None
        for what in self.signed.keys() | signed.keys():
            if self.signed.get(what) != signed.get(what):
                raise ValueError(
                    f"a fit must go on with the data and parameters it began with, but {what} "
                    f"differs from that of {str(self.path)!r}; delete the file to begin anew, or "
                    "name another."
                )
        self.runs, self.history, self.seeds = content

    def write(self) -> None:
        """Put all that is known into the file; a process killed meanwhile leaves the old one."""
        runs = {key: [start.at_rest() for start in starts] for key, starts in self.runs.items()}
        body = pickle.dumps((_KIND, self.signed, (runs, self.history, self.seeds)))
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def swept(self) -> None:
        """Count a sweep, and write if it is time."""
        self._sweeps += 1
        if self._sweeps % self.every == 0:
            self.write()
