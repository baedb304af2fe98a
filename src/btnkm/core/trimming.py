"""Dropping redundant components: the others can replace them, once they have moved.

``reduction`` judges a component with all other modes as they are, and so drops only what is
negligible already. Where there are more components than f needs, none has to be negligible: they
divide f between them in one of many ways, and at little noise coordinate ascent hardly changes
this. Here a component is removed, the means of all others move together until they have replaced
it, and the smaller model is accepted if the ELBO is higher and f explains the targets as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from . import cavi, gauss_newton, row_block
from .cavi import Block
from .likelihoods import Gaussian
from .reduction import without_groups
from .state import State
from .sweeper import Dropper, Sweeper, widths_of

Array = np.ndarray
STEPS = 60  # joint steps in which the others may replace a component
ERROR = 1.05  # E||y - f||^2 may grow by this factor; more, and the component was not redundant
SWEEPS = 8  # in which the smaller model must raise the ELBO
SWEEP_STEPS = 3  # joint steps before each
POLISH = 10  # sweeps after the last loss


def trim(
    sweeper: Sweeper, droppers: Sequence[Dropper], bound: Callable[[], float]
) -> Iterator[None]:
    """Remove redundant components one by one, yielding after each and after a few sweeps more.

    The ELBO never falls from one yield to the next. If no component is redundant, nothing is
    yielded and the state is what it was. ``bound`` returns the ELBO.
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
        ascend(sweeper, SWEEP_STEPS)
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
    """Remove component r and let the means of the others move; return whether they replace it.

    The noise is held, and the covariances come in mode by mode: those of all modes at once contain
    all that the redundancy leaves undetermined, and products of these outweigh the data.
    """
    state = sweeper.state
    most = ERROR * _error(state)
    (family,) = state.network.families(state, 0)
    sweeper.restore(without_groups(state, family, np.array([r])))
    if ascend(sweeper, STEPS, goal=most) > most:
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
    """Return whether a smaller model reaches a higher ELBO and explains as much."""
    for _ in range(SWEEPS):
        ascend(sweeper, SWEEP_STEPS)
        sweeper.sweep(drop=droppers)
        if bound() > reached:
            return _error(sweeper.state) <= ERROR * _error(ground)
    return False


def ascend(sweeper: Sweeper, steps: int, goal: float = np.inf) -> float:
    """Move the means of all modes together, up to so many steps, and update the noise.

    Only where ``gauss_newton.possible``; the ELBO never falls. Steps end early once they gain next
    to nothing. With a finite ``goal`` the noise is held, and steps also end once the pace of the
    last one would not bring the error down to the goal in those left.

    Returns
    -------
    error : float
        E||y - f||^2.
    """
    if sweeper.gauge is not None:  # derivatives are for the weights that the rows have
        sweeper.refresh()
    error, value = error_and_value(sweeper)
    damping = gauss_newton.DAMPING
    for left in range(steps - 1, -1, -1):
        state, last_error, last_value = sweeper.state, error, value
        curvature, gradient = joint_system(sweeper)
        while damping <= gauss_newton.MOST:
            change = gauss_newton.step(curvature, gradient, damping)
            if change is not None:
                sweeper.state = gauss_newton.moved(state, change)
                sweeper.refresh()
                error, value = error_and_value(sweeper)
                if value > last_value:
                    break
            damping *= gauss_newton.MORE
        else:  # nowhere higher, up to rounding
            sweeper.state, error = state, last_error
            sweeper.refresh()
            break
        damping = max(gauss_newton.LESS * damping, gauss_newton.LEAST)
        if value - last_value < gauss_newton.ENOUGH * max(1.0, -value):
            break
        if error - left * (last_error - error) > goal:
            break
    if goal == np.inf:
        data, priors = sweeper.data, sweeper.priors
        sweeper.state = cavi.update_likelihood(sweeper.state, (error,), data, priors)
    return error


def error_and_value(sweeper: Sweeper) -> tuple[float, float]:
    """Return E||y - f||^2 and the part of the ELBO that depends on the means."""
    squared_error = partial(row_block.squared_error, d=sweeper.last or 0)
    error = float(sweeper.executor.sum(squared_error)[0])
    scale = sweeper.state.likelihood.scale
    return error, -0.5 * (scale * error + gauss_newton.penalty(sweeper.state))


def joint_system(sweeper: Sweeper) -> tuple[Array, Array]:
    """Return curvature (P, P) and gradient (P,) of the ELBO in the means of all modes."""
    modes, layout = sweeper.state.modes, sweeper.state.factors[0].layout
    widths, keep = [widths_of(mode) for mode in modes], [mode.keep for mode in modes]
    gram, *rest = sweeper.executor.sum(partial(row_block.joint_sums, widths=widths, keep=keep))
    blocks = [
        Block(mode, second, linear[mode.present], layout)
        for mode, second, linear in zip(modes, rest[::2], rest[1::2], strict=True)
    ]
    return gauss_newton.system(sweeper.state, blocks, gram)
