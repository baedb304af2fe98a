"""Memory for features that whoever asks for them has at hand.

To the system, fresh memory is several times the work of a polynomial: rows whose features are made
anew for every mode offer those of the last one to be overwritten.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_ROOM = threading.local()


@contextmanager
def offer(features: Any) -> Iterator[None]:
    """Offer an array (n, K), one contiguous row of memory per function, to what is made inside."""
    _ROOM.array = features
    try:
        yield
    finally:
        _ROOM.array = None


def empty(count: int, n: int, dtype: Any) -> np.ndarray:
    """Return an array (count, n) to be filled: that which is on offer if it fits, or a new one."""
    offered = getattr(_ROOM, "array", None)
    _ROOM.array = None  # to be used once
    if isinstance(offered, np.ndarray):
        rows = offered.T
        if rows.shape == (count, n) and rows.dtype == dtype and rows.flags.c_contiguous:
            return rows
    return np.empty((count, n), dtype=dtype)
