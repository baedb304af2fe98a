"""The predictive distribution of y: a mixture over starts of Student-t distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, gammaln, logsumexp, stdtr, stdtrit
from sklearn.utils import check_random_state

from .checks import check_integer

Array = np.ndarray
_NODES = np.arange(-8.5, 8.55, 0.1)
_DENSITY = np.exp(-0.5 * _NODES**2)
_NORMAL_GRID = _NODES, _DENSITY / _DENSITY.sum()


class PredictiveDistribution:
    """Distribution of y at n points: an equal mixture of S Student-t distributions each.

    Attributes
    ----------
    mean : ndarray of shape (n,)
        Mean of y, which is that of f.
    std : ndarray of shape (n,)
        Standard deviation of y: model and noise together.
    model_std : ndarray of shape (n,)
        What is not known about f: the posterior spread of each start and the spread between starts.
    noise_std : ndarray of shape (n,)
        Standard deviation of the noise.
    """

    def __init__(self, means: Array, variances: Array, noise: Array, dof: Array) -> None:
        """Build from means and variances of f, (S, n), and noise variances and dof, (S,)."""
        self._loc = means
        # the spread of f is a variance, the noise's is b / (a - 1): see noise_variance
        total = variances + noise[:, None]
        self._dof = dof[:, None]
        self._scale = np.sqrt(total * (np.maximum(dof - 2.0, 0.5 * dof) / dof)[:, None])
        self.mean = means.mean(axis=0)
        self.noise_std = np.full(means.shape[1], np.sqrt(noise.mean()))
        self.model_std = np.sqrt(variances.mean(axis=0) + means.var(axis=0))
        self.std = np.sqrt(self.model_std**2 + self.noise_std**2)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.mean)

    def logpdf(self, y: Any) -> Array:
        """Return the log density at y: (n,) -> (n,)."""
        nu = self._dof
        z = self._standardised(y)
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(np.pi * nu)
        parts = constant - np.log(self._scale) - 0.5 * (nu + 1.0) * np.log1p(z * z / nu)
        return np.asarray(logsumexp(parts, axis=0) - np.log(len(self._loc)))

    def _standardised(self, y: Any) -> Array:
        y = np.asarray(y, dtype=float)
        if y.ndim > 1 or (y.ndim == 1 and len(y) != len(self)):
            raise ValueError(
                f"y must be a number or have shape ({len(self)},), one value per point, got shape "
                f"{y.shape}; ask for other values one call at a time."
            )
        return np.asarray((y - self._loc) / self._scale)

    def pdf(self, y: Any) -> Array:
        """Return the density at y: (n,) -> (n,)."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: Any) -> Array:
        """Return P(Y <= y): (n,) -> (n,)."""
        z = self._standardised(y)
        return np.asarray(stdtr(self._dof, z).mean(axis=0))

    def quantile(self, q: Any) -> Array:
        """Return quantiles: a number gives (n,), k levels give (n, k)."""
        levels = _probabilities("q", q)
        if levels.ndim > 1:
            raise ValueError(
                f"q must be a number or a list of numbers, got shape {levels.shape}; "
                "use for example [0.025, 0.975]."
            )
        if levels.ndim == 0:
            return self._quantile(float(levels))
        out = np.empty((len(self), len(levels)))
        for k, level in enumerate(levels.tolist()):
            out[:, k] = self._quantile(level)
        return out

    def _quantile(self, level: float) -> Array:
        """Invert the mixture's distribution function: Newton's steps where they close in fast.

        Elsewhere the bracket is halved, so that narrow components far apart are found as well.
        """
        parts = self._loc + self._scale * stdtrit(self._dof, level)
        low, high = parts.min(axis=0), parts.max(axis=0)
        x = parts.mean(axis=0)
        last = high - low
        narrowest = self._scale.min(axis=0)
        for _ in range(200):
            excess = self.cdf(x) - level
            low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = x - excess / self.pdf(x)
            fast = (newton > low) & (newton < high) & (np.abs(newton - x) < 0.5 * last)
            step = np.where(fast, newton, low + 0.5 * (high - low))
            last = np.abs(step - x)
            x = step
            if np.all(last <= 1e-10 * narrowest + 4.0 * np.finfo(float).eps * np.abs(x)):
                break
        return np.asarray(x)

    def interval(self, level: float = 0.95) -> Array:
        """Return the central interval that holds y with probability ``level``: (n, 2)."""
        half = 0.5 * _probabilities("level", level)
        if half.ndim:
            raise ValueError(f"level must be one number, got {level!r}; use for example 0.95.")
        return self.quantile([0.5 - half, 0.5 + half])

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Return draws of y, independent between points: (n, n_samples)."""
        check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        n = len(self)
        start = rng.integers(len(self._loc), size=(n, n_samples))
        rows = np.arange(n)[:, None]
        noise = rng.standard_t(np.broadcast_to(self._dof[start, 0], (n, n_samples)))
        return np.asarray(self._loc[start, rows] + self._scale[start, rows] * noise)


def expected_sigmoid(mean: Array, variance: Array) -> Array:
    """Return E[1 / (1 + exp(-f))] for f ~ N(mean, variance), elementwise.

    The trapezoid rule is exact to 1e-8 up to a standard deviation of 10: its error falls like
    exp(-2 pi^2 / (std step)), the nearest pole of the integrand being at pi / std.
    """
    std = np.sqrt(variance)
    total = np.zeros_like(mean)
    for z, weight in zip(*_NORMAL_GRID, strict=True):
        total += weight * expit(mean + std * z)
    return total


def _probabilities(name: str, value: Any) -> Array:
    """Return numbers strictly between 0 and 1 as floats, or say what else they are."""
    try:
        levels = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        levels = np.array(np.nan)
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(
            f"{name} must lie strictly between 0 and 1, got {value!r}; use for example 0.95."
        )
    return levels


def noise_variance(shape: float, rate: float) -> float:
    """Return E[1 / tau] of a Gamma posterior, held finite where its shape is near one."""
    return rate / max(shape - 1.0, 0.5 * shape)
