"""Student-t noise, robust to outliers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from scipy.special import digamma, gammaincinv, gammaln, ndtri, stdtrit

from ..densities import NormalMixture, noise_variance
from ..formula import Formula
from ..gamma import LOG_2PI, Gamma
from .base import (
    LOG_STEP,
    WARM_NOISE,
    Array,
    Begin,
    Rows,
    check_positive,
    density_form,
    mean_and_scale,
    newton_step,
    weighted_quantile,
)

_FIRST_DOF, _DOF_RANGE = 4.0, (2.1, 1000.0)  # of degrees of freedom that are learned
_LEAST_DOF = 1.0


@dataclass(frozen=True)
class StudentT:
    """y = f + e, where e is Student-t with dof degrees of freedom and scale 1 / sqrt(tau).

    Given one variable u per row, e is Gaussian: e ~ N(0, 1 / (tau u)), u ~ Gamma(dof / 2, dof / 2).
    q(u) is Gamma((dof + 1) / 2, (dof + E[tau] E[(y - f)^2]) / 2), so outliers get small weights.

    Parameters
    ----------
    dof : float or None, default=None
        Degrees of freedom. None learns them, between 2.1 (with 2 or fewer the variance is infinite)
        and 1000, starting at 4.

    Attributes
    ----------
    noise : Gamma
        q(tau).
    sums : tuple of float
        Sums over rows of E[u] E[(y - f)^2], E[log u], E[u] and the entropy of q(u).
    sums_dof : float
        The degrees of freedom for which the sums were computed.
    """

    title: ClassVar[str] = "Student-t"
    task: ClassVar[str] = "robust regression"
    learned: ClassVar[tuple[str, ...]] = ("dof",)
    file_fields: ClassVar[dict[str, str]] = {
        "dof": "positive",
        "_learns": "flag",
        "noise": "gamma",
        "sums": "floats",
        "sums_dof": "float",
    }
    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    dof: float | None = None
    _learns: bool = field(default=True, kw_only=True, repr=False)  # dof was None when the fit began
    noise: Gamma = field(default=Gamma(1.0, 1.0), kw_only=True, repr=False)
    sums: tuple[float, ...] = field(default=(np.nan,) * 4, kw_only=True, repr=False)
    sums_dof: float = field(default=np.nan, kw_only=True, repr=False)

    @property
    def _dof(self) -> float:
        assert self.dof is not None
        return self.dof

    @property
    def scale(self) -> float:
        """E[tau]."""
        return float(self.noise.mean)

    @property
    def noise_std(self) -> float:
        """Standard deviation of e; infinite where dof are 2 or fewer."""
        if self.dof is None:
            return np.nan
        if self.dof <= 2.0:
            return np.inf
        variance = noise_variance(self.noise.shape, self.noise.rate)
        return float(np.sqrt(self.dof / (self.dof - 2.0) * variance))

    @property
    def central_variance(self) -> float:
        """Variance of normal noise with the same central 95% as e."""
        ratio = float(stdtrit(self._dof, 0.975) / ndtri(0.975))
        return ratio**2 * noise_variance(self.noise.shape, self.noise.rate)

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Centre y on its median; scale it so that three in four rows are within 1.15 of it."""
        dof = _FIRST_DOF if self.dof is None else self.dof
        check_positive("dof", dof)
        if dof < _LEAST_DOF:
            raise ValueError(
                f"dof must be at least {_LEAST_DOF:g}, got {dof!r}; pass None to learn it."
            )
        weight = np.ones(len(y)) if weight is None else weight
        centre = weighted_quantile(y, weight, 0.5)
        scale = weighted_quantile(np.abs(y - centre), weight, 0.75) / 1.15
        scale = scale or mean_and_scale(y, weight)[1]
        warm = replace(self, dof=float(dof), _learns=self.dof is None, noise=Gamma(1.0, 1.0))
        return Begin((y - centre) / scale, warm, centre, scale)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s E[u], response s E[u] y, and the sums."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        error = xp.clip(y * y - 2.0 * y * mean + square, 0.0)
        shape = 0.5 * (self._dof + 1.0)
        rate = 0.5 * (self._dof + self.scale * error)
        u, log_rate = shape / rate, xp.log(rate)
        entropy = shape + float(gammaln(shape)) + (1.0 - shape) * float(digamma(shape)) - log_rate
        parts = [u * error, float(digamma(shape)) - log_rate, u, entropy]
        for dof in self._nearby_dofs():  # the ELBO there, with the best q(u)
            rate = 0.5 * (dof + self.scale * error)
            half, shape = 0.5 * dof, 0.5 * (dof + 1.0)
            constant = half * np.log(half) - gammaln(half) + gammaln(shape)
            parts.append(float(constant) - shape * xp.log(rate))
        return Rows(s * u, s * u * y, tuple(xp.sum(s * part) for part in parts))

    def _nearby_dofs(self) -> tuple[float, ...]:
        """Return dof and a value on either side, between which ``propose`` interpolates."""
        if not self._learns:
            return ()
        return tuple(self._dof * float(np.exp(step)) for step in (-LOG_STEP, 0.0, LOG_STEP))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> StudentT:
        """Update q(tau), and the degrees of freedom if they are learned."""
        error, log_u, u, entropy = (float(part) for part in sums[:4])
        noise = Gamma(prior.shape + 0.5 * n, prior.rate + 0.5 * error)
        dof = self.dof
        if self._learns:
            # the ELBO has one maximum in dof, where its slope is zero: bisection finds it
            excess = (u - log_u) / n - 1.0
            low, high = (float(np.log(v)) for v in _DOF_RANGE)
            for _ in range(50):
                middle = 0.5 * (low + high)
                half = 0.5 * float(np.exp(middle))
                rising = np.log(half) - digamma(half) > excess
                low, high = (middle, high) if rising else (low, middle)
            dof = float(np.exp(0.5 * (low + high)))
        sums = error, log_u, u, entropy
        return replace(self, dof=dof, noise=noise, sums=sums, sums_dof=self._dof)

    def with_noise(self, variance: float) -> StudentT:
        """Return a copy with 1 / E[tau] equal to ``variance``."""
        return replace(self, noise=Gamma(self.noise.shape, self.noise.shape * variance))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return what ``rows`` returns, with noise as low as in the Gaussian's warm phase."""
        weight, response, _ = self.rows(y, s, f, f * f)
        factor = max(1.0, 1.0 / (WARM_NOISE * self.scale))
        return factor * weight, factor * response

    def propose(self, sums: tuple[Any, ...]) -> StudentT:
        """Return a longer step in tau, as if the mean of u were 1, and a Newton step in dof."""
        n = 2.0 * self.noise.shape
        rate = self.noise.rate * n / max(float(sums[2]), np.finfo(float).tiny)
        dof = self.dof
        if self._learns:
            dof = float(np.clip(self.sums_dof * np.exp(newton_step(*sums[4:])), *_DOF_RANGE))
        return replace(self, dof=dof, noise=Gamma(self.noise.shape, rate))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return E log p(y | f, u, tau) - KL(q(u) || p(u)) over rows, and -KL(q(tau) || p(tau))."""
        error, log_u, u, entropy = self.sums
        tau, half = self.noise, 0.5 * self._dof
        likelihood = 0.5 * (n * float(tau.log_mean - LOG_2PI) + log_u - float(tau.mean) * error)
        local = n * float(half * np.log(half) - gammaln(half)) + (half - 1.0) * log_u - half * u
        return {"likelihood": likelihood + local + entropy, "noise": -float(tau.kl(prior))}

    def recalibrated(self, factor: float, dof: float) -> StudentT:
        """Return a copy with ``factor`` times the squared noise scale and at most ``dof``."""
        noise = Gamma(self.noise.shape, self.noise.rate * factor)
        return replace(self, dof=min(self._dof, dof), noise=noise)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> NormalMixture:
        """Return the distribution of y for f ~ N(mean, variance), a mixture over tau u."""
        half, shape, rate = 0.5 * self._dof, float(self.noise.shape), float(self.noise.rate)
        low, high = np.log(gammaincinv(half, [1e-12, 1.0 - 1e-12])).tolist()
        count = int(max(24, np.ceil((high - low) / 0.3)))
        log_u, step = np.linspace(low, high, count + 1), (high - low) / count
        weights = _log_density(log_u, half)
        spread = shape**-0.5  # of log tau, about
        if spread < step / 1.5:  # tau is known well enough to use E[1 / tau]
            log_v = log_u - np.log(noise_variance(shape, rate) * half)
        else:
            ends = np.log(gammaincinv(shape, [1e-12, 1.0 - 1e-12]))
            log_tau = np.arange(ends[0], ends[1] + step, step)
            weights = np.convolve(weights, _log_density(log_tau, shape))
            log_v = log_u[0] + log_tau[0] + step * np.arange(len(weights)) - np.log(half * rate)
        weights = weights / weights.sum()
        noise = np.exp(-log_v), weights, self.noise_std**2, self.central_variance
        return NormalMixture(mean, variance, *noise)

    def portable(self) -> dict[str, Any]:
        """Return the distribution of y as plain data."""
        mixture, formula = self.predictive(np.zeros(1), np.zeros(1)), Formula()
        used = mixture.weights > 0.0
        noise, weights = mixture.noise[used], mixture.weights[used]
        mean, variance, y = map(formula.input, ("mean", "variance", "y"))
        scales = (variance + noise).sqrt()
        z = (y - mean) / scales
        return density_form(
            formula,
            mean=mean,
            model_variance=variance,
            noise_variance=self.noise_std**2,
            central_variance=self.central_variance,
            width=(variance + float(noise.min())).sqrt(),
            cdf=(weights * z.normal_cdf()).sum(),
            pdf=((weights / np.sqrt(2.0 * np.pi)) * (z * z * -0.5).exp() / scales).sum(),
        )

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one draw of y for each f."""
        precision = rng.gamma(self.noise.shape, 1.0 / self.noise.rate)
        return np.asarray(f + rng.standard_t(self._dof, len(f)) / np.sqrt(precision))


def _log_density(x: np.ndarray, shape: float) -> np.ndarray:
    """Return the density of the logarithm of a Gamma(shape, 1) variable, up to a factor."""
    log_density = shape * x - np.exp(x)
    return np.asarray(np.exp(log_density - log_density.max()))
