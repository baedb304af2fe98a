"""Parquet files as one table: what their folders' names tell is a column, what a file lacks a gap.

Every file is read by its own types, which later come together as those of any batches do.
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

_ROW_NAMES = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
# of Arrow's readers, which would hold a gigabyte of what is to come
AHEAD = {"batch_readahead": 1, "fragment_readahead": 1}


def is_path(X: Any) -> bool:
    """Tell a path, or a list of paths."""
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(one, str | os.PathLike) for one in X)
    return isinstance(X, str | os.PathLike)


def parquet_batches(X: Any, n_rows: int, columns: Collection[str] | None = None) -> Iterator[Any]:
    """Yield a table for every so many rows of Parquet files: a path, a pattern, or a list.

    Only of some ``columns``, if these are named.
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
    """Return Arrow's type of every column of Parquet files, and how many rows there are.

    Where files differ, the type is that of the first in which it is not null.
    """
    single = not isinstance(X, list | tuple)
    files = [file for path in ([X] if single else X) for file in _files(path, single)]
    found: dict[str, Any] = {}
    for _, schema in files:
        for field in schema:
            if _ROW_NAMES.fullmatch(field.name):
                continue
            if field.name not in found or str(found[field.name]) == "null":
                found[field.name] = field.type
    return found, sum(file.count_rows() for file, _ in files)


def _files(given: Any, single: bool) -> list[tuple[Any, Any]]:
    """Return all files of a path, each with its columns and those that its folders' names tell."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    path: Any = os.path.expanduser(os.fspath(given))
    how: dict[str, Any] = {"format": "parquet"}
    nothing = pa.schema([])  # so that no file is looked at yet
    hive: Any = ds.HivePartitioning.discover(infer_dictionary=True)  # levels, as pandas has them
    base = None
    try:
        if has_magic(path) and not os.path.exists(path):
            base = os.path.dirname(path[: min(path.find(c) for c in "*?[" if c in path)])
            matches = sorted(glob(path, recursive=True))
            opened = [ds.dataset(one, schema=nothing, **how) for one in matches]
            path = [file for one in opened for file in one.files]
        plain = ds.dataset(path, schema=nothing, **how)
    except FileNotFoundError:
        plain = None
    if plain is None or not plain.files:
        raise FileNotFoundError(
            f"X must name Parquet files, got {os.fspath(given)!r}, where there are none; look at "
            "the path."
        )
    for file in plain.get_fragments():
        try:
            file.physical_schema  # noqa: B018
        except (pa.ArrowInvalid, OSError):
            raise ValueError(
                f"every file must be Parquet, got {file.path!r}, which cannot be read as such; "
                "take it away, or name the others by a pattern such as 'folder/*.parquet'."
            ) from None
    if single and plain.files == [path]:
        hive = None  # one file, whose folders are none of the table's
    elif not single and base is None:  # as those of all others in the list are
        path, how["filesystem"] = plain.files, plain.filesystem
    found = ds.dataset(path, partitioning=hive, partition_base_dir=base, **how)
    told = [] if hive is None else list(found.partitioning.schema)
    out = []
    for file in found.get_fragments():
        own = file.physical_schema
        more = [field for field in told if field.name not in own.names]
        out.append((file, pa.schema([*own, *more])))
    return out


def _check_kinds(files: list[tuple[Any, Any]], names: list[str]) -> None:
    """Raise one clear sentence if a column is of one kind in a file, and of another elsewhere."""
    for name in names:
        first: dict[str, Any] = {}
        for file, schema in files:
            if name in schema.names:
                first.setdefault(kind_of_type(schema.field(name).type), file)
        first.pop("", None)
        if len(first) > 1:  # one that holds nothing takes the type of the others
            first = {kind: file for kind, file in first.items() if not _is_empty(file, name)}
        if len(first) > 1:
            (kind, file), (other, second) = list(first.items())[:2]
            raise ValueError(
                f"column {name!r} must have the same type in every file, got {plural(kind)} in "
                f"{file.path!r} and {plural(other)} in {second.path!r}; convert it before."
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
