"""Helper processes that share the restarts of a small fit with this one.

The restarts of a small fit are thousands of short operations; threads would spend their time
passing the interpreter lock to and fro. Each helper is a process pool of one worker, so that what
it has begun stays with it: a task runs the sweeps of a restart for a moment and returns what there
is to report. Two tasks are always under way, so that no helper waits for this process. Whatever
goes wrong with a helper (it is killed, has no memory, cannot receive the work), the restarts that
it leaves unfinished are run here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from ..core.schedule import Progress
from ..core.state import State
from ..warn import warn
from .restarts import WORTH_HELPERS, Observer, Restart, limit_blas

IDLE_SECONDS = 60  # after which a helper without work ends
SLICE_SECONDS = 0.05  # that a task takes, or a sweep if that is longer
ORPHAN_SECONDS = 1.0  # between looks at whether a helper's parent is still there


class Work(Protocol):
    """Restarts that can be run in any process."""

    def run(self, k: int) -> Iterator[Progress]:
        """Return the sweeps of restart k."""


class HelperFailed(Exception):
    """A helper was killed, or its task failed."""


class Slice(NamedTuple):
    """What a task returns: sweeps without their states, and warnings."""

    sweeps: list[Progress]
    warnings: list[Warning | str]
    state: State | None = None  # of the last sweep, once there is no other
    ended: bool = False


class _Worker:
    """What a helper process has at hand; its methods run there, as tasks."""

    def __init__(self) -> None:
        self.receive(None)

    def receive(self, work: Any) -> None:
        """Take the work of a fit, or let go of it."""
        self.work = work
        self.sweeps: Iterator[Progress] = iter(())
        self.restart = Restart()

    def begin(self, k: int) -> Slice:
        """Run the first sweeps of restart k."""
        self.sweeps, self.restart = self.work.run(k), Restart()
        return self.advance()

    def advance(self) -> Slice:
        """Run more sweeps of the restart, for a moment."""
        self._check()
        sweeps, end = [], time.perf_counter() + SLICE_SECONDS
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")  # the filters of the parent decide
            for progress in self.sweeps:
                self.restart.add(progress)
                sweeps.append(replace(progress, state=None, pause=None))
                if time.perf_counter() > end:
                    return Slice(sweeps, [w.message for w in caught])
        return Slice(sweeps, [w.message for w in caught], self._state(), ended=True)

    def halt(self) -> Slice:
        """Return the state that the restart has reached."""
        self._check()
        return Slice([], [], self._state())

    def _check(self) -> None:
        """Raise a LookupError in a process that has replaced one that ended in mid-work."""
        if self.work is None:
            raise LookupError("this process has no work")

    def _state(self) -> State | None:
        return self.restart.state if self.restart.sweeps else None


_worker = _Worker()


def _task(name: str, *args: Any) -> Any:
    return getattr(_worker, name)(*args)


def _initialize(parent: int) -> None:
    """Set up a helper process."""
    # a terminal sends Ctrl-C to helpers as well; the parent tells them to stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_blas()  # for good

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    if os.name == "posix":  # elsewhere the number of a parent that is gone does not change
        threading.Thread(target=watch, daemon=True).start()


class Helper:
    """A helper process, which runs one restart at a time."""

    def __init__(self) -> None:
        # joblib comes with scikit-learn; its processes need no guard in the user's script and
        # do not inherit threads or locks, as forked ones would
        from joblib.externals.loky.process_executor import ProcessPoolExecutor

        self.parent = os.getpid()
        self.last_used = time.monotonic()
        self.executor = ProcessPoolExecutor(
            1, timeout=IDLE_SECONDS, initializer=_initialize, initargs=(self.parent,)
        )
        self.k: int | None = None  # the restart at work
        self.tasks: deque[Future[Slice]] = deque()

    @property
    def usable(self) -> bool:
        """Whether this process has started the helper, not one it was forked from, and it lives."""
        return self.parent == os.getpid() and self.executor._flags.broken is None

    @property
    def waiting(self) -> bool:
        """Whether the process is likely to be there still."""
        return self.usable and time.monotonic() - self.last_used < 0.9 * IDLE_SECONDS

    def submit(self, name: str, *args: Any) -> Future[Any]:
        """Queue a method of the worker as a task."""
        with _ctrl_c_held():  # this may start the process
            try:
                future: Future[Any] = self.executor.submit(_task, name, *args)
            except Exception as error:
                raise HelperFailed from error
            return future

    def begin(self, k: int) -> None:
        """Let the helper run restart k."""
        self.k = k
        self.tasks.extend((self.submit("begin", k), self.submit("advance")))

    def results(self) -> Iterator[Slice]:
        """Yield what has come back, and keep two tasks under way until the restart has ended.

        A result that an interrupt keeps from being used stays the first one.
        """
        while self.tasks and self.tasks[0].done():
            result = _result(self.tasks[0])
            yield result
            with _ctrl_c_held():
                self.tasks.popleft()
                if result.ended:
                    self.tasks.clear()
                else:
                    self.tasks.append(self.submit("advance"))

    def halt(self) -> Iterator[Slice]:
        """Yield what is still under way, and at last the state of the restart."""
        tasks = [*self.tasks, self.submit("halt")]
        self.tasks.clear()
        for task in tasks:
            result = _result(task)
            yield result
            if result.ended:
                return

    def rest(self) -> None:
        """Let go of the work, and wait for that of another fit."""
        self.k, self.last_used = None, time.monotonic()
        self.tasks.clear()
        with contextlib.suppress(HelperFailed):
            self.submit("receive", None)
            _idle.append(self)


_idle: list[Helper] = []  # helpers of earlier fits


def _result(task: Future[Slice]) -> Slice:
    try:
        return task.result()
    except Exception as error:
        raise HelperFailed from error


def _call_helpers(count: int, work: Work) -> list[Helper]:
    """Return helpers that are about to receive the work; fewer where no process can be started."""
    helpers: list[Helper] = []
    with contextlib.suppress(Exception):  # no joblib of that kind, a daemon, a sandbox
        while len(helpers) < count:
            helper = _idle.pop() if _idle else Helper()
            if helper.usable:
                helper.submit("receive", work)
                helpers.append(helper)
    return helpers


def run_with_helpers(
    work: Work,
    n_restarts: int,
    n_helpers: int,
    observe: Observer,
    worth_helpers: float = WORTH_HELPERS,
) -> tuple[list[Restart], bool]:
    """Run every restart to its end here and in helpers; see ``restarts.run_restarts``.

    Helpers join at once where they are waiting from an earlier fit. Otherwise they are started as
    soon as the first restart has taken so long that more than ``worth_helpers`` seconds of work are
    left.
    """
    shared = _SharedRun(work, n_restarts, n_helpers, observe, worth_helpers)
    try:
        interrupted = shared.run()
    finally:
        for helper in shared.helpers:
            helper.rest()
    return shared.restarts, interrupted


class _SharedRun:
    """The restarts of one fit, of which this process runs some and its helpers the others."""

    def __init__(
        self, work: Work, n_restarts: int, n_helpers: int, observe: Observer, worth_helpers: float
    ) -> None:
        self.work, self.observe, self.worth_helpers = work, observe, worth_helpers
        self.n_helpers = min(n_helpers, n_restarts - 1)
        self.restarts = [Restart() for _ in range(n_restarts)]
        self.helpers: list[Helper] = []
        self.waiting = deque(range(n_restarts))
        self.failed: deque[int] = deque()  # restarts that helpers have not finished
        self.stopped = False
        self.may_call = n_restarts > 1
        self.began = time.perf_counter()

    def run(self) -> bool:
        """Run all restarts, and return whether the user interrupted."""
        try:
            while not self.stopped:
                if self.waiting or self.failed:
                    self._run_here((self.waiting or self.failed).popleft())
                    self.may_call = False
                elif any(helper.tasks for helper in self.helpers):
                    wait([helper.tasks[0] for helper in self.helpers if helper.tasks], 0.1)
                    self._follow()
                else:
                    return False
            self._halt()
        except KeyboardInterrupt:
            self._halt()
            return True
        return False

    def _run_here(self, k: int) -> None:
        for progress in self.work.run(k):
            self.restarts[k].add(progress)
            self.stopped |= bool(self.observe(k, progress))
            self._call_helpers()
            self._follow()
            if self.stopped:
                self.restarts[k].stop_reason = "stopped"
                return
        self.restarts[k].end()

    def _call_helpers(self) -> None:
        """Call helpers, once, if they are waiting or the work left is worth starting them."""
        seconds_left = (time.perf_counter() - self.began) * (len(self.restarts) - 1)
        if not self.may_call:
            return
        if seconds_left > self.worth_helpers or any(helper.waiting for helper in _idle):
            self.may_call = False
            self.helpers = _call_helpers(self.n_helpers, self.work)

    def _follow(self) -> None:
        """Take in what helpers have done, and give those that are free another restart."""
        for helper in list(self.helpers):
            with self._replacing(helper):
                for result in helper.results():
                    self._take(helper, result)
                if self.waiting and not helper.tasks and not self.stopped:
                    helper.begin(self.waiting.popleft())

    def _halt(self) -> None:
        """Stop the helpers, and take in what they have reached."""
        self.stopped = True
        for helper in list(self.helpers):
            if helper.tasks:
                with self._replacing(helper):
                    for result in helper.halt():
                        self._take(helper, result)

    def _take(self, helper: Helper, result: Slice) -> None:
        assert helper.k is not None
        while result.sweeps:
            with _ctrl_c_held():
                progress = result.sweeps.pop(0)
                self.restarts[helper.k].add(progress)
            self.stopped |= bool(self.observe(helper.k, progress))
        for warning in result.warnings:
            warn(warning)
        if result.state is not None and self.restarts[helper.k].sweeps:
            reason = "finished" if result.ended else "stopped"
            self.restarts[helper.k].finish(result.state, reason)

    @contextlib.contextmanager
    def _replacing(self, helper: Helper) -> Iterator[None]:
        """Part with a helper that fails; its restart is to be run here."""
        try:
            yield
        except HelperFailed:
            self.helpers.remove(helper)
            if helper.k is not None:
                self.restarts[helper.k] = Restart()
                self.failed.append(helper.k)


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Hold Ctrl-C back: processes that are started meanwhile ignore it from the beginning."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
