"""Recalibration of predictive distributions by rows that the fit has not seen.

The normal score of y under a distribution function F is z = ndtri(F(y)). It is N(0, 1) where F is
right. ``Recalibration`` has two maps of it:

- The distribution function becomes ndtr(T(z)), with the sinh-arcsinh transformation of Jones and
  Pewsey (2009), T(z) = sinh(tails * asinh((z - shift) / scale) - skew), which goes on as a straight
  line beyond the scores of the rows. The parameters have the highest likelihood, but each must gain
  as much as the BIC asks for. So densities are smooth, and distributions that are right already
  stay as they are.
- Ends of central intervals are order statistics of z. This is conformal prediction: with n + 1
  exchangeable rows, the rank of the score of a new row among all of them is uniform.

``LogitScaling`` is temperature scaling of probabilities, with an offset for two classes (Platt).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri

from .densities import FINE_GRID

Array = np.ndarray
FARTHEST = 37.0  # normal scores, whose probability is still a number
MOST_SCORES = 20_000  # that are kept; a random sample of more
_ROUNDING = 1e-9  # relative, of a rank
#: Parameters of T that are fitted together, from few to many: shift, log scale, skew, log tails.
_CANDIDATES = ((), (1,), (0, 1), (0, 2), (1, 3), (0, 1, 3), (0, 1, 2), (0, 1, 2, 3))
_LIMITS = ((-5.0, 5.0), (-4.0, 4.0), (-3.0, 3.0), (-1.0, 1.0))
_ROWS_PER_PARAMETER = 25


@dataclass(frozen=True, eq=False)
class Recalibration:
    """How distributions of numbers are recalibrated.

    Attributes
    ----------
    kind : str
        "split" if the rows were held out, "cv" if every fold was predicted by another model.
    rows : int
        Number of rows.
    lower, upper : ndarray of shape (m,)
        Their normal scores, sorted, for lower and upper ends of intervals. They differ for counts:
        y is not below a lower end unless F(y) is, nor above an upper end unless F(y - 1) is.
    shift, scale, skew, tails : float
        Parameters of T; 0, 1, 0 and 1 are the identity.
    """

    kind: str
    rows: int
    lower: Array = field(repr=False)
    upper: Array = field(repr=False)
    shift: float = 0.0
    scale: float = 1.0
    skew: float = 0.0
    tails: float = 1.0

    @classmethod
    def of(cls, kind: str, below: Array, at: Array) -> Recalibration:
        """Return the recalibration by rows with normal scores of P(Y < y) and P(Y <= y): (n,)."""
        rows, kept = len(at), np.arange(len(at))
        most = max(rows // _ROWS_PER_PARAMETER, 1)
        fits = [_fitted(below, at, free) for free in _CANDIDATES if len(free) <= most]
        shift, scale, skew, tails = min(fits, key=lambda fit: fit[0])[1].tolist()
        if rows > MOST_SCORES:
            kept = np.random.default_rng(0).choice(rows, MOST_SCORES, replace=False)
        lower = np.sort(at[kept])
        upper = lower if below is at else np.sort(below[kept])
        parameters = shift, float(np.exp(scale)), skew, float(np.exp(tails))
        return cls(kind, rows, lower, upper, *parameters)

    @property
    def is_identity(self) -> bool:
        """Whether T is the identity, so that only intervals change."""
        return (self.shift, self.scale, self.skew, self.tails) == (0.0, 1.0, 0.0, 1.0)

    @property
    def highest_level(self) -> float:
        """The highest level at which intervals end at scores: (m - 1) / (m + 1)."""
        count = len(self.lower)
        return (count - 1.0) / (count + 1.0)

    @cached_property
    def factor(self) -> float:
        """What the standard deviation of a normal distribution is multiplied by."""
        if self.is_identity:
            return 1.0
        nodes, weights = (np.array(part) for part in FINE_GRID)
        z = self.inverse(nodes)
        return float(np.sqrt(weights @ (z - weights @ z) ** 2))

    def forward(self, z: Array) -> Array:
        """Return T(z)."""
        inside = np.clip(z, *self._range)
        t, slope = _transformed(self._parameters, inside)
        return np.asarray(t + slope * (z - inside))

    def log_slope(self, z: Array) -> Array:
        """Return the logarithm of the slope of ndtr(T(z)) as a function of ndtr(z)."""
        slope = _transformed(self._parameters, np.clip(z, *self._range))[1]
        return np.asarray(0.5 * (z * z - self.forward(z) ** 2) + np.log(slope))

    def inverse(self, t: Array) -> Array:
        """Return z with T(z) = t."""
        inside = np.clip(t, *_transformed(self._parameters, np.array(self._range))[0])
        z = self.shift + self.scale * np.sinh((np.arcsinh(inside) + self.skew) / self.tails)
        return np.asarray(z + (t - inside) / _transformed(self._parameters, z)[1])

    @property
    def _range(self) -> tuple[float, float]:
        """The scores of the rows: beyond them T is linear, and tails are those of the model."""
        return float(self.lower[0]), float(self.lower[-1])

    def ends(self, below: float) -> tuple[float, float]:
        """Return the normal scores of the ends of an interval, ``below`` of y being below it.

        Where rows are too few for the level, the ends are those of T, but not within the scores.
        """
        count = len(self.lower)
        rank = int(np.floor((count + 1) * below * (1.0 + _ROUNDING)))
        if rank >= 1:
            return float(self.lower[rank - 1]), float(self.upper[count - rank])
        low, high = self.inverse(ndtri(np.array([below, 1.0 - below])))
        return float(min(low, self.lower[0])), float(max(high, self.upper[-1]))

    @property
    def _parameters(self) -> tuple[float, float, float, float]:
        return self.shift, float(np.log(self.scale)), self.skew, float(np.log(self.tails))


def normal_score(below: Array, above: Array) -> Array:
    """Return ndtri(p), given p and 1 - p, each with all its digits where it is small."""
    tiny = float(ndtr(-FARTHEST))
    low, high = ndtri(np.maximum(below, tiny)), -ndtri(np.maximum(above, tiny))
    return np.asarray(np.where(below < above, low, high))


def log_difference(low: Array, high: Array) -> Array:
    """Return log(ndtr(high) - ndtr(low)) for low <= high."""
    flip = low > 0.0  # the upper tail has more digits there
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    first, second = log_ndtr(a), log_ndtr(b)
    with np.errstate(divide="ignore"):
        return np.asarray(second + np.log(-np.expm1(np.minimum(first - second, 0.0))))


def _transformed(parameters: Any, z: Array) -> tuple[Array, Array]:
    """Return T(z) and its slope; scale and tails are given as logarithms."""
    shift, log_scale, skew, log_tails = parameters
    if (log_scale, skew, log_tails) == (0.0, 0.0, 0.0) and shift == 0.0:
        return np.asarray(z), np.ones_like(z)  # to the last bit
    scale, tails = np.exp(log_scale), np.exp(log_tails)
    w = (z - shift) / scale
    t = np.sinh(tails * np.arcsinh(w) - skew)
    return t, tails / scale * np.sqrt((1.0 + t * t) / (1.0 + w * w))


def _fitted(below: Array, at: Array, free: Sequence[int]) -> tuple[float, Array]:
    """Return the BIC per row, and the best parameters of which some are free."""

    def loss(values: Array) -> float:
        parameters = np.zeros(4)
        parameters[list(free)] = values
        if below is at:
            t, slope = _transformed(parameters, at)
            logs = 0.5 * (at * at - t * t) + np.log(slope)
        else:  # the probability of a count
            low, high = (_transformed(parameters, z)[0] for z in (below, at))
            low = np.where(below <= -FARTHEST, -np.inf, low)
            logs = np.maximum(log_difference(low, high), -700.0)
        return -float(np.mean(logs))

    parameters, price = np.zeros(4), 0.5 * len(free) * np.log(len(at)) / len(at)
    if not free:
        return loss(np.empty(0)), parameters
    limits = [_LIMITS[k] for k in free]
    optimum = minimize(loss, np.zeros(len(free)), method="L-BFGS-B", bounds=limits)
    parameters[list(free)] = optimum.x
    return float(optimum.fun) + price, parameters


@dataclass(frozen=True, eq=False)
class LogitScaling:
    """How probabilities of classes are recalibrated: softmax(slope * log p), or Platt's scaling.

    Attributes
    ----------
    kind, rows
        As for ``Recalibration``.
    slope : float
        1 / temperature.
    offset : float
        Added to the log odds of the second of two classes; 0 if there are more.
    """

    kind: str
    rows: int
    slope: float = 1.0
    offset: float = 0.0

    @classmethod
    def of(cls, kind: str, log_p: Array, codes: Array) -> LogitScaling:
        """Return the scaling with the highest likelihood of classes, given log p: (n, K).

        Logarithm of the slope and offset have N(0, 1) priors, so that the outcome is finite where
        all predictions are right, and never less likely than without scaling. The offset must gain
        a nat, as the AIC asks for.
        """

        def loss(values: Array) -> float:
            slope, offset = np.exp(values[0]), values[1] if len(values) > 1 else 0.0
            scaled = _scaled(log_p, slope, offset)
            logs = scaled[np.arange(len(codes)), codes]
            return -float(np.sum(logs)) + 0.5 * float(values @ values)

        count = 2 if log_p.shape[1] == 2 else 1
        fits = []
        for size in range(1, count + 1):
            optimum = minimize(loss, np.zeros(size), method="Nelder-Mead", options=_PRECISE)
            fits.append((float(optimum.fun) + size, optimum.x))
        values = min(fits, key=lambda fit: fit[0])[1]
        if loss(values) > loss(np.zeros(1)):
            values = np.zeros(1)
        offset = float(values[1]) if len(values) > 1 else 0.0
        return cls(kind, len(codes), float(np.exp(values[0])), offset)

    @property
    def temperature(self) -> float:
        """What log probabilities are divided by: above 1 the model was too confident."""
        return 1.0 / self.slope

    def probabilities(self, p: Array) -> Array:
        """Return scaled probabilities: (..., K) -> (..., K)."""
        tiny = float(np.finfo(float).tiny)
        scaled = _scaled(np.log(np.maximum(p, tiny)), self.slope, self.offset)
        return np.asarray(np.maximum(np.exp(scaled), tiny))

    def log_odds(self, odds: Array) -> Array:
        """Return scaled log odds of the second of two classes."""
        return self.slope * odds + self.offset


_PRECISE = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000}


def _scaled(log_p: Array, slope: float, offset: float) -> Array:
    """Return the logarithms of scaled probabilities."""
    x = slope * log_p
    if offset:
        x = x + offset * np.array([0.0, 1.0])
    return np.asarray(x - logsumexp(x, axis=-1, keepdims=True))


def plain_form(calibration: Any) -> dict[str, Any] | None:
    """Return what a recalibration does as plain data, None if there is none."""
    if calibration is None:
        return None
    names: tuple[str, ...] = ("highest_level", "factor", "shift", "scale", "skew", "tails")
    if isinstance(calibration, LogitScaling):
        names = ("temperature", "offset")
    shown = ("kind", "rows", *names)
    values = {name: getattr(calibration, name) for name in shown}
    return {"summary": describe(calibration), **values}


def describe(calibration: Any) -> str:
    """Return a recalibration in a sentence without its full stop."""
    how = "by {:,} rows" if calibration.kind == "split" else "by cross-validation of {:,} rows"
    how = how.format(calibration.rows)
    if isinstance(calibration, LogitScaling):
        offset = f", offset {calibration.offset:.2g}" if calibration.offset else ""
        return f"{how}: temperature {calibration.temperature:.3g}{offset}"
    low, high = ndtr(np.array(calibration.ends(0.025)))
    ends = f"{how}: 95% intervals end at the model's quantiles {low:.3g} and {high:.3g}"
    if calibration.is_identity:
        return f"{ends}, densities unchanged"
    return f"{ends}, standard deviations times {calibration.factor:.3g}"
