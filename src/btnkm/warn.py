"""Warnings that point at the line of the user's program."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PACKAGE = os.path.dirname(__file__) + os.sep
_here = threading.local()


class TargetHint(UserWarning):
    """A hint after a fit: another estimator or likelihood is made for such targets.

    Only ``BTNRegressor(likelihood="auto")`` gives hints. Name a likelihood, or filter this class
    of warnings, to have none.

    Examples
    --------
    >>> import warnings, btnkm
    >>> warnings.simplefilter("ignore", btnkm.TargetHint)
    """


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn of something at the line outside of this package that has called it."""
    passed_on = getattr(_here, "passed_on", None)
    if passed_on is not None:
        passed_on(message if isinstance(message, Warning) else category(message))
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level - 1 if frame is None else level)


@contextmanager
def passing_on(receive: Callable[[Warning], object]) -> Iterator[None]:
    """Pass what this thread warns of to ``receive``, for a thread that the user's program called.

    ``warnings.catch_warnings`` is of no use for that: it is about all threads.
    """
    before = getattr(_here, "passed_on", None)
    _here.passed_on = receive
    try:
        yield
    finally:
        _here.passed_on = before
