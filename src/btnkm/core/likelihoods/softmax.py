"""Softmax: the likelihood of more than two classes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import ndtri

from ..arrays import like
from ..densities import Labels
from .base import LOG_2, Array, Begin, Bounded, Rows, bent, flattened_sigmoid, polya_gamma

# points per restart for means and for quantiles of the probabilities of many classes
PROBABILITY_POINTS, INTERVAL_POINTS = 128, 1024
COPY_POINTS = 64  # of each copy of a row with missing values, in an interval
_FLAT = 1e-200  # curvature below which a function is flat


@dataclass(frozen=True)
class Softmax(Bounded):
    """y is k with probability exp(x_k) / sum_j exp(x_j), x = offsets + f, for K outputs of f.

    Each row uses the higher of two quadratic bounds of -log sum_k exp(x_k). The first (Bouchard) is
    -a - sum_k log(1 + exp(x_k - a)) with the best a, each term bounded as in Logistic. Its
    curvature is close to the true one, but it is loose where many classes are likely. The second
    (Boehning) is the expansion at E[x] with the largest possible curvature, 1/2. It is tight where
    the variance of f is small.

    Attributes
    ----------
    offsets : tuple of float
        Constants added to f; at first the logarithms of the class frequencies.
    """

    title: ClassVar[str] = "Softmax"
    file_fields: ClassVar[dict[str, str]] = {"offsets": "numbers", "value": "float"}
    of_labels: ClassVar[bool] = True
    offsets: tuple[float, ...] = field(default=(), repr=False)

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Keep classes 0, 1, ..; the offsets are the logarithms of their frequencies."""
        counts = np.bincount(y.astype(int), weights=weight)
        offsets = np.log(counts / counts.sum())
        return Begin(y, replace(self, offsets=tuple(offsets.tolist())), 0.0, 1.0)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weights and responses of every output, (n, K), and the sum of the bounds.

        The other sums are its slope and curvature in the offsets.
        """
        xp = array_namespace(mean)
        label, offsets, s = self._of_rows(y, s, mean)
        x, variance = mean + offsets, xp.clip(square - mean * mean, 0.0)
        log_total = log_sum_exp(x)
        p = xp.exp(x - log_total)
        a, w, log_cosh = pivot(x, variance, log_total)
        first = -a - xp.sum(0.5 * (x - a) + LOG_2 + log_cosh, axis=1)[:, None]
        second = -log_total - 0.25 * xp.sum(variance, axis=1)[:, None]
        higher = second > first
        weight = xp.where(higher, 0.5 * xp.ones_like(w), w)
        slope = label - xp.where(higher, p, 0.5 + w * (x - a))
        curvature = xp.where(higher, p, w)  # more than p - p^2, since all offsets step at once
        value = xp.sum(label * x, axis=1)[:, None] + xp.maximum(first, second)
        sums = tuple(xp.sum(s * part, axis=0) for part in (value, slope, curvature))
        return Rows(s * weight, s * (slope + weight * mean), (xp.sum(sums[0]), *sums[1:]))

    def _of_rows(self, y: Array, s: Array | None, mean: Array) -> tuple[Array, Array, Array]:
        """Return labels as zeros and ones (n, K), the offsets (K,) and sample weights (n, 1)."""
        xp = array_namespace(mean)
        classes = like(np.arange(mean.shape[1]), mean)[None, :]
        labels = xp.astype(xp.astype(y, mean.dtype)[:, None] == classes, mean.dtype)
        s = xp.ones_like(mean[:, 0]) if s is None else s
        return labels, like(self.offsets, mean), s[:, None]

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights s E[p_k (1 - p_k)], responses s (label - E[p_k] + weight E[f_k]), (n, K).

        Both are approximate: outputs are treated as independent, and the curvature between them is
        left out.
        """
        xp = array_namespace(mean)
        label, offsets, s = self._of_rows(y, s, mean)
        x, variance = mean + offsets, xp.clip(square - mean * mean, 0.0)
        p = xp.exp(x - log_sum_exp(x))
        rest = xp.clip(1.0 - p, 1e-6, 1.0)
        parts = p * p * variance
        of_others = (xp.sum(parts, axis=1)[:, None] - parts) / (rest * rest)
        p, slope = flattened_sigmoid(xp.log(p) - xp.log(rest), variance + of_others)
        p = p / xp.sum(p, axis=1)[:, None]
        return s * slope, s * (label - p + slope * mean)

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights and responses of the first bound, whose curvature is the smaller one."""
        label, offsets, s = self._of_rows(y, s, f)
        x = f + offsets
        a, w, _ = pivot(x, 0.0 * x, log_sum_exp(x))
        return s * w, s * (label - 0.5 - w * (x - a) + w * f)

    def propose(self, sums: tuple[Any, ...]) -> Softmax:
        """Return the offsets after one Newton step each, of at most 2."""
        slope, curvature = (np.asarray(part) for part in sums[1:])
        step = np.clip(slope / np.maximum(curvature, np.finfo(float).tiny), -2.0, 2.0)
        return self.moved(step)

    def portable(self) -> dict[str, Any]:
        """Return the link of many classes as plain data."""
        return {"kind": "softmax", "offsets": np.array(self.offsets)}

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Labels:
        """Return the probabilities of the classes for f ~ N(mean, variance), each (n, K)."""
        return Labels(self.probabilities(mean, variance).mean(axis=0).T)

    def probabilities(
        self,
        mean: np.ndarray,
        diagonal: np.ndarray,
        root: np.ndarray | None = None,
        count: int = 128,
    ) -> np.ndarray:
        """Return the class probabilities at quasi-random points of f, (count, n, K).

        In each row f has this mean and the covariance root root^T + diag(diagonal).
        """
        n_outputs = mean.shape[1]
        shared = 0 if root is None else root.shape[2]
        z = normal_points(n_outputs + shared, count)
        x: np.ndarray = mean + np.array(self.offsets) + np.sqrt(diagonal) * z[:, None, :n_outputs]
        if root is not None:
            x += np.moveaxis(root @ z[:, n_outputs:].T, 2, 0)
        x -= x.max(axis=2, keepdims=True)
        np.exp(x, out=x)
        x /= x.sum(axis=2, keepdims=True)
        return x

    def moved(self, step: np.ndarray) -> Softmax:
        """Return the likelihood with its offsets moved by steps (K,)."""
        return replace(self, offsets=tuple((np.array(self.offsets) + step).tolist()))

    def shifted(self, log_weights: np.ndarray) -> Softmax:
        """Return the likelihood with class k exp(log_weights[k]) times as frequent."""
        return self.moved(log_weights)

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        x = f + np.array(self.offsets)
        return np.asarray(np.argmax(x + rng.gumbel(size=x.shape), axis=1), dtype=float)


def log_sum_exp(x: Array) -> Array:
    """Return log sum_k exp(x_k) of every row: (n, K) -> (n, 1)."""
    xp = array_namespace(x)
    top = xp.max(x, axis=1)[:, None]
    return top + xp.log(xp.sum(xp.exp(x - top), axis=1))[:, None]


def pivot(x: Array, variance: Array, a: Array) -> tuple[Array, Array, Array]:
    """Return a (n, 1) with the lowest a + sum_k log(1 + exp(x_k - a)), bounded as in Logistic.

    x (n, K) has this variance; also return E[w] and log cosh(c / 2) of every term, (n, K).
    """
    xp = array_namespace(x)
    # for large variances the best a is near their mean plus (K - 2) / K times their root
    count = x.shape[1]
    spread = xp.sqrt(xp.mean(variance, axis=1))[:, None] * ((count - 2.0) / count)
    a = xp.maximum(a, xp.mean(x, axis=1)[:, None] + spread)
    limit = 3.0 + spread
    for k in range(60):  # Newton's method
        t = x - a
        c2 = variance + t * t
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        slope = xp.sum(0.5 + w * t, axis=1)[:, None] - 1.0
        curvature = xp.sum(bent(t, c2, w), axis=1)[:, None]
        # it vanishes between values of x that are far from each other
        step = slope / xp.where(curvature > _FLAT, curvature, _FLAT * xp.ones_like(curvature))
        if k == 59 or float(xp.max(xp.abs(step))) < 1e-9:
            break
        a = a + xp.clip(step, -limit, limit)
    return a, w, log_cosh


@lru_cache(maxsize=8)
def normal_points(dimension: int, count: int) -> np.ndarray:
    """Return quasi-random points of a standard normal distribution: (count, dimension)."""
    return np.asarray(ndtri(np.clip(even_points(dimension, count), 1e-9, 1.0 - 1e-9)))


def even_points(dimension: int, count: int) -> np.ndarray:
    """Return the first points of a fixed scrambled Sobol sequence: (count, dimension)."""
    from scipy.stats import qmc  # slow to import, and worker processes do not need it

    return np.asarray(qmc.Sobol(dimension, rng=np.random.default_rng(0)).random(count))
