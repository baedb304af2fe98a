"""Columns of numbers in files, for rows that do not fit in memory."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

import numpy as np

Array = np.ndarray
_BYTES = 8  # of a double


class Spilled:
    """A column of doubles in a file without a name, read by slices.

    The system takes the file back when this object goes, or the process, however it ends. What is
    read is copied: unlike pages of a mapped file it does not stay in this process's memory.
    """

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(prefix="btnkm-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self._length = 0

    def __del__(self) -> None:
        """Close the file, which is its end."""
        if hasattr(self, "_file"):  # which there may have been no room for
            self._file.close()

    def __len__(self) -> int:
        return self._length

    @property
    def shape(self) -> tuple[int]:
        """As of an array."""
        return (self._length,)

    def append(self, values: Array) -> None:
        """Write more numbers at the end."""
        self._file.seek(_BYTES * self._length)
        parcel = np.ascontiguousarray(values, dtype=np.float64).data.cast("B")
        while parcel:  # a full disk may take a part
            parcel = parcel[self._file.write(parcel) :]
        self._length += len(values)

    def __getitem__(self, rows: Any) -> Array:
        """Return the numbers of a slice of rows."""
        start, stop, step = rows.indices(self._length)
        assert step == 1
        out = np.empty(max(stop - start, 0))
        parcel, at = out.data.cast("B"), _BYTES * start
        while parcel:
            read = self._read(parcel, at)
            if not read:
                raise OSError("a file of coordinates was cut short by something else")
            parcel, at = parcel[read:], at + read
        return out

    def _read(self, into: memoryview, at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], at)
        with self._lock:  # Windows and macOS of old: no reading at a place
            self._file.seek(at)
            return self._file.readinto(into) or 0
