"""What the C library does with memory that was let go of; other ones than glibc are left alone."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt


def keep_memory() -> None:
    """Let this worker keep memory that it will want again in a moment.

    Dask has the C library give every freed array back to the system at once; arrays of blocks come
    and go thousands of times a second, and would be paid for with most of the time.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
                mallopt(option, 2**26)


def give_back_memory() -> None:
    """Give freed memory back to the system: what one thread has freed, no other thread would use.

    Else what comes next would add to the peak.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
