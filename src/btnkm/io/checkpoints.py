"""Checkpoints of a fit: where every start stands, in one file that is whole at any moment."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..execution.restarts import Restart
from .atomic_write import whole_file

_KIND = b"btnkm checkpoint 2\n"
_DIGEST = hashlib.sha256().digest_size
# these change nothing in the result, or are only good for one process
_FREE = {"callback", "verbose", "n_jobs", "memory_limit", "warm_start"}


def signature(model: Any, survey: Any, data: Any) -> dict[str, str]:
    """Return what must be the same for a fit to go on: parameters, and a digest of the rows.

    What differs first is what is told: other parameters may well make other rows.
    """
    digest = hashlib.sha256(repr(survey.n).encode())
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
    return {
        "the estimator": type(model).__name__,
        **parameters,
        "the columns": repr(survey.names),
        "the rows": digest.hexdigest(),
    }


def check_path(path: Any) -> Path:
    """Return where a checkpoint is to be, or say why it cannot be there."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise TypeError(
            f"checkpoint must be the path of a file or None, got {path!r}; use for example "
            "'fit.checkpoint'."
        )
    found = Path(path).expanduser()
    if found.is_dir():
        raise IsADirectoryError(
            f"checkpoint must name a file, got the folder {str(found)!r}; name a file in it."
        )
    try:
        with tempfile.TemporaryFile(dir=found.parent):
            pass
    except OSError as error:
        raise type(error)(
            f"checkpoint must be in a folder that can be written to, got {str(found.parent)!r} "
            f"({error.strerror}); make it, or name another."
        ) from None
    return found


class Checkpoint:
    """What is known of a fit that may be interrupted.

    Parameters
    ----------
    path : Path
    every : int
        Sweeps between two writings.
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
            found = self.path.read_bytes()
            begin, body = len(_KIND) + _DIGEST, found[len(_KIND) + _DIGEST :]
            if found[:begin] != _KIND + hashlib.sha256(body).digest():
                raise ValueError
            signed, content = pickle.loads(body)
        except Exception:
            raise ValueError(
                f"checkpoint must name a checkpoint of btnkm or a file that is yet to be, got "
                f"{str(self.path)!r}, which cannot be read; delete it or name another."
            ) from None
        for what in dict.fromkeys((*self.signed, *signed)):
            if self.signed.get(what) != signed.get(what):
                differs = "differ" if what in ("the columns", "the rows") else "differs"
                raise ValueError(
                    f"a fit must go on with the data and parameters it began with, but {what} "
                    f"{differs} from what {str(self.path)!r} has; delete the file to begin anew, "
                    "or name another."
                )
        self.runs, self.history, self.seeds = content

    def write(self) -> None:
        """Put all that is known into the file; a process killed meanwhile leaves the old one.

        Where there is no writing the fit goes on, and the next writing is tried none the less.
        """
        runs = {key: [start.at_rest() for start in starts] for key, starts in self.runs.items()}
        body = pickle.dumps((self.signed, (runs, self.history, self.seeds)))
        try:
            with whole_file(self.path, private=True) as draft:
                draft.write_bytes(_KIND + hashlib.sha256(body).digest() + body)
        except OSError as error:
            if not self._failed:
                why = error.strerror or error
                warnings.warn(
                    f"the checkpoint {str(self.path)!r} could not be written ({why}): "
                    "the fit goes on, but what came since the last writing would be lost with it.",
                    UserWarning,
                    stacklevel=2,
                )
            self._failed = True

    def swept(self) -> None:
        """Count a sweep, and write if it is time."""
        self._sweeps += 1
        if self._sweeps % self.every == 0:
            self.write()
