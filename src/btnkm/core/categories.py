"""Modes of very many categories: one block of weights per category, none between categories.

Where no row has two categories, the precision of W is one (R, R) block per category: L R^2 numbers,
where a covariance of all weights would have (L R)^2. A categorical input of this kind is anchored:
a category multiplies a component by 1 + u with u = 0 a priori, so that one with few rows is close
to the average. Its features are sparse; their last column is for categories never seen. The outputs
of f are such a mode as well, with neither anchor nor features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from .cavi import Block
from .gamma import LOG_2PI
from .layout import Layout, components
from .rows import Terms

Array = np.ndarray


@dataclass(frozen=True)
class CategoryMode:
    """A mode of very many categories, with the interface of ``state.Mode``."""

    keep: Array  # (L,): the categories, which all stay
    rate_scale: Array  # (L,)
    # (L,): weights of the average that stands for a category never seen. None if there is
    # no such category.
    shares: Array | None
    anchored: bool = True
    may_lose_functions: ClassVar[bool] = False

    @property
    def constant(self) -> Array:
        """No constant beside the anchor: zeros."""
        return np.zeros(len(self.keep))

    @property
    def present(self) -> Array:
        """The categories."""
        return self.keep

    @property
    def n_phi(self) -> int:
        """Columns of the features: the categories, and those never seen."""
        return len(self.keep) + (self.shares is not None)

    n_psi = n_phi

    def average_gram(self, psi: Array) -> sp.csr_array:
        """Return the averages over rows of products of indicators: diagonal."""
        return sp.csr_array(sp.diags_array(psi[: len(self.keep)]))

    def whole(self, weights: Array, anchor: Array) -> Array:
        """Return the anchor plus u, or the weights themselves without one."""
        return anchor + weights if self.anchored else weights

    def group_squares(self, second: Array, mean: Array, statistics: Array, groups: Array) -> Array:
        """Return the sum over rows of the square of what each group of columns adds to f: (G,)."""
        sums = second[: len(mean)][:, statistics]
        w = mean[:, groups]
        return np.asarray(np.einsum("lgc,lgcd,lgd->g", w, sums, w, optimize=True))

    def point(self, mean: Array, layout: Layout | None = None) -> CategoryFactor:
        """Return weights that are known exactly; columns are components by default."""
        size, count = mean.shape
        zeros = np.broadcast_to(0.0, (size, count, count))
        return CategoryFactor(mean, zeros, -np.inf, layout or components(count))

    def block(self, second: Array, linear: Array, layout: Layout) -> CategoryBlock:
        """Return the conjugate problem, from sums over rows."""
        return CategoryBlock(self, second, linear[self.keep], layout)

    def terms(self, factor: CategoryFactor, spread: float, squares: bool) -> Terms:
        """Return what the rows need of q(W): see ``rows.terms``."""
        values = self.whole(factor.mean, factor.layout.anchor)
        mean = self.on_phi(values)
        if not spread and not squares:
            return Terms(mean, None)
        second = factor.layout.average(
            lambda c, d: values[:, c] * values[:, d] + spread * factor.cov[:, c, d]
        )
        return Terms(mean, self.on_phi(second))

    def on_phi(self, weights: Array) -> Array:
        """Return the weights of the categories, then of one never seen: (n_phi, ...)."""
        if self.shares is None:
            return weights
        return np.concatenate([weights, np.tensordot(self.shares, weights, 1)[None]])


@dataclass(frozen=True)
class CategoryFactor:
    """q(W), independent between categories, with the interface of ``state.Factor``."""

    mean: Array  # (L, C)
    cov: Array  # (L, C, C)
    log_det: float  # log det of the covariance of all weights
    layout: Layout

    @cached_property
    def variance(self) -> Array:
        """Var[w]: (L, C)."""
        return np.asarray(np.diagonal(self.cov, axis1=1, axis2=2))

    @cached_property
    def second(self) -> Array:
        """E[w^2]: (L, C)."""
        return np.asarray(self.mean**2 + self.variance)

    @cached_property
    def _precision(self) -> Array:
        return np.linalg.inv(self.cov)

    def group_log_dets(self, groups: int) -> Array:
        """Return the log det of each group's block of the precision: (G,)."""
        columns = self.layout.groups[groups]
        blocks = self._precision[:, columns[:, :, None], columns[:, None, :]]  # (L, G, c, c)
        return np.asarray(np.linalg.slogdet(blocks)[1].sum(axis=0))

    def take_columns(self, which: Array, layout: Layout | None = None) -> CategoryFactor:
        """Return the marginal of the columns ``which``; these are components by default."""
        cov = self.cov[:, which][:, :, which]
        layout = layout or components(len(which))
        return CategoryFactor(self.mean[:, which], cov, _log_det(cov), layout)

    def with_functions(self, mean: Array, variance: Array) -> CategoryFactor:
        """Return q with k more categories, of these means (k, C) and the same variances (C,)."""
        cov = np.tile(np.diag(variance), (len(mean), 1, 1))
        log_det = self.log_det + len(mean) * float(np.sum(np.log(variance)))
        means, covs = np.concatenate([self.mean, mean]), np.concatenate([self.cov, cov])
        return CategoryFactor(means, covs, log_det, self.layout)

    def among(self, mean: Array, places: Array, layout: Layout) -> CategoryFactor:
        """Return q with more columns, whose means are known exactly; these go to ``places``."""
        size, count = mean.shape
        cov = np.zeros((size, count, count))
        cov[:, places[:, None], places] = self.cov
        return CategoryFactor(mean, cov, -np.inf, layout)

    def log_density_at_zero(self, which: Array) -> float:
        """Return the log density of zero for all weights of the columns ``which``."""
        mean, cov = self.mean[:, which], self.cov[:, which][:, :, which]
        square = np.sum(mean * np.linalg.solve(cov, mean[:, :, None])[:, :, 0])
        return -0.5 * (float(square) + _log_det(cov) + mean.size * LOG_2PI)

    def scale(self, factors: Array) -> CategoryFactor:
        """Return q of W with column c multiplied by ``factors[c]`` > 0."""
        return CategoryFactor(
            self.mean * factors,
            self.cov * factors[:, None] * factors,
            self.log_det + 2.0 * len(self.mean) * float(np.sum(np.log(factors))),
            self.layout,
        )

    def turn(self, by: Array) -> CategoryFactor:
        """Return q of W times a matrix (C, C)."""
        log_det = self.log_det + 2.0 * len(self.mean) * float(np.linalg.slogdet(by)[1])
        return CategoryFactor(self.mean @ by, by.T @ self.cov @ by, log_det, self.layout)

    def energies(self, weight: Array) -> Array:
        """Return sum_l weight_l E[w_lc w_ld]: (C, C)."""
        spread = np.einsum("lcd,l->cd", self.cov, weight)
        return np.asarray(self.mean.T @ (weight[:, None] * self.mean) + spread)

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Return draws of the weights: (n_draws, L, C)."""
        values, vectors = np.linalg.eigh(self.cov)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        noise = rng.standard_normal((n_draws, *self.mean.shape))
        return np.asarray(self.mean + np.einsum("lij,nlj->nli", root, noise))


@dataclass(frozen=True)
class CategoryBlock(Block):
    """The conjugate problem of such a mode; ``second`` is (n_psi, S), ``linear`` (L, C)."""

    mode: CategoryMode  # type: ignore[assignment]

    def solve(self, tau: float, prior: Array, *, mean_only: bool) -> tuple[CategoryFactor, float]:
        """Return q(W) and no jitter: a prior precision is on every diagonal."""
        size, count = prior.shape
        a = tau * self.second[:size][:, self.layout.statistic]
        b = tau * self.linear
        if self.mode.anchored:
            b = b - a @ self.layout.anchor  # which the anchor explains
        diagonal = np.arange(count)
        a[:, diagonal, diagonal] += prior
        if mean_only:
            mean = np.linalg.solve(a, b[:, :, None])[:, :, 0]
            return self.mode.point(mean, self.layout), 0.0
        cov = np.linalg.inv(a)
        cov = 0.5 * (cov + np.swapaxes(cov, 1, 2))
        mean = np.einsum("lij,lj->li", cov, b)
        return CategoryFactor(mean, cov, -_log_det(a), self.layout), 0.0


def _log_det(matrices: Array) -> float:
    """Return the sum of the log determinants."""
    return float(np.sum(np.linalg.slogdet(matrices)[1]))
