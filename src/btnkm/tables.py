"""Arrays and DataFrames -> plain columns: floats with NaN, or objects with None for missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

Array = np.ndarray


def split_columns(X: Any) -> tuple[list[Array], list[str]]:
    """Return the columns of a table and their names (x0, x1, … where it has none).

    Numbers, booleans and dates become floats, everything else objects. pandas and polars frames are
    known by their methods, so neither library is imported.
    """
    if hasattr(X, "get_columns") and hasattr(X, "schema"):  # polars
        frame = X.collect() if hasattr(X, "collect") else X
        return [_from_polars(column) for column in frame.get_columns()], list(frame.columns)
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        columns = [_from_pandas(X.iloc[:, j]) for j in range(X.shape[1])]
        return columns, [str(name) for name in X.columns]
    if not hasattr(X, "dtype"):
        X = _nested_list(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUSM":
        table = check_array(X.astype(object), dtype=None, ensure_all_finite=False)
        columns = [_from_objects(table[:, j]) for j in range(table.shape[1])]
    else:
        table = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan")
        columns = list(table.T)
    return columns, [f"x{j}" for j in range(len(columns))]


def _nested_list(X: Any) -> Any:
    """Return a list of rows as an array, of objects where its values are mixed."""
    try:
        array = np.asarray(X)
    except ValueError:  # ragged: check_array's message is the better one
        return X
    return np.asarray(X, dtype=object) if array.dtype.kind in "US" else array


def _from_pandas(column: Any) -> Array:
    kind = getattr(column.dtype, "kind", "O")
    if column.dtype.name != "category" and kind in "biufmM":
        if kind in "mM":
            return _dates(column.to_numpy())
        return _finite(column.to_numpy(dtype=float, na_value=np.nan), column.name)
    return _from_objects(column.astype(object).to_numpy(), column.name)


def _from_polars(column: Any) -> Array:
    if column.dtype.is_temporal():
        column = column.to_physical()
    if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
        values = column.to_list()
        return _finite(np.array([np.nan if v is None else v for v in values], float), column.name)
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_list()
    return _from_objects(values, column.name)


def _from_objects(values: Array, name: Any = None) -> Array:
    """Return floats if every value is a number or missing, else objects with None for missing."""
    items = [None if _is_missing(v) else v for v in values.tolist()]
    seen = [v for v in items if v is not None]
    if all(isinstance(v, int | float | np.number | np.bool_) for v in seen):
        return _finite(np.array([np.nan if v is None else v for v in items], dtype=float), name)
    if all(hasattr(v, "isoformat") for v in seen):
        return _dates(np.array([np.datetime64("NaT") if v is None else v for v in items], "M8[us]"))
    odd = next((v for v in seen if not isinstance(v, str | bytes | bool | int | float)), None)
    if odd is not None:
        raise TypeError(
            f"each value must be a string or a number, argument must be a string or a number, "
            f"got {type(odd).__name__} {odd!r}; convert the column before fitting."
        )
    out = np.empty(len(items), dtype=object)
    out[:] = [v if isinstance(v, str) or v is None else str(v) for v in items]
    return out


def _is_missing(value: Any) -> bool:
    """Tell None, NaN, NaT and pandas.NA from values; NA answers comparisons with itself."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _dates(values: Array) -> Array:
    """Return dates or durations as microseconds, NaN where missing."""
    out = values.astype("M8[us]" if values.dtype.kind == "M" else "m8[us]").astype(np.int64)
    return np.where(np.isnat(values), np.nan, out.astype(float))


def _finite(values: Array, name: Any) -> Array:
    if np.any(np.isinf(values)):
        raise ValueError(
            f"column {name!r} must be finite or missing, got infinity; remove or cap such rows."
        )
    return values
