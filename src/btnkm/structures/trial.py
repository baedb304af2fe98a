"""Short fits of some of the rows."""

from __future__ import annotations

import numpy as np

from ..core.linalg import NotPositiveDefiniteError
from ..core.state import State
from ..execution import fitting
from ..plan import FitPlan
from .mode_map import ModeMap
from .stacking import MOST_ROWS
from .task import Task
from .tt_order import Tensor, chain_order

Array = np.ndarray
LEAST_SWEEPS = 12  # of the exact phase, which has fewer where there are more than MOST_ROWS rows
FEWEST_ROWS = 15  # to choose by
ORDER_RESTARTS = 4  # of the CP tensor from which an order of the inputs is derived
# failures of a candidate that are no reason to give up
NO_FIT = (NotPositiveDefiniteError, np.linalg.LinAlgError, MemoryError)


def try_out(
    plan: FitPlan,
    task: Task,
    mode_map: ModeMap,
    rows: Array,
    restarts: int,
    *,
    attempt: int = 0,
    default_rank: bool = False,
) -> list[State]:
    """Return the posteriors of a short fit of some rows; every ``attempt`` has its own seeds."""
    n = int(max(len(rows), task.sample.weights[rows].sum()))
    most = plan.defaults.comparing.sweeps
    sweeps = min(most, max(LEAST_SWEEPS, most * MOST_ROWS // max(len(rows), 1)))
    sample = task.sample.take(rows)
    result = fitting.fit(
        mode_map.problem(sample, task.target.n_outputs),
        plan.settings_to_try(mode_map, sample, n, restarts, sweeps, default_rank=default_rank),
        [*task.seeds, attempt] if attempt else task.seeds,
        lambda *_: None,
    )
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while structures were compared: nothing to keep yet")
    return [restart.state for restart in result.restarts]


def interaction_order(plan: FitPlan, task: Task, components: ModeMap) -> list[int]:
    """Return the inputs of a CP tensor in the order that suits a tensor train (see tt_order).

    All rows are used, including those held out to compare the orders later: what one order gains
    by that is far below the difference between restarts. Ranks that were given are those of
    bonds, so the CP tensor has the default rank.
    """
    n = task.sample.n
    if n < FEWEST_ROWS or len(components.inputs) < 3:
        return components.inputs
    some = np.sort(np.random.default_rng(task.seeds).permutation(n)[:MOST_ROWS])
    try:
        states = try_out(plan, task, components, some, ORDER_RESTARTS, default_rank=True)
    except NO_FIT:
        return components.inputs
    codes = {j: task.sample.codes[j][some] for j in components.inputs}
    tensors = [Tensor.of(state, components, codes, task.sample.weights[some]) for state in states]
    return [components.inputs[d] for d in chain_order(tensors)]
