"""Dask collections: statistics, codes and predictions are computed where the rows are.

Predictions for rows on disk, in batches, are made by the same decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce, wraps
from typing import Any

import numpy as np

from ..core.cavi import Data
from ..execution.dask import DaskRows, connected, itself, release
from ..execution.local import LocalRows
from .column_stats import Batch, TableStats
from .frames import by_name, is_arrow
from .readers import (
    Batches,
    CategoricalOf,
    CheckY,
    coded,
    is_stored,
    n_rows,
    read,
    stored_batches,
)

Array = np.ndarray


def is_dask(X: Any) -> bool:
    """Whether X is a Dask collection; Dask is not imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


class DaskTable:
    """A Dask array or frame with its targets on the workers of a client."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, check_y: CheckY, client: Any) -> None:
        from dask import delayed

        self.client = client
        self.parts: list[Any] = []
        with self._released_on_error():
            self.example = example_of(X)
            read_part = delayed(_read, pure=False)
            parts = [read_part(*part, check_y) for part in _delayed(X, y, sample_weight)]
            self.parts = client.compute(parts)
            self.sizes = self._map(lambda part: len(part[0].y), self.parts)
            used = [i for i, size in enumerate(self.sizes) if size]
            if not used:
                raise ValueError("X must have at least 2 rows, got none; check the partitions.")
        self.parts, self.sizes = ([both[i] for i in used] for both in (self.parts, self.sizes))

    def table_stats(self, categorical_of: CategoricalOf) -> TableStats:
        """Return statistics of all rows, merged from those of the partitions."""
        offsets = np.cumsum([0, *self.sizes[:-1]]).tolist()
        with self._released_on_error():
            parts = [
                self.client.submit(
                    _table_stats, part, offset, categorical_of, sum(self.sizes), pure=False
                )
                for part, offset in zip(self.parts, offsets, strict=True)
            ]
            try:
                return reduce(TableStats.merge, (future.result() for future in parts))
            finally:
                release(parts)

    def code(
        self, columns: list[Any], target: Any, table_stats: TableStats, sample: LocalRows
    ) -> DaskRows:
        """Return coordinates on the workers."""
        with self._released_on_error():
            encoders = self.client.submit(itself, (columns, target), pure=False)
            # the raw rows are released; Dask computes lost ones again
            self.parts = [
                self.client.submit(_code, part, encoders, pure=False) for part in self.parts
            ]
            release([encoders])
            sums = self._map(LocalRows.data, self.parts)
        total = Data(sum(s.n for s in sums), sum(s.square for s in sums))
        return DaskRows(self.client, self.parts, self.sizes, total)

    def close(self) -> None:
        """Release the rows on the workers."""
        release(self.parts)

    @contextmanager
    def _released_on_error(self) -> Iterator[None]:
        """Release the rows on the workers if an error occurs."""
        try:
            with connected(self.client):
                yield
        except BaseException:
            self.close()
            raise

    def _map(self, function: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
        """Return the values of a function of each part, computed on the workers."""
        futures = self.client.map(function, parts, pure=False)
        try:
            return self.client.gather(futures)
        finally:
            release(futures)


def open_dask(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Any:
    """Return a Dask collection as a source: on a cluster, or in batches if there is no client.

    Rows and targets of arrays are matched by position. Those of frames are matched within
    partitions, and their indices must be equal. Targets in memory have no partitions, and a frame
    may have sorted its rows: they are an error for frames.
    """
    check_dask(X)
    X, y, sample_weight = by_name(X, y, sample_weight)
    client = _client()
    with _computed(X):
        if client is not None:
            return DaskTable(X, y, sample_weight, check_y, client)
        parts = _delayed(X, y, sample_weight)
    return Batches(lambda: _one_by_one(X, parts), check_y)


def check_dask(X: Any) -> None:
    """Raise an error for a Dask collection that is not a table."""
    if not hasattr(X, "_meta"):  # a bag, or a delayed value, which has any attribute
        raise TypeError(
            f"X must be a Dask array or frame, got a {type(X).__name__}; convert it, for example "
            "with dask.dataframe.from_delayed or to_dataframe() of a bag."
        )
    if X.ndim != 2:
        raise ValueError(
            f"X must have shape (n, inputs) (Expected 2D array), got a Dask {type(X).__name__} of "
            f"{X.ndim} dimension(s); reshape it, or select columns with a list of names."
        )


def _client() -> Any:
    try:
        from distributed import get_client
    except ImportError:
        return None
    try:
        return get_client()
    except ValueError:  # there is none
        return None


def _delayed(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return delayed rows, targets and weights of every partition."""
    import dask
    import dask.array as da

    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if is_dask(given) and not hasattr(given, "_meta"):
            raise TypeError(
                f"{name} must be a Dask array or series, got a {type(given).__name__}; convert it."
            )
        if given is not None and not is_dask(given) and not hasattr(X, "rechunk"):
            raise TypeError(
                f"{name} must have the partitions of X, whose rows may have been sorted, got a "
                f"{type(given).__name__} in memory; pass the name of a column of X, or a Dask "
                "series."
            )
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        if any(np.isnan(X.chunks[0])):
            X = X.compute_chunk_sizes()
        sizes: Any = X.chunks[0]
        rows = [block for block, *_ in X.to_delayed().tolist()]
    else:
        rows = X.to_delayed()
        sizes = None
    columns = []
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if given is None:
            columns.append([None] * len(rows))
            continue
        if is_dask(given) and not hasattr(given, "rechunk"):
            parts = given.to_delayed()
        else:
            if sizes is None:
                sizes = tuple(dask.compute(*[dask.delayed(len)(part) for part in rows]))
            if not hasattr(given, "rechunk"):
                given = da.from_array(np.asarray(given), chunks=len(given))
            elif any(np.isnan(given.chunks[0])):
                given = given.compute_chunk_sizes()
            if sum(sizes) != given.shape[0]:
                raise ValueError(
                    f"{name} must have as many rows as X, {sum(sizes):,}, got {given.shape[0]:,}; "
                    "select the same rows of both."
                )
            parts = given.rechunk({0: sizes}).to_delayed().ravel().tolist()
        if len(parts) != len(rows):
            raise ValueError(
                f"{name} must have as many partitions as X, {len(rows)}, got {len(parts)}; "
                "repartition it."
            )
        columns.append(list(parts))
    return list(zip(rows, *columns, strict=True))


def _one_by_one(X: Any, parts: list[tuple[Any, Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield computed partitions, in this process."""
    import dask

    for part in parts:
        with _computed(X):
            batch: tuple[Any, Any, Any] = dask.delayed(_paired)(*part).compute()
        yield batch


@contextmanager
def _computed(X: Any) -> Iterator[None]:
    """Explain the KeyError for a partition that lacks a column."""
    try:
        yield
    except KeyError as error:
        columns = f" {list(X.columns)[:10]}" if hasattr(X, "columns") else ""
        raise ValueError(
            f"every partition must have the columns of X{columns} and y, got {error!r} from one; "
            "check how they are created."
        ) from error


def _paired(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Return rows, targets and weights of a partition, if their indices are equal."""
    for name, given in (("y", y), ("sample_weight", weight)):
        if hasattr(X, "index") and hasattr(given, "index") and not X.index.equals(given.index):
            raise ValueError(
                f"{name} must have the index of X in every partition, got another; pass the name "
                "of a column of X, or a Dask array, whose rows are matched by position."
            )
    return X, y, weight


def _read(X: Any, y: Any, weight: Any, check_y: CheckY) -> tuple[Batch, list[Any]]:
    X, y, weight = _paired(X, y, weight)
    if len(X) == 0:
        return Batch([], np.empty(0), np.empty(0)), []
    return read(X, y, weight, check_y, whole=False)


def _table_stats(
    part: tuple[Batch, list[Any]], offset: int, categorical_of: CategoricalOf, n_all: int
) -> TableStats:
    batch, names = part
    return TableStats.of(batch, names, offset, categorical_of(names), n_all=n_all)


def _code(part: tuple[Batch, list[Any]], encoders: tuple[list[Any], Any]) -> LocalRows:
    return coded(part[0], *encoders)


def example_of(X: Any) -> Any:
    """Return a small table with the columns of a Dask collection."""
    if not hasattr(X, "rechunk"):
        return X._meta_nonempty
    # the types of objects are known only from values
    return X[:1].compute() if X.dtype == object else np.zeros((1, X.shape[1]), dtype=X.dtype)


def lazily(
    method: Callable[..., Any],
    model: Any,
    X: Any,
    *args: Any,
    numbered: bool = False,
    **kwargs: Any,
) -> Any:
    """Return a lazy array with the result of a method for all rows of a Dask collection.

    The method is called block by block, with the number of the ``block`` if ``numbered``.
    """
    import dask
    import dask.array as da

    check_dask(X)
    fitted = getattr(model, "fitted_", None)
    # the values of the example are made up
    with nullcontext() if fitted is None else fitted.silent_beyond():
        example = method(model, example_of(X), *args, **kwargs)
    shared = dask.delayed(model, pure=False)
    call = dask.delayed(_call, pure=False)
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        rows, sizes = [block for block, *_ in X.to_delayed().tolist()], list(X.chunks[0])
    else:
        rows, sizes = X.to_delayed(), [np.nan] * X.npartitions
    several = isinstance(example, tuple)
    empty = tuple(part[:0] for part in example) if several else example[:0]
    results = [
        call(method, shared, part, args, kwargs | ({"block": i} if numbered else {}), empty)
        for i, part in enumerate(rows)
    ]

    def array(like: Array, pieces: list[Any]) -> Any:
        shapes = [(size, *like.shape[1:]) for size in sizes]
        pairs = zip(pieces, shapes, strict=True)
        return da.concatenate([da.from_delayed(p, s, dtype=like.dtype) for p, s in pairs])

    if several:
        return tuple(array(a, [result[k] for result in results]) for k, a in enumerate(example))
    return array(example, results)


def _call(
    method: Callable[..., Any], model: Any, X: Any, args: Any, kwargs: Any, empty: Any
) -> Any:
    return method(model, X, *args, **kwargs) if len(X) else empty


def anywhere(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of (self, X, ...) also take rows on disk and Dask collections."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("exposure") is not None and (is_dask(X) or is_stored(X)):
            raise TypeError(
                f"exposure needs a table in memory, got a {type(X).__name__}; read it, or multiply "
                "the predicted means by the exposure."
            )
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
