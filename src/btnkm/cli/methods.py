"""Methods that ``btnkm evaluate`` compares: their predictive distributions and scores."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from ..data.frames import Frame, as_numbers
from ..metrics import (
    COVERAGE_LEVELS,
    SMALLEST_PROBABILITY,
    ClassPredictive,
    GaussianPredictive,
    row_scores,
)
from .console import number

Array = np.ndarray
GP_ROWS, GP_CLASS_ROWS = 3000, 1000  # the cost of a Gaussian process is cubic in the rows
MAX_INDICATORS, MAX_CODES = 20, 250  # of the most frequent categories of a column
_HELD_OUT = 5  # every fifth row measures the errors of boosting


def predictive(model: Any, X: Any) -> Any:
    """Return the predictive distribution of rows, of numbers or of classes."""
    if hasattr(model, "classes_"):
        return ClassPredictive(model.classes_, model.predict_proba(X))
    return model.predict_dist(X)


class Scores:
    """Error, negative log-likelihood and coverage over any number of blocks."""

    def __init__(self) -> None:
        self.n, self.total = 0, 0.0
        self.sums: dict[str, float] = {}

    def add(self, predicted: Any, y: Array, weight: Array | None = None) -> None:
        """Add the predictive distribution and the target of some rows."""
        weight = np.ones(len(y)) if weight is None else weight
        classes = isinstance(predicted, ClassPredictive)
        parts = _of_labels(predicted, y) if classes else row_scores(predicted, y)
        self.n += len(y)
        self.total += float(weight.sum())
        for name, values in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(np.sum(weight * values))

    def means(self) -> dict[str, float]:
        """Return the scores of all rows."""
        if not self.total:
            raise ValueError("there must be rows to test on, got none; add rows, or raise --test.")
        means = {name: value / self.total for name, value in self.sums.items()}
        if "rmse" in means:
            means["rmse"] = float(np.sqrt(means["rmse"]))
        return means


def _of_labels(predicted: ClassPredictive, y: Array) -> dict[str, Array]:
    observed = y[:, None] == predicted.classes
    right = observed[np.arange(len(y)), np.argmax(predicted.probabilities, axis=1)]
    # classes that did not occur in the fit have no probability
    probability = np.sum(np.where(observed, predicted.probabilities, 0.0), axis=1)
    return {"error": ~right, "nll": -np.log(np.maximum(probability, SMALLEST_PROBABILITY))}


def sentence(scores: dict[str, float]) -> str:
    """Return scores in words."""
    if "rmse" not in scores:
        return f"{scores['error']:.1%} of the classes are wrong, NLL {number(scores['nll'])}"
    levels = " / ".join(f"{level:.0%}" for level in COVERAGE_LEVELS)
    inside = " / ".join(f"{scores[f'coverage_{v * 100:.0f}']:.1%}" for v in COVERAGE_LEVELS)
    text = f"RMSE {number(scores['rmse'])}, NLL {number(scores['nll'])}"
    return f"{text}; {levels} intervals contain {inside} of the rows"


class Encoding:
    """Columns as numbers.

    With ``codes``, text becomes codes and missing values are NaN. Otherwise text becomes
    indicators and missing values are replaced by the median.
    """

    def __init__(self, codes: bool) -> None:
        self.codes = codes

    def fit(self, X: Frame) -> Self:
        """Store the categories and medians."""
        self.categories: dict[str, list[str]] = {}
        self.fill: dict[str, float] = {}
        for name, values in X.columns.items():
            if values.dtype == object:
                seen = [v for v in values.tolist() if v is not None]
                names, count = np.unique(np.array(seen, dtype=object), return_counts=True)
                limit = MAX_CODES if self.codes else MAX_INDICATORS
                self.categories[name] = names[np.argsort(-count, kind="stable")[:limit]].tolist()
            elif not self.codes:
                known = as_numbers(values)
                known = known[~np.isnan(known)]
                self.fill[name] = float(np.median(known)) if len(known) else 0.0
        self.categorical = [name in self.categories for name in X.columns]
        return self

    def numbers(self, X: Frame) -> Array:
        """Return the rows as numbers: (n, columns)."""
        parts = []
        for name, values in X.columns.items():
            if name not in self.categories:
                column = as_numbers(values)
                missing = np.isnan(column)
                parts.append(column if self.codes else np.where(missing, self.fill[name], column))
                if not self.codes:
                    parts.append(missing.astype(float))
                continue
            place = {category: code for code, category in enumerate(self.categories[name])}
            codes = np.array([place.get(v, np.nan) for v in values.tolist()], dtype=float)
            if self.codes:
                parts.append(codes)
            else:
                parts += [(codes == code).astype(float) for code in range(len(place))]
        return np.column_stack(parts)


class GP:
    """A Gaussian process with a length scale per input, fitted by the marginal likelihood."""

    def __init__(self, classify: bool, random_state: int) -> None:
        self.classify, self.random_state = classify, random_state

    def fit(self, X: Frame, y: Array, weight: Array | None) -> Self:
        """Fit to the rows, or to a random part of them."""
        rng = np.random.default_rng(self.random_state)
        limit = GP_CLASS_ROWS if self.classify else GP_ROWS
        if len(y) > limit:
            drawn = rng.permutation(len(y))[:limit]
            X, y = X.take(drawn), y[drawn]
        self.encoding = Encoding(codes=False).fit(X)
        numbers = self.encoding.numbers(X)
        self.varies = np.ptp(numbers, axis=0) > 0
        numbers = numbers[:, self.varies]
        if self.classify:
            from sklearn.gaussian_process import GaussianProcessClassifier, kernels
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler

            kernel = kernels.ConstantKernel() * kernels.RBF(np.sqrt(max(numbers.shape[1], 1)))
            model = GaussianProcessClassifier(kernel, random_state=self.random_state)
            self.model: Any = make_pipeline(StandardScaler(), model)
        else:
            from ..baselines import ExactGP

            self.model = ExactGP(ard=True, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # length scales at the end of their range
            self.model.fit(numbers, y)
        return self

    def predictive(self, X: Frame) -> Any:
        """Return the predictive distribution of rows."""
        numbers = self.encoding.numbers(X)[:, self.varies]
        if self.classify:
            return ClassPredictive(self.model.classes_, self.model.predict_proba(numbers))
        return GaussianPredictive(*self.model.predict(numbers, return_std=True))


class Boosting:
    """Histogram gradient boosting of scikit-learn.

    It predicts no distribution of numbers. A normal distribution is used, with the standard
    deviation of the errors on a fifth of the training rows, which are held out from a first fit.
    """

    def __init__(self, classify: bool, random_state: int) -> None:
        self.classify, self.random_state = classify, random_state

    def fit(self, X: Frame, y: Array, weight: Array | None) -> Self:
        """Fit to the rows."""
        self.encoding = Encoding(codes=True).fit(X)
        numbers = self.encoding.numbers(X)
        if not self.classify:
            order = np.random.default_rng(self.random_state).permutation(len(y))
            held, rest = order[: len(y) // _HELD_OUT], order[len(y) // _HELD_OUT :]
            first = self._new().fit(numbers[rest], y[rest], _rows_of(weight, rest))
            errors = (y[held] - first.predict(numbers[held])) ** 2
            self.std = float(np.sqrt(np.average(errors, weights=_rows_of(weight, held))))
        self.model = self._new().fit(numbers, y, weight)
        return self

    def _new(self) -> Any:
        from sklearn import ensemble

        kind = ensemble.HistGradientBoostingRegressor
        kind = ensemble.HistGradientBoostingClassifier if self.classify else kind
        return kind(categorical_features=self.encoding.categorical, random_state=self.random_state)

    def predictive(self, X: Frame) -> Any:
        """Return the predictive distribution of rows."""
        numbers = self.encoding.numbers(X)
        if self.classify:
            return ClassPredictive(self.model.classes_, self.model.predict_proba(numbers))
        return GaussianPredictive(self.model.predict(numbers), self.std)


class Ridge:
    """Ridge regression, whose penalty maximises the evidence."""

    def __init__(self, classify: bool, random_state: int) -> None:
        pass  # it has no random part, and classes are not supported

    def fit(self, X: Frame, y: Array, weight: Array | None) -> Self:
        """Fit to the rows."""
        from sklearn.linear_model import BayesianRidge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.encoding = Encoding(codes=False).fit(X)
        self.model = make_pipeline(StandardScaler(), BayesianRidge())
        self.model.fit(self.encoding.numbers(X), y)
        return self

    def predictive(self, X: Frame) -> GaussianPredictive:
        """Return the predictive distribution of rows."""
        return GaussianPredictive(*self.model.predict(self.encoding.numbers(X), return_std=True))


RIVALS: dict[str, Any] = {"gp": GP, "boosting": Boosting}


def _rows_of(weight: Array | None, rows: Array) -> Array | None:
    return None if weight is None else weight[rows]
