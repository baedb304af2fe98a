"""Cross-validation of structures: folds, densities, noise, and weights in a mixture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, rel_entr

from ..core.likelihoods import Gaussian, StudentT, VaryingRows, joined, of_rows, of_targets
from ..core.posterior import Predictor
from .mode_map import ModeMap, block_size

Array = np.ndarray
HELD_OUT = 5  # one in so many rows
BY_CHANCE = 0.01  # most equals that a row may have by chance, if equal rows count as copies
MOST_ROWS, MOST_OF_MANY = 4000, 10_000  # rows used; the second if it is a quarter of all rows
WEIGHT_OF_ERROR = 4.0  # of the error of the mean relative to the log density: see stack
TAILS_OF_ERRORS = (np.inf, 12.0, 6.0, 4.0, 3.0, 2.0)  # degrees of freedom
UPDATES_OF_SCALE = 30
# candidates for the factor of the noise variance and for its degrees of freedom; the number of
# extra rows that count in favour of the factor 1
FACTORS, DEGREES = 2.0 ** np.arange(-2.0, 10.01, 0.5), (np.inf, 30.0, 12.0, 6.0, 4.0)
ROWS_OF_NOISE, NATS_OF_TAILS = 20.0, 2.0  # nats that heavier tails must gain
# nominal coverage of the interval that the noise is calibrated for, and the weight of that
LEVEL, ROWS_OF_LEVEL = 0.95, 3.0


def copies(sample: Any) -> Array:
    """Return a number for every row, the same for copies of a row: (n,).

    Rows with the same inputs and target count as copies only if equal rows are unlikely by chance.
    That chance is estimated from the five columns with the fewest repeated values.
    """
    targets = sample.y.reshape(sample.n, -1).T
    columns = [np.asarray(column, dtype=float) for column in (*sample.codes, *targets)]
    rng = np.random.default_rng(0)
    key = np.zeros(sample.n)
    for column in columns:
        key += rng.standard_normal() * np.nan_to_num(column, nan=rng.standard_normal())
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    agree = np.sort([_chance_to_agree(column[first]) for column in columns])
    by_chance = len(first) * np.prod(agree[:5]) > BY_CHANCE
    return np.arange(sample.n) if by_chance or len(first) == sample.n else np.asarray(group)


def _chance_to_agree(column: Array) -> float:
    """Return the probability that two random rows have the same value."""
    _, count = np.unique(column, return_counts=True)
    return float(np.sum((count / len(column)) ** 2))


def folds(
    n: int,
    enough_rows: int,
    rng: np.random.Generator,
    labels: Array | None = None,
    group: Array | None = None,
) -> Iterator[tuple[Array, Array]]:
    """Yield rows to fit and rows to hold out, until ``enough_rows`` have been held out.

    With ``labels`` the folds are stratified; rows of a class too rare to be divided are always
    fitted. Rows of a ``group`` (see ``copies``) are all in one fold: with a copy among the rows
    fitted, the noise of a row held out would look predictable.
    """
    group = np.arange(n) if group is None else group
    size, first = np.bincount(group), np.unique(group, return_index=True)[1]
    chosen = rng.permutation(len(size))
    most = int(np.clip(n // 4, MOST_ROWS, MOST_OF_MANY))
    enough = int(np.searchsorted(np.cumsum(size[chosen]), most, side="right"))
    chosen = chosen[: max(enough, HELD_OUT)]
    always = chosen[:0]
    if labels is not None:
        _, codes, counts = np.unique(labels[first][chosen], return_inverse=True, return_counts=True)
        rare = counts[codes] < HELD_OUT
        always = chosen[rare]
        by_class = chosen[~rare][np.argsort(codes[~rare], kind="stable")]
        chosen = np.concatenate([by_class[k::HELD_OUT] for k in range(HELD_OUT)])
    parts = np.array_split(chosen, HELD_OUT)
    held_out = max(int(size[parts[-1]].sum()), 1)
    for k in range(min(-(-enough_rows // held_out), HELD_OUT)):
        fitted = np.concatenate([*parts[:k], *parts[k + 1 :], always])
        yield np.flatnonzero(np.isin(group, fitted)), np.flatnonzero(np.isin(group, parts[k]))


@dataclass(frozen=True)
class HeldOut:
    """Moments of f at rows held out, by posterior (S, n, ...), and the targets (n,).

    ``weights`` (n,) add up to the number of rows.
    """

    likelihoods: Sequence[Any]
    means: Array
    variances: Array
    y: Array
    weights: Array

    @property
    def residuals(self) -> Array:
        """Errors of the means if the noise is additive, else 0: (S, n)."""
        additive = self.likelihoods[0].additive
        return self.y - self.means if additive else np.zeros(self.means.shape[:2])

    def _predictives(self, noise: tuple[float, float]) -> list[Any]:
        """Return the predictive distributions of the posteriors, with their noise changed."""
        return [
            recalibrated(likelihood, noise).predictive(mean, variance)
            for likelihood, mean, variance in zip(
                self.likelihoods, self.means, self.variances, strict=True
            )
        ]

    def log_densities(self, noise: tuple[float, float] = (1.0, np.inf)) -> Array:
        """Return log densities of the targets by posterior, with the noise changed: (S, n)."""
        # many classes are taken as independent, which is good enough for a comparison
        return np.array([distribution.logpdf(self.y) for distribution in self._predictives(noise)])

    def standardised(self, noise: tuple[float, float]) -> Array:
        """Return errors of the mixture's mean over its standard deviation: (n,)."""
        parts = self._predictives(noise)
        mean = np.mean([part.mean for part in parts], axis=0)
        square = np.mean(
            [part.mean**2 + part.model_variance + part.noise_variance for part in parts], axis=0
        )
        return np.asarray((self.y - mean) / np.sqrt(square - mean**2))

    def inside(self, noise: tuple[float, float]) -> Array:
        """Return which targets lie in the central interval of the even mixture: (n,)."""
        levels = [distribution.cdf(self.y) for distribution in self._predictives(noise)]
        return np.abs(np.mean(levels, axis=0) - 0.5) < 0.5 * LEVEL

    def score(self, noise: tuple[float, float] = (1.0, np.inf)) -> Array:
        """Return log densities of the even mixture of the posteriors: (n,)."""
        logs = self.log_densities(noise)
        return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)))


def held_out(task: Any, mode_map: ModeMap, states: Sequence[Any], rows: Array) -> HeldOut:
    """Return the predictions of posteriors for some rows of the sample."""
    predictors = [Predictor.of(state) for state in states]
    size = block_size([mode_map], states)
    moments, noise = [], []
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        features = mode_map.features(task.sample.codes, block)
        moments.append([predictor.moments(features.__getitem__) for predictor in predictors])
        noise.append([of_rows(state.likelihood, features.__getitem__) for state in states])
    means, variances = (
        np.stack([np.concatenate([block[k][i] for block in moments]) for k in range(len(states))])
        for i in range(2)
    )
    weights = task.sample.weights[rows]
    weights = weights * (len(rows) / weights.sum())
    likelihoods = [joined([block[k] for block in noise]) for k in range(len(states))]
    seen = [of_targets(likelihood, task.sample.y[rows]) for likelihood in likelihoods]
    return HeldOut([each for each, _ in seen], means, variances, seen[0][1], weights)


def recalibrated(likelihood: Any, noise: tuple[float, float]) -> Any:
    """Return a likelihood with the noise that suits the rows held out."""
    if noise == (1.0, np.inf) or not hasattr(likelihood, "recalibrated"):
        return likelihood
    return likelihood.recalibrated(*noise)


def best_noise(folds: Sequence[HeldOut]) -> tuple[float, float]:
    """Return the factor of the noise variance, and the degrees of freedom, with the best score.

    The score includes a penalty if the intervals contain fewer rows than their nominal level. Few
    rows determine the noise badly. So ``ROWS_OF_NOISE`` extra rows count in favour of the factor
    1, and as many as were held out against a smaller noise with the same tails, since a fit rarely
    overestimates its noise.
    """

    def value(noise: tuple[float, float]) -> float:
        score = sum(float(fold.weights @ fold.score(noise)) for fold in folds)
        inside = np.concatenate([fold.weights * fold.inside(noise) for fold in folds])
        rows = ROWS_OF_NOISE + len(inside) * (noise[0] < 1.0 and np.isinf(noise[1]))
        doubt = 0.25 * rows * np.log(noise[0]) ** 2 + NATS_OF_TAILS * np.isfinite(noise[1])
        held = min(float(np.mean(inside)), LEVEL)  # a higher coverage is not penalised
        doubt += (
            ROWS_OF_LEVEL * len(inside) * (rel_entr(held, LEVEL) + rel_entr(1 - held, 1 - LEVEL))
        )
        return float(np.nan_to_num(score, nan=-np.inf, neginf=-1e300)) - float(doubt)

    def climbed(at: int, dof: float) -> tuple[float, int]:
        """Return the best value near a factor, and where it is."""
        best = value((float(FACTORS[at]), dof)), at
        for step in (1, -1):
            while 0 <= best[1] + step < len(FACTORS):
                tried = value((float(FACTORS[best[1] + step]), dof)), best[1] + step
                if tried[0] <= best[0]:
                    break
                best = tried
        return best

    at = int(np.flatnonzero(FACTORS == 1.0)[0])
    candidates = []
    for dof in _degrees([likelihood for fold in folds for likelihood in fold.likelihoods]):
        reached, at = climbed(at, dof)
        candidates.append((reached, (float(FACTORS[at]), dof)))
    return max(candidates, key=lambda pair: pair[0])[1]


def _degrees(likelihoods: Sequence[Any]) -> list[float]:
    """Return degrees of freedom below those of every likelihood, in decreasing order."""
    likelihoods = [part.noise if isinstance(part, VaryingRows) else part for part in likelihoods]
    if all(isinstance(likelihood, StudentT) for likelihood in likelihoods):
        least = max(float(likelihood.dof) for likelihood in likelihoods)
    elif all(isinstance(likelihood, Gaussian) for likelihood in likelihoods):
        least = min(2.0 * float(likelihood.noise.shape) for likelihood in likelihoods)
    else:
        return [np.inf]
    return [dof for dof in DEGREES if np.isinf(dof) or dof < least]


def stack(scores: Array, weight: Array, prior: Array, residuals: Array | None = None) -> Array:
    """Return the weights of candidates in the mixture that predicts rows held out best.

    The loss is the log density of the mixture and, with additive noise, also the error of its
    mean: where the noise varies, a candidate may gain density by fitting the noise and lose
    accuracy. The error counts ``WEIGHT_OF_ERROR`` times, half of it as the log density of a normal
    distribution with that error, half as that of a Student-t distribution with the tails of the
    errors, so that a few outliers do not dominate.

    Parameters
    ----------
    scores : ndarray of shape (candidates, rows)
        Log density of every row by every candidate.
    weight : ndarray of shape (rows,)
        How often each row counts.
    prior : ndarray of shape (candidates,)
        Number of extra rows in favour of each candidate.
    residuals : ndarray of shape (candidates, rows) or None
        Errors of the mean of every candidate.
    """
    density = np.exp(scores - scores.max(axis=0))
    tails = [] if residuals is None else list({np.inf: 0, _tails_of(residuals, weight): 0})

    def loss(logits: Array) -> tuple[float, Array]:
        w = np.exp(logits - logits.max())
        w /= w.sum()
        mixed = w @ density
        value = -float(weight @ np.log(mixed)) - float(prior @ np.log(np.maximum(w, 1e-300)))
        slope = -(density / mixed) @ weight - prior / np.maximum(w, 1e-300)
        for dof in tails:
            missed, slopes = _misfit(w @ residuals, weight, dof)
            value += WEIGHT_OF_ERROR / len(tails) * missed
            slope += WEIGHT_OF_ERROR / len(tails) * (residuals @ slopes)
        return value, w * (slope - w @ slope)

    optimum = minimize(loss, np.zeros(len(scores)), jac=True, method="L-BFGS-B")
    w = np.exp(optimum.x - optimum.x.max()) * np.any(np.isfinite(scores), axis=1)
    return np.asarray(w / w.sum())


def _misfit(errors: Array, weight: Array, dof: float) -> tuple[float, Array]:
    """Return minus the log density of errors, up to constants, and its gradient.

    The density is that of a Student-t distribution with the maximum likelihood scale.
    """
    square = errors**2
    scale = max(float(np.average(square, weights=weight)), 1e-300)
    if np.isinf(dof):
        return 0.5 * float(weight.sum()) * np.log(scale), weight * errors / scale
    for _ in range(UPDATES_OF_SCALE):
        bulk = (dof + 1.0) / (dof + square / scale)
        scale = max(float(np.average(bulk * square, weights=weight)), 1e-300)
    far = float(weight @ np.log1p(square / (dof * scale)))
    value = 0.5 * float(weight.sum()) * np.log(scale) + 0.5 * (dof + 1.0) * far
    return value, weight * (dof + 1.0) / (dof + square / scale) * errors / scale


def _tails_of(residuals: Array, weight: Array) -> float:
    """Return the degrees of freedom with the highest likelihood of the errors of any candidate."""

    def nats(dof: float) -> float:
        least = min(_misfit(errors, weight, dof)[0] for errors in residuals)
        if np.isinf(dof):
            return -least - float(weight.sum()) * 0.5 * (1.0 + np.log(2.0 * np.pi))
        constant = gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof) - 0.5 * np.log(np.pi * dof)
        return float(weight.sum() * constant) - least - NATS_OF_TAILS

    return max(TAILS_OF_ERRORS, key=nats)


def mean_and_error(values: Array, share: Array) -> tuple[float, float]:
    """Return a weighted mean over rows, and its standard error."""
    mean = float(values @ share)
    return mean, float(np.sqrt(share**2 @ (values - mean) ** 2))
