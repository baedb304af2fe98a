"""Rows, and statistics of their columns, which must be known before the rows can be coded.

Statistics need one pass over the rows, batch by batch. A table of up to ``MOST_ROWS`` rows is kept
completely. Of a larger one, a sample of this size is kept. It is chosen by a hash of positions, so
that it does not depend on batches, devices or clusters. In addition the statistics hold the range
of every numeric column, whether a column has missing values, and the weight of each category of a
categorical column. If there are more than ``MOST_CATEGORIES``, the most frequent are kept (and of
equally frequent ones the first in alphabetical order); the others count as unseen. During the pass
twice as many are kept: only a category that is dropped and occurs again later gets too small a
weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ..core.arrays import host, indices
from .frames import as_numbers
from .text import DATE, DURATION, NUMBER, TEXT, plural

Array = np.ndarray
MOST_ROWS = 2**18
MOST_CATEGORIES = 2**20  # categories of a column; more would be names of rows
FAINT = 1e-2  # weight below which a row of a stream is forgotten
NEARLY = 0.75  # part of the remembered weight that the rows kept must have
KINDS = {"M": DATE, "m": DURATION, "f": NUMBER, "O": TEXT}  # by the kind of a NumPy type


class Batch(NamedTuple):
    """Some rows: columns as in ``frames.split_columns``, targets, and weights above 0.

    Targets with exposures are (n, 2).
    """

    columns: list[Array]
    y: Array
    weight: Array

    def take(self, rows: Any) -> Batch:
        """Return some of the rows."""
        columns = [_take(column, rows) for column in self.columns]
        return Batch(columns, self.y[rows], self.weight[rows])

    def join(self, other: Batch) -> Batch:
        """Return the rows of both."""
        return Batch(
            [_joined(*pair) for pair in zip(self.columns, other.columns, strict=True)],
            np.concatenate([self.y, other.y]),
            np.concatenate([self.weight, other.weight]),
        )

    def here(self) -> Batch:
        """Return the rows with their columns as NumPy arrays."""
        columns = [c if is_numpy_array(c) else host(c).astype(float) for c in self.columns]
        return self._replace(columns=columns)


class Window(NamedTuple):
    """The rows of a stream that are not forgotten, as long as they are few."""

    rows: Batch
    decay: Array  # remaining part of each row's weight: (n,)
    total: float  # weight of all rows that are remembered, kept or not
    fitted: int  # number of rows in the last full fit
    since: int = 0  # number of rows since

    @classmethod
    def of(cls, rows: Batch) -> Window:
        """Return rows that were just fitted together."""
        return cls(rows, np.ones(len(rows.y)), float(np.sum(rows.weight)), len(rows.y))

    def then(self, later: Batch, forget: float) -> Window:
        """Return these rows, their weights times ``forget``, and later rows."""
        kept = np.flatnonzero(forget * self.decay > FAINT)
        rows = self.rows.take(kept)
        rows = rows._replace(weight=forget * rows.weight).join(later)
        decay = np.append(forget * self.decay[kept], np.ones(len(later.y)))
        total = forget * self.total + float(np.sum(later.weight))
        return Window(rows, decay, total, self.fitted, self.since + len(later.y))

    def kept(self, forget: float, most: int) -> Window | None:
        """Return up to ``most`` rows to keep, or None if these have too little of the weight."""
        window = self
        if forget < 1.0:  # the oldest are forgotten soon anyhow
            latest = slice(-most, None) if most else slice(0)
            window = self._replace(rows=self.rows.take(latest), decay=self.decay[latest])
        few = len(window.rows.y) <= most
        return window if few and np.sum(window.rows.weight) >= NEARLY * self.total else None

    @property
    def is_news(self) -> bool:
        """Whether the number of rows has doubled since the last full fit."""
        return self.since >= self.fitted


class RowSums:
    """Sums over rows, which show whether two passes had the same rows in any order."""

    def __init__(self) -> None:
        self.sums = np.zeros((1, 2))  # a row per column after the first batch

    def add(self, batch: Batch) -> None:
        """Add the rows of a batch."""
        numbers = [_numbers(values) for values in (*batch.columns, batch.y, batch.weight)]
        self.sums = self.sums + np.array([(np.sum(v), np.sum(np.abs(v))) for v in numbers])

    def same(self, other: RowSums) -> bool:
        """Whether the sums are equal up to rounding."""
        (a, size), (b, _) = self.sums.T, other.sums.T
        return len(a) == len(b) and bool(np.all(np.abs(a - b) <= 1e-9 * size))


class ColumnValues(NamedTuple):
    """Values of a column and their weights."""

    values: Array
    weight: Array


class ColumnStats(NamedTuple):
    """Statistics of a column over all rows."""

    kind: str  # of a NumPy type
    ends: tuple[Any, ...]  # lowest and highest number; empty if there is none, and for categories
    missing: bool  # whether there are missing values
    totals: dict[Any, float] | None  # of up to 2 MOST_CATEGORIES; None for numbers

    @classmethod
    def of(cls, values: Array, weight: Array, *, categorical: bool) -> ColumnStats:
        """Return the statistics of a column of a batch."""
        if not is_numpy_array(values):
            if categorical:  # numbers that are categories
                return cls.of(host(values).astype(float), weight, categorical=True)
            xp = array_namespace(values)
            missing = xp.isnan(values)
            n_missing = int(xp.sum(xp.astype(missing, xp.int64)))
            if n_missing == len(weight):
                return cls("f", (), True, None)
            ends = (
                float(end(xp.where(missing, xp.full_like(values, never), values)))
                for end, never in ((xp.min, np.inf), (xp.max, -np.inf))
            )
            return cls("f", tuple(ends), n_missing > 0, None)
        kind = values.dtype.kind
        if kind == "O" or categorical:
            places: dict[Any, int] = defaultdict(count().__next__)  # in order of appearance
            place = np.fromiter(map(places.__getitem__, values.tolist()), np.intp, len(values))
            sums = zip(places, np.bincount(place, weight).tolist(), strict=True)
            totals = {value: w for value, w in sums if value is not None and value == value}
            return cls(kind, (), len(totals) < len(places), _bounded(totals))
        seen = values[values == values]
        ends = (seen.min(), seen.max()) if len(seen) else ()
        return cls(kind, ends, len(seen) < len(values), None)

    @property
    def empty(self) -> bool:
        """Whether every value was missing."""
        return not self.ends and not self.totals

    def merge(self, other: ColumnStats, name: Any) -> ColumnStats:
        """Return the statistics of both."""
        if self.empty or other.empty:
            full = other if self.empty else self
            return full._replace(missing=self.missing or other.missing)
        if self.kind != other.kind or (self.totals is None) != (other.totals is None):
            raise _two_types(name, self.kind, other.kind)
        totals, ends = None, self.ends + other.ends
        if self.totals is not None and other.totals is not None:
            totals = dict(self.totals)
            for category, w in other.totals.items():
                totals[category] = totals.get(category, 0.0) + w
            totals = _bounded(totals)
        else:
            ends = min(ends), max(ends)
        return ColumnStats(self.kind, ends, self.missing or other.missing, totals)


@dataclass(frozen=True)
class TableStats:
    """Statistics of rows, and those rows that are kept."""

    names: list[Any]  # of the columns
    n: int  # number of rows
    total: float  # sum of their weights
    sample: Batch  # the rows that are kept, in their order
    keys: Array  # hashes of the positions of these rows
    places: Array  # their positions
    stats: list[ColumnStats]  # of every column, and of y as the last one

    @classmethod
    def whole(cls, batch: Batch, names: list[Any]) -> TableStats:
        """Return the statistics of a table that is kept completely."""
        n, total = len(batch.y), float(np.sum(batch.weight))
        return cls(names, n, total, batch.here(), np.zeros(n), np.arange(n), [])

    @classmethod
    def of(
        cls,
        batch: Batch,
        names: list[Any],
        offset: int,
        categorical: Collection[int] = (),
        before: TableStats | None = None,
        n_all: int | None = None,
    ) -> TableStats:
        """Return the statistics of a batch whose first row is row ``offset`` of all rows.

        The columns ``categorical`` hold categories even if they are numbers; y counts as the last
        column. Rows that would be dropped in a merge with those ``before``, or with all others of
        ``n_all`` rows, are not kept.
        """
        every = [*batch.columns, batch.y if batch.y.ndim == 1 else batch.y[:, 0]]
        stats = [
            ColumnStats.of(v, batch.weight, categorical=j in categorical)
            for j, v in enumerate(every)
        ]
        places = np.arange(offset, offset + len(batch.y))
        n, total, keys = len(places), float(np.sum(batch.weight)), _hash(places)
        limit = 2**64 - 1
        if before is not None and len(before.keys) >= MOST_ROWS:
            limit = int(np.max(before.keys))
        elif n_all is not None and n_all > 2 * MOST_ROWS:  # slightly more than needed
            limit = int(2**64 * ((MOST_ROWS + 8 * MOST_ROWS**0.5) / n_all))
        if limit < 2**64 - 1:
            low = np.flatnonzero(keys < np.uint64(limit))
            batch, keys, places = batch.take(low), keys[low], places[low]
        table_stats = cls(names, n, total, batch, keys, places, stats)._cut()
        return replace(table_stats, sample=table_stats.sample.here())

    def merge(self, other: TableStats) -> TableStats:
        """Return the statistics of the rows of both."""
        if self.names != other.names:
            raise ValueError(
                f"every batch must have the same columns, got {self.names} and {other.names}; "
                "select the same columns."
            )
        return TableStats(
            self.names,
            self.n + other.n,
            self.total + other.total,
            self.sample.join(other.sample),
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.places, other.places]),
            [
                a.merge(b, name)
                for a, b, name in zip(self.stats, other.stats, [*self.names, "y"], strict=True)
            ],
        )._cut()

    def _cut(self) -> TableStats:
        """Return the statistics with at most ``MOST_ROWS`` rows, in their order."""
        rows: Any = slice(None)
        if len(self.keys) > MOST_ROWS:
            rows = np.argpartition(self.keys, MOST_ROWS)[:MOST_ROWS]
            rows = rows[np.argsort(self.places[rows])]
        elif np.any(np.diff(self.places) < 0):
            rows = np.argsort(self.places)
        else:
            return self
        sample = self.sample.take(rows)
        return replace(self, sample=sample, keys=self.keys[rows], places=self.places[rows])

    @property
    def columns(self) -> list[ColumnValues]:
        """Values of every column."""
        return [self._values(j, column) for j, column in enumerate(self.sample.columns)]

    @property
    def y(self) -> ColumnValues:
        """Values of y."""
        return self._values(-1, self.sample.y)

    def _values(self, j: int, kept: Array) -> ColumnValues:
        weight = self.sample.weight
        if len(kept) == self.n or kept.ndim > 1:  # the targets, with exposures
            return ColumnValues(kept, weight)
        stats = self.stats[j]
        if stats.totals is not None:
            totals = _most_frequent(stats.totals)
            values = np.array([*totals, *[None] * stats.missing], dtype=kept.dtype)
            return ColumnValues(values, np.array([*totals.values(), *[1.0] * stats.missing]))
        empty = np.array("nat", dtype=kept.dtype) if stats.kind in "mM" else np.nan
        more = np.array([*stats.ends, *[empty] * stats.missing], dtype=kept.dtype)
        return ColumnValues(np.concatenate([kept, more]), np.append(weight, np.ones(len(more))))


def _bounded(totals: dict[Any, float]) -> dict[Any, float]:
    """Return at most twice as many categories as are kept: sorting them often would be slow."""
    return totals if len(totals) <= 2 * MOST_CATEGORIES else _most_frequent(totals)


def _most_frequent(totals: dict[Any, float]) -> dict[Any, float]:
    """Return the most frequent categories; of equally frequent ones the first by name."""
    if len(totals) <= MOST_CATEGORIES:
        return totals
    least = np.partition(np.fromiter(totals.values(), float), -MOST_CATEGORIES)[-MOST_CATEGORIES]
    kept = {category: w for category, w in totals.items() if w > least}
    ties = sorted((category for category, w in totals.items() if w == least), key=str)
    return kept | dict.fromkeys(ties[: MOST_CATEGORIES - len(kept)], float(least))


def check_kinds(names: list[Any], before: Batch, later: Batch) -> None:
    """Raise an error if a column has another type in later rows."""
    for name, old, new in zip(names, before.columns, later.columns, strict=True):
        kind, other = old.dtype.kind, new.dtype.kind
        if kind != other and not is_empty(old) and not is_empty(new):
            raise _two_types(name, kind, other)


def _two_types(name: Any, *kinds: str) -> ValueError:
    return ValueError(
        f"column {name!r} must have one type in every batch, got "
        f"{' and '.join(plural(KINDS.get(kind, kind)) for kind in kinds)}; convert the column."
    )


def _take(column: Any, rows: Any) -> Any:
    if is_numpy_array(column):
        return column[rows]
    return array_namespace(column).take(column, indices(rows, column))


def _joined(a: Array, b: Array) -> Array:
    """Return both parts of a column; an empty part takes the type of the other."""
    if a.dtype.kind == b.dtype.kind:
        return np.concatenate([a, b])
    empty, full = (a, b) if is_empty(a) else (b, a)
    missing: Any = {"O": None, "f": np.nan}.get(full.dtype.kind, "nat")
    filled = np.full(len(empty), missing, dtype=full.dtype)
    return np.concatenate([filled, full] if empty is a else [full, filled])


def _numbers(values: Any) -> Array:
    """Return a number for every value that is not missing."""
    values = as_numbers(host(values))
    if values.dtype.kind not in "biuf":  # categories and labels
        return np.array([hash(v) * 2.0**-63 for v in values.tolist() if v is not None])
    floats = values.astype(float)
    return floats[~np.isnan(floats)]


def is_empty(values: Array) -> bool:
    """Whether all values are missing."""
    if values.dtype.kind == "O":
        return all(value is None for value in values.tolist())
    return bool(np.all(values != values))  # NaN or NaT


def _hash(places: Array) -> Array:
    """Return a pseudo-random number for each position (splitmix64)."""
    z = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z *= np.uint64(0xD1342543DE82EF95)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return z ^ (z >> np.uint64(31))
