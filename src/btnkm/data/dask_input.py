"""Tables on a Dask cluster: looked at, coded and predicted where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np

from ..core.cavi import Data
from ..execution.dask import DaskRows, connected, itself, release
from ..execution.local import LocalRows
from .column_stats import Batch, Survey
from .frames import by_name
from .readers import Batches, CheckY, LevelsOf, coded, read

Array = np.ndarray


def is_dask(X: Any) -> bool:
    """Tell what is Dask's, which is not imported."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


class DaskTable:
    """A Dask array or frame with its targets, on the workers of a client."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, check_y: CheckY, client: Any) -> None:
        self.client = client
        self.parts: list[Any] = []
        with self._at_work():
            self.example = example_of(X)
            self.parts = [
                client.submit(_read, *part, check_y, pure=False)
                for part in _futures(client, X, y, sample_weight)
            ]
            self.sizes = self._ask(_length, self.parts)
            used = [i for i, size in enumerate(self.sizes) if size]
            if not used:
                raise ValueError("X must have at least 2 rows, got none; look at the partitions.")
        self.parts, self.sizes = ([both[i] for i in used] for both in (self.parts, self.sizes))

    def survey(self, levels_of: LevelsOf) -> Survey:
        """Return what is known of all rows, from every worker's own."""
        offsets = np.cumsum([0, *self.sizes[:-1]]).tolist()
        with self._at_work():
            found = [
                self.client.submit(_survey, part, offset, levels_of, sum(self.sizes), pure=False)
                for part, offset in zip(self.parts, offsets, strict=True)
            ]
            try:
                return reduce(Survey.merge, (future.result() for future in found))
            finally:
                release(found)

    def code(self, columns: list[Any], target: Any, survey: Survey, sample: LocalRows) -> DaskRows:
        """Return coordinates on the workers."""
        with self._at_work():
            how = self.client.submit(itself, (columns, target), pure=False)
            # as they came they can go; Dask makes what it needs again
            self.parts = [self.client.submit(_code, part, how, pure=False) for part in self.parts]
            release([how])
            sums = self._ask(_data, self.parts)
        total = Data(sum(s.n for s in sums), sum(s.square for s in sums))
        return DaskRows(self.client, self.parts, self.sizes, total)

    def close(self) -> None:
        """Let the workers forget the rows."""
        release(self.parts)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Leave nothing on the workers if anything goes wrong."""
        try:
            with connected(self.client):
                yield
        except BaseException:
            self.close()
            raise

    def _ask(self, question: Callable[[Any], Any], parts: list[Any]) -> list[Any]:
        """Return what workers say of every part."""
        futures = self.client.map(question, parts, pure=False)
        try:
            return self.client.gather(futures)
        finally:
            release(futures)


def open_dask(X: Any, y: Any, sample_weight: Any, check_y: CheckY) -> Any:
    """Return where rows of Dask come from: a cluster, or batch by batch where there is none.

    Rows and targets of arrays go together by position, wherever the targets are. Those of frames
    do so within partitions, if their indices say the same: a frame may well have sorted its rows,
    and targets that are in memory have no partitions; these are refused.
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
    """Say what is wrong with a collection of Dask that is no table."""
    if not hasattr(X, "_meta"):  # a bag, or a delayed value, whose other attributes are made up
        raise TypeError(
            f"X must be a Dask array or frame, got a {type(X).__name__}; make it one, for example "
            "with dask.dataframe.from_delayed or to_dataframe() of a bag."
        )
    if X.ndim != 2:
        raise ValueError(
            f"X must have shape (n, inputs) (Expected 2D array), got a Dask {type(X).__name__} of "
            f"{X.ndim} dimension(s); reshape it, or select columns by a list of names."
        )


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

    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if is_dask(given) and not hasattr(given, "_meta"):
            raise TypeError(
                f"{name} must be a Dask array or series, got a {type(given).__name__}; make it one."
            )
        if given is not None and not is_dask(given) and not hasattr(X, "rechunk"):
            raise TypeError(
                f"{name} must be in the partitions of X, whose rows may have been sorted, got a "
                f"{type(given).__name__} in memory; give it as a column of the frame, by name, or "
                "as a Dask series."
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
                f"{name} must have the partitions of X, {len(rows)}, got {len(parts)}; "
                "repartition it."
            )
        columns.append(list(parts))
    return list(zip(rows, *columns, strict=True))


def _one_by_one(X: Any, parts: list[tuple[Any, Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """Compute partitions in this process."""
    import dask

    for part in parts:
        with _computed(X):
            together: tuple[Any, Any, Any] = dask.delayed(_paired)(*part).compute()
        yield together


@contextmanager
def _computed(X: Any) -> Iterator[None]:
    """Say that a partition lacks a column, where Dask says which one only."""
    try:
        yield
    except KeyError as error:
        columns = f" {list(X.columns)[:10]}" if hasattr(X, "columns") else ""
        raise ValueError(
            f"every partition must have the columns of X{columns} and y, got {error!r} from one; "
            "look at how they are made."
        ) from error


def _paired(X: Any, y: Any, weight: Any) -> tuple[Any, Any, Any]:
    """Return a partition's rows, targets and weights, if they belong together."""
    for name, given in (("y", y), ("sample_weight", weight)):
        if hasattr(X, "index") and hasattr(given, "index") and not X.index.equals(given.index):
            raise ValueError(
                f"{name} must have the index of X in every partition, got another; give it as a "
                "column of the frame, by name, or as a Dask array, whose rows go by position."
            )
    return X, y, weight


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
    X, y, weight = _paired(X, y, weight)
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


def lazily(
    method: Callable[..., Any],
    model: Any,
    X: Any,
    *args: Any,
    numbered: bool = False,
    **kwargs: Any,
) -> Any:
    """Return what a method will say of the rows of a Dask collection, once it is computed.

    It is asked block by block and, if ``numbered``, told which ``block`` it is.
    """
    import dask
    import dask.array as da

    check_dask(X)
    seen = method(model, example_of(X), *args, **kwargs)
    shared = dask.delayed(model, pure=False)
    call = dask.delayed(_call, pure=False)
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        rows, sizes = [block for block, *_ in X.to_delayed().tolist()], list(X.chunks[0])
    else:
        rows, sizes = X.to_delayed(), [np.nan] * X.npartitions
    nothing = tuple(part[:0] for part in seen) if isinstance(seen, tuple) else seen[:0]
    answers = [
        call(method, shared, part, args, kwargs | ({"block": i} if numbered else {}), nothing)
        for i, part in enumerate(rows)
    ]

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
