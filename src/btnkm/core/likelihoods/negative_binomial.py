"""Counts that vary more than a Poisson distribution allows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import gammaln

from ..densities import Counts, draw_counts
from ..formula import Formula
from ..special import LOG_STEP, check_positive, log_gamma, newton_step
from .base import Array, Begin, Rows, check_counts, count_grid, density_form
from .logistic import Logistic


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
        assert self.size is not None
        return float(self.offset + np.log(self.size))

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Keep y; the offset gives the mean count at f = 0."""
        check_counts(y)
        if self.size is not None:
            check_positive("size", self.size)
        mean = float(np.average(y, weights=weight))
        excess = float(np.average((y - mean) ** 2, weights=weight)) - mean
        most = 10.0 * max(mean, 1.0)
        overall = min(mean**2 / excess, most) if excess > 0 else most
        size = overall if self.size is None else float(self.size)
        warm = replace(
            self,
            size=size,
            _learns=self.size is None,
            limits=(0.5 * overall, most),
            offset=float(np.log(mean) - np.log(size)),
        )
        return Begin(y, warm, 0.0, 1.0)

    def trials(self, y: Array) -> Array:
        """Return y + size."""
        assert self.size is not None
        return y + self.size

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return what Logistic does, with the constants and the ELBO at two nearby sizes."""
        here = super().rows(y, s, mean, square)
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s

        def constants(size: float) -> Array:
            return xp.sum(s * (log_gamma(y + size) - log_gamma(y + 1.0) - float(gammaln(size))))

        assert self.size is not None
        value = here.sums[0] + constants(self.size)
        nearby = []
        if self._learns:
            for other in (self.resized(-LOG_STEP), self.resized(LOG_STEP)):
                assert other.size is not None
                bound = super(NegativeBinomial, other).rows(y, s, mean, square).sums[0]
                nearby.append(bound + constants(other.size))
        return Rows(here.weight, here.response, (value, *here.sums[1:], *nearby))

    def resized(self, step: float) -> NegativeBinomial:
        """Return the likelihood with exp(step) times the size, and the same mean at every f."""
        assert self.size is not None
        size = float(np.clip(self.size * np.exp(step), *self.limits))
        return replace(self, size=size, offset=self.offset + float(np.log(self.size / size)))

    def propose(self, sums: tuple[Any, ...]) -> NegativeBinomial:
        """Return offset and size after one Newton step."""
        other = super().propose(sums)
        if not self._learns:
            return other
        return other.resized(newton_step(sums[3], sums[0], sums[4]))

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Counts:
        """Return the distribution of y for f ~ N(mean, variance)."""
        assert self.size is not None
        return Counts(mean + self.offset, variance, self.size)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        assert self.size is not None
        size, formula = self.size, Formula()
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        location = mean + float(self.offset)
        x, weights = count_grid(location, variance, size)
        constant = (y + size).log_gamma() - float(gammaln(size)) - (y + 1.0).log_gamma()
        log_pdf = constant + y * x.log_sigmoid() + size * (-x).log_sigmoid()
        average, growth = size * (location + 0.5 * variance).exp(), variance.exp()
        cdf = (-x).sigmoid().beta_cdf(size, y.floor() + 1.0, x.sigmoid())
        return density_form(
            formula,
            discrete=True,
            mean=average,
            model_variance=average * average * (growth - 1.0),
            noise_variance=average + average * average * growth / size,
            width=1.0,
            cdf=(weights * cdf).sum(),
            pdf=(weights * log_pdf.exp()).sum(),
        )

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        assert self.size is not None
        return draw_counts(f + self.offset, self.size, rng)
