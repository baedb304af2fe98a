"""Dropping components that are redundant: the others can do all of theirs, once moved.

``reduction`` weighs a loss with all other modes as they are, and so sees only what is negligible
already. Where the components are more than f needs, none has to be negligible: they share the work
in one of many ways, and at little noise coordinate ascent takes forever to change it. Here a
component is taken away, the means of all others move together until they have made good for it,
and the loss is accepted if the bound is higher and f explains the targets as well as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .likelihoods import Gaussian
from .reduction import without_groups
from .state import State
from .sweeper import Dropper, Sweeper

STEPS = 60  # joint steps that the others have to make good for a loss
ERROR = 1.05  # E||y - f||^2 may grow by this factor: more, and something was explained
SWEEPS = 8  # that the smaller model has to raise the bound
SWEEP_STEPS = 3  # joint steps before each
POLISH = 10  # sweeps after the last loss


def trim(
    sweeper: Sweeper, droppers: Sequence[Dropper], bound: Callable[[], float]
) -> Iterator[None]:
    """Take redundant components away one by one, yielding after each and after a few sweeps more.

    The bound never falls from one yield to the next. If none is redundant nothing is yielded, and
    the state is what it was.
    """
    trimmed = False
    again = True
    while again and sweeper.state.n_components > 1:
        again = False
        ground, reached = sweeper.state, bound()
        for r in _smallest_first(ground):
            if _replaced(sweeper, r) and _pays(sweeper, droppers, bound, reached, ground):
                again = trimmed = True
                yield
                break
            sweeper.restore(ground)
    for _ in range(POLISH if trimmed else 0):
        sweeper.ascend(SWEEP_STEPS)
        sweeper.sweep(drop=droppers)
        sweeper.rebalance()
        yield


def _error(state: State) -> float:
    assert isinstance(state.likelihood, Gaussian)
    return state.likelihood.error


def _smallest_first(state: State) -> np.ndarray:
    tiny = np.finfo(float).tiny
    squares = [np.maximum(np.sum(f.mean**2, axis=0), tiny) for f in state.factors]
    return np.argsort(np.sum(np.log(squares), axis=0))


def _replaced(sweeper: Sweeper, r: int) -> bool:
    """Take component r away and let the means of the others move; tell whether they suffice.

    The noise stays what it was, and covariances come in mode by mode from none: those of all modes
    at once have in them whatever the others' redundancy leaves open, and products of that swamp
    the data.
    """
    state = sweeper.state
    most = ERROR * _error(state)
    (family,) = state.network.families(state, 0)
    sweeper.restore(without_groups(state, family, np.array([r])))
    if sweeper.ascend(STEPS, goal=most) > most:
        return False
    sweeper.last = None  # no mode is left out of the next sweep
    sweeper.sweep()
    return True


def _pays(
    sweeper: Sweeper,
    droppers: Sequence[Dropper],
    bound: Callable[[], float],
    reached: float,
    ground: State,
) -> bool:
    """Tell whether a smaller model gets above a bound and explains as much."""
    for _ in range(SWEEPS):
        sweeper.ascend(SWEEP_STEPS)
        sweeper.sweep(drop=droppers)
        if bound() > reached:
            return _error(sweeper.state) <= ERROR * _error(ground)
    return False
