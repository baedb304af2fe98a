"""Scores of predictions, summed block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics import COVERAGE_LEVELS, SMALLEST_PROBABILITY, ClassPredictive

Array = np.ndarray


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
        parts = _of_labels(predicted, y) if classes else _of_numbers(predicted, y)
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


def _of_numbers(predicted: Any, y: Array) -> dict[str, Array]:
    scores = {"rmse": (np.asarray(predicted.mean) - y) ** 2}
    scores["nll"] = -np.asarray(predicted.logpdf(y))
    for level in COVERAGE_LEVELS:
        low, high = (np.asarray(predicted.quantile(0.5 + half * level)) for half in (-0.5, 0.5))
        scores[f"coverage_{level * 100:.0f}"] = (low <= y) & (y <= high)
    return scores


def _of_labels(predicted: ClassPredictive, y: Array) -> dict[str, Array]:
    observed = y[:, None] == predicted.classes
    right = observed[np.arange(len(y)), np.argmax(predicted.probabilities, axis=1)]
    # classes that did not occur in the fit have no probability
    probability = np.sum(np.where(observed, predicted.probabilities, 0.0), axis=1)
    return {"error": ~right, "nll": -np.log(np.maximum(probability, SMALLEST_PROBABILITY))}


def sentence(scores: dict[str, float]) -> str:
    """Return scores in words."""
    if "rmse" not in scores:
        return f"{scores['error']:.1%} of the classes wrong, NLL {scores['nll']:.4g}"
    coverage = [
        f"{level:.0%} intervals hold {scores[f'coverage_{level * 100:.0f}']:.1%}"
        for level in COVERAGE_LEVELS
    ]
    text = f"RMSE {scores['rmse']:.4g}, NLL {scores['nll']:.4g}"
    return f"{text}; {', '.join(coverage)} of the rows"
