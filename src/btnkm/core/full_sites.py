"""The rows of a full tensor, and their likelihoods as Gaussians in f.

With Gaussian noise these are exact. With Student-t noise the variances depend on the distance of
the targets from f. Other likelihoods turn moments of f into weights and working responses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .gamma import Gamma
from .likelihoods import Curved, Rows, Softmax, learned, of_rows, of_targets
from .linalg import whitened

LEAST_WEIGHT = 1e-10
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


def has_sites(likelihood: Any) -> bool:
    """Return whether sites are those of the likelihood itself, as for counts, and give the ELBO.

    The bound of counts is far more curved than their likelihood: by the ELBO of the bound, f = 0
    would be best where there is a clear effect.
    """
    return isinstance(likelihood, Curved) and not getattr(likelihood, "of_labels", False)


@dataclass
class Observations:
    """Observations to be fitted: coordinates of every input, targets and sample weights."""

    x: tuple[np.ndarray, ...]
    y: np.ndarray  # (n,), or (n, 2) with exposures
    weight: np.ndarray
    noise: tuple[np.ndarray, ...] = ()  # functions of the inputs that the noise may vary with

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)

    def take(self, which: np.ndarray) -> Observations:
        """Return some of the rows."""
        x, noise = (tuple(part[which] for part in parts) for parts in (self.x, self.noise))
        return Observations(x, self.y[which], self.weight[which], noise)

    def features(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the features that ``Likelihood.at`` asks for."""
        phi = self.noise[d - len(self.x)]
        return phi, phi[:, :0]


@dataclass(frozen=True)
class Sites:
    """The likelihood of every row as a Gaussian in f: working responses and their variances."""

    # (n, K): working responses, and the variances of their noise
    target: np.ndarray
    noise: np.ndarray
    # (n, K): of f under q
    mean: np.ndarray
    variance: np.ndarray
    likelihood: Any
    repeats: float = 0.0  # see ``Evidence``
    kl: float = np.nan  # divergence of the posterior of f from its prior
    value: float = np.nan  # the evidence, or the ELBO, at the end of a search

    @classmethod
    def of_numbers(cls, rows: Observations, likelihood: Any) -> Sites:
        """Return the sites of targets with Gaussian noise."""
        nothing = np.zeros((rows.n, 1))
        repeats = float(np.sum(rows.weight - 1.0))
        noise = 1.0 / rows.weight[:, None]
        return cls(rows.y[:, None], noise, nothing, nothing, likelihood, repeats)

    @classmethod
    def begin(cls, rows: Observations, likelihood: Any, n_outputs: int | None) -> Sites:
        """Return the sites of other likelihoods at f = 0."""
        mean = np.zeros((rows.n, n_outputs or 1))
        at_zero = cls(mean, mean, mean, np.ones_like(mean), likelihood)
        return at_zero._at_moments(rows, Gamma(1e-6, 1e-6), newton=False)

    def _at_moments(self, rows: Observations, prior: Gamma, *, newton: bool) -> Sites:
        """Return the sites for these moments of f."""
        single = self.mean.shape[1] == 1
        mean, square = self.mean, self.mean**2 + self.variance
        if single:
            mean, square = mean[:, 0], square[:, 0]
        likelihood, moments = self.likelihood, (rows.weight, mean, square)
        if newton and isinstance(likelihood, Curved):
            if has_sites(likelihood):
                total = float(rows.weight.sum())
                likelihood = learned(likelihood, self._expected_sums(rows), total, prior)
            exposed, y = of_targets(likelihood, rows.y)
            weight, response = exposed.expected(y, *moments)
        else:

            def sums(likelihood: Any) -> tuple[Any, ...]:
                exposed, y = of_targets(of_rows(likelihood, rows.features), rows.y)
                updated: Rows = exposed.rows(y, *moments)
                return updated.sums

            likelihood = learned(likelihood, sums, float(rows.weight.sum()), prior)
            exposed, y = of_targets(of_rows(likelihood, rows.features), rows.y)
            weight, response, _ = exposed.rows(y, *moments)
        weight = np.maximum(np.asarray(weight) * likelihood.scale, LEAST_WEIGHT)
        response = np.asarray(response) * likelihood.scale
        if single:
            weight, response = weight[:, None], response[:, None]
        return replace(self, target=response / weight, noise=1.0 / weight, likelihood=likelihood)

    def _expected_sums(self, rows: Observations) -> Callable[[Any], tuple[Any, ...]]:
        """Return the sums that a likelihood learns from, with E[log p(y | f)] in place of a bound.

        Where f is known the bound of a row is its likelihood; so it is averaged over f.
        """
        mean, std = self.mean[:, 0], np.sqrt(self.variance[:, 0])
        points = [mean + std * z for z in _NODES.tolist()]
        shares = (_WEIGHTS / _WEIGHTS.sum()).tolist()

        def sums(likelihood: Any) -> tuple[Any, ...]:
            exposed, y = of_targets(likelihood, rows.y)
            parts = [exposed.rows(y, rows.weight, f, f * f).sums for f in points]
            return tuple(
                sum(share * np.asarray(part) for share, part in zip(shares, column, strict=True))
                for column in zip(*parts, strict=True)
            )

        return sums

    def updated(
        self,
        rows: Observations,
        matrix: np.ndarray,
        prior: Gamma,
        *,
        newton: bool = False,
        refresh: bool = True,
    ) -> Sites:
        """Return the sites after an update of q(f), with this prior covariance: (n, n).

        With ``newton`` they are those of the likelihood itself instead of its bound. Without
        ``refresh`` only the moments of f are updated.
        """
        solved = [whitened(matrix, v, z) for z, v in zip(self.target.T, self.noise.T, strict=True)]
        alpha = np.column_stack([column for column, _ in solved])
        diagonal = np.column_stack([np.sum(root**2, axis=0) for _, root in solved])
        mean = self.target - self.noise * alpha
        variance = np.maximum(self.noise - self.noise**2 * diagonal, 1e-12)
        log_det = -2.0 * sum(float(np.sum(np.log(np.diagonal(root)))) for _, root in solved)
        log_det -= float(np.sum(np.log(self.noise)))
        fit = float(np.sum(diagonal * self.noise) + np.sum(alpha * mean))
        kl = 0.5 * (fit - mean.size + log_det)
        known = replace(self, mean=mean, variance=variance, kl=kl)
        return known._at_moments(rows, prior, newton=newton) if refresh else known

    def halfway(self, other: Sites) -> Sites:
        """Return the sites halfway from others."""
        weight = 0.5 * (1.0 / self.noise + 1.0 / other.noise)
        response = 0.5 * (self.target / self.noise + other.target / other.noise)
        return replace(self, target=response / weight, noise=1.0 / weight)

    def elbo(self, rows: Observations, prior: Gamma) -> float:
        """Return the ELBO, given the moments of f.

        For several classes it is averaged over f: the bound that updates use is far lower where f
        is large.
        """
        likelihood, mean = self.likelihood, self.mean
        if isinstance(likelihood, Softmax):
            points = likelihood.probabilities(mean, self.variance)
            of_label = points[:, np.arange(rows.n), rows.y.astype(int)]
            logs = np.log(np.maximum(of_label, np.finfo(float).tiny)).mean(axis=0)
            return float(rows.weight @ logs) - self.kl
        square = mean**2 + self.variance
        if has_sites(likelihood):
            sums = self._expected_sums(rows)(likelihood)
        else:
            bound, y = of_targets(of_rows(likelihood, rows.features), rows.y)
            sums = bound.rows(y, rows.weight, mean[:, 0], square[:, 0]).sums
        total = float(rows.weight.sum())
        terms = likelihood.learn(sums, total, prior).terms(total, prior)
        return float(sum(terms.values())) - self.kl

    def change_from(self, other: Sites) -> float:
        """Return how far the mean of f has moved, in its standard deviations."""
        moved = (self.mean - other.mean) ** 2 / np.maximum(self.variance, 1e-6)
        return float(np.sqrt(np.max(moved)))
