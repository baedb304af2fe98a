"""Two classes, and the bound that they share with counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from scipy.special import expit

from ..densities import Labels, expected_sigmoid
from .base import LOG_2, Array, Begin, Bounded, Rows, bent, flattened_sigmoid, polya_gamma


@dataclass(frozen=True)
class Logistic(Bounded):
    """The factor exp(y x) / (1 + exp(x))^b, x = offset + f, of several likelihoods.

    Its logarithm is (y - b/2) x - b log 2 - b log cosh(x / 2), and log cosh(x / 2) is at most
    log cosh(c / 2) + w (x^2 - c^2) / 2 with w = tanh(c / 2) / (2 c). The bound is tightest at
    c^2 = E[x^2]. The weight b w is the mean of a Polya-Gamma(b, c) variable.

    Attributes
    ----------
    offset : float
        A constant added to f, updated together with f. The bound is far more curved than the
        likelihood where x is far from zero, as for a rare class, and f alone would need hundreds
        of sweeps to find its level.
    """

    file_fields: ClassVar[dict[str, str]] = {"offset": "number", "value": "float"}
    of_labels: ClassVar[bool] = False
    offset: float = field(default=0.0, kw_only=True, repr=False)

    def trials(self, y: Array) -> Array:
        """Return b of each row."""
        return array_namespace(y).ones_like(y)

    def trials_at(self, y: Array, p: Array) -> Array:
        """Return b of each row where the probability sigma(x) is p."""
        return self.trials(y)

    def _bound(self, y: Array, x: Array, log_cosh: Array) -> tuple[Array, Array]:
        """Return b and the bound of each row, given E[x] and log cosh(c / 2)."""
        b = self.trials(y)
        return b, (y - 0.5 * b) * x - b * (LOG_2 + log_cosh)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s b w, response s (y - b/2 - b w offset), and the sum of the bounds.

        The other sums are its slope and curvature in the offset, with the best c for each.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        x = mean + self.offset
        c2 = xp.clip(square - mean * mean, 0.0) + x * x
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        b, value = self._bound(y, x, log_cosh)
        slope = y - 0.5 * b - b * w * x
        curvature = b * bent(x, c2, w)
        sums = tuple(xp.sum(s * part) for part in (value, slope, curvature))
        return Rows(s * b * w, s * (y - 0.5 * b - b * w * self.offset), sums)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights s b E[p (1 - p)], responses s (y - b E[p] + b E[p (1 - p)] E[f])."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        b = self.trials(y)
        p, slope = flattened_sigmoid(mean + self.offset, xp.clip(square - mean * mean, 0.0))
        return s * b * slope, s * (y - b * p + b * slope * mean)

    def moved(self, step: Any) -> Self:
        """Return the likelihood with its offset moved by a step."""
        return replace(self, offset=self.offset + float(step))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights between the curvature b p (1 - p) and the bound's b w, and responses.

        b w is far above the curvature where the offset alone makes y likely. Where a class is rare,
        the random initial values would survive the warm phase. So w is computed at f instead of
        offset + f, in proportion to the curvature at f = 0. Where y is unlikely, the curvature is
        small and the slope large, and a Newton step would overshoot: there the weight is at least
        ``w |y - b p|``.
        """
        xp = array_namespace(f)
        s = xp.ones_like(f) if s is None else s
        x = f + self.offset
        p = 0.5 * (1.0 + xp.tanh(0.5 * x))
        b = self.trials_at(y, p)
        own = isinstance(self.offset, float | int)  # otherwise each row has its own
        at_zero: Any = float(np.tanh(0.5 * self.offset)) if own else xp.tanh(0.5 * self.offset)
        at_zero = 1.0 - at_zero**2  # 4 p (1 - p) at f = 0
        weight = xp.maximum(b * p * (1.0 - p), polya_gamma(xp.abs(x))[0] * xp.abs(y - b * p))
        weight = xp.maximum(weight, at_zero * b * polya_gamma(xp.abs(f))[0])
        return s * weight, s * (y - b * p + weight * f)

    def propose(self, sums: tuple[Any, ...]) -> Self:
        """Return the offset after one Newton step of at most 2."""
        slope, curvature = float(sums[1]), float(sums[2])
        step = slope / max(curvature, np.finfo(float).tiny)
        return self.moved(np.clip(step, -2.0, 2.0))


@dataclass(frozen=True)
class Bernoulli(Logistic):
    """y is 1 with probability sigma(offset + f), else 0; b = 1."""

    title: ClassVar[str] = "Bernoulli"
    of_labels: ClassVar[bool] = True

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Keep y; the offset is the log odds of the mean of y."""
        mean = float(np.average(y, weights=weight))
        return Begin(y, replace(self, offset=float(np.log(mean) - np.log1p(-mean))), 0.0, 1.0)

    def shifted(self, log_weights: np.ndarray) -> Bernoulli:
        """Return the likelihood with class k exp(log_weights[k]) times as frequent."""
        return self.moved(log_weights[1] - log_weights[0])

    def portable(self) -> dict[str, Any]:
        """Return the link of two classes as plain data."""
        return {"kind": "bernoulli", "offset": float(self.offset)}

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Labels:
        """Return the probabilities of 0 and 1, each computed without cancellation."""
        x = mean + self.offset
        return Labels(np.array([expected_sigmoid(sign * x, variance) for sign in (-1.0, 1.0)]))

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        return np.asarray(rng.random(len(f)) < expit(f + self.offset), dtype=float)
