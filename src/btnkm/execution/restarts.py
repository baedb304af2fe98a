"""Several random restarts in parallel, with progress, callbacks and a clean way to stop."""

from __future__ import annotations

import numbers
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from ..core.schedule import Pause, Progress
from ..core.state import State

Observer = Callable[[int, Progress], bool | None]


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def n_threads(n_jobs: int | None) -> int:
    """Return the number of threads: ``n_jobs`` as in joblib, None for as many as BLAS would use."""
    cores = n_cores()
    if n_jobs is None:
        info = ThreadpoolController().select(user_api="blas").info()
        return int(max(1, min([cores, *(lib["num_threads"] for lib in info)])))
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be an integer other than 0, got {n_jobs!r}; use 1 for one thread, -1 for "
            "every core or None for the usual number."
        )
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))


def limit_blas() -> Any:
    """Limit BLAS to one thread: the blocks are small, and restarts run in parallel."""
    return ThreadpoolController().limit(limits=1, user_api="blas")


@dataclass
class Restart:
    """The sweeps of a restart so far, and how it ended."""

    sweeps: list[Progress] = field(default_factory=list)
    stop_reason: str = ""
    # the end of the last stage, while the next has no posterior
    before: Progress | None = None
    # the number of sweeps up to the last that can be resumed from, and that sweep
    resumable: tuple[int, Progress] | None = None

    def add(self, progress: Progress) -> None:
        """Add a sweep; only the last one keeps its state, which may take many megabytes."""
        if progress.pause is not None:
            self.resumable = len(self.sweeps) + 1, progress
            progress = replace(progress, pause=None)
        if self.sweeps:
            last = self.sweeps[-1]
            if progress.is_posterior:
                self.before = None
            elif last.is_posterior:
                self.before = last
            self.sweeps[-1] = replace(last, state=None)
        self.sweeps.append(progress)

    def end(self) -> None:
        """Note that the restart is finished; there is nothing left to resume."""
        self.stop_reason, self.resumable = "finished", None

    def finish(self, state: State, reason: str) -> None:
        """Set the last state, where the sweeps came from another process without theirs."""
        if self.before is not None:
            self.before = replace(self.before, state=state)
        else:
            self.sweeps[-1] = replace(self.sweeps[-1], state=state)
        self.stop_reason = reason

    def at_rest(self) -> Restart:
        """Return the restart as it was where it can be resumed, or at its end."""
        if self.stop_reason == "finished":
            return Restart(list(self.sweeps), self.stop_reason, self.before)
        if self.resumable is None:
            return Restart()
        count, progress = self.resumable
        sweeps = [replace(sweep, state=None) for sweep in self.sweeps[: count - 1]]
        last = replace(progress, pause=None)
        return Restart([*sweeps, last], "", self.before, self.resumable)

    @property
    def pause(self) -> Pause | None:
        """Where the restart can be resumed."""
        return None if self.resumable is None else self.resumable[1].pause

    @property
    def last(self) -> Progress:
        """The last sweep that gave a posterior, or else the last one."""
        return self.sweeps[-1] if self.before is None else self.before

    @property
    def state(self) -> State:
        """The posterior of the last sweep that gave one."""
        state = self.last.state
        assert state is not None
        return state

    def with_likelihood(self, likelihood: Any) -> Restart:
        """Return the restart with another likelihood in its posterior."""
        last = replace(
            self.last,
            state=replace(self.state, likelihood=likelihood),
            noise_std=float(likelihood.noise_std),
        )
        if self.before is not None:
            return replace(self, before=last)
        return replace(self, sweeps=[*self.sweeps[:-1], last])

    @property
    def usable(self) -> bool:
        """Whether the exact phase was reached: only then is there a posterior."""
        return bool(self.sweeps) and self.last.is_posterior and self.last.state is not None


def run_restarts(
    make_run: Callable[[int], Iterator[Progress]],
    n_restarts: int,
    n_threads: int,
    observe: Observer,
    restarts: list[Restart] | None = None,
) -> tuple[list[Restart], bool]:
    """Run every restart to its end; return them, and whether the user interrupted.

    Those of ``restarts`` that are finished already are left as they are.

    ``observe`` is called after every sweep, one at a time, and ends the fit by returning True. On
    Ctrl-C all restarts end after the sweep they are in, and keep what they have.
    """
    if restarts is None:
        restarts = [Restart() for _ in range(n_restarts)]
    runs = _Runs(make_run, restarts, observe)
    if n_threads == 1:
        try:
            for k in range(n_restarts):
                runs.run(k)
        except KeyboardInterrupt:
            return restarts, True
        return restarts, False
    return restarts, runs.run_in_threads(n_threads)


class _Runs:
    """Restarts that stop together."""

    def __init__(
        self,
        make_run: Callable[[int], Iterator[Progress]],
        restarts: list[Restart],
        observe: Observer,
    ) -> None:
        self.make_run, self.restarts, self.observe = make_run, restarts, observe
        self.stop = threading.Event()
        self.lock = threading.Lock()

    def run(self, k: int) -> None:
        """Run restart k to its end, or until all are to stop."""
        restart = self.restarts[k]
        if restart.stop_reason == "finished" or self.stop.is_set():
            return
        for progress in self.make_run(k):
            restart.add(progress)
            with self.lock:
                if self.observe(k, progress):
                    self.stop.set()
            if self.stop.is_set():
                restart.stop_reason = "stopped"
                return
        restart.end()

    def run_in_threads(self, n_threads: int) -> bool:
        """Run all restarts, and return whether the user interrupted."""
        interrupted = False
        with ThreadPoolExecutor(n_threads, thread_name_prefix="btnkm") as pool:
            futures: list[Future[None]] = []
            # the pool waits for its threads, and only ``stop`` ends those
            try:
                futures.extend(pool.submit(self.run, k) for k in range(len(self.restarts)))
                while wait(futures, timeout=0.2).not_done:
                    if any(f.done() and f.exception() for f in futures):
                        break
            except KeyboardInterrupt:
                interrupted = True
            finally:
                self.stop.set()
                for future in futures:
                    future.cancel()
        for future in futures:
            if not future.cancelled():
                future.result()
        return interrupted
