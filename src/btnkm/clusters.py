"""Tables on a Dask cluster: looked at, coded and predicted where they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from .core.cavi import Data
from .execution.dask import DaskRows, itself
from .execution.local import LocalRows
from .sources import Batches, CheckY, LevelsOf, coded, read
from .survey import Batch, Survey
from .tables import by_name

Array = np.ndarray


def is_dask(X: Any) -> bool:
    """Tell collections of Dask, which is not imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "to_delayed")


class DaskTable:
    """A Dask array or frame with its targets, on the workers of a client."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, check_y: CheckY, client: Any) -> None:
        self.client = client
        self.example = example_of(X)
        self.parts = [
            client.submit(_read, *part, check_y, pure=False)
            for part in _futures(client, X, y, sample_weight)
        ]
        self.sizes = client.gather(client.map(_length, self.parts, pure=False))
        used = [i for i, size in enumerate(self.sizes) if size]
        if not used:
            raise ValueError("X must have at least 2 rows, got none; look at the partitions.")
        self.parts, self.sizes = ([both[i] for i in used] for both in (self.parts, self.sizes))

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows, from every worker's own."""
        offsets = np.cumsum([0, *self.sizes[:-1]]).tolist()
        found = [
            self.client.submit(_survey, part, offset, levels_of, sum(self.sizes), pure=False)
            for part, offset in zip(self.parts, offsets, strict=True)
        ]
        return reduce(Survey.merge, (future.result() for future in found))

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> DaskRows:
        """Return coordinates on the workers."""
        how = self.client.submit(itself, (columns, target), pure=False)
        parts = [self.client.submit(_code, part, how, pure=False) for part in self.parts]
        sums = self.client.gather(self.client.map(_data, parts, pure=False))
        self.parts = []  # as they came they can go; Dask makes what it needs again
        total = Data(sum(s.n for s in sums), sum(s.square for s in sums))
        return DaskRows(self.client, parts, self.sizes, total)


def open_dask(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Any:
    """Return where rows of Dask come from: a cluster, or batch by batch where there is none."""
    X, y, sample_weight = by_name(X, y, sample_weight)
    client = _client()
    if client is not None:
        return DaskTable(X, y, sample_weight, check_y, client)
    parts = _delayed(X, y, sample_weight)
    return Batches(lambda: (_together(*part).compute() for part in parts), check_y)


def _client() -> Any:
    try:
        from distributed import get_client
    except ImportError:
        return None
    try:
        return get_client()
    except ValueError:  # none was started
        return None


def _delayed(X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return rows, targets and weights of every partition, to be computed."""
    import dask
    import dask.array as da

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
                f"{name} must have the partitions of X, {len(rows)}, got {len(parts)}; "
                "repartition it."
            )
        columns.append(list(parts))
    return list(zip(rows, *columns, strict=True))


def _together(X: Any, y: Any, weight: Any) -> Any:
    import dask

    return dask.delayed(_tuple)(X, y, weight)


def _tuple(*parts: Any) -> tuple[Any, ...]:
    return parts


def _futures(client: Any, X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return futures of every partition's rows, targets and weights."""
    parts = _delayed(X, y, sample_weight)
    flat = client.compute([piece for part in parts for piece in part if piece is not None])
    futures = iter(flat)
    return [
        (next(futures), *(None if p is None else next(futures) for p in part[1:]))  # type: ignore[misc]
        for part in parts
    ]


def _read(X: Any, y: Any, weight: Any, check_y: CheckY) -> tuple[Batch, list[Any]]:
    if len(X) == 0:
        return Batch([], np.empty(0), np.empty(0)), []
    return read(X, y, weight, check_y, whole=False)


def _length(part: tuple[Batch, list[Any]]) -> int:
    return len(part[0].y)


def _survey(part: tuple[Batch, list[Any]], offset: int, levels_of: LevelsOf, n_all: int) -> Survey:
    batch, names = part
    return Survey.of(batch, names, offset, levels_of(names), n_all=n_all)


def _code(part: tuple[Batch, list[Any]], how: tuple[list[Any], Any]) -> LocalRows:
    return coded(part[0], *how)


def _data(rows: LocalRows) -> Data:
    return rows.data()


def example_of(X: Any) -> Any:
    """Return a small table with the columns of a Dask collection."""
    if not hasattr(X, "rechunk"):
        return X._meta_nonempty
    # of objects there is no telling what they are but by looking
    return X[:1].compute() if X.dtype == object else np.zeros((1, X.shape[1]), dtype=X.dtype)


def lazily(method: Callable[..., Any], model: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what a method will say of the rows of a Dask collection, once it is computed."""
    import dask
    import dask.array as da

    seen = method(model, example_of(X), *args, **kwargs)
    shared = dask.delayed(model, pure=False)
    call = dask.delayed(_call, pure=False)
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        rows, sizes = [block for block, *_ in X.to_delayed().tolist()], list(X.chunks[0])
    else:
        rows, sizes = X.to_delayed(), [np.nan] * X.npartitions
    nothing = tuple(part[:0] for part in seen) if isinstance(seen, tuple) else seen[:0]
    answers = [call(method, shared, part, args, kwargs, nothing) for part in rows]

    def array(like: Array, pieces: list[Any]) -> Any:
        shapes = [(size, *like.shape[1:]) for size in sizes]
        made = zip(pieces, shapes, strict=True)
        return da.concatenate([da.from_delayed(p, s, dtype=like.dtype) for p, s in made])

    if isinstance(seen, tuple):
        return tuple(array(a, [answer[k] for answer in answers]) for k, a in enumerate(seen))
    return array(seen, answers)


def _call(
    method: Callable[..., Any], model: Any, X: Any, args: Any, kwargs: Any, nothing: Any
) -> Any:
    return method(model, X, *args, **kwargs) if len(X) else nothing
