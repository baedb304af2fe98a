"""The restarts of a fit: what they need, their sweeps, and how they run in parallel."""

from __future__ import annotations

import numbers
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from ..core import ascent, growing
from ..core.batch_stats import BatchStats
from ..core.cavi import Data
from ..core.likelihoods import Likelihood
from ..core.network import Network
from ..core.schedule import Pause, Progress, Schedule
from ..core.state import Mode, Priors, State
from ..core.sums import Sums
from ..core.sweeper import Sweeper
from ..warn import passing_on, warn
from . import local

Array = np.ndarray
Observer = Callable[[int, Progress], bool | None]
# rows times packed pairs from which restarts run in threads; those of smaller fits run in processes
WORTH_A_THREAD = 1_000_000
WORTH_HELPERS = 1.0  # seconds of work left, below which no process is started


@dataclass(frozen=True)
class RestartSettings:
    """Everything that shapes the restarts of one structure; ``plan.FitPlan`` resolves it."""

    priors: Priors
    likelihood: Likelihood  # as the warm phase has it
    schedule: Schedule
    smoothness: float
    network: Network
    initial_rank: Any  # a number, or one for each bond of a tensor train
    max_rank: Any  # up to which the rank may grow
    n_init: int
    memory_limit: float  # GiB
    n_jobs: int | None
    schedule_of_sums: Schedule | None = None  # of main effects that are fitted first
    warm_rank: int = 0  # most components of the warm phase with extra ones; 0 for no extra ones
    may_reduce_restarts: bool = False  # where memory is short
    worth_a_thread: int = WORTH_A_THREAD
    worth_helpers: float = WORTH_HELPERS

    def extra_components(self, rank: Any) -> int:
        """Return how many extra components a warm phase of this rank begins with."""
        if not self.warm_rank:
            return 0
        return int(max(min(2 * rank, self.warm_rank) - rank, 0))


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


@dataclass(frozen=True)
class RestartRunner:
    """Runs the restarts of a fit, each from its own random seed."""

    settings: RestartSettings
    blocks: Any  # LocalBlocks or DaskBlocks
    modes: tuple[Mode, ...]
    grams: tuple[Array, ...]  # each mode's average of phi phi^T over the rows, (M, M)
    data: Data
    likelihood: Likelihood
    rank: Any  # the initial one, as far as the modes and the memory allow
    max_rank: Any
    seeds: list[np.random.SeedSequence]
    output: int | None  # the mode of the outputs
    states: Sequence[State] = ()  # posteriors to continue from, instead of random factors
    pasts: Sequence[BatchStats] = ()  # sums over the rows of earlier batches, for each restart
    similar: bool = True  # whether their inputs are spread as those of the rows at hand
    sums: Sums | None = None  # the main effects that restarts begin with

    def run(
        self, k: int, threads: local.Threads | None = None, pause: Pause | None = None
    ) -> Iterator[Progress]:
        """Return the sweeps of restart k, from a pause on; ``threads`` share its blocks of rows."""
        rng = np.random.default_rng(self.seeds[k])

        def grow(state: State, initial_rank: Any) -> tuple[State, int] | None:
            return self._larger(state, initial_rank, rng)

        settings, may_grow = self.settings, None if self.states else grow
        with closing(self.blocks.executor(len(self.modes), settings.network, threads)) as executor:
            state, schedule, past = self._first(k, rng, pause)
            for step in ascent.run(
                executor, state, self.data, settings.priors, schedule, may_grow, pause, past
            ):
                if step.pause is not None:
                    pause_here = replace(step.pause, random=rng.bit_generator.state)
                    step = replace(step, pause=pause_here)
                yield step

    def _first(
        self, k: int, rng: np.random.Generator, pause: Pause | None
    ) -> tuple[State, Schedule, BatchStats | None]:
        """Return the state that restart k begins with, its schedule and its past."""
        past, schedule = self.pasts[k] if self.pasts else None, self.settings.schedule
        if not self.states:
            extra = self.settings.extra_components(self.rank)
            schedule = replace(schedule, extra=extra)
            if pause is None:
                return self._random(np.add(self.rank, extra), rng), schedule, past
            rng.bit_generator.state = pause.random
            return pause.memory.state, schedule, past
        state = self.states[k]
        if past is not None:
            state, past = self._widened(state, past, rng)
            if state is not self.states[k]:
                schedule = replace(schedule, annealing_sweeps=schedule.new_annealing)
        return state, schedule, past

    def _larger(
        self, state: State, initial_rank: Any, rng: np.random.Generator
    ) -> tuple[State, int] | None:
        """Return a state of up to twice the rank, and its number of extra components."""
        schedule = self.settings.schedule
        twice = np.multiply(2, self.settings.network.rank(state))
        doubled = np.minimum(twice, self.max_rank)
        # of one input there is no bond to grow
        grows = np.greater(doubled, initial_rank) & (
            twice >= schedule.least_growth * np.asarray(initial_rank)
        )
        if not np.any(grows) or not schedule.drop_components:
            return None
        rank = doubled.tolist()
        extra = self.settings.extra_components(rank)
        return growing.grown(state, self._random(np.add(rank, extra), rng)), extra

    def _widened(
        self, state: State, past: BatchStats, rng: np.random.Generator
    ) -> tuple[State, BatchStats]:
        """Return a posterior with extra columns, for what these rows show and none before did."""
        network, schedule = self.settings.network, self.settings.schedule
        before, rows = network.rank(state), self.data.n - past.data.n
        new = min(schedule.new_components, int(rows / schedule.rows_per_component))
        rank = np.maximum(before, np.minimum(np.add(before, new), self.max_rank)).tolist()
        may_grow = schedule.drop_components and self.similar
        if not may_grow or not np.any(np.greater(rank, before)):
            return state, past
        grams = []
        for gram, mode, kept in zip(self.grams, self.modes, state.modes, strict=True):
            both = np.isin(mode.keep, kept.keep)
            grams.append(gram[np.ix_(both, both)])
        fresh = self._random(rank, rng, state.modes, tuple(grams))
        if np.any(np.less(network.rank(fresh), before)):  # a side of a bond lost functions
            return state, past
        return growing.widened(state, fresh, past)

    def _random(
        self,
        rank: Any,
        rng: np.random.Generator,
        modes: tuple[Any, ...] | None = None,
        grams: tuple[Array, ...] | None = None,
    ) -> State:
        """Return a state with random factors."""
        return growing.initial_state(
            self.settings.network,
            self.modes if modes is None else modes,
            self.grams if grams is None else grams,
            rank,
            self.settings.priors,
            self.likelihood,
            self.settings.schedule,
            rng,
            self.output,
            self.sums,
        )

    def batch_stats(
        self,
        state: State,
        data: Data,
        features: tuple[tuple[Array, Array], ...],
        threads: local.Threads | None,
    ) -> BatchStats:
        """Return the sums over these rows that a posterior needs once they are gone.

        ``data`` is that of these rows alone, and ``features`` the sums of their features.
        """
        settings = self.settings
        with closing(self.blocks.executor(len(self.modes), settings.network, threads)) as executor:
            sweeper = Sweeper(executor, state, data, settings.priors)
            sweeper.state = state  # whatever it has learned from these rows alone
            return sweeper.batch_stats(features)


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
        self.warnings: deque[Warning] = deque()  # of other threads

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

        def run(k: int) -> None:
            with passing_on(self.warnings.append):
                self.run(k)

        with ThreadPoolExecutor(n_threads, thread_name_prefix="btnkm") as pool:
            futures: list[Future[None]] = []
            # the pool waits for its threads, and only ``stop`` ends those
            try:
                futures.extend(pool.submit(run, k) for k in range(len(self.restarts)))
                while wait(futures, timeout=0.2).not_done:
                    self._warn()
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
        self._warn()
        return interrupted

    def _warn(self) -> None:
        """Warn, in the thread that the user's program called, of what other threads warned of."""
        while self.warnings:
            warn(self.warnings.popleft())
