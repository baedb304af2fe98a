"""How good is it? Figures on rows that the fit has not seen: given, or of folds left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv

from ..core.arrays import here
from ..explain.diagnostics import Calibration, Reliability, calibration

Array = np.ndarray


@dataclass(frozen=True)
class Figure:
    """One figure, what it is in plain words, and what it is for a model that knows no input."""

    name: str
    value: float
    meaning: str
    without: float | None = None
    is_fraction: bool = False  # shown in percent


@dataclass(frozen=True)
class Goodness:
    """What predictions are worth, on rows the fit should not have seen.

    Attributes
    ----------
    how : str
        "given" or "cross-validated".
    n, folds : int
        Rows, and parts of them that were left out in turn (0 of rows given).
    figures : list of Figure
    calibration : Calibration or Reliability
    truth, predicted : ndarray of shape (n,)
        y and its mean; of a classifier the codes of the true and of the most probable classes.
    """

    how: str
    n: int
    folds: int
    figures: list[Figure]
    calibration: Calibration | Reliability
    truth: Array
    predicted: Array


class Folds:
    """A model for every part of the rows, fitted to the others: asked only about its own."""

    def __init__(self, model: Any, X: Any, y: Array, cv: Any) -> None:
        """Fit a clone of the model for each fold."""
        splitter = check_cv(cv, y, classifier=is_classifier(model))
        self.places, self.models, self._parts = [], [], []
        for known, left_out in splitter.split(np.zeros(len(y)), y):
            some = clone(model).set_params(callback=None, verbose=0, warm_start=False)
            self.models.append(some.fit(rows_of(X, known), y[known]))
            self.places.append(left_out)
            self._parts.append(rows_of(X, left_out))
        asked = np.concatenate(self.places)
        if len(asked) != len(y) or len(np.unique(asked)) != len(y):
            raise ValueError(
                f"cv must leave out every row once, got {splitter}; use for example cv=5."
            )
        if hasattr(model, "classes_"):
            self.classes_ = model.classes_

    def in_place_of(self, model: Any) -> Any:
        """Return the model, but with predictions of the folds: whatever asks it will check X."""
        asked = copy(model)
        asked.predict_dist, asked.predict_proba = self.predict_dist, self.predict_proba
        return asked

    def predict_dist(self, X: Any) -> Together:
        """Return the distribution of y in every row; X must be the rows that were given."""
        parts = zip(self.models, self._parts, strict=True)
        return Together([model.predict_dist(part) for model, part in parts], self.places)

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the classes in every row."""
        out = np.full((sum(map(len, self.places)), len(self.classes_)), np.finfo(float).tiny)
        for model, rows, part in zip(self.models, self.places, self._parts, strict=True):
            # a rare class may be in no row but those left out
            known = np.searchsorted(self.classes_, model.classes_)
            out[np.ix_(rows, known)] = here(model.predict_proba(part))
        return out


class Together:
    """Distributions of parts of the rows, as one of all of them."""

    def __init__(self, parts: Sequence[Any], places: Sequence[Array]) -> None:
        """Take the distributions, and the rows that each is about."""
        self._parts, self._places = parts, places
        self.discrete = parts[0].discrete
        self.mean = self._each(lambda part, _: part.mean)

    def _each(self, of: Callable[[Any, Array], Array]) -> Array:
        found = [of(part, rows) for part, rows in zip(self._parts, self._places, strict=True)]
        out = np.empty((sum(map(len, self._places)), *found[0].shape[1:]))
        for rows, values in zip(self._places, found, strict=True):
            out[rows] = values
        return out

    def cdf(self, y: Array) -> Array:
        """Return P(Y <= y): (n,)."""
        return self._each(lambda part, rows: part.cdf(y[rows]))

    def logpdf(self, y: Array) -> Array:
        """Return the log density at y: (n,)."""
        return self._each(lambda part, rows: part.logpdf(y[rows]))

    def interval(self, level: float = 0.95) -> Array:
        """Return central intervals: (n, 2)."""
        return self._each(lambda part, rows: part.interval(level))


def rows_of(X: Any, rows: Array) -> Any:
    """Return some rows of a table, as a table of the same kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "take") and hasattr(X, "column_names"):  # pyarrow
        return X.take(rows)
    return [X[i] for i in rows] if isinstance(X, list | tuple) else X[rows]


def goodness(model: Any, X: Any, y: Array, cv: Any = None) -> Goodness:
    """Return the figures of rows X (n, inputs) with targets y (n,).

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X, y
        Rows that the fit has not seen; with ``cv`` those it has.
    cv : int, splitter or None
        How to divide the rows: a clone of the model is fitted to all parts but one, and asked about
        that one, for each in turn.
    """
    asked, how, folds = model, "given", 0
    if cv is not None:
        parts = Folds(model, X, y, cv)
        asked, how, folds = parts.in_place_of(model), "cross-validated", len(parts.models)
    found = calibration(asked, X, y)
    if isinstance(found, Reliability):
        figures, truth, predicted = _of_classes(asked, X, y, found)
    else:
        figures, truth, predicted = _of_numbers(asked.predict_dist(X), y, found)
    return Goodness(how, len(y), folds, figures, found, truth, predicted)


def _of_numbers(
    distribution: Any, y: Array, found: Calibration
) -> tuple[list[Figure], Array, Array]:
    mean = distribution.mean
    error = y - mean
    level = float(np.mean(y))
    spread = float(np.std(y))
    interval = distribution.interval(0.95)
    width = float(np.mean(interval[:, 1] - interval[:, 0]))
    rmse, mae = float(np.sqrt(np.mean(error**2))), float(np.mean(np.abs(error)))
    figures = []
    if spread > 0:
        r2 = 1.0 - rmse**2 / spread**2
        text = "share of the variance of y that predictions explain"
        figures.append(Figure("R²", r2, text, 0.0))
    else_mae = float(np.mean(np.abs(y - level)))
    figures += [
        Figure("Typical error", rmse, "root of the mean squared error (RMSE)", spread),
        Figure("Mean error", mae, "mean of the errors, whatever their sign (MAE)", else_mae),
        Figure(
            "Log loss",
            -found.log_density,
            "mean of −log of the density that was given to y (NLL); lower is better"
            if not distribution.discrete
            else "mean of −log of the probability that was given to y (NLL); lower is better",
        ),
        Figure("Interval width", width, "mean width of 95% intervals"),
    ]
    return figures, y, mean


def _of_classes(
    asked: Any, X: Any, y: Array, found: Reliability
) -> tuple[list[Figure], Array, Array]:
    truth = np.searchsorted(asked.classes_, y)
    predicted = np.argmax(here(asked.predict_proba(X)), axis=1)
    shares = np.bincount(truth, minlength=len(asked.classes_)) / len(y)
    there = shares[shares > 0]
    figures = [
        Figure(
            "Accuracy",
            found.accuracy,
            "share of rows whose most probable class is the true one",
            float(shares.max()),
            is_fraction=True,
        ),
        Figure(
            "Log loss",
            found.log_loss,
            "mean of −log of the probability that was given to the true class; lower is better",
            float(-np.sum(there * np.log(there))),
        ),
        Figure(
            "Brier score",
            found.brier,
            "mean squared distance of the probabilities from what happened; lower is better",
            float(1.0 - np.sum(shares**2)),
        ),
    ]
    return figures, truth, predicted
