"""Hints: what would suit the targets better than the default likelihood of BTNRegressor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .warn import TargetHint, warn

Array = np.ndarray
FEWEST_ROWS = 50  # for a hint
FEWEST_COUNTS, LARGEST_MEAN = 6, 50.0  # distinct counts, and the mean up to which they are small
SKEWED = 1.0  # skewness from which on a target is skewed
LEVEL, MATERIAL = 0.95, 0.1  # of intervals, and the fraction of rows in which they are negative


def hint(y: Array, below_zero: Callable[[], Array]) -> None:
    """Warn in a sentence if another estimator or likelihood is made for such targets.

    Parameters
    ----------
    y : ndarray of shape (n,)
    below_zero : callable
        Returns P(y < 0) in the rows, under the fitted model.
    """
    text = _hint_of(y, below_zero)
    if text:
        warn(text, TargetHint)


def _hint_of(y: Array, below_zero: Callable[[], Array]) -> str:
    if len(y) < FEWEST_ROWS or np.ptp(y) == 0:
        return ""
    values = np.unique(y)
    if values.tolist() == [0.0, 1.0]:
        return "y holds only 0 and 1: BTNClassifier predicts their probabilities."
    if _skewness(y) < SKEWED:
        return ""
    whole = values[0] == 0 and np.all(values == np.floor(values))
    if whole and len(values) >= FEWEST_COUNTS and np.mean(y) <= LARGEST_MEAN:
        return (
            "y holds skewed counts: use likelihood='negative_binomial', because likelihood='auto' "
            "also predicts negative numbers and fractions."
        )
    if values[0] > 0:
        share = float(np.mean(below_zero() > 0.5 * (1.0 - LEVEL)))
        if share >= MATERIAL:
            return (
                f"y is positive, but {share:.0%} of its {LEVEL:.0%} intervals begin below 0: "
                "likelihood='log_normal' predicts positive numbers only."
            )
    return ""


def _skewness(y: Array) -> float:
    y = y / np.ptp(y)  # squares of very small or large numbers are no numbers
    away = (y - y.mean()) / y.std()
    return float(np.mean(away**3))
