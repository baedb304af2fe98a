"""How many restarts each structure has, and what weight each restart has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.ascent import FULL
from ..plan import FitPlan
from ..warn import warn
from .mode_map import ModeMap
from .search import Candidate
from .stacking import MOST_ROWS, held_out
from .task import Task

Array = np.ndarray
LEAST_WEIGHT = 0.02  # of a restart beside the best one, below which it is left out
FEWEST_RESTARTS = 2  # of tensors of low rank with any weight, if there may be so many
ROWS_OF_A_WEIGHT = 10.0  # by which restarts of a structure are weighted: see restart_weights


def restart_weights(task: Task, mode_map: ModeMap, states: Sequence[Any]) -> Array:
    """Return the weights of the restarts of one structure, which add up to 1: (S,).

    They depend on the mean log density of the training rows, as if these were only
    ``ROWS_OF_A_WEIGHT``: restarts that differ by chance have about the same weight. One that has
    found nothing, or far less than the best, has none.
    """
    if len(states) == 1 or mode_map.kernel:
        return np.full(len(states), 1.0 / len(states))
    n = task.sample.n
    some = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    logs = held_out(task, mode_map, states, some).log_densities()
    share = task.sample.weights[some] / task.sample.weights[some].sum()
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


def at_full_rank(state: Any, initial_rank: Any) -> bool:
    """Return whether nearly all components of a posterior are in use, so that more may help."""
    full = FULL * float(np.sum(initial_rank))
    return bool(state.modes) and float(np.sum(state.network.rank(state))) >= full


def allocate_restarts(plan: FitPlan, candidates: Sequence[Candidate]) -> None:
    """Give every candidate its restarts."""
    n_init = max(plan.restarts(candidate.mode_map) for candidate in candidates)
    if not plan.n_init_given:
        n_init = fewer_restarts(plan, candidates, n_init)
    share_restarts(candidates, n_init)


def fewer_restarts(plan: FitPlan, candidates: Sequence[Candidate], n_init: int) -> int:
    """Return how many restarts "auto" means where the rank of a tensor is about to grow.

    Each then takes several times as long, and larger tensors differ less.
    """
    tensors = [
        candidate
        for candidate in candidates
        if candidate.mode_map.low_rank and candidate.weight > 0
    ]
    for candidate in tensors:
        initial_rank, max_rank = plan.ranks(candidate.mode_map, plan.n)
        full = [at_full_rank(state, initial_rank) for state in candidate.states]
        if full and all(full) and np.any(np.greater(max_rank, initial_rank)):
            return min(n_init, max(len(tensors), FEWEST_RESTARTS))
    return n_init


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
