"""Diagnostics: calibration, residuals and the history of the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, spearmanr
from sklearn.utils import check_random_state

from ..core.arrays import here
from ..data.readers import with_targets
from .fitted import FittedModel, PlainData

Array = np.ndarray
LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
_BINS = 10


@dataclass(frozen=True)
class Calibration(PlainData):
    """Calibration of predictive distributions, on rows with known y.

    Attributes
    ----------
    n : int
        Rows.
    pit : ndarray of shape (n,)
        P(Y <= y) of every row; for counts a random number between P(Y < y) and P(Y <= y). It is
        uniformly distributed where the distributions are right.
    histogram : ndarray of shape (10,)
        The fraction of the rows in each tenth of ``pit``.
    levels, coverage : ndarray
        Levels of central intervals, and the fractions of the rows that these contain.
    low, high : ndarray
        The range of ``coverage`` in nine of ten cases, if the intervals are right.
    log_density : float
        Mean log density of y.
    """

    n: int
    pit: Array
    histogram: Array
    levels: Array
    coverage: Array
    low: Array
    high: Array
    log_density: float


@dataclass(frozen=True)
class Reliability(PlainData):
    """Whether classes are as frequent as their predicted probabilities.

    Attributes
    ----------
    n : int
        Rows.
    classes : list
    predicted, observed : list of ndarray
        For every class (with two classes, the second): the mean probability in groups of rows
        with similar probabilities, and the frequency of the class in these groups.
    low, high : list of ndarray
        The range of ``observed`` in nine of ten cases, if the probabilities are right.
    counts : list of ndarray
    log_loss, brier, accuracy : float
    """

    n: int
    classes: list[Any]
    predicted: list[Array]
    observed: list[Array]
    low: list[Array]
    high: list[Array]
    counts: list[Array]
    log_loss: float
    brier: float
    accuracy: float


@dataclass(frozen=True)
class Residuals(PlainData):
    """The difference between y and its prediction.

    Attributes
    ----------
    fitted, std, residual : ndarray of shape (n,)
        Mean and standard deviation of y, and y less the mean.
    score : ndarray of shape (n,)
        The quantile of a standard normal at ``pit``.
    rmse, bias : float
        Root of the mean squared residual, and the mean residual.
    worst : ndarray of int
        The ten rows whose score is furthest from zero.
    by_input : dict
        For every numeric input, its rank correlation with the size of the score. It is far from
        zero where the noise varies with the input.
    """

    fitted: Array
    std: Array
    residual: Array
    score: Array
    rmse: float
    bias: float
    worst: Array
    by_input: dict[Any, float]


@dataclass(frozen=True)
class Search(PlainData):
    """A part of a restart in which the ELBO can only rise.

    A new one begins where the rank has grown, where all rows follow a sample of them, and where a
    full tensor tries other hyperparameters.

    Attributes
    ----------
    sweep : ndarray of int
        The numbers of its sweeps, from 1, that have an ELBO.
    elbo : ndarray of the same shape
    """

    sweep: Array
    elbo: Array


@dataclass(frozen=True)
class History(PlainData):
    """The course of a fit. Lists have one entry per restart.

    Attributes
    ----------
    phases : list of list of str
        "warm", "annealing", "exact" or "newton", for every sweep.
    elbo : list of ndarray
        The lower bound on the evidence after every sweep, NaN before the exact phase.
    searches : list of list of Search
        The same, divided where a new search begins.
    ranks : list of ndarray
        The number of components, or the mean over the bonds of a tensor train.
    noise : list of ndarray
        Standard deviation of the noise.
    best : int
        The position of the restart with the highest ELBO.
    converged : bool
    reason : str
        Why the fit ended.
    """

    phases: list[list[str]]
    elbo: list[Array]
    searches: list[list[Search]]
    ranks: list[Array]
    noise: list[Array]
    best: int
    converged: bool
    reason: str


def calibration(model: Any, X: Any, y: Any, *, random_state: Any = 0) -> Calibration | Reliability:
    """Return how well predicted probabilities match observations, on rows the fit has not seen.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X : table of shape (n, inputs)
    y : array of shape (n,), or the name of a column of X
    random_state : int, RandomState or None, default=0
        For counts, where ``pit`` is random.

    Returns
    -------
    Calibration, or Reliability of a classifier
    """
    X, y = checked_rows(model, X, y)
    if hasattr(model, "classes_"):
        return reliability_of(model.classes_, here(model.predict_proba(X)), y)
    return calibration_of(model.predict_dist(X), y, random_state)


def calibration_of(distribution: Any, y: Array, random_state: Any = 0) -> Calibration:
    """Return the calibration of predictive distributions of y (n,)."""
    pit = _pit(distribution, y, random_state)
    distance = np.abs(2.0 * pit - 1.0)
    coverage = np.array([np.mean(distance <= level) for level in LEVELS])
    histogram = np.histogram(pit, _BINS, (0.0, 1.0))[0] / len(y)
    low, high = _likely(LEVELS, len(y))
    log_density = float(np.mean(distribution.logpdf(y)))
    return Calibration(len(y), pit, histogram, LEVELS, coverage, low, high, log_density)


def reliability_of(classes: Array, probability: Array, y: Array) -> Reliability:
    """Return the reliability of the probabilities (n, K) of classes, given y (n,)."""
    code = np.searchsorted(classes, y)
    unknown = (code >= len(classes)) | (classes[np.minimum(code, len(classes) - 1)] != y)
    if np.any(unknown):
        raise ValueError(
            f"y must contain classes of the fit only, {classes.tolist()[:10]}, got "
            f"{y[unknown].tolist()[0]!r}; remove such rows."
        )
    shown = [1] if len(classes) == 2 else list(range(len(classes)))
    curves: dict[str, list[Array]] = {
        name: [] for name in ("predicted", "observed", "low", "high", "counts")
    }
    for k in shown:
        p = probability[:, k]
        edges = np.unique(np.quantile(p, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
        bins = np.searchsorted(edges, p, side="right")
        _, place = np.unique(bins, return_inverse=True)
        counts = np.bincount(place)
        predicted = np.bincount(place, p) / counts
        low, high = _likely(predicted, counts)
        values = predicted, np.bincount(place, code == k) / counts, low, high, counts
        for name, value in zip(curves, values, strict=True):
            curves[name].append(value)
    of_truth = probability[np.arange(len(y)), code]
    truth = np.eye(len(classes))[code]
    return Reliability(
        n=len(y),
        classes=[classes[k] for k in shown],
        **curves,
        log_loss=float(-np.mean(np.log(of_truth))),
        brier=float(np.mean(np.sum((probability - truth) ** 2, axis=1))),
        accuracy=float(np.mean(np.argmax(probability, axis=1) == code)),
    )


def residuals(model: Any, X: Any, y: Any, *, random_state: Any = 0) -> Residuals:
    """Return the residuals of a regression, and where they differ from the predictive distribution.

    Parameters
    ----------
    model : BTNRegressor, fitted
    X : table of shape (n, inputs)
    y : array of shape (n,), or the name of a column of X
    random_state : int, RandomState or None, default=0
        As in ``calibration``.
    """
    if hasattr(model, "classes_"):
        raise TypeError(
            "model must be a regressor to have residuals, got a classifier; use calibration."
        )
    X, y = checked_rows(model, X, y)
    distribution = model.predict_dist(X)
    pit = np.clip(_pit(distribution, y, random_state), 1e-12, 1.0 - 1e-12)
    score = ndtri(pit)
    residual = y - distribution.mean
    view = FittedModel.of(model)
    columns = view.encode(X)
    by_input = {}
    for j in view.active:
        codes = columns[j]
        known = np.isfinite(codes)
        if view.kind(j) != "category" and known.sum() > 2:
            by_input[view.names[j]] = _rank_correlation(codes[known], np.abs(score[known]))
    return Residuals(
        distribution.mean,
        distribution.std,
        residual,
        score,
        float(np.sqrt(np.mean(residual**2))),
        float(np.mean(residual)),
        np.argsort(-np.abs(score))[:10],
        by_input,
    )


def history(model: Any) -> History:
    """Return the ELBO, the rank and the noise of every restart, sweep by sweep.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    """
    FittedModel.of(model)
    restarts: dict[int, list[dict[str, Any]]] = {}
    for entry in model.history_:
        restarts.setdefault(entry["restart"], []).append(entry)
    runs = list(restarts.values())
    is_best = [run[-1]["elbo"] == model.lower_bound_ for run in runs]  # it may have been left out

    def each(name: str) -> list[Array]:
        return [np.array([entry.get(name, np.nan) for entry in run], dtype=float) for run in runs]

    return History(
        [[entry["phase"] for entry in run] for run in runs],
        each("elbo"),
        [_searches(run) for run in runs],
        [np.array([np.mean(entry["rank"]) for entry in run]) for run in runs],
        each("noise_std"),
        is_best.index(True) if any(is_best) else 0,
        bool(model.converged_),
        model.stop_reason_,
    )


def _searches(run: list[dict[str, Any]]) -> list[Search]:
    """Return the searches of one restart."""
    parts: dict[Any, list[tuple[int, float]]] = {}
    for sweep, entry in enumerate(run, 1):
        if np.isfinite(entry["elbo"]):
            key = entry.get("stage"), entry.get("rows")
            parts.setdefault(key, []).append((sweep, float(entry["elbo"])))
    return [
        Search(*(np.array(column) for column in zip(*part, strict=True))) for part in parts.values()
    ]


def checked_rows(model: Any, X: Any, y: Any) -> tuple[Any, Array]:
    """Return rows and their targets, in memory; raise an error if they do not suit the model."""
    view = FittedModel.of(model)
    X, y, _ = with_targets(X, y, None)
    X, y = here(X), view.check_y(here(y))
    n = view.coordinates(X)[view.active[0]].shape[0]
    if n != len(y):
        raise ValueError(f"y must have one value for each of {n} rows, got {len(y)}; check both.")
    return X, y


def _pit(distribution: Any, y: Array, random_state: Any) -> Array:
    after = distribution.cdf(y)
    if not distribution.discrete:
        return np.asarray(after)
    before = distribution.cdf(y - 1.0)
    return np.asarray(
        before + check_random_state(random_state).uniform(size=len(y)) * (after - before)
    )


def _likely(probability: Array, n: Any) -> tuple[Array, Array]:
    """Return the range of nine in ten observed frequencies, given the true probability."""
    hits = probability * n
    return beta.ppf(0.05, hits + 0.5, n - hits + 0.5), beta.ppf(0.95, hits + 0.5, n - hits + 0.5)


def _rank_correlation(a: Array, b: Array) -> float:
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a, b).statistic)
