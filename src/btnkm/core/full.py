"""The full tensor: the kernel machine that low-rank tensors approximate, with its exact posterior.

The kernel of f has curves of each input in a sum, and a product over all inputs:

    k(x, x') = constant + sum_d [ line_d t_d t'_d + curve_d kappa_d + missing_d m_d m'_d ]
               + product * prod_d (1 + factor_d kappa_d) / (1 + factor_d)

t is the standardised raw value, m tells whether it is missing, and kappa_d is a correlation: of
numbers one that falls with their distance over a length scale (one in the sum, one in the product),
of categories 1 where they are the same and 0 elsewhere, and 0 where one of them is missing: a row
without a value has less of the product, also in k(x, x), as if it were averaged over the value. The
product is the prior of a tensor without a rank constraint.

An input has three coordinates (``bases.effect.Coordinates``): t, the position u at which kappa_d is
taken, and 1 where the value is known, else 0.

Every row is a Gaussian observation of f, given the weight and working response of its likelihood
(see ``full_sites``). With V the variances, z the targets and A = (K + V)^-1, the posterior of every
output is

    E[f(x)] = k(x, rows) alpha,  alpha = A z,      Var[f(x)] = k(x, x) - k(x, rows) A k(rows, x).

Cost and memory grow with the cube and the square of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.linalg import solve_triangular

from .arrays import host, like
from .linalg import JITTER, factor_of, whitened
from .posterior import FeaturesOf, Joint, contrast_variances, widened

Array = Any
LINE, POSITION, KNOWN = range(3)
SQRT3 = float(np.sqrt(3.0))


def decays(r: Array, xp: Any = np) -> tuple[Array, Array]:
    """Return a Gaussian and an exponential of r, which correlations are made of."""
    return xp.exp(r * r * (-1.0 / 6.0)), xp.exp(-r)


def correlation(r: Array, rough: Array, made: tuple[Array, Array]) -> Array:
    """Return kappa, given r, sqrt(3) times a distance over its length scale, and its ``decays``.

    It is (1 - rough) times a Gaussian, which is smooth, plus rough times Matern's with smoothness
    3/2, which is once differentiable.
    """
    smooth, decay = made
    return smooth + rough * ((1.0 + r) * decay - smooth)


def correlation_and_slopes(
    r: np.ndarray, rough: np.ndarray, made: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return kappa, and its slopes in the logarithm of the length scale and in rough."""
    smooth, decay = made
    more = (1.0 + r) * decay
    more -= smooth
    slope = 3.0 * decay  # in place from here on: there may be millions of pairs
    slope -= smooth
    slope *= rough
    slope += smooth
    slope *= r * r
    slope *= 1.0 / 3.0
    value = rough * more
    value += smooth
    return value, slope, more


@dataclass(frozen=True)
class Kernel:
    """Hyperparameters of the kernel."""

    categorical: np.ndarray  # (D,)
    constant: float
    product: float
    # (D,): variances in the sum, and factors in the product; 0 for a part that an input does not
    # have
    line: np.ndarray
    curve: np.ndarray
    # (D,): length scales of numbers
    curve_length: np.ndarray
    missing: np.ndarray
    factor: np.ndarray
    factor_length: np.ndarray
    rough: np.ndarray  # (D,): share of the rough correlation of numbers, from 0 to 1

    @property
    def n_inputs(self) -> int:
        """The number of inputs, D."""
        return len(self.line)

    def correlation(self, d: int, x: Array, z: Array, length: np.ndarray) -> Array:
        """Return kappa_d between coordinates x (n, 3) and z (m, 3): (n, m)."""
        xp = array_namespace(x)
        known = x[:, KNOWN][:, None] * z[:, KNOWN][None, :]
        u, v = x[:, POSITION][:, None], z[:, POSITION][None, :]
        if self.categorical[d]:
            # a category never seen is like no other
            same = xp.astype((u == v) & (u >= 0.0), x.dtype)
        else:
            r = SQRT3 / float(length[d]) * xp.abs(u - v)
            same = correlation(r, float(self.rough[d]), decays(r, xp))
        return known * same

    def sum_part(self, d: int, x: Array, z: Array) -> Array:
        """Return what an input has in the sum: (n, m)."""
        xp = array_namespace(x)
        absent = (1.0 - x[:, KNOWN])[:, None] * (1.0 - z[:, KNOWN])[None, :]
        part = float(self.line[d]) * x[:, LINE][:, None] * z[:, LINE][None, :]
        if self.missing[d] > 0.0:
            part = part + float(self.missing[d]) * absent
        if self.curve[d] > 0.0:
            part = part + float(self.curve[d]) * self.correlation(d, x, z, self.curve_length)
        return xp.asarray(part)

    def product_part(self, d: int, x: Array, z: Array) -> Array:
        """Return the factor of an input in the product: (n, m)."""
        b = float(self.factor[d])
        return (1.0 + b * self.correlation(d, x, z, self.factor_length)) / (1.0 + b)

    def cross(self, x: Sequence[Array], z: Sequence[Array]) -> Array:
        """Return k between rows x and z, given coordinates of every input: (n, m)."""
        product: Any = float(self.product)
        total: Any = float(self.constant)
        for d in range(self.n_inputs):
            if self.factor[d] > 0.0:
                product = product * self.product_part(d, x[d], z[d])
            if self.line[d] > 0.0 or self.curve[d] > 0.0 or self.missing[d] > 0.0:
                total = total + self.sum_part(d, x[d], z[d])
        shape = (x[0].shape[0], z[0].shape[0])
        xp = array_namespace(x[0])
        return total + product + xp.zeros(shape, dtype=x[0].dtype, device=x[0].device)

    def variance(self, x: Sequence[Array]) -> Array:
        """Return k(x, x) of every row: (n,)."""
        total, product = float(self.constant), float(self.product)
        for d in range(self.n_inputs):
            product = product * self.own_factor(d, x[d])
            total = total + self.own_sum(d, x[d])
        return total + product

    def own_sum(self, d: int, x: Array) -> Array:
        """Return what an input has in the sum at x and x: (n,)."""
        known = x[:, KNOWN]
        part = float(self.line[d]) * x[:, LINE] ** 2 + float(self.curve[d]) * known
        return part + float(self.missing[d]) * (1.0 - known)

    def own_factor(self, d: int, x: Array) -> Array:
        """Return the factor of an input in the product at x and x: (n,)."""
        b = float(self.factor[d])
        return (1.0 + b * x[:, KNOWN]) / (1.0 + b)


@dataclass(frozen=True)
class FullPosterior:
    """The posterior of the full tensor."""

    kernel: Kernel
    rows: tuple[np.ndarray, ...]  # (n, 3): coordinates of the training rows in every input
    share: np.ndarray  # (n,): the weight of every row; they add up to 1
    # (K, n): targets for every output, and the variances of their noise
    target: np.ndarray
    noise: np.ndarray
    likelihood: Any
    n_outputs: int | None
    theta: np.ndarray  # logarithms of the hyperparameters
    evidence: float  # log density of the targets plus log prior of the hyperparameters, or the ELBO

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
    widens: bool = False  # as in ``posterior.Predictor``

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
            moved = [like(of_input, x) for of_input in part] if name == "rows" else like(part, x)
            self._moved[where] = moved
        return self._moved[where]

    def cross(self, features_of: FeaturesOf) -> tuple[Array, list[Array]]:
        """Return k(x, rows), (m, n), and the coordinates of x."""
        x = [features_of(d)[0] for d in range(len(self.state.rows))]
        return self.state.kernel.cross(x, self._of("rows", x[0])), x

    def _by_output(self, parts: Array) -> Array:
        """Return values (n, K), or (n,) of one output."""
        return parts[:, 0] if self.state.n_outputs is None else parts

    def mean(self, features_of: FeaturesOf) -> Array:
        """Return E[f] of every row (m,), and output (m, K)."""
        cross, x = self.cross(features_of)
        return self._by_output(cross @ self._of("alpha", x[0]).T)

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
        variance = self._by_output(xp.maximum(variance, 1e-12 * prior[:, None]))
        mean = self._by_output(cross @ self._of("alpha", x[0]).T)
        return mean, widened(variance, features_of) if self.widens else variance

    def joint(self, features_of: FeaturesOf) -> Joint:
        """Return E[f] and Var[f] of every row and output, which are independent."""
        mean, variance = (host(part) for part in self.moments(features_of))
        return Joint(mean, variance, np.zeros((*mean.shape, 0)))

    def contrasts(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return mean and variance of f, less its mean over the outputs if it has many."""
        if self.state.n_outputs is None:
            return self.moments(features_of)
        mean, variance, _ = self.joint(features_of)
        return mean - mean.mean(axis=1, keepdims=True), contrast_variances(variance)

    def evaluate(self, weights: np.ndarray, features_of: FeaturesOf, xi: np.ndarray) -> np.ndarray:
        """Return draws of f of one output at m rows: (m, draws).

        ``weights`` are those of the draws, (draws, n), and ``xi`` normal numbers, (m, draws), for
        what the training rows do not determine.
        """
        cross, x = self.cross(features_of)
        known = solve_triangular(self.state.root, cross.T, lower=True)
        covariance = self.state.kernel.cross(x, x) - known.T @ known
        size = JITTER * float(np.mean(self.state.kernel.variance(x)))
        return np.asarray(
            cross @ weights.T + factor_of(covariance, np.full(len(covariance), size)) @ xi
        )
