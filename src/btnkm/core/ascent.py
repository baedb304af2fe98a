"""The fit of one restart: warm, annealing, exact and newton phases (see ``schedule``).

``run`` is a generator of ``Progress``. The caller may stop after any sweep; the state of the last
sweep of the exact phase is a valid posterior.

Coordinate ascent crawls along narrow valleys, a little in the same direction each time. So the
exact phase goes in cycles of four sweeps: two show where the means are going, over-relaxation then
moves them on by several times that change, and two sweeps return to the floor of the valley. If the
ELBO is no higher by then, the step is undone. Until it is higher, the state and ELBO reported are
those from before the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..warn import warn
from . import cavi, reduction, row_block, trimming
from .batch_stats import BatchStats
from .cavi import Data
from .likelihoods import Curved
from .schedule import OverRelaxation, Pause, Progress, Schedule, Stage
from .state import Priors, State
from .sweeper import Dropper, Executor, Sweeper

CYCLE = 4  # sweeps
GROWTH, SHRINKAGE = 1.3, 0.5  # of the next over-relaxation, after success and after failure
FULL = 0.9  # fraction of the components left in the end from which they are taken for too few
FALL = 1e-7  # relative fall of the ELBO that rounding cannot explain
# given the last state and the rank of the stage, a larger state and its number of extra components
Grow = Callable[[State, Any], tuple[State, int] | None]


def run(
    executor: Executor,
    state: State,
    data: Data,
    priors: Priors,
    schedule: Schedule,
    grow: Grow | None = None,
    pause: Pause | None = None,
    past: BatchStats | None = None,
) -> Iterator[Progress]:
    """Fit one restart, yielding after each sweep; the last state yielded is the result.

    It begins at ``state``, or resumes from a ``pause``. ``data`` includes the rows of the ``past``,
    the sums over earlier batches. Where nearly all components are of use to the end, ``grow`` may
    return a larger state, from which another stage begins.
    """
    begin = time.perf_counter()
    if pause is None:
        stage = Stage(np.subtract(_rank(state), schedule.extra))
    else:
        begin -= pause.step.seconds
        state, schedule, stage = pause.memory.state, pause.schedule, pause.stage
    while True:
        ascent = Ascent(executor, state, data, priors, schedule, stage, begin, pause, past)
        for step in ascent.run():
            yield step
        if grow is None or not state.modes or np.sum(step.rank) < FULL * np.sum(stage.rank):
            return
        assert step.state is not None
        larger = grow(step.state, stage.rank)
        if larger is None:
            return
        state, schedule, pause = larger[0], replace(schedule, extra=larger[1]), None
        rank = np.subtract(_rank(state), schedule.extra)
        stage = Stage(rank, stage.number + 1, step.sweep)


class Ascent:
    """One stage of a restart; ``run`` goes through its phases.

    The parameters are those of the function ``run``, the stage, and when the restart began.
    """

    def __init__(
        self,
        executor: Executor,
        state: State,
        data: Data,
        priors: Priors,
        schedule: Schedule,
        stage: Stage,
        begin: float,
        pause: Pause | None,
        past: BatchStats | None,
    ) -> None:
        self.executor, self.data, self.priors = executor, data, priors
        self.schedule, self.stage, self.begin, self.past = schedule, stage, begin, past
        memory = None if pause is None else pause.memory
        self.sweeper = Sweeper(executor, state, data, priors, memory, past)
        self.step: Progress | None = None  # the last exact sweep
        self.done = 0  # sweeps of this stage
        self.over_relaxation = OverRelaxation(schedule.over_relaxation)
        if pause is not None:
            self.step, self.over_relaxation = pause.step, pause.over_relaxation
            self.done = pause.step.sweep - stage.sweeps_before
        # each mode has sums of the past of its own: there is no ELBO of all to judge a step by
        self._may_over_relax = len(state.modes) > 1 and past is None
        self._may_rebalance = bool(state.modes) and (not state.anchored or state.network.turns)
        self._droppers = _droppers(priors, schedule)
        self._refines = isinstance(state.likelihood, Curved) and schedule.newton_sweeps > 0

    def run(self) -> Iterator[Progress]:
        """Go through the phases, yielding after each sweep."""
        yield from self._warm()
        yield from self._anneal()
        yield from self._exact()
        if self.step is None:  # max_iter is 0
            return
        if self.step.trial:
            assert self.step.state is not None
            self.sweeper.restore(self.step.state)
        yield from self._trim()
        if self._refines:
            yield from self._refine()

    def _warm(self) -> Iterator[Progress]:
        schedule, last = self.schedule, self.schedule.warm_sweeps
        for sweep in range(self.done, last):
            # the exact phase starts from every mode's covariance; a sweep leaves out its first mode
            mean_only = sweep < last - 2
            drop: list[Dropper] = []
            if mean_only and schedule.extra and sweep >= last // 2:
                share = 0.5 if sweep < last - 3 else 1.0
                rank = int(self.stage.rank)
                drop.append(partial(reduction.drop_extra, rank=rank, share=share))
            self.sweeper.sweep(mean_only=mean_only, drop=drop)
            yield self._paused(self._progress("warm"))

    def _anneal(self) -> Iterator[Progress]:
        fractions = np.geomspace(0.01, 0.95, self.schedule.annealing_sweeps)
        for fraction in fractions[max(self.done - self.schedule.warm_sweeps, 0) :]:
            self.sweeper.switch(spread=float(fraction))
            self.sweeper.sweep()
            yield self._paused(self._progress("annealing"))

    def _exact(self) -> Iterator[Progress]:
        schedule = self.schedule
        first = schedule.warm_sweeps + schedule.annealing_sweeps
        if self.done <= first:
            self.sweeper.switch(spread=1.0)
        for sweep in range(max(self.done - first, 0), schedule.max_iter):
            previous = self.step if sweep else None
            if previous is not None and previous.converged:
                return
            self._prepare(sweep)
            may_drop = sweep >= schedule.first_reduction
            may_drop = may_drop and (sweep % CYCLE == 1 or not self._over_relaxes(sweep))
            self.sweeper.sweep(drop=self._droppers if may_drop else ())
            step = self._judged(self._progress("exact"), sweep)
            if previous is not None and self.past is None:
                self._check_fall(previous, step)
            self.step = step = self._checked_convergence(step, sweep)
            if (step.converged or sweep + 1 == schedule.max_iter) and not self._refines:
                step = self._with_past(step)
            yield self._paused(step)

    def _over_relaxes(self, sweep: int) -> bool:
        """Return whether the cycle of an exact sweep ends in over-relaxation."""
        return self._may_over_relax and sweep >= self.schedule.plain_sweeps

    def _prepare(self, sweep: int) -> None:
        """Rebalance the modes and over-relax, where it is the turn of either."""
        place, cycle = sweep % CYCLE, self.over_relaxation
        moves_on = sweep > 0 and place == 0 and cycle.origin is not None
        # it goes on in the direction of the last sweeps, whose axes must not be turned before
        turns = moves_on and self.sweeper.state.network.turns
        if sweep and place % 2 == 0 and self._may_rebalance and not turns:
            self.sweeper.rebalance()
        if moves_on and sweep + 1 < self.schedule.max_iter:
            assert cycle.origin is not None
            fallback = self._progress("exact", swept=False)
            self.over_relaxation = replace(cycle, origin=None, fallback=fallback)
            self.sweeper.over_relax(cycle.origin, cycle.factor)
        if place == 2:
            origin = self.sweeper.state if self._over_relaxes(sweep) else None
            self.over_relaxation = replace(self.over_relaxation, origin=origin)

    def _judged(self, step: Progress, sweep: int) -> Progress:
        """Return what to report of a sweep, and undo an over-relaxation that has failed."""
        cycle = self.over_relaxation
        fallback = cycle.fallback
        if fallback is None:
            return step
        if step.bound >= fallback.bound:
            factor = cycle.factor * GROWTH
            self.over_relaxation = replace(cycle, factor=factor, fallback=None)
            return step
        if sweep % CYCLE == 1:
            assert fallback.state is not None
            self.sweeper.restore(fallback.state)
            factor = cycle.factor * SHRINKAGE
            self.over_relaxation = replace(cycle, factor=factor, fallback=None)
        return replace(fallback, sweep=step.sweep, seconds=step.seconds, trial=True)

    def _checked_convergence(self, step: Progress, sweep: int) -> Progress:
        """Return the sweep, converged if it is the last of a cycle that gained too little."""
        if sweep % CYCLE != CYCLE - 1:
            return step
        gain, tol = step.bound - self.over_relaxation.cycle_bound, self.schedule.tol
        self.over_relaxation = replace(self.over_relaxation, cycle_bound=step.bound)
        return replace(step, converged=tol > 0 and gain < CYCLE * tol * self.data.n)

    def _trim(self) -> Iterator[Progress]:
        """Remove redundant components, where weights are few."""
        if not self.schedule.drop_components or self.past is not None:
            return
        n_rows = int(self.executor.sum(row_block.count)[0])
        if not trimming.possible(self.sweeper.state, self.schedule.most_weights, n_rows):
            return
        assert self.step is not None
        for _ in trimming.trim(self.sweeper, self._droppers, lambda: sum(self._terms().values())):
            self.step = replace(self._progress("exact"), converged=self.step.converged)
            yield self.step

    def _refine(self) -> Iterator[Progress]:
        """Newton refinement: sweeps by the likelihood itself instead of its bound."""
        assert self.step is not None
        for remaining in reversed(range(self.schedule.newton_sweeps)):
            self.sweeper.newton_sweep()
            self.done += 1
            step = replace(
                self.step,
                sweep=self.stage.sweeps_before + self.done,
                phase="newton",
                state=self._state(),
                seconds=time.perf_counter() - self.begin,
                trial=False,
            )
            yield step if remaining else self._with_past(step)

    def _progress(self, phase: str, *, swept: bool = True) -> Progress:
        """Return what there is to report, after another sweep unless told otherwise."""
        self.done += swept
        terms = self._terms() if phase == "exact" else {}
        state = self.sweeper.state
        return Progress(
            sweep=self.stage.sweeps_before + self.done,
            phase=phase,
            bound=sum(terms.values()) if terms else np.nan,
            terms=terms,
            rank=_rank(state),
            noise_std=state.likelihood.noise_std,
            seconds=time.perf_counter() - self.begin,
            jitter=self.sweeper.jitter,
            state=self._state(),
            stage=self.stage.number,
        )

    def _terms(self) -> dict[str, float]:
        return cavi.elbo_terms(self.sweeper.state, self.data, self.priors)

    def _state(self) -> State:
        return replace(self.sweeper.state, information=self.sweeper.information())

    def _paused(self, step: Progress) -> Progress:
        """Return a sweep that can be resumed from."""
        memory, cycle = self.sweeper.memory(), self.over_relaxation
        return replace(step, pause=Pause(self.schedule, self.stage, step, memory, cycle))

    def _with_past(self, step: Progress) -> Progress:
        return step if self.past is None else replace(step, past=self.sweeper.past_stats())

    def _check_fall(self, before: Progress, after: Progress) -> None:
        """Warn if the ELBO fell by more than rounding explains, and name the term."""
        rounding = self.sweeper.state.likelihood.scale * self.data.rounding * self.data.square
        if after.bound >= before.bound - FALL * (1 + abs(before.bound)) - rounding:
            return
        changes = {name: after.terms[name] - before.terms[name] for name in after.terms}
        worst = min(changes, key=lambda name: changes[name])
        remedy = "weights or targets are so large that digits are lost: use another unit"
        if "noise" in after.terms:
            remedy = (
                "the noise is at the limit of rounding: use a noise prior with a larger rate to "
                "keep it away from there"
            )
        warn(
            f"the ELBO must never fall, but sweep {after.sweep} took it from {before.bound:.6f} to "
            f"{after.bound:.6f}, most of it in the term {worst!r}; {remedy}",
            RuntimeWarning,
        )


def _rank(state: State) -> Any:
    return state.network.rank(state) if state.modes else 0


def _droppers(priors: Priors, schedule: Schedule) -> list[Dropper]:
    chosen = []
    if schedule.drop_components:
        chosen.append(reduction.drop_groups)
    if schedule.drop_functions:
        chosen.append(reduction.drop_functions)
    return [partial(drop, priors=priors, share=schedule.negligible) for drop in chosen]
