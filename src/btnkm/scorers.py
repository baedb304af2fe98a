"""Scorers of predictive distributions, for ``cross_val_score``, ``GridSearchCV`` and the like.

Each is called as ``scorer(estimator, X, y)``, as scikit-learn does with ``scoring=``. The estimator
is a ``BTNRegressor``, or a pipeline or a search that ends in one. Greater is better, except for
:func:`coverage`, which should be close to its level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.metadata_routing import MetadataRequest

from .core.arrays import here
from .predictive import PredictiveDistribution

Array = np.ndarray
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(100)  # on [-1, 1], of probabilities
# Up to this count, the score of counts is a sum over all of them; beyond, steps are small
_MOST_COUNTS, _TAIL = 1000, 1e-6


def log_density(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None
) -> float:
    """Return the mean log density (for counts: log probability) of y.

    Parameters
    ----------
    estimator : estimator
        A fitted ``BTNRegressor``, or a pipeline or search that ends in one.
    X : array or DataFrame of shape (n, inputs)
    y : array of shape (n,)
    sample_weight : array of shape (n,), optional
    exposure : array of shape (n,), optional
        Of counts, as for ``BTNRegressor.predict``. A model that was fitted with exposures needs
        those of these rows.

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
    distribution = _distribution(estimator, X, exposure)
    return _mean(distribution.logpdf(here(y)), sample_weight)


def neg_crps(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None
) -> float:
    """Return minus the mean continuous ranked probability score of y, in units of y.

    The score of a point prediction would be its absolute error. It is the integral of twice the
    pinball loss over all quantiles, here a sum over 100 of them. For counts it is the sum of the
    squared errors of the distribution function, without an approximation unless some counts are
    large. Parameters are those of :func:`log_density`.
    """
    distribution = _distribution(estimator, X, exposure)
    return -_mean(_crps(distribution, _targets(distribution, y)), sample_weight)


def _crps(distribution: PredictiveDistribution, y: Array) -> Array:
    """Return the continuous ranked probability score of every row: (n,)."""
    if distribution.discrete and len(y):
        largest = max(float(np.max(distribution.quantile(1.0 - _TAIL))), float(np.max(y)))
        if largest <= _MOST_COUNTS:
            counts = np.arange(largest + 1.0)
            return np.asarray(
                sum((distribution.cdf(np.full(len(y), k)) - (k >= y)) ** 2 for k in counts)
            )
    total = np.zeros(len(y))
    for node, weight in zip(0.5 * (_NODES + 1.0), _WEIGHTS, strict=True):
        error = y - distribution.quantile(float(node))
        total += weight * np.maximum(node * error, (node - 1.0) * error)
    return total


def neg_interval_score(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    level: float = 0.95,
    exposure: Any = None,
) -> float:
    """Return minus the mean interval score of the central intervals of probability ``level``.

    The interval score is the width of the interval plus, where y is outside, 2 / (1 - level) times
    its distance from the interval. ``functools.partial`` sets another level. The other parameters
    are those of :func:`log_density`.
    """
    low, high, y = _interval(estimator, X, y, level, exposure)
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return -_mean(high - low + 2.0 / (1.0 - level) * outside, sample_weight)


def coverage(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    level: float = 0.95,
    exposure: Any = None,
) -> float:
    """Return the fraction of y in the central intervals of probability ``level``.

    It should be close to ``level``; a greater one is not better. Use it to look at calibration, not
    to choose a model. Parameters are those of :func:`neg_interval_score`.
    """
    low, high, y = _interval(estimator, X, y, level, exposure)
    return _mean((low <= y) & (y <= high), sample_weight)


def weighted(scorer: Callable[..., float]) -> Callable[..., float]:
    """Return a scorer that model selection gives the weights and exposures of the held-out rows.

    With scikit-learn's metadata routing, ``cross_validate`` and ``GridSearchCV`` pass
    ``sample_weight`` and ``exposure`` to the scorers that request them, as this one does. Without
    it, they are used in fits only.

    Parameters
    ----------
    scorer : callable
        One of this module, or a ``functools.partial`` of one.

    Returns
    -------
    callable

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn import config_context
    >>> from sklearn.model_selection import cross_validate
    >>> from btnkm import BTNRegressor, scorers
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> scoring = scorers.weighted(scorers.log_density)
    >>> with config_context(enable_metadata_routing=True):
    ...     model = BTNRegressor(structure="sums").set_fit_request(sample_weight=True)
    ...     weights = {"sample_weight": np.linspace(1, 2, 60)}
    ...     result = cross_validate(model, x, y, scoring=scoring, cv=3, params=weights)
    >>> result["test_score"].shape
    (3,)
    """
    return _Weighted(scorer)


class _Weighted:
    """A scorer that requests sample weights and exposures."""

    def __init__(self, scorer: Callable[..., float]) -> None:
        self.scorer = scorer

    def __call__(
        self, estimator: Any, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None
    ) -> float:
        more = {} if exposure is None else {"exposure": exposure}
        return self.scorer(estimator, X, y, sample_weight, **more)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return the request for weights and exposures, as scikit-learn asks for it."""
        request = MetadataRequest(owner=self)
        for name in ("sample_weight", "exposure"):
            request.score.add_request(param=name, alias=True)
        return request


def _interval(
    estimator: Any, X: Any, y: Any, level: float, exposure: Any
) -> tuple[Array, Array, Array]:
    """Return the ends of the intervals, and y."""
    distribution = _distribution(estimator, X, exposure)
    low, high = distribution.interval(level).T
    return low, high, _targets(distribution, y)


def _targets(distribution: PredictiveDistribution, y: Any) -> Array:
    """Return targets as an array, one for each row."""
    y = np.asarray(here(y), dtype=float)
    if y.shape != (len(distribution),):
        raise ValueError(
            f"y must have shape ({len(distribution)},), one value per row of X, got shape "
            f"{y.shape}; pass a column as y[:, 0]."
        )
    return y


def _mean(values: Array, sample_weight: Any) -> float:
    return float(np.average(values, weights=None if sample_weight is None else here(sample_weight)))


def _distribution(estimator: Any, X: Any, exposure: Any = None) -> PredictiveDistribution:
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
    if exposure is None and getattr(getattr(model, "fitted_", None), "exposed", False):
        raise ValueError(
            "exposure must be given to score a model that was fitted with one, got None; pass that "
            "of these rows."
        )
    distribution: PredictiveDistribution = (
        model.predict_dist(X) if exposure is None else model.predict_dist(X, exposure=exposure)
    )
    return distribution
