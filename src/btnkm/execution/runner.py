"""What the restarts of a fit need, in a form that can be sent to any process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import ascent, growing
from ..core.batch_stats import BatchStats
from ..core.cavi import Data
from ..core.likelihoods import Likelihood
from ..core.network import Network
from ..core.schedule import Pause, Progress, Schedule
from ..core.state import Mode, Priors, State
from ..core.sums import Sums
from ..core.sweeper import Sweeper
from . import local

Array = np.ndarray
ROWS_PER_COMPONENT = 20  # at least, for extra components; with fewer they fit noise
EXTRA_COLUMNS = 6  # at most, for what a batch of a stream shows and none before it did
EXTRA_ANNEALING = 10  # sweeps until extra columns count in full
LEAST_GROWTH = 1.25  # the rank grows if twice what is left is so many times the rank at first


@dataclass(frozen=True)
class RestartRunner:
    """Runs the restarts of a fit, each from its own random seed."""

    blocks: Any  # LocalBlocks or DaskBlocks
    modes: tuple[Mode, ...]
    grams: tuple[Array, ...]  # each mode's average of phi phi^T over the rows, (M, M)
    data: Data
    priors: Priors
    likelihood: Likelihood
    schedule: Schedule
    rank: Any  # that restarts begin with
    max_rank: Any  # up to which it may grow
    warm_rank: int  # most components of the warm phase, extra ones included
    network: Network
    seeds: list[np.random.SeedSequence]
    output: int | None  # the mode of the outputs
    states: Sequence[State] = ()  # posteriors to go on from, instead of random factors
    pasts: Sequence[BatchStats] = ()  # sums over the rows of earlier batches, for each restart
    alike: bool = True  # whether their inputs are spread as those of the rows at hand
    sums: Sums | None = None  # the main effects that restarts begin with

    def run(
        self, k: int, threads: local.Threads | None = None, pause: Pause | None = None
    ) -> Iterator[Progress]:
        """Return the sweeps of restart k, from a pause on; ``threads`` share its blocks of rows."""
        rng = np.random.default_rng(self.seeds[k])

        def grow(state: State, initial_rank: Any) -> tuple[State, int] | None:
            return self._larger(state, initial_rank, rng)

        with closing(self.blocks.executor(len(self.modes), self.network, threads)) as executor:
            state, schedule, past = self._first(k, rng, pause)
            may_grow = None if self.states else grow
            for step in ascent.run(
                executor, state, self.data, self.priors, schedule, may_grow, pause, past
            ):
                if step.pause is not None:
                    here = replace(step.pause, random=rng.bit_generator.state)
                    step = replace(step, pause=here)
                yield step

    def _first(
        self, k: int, rng: np.random.Generator, pause: Pause | None
    ) -> tuple[State, Schedule, BatchStats | None]:
        """Return the state that restart k begins with, its schedule and its past."""
        past = self.pasts[k] if self.pasts else None
        if not self.states:
            extra = self._extra(self.rank)
            schedule = replace(self.schedule, extra=extra)
            if pause is None:
                return self._random(np.add(self.rank, extra), rng), schedule, past
            rng.bit_generator.state = pause.random
            return pause.memory.state, schedule, past
        state = self.states[k]
        schedule = replace(self.schedule, warm_sweeps=0, annealing_sweeps=0)
        if past is not None:
            state, past = self._widened(state, past, rng)
            if state is not self.states[k]:
                # all at once, the uncertainty of new columns would outweigh the data
                schedule = replace(schedule, annealing_sweeps=EXTRA_ANNEALING)
        return state, schedule, past

    def _larger(
        self, state: State, initial_rank: Any, rng: np.random.Generator
    ) -> tuple[State, int] | None:
        """Return a state of up to twice the rank, and its number of extra components."""
        twice = np.multiply(2, self.network.rank(state))
        doubled = np.minimum(twice, self.max_rank)
        # of one input there is no bond to grow
        grows = np.greater(doubled, initial_rank) & (
            twice >= LEAST_GROWTH * np.asarray(initial_rank)
        )
        if not np.any(grows) or not self.schedule.drop_components:
            return None
        rank = doubled.tolist()
        extra = self._extra(rank)
        return growing.grown(state, self._random(np.add(rank, extra), rng)), extra

    def _extra(self, rank: Any) -> int:
        """Return the number of extra components that the warm phase begins with."""
        if not self.warm_rank:
            return 0
        return int(max(min(2 * rank, self.warm_rank) - rank, 0))

    def _widened(
        self, state: State, past: BatchStats, rng: np.random.Generator
    ) -> tuple[State, BatchStats]:
        """Return a posterior with extra columns, for what these rows show and none before did."""
        before = self.network.rank(state)
        extra = min(EXTRA_COLUMNS, int((self.data.n - past.data.n) / ROWS_PER_COMPONENT))
        rank = np.maximum(before, np.minimum(np.add(before, extra), self.max_rank)).tolist()
        may_grow = self.schedule.drop_components and self.alike
        if not may_grow or not np.any(np.greater(rank, before)):
            return state, past
        grams = []
        for gram, mode, kept in zip(self.grams, self.modes, state.modes, strict=True):
            both = np.isin(mode.keep, kept.keep)
            grams.append(gram[np.ix_(both, both)])
        fresh = self._random(rank, rng, state.modes, tuple(grams))
        if np.any(np.less(self.network.rank(fresh), before)):  # a side of a bond lost functions
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
            self.network,
            self.modes if modes is None else modes,
            self.grams if grams is None else grams,
            rank,
            self.priors,
            self.likelihood,
            self.schedule,
            rng,
            self.output,
            self.sums,
        )

    def absorbed(
        self,
        state: State,
        data: Data,
        features: tuple[tuple[Array, Array], ...],
        threads: local.Threads | None,
    ) -> BatchStats:
        """Return the sums over these rows that a posterior needs once they are gone.

        ``data`` is that of these rows alone, and ``features`` the sums of their features.
        """
        with closing(self.blocks.executor(len(self.modes), self.network, threads)) as executor:
            sweeper = Sweeper(executor, state, data, self.priors)
            sweeper.state = state  # whatever it has learned from these rows alone
            return sweeper.batch_stats(features)
