"""Rows in this process: blocks of rows, their features, sums over them, and a memory limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from threading import Lock
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array, is_torch_array

from ..core.arrays import host, like, wide
from ..core.cavi import Data
from ..core.cp import CP
from ..core.network import Environments, Footprint, Network
from ..core.row_block import Chunk, averages
from ..core.sweeper import Command, Executor
from .memory import Spilled, give_back_memory

Array = Any
GIB = 2**30
SINGLE_ROUNDING = 2.0**-20  # of sums of products in single precision, relative to their size
USUAL_MEMORY = 1.4  # GiB that a fit may take
MANY_ROWS = 65_536  # from which freed memory is returned to the system
SHARE_OF_DEVICE = 0.9  # of the free memory of a device


class Threads(ThreadPoolExecutor):
    """A pool of threads that knows how many it has."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class LocalExecutor:
    """Applies a function to every block of rows and adds up what it returns, in row order.

    Parameters
    ----------
    chunks : sequence of Chunk
    threads : Threads or None
        In which blocks run in parallel; the order of summation stays the same.
    """

    recall: Callable[[], list[Command]]  # never called: blocks in this process are not lost

    def __init__(self, chunks: Sequence[Chunk], threads: Threads | None = None) -> None:
        self.chunks = chunks
        self.threads = threads

    def sum(self, command: Command) -> tuple[Array, ...]:
        """Return the elementwise sum over blocks of the tuples that a command returns."""
        if self.threads is not None:
            return self._parallel_sum(command)
        nothing: tuple[Array, ...] = ()
        return tuple(host(part) for part in reduce(add, map(command, self.chunks), nothing))

    def _parallel_sum(self, command: Command) -> tuple[Array, ...]:
        """Return the sum, with one task per thread, and few blocks' sums held at a time."""
        assert self.threads is not None
        waiting = deque(range(len(self.chunks)))  # a free thread takes the next block
        done: dict[int, tuple[Array, ...]] = {}  # sums that wait for earlier blocks
        total: list[tuple[Array, ...]] = []
        added, lock = 0, Lock()

        def work(_: int) -> None:
            nonlocal added
            while waiting:
                try:
                    i = waiting.popleft()
                except IndexError:  # another thread was quicker
                    return
                part = command(self.chunks[i])
                with lock:
                    done[i] = part
                    while added in done:  # in row order, for the same rounding
                        part = done.pop(added)
                        total[:] = [add(total[0] if total else (), part)]
                        added += 1

        list(self.threads.map(work, range(self.threads.count)))
        return tuple(host(part) for part in total[0])

    def each(self, command: Command) -> None:
        """Apply a command to every block, at once."""
        for chunk in self.chunks:
            command(chunk)

    def close(self) -> None:
        """Release the blocks, which are in a reference cycle with the sweeper and this executor."""
        many = sum(chunk.y.shape[0] for chunk in self.chunks) > MANY_ROWS
        for chunk in self.chunks:
            chunk.environments.times = None
        self.chunks = ()
        if many:
            give_back_memory()


def add(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return the elementwise sums of two tuples in double precision; the first may be empty."""
    b = tuple(wide(part) for part in b)
    return tuple(x + y for x, y in zip(a, b, strict=True)) if a else b


@dataclass(frozen=True)
class MemoryPlan:
    """What is kept in memory and what is recomputed, to stay below a limit.

    The blocks do not depend on the limit, so results are the same to the last bit, unless the limit
    is so low that the blocks themselves must shrink.
    """

    block_rows: int
    keep_features: bool
    stride: int  # of the environments (see core/network.py)
    n_parallel: int  # restarts that run in parallel
    n_bytes: int  # estimate of the peak, beyond the input
    keep_latest: bool = False  # whether the features of one mode are kept: see Latest


def make_plan(
    n: int,
    sizes: Sequence[tuple[int, int]],
    footprint: Footprint,
    n_restarts: int,
    n_threads: int,
    limit_gib: float,
    per_row: int = 0,
    *,
    spilled: bool = False,
    on_device: bool = False,
    number_bytes: int = 8,
    n_features: int | None = None,
) -> MemoryPlan:
    """Choose what to keep in memory, as much as fits below the limit.

    ``limit_gib`` is the limit in GiB; the other parameters are the fields of ``_Need``.
    """
    need = _Need(
        *(n, sizes, footprint, n_restarts, n_threads, per_row),
        *(spilled, on_device, number_bytes, n_features),
    )
    # all features, those of the latest mode, or none; without products all modes are needed
    kinds = ((True, False), (False, True), (False, False))
    choices = [(s, *kind) for s in need.strides for kind in kinds if s or not kind[1]]
    for block_rows in (need.block_rows, 256, 64):
        for stride, keep, latest in choices:
            for parallel in range(min(n_restarts, n_threads), 0, -1):
                size = need.n_bytes(parallel, block_rows, stride, keep, latest)
                if size <= limit_gib * GIB:
                    return MemoryPlan(block_rows, keep, stride, parallel, size, latest)
    least = need.n_bytes(1, 64, 0, False, False) / GIB
    raise MemoryError(
        f"memory_limit must be at least {least:.3g} GiB for {n:,} rows, {len(sizes)} inputs and "
        f"{max(footprint.columns)} columns of weights each, got {limit_gib:g}; raise it, or lower "
        "max_rank, n_basis or n_init."
    )


@dataclass(frozen=True)
class _Need:
    """What the memory of a fit depends on."""

    n: int  # rows
    sizes: Sequence[tuple[int, int]]  # functions and product functions of each mode
    footprint: Footprint  # what the network needs at its highest rank
    n_restarts: int
    n_threads: int  # that may run restarts, or blocks of rows, in parallel
    per_row: int  # numbers that the likelihood keeps for every row
    spilled: bool  # whether coordinates are in files
    on_device: bool  # whether rows are on a device, where blocks should be large
    number_bytes: int
    n_features: (
        int | None
    )  # numbers of a row in the features of all modes, by default M + K of each

    @property
    def widest(self) -> int:
        """The most features of a mode."""
        return max(k + m for m, k in self.sizes)

    @property
    def block_rows(self) -> int:
        """The rows of a block, which fit into a processor's cache; blocks have equal size."""
        width = self.footprint.block + self.widest
        rows = 2**27 // width if self.on_device else int(np.clip(2**19 // width, 256, 8192))
        return -(-self.n // -(-self.n // rows))

    @property
    def products(self) -> dict[int, int]:
        """The products of modes held at a time, by the stride of the environments."""
        modes = len(self.sizes) + (not self.on_device)  # with the outputs; devices have room
        root = max(2, round(modes**0.5))
        # a side grows as the other is used up
        of_root = 2 * root - (-modes // root) + 3
        return {1: modes + (1 if self.on_device else 2), root: of_root, 0: 0}

    @property
    def strides(self) -> list[int]:
        """The strides to choose from, the fastest first."""
        return [s for s, held in self.products.items() if s < 2 or held < self.products[1]]

    def n_bytes(self, parallel: int, rows: int, stride: int, keep: bool, latest: bool) -> int:
        """Return the bytes of a plan."""
        n, sizes, footprint, widest = self.n, self.sizes, self.footprint, self.widest
        # the columns of the input may be copies, too
        coordinates = n * (4 if self.spilled else 2 * len(sizes) + 4)
        per_row = sum(k + m for m, k in sizes) if self.n_features is None else self.n_features
        covariances = sum((m * c) ** 2 for (m, _), c in zip(sizes, footprint.columns, strict=True))
        block = max((m * footprint.widest) ** 2 for m, _ in sizes)
        scratch = self.n_threads * min(rows, n) * (footprint.passing + 2 * widest)
        # a running restart holds its covariances, those before over-relaxation, a scaled copy, and
        # the block that it solves
        working = 3 * covariances + 8 * block + n * self.per_row
        working += n * footprint.kept * self.products[stride]
        working += n * widest if latest else 0
        kept = coordinates + self.n_restarts * covariances + (n * per_row if keep else 0)
        return int(self.number_bytes * (kept + scratch + parallel * working))


@dataclass(frozen=True)
class LocalRows:
    """Rows in this process: coordinates in each column, targets and sample weights.

    Attributes
    ----------
    codes : sequence of array of shape (n,)
        NumPy arrays, arrays of another library, or ``Spilled``.
    y : array of shape (n,), or (n, 2)
        Targets; with exposures, counts and the logarithms of their exposures.
    weight : array of shape (n,) or None
        None where all are 1.
    """

    codes: Sequence[Any]
    y: Array
    weight: Array | None

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.y.shape[0])

    @property
    def spilled(self) -> bool:
        """Whether coordinates are in files."""
        return any(isinstance(code, Spilled) for code in self.codes)

    @property
    def on_device(self) -> bool:
        """Whether rows are arrays of another library than NumPy."""
        return not is_numpy_array(self.y)

    @property
    def elsewhere(self) -> bool:
        """Whether the work on the rows is done outside this process's threads."""
        return self.on_device

    @property
    def n_here(self) -> int:
        """The number of rows in one process."""
        return self.n

    @property
    def usual_memory(self) -> float:
        """The default memory limit in GiB: on a device, most of what is free there."""
        if is_torch_array(self.y) and self.y.is_cuda:
            import torch

            device = self.y.device
            free = float(torch.cuda.mem_get_info(device)[0])
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            return float(SHARE_OF_DEVICE * free / GIB)
        if hasattr(self.y, "__cuda_array_interface__"):  # CuPy
            return SHARE_OF_DEVICE * float(self.y.device.mem_info[0]) / GIB
        return USUAL_MEMORY

    @property
    def number_bytes(self) -> int:
        """The bytes of a number."""
        return int(self.y.dtype.itemsize) if hasattr(self.y.dtype, "itemsize") else 8

    @property
    def weights(self) -> Array:
        """The sample weights; ones where there are none."""
        if self.weight is None:
            return array_namespace(self.y).ones_like(self.targets)
        return self.weight

    @property
    def targets(self) -> Array:
        """The targets without exposures: (n,)."""
        return self.y if self.y.ndim == 1 else self.y[:, 0]

    def data(self) -> Data:
        """Return what the engine needs to know of the targets."""
        xp, weight = array_namespace(self.y), wide(self.weights)
        rounding = 0.0 if self.number_bytes >= 8 else float(SINGLE_ROUNDING)
        return Data(float(xp.sum(weight)), float(weight @ wide(self.targets) ** 2), rounding)

    def take(self, rows: Any) -> LocalRows:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return LocalRows([code[rows] for code in self.codes], self.y[rows], weight)

    def arranged(self, inputs: Sequence[int], constants: int) -> LocalRows:
        """Return the rows with some columns as modes, after a number of constant ones."""
        if not constants:
            return LocalRows([self.codes[j] for j in inputs], self.y, self.weight)
        zeros: Any = np.broadcast_to(0.0, self.n)
        if self.on_device:
            zeros = array_namespace(self.y).zeros_like(self.targets)
        codes = [zeros] * constants + [self.codes[j] for j in inputs]
        return LocalRows(codes, self.y, self.weight)

    def beside(self, rows: LocalRows) -> LocalRows:
        """Return other rows of this process, moved to where these are."""
        if not self.on_device:
            return rows
        weight = None if rows.weight is None else like(rows.weight, self.y)
        return LocalRows([like(code, self.y) for code in rows.codes], like(rows.y, self.y), weight)

    def blocks(self, plan: MemoryPlan, bases: Sequence[Any]) -> LocalBlocks:
        """Cut the rows into blocks, evaluating the features now if the plan keeps them."""
        chunks = make_chunks(plan, bases, self.codes, self.y, self.weight)
        return LocalBlocks(chunks, plan.stride)


@dataclass(frozen=True)
class LocalBlocks:
    """Blocks of rows that restarts share: targets, weights and features."""

    chunks: list[Chunk]
    stride: int  # of the environments

    def executor(
        self, n_modes: int, network: Network | None = None, threads: Threads | None = None
    ) -> LocalExecutor:
        """Return an executor whose blocks have environments of their own."""
        chunks = share_chunks(self.chunks, n_modes, self.stride, network)
        return LocalExecutor(chunks, threads)


def make_chunks(
    plan: MemoryPlan,
    bases: Sequence[Any],
    codes: Sequence[np.ndarray],
    y: np.ndarray,
    weight: np.ndarray | None,
) -> list[Chunk]:
    """Cut the rows into blocks, evaluating the features now if the plan keeps them.

    ``bases`` are fitted, one per mode, and ``codes`` are the coordinates of the rows in each.
    """
    chunks = []
    n = int(y.shape[0])
    for start in range(0, n, plan.block_rows):
        rows = slice(start, min(start + plan.block_rows, n))
        of: Callable[[int], tuple[Array, Array]] = partial(_features, bases, codes, rows)
        if plan.keep_features:
            of = [of(d) for d in range(len(bases))].__getitem__
        elif plan.keep_latest:
            of = Latest(of)
        part = None if weight is None else weight[rows]
        environments = Environments(len(bases), stride=plan.stride, network=CP())
        chunks.append(Chunk(of, y[rows], part, environments))
    return chunks


class Latest:
    """Keeps the features of the mode used last, which is used again once it is solved."""

    def __init__(self, of: Callable[[int], tuple[Array, Array]]) -> None:
        self.of = of
        self.mode: int | None = None

    def __call__(self, d: int) -> tuple[Array, Array]:
        """Return the features of mode d."""
        if d != self.mode:
            self.features = self.of(d)
            self.mode = d
        return self.features


def _features(
    bases: Sequence[Any], codes: Sequence[np.ndarray], rows: slice, d: int
) -> tuple[Array, Array]:
    features: tuple[Array, Array] = bases[d].features(codes[d][rows])
    return features


def share_chunks(
    chunks: Sequence[Chunk], n_modes: int, stride: int, network: Network | None = None
) -> list[Chunk]:
    """Return blocks with the same rows and features, and environments of their own."""

    def environments() -> Environments:
        return Environments(n_modes, stride=stride, network=network or CP())

    def features(of: Callable[[int], tuple[Array, Array]]) -> Callable[[int], tuple[Array, Array]]:
        return Latest(of.of) if isinstance(of, Latest) else of

    return [Chunk(features(c.features), c.y, c.weight, environments()) for c in chunks]


def feature_sums(executor: Executor, n_modes: int) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return the weighted sums over rows of each mode's phi (M,) and psi (K,)."""
    sums = executor.sum(partial(averages, n_modes=n_modes))
    return tuple(zip(sums[::2], sums[1::2], strict=True))
