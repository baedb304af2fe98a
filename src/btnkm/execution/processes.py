"""Worker processes that take starts off this process's hands.

The starts of a small fit are thousands of short operations; in threads they would spend their time
passing the interpreter lock to and fro. Processes share a folder, the board: a start is claimed by
creating its file, which then tells every sweep of it and at last its posterior; a file named "stop"
ends them all. Whatever goes wrong with a helper (killed, no memory, work that cannot be pickled),
the starts it leaves undone are done here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from ..core.schedule import Progress
from ..core.state import State
from .restarts import Observer, Start, limit_blas, run_starts

WORTH_HELPERS = 1.0  # seconds of work left, below which no process is started
IDLE_SECONDS = 60  # after which a helper without work ends
NEWS_SECONDS = 0.05  # between looks at what helpers tell
_SIZE = 8  # bytes before each record that say how long it is


class Work(Protocol):
    """Starts that can be run anywhere."""

    def run(self, k: int) -> Iterator[Progress]:
        """Return the sweeps of start k."""


class Board:
    """The folder through which processes share out the starts.

    Parameters
    ----------
    folder : str
    n_starts : int
    """

    def __init__(self, folder: str, n_starts: int) -> None:
        self.folder = Path(folder)
        self.n_starts = n_starts
        self.home = os.getpid()

    def claim(self) -> int | None:
        """Take the next start nobody has, or None if there is none or all is over."""
        if self.stopped:
            return None
        for k in range(self.n_starts):
            try:
                self.log(k).touch(exist_ok=False)
            except FileExistsError:
                continue
            except FileNotFoundError:  # the fit is over and has cleared its folder away
                return None
            return k
        return None

    def log(self, k: int) -> Path:
        """Return the file that tells of start k."""
        return self.folder / str(k)

    def stop(self) -> None:
        """Ask everyone to end after the sweep they are in."""
        (self.folder / "stop").touch()

    @property
    def stopped(self) -> bool:
        """Whether someone asked to end, or the fit is over, or its process is gone."""
        return (self.folder / "stop").exists() or not self.folder.exists() or self.orphaned

    @property
    def orphaned(self) -> bool:
        """Whether this is a helper whose fit was killed; only POSIX can tell."""
        return os.name == "posix" and self.home not in (os.getpid(), os.getppid())


class Ended(NamedTuple):
    """The last record of a start: its posterior, and how it ended."""

    state: State
    reason: str


def write(log: BinaryIO, record: Any) -> None:
    """Append a record; it counts once it is there whole."""
    body = pickle.dumps(record)
    log.write(len(body).to_bytes(_SIZE) + body)


class Follower:
    """Reads what helpers tell of their starts."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.read = dict.fromkeys(range(board.n_starts), 0)

    def news(self, k: int) -> Iterator[Progress | Warning | Ended]:
        """Yield the records of start k that were not seen yet."""
        with self.board.log(k).open("rb") as file:
            file.seek(self.read[k])
            while len(head := file.read(_SIZE)) == _SIZE:
                size = int.from_bytes(head)
                record = file.read(size)
                if len(record) < size:
                    return
                self.read[k] += _SIZE + size
                yield pickle.loads(record)


def help_out(work: Work, board: Board) -> None:
    """Run starts in a helper process until none is left, telling of them on the board."""
    with limit_blas(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # whose process it is decides what becomes of them
        while (k := board.claim()) is not None:
            with board.log(k).open("ab", buffering=0) as log:
                reason, start = "finished", Start()
                for progress in work.run(k):
                    start.add(progress)
                    write(log, replace(progress, state=None, pause=None))
                    for warning in caught:
                        write(log, warning.message)
                    caught.clear()
                    if board.stopped:
                        reason = "stopped"
                        break
                write(log, Ended(start.state, reason))
    if board.orphaned:  # there is nobody left to hear of it, or to tidy up
        shutil.rmtree(board.folder, ignore_errors=True)
        os._exit(1)


def run_with_helpers(
    work: Work, n_starts: int, n_helpers: int, observe: Observer
) -> tuple[list[Start], bool]:
    """Drive every start to its end here and in helpers; see ``starts.run_starts``.

    Helpers come in at once where they wait from an earlier fit, or else as soon as the first start
    has taken so long that the rest is worth their while.
    """
    try:
        temporary = tempfile.TemporaryDirectory(prefix="btnkm-", ignore_cleanup_errors=True)
    except OSError:  # nowhere to put the board
        return run_starts(work.run, n_starts, 1, observe)
    starts = [Start() for _ in range(n_starts)]
    mine: set[int] = set()
    futures: list[Future[None]] = []
    begin = heard = time.perf_counter()
    called = interrupted = False
    with temporary as folder:
        board = Board(folder, n_starts)
        follower = Follower(board)

        def follow() -> None:
            nonlocal heard
            heard = time.perf_counter()
            for k in range(n_starts):
                if k in mine or starts[k].stop_reason or not board.log(k).exists():
                    continue
                for record in follower.news(k):
                    if isinstance(record, Ended):
                        starts[k].finish(*record)
                    elif isinstance(record, Warning):
                        warnings.warn(record, stacklevel=2)
                    else:
                        tell(k, record)

        def tell(k: int, progress: Progress) -> None:
            starts[k].add(progress)
            if observe(k, progress):
                board.stop()

        def drive(k: int) -> None:
            mine.add(k)
            for progress in work.run(k):
                tell(k, progress)
                call()
                if time.perf_counter() - heard > NEWS_SECONDS:
                    follow()
                if board.stopped:
                    starts[k].stop_reason = "stopped"
                    return
            starts[k].end()

        def call() -> None:
            nonlocal called
            if called or len(mine) > 1:
                return
            spent = time.perf_counter() - begin
            if _waiting() or spent * (n_starts - 1) > WORTH_HELPERS:
                called = True
                futures.extend(_call(min(n_helpers, n_starts - 1), work, board))

        def collect() -> None:
            while wait(futures, timeout=0.1).not_done:
                follow()
            follow()
            _rest()

        try:
            while (k := board.claim()) is not None:
                drive(k)
            if len(mine) < n_starts:
                collect()
            for k in range(n_starts):
                if not starts[k].stop_reason and not board.stopped:  # a helper failed
                    starts[k] = Start()
                    drive(k)
        except KeyboardInterrupt:
            interrupted = True
            board.stop()
            collect()
        finally:
            board.stop()
    return starts, interrupted


@dataclass
class _Pool:
    """The helpers of one process, whether at work or waiting for it."""

    executor: Any
    size: int
    process: int
    last_used: float  # of the monotonic clock

    @property
    def usable(self) -> bool:
        """Whether helpers can be called: a fork has none of its own, and one death breaks all."""
        return self.process == os.getpid() and self.executor._flags.broken is None


_pool: _Pool | None = None
_pool_lock = threading.Lock()


def _waiting() -> bool:
    """Tell whether helpers of an earlier fit are there still."""
    pool = _pool
    if pool is None or not pool.usable:
        return False
    return time.monotonic() - pool.last_used < 0.9 * IDLE_SECONDS


def _rest() -> None:
    """Note that the helpers have nothing to do from now on."""
    if _pool is not None:
        _pool.last_used = time.monotonic()


def _call(n_helpers: int, work: Work, board: Board) -> list[Future[None]]:
    """Put helpers to work; none where no process can be started."""
    global _pool
    with _pool_lock:
        try:
            if _pool is None or not _pool.usable or _pool.size < n_helpers:
                # joblib comes with scikit-learn; its processes need no guard in the user's script
                # and do not inherit threads or locks, as forked ones would
                from joblib.externals.loky.process_executor import ProcessPoolExecutor

                executor = ProcessPoolExecutor(
                    n_helpers, timeout=IDLE_SECONDS, initializer=_ignore_ctrl_c
                )
                _pool = _Pool(executor, n_helpers, os.getpid(), 0.0)
            _rest()
            with _ctrl_c_held():
                return [_pool.executor.submit(help_out, work, board) for _ in range(n_helpers)]
        except Exception:  # no joblib of that kind, a daemon, a sandbox without semaphores
            _pool = None
            return []


def _ignore_ctrl_c() -> None:
    """Leave Ctrl-C, which a terminal sends to helpers too, to the process that can tell them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Hold Ctrl-C back meanwhile: processes started now are deaf to it from their first moment."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
