"""Several random starts side by side, with progress, callbacks and a clean way to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from ..core.schedule import Pause, Progress
from ..core.state import State

Observer = Callable[[int, Progress], bool | None]


def limit_blas() -> Any:
    """Keep BLAS on one thread: the blocks are small, and starts run side by side."""
    return ThreadpoolController().limit(limits=1, user_api="blas")


@dataclass
class Start:
    """One start's sweeps so far and how it ended."""

    sweeps: list[Progress] = field(default_factory=list)
    stop_reason: str = ""
    before: Progress | None = None  # the end of the last stage, while the next has no posterior
    # sweeps up to the last after which it can go on, and that one
    rest: tuple[int, Progress] | None = None

    def add(self, progress: Progress) -> None:
        """Take in a sweep; only the last one keeps its state, which may weigh many megabytes."""
        if progress.pause is not None:
            self.rest = len(self.sweeps) + 1, progress
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
        """Note that it went to its end, and forget where it could have gone on from."""
        self.stop_reason, self.rest = "finished", None

    def finish(self, state: State, reason: str) -> None:
        """Take in the last state, from a process that told its sweeps without."""
        if self.before is not None:
            self.before = replace(self.before, state=state)
        else:
            self.sweeps[-1] = replace(self.sweeps[-1], state=state)
        self.stop_reason = reason

    def at_rest(self) -> Start:
        """Return the start as it was where it can go on from, or as it is at its end."""
        if self.stop_reason == "finished":
            return Start(list(self.sweeps), self.stop_reason, self.before)
        if self.rest is None:
            return Start()
        count, progress = self.rest
        sweeps = [replace(sweep, state=None) for sweep in self.sweeps[: count - 1]]
        return Start([*sweeps, replace(progress, pause=None)], "", self.before, self.rest)

    @property
    def pause(self) -> Pause | None:
        """Where it can go on from."""
        return None if self.rest is None else self.rest[1].pause

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

    def with_likelihood(self, likelihood: Any) -> Start:
        """Return the start with another likelihood in its posterior."""
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


def run_starts(
    make_run: Callable[[int], Iterator[Progress]],
    n_starts: int,
    n_threads: int,
    observe: Observer,
    starts: list[Start] | None = None,
) -> tuple[list[Start], bool]:
    """Drive every start to its end; return them, and whether the user interrupted.

    Those of ``starts`` that are at their end already are left as they are.

    ``observe`` sees every sweep (one at a time) and ends the fit by returning True. On Ctrl-C all
    starts end after the sweep they are in, and what they have is kept.
    """
    starts = [Start() for _ in range(n_starts)] if starts is None else starts
    stop = threading.Event()
    lock = threading.Lock()

    def drive(k: int) -> None:
        if starts[k].stop_reason == "finished":
            return
        for progress in () if stop.is_set() else make_run(k):
            starts[k].add(progress)
            with lock:
                if observe(k, progress):
                    stop.set()
            if stop.is_set():
                starts[k].stop_reason = "stopped"
                return
        starts[k].end()

    interrupted = False
    if n_threads == 1:
        try:
            for k in range(n_starts):
                if not stop.is_set():
                    drive(k)
        except KeyboardInterrupt:
            interrupted = True
        return starts, interrupted
    with ThreadPoolExecutor(n_threads, thread_name_prefix="btnkm") as pool:
        futures: list[Future[None]] = []
        try:  # from the first start on: the pool waits for its threads, and only stop ends those
            futures.extend(pool.submit(drive, k) for k in range(n_starts))
            while wait(futures, timeout=0.2).not_done:
                failed = next((f for f in futures if f.done() and f.exception()), None)
                if failed is not None:
                    break
        except KeyboardInterrupt:
            interrupted = True
        finally:
            stop.set()
            for future in futures:
                future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()
    return starts, interrupted
