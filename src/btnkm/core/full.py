"""The full tensor: the kernel machine that low-rank tensors approximate, with its exact posterior.

f has the covariance of ``kernel.Kernel``, and every row is a Gaussian observation of f, given the
weight and working response of its likelihood (see ``full_sites``). With V the variances, z the
targets and A = (K + V)^-1, the posterior of every output is

    E[f(x)] = k(x, rows) alpha,  alpha = A z,      Var[f(x)] = k(x, x) - k(x, rows) A k(rows, x).

Cost and memory grow with the cube and the square of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import solve_triangular

from .arrays import host, like
from .evidence import JITTER, factor_of, whitened
from .kernel import Kernel
from .posterior import FeaturesOf, Joint, contrast_variances

Array = Any


@dataclass(frozen=True)
class FullPosterior:
    """The posterior of the full tensor.

    Attributes
    ----------
    kernel : Kernel
    rows : tuple of ndarray of shape (n, 3)
        Coordinates of the training rows in every input.
    share : ndarray of shape (n,)
        The weight of every row; they add up to 1.
    target, noise : ndarray of shape (K, n)
        Targets for every output, and the variances of their noise.
    likelihood : Likelihood
    n_outputs : int or None
    theta : ndarray
        Logarithms of the hyperparameters.
    evidence : float
        Log density of the targets plus log prior of the hyperparameters, or the ELBO.
    """

    kernel: Kernel
    rows: tuple[np.ndarray, ...]
    share: np.ndarray
    target: np.ndarray
    noise: np.ndarray
    likelihood: Any
    n_outputs: int | None
    theta: np.ndarray
    evidence: float

    @property
    def n_bytes(self) -> int:
        """The bytes of the rows and of the matrices computed from them."""
        n = len(self.share)
        return int(8 * len(self.target) * n * n + sum(part.nbytes for part in self.rows))

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: cached matrices are large, and can be computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _solved(self) -> tuple[np.ndarray, np.ndarray]:
        matrix = self.matrix
        solved = [whitened(matrix, v, z) for z, v in zip(self.target, self.noise, strict=True)]
        return np.array([alpha for alpha, _ in solved]), np.array([root for _, root in solved])

    @property
    def alpha(self) -> np.ndarray:
        """The weights of the rows in the mean of every output: (K, n)."""
        return self._solved[0]

    @property
    def whitener(self) -> np.ndarray:
        """Lower triangles R with A = R^T R, of every output: (K, n, n)."""
        return self._solved[1]

    @cached_property
    def inverse(self) -> np.ndarray:
        """A of every output: (K, n, n)."""
        return np.array([root.T @ root for root in self.whitener])

    @cached_property
    def predictor(self) -> FullPredictor:
        """The predictor for new rows."""
        return FullPredictor(self)

    @property
    def matrix(self) -> np.ndarray:
        """The kernel between all rows: (n, n)."""
        return np.asarray(self.kernel.cross(self.rows, self.rows))

    @cached_property
    def root(self) -> np.ndarray:
        """Lower Cholesky factor of the kernel between all rows: (n, n)."""
        matrix = self.matrix
        jitter = JITTER * float(np.mean(np.diagonal(matrix)))
        return factor_of(matrix, np.full(len(matrix), jitter))

    def draw(self, n_draws: int, rng: np.random.Generator) -> np.ndarray:
        """Return weights w of draws of f(x) = k(x, rows) w + a part that is independent: (., K, n).

        A draw of the prior is corrected by its difference from the targets (Matheron's rule).
        """
        outputs, n = self.alpha.shape
        drawn = np.empty((n_draws, outputs, n))
        for i in range(n_draws):
            for k in range(outputs):
                xi, noise = rng.standard_normal((2, n))
                prior = self.root @ xi + np.sqrt(self.noise[k]) * noise
                weights = solve_triangular(self.root, xi, lower=True, trans=1)
                known = self.whitener[k].T @ (self.whitener[k] @ prior)
                drawn[i, k] = weights + self.alpha[k] - known
        return drawn


@dataclass(frozen=True)
class FullPredictor:
    """Predictions of a full tensor, with the interface of ``posterior.Predictor``."""

    state: FullPosterior
    least: Any = 0.0

    @cached_property
    def _moved(self) -> dict[tuple[str, ...], Any]:
        return {}

    def _of(self, name: str, x: Array) -> Any:
        """Return a part of the posterior on the device of the rows, moved there once."""
        if isinstance(x, np.ndarray):
            return getattr(self.state, name)
        where = name, str(x.dtype), str(x.device)
        if where not in self._moved:
            part = getattr(self.state, name)
            moved = [like(one, x) for one in part] if name == "rows" else like(part, x)
            self._moved[where] = moved
        return self._moved[where]

    def cross(self, features_of: FeaturesOf) -> tuple[Array, list[Array]]:
        """Return k(x, rows), (m, n), and the coordinates of x."""
        x = [features_of(d)[0] for d in range(len(self.state.rows))]
        return self.state.kernel.cross(x, self._of("rows", x[0])), x

    def _whole(self, parts: Array) -> Array:
        """Return values (n, K), or (n,) of one output."""
        return parts[:, 0] if self.state.n_outputs is None else parts

    def mean(self, features_of: FeaturesOf) -> Array:
        """Return E[f] of every row (m,), and output (m, K)."""
        cross, x = self.cross(features_of)
        return self._whole(cross @ self._of("alpha", x[0]).T)

    def moments(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return E[f] and Var[f] of every row (m,), and output (m, K)."""
        cross, x = self.cross(features_of)
        xp = array_namespace(cross)
        prior = self.state.kernel.variance(x)
        whitener = self._of("whitener", x[0])
        # with A itself, large terms would cancel where the noise is small
        known = [
            xp.sum((cross @ whitener[k, ...].T) ** 2, axis=1) for k in range(len(self.state.target))
        ]
        variance = prior[:, None] - xp.stack(known, axis=1)
        # rounding can take a small variance below zero
        variance = xp.maximum(variance, 1e-12 * prior[:, None])
        return self._whole(cross @ self._of("alpha", x[0]).T), self._whole(variance)

    def joint(self, features_of: FeaturesOf) -> Joint:
        """Return E[f] and Var[f] of every row and output, which are independent."""
        mean, variance = (host(part) for part in self.moments(features_of))
        return Joint(mean, variance, np.zeros((*mean.shape, 0)))

    def contrasts(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return mean and variance of f, less its mean over the outputs if it has many."""
        if self.state.n_outputs is None:
            return self.moments(features_of)
        mean, own, _ = self.joint(features_of)
        return mean - mean.mean(axis=1, keepdims=True), contrast_variances(own)

    def evaluate(self, weights: np.ndarray, features_of: FeaturesOf, xi: np.ndarray) -> np.ndarray:
        """Return draws of f of one output at m rows: (m, draws).

        ``weights`` are those of the draws, (draws, n), and ``xi`` normal numbers, (m, draws), for
        what the training rows do not determine.
        """
        cross, x = self.cross(features_of)
        known = solve_triangular(self.state.root, cross.T, lower=True)
        left = self.state.kernel.cross(x, x) - known.T @ known
        size = JITTER * float(np.mean(self.state.kernel.variance(x)))
        return np.asarray(cross @ weights.T + factor_of(left, np.full(len(left), size)) @ xi)


def leave_out(state: FullPosterior, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance of f at some rows if what they say were not known: (K, m).

    Hyperparameters, and what the other rows say, stay as they are: exact for Gaussian noise.
    """
    rows = np.asarray(rows)
    means, variances = [], []
    for z, v, alpha, inverse in zip(
        state.target, state.noise, state.alpha, state.inverse, strict=True
    ):
        block = np.linalg.inv(inverse[np.ix_(rows, rows)])
        means.append(z[rows] - block @ alpha[rows])
        variances.append(np.diagonal(block) - v[rows])
    return np.array(means), np.array(variances)
