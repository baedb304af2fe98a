"""What is to be fitted: the target, the coded table and its rows; and short fits of some rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core.likelihoods import Likelihood, is_logarithm
from ..core.linalg import NotPositiveDefiniteError
from ..core.state import State
from ..execution import fitting
from ..execution.local import LocalRows
from ..plan import FitPlan
from .mode_map import ModeMap

Array = np.ndarray
FEWEST_ROWS = 15  # to choose by
# failures of a candidate that are no reason to give up
NO_FIT = (NotPositiveDefiniteError, np.linalg.LinAlgError, MemoryError)


class Target(NamedTuple):
    """The target as the engine sees it."""

    # from targets as given and weights above 0 to those of the engine
    encode: Callable[[Array, Array], tuple[Array, Array]]
    likelihood: Likelihood  # as the warm phase has it
    scale: float  # units of y per unit of the engine
    attributes: dict[str, Any]  # to set on the estimator once the fit has succeeded
    n_outputs: int | None = None  # values of f in each row, None for one
    signs: bool = False  # whether numbers stand for two classes, and their noise for nothing
    transformation: Any = None  # of y before it is encoded, around the likelihood; see Transformed
    log_slope: float = 0.0  # of the transformation, its mean over the rows
    tries_heavy_tails: bool = False  # whether rows held out may choose noise with heavy tails
    noise: str = "constant"  # "varying", or "auto": rows held out choose
    name: str | None = None

    @property
    def is_logarithm(self) -> bool:
        """Whether f is about the logarithm of y (or the logit of a proportion)."""
        return is_logarithm(self.likelihood, self.transformation)


class Values(NamedTuple):
    """Coordinates of the values of each column, and how much each counts."""

    codes: list[Array]
    weights: list[Array]


class Task(NamedTuple):
    """What is to be fitted, whatever the structure."""

    target: Target
    columns: list[Any]  # encoded
    values: Values
    sample: LocalRows  # some of the rows, or all
    rows: Any  # all of them, wherever they are
    seeds: list[int]
    keeps_sums: bool = False  # whether sums over the rows are kept for partial_fit


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
    sample = task.sample.take(rows)
    result = fitting.fit(
        mode_map.problem(sample, task.target.n_outputs),
        plan.settings_to_try(mode_map, sample, n, restarts, default_rank=default_rank),
        [*task.seeds, attempt] if attempt else task.seeds,
        lambda *_: None,
    )
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while structures were compared: nothing to keep yet")
    return [restart.state for restart in result.restarts]
