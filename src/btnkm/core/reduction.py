"""Dropping functions and components where the bound says so, exactly and before doing it.

With the other factors of q held, mode d is a conjugate linear model. Forcing some of its weights to
zero then changes its best bound by the Savage-Dickey ratio log q(w = 0) - E log p(w = 0), and what
no longer exists pays no KL. So the gain of a smaller model is known before it is built; only gains
are taken, and there is nothing to undo.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .cavi import Block, expected_log_prior, prior_precision
from .cp import pairs
from .linalg import inverse_cholesky
from .special import LOG_2PI
from .state import Factor, Priors, State, log_density_at_zero

Array = np.ndarray


def function_gain(state: State, d: int, which: Array, priors: Priors) -> float:
    """Return what the bound gains if mode d loses the functions ``which``.

    Exact if q(W^(d)) is at its optimum given the rest of q.
    """
    factor, basis = state.factors[d], state.basis[d].take(which)
    size = state.n_components * len(which)
    mean = factor.mean[which].T.ravel()
    cov = factor.cov[:, which][:, :, :, which].reshape(size, size)
    gain = log_density_at_zero(mean, cov)
    gain -= float(np.sum(expected_log_prior(basis, state.rank_of(d), 0.0, priors)))
    if priors.basis is not None:
        gain += float(np.sum(basis.kl(priors.basis_of(state.modes[d].take(which)))))
    return gain


def component_gains(state: State, d: int, priors: Priors) -> Array:
    """Return what the bound gains by the loss of each component, decided in mode d: (R,).

    Exact if q(W^(d)) is at its optimum; in the other modes the component is integrated out.
    """
    gains: Array = np.sum(np.atleast_2d(state.rank.kl(priors.rank)), axis=0)
    for k, (factor, basis) in enumerate(zip(state.factors, state.basis, strict=True)):
        if k == d:
            log_prior = expected_log_prior(basis, state.rank_of(k), 0.0, priors)
            for r in range(state.n_components):
                gains[r] += factor.log_density_at_zero(np.array([r]))
        else:
            log_prior = expected_log_prior(basis, state.rank_of(k), factor.second, priors)
            size = factor.mean.shape[0]
            gains -= 0.5 * (size * (1.0 + LOG_2PI) - factor.component_log_dets)
        gains -= np.sum(log_prior, axis=0)
    return gains


def function_shares(state: State, d: int, block: Block) -> Array:
    """Return each function's share of the summed mean squares of all functions of mode d: (M,)."""
    r, s, multiplicity = pairs(state.n_components)
    mean = state.factors[d].mean
    squares = np.diagonal(state.modes[d].gram(block.second), axis1=1, axis2=2).T[-len(mean) :]
    sizes = np.sum(squares * (mean[:, r] * mean[:, s] * multiplicity), axis=1)
    return np.asarray(sizes / max(float(np.sum(sizes)), np.finfo(float).tiny))


def drop_functions(
    state: State, d: int, block: Block, priors: Priors, share: float
) -> tuple[State, Block] | None:
    """Drop those functions of mode d whose loss raises the bound.

    Only functions with at most the given ``share`` of the mode are weighed, as in
    ``drop_components``; q(W^(d)) is left to be solved anew.
    """
    if d == state.output or not state.modes[d].may_lose_functions:
        return None
    size = len(state.modes[d].keep)
    small = function_shares(state, d, block) <= share
    if not np.any(small):
        return None
    gains = np.array(
        [
            function_gain(state, d, np.array([m]), priors) if small[m] else -np.inf
            for m in range(size)
        ]
    )
    order = np.argsort(-gains)[: size - 1]
    count = int(np.sum(gains[order] > 0))
    while count and function_gain(state, d, np.sort(order[:count]), priors) <= 0:
        count //= 2
    if not count:
        return None
    keep = np.sort(np.setdiff1d(np.arange(size), order[:count]))
    mode = state.modes[d].take(keep)
    modes = state.modes[:d] + (mode,) + state.modes[d + 1 :]
    basis = state.basis[:d] + (state.basis[d].take(keep),) + state.basis[d + 1 :]
    return (
        replace(state, modes=modes, basis=basis),
        Block(mode, block.second[: mode.n_psi], block.linear[state.modes[d].places(keep)]),
    )


def component_shares(state: State, d: int, block: Block) -> Array:
    """Return each component's share of the summed mean squares of all components: (R,)."""
    r, s, _ = pairs(state.n_components)
    mean = state.modes[d].whole(state.factors[d].mean)
    sizes = np.sum(state.modes[d].squares(mean) * block.second[:, r == s], axis=0)
    return np.asarray(sizes / max(float(np.sum(sizes)), np.finfo(float).tiny))


def drop_components(
    state: State, d: int, block: Block, priors: Priors, share: float
) -> tuple[State, Block] | None:
    """Drop those components whose loss raises the bound, decided in mode d; one always stays.

    Only components with at most the given ``share`` of f are weighed: first each alone, then the
    lot together; a lot that would not pay is halved. q(W^(d)) is left to be solved anew. In an
    anchored mode no component can be zero, and none is dropped.
    """
    if state.modes[d].anchored:
        return None
    rank = state.n_components
    small = component_shares(state, d, block) <= share
    if not np.any(small):
        return None
    gains = np.where(small, component_gains(state, d, priors), -np.inf)
    order = np.argsort(-gains)[: rank - 1]
    count = int(np.sum(gains[order] > 0))
    while count:
        lost = np.sort(order[:count])
        kept = np.setdiff1d(np.arange(rank), lost)
        others = {k: f.take_components(kept) for k, f in enumerate(state.factors) if k != d}
        if count == 1 or _joint_gain(state, d, lost, others, priors) > 0:
            break
        count //= 2
    else:
        return None
    others[d] = state.factors[d].take_components(kept)
    return _with_components(state, block, kept, tuple(others[k] for k in range(len(others))))


def component_losses(state: State, d: int, block: Block) -> Array:
    """Return what the warm phase loses with each component, decided in mode d: (R,).

    That is by how much tau times the squared error, plus the penalty of the weights, goes up when
    the others' weights in mode d are solved anew.
    """
    factor, _ = block.solve(state.likelihood.scale, prior_precision(state, d), mean_only=False)
    losses = []
    for r in range(state.n_components):
        inverse, _, _ = inverse_cholesky(factor.cov[r, :, r])
        white = inverse @ factor.mean[:, r]
        losses.append(white @ white)
    return np.array(losses)


def drop_spare(
    state: State, d: int, block: Block, most: int, share: float
) -> tuple[State, Block] | None:
    """Drop a share of the components beyond ``most``: those whose losses are smallest.

    For the warm phase: the bound has no say, and of the weights only the means are kept.
    """
    count = int(np.ceil(share * (state.n_components - most)))
    if count <= 0:
        return None
    kept = np.sort(np.argsort(component_losses(state, d, block))[count:])
    factors = tuple(
        mode.point(factor.mean[:, kept])
        for mode, factor in zip(state.modes, state.factors, strict=True)
    )
    return _with_components(state, block, kept, factors)


def _with_components(
    state: State, block: Block, kept: Array, factors: tuple[Factor, ...]
) -> tuple[State, Block]:
    """Return state and block of the components ``kept``, whose weights are ``factors``."""
    r, s, _ = pairs(state.n_components)
    kept_pairs = np.isin(r, kept) & np.isin(s, kept)
    return (
        replace(state, factors=factors, rank=state.rank.take((..., kept))),
        replace(block, second=block.second[:, kept_pairs], linear=block.linear[:, kept]),
    )


def _joint_gain(
    state: State, d: int, lost: Array, others: dict[int, Factor], priors: Priors
) -> float:
    """Return the bound's gain by the loss of several components; ``others`` holds what is left."""
    gain = float(np.sum(state.rank.take((..., lost)).kl(priors.rank)))
    for k, (factor, basis) in enumerate(zip(state.factors, state.basis, strict=True)):
        m = factor.mean.shape[0]
        if k == d:
            second: Array | float = 0.0
            gain += factor.log_density_at_zero(lost)
        else:
            second = factor.second[:, lost]
            entropy = m * len(lost) * (1.0 + LOG_2PI) + factor.log_det - others[k].log_det
            gain -= 0.5 * entropy
        rank = state.rank_of(k).take(lost)
        gain -= float(np.sum(expected_log_prior(basis, rank, second, priors)))
    return gain
