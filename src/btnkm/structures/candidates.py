"""The structures to fit, with their weights and restarts."""

from __future__ import annotations

from typing import Any

from .. import checks
from ..plan import FitPlan
from .allocation import allocate_restarts
from .layouts import Layouts
from .mode_map import ModeMap
from .screening import screen
from .search import Candidate, judge
from .stacking import MOST_ROWS
from .task import Task
from .trial import interaction_order


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
    if task.target.noise == "varying":
        mode_maps = [layouts.with_varying_noise(mode_map) for mode_map in mode_maps]
    candidates = judge(plan, task, mode_maps, layouts.with_splines, layouts.with_varying_noise)
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
        mode_maps.append(layouts.full())
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
        return [layouts.arranged(active, name, full=True)]
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
    mode_maps = [layouts.arranged(order, name, full=True) for order in orders]
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
