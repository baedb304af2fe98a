"""Sources of training rows: a table in memory or on a device, batches, or Parquet files.

Statistics of a source are computed first (``table_stats``). Then its rows are coded as coordinates
of the fitted columns. Coordinates of batches go to a temporary file.

Several Parquet files are one table. Names of folders such as year=2024 become columns. Columns that
a file lacks are missing values. Every file is read with its own types; the types of batches are
merged later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from glob import glob, has_magic
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_numpy_array
from sklearn.utils.validation import check_consistent_length

from .. import checks
from ..core.arrays import here, host, like
from ..execution.local import LocalRows
from ..execution.memory import spilled_columns
from .column_stats import MOST_ROWS, Batch, RowSums, TableStats, is_empty
from .columns import FARTHEST_LEARNED, FARTHEST_OF_LOGARITHM
from .frames import by_name, split_columns
from .text import DATE, DURATION, NUMBER, TEXT, plural

Array = np.ndarray
BATCH_ROWS = 65_536
_ROW_NAMES = re.compile(r"__index_level_\d+__")  # pandas' name of an unnamed index
# keeps Arrow from reading a gigabyte ahead
AHEAD = {"batch_readahead": 1, "fragment_readahead": 1}
CheckY = Callable[[Any], Array]
CategoricalOf = Callable[[list[Any]], Collection[int]]  # names -> positions of categorical columns


class Source(Protocol):
    """Rows that can be read any number of times."""

    example: Any  # a table with the same columns

    def table_stats(self, categorical_of: CategoricalOf) -> TableStats:
        """Return statistics of all rows."""

    def code(
        self, columns: list[Any], target: Any, table_stats: TableStats, sample: LocalRows
    ) -> Any:
        """Return the coded rows; the ``sample`` may hold all of them."""

    def close(self) -> None:
        """Release memory on other machines, if there is any."""
        return


@dataclass
class Table(Source):
    """A table in memory, or an array on a device."""

    example: Any
    batch: Batch
    names: list[Any]

    def table_stats(self, categorical_of: CategoricalOf) -> TableStats:
        """Return statistics of all rows."""
        if len(self.batch.y) <= MOST_ROWS:
            return TableStats.whole(self.batch, self.names)
        return TableStats.of(self.batch, self.names, 0, categorical_of(self.names))

    def code(
        self, columns: list[Any], target: Any, table_stats: TableStats, sample: LocalRows
    ) -> LocalRows:
        """Return coordinates on the device of the table."""
        in_memory = is_numpy_array(self.batch.columns[0])
        return (
            sample
            if in_memory and sample.n == table_stats.n
            else coded(self.batch, columns, target)
        )


class Batches(Source):
    """An iterable of tables with targets and perhaps weights, which can be read again."""

    def __init__(self, batches: Callable[[], Iterable[Any]], check_y: CheckY) -> None:
        self.batches = batches
        self.check_y = check_y

    def read(self) -> Iterator[tuple[Batch, list[Any]]]:
        """Yield the rows with a positive weight, batch by batch."""
        for given in self.batches():
            if not isinstance(given, tuple | list) or len(given) not in (2, 3):
                what = f"{len(given)} items" if isinstance(given, tuple | list) else ""
                raise TypeError(
                    "every batch must be a tuple (X, y) or (X, y, sample_weight), got "
                    f"{what or type(given).__name__}; yield such tuples."
                )
            X, y, *weight = given
            if not n_rows(X):
                continue
            if not hasattr(self, "example"):
                self.example = X
            batch, names = read(X, y, weight[0] if weight else None, self.check_y, whole=False)
            if len(batch.y):
                yield batch, names

    def table_stats(self, categorical_of: CategoricalOf) -> TableStats:
        """Return statistics of all rows."""
        total: TableStats | None = None
        self.totals = RowSums()
        for batch, names in self.read():
            part = TableStats.of(
                batch, names, total.n if total else 0, categorical_of(names), total
            )
            total = part if total is None else total.merge(part)
            self.totals.add(batch)
        if total is None:
            raise ValueError("the batches must have at least 2 rows, got none; check their source.")
        return total

    def code(
        self, columns: list[Any], target: Any, table_stats: TableStats, sample: LocalRows
    ) -> LocalRows:
        """Return coordinates in a file, unless the sample holds all rows."""
        if sample.n == table_stats.n:
            return sample
        codes = spilled_columns(len(columns), table_stats.n)
        y, weight = np.empty(table_stats.n), None
        done, totals = 0, RowSums()
        for batch, names in self.read():
            rows = slice(done, done + len(batch.y))
            done = rows.stop
            if done > table_stats.n or names != table_stats.names:
                break
            totals.add(batch)
            for file, column, values in zip(codes, columns, batch.columns, strict=True):
                file.append(host(column.encode(values, _farthest(target))))
            y[rows], counts = target.encode(batch.y, batch.weight)
            if weight is None and np.any(counts != 1.0):
                weight = np.ones(table_stats.n)
            if weight is not None:
                weight[rows] = counts
        if done != table_stats.n or not totals.same(self.totals):
            raise ValueError(
                f"the batches must hold the same rows in every pass, got {table_stats.n:,} first "
                "and others later; pass a list, or an object whose __iter__ starts from the "
                "beginning."
            )
        return LocalRows(codes, y, weight)


def n_rows(X: Any) -> int:
    """Return the number of rows of a table of any type."""
    return int(X.shape[0] if hasattr(X, "shape") else len(X))


def open_source(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Source:
    """Return the source of the rows of ``fit(X, y, sample_weight)``."""
    if is_stored(X):
        return Batches(lambda: stored_rows(X, y, sample_weight), check_y)
    if y is None and is_iterable_of_batches(X):
        if isinstance(X, Iterator):  # which has only one pass
            raise TypeError(
                "batches must be an iterable that can be read several times, got "
                f"{type(X).__name__}; pass a list, or an object whose __iter__ starts from the "
                "beginning."
            )
        if sample_weight is not None:
            raise ValueError(
                "sample_weight must be part of the batches, got it as an argument; yield tuples "
                "(X, y, sample_weight)."
            )
        return Batches(lambda: X, check_y)
    X, y, sample_weight = by_name(X, y, sample_weight)
    return Table(X, *read(X, y, sample_weight, check_y))


def is_stored(X: Any) -> bool:
    """Whether rows are on disk: paths, an Arrow dataset, or a memory map."""
    arrow = type(X).__module__.startswith("pyarrow") and hasattr(X, "get_fragments")
    return isinstance(X, np.memmap) or is_path(X) or arrow


def stored_batches(X: Any) -> Iterator[Any]:
    """Yield tables of up to ``BATCH_ROWS`` rows on disk."""
    if isinstance(X, np.memmap):
        for start in range(0, len(X), BATCH_ROWS):
            yield np.asarray(X[start : start + BATCH_ROWS])
        return
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError(
            "reading files needs pyarrow, which is not installed; run: pip install pyarrow"
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
        columns = (v if v is None or isinstance(v, str) else v[rows] for v in (y, sample_weight))
        yield by_name(table, *columns)
    for what, given in (("y", y), ("sample_weight", sample_weight)):
        if given is not None and not isinstance(given, str) and len(given) != done:
            raise ValueError(
                f"{what} must have as many rows as X, {done:,}, got {len(given):,}; select the "
                "same rows of both (Found input variables with inconsistent numbers of samples)."
            )


def with_targets(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return X, y and sample_weight; y and sample_weight may name columns of X, also on disk."""
    if not is_stored(X):
        return by_name(X, y, sample_weight)
    if not isinstance(y, str) and not isinstance(sample_weight, str):
        return X, y, sample_weight
    parts = [part for _, *part in stored_rows(X, y, sample_weight)]
    columns = (
        None if part[0] is None else np.concatenate(part) for part in zip(*parts, strict=True)
    )
    return X, *(columns if parts else (y, sample_weight))


def is_iterable_of_batches(X: Any) -> bool:
    """Whether X yields tuples (X, y) or (X, y, sample_weight)."""
    if hasattr(X, "shape") or hasattr(X, "columns") or not hasattr(X, "__iter__"):
        return False
    if isinstance(X, Mapping | Set) or type(X).__module__.startswith("pyarrow"):
        return False
    if not isinstance(X, list | tuple):
        return True
    first = X[0] if X else None
    if not isinstance(first, tuple | list) or not first:
        return False
    # a row of a nested list begins with a number or text
    return hasattr(first[0], "__len__") and not isinstance(first[0], str)


def read(
    X: Any, y: Any, sample_weight: Any, check_y: CheckY, *, whole: bool = True
) -> tuple[Batch, list[Any]]:
    """Return the rows of a table with a positive weight, and the names of its columns.

    A ``whole`` table must have such rows.
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
    """Return the coordinates of rows, on the device of their columns."""
    pairs = zip(columns, batch.columns, strict=True)
    farthest = _farthest(target)
    codes = [column.encode(values, farthest) for column, values in pairs]
    y, weight = target.encode(batch.y, batch.weight)
    weight = ones_or_none(weight)
    if not is_numpy_array(codes[0]):
        y = like(y, codes[0])
        weight = None if weight is None else like(weight, codes[0])
    return LocalRows(codes, y, weight)


def _farthest(target: Any) -> float:
    """Return how far beyond the range of its first rows a model learns from a number, in ranges."""
    return FARTHEST_OF_LOGARITHM if target.is_logarithm else FARTHEST_LEARNED


def ones_or_none(weight: Array) -> Array | None:
    """Return None for weights that are all 1."""
    return None if np.all(weight == 1.0) else weight


# ---- Parquet files


def is_path(X: Any) -> bool:
    """Whether X is a path, or a list of paths."""
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(path, str | os.PathLike) for path in X)
    return isinstance(X, str | os.PathLike)


def parquet_batches(X: Any, n_rows: int, columns: Collection[str] | None = None) -> Iterator[Any]:
    """Yield tables of up to ``n_rows`` rows from Parquet files: a path, a pattern, or a list.

    Only some ``columns`` are read if they are named.
    """
    import pyarrow as pa

    files = _files(X)
    every = dict.fromkeys(name for _, schema in files for name in schema.names)
    names = [name for name in every if not _ROW_NAMES.fullmatch(name)]
    _check_kinds(files, names)
    for file, schema in files:
        fields = [
            schema.field(name) if name in schema.names else pa.field(name, pa.null())
            for name in names
            if columns is None or name in columns
        ]
        for batch in file.to_batches(pa.schema(fields), batch_size=n_rows, **AHEAD):
            yield pa.Table.from_batches([batch])


def parquet_types(X: Any) -> tuple[dict[str, Any], int]:
    """Return the Arrow type of every column of Parquet files, and the number of rows.

    If files differ, the type is that of the first file in which it is not null.
    """
    files = _files(X)
    types: dict[str, Any] = {}
    for _, schema in files:
        for field in schema:
            if _ROW_NAMES.fullmatch(field.name):
                continue
            if field.name not in types or str(types[field.name]) == "null":
                types[field.name] = field.type
    return types, sum(file.count_rows() for file, _ in files)


def _files(X: Any) -> list[tuple[Any, Any]]:
    """Return all files of a path or paths, each with its schema."""
    if isinstance(X, list | tuple):
        return [file for path in X for file in _files_of(path, single=False)]
    return _files_of(X, single=True)


def _files_of(given: Any, *, single: bool) -> list[tuple[Any, Any]]:
    """Return all files of a path, each with its schema and the columns from names of folders."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    path: Any = os.path.expanduser(os.fspath(given))
    how: dict[str, Any] = {"format": "parquet"}
    empty = pa.schema([])  # so that no file is opened yet
    hive: Any = ds.HivePartitioning.discover(infer_dictionary=True)  # categories, as in pandas
    base = None
    try:
        if has_magic(path) and not os.path.exists(path):
            base = os.path.dirname(path[: min(path.find(c) for c in "*?[" if c in path)])
            matches = sorted(glob(path, recursive=True))
            datasets = [ds.dataset(match, schema=empty, **how) for match in matches]
            path = [file for dataset in datasets for file in dataset.files]
        plain = ds.dataset(path, schema=empty, **how)
    except FileNotFoundError:
        plain = None
    if plain is None or not plain.files:
        raise FileNotFoundError(
            f"X must be the path of Parquet files, got {os.fspath(given)!r}, where there are none; "
            "check the path."
        )
    for file in plain.get_fragments():
        try:
            file.physical_schema  # noqa: B018
        except (pa.ArrowInvalid, OSError):
            raise ValueError(
                f"every file must be a Parquet file, got {file.path!r}, which cannot be read; "
                "remove it, or select files with a pattern such as 'folder/*.parquet'."
            ) from None
    if single and plain.files == [path]:
        hive = None  # the folders of a single file are not part of the table
    elif not single and base is None:  # as for all others in the list
        path, how["filesystem"] = plain.files, plain.filesystem
    dataset = ds.dataset(path, partitioning=hive, partition_base_dir=base, **how)
    partition = [] if hive is None else list(dataset.partitioning.schema)
    files = []
    for file in dataset.get_fragments():
        schema = file.physical_schema
        more = [field for field in partition if field.name not in schema.names]
        files.append((file, pa.schema([*schema, *more])))
    return files


def _check_kinds(files: list[tuple[Any, Any]], names: list[str]) -> None:
    """Raise an error if a column has different types in different files."""
    for name in names:
        first: dict[str, Any] = {}
        for file, schema in files:
            if name in schema.names:
                first.setdefault(kind_of_type(schema.field(name).type), file)
        first.pop("", None)
        if len(first) > 1:  # an empty column takes the type of the others
            first = {kind: file for kind, file in first.items() if not _is_empty(file, name)}
        if len(first) > 1:
            (kind, file), (other, second) = list(first.items())[:2]
            raise ValueError(
                f"column {name!r} must have the same type in every file, got {plural(kind)} in "
                f"{file.path!r} and {plural(other)} in {second.path!r}; convert the column."
            )


def _is_empty(file: Any, name: str) -> bool:
    return file.count_rows() == 0 or is_empty(split_columns(file.to_table(columns=[name]))[0][0])


def kind_of_type(of: Any) -> str:
    """Return what columns of an Arrow type hold; nothing for those without values."""
    from pyarrow import types

    if types.is_null(of):
        return ""
    if types.is_timestamp(of) or types.is_date(of):
        return DATE
    if types.is_duration(of):
        return DURATION
    number = types.is_boolean(of) or types.is_integer(of) or types.is_floating(of)
    return NUMBER if number or types.is_decimal(of) else TEXT
