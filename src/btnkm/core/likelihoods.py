"""Likelihoods: what y says of f, in a form that keeps every update closed.

With a local variable per row where one is needed, log p(y_n | f_n) is bounded from below by a
quadratic in f_n,

    scale * (pull_n f_n - weight_n f_n^2 / 2) + terms without f,

so that an update of W sees a weighted linear model whatever the likelihood. ``rows`` gives weights
and pulls at their best for the moments of f, and what adds up over rows; ``learn`` takes the sums
and returns the likelihood with its own parameters updated; ``propose`` may name other parameters,
which are taken if the bound is higher with them; ``terms`` are its part of the bound. A new
likelihood is one class with these. Sample weights s_n multiply all that a row says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from array_api_compat import array_namespace

from .gamma import Gamma

Array = Any
LOG_2, LOG_2PI = float(np.log(2.0)), float(np.log(2.0 * np.pi))


class Rows(NamedTuple):
    """What a block of rows asks of f, and its share of the sums that ``learn`` wants."""

    weight: Array  # (n,)
    pull: Array  # (n,)
    sums: tuple[Array, ...]


class Likelihood(Protocol):
    """What the engine needs of a likelihood."""

    fixed: ClassVar[bool]  # whether weights and pulls are the same for every f
    worth: ClassVar[float]  # the largest weight of a row, which tells how much it can say
    gentle: ClassVar[float]  # power of the smoothness prior in the warm phase where rows are few

    @property
    def scale(self) -> float:
        """The factor before weights and pulls, common to all rows."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of additive noise; NaN where there is none."""

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weights, pulls and sums for targets y, sample weights s, E[f] and E[f^2]: (n,)."""

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Self:
        """Return the likelihood after the rows' sums; ``n`` adds up s, ``prior`` is the noise's."""

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights and pulls for a warm phase, where speed counts and no bound is kept."""

    def propose(self, sums: tuple[Any, ...]) -> Self | None:
        """Return the likelihood with parameters that may be better, or None."""

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return its terms of the bound by name."""


@dataclass(frozen=True)
class Gaussian:
    """y = f + e, e ~ N(0, 1 / tau), with q(tau) a Gamma distribution.

    Attributes
    ----------
    noise : Gamma
        q(tau).
    error : float
        sum_n s_n E[(y_n - f_n)^2].
    """

    fixed: ClassVar[bool] = True
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    noise: Gamma
    error: float = np.nan

    @property
    def scale(self) -> float:
        """E[tau]."""
        return float(self.noise.mean)

    @property
    def noise_std(self) -> float:
        """1 / sqrt(E[tau])."""
        return float(1.0 / np.sqrt(self.noise.mean))

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s, pull s y and the sum of s E[(y - f)^2]."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        return Rows(s, s * y, (xp.sum(s * (y * y - 2.0 * y * mean + square)),))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Gaussian:
        """Update q(tau) (eq. 35, with the factor 1/2)."""
        error = max(float(sums[0]), 0.0)  # a sum of squares; rounding alone can take it below zero
        return Gaussian(Gamma(prior.shape + 0.5 * n, prior.rate + 0.5 * error), error)

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return s and s y: least squares is Newton's method."""
        s = array_namespace(f).ones_like(f) if s is None else s
        return s, s * y

    def propose(self, sums: tuple[Any, ...]) -> None:
        """Return nothing: q(tau) is at its best."""

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return E log p(y | f, tau) and -KL(q(tau) || p(tau))."""
        tau = self.noise
        return {
            "likelihood": 0.5 * n * float(tau.log_mean - LOG_2PI)
            - 0.5 * float(tau.mean) * self.error,
            "noise": -float(tau.kl(prior)),
        }


@dataclass(frozen=True)
class Bernoulli:
    """y is 1 with probability sigma(offset + f), else 0, with a Polya-Gamma variable per row.

    log p(y | x) = (y - 1/2) x - log 2 - log cosh(x / 2), and log cosh(x / 2) is at most
    log cosh(c / 2) + w (x^2 - c^2) / 2 with w = tanh(c / 2) / (2 c); c^2 = E[x^2] is best.

    Attributes
    ----------
    offset : float
        What f departs from, to begin with the log odds of all rows together. It moves to where the
        bound is highest: the bound of a row is far more curved than the truth where a class is
        rare, and f alone would take hundreds of sweeps to find its level.
    value : float
        The bound of the rows, at the best c.
    """

    fixed: ClassVar[bool] = False
    worth: ClassVar[float] = 0.25
    gentle: ClassVar[float] = 1.5  # more would outweigh rows that say so little
    offset: float = 0.0
    value: float = np.nan

    scale: ClassVar[float] = 1.0
    noise_std: ClassVar[float] = np.nan

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s w, pull s (y - 1/2 - w offset), and the bound of the rows.

        Its slope and curvature in the offset, with c following, are summed as well.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        x = mean + self.offset
        c2 = xp.clip(square - mean * mean, 0.0) + x * x
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        value = (y - 0.5) * x - LOG_2 - log_cosh
        slope = y - 0.5 - w * x
        known = x * x / xp.where(c2 > 0.0, c2, xp.ones_like(c2))  # 1 where f has no variance
        curvature = w * (1.0 - known) + known * (0.25 - w * w * c2)
        sums = tuple(xp.sum(s * part) for part in (value, slope, curvature))
        return Rows(s * w, s * (y - 0.5 - w * self.offset), sums)

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Bernoulli:
        """Keep the bound of the rows."""
        return replace(self, value=float(sums[0]))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights between the curvature p (1 - p) and the bound's w, and their pulls.

        w is far above the curvature where the offset alone makes y likely: where a class is rare, a
        random start would outlive the warm phase. So w counts at f, not at offset + f, and in
        proportion to the curvature at f = 0. A surprise has little curvature and a large slope, and
        would be overshot: it keeps all of w, in the measure it is one.
        """
        xp = array_namespace(f)
        s = xp.ones_like(f) if s is None else s
        x = f + self.offset
        p = 0.5 * (1.0 + xp.tanh(0.5 * x))
        at_zero = 1.0 - np.tanh(0.5 * self.offset) ** 2  # 4 p (1 - p) at f = 0
        weight = xp.maximum(p * (1.0 - p), polya_gamma(xp.abs(x))[0] * xp.abs(y - p))
        weight = xp.maximum(weight, at_zero * polya_gamma(xp.abs(f))[0])
        return s * weight, s * (y - p + weight * f)

    def propose(self, sums: tuple[Any, ...]) -> Bernoulli | None:
        """Return the offset one step of Newton's method away, at most 2."""
        _, slope, curvature = (float(part) for part in sums)
        step = slope / max(curvature, np.finfo(float).tiny)
        return replace(self, offset=self.offset + float(np.clip(step, -2.0, 2.0)))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return the bound of the rows."""
        return {"likelihood": self.value}


def polya_gamma(c: Array) -> tuple[Array, Array]:
    """Return E[w] of a Polya-Gamma(1, c) variable, tanh(c / 2) / (2 c), and log cosh(c / 2)."""
    xp = array_namespace(c)
    small = c < 1e-4  # where the quotient loses its digits the series has them all
    safe = xp.where(small, xp.ones_like(c), c)
    weight = xp.where(small, 0.25 - c * c / 48.0, xp.tanh(0.5 * safe) / (2.0 * safe))
    return weight, 0.5 * c + xp.log1p(xp.exp(-c)) - LOG_2
