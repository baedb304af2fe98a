"""Counts with more zeros than a negative binomial has: some rows are always zero."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
from array_api_compat import array_namespace
from scipy.special import expit, gammaln

from ..densities import Counts, ZeroInflated
from ..gamma import Gamma
from .base import LOG_2, LOG_STEP, Array, Begin, Rows, density_form, polya_gamma, quadrature
from .counts import NegativeBinomial, log_gamma
from .logistic import Logistic

#: Where the ELBO is computed, in steps of LOG_STEP: see ``_at``. First to either side of each
#: parameter, then of pairs.
_PAIRS = ((0, 1), (0, 2), (1, 2))
_NEARBY = (
    *(-np.eye(3)).tolist(),
    *np.eye(3).tolist(),
    *(np.eye(3)[[i, j]].sum(axis=0).tolist() for i, j in _PAIRS),
)
_ATTEMPTS, _FLAT = 4, 1e-6
_FIRST = 0.5  # of the zeros, that are structural at first
_LEAST = 1e-6  # probability of a structural zero, and of none
_LEAST_CURVATURE = 0.1  # of that without structural zeros, where a mixture is hardly curved


@dataclass(frozen=True)
class ZeroInflatedNegativeBinomial(NegativeBinomial):
    """y is 0 with probability ``zero``, and otherwise negative binomial.

    Parameters
    ----------
    size : float or None, default=None
        As for ``NegativeBinomial``: of the counts that are not structural zeros.
    zero : float or None, default=None
        Probability of a structural zero, the same in all rows. None learns it.

    Notes
    -----
    A zero is structural with probability r, which is known given f, and weighs 1 - r for f. With
    the log probability l of a zero under the negative binomial, the bound of its row is
    log(zero + (1 - zero) exp(l)), and so r = zero / (zero + (1 - zero) exp(l)).
    """

    title: ClassVar[str] = "zero-inflated negative binomial"
    unit: ClassVar[str] = "log of the mean of {} where it is not a structural zero"
    learned: ClassVar[tuple[str, ...]] = ("size", "zero")
    several_attempts: ClassVar[bool] = True
    file_fields: ClassVar[dict[str, str]] = {
        **NegativeBinomial.file_fields,
        "zero": "positive",
        "_learns_zero": "flag",
    }
    zero: float | None = None
    _learns_zero: bool = field(default=True, kw_only=True, repr=False)  # zero was None at first

    @property
    def _zero(self) -> float:
        assert self.zero is not None
        return self.zero

    def begin(
        self, y: np.ndarray, weight: np.ndarray | None, exposure: np.ndarray | None = None
    ) -> Begin:
        """Keep y; offset, size and zero give mean, variance and zeros of all counts at f = 0."""
        if self.zero is not None and not 0.0 < self.zero < 1.0:
            raise ValueError(
                f"zero must be between 0 and 1, got {self.zero!r}; leave it out to learn it."
            )
        begun = super().begin(y, weight, exposure)
        warm: Any = begun.likelihood
        zero = self.zero
        if zero is None:
            zero = max(_FIRST * float(np.average(y == 0, weights=weight)), _LEAST)
        # the counts that are left vary less, and have a larger mean
        size = warm.size
        if self.size is None:
            size = float(np.clip(size * (1.0 - zero) / (1.0 - zero / (1.0 + zero)), *warm.limits))
        offset = warm.offset + float(np.log(warm.size / size)) - float(np.log1p(-zero))
        warm = replace(warm, size=size, offset=offset, zero=zero, _learns_zero=self.zero is None)
        return begun._replace(likelihood=warm)

    def _structural(self, y: Array, log_zero: Array) -> Array:
        """Return the probability that a row is a structural zero, given l of a zero."""
        xp = array_namespace(log_zero)
        odds = float(np.log(self._zero) - np.log1p(-self._zero)) - log_zero
        return xp.where(y == 0, 0.5 * (1.0 + xp.tanh(0.5 * odds)), xp.zeros_like(log_zero))

    def _log_zero(self, mean: Array, square: Array) -> Array:
        """Return the bound of E[log p(0 | f)] under the negative binomial."""
        xp = array_namespace(mean)
        x = mean + self.offset
        _, log_cosh = polya_gamma(xp.sqrt(xp.clip(square - mean * mean, 0.0) + x * x))
        return -self._size * (0.5 * x + LOG_2 + log_cosh)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return what the negative binomial does for rows that are not structural zeros.

        The other sums are that of the probabilities of structural zeros, and the ELBO at nearby
        sizes and probabilities: see ``_NEARBY``.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        r = self._structural(y, self._log_zero(mean, square))
        weight, response, sums = Logistic.rows(self, y, s * (1.0 - r), mean, square)
        nearby = [self._at(*steps)._value(y, s, mean, square) for steps in ((0, 0, 0), *_NEARBY)]
        return Rows(weight, response, (nearby[0], *sums[1:], xp.sum(s * r), *nearby[1:]))

    def _value(self, y: Array, s: Array, mean: Array, square: Array) -> Array:
        """Return the sum of the bounds of the rows."""
        xp = array_namespace(mean)
        x = mean + self.offset
        _, log_cosh = polya_gamma(xp.sqrt(xp.clip(square - mean * mean, 0.0) + x * x))
        _, value = self._bound(y, x, log_cosh)
        value = value + log_gamma(y + self._size) - log_gamma(y + 1.0) - float(gammaln(self._size))
        value = value + float(np.log1p(-self._zero))
        zero = float(np.log(self._zero))
        either = xp.clip(value, zero) + xp.log1p(xp.exp(-xp.abs(value - zero)))
        return xp.sum(s * xp.where(y == 0, either, value))

    def _at(self, size: float, zero: float, offset: float) -> Self:
        """Return the likelihood with parameters moved by so many steps of LOG_STEP.

        These are log size and the log odds of a structural zero, if they are learned, with the same
        mean of all counts; and the offset.
        """
        moved: Any = self.resized(size * LOG_STEP) if self._learns else self
        moved = moved.moved(offset * LOG_STEP)
        if not self._learns_zero:
            return cast(Self, moved)
        odds = float(np.log(self._zero) - np.log1p(-self._zero)) + zero * LOG_STEP
        p = float(np.clip(expit(odds), _LEAST, 1.0 - _LEAST))
        offset = moved.offset + float(np.log1p(-self._zero) - np.log1p(-p))
        return cast(Self, replace(moved, offset=offset, zero=p))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Self:
        """Store the sum of the bounds; zero is the mean probability of structural zeros."""
        known = super().learn(sums, n, prior)
        if not self._learns_zero:
            return known
        zero = float(np.clip(float(sums[3]) / n, _LEAST, 1.0 - _LEAST))
        return replace(known, zero=zero)

    def propose(self, sums: tuple[Any, ...], attempt: int = 0) -> Any:
        """Return offset, size and zero after a Newton step, or after a part of it.

        Updates of one at a time would take hundreds of sweeps: size and zero both explain zeros.
        """
        if attempt == _ATTEMPTS:
            return None
        at, *nearby = (float(part) for part in (sums[0], *sums[4:]))
        below, above, across = np.array(nearby[:3]), np.array(nearby[3:6]), nearby[6:]
        gradient = 0.5 * (above - below)
        hessian = np.diag(above + below - 2.0 * at)
        for (i, j), both in zip(_PAIRS, across, strict=True):
            hessian[i, j] = hessian[j, i] = both - above[i] - above[j] + at
        values, vectors = np.linalg.eigh(hessian)
        slopes = vectors.T @ gradient
        known = np.abs(values) > _FLAT * np.max(np.abs(values))  # what is not learned is flat
        step = vectors @ np.where(known, slopes / np.where(known, np.abs(values), 1.0), 0.0)
        step *= 0.25**attempt / max(float(np.max(np.abs(step))) * LOG_STEP, 1.0)
        return self._at(*step.tolist())

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return those of the negative binomial for rows that are not structural zeros."""
        xp = array_namespace(f)
        s = xp.ones_like(f) if s is None else s
        return super().newton(y, s * (1.0 - self._structural(y, self._log_zero(f, f * f))), f)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights E[-l''] and responses E[l'] + weight E[f], by quadrature.

        The logarithm of a mixture may be convex, so weights have a lower limit.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        slope, weight, least = (xp.zeros_like(mean) for _ in range(3))
        b, size = self.trials(y), self._size
        for share, f in quadrature(mean, square):
            p = 0.5 * (1.0 + xp.tanh(0.5 * (f + self.offset)))
            r = self._structural(y, self._log_zero(f, f * f))
            own = (1.0 - r) * b * p * (1.0 - p)
            slope = slope + share * (1.0 - r) * (y - b * p)
            weight = weight + share * (own - r * (1.0 - r) * (size * p) ** 2)
            least = least + share * _LEAST_CURVATURE * own
        weight = xp.where(weight > least, weight, least)
        return s * weight, s * (slope + weight * mean)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Any:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return ZeroInflated(Counts(mean + self.offset, variance, self._size), self._zero)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        formula, parts = self._portable()
        zero, some = self._zero, 1.0 - self._zero
        mean, model = parts["mean"], parts["model_variance"]
        y = parts.pop("y")
        return density_form(
            formula,
            discrete=True,
            mean=some * mean,
            model_variance=some**2 * model,
            noise_variance=some * (parts["noise_variance"] + zero * (mean * mean + model)),
            width=1.0,
            cdf=zero + some * parts["cdf"],
            pdf=zero * (1.0 - y).clip(0.0, 1.0) + some * parts["pdf"],
        )

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        drawn = super().draw(f, rng)
        return np.where(rng.random(len(f)) < self._zero, 0.0, drawn)
