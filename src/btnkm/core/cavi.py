"""Coordinate updates of q, and the ELBO (equation numbers are those of the paper).

Each update maximises the ELBO over one factor of q with the others held, so the ELBO never falls.
Updates take sums over rows; nothing here sees the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .gamma import LOG_2PI, Gamma
from .layout import Layout
from .rows import Terms
from .state import Factor, Mode, Precisions, Priors, State

Array = np.ndarray


@dataclass(frozen=True)
class Data:
    """What the engine needs of the targets: sum s_n and sum s_n y_n^2.

    ``rounding`` is the error of a squared error from rows in single precision, relative to the
    latter.
    """

    n: float
    square: float
    rounding: float = 0.0


@dataclass(frozen=True)
class Block:
    """The conjugate problem of one mode: E log p(y, W | rest) as a quadratic in vec(W)."""

    mode: Mode
    second: Array  # (K, S)
    # (M, C): the sums over rows of ``rows.block_sums``, restricted to the functions present
    linear: Array
    layout: Layout  # of the columns

    def system(self, tau: float, prior: Array) -> tuple[Array, Array]:
        """Return A and b of q(W) = N(A^-1 b, A^-1), for the functions whose weights are unknown.

        A = tau * sum_n H_n (x) phi phi^T + Lambda, lower block triangle: (C, M, C, M). What an
        anchor explains of the targets is subtracted from b, (M, C).
        """
        m, count = prior.shape
        c, d, statistic = self.layout.lower
        grams = self.mode.gram(tau * self.second)
        a = np.zeros((count, m, count, m))
        a[d, :, c, :] = grams[statistic, -m:, -m:]
        a.reshape(-1)[:: count * m + 1] += prior.T.ravel()
        b = tau * self.linear[-m:]
        if self.mode.anchored:
            known = grams[:, 0, -m:][self.layout.statistic]  # (C, C, M)
            b = b - np.einsum("cdm,d->mc", known, self.layout.anchor)
        return a, b

    def solve(self, tau: float, prior: Array, *, mean_only: bool) -> tuple[Any, float]:
        """Return q(W), or its mean alone, and the jitter used."""
        solve = Factor.solve_mean if mean_only else Factor.solve
        return solve(*self.system(tau, prior), self.layout)

    def error(self, square: float, term: Terms, factor: Factor) -> float:
        """Return E||y - f||^2 = y'y - 2 y'E[f] + E[f'f], from the sums alone."""
        assert term.second is not None
        model = float((self.second * term.second).sum(axis=0) @ self.layout.multiplicity)
        mean = self.mode.whole(factor.mean, self.layout.anchor)
        return square - 2.0 * float((self.linear * mean).sum()) + model


def prior_precision(state: State, d: int) -> Array:
    """Return E[lambda_m] E[lambda_c] of mode d: (M, C)."""
    return np.asarray(np.multiply.outer(state.basis[d].mean, state.precisions(d).mean))


def update_factor(
    state: State, d: int, block: Block, *, mean_only: bool = False
) -> tuple[State, float]:
    """Update q(W^(d)) (eq. 22), without its effect on the error; also return the jitter used."""
    tau = state.likelihood.scale
    factor, jitter = block.solve(tau, prior_precision(state, d), mean_only=mean_only)
    factors = state.factors[:d] + (factor,) + state.factors[d + 1 :]
    return replace(state, factors=factors), jitter


def update_basis(state: State, d: int, priors: Priors) -> State:
    """Update q(lambda_M^(d)) (eq. 31, with the factor 1/2 the paper drops); those known stay."""
    updated = priors.basis_of(state.modes[d])
    if priors.basis is not None:
        second = state.factors[d].second
        shape = updated.shape + 0.5 * second.shape[1]
        rate = updated.rate + 0.5 * second @ state.precisions(d).mean
        updated = Gamma(shape, rate)
    basis = state.basis[:d] + (updated,) + state.basis[d + 1 :]
    return replace(state, basis=basis)


def update_rank(state: State, d: int, priors: Priors) -> State:
    """Update the q(lambda_R) that mode d has a part in (eq. 33, with the factor 1/2)."""
    for vector, entries in state.network.sides(state, d):
        users = state.network.users(state, vector)
        size = len(state.rank[vector].rate)
        if isinstance(entries, slice):  # every column has an entry, and no other precision
            basis = np.concatenate([state.basis[k].mean for k in users])
            second = np.concatenate([state.factors[k].second for k in users])
            count, energy = np.full(size, float(len(second))), basis @ second
        else:
            count, energy = np.zeros(size), np.zeros(size)
            for k in users:
                second, where = state.factors[k].second, dict(state.network.sides(state, k))[vector]
                of_columns = (state.basis[k].mean @ second) * state.precisions(k, but=vector).mean
                count += len(second) * np.bincount(where, minlength=size)
                energy += np.bincount(where, of_columns, minlength=size)
        updated = Gamma(priors.rank.shape + 0.5 * count, priors.rank.rate + 0.5 * energy)
        state = replace(state, rank=(*state.rank[:vector], updated, *state.rank[vector + 1 :]))
    return state


def update_likelihood(state: State, sums: tuple[Any, ...], data: Data, priors: Priors) -> State:
    """Update the likelihood's own parameters from sums over rows."""
    likelihood = state.likelihood.learn(sums, data.n, priors.noise)
    return replace(state, likelihood=likelihood)


def elbo_terms(state: State, data: Data, priors: Priors) -> dict[str, float]:
    """Return the terms of the ELBO by name, every constant included; their sum is the ELBO."""
    weights = entropy = kl = 0.0
    for d, (mode, factor, basis) in enumerate(
        zip(state.modes, state.factors, state.basis, strict=True)
    ):
        log_prior = expected_log_prior(basis, state.precisions(d), factor.second, priors)
        weights += float(np.sum(log_prior))
        entropy += 0.5 * (factor.mean.size * (1.0 + LOG_2PI) + factor.log_det)
        if priors.basis is not None:
            kl += float(np.sum(basis.kl(priors.basis_of(mode))))
    return {
        **state.likelihood.terms(data.n, priors.noise),
        "weights": weights,
        "entropy": entropy,
        "basis": -kl,
        "rank": -sum(float(np.sum(gamma.kl(priors.rank))) for gamma in state.rank),
        **({} if state.sums is None else state.sums.terms()),
    }


def expected_log_prior(
    basis: Gamma, columns: Precisions, second: Array | float, priors: Priors
) -> Array:
    """Return E log N(w_mc; 0, 1 / (lambda_m lambda_c)) given E[w_mc^2]: (M, C)."""
    log_precision = np.add.outer(priors.log_basis(basis), columns.log_mean)
    energy = np.multiply.outer(basis.mean, columns.mean) * second
    return np.asarray(0.5 * (log_precision - LOG_2PI - energy))
