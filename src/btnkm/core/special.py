"""Functions and small numerical steps that several likelihoods need."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from array_api_compat import array_namespace

Array = Any
LOG_2, LOG_2PI = float(np.log(2.0)), float(np.log(2.0 * np.pi))
LOG_STEP = 0.1  # to either side of the logarithm of a parameter: for slope and curvature in it


def polya_gamma(c: Array) -> tuple[Array, Array]:
    """Return E[w] of a Polya-Gamma(1, c) variable, tanh(c / 2) / (2 c), and log cosh(c / 2)."""
    xp = array_namespace(c)
    small = c < 1e-4  # where the quotient loses its digits the series has them all
    safe = xp.where(small, xp.ones_like(c), c)
    weight = xp.where(small, 0.25 - c * c / 48.0, xp.tanh(0.5 * safe) / (2.0 * safe))
    return weight, 0.5 * c + xp.log1p(xp.exp(-c)) - LOG_2


def flattened_sigmoid(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return E[sigma(x)] to about .01, x ~ N(mean, variance), and its slope in the mean.

    sigma is much like a normal distribution function, whose average is one of less slope.
    """
    xp = array_namespace(mean)
    flat = 1.0 / xp.sqrt(1.0 + (np.pi / 8.0) * variance)
    t = xp.tanh(0.5 * flat * mean)
    return 0.5 * (1.0 + t), 0.25 * flat * (1.0 - t * t)


def newton_step(below: Any, here: Any, above: Any) -> float:
    """Return Newton's step to the maximum of a function known at -LOG_STEP, 0 and LOG_STEP."""
    below, here, above = float(below), float(here), float(above)
    slope = 0.5 * (above - below) / LOG_STEP
    curvature = (2.0 * here - above - below) / LOG_STEP**2
    step = slope / curvature if curvature > 0 else np.sign(slope)
    return float(np.clip(step, -1.0, 1.0))


def bent(x: Array, c2: Array, w: Array) -> Array:
    """Return the curvature of log cosh(c / 2) in E[x], where c^2 = E[x^2] and w = E[w]."""
    xp = array_namespace(x)
    known = x * x / xp.where(c2 > 0.0, c2, xp.ones_like(c2))  # 1 where x has no variance
    return w * (1.0 - known) + known * (0.25 - w * w * c2)


def log_gamma(z: Array) -> Array:
    """Return log Gamma(z) for z > 0 with array operations only, to about 1e-14 of its size."""
    xp = array_namespace(z)
    product = z
    for k in range(1, 8):  # Stirling's series from z + 8 on
        product = product * (z + k)
    x = z + 8.0
    t = 1.0 / (x * x)
    series = (1 / 12 - t * (1 / 360 - t * (1 / 1260 - t * (1 / 1680 - t / 1188)))) / x
    return (x - 0.5) * xp.log(x) - x + 0.5 * LOG_2PI + series - xp.log(product)


def weighted_quantile(values: np.ndarray, weight: np.ndarray, level: float) -> float:
    """Return the smallest value with at least this fraction of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    return float(values[order[np.searchsorted(total, level * total[-1])]])


def mean_and_scale(y: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return the weighted mean and standard deviation of y; the latter is 1 if y is constant."""
    if np.all(y == y[0]):
        return float(y[0]), 1.0
    mean = float(np.average(y, weights=weight))
    return mean, float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) or 1.0


def check_positive(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a positive finite number."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0.0 < float(value) < np.inf:
        raise ValueError(
            f"{name} must be a positive finite number, got {value!r}; leave it out for the default."
        )
