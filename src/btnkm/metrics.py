"""Scores of a predictive distribution, the same for every method."""

import numpy as np
from scipy.special import ndtri

COVERAGE_LEVELS = (0.50, 0.90, 0.95)
CRPS_LEVELS = np.arange(1, 100) / 100
SMALLEST_PROBABILITY = 1e-15
CONFIDENCE_BINS = 10


class GaussianPredictive:
    """A normal distribution per row.

    Parameters
    ----------
    mean : array-like of shape (n,)
    std : float or array-like of shape (n,)
    """

    def __init__(self, mean, std):
        self.mean = np.asarray(mean, dtype=float)
        self.std = np.broadcast_to(np.asarray(std, dtype=float), self.mean.shape)

    def logpdf(self, y):
        """Return the log density at `y`, shape (n,)."""
        z = (y - self.mean) / self.std
        return -0.5 * z**2 - np.log(self.std) - 0.5 * np.log(2 * np.pi)

    def quantile(self, q):
        """Return the quantile at the single level `q`, shape (n,)."""
        return self.mean + self.std * ndtri(q)


class ClassPredictive:
    """A probability per row and class.

    Parameters
    ----------
    classes : array-like of shape (K,)
        The labels.
    probabilities : array-like of shape (n, K)
        In the order of `classes`.
    """

    def __init__(self, classes, probabilities):
        self.classes = np.asarray(classes)
        self.probabilities = np.asarray(probabilities, dtype=float)


def crps_from_quantiles(quantile, y):
    """Average twice the pinball loss over 99 evenly spaced levels and over the rows.

    Parameters
    ----------
    quantile : callable
        Takes one level in (0, 1), returns shape (n,).
    y : ndarray of shape (n,)

    Returns
    -------
    crps : float

    Notes
    -----
    The continuous ranked probability score is the integral of twice the pinball loss over
    all levels. The sum used here ignores the outermost half percent on either side. Closed
    forms exist for some distributions; none is used, so that methods compare.
    """
    total = 0.0
    for level in CRPS_LEVELS:
        gap = y - np.asarray(quantile(float(level)))
        total += 2 * np.mean(np.maximum(level * gap, (level - 1) * gap))
    return float(total / len(CRPS_LEVELS))


def row_scores(predictive, y):
    """Return what `score` averages over the rows, by name: arrays (n,); rmse is not yet a root."""
    scores = {
        "rmse": (np.asarray(predictive.mean) - y) ** 2,
        "nll": -np.asarray(predictive.logpdf(y)),
    }
    for level in COVERAGE_LEVELS:
        if hasattr(predictive, "interval"):  # whose ends may be others if it is recalibrated
            low, high = np.asarray(predictive.interval(level)).T
        else:
            low = np.asarray(predictive.quantile((1 - level) / 2))
            high = np.asarray(predictive.quantile((1 + level) / 2))
        scores[f"coverage_{level * 100:.0f}"] = (low <= y) & (y <= high)
    return scores


def score(predictive, y):
    """Score a predictive distribution against what was observed.

    Parameters
    ----------
    predictive : object
        Has `mean` (n,), `logpdf(y)` and `quantile(level)`, both giving (n,).
    y : ndarray of shape (n,)

    Returns
    -------
    metrics : dict of str to float
        rmse, nll (mean negative log density), coverage_50, coverage_90, coverage_95 and
        crps, in the units of `y`.
    """
    mean = np.asarray(predictive.mean)
    if mean.shape != y.shape:
        raise ValueError(
            f"the predictive mean must have the shape of y, {y.shape}, got {mean.shape}; "
            "return one distribution per row."
        )
    metrics = {name: float(np.mean(rows)) for name, rows in row_scores(predictive, y).items()}
    metrics["rmse"] = float(np.sqrt(metrics["rmse"]))
    metrics["crps"] = crps_from_quantiles(predictive.quantile, y)
    return metrics


def calibration_error(confidence, correct):
    """Return how far confidence and accuracy lie apart, averaged over bins of the confidence.

    Parameters
    ----------
    confidence : ndarray of shape (n,)
        Probability of the predicted class, the most probable one.
    correct : ndarray of bool, shape (n,)
        Whether that class is the true one.

    Returns
    -------
    ece : float
        Expected calibration error: the mean of |accuracy - mean confidence| over ten bins
        of equal width, each weighted with its share of the rows. A bin holds its lower
        end; the last one holds 1 as well.
    """
    bins = np.minimum((confidence * CONFIDENCE_BINS).astype(int), CONFIDENCE_BINS - 1)
    # The count of a bin cancels between its weight and its two means.
    gaps = np.bincount(bins, weights=correct - confidence)
    return float(np.sum(np.abs(gaps)) / len(confidence))


def score_classes(predictive, y):
    """Score class probabilities against the classes that were observed.

    Parameters
    ----------
    predictive : object
        Has `classes` (K,) and `probabilities` (n, K).
    y : ndarray of shape (n,)
        Labels, all among `classes`.

    Returns
    -------
    metrics : dict of str to float
        error (share of rows whose most probable class is wrong), nll (mean negative log
        probability of the true class, with probabilities below 1e-15 taken for 1e-15),
        brier and ece (see `calibration_error`).

    Notes
    -----
    brier is the sum over classes of the squared difference between the probability and
    what was observed, 0 or 1, averaged over the rows: between 0 and 2. With two classes it
    is the usual score of the second one alone, half as large: between 0 and 1.
    """
    classes, probabilities = predictive.classes, predictive.probabilities
    if probabilities.shape != (len(y), len(classes)):
        raise ValueError(
            f"the probabilities must have the shape (rows, classes), {(len(y), len(classes))}, "
            f"got {probabilities.shape}; return one probability per row and class."
        )
    observed = y[:, np.newaxis] == classes
    strangers = np.unique(y[~observed.any(axis=1)])
    if len(strangers):
        raise ValueError(
            f"the labels of y must be among the classes of the prediction, {classes.tolist()}, "
            f"got {strangers.tolist()}; train with rows of every class."
        )
    correct = observed[np.arange(len(y)), np.argmax(probabilities, axis=1)]
    brier = np.mean(np.sum((probabilities - observed) ** 2, axis=1))
    return {
        "error": float(np.mean(~correct)),
        "nll": float(-np.mean(np.log(np.maximum(probabilities[observed], SMALLEST_PROBABILITY)))),
        "brier": float(brier / 2 if len(classes) == 2 else brier),
        "ece": calibration_error(np.max(probabilities, axis=1), correct),
    }
