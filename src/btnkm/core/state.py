"""The variational posterior q and the model it belongs to.

Everything here is frozen; an update returns a new object. Covariances are (C, M, C, M) arrays; the
vec order (column outer, function inner, as vec(W) of an M x C matrix) lives in ``Factor`` alone.
Columns are components, or pairs of bond indices: see layout.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from .gamma import LOG_2PI, Gamma
from .layout import Layout, components
from .likelihoods import Likelihood
from .linalg import inverse_cholesky, solve, square_root
from .sums import Sums

Array = np.ndarray
DENSE_TABLE = 32_768  # entries up to which a product table is kept dense
FULL_ENOUGH = 4  # a larger table is dense as well if one in so many of its entries is not zero


@dataclass(frozen=True)
class Mode:
    """One input as the engine sees it: the functions still in the model and their product table."""

    keep: Array  # (M,): which functions of the basis are in the model, ascending
    # (M_full ** 2, K_full): products of all functions of the basis (see bases/base.py)
    full_table: sp.csr_array
    rate_scale: Array  # (M,): smoothness prior: the rate of lambda_m is the prior's rate times this
    constant: Array  # (M,): coefficients of the function 1
    # whether the weights of function 0 of the basis, never among the kept, are known: the layout's
    # anchor, which is 1 in all components, and the identity in a core
    anchored: bool = False
    may_lose_functions: ClassVar[bool] = True

    @cached_property
    def present(self) -> Array:
        """The functions that have a weight, known or not: the kept ones, after the anchor."""
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
        """The number of leading columns of psi that the products of the functions need, K."""
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

    def group_squares(self, second: Array, mean: Array, statistics: Array, groups: Array) -> Array:
        """Return the sum over rows of the square of what each group of columns adds to f: (G,).

        ``second`` are the sums (K, S) around the mode, ``statistics`` those of each two columns of
        a group, (G, c, c), and ``mean`` are weights of the functions present.
        """
        grams = self.gram(second[:, statistics.ravel()])
        m = grams.shape[-1]
        count, size = groups.shape
        grams = grams.reshape(count, size, size, m, m)
        w = mean.T[groups]
        return np.asarray(np.einsum("gci,gcdij,gdj->g", w, grams, w, optimize=True))

    def average_gram(self, psi: Array) -> Array:
        """Return the average of phi phi^T over rows from that of psi: (K,) -> (M, M)."""
        return np.asarray(self.gram(psi[:, None])[0])

    def point(self, mean: Array, layout: Layout | None = None) -> Factor:
        """Return weights (M, C) that are known exactly; columns are components by default."""
        return Factor.point(mean, layout)

    def whole(self, weights: Array, anchor: Array) -> Array:
        """Return the weights of the functions present from those of the kept ones: (..., M, C)."""
        if not self.anchored:
            return weights
        first = np.broadcast_to(anchor, (*weights.shape[:-2], 1, weights.shape[-1]))
        return np.concatenate([first, weights], axis=-2)

    def on_phi(self, weights: Array) -> Array:
        """Return the weights of the functions present as those of phi: (M, ...) -> (n_phi, ...)."""
        full = np.zeros((self.n_phi, *weights.shape[1:]))
        full[self.present] = weights
        return full

    def places(self, which: Array) -> Array:
        """Return the positions among the functions present, given those among the kept ones."""
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
    """q(W) of one mode: a Gaussian with full covariance."""

    mean: Array  # (M, C)
    cov: Array  # (C, M, C, M)
    log_det: float  # log det of the covariance
    layout: Layout
    # (G, c M, c M): for each set of groups of the layout each group's diagonal block of
    # the precision, lower triangle: the inverse of its covariance given all other columns. None if
    # they have not been computed.
    precision_blocks: tuple[Array, ...] | None = None

    @classmethod
    def solve(
        cls, precision: Array, linear: Array, layout: Layout | None = None
    ) -> tuple[Factor, float]:
        """Return N(A^-1 b, A^-1) and the jitter used: A is (C, M, C, M), b is (M, C)."""
        m, c = linear.shape
        layout = layout or components(c)
        inverse, log_det, jitter = inverse_cholesky(precision.reshape(c * m, c * m))
        mean = (inverse.T @ (inverse @ linear.T.ravel())).reshape(c, m).T
        cov = (inverse.T @ inverse).reshape(c, m, c, m)
        return cls(mean, cov, -log_det, layout, _diagonal_blocks(precision, layout)), jitter

    @classmethod
    def solve_mean(
        cls, precision: Array, linear: Array, layout: Layout | None = None
    ) -> tuple[Factor, float]:
        """Return the mean alone, with a covariance of zeros, for sweeps that need no other."""
        m, c = linear.shape
        mean, jitter = solve(precision.reshape(c * m, c * m), linear.T.ravel())
        return cls.point(mean.reshape(c, m).T, layout), jitter

    @classmethod
    def point(cls, mean: Array, layout: Layout | None = None) -> Factor:
        """Return a factor that is known exactly; its covariance is a read-only block of zeros."""
        m, c = mean.shape
        return cls(mean, np.broadcast_to(0.0, (c, m, c, m)), -np.inf, layout or components(c))

    @cached_property
    def second(self) -> Array:
        """E[w_mc ** 2]: (M, C)."""
        return np.asarray(self.mean**2 + self.variance)

    @cached_property
    def variance(self) -> Array:
        """Var[w_mc]: (M, C)."""
        m, c = self.mean.shape
        return np.diagonal(self.cov.reshape(c * m, c * m)).reshape(c, m).T

    @cached_property
    def _group_log_dets(self) -> tuple[Array, ...]:
        blocks = self.precision_blocks
        if blocks is None:
            blocks = _diagonal_blocks(_inverse(self.cov), self.layout)
        return tuple(np.array([inverse_cholesky(b)[1] for b in part]) for part in blocks)

    def group_log_dets(self, groups: int) -> Array:
        """Return the log det of each group's block of the precision: (G,)."""
        return self._group_log_dets[groups]

    def take_columns(self, which: Array, layout: Layout | None = None) -> Factor:
        """Return the marginal of the columns ``which``; these are components by default."""
        cov = self.cov[which][:, :, which]
        c, m = cov.shape[:2]
        inverse, log_det, _ = inverse_cholesky(cov.reshape(c * m, c * m))
        layout = layout or components(c)
        blocks = _diagonal_blocks((inverse.T @ inverse).reshape(c, m, c, m), layout)
        return Factor(self.mean[:, which], cov, log_det, layout, blocks)

    def with_functions(self, mean: Array, variance: Array) -> Factor:
        """Return q with k more functions, of these means (k, C) and the same variances (C,)."""
        (m, c), k = self.mean.shape, len(mean)
        cov = np.zeros((c, m + k, c, m + k))
        cov[:, :m, :, :m] = self.cov
        every = np.arange(c)[:, None], np.arange(m, m + k)
        cov[(*every, *every)] = variance[:, None]
        log_det = self.log_det + k * float(np.sum(np.log(variance)))
        return Factor(np.concatenate([self.mean, mean]), cov, log_det, self.layout)

    def among(self, mean: Array, places: Array, layout: Layout) -> Factor:
        """Return q with more columns, whose means are known exactly; these go to ``places``."""
        m, c = mean.shape
        cov = np.zeros((c, m, c, m))
        cov[places[:, None], :, places, :] = self.cov.transpose(0, 2, 1, 3)
        return Factor(mean, cov, -np.inf, layout)

    def log_density_at_zero(self, which: Array) -> float:
        """Return the log density of zero for all weights of the columns ``which``."""
        mean = self.mean[:, which].T.ravel()
        return log_density_at_zero(mean, self.cov[which][:, :, which].reshape(mean.size, -1))

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Return draws of W: (n_draws, M, C)."""
        m, c = self.mean.shape
        root = square_root(self.cov.reshape(c * m, c * m))
        noise = (rng.standard_normal((n_draws, c * m)) @ root.T).reshape(n_draws, c, m)
        return np.asarray(self.mean + np.swapaxes(noise, 1, 2))

    def scale(self, factors: Array) -> Factor:
        """Return q of W with column c multiplied by ``factors[c]`` > 0; columns are components."""
        m = self.mean.shape[0]
        blocks = self.precision_blocks
        if blocks is not None:
            blocks = (blocks[0] / (factors**2)[:, None, None],)
        return Factor(
            self.mean * factors,
            self.cov * factors[:, None, None, None] * factors[:, None],
            self.log_det + 2.0 * m * float(np.sum(np.log(factors))),
            self.layout,
            blocks,
        )

    def turn(self, by: Array) -> Factor:
        """Return q of W times a matrix (C, C)."""
        m, c = self.mean.shape
        half = (by.T @ self.cov.reshape(c, m * c * m)).reshape(c * m, c, m)
        cov = (by.T @ half).reshape(c, m, c, m)
        log_det = self.log_det + 2.0 * m * float(np.linalg.slogdet(by)[1])
        return Factor(self.mean @ by, cov, log_det, self.layout)

    def energies(self, weight: Array) -> Array:
        """Return sum_m weight_m E[w_mc w_md]: (C, C)."""
        spread = np.einsum("cmdm,m->cd", self.cov, weight)
        return np.asarray(self.mean.T @ (weight[:, None] * self.mean) + spread)


def log_density_at_zero(mean: Array, cov: Array) -> float:
    """Return log N(0; mean, cov)."""
    inverse, log_det, _ = inverse_cholesky(cov)
    white = inverse @ mean
    return -0.5 * (float(white @ white) + log_det + len(mean) * LOG_2PI)


def _inverse(matrix: Array) -> Array:
    c, m = matrix.shape[:2]
    inverse, _, _ = inverse_cholesky(matrix.reshape(c * m, c * m))
    return np.asarray((inverse.T @ inverse).reshape(c, m, c, m))


def _diagonal_blocks(precision: Array, layout: Layout) -> tuple[Array, ...]:
    """Return the blocks of each group of columns, for each set of groups: (G, c M, c M)."""
    m = precision.shape[1]
    blocks = []
    for groups in layout.groups:
        part = precision[groups[:, :, None], :, groups[:, None, :], :]  # (G, c, c, M, M)
        size = groups.shape[1] * m
        blocks.append(part.swapaxes(2, 3).reshape(len(groups), size, size))
    return tuple(blocks)


@dataclass(frozen=True)
class Priors:
    """Hyperpriors: Gamma distributions of the noise, rank and basis precisions.

    With ``basis=None`` the basis precisions are known: they follow from ``rate_scale`` and are not
    learned.
    """

    noise: Gamma
    rank: Gamma
    basis: Gamma | None

    def basis_of(self, mode: Mode) -> Gamma:
        """Return the prior of lambda_m of one mode; its mean is the value where they are known."""
        basis = self.basis or Gamma(1.0, 1.0)
        return Gamma(basis.shape, basis.rate * mode.rate_scale)

    def log_basis(self, basis: Gamma) -> Array:
        """Return E[log lambda_m] under q, or the logarithm where lambda_m is known."""
        return np.asarray(np.log(basis.mean) if self.basis is None else basis.log_mean)


class Precisions(NamedTuple):
    """Moments of the precisions of a mode's columns: (C,) each."""

    mean: Array
    log_mean: Array

    def take(self, which: Array) -> Precisions:
        """Return the moments of some columns."""
        return Precisions(self.mean[which], self.log_mean[which])


@dataclass(frozen=True)
class State:
    """The posterior q(W^(1)) ... q(W^(D)) q(lambda_M) q(lambda_R), its likelihood and its model."""

    modes: tuple[Mode, ...]
    factors: tuple[Factor, ...]
    basis: tuple[Gamma, ...]  # q(lambda_M) of each mode, parameters of shape (M,)
    rank: tuple[Gamma, ...]  # q(lambda_R): one vector (R,), or as many as ``network.sides`` needs
    likelihood: Likelihood  # with q of its own parameters, such as q(tau)
    network: Any
    # the mode that stands for the outputs where f has many, one function each; the last
    output: int | None = None
    # (K,): the sum of the weights of all rows, for each output. Its inverse is the least variance
    # that f can have anywhere.
    information: Any = np.inf
    sums: Sums | None = None  # the main effects beside the tensor

    @property
    def n_bytes(self) -> int:
        """The bytes of the factors, nearly all of them covariances."""
        factors = sum(factor.mean.nbytes + factor.cov.nbytes for factor in self.factors)
        return factors + (0 if self.sums is None else self.sums.n_bytes)

    @property
    def n_components(self) -> int:
        """The number of components of a CP tensor, R."""
        return int(self.factors[0].mean.shape[1]) if self.factors else 0

    @property
    def n_inputs(self) -> int:
        """The number of modes of inputs; main effects come after them."""
        return len(self.modes) - (self.output is not None)

    @property
    def n_outputs(self) -> int | None:
        """The number of values of f in each row, None for one."""
        if self.output is not None:
            return len(self.modes[self.output].keep)
        if self.sums is not None and self.sums.n_outputs > 1:
            return self.sums.n_outputs
        return None

    @property
    def anchored(self) -> bool:
        """Whether scales are fixed by anchors in some mode."""
        return any(mode.anchored for mode in self.modes)

    def precisions(self, d: int, but: int | None = None) -> Precisions:
        """Return the moments of the precisions of mode d's columns, without the vector ``but``."""
        size = self.factors[d].mean.shape[1]
        mean, log_mean = np.ones(size), np.zeros(size)
        for vector, entries in self.network.sides(self, d):
            if vector != but:
                gamma = self.rank[vector]
                mean, log_mean = mean * gamma.mean[entries], log_mean + gamma.log_mean[entries]
        return Precisions(mean, log_mean)
