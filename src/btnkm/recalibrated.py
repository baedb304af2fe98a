"""Predictive distributions that held-out rows have recalibrated."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.utils import check_random_state

from .checks import check_integer
from .core.recalibration import FARTHEST, Recalibration, log_difference, normal_score
from .predictive import PredictiveDistribution, check_level
from .warn import warn

Array = np.ndarray
_ROUNDING = 1e-9  # of normal scores of counts, and of levels


class RecalibratedDistribution(PredictiveDistribution):
    """Distribution of y at n points: that of a model, recalibrated by held-out rows.

    Attributes are those of ``PredictiveDistribution``. The mean is that of the model. The standard
    deviations are those of the model times the factor that the recalibration has for a normal
    distribution.
    """

    def __init__(self, base: PredictiveDistribution, calibration: Recalibration) -> None:
        """Recalibrate the distribution of a model."""
        self._base, self._calibration = base, calibration
        self.discrete = base.discrete

    def __repr__(self) -> str:
        """Return what is recalibrated."""
        return f"{self._base!r}, recalibrated"

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._base)

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """Mean of y."""
        return self._base.mean

    @cached_property
    def std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y."""
        return self._calibration.factor * self._base.std

    @cached_property
    def model_std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y that uncertainty of f causes."""
        return self._calibration.factor * self._base.model_std

    @cached_property
    def noise_std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y that the noise causes."""
        return self._calibration.factor * self._base.noise_std

    def logpdf(self, y: Any) -> Array:
        """Return the log density at y, the log probability for counts: (n,) -> (n,)."""
        logs, calibration = self._base.logpdf(y), self._calibration
        if calibration.is_identity:
            return logs
        below, at = self._base.normal_scores(y)
        if not self.discrete:
            return logs + calibration.log_slope(at)
        low = np.where(below <= -FARTHEST, -np.inf, calibration.forward(below))
        exact = log_difference(low, calibration.forward(at))
        farthest = self._base.farthest  # beyond, the difference has no digits
        rough = logs + calibration.log_slope(np.minimum(at, farthest))
        return np.where(np.isfinite(logs) & (at < farthest), exact, rough)

    def cdf(self, y: Any) -> Array:
        """Return P(Y <= y): (n,) -> (n,)."""
        if self._calibration.is_identity:
            return self._base.cdf(y)
        at = self._base.normal_scores(y)[1]
        reached = ndtr(self._calibration.forward(at))
        return np.where(at <= -FARTHEST, 0.0, np.where(at >= self._base.farthest, 1.0, reached))

    def _quantile(self, level: float) -> Array:
        if self._calibration.is_identity:
            return self._base.quantile(level)
        return self._at_score(self._calibration.inverse(ndtri(level)))

    def normal_scores(self, y: Any) -> tuple[Array, Array]:
        """Return the normal scores ndtri(p) of P(Y < y) and P(Y <= y): (n,) -> (n,) each.

        For numbers both are the same array.
        """
        below, at = self._base.normal_scores(y)
        reached = self._calibration.forward(at)
        return (self._calibration.forward(below), reached) if self.discrete else (reached, reached)

    @property
    def farthest(self) -> float:
        """Normal scores beyond which the distribution is not known."""
        return float(self._calibration.forward(np.array(self._base.farthest)))

    def at_scores(self, scores: Array) -> Array:
        """Return y whose P(Y <= y) have these normal scores: (n,) -> (n,)."""
        return self._base.at_scores(self._calibration.inverse(scores))

    def _at_score(self, score: Any) -> Array:
        return self._base.at_scores(np.full(len(self), float(score)))

    def interval(self, level: float = 0.95) -> Array:
        """Return the central interval that contains y with probability ``level``: (n, 2).

        Its ends are quantiles of the model, at those levels which the held-out rows ask for. With
        n of these, exchangeable with the rows to be predicted, at least the fraction ``level`` of
        y are inside on average. Quantiles by ``quantile`` are those of a smooth distribution, and
        may be a little further in. Levels above (n - 1) / (n + 1) are beyond the guarantee.
        """
        below, calibration = check_level(level)[0], self._calibration
        if level > calibration.highest_level * (1.0 + _ROUNDING):
            warn(
                f"an interval of level {level:g} is beyond {calibration.highest_level:.3g}, the "
                f"highest level that {len(calibration.lower):,} rows can recalibrate: it has the "
                "tails of the model; recalibrate with more rows."
            )
        low, high = calibration.ends(below)
        if self.discrete:  # y is inside if F(y) >= p and F(y - 1) <= q, whatever the rounding
            low, high = low - _ROUNDING, high + _ROUNDING
        ends = self._at_score(low), self._at_score(high)
        return np.stack([ends[0], np.maximum(*ends)], axis=1)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Return draws of y, independent between points: (n, n_samples)."""
        check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        draws = self._base.sample(n_samples, np.random.RandomState(int(rng.integers(2**31))))
        return self.moved(draws, rng)

    def moved(self, draws: Array, rng: np.random.Generator) -> Array:
        """Return draws of the recalibrated distribution, given draws of the model: (n, k).

        Each moves to the quantile that its own has become, so draws at several points remain as
        dependent as they were.
        """
        if self._calibration.is_identity:
            return draws
        out = np.empty_like(draws)
        for k in range(draws.shape[1]):
            below, at = self._base.normal_scores(draws[:, k])
            if self.discrete:  # a count has all scores in between
                share = rng.random(len(at))
                p = ndtr(below) + share * (ndtr(at) - ndtr(below))
                at = normal_score(p, ndtr(-at) + (1.0 - share) * (ndtr(-below) - ndtr(-at)))
            out[:, k] = self._base.at_scores(self._calibration.inverse(at))
        return out
