"""Memory of the process: how freed memory is handled, and columns in files instead."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

import numpy as np

Array = np.ndarray
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc; other C libraries are left alone
_BYTES = 8  # of a double


def keep_memory() -> None:
    """Let this worker keep freed memory for reuse.

    Dask has the C library return every freed array to the system at once. Arrays of blocks come and
    go thousands of times a second, and would take most of the time.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
                mallopt(option, 2**26)


def give_back_memory() -> None:
    """Return freed memory to the system.

    Memory that one thread has freed is not reused by others, and would add to the peak.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class UnnamedFile:
    """A temporary file without a name, written and read at any position.

    The system deletes it with this object, or with the process, however that ends.
    """

    def __init__(self) -> None:
        self._file: Any = tempfile.TemporaryFile(prefix="btnkm-", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Close the file, which deletes it."""
        if hasattr(self, "_file"):  # opening it may have failed
            self._file.close()

    def write(self, data: memoryview, at: int) -> None:
        """Write bytes at a position."""
        self._file.seek(at)
        while data:  # a write may be partial
            data = data[self._file.write(data) :]

    def read(self, into: memoryview, at: int) -> None:
        """Fill a buffer with the bytes from a position on."""
        while into:
            read = self._read(into, at)
            if not read:
                raise OSError("a temporary file of coordinates was truncated by another program")
            into, at = into[read:], at + read

    def _read(self, into: memoryview, at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], at)
        with self._lock:  # Windows and old macOS cannot read at a position
            self._file.seek(at)
            return self._file.readinto(into) or 0


class Spilled:
    """A column of doubles in a file, read by slices.

    Reading copies: unlike the pages of a mapped file, it does not stay in this process's memory.
    """

    def __init__(self, file: UnnamedFile, start: int = 0) -> None:
        self._file, self._start = file, start
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def shape(self) -> tuple[int]:
        """The shape of the column, as of an array."""
        return (self._length,)

    def append(self, values: Array) -> None:
        """Write more numbers at the end."""
        data = np.ascontiguousarray(values, dtype=np.float64).data.cast("B")
        self._file.write(data, self._start + _BYTES * self._length)
        self._length += len(values)

    def __getitem__(self, rows: Any) -> Array:
        """Return the numbers of a slice of rows."""
        start, stop, step = rows.indices(self._length)
        assert step == 1
        out = np.empty(max(stop - start, 0))
        self._file.read(out.data.cast("B"), self._start + _BYTES * start)
        return out


def spilled_columns(count: int, n: int) -> list[Spilled]:
    """Return columns with room for n numbers each.

    All are in one file, because some tables have more columns than a process may open files.
    """
    file = UnnamedFile()
    return [Spilled(file, _BYTES * n * j) for j in range(count)]
