"""Parquet files as one table.

Names of folders such as year=2024 become columns. Columns that a file lacks are missing values.
Every file is read with its own types; the types of batches are merged later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from glob import glob, has_magic
from typing import Any

from .column_stats import is_empty
from .frames import split_columns
from .text import DATE, DURATION, NUMBER, TEXT, plural

_ROW_NAMES = re.compile(r"__index_level_\d+__")  # pandas' name of an unnamed index
# keeps Arrow from reading a gigabyte ahead
AHEAD = {"batch_readahead": 1, "fragment_readahead": 1}


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

    single = not isinstance(X, list | tuple)
    files = [file for path in ([X] if single else X) for file in _files(path, single)]
    names = dict.fromkeys(name for _, schema in files for name in schema.names)
    names = {name: None for name in names if not _ROW_NAMES.fullmatch(name)}
    _check_kinds(files, list(names))
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
    single = not isinstance(X, list | tuple)
    files = [file for path in ([X] if single else X) for file in _files(path, single)]
    types: dict[str, Any] = {}
    for _, schema in files:
        for field in schema:
            if _ROW_NAMES.fullmatch(field.name):
                continue
            if field.name not in types or str(types[field.name]) == "null":
                types[field.name] = field.type
    return types, sum(file.count_rows() for file, _ in files)


def _files(given: Any, single: bool) -> list[tuple[Any, Any]]:
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
    out = []
    for file in dataset.get_fragments():
        schema = file.physical_schema
        more = [field for field in partition if field.name not in schema.names]
        out.append((file, pa.schema([*schema, *more])))
    return out


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
