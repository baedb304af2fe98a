"""Likelihoods of counts: negative binomial and Poisson."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import expit, gammainc, gammaincc, gammaln, log_expit

from ..densities import FINE_GRID, CountDensity, Counts, draw_counts, expected_sigmoid
from ..formula import Formula, Term
from ..gamma import LOG_2PI
from .base import (
    LOG_2,
    LOG_STEP,
    Array,
    Begin,
    Rows,
    check_positive,
    density_form,
    newton_step,
    quadrature,
)
from .logistic import Logistic

_MOST_COUNTS = 1e9  # beyond, the bound is lost in rounding
_TIMES_LARGEST = 10.0  # the limit of a Poisson rate, in units of the largest that counts imply


@dataclass(frozen=True)
class NegativeBinomial(Logistic):
    """y = 0, 1, 2, ... with mean size exp(offset + f) and variance mean + mean^2 / size.

    p(y | x) = Gamma(y + size) / (Gamma(size) y!) exp(y x) / (1 + exp(x))^b with b = y + size.

    Parameters
    ----------
    size : float or None, default=None
        The smaller the size, the larger the variance. None learns it. The lower limit is half the
        size that the variance of all counts implies. The upper limit is ten times the mean count,
        where the variance is a tenth above that of a Poisson distribution.

    Notes
    -----
    The bound of a row is more curved than the likelihood where mean and size are far apart, by
    ``(mean + size) / (2 size |log(mean / size)|)`` for large means. The Newton refinement corrects
    most of the effect on the posterior.

    The variance is never below the mean. Where counts vary less than that, intervals are too wide,
    and "gaussian" may be the better choice.
    """

    title: ClassVar[str] = "negative binomial"
    task: ClassVar[str] = "regression of counts"
    unit: ClassVar[str] = "log of the mean of {}"
    learned: ClassVar[tuple[str, ...]] = ("size",)
    file_fields: ClassVar[dict[str, str]] = {
        "size": "positive",
        "offset": "number",
        "value": "float",
        "_learns": "flag",
        "limits": "limits",
    }
    size: float | None = None
    _learns: bool = field(default=True, kw_only=True, repr=False)  # size was None at first
    # of a size that is learned
    limits: tuple[float, float] = field(default=(0.0, np.inf), kw_only=True, repr=False)

    @property
    def level(self) -> float:
        """What f is added to on the scale of ``unit``."""
        return float(self.offset + np.log(self._size))

    @property
    def _size(self) -> float:
        assert self.size is not None
        return self.size

    def check(self, y: np.ndarray) -> None:
        """Raise a ValueError unless y holds counts."""
        check_counts(y)

    def begin(
        self, y: np.ndarray, weight: np.ndarray | None, exposure: np.ndarray | None = None
    ) -> Begin:
        """Keep y; the offset gives the mean count at f = 0 and an exposure of 1."""
        self.check(y)
        check_any(y)
        if self.size is not None:
            check_positive("size", self.size)
        mean = all_counts = float(np.average(y, weights=weight))
        means: Any = mean
        square = mean**2
        if exposure is not None:
            mean = all_counts / float(np.average(exposure, weights=weight))
            means = mean * exposure
            square = float(np.average(means**2, weights=weight))
        excess = float(np.average((y - means) ** 2, weights=weight)) - all_counts
        largest = 10.0 * max(all_counts, 1.0)
        overall = min(square / excess, largest) if excess > 0 else largest
        size = overall if self.size is None else float(self.size)
        warm = replace(
            self,
            size=size,
            _learns=self.size is None,
            limits=(0.5 * overall, largest),
            offset=float(np.log(mean) - np.log(size)),
        )
        return Begin(y, warm, 0.0, 1.0)

    def exposed(self, log_exposure: Array) -> NegativeBinomial:
        """Return the likelihood of rows with these logarithms of their exposures, (n,)."""
        return replace(self, offset=self.offset + log_exposure)

    def trials(self, y: Array) -> Array:
        """Return y + size."""
        return y + self._size

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return what Logistic does, with the constants and the ELBO at two nearby sizes."""
        at_size = super().rows(y, s, mean, square)
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s

        def constants(size: float) -> Array:
            return xp.sum(s * (log_gamma(y + size) - log_gamma(y + 1.0) - float(gammaln(size))))

        value = at_size.sums[0] + constants(self._size)
        nearby = []
        if self._learns:
            for other in (self.resized(-LOG_STEP), self.resized(LOG_STEP)):
                bound = super(NegativeBinomial, other).rows(y, s, mean, square).sums[0]
                nearby.append(bound + constants(other._size))
        return Rows(at_size.weight, at_size.response, (value, *at_size.sums[1:], *nearby))

    def resized(self, step: float) -> NegativeBinomial:
        """Return the likelihood with exp(step) times the size, and the same mean at every f."""
        size = float(np.clip(self._size * np.exp(step), *self.limits))
        return replace(self, size=size, offset=self.offset + float(np.log(self._size / size)))

    def propose(self, sums: tuple[Any, ...]) -> NegativeBinomial:
        """Return offset and size after one Newton step."""
        other = super().propose(sums)
        if not self._learns:
            return other
        return other.resized(newton_step(sums[3], sums[0], sums[4]))

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Counts:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return Counts(mean + self.offset, variance, self._size)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        formula, parts = self._portable()
        parts.pop("y")
        return density_form(formula, discrete=True, **parts)

    def _portable(self) -> tuple[Formula, dict[str, Any]]:
        """Return the formula of the distribution of y, its outputs, and y."""
        size, formula = self._size, Formula()
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        location = mean + float(self.offset)
        x, weights = count_grid(location, variance, size)
        constant = (y + size).log_gamma() - float(gammaln(size)) - (y + 1.0).log_gamma()
        log_pdf = constant + y * x.log_sigmoid() + size * (-x).log_sigmoid()
        average, growth = size * (location + 0.5 * variance).exp(), variance.exp()
        cdf = (-x).sigmoid().beta_cdf(size, y.floor() + 1.0, x.sigmoid())
        return formula, {
            "mean": average,
            "model_variance": average * average * (growth - 1.0),
            "noise_variance": average + average * average * growth / size,
            "width": 1.0,
            "cdf": (weights * cdf).sum(),
            "pdf": (weights * log_pdf.exp()).sum(),
            "y": y,
        }

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        return draw_counts(f + self.offset, self._size, rng)


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

    def check(self, y: np.ndarray) -> None:
        """Raise a ValueError unless y holds counts."""
        check_counts(y)

    def begin(
        self, y: np.ndarray, weight: np.ndarray | None, exposure: np.ndarray | None = None
    ) -> Begin:
        """Keep y; the offset gives the mean count at f = 0 and an exposure of 1."""
        self.check(y)
        check_any(y)
        if self.limit is not None:
            check_positive("limit", self.limit)
        limit = self.limit
        mean = float(np.average(y, weights=weight))
        if limit is None:
            limit = _TIMES_LARGEST * (float(np.sqrt(np.max(y))) - 0.5) ** 2
        if exposure is not None:
            mean /= float(np.average(exposure, weights=weight))
            # counts of small exposures say little of their rate: two standard deviations below
            rates = np.maximum(np.sqrt(y) - 1.0, 0.0) ** 2 / exposure
            largest = _TIMES_LARGEST * max(float(np.max(rates)), mean)
            limit = largest if self.limit is None else self.limit
        if limit <= mean:
            raise ValueError(
                f"limit must be above the mean count, {mean:g}, got {limit:g}; leave it out to "
                "have it from the counts."
            )
        offset = float(np.log(mean) - np.log(limit - mean))
        return Begin(y, replace(self, limit=float(limit), offset=offset), 0.0, 1.0)

    def exposed(self, log_exposure: Array) -> Poisson:
        """Return the likelihood of rows with these logarithms of their exposures, (n,)."""
        limit: Any = self._limit * array_namespace(log_exposure).exp(log_exposure)
        return replace(self, limit=limit)

    @property
    def _log_limit(self) -> Any:
        limit: Any = self._limit
        if isinstance(limit, float | int):
            return float(np.log(limit))
        return array_namespace(limit).log(limit)

    def _bound(self, y: Array, x: Array, log_cosh: Array) -> tuple[Array, Array]:
        """Return b = y + kappa and the bound of each row."""
        xp, limit = array_namespace(x), self._limit
        softplus = 0.5 * x + LOG_2 + log_cosh  # at least E log(1 + exp(x))
        b = y + limit * xp.exp(-softplus)
        constant = y * self._log_limit - log_gamma(y + 1.0)
        return b, y * (x - softplus) + limit * xp.expm1(-softplus) + constant

    def trials_at(self, y: Array, p: Array) -> Array:
        """Return y + limit * (1 - p)."""
        return y + self._limit * (1.0 - p)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return E of the Fisher information as weights, and the responses, by quadrature."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        slope, weight = xp.zeros_like(mean), xp.zeros_like(mean)
        for share, x in quadrature(mean, square, self.offset):
            p = 0.5 * (1.0 + xp.tanh(0.5 * x))
            rate = self._limit * p
            slope = slope + share * (1.0 - p) * (y - rate)
            weight = weight + share * (1.0 - p) ** 2 * rate
        return s * weight, s * (slope + weight * mean)

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
        away = p - p @ shares[:, None]
        # limits are in the weights: ONNX Runtime rounds a factor of a matrix product to float32
        average = p @ (limit * shares)[:, None]
        x, weights = count_grid(location, variance, limit)
        rate = limit * x.sigmoid()
        constant = y * float(np.log(limit)) - (y + 1.0).log_gamma()
        return density_form(
            formula,
            discrete=True,
            mean=average,
            model_variance=(away * away) @ (limit**2 * shares)[:, None],
            noise_variance=average,
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
        mean, second = expected_sigmoid(location, variance), np.zeros_like(location)
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

    def _sf_given(self, k: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(gammainc(k + 1.0, self.size * expit(x)))

    def sf(self, y: np.ndarray) -> np.ndarray:
        """Return P(Y > y)."""
        return np.where(y < 0, 1.0, self._averaged(self._sf_given, y))

    def _draw_given(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        size = np.asarray(self.size)  # with exposures it differs between rows
        size = size[:, None] if size.ndim else size
        return np.asarray(rng.poisson(size * expit(x)), dtype=float)


def check_counts(y: np.ndarray) -> None:
    """Raise a ValueError unless y holds counts."""
    if np.any(y < 0) or np.any(y != np.floor(y)):
        wrong = y[(y < 0) | (y != np.floor(y))][0]
        raise ValueError(
            f"y must hold counts (0, 1, 2, ...) for this likelihood, got {wrong:g}; use another "
            "likelihood."
        )
    if np.max(y) > _MOST_COUNTS:
        raise ValueError(
            f"y must hold counts up to {_MOST_COUNTS:g}, got {np.max(y):g}; for larger counts "
            "fit their logarithm with another likelihood."
        )


def check_any(y: np.ndarray) -> None:
    """Raise a ValueError unless y holds a count above 0."""
    if not np.any(y > 0):
        raise ValueError(
            "y must hold a count above 0, got only zeros; a rate cannot be estimated from them."
        )


def count_grid(location: Term, variance: Term, size: float) -> tuple[Term, Term]:
    """Return nodes of x ~ N(location, variance) and their weights, as ``CountDensity`` has them."""
    std = variance.sqrt()
    width = ((-location.clip(-40.0, 40.0)).exp() / size + 1.0 / size).sqrt()
    nodes, weights = (width / std).clip(0.01, 0.35).normal_grid(6.3)
    return location + std * nodes, weights


def log_gamma(z: Array) -> Array:
    """Return log Gamma(z) for z > 0 with array operations only, to about 1e-14 of its size."""
    xp = array_namespace(z)
    product = z
    for k in range(1, 8):  # Stirling's series from z + 8 on
        product = product * (z + k)
    x = z + 8.0
    t = 1.0 / (x * x)
    series = (1 / 12 - t * (1 / 360 - t * (1 / 1260 - t * (1 / 1680 - t / 1188)))) / x
    return (x - 0.5) * xp.log(x) - x + 0.5 * LOG_2PI + series - xp.log(product)
