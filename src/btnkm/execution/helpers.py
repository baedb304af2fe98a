"""Worker processes that take starts off this process's hands.

The starts of a small fit are thousands of short operations; in threads they would spend their time
passing the interpreter lock to and fro. Processes share a folder, the board: a start is claimed by
creating its file, which then tells every sweep of it, and a file named "stop" ends them all.
Whatever goes wrong with a helper (killed, no memory, work that cannot be pickled), the starts it
leaves undone are done here.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ..core.schedule import Progress
from ..core.state import State
from .starts import Observer, Start, limit_blas

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


class Follower:
    """Reads what helpers tell of their starts."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.read = dict.fromkeys(range(board.n_starts), 0)

    def news(self, k: int) -> Iterator[Progress]:
        """Yield the sweeps of start k that were not seen yet."""
        with self.board.log(k).open("rb") as file:
            file.seek(self.read[k])
            while len(head := file.read(_SIZE)) == _SIZE:
                size = int.from_bytes(head)
                record = file.read(size)
                if len(record) < size:
                    return
                self.read[k] += _SIZE + size
                yield pickle.loads(record)


def help_out(work: Work, board: Board) -> dict[int, tuple[State, str]]:
    """Run starts in a helper process until none is left; return their states, how they ended."""
    done = {}
    with _deaf_to_ctrl_c(), limit_blas():
        while (k := board.claim()) is not None:
            reason = "finished"
            with board.log(k).open("ab", buffering=0) as log:
                for progress in work.run(k):
                    record = pickle.dumps(replace(progress, state=None))
                    log.write(len(record).to_bytes(_SIZE) + record)
                    if board.stopped:
                        reason = "stopped"
                        break
            assert progress.state is not None
            done[k] = progress.state, reason
    if board.orphaned:
        os._exit(1)  # there is nobody left to hear of it
    return done


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Leave Ctrl-C, which a terminal sends to helpers too, to the process that can tell them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_with_helpers(
    work: Work, n_starts: int, n_helpers: int, observe: Observer
) -> tuple[list[Start], bool]:
    """Drive every start to its end here and in helpers; see ``starts.run_starts``.

    Helpers come in at once where they wait from an earlier fit, or else as soon as the first start
    has taken so long that the rest is worth their while.
    """
    starts = [Start() for _ in range(n_starts)]
    mine: set[int] = set()
    futures: list[Future[Any]] = []
    begin = heard = time.perf_counter()
    called = interrupted = False
    with tempfile.TemporaryDirectory(prefix="btnkm-", ignore_cleanup_errors=True) as folder:
        board = Board(folder, n_starts)
        follower = Follower(board)

        def follow() -> None:
            nonlocal heard
            heard = time.perf_counter()
            for k in range(n_starts):
                if k not in mine and board.log(k).exists():
                    for progress in follower.news(k):
                        tell(k, progress)

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
            starts[k].stop_reason = "finished"

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
            for future in futures:
                if future.exception() is None:
                    for k, (state, reason) in future.result().items():
                        starts[k].finish(state, reason)

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


_pool: tuple[int, Any] | None = None  # the process it belongs to, and the executor
_last_called = -math.inf  # seconds of the monotonic clock
_pool_lock = threading.Lock()


def _waiting() -> bool:
    """Tell whether helpers of an earlier fit are there still."""
    mine = _pool is not None and _pool[0] == os.getpid()
    return mine and time.monotonic() - _last_called < 0.9 * IDLE_SECONDS


def _call(n_helpers: int, work: Work, board: Board) -> list[Future[Any]]:
    """Put helpers to work; none where no process can be started."""
    global _pool, _last_called
    # joblib comes with scikit-learn; its processes need no guard in the user's script and do not
    # inherit threads or locks, as forked ones would
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    with _pool_lock:
        try:
            pool = _pool[1] if _pool is not None and _pool[0] == os.getpid() else None
            if pool is None or pool._flags.broken is not None or pool._max_workers < n_helpers:
                pool = ProcessPoolExecutor(n_helpers, timeout=IDLE_SECONDS)
                _pool = os.getpid(), pool
            _last_called = time.monotonic()
            return [pool.submit(help_out, work, board) for _ in range(n_helpers)]
        except Exception:  # a daemon may not have children, a sandbox may lack semaphores
            _pool = None
            return []
