"""Warnings that point at the line of the user's program."""

from __future__ import annotations

import inspect
import os
import warnings

_PACKAGE = os.path.dirname(__file__) + os.sep


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn of something at the line outside of this package that has called it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level - 1 if frame is None else level)
