"""From coordinates to posteriors: plan memory, run the starts, keep what they found."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # comes with scikit-learn

from ..bases.anchored import Anchored
from ..bases.categorical import Categorical
from ..bases.levels import Levels
from ..core import growing, posterior, row_block, schedule
from ..core.batch_stats import Past, alike
from ..core.cavi import Data
from ..core.gamma import Gamma
from ..core.levels import LevelMode
from ..core.likelihoods import Gaussian, Likelihood
from ..core.network import Network
from ..core.schedule import Pause, Progress, Schedule
from ..core.state import Mode, Priors, State
from ..core.sums import Sums
from ..core.sweeper import Sweeper
from . import local
from .processes import run_with_helpers
from .restarts import Start, limit_blas, run_starts

Array = np.ndarray
# Rows times packed pairs from which starts run in threads. The many short operations of smaller
# fits would spend their time passing the interpreter lock to and fro: those run in processes.
WORTH_A_THREAD = 1_000_000
FEWEST_WARM = 5  # sweeps of the warm phase with components to spare
ROWS_A_COMPONENT = 20  # at least, for these: with fewer they find what is not there
SPARE_COLUMNS, GROWTH_THAW = 6, 10  # of a stream's batch, and sweeps until they count in full
LEAST_GROWTH = 1.25  # the rank grows if twice what is left is so many times the rank at first
ANCHORED_THAW = 10  # sweeps; without them most interactions are lost (docs/experiments.md)
_INTERPRETER = 50 * 2**20  # bytes of a helper before it has any work
SMALLEST_LEFT = 1e-6  # share of var(y) that main effects are taken to leave at least


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a fit, checked.

    Below ``few_rows`` rows per basis function, all inputs together, starts go gently; a row counts
    for what its likelihood is worth.
    """

    priors: Priors
    likelihood: Likelihood  # as the warm phase has it
    schedule: Schedule
    smoothness: float
    network: Network
    max_rank: Any  # a number, or one for each bond of a train
    n_init: int
    memory_limit: float | None  # GiB; None for what is usual where the rows are
    n_jobs: int | None
    initial_rank: Any = None  # where the rank begins, if not at max_rank
    warm_rank: int = 0  # of the warm phase, if it is above the initial one; at most twice that
    few_rows: float = 4.0
    fewer_starts: bool = False  # whether there may be fewer, where memory is short

    def limit(self, rows: Any) -> float:
        """Return the limit of memory for rows that are there, in GiB."""
        return float(rows.usual_memory if self.memory_limit is None else self.memory_limit)


@dataclass(frozen=True)
class Problem:
    """Fitted bases of the modes, and rows with their coordinates in these."""

    bases: Sequence[Any]
    rows: Any  # LocalRows or DaskRows
    n_outputs: int | None = None  # how many values f has in each row, None for one
    effects: Sequence[Any] = ()  # main effects beside the modes, fitted
    effect_modes: Sequence[int | None] = ()  # the mode of the same input, if it has one
    before: Problem | None = None  # of the main effects alone, where these are fitted first


@dataclass(frozen=True)
class Work:
    """All that the starts need, ready to be run in any process."""

    blocks: Any  # LocalBlocks or DaskBlocks
    modes: tuple[Mode, ...]
    grams: tuple[Array, ...]  # each mode's average of phi phi^T over the rows
    data: Data
    priors: Priors
    likelihood: Likelihood
    schedule: Schedule
    rank: Any  # at the start
    max_rank: Any  # up to which it may grow
    warm_rank: int  # see Settings
    network: Network
    seeds: list[np.random.SeedSequence]
    output: int | None
    begun: Sequence[State] = ()  # posteriors to go on from, instead of random factors
    pasts: Sequence[Past] = ()  # rows that are gone, as each start knew them
    alike: bool = True  # whether their inputs are spread as those of the rows at hand
    sums: Sums | None = None  # where main effects begin

    def run(
        self, k: int, threads: local.Threads | None = None, pause: Pause | None = None
    ) -> Iterator[Progress]:
        """Return the sweeps of start k, from a pause on; ``threads`` share its blocks of rows."""
        rng = np.random.default_rng(self.seeds[k])

        def begin(rank: Any) -> State:
            return self._random(rank, self.modes, self.grams, rng)

        def grow(state: State, begun: Any) -> tuple[State, int] | None:
            twice = np.multiply(2, self.network.rank(state))
            doubled = np.minimum(twice, self.max_rank)
            # of one input there is no bond to grow
            grows = np.greater(doubled, begun) & (twice >= LEAST_GROWTH * np.asarray(begun))
            if not np.any(grows) or not self.schedule.drop_components:
                return None
            rank = doubled.tolist()
            spare = self.spare(rank)
            return schedule.grown(state, begin(np.add(rank, spare))), spare

        with closing(self.blocks.executor(len(self.modes), self.network, threads)) as executor:
            spare = 0 if self.begun else self.spare(self.rank)
            how, may_grow = replace(self.schedule, spare=spare), None if self.begun else grow
            if self.begun:
                first, how = self.begun[k], replace(how, warm_sweeps=0, thaw_sweeps=0)
            elif pause is None:
                first = begin(np.add(self.rank, spare))
            else:
                first, rng.bit_generator.state = pause.memory.state, pause.random
            past = self.pasts[k] if self.pasts else None
            if past is not None:
                first, past = self._widened(first, past, rng)
                if first is not self.begun[k]:
                    # all at once, what is not known of new columns would outweigh the data
                    how = replace(how, thaw_sweeps=GROWTH_THAW)
            for step in schedule.run(
                executor, first, self.data, self.priors, how, may_grow, pause, past
            ):
                if step.pause is not None:
                    here = replace(step.pause, random=rng.bit_generator.state)
                    step = replace(step, pause=here)
                yield step

    def _widened(self, state: State, past: Past, rng: np.random.Generator) -> tuple[State, Past]:
        """Return a posterior with columns to spare, for what these rows show and none before."""
        before = self.network.rank(state)
        spare = min(SPARE_COLUMNS, int((self.data.n - past.data.n) / ROWS_A_COMPONENT))
        rank = np.maximum(before, np.minimum(np.add(before, spare), self.max_rank)).tolist()
        may_grow = self.schedule.drop_components and self.alike
        if not may_grow or not np.any(np.greater(rank, before)):
            return state, past
        grams = []
        for gram, mode, own in zip(self.grams, self.modes, state.modes, strict=True):
            kept = np.isin(mode.keep, own.keep)
            grams.append(gram[np.ix_(kept, kept)])
        fresh = self._random(rank, state.modes, tuple(grams), rng)
        if np.any(np.less(self.network.rank(fresh), before)):  # of a bond whose side lost functions
            return state, past
        return growing.widened(state, fresh, past)

    def _random(
        self, rank: Any, modes: tuple[Any, ...], grams: tuple[Array, ...], rng: np.random.Generator
    ) -> State:
        """Return random factors."""
        return schedule.initial_state(
            self.network,
            modes,
            grams,
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
    ) -> Past:
        """Return what the rows have to say of a posterior.

        Their targets are known by ``data``, and their features add up to those given.
        """
        with closing(self.blocks.executor(len(self.modes), self.network, threads)) as executor:
            sweeper = Sweeper(executor, state, data, self.priors)
            sweeper.state = state  # whatever it has learned from these rows alone
            return sweeper.absorbed(features)

    def spare(self, rank: Any) -> int:
        """Return with how many components more than ``rank`` the warm phase begins."""
        if not self.warm_rank:
            return 0
        return int(max(min(2 * rank, self.warm_rank) - rank, 0))


@dataclass(frozen=True)
class Result:
    """The starts that reached the exact phase, and how the fit ended.

    ``averages`` holds each mode's averages of phi and phi phi^T over the rows.
    """

    starts: list[Start]
    averages: list[tuple[Array, Array]]
    count: int  # of all starts, those that found nothing to keep included
    interrupted: bool
    ended: bool  # whether every start went to its end
    pasts: Sequence[Past] = ()  # what the rows have said to each, those before included
    effects: Sequence[posterior.EffectAverages] = ()  # of main effects

    @property
    def best(self) -> Start:
        """The start with the highest bound."""
        return max(self.starts, key=lambda start: start.last.bound)


def plan_starts(
    settings: Settings,
    n: int,
    sizes: Sequence[tuple[int, int]],
    count: int,
    threads: int,
    per_row: int = 0,
    **where: Any,
) -> tuple[int, Any, local.Plan]:
    """Return the number of starts, fewer where "auto" and memory say so, the rank, and the plan.

    ``where`` the rows are is told to ``local.make_plan``.
    """

    def plan(rank: Any, count: int) -> local.Plan:
        warm_rank = 0
        if settings.warm_rank:
            warm_rank = min(2 * rank, settings.warm_rank, n // ROWS_A_COMPONENT)
        footprint = settings.network.footprint(rank, len(sizes), warm_rank)
        assert settings.memory_limit is not None
        return local.make_plan(
            n,
            sizes,
            footprint,
            count,
            threads,
            settings.memory_limit,
            per_row,
            **where,
        )

    begun = settings.initial_rank or settings.max_rank
    while True:
        try:
            first = plan(begun, count)
            break
        except MemoryError:
            if count == 1 or not settings.fewer_starts:
                raise
            count -= 1
    for most in range(int(np.max(settings.max_rank)), int(np.max(begun)), -1):
        # it grows as far as there is room to keep what the smaller rank has room for
        with suppress(MemoryError):
            rank = np.minimum(settings.max_rank, most).tolist()
            larger = plan(rank, count)
            if (larger.keep_features, larger.stride) == (first.keep_features, first.stride):
                return count, rank, larger
    return count, begun, first


def fit(
    problem: Problem,
    settings: Settings,
    seed: list[int],
    observe: Callable[[int, Progress], bool | None],
    *,
    may_find_nothing: bool = False,
    go_on_from: Sequence[State] = (),
    saved: list[Start] | None = None,
    pasts: Sequence[Past] | None = None,
) -> Result:
    """Run every start and return what they found; if that is nothing, say so, unless it may be.

    Starts ``go_on_from`` posteriors, if there are any, one each. Those ``saved`` by an earlier fit
    that was interrupted go on from where they were; the list is filled if it is empty. ``pasts``
    are rows that are gone, as each start knew them, or none of them: then it is kept what these
    rows have to say.
    """
    rows, n = problem.rows, problem.rows.n
    limit = settings.limit(rows)
    settings = replace(settings, memory_limit=limit)
    count = settings.n_init
    threads = 1 if rows.elsewhere else n_threads(settings.n_jobs)
    sizes = [size_of(basis) for basis in problem.bases]
    rank = settings.max_rank
    begun = settings.initial_rank or rank
    wanted = count
    # weights, pulls and two moments of f, of every output
    per_row = 0 if settings.likelihood.fixed else 4 * (problem.n_outputs or 1)
    planned = sizes or [(1, 1)]
    if sizes and problem.n_outputs is not None:
        planned = [*sizes, levels_size(problem.n_outputs)]
    n_effects = sum(effect.n_functions_ for effect in problem.effects)
    small = n * settings.network.footprint(rank, len(planned)).block < WORTH_A_THREAD
    small = small and not rows.spilled and not rows.elsewhere
    side_by_side = 1 if small else threads
    where = {
        "spilled": rows.spilled,
        "on_device": rows.on_device,
        "number_bytes": rows.number_bytes,
        "n_features": sum(
            sum(size) if isinstance(basis, Levels) else basis.n_numbers
            for basis, size in zip(problem.bases, sizes, strict=True)
        )
        + n_effects,
    }
    count, rank, plan = plan_starts(
        settings, rows.n_here, planned, count, side_by_side, per_row, **where
    )
    if count < wanted:
        warnings.warn(
            f"memory_limit={limit:g} has room for {count} of {wanted} starts, and "
            "fewer predict a little worse; raise it, or lower max_rank or n_basis.",
            UserWarning,
            stacklevel=7,
        )
    data = here = rows.data()
    for past in (pasts or ())[:1]:  # the same for all, but for what was made of them
        data = Data(here.n + past.data.n, here.square + past.data.square)
    how = settings.schedule
    worth = settings.likelihood.worth * data.n
    modes = tuple(make_mode(basis, settings.smoothness) for basis in problem.bases)
    anchored = any(mode.anchored for mode in modes)
    smooth = problem.n_outputs is None and all(mode.may_lose_functions for mode in modes)
    warm_rank = 0
    if how.warm_sweeps >= FEWEST_WARM and len(modes) > 1 and smooth and not anchored:
        warm_rank = min(settings.warm_rank, int(worth / ROWS_A_COMPONENT))
    network = settings.network
    if not modes:  # nothing is random, but noise that is not held low at first hides curves
        held = settings.likelihood.additive and not settings.likelihood.fixed
        how = replace(how, warm_sweeps=how.warm_sweeps if held else 0, thaw_sweeps=0)
    elif how.warm_sweeps and network.thaw:
        how = replace(how, warm_smoothing=network.smoothing, thaw_sweeps=network.thaw)
    elif how.warm_sweeps and anchored:
        how = replace(how, thaw_sweeps=ANCHORED_THAW)
    elif how.warm_sweeps and worth < settings.few_rows * sum(m for m, _ in sizes):
        # a rough start interpolates, and covariances all at once outweigh the data: nothing is
        # found then where there is much to find (docs/experiments.md)
        how = replace(how, warm_smoothing=settings.likelihood.gentle, thaw_sweeps=12)
    blocks = rows.blocks(plan, [*problem.bases, *problem.effects])
    with closing(blocks.executor(len(modes))) as executor:
        features = local.feature_sums(executor, len(modes))
        effects = _effect_averages(executor, problem, data.n)
    seen, similar = features, True
    for past in (pasts or ())[:1]:
        seen = tuple((a + c, b + d) for (a, b), (c, d) in zip(features, past.features, strict=True))
        similar = alike(features, here.n, past)
    averages = [
        (phi / data.n, mode.average_gram(psi / data.n))
        for mode, (phi, psi) in zip(modes, seen, strict=True)
    ]
    output = None
    if problem.n_outputs is not None and modes:
        output, k = len(modes), problem.n_outputs
        modes += (output_mode(k),)
        # what all classes have in common changes no probability
        averages.append((np.zeros(k), (np.eye(k) - 1.0 / k) / k))
    work = Work(
        blocks=blocks,
        modes=modes,
        grams=tuple(
            gram[np.ix_(mode.keep, mode.keep)]
            for mode, (_, gram) in zip(modes, averages, strict=True)
        ),
        data=data,
        priors=settings.priors,
        likelihood=settings.likelihood,
        schedule=how,
        rank=settings.network.ranks(begun, modes),
        max_rank=settings.network.ranks(rank, modes),
        warm_rank=warm_rank,
        network=settings.network,
        seeds=np.random.SeedSequence(seed).spawn(count),
        output=output,
        begun=go_on_from,
        pasts=pasts or (),
        alike=similar,
        sums=Sums.begin(problem.effects, problem.n_outputs or 1) if problem.effects else None,
    )
    if problem.before is not None and not go_on_from:
        work = _after_sums(work, problem.before, settings, seed)
    # a helper has an interpreter, rows and features of its own, and gets them as a parcel
    room = limit * local.GIB - plan.n_bytes
    fit_in_memory = int(max(room, 0.0) // (_INTERPRETER + 2 * plan.n_bytes))
    helpers = min(threads - 1, count - 1, fit_in_memory) if plan.keep_features else 0
    # starts side by side, or else the blocks of rows of one start: either way BLAS on one thread
    across_rows = threads > 1 and plan.n_parallel == 1 and plan.block_rows < n
    with limit_blas(), local.Threads(threads) if across_rows else nullcontext() as pool:
        if small and helpers > 0 and saved is None:
            starts, interrupted = run_with_helpers(work, count, helpers, observe)
        else:
            starts = [Start() for _ in range(count)]
            if saved is not None:
                saved += starts[len(saved) :]
                starts = saved
            starts, interrupted = run_starts(
                lambda k: work.run(k, pool, starts[k].pause),
                count,
                plan.n_parallel,
                observe,
                starts,
            )
        usable = [start for start in starts if start.usable]
        kept: list[Past] = []
        if pasts is not None and (not pasts or not interrupted):
            # by the same threads, whose memory is theirs
            kept = [work.absorbed(start.state, here, features, pool) for start in usable]
    if not may_find_nothing and not any(start.usable for start in starts):
        if interrupted:
            raise KeyboardInterrupt("no start had reached its exact phase: nothing to keep")
        raise RuntimeError(
            "the callback must not stop before the exact phase: there is nothing to keep yet; "
            "stop where entry['phase'] == 'exact'."
        )
    ended = all(start.stop_reason == "finished" for start in starts)
    if pasts and kept:
        before = [start.last.past for start in usable]
        kept = [a + b for a, b in zip(before, kept, strict=True) if a is not None]
    return Result(usable, averages, len(starts), interrupted, ended, kept, effects)


def _after_sums(work: Work, before: Problem, settings: Settings, seed: list[int]) -> Work:
    """Return the work that is left once main effects are fitted alone.

    Those that the ELBO can do without are gone, and the noise that the warm phase begins with is in
    units of what they leave.
    """
    result = fit(before, replace(settings, n_init=1), seed, lambda *_: None, may_find_nothing=True)
    if not result.starts:
        return work
    alone = result.starts[0].state
    likelihood = work.likelihood
    if isinstance(likelihood, Gaussian) and isinstance(alone.likelihood, Gaussian):
        left = min(alone.likelihood.error / work.data.n, 1.0)
        noise = Gamma(likelihood.noise.shape, likelihood.noise.rate * max(left, SMALLEST_LEFT))
        likelihood = replace(likelihood, noise=noise)
    return replace(work, sums=alone.sums, likelihood=likelihood)


def _effect_averages(
    executor: Any, problem: Problem, total: float
) -> list[posterior.EffectAverages]:
    """Return averages over the rows of the functions of main effects."""
    modes = list(problem.effect_modes)
    if not modes:
        return []
    first = len(problem.bases)
    sums = executor.sum(partial(row_block.effect_averages, first=first, modes=modes))
    sums = [np.asarray(part) / total for part in sums]
    parts = zip(modes, sums[::3], sums[1::3], sums[2::3], strict=True)
    return [posterior.EffectAverages(*part) for part in parts]


def ending(results: Sequence[Result], max_iter: int, tol: float) -> tuple[bool, str]:
    """Return whether all starts have converged, and why the fit ended."""
    count = sum(result.count for result in results)
    starts = [start for result in results for start in result.starts]
    ended = all(result.ended for result in results)
    still = sum(not start.last.converged for start in starts)
    kept = f"the posteriors of {len(starts)} of {count} starts, as they stood, are kept."
    if any(result.interrupted for result in results):
        reason = f"Interrupted: {kept}"
    elif not ended:
        reason = f"A callback asked to stop: {kept}"
    elif still:
        reason = f"max_iter={max_iter} sweeps were used; {still} of {count} starts still moved."
    else:
        reason = f"In every start the bound gained less than tol={tol:g} per row and sweep."
    return ended and not still, reason


def total_effects(
    state: State, averages: Any, effects: Any, n_draws: int, rng: np.random.Generator
) -> Array:
    """Return draws of every input's total effect on f: (draws, inputs).

    The inputs are those of the tensor's modes, then those of the main effects. ``averages`` and
    ``effects`` are those of ``Result``.
    """
    kept = [
        (phi[mode.present], gram[np.ix_(mode.present, mode.present)])
        for mode, (phi, gram) in zip(state.modes, averages, strict=True)
    ]
    weights = posterior.draw_weights(state, n_draws, rng)
    sums = None if state.sums is None else state.sums.draw(n_draws, rng)
    draws = []
    for i in range(n_draws):
        drawn = [draw[i] for draw in weights]
        parts = [np.zeros(0)]
        if drawn:
            parts = [posterior.total_effects(state, drawn, kept)[: state.n_inputs]]
        if sums is not None:
            parts.append(posterior.sum_effects(state, sums[i], drawn, kept, effects))
        draws.append(np.concatenate(parts))
    return np.array(draws)


def size_of(basis: Any) -> tuple[int, int]:
    """Return M and K of a basis, for what it takes in memory."""
    if isinstance(basis, Levels):
        return levels_size(len(basis.shares_))
    return basis.n_functions_, basis.n_products_


def levels_size(count: int) -> tuple[int, int]:
    """Return the M and K whose memory is that of so many levels: L R^2 numbers, sparse rows."""
    return int(np.ceil(np.sqrt(count))), 4


def make_mode(basis: Any, smoothness: float) -> Any:
    """Return the engine's view of a fitted basis."""
    if isinstance(basis, Levels):
        levels = np.arange(len(basis.shares_))
        return LevelMode(levels, np.ones(len(levels)), basis.shares_)
    anchored = isinstance(basis, Anchored)
    keep = np.arange(int(anchored), basis.n_functions_)
    return Mode(
        keep=keep,
        full_table=basis.table_,
        rate_scale=(1.0 + np.asarray(basis.degrees_, dtype=float)[keep]) ** (-2.0 * smoothness),
        constant=np.asarray(basis.constant_, dtype=float)[keep],
        anchored=anchored,
    )


def with_functions_of(mode: Any, old: Any, new: Any, smoothness: float) -> Any:
    """Return the engine's view of a basis with levels more, without functions that were dropped."""
    full = make_mode(new, smoothness)
    if isinstance(new, Levels):
        return full
    keep = np.append(mode.keep, np.arange(old.n_functions_, new.n_functions_))
    return full.take(np.searchsorted(full.keep, keep))


def of_a_new_level(state: State, d: int, basis: Any) -> Array:
    """Return the weights of the average of all levels, or of a gap that makes no difference."""
    mean = state.factors[d].mean
    if state.modes[d].anchored or not isinstance(basis.basis_, Categorical):
        return np.zeros(mean.shape[1])
    return np.asarray(basis.average_phi_[state.modes[d].keep] @ mean)


def output_mode(n_outputs: int) -> LevelMode:
    """Return the mode of the outputs: one function each, no two ever at once."""
    return LevelMode(np.arange(n_outputs), np.ones(n_outputs), None, anchored=False)


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
