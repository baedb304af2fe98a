"""Modes of very many levels: one block of weights per level, none between levels.

Where no row has two levels, the precision of W is one (R, R) block per level: L R^2 numbers, where
a covariance of all weights would have (L R)^2. A categorical input of this kind is anchored: a
level multiplies a component by 1 + u with u = 0 a priori, so that one with few rows is nearly the
average one. Its features are sparse; the last of their columns is for levels never seen. The
outputs of f are such a mode, too, with neither anchor nor features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from .cavi import Block
from .cp import Terms, pairs
from .special import LOG_2PI

Array = np.ndarray


@dataclass(frozen=True)
class LevelMode:
    """What the engine knows of such a mode; see ``state.Mode`` for what it stands in for.

    Attributes
    ----------
    keep : ndarray of shape (L,)
        The levels, which all stay.
    rate_scale : ndarray of shape (L,)
    shares : ndarray of shape (L,) or None
        With which the levels stand for one never seen, which is their average. None if there can be
        no other.
    anchored : bool
    """

    keep: Array
    rate_scale: Array
    shares: Array | None
    anchored: bool = True
    may_lose_functions: ClassVar[bool] = False

    @property
    def constant(self) -> Array:
        """No constant beside the anchor: zeros."""
        return np.zeros(len(self.keep))

    @property
    def present(self) -> Array:
        """The levels."""
        return self.keep

    @property
    def n_phi(self) -> int:
        """Columns of the features: the levels, and those never seen."""
        return len(self.keep) + (self.shares is not None)

    n_psi = n_phi

    def average_gram(self, psi: Array) -> sp.csr_array:
        """Return the averages over rows of products of indicators: diagonal."""
        return sp.csr_array(sp.diags_array(psi[: len(self.keep)]))

    def whole(self, weights: Array) -> Array:
        """Return 1 + u, or the weights themselves without an anchor."""
        return 1.0 + weights if self.anchored else weights

    def squares(self, mean: Array) -> Array:
        """Return the coefficients of each component's square in psi: (L, R)."""
        return np.asarray(mean**2)

    def point(self, mean: Array) -> LevelFactor:
        """Return weights that are known exactly."""
        size, rank = mean.shape
        zeros, infinite = np.broadcast_to(0.0, (size, rank, rank)), np.full((size, rank), np.inf)
        return LevelFactor(mean, zeros, -np.inf, infinite)

    def block(self, second: Array, linear: Array) -> LevelBlock:
        """Return the conjugate problem, from sums over rows."""
        return LevelBlock(self, second, linear[self.keep])

    def terms(self, factor: LevelFactor, spread: float) -> Terms:
        """Return what the rows need of q(W): see ``cp.Terms``."""
        mean = self._with_unseen(self.whole(factor.mean))
        if not spread:
            return Terms(mean, None)
        r, s, _ = pairs(mean.shape[1])
        values = self.whole(factor.mean)
        second = values[:, r] * values[:, s] + spread * factor.cov[:, r, s]
        return Terms(mean, self._with_unseen(second))

    def _with_unseen(self, table: Array) -> Array:
        return table if self.shares is None else np.concatenate([table, self.shares @ table[None]])


@dataclass(frozen=True)
class LevelFactor:
    """q(W): independent between levels.

    Attributes
    ----------
    mean : ndarray of shape (L, R)
    cov : ndarray of shape (L, R, R)
    log_det : float
        log det of the covariance of all weights.
    precision : ndarray of shape (L, R)
        Diagonal of the precision.
    """

    mean: Array
    cov: Array
    log_det: float
    precision: Array

    @cached_property
    def variance(self) -> Array:
        """Var[w]: (L, R)."""
        return np.asarray(np.diagonal(self.cov, axis1=1, axis2=2))

    @cached_property
    def second(self) -> Array:
        """E[w^2]: (L, R)."""
        return np.asarray(self.mean**2 + self.variance)

    @property
    def component_log_dets(self) -> Array:
        """Log det of each component's block of the precision: (R,)."""
        return np.asarray(np.sum(np.log(self.precision), axis=0))

    def take_components(self, which: Array) -> LevelFactor:
        """Return the marginal of the components ``which``."""
        cov = self.cov[:, which][:, :, which]
        precision = np.diagonal(np.linalg.inv(cov), axis1=1, axis2=2)
        return LevelFactor(self.mean[:, which], cov, _log_det(cov), precision)

    def log_density_at_zero(self, which: Array) -> float:
        """Return the log density of zero for all weights of the components ``which``."""
        mean, cov = self.mean[:, which], self.cov[:, which][:, :, which]
        square = np.sum(mean * np.linalg.solve(cov, mean[:, :, None])[:, :, 0])
        return -0.5 * (float(square) + _log_det(cov) + mean.size * LOG_2PI)

    def scale(self, factors: Array) -> LevelFactor:
        """Return q of W with component r multiplied by ``factors[r]`` > 0."""
        return LevelFactor(
            self.mean * factors,
            self.cov * factors[:, None] * factors,
            self.log_det + 2.0 * len(self.mean) * float(np.sum(np.log(factors))),
            self.precision / factors**2,
        )

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Return draws of the weights: (n_draws, L, R)."""
        values, vectors = np.linalg.eigh(self.cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        noise = rng.standard_normal((n_draws, *self.mean.shape))
        return np.asarray(self.mean + np.einsum("lij,nlj->nli", root, noise))


@dataclass(frozen=True)
class LevelBlock(Block):
    """The conjugate problem of such a mode; ``second`` is (n_psi, P), ``linear`` (L, R)."""

    mode: LevelMode  # type: ignore[assignment]

    def solve(self, tau: float, prior: Array, *, mean_only: bool) -> tuple[LevelFactor, float]:
        """Return q(W) and no jitter: a prior precision is on every diagonal."""
        size, rank = prior.shape
        r, s, _ = pairs(rank)
        a = np.empty((size, rank, rank))
        a[:, r, s] = a[:, s, r] = tau * self.second[:size]
        b = tau * self.linear
        if self.mode.anchored:
            b = b - a.sum(axis=2)  # which the anchor explains
        diagonal = np.arange(rank)
        a[:, diagonal, diagonal] += prior
        if mean_only:
            return self.mode.point(np.linalg.solve(a, b[:, :, None])[:, :, 0]), 0.0
        cov = np.linalg.inv(a)
        cov = 0.5 * (cov + np.swapaxes(cov, 1, 2))
        mean = np.einsum("lij,lj->li", cov, b)
        return LevelFactor(mean, cov, -_log_det(a), np.diagonal(a, axis1=1, axis2=2)), 0.0


def _log_det(matrices: Array) -> float:
    """Return the sum of the log determinants."""
    return float(np.sum(np.linalg.slogdet(matrices)[1]))
