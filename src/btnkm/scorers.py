"""Scorers of predictive distributions, for ``cross_val_score``, ``GridSearchCV`` and the like.

Each is called as ``scorer(estimator, X, y)``, as scikit-learn does with ``scoring=``. The estimator
is a ``BTNRegressor``, or a pipeline or a search that ends in one. Greater is better, except for
:func:`coverage`, which should be close to its level.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .core.arrays import here
from .predictive import PredictiveDistribution

Array = np.ndarray
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)  # on [-1, 1], of probabilities


def log_density(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the mean log density (for counts: log probability) of y.

    Parameters
    ----------
    estimator : estimator
        A fitted ``BTNRegressor``, or a pipeline or search that ends in one.
    X : array or DataFrame of shape (n, inputs)
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from btnkm import BTNRegressor, scorers
    >>> x = np.linspace(0, 6, 90)[:, None]
    >>> y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=90)
    >>> model = BTNRegressor(structure="sums", random_state=0)
    >>> scores = cross_val_score(model, x[::2], y[::2], scoring=scorers.log_density)
    >>> scores.shape
    (5,)
    """
    distribution = _distribution(estimator, X)
    return _mean(distribution.logpdf(here(y)), sample_weight)


def neg_crps(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return minus the mean continuous ranked probability score of y, in units of y.

    The score of a point prediction would be its absolute error. It is the integral of twice the
    pinball loss over all quantiles, here a sum over 100 of them. Parameters are those of
    :func:`log_density`.
    """
    distribution, y = _distribution(estimator, X), np.asarray(here(y), dtype=float)
    total = np.zeros(len(y))
    for node, weight in zip(0.5 * (_NODES + 1.0), _WEIGHTS, strict=True):
        error = y - distribution.quantile(float(node))
        total += weight * np.maximum(node * error, (node - 1.0) * error)
    return -_mean(total, sample_weight)


def neg_interval_score(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, level: float = 0.95
) -> float:
    """Return minus the mean interval score of the central intervals of probability ``level``.

    The interval score is the width of the interval plus, where y is outside, 2 / (1 - level) times
    its distance from the interval. ``functools.partial`` sets another level. The other parameters
    are those of :func:`log_density`.
    """
    low, high, y = _interval(estimator, X, y, level)
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return -_mean(high - low + 2.0 / (1.0 - level) * outside, sample_weight)


def coverage(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, level: float = 0.95
) -> float:
    """Return the fraction of y in the central intervals of probability ``level``.

    It should be close to ``level``; a greater one is not better. Use it to look at calibration, not
    to choose a model. Parameters are those of :func:`neg_interval_score`.
    """
    low, high, y = _interval(estimator, X, y, level)
    return _mean((low <= y) & (y <= high), sample_weight)


def _interval(estimator: Any, X: Any, y: Any, level: float) -> tuple[Array, Array, Array]:
    """Return the ends of the intervals, and y."""
    low, high = _distribution(estimator, X).interval(level).T
    return low, high, np.asarray(here(y), dtype=float)


def _mean(values: Array, sample_weight: Any) -> float:
    return float(np.average(values, weights=None if sample_weight is None else here(sample_weight)))


def _distribution(estimator: Any, X: Any) -> PredictiveDistribution:
    """Return the predictive distribution of a regressor, inside of pipelines and searches too."""
    model = estimator
    while not hasattr(model, "predict_dist"):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif hasattr(model, "steps"):
            X, model = (model[:-1].transform(X) if len(model.steps) > 1 else X), model[-1]
        else:
            raise TypeError(
                "the estimator must have predict_dist, as BTNRegressor has, got "
                f"{type(estimator).__name__}; for classes use scikit-learn's 'neg_log_loss'."
            )
    distribution: PredictiveDistribution = model.predict_dist(X)
    return distribution
