"""Columns of numbers in a file, for rows that do not fit in memory."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

import numpy as np

Array = np.ndarray
_BYTES = 8  # of a double


class Unnamed:
    """A file without a name, written and read at any place.

    The system takes the file back when this object goes, or the process, however it ends.
    """

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(prefix="btnkm-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Close the file, which is its end."""
        if hasattr(self, "_file"):  # which there may have been no room for
            self._file.close()

    def write(self, parcel: memoryview, at: int) -> None:
        """Write bytes at a place."""
        self._file.seek(at)
        while parcel:  # a full disk may take a part
            parcel = parcel[self._file.write(parcel) :]

    def read(self, into: memoryview, at: int) -> None:
        """Read as many bytes as there is room for, from a place on."""
        while into:
            read = self._read(into, at)
            if not read:
                raise OSError("a file of coordinates was cut short by something else")
            into, at = into[read:], at + read

    def _read(self, into: memoryview, at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], at)
        with self._lock:  # Windows and macOS of old: no reading at a place
            self._file.seek(at)
            return self._file.readinto(into) or 0


class Spilled:
    """A column of doubles in a file, from a place on, read by slices.

    What is read is copied: unlike pages of a mapped file it does not stay in this process's memory.
    """

    def __init__(self, file: Unnamed, start: int = 0) -> None:
        self._file, self._start = file, start
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def shape(self) -> tuple[int]:
        """As of an array."""
        return (self._length,)

    def append(self, values: Array) -> None:
        """Write more numbers at the end."""
        parcel = np.ascontiguousarray(values, dtype=np.float64).data.cast("B")
        self._file.write(parcel, self._start + _BYTES * self._length)
        self._length += len(values)

    def __getitem__(self, rows: Any) -> Array:
        """Return the numbers of a slice of rows."""
        start, stop, step = rows.indices(self._length)
        assert step == 1
        out = np.empty(max(stop - start, 0))
        self._file.read(out.data.cast("B"), self._start + _BYTES * start)
        return out


def spilled_columns(count: int, n: int) -> list[Spilled]:
    """Return columns with room for n numbers each, one behind the other.

    All are in one file: a process may open but so many, fewer than some tables have columns.
    """
    file = Unnamed()
    return [Spilled(file, _BYTES * n * j) for j in range(count)]
