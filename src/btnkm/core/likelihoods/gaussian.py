"""Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ..densities import Student, noise_variance
from ..formula import Formula
from ..gamma import LOG_2PI, Gamma
from .base import WARM_NOISE, Array, Begin, Rows, density_form, mean_and_scale


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

    title: ClassVar[str] = "Gaussian"
    learned: ClassVar[tuple[str, ...]] = ()
    file_fields: ClassVar[dict[str, str]] = {"noise": "gamma", "error": "float"}
    fixed: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    noise: Gamma = field(default=Gamma(1.0, WARM_NOISE), repr=False)
    error: float = field(default=np.nan, repr=False)

    @property
    def scale(self) -> float:
        """E[tau]."""
        return float(self.noise.mean)

    @property
    def noise_std(self) -> float:
        """Square root of E[1 / tau]."""
        return float(np.sqrt(noise_variance(self.noise.shape, self.noise.rate)))

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s, response s y and the sum of s E[(y - f)^2]."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        return Rows(s, s * y, (xp.sum(s * (y * y - 2.0 * y * mean + square)),))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Gaussian:
        """Update q(tau) (eq. 35, with the factor 1/2)."""
        error = max(float(sums[0]), 0.0)  # rounding can take a sum of squares below zero
        noise = Gamma(prior.shape + 0.5 * n, prior.rate + 0.5 * error)
        return replace(self, noise=noise, error=error)

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Standardise y and hold the noise at a hundredth of its variance."""
        mean, scale = mean_and_scale(y, np.ones(len(y)) if weight is None else weight)
        return Begin((y - mean) / scale, replace(self, noise=Gamma(1.0, WARM_NOISE)), mean, scale)

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return s and s y."""
        s = array_namespace(f).ones_like(f) if s is None else s
        return s, s * y

    def propose(self, sums: tuple[Any, ...]) -> None:
        """Return None: ``learn`` has found the best q(tau)."""

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return E log p(y | f, tau) and -KL(q(tau) || p(tau))."""
        tau = self.noise
        return {
            "likelihood": 0.5 * n * float(tau.log_mean - LOG_2PI)
            - 0.5 * float(tau.mean) * self.error,
            "noise": -float(tau.kl(prior)),
        }

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Student:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return Student(mean, variance, self.noise_std**2, 2.0 * self.noise.shape)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        formula, noise, dof = Formula(), self.noise_std**2, 2.0 * float(self.noise.shape)
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        scale = ((variance + noise) * (max(dof - 2.0, 0.5 * dof) / dof)).sqrt()
        t = (y - mean) / scale
        return density_form(
            formula,
            mean=mean,
            model_variance=variance,
            noise_variance=noise,
            width=scale,
            cdf=t.student_cdf(dof),
            pdf=t.student_log_pdf(dof).exp() / scale,
        )

    def recalibrated(self, factor: float, dof: float) -> Gaussian:
        """Return a copy with ``factor`` times the noise variance and at most ``dof``.

        Both are estimated from held-out rows; see ``structures``.
        """
        shape = min(self.noise.shape, 0.5 * dof)
        if shape == self.noise.shape:
            return replace(self, noise=Gamma(shape, self.noise.rate * factor))
        unit = noise_variance(shape, 1.0)
        return replace(self, noise=Gamma(shape, factor * self.noise_std**2 / unit))

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        precision = rng.gamma(self.noise.shape, 1.0 / self.noise.rate, len(f))
        return np.asarray(f + rng.standard_normal(len(f)) / np.sqrt(precision))
