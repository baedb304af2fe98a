"""The structures to fit, with their weights and restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import checks
from ..execution.fitting import Result
from ..execution.restarts import Restart
from ..plan import FEWEST_RESTARTS, FitPlan
from ..warn import warn
from .layouts import Layouts
from .mode_map import ModeMap
from .screening import screen
from .search import Candidate, judge
from .stacking import MOST_ROWS, held_out, recalibrated
from .task import Task
from .tt_order import interaction_order

Array = np.ndarray
LEAST_WEIGHT = 0.02  # of a restart beside the best one, below which it is left out
ROWS_OF_A_WEIGHT = 10.0  # by which restarts of a structure are weighted: see restart_weights


def choose(plan: FitPlan, task: Task, active: list[int], names: list[Any]) -> list[Candidate]:
    """Return the structures to fit, that with the highest weight first."""
    layouts = Layouts.of(plan, task, active)
    if plan.structure == "full" and not layouts.may_be_full:
        _refuse_full(task.rows.n, plan.solver.full_rows)
    if plan.train is None or plan.structure == "full":  # which has no network
        if plan.structure != "tensor":
            layouts = screen(layouts)
        mode_maps = _of_components(layouts)
    else:
        mode_maps = _of_trains(layouts, names)
    candidates = judge(plan, task, mode_maps, layouts.with_splines)
    candidates = sorted(candidates, key=lambda candidate: -candidate.weight)
    allocate_restarts(plan, candidates)
    candidates = sorted(candidates, key=lambda candidate: -candidate.weight)
    if plan.verbose and len(candidates) > 1:
        for candidate in candidates:
            print(
                f"{candidate.mode_map.structure}: weight {candidate.weight:.2f}, "
                f"{candidate.count} restarts, "
                f"log density {candidate.log_density:.3f} of the rows held out"
            )
    return candidates


def _of_components(layouts: Layouts) -> list[ModeMap]:
    """Return the candidates without a tensor train."""
    active, structure = layouts.active, layouts.plan.structure
    compared = structure == "auto" and len(active) > 1
    names = [structure]
    if structure == "auto":
        names = ["sums", "tensor", "sums+tensor"] if compared else ["sums"]
        if layouts.may_be_full and compared:  # the full tensor can do what a tensor alone can
            names = ["sums", "sums+tensor"]
    mode_maps = [
        layouts.arranged(layouts.tensor_inputs.get(name, active), name)
        for name in names
        if name != "full"
    ]
    if structure in ("auto", "full") and layouts.may_be_full:
        mode_maps.append(layouts.full_tensor())
    if len(names) > 1:
        # fitted first, the sum leaves the tensor too little in some tables, and helps in others
        order = layouts.tensor_inputs["sums+tensor"]
        mode_maps.append(layouts.arranged(order, "sums+tensor", sums_first=True))
    return mode_maps


def _of_trains(layouts: Layouts, names: list[Any]) -> list[ModeMap]:
    """Return the candidates of a tensor train."""
    plan, active = layouts.plan, layouts.active
    train = plan.train
    assert train is not None
    name = "tensor" if plan.structure == "auto" else plan.structure
    if name == "sums" or len(active) == 1:
        return [layouts.arranged(active, name, full_cores=True)]
    components = layouts.arranged(active, name)
    orders = [active]
    if not isinstance(train.order, str):
        places = checks.check_order("TensorTrain(order=...)", train.order, names)
        orders = [[j for j in places if j in active]]
    elif train.order == "auto":
        if plan.verbose:
            print("looking for an order of the inputs")
        other = interaction_order(plan, layouts.task, components)
        orders += [other] if other not in (active, active[::-1]) else []
    mode_maps = [layouts.arranged(order, name, full_cores=True) for order in orders]
    if train.cores == "auto" and not plan.lists_ranks and len(active) > 2:
        mode_maps.append(components)
        if plan.structure == "auto":
            mode_maps += [layouts.arranged(active, s) for s in ("sums+tensor", "sums")]
    return mode_maps


def _refuse_full(n: int, most: int) -> None:
    """Raise a ValueError: a full tensor cannot have so many rows."""
    limit, remedy = most, "raise Solver(full_rows=...), or use structure='auto'"
    if n <= most:  # they are not all in memory here
        limit, remedy = MOST_ROWS, "use structure='auto'"
    raise ValueError(
        f"structure='full' must have at most {limit:,} rows, got {n:,}: it takes memory that grows "
        f"with their square and time that grows with their cube; {remedy}."
    )


def restart_weights(task: Task, mode_map: ModeMap, states: Sequence[Any]) -> Array:
    """Return the weights of the restarts of one structure, which add up to 1: (S,).

    They depend on the mean log density of the training rows, as if these were only
    ``ROWS_OF_A_WEIGHT``: restarts that differ by chance have about the same weight. One that has
    found nothing, or far less than the best, has none.
    """
    if len(states) == 1 or mode_map.full_tensor:
        return np.full(len(states), 1.0 / len(states))
    n = task.sample.n
    rows = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    logs = held_out(task, mode_map, states, rows).log_densities()
    share = task.sample.weights[rows] / task.sample.weights[rows].sum()
    means = np.nan_to_num(logs @ share, nan=-np.inf, neginf=-np.inf)
    if not np.isfinite(means.max()):
        return np.full(len(states), 1.0 / len(states))
    weights = np.exp(ROWS_OF_A_WEIGHT * (means - means.max()))
    weights = np.where(weights < LEAST_WEIGHT, 0.0, weights)
    if 2 * np.sum(weights > 0) < len(weights):
        warn(
            f"{np.sum(weights == 0)} of {len(weights)} restarts fit far worse than the best one "
            "and are left out; more rows, or fewer inputs, make fits more reliable.",
        )
    return np.asarray(weights / weights.sum())


def weighted(
    task: Task, results: Sequence[tuple[ModeMap, Result]], judged: Mapping[ModeMap, Candidate]
) -> tuple[list[tuple[ModeMap, Result]], Array]:
    """Return the results of restarts with any weight, and their weights: (S,).

    The noise of the restarts is recalibrated by the rows held out. ``judged`` has the candidate of
    each mode map.
    """
    kept, weights = [], []
    for mode_map in dict.fromkeys(mode_map for mode_map, _ in results):
        parts = [result for other, result in results if other is mode_map]
        states = [restart.state for result in parts for restart in result.restarts]
        candidate = judged[mode_map]
        of_restarts = candidate.weight * restart_weights(task, mode_map, states)
        for result in parts:
            of_result, of_restarts = np.split(of_restarts, [len(result.restarts)])
            places = [int(k) for k in np.flatnonzero(of_result > 0)]
            pasts = [result.pasts[k] for k in places] if result.pasts else []
            restarts = [_recalibrated(result.restarts[k], candidate.noise) for k in places]
            if restarts:
                kept.append((mode_map, replace(result, restarts=restarts, pasts=pasts)))
                weights.append(of_result[places])
    return kept, np.concatenate(weights) / np.sum(np.concatenate(weights))


def _recalibrated(restart: Restart, noise: tuple[float, float]) -> Restart:
    """Return a restart with the noise that suits the rows held out."""
    likelihood = recalibrated(restart.state.likelihood, noise)
    same = likelihood is restart.state.likelihood
    return restart if same else restart.with_likelihood(likelihood)


def allocate_restarts(plan: FitPlan, candidates: Sequence[Candidate]) -> None:
    """Give every candidate its restarts."""
    n_init = max(plan.restarts(candidate.mode_map) for candidate in candidates)
    if not plan.n_init_given:
        n_init = plan.fewer_restarts(candidates, n_init)
    share_restarts(candidates, n_init)


def share_restarts(candidates: Sequence[Candidate], n_init: int) -> None:
    """Divide ``n_init`` restarts among the tensors of low rank by their weights.

    Other structures are not random and have one restart if they have any weight. A tensor whose
    weight is too small for a restart passes it on to the other tensors.
    """
    for candidate in candidates:
        candidate.count = int(candidate.weight > 0)
    tensors = [
        candidate
        for candidate in candidates
        if candidate.mode_map.low_rank and candidate.weight > 0
    ]
    if not tensors:
        return
    weights = np.array([candidate.weight for candidate in tensors])
    total = max(round(n_init * weights.sum()), min(n_init, FEWEST_RESTARTS))
    counts = share_out(total, weights)
    kept = weights[np.array(counts) > 0].sum()
    for candidate, count in zip(tensors, counts, strict=True):
        candidate.count = count
        candidate.weight = candidate.weight * float(weights.sum() / kept) if count else 0.0


def share_out(total: int, weights: Array) -> list[int]:
    """Return ``total`` restarts in proportion to the weights, as integers."""
    wanted = total * np.asarray(weights) / np.sum(weights)
    counts = np.floor(wanted + 1e-9).astype(int)
    # the largest remainders get one more
    more = np.argsort(counts - wanted, kind="stable")[: total - counts.sum()]
    counts[more] += 1
    return [int(count) for count in counts]
