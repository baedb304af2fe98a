"""How well rows are predicted, summed up block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics import COVERAGE_LEVELS, SMALLEST_PROBABILITY, ClassPredictive

Array = np.ndarray


def predictive(model: Any, X: Any) -> Any:
    """Return what a model says of rows: a distribution of numbers, or of classes."""
    if hasattr(model, "classes_"):
        return ClassPredictive(model.classes_, model.predict_proba(X))
    return model.predict_dist(X)


class Scores:
    """Error, negative log likelihood and coverage, over any number of blocks."""

    def __init__(self) -> None:
        self.n, self.total = 0, 0.0
        self.sums: dict[str, float] = {}

    def add(self, said: Any, y: Array, weight: Array | None = None) -> None:
        """Take in what was said of rows and what they are, each counted by its weight."""
        weight = np.ones(len(y)) if weight is None else weight
        parts = _of_labels(said, y) if isinstance(said, ClassPredictive) else _of_numbers(said, y)
        self.n += len(y)
        self.total += float(weight.sum())
        for name, values in parts.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(np.sum(weight * values))

    def found(self) -> dict[str, float]:
        """Return the scores of all rows so far."""
        if not self.total:
            raise ValueError(
                "there must be rows to test on, got none; give more rows, or a larger share."
            )
        means = {name: value / self.total for name, value in self.sums.items()}
        if "rmse" in means:
            means["rmse"] = float(np.sqrt(means["rmse"]))
        return means


def _of_numbers(said: Any, y: Array) -> dict[str, Array]:
    found = {"rmse": (np.asarray(said.mean) - y) ** 2, "nll": -np.asarray(said.logpdf(y))}
    for level in COVERAGE_LEVELS:
        low, high = (np.asarray(said.quantile(0.5 + half * level)) for half in (-0.5, 0.5))
        found[f"coverage_{level * 100:.0f}"] = (low <= y) & (y <= high)
    return found


def _of_labels(said: ClassPredictive, y: Array) -> dict[str, Array]:
    observed = y[:, None] == said.classes
    right = observed[np.arange(len(y)), np.argmax(said.probabilities, axis=1)]
    # a class that was never learned has no probability
    own = np.sum(np.where(observed, said.probabilities, 0.0), axis=1)
    return {"error": ~right, "nll": -np.log(np.maximum(own, SMALLEST_PROBABILITY))}


def sentence(found: dict[str, float]) -> str:
    """Return scores in words."""
    if "rmse" not in found:
        return f"{found['error']:.1%} of the classes wrong, NLL {found['nll']:.4g}"
    hold = [
        f"{level:.0%} intervals hold {found[f'coverage_{level * 100:.0f}']:.1%}"
        for level in COVERAGE_LEVELS
    ]
    return f"RMSE {found['rmse']:.4g}, NLL {found['nll']:.4g}; {', '.join(hold)} of the rows"
