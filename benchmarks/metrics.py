"""Scores of a predictive distribution, the same for every method."""

import numpy as np
from scipy.special import ndtri

COVERAGE_LEVELS = (0.50, 0.90, 0.95)
CRPS_LEVELS = np.arange(1, 100) / 100


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
    metrics = {
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "nll": float(-np.mean(np.asarray(predictive.logpdf(y)))),
    }
    for level in COVERAGE_LEVELS:
        low = np.asarray(predictive.quantile((1 - level) / 2))
        high = np.asarray(predictive.quantile((1 + level) / 2))
        metrics[f"coverage_{level * 100:.0f}"] = float(np.mean((low <= y) & (y <= high)))
    metrics["crps"] = crps_from_quantiles(predictive.quantile, y)
    return metrics
