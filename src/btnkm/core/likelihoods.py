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

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from array_api_compat import array_namespace
from scipy.special import digamma, expit, gammaincinv, gammaln

from .densities import (
    Counts,
    Labels,
    NormalMixture,
    Student,
    draw_counts,
    expected_sigmoid,
    noise_variance,
)
from .gamma import Gamma
from .special import (
    LOG_2,
    LOG_2PI,
    LOG_STEP,
    bent,
    check_positive,
    flattened_sigmoid,
    log_gamma,
    mean_and_scale,
    newton_step,
    polya_gamma,
    weighted_quantile,
)

Array = Any
WARM_NOISE = 0.01  # noise variance held in the warm phase, in units of var(y)
_FIRST_DOF, _DOF_RANGE = 4.0, (2.1, 1000.0)  # of degrees of freedom that are learned
_LEAST_DOF = 1.0
_MOST_COUNTS = 1e9  # beyond, the bound is lost in rounding


class Rows(NamedTuple):
    """What a block of rows asks of f, and its share of the sums that ``learn`` wants.

    Attributes
    ----------
    weight, pull : array of shape (n,), or (n, K) where f has K outputs
    sums : tuple of arrays
    """

    weight: Array
    pull: Array
    sums: tuple[Array, ...]


class Begin(NamedTuple):
    """How a fit begins: targets as the engine gets them, y = shift + scale * target.

    Attributes
    ----------
    target : ndarray of shape (n,)
    likelihood : Likelihood
        As the warm phase wants it.
    shift, scale : float
    """

    target: np.ndarray
    likelihood: Likelihood
    shift: float
    scale: float


class Likelihood(Protocol):
    """What the engine needs of a likelihood, and estimators of one for numbers.

    Attributes
    ----------
    fixed : bool
        Whether weights and pulls are the same for every f.
    additive : bool
        Whether the mean of y is f.
    of_labels : bool
        Whether y is a class: BTNClassifier's.
    worth : float
        How much a row says of f, next to a number with Gaussian noise.
    gentle : float
        Power of the smoothness prior in the warm phase where rows are few.
    """

    fixed: ClassVar[bool]
    additive: ClassVar[bool]
    of_labels: ClassVar[bool]
    worth: ClassVar[float]
    gentle: ClassVar[float]

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

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Return targets and likelihood as the warm phase wants them; check y (n,)."""

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Any:
        """Return the distribution of y (see densities.py) for f ~ N(mean, variance), each (n,)."""

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y at every row, for one draw of f: (n,)."""


@runtime_checkable
class Curved(Protocol):
    """A likelihood whose bound is more curved than itself."""

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights E[-l''] and pulls E[l'] + weight E[f], l' = s d log p(y | f) / df."""

    def moved(self, step: Any) -> Any:
        """Return the likelihood with its offset, of every output, moved by a step."""


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
        """Return weight s, pull s y and the sum of s E[(y - f)^2]."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        return Rows(s, s * y, (xp.sum(s * (y * y - 2.0 * y * mean + square)),))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Gaussian:
        """Update q(tau) (eq. 35, with the factor 1/2)."""
        error = max(float(sums[0]), 0.0)  # a sum of squares; rounding alone can take it below zero
        noise = Gamma(prior.shape + 0.5 * n, prior.rate + 0.5 * error)
        return replace(self, noise=noise, error=error)

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Standardise y; the warm phase holds the noise at a hundredth of its variance."""
        mean, scale = mean_and_scale(y, np.ones(len(y)) if weight is None else weight)
        return Begin((y - mean) / scale, replace(self, noise=Gamma(1.0, WARM_NOISE)), mean, scale)

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

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Student:
        """Return the distribution of y for f ~ N(mean, variance)."""
        return Student(mean, variance, self.noise_std**2, 2.0 * self.noise.shape)

    def recalibrated(self, factor: float, dof: float) -> Gaussian:
        """Return it with ``factor`` times the noise variance and at most these degrees of freedom.

        Rows that were held out say so: see ``structures``.
        """
        shape = min(self.noise.shape, 0.5 * dof)
        if shape == self.noise.shape:
            return replace(self, noise=Gamma(shape, self.noise.rate * factor))
        unit = noise_variance(shape, 1.0)
        return replace(self, noise=Gamma(shape, factor * self.noise_std**2 / unit))

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y for one draw of f at every row."""
        precision = rng.gamma(self.noise.shape, 1.0 / self.noise.rate, len(f))
        return np.asarray(f + rng.standard_normal(len(f)) / np.sqrt(precision))


@dataclass(frozen=True)
class StudentT:
    """y = f + e, e ~ Student-t with dof degrees of freedom and scale 1 / sqrt(tau): robust.

    A variable u per row makes it Gaussian: e ~ N(0, 1 / (tau u)), u ~ Gamma(dof / 2, dof / 2), and
    q(u) is Gamma((dof + 1) / 2, (dof + E[tau] E[(y - f)^2]) / 2): a row far off counts for little.

    Parameters
    ----------
    dof : float or None, default=None
        Degrees of freedom. None learns them, from 2.1 (up to 2 there is no standard deviation) to
        1000, beginning at 4.

    Attributes
    ----------
    noise : Gamma
        q(tau).
    sums : tuple of float
        Sums over rows of E[u] E[(y - f)^2], E[log u], E[u] and the entropy of q(u).
    sums_dof : float
        The degrees of freedom of which the sums were made.
    """

    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = True
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 1.0
    gentle: ClassVar[float] = 3.0
    dof: float | None = None
    _learns: bool = field(default=True, kw_only=True, repr=False)  # begin was given no dof
    noise: Gamma = field(default=Gamma(1.0, 1.0), kw_only=True, repr=False)
    sums: tuple[float, ...] = field(default=(np.nan,) * 4, kw_only=True, repr=False)
    sums_dof: float = field(default=np.nan, kw_only=True, repr=False)

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

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Centre y on its median; three in four rows are within 1.15 units of it."""
        dof = _FIRST_DOF if self.dof is None else self.dof
        check_positive("dof", dof)
        if dof < _LEAST_DOF:
            raise ValueError(
                f"dof must be at least {_LEAST_DOF:g}, got {dof!r}; no density is that heavy."
            )
        weight = np.ones(len(y)) if weight is None else weight
        centre = weighted_quantile(y, weight, 0.5)
        scale = weighted_quantile(np.abs(y - centre), weight, 0.75) / 1.15
        scale = scale or mean_and_scale(y, weight)[1]
        begun = replace(self, dof=float(dof), _learns=self.dof is None, noise=Gamma(1.0, 1.0))
        return Begin((y - centre) / scale, begun, centre, scale)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s E[u], pull s E[u] y, and the sums."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        error = xp.clip(y * y - 2.0 * y * mean + square, 0.0)
        assert self.dof is not None
        shape = 0.5 * (self.dof + 1.0)
        rate = 0.5 * (self.dof + self.scale * error)
        u, log_rate = shape / rate, xp.log(rate)
        entropy = shape + float(gammaln(shape)) + (1.0 - shape) * float(digamma(shape)) - log_rate
        parts = [u * error, float(digamma(shape)) - log_rate, u, entropy]
        for dof in self._beside():  # what the bound would be there, with the best q(u)
            rate = 0.5 * (dof + self.scale * error)
            half, shape = 0.5 * dof, 0.5 * (dof + 1.0)
            constant = half * np.log(half) - gammaln(half) + gammaln(shape)
            parts.append(float(constant) - shape * xp.log(rate))
        return Rows(s * u, s * u * y, tuple(xp.sum(s * part) for part in parts))

    def _beside(self) -> tuple[float, ...]:
        """Return degrees of freedom here and to either side, from which ``propose`` steps."""
        if not self._learns:
            return ()
        assert self.dof is not None
        return tuple(self.dof * float(np.exp(step)) for step in (-LOG_STEP, 0.0, LOG_STEP))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> StudentT:
        """Update q(tau), and the degrees of freedom if they are learned."""
        error, log_u, u, entropy = (float(part) for part in sums[:4])
        noise = Gamma(prior.shape + 0.5 * n, prior.rate + 0.5 * error)
        dof = self.dof
        if self._learns:
            # the bound has one maximum in dof, where its slope crosses zero: halve the range
            excess = (u - log_u) / n - 1.0
            low, high = (float(np.log(v)) for v in _DOF_RANGE)
            for _ in range(50):
                middle = 0.5 * (low + high)
                half = 0.5 * float(np.exp(middle))
                rising = np.log(half) - digamma(half) > excess
                low, high = (middle, high) if rising else (low, middle)
            dof = float(np.exp(0.5 * (low + high)))
        sums = error, log_u, u, entropy
        assert self.dof is not None
        return replace(self, dof=dof, noise=noise, sums=sums, sums_dof=self.dof)

    def with_noise(self, variance: float) -> StudentT:
        """Return it with 1 / E[tau] of this size."""
        return replace(self, noise=Gamma(self.noise.shape, self.noise.shape * variance))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return what ``rows`` would, for noise that is held as low as in a Gaussian warm phase."""
        weight, pull, _ = self.rows(y, s, f, f * f)
        factor = max(1.0, 1.0 / (WARM_NOISE * self.scale))
        return factor * weight, factor * pull

    def propose(self, sums: tuple[Any, ...]) -> StudentT:
        """Return longer steps: for tau as if the u had to average 1, for dof Newton's."""
        n = 2.0 * self.noise.shape
        rate = self.noise.rate * n / max(float(sums[2]), np.finfo(float).tiny)
        dof = self.dof
        if self._learns:
            dof = float(np.clip(self.sums_dof * np.exp(newton_step(*sums[4:])), *_DOF_RANGE))
        return replace(self, dof=dof, noise=Gamma(self.noise.shape, rate))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return E log p(y | f, u, tau) - KL(q(u) || p(u)) over rows, and -KL(q(tau) || p(tau))."""
        error, log_u, u, entropy = self.sums
        assert self.dof is not None
        tau, half = self.noise, 0.5 * self.dof
        likelihood = 0.5 * (n * float(tau.log_mean - LOG_2PI) + log_u - float(tau.mean) * error)
        local = n * float(half * np.log(half) - gammaln(half)) + (half - 1.0) * log_u - half * u
        return {"likelihood": likelihood + local + entropy, "noise": -float(tau.kl(prior))}

    def recalibrated(self, factor: float, dof: float) -> StudentT:
        """Return it with ``factor`` times the scale of the noise squared, and at most ``dof``."""
        assert self.dof is not None
        noise = Gamma(self.noise.shape, self.noise.rate * factor)
        return replace(self, dof=min(self.dof, dof), noise=noise)

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> NormalMixture:
        """Return the distribution of y for f ~ N(mean, variance): normals over tau u."""
        assert self.dof is not None
        half, shape, rate = 0.5 * self.dof, float(self.noise.shape), float(self.noise.rate)
        low, high = np.log(gammaincinv(half, [1e-12, 1.0 - 1e-12])).tolist()
        count = int(max(24, np.ceil((high - low) / 0.3)))
        log_u, step = np.linspace(low, high, count + 1), (high - low) / count
        weights = _log_density(log_u, half)
        spread = shape**-0.5  # of log tau, about
        if spread < step / 1.5:  # known well enough: it enters by E[1 / tau]
            log_v = log_u - np.log(noise_variance(shape, rate) * half)
        else:
            ends = np.log(gammaincinv(shape, [1e-12, 1.0 - 1e-12]))
            log_tau = np.arange(ends[0], ends[1] + step, step)
            weights = np.convolve(weights, _log_density(log_tau, shape))
            log_v = log_u[0] + log_tau[0] + step * np.arange(len(weights)) - np.log(half * rate)
        weights = weights / weights.sum()
        return NormalMixture(mean, variance, np.exp(-log_v), weights, self.noise_std**2)

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y for one draw of f at every row."""
        assert self.dof is not None
        precision = rng.gamma(self.noise.shape, 1.0 / self.noise.rate)
        return np.asarray(f + rng.standard_t(self.dof, len(f)) / np.sqrt(precision))


def _log_density(x: np.ndarray, shape: float) -> np.ndarray:
    """Return the density of the logarithm of a Gamma(shape, 1) variable, up to a factor."""
    log_density = shape * x - np.exp(x)
    return np.asarray(np.exp(log_density - log_density.max()))


@dataclass(frozen=True)
class Logistic:
    """What Bernoulli and negative binomial have in common: exp(y x) / (1 + exp(x))^b.

    x is offset + f.

    Its logarithm is (y - b/2) x - b log 2 - b log cosh(x / 2), and log cosh(x / 2) is at most
    log cosh(c / 2) + w (x^2 - c^2) / 2 with w = tanh(c / 2) / (2 c); c^2 = E[x^2] is best. The
    weight b w is the mean of a Polya-Gamma(b, c) variable.

    Attributes
    ----------
    offset : float
        What f departs from. It moves to where the bound is highest: the bound of a row is far more
        curved than the truth where x is far from zero (a rare class, say), and f alone would take
        hundreds of sweeps to find its level.
    value : float
        The bound of the rows, at the best c.
    """

    fixed: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    of_labels: ClassVar[bool] = False
    worth: ClassVar[float] = 0.25
    gentle: ClassVar[float] = 1.5  # more would outweigh rows that say so little
    scale: ClassVar[float] = 1.0
    noise_std: ClassVar[float] = np.nan
    offset: float = field(default=0.0, kw_only=True, repr=False)
    value: float = field(default=np.nan, kw_only=True, repr=False)

    def trials(self, y: Array) -> Array:
        """Return b of each row."""
        return array_namespace(y).ones_like(y)

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return weight s b w, pull s (y - b/2 - b w offset), and the bound of the rows.

        Its slope and curvature in the offset, with c following, are summed as well.
        """
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        b, x = self.trials(y), mean + self.offset
        c2 = xp.clip(square - mean * mean, 0.0) + x * x
        w, log_cosh = polya_gamma(xp.sqrt(c2))
        value = (y - 0.5 * b) * x - b * (LOG_2 + log_cosh)
        slope = y - 0.5 * b - b * w * x
        curvature = b * bent(x, c2, w)
        sums = tuple(xp.sum(s * part) for part in (value, slope, curvature))
        return Rows(s * b * w, s * (y - 0.5 * b - b * w * self.offset), sums)

    def expected(
        self, y: Array, s: Array | None, mean: Array, square: Array
    ) -> tuple[Array, Array]:
        """Return weights s b E[p (1 - p)] and pulls s (y - b E[p] + b E[p (1 - p)] E[f])."""
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s
        b = self.trials(y)
        p, slope = flattened_sigmoid(mean + self.offset, xp.clip(square - mean * mean, 0.0))
        return s * b * slope, s * (y - b * p + b * slope * mean)

    def moved(self, step: Any) -> Self:
        """Return the likelihood with its offset moved by a step."""
        return replace(self, offset=self.offset + float(step))

    def learn(self, sums: tuple[Any, ...], n: float, prior: Gamma) -> Self:
        """Keep the bound of the rows."""
        return replace(self, value=float(sums[0]))

    def newton(self, y: Array, s: Array | None, f: Array) -> tuple[Array, Array]:
        """Return weights between the curvature b p (1 - p) and the bound's b w, and their pulls.

        b w is far above the curvature where the offset alone makes y likely: where a class is rare,
        a random start would outlive the warm phase. So w counts at f, not at offset + f, and in
        proportion to the curvature at f = 0. A surprise has little curvature and a large slope, and
        would be overshot: it keeps all of w, in the measure it is one.
        """
        xp = array_namespace(f)
        s = xp.ones_like(f) if s is None else s
        b, x = self.trials(y), f + self.offset
        p = 0.5 * (1.0 + xp.tanh(0.5 * x))
        at_zero = 1.0 - float(np.tanh(0.5 * self.offset)) ** 2  # 4 p (1 - p) at f = 0
        weight = xp.maximum(b * p * (1.0 - p), polya_gamma(xp.abs(x))[0] * xp.abs(y - b * p))
        weight = xp.maximum(weight, at_zero * b * polya_gamma(xp.abs(f))[0])
        return s * weight, s * (y - b * p + weight * f)

    def propose(self, sums: tuple[Any, ...]) -> Self:
        """Return the offset one step of Newton's method away, at most 2."""
        slope, curvature = float(sums[1]), float(sums[2])
        step = slope / max(curvature, np.finfo(float).tiny)
        return self.moved(np.clip(step, -2.0, 2.0))

    def terms(self, n: float, prior: Gamma) -> dict[str, float]:
        """Return the bound of the rows."""
        return {"likelihood": self.value}


@dataclass(frozen=True)
class Bernoulli(Logistic):
    """y is 1 with probability sigma(offset + f), else 0; b = 1."""

    of_labels: ClassVar[bool] = True

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Take y as it is, and the log odds of all rows together as offset."""
        share = float(np.average(y, weights=weight))
        return Begin(y, replace(self, offset=float(np.log(share) - np.log1p(-share))), 0.0, 1.0)

    def shifted(self, log_weights: np.ndarray) -> Bernoulli:
        """Return the likelihood where class k is exp(log_weights[k]) times as frequent."""
        return self.moved(log_weights[1] - log_weights[0])

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Labels:
        """Return the probabilities of 0 and 1, each to its last digits."""
        x = mean + self.offset
        return Labels(np.array([expected_sigmoid(sign * x, variance) for sign in (-1.0, 1.0)]))

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y for one draw of f at every row."""
        return np.asarray(rng.random(len(f)) < expit(f + self.offset), dtype=float)


@dataclass(frozen=True)
class NegativeBinomial(Logistic):
    """y = 0, 1, 2, ... with mean size exp(offset + f) and variance mean + mean^2 / size.

    p(y | x) = Gamma(y + size) / (Gamma(size) y!) exp(y x) / (1 + exp(x))^b with b = y + size.

    Parameters
    ----------
    size : float or None, default=None
        The smaller, the more the counts scatter. None learns it, from half of what the variance of
        all counts together asks for to ten times their mean, where the variance is a tenth above a
        Poisson distribution's.

    Notes
    -----
    The bound of a row is more curved than the truth where mean and size are far apart, by
    ``(mean + size) / (2 size |log(mean / size)|)`` for large means; the sweeps that settle make up
    for most of it.

    The variance is never below the mean: where counts scatter less than a Poisson distribution,
    intervals are too wide, and "gaussian" may serve better.
    """

    size: float | None = None
    _learns: bool = field(default=True, kw_only=True, repr=False)  # begin was given no size
    # between which a size is learned
    limits: tuple[float, float] = field(default=(0.0, np.inf), kw_only=True, repr=False)

    def begin(self, y: np.ndarray, weight: np.ndarray | None) -> Begin:
        """Take y as it is, and as offset what gives the mean count at f = 0."""
        self.check(y)
        if not np.any(y > 0):
            raise ValueError("y must hold a count above 0, got zeros only; there is no rate in it.")
        if self.size is not None:
            check_positive("size", self.size)
        mean = float(np.average(y, weights=weight))
        excess = float(np.average((y - mean) ** 2, weights=weight)) - mean
        most = 10.0 * max(mean, 1.0)
        overall = min(mean**2 / excess, most) if excess > 0 else most
        size = overall if self.size is None else float(self.size)
        begun = replace(
            self,
            size=size,
            _learns=self.size is None,
            limits=(0.5 * overall, most),
            offset=float(np.log(mean) - np.log(size)),
        )
        return Begin(y, begun, 0.0, 1.0)

    def check(self, y: np.ndarray) -> None:
        """Raise a ValueError for what is no count."""
        if np.any(y < 0) or np.any(y != np.floor(y)):
            wrong = y[(y < 0) | (y != np.floor(y))][0]
            raise ValueError(
                f"y must hold counts (0, 1, 2, ...) for the negative binomial likelihood, got "
                f"{wrong:g}; use another likelihood."
            )
        if np.max(y) > _MOST_COUNTS:
            raise ValueError(
                f"y must hold counts up to {_MOST_COUNTS:g}, got {np.max(y):g}; counts as large as "
                "that are numbers: use another likelihood, for their logarithm perhaps."
            )

    def trials(self, y: Array) -> Array:
        """Return y + size."""
        assert self.size is not None
        return y + self.size

    def rows(self, y: Array, s: Array | None, mean: Array, square: Array) -> Rows:
        """Return what Logistic does, with the constants, and the bound at sizes left and right."""
        here = super().rows(y, s, mean, square)
        xp = array_namespace(mean)
        s = xp.ones_like(mean) if s is None else s

        def constants(size: float) -> Array:
            return xp.sum(s * (log_gamma(y + size) - log_gamma(y + 1.0) - float(gammaln(size))))

        assert self.size is not None
        value = here.sums[0] + constants(self.size)
        beside = []
        if self._learns:
            for other in (self.resized(-LOG_STEP), self.resized(LOG_STEP)):
                assert other.size is not None
                bound = super(NegativeBinomial, other).rows(y, s, mean, square).sums[0]
                beside.append(bound + constants(other.size))
        return Rows(here.weight, here.pull, (value, *here.sums[1:], *beside))

    def resized(self, step: float) -> NegativeBinomial:
        """Return the likelihood with exp(step) times the size, and the same mean at every f."""
        assert self.size is not None
        size = float(np.clip(self.size * np.exp(step), *self.limits))
        return replace(self, size=size, offset=self.offset + float(np.log(self.size / size)))

    def propose(self, sums: tuple[Any, ...]) -> NegativeBinomial:
        """Return offset and size one step of Newton's method away."""
        other = super().propose(sums)
        if not self._learns:
            return other
        return other.resized(newton_step(sums[3], sums[0], sums[4]))

    def predictive(self, mean: np.ndarray, variance: np.ndarray) -> Counts:
        """Return the distribution of y for f ~ N(mean, variance)."""
        assert self.size is not None
        return Counts(mean + self.offset, variance, self.size)

    def draw(self, f: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a draw of y for one draw of f at every row."""
        assert self.size is not None
        return draw_counts(f + self.offset, self.size, rng)


#: Likelihoods of numbers by name.
LIKELIHOODS: dict[str, Any] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "negative_binomial": NegativeBinomial,
}
