"""The restarts of all structures of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..core.full_fit import FIRST_ROWS, Curvature, has_evidence
from ..execution import fitting
from ..execution.local import GIB
from ..execution.restarts import RestartSettings
from ..io.checkpoints import Checkpoint
from ..plan import FitPlan, at_full_rank
from ..warn import warn
from .full_tensor import fit_all
from .mode_map import ModeMap
from .search import Candidate
from .stacking import MOST_ROWS
from .task import Target, Task

READERS = 0.15  # of the memory limit: what readers of files leave behind


class Run(NamedTuple):
    """The restarts of one structure, among those of a fit."""

    name: str
    seeds: list[int]
    history: list[dict[str, Any]]  # of the whole fit
    before: int  # restarts of other structures
    checkpoint: Checkpoint | None


def fit_structures(
    plan: FitPlan,
    task: Task,
    candidates: list[Candidate],
    history: list[dict[str, Any]],
    checkpoint: Checkpoint | None,
) -> list[tuple[ModeMap, fitting.Result]]:
    """Fit every structure with its restarts, until all is done or stopped.

    The results of earlier structures are kept whatever stops a later one.
    """
    results: list[tuple[ModeMap, fitting.Result]] = []
    before = 0
    for k, candidate, count, states in _runs(plan, task, candidates):
        kept = sum(restart.state.n_bytes for _, result in results for restart in result.restarts)
        limit = plan.memory(task.rows) * (1.0 - READERS if task.rows.spilled else 1.0)
        settings = plan.settings(candidate.mode_map, task.rows, count, limit - kept / GIB)
        # components begin as they do without full cores beside them
        seeds = [*task.seeds, k] if candidate.mode_map.full_cores else task.seeds
        begin = time.perf_counter()
        try:
            run = Run(str(k), seeds, history, before, checkpoint)
            result = _fit_structure(
                plan, task, candidate.mode_map, settings, run, states, candidate.curvature
            )
        except KeyboardInterrupt:
            if not results:
                raise
            result = fitting.Result([], [], count, interrupted=True, ended=False)
        except MemoryError:
            if not results:
                raise
            warn(
                f"the memory limit of {limit:.3g} GiB has no room for {count} of "
                f"{sum(c.count for c in candidates)} restarts, which are left out; raise it, or "
                "lower max_rank.",
            )
            continue
        candidate.seconds += time.perf_counter() - begin
        results.append((candidate.mode_map, result))
        before += result.count
        if result.interrupted or not result.ended:
            break
    return results


def _runs(
    plan: FitPlan, task: Task, candidates: list[Candidate]
) -> Iterator[tuple[int, Candidate, int, list[Any]]]:
    """Yield the fits to run: number, candidate, restarts, and posteriors to continue from."""
    k = 0
    for candidate in candidates:
        # posteriors of few of the rows know too little of all, and those of full rank may grow
        enough = task.rows.n <= 2 * MOST_ROWS and task.sample.n == task.rows.n
        if candidate.mode_map.full_tensor:
            # few rows are soon fitted anew, where rows held out have not found the scale of f
            anew = task.rows.n <= FIRST_ROWS and has_evidence(task.target.likelihood)
            small = [] if anew else candidate.states
        else:
            initial_rank, _ = plan.ranks(candidate.mode_map, plan.n)
            small = [s for s in candidate.states if not at_full_rank(s, initial_rank)]
        states = small[: candidate.count] if enough else []
        for count, begin in ((len(states), states), (candidate.count - len(states), [])):
            if count:
                yield k, candidate, count, begin
            k += 1


def _fit_structure(
    plan: FitPlan,
    task: Task,
    mode_map: ModeMap,
    settings: RestartSettings,
    run: Run,
    states: Sequence[Any] = (),
    curvature: Curvature | None = None,
) -> fitting.Result:
    """Fit a structure to the sample of a large table, and continue from there with all rows.

    With ``states``, restarts continue from these; with ``curvature``, so does the search of a full
    tensor.
    """

    def fit(rows: Any, settings: RestartSettings, **how: Any) -> fitting.Result:
        after = {e["restart"]: e["sweep"] for e in run.history if e["rows"] != rows.n}
        observe = observer(plan, run, task.target, mode_map, after, rows.n)
        problem = mode_map.problem(rows, task.target.n_outputs)
        if run.checkpoint is None:
            return fitting.fit(problem, settings, run.seeds, observe, **how)
        saved = run.checkpoint.runs.setdefault(f"{run.name}, {rows.n} rows", [])
        result = fitting.fit(problem, settings, run.seeds, observe, saved=saved, **how)
        run.checkpoint.write()
        return result

    if mode_map.full_tensor:
        observe = observer(plan, run, task.target, mode_map, {}, task.rows.n)
        return fit_all(task, mode_map, settings, observe, states, curvature)
    may_be_empty = run.before > 0
    pasts: Any = [] if task.keeps_sums else None
    if states:
        settings = plan.settings_to_resume(settings, len(states))
        return fit(task.rows, settings, states=states, pasts=pasts)
    if task.sample.n == task.rows.n:
        return fit(task.rows, settings, may_be_empty=may_be_empty, pasts=pasts)
    of_sample = fit(task.rows.beside(task.sample), settings, may_be_empty=may_be_empty)
    if of_sample.interrupted or not of_sample.ended:
        return of_sample
    states = [restart.state for restart in of_sample.restarts]
    settings = plan.settings_to_resume(settings, len(states))
    of_all = fit(task.rows, settings, states=states, may_be_empty=True, pasts=pasts)
    if len(of_all.restarts) == len(states):
        return of_all
    # stopped before all restarts had seen all rows: those of the sample are a more even mixture
    return replace(of_sample, interrupted=of_all.interrupted, ended=False)


def observer(
    plan: FitPlan,
    run: Run,
    target: Target,
    mode_map: ModeMap,
    after: dict[int, int],
    n_rows: int,
) -> Callable[[int, Any], bool | None]:
    """Return what to do after each sweep: extend the history, print, call the callback.

    The sweeps of each restart are counted on from those in ``after``.
    """
    history = run.history
    latest = {e["restart"]: e["sweep"] for e in history}

    def observe(restart: int, progress: Any) -> bool | None:
        restart += run.before
        entry = {
            "restart": restart,
            "sweep": after.get(restart, 0) + progress.sweep,
            "rows": n_rows,
            "phase": progress.phase,
            "elbo": progress.bound,
            "terms": progress.terms,
            "rank": bonds(plan.train is not None, progress.rank, mode_map, target.n_outputs),
            "noise_std": progress.noise_std * target.scale,
            "seconds": progress.seconds,
            "jitter": progress.jitter,
            "trial": progress.trial,
            "stage": progress.stage,
        }
        # a sweep that is done again (a process had failed, or a fit was killed) replaces the rest
        if latest.get(restart, 0) >= entry["sweep"]:
            history[:] = [
                e for e in history if e["restart"] != restart or e["sweep"] < entry["sweep"]
            ]
        history.append(entry)
        latest[restart] = entry["sweep"]
        if run.checkpoint is not None:
            run.checkpoint.swept()
        if plan.verbose and (plan.verbose > 1 or entry["sweep"] % 10 == 0):
            print(_line(entry))
        return None if plan.report is None else plan.report(dict(entry))

    return observe


def _line(entry: dict[str, Any]) -> str:
    """Return the line of a sweep."""
    noise = entry["noise_std"]
    noise = "" if np.isnan(noise) else f"noise {noise:9.3g}  "
    elbo = f"{entry['elbo']:.3f}" if entry["phase"] == "exact" else "-"
    return (
        f"restart {entry['restart']:2d}  sweep {entry['sweep']:4d}  {entry['phase']:9s}  "
        f"ELBO {elbo:>14s}  rank {entry['rank']!s:>3s}  {noise}{entry['seconds']:7.1f} s"
    )


def bonds(train: bool, rank: Any, mode_map: ModeMap, n_outputs: int | None) -> Any:
    """Return a rank as users see it; a tensor train has one for each bond of inputs or outputs.

    All bonds of diagonal cores have the same rank. The bond to the amplitudes is left out.
    """
    if not train or mode_map.full_tensor:
        return rank
    if not mode_map.inputs:  # no tensor, but as many bonds as beside it
        return (0,) * (len(mode_map.effect_inputs) - (n_outputs is None))
    if mode_map.full_cores:
        return tuple(rank[mode_map.first_input :])
    return (rank,) * (len(mode_map.inputs) - (n_outputs is None))
