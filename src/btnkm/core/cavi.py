"""Coordinate updates of q and the bound they climb (equation numbers are the paper's).

Each update maximises the bound over one factor of q with the others held, so the bound never
falls. The sums over rows arrive ready made; nothing here knows rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .cp import Terms, pairs
from .gamma import Gamma
from .special import LOG_2PI
from .state import Factor, Mode, Priors, State

Array = np.ndarray


@dataclass(frozen=True)
class Data:
    """What the engine knows of the targets: sum s_n and sum s_n y_n^2."""

    n: float
    square: float


@dataclass(frozen=True)
class Block:
    """The conjugate problem of one mode: E log p(y, W | rest) as a quadratic in vec(W).

    Attributes
    ----------
    second : ndarray of shape (K, P)
    linear : ndarray of shape (M, R)
        The sums over rows of ``cp.block_sums``, restricted to the functions present.
    """

    mode: Mode
    second: Array
    linear: Array

    def system(self, tau: float, prior: Array) -> tuple[Array, Array]:
        """Return A and b of q(W) = N(A^-1 b, A^-1), for the functions whose weights are unknown.

        A = tau * sum_n H_n (x) phi phi^T + Lambda, lower block triangle: (R, M, R, M). What an
        anchor explains of the targets is taken from b, (M, R).
        """
        m, rank = prior.shape
        r, s, _ = pairs(rank)
        grams = self.mode.gram(tau * self.second)
        a = np.zeros((rank, m, rank, m))
        a[s, :, r, :] = grams[:, -m:, -m:]
        a.reshape(-1)[:: rank * m + 1] += prior.T.ravel()
        b = tau * self.linear[-m:]
        if self.mode.anchored:
            known = grams[:, 0, -m:]
            both = np.zeros((rank, rank, m))
            both[r, s] = both[s, r] = known
            b = b - both.sum(axis=1).T
        return a, b

    def solve(self, tau: float, prior: Array, *, mean_only: bool) -> tuple[Any, float]:
        """Return q(W), or its mean alone, and the jitter used."""
        solve = Factor.solve_mean if mean_only else Factor.solve
        return solve(*self.system(tau, prior))

    def error(self, square: float, term: Terms, factor: Factor) -> float:
        """Return E||y - f||^2 = y'y - 2 y'E[f] + E[f'f], from the sums alone."""
        assert term.second is not None
        _, _, multiplicity = pairs(factor.mean.shape[1])
        model = float((self.second * term.second).sum(axis=0) @ multiplicity)
        mean = self.mode.whole(factor.mean)
        return square - 2.0 * float((self.linear * mean).sum()) + model


def prior_precision(state: State, d: int) -> Array:
    """Return E[lambda_m] E[lambda_r] of mode d: (M, R)."""
    return np.asarray(np.multiply.outer(state.basis[d].mean, state.rank_of(d).mean))


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
        shape = updated.shape + 0.5 * state.n_components
        rate = updated.rate + 0.5 * state.factors[d].second @ state.rank_of(d).mean
        updated = Gamma(shape, rate)
    basis = state.basis[:d] + (updated,) + state.basis[d + 1 :]
    return replace(state, basis=basis)


def update_rank(state: State, d: int, priors: Priors) -> State:
    """Update q(lambda_R) (eq. 33, with the factor 1/2): what mode d has of its own, or all."""
    if np.ndim(state.rank.rate) == 2:
        second = state.factors[d].second
        shape, rate = state.rank.shape.copy(), state.rank.rate.copy()
        shape[d] = priors.rank.shape + 0.5 * len(second)
        rate[d] = priors.rank.rate + 0.5 * state.basis[d].mean @ second
        return replace(state, rank=Gamma(shape, rate))
    energy = np.concatenate([basis.mean for basis in state.basis]) @ state.stacked_second
    shape = priors.rank.shape + 0.5 * len(state.stacked_second)
    return replace(state, rank=Gamma(shape, priors.rank.rate + 0.5 * energy))


def update_likelihood(state: State, sums: tuple[Any, ...], data: Data, priors: Priors) -> State:
    """Update the likelihood's own parameters from what its rows add up to."""
    likelihood = state.likelihood.learn(sums, data.n, priors.noise)
    return replace(state, likelihood=likelihood)


def elbo_terms(state: State, data: Data, priors: Priors) -> dict[str, float]:
    """Return the bound's terms by name, every constant included; their sum is the bound."""
    rank, basis, second = state.rank, state.stacked_basis, state.stacked_second
    n_components = second.shape[1]
    sizes = [len(mode.keep) for mode in state.modes]
    rows = np.broadcast_to(rank.mean, (len(sizes), n_components)).repeat(sizes, axis=0)
    log_prior = float(np.sum(sizes @ np.broadcast_to(rank.log_mean, (len(sizes), n_components))))
    log_prior += n_components * float(np.sum(priors.log_basis(basis)))
    log_prior -= second.size * LOG_2PI + float(basis.mean @ np.sum(second * rows, axis=1))
    log_det = sum(factor.log_det for factor in state.factors)
    result = {
        **state.likelihood.terms(data.n, priors.noise),
        "weights": 0.5 * log_prior,
        "entropy": 0.5 * (second.size * (1.0 + LOG_2PI) + log_det),
        "basis": 0.0,
        "rank": -float(np.sum(rank.kl(priors.rank))),
    }
    if priors.basis is not None:
        scale = np.concatenate([mode.rate_scale for mode in state.modes])
        prior = Gamma(priors.basis.shape, priors.basis.rate * scale)
        result["basis"] = -float(np.sum(basis.kl(prior)))
    return result


def expected_log_prior(basis: Gamma, rank: Gamma, second: Array | float, priors: Priors) -> Array:
    """Return E log N(w_mr; 0, 1 / (lambda_m lambda_r)) given E[w_mr^2]: (M, R)."""
    log_precision = np.add.outer(priors.log_basis(basis), rank.log_mean)
    energy = np.multiply.outer(basis.mean, rank.mean) * second
    return np.asarray(0.5 * (log_precision - LOG_2PI - energy))


def rebalance(state: State) -> tuple[State, Array]:
    """Move each component's scale between modes to where the bound is highest; f is unchanged.

    Scaling w_r^(d) by c_d with prod_d c_d = 1 changes the bound by
    sum_d M_d log c_d - (c_d^2 - 1) q_d / 2, q_d = E[lambda_r] sum_m E[lambda_m] E[w_mr^2]. At the
    maximum c_d^2 q_d = M_d + nu, with one nu per component that Newton's method finds.

    Returns
    -------
    state : State
    scales : ndarray of shape (D, R)
        The c_d used.
    """
    energy = np.array(
        [
            (b.mean @ f.second) * state.rank.mean
            for b, f in zip(state.basis, state.factors, strict=True)
        ]
    )
    energy = np.maximum(energy, np.finfo(float).tiny)
    sizes = np.array([[float(len(mode.keep))] for mode in state.modes])
    excess = sizes - sizes.min()
    target = np.sum(np.log(energy), axis=0)
    u = target / len(sizes)  # log(nu + min M_d)
    for _ in range(20):
        terms = excess + np.exp(u)
        step = (np.log(terms).sum(axis=0) - target) / (np.exp(u) / terms).sum(axis=0)
        u = u - step
        if np.abs(step).max() < 1e-9:
            break
    log_scale = 0.5 * (np.log(excess + np.exp(u)) - np.log(energy))
    log_scale -= log_scale.mean(axis=0)
    scale = np.exp(log_scale)
    gain = np.sum(sizes * log_scale - 0.5 * (scale**2 - 1.0) * energy, axis=0)
    scale = np.where(gain > 0, scale, 1.0)  # also where Newton's method did not end
    factors = tuple(f.scale(c) for f, c in zip(state.factors, scale, strict=True))
    return replace(state, factors=factors), scale
