"""The fit of one start: phases, sweeps, reductions, and when to stop.

``run`` is a generator of ``Progress``; whoever drives it may stop after any step, and the state of
the last step of the exact phase is a valid posterior. Phases:

warm   plain regularised alternating least squares: covariances left out, precisions held. From
       random factors the exact updates collapse to f = 0 (the second moments of a product of D
       modes swamp the data); from a fitted mean they do not. Most random components lead nowhere:
       so there are some to spare, until the last sweeps of this phase.
thaw   where rows are few or modes anchored: the covariances come in little by little, precisions
       free. All at once they outweigh the data, and the exact phase finds nothing worth keeping.
exact  the coordinate ascent of the bound. Only here is the bound recorded, and it never falls:
       updates, rebalancing and reductions each raise it or leave it.
       Where few weights are left in the end, components whose work the others can do are taken
       away (``trimming``), with a few sweeps more than ``max_iter`` if there were any.
settle where the rows' likelihood is bounded (classes, counts): two sweeps by the likelihood
       itself, precisions held. The bound is more curved, and q too narrow where it is loose.

Coordinate ascent crawls along narrow valleys, a little in the same direction each time. So the
exact phase goes in cycles of four sweeps: two to see where the means are going, a leap of several
times that change, and two to come back up to the valley's floor. A leap that has not raised the
bound by then is undone. Until it has, the state and bound reported are those from before the leap.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from . import cavi, gauss_newton, reduction, row_block
from .batch_stats import Past
from .cavi import Data
from .gamma import Gamma
from .likelihoods import Curved, Likelihood
from .network import Network
from .state import Mode, Priors, State
from .sums import Sums
from .sweeper import Dropper, Executor, Memory, Sweeper
from .trimming import trim

CYCLE = 4  # sweeps: two of plain ascent, a leap, two that must pay for it
FIRST_STRETCH = 4.0  # times the change of the two sweeps before it
GROWTH, SHRINKAGE = 1.3, 0.5  # of the next leap, after one that paid and one that did not
MANY_FUNCTIONS, SMOOTHER = 20, 0.65  # of a mode, and how the warm phase holds down those beyond
FULL = 0.9  # share of the components left in the end, from which on they are taken for too few
FALL = 1e-7  # relative fall of the bound that rounding cannot explain


@dataclass(frozen=True)
class Schedule:
    """How a start begins, how long its phases last and when it stops.

    Attributes
    ----------
    warm_sweeps : int
    spare : int
        Components that the warm phase begins with beyond those of the fit. From the middle of it on
        half of those left are dropped with every mode; needs five sweeps.
    warm_smoothing : float
        The warm phase holds the basis precisions at the prior's to this power: above 1, smoother.
    thaw_sweeps : int
        Sweeps in which the share of the covariances grows from 0.01 to nearly 1.
    initial_power : float
        Mean square of a random component over that of its constant part. It is shared out among
        the modes, so that a product of 5 modes starts as lively as one of 500.
    anchored_power, anchored_precision : float
        Where modes are anchored: the mean square of all that a random component adds to its
        anchors, and the rank precision that the warm phase holds.
    train_power, train_mixing : float
        Of a train: the mean square of a random path of cores over that of its constant part, and
        how large the entries off a core's diagonal are.
    initial_decay : float
        The random part's spread is the prior's to this power: smoother than the prior above 1.
    max_iter, tol : int, float
        The exact phase ends after ``max_iter`` sweeps, or when the sweeps of a cycle gained less
        than ``tol`` per row on average; 0 never ends it early.
    first_reduction, plain_sweeps : int
        Exact sweeps before components and functions may be dropped, and before the first cycle that
        ends in a leap. Until then every sweep may drop; leaping from the start finds worse places
        (see docs/experiments.md).
    most_weights : int
        Where the exact phase leaves at most so many, redundant components are trimmed; 0 never.
    settle_sweeps : int
    negligible : float
        A component or function is weighed for dropping if its share of the mean square is at most
        this. The bound would drop more, and predict worse for it: see docs/experiments.md.
    """

    warm_sweeps: int = 10
    spare: int = 0
    warm_smoothing: float = 1.0
    thaw_sweeps: int = 0
    initial_power: float = 300.0
    anchored_power: float = 1.0
    anchored_precision: float = 5.0
    train_power: float = 100.0
    train_mixing: float = 0.3
    initial_decay: float = 1.6
    max_iter: int = 80
    tol: float = 1e-4
    first_reduction: int = 1
    plain_sweeps: int = 12
    settle_sweeps: int = 2
    negligible: float = 1e-6
    most_weights: int = 200
    drop_components: bool = True
    drop_functions: bool = True


@dataclass(frozen=True)
class Progress:
    """One sweep, as seen from outside; whoever stores it may drop the state.

    While a leap is on ``trial``, all but sweep and seconds is as it was before the leap. Settling
    keeps the bound and terms of the last exact sweep.
    """

    sweep: int
    phase: str
    bound: float
    terms: dict[str, float]
    rank: Any  # the number of components, or of every bond's indices
    noise_std: float
    seconds: float
    jitter: float
    state: State | None
    trial: bool = False
    converged: bool = False
    stage: int = 0  # counts how often the rank has grown
    pause: Pause | None = None  # from which the start can go on; none while it trims or settles
    past: Past | None = None  # at the end: what rows that are gone say of the state

    @property
    def is_posterior(self) -> bool:
        """Whether the state is a posterior: not before the exact phase."""
        return self.phase in ("exact", "settle")


@dataclass(frozen=True)
class Pause:
    """Where a start stands between two sweeps: all that it needs to go on, in any process.

    Attributes
    ----------
    schedule : Schedule
        Of this stage, which began after sweep ``after`` with the rank ``begun``.
    sweep : int
        Sweeps of this stage that are done, and ``step`` the last of them.
    memory : Memory
        Of the sweeper.
    stretch, ground, since, cycle_bound
        Of the leaps: see ``_ascend``.
    random : dict
        The state of the generator that growth draws from.
    """

    schedule: Schedule
    after: int
    stage: int
    begun: Any
    sweep: int
    step: Progress
    memory: Memory
    stretch: float
    ground: Progress | None
    since: State | None
    cycle_bound: float
    random: Any = None


def initial_state(
    network: Network,
    modes: tuple[Mode, ...],
    grams: tuple[np.ndarray, ...],
    rank: Any,
    priors: Priors,
    likelihood: Likelihood,
    schedule: Schedule,
    rng: np.random.Generator,
    output: int | None = None,
    sums: Sums | None = None,
) -> State:
    """Return where a warm phase begins: random factors, see ``Network.begin``."""
    if not modes:
        return State((), (), (), (), likelihood, network, sums=sums)
    factors, precisions = network.begin(modes, grams, rank, schedule, rng, output)
    basis = tuple(_warm_basis(mode, priors.basis_of(mode), schedule) for mode in modes)
    return State(modes, factors, basis, precisions, likelihood, network, output, sums=sums)


def _warm_basis(mode: Mode, prior: Gamma, schedule: Schedule) -> Gamma:
    """Return the basis precisions of the warm phase: the prior's, or smoother."""
    # least squares would make use of all functions, however many there are; spikes and levels are
    # as smooth as each other, and no more than one here
    many = max(np.log(len(np.unique(mode.rate_scale)) / MANY_FUNCTIONS), 0.0)
    power = schedule.warm_smoothing - 1.0 + SMOOTHER * many
    return Gamma(prior.shape, prior.rate * mode.rate_scale**power)


def grown(state: State, fresh: State) -> State:
    """Return ``fresh`` with the means of ``state`` in the place of some of its columns."""
    factors = []
    for mode, drawn, kept, factor in zip(
        fresh.modes, fresh.factors, state.modes, state.factors, strict=True
    ):
        columns = fresh.network.places(factor.layout, drawn.layout)
        mean = drawn.mean.copy()
        mean[:, columns] = 0.0
        mean[np.ix_(np.isin(mode.keep, kept.keep), columns)] = factor.mean
        factors.append(mode.point(mean, drawn.layout))
    return replace(fresh, factors=tuple(factors), sums=state.sums)


def run(
    executor: Executor,
    state: State,
    data: Data,
    priors: Priors,
    schedule: Schedule,
    grow: Callable[[State, Any], tuple[State, int] | None] | None = None,
    pause: Pause | None = None,
    past: Past | None = None,
) -> Iterator[Progress]:
    """Fit one start, yielding after each sweep; the last state yielded is the result.

    With a ``pause`` it goes on from there instead of beginning at ``state``; rows of the ``past``
    count as well, and are among those of ``data``.

    Where nearly all components are of use to the end, ``grow``, given the last state and the rank
    it began with, may return a state of more, and how many of those are to spare, from
    which all begins anew.
    """
    begin, after, stage = time.perf_counter(), 0, 0
    larger: tuple[State, int] | None = state, schedule.spare
    if pause is not None:
        begin, after, stage = begin - pause.step.seconds, pause.after, pause.stage
        larger = pause.memory.state, pause.schedule.spare
    while larger is not None:
        state, schedule = larger[0], replace(schedule, spare=larger[1])
        larger = None
        begun = np.subtract(_rank(state), schedule.spare)
        if pause is not None:
            begun = pause.begun
        for step in _ascend(executor, state, data, priors, schedule, begun, pause, past):
            seconds = time.perf_counter() - begin
            step = replace(step, sweep=after + step.sweep, seconds=seconds, stage=stage)
            if step.pause is not None:
                here = replace(step.pause, after=after, stage=stage, step=replace(step, pause=None))
                step = replace(step, pause=here)
            yield step
        pause = None
        if grow is not None and state.modes and np.sum(step.rank) >= FULL * np.sum(begun):
            assert step.state is not None
            larger, after, stage = grow(step.state, begun), step.sweep, stage + 1


def _ascend(
    executor: Executor,
    state: State,
    data: Data,
    priors: Priors,
    schedule: Schedule,
    rank_begun: Any,
    pause: Pause | None,
    past: Past | None,
) -> Iterator[Progress]:
    memory = None if pause is None else pause.memory
    sweeper = Sweeper(executor, state, data, priors, memory, past)
    begin = time.perf_counter()
    done = pause.sweep if pause is not None else 0
    stretch = FIRST_STRETCH
    ground: Progress | None = None  # where a leap that has not paid yet started from
    since: State | None = None  # where the change that a leap stretches began
    cycle_bound = -np.inf
    step: Progress | None = None
    if pause is not None:
        stretch, ground, since = pause.stretch, pause.ground, pause.since
        # it counts the sweeps of all stages
        step = replace(pause.step, sweep=pause.step.sweep - pause.after)
        cycle_bound = pause.cycle_bound

    def progress(sweep: int, phase: str) -> Progress:
        state = sweeper.state
        terms = cavi.elbo_terms(state, data, priors) if phase == "exact" else {}
        return Progress(
            sweep=sweep,
            phase=phase,
            bound=sum(terms.values()) if terms else np.nan,
            terms=terms,
            rank=_rank(state),
            noise_std=state.likelihood.noise_std,
            seconds=time.perf_counter() - begin,
            jitter=sweeper.jitter,
            state=replace(state, information=sweeper.information()),
        )

    def paused(step: Progress) -> Progress:
        memory = sweeper.memory()
        places = stretch, ground, since, cycle_bound
        here = Pause(schedule, 0, 0, rank_begun, step.sweep, step, memory, *places)
        return replace(step, pause=here)

    settles = isinstance(sweeper.state.likelihood, Curved) and schedule.settle_sweeps > 0

    def ended(step: Progress) -> Progress:
        return step if past is None else replace(step, past=sweeper.remembered())

    warm, begun = schedule.warm_sweeps, schedule.warm_sweeps + schedule.thaw_sweeps
    for sweep in range(done, warm):
        # the exact phase starts from every mode's covariance; a sweep leaves out its first mode
        mean_only = sweep < warm - 2
        drop: list[Dropper] = []
        if mean_only and schedule.spare and sweep >= warm // 2:
            share = 0.5 if sweep < warm - 3 else 1.0
            drop.append(partial(reduction.drop_spare, most=int(rank_begun), share=share))
        sweeper.sweep(mean_only=mean_only, drop=drop)
        yield paused(progress(sweep + 1, "warm"))
    shares = np.geomspace(0.01, 0.95, schedule.thaw_sweeps)
    for sweep in range(max(done, warm), begun):
        sweeper.switch(spread=float(shares[sweep - warm]))
        sweeper.sweep()
        yield paused(progress(sweep + 1, "thaw"))
    if done <= begun:
        sweeper.switch(spread=1.0)
    droppers = _droppers(priors, schedule)
    for sweep in range(max(done - begun, 0), schedule.max_iter):
        place = sweep % CYCLE
        # each mode has sums of the past of its own: there is no bound of all to leap by
        leaping = sweep >= schedule.plain_sweeps and len(state.modes) > 1 and past is None
        may_drop = sweep >= schedule.first_reduction and (place == 1 or not leaping)
        previous = step if sweep else None
        if previous is not None:
            if previous.converged:
                break
            free = bool(state.modes) and (not state.anchored or state.network.turns)
            leap = place == 0 and since is not None
            # a leap goes on in the direction of the last sweeps, which must not be turned before
            if place % 2 == 0 and free and not (leap and state.network.turns):
                sweeper.rebalance()
            if leap and sweep + 1 < schedule.max_iter:
                assert since is not None
                ground = progress(previous.sweep, "exact")
                sweeper.leap(since, stretch)
                since = None
        if place == 2:
            since = sweeper.state if leaping else None
        sweeper.sweep(drop=droppers if may_drop else ())
        step = progress(begun + sweep + 1, "exact")
        if ground is not None:
            if step.bound >= ground.bound:
                stretch *= GROWTH
                ground = None
            else:
                step = replace(ground, sweep=step.sweep, seconds=step.seconds, trial=True)
                if place == 1:
                    assert ground.state is not None
                    sweeper.restore(ground.state)
                    stretch *= SHRINKAGE
                    ground = None
        if previous is not None and past is None:
            rounding = sweeper.state.likelihood.scale * data.rounding * data.square
            _check_fall(previous, step, rounding)
        if place == CYCLE - 1:
            gain = step.bound - cycle_bound
            calm = schedule.tol > 0 and gain < CYCLE * schedule.tol * data.n
            step = replace(step, converged=calm)
            cycle_bound = step.bound
        last = step.converged or sweep + 1 == schedule.max_iter
        yield paused(ended(step) if last and not settles else step)
    if step is None:  # no exact sweep was wanted
        return
    if step.trial:
        assert step.state is not None
        sweeper.restore(step.state)
    n_rows = int(executor.sum(row_block.count)[0])
    may_trim = schedule.drop_components and past is None
    if may_trim and gauss_newton.possible(sweeper.state, schedule.most_weights, n_rows):

        def bound() -> float:
            return sum(cavi.elbo_terms(sweeper.state, data, priors).values())

        for _ in trim(sweeper, droppers, bound):
            step = replace(progress(step.sweep + 1, "exact"), converged=step.converged)
            yield step
    if settles:
        for k in range(schedule.settle_sweeps):
            sweeper.settle()
            settled = replace(sweeper.state, information=sweeper.information())
            seconds = time.perf_counter() - begin
            after = replace(
                step,
                sweep=step.sweep + k + 1,
                phase="settle",
                state=settled,
                seconds=seconds,
                trial=False,
            )
            yield ended(after) if k + 1 == schedule.settle_sweeps else after


def _rank(state: State) -> Any:
    return state.network.rank(state) if state.modes else 0


def _droppers(priors: Priors, schedule: Schedule) -> list[Dropper]:
    chosen = []
    if schedule.drop_components:
        chosen.append(reduction.drop_groups)
    if schedule.drop_functions:
        chosen.append(reduction.drop_functions)
    return [partial(drop, priors=priors, share=schedule.negligible) for drop in chosen]


def _check_fall(before: Progress, after: Progress, rounding: float) -> None:
    """Say so if the bound fell by more than rounding explains, and where."""
    if after.bound >= before.bound - FALL * (1 + abs(before.bound)) - rounding:
        return
    changes = {name: after.terms[name] - before.terms[name] for name in after.terms}
    worst = min(changes, key=lambda name: changes[name])
    remedy = "weights or targets are so large that digits are lost: use another unit"
    if "noise" in after.terms:
        remedy = (
            "the noise is at the limit of rounding: a noise_prior with a larger rate keeps it away "
            "from there"
        )
    warnings.warn(
        f"the bound must never fall, but sweep {after.sweep} took it from {before.bound:.6f} to "
        f"{after.bound:.6f}, most of it in the term {worst!r}; {remedy}",
        RuntimeWarning,
        stacklevel=3,
    )
