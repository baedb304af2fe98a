"""Where training rows come from: a table in memory or on a device, or batches from anywhere.

A source is looked at (``survey``), and then coded: every row's coordinates in the fitted columns.
Coordinates of batches go to files, which vanish with the process, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from os import PathLike
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.utils.validation import check_consistent_length

from . import checks
from .core.arrays import here, host, like
from .execution.local import LocalRows
from .execution.spill import Spilled
from .survey import MOST_ROWS, Batch, Survey, Totals
from .tables import is_arrow, split_columns

Array = np.ndarray
BATCH_ROWS = 65_536
CheckY = Callable[[Any], Array]
LevelsOf = Callable[[list[Any]], Collection[int]]  # columns that hold levels, by the names of all


class Source(Protocol):
    """Rows that can be gone through as often as need be."""

    example: Any  # a table with the columns of all

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows."""

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> Any:
        """Return the rows as the engine wants them; the ``sample`` may be all of them."""


class Table:
    """A table in memory, or on whatever device an array of another library is."""

    def __init__(self, example: Any, batch: Batch, names: list[Any]) -> None:
        self.example = example
        self.batch, self.names = batch, names

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows."""
        if len(self.batch.y) <= MOST_ROWS:
            return Survey.whole(self.batch, self.names)
        return Survey.of(self.batch, self.names, 0, levels_of(self.names))

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> LocalRows:
        """Return coordinates where the table is."""
        here = is_numpy_array(self.batch.columns[0])
        return sample if here and sample.n == survey.n else coded(self.batch, columns, target)


class Batches:
    """Anything that yields tables with targets, and perhaps weights, as often as it is asked."""

    def __init__(self, batches: Callable[[], Iterable[Any]], check_y: CheckY) -> None:
        self.batches = batches
        self.check_y = check_y

    def read(self) -> Iterator[tuple[Batch, list[Any]]]:
        """Yield the rows that count, batch by batch."""
        for X, y, *weight in self.batches():
            if not n_rows(X):
                continue
            if not hasattr(self, "example"):
                self.example = X
            batch, names = read(X, y, weight[0] if weight else None, self.check_y, whole=False)
            if len(batch.y):
                yield batch, names

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows."""
        found: Survey | None = None
        self.totals = Totals()
        for batch, names in self.read():
            one = Survey.of(batch, names, found.n if found else 0, levels_of(names), found)
            found = one if found is None else found.merge(one)
            self.totals.add(batch)
        if found is None:
            raise ValueError("the batches must hold at least 2 rows, got none; look at the source.")
        return found

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> LocalRows:
        """Return coordinates in files, unless the sample has every row."""
        if sample.n == survey.n:
            return sample
        codes = [Spilled() for _ in columns]
        y, weight = np.empty(survey.n), None
        done, totals = 0, Totals()
        for batch, names in self.read():
            rows = slice(done, done + len(batch.y))
            done = rows.stop
            if done > survey.n or names != survey.names:
                break
            totals.add(batch)
            for file, column, values in zip(codes, columns, batch.columns, strict=True):
                file.append(host(column.encode(values)))
            y[rows], counts = target.encode(batch.y, batch.weight)
            if weight is None and np.any(counts != 1.0):
                weight = np.ones(survey.n)
            if weight is not None:
                weight[rows] = counts
        if done != survey.n or not totals.same(self.totals):
            raise ValueError(
                f"the batches must hold the same rows every time, got {survey.n:,} at first and "
                "others then; pass a list, or an object that begins anew in __iter__."
            )
        return LocalRows(codes, y, weight)


def n_rows(X: Any) -> int:
    """Return the number of rows of a table, whatever it is."""
    return int(X.shape[0] if hasattr(X, "shape") else len(X))


def open_source(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Source:
    """Return where the rows of ``fit(X, y, sample_weight)`` come from."""
    if is_stored(X):
        return Batches(lambda: stored_rows(X, y, sample_weight), check_y)
    if y is None and _is_iterable_of_batches(X):
        if isinstance(X, Iterator):  # to ask it for one would be to begin
            raise TypeError(
                "batches must be something that can be gone through again and again, got "
                f"{type(X).__name__}, which can be read once; pass a list, or an object whose "
                "__iter__ begins anew."
            )
        if sample_weight is not None:
            raise ValueError(
                "sample_weight must be in the batches, (X, y, weight), got it beside them; put it "
                "there."
            )
        return Batches(lambda: X, check_y)
    return Table(X, *read(X, y, sample_weight, check_y))


def is_stored(X: Any) -> bool:
    """Tell rows that are on disk: a path, an Arrow data set, or a mapped file."""
    arrow = type(X).__module__.startswith("pyarrow") and hasattr(X, "to_batches")
    return isinstance(X, np.memmap | str | PathLike) or (arrow and not is_arrow(X))


def stored_batches(X: Any) -> Iterator[Any]:
    """Yield a table for every so many rows on disk."""
    if isinstance(X, np.memmap):
        for start in range(0, len(X), BATCH_ROWS):
            yield np.asarray(X[start : start + BATCH_ROWS])
        return
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(
            "files must be read by pyarrow, which is not installed; pip install pyarrow."
        ) from None
    source = _data_set(X) if isinstance(X, str | PathLike) else X
    # its own readers would hold a gigabyte of what is to come
    ahead = {"batch_readahead": 1, "fragment_readahead": 1}
    for batch in source.to_batches(batch_size=BATCH_ROWS, **ahead):
        yield pa.Table.from_batches([batch])


def stored_rows(X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield batches of rows on disk with their targets and weights, by name or in arrays."""
    done = 0
    named = [name for name in (y, sample_weight) if isinstance(name, str)]
    for table in stored_batches(X):
        rows = slice(done, done + len(table))
        done = rows.stop
        beside: list[Any] = []
        for what, given in (("y", y), ("sample_weight", sample_weight)):
            if isinstance(given, str) and is_arrow(table):
                if given not in table.column_names:
                    raise ValueError(
                        f"{what} must name a column, got {given!r}; the columns are "
                        f"{table.column_names[:10]}."
                    )
                beside.append(_plain(table.column(given)))
            else:
                beside.append(None if given is None else given[rows])
        if is_arrow(table):
            table = table.select([name for name in table.column_names if name not in named])
        yield table, *beside
    for what, given in (("y", y), ("sample_weight", sample_weight)):
        if given is not None and not isinstance(given, str) and len(given) != done:
            raise ValueError(
                f"{what} must have as many rows as X, {done:,}, got {len(given):,}; select the "
                "same rows of both (Found input variables with inconsistent numbers of samples)."
            )


def _plain(column: Any) -> Array:
    """Return targets or weights of an Arrow column, missing numbers as NaN."""
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values)


def _data_set(path: Any) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(path, format="parquet")


def _is_iterable_of_batches(X: Any) -> bool:
    if hasattr(X, "shape") or hasattr(X, "columns") or is_arrow(X) or not hasattr(X, "__iter__"):
        return False
    if not isinstance(X, list | tuple):
        return True
    first = X[0] if X else None
    return isinstance(first, tuple) and len(first) in (2, 3) and hasattr(first[0], "shape")


def read(
    X: Any, y: Any, sample_weight: Any, check_y: CheckY, *, whole: bool = True
) -> tuple[Batch, list[Any]]:
    """Return the rows of a table that count, and the names of its columns.

    All weights of a ``whole`` table must not be zero.
    """
    columns, names = split_columns(X)
    y = check_y(here(y))
    check_consistent_length(np.empty(columns[0].shape[0]), y)
    weight = np.ones(len(y))
    if sample_weight is not None:
        weight = checks.check_weight(here(sample_weight), len(y), all_zero=not whole)
    batch = Batch(columns, y, weight)
    return (batch if np.all(weight > 0) else batch.take(np.flatnonzero(weight > 0))), names


def coded(batch: Batch, columns: list[Any], target: Any) -> LocalRows:
    """Return the coordinates of rows, where their columns are."""
    codes = [c.encode(values) for c, values in zip(columns, batch.columns, strict=True)]
    y, weight = target.encode(batch.y, batch.weight)
    weight = ones_or_none(weight)
    if not is_numpy_array(codes[0]):
        y = like(y, codes[0])
        weight = None if weight is None else like(weight, codes[0])
    return LocalRows(codes, y, weight)


def ones_or_none(weight: Array) -> Array | None:
    """Return None for weights that are all 1."""
    return None if np.all(weight == 1.0) else weight
