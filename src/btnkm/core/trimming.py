"""Dropping redundant components: the others can replace them, once they have moved.

``reduction`` judges a component with all other modes as they are, and so drops only what is
negligible already. Where there are more components than f needs, none has to be negligible: they
divide f between them in one of many ways, and at little noise coordinate ascent hardly changes
this. Here a component is removed, the means of all others move together until they have replaced
it, and the smaller model is accepted if the ELBO is higher and f explains the targets as well.

The means move by damped Gauss-Newton steps, all modes at once. Coordinate ascent crawls where the
means of several modes must change together: with little noise, or more components than there is to
explain. With covariances and precisions held, the ELBO is

    -(tau E||y - f||^2 + sum lambda_m lambda_r w_mr^2) / 2 + const

as a function of the means w. Its gradient in mode d is b_d - A_d w_d, which the mode's own update
sets to zero. A curvature that is positive definite has the blocks A_d on its diagonal and
tau J_d^T J_e off it, J_d the derivatives of E[f]. The damping shortens a step until the ELBO
rises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg import lapack

from . import cavi, row_block
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

# joint steps
MOST_NUMBERS = 500_000  # rows times weights: four megabytes
DAMPING = 1e-3  # of the first step, relative to the diagonal of the curvature
MORE, LESS = 8.0, 0.2  # damping after a step that was too long, and after one that was not
ENOUGH = 1e-4  # relative gain of a step below which there is none worth another
LEAST, MOST = 1e-12, 1e3  # of the damping; with more, steps are too short to matter


def trim(
    sweeper: Sweeper, droppers: Sequence[Dropper], bound: Callable[[], float]
) -> Iterator[None]:
    """Remove redundant components one by one, yielding after each and after a few sweeps more.

    The ELBO never falls from one yield to the next. If no component is redundant, nothing is
    yielded and the state is what it was. ``bound`` returns the ELBO.
    """
    trimmed, again = False, True
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
    limit = ERROR * _error(state)
    (family,) = state.network.families(state, 0)
    sweeper.restore(without_groups(state, family, np.array([r])))
    if ascend(sweeper, STEPS, goal=limit) > limit:
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
    """Move the means of all modes together and update the noise; return E||y - f||^2.

    Only where joint steps are ``possible``; the ELBO never falls. After at most so many ``steps``,
    or once they gain next to nothing, it ends. With a finite ``goal`` the noise is held, and steps
    also end once the pace of the last one would not bring the error down to the goal in those left.
    """
    if sweeper.gauge is not None:  # derivatives are for the weights that the rows have
        sweeper.refresh()
    error, value = error_and_value(sweeper)
    damping = DAMPING
    for remaining in range(steps - 1, -1, -1):
        state, last_error, last_value = sweeper.state, error, value
        curvature, gradient = joint_system(sweeper)
        while damping <= MOST:
            change = step(curvature, gradient, damping)
            if change is not None:
                sweeper.state = moved(state, change)
                sweeper.refresh()
                error, value = error_and_value(sweeper)
                if value > last_value:
                    break
            damping *= MORE
        else:  # nowhere higher, up to rounding
            sweeper.state, error = state, last_error
            sweeper.refresh()
            break
        damping = max(LESS * damping, LEAST)
        if value - last_value < ENOUGH * max(1.0, -value):
            break
        if error - remaining * (last_error - error) > goal:
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
    return error, -0.5 * (scale * error + penalty(sweeper.state))


def joint_system(sweeper: Sweeper) -> tuple[Array, Array]:
    """Return curvature (P, P) and gradient (P,) of the ELBO in the means of all modes."""
    modes, layout = sweeper.state.modes, sweeper.state.factors[0].layout
    widths, keep = [widths_of(mode) for mode in modes], [mode.keep for mode in modes]
    gram, *rest = sweeper.executor.sum(partial(row_block.joint_sums, widths=widths, keep=keep))
    blocks = [
        Block(mode, second, linear[mode.present], layout)
        for mode, second, linear in zip(modes, rest[::2], rest[1::2], strict=True)
    ]
    return system(sweeper.state, blocks, gram)


def possible(state: State, most_weights: int, n_rows: int) -> bool:
    """Return whether joint steps apply: few weights, few rows, and a model they are made for."""
    weights = sum(factor.mean.size for factor in state.factors)
    return (
        state.network.joint_steps
        and state.output is None
        and not state.anchored
        and isinstance(state.likelihood, Gaussian)
        and len(state.modes) > 1
        and state.sums is None
        and all(mode.may_lose_functions for mode in state.modes)
        and weights <= most_weights
        and n_rows * weights <= MOST_NUMBERS
    )


def system(state: State, blocks: Sequence[Block], gram: Array) -> tuple[Array, Array]:
    """Return curvature (lower triangle) and gradient of the ELBO in the means of all modes.

    ``gram`` is the sum over rows of J^T J, the modes one after the other.
    """
    tau = state.likelihood.scale
    curvature, gradient, start = tau * gram, [], 0
    for d, (block, factor) in enumerate(zip(blocks, state.factors, strict=True)):
        a, b = block.system(tau, cavi.prior_precision(state, d))
        a = np.tril(a.reshape(b.size, b.size))
        block_of_d = slice(start, start + b.size)
        curvature[block_of_d, block_of_d] = a
        mean = factor.mean.T.ravel()
        gradient.append(b.T.ravel() - a @ mean - np.tril(a, -1).T @ mean)
        start += b.size
    return curvature, np.concatenate(gradient)


def step(curvature: Array, gradient: Array, damping: float) -> Array | None:
    """Return the damped step, or None if rounding leaves none."""
    damped = curvature.copy()
    damped.reshape(-1)[:: len(damped) + 1] *= 1.0 + damping
    _, x, info = lapack.dposv(damped, gradient, lower=1)
    return x if not info and np.isfinite(x).all() else None


def moved(state: State, change: Array) -> State:
    """Return the state with the means of all modes changed."""
    factors, start = [], 0
    for factor in state.factors:
        m, rank = factor.mean.shape
        step_of_d = change[start : start + m * rank].reshape(rank, m).T
        factors.append(replace(factor, mean=factor.mean + step_of_d))
        start += m * rank
    return replace(state, factors=tuple(factors))


def penalty(state: State) -> float:
    """Return sum lambda_m lambda_r w_mr^2 of the means."""
    pairs = enumerate(state.factors)
    return sum(float(np.sum(cavi.prior_precision(state, d) * f.mean**2)) for d, f in pairs)
