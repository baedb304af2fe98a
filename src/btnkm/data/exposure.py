"""Exposures of counts: how long, or how much, each row was observed."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..core.arrays import here
from .dask_input import is_dask
from .frames import by_name, name_of
from .readers import is_iterable_of_batches, is_stored

Array = np.ndarray


class Exposed(np.ndarray):
    """Counts and their exposures, side by side: (n, 2), with the ``name`` of the counts."""

    name: str | None = None


def with_exposure(X: Any, y: Any, sample_weight: Any, exposure: Any) -> tuple[Any, Any, Any]:
    """Return X, ``Exposed`` targets and weights; each may name a column of X."""
    check_in_memory(X, exposure)
    if y is None and is_iterable_of_batches(X):
        raise TypeError(
            "exposure needs a table in memory, got an iterable of batches; call partial_fit with "
            "X, y and exposure for each batch."
        )
    name = name_of(y)
    X, exposure, _ = by_name(X, exposure, None, what="exposure")
    X, y, sample_weight = by_name(X, y, sample_weight)
    if y is None:
        raise ValueError("exposure needs y as an argument beside X; pass X, y and exposure.")
    y, exposure = np.asarray(column_or_1d(here(y), warn=True)), check_exposure(exposure)
    check_consistent_length(y, exposure)
    if y.dtype.kind not in "biuf":
        y = y.astype(object)  # check_target says what is wrong
    targets = np.column_stack([y, exposure]).view(Exposed)
    targets.name = name
    return X, targets, sample_weight


def exposure_of(X: Any, exposure: Any) -> tuple[Any, Array | None]:
    """Return X and the exposure of its rows, which may name a column of X."""
    if exposure is None:
        return X, None
    check_in_memory(X, exposure)
    X, exposure, _ = by_name(X, exposure, None, what="exposure")
    return X, check_exposure(exposure)


def check_in_memory(X: Any, exposure: Any) -> None:
    """Raise an error for rows that cannot have an exposure yet."""
    if exposure is not None and (is_dask(X) or is_stored(X)):
        raise TypeError(
            f"exposure needs a table in memory, got a {type(X).__name__}; read it, or give the "
            "logarithm of the exposure as an input."
        )


def check_exposure(exposure: Any) -> Array:
    """Return exposures as positive finite floats."""
    try:
        values = np.asarray(column_or_1d(here(exposure), warn=True), dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"exposure must be one positive number per row, got {_shown(exposure)}; pass "
            "np.full(len(X), 2.0) for the same in all rows."
        ) from None
    wrong = ~((values > 0.0) & np.isfinite(values))
    if np.any(wrong):
        raise ValueError(
            f"exposure must be positive and finite in every row, got {values[wrong][0]:g}; leave "
            "such rows out."
        )
    return values


def _shown(exposure: Any) -> str:
    """Return in a few words what is no column of numbers."""
    shape = tuple(getattr(exposure, "shape", ()))
    if len(shape) > 1:
        return f"shape {shape}"
    return reprlib.repr(exposure.tolist() if hasattr(exposure, "tolist") else exposure)
