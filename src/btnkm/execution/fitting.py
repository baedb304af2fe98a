"""From coordinates to posteriors: plan memory, run the restarts, keep the results."""

from __future__ import annotations

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
from ..core.likelihoods import Gaussian, Varying
from ..core.state import State
from ..core.sums import Sums
from ..warn import warn
from . import local
from .modes import categories_size, make_mode, n_features, output_mode, size_of
from .processes import run_with_helpers
from .restarts import (
    Observer,
    Restart,
    RestartRunner,
    RestartSettings,
    limit_blas,
    n_threads,
    run_restarts,
)

Array = np.ndarray
INTERRUPTED, STOPPED = "Interrupted", "A callback stopped the fit"  # how reasons begin
_INTERPRETER = 50 * 2**20  # bytes of a helper process before it has any work


@dataclass(frozen=True)
class Problem:
    """Fitted bases of the modes, and rows with their coordinates in these."""

    bases: Sequence[Any]
    rows: Any  # LocalRows or DaskRows
    n_outputs: int | None = None  # values of f in each row, None for one
    effects: Sequence[Any] = ()  # main effects beside the modes, fitted
    effect_modes: Sequence[int | None] = ()  # the mode of the same input, if it has one
    before: Problem | None = None  # of the main effects alone, where these are fitted first
    noise_effects: Sequence[Any] = ()  # of the log precision of the noise, fitted

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """M and K of every mode, the one of the outputs included."""
        sizes = [size_of(basis) for basis in self.bases]
        if sizes and self.n_outputs is not None:
            sizes.append(categories_size(self.n_outputs))
        return sizes or [(1, 1)]


@dataclass(frozen=True)
class Result:
    """The restarts that reached the exact phase, and how the fit ended.

    ``averages`` holds each mode's averages of phi and phi phi^T over the rows: (M,) and (M, M).
    """

    restarts: list[Restart]
    averages: list[tuple[Array, Array]]
    count: int  # of all restarts
    interrupted: bool
    ended: bool  # whether every restart went to its end
    pasts: Sequence[BatchStats] = ()  # sums over these rows and earlier ones, for each restart
    effects: Sequence[posterior.EffectAverages] = ()  # of main effects

    @property
    def best(self) -> Restart:
        """The restart with the highest ELBO."""
        return max(self.restarts, key=lambda restart: restart.last.bound)


def fit(
    problem: Problem,
    settings: RestartSettings,
    seed: list[int],
    observe: Observer,
    *,
    may_be_empty: bool = False,
    states: Sequence[State] = (),
    saved: list[Restart] | None = None,
    pasts: Sequence[BatchStats] | None = None,
) -> Result:
    """Run every restart and return those that reached the exact phase.

    Parameters
    ----------
    problem : Problem
    settings : RestartSettings
    seed : list of int
    observe : callable
        Given the number of a restart and its ``Progress`` after each sweep; True ends the fit.
    may_be_empty : bool
        Whether there may be no such restart; else that is an error.
    states : sequence of State
        Posteriors to continue from, one for each restart.
    saved : list of Restart, optional
        Restarts of an interrupted fit, which are resumed. The list is filled if it is empty.
    pasts : sequence of BatchStats, optional
        Sums over the rows of earlier batches, for each restart; empty for the first batch. Unless
        None, the result holds those of all rows so far.
    """
    resources = _plan_resources(problem, settings)
    prepared = _prepare(problem, settings, resources.plan, pasts or ())
    seeds = np.random.SeedSequence(seed).spawn(resources.count)
    runner = _make_runner(problem, settings, resources.max_rank, prepared, seeds)
    runner = replace(runner, states=states, pasts=pasts or ())
    if problem.before is not None and not states:
        runner = _after_sums(runner, problem.before, seed)
    # restarts in parallel, or else the blocks of rows of one; either way BLAS has one thread
    plan, threads = resources.plan, resources.threads
    across_rows = threads > 1 and plan.n_parallel == 1 and plan.block_rows < problem.rows.n
    with limit_blas(), local.Threads(threads) if across_rows else nullcontext() as pool:
        restarts, interrupted = _run(runner, resources, observe, saved, pool)
        usable = [restart for restart in restarts if restart.usable]
        kept: list[BatchStats] = []
        if pasts is not None and (not pasts or not interrupted):
            # by the same threads, which reuse their memory
            data, features = problem.rows.data(), prepared.features
            kept = [runner.batch_stats(restart.state, data, features, pool) for restart in usable]
    if not usable and not may_be_empty:
        _raise_nothing_found(interrupted)
    if pasts and kept:
        before = [restart.last.past for restart in usable]
        kept = [a + b for a, b in zip(before, kept, strict=True) if a is not None]
    ended = all(restart.stop_reason == "finished" for restart in restarts)
    return Result(
        usable, prepared.averages, len(restarts), interrupted, ended, kept, prepared.effects
    )


@dataclass(frozen=True)
class Resources:
    """How many restarts there is memory for, where they run, and what they keep in memory."""

    count: int
    max_rank: Any  # the highest rank that there is memory for
    plan: local.MemoryPlan
    threads: int
    helpers: int  # processes; 0 where restarts run in threads


def _plan_resources(problem: Problem, settings: RestartSettings) -> Resources:
    """Plan the memory of a fit, and warn if there is room for fewer restarts only."""
    rows, network, sizes = problem.rows, settings.network, problem.sizes
    limit = settings.memory_limit
    threads = 1 if rows.elsewhere else n_threads(settings.n_jobs)
    work = rows.n * network.footprint(settings.max_rank, len(sizes)).block
    small = work < settings.worth_a_thread and not rows.spilled and not rows.elsewhere
    # weights, working responses and two moments of f, of every output
    per_row = 0 if settings.likelihood.fixed else 4 * (problem.n_outputs or 1)
    of_modes = sum(n_features(basis) for basis in problem.bases)
    of_effects = sum(e.n_functions_ for e in (*problem.effects, *problem.noise_effects))
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
        warn(
            f"the memory limit of {limit:.3g} GiB has room for {count} of {settings.n_init} "
            "restarts, and fewer predict a little worse; raise it, or lower max_rank or n_basis.",
        )
    helpers = 0
    if small and plan.keep_features:
        # a helper has an interpreter, rows and features of its own, and receives them pickled
        free = max(limit * local.GIB - plan.n_bytes, 0.0)
        helpers = min(threads - 1, count - 1, int(free // (_INTERPRETER + 2 * plan.n_bytes)))
    return Resources(count, max_rank, plan, threads, helpers)


def plan_restarts(
    settings: RestartSettings,
    n: int,
    sizes: Sequence[tuple[int, int]],
    count: int,
    threads: int,
    per_row: int = 0,
    **where: Any,
) -> tuple[int, Any, local.MemoryPlan]:
    """Return how many restarts there is room for, the highest rank, and the plan.

    There are fewer than ``count`` only if the settings allow it. ``where`` the rows are is passed
    on to ``local.make_plan``.
    """

    def plan(rank: Any, count: int) -> local.MemoryPlan:
        extra = settings.extra_components(rank)
        footprint = settings.network.footprint(rank, len(sizes), rank + extra if extra else 0)
        limit = settings.memory_limit
        return local.make_plan(n, sizes, footprint, count, threads, limit, per_row, **where)

    while True:
        try:
            first = plan(settings.initial_rank, count)
            break
        except MemoryError:
            if count == 1 or not settings.may_reduce_restarts:
                raise
            count -= 1
    highest, lowest = (int(np.max(rank)) for rank in (settings.max_rank, settings.initial_rank))
    for most in range(highest, lowest, -1):
        # the rank grows as far as there is room to keep what the first rank has room for
        with suppress(MemoryError):
            rank = np.minimum(settings.max_rank, most).tolist()
            larger = plan(rank, count)
            if (larger.keep_features, larger.stride) == (first.keep_features, first.stride):
                return count, rank, larger
    return count, settings.initial_rank, first


class _Prepared(NamedTuple):
    """The rows, cut into blocks, and sums over them."""

    blocks: Any  # LocalBlocks or DaskBlocks
    modes: tuple[Any, ...]  # without the one of the outputs
    data: Data  # of all rows, including those of earlier batches
    features: tuple[tuple[Array, Array], ...]  # sums of phi and psi of each mode, over these rows
    averages: list[tuple[Array, Array]]  # of phi and phi phi^T of each mode, over all rows
    effects: list[posterior.EffectAverages]
    similar: bool  # whether inputs are spread as in earlier batches


def _prepare(
    problem: Problem, settings: RestartSettings, plan: local.MemoryPlan, pasts: Sequence[BatchStats]
) -> _Prepared:
    """Cut the rows into blocks, and average their features."""
    data = batch = problem.rows.data()
    modes = tuple(make_mode(basis, settings.smoothness) for basis in problem.bases)
    bases = [*problem.bases, *problem.effects, *problem.noise_effects]
    blocks = problem.rows.blocks(plan, bases)
    for past in pasts[:1]:  # all restarts have had the same rows
        data = Data(batch.n + past.data.n, batch.square + past.data.square)
    with closing(blocks.executor(len(modes))) as executor:
        features = local.feature_sums(executor, len(modes))
        effects = _effect_averages(executor, problem, data.n)
    seen, similar = features, True
    for past in pasts[:1]:
        seen = tuple((a + c, b + d) for (a, b), (c, d) in zip(features, past.features, strict=True))
        similar = similar_inputs(features, batch.n, past)
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
    settings: RestartSettings,
    max_rank: Any,
    prepared: _Prepared,
    seeds: list[np.random.SeedSequence],
) -> RestartRunner:
    modes, output = prepared.modes, None
    if problem.n_outputs is not None and modes:
        output = len(modes)
        modes += (output_mode(problem.n_outputs),)
    return RestartRunner(
        settings=settings,
        blocks=prepared.blocks,
        modes=modes,
        grams=tuple(
            gram[np.ix_(mode.keep, mode.keep)]
            for mode, (_, gram) in zip(modes, prepared.averages, strict=True)
        ),
        data=prepared.data,
        likelihood=settings.likelihood,
        rank=settings.network.ranks(settings.initial_rank, modes),
        max_rank=settings.network.ranks(max_rank, modes),
        seeds=seeds,
        output=output,
        similar=prepared.similar,
        sums=Sums.begin(problem.effects, problem.n_outputs or 1) if problem.effects else None,
    )


def _after_sums(runner: RestartRunner, before: Problem, seed: list[int]) -> RestartRunner:
    """Return the runner of what is left once main effects are fitted alone.

    The noise has one level. Effects that the ELBO drops are gone, unless there is nothing else, and
    the noise that the warm phase begins with is in units of what they leave.
    """
    settings, schedule = runner.settings, runner.settings.schedule_of_sums
    assert schedule is not None
    constant: Any = getattr(settings.likelihood, "noise_at_zero", settings.likelihood)
    if not runner.modes:  # noise that varies may show more of them
        schedule = replace(schedule, drop_components=False, drop_functions=False)
    alone = replace(settings, n_init=1, warm_rank=0, schedule=schedule, likelihood=constant)
    result = fit(before, alone, seed, lambda *_: None, may_be_empty=True)
    if not result.restarts:
        return runner
    state: Any = result.restarts[0].state
    likelihood = runner.likelihood
    if isinstance(likelihood, Varying) and not runner.modes:
        likelihood = replace(likelihood, noise_at_zero=state.likelihood)
    elif isinstance(constant, Gaussian):
        residual = min(state.likelihood.error / runner.data.n, 1.0)
        rate = constant.noise.rate * max(residual, settings.schedule.least_residual)
        constant = replace(constant, noise=Gamma(constant.noise.shape, rate))
        if isinstance(likelihood, Varying):
            likelihood = replace(likelihood, noise_at_zero=constant)
        else:
            likelihood = constant
    return replace(runner, sums=state.sums, likelihood=likelihood)


def _run(
    runner: RestartRunner,
    resources: Resources,
    observe: Observer,
    saved: list[Restart] | None,
    threads: local.Threads | None,
) -> tuple[list[Restart], bool]:
    """Run the restarts in helper processes or threads; resume those that are ``saved``."""
    count, helpers = resources.count, resources.helpers
    if helpers > 0 and saved is None:
        return run_with_helpers(runner, count, helpers, observe, runner.settings.worth_helpers)
    restarts = [Restart() for _ in range(count)]
    if saved is not None:
        saved += restarts[len(saved) :]
        restarts = saved
    return run_restarts(
        lambda k: runner.run(k, threads, restarts[k].pause),
        count,
        resources.plan.n_parallel,
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
    restarts = [restart for result in results for restart in result.restarts]
    ended = all(result.ended for result in results)
    moving = sum(not restart.last.converged for restart in restarts)
    kept = f"the posteriors of {len(restarts)} of {count} restarts are kept."
    if any(result.interrupted for result in results):
        reason = f"{INTERRUPTED}: {kept}"
    elif not ended:
        reason = f"{STOPPED}: {kept}"
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
