"""Where training rows come from: a table in memory or on a device, or batches from anywhere.

A source is looked at (``survey``), and then coded: every row's coordinates in the fitted columns.
Coordinates of batches go to files, which vanish with the process, however it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.utils.validation import check_consistent_length

from . import checks
from .core.arrays import here, like
from .execution.local import LocalRows
from .execution.spill import Spilled
from .survey import MOST_ROWS, Batch, Survey
from .tables import split_columns

Array = np.ndarray
BATCH_ROWS = 65_536
CheckY = Callable[[Any], Array]
LevelsOf = Callable[[list[Any]], Collection[int]]  # columns that hold levels, by the names of all


class Source(Protocol):
    """Rows that can be gone through as often as need be."""

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows."""

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> Any:
        """Return the rows as the engine wants them; the ``sample`` may be all of them."""


class Table:
    """A table in memory, or on whatever device an array of another library is."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> None:
        self.batch, self.names = read(X, y, sample_weight, check_y)

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
            batch, names = read(X, y, weight[0] if weight else None, self.check_y, whole=False)
            if len(batch.y):
                yield batch, names

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows."""
        found: Survey | None = None
        for batch, names in self.read():
            one = Survey.of(batch, names, found.n if found else 0, levels_of(names), found)
            found = one if found is None else found.merge(one)
        if found is None:
            raise ValueError("the batches must hold at least 2 rows, got none; look at the source.")
        return found

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> LocalRows:
        """Return coordinates in files, unless the sample has every row."""
        if sample.n == survey.n:
            return sample
        codes = [Spilled() for _ in columns]
        y, weight = np.empty(survey.n), np.empty(survey.n)
        done = 0
        for batch, _ in self.read():
            rows = slice(done, done + len(batch.y))
            done = rows.stop
            if done > survey.n:
                break
            for file, column, values in zip(codes, columns, batch.columns, strict=True):
                file.append(column.encode(values))
            y[rows], weight[rows] = target.encode(batch.y, batch.weight)
        if done != survey.n:
            raise ValueError(
                f"the batches must hold the same rows every time, got {survey.n:,} at first and "
                "another number then; pass a list, or an object that begins anew in __iter__."
            )
        return LocalRows(codes, y, ones_or_none(weight))


def open_source(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Source:
    """Return where the rows of ``fit(X, y, sample_weight)`` come from."""
    return Table(X, y, sample_weight, check_y)


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
