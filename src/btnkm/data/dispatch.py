"""Predictions for rows that are not in memory: from files in batches, from Dask lazily."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from .dask_input import is_dask, lazily
from .frames import is_arrow
from .readers import is_stored, n_rows, stored_batches


def anywhere(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of (self, X, ...) also take rows on disk and Dask collections."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dask(X):
            return lazily(method, self, X, *args, **kwargs)
        if not is_stored(X):
            return method(self, X, *args, **kwargs)
        tables = (_inputs(self, table) for table in stored_batches(X) if n_rows(table))
        parts = [method(self, table, *args, **kwargs) for table in tables]
        if not parts:
            raise ValueError("X must have at least one row, got none; check the files.")
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return np.concatenate(parts)

    return call


def _inputs(model: Any, table: Any) -> Any:
    """Return the columns of the fit, if a table has these and others."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or not is_arrow(table) or not set(names) <= set(table.column_names):
        return table
    return table.select(list(names))
