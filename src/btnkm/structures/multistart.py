"""What is to be fitted, and the starts of all arrangements at work on it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..core.full_fit import FIRST_ROWS, Curvature, learns_noise
from ..core.likelihoods import Likelihood
from ..execution import fitting
from ..execution.local import GIB, LocalRows
from ..io.checkpoints import Checkpoint
from ..plan import SWEEPS_OF_ALL, number, settings_of
from .full_tensor import fit_all
from .mode_map import Arrangement
from .search import at_full_rank
from .stacking import MOST_ROWS

Array = np.ndarray
READERS = 0.15  # of the limit: what those of files leave behind


class Target(NamedTuple):
    """What an estimator makes of y for the engine."""

    # from targets as they came and weights above 0 to the engine's
    encode: Callable[[Array, Array], tuple[Array, Array]]
    likelihood: Likelihood  # as the warm phase has it
    scale: float  # units of y per unit of the engine's
    attributes: dict[str, Any]  # to be set once the fit has succeeded
    n_outputs: int | None = None  # values of f in each row, None for one
    signs: bool = False  # whether numbers stand for two classes, and their noise for nothing
    may_be_heavy: bool = False  # whether rows held out may choose noise with heavy tails


class Values(NamedTuple):
    """Coordinates of values in each column, and how much each counts."""

    codes: list[Array]
    weights: list[Array]


class Task(NamedTuple):
    """What is to be fitted, whatever the network."""

    target: Target
    columns: list[Any]  # of the table, as they are encoded
    values: Values
    sample: LocalRows  # some of the rows, or all
    rows: Any  # all of them, wherever they are
    counted: int  # rows, those of weight k k times
    seeds: list[int]
    keep: bool = False  # what the rows say, for partial_fit


class Run(NamedTuple):
    """The starts of one arrangement, among those of a fit."""

    name: str
    seeds: list[int]
    history: list[dict[str, Any]]  # of the whole fit
    before: int  # starts of other arrangements
    keeper: Checkpoint | None


def run_all(
    machine: Any,
    task: Task,
    candidates: list[Any],
    history: list[dict[str, Any]],
    keeper: Checkpoint | None,
) -> list[tuple[Arrangement, fitting.Result]]:
    """Fit every structure with its share of the restarts, until all is done or stopped.

    What an earlier structure has found is kept whatever stops a later one.
    """
    found: list[tuple[Arrangement, fitting.Result]] = []
    target, before = task.target, 0
    for k, one, count, states in _runs(machine, candidates, task):
        own = settings_of(machine, target, task.counted, one.arrangement)
        kept = sum(s.state.n_bytes for _, result in found for s in result.starts)
        limit = own.limit(task.rows)
        limit *= 1.0 - READERS if task.rows.spilled else 1.0
        own = replace(own, n_init=count, memory_limit=limit - kept / GIB)
        # components start as they do without a train beside them
        seeds = [*task.seeds, k] if one.arrangement.full else task.seeds
        begin = time.perf_counter()
        try:
            run = Run(str(k), seeds, history, before, keeper)
            result = fit_some_then_all(
                machine, task, one.arrangement, own, run, states, one.curvature
            )
        except KeyboardInterrupt:
            if not found:
                raise
            result = fitting.Result([], [], count, interrupted=True, ended=False)
        except MemoryError:
            if not found:
                raise
            warnings.warn(
                f"memory_limit={limit:g} has no room for {count} of "
                f"{sum(c.count for c in candidates)} starts, which are left out; raise it, or "
                "lower max_rank.",
                UserWarning,
                stacklevel=4,
            )
            continue
        one.seconds += time.perf_counter() - begin
        found.append((one.arrangement, result))
        before += result.count
        if result.interrupted or not result.ended:
            break
    return found


def _runs(
    machine: Any, candidates: list[Any], task: Task
) -> Iterator[tuple[int, Any, int, list[Any]]]:
    """Yield the fits to run: a number, the candidate, restarts, and posteriors to go on from."""
    k = 0
    for one in candidates:
        # those of few of the rows know too little of all, and those of the highest rank may grow
        enough = task.rows.n <= 2 * MOST_ROWS and task.sample.n == task.rows.n
        own = settings_of(machine, task.target, task.counted, one.arrangement)
        if one.arrangement.kernel:
            # few rows soon begin anew, where rows held out have not found the scale of f
            anew = task.rows.n <= FIRST_ROWS and learns_noise(task.target.likelihood)
            small = [] if anew else one.states
        else:
            small = [state for state in one.states if not at_full_rank(state, own)]
        states = small[: one.count] if enough else []
        for count, begun in ((len(states), states), (one.count - len(states), [])):
            if count:
                yield k, one, count, begun
            k += 1


def fit_some_then_all(
    machine: Any,
    task: Task,
    one: Arrangement,
    settings: fitting.Settings,
    run: Run,
    states: Sequence[Any] = (),
    curvature: Curvature | None = None,
) -> fitting.Result:
    """Fit an arrangement to the sample of a large table, and go on from there with all rows.

    With ``states``, restarts go on from these, and with ``curvature`` those of a full tensor.
    """

    def fit(rows: Any, settings: fitting.Settings, **how: Any) -> fitting.Result:
        after = {e["restart"]: e["sweep"] for e in run.history if e["rows"] != rows.n}
        observe = observer(machine, run, task.target, one, after, rows.n)
        problem = one.problem(rows, task.target.n_outputs)
        if run.keeper is None:
            return fitting.fit(problem, settings, run.seeds, observe, **how)
        saved = run.keeper.runs.setdefault(f"{run.name}, {rows.n} rows", [])
        result = fitting.fit(problem, settings, run.seeds, observe, saved=saved, **how)
        run.keeper.write()
        return result

    if one.kernel:
        observe = observer(machine, run, task.target, one, {}, task.rows.n)
        return fit_all(task, one, settings, observe, states, curvature)
    may_find_nothing = run.before > 0
    pasts: Any = [] if task.keep else None
    if states:
        settings = to_go_on(machine, settings, len(states))
        return fit(task.rows, settings, go_on_from=states, pasts=pasts)
    if task.sample.n == task.rows.n:
        return fit(task.rows, settings, may_find_nothing=may_find_nothing, pasts=pasts)
    some = fit(task.rows.beside(task.sample), settings, may_find_nothing=may_find_nothing)
    if some.interrupted or not some.ended:
        return some
    begun = [start.state for start in some.starts]
    settings = to_go_on(machine, settings, len(begun))
    every = fit(task.rows, settings, go_on_from=begun, may_find_nothing=True, pasts=pasts)
    if len(every.starts) == len(begun):
        return every
    # stopped before all had seen all rows: what the sample has found is the more even mixture
    return replace(some, interrupted=every.interrupted, ended=False)


def to_go_on(machine: Any, settings: fitting.Settings, count: int) -> fitting.Settings:
    """Return the settings of a fit that goes on from so many posteriors."""
    sweeps = number(machine, "max_iter", SWEEPS_OF_ALL)
    schedule = replace(settings.schedule, max_iter=sweeps)
    return replace(settings, n_init=count, fewer_starts=False, schedule=schedule)


def observer(
    machine: Any,
    run: Run,
    target: Target,
    arrangement: Arrangement,
    after: dict[int, int],
    n_rows: int,
) -> Callable[[int, Any], bool | None]:
    """Return what to do after each sweep: keep the history, print, ask the callback.

    The sweeps of each start are counted from those ``after`` which it goes on.
    """
    history = run.history

    def observe(start: int, progress: Any) -> bool | None:
        start += run.before
        done = after.get(start, 0)
        entry = {
            "restart": start,
            "sweep": done + progress.sweep,
            "rows": n_rows,
            "phase": progress.phase,
            "elbo": progress.bound,
            "terms": progress.terms,
            "rank": bonds(machine.network, progress.rank, arrangement, target.n_outputs),
            "noise_std": progress.noise_std * target.scale,
            "seconds": progress.seconds,
            "jitter": progress.jitter,
            "trial": progress.trial,
            "stage": progress.stage,
        }
        # what is done once more was lost: a helper had failed, or a fit was killed
        known = (old for old in history if old["restart"] == start)
        if any(old["sweep"] >= entry["sweep"] for old in known):
            history[:] = [
                old for old in history if old["restart"] != start or old["sweep"] < entry["sweep"]
            ]
        history.append(entry)
        if run.keeper is not None:
            run.keeper.swept()
        if machine.verbose and (machine.verbose > 1 or entry["sweep"] % 10 == 0):
            noise = entry["noise_std"]
            noise = "" if np.isnan(noise) else f"noise {noise:9.3g}  "
            bound = f"{progress.bound:.3f}" if progress.phase == "exact" else "-"
            print(
                f"start {start:2d}  sweep {entry['sweep']:4d}  {progress.phase:5s}  "
                f"bound {bound:>14s}  rank {entry['rank']!s:>3s}  "
                f"{noise}{progress.seconds:7.1f} s"
            )
        return None if machine.callback is None else machine.callback(dict(entry))

    return observe


def bonds(network: str, rank: Any, arrangement: Arrangement, n_outputs: int | None) -> Any:
    """Return what is told of a rank: of a train, one for each bond between inputs, or outputs.

    All bonds of diagonal cores have as many indices; one to amplitudes is not counted.
    """
    if network == "cp" or arrangement.kernel:
        return rank
    if not arrangement.inputs:  # no tensor, but as many bonds as beside it
        return (0,) * (len(arrangement.effect_inputs) - (n_outputs is None))
    if arrangement.full:
        return tuple(rank[arrangement.first_input :])
    return (rank,) * (len(arrangement.inputs) - (n_outputs is None))
