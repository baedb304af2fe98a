"""Counts whose variance is their mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import expit, gammaincc, gammaln, log_expit

from ..densities import FINE_GRID, CountDensity
from ..formula import Formula
from ..special import LOG_2, bent, check_positive, log_gamma, polya_gamma
from .base import Array, Begin, Rows, check_counts, count_grid, density_form
from .logistic import Logistic

_TIMES_LARGEST = 10.0  # the limit, in units of the largest rate that the counts imply
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@dataclass(frozen=True)
class Poisson(Logistic):
    """y = 0, 1, 2, ... with mean and variance limit * sigma(offset + f).

    Far below the limit f is the logarithm of the rate, up to a constant.

    Parameters
    ----------
    limit : float or None, default=None
        Upper limit of the rate. None takes ten times the rate that is one standard deviation
        below the largest count, on the scale of square roots: 10 (sqrt(max y) - 1/2)^2.

    Notes
    -----
    With exp(f) as the rate there is no lower bound on the evidence: under a tensor's posterior f is
    a sum of products, and E exp(f) is infinite. So the rate has a limit. At a tenth of the limit
    the rate is 9% below exp(offset + f) * limit.

    The likelihood is Poisson exactly. In log p(y | x), the term -limit * sigma(x) is
    -limit + limit * exp(-log(1 + exp(x))), whose tangent in log(1 + exp(x)) bounds it from below:
    as if there were kappa more trials without success. What remains is the factor of ``Logistic``
    with b = y + kappa, and the best kappa is limit * exp(-E log(1 + exp(x))), by its bound.

    The bound of a row is more curved than the likelihood by about
    limit / (2 rate log(limit / rate)). The Newton refinement corrects most of the effect on the
    posterior. Where rates vary by orders of magnitude, the ELBO is loose and fits take more sweeps;
    "negative_binomial" may then be the better choice.
    """

    title: ClassVar[str] = "Poisson"
    task: ClassVar[str] = "regression of counts"
    unit: ClassVar[str] = "log of the mean of {} (logistic near its limit)"
    learned: ClassVar[tuple[str, ...]] = ("limit",)
    file_fields: ClassVar[dict[str, str]] = {
        "limit": "positive",
        "offset": "number",
        "value": "float",
    }
    limit: float | None = None

    @property
    def level(self) -> float:
        """What f is added to on the scale of ``unit``."""
        return float(self.offset + np.log(self._limit))

    @property
    def _limit(self) -> float:
        assert self.limit is not None
        return self.limit

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Keep y; the offset gives the mean count at f = 0."""
        check_counts(y)
        if self.limit is not None:
            check_positive("limit", self.limit)
        limit = self.limit
        if limit is None:
            limit = _TIMES_LARGEST * (float(np.sqrt(np.max(y))) - 0.5) ** 2
        mean = float(np.average(y, weights=weight))
        if limit <= mean:
            raise ValueError(
                f"limit must be above the mean count, {mean:g}, got {limit:g}; leave it out to "
                "have it from the counts."
            )
        offset = float(np.log(mean) - np.log(limit - mean))
        return Begin(y, replace(self, limit=float(limit), offset=offset), 0.0, 1.0)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weights, responses and sums as ``Logistic`` does, with b = y + kappa."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        x, limit = mean + self.offset, self._limit
        c2 = xp.clip(square - mean * mean, 0.0) + x * x
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        softplus = 0.5 * x + LOG_2 + log_cosh  # at least E log(1 + exp(x))
        b = y + limit * xp.exp(-softplus)
        constant = y * float(np.log(limit)) - log_gamma(y + 1.0)
        value = y * (x - softplus) + limit * xp.expm1(-softplus) + constant
        slope = y - 0.5 * b - b * w * x
        sums = tuple(xp.sum(s * part) for part in (value, slope, b * bent(x, c2, w)))
        return Rows(s * b * w, s * (y - 0.5 * b - b * w * self.offset), sums)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return E of the Fisher information as weights, and the responses, by quadrature."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        std = xp.sqrt(xp.clip(square - mean * mean, 0.0))
        slope, weight = xp.zeros_like(mean), xp.zeros_like(mean)
        for z, share in zip(_NODES.tolist(), (_WEIGHTS / _WEIGHTS.sum()).tolist(), strict=True):
            p = 0.5 * (1.0 + xp.tanh(0.5 * (mean + self.offset + std * z)))
            rate = self._limit * p
            slope = slope + share * (1.0 - p) * (y - rate)
            weight = weight + share * (1.0 - p) ** 2 * rate
        return s * weight, s * (slope + weight * mean)

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return what ``Logistic`` does, with b = y + limit * (1 - p)."""
        xp = array_namespace(f)
        s = xp.ones_like(f) if s is None else s
        x = f + self.offset
        p = 0.5 * (1.0 + xp.tanh(0.5 * x))
        b = y + self._limit * (1.0 - p)
        at_zero = 1.0 - float(np.tanh(0.5 * self.offset)) ** 2
        weight = xp.maximum(b * p * (1.0 - p), polya_gamma(xp.abs(x))[0] * xp.abs(y - b * p))
        weight = xp.maximum(weight, at_zero * b * polya_gamma(xp.abs(f))[0])
        return s * weight, s * (y - b * p + weight * f)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> PoissonCounts:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return PoissonCounts(mean + self.offset, variance, self._limit)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        formula, limit = Formula(), self._limit
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        location = mean + float(self.offset)
        nodes, shares = (np.array(part) for part in FINE_GRID)
        p = (location + variance.sqrt() * nodes).sigmoid()
        average = p @ shares[:, None]
        x, weights = count_grid(location, variance, limit)
        rate = limit * x.sigmoid()
        constant = y * float(np.log(limit)) - (y + 1.0).log_gamma()
        return density_form(
            formula,
            discrete=True,
            mean=limit * average,
            model_variance=limit**2 * ((p - average) * (p - average) @ shares[:, None]),
            noise_variance=limit * average,
            width=1.0,
            cdf=(weights * rate.gamma_sf(y.floor() + 1.0)).sum(),
            pdf=(weights * (constant + y * x.log_sigmoid() - rate).exp()).sum(),
        )

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        return np.asarray(rng.poisson(self._limit * expit(f + self.offset)), dtype=float)


class PoissonCounts(CountDensity):
    """Poisson with rate limit * sigma(x), x ~ N(location, variance); ``size`` is the limit."""

    def __init__(self, location: np.ndarray, variance: np.ndarray, limit: float) -> None:
        super().__init__(location, variance, limit)
        mean, second = np.zeros_like(location), np.zeros_like(location)
        for z, weight in zip(*FINE_GRID, strict=True):
            mean += weight * expit(location + self.std * z)
        for z, weight in zip(*FINE_GRID, strict=True):
            second += weight * (expit(location + self.std * z) - mean) ** 2
        self.mean = self.noise_variance = limit * mean
        self.model_variance = limit**2 * second

    def _log_constant(self, k: np.ndarray) -> np.ndarray:
        return np.asarray(k * np.log(self.size) - gammaln(k + 1.0))

    def _log_factors(self, k: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        return [k * log_expit(x), -self.size * expit(x)]

    def _cdf_given(self, k: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(gammaincc(k + 1.0, self.size * expit(x)))

    def _draw_given(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(rng.poisson(self.size * expit(x)), dtype=float)
