"""What the engine knows: the variational posterior q and the model it belongs to.

Everything here is frozen; an update returns a new object. Covariances are (R, M, R, M) arrays, the
vec order (component outer, function inner, as vec(W) of an M x R matrix) lives in ``Factor`` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from .gamma import Gamma
from .likelihoods import Likelihood
from .linalg import inverse_cholesky, solve, square_root
from .special import LOG_2PI

Array = np.ndarray
DENSE_TABLE = 32_768  # entries up to which a product table is kept dense
FULL_ENOUGH = 4  # a larger one is dense, too, if one in so many of its entries is not zero


@dataclass(frozen=True)
class Mode:
    """One input as the engine sees it: the functions still in the model and their product table.

    Attributes
    ----------
    keep : ndarray of shape (M,)
        Which functions of the basis are in the model, ascending.
    full_table : csr_array of shape (M_full ** 2, K_full)
        Products of all functions of the basis (see bases/base.py).
    rate_scale : ndarray of shape (M,)
        Smoothness prior: the rate of lambda_m is the prior's rate times this.
    constant : ndarray of shape (M,)
        Coefficients of the function 1.
    anchored : bool
        Whether function 0 of the basis, never among the kept, has the weight 1 in all components.
    """

    keep: Array
    full_table: sp.csr_array
    rate_scale: Array
    constant: Array
    anchored: bool = False
    may_lose_functions: ClassVar[bool] = True

    @cached_property
    def present(self) -> Array:
        """Which functions have a weight, known or not: the kept ones, behind the anchor."""
        return np.append(0, self.keep) if self.anchored else self.keep

    @cached_property
    def n_phi(self) -> int:
        """How many leading columns of phi the functions need."""
        return int(self.present[-1]) + 1

    @cached_property
    def table(self) -> Any:
        """Products of the functions present, on the leading columns of psi they need: (M*M, K).

        Dense where it is small or full: a sparse product's overhead then exceeds what it saves.
        """
        m_full = int(round(np.sqrt(self.full_table.shape[0])))
        rows = (self.present[:, None] * m_full + self.present).ravel()
        table = self.full_table[rows].tocsc()
        used = np.flatnonzero(np.diff(table.indptr))
        table = sp.csr_array(table[:, : int(used[-1]) + 1])
        size = table.shape[0] * table.shape[1]
        return table.toarray() if size <= max(DENSE_TABLE, FULL_ENOUGH * table.nnz) else table

    @property
    def n_psi(self) -> int:
        """How many leading columns of psi the products of the functions need, K."""
        return int(self.table.shape[1])

    @cached_property
    def _table_t(self) -> Any:
        return self.table.T if isinstance(self.table, np.ndarray) else sp.csr_array(self.table.T)

    def gram(self, sums: Array) -> Array:
        """Return sum_n phi_i phi_j h_p from sum_n psi_k h_p: (K, P) -> (P, M, M)."""
        m = len(self.present)
        if isinstance(self.table, np.ndarray):
            return np.asarray((sums.T @ self._table_t).reshape(-1, m, m))
        return np.asarray((self.table @ sums).T.reshape(-1, m, m))

    def adjoint(self, products: Array) -> Array:
        """Return c with sum_ij E_pij phi_i phi_j = sum_k c_kp psi_k: (P, M, M) -> (K, P)."""
        flat = products.reshape(len(products), -1)
        if isinstance(self.table, np.ndarray):
            return (flat @ self.table).T
        return np.asarray(self._table_t @ np.ascontiguousarray(flat.T))

    def squares(self, mean: Array) -> Array:
        """Return the coefficients of each component's square in psi: (K, R)."""
        return self.adjoint(mean.T[:, :, None] * mean.T[:, None, :])

    def average_gram(self, psi: Array) -> Array:
        """Return the average of phi phi^T over rows from that of psi: (K,) -> (M, M)."""
        return np.asarray(self.gram(psi[:, None])[0])

    def point(self, mean: Array) -> Factor:
        """Return weights (M, R) that are known exactly."""
        return Factor.point(mean)

    def whole(self, weights: Array) -> Array:
        """Return the weights of the functions present from those of the kept ones: (..., M, R)."""
        if not self.anchored:
            return weights
        ones = np.ones((*weights.shape[:-2], 1, weights.shape[-1]))
        return np.concatenate([ones, weights], axis=-2)

    def places(self, which: Array) -> Array:
        """Return where functions, by position among the kept, stand among those present."""
        return np.append(0, which + 1) if self.anchored else which

    def take(self, which: Array) -> Mode:
        """Return the mode with only the functions ``which`` (positions among the kept)."""
        return replace(
            self,
            keep=self.keep[which],
            rate_scale=self.rate_scale[which],
            constant=self.constant[which],
        )


@dataclass(frozen=True)
class Factor:
    """q(W) of one mode: a Gaussian with full covariance.

    Attributes
    ----------
    mean : ndarray of shape (M, R)
    cov : ndarray of shape (R, M, R, M)
    log_det : float
        log det of the covariance.
    precision_blocks : ndarray of shape (R, M, M)
        Each component's diagonal block of the precision, lower triangle: the inverse of the
        covariance that is left once all other components are known.
    """

    mean: Array
    cov: Array
    log_det: float
    precision_blocks: Array

    @classmethod
    def solve(cls, precision: Array, linear: Array) -> tuple[Factor, float]:
        """Return N(A^-1 b, A^-1) and the jitter used: A is (R, M, R, M), b is (M, R)."""
        m, r = linear.shape
        inverse, log_det, jitter = inverse_cholesky(precision.reshape(r * m, r * m))
        mean = (inverse.T @ (inverse @ linear.T.ravel())).reshape(r, m).T
        cov = (inverse.T @ inverse).reshape(r, m, r, m)
        return cls(mean, cov, -log_det, _diagonal_blocks(precision)), jitter

    @classmethod
    def solve_mean(cls, precision: Array, linear: Array) -> tuple[Factor, float]:
        """Return the mean alone (no covariance: zeros), for sweeps that need nothing else."""
        m, r = linear.shape
        mean, jitter = solve(precision.reshape(r * m, r * m), linear.T.ravel())
        return cls.point(mean.reshape(r, m).T), jitter

    @classmethod
    def point(cls, mean: Array) -> Factor:
        """Return a factor that is known exactly; its covariance is a read-only block of zeros."""
        m, r = mean.shape
        blocks = np.broadcast_to(np.inf, (r, m, m))
        return cls(mean, np.broadcast_to(0.0, (r, m, r, m)), -np.inf, blocks)

    @cached_property
    def second(self) -> Array:
        """E[w_mr ** 2]: (M, R)."""
        return np.asarray(self.mean**2 + self.variance)

    @cached_property
    def variance(self) -> Array:
        """Var[w_mr]: (M, R)."""
        m, r = self.mean.shape
        return np.diagonal(self.cov.reshape(r * m, r * m)).reshape(r, m).T

    @cached_property
    def component_log_dets(self) -> Array:
        """Log det of each component's block of the precision: (R,)."""
        return np.array([inverse_cholesky(block)[1] for block in self.precision_blocks])

    def take_components(self, which: Array) -> Factor:
        """Return the marginal of the components ``which``."""
        cov = self.cov[which][:, :, which]
        r, m = cov.shape[:2]
        inverse, log_det, _ = inverse_cholesky(cov.reshape(r * m, r * m))
        precision = (inverse.T @ inverse).reshape(r, m, r, m)
        return Factor(self.mean[:, which], cov, log_det, _diagonal_blocks(precision))

    def log_density_at_zero(self, which: Array) -> float:
        """Return the log density of zero for all weights of the components ``which``."""
        mean = self.mean[:, which].T.ravel()
        return log_density_at_zero(mean, self.cov[which][:, :, which].reshape(mean.size, -1))

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Return draws of W: (n_draws, M, R)."""
        m, r = self.mean.shape
        root = square_root(self.cov.reshape(r * m, r * m))
        noise = (rng.standard_normal((n_draws, r * m)) @ root.T).reshape(n_draws, r, m)
        return np.asarray(self.mean + np.swapaxes(noise, 1, 2))

    def scale(self, factors: Array) -> Factor:
        """Return q of W with component r multiplied by ``factors[r]`` > 0."""
        m = self.mean.shape[0]
        log_factors = np.log(factors)
        return Factor(
            self.mean * factors,
            self.cov * factors[:, None, None, None] * factors[:, None],
            self.log_det + 2.0 * m * float(np.sum(log_factors)),
            self.precision_blocks / (factors**2)[:, None, None],
        )


def log_density_at_zero(mean: Array, cov: Array) -> float:
    """Return log N(0; mean, cov)."""
    inverse, log_det, _ = inverse_cholesky(cov)
    white = inverse @ mean
    return -0.5 * (float(white @ white) + log_det + len(mean) * LOG_2PI)


def _diagonal_blocks(precision: Array) -> Array:
    index = np.arange(precision.shape[0])
    return np.asarray(precision[index, :, index, :])


@dataclass(frozen=True)
class Priors:
    """Hyperpriors: Gamma distributions of the noise, rank and basis precisions.

    With ``basis=None`` the basis precisions are known: as smooth as ``rate_scale`` says, and no
    more is learned of them.
    """

    noise: Gamma
    rank: Gamma
    basis: Gamma | None

    def basis_of(self, mode: Mode) -> Gamma:
        """Return the prior of lambda_m of one mode; its mean is the value of those known."""
        basis = self.basis or Gamma(1.0, 1.0)
        return Gamma(basis.shape, basis.rate * mode.rate_scale)

    def log_basis(self, basis: Gamma) -> Array:
        """Return E[log lambda_m] under q, or the logarithm where lambda_m is known."""
        return np.asarray(np.log(basis.mean) if self.basis is None else basis.log_mean)


@dataclass(frozen=True)
class State:
    """The posterior q(W^(1)) ... q(W^(D)) q(lambda_M) q(lambda_R), its likelihood and its model.

    Attributes
    ----------
    modes : tuple of Mode
    factors : tuple of Factor
    basis : tuple of Gamma
        q(lambda_M) of each mode, parameters of shape (M,).
    rank : Gamma
        q(lambda_R), parameters of shape (R,); of shape (D, R) if each mode has its own.
    likelihood : Likelihood
        With what is known of its own parameters, such as q(tau).
    output : int or None
        The mode that stands for the outputs where f has many, one function each; the last.
    information : float or ndarray of shape (K,)
        How much the rows say of the level of f, of each output: what all their weights add up to.
        Its inverse is the least variance that f can have anywhere.
    """

    modes: tuple[Mode, ...]
    factors: tuple[Factor, ...]
    basis: tuple[Gamma, ...]
    rank: Gamma
    likelihood: Likelihood
    output: int | None = None
    information: Any = np.inf

    @property
    def n_components(self) -> int:
        """The number of components, R."""
        return int(self.factors[0].mean.shape[1])

    @property
    def anchored(self) -> bool:
        """Whether scales are fixed by anchors; every mode then has rank precisions of its own."""
        return any(mode.anchored for mode in self.modes)

    def rank_of(self, d: int) -> Gamma:
        """Return q(lambda_R) as mode d has it: parameters of shape (R,)."""
        return self.rank.take(d) if np.ndim(self.rank.rate) == 2 else self.rank

    @cached_property
    def stacked_basis(self) -> Gamma:
        """q(lambda_M) of all modes, end to end: parameters of shape (sum M,)."""
        shapes = [b.shape + np.zeros_like(b.rate) for b in self.basis]
        return Gamma(np.concatenate(shapes), np.concatenate([b.rate for b in self.basis]))

    @cached_property
    def stacked_second(self) -> Array:
        """E[w_mr ** 2] of all modes, one above the other: (sum M, R)."""
        return np.concatenate([factor.second for factor in self.factors])
