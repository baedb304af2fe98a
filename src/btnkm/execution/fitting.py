"""From coordinates to posteriors: plan memory, run the restarts, keep the results."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core import posterior, row_block
from ..core.batch_stats import BatchStats, similar_inputs
from ..core.cavi import Data
from ..core.gamma import Gamma
from ..core.likelihoods import Gaussian, Likelihood
from ..core.network import Network
from ..core.schedule import Schedule
from ..core.state import Priors, State
from ..core.sums import Sums
from . import local
from .modes import levels_size, make_mode, n_features, output_mode, size_of
from .processes import WORTH_HELPERS, run_with_helpers
from .restarts import Observer, Restart, limit_blas, n_threads, run_restarts
from .runner import ROWS_PER_COMPONENT, RestartRunner

Array = np.ndarray
# Rows times packed pairs from which restarts run in threads; those of smaller fits run in processes
WORTH_A_THREAD = 1_000_000
FEWEST_WARM = 5  # sweeps of the warm phase with extra components
ANCHORED_ANNEALING = 10  # sweeps; without them most interactions are lost (docs/experiments.md)
FEW_ROWS_ANNEALING = 12  # sweeps
SMALLEST_LEFT = 1e-6  # fraction of var(y) that main effects are taken to leave at least
_INTERPRETER = 50 * 2**20  # bytes of a helper process before it has any work


@dataclass(frozen=True)
class Settings:
    """Everything that shapes a fit, checked.

    Below ``few_rows`` rows per basis function, all inputs together, restarts have an annealing
    phase; a row counts for the ``worth`` of its likelihood.
    """

    priors: Priors
    likelihood: Likelihood  # as the warm phase has it
    schedule: Schedule
    smoothness: float
    network: Network
    max_rank: Any  # a number, or one for each bond of a tensor train
    n_init: int
    memory_limit: float | None  # GiB; None for the usual limit where the rows are
    n_jobs: int | None
    initial_rank: Any = None  # that restarts begin with, if not max_rank
    warm_rank: int = 0  # of the warm phase, if it is above the initial one; at most twice that
    few_rows: float = 4.0
    fewer_starts: bool = False  # whether there may be fewer restarts, where memory is short
    worth_a_thread: int = WORTH_A_THREAD
    worth_helpers: float = WORTH_HELPERS  # see ``processes``

    @property
    def first_rank(self) -> Any:
        """The rank that restarts begin with."""
        return self.initial_rank or self.max_rank

    def limit(self, rows: Any) -> float:
        """Return the limit of memory for rows that are there, in GiB."""
        return float(rows.usual_memory if self.memory_limit is None else self.memory_limit)


@dataclass(frozen=True)
class Problem:
    """Fitted bases of the modes, and rows with their coordinates in these."""

    bases: Sequence[Any]
    rows: Any  # LocalRows or DaskRows
    n_outputs: int | None = None  # values of f in each row, None for one
    effects: Sequence[Any] = ()  # main effects beside the modes, fitted
    effect_modes: Sequence[int | None] = ()  # the mode of the same input, if it has one
    before: Problem | None = None  # of the main effects alone, where these are fitted first

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """M and K of every mode, the one of the outputs included."""
        sizes = [size_of(basis) for basis in self.bases]
        if sizes and self.n_outputs is not None:
            sizes.append(levels_size(self.n_outputs))
        return sizes or [(1, 1)]


@dataclass(frozen=True)
class Result:
    """The restarts that reached the exact phase, and how the fit ended.

    ``averages`` holds each mode's averages of phi and phi phi^T over the rows: (M,) and (M, M).
    """

    starts: list[Restart]
    averages: list[tuple[Array, Array]]
    count: int  # of all restarts
    interrupted: bool
    ended: bool  # whether every restart went to its end
    pasts: Sequence[BatchStats] = ()  # sums over these rows and earlier ones, for each restart
    effects: Sequence[posterior.EffectAverages] = ()  # of main effects

    @property
    def best(self) -> Restart:
        """The restart with the highest ELBO."""
        return max(self.starts, key=lambda restart: restart.last.bound)


def fit(
    problem: Problem,
    settings: Settings,
    seed: list[int],
    observe: Observer,
    *,
    may_find_nothing: bool = False,
    go_on_from: Sequence[State] = (),
    saved: list[Restart] | None = None,
    pasts: Sequence[BatchStats] | None = None,
) -> Result:
    """Run every restart and return those that reached the exact phase.

    Parameters
    ----------
    problem : Problem
    settings : Settings
    seed : list of int
    observe : callable
        Given the number of a restart and its ``Progress`` after each sweep; True ends the fit.
    may_find_nothing : bool
        Whether there may be no such restart; else that is an error.
    go_on_from : sequence of State
        Posteriors to go on from, one for each restart.
    saved : list of Restart, optional
        Restarts of an interrupted fit, which are resumed. The list is filled if it is empty.
    pasts : sequence of BatchStats, optional
        Sums over the rows of earlier batches, for each restart; empty for the first batch. Unless
        None, the result holds those of all rows so far.
    """
    room = _plan_room(problem, settings)
    prepared = _prepare(problem, settings, room, pasts or ())
    seeds = np.random.SeedSequence(seed).spawn(room.count)
    runner = _make_runner(problem, settings, room, prepared, seeds)
    runner = replace(runner, states=go_on_from, pasts=pasts or ())
    if problem.before is not None and not go_on_from:
        runner = _after_sums(runner, problem.before, settings, seed)
    # restarts in parallel, or else the blocks of rows of one; either way BLAS has one thread
    across_rows = (
        room.threads > 1 and room.plan.n_parallel == 1 and room.plan.block_rows < problem.rows.n
    )
    with limit_blas(), local.Threads(room.threads) if across_rows else nullcontext() as pool:
        restarts, interrupted = _run(runner, room, settings, observe, saved, pool)
        usable = [restart for restart in restarts if restart.usable]
        kept: list[BatchStats] = []
        if pasts is not None and (not pasts or not interrupted):
            # by the same threads, which reuse their memory
            here, features = problem.rows.data(), prepared.features
            kept = [runner.absorbed(restart.state, here, features, pool) for restart in usable]
    if not usable and not may_find_nothing:
        _raise_nothing_found(interrupted)
    if pasts and kept:
        before = [restart.last.past for restart in usable]
        kept = [a + b for a, b in zip(before, kept, strict=True) if a is not None]
    ended = all(restart.stop_reason == "finished" for restart in restarts)
    return Result(
        usable, prepared.averages, len(restarts), interrupted, ended, kept, prepared.effects
    )


@dataclass(frozen=True)
class Room:
    """How many restarts there is room for, where they run, and what they keep in memory."""

    count: int
    max_rank: Any  # the highest rank that there is room for
    plan: local.Plan
    threads: int
    helpers: int  # processes; 0 where restarts run in threads


def _plan_room(problem: Problem, settings: Settings) -> Room:
    """Plan the memory of a fit, and warn if there is room for fewer restarts only."""
    rows, network, sizes = problem.rows, settings.network, problem.sizes
    limit = settings.limit(rows)
    settings = replace(settings, memory_limit=limit)
    threads = 1 if rows.elsewhere else n_threads(settings.n_jobs)
    work = rows.n * network.footprint(settings.max_rank, len(sizes)).block
    small = work < settings.worth_a_thread and not rows.spilled and not rows.elsewhere
    # weights, working responses and two moments of f, of every output
    per_row = 0 if settings.likelihood.fixed else 4 * (problem.n_outputs or 1)
    of_modes = sum(n_features(basis) for basis in problem.bases)
    of_effects = sum(effect.n_functions_ for effect in problem.effects)
    count, max_rank, plan = plan_restarts(
        settings,
        rows.n_here,
        sizes,
        settings.n_init,
        1 if small else threads,
        per_row,
        spilled=rows.spilled,
        on_device=rows.on_device,
        number_bytes=rows.number_bytes,
        n_features=of_modes + of_effects,
    )
    if count < settings.n_init:
        warnings.warn(
            f"the memory limit of {limit:.3g} GiB has room for {count} of {settings.n_init} "
            "restarts, and fewer predict a little worse; raise it, or lower max_rank or n_basis.",
            UserWarning,
            stacklevel=8,
        )
    helpers = 0
    if small and plan.keep_features:
        # a helper has an interpreter, rows and features of its own, and receives them pickled
        left = limit * local.GIB - plan.n_bytes
        helpers = min(
            threads - 1, count - 1, int(max(left, 0.0) // (_INTERPRETER + 2 * plan.n_bytes))
        )
    return Room(count, max_rank, plan, threads, helpers)


def plan_restarts(
    settings: Settings,
    n: int,
    sizes: Sequence[tuple[int, int]],
    count: int,
    threads: int,
    per_row: int = 0,
    **where: Any,
) -> tuple[int, Any, local.Plan]:
    """Return how many restarts there is room for, the highest rank, and the plan.

    There are fewer than ``count`` only if the settings allow it. ``where`` the rows are is passed
    on to ``local.make_plan``.
    """

    def plan(rank: Any, count: int) -> local.Plan:
        warm_rank = 0
        if settings.warm_rank:
            warm_rank = min(2 * rank, settings.warm_rank, n // ROWS_PER_COMPONENT)
        footprint = settings.network.footprint(rank, len(sizes), warm_rank)
        limit = settings.memory_limit
        assert limit is not None
        return local.make_plan(n, sizes, footprint, count, threads, limit, per_row, **where)

    while True:
        try:
            first = plan(settings.first_rank, count)
            break
        except MemoryError:
            if count == 1 or not settings.fewer_starts:
                raise
            count -= 1
    highest, lowest = (int(np.max(rank)) for rank in (settings.max_rank, settings.first_rank))
    for most in range(highest, lowest, -1):
        # the rank grows as far as there is room to keep what the first rank has room for
        with suppress(MemoryError):
            rank = np.minimum(settings.max_rank, most).tolist()
            larger = plan(rank, count)
            if (larger.keep_features, larger.stride) == (first.keep_features, first.stride):
                return count, rank, larger
    return count, settings.first_rank, first


class _Prepared(NamedTuple):
    """The rows, cut into blocks, and sums over them."""

    blocks: Any  # LocalBlocks or DaskBlocks
    modes: tuple[Any, ...]  # without the one of the outputs
    data: Data  # of all rows, including those of earlier batches
    features: tuple[tuple[Array, Array], ...]  # sums of phi and psi of each mode, over these rows
    averages: list[tuple[Array, Array]]  # of phi and phi phi^T of each mode, over all rows
    effects: list[posterior.EffectAverages]
    alike: bool  # whether inputs are spread as in earlier batches


def _prepare(
    problem: Problem, settings: Settings, room: Room, pasts: Sequence[BatchStats]
) -> _Prepared:
    """Cut the rows into blocks, and average their features."""
    data = here = problem.rows.data()
    modes = tuple(make_mode(basis, settings.smoothness) for basis in problem.bases)
    blocks = problem.rows.blocks(room.plan, [*problem.bases, *problem.effects])
    for past in pasts[:1]:  # all restarts have had the same rows
        data = Data(here.n + past.data.n, here.square + past.data.square)
    with closing(blocks.executor(len(modes))) as executor:
        features = local.feature_sums(executor, len(modes))
        effects = _effect_averages(executor, problem, data.n)
    seen, similar = features, True
    for past in pasts[:1]:
        seen = tuple((a + c, b + d) for (a, b), (c, d) in zip(features, past.features, strict=True))
        similar = similar_inputs(features, here.n, past)
    averages = [
        (phi / data.n, mode.average_gram(psi / data.n))
        for mode, (phi, psi) in zip(modes, seen, strict=True)
    ]
    if problem.n_outputs is not None and modes:
        k = problem.n_outputs
        # what all classes have in common changes no probability
        averages.append((np.zeros(k), (np.eye(k) - 1.0 / k) / k))
    return _Prepared(blocks, modes, data, features, averages, effects, similar)


def _make_runner(
    problem: Problem,
    settings: Settings,
    room: Room,
    prepared: _Prepared,
    seeds: list[np.random.SeedSequence],
) -> RestartRunner:
    modes, output = prepared.modes, None
    schedule, warm_rank = _schedule(problem, settings, modes, prepared.data.n)
    if problem.n_outputs is not None and modes:
        output = len(modes)
        modes += (output_mode(problem.n_outputs),)
    return RestartRunner(
        blocks=prepared.blocks,
        modes=modes,
        grams=tuple(
            gram[np.ix_(mode.keep, mode.keep)]
            for mode, (_, gram) in zip(modes, prepared.averages, strict=True)
        ),
        data=prepared.data,
        priors=settings.priors,
        likelihood=settings.likelihood,
        schedule=schedule,
        rank=settings.network.ranks(settings.first_rank, modes),
        max_rank=settings.network.ranks(room.max_rank, modes),
        warm_rank=warm_rank,
        network=settings.network,
        seeds=seeds,
        output=output,
        alike=prepared.alike,
        sums=Sums.begin(problem.effects, problem.n_outputs or 1) if problem.effects else None,
    )


def _schedule(
    problem: Problem, settings: Settings, modes: Sequence[Any], n: float
) -> tuple[Schedule, int]:
    """Return the schedule of restarts, and the most components of its warm phase."""
    schedule, network, likelihood = settings.schedule, settings.network, settings.likelihood
    worth = likelihood.worth * n
    anchored = any(mode.anchored for mode in modes)
    smooth = problem.n_outputs is None and all(mode.may_lose_functions for mode in modes)
    warm_rank = 0
    if schedule.warm_sweeps >= FEWEST_WARM and len(modes) > 1 and smooth and not anchored:
        warm_rank = min(settings.warm_rank, int(worth / ROWS_PER_COMPONENT))
    few_rows = worth < settings.few_rows * sum(size_of(basis)[0] for basis in problem.bases)
    changes: dict[str, Any] = {}
    if not modes:  # nothing is random, but noise that is not held low at first hides curves
        held = likelihood.additive and not likelihood.fixed
        changes = {"warm_sweeps": schedule.warm_sweeps if held else 0, "annealing_sweeps": 0}
    elif not schedule.warm_sweeps:
        pass
    elif network.annealing_sweeps:
        changes["warm_smoothing"] = network.smoothing
        changes["annealing_sweeps"] = network.annealing_sweeps
    elif anchored:
        changes["annealing_sweeps"] = ANCHORED_ANNEALING
    elif few_rows:
        # a rough beginning interpolates, and covariances all at once outweigh the data: nothing is
        # found then where there is much to find (docs/experiments.md)
        changes["warm_smoothing"] = likelihood.gentle
        changes["annealing_sweeps"] = FEW_ROWS_ANNEALING
    return replace(schedule, **changes), warm_rank


def _after_sums(
    runner: RestartRunner, before: Problem, settings: Settings, seed: list[int]
) -> RestartRunner:
    """Return the runner of what is left once main effects are fitted alone.

    Effects that the ELBO drops are gone, and the noise that the warm phase begins with is in units
    of what they leave.
    """
    result = fit(before, replace(settings, n_init=1), seed, lambda *_: None, may_find_nothing=True)
    if not result.starts:
        return runner
    alone = result.starts[0].state
    likelihood = runner.likelihood
    if isinstance(likelihood, Gaussian) and isinstance(alone.likelihood, Gaussian):
        left = min(alone.likelihood.error / runner.data.n, 1.0)
        noise = Gamma(likelihood.noise.shape, likelihood.noise.rate * max(left, SMALLEST_LEFT))
        likelihood = replace(likelihood, noise=noise)
    return replace(runner, sums=alone.sums, likelihood=likelihood)


def _run(
    runner: RestartRunner,
    room: Room,
    settings: Settings,
    observe: Observer,
    saved: list[Restart] | None,
    threads: local.Threads | None,
) -> tuple[list[Restart], bool]:
    """Run the restarts in helper processes or threads; resume those that are ``saved``."""
    if room.helpers > 0 and saved is None:
        return run_with_helpers(runner, room.count, room.helpers, observe, settings.worth_helpers)
    restarts = [Restart() for _ in range(room.count)]
    if saved is not None:
        saved += restarts[len(saved) :]
        restarts = saved
    return run_restarts(
        lambda k: runner.run(k, threads, restarts[k].pause),
        room.count,
        room.plan.n_parallel,
        observe,
        restarts,
    )


def _raise_nothing_found(interrupted: bool) -> None:
    if interrupted:
        raise KeyboardInterrupt("no restart had reached its exact phase: nothing to keep")
    raise RuntimeError(
        "the callback must not stop before the exact phase: there is nothing to keep yet; "
        "stop where entry['phase'] == 'exact'."
    )


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


def ending(results: Sequence[Result], tol: float) -> tuple[bool, str]:
    """Return whether all restarts have converged, and why the fit ended."""
    count = sum(result.count for result in results)
    restarts = [restart for result in results for restart in result.starts]
    ended = all(result.ended for result in results)
    moving = sum(not restart.last.converged for restart in restarts)
    kept = f"the posteriors of {len(restarts)} of {count} restarts, as they stood, are kept."
    if any(result.interrupted for result in results):
        reason = f"Interrupted: {kept}"
    elif not ended:
        reason = f"A callback stopped the fit: {kept}"
    elif moving:
        reason = f"{moving} of {count} restarts used all their sweeps and had not converged."
    else:
        reason = f"In every restart the ELBO gained less than tol={tol:g} per row and sweep."
    return ended and not moving, reason


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
