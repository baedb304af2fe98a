"""Positive numbers with a gamma distribution."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import digamma, gammainc, gammaincc, gammaln

from ..densities import normal_grid
from ..formula import Formula
from ..gamma import Gamma
from .base import (
    LOG_2,
    Array,
    Begin,
    Rows,
    bent,
    check_positive,
    density_form,
    polya_gamma,
    quadrature,
    weighted_quantile,
)
from .logistic import Logistic

_SHAPES = (1e-2, 1e4)  # of a shape that is learned
_LOW_LEVEL, _BELOW = 0.05, 10.0  # the least mean is this quantile of y over this number


@dataclass(frozen=True)
class GammaLikelihood(Logistic):
    """y > 0 with a gamma distribution of mean least (1 + exp(offset + f)).

    Its variance is mean^2 / shape. Far above ``least``, f is the logarithm of the mean, up to a
    constant.

    Parameters
    ----------
    shape : float or None, default=None
        The larger the shape, the smaller the noise: its standard deviation is mean / sqrt(shape).
        None learns it.
    least : float or None, default=None
        Lower limit of the mean. None takes a tenth of the 5% quantile of all y.

    Notes
    -----
    With exp(f) as the mean there is no lower bound on the evidence: under a tensor's posterior f is
    a sum of products, and E exp(-f) is infinite. So the mean has a lower limit. At ten times the
    limit the mean is 11% above exp(offset + f) * least.

    The likelihood is gamma exactly. With x = offset + f, log p has the terms
    -shape log(1 + exp(x)) and -l sigma(-x), l = shape y / least. The second is
    -l + l exp(-log(1 + exp(-x))), whose tangent in log(1 + exp(-x)) bounds it from below: as if
    there were kappa successes in kappa more trials. What remains is the factor of ``Logistic`` with
    b = shape + kappa, and the best kappa is l exp(-E log(1 + exp(-x))), by its bound. Given the
    moments of f, the bound as a function of the shape has its maximum where
    log(shape) - digamma(shape) is half the mean deviance of the rows, by their bounds.

    The bound of a row is more curved than the likelihood by about r / (2 log r), r = mean / least.
    Where means vary by orders of magnitude, the ELBO is loose, fits take more sweeps, and the bound
    alone would take a far too small shape. The Newton refinement, which updates the shape as well,
    corrects most of this.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(200, 1))
    >>> rain = np.exp(2.0 * X[:, 0]) * rng.gamma(2.0, 0.5, 200)
    >>> model = BTNRegressor(likelihood="gamma", structure="sums").fit(X, rain)
    >>> bool(1.5 < model.likelihood_.shape < 2.5)
    True
    """

    title: ClassVar[str] = "gamma"
    task: ClassVar[str] = "regression of positive numbers"
    unit: ClassVar[str] = "log of the mean of {}"
    doubles: ClassVar[str] = "expected {}"
    learned: ClassVar[tuple[str, ...]] = ("shape",)
    file_fields: ClassVar[dict[str, str]] = {
        "shape": "positive",
        "least": "positive",
        "offset": "number",
        "value": "float",
        "_learns": "flag",
    }
    shape: float | None = None
    least: float | None = None
    _learns: bool = field(default=True, kw_only=True, repr=False)  # shape was None at first

    @property
    def level(self) -> float:
        """What f is added to on the scale of ``unit``."""
        return float(self.offset + np.log(self._least))

    @property
    def _shape(self) -> float:
        assert self.shape is not None
        return self.shape

    @property
    def _least(self) -> float:
        assert self.least is not None
        return self.least

    def check(self, y: np.ndarray) -> None:
        """Raise a ValueError unless y is positive."""
        if np.any(wrong := ~(y > 0.0)):
            raise ValueError(
                f"y must be above 0 for gamma, got {y[wrong][0]:g}; use 'gaussian', or "
                "'negative_binomial' for counts."
            )

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Keep y; the offset gives the mean of y at f = 0."""
        self.check(y)
        for name in ("shape", "least"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        weight = np.ones(len(y)) if weight is None else weight
        least = self.least
        if least is None:
            least = weighted_quantile(y, weight, _LOW_LEVEL) / _BELOW
        mean = float(np.average(y, weights=weight))
        if least >= mean:
            raise ValueError(
                f"least must be below the mean of y, {mean:g}, got {least:g}; leave it out to "
                "have it from y."
            )
        variance = float(np.average((y - mean) ** 2, weights=weight))
        overall = float(np.clip(mean**2 / max(variance, mean**2 / _SHAPES[1]), *_SHAPES))
        warm = replace(
            self,
            shape=overall if self.shape is None else float(self.shape),
            least=float(least),
            _learns=self.shape is None,
            offset=float(np.log(mean / least - 1.0)),
        )
        return Begin(y, warm, 0.0, 1.0)

    def trials(self, y: Array) -> Array:
        """Return b, with successes kappa in place of y."""
        return y + self._shape

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s b w, response s (kappa - b/2 - b w offset), and sums.

        These are of the part of the bound that the shape multiplies, its slope and curvature in the
        offset, and the part that it does not.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        x = mean + self.offset
        c2 = xp.clip(square - mean * mean, 0.0) + x * x
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        below = LOG_2 + log_cosh - 0.5 * x  # at least E log(1 + exp(-x))
        ratio, log_y = y / self._least, xp.log(y)
        kappa = self._shape * ratio * xp.exp(-below)
        b = self._shape + kappa
        factor = ratio * xp.expm1(-below) - (LOG_2 + log_cosh + 0.5 * x)
        factor = factor + log_y - float(np.log(self._least))
        slope, curvature = kappa - 0.5 * b - b * w * x, b * bent(x, c2, w)
        sums = tuple(xp.sum(s * part) for part in (factor, slope, curvature, log_y))
        return Rows(s * b * w, s * (kappa - 0.5 * b - b * w * self.offset), sums)

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> GammaLikelihood:
        """Update the shape, if it is learned, and store the bound."""
        factor, log_y = float(sums[0]) / n, float(sums[3])
        shape = _best_shape(factor) if self._learns else self._shape
        constant = shape * np.log(shape) - gammaln(shape)
        value = n * float(constant + shape * factor) - log_y
        return replace(self, shape=shape, value=value)

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return what ``Logistic`` does, with successes whose slope is that of log p."""
        p = 0.5 * (1.0 + array_namespace(f).tanh(0.5 * (f + self.offset)))
        return super().newton(self._shape / self._least * y * p, s, f)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return E of the Fisher information as weights, and the responses, by quadrature."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        slope, weight = xp.zeros_like(mean), xp.zeros_like(mean)
        for share, x in quadrature(mean, square, self.offset):
            p = 0.5 * (1.0 + xp.tanh(0.5 * x))
            slope = slope + share * self._shape * p * (y / self._least * (1.0 - p) - 1.0)
            weight = weight + share * self._shape * p * p
        return s * weight, s * (slope + weight * mean)

    def expected_sums(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, ...]:
        """Return the first sum of ``rows``, with the expectation in place of its bound."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        factor = xp.log(y / self._least)
        for share, x in quadrature(mean, square, self.offset):
            t = xp.exp(-xp.abs(x))
            below = xp.where(x > 0.0, t, xp.ones_like(t)) / (1.0 + t)  # sigma(-x)
            softplus = xp.clip(x, 0.0) + xp.log1p(t)
            factor = factor - share * (softplus + y / self._least * below)
        return (xp.sum(s * factor),)

    def refined(self, sums: tuple[Any, ...], n: float) -> GammaLikelihood:
        """Update the shape by the likelihood itself in place of its bound."""
        return replace(self, shape=_best_shape(float(sums[0]) / n)) if self._learns else self

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> GammaDensity:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return GammaDensity(mean + self.offset, variance, self._shape, self._least)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        shape, least, formula = self._shape, self._least, Formula()
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        location, std = mean + float(self.offset), variance.sqrt()
        step = (shape**-0.5 / std).clip(0.01, 0.35)
        nodes, weights = step.normal_grid(6.3)
        ratio = (y.clip(1e-300, 1e300) / least) / ((location + std * nodes).exp() + 1.0)
        log_pdf = shape * ratio.log() - shape * ratio
        constant = shape * np.log(shape) - gammaln(shape)
        above = (location + 0.5 * variance).exp()
        growth = variance.exp()
        square = 1.0 + 2.0 * above + above * above * growth
        return density_form(
            formula,
            mean=least * (1.0 + above),
            model_variance=least**2 * (above * above * (growth - 1.0)),
            noise_variance=(least**2 / shape) * square,
            width=(least * min(shape**-0.5, 1.0)) * (1.0 + above),
            cdf=1.0 - (weights * (shape * ratio).gamma_sf(shape)).sum(),
            pdf=(weights * (log_pdf + float(constant)).exp()).sum()
            * (y.above(0.0) / y.clip(1e-300, 1e300)),
        )

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        return _drawn(f + self.offset, self._shape, self._least, rng)


def _best_shape(factor: float) -> float:
    """Return the shape with the highest bound, given the mean of what the shape multiplies."""
    # the slope falls through zero once: bisection finds it
    low, high = (float(np.log(v)) for v in _SHAPES)
    for _ in range(60):
        middle = 0.5 * (low + high)
        rising = middle + 1.0 - digamma(np.exp(middle)) + factor > 0.0
        low, high = (middle, high) if rising else (low, middle)
    return float(np.exp(0.5 * (low + high)))


class GammaDensity:
    """Gamma with mean least (1 + exp(x)), x ~ N(location, variance)."""

    discrete: ClassVar[bool] = False

    def __init__(
        self, location: np.ndarray, variance: np.ndarray, shape: float, least: float
    ) -> None:
        self.location, self.std, self.shape, self.least = location, np.sqrt(variance), shape, least
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            above = np.exp(location + 0.5 * variance)
            self.mean = least * (1.0 + above)
            self.model_variance = least**2 * above**2 * np.expm1(variance)
            square = 1.0 + 2.0 * above + above**2 * np.exp(variance)
            self.noise_variance = least**2 / shape * square
            # the likelihood of x is as wide as this: the larger the shape, the narrower
            step = float(np.min(shape**-0.5 / self.std, initial=1.0))
        self._grid = normal_grid(6.3, float(np.clip(step, 0.01, 0.35)))

    def _ratios(self, y: np.ndarray) -> Any:
        """Yield y over its mean at each node, and the weight of the node."""
        for z, weight in zip(*self._grid, strict=True):
            with np.errstate(over="ignore"):
                yield y / self.least / (1.0 + np.exp(self.location + self.std * z)), weight

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Return the log density at y."""
        y = np.asarray(y, dtype=float)
        possible = ~(y <= 0.0)
        known = np.where(possible, y, 1.0)
        total = np.full(np.broadcast_shapes(known.shape, self.location.shape), -np.inf)
        for ratio, weight in self._ratios(known):
            part = self.shape * (np.log(ratio) - ratio) + np.log(weight)
            np.logaddexp(total, part, out=total)
        constant = self.shape * np.log(self.shape) - gammaln(self.shape)
        log_density = constant - np.log(known) + total
        return np.where(possible, log_density, -np.inf)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return P(Y <= y)."""
        y = np.maximum(np.asarray(y, dtype=float), 0.0)
        total = np.zeros_like(self.location)
        for ratio, weight in self._ratios(y):
            total += weight * gammainc(self.shape, self.shape * ratio)
        return np.asarray(np.minimum(total, 1.0))

    def sf(self, y: np.ndarray) -> np.ndarray:
        """Return P(Y > y)."""
        y = np.maximum(np.asarray(y, dtype=float), 0.0)
        total = np.zeros_like(self.location)
        for ratio, weight in self._ratios(y):
            total += weight * gammaincc(self.shape, self.shape * ratio)
        return np.asarray(np.minimum(total, 1.0))

    def bracket(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return 0 and a number whose distribution function reaches the level."""
        high = np.minimum(self.mean, 1e300)
        for _ in range(200):
            low = self.cdf(high) < level
            if not np.any(low):
                break
            high = np.where(low, 2.0 * high, high)
        return np.zeros_like(high), high

    def width(self) -> np.ndarray:
        """Return the scale on which the density changes."""
        return np.asarray(self.mean * min(self.shape**-0.5, 1.0))

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Return draws: (n, size)."""
        noise = rng.standard_normal((len(self.location), size))
        x = self.location[:, None] + self.std[:, None] * noise
        return _drawn(x, self.shape, self.least, rng)


def _drawn(x: np.ndarray, shape: float, least: float, rng: np.random.Generator) -> np.ndarray:
    with np.errstate(over="ignore"):
        mean = least * (1.0 + np.exp(x))
    return np.asarray(mean * rng.gamma(shape, 1.0 / shape, x.shape))
