"""Rows on the workers of a Dask cluster; only commands and sums travel.

The rows of every partition, as coordinates, are on some worker, with their blocks and all that
these remember (a *shard*). A sum sends each shard the commands since the last one and returns its
part of the sum: one round trip. A shard whose worker is lost is rebuilt on another worker from the
same partition, which Dask computes again, and brought up to date (``recall``).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from ..core.cavi import Data
from ..core.network import Network
from ..core.sweeper import Command
from .local import USUAL_MEMORY, LocalExecutor, LocalRows, MemoryPlan, Threads, add
from .memory import keep_memory

LOOK_SECONDS = 1.0  # between checks of which workers are there
MOST_TRIES = 20  # for one sum, of a cluster that keeps losing workers


class Spec(NamedTuple):
    """What a shard needs besides its rows."""

    inputs: list[int]
    constants: int
    plan: MemoryPlan
    bases: Sequence[Any]
    n_modes: int
    network: Network | None


@dataclass
class Shard:
    """The blocks of a partition on a worker, and the number of sums they have been part of."""

    executor: LocalExecutor
    sums: int


_shards: dict[str, Shard] = {}  # of this worker
_lock = threading.Lock()
_blas: ThreadpoolController | None = None


def limited_blas() -> Any:
    """Limit BLAS to one thread: a worker has a thread for each busy shard."""
    global _blas
    if _blas is None:
        _blas = ThreadpoolController()
    return _blas.limit(limits=1, user_api="blas")


def work(
    key: str,
    sums: int,
    commands: list[Command],
    rebuild: bool,
    rows: LocalRows,
    spec: Spec,
) -> tuple[Any, ...] | None:
    """Apply commands to a shard of this worker, and return the sums of the last one.

    ``rebuild`` builds the shard, whether it is there or not. Returns None if the shard is lost.
    """
    if rebuild:
        keep_memory()
        blocks = rows.arranged(spec.inputs, spec.constants).blocks(spec.plan, spec.bases)
        built = Shard(blocks.executor(spec.n_modes, spec.network), sums)
        with _lock:
            _shards[key] = built
    shard = _shards.get(key)
    if shard is None or shard.sums != sums:
        return None
    with limited_blas():
        for command in commands[:-1]:
            shard.executor.each(command)
        total = shard.executor.sum(commands[-1])
    shard.sums += 1
    return total


def forget(prefix: str) -> None:
    """Drop the shards of an executor from this worker."""
    with _lock:
        for key in [key for key in _shards if key.startswith(prefix)]:
            del _shards[key]


class DaskExecutor:
    """Sends commands to shards and adds up their sums, in the order of the rows."""

    recall: Callable[[], list[Command]]

    def __init__(self, client: Any, parts: Sequence[Any], spec: Any) -> None:
        self.client = client
        self.parts = parts  # futures of LocalRows
        self.spec = spec  # a future
        self.name = uuid.uuid4().hex
        self.pending: list[Command] = []
        self.sums = 0
        self.homes: list[str | None] = [None] * len(parts)
        self.to_build = set(range(len(parts)))

    def each(self, command: Command) -> None:
        """Keep a command, which is sent with the next sum."""
        self.pending.append(command)

    def sum(self, command: Command) -> tuple[Any, ...]:
        """Return the elementwise sum over the shards of the tuples that a command returns."""
        sums: dict[int, tuple[Any, ...]] = {}
        for _ in range(MOST_TRIES):
            missing = [i for i in range(len(self.parts)) if i not in sums]
            if not missing:
                break
            with connected(self.client):
                self._find_homes(missing)
                sums |= self._gather({i: self._send(i, command) for i in missing})
        else:
            raise RuntimeError(
                f"a sum over the rows failed {MOST_TRIES} times because the cluster lost "
                "workers; see their logs."
            )
        self.pending, self.sums = [], self.sums + 1
        nothing: tuple[Any, ...] = ()
        total = reduce(add, (sums[i] for i in range(len(self.parts))), nothing)
        return tuple(np.asarray(part) for part in total)

    def close(self) -> None:
        """Release the shards on the workers."""
        release([self.spec])
        with suppress(Exception):  # a cluster that is gone has nothing to forget
            self.client.run(forget, self.name)

    def _find_homes(self, missing: list[int]) -> None:
        """Choose a worker for every shard without one."""
        if not (workers := workers_of(self.client)):
            self.client.wait_for_workers(1)
            workers = workers_of(self.client)
        homeless = [i for i in missing if self.homes[i] not in workers]
        if not homeless:
            return
        holders = self.client.who_has([self.parts[i] for i in homeless])
        for i in homeless:
            self.homes[i] = None
            self.to_build.add(i)
            near = [w for w in holders.get(self.parts[i].key, ()) if w in workers] or workers
            self.homes[i] = min(near, key=lambda w: sum(home == w for home in self.homes))

    def _send(self, i: int, command: Command) -> Any:
        commands, rebuild = [*self.pending, command], i in self.to_build
        if rebuild and self.sums:
            commands = [*self.recall(), command]
        return self.client.submit(
            work,
            f"{self.name}-{i}",
            self.sums,
            commands,
            rebuild,
            self.parts[i],
            self.spec,
            workers=[self.homes[i]],
            pure=False,
        )

    def _gather(self, futures: dict[int, Any]) -> dict[int, tuple[Any, ...]]:
        """Return the sums of the shards, and note which shards are lost."""
        import distributed

        waiting = dict(futures)
        try:
            while any(not future.done() for future in waiting.values()):
                with suppress(TimeoutError):
                    distributed.wait(list(waiting.values()), timeout=LOOK_SECONDS)  # type: ignore[no-untyped-call]
                    break
                workers = workers_of(self.client)
                for i in [i for i in waiting if self.homes[i] not in workers]:
                    waiting.pop(i).cancel()
            finished = [i for i, future in waiting.items() if future.status == "finished"]
            for future in waiting.values():
                if future.status == "error" and not _is_loss(future.exception()):
                    raise future.exception()
            results = self.client.gather([waiting[i] for i in finished])
        finally:
            release(futures.values())
        sums = {i: a for i, a in zip(finished, results, strict=True) if a is not None}
        self.to_build |= set(futures)
        self.to_build -= set(sums)
        return sums


def release(futures: Iterable[Any]) -> None:
    """Release tasks now.

    A client keeps the error of a task as long as its future exists, and the error keeps the frames
    it went through, which hold the future: this cycle would never be freed.
    """
    for future in futures:
        future.release()


@contextmanager
def connected(client: Any) -> Iterator[None]:
    """Raise an error that explains it if the cluster or its client is closed meanwhile."""
    try:
        yield
    except Exception as error:
        lost = type(error).__name__ in ("RPCClosed", "CommClosedError")
        if not lost and client.status == "running":
            raise
        raise RuntimeError(
            "the Dask cluster or its client was closed or lost during the fit; start another and "
            "fit again: a fit with a checkpoint resumes."
        ) from error


def workers_of(client: Any) -> list[str]:
    """Return the addresses of the workers."""
    return list(client.scheduler_info(n_workers=-1)["workers"])


def _is_loss(error: BaseException) -> bool:
    """Return whether a task failed because workers were lost."""
    return type(error).__name__ in ("KilledWorker", "FutureCancelledError", "CancelledError")


@dataclass(frozen=True)
class DaskRows:
    """Rows on the workers, with the interface of ``LocalRows``.

    Attributes
    ----------
    client : distributed.Client
    parts : list of Future
        ``LocalRows`` of each partition, coordinates in every column.
    sizes : list of int
        The rows of each.
    sums : Data
        What the engine needs to know of the targets.
    """

    client: Any
    parts: Sequence[Any]
    sizes: Sequence[int]
    sums: Data
    inputs: Sequence[int] = ()
    constants: int = 0
    spilled: ClassVar[bool] = False
    on_device: ClassVar[bool] = False
    elsewhere: ClassVar[bool] = True
    number_bytes: ClassVar[int] = 8
    usual_memory: ClassVar[float] = USUAL_MEMORY

    @property
    def n(self) -> int:
        """The number of rows."""
        return sum(self.sizes)

    @property
    def n_here(self) -> int:
        """The most rows that one process is likely to have."""
        shards = -(-len(self.parts) // max(len(workers_of(self.client)), 1))
        return sum(sorted(self.sizes)[-shards:])

    def data(self) -> Data:
        """Return what the engine needs to know of the targets."""
        return self.sums

    def arranged(self, inputs: Sequence[int], constants: int) -> DaskRows:
        """Return the rows with some columns as modes, after a number of constant ones."""
        return replace(self, inputs=list(inputs), constants=constants)

    def beside(self, rows: LocalRows) -> LocalRows:
        """Return other rows of this process as they are: so few are not worth round trips."""
        return rows

    def blocks(self, plan: MemoryPlan, bases: Sequence[Any]) -> DaskBlocks:
        """Return what makes executors."""
        return DaskBlocks(self, plan, bases)


@dataclass(frozen=True)
class DaskBlocks:
    """Blocks of rows on the workers, with the interface of ``LocalBlocks``."""

    rows: DaskRows
    plan: MemoryPlan
    bases: Sequence[Any]

    def executor(
        self, n_modes: int, network: Network | None = None, threads: Threads | None = None
    ) -> DaskExecutor:
        """Return an executor with shards of its own."""
        rows = self.rows
        spec = Spec(list(rows.inputs), rows.constants, self.plan, self.bases, n_modes, network)
        # a task, not scattered data: what is lost with a worker can be made again
        future = rows.client.submit(itself, spec, pure=False)
        return DaskExecutor(rows.client, rows.parts, future)


def itself(value: Any) -> Any:
    """Return the value, which is then on the workers."""
    return value
