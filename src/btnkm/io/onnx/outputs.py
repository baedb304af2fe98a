"""Outputs of a model from moments of f: numbers, or class probabilities, as nodes.

Every output is a mixture over restarts. Likelihoods of numbers give the moments of y by formulas;
the links of classes are those of ``core/densities.py`` and ``core/likelihoods/softmax.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.densities import FINE_GRID
from ...core.layout import pairs
from ...core.likelihoods.softmax import PROBABILITY_POINTS, normal_points
from .formulas import evaluated
from .graph import Graph, Value
from .networks import Parts, Product, moments
from .roots import square_root

Array = np.ndarray
_TINY = float(np.finfo(float).tiny)
_MOMENTS = ("mean", "model_variance", "noise_variance")


def mean_and_std(graph: Graph, data: dict[str, Any], found: list[Parts]) -> tuple[Value, Value]:
    """Return the mean of y and its standard deviation, noise included: (n, 1) each."""
    means: list[Any] = []
    spreads: list[Any] = []
    noises: list[Any] = []
    for restart, parts in zip(data["restarts"], found, strict=True):
        mean, variance = moments(graph, restart, parts)
        y = evaluated(graph, restart["likelihood"], _MOMENTS, mean=mean, variance=variance)
        for values, name in zip((means, spreads, noises), _MOMENTS, strict=True):
            values.append(y[name])
    weights = data["weights"]
    mean = _mixed(weights, means)
    between = _mixed(weights, [(one - mean) * (one - mean) for one in means])
    variance = _mixed(weights, spreads) + between + _mixed(weights, noises)
    std = data["scale"] * graph.node("Sqrt", variance)
    return data["shift"] + data["scale"] * mean, std


def _mixed(weights: Array, values: list[Any]) -> Any:
    """Return the weighted mean over restarts."""
    weighed = []
    for weight, value in zip(weights.tolist(), values, strict=True):
        # ONNX Runtime would round a constant factor of a matrix product to float32
        by = value.graph.full(value, weight) if isinstance(value, Value) else weight
        weighed.append(by * value)
    return sum(weighed[1:], weighed[0])


def probabilities(graph: Graph, data: dict[str, Any], found: list[Parts]) -> Value:
    """Return the probability of each class: (n, K)."""
    each = [
        _PROBABILITIES[restart["likelihood"]["kind"]](graph, data, restart, parts)
        for restart, parts in zip(data["restarts"], found, strict=True)
    ]
    return graph.node("Max", _mixed(data["weights"], each), _TINY)


def _logistic(graph: Graph, data: dict[str, Any], restart: dict[str, Any], parts: Parts) -> Value:
    """Return E[sigma(-x)] and E[sigma(x)] by the trapezoid rule."""
    mean, variance = moments(graph, restart, parts)
    nodes, weights = (np.array(part) for part in FINE_GRID)
    x, spread = (
        mean + restart["likelihood"]["offset"],
        graph.node("Sqrt", variance) * nodes[None, :],
    )
    both = [graph.node("Sigmoid", sign * x + spread) @ weights[:, None] for sign in (-1.0, 1.0)]
    return graph.concat(both)


def _signs(graph: Graph, data: dict[str, Any], restart: dict[str, Any], parts: Parts) -> Value:
    """Return the probabilities that a target is below the threshold, and above it."""
    mean, variance = moments(graph, restart, parts)
    threshold = graph.full(mean, data["threshold"])
    inputs = {"mean": mean, "variance": variance, "y": threshold}
    below = evaluated(graph, restart["likelihood"], ["cdf"], **inputs)["cdf"]
    return graph.concat([below, 1.0 - below])


def _softmax(graph: Graph, data: dict[str, Any], restart: dict[str, Any], parts: Parts) -> Value:
    """Return the average of the probabilities over points spread over f, those of Python."""
    mean, variance = moments(graph, restart, parts)
    n_classes = len(restart["likelihood"]["offsets"])
    root, rank = None, 0
    if parts.product is not None:
        rank = restart["output"]["mean"].shape[1]
        root = _shared_root(graph, restart["output"]["mean"], parts.product)  # (n, K, R)
        shared = ((root * root) @ np.ones((rank, 1))).reshaped(-1, n_classes)
        variance = graph.node("Max", variance - shared, 0.0)
    own = graph.node("Sqrt", variance)
    of_own, of_shared = np.split(normal_points(n_classes + rank, PROBABILITY_POINTS).T, [n_classes])
    centre = mean + restart["likelihood"]["offsets"][None, :]
    x = centre.reshaped(-1, n_classes, 1) + own.reshaped(-1, n_classes, 1) * of_own[None]
    if root is not None:
        x = x + root @ of_shared
    each = graph.node("Softmax", x, axis=1)  # (n, K, points)
    share = np.full((PROBABILITY_POINTS, 1), 1.0 / PROBABILITY_POINTS)
    return (each @ share).reshaped(-1, n_classes)


def _shared_root(graph: Graph, weights: Array, product: Product) -> Value:
    """Return a root of the covariance that the outputs of a tensor share: (n, K, R)."""
    rank = weights.shape[1]
    r, s, _ = pairs(rank)
    unpacked = np.zeros((len(r), rank, rank))
    unpacked[np.arange(len(r)), r, s] = unpacked[np.arange(len(r)), s, r] = 1.0
    g = product.mean
    spread = (product.second @ unpacked.reshape(len(r), -1)).reshaped(-1, rank, rank)
    spread = spread - g.reshaped(-1, rank, 1) @ g.reshaped(-1, 1, rank)
    return (square_root(graph, spread, rank) @ np.ascontiguousarray(weights.T)).turned()


_PROBABILITIES = {"bernoulli": _logistic, "density": _signs, "softmax": _softmax}
