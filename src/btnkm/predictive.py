"""The predictive distribution of y: a mixture over restarts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtr
from sklearn.utils import check_random_state

from .checks import check_integer
from .core.densities import Averaged, Density, central_variance, survival
from .core.likelihoods import Transformed
from .core.recalibration import FARTHEST, normal_score

Array = np.ndarray
#: Normal scores up to which 1 - F(y) has digits where a density has no ``sf``.
SATURATED = 7.0


class PredictiveDistribution:
    """Distribution of y at n points: a mixture over S restarts.

    Attributes
    ----------
    mean : ndarray of shape (n,)
        Mean of y.
    std : ndarray of shape (n,)
        Standard deviation of y: model and noise together.
    model_std : ndarray of shape (n,)
        Uncertainty of f: the posterior spread of each restart and the spread between restarts, in
        units of y.
    noise_std : ndarray of shape (n,)
        Standard deviation of the noise.
    discrete : bool
        Whether y is a count. Quantiles and draws are then integers, and ``pdf`` and ``logpdf``
        return the probability of a count and its logarithm.
    """

    def __init__(
        self,
        parts: Sequence[Density],
        shift: float = 0.0,
        scale: float = 1.0,
        weights: Array | None = None,
    ) -> None:
        """Mix the restarts' distributions of (y - shift) / scale, with equal weights by default."""
        self._parts, self._shift, self._scale = list(parts), shift, scale
        self._weights = np.full(len(parts), 1.0 / len(parts)) if weights is None else weights
        self.discrete = self._parts[0].discrete
        self._set_moments()

    def _set_moments(self) -> None:
        """Set the moments of y."""
        parts, shift, scale = self._parts, self._shift, self._scale
        means = np.array([part.mean for part in parts])
        center = self._mixed(means)
        self.mean = shift + scale * center
        with np.errstate(over="ignore", invalid="ignore"):
            between = self._mixed((means - center) ** 2)
            spread = self._mixed([part.model_variance for part in parts]) + between
            noise = self._mixed([part.noise_variance for part in parts])
            spread = np.where(np.isnan(spread), np.inf, spread)  # where means overflow
            self.model_std = scale * np.sqrt(spread)
            self.noise_std = scale * np.sqrt(noise)
            self.std = scale * np.sqrt(spread + noise)

    def __repr__(self) -> str:
        """Return the number of points and their kind."""
        kind = "counts" if self.discrete else "numbers"
        count = f"{len(self._parts)} restart{'' if len(self._parts) == 1 else 's'}"
        return f"PredictiveDistribution of {kind} at {len(self)} points, {count}"

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self._parts[0].mean)

    def logpdf(self, y: Any) -> Array:
        """Return the log density at y, the log probability for counts: (n,) -> (n,)."""
        y = self._standardised(y)
        parts = [part.logpdf(y) for part in self._parts]
        log_scale = 0.0 if self.discrete else np.log(self._scale)
        return np.asarray(logsumexp(parts, axis=0, b=self._weights[:, None]) - log_scale)

    def _mixed(self, parts: Any) -> Array:
        """Return the weighted mean over restarts: (S, n) -> (n,)."""
        return np.asarray(np.einsum("s,s...->...", self._weights, np.asarray(parts)))

    def _standardised(self, y: Any) -> Array:
        y = np.asarray(y, dtype=float)
        if y.ndim > 1 or (y.ndim == 1 and len(y) != len(self)):
            raise ValueError(
                f"y must be a number or have shape ({len(self)},), one value per point, got shape "
                f"{y.shape}; evaluate other values in separate calls."
            )
        return np.asarray((y - self._shift) / self._scale)

    def pdf(self, y: Any) -> Array:
        """Return the density at y, the probability for counts: (n,) -> (n,)."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: Any) -> Array:
        """Return P(Y <= y): (n,) -> (n,)."""
        return self._cdf(self._standardised(y))

    def _cdf(self, y: Array) -> Array:
        return self._mixed([part.cdf(y) for part in self._parts])

    def quantile(self, q: Any) -> Array:
        """Return quantiles: a number gives (n,), k levels give (n, k)."""
        levels = _probabilities("q", q)
        if levels.ndim > 1:
            raise ValueError(
                f"q must be a number or a list of numbers, got shape {levels.shape}; "
                "use for example [0.025, 0.975]."
            )
        if levels.ndim == 0:
            return self._quantile(float(levels))
        out = np.empty((len(self), len(levels)))
        for k, level in enumerate(levels.tolist()):
            out[:, k] = self._quantile(level)
        return out

    def _quantile(self, level: float) -> Array:
        """Invert the mixture's distribution function by Newton steps where these converge fast.

        Elsewhere the bracket is halved, which also finds narrow components that are far apart.
        """
        ends = [part.bracket(level) for part in self._parts]
        low = np.min([end for end, _ in ends], axis=0)
        high = np.max([end for _, end in ends], axis=0)
        if self.discrete:
            return self._integer_quantile(level, low, high)
        x = self._mixed([0.5 * (a + b) for a, b in ends])
        last = high - low
        narrowest = np.min([part.width() for part in self._parts], axis=0)
        for _ in range(200):
            excess = self._cdf(x) - level
            low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                density = self._mixed([np.exp(part.logpdf(x)) for part in self._parts])
                newton = x - excess / density
            fast = (newton > low) & (newton < high) & (np.abs(newton - x) < 0.5 * last)
            step = np.where(fast, newton, low + 0.5 * (high - low))
            last = np.abs(step - x)
            x = step
            if np.all(last <= 1e-10 * narrowest + 4.0 * np.finfo(float).eps * np.abs(x)):
                break
        return np.asarray(self._shift + self._scale * x)

    def normal_scores(self, y: Any) -> tuple[Array, Array]:
        """Return the normal scores ndtri(p) of P(Y < y) and P(Y <= y): (n,) -> (n,) each.

        For numbers both are the same array.
        """
        y = self._standardised(y)
        at = self._score(y)
        return (self._score(np.ceil(y) - 1.0), at) if self.discrete else (at, at)

    def _score(self, y: Array) -> Array:
        above = self._mixed([survival(part, y) for part in self._parts])
        return normal_score(self._cdf(y), above)

    @property
    def farthest(self) -> float:
        """Normal scores beyond which the distribution is not known."""
        return FARTHEST if all(hasattr(part, "sf") for part in self._parts) else SATURATED

    def at_scores(self, scores: Array) -> Array:
        """Return y whose P(Y <= y) have these normal scores: (n,) -> (n,).

        This is ``quantile`` for a level of its own for every point, precise in both tails.
        """
        scores = np.clip(scores, -FARTHEST, self.farthest)
        level = ndtr(scores)
        ends = [part.bracket(np.clip(level, 1e-12, 1.0 - 1e-12)) for part in self._parts]
        low = np.min([end for end, _ in ends], axis=0)
        high = np.max([end for _, end in ends], axis=0)
        if self.discrete:
            return self._counts_at_scores(scores, low, high)
        pairs = zip(self._parts, ends, strict=True)
        x = self._mixed([np.clip(p.mean + scores * p.width(), *within) for p, within in pairs])
        low, high = self._widened(scores, low, high)
        last = high - low
        narrowest = np.min([part.width() for part in self._parts], axis=0)
        for _ in range(200):
            reached = self._score(x)
            low, high = np.where(reached < scores, x, low), np.where(reached < scores, high, x)
            logs = logsumexp([p.logpdf(x) for p in self._parts], 0, self._weights[:, None])
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                slope = np.sqrt(2.0 * np.pi) * np.exp(logs + 0.5 * reached**2)
                newton = x - (reached - scores) / slope
            away = np.abs(newton - x)
            near = away <= 1e-10 * narrowest + 4.0 * np.finfo(float).eps * np.abs(x)
            if np.all(near):
                break
            fast = (newton > low) & (newton < high) & (away < 0.5 * last)
            step = np.where(near, x, np.where(fast, newton, low + 0.5 * (high - low)))
            last, x = np.where(near, last, np.abs(step - x)), step
        return np.asarray(self._shift + self._scale * x)

    def _counts_at_scores(self, scores: Array, low: Array, high: Array) -> Array:
        """Return the smallest counts that reach these scores, by halving a bracket."""
        for _ in range(60):
            short = self._score(high) < scores
            if not np.any(short):
                break
            high = np.where(short, 2.0 * high, high)
        while True:
            middle = np.floor(0.5 * (low + high))
            if np.all((middle <= low) | (middle >= high)):
                return high
            reached = self._score(middle) >= scores
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)

    def _widened(self, scores: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Return brackets of y with these scores, given some that do not reach far enough."""
        step = np.max([part.width() for part in self._parts], axis=0)
        low, high = low - step, high + step  # which may be the quantile itself, but for rounding
        for _ in range(100):
            above, below = self._score(low) > scores, self._score(high) < scores
            if not np.any(above | below):
                break
            low, high = np.where(above, low - step, low), np.where(below, high + step, high)
            step = 2.0 * step
        return low, high

    def _integer_quantile(self, level: float, low: Array, high: Array) -> Array:
        """Return the smallest count whose distribution function reaches the level, by halving."""
        while True:
            middle = np.floor(0.5 * (low + high))
            if np.all((middle <= low) | (middle >= high)):  # beyond 2^53 floats skip integers
                break
            reached = self._cdf(middle) >= level
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high

    def interval(self, level: float = 0.95) -> Array:
        """Return the central interval that contains y with probability ``level``: (n, 2)."""
        return self.quantile(check_level(level))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Return draws of y, independent between points: (n, n_samples)."""
        check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
        restart = rng.choice(len(self._parts), size=(len(self), n_samples), p=self._weights)
        out = np.empty((len(self), n_samples))
        for k, part in enumerate(self._parts):
            chosen = restart == k
            out[chosen] = part.draw(rng, n_samples)[chosen]
        return self._shift + self._scale * out


class TransformedDistribution(PredictiveDistribution):
    """Distribution of y where the restarts have that of a function of y.

    Attributes are those of ``PredictiveDistribution``. For mean and standard deviations of y, the
    function of y has a normal distribution in each restart; see ``likelihoods.LogNormal``.
    """

    def __init__(self, transformation: Transformed, *args: Any) -> None:
        """Mix the distributions of (h(y) - shift) / scale, h being the transformation."""
        self._transformation = transformation
        super().__init__(*args)

    def _set_moments(self) -> None:
        """Leave the moments to be computed when they are asked for."""

    @cached_property
    def _unit(self) -> tuple[Array, Array]:
        """The unit of the moments in each row, and what is to be subtracted from h(y)."""
        center = self._mixed([part.mean for part in self._parts])
        return self._transformation.size_at(self._shift + self._scale * center)

    def _of_part(self, part: Density, shift: Array, *, of_model: bool) -> tuple[Array, Array]:
        """Return mean and variance of y in a restart, or what f has of the variance: (n,) each."""
        if isinstance(part, Averaged):
            copied = np.tile(shift[part.rows], len(part.copies.mean) // len(part.rows))
            alone = self._of_part(part.density, shift, of_model=of_model)
            copies = self._of_part(part.copies, copied, of_model=of_model)
            return part.mixed_moments((*alone, alone[1]), (*copies, copies[1]))[:2]
        mean, factor = self._shift + self._scale * part.mean - shift, self._scale**2
        spread, noise = factor * part.model_variance, factor * central_variance(part)
        moments = self._transformation.moments(mean, spread + noise)
        if not of_model:
            return moments
        return moments[0], self._transformation.model_variance(mean, spread, noise)

    def _of_parts(self, *, of_model: bool) -> tuple[Array, Array]:
        """Return the same of all restarts, in units of each row: (S, n) each."""
        shift = self._unit[1]
        both = [self._of_part(part, shift, of_model=of_model) for part in self._parts]
        return np.array([mean for mean, _ in both]), np.array([part for _, part in both])

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of y in each restart: (S, n) each."""
        return self._of_parts(of_model=False)

    @cached_property
    def _model_variances(self) -> Array:
        """What f has of the variance in each restart, which takes long: (S, n)."""
        return self._of_parts(of_model=True)[1]

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        """Mean of y."""
        with np.errstate(over="ignore"):
            return np.asarray(self._unit[0] * self._mixed(self._moments[0]))

    @cached_property
    def std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y."""
        return self._std(self._moments[1], between=True)

    @cached_property
    def model_std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y that uncertainty of f causes."""
        return self._std(self._model_variances, between=True)

    @cached_property
    def noise_std(self) -> Array:  # type: ignore[override]
        """Standard deviation of y that the noise causes."""
        variances = self._moments[1]
        with np.errstate(invalid="ignore"):
            noise = np.maximum(variances - self._model_variances, 0.0)
            return self._std(noise, between=False)

    def _std(self, variances: Array, *, between: bool) -> Array:
        """Return the root of the mean variance of the restarts, or of that of their mixture."""
        means = self._moments[0]
        with np.errstate(over="ignore", invalid="ignore"):
            away = (means - self._mixed(means)) ** 2 if between else 0.0
            total = self._mixed(variances + away)
            # where means overflow
            return self._unit[0] * np.sqrt(np.where(np.isnan(total), np.inf, total))

    def _standardised(self, y: Any) -> Array:
        y = np.asarray(y, dtype=float)
        return super()._standardised(self._transformation.forward(y))

    def logpdf(self, y: Any) -> Array:
        """Return the log density at y, -inf where y is impossible: (n,) -> (n,)."""
        y = np.asarray(y, dtype=float)
        low, high = self._transformation.support
        possible = ~((y <= low) | (y >= high))
        inside = np.where(possible, y, float(self._transformation.inverse(np.array(0.0))))
        log_density = super().logpdf(inside) + self._transformation.log_slope(inside)
        return np.where(possible, log_density, -np.inf)

    def at_scores(self, scores: Array) -> Array:
        """Return y whose P(Y <= y) have these normal scores: (n,) -> (n,)."""
        return self._transformation.inverse(super().at_scores(scores))

    def _quantile(self, level: float) -> Array:
        return self._transformation.inverse(super()._quantile(level))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Return draws of y, independent between points: (n, n_samples)."""
        return self._transformation.inverse(super().sample(n_samples, random_state))


def mixed_variance(weights: Array, means: Array, variances: Array) -> Array:
    """Return the variance of a mixture of S parts, from their moments: (S, ...) -> (...)."""
    center = np.tensordot(weights, means, 1)
    return np.asarray(np.tensordot(weights, variances + (means - center) ** 2, 1))


def weighted_quantiles(values: Array, weights: Array, levels: Sequence[float]) -> Array:
    """Return quantiles over the first axis, interpolated at the middle of each weight: (k, ...)."""
    order = np.argsort(values, axis=0)
    ranked = np.take_along_axis(values, order, axis=0)
    reached = np.cumsum(weights[order], axis=0) - 0.5 * weights[order]
    quantiles = []
    for level in levels:
        above = np.clip(np.sum(reached < level, axis=0), 1, len(values) - 1)[None]
        low, high = (np.take_along_axis(reached, k, axis=0) for k in (above - 1, above))
        a, b = (np.take_along_axis(ranked, k, axis=0) for k in (above - 1, above))
        fraction = np.clip((level - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
        quantiles.append((a + fraction * (b - a))[0])
    return np.array(quantiles)


def check_level(level: Any) -> list[float]:
    """Return the quantile levels at the ends of a central interval; check ``level``."""
    half = 0.5 * _probabilities("level", level)
    if half.ndim:
        raise ValueError(f"level must be one number, got {level!r}; use for example 0.95.")
    return [0.5 - float(half), 0.5 + float(half)]


def _probabilities(name: str, value: Any) -> Array:
    """Return numbers as floats; raise a ValueError unless all are between 0 and 1."""
    try:
        levels = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        levels = np.array(np.nan)
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(
            f"{name} must lie strictly between 0 and 1, got {value!r}; use for example 0.95."
        )
    return levels
