"""Damped Gauss-Newton steps on the means of all modes at once.

Coordinate ascent crawls where the means of several modes must change together: with little noise,
or more components than there is to explain. With covariances and precisions held, the ELBO is

    -(tau E||y - f||^2 + sum lambda_m lambda_r w_mr^2) / 2 + const

as a function of the means w. Its gradient in mode d is b_d - A_d w_d, which the mode's own update
sets to zero. A curvature that is positive definite has the blocks A_d on its diagonal and
tau J_d^T J_e off it, J_d the derivatives of E[f]. The damping shortens a step until the ELBO
rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import lapack

from . import cavi
from .arrays import indices
from .cavi import Block
from .likelihoods import Gaussian
from .state import State

Array = np.ndarray
MOST_NUMBERS = 500_000  # rows times weights: four megabytes
DAMPING = 1e-3  # of the first step, relative to the diagonal of the curvature
MORE, LESS = 8.0, 0.2  # damping after a step that was too long, and after one that was not
ENOUGH = 1e-4  # relative gain of a step below which there is none worth another
LEAST, MOST = 1e-12, 1e3  # of the damping; with more, steps are too short to matter


def possible(state: State, most: int, n_rows: int) -> bool:
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
        and weights <= most
        and n_rows * weights <= MOST_NUMBERS
    )


def derivatives(phi: Any, keep: Array, outside: Any) -> Any:
    """Return those of E[f] by one mode's weights, in vec order: (n, R M).

    ``outside`` holds the means of the other modes' product, (n, R).
    """
    xp = array_namespace(phi)
    kept = xp.take(phi, indices(keep, phi), axis=1)
    return xp.reshape(outside[:, :, None] * kept[:, None, :], (phi.shape[0], -1))


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
