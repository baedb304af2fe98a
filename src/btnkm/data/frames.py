"""Arrays and DataFrames -> plain columns.

Floats with NaN, dates and durations with NaT, or objects with None for missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, date, timedelta
from datetime import time as clock
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.utils.validation import check_array, validate_data

from ..core.arrays import is_elsewhere

Array = np.ndarray
_NUMBER = (int, float, np.integer, np.floating, np.bool_, Decimal, Fraction)


class Frame:
    """Columns by name, already as ``split_columns`` would give them.

    What the program makes of files: it needs neither pandas nor pyarrow for text.

    Parameters
    ----------
    columns : dict of str to ndarray of shape (n,)
    """

    def __init__(self, columns: dict[str, Array]) -> None:
        self.columns = columns

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(next(iter(self.columns.values()), ())), len(self.columns)

    def __len__(self) -> int:
        return self.shape[0]

    def column_names(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.columns)

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def drop(self, columns: list[str]) -> Frame:
        """Return the table without some columns."""
        return Frame({name: v for name, v in self.columns.items() if name not in columns})

    def take(self, rows: Any) -> Frame:
        """Return some of the rows: places, or a mask."""
        return Frame({name: values[rows] for name, values in self.columns.items()})


def name_of(y: Any) -> str | None:
    """Return what targets are called: the column that they name, or their own name."""
    name = y if isinstance(y, str) else getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def check_names(model: Any, X: Any, *, reset: bool) -> None:
    """Keep number and names of a table's columns, or compare them with those that were kept."""
    if not isinstance(X, Frame):
        validate_data(model, X, reset=reset, skip_check_array=True)
        return
    names = X.column_names()
    if reset:
        model.n_features_in_, model.feature_names_in_ = len(names), _objects(names)
        return
    known = list(getattr(model, "feature_names_in_", names))
    if known != names or len(names) != model.n_features_in_:
        raise ValueError(
            f"X must have the {model.n_features_in_} columns of fit in their order, {known[:10]}, "
            f"got {len(names)}, {names[:10]}; select those."
        )


def split_columns(X: Any, least: int = 1) -> tuple[list[Array], list[Any]]:
    """Return the columns of a table of at least so many rows, and their names (x0, x1, … if none).

    Numbers and booleans become floats, dates and durations microseconds, text and categories
    objects. pandas and polars frames are known by their methods, so neither library is imported.
    """
    if isinstance(X, Frame):
        _check_frame(X, X.column_names(), least)
        return list(X.columns.values()), X.column_names()
    if hasattr(X, "get_columns") and hasattr(X, "schema"):  # polars
        _check_frame(X, list(X.columns), least)
        return [_from_polars(column) for column in X.get_columns()], list(X.columns)
    if hasattr(X, "iloc") and hasattr(X, "columns"):  # pandas
        _check_frame(X, list(X.columns), least)
        return [_from_pandas(X.iloc[:, j]) for j in range(X.shape[1])], list(X.columns)
    if is_arrow(X):
        _check_frame(X, X.column_names, least)
        return [_from_arrow(X.column(j), name) for j, name in enumerate(X.column_names)], list(
            X.column_names
        )
    _check_kind(X)
    if is_elsewhere(X):
        columns = _from_elsewhere(X, least)
        return columns, [f"x{j}" for j in range(len(columns))]
    if not hasattr(X, "dtype"):
        X = _nested_list(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
        table = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=least)
        columns = [_dates(table[:, j]) for j in range(table.shape[1])]
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        X = X.astype(object)
        table = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=least)
        columns = [_from_objects(table[:, j]) for j in range(table.shape[1])]
    else:
        table = check_array(
            X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=least
        )
        columns = list(table.T)
    return columns, [f"x{j}" for j in range(len(columns))]


def _from_elsewhere(X: Any, least: int) -> list[Any]:
    """Return the columns of an array of another library, on its device: floats."""
    X = X.detach() if hasattr(X, "detach") else X  # there is nothing to differentiate
    if "sparse" in str(getattr(X, "layout", "")):
        raise TypeError("X must be dense, got a sparse tensor; pass X.to_dense().")
    if str(X.dtype) == "torch.bfloat16":  # which the array API does not know
        X = X.float()
    xp = array_namespace(X)
    if X.ndim != 2:
        raise ValueError(
            f"X must have shape (n, inputs) (Expected 2D array), got shape {tuple(X.shape)}; "
            "reshape it."
        )
    _check_frame(X, [], least)
    if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
        raise ValueError(f"X must hold real numbers, got {X.dtype}; convert it to floats.")
    if not xp.isdtype(X.dtype, (xp.float32, xp.float64)):
        X = xp.astype(X, xp.float64)
    if bool(xp.any(xp.isinf(X))):
        raise ValueError("X must be finite or missing, got infinity; remove or cap such rows.")
    return [xp.asarray(X[:, j], copy=True) for j in range(X.shape[1])]


def _check_frame(frame: Any, names: list[Any], least: int) -> None:
    if frame.shape[0] < least or frame.shape[1] == 0:
        raise ValueError(
            f"X must have at least one row and one column, got {frame.shape[0]} sample(s) and "
            f"{frame.shape[1]} feature(s); look at how the table was selected."
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"the columns of X must have different names, got {twice!r} "
            f"{names.count(twice)} times; rename them, or pass an array."
        )


def _check_kind(X: Any) -> None:
    """Say of what is no table what to make of it."""
    if _is_lazy(X):
        raise TypeError("X must be a table in memory, got a lazy one; call its collect() first.")
    if type(X).__module__.startswith("pyarrow"):
        raise TypeError(
            f"X must be a table, a data set or a path, got {type(X).__name__} of pyarrow; pass the "
            "path of its files, or read it."
        )
    if getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError(
            "X must be an array of two dimensions, got a structured one; pass pandas.DataFrame(X)."
        )
    first = X[0] if isinstance(X, list | tuple) and X else None
    if _is_matrix(first):
        raise TypeError(
            f"X must be one table (Expected 2D array), got a {type(X).__name__} of arrays; pass "
            "one, and targets as a second argument, as in fit(X, y)."
        )
    pair = isinstance(first, list | tuple) and bool(first) and _is_matrix(first[0])
    other = isinstance(X, Mapping | Set) or any(
        hasattr(X, name) for name in ("shape", "__getitem__", "__array__")
    )
    if pair or (hasattr(X, "__iter__") and not other):
        raise TypeError(
            f"X must be one table here, got batches ({type(X).__name__}); let fit have them alone, "
            "each with its y, and predict one after the other."
        )


def _is_lazy(X: Any) -> bool:
    return hasattr(X, "collect") and hasattr(X, "lazy")


def _is_matrix(X: Any) -> bool:
    return len(getattr(X, "shape", ())) == 2


def by_name(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return a frame without the columns that y and sample_weight name, and those beside it."""
    named = [v for v in (y, sample_weight) if isinstance(v, str)]
    if not named:
        return X, y, sample_weight
    if not is_arrow(X):
        _check_kind(X)
    names = X.column_names if is_arrow(X) else list(getattr(X, "columns", ()))
    beside = []
    for what, given in (("y", y), ("sample_weight", sample_weight)):
        if isinstance(given, str) and given not in names:
            known = f"the columns are {names[:10]}" if names else "X has no names, so pass an array"
            raise ValueError(f"{what} must name a column of X, got {given!r}; {known}.")
        column = X[given] if isinstance(given, str) else given
        # pyarrow: missing numbers as NaN
        arrow = isinstance(given, str) and is_arrow(X)
        beside.append(column.to_numpy(zero_copy_only=False) if arrow else column)
    if is_arrow(X):
        X = X.select([name for name in names if name not in named])
    else:
        X = X.drop(named) if hasattr(X, "get_columns") else X.drop(columns=named)
    return X, *beside


def _nested_list(X: Any) -> Any:
    """Return a list of rows as an array, of objects where its values are mixed."""
    try:
        array = np.asarray(X)
    except ValueError:  # ragged: check_array's message is the better one
        return X
    if array.ndim == 0 and array.dtype == object:
        raise TypeError(
            f"X must be an array, a DataFrame or nested lists (Expected 2D array), got "
            f"{type(X).__name__}; make one of it, as with pandas.DataFrame(X)."
        )
    return np.asarray(X, dtype=object) if array.dtype.kind in "US" else array


def is_arrow(X: Any) -> bool:
    """Tell a table or batch of pyarrow, which is not imported."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "column_names")


def _from_arrow(column: Any, name: Any) -> Array:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _from_levels(_objects(column.to_pylist()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_duration(kind):
        return _dates(np.asarray(column.to_numpy(zero_copy_only=False)))
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        floats = column.cast(pa.float64(), safe=False)
        values = floats.fill_null(np.nan).to_numpy(zero_copy_only=False)
        return _finite(np.asarray(values), name)
    return _from_objects(_objects(column.to_pylist()), name)


def _from_pandas(column: Any) -> Array:
    kind = getattr(column.dtype, "kind", "O")
    if column.dtype.name == "category":
        # the last name is for the code -1, a missing value
        names = [*column.cat.categories.astype(object), None]
        return np.asarray(_from_levels(_objects(names))[column.cat.codes.to_numpy()])
    if kind in "mM":
        return _dates(column.to_numpy(dtype=f"{kind}8[us]"))
    if kind in "biuf":
        return _finite(column.to_numpy(dtype=float, na_value=np.nan), column.name)
    return _from_objects(column.astype(object).to_numpy(), column.name)


def _from_polars(column: Any) -> Array:
    if column.dtype.is_temporal() and str(column.dtype) != "Time":
        kind = "m" if str(column.dtype).startswith("Duration") else "M"
        return _dates(column.to_numpy().astype(f"{kind}8[us]"))
    column = column.to_physical() if column.dtype.is_temporal() else column
    if column.dtype.is_numeric() or str(column.dtype) == "Boolean":
        values = column.to_list()
        return _finite(np.array([np.nan if v is None else v for v in values], float), column.name)
    return _from_objects(_objects(column.to_list()), column.name)


def _from_objects(values: Array, name: Any = None) -> Array:
    """Return floats or dates if every value is one or missing, else text, None for missing."""
    items = [None if _is_missing(v) else v for v in values.tolist()]
    seen = [v for v in items if v is not None]
    if seen and all(isinstance(v, timedelta | np.timedelta64) for v in seen):
        return _dates(np.array(items, dtype="m8[us]"))
    if all(isinstance(v, _NUMBER) for v in seen):
        return _floats(items, name)
    if all(type(v).__name__ == "Period" for v in seen):  # of pandas, which is not imported
        items = [None if v is None else v.start_time for v in items]
        seen = [v for v in items if v is not None]
    if all(isinstance(v, date | np.datetime64) for v in seen):
        return _dates(np.array([_without_zone(v) for v in items], dtype="M8[us]"))
    return _from_levels(values)


def _objects(items: list[Any]) -> Array:
    """Return an array of the items, whatever they are."""
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def _from_levels(values: Array) -> Array:
    """Return text: numbers as they are written, 1.0 and True as "1", and None for missing."""
    return _objects([None if _is_missing(v) else level_name(v) for v in values.tolist()])


def level_name(value: Any) -> str:
    """Return the text of a level, the same for equal numbers of any type."""
    if isinstance(value, str):
        return value
    if isinstance(value, _NUMBER):
        whole = isinstance(value, int) or float(value).is_integer()
        return str(int(value)) if whole else repr(float(value))
    if isinstance(value, bytes | date | clock | np.datetime64 | timedelta):
        return str(value)
    if type(value).__name__ in ("Interval", "Period"):  # of pandas, which is not imported
        return str(value)
    raise TypeError(
        f"a column must hold text, numbers or dates, got {type(value).__name__} "
        f"{value!r}; convert the column before fitting."
    )


def _without_zone(value: Any) -> Any:
    """Return a date in universal time, which is how NumPy keeps it."""
    aware = getattr(value, "tzinfo", None) is not None
    return value.astimezone(UTC).replace(tzinfo=None) if aware else value


def _is_missing(value: Any) -> bool:
    """Tell None, NaN, NaT and pandas.NA from values."""
    if value is None:
        return True
    if type(value).__name__ == "NAType":  # pandas.NA, known by name: pandas is not imported
        return True
    return isinstance(value, float | np.floating | np.datetime64 | np.timedelta64 | date) and bool(
        value != value
    )


def _dates(values: Array) -> Array:
    """Return dates or durations in microseconds, NaT where missing."""
    return values.astype("M8[us]" if values.dtype.kind == "M" else "m8[us]")


def as_numbers(values: Array) -> Array:
    """Return dates and durations as floats, NaN where missing; other columns as they are."""
    if values.dtype.kind not in "mM":
        return values
    return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(float))


def _floats(items: list[Any], name: Any) -> Array:
    """Return numbers of any type as floats, NaN for None."""
    try:
        return _finite(np.array([np.nan if v is None else float(v) for v in items]), name)
    except OverflowError:
        raise ValueError(
            f"column {name!r} must hold numbers below 1e308 in size, got larger ones; "
            "use another unit."
        ) from None


def _finite(values: Array, name: Any) -> Array:
    if np.any(np.isinf(values)):
        raise ValueError(
            f"column {name!r} must be finite or missing, got infinity; remove or cap such rows."
        )
    return values
