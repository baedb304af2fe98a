"""Dropping functions, components and bond indices where the ELBO is higher without them.

With the other factors of q held, mode d is a conjugate linear model. Setting some of its weights to
zero then changes its best ELBO by the Savage-Dickey ratio log q(w = 0) - E log p(w = 0), and the KL
divergences of what is dropped vanish. So the gain of a smaller model is known before it is built;
only gains are taken, and there is nothing to undo.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .cavi import Block, expected_log_prior, prior_precision
from .gamma import LOG_2PI, Gamma
from .linalg import inverse_cholesky
from .network import Family
from .state import Priors, State, log_density_at_zero

Array = np.ndarray


class Smaller(NamedTuple):
    """The state after something was dropped."""

    state: State
    block: Block  # of the mode in which it was decided, which is still to be solved again
    kept: dict[int, Array]  # the columns that are left in modes that have lost some


def function_gain(state: State, d: int, which: Array, priors: Priors) -> float:
    """Return the gain of the ELBO if mode d loses the functions ``which``.

    Exact if q(W^(d)) is at its optimum given the rest of q.
    """
    factor, basis = state.factors[d], state.basis[d].take(which)
    size = factor.mean.shape[1] * len(which)
    mean = factor.mean[which].T.ravel()
    cov = factor.cov[:, which][:, :, :, which].reshape(size, size)
    gain = log_density_at_zero(mean, cov)
    gain -= float(np.sum(expected_log_prior(basis, state.precisions(d), 0.0, priors)))
    if priors.basis is not None:
        gain += float(np.sum(basis.kl(priors.basis_of(state.modes[d].take(which)))))
    return gain


def group_gains(state: State, d: int, family: Family, priors: Priors) -> Array:
    """Return the gain of the ELBO by the loss of each group, decided in mode d: (G,).

    Exact if q(W^(d)) is at its optimum; in the other modes the group is integrated out.
    """
    gains = np.zeros(family.size)
    for vector, entries in family.entries.items():
        gains += np.sum(state.rank[vector].kl(priors.rank)[entries], axis=1)
    for k, columns in family.columns.items():
        factor, basis = state.factors[k], state.basis[k]
        second: Array | float = factor.second
        if k == d:
            second = 0.0
            gains += [factor.log_density_at_zero(group) for group in columns]
        else:
            size = factor.mean.shape[0] * columns.shape[1]
            gains -= 0.5 * size * (1.0 + LOG_2PI)
            gains += 0.5 * factor.group_log_dets(family.group_set[k])
        log_prior = expected_log_prior(basis, state.precisions(k), second, priors)
        gains -= np.sum(np.sum(log_prior, axis=0)[columns], axis=1)
    return gains


def function_shares(state: State, d: int, block: Block) -> Array:
    """Return each function's fraction of the summed mean squares of mode d: (M,)."""
    mean, layout = state.factors[d].mean, block.layout
    squares = np.diagonal(state.modes[d].gram(block.second), axis1=1, axis2=2).T[-len(mean) :]
    sizes = np.sum(squares * (layout.products(mean) * layout.multiplicity), axis=1)
    return np.asarray(sizes / max(float(np.sum(sizes)), np.finfo(float).tiny))


def drop_functions(
    state: State, d: int, block: Block, priors: Priors, share: float
) -> Smaller | None:
    """Drop those functions of mode d whose loss raises the ELBO.

    Only functions with at most the given ``share`` of the mode are considered, as in
    ``drop_groups``; q(W^(d)) is still to be solved again.
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
    smaller = replace(
        block,
        mode=mode,
        second=block.second[: mode.n_psi],
        linear=block.linear[state.modes[d].places(keep)],
    )
    return Smaller(replace(state, modes=modes, basis=basis), smaller, {})


def group_shares(state: State, d: int, block: Block, family: Family) -> Array:
    """Return each group's fraction of the summed mean squares of all groups: (G,)."""
    columns, layout = family.columns[d], block.layout
    statistics = layout.statistic[columns[:, :, None], columns[:, None, :]]
    mean = state.modes[d].whole(state.factors[d].mean, layout.anchor)
    sizes = state.modes[d].group_squares(block.second, mean, statistics, columns)
    return np.asarray(sizes / max(float(np.sum(sizes)), np.finfo(float).tiny))


def drop_groups(state: State, d: int, block: Block, priors: Priors, share: float) -> Smaller | None:
    """Drop components, or indices of a bond, whose loss raises the ELBO, decided in mode d.

    One always stays. Only those with at most the given ``share`` of f are considered: first each
    alone, then all of these together; a set that would lower the ELBO is halved. q(W^(d)) is still
    to be solved again.
    """
    for family in state.network.families(state, d):
        if family.size == 1:
            continue
        small = group_shares(state, d, block, family) <= share
        if not np.any(small):
            continue
        gains = np.where(small, group_gains(state, d, family, priors), -np.inf)
        order = np.argsort(-gains)[: family.size - 1]
        count = int(np.sum(gains[order] > 0))
        while count:
            lost = np.sort(order[:count])
            smaller, gain = _marginal(state, d, family, lost, priors)
            if count == 1 or gain > 0:
                return _without(state, smaller, d, block, family, lost)
            count //= 2
    return None


def component_losses(state: State, d: int, block: Block) -> Array:
    """Return what the warm phase loses with each component, decided in mode d: (R,).

    That is by how much tau times the squared error, plus the penalty of the weights, goes up when
    the others' weights in mode d are solved again.
    """
    factor, _ = block.solve(state.likelihood.scale, prior_precision(state, d), mean_only=False)
    losses = []
    for r in range(state.n_components):
        inverse, _, _ = inverse_cholesky(factor.cov[r, :, r])
        white = inverse @ factor.mean[:, r]
        losses.append(white @ white)
    return np.array(losses)


def drop_extra(state: State, d: int, block: Block, rank: int, share: float) -> Smaller | None:
    """Drop a fraction of the components beyond ``rank``: those whose losses are smallest.

    For the warm phase of a CP tensor: the ELBO is not used, and only the means of the weights are
    kept.
    """
    count = int(np.ceil(share * (state.n_components - rank)))
    if count <= 0:
        return None
    lost = np.sort(np.argsort(component_losses(state, d, block))[:count])
    (family,) = state.network.families(state, d)
    smaller = without_groups(state, family, lost)
    return _without(state, smaller, d, block, family, lost)


def without_groups(state: State, family: Family, lost: Array) -> State:
    """Return the state without some groups of weights; of the others the means are kept."""
    kept = np.setdiff1d(np.arange(family.size), lost)
    factors = list(state.factors)
    for k, (columns, layout) in state.network.without(state, family, kept).items():
        factors[k] = state.modes[k].point(factors[k].mean[:, columns], layout)
    return replace(state, factors=tuple(factors), rank=_rank_without(state, family, lost))


def _rank_without(state: State, family: Family, lost: Array) -> tuple[Gamma, ...]:
    rank = list(state.rank)
    for vector, entries in family.entries.items():
        kept = np.setdiff1d(np.arange(len(rank[vector].rate)), entries[lost])
        rank[vector] = rank[vector].take(kept)
    return tuple(rank)


def _without(
    before: State, state: State, d: int, block: Block, family: Family, lost: Array
) -> Smaller:
    """Return the remaining state, and the conjugate problem of mode d."""
    kept = {
        k: np.setdiff1d(np.arange(before.factors[k].layout.n_columns), columns[lost])
        for k, columns in family.columns.items()
    }
    layout = state.factors[d].layout
    statistics = block.layout.statistics_of(kept[d], layout)
    rest = replace(
        block, second=block.second[:, statistics], linear=block.linear[:, kept[d]], layout=layout
    )
    return Smaller(state, rest, kept)


def _marginal(
    state: State, d: int, family: Family, lost: Array, priors: Priors
) -> tuple[State, float]:
    """Return the marginal of q without some groups, and the gain of the ELBO by their loss.

    q(W^(d)) is the marginal as well, not the best without them.
    """
    kept = np.setdiff1d(np.arange(family.size), lost)
    gain = 0.0
    for vector, entries in family.entries.items():
        gain += float(np.sum(state.rank[vector].kl(priors.rank)[entries[lost]]))
    factors = list(state.factors)
    for k, (columns, layout) in state.network.without(state, family, kept).items():
        factor, away = state.factors[k], family.columns[k][lost].ravel()
        factors[k] = factor.take_columns(columns, layout)
        second: Array | float = factor.second[:, away]
        if k == d:
            second = 0.0
            gain += factor.log_density_at_zero(away)
        else:
            size = factor.mean.shape[0] * len(away)
            gain -= 0.5 * (size * (1.0 + LOG_2PI) + factor.log_det - factors[k].log_det)
        columns_lost = state.precisions(k).take(away)
        gain -= float(np.sum(expected_log_prior(state.basis[k], columns_lost, second, priors)))
    rank = _rank_without(state, family, lost)
    return replace(state, factors=tuple(factors), rank=rank), gain
