"""Where training rows come from: a table in memory or on a device, or batches from anywhere.

A source is looked at (``survey``), and then coded: every row's coordinates in the fitted columns.
Coordinates of batches go to a file, which vanishes with the process, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.utils.validation import check_consistent_length

from .. import checks
from ..core.arrays import here, host, like
from ..execution.local import LocalRows
from ..execution.spill import spilled_columns
from .column_stats import MOST_ROWS, Batch, Survey, Totals
from .frames import by_name, split_columns
from .parquet import AHEAD, is_path, parquet_batches

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

    def close(self) -> None:
        """Let go of what is held elsewhere."""


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

    def close(self) -> None:
        """Do nothing: the table is the caller's."""


class Batches:
    """Anything that yields tables with targets, and perhaps weights, as often as it is asked."""

    def __init__(self, batches: Callable[[], Iterable[Any]], check_y: CheckY) -> None:
        self.batches = batches
        self.check_y = check_y

    def read(self) -> Iterator[tuple[Batch, list[Any]]]:
        """Yield the rows that count, batch by batch."""
        for given in self.batches():
            if not isinstance(given, tuple | list) or len(given) not in (2, 3):
                what = f"{len(given)} items" if isinstance(given, tuple | list) else ""
                raise TypeError(
                    "every batch must be a tuple (X, y) or (X, y, sample_weight), got "
                    f"{what or type(given).__name__}; put these together, and nothing else."
                )
            X, y, *weight = given
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
        """Return coordinates in a file, unless the sample has every row."""
        if sample.n == survey.n:
            return sample
        codes = spilled_columns(len(columns), survey.n)
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

    def close(self) -> None:
        """Do nothing: the file goes with the last who has its columns."""


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
    X, y, sample_weight = by_name(X, y, sample_weight)
    return Table(X, *read(X, y, sample_weight, check_y))


def is_stored(X: Any) -> bool:
    """Tell rows that are on disk: paths, an Arrow data set, or a mapped file."""
    arrow = type(X).__module__.startswith("pyarrow") and hasattr(X, "get_fragments")
    return isinstance(X, np.memmap) or is_path(X) or arrow


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
    if is_path(X):
        yield from parquet_batches(X, BATCH_ROWS)
        return
    for batch in X.to_batches(batch_size=BATCH_ROWS, **AHEAD):
        yield pa.Table.from_batches([batch])


def stored_rows(X: Any, y: Any, sample_weight: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield batches of rows on disk with their targets and weights, by name or in arrays."""
    done = 0
    for table in stored_batches(X):
        rows = slice(done, done + len(table))
        done = rows.stop
        beside = (v if v is None or isinstance(v, str) else v[rows] for v in (y, sample_weight))
        yield by_name(table, *beside)
    for what, given in (("y", y), ("sample_weight", sample_weight)):
        if given is not None and not isinstance(given, str) and len(given) != done:
            raise ValueError(
                f"{what} must have as many rows as X, {done:,}, got {len(given):,}; select the "
                "same rows of both (Found input variables with inconsistent numbers of samples)."
            )


def with_targets(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return X, and the targets and weights of rows anywhere that may be in columns of it."""
    if not is_stored(X):
        return by_name(X, y, sample_weight)
    if not isinstance(y, str) and not isinstance(sample_weight, str):
        return X, y, sample_weight
    parts = [part for _, *part in stored_rows(X, y, sample_weight)]
    beside = (
        None if part[0] is None else np.concatenate(part) for part in zip(*parts, strict=True)
    )
    return X, *(beside if parts else (y, sample_weight))


def _is_iterable_of_batches(X: Any) -> bool:
    if hasattr(X, "shape") or hasattr(X, "columns") or not hasattr(X, "__iter__"):
        return False
    if isinstance(X, Mapping | Set) or type(X).__module__.startswith("pyarrow"):
        return False
    if not isinstance(X, list | tuple):
        return True
    first = X[0] if X else None
    if not isinstance(first, tuple | list) or not first:
        return False
    return hasattr(first[0], "__len__") and not isinstance(first[0], str)  # else it is a row


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
