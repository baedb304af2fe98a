"""The fit of one start: phases, sweeps, reductions, and when to stop.

``run`` is a generator of ``Progress``; whoever drives it may stop after any step, and the state of
the last step of the exact phase is a valid posterior. Phases:

warm   plain regularised alternating least squares: covariances left out, precisions held. From
       random factors the exact updates collapse to f = 0 (the second moments of a product of D
       modes swamp the data); from a fitted mean they do not.
exact  the coordinate ascent of the bound. Only here is the bound recorded, and it never falls:
       updates, rebalancing and reductions each raise it or leave it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from . import cavi, cp, reduction
from .cavi import Block, Data
from .gamma import Gamma
from .state import Factor, Mode, Priors, State

Array = Any
FALL = 1e-7  # relative fall of the bound that rounding cannot explain


class Executor(Protocol):
    """What the engine asks of whoever holds the rows."""

    def sum(self, fn: Callable[[Any], tuple[Array, ...]]) -> tuple[Array, ...]:
        """Return the sum over row blocks of what ``fn`` returns for each."""

    def each(self, fn: Callable[[Any], None]) -> None:
        """Apply ``fn`` to every row block."""


@dataclass(frozen=True)
class Schedule:
    """How a start begins, how long its phases last and when it stops.

    Attributes
    ----------
    warm_sweeps : int
    warm_noise : float
        Noise variance held in the warm phase, in units of var(y).
    warm_smoothing : float
        The warm phase holds the basis precisions at the prior's to this power: above 1, smoother.
    initial_power : float
        Mean square of a random component over that of its constant part. It is shared out among
        the modes, so that a product of 5 modes starts as lively as one of 500.
    initial_decay : float
        The random part's spread is the prior's to this power: smoother than the prior above 1.
    max_iter, tol : int, float
        The exact phase ends after ``max_iter`` sweeps, or when the bound gained less than ``tol``
        per sample in each of two sweeps.
    rebalance_every, reduce_every : int
        Sweeps between two looks at the scales, and at components and functions to drop.
    first_reduction : int
        Exact sweeps before anything is dropped: a component needs some to show its worth.
    negligible : float
        A component or function is weighed for dropping if its share of the mean square is at most
        this. The bound would drop more, and predict worse for it: see docs/experiments.md.
    """

    warm_sweeps: int = 10
    warm_noise: float = 0.01
    warm_smoothing: float = 1.0
    initial_power: float = 300.0
    initial_decay: float = 1.6
    max_iter: int = 200
    tol: float = 1e-4
    rebalance_every: int = 3
    reduce_every: int = 4
    first_reduction: int = 4
    negligible: float = 1e-6
    drop_components: bool = True
    drop_functions: bool = True


@dataclass(frozen=True)
class Progress:
    """One sweep, as seen from outside; whoever stores it may drop the state."""

    sweep: int
    phase: str
    bound: float
    terms: dict[str, float]
    rank: int
    noise_std: float
    seconds: float
    jitter: float
    state: State | None
    converged: bool = False


def initial_state(
    modes: tuple[Mode, ...],
    grams: tuple[np.ndarray, ...],
    rank: int,
    priors: Priors,
    schedule: Schedule,
    rng: np.random.Generator,
) -> State:
    """Return random factors: the constant 1 plus a perturbation in every mode, f of size one.

    ``grams`` holds each mode's average of phi phi^T over the rows, (M, M).
    """
    size = np.sqrt(schedule.initial_power ** (1.0 / len(modes)) - 1.0)
    factors = []
    for mode, gram in zip(modes, grams, strict=True):
        spread = mode.rate_scale ** (0.5 * schedule.initial_decay)
        w = rng.standard_normal((len(mode.keep), rank)) * spread[:, None]
        rms = np.sqrt(np.maximum(np.sum(w * (gram @ w), axis=0), 1e-12))
        w = (mode.constant[:, None] + size * w / rms) * rank ** (-1.0 / len(modes))
        factors.append(Factor.point(w))
    if priors.basis is None:
        basis = tuple(Gamma(np.ones(len(m.keep)), np.ones(len(m.keep))) for m in modes)
    else:
        basis = tuple(
            Gamma(prior.shape, prior.rate * mode.rate_scale ** (schedule.warm_smoothing - 1.0))
            for mode, prior in ((mode, priors.basis_of(mode)) for mode in modes)
        )
    noise = Gamma(1.0, schedule.warm_noise)
    return State(modes, tuple(factors), basis, Gamma(np.ones(rank), np.ones(rank)), noise, np.nan)


class Sweeper:
    """Walks the modes back and forth, so that each step extends the environments by one mode."""

    def __init__(
        self, executor: Executor, state: State, data: Data, priors: Priors, schedule: Schedule
    ) -> None:
        self.executor = executor
        self.state = state
        self.data = data
        self.priors = priors
        self.schedule = schedule
        self.jitter = 0.0
        self.last: int | None = None  # the mode solved last
        self.switch(spread=False)

    def switch(self, *, spread: bool) -> None:
        """Leave covariances out of the moments, or take them in."""
        self.spread = spread
        self.refresh()

    def refresh(self) -> None:
        """Make every mode's terms anew and forget the environments."""
        pairs = zip(self.state.modes, self.state.factors, strict=True)
        self.terms = [cp.terms(mode, factor, spread=self.spread) for mode, factor in pairs]
        self.executor.each(lambda chunk: chunk.environments.reset())

    def rebalance(self) -> None:
        """Move scales between modes; terms follow without a new look at covariances."""
        self.state, scales = cavi.rebalance(self.state)
        self.terms = [term.scale(c) for term, c in zip(self.terms, scales, strict=True)]
        self.executor.each(lambda chunk: chunk.environments.reset())

    def sweep(self, *, mean_only: bool = False, reduce: bool = False) -> None:
        """Update the modes once, from the one solved last, which is left out, to the other end."""
        n = len(self.state.modes)
        if self.last is None or n == 1:
            order = range(n)
        else:
            order = range(n - 2, -1, -1) if self.last == n - 1 else range(1, n)
        for d in order:
            self.step(d, mean_only=mean_only, reduce=reduce)
            self.last = d

    def step(self, d: int, *, mean_only: bool = False, reduce: bool = False) -> None:
        """Update mode d and, in the exact phase, the precisions that hang on it."""
        rank = self.state.n_components
        block = self._sums(d)
        self._solve(d, block, mean_only=mean_only)
        if reduce:
            block = self._reduce(d, block)
        if self.spread:
            self.state, term = cavi.update_error(self.state, d, block, self.data)
            state = cavi.update_noise(self.state, self.data, self.priors)
            state = cavi.update_basis(state, d, self.priors)
            self.state = cavi.update_rank(state, self.priors)
        else:
            term = cp.terms(self.state.modes[d], self.state.factors[d], spread=False)
        if self.state.n_components == rank:
            self.terms[d] = term
            self.executor.each(lambda chunk: chunk.environments.changed(d))
        else:
            self.refresh()

    def _sums(self, d: int) -> Block:
        mode, rank, terms = self.state.modes[d], self.state.n_components, self.terms

        def sums(chunk: Any) -> tuple[Array, Array]:
            outside = chunk.environments.outside(
                d, lambda k: cp.moments(chunk.features(k), terms[k])
            )
            return cp.block_sums(chunk.features(d), outside, chunk.y, chunk.weight, mode, rank)

        second, linear = (np.asarray(part) for part in self.executor.sum(sums))
        return Block(mode, second, linear[mode.keep])

    def _solve(self, d: int, block: Block, *, mean_only: bool = False) -> None:
        self.state, jitter = cavi.update_factor(self.state, d, block, mean_only=mean_only)
        self.jitter = max(self.jitter, jitter)

    def _reduce(self, d: int, block: Block) -> Block:
        """Drop what the bound can do without; each drop needs mode d solved, and solves it anew."""
        kinds = []
        if self.schedule.drop_components:
            kinds.append(reduction.drop_components)
        if self.schedule.drop_functions:
            kinds.append(reduction.drop_functions)
        for drop in kinds:
            smaller = drop(self.state, d, block, self.priors, self.schedule.negligible)
            if smaller is not None:
                self.state, block = smaller
                self._solve(d, block)
        return block


def run(
    executor: Executor, state: State, data: Data, priors: Priors, schedule: Schedule
) -> Iterator[Progress]:
    """Fit one start, yielding after each sweep; the last state yielded is the result."""
    sweeper = Sweeper(executor, state, data, priors, schedule)
    begin = time.perf_counter()

    def progress(sweep: int, phase: str) -> Progress:
        state = sweeper.state
        terms = cavi.elbo_terms(state, data, priors) if phase == "exact" else {}
        return Progress(
            sweep=sweep,
            phase=phase,
            bound=sum(terms.values()) if terms else np.nan,
            terms=terms,
            rank=state.n_components,
            noise_std=float(1.0 / np.sqrt(state.noise.mean)),
            seconds=time.perf_counter() - begin,
            jitter=sweeper.jitter,
            state=state,
        )

    warm = schedule.warm_sweeps
    for sweep in range(warm):
        # the exact phase starts from every mode's covariance; a sweep leaves out its first mode
        sweeper.sweep(mean_only=sweep < warm - 2)
        yield progress(sweep + 1, "warm")
    sweeper.switch(spread=True)
    calm = 0
    previous: Progress | None = None
    for sweep in range(schedule.max_iter):
        if sweep and sweep % schedule.rebalance_every == 0:
            sweeper.rebalance()
        late = sweep >= schedule.first_reduction
        sweeper.sweep(reduce=late and sweep % schedule.reduce_every == 0)
        step = progress(warm + sweep + 1, "exact")
        if previous is not None:
            gain = step.bound - previous.bound
            fell = gain < -FALL * (1.0 + abs(previous.bound))
            if fell:
                _warn_of_fall(previous, step)
            calm = calm + 1 if gain < schedule.tol * data.n and not fell else 0
        step = replace(step, converged=calm >= 2 and late)
        yield step
        if step.converged:
            return
        previous = replace(step, state=None)


def _warn_of_fall(before: Progress, after: Progress) -> None:
    """Say that the bound fell, which only rounding can make it do, and where."""
    changes = {name: after.terms[name] - before.terms[name] for name in after.terms}
    worst = min(changes, key=lambda name: changes[name])
    warnings.warn(
        f"the bound must never fall, but sweep {after.sweep} took it from {before.bound:.6f} to "
        f"{after.bound:.6f}, most of it in the term {worst!r}; the noise is at the limit of "
        "rounding: a noise_prior with a larger rate keeps it away from there",
        RuntimeWarning,
        stacklevel=3,
    )
