"""How glibc handles freed memory; other C libraries are left alone."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt


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
