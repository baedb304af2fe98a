"""Tables of any library -> columns as NumPy arrays.

A column is an array of floats (NaN where missing), of dates or durations (NaT where missing), or of
objects (text, None where missing).
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
    """A table in memory, with columns in the form that ``split_columns`` returns.

    The command line reads text files into it, without pandas or pyarrow.

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

    def select(self, names: list[str]) -> Frame:
        """Return some of the columns."""
        return Frame({name: self.columns[name] for name in names})

    def take(self, rows: Any) -> Frame:
        """Return some of the rows, given as positions or a mask."""
        return Frame({name: values[rows] for name, values in self.columns.items()})


def name_of(y: Any) -> str | None:
    """Return the name of the target: the column that y names, or the name of a series."""
    name = y if isinstance(y, str) else getattr(y, "name", None)
    return name if isinstance(name, str) and name else None


def check_names(model: Any, X: Any, *, reset: bool) -> None:
    """Store the number and names of the columns if ``reset``, else compare with those stored."""
    if not isinstance(X, Frame):
        validate_data(model, X, reset=reset, skip_check_array=True)
        return
    names = X.column_names()
    if reset:
        model.n_features_in_, model.feature_names_in_ = len(names), objects(names)
        return
    known = list(getattr(model, "feature_names_in_", names))
    if known != names or len(names) != model.n_features_in_:
        raise ValueError(
            f"X must have the {model.n_features_in_} columns of fit in the same order, "
            f"{known[:10]}, got {len(names)} columns, {names[:10]}; select those of fit."
        )


def rows_of(X: Any, rows: Array) -> Any:
    """Return some rows of a table, as a table of the same kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "take") and hasattr(X, "column_names"):  # pyarrow
        return X.take(rows)
    return [X[i] for i in rows] if isinstance(X, list | tuple) else X[rows]


def split_columns(X: Any, least: int = 1) -> tuple[list[Array], list[Any]]:
    """Return the columns of a table with at least ``least`` rows, and their names.

    Numbers and booleans become floats, dates and durations microseconds, text and categories
    objects. Data frames of any library go through narwhals; arrays have the names x0, x1, ….
    """
    if isinstance(X, Frame):
        _check_frame(X, X.column_names(), least)
        return list(X.columns.values()), X.column_names()
    if _is_frame(X):
        return _from_frame(X, least)
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
    """Return the columns of an array of another library as floats, on its device."""
    X = X.detach() if hasattr(X, "detach") else X  # no gradients are needed
    if "sparse" in str(getattr(X, "layout", "")):
        raise TypeError("X must be dense, got a sparse tensor; pass X.to_dense().")
    if str(X.dtype) == "torch.bfloat16":  # not part of the array API
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
            f"{frame.shape[1]} feature(s); check how the table was selected."
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(
            f"the columns of X must have unique names, got {twice!r} "
            f"{names.count(twice)} times; rename them, or pass an array."
        )


def _check_kind(X: Any) -> None:
    """Raise an error that says how to convert an object that is not a table."""
    if _is_lazy(X):
        raise TypeError("X must be a table in memory, got a lazy frame; call its collect() first.")
    if type(X).__module__.startswith("pyarrow"):
        raise TypeError(
            f"X must be a table, a dataset or a path, got a pyarrow {type(X).__name__}; pass the "
            "path of its files, or read it into a table."
        )
    if getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError(
            "X must be a two-dimensional array, got a structured array; pass pandas.DataFrame(X)."
        )
    first = X[0] if isinstance(X, list | tuple) and X else None
    if _is_matrix(first):
        raise TypeError(
            f"X must be a single table (Expected 2D array), got a {type(X).__name__} of arrays; "
            "pass one of them, and the target as second argument, as in fit(X, y)."
        )
    pair = isinstance(first, list | tuple) and bool(first) and _is_matrix(first[0])
    other = isinstance(X, Mapping | Set) or any(
        hasattr(X, name) for name in ("shape", "__getitem__", "__array__")
    )
    if pair or (hasattr(X, "__iter__") and not other):
        raise TypeError(
            f"X must be a single table here, got batches ({type(X).__name__}); pass batches to fit "
            "without y, each as a tuple (X, y), and predict them one by one."
        )


def _is_lazy(X: Any) -> bool:
    return hasattr(X, "collect") and hasattr(X, "lazy")


def _is_matrix(X: Any) -> bool:
    return len(getattr(X, "shape", ())) == 2


def by_name(X: Any, y: Any, sample_weight: Any, *, what: str = "y") -> tuple[Any, Any, Any]:
    """Return X, y and sample_weight; columns of X that the latter name are taken out of X.

    Errors call y ``what``.
    """
    named = [v for v in (y, sample_weight) if isinstance(v, str)]
    if not named:
        return X, y, sample_weight
    arrow = is_arrow(X)
    if not arrow:
        _check_kind(X)
    names = X.column_names if arrow else list(getattr(X, "columns", ()))
    columns = []
    for parameter, given in ((what, y), ("sample_weight", sample_weight)):
        if not isinstance(given, str):
            columns.append(given)
            continue
        if given not in names:
            known = f"the columns are {names[:10]}" if names else "X has no names, so pass an array"
            raise ValueError(f"{parameter} must name a column of X, got {given!r}; {known}.")
        # in NumPy, missing numbers of pyarrow are NaN
        columns.append(X[given].to_numpy(zero_copy_only=False) if arrow else X[given])
    if hasattr(X, "iloc"):  # pandas and Dask
        return X.drop(columns=named), *columns
    return X.select([name for name in names if name not in named]), *columns


def _nested_list(X: Any) -> Any:
    """Return a list of rows as an array, with dtype object if its values are of mixed types."""
    try:
        array = np.asarray(X)
    except ValueError:  # ragged: check_array's message is the better one
        return X
    if array.ndim == 0 and array.dtype == object:
        raise TypeError(
            f"X must be an array, a DataFrame or nested lists (Expected 2D array), got "
            f"{type(X).__name__}; convert it, for example with pandas.DataFrame(X)."
        )
    return np.asarray(X, dtype=object) if array.dtype.kind in "US" else array


def is_arrow(X: Any) -> bool:
    """Whether X is a table or record batch of pyarrow; pyarrow is not imported."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "column_names")


def _is_frame(X: Any) -> bool:
    """Whether X is a table in memory with named columns, of any library."""
    return is_arrow(X) or (hasattr(X, "shape") and hasattr(X, "columns") and not _is_lazy(X))


def _from_frame(X: Any, least: int) -> tuple[list[Array], list[Any]]:
    import narwhals as nw  # only where there is a frame

    names = list(X.column_names if is_arrow(X) else X.columns)
    _check_frame(X, names, least)
    if is_arrow(X):
        import pyarrow as pa

        X = pa.table(X)  # a record batch as well
    columns = nw.from_native(X, eager_only=True).iter_columns()
    return [_from_series(*pair) for pair in zip(columns, names, strict=True)], names


def _from_series(series: Any, name: Any) -> Array:
    """Return one column of a frame: floats, dates, durations or objects."""
    import narwhals as nw

    dtype = series.dtype
    if isinstance(dtype, nw.Categorical | nw.Enum):
        values = series.to_list()
        distinct = list(dict.fromkeys(values))  # a name is made once per category
        known = dict(zip(distinct, _from_categories(objects(distinct)), strict=True))
        return objects([known[value] for value in values])
    if dtype == nw.Time and series.implementation.is_polars():
        values = series.to_native().to_physical().to_numpy()  # in other libraries it is text
    elif (
        (dtype.is_numeric() and not dtype.is_decimal() and dtype not in (nw.Int128, nw.UInt128))
        or dtype.is_temporal()
        or dtype == nw.Boolean
    ):
        values = np.asarray(series.to_numpy())
    else:
        values = objects(series.to_list())
    if values.dtype.kind in "mM":
        return _dates(values)
    if values.dtype.kind in "biuf":
        return _finite(values.astype(float), name)
    return _from_objects(values, name)


def _from_objects(values: Array, name: Any = None) -> Array:
    """Return floats or dates if all values are such (or missing), else text."""
    items = [None if _is_missing(v) else v for v in values.tolist()]
    seen = [v for v in items if v is not None]
    if seen and all(isinstance(v, timedelta | np.timedelta64) for v in seen):
        return _dates(np.array(items, dtype="m8[us]"))
    if all(isinstance(v, _NUMBER) for v in seen):
        return _floats(items, name)
    if all(type(v).__name__ == "Period" for v in seen):  # of pandas
        items = [None if v is None else v.start_time for v in items]
        seen = [v for v in items if v is not None]
    if all(isinstance(v, date | np.datetime64) for v in seen):
        return _dates(np.array([_without_zone(v) for v in items], dtype="M8[us]"))
    return _from_categories(values)


def objects(items: list[Any]) -> Array:
    """Return an array of the items, whatever they are."""
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def _from_categories(values: Array) -> Array:
    """Return the name of each category, None where missing."""
    return objects(
        [
            v if type(v) is str else None if _is_missing(v) else category_name(v)
            for v in values.tolist()
        ]
    )


def category_name(value: Any) -> str:
    """Return the name of a category; equal numbers of any type have the same, as 1.0 and True."""
    if isinstance(value, str):
        return value
    if isinstance(value, _NUMBER):
        whole = isinstance(value, int) or float(value).is_integer()
        return str(int(value)) if whole else repr(float(value))
    if isinstance(value, bytes | date | clock | np.datetime64 | timedelta):
        return str(value)
    if type(value).__name__ in ("Interval", "Period"):  # of pandas
        return str(value)
    raise TypeError(
        f"a column must hold text, numbers or dates, got {value!r} of type "
        f"{type(value).__name__}; convert the column before fitting."
    )


def _without_zone(value: Any) -> Any:
    """Return a date in UTC and without time zone, as NumPy needs it."""
    has_zone = getattr(value, "tzinfo", None) is not None
    return value.astimezone(UTC).replace(tzinfo=None) if has_zone else value


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    if type(value).__name__ == "NAType":  # pandas.NA; pandas is not imported
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
            f"column {name!r} must hold numbers below 1e308 in magnitude, got larger ones; "
            "use another unit."
        ) from None


def _finite(values: Array, name: Any) -> Array:
    if np.any(np.isinf(values)):
        raise ValueError(
            f"column {name!r} must be finite or missing, got infinity; remove or cap such rows."
        )
    return values
