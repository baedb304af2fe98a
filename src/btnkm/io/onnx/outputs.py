"""From moments of f to what a model says: numbers, and labels with their probabilities, as nodes.

All is the mixture over restarts, with their weights, in the formulas of ``predictive.py``,
``core/densities.py`` and ``core/softmax.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from ...classifier import PROBABILITY_POINTS
from ...core.densities import FINE_GRID
from ...core.layout import pairs
from ...core.likelihoods.softmax import normal_points
from .graph import Graph, Value
from .networks import Parts, Product, moments
from .roots import square_root

Array = np.ndarray
_TINY = float(np.finfo(float).tiny)


def mean_and_std(graph: Graph, data: dict[str, Any], found: list[Parts]) -> tuple[Value, Value]:
    """Return the mean of y and its standard deviation, noise included: (n, 1) each."""
    means, spreads, noises = [], [], []
    for start, parts in zip(data["starts"], found, strict=True):
        mean, variance = moments(graph, start, parts)
        own = start["likelihood"]
        if own["kind"] == "negative_binomial":
            location, size = mean + own["offset"], own["size"]
            mean = size * graph.node("Exp", location + 0.5 * variance)
            square, growth = mean * mean, graph.node("Exp", variance)
            variance, noise = square * (growth - 1.0), mean + square * growth / size
        else:
            noise = own["noise" if own["kind"] == "gaussian" else "noise_total"]
        means.append(mean)
        spreads.append(variance)
        noises.append(noise)
    weights = data["weights"]
    mean = _mixed(weights, means)
    between = _mixed(weights, [(one - mean) * (one - mean) for one in means])
    variance = _mixed(weights, spreads) + between + _mixed(weights, noises)
    std = data["scale"] * graph.node("Sqrt", variance)
    return data["shift"] + data["scale"] * mean, std


def _mixed(weights: Array, values: list[Any]) -> Any:
    """Return the weighted mean over restarts."""
    weighed = [float(w) * value for w, value in zip(weights, values, strict=True)]
    return sum(weighed[1:], weighed[0])


def probabilities(graph: Graph, data: dict[str, Any], found: list[Parts]) -> Value:
    """Return the probability of each class: (n, K)."""
    each = [
        _PROBABILITIES[start["likelihood"]["kind"]](graph, data, start, parts)
        for start, parts in zip(data["starts"], found, strict=True)
    ]
    return graph.node("Max", _mixed(data["weights"], each), _TINY)


def _logistic(graph: Graph, data: dict[str, Any], start: dict[str, Any], parts: Parts) -> Value:
    """Return E[sigma(-x)] and E[sigma(x)] by the trapezoid rule."""
    mean, variance = moments(graph, start, parts)
    nodes, weights = (np.array(part) for part in FINE_GRID)
    x, spread = mean + start["likelihood"]["offset"], graph.node("Sqrt", variance) * nodes[None, :]
    both = [graph.node("Sigmoid", sign * x + spread) @ weights[:, None] for sign in (-1.0, 1.0)]
    return graph.concat(both)


def _signs(graph: Graph, data: dict[str, Any], start: dict[str, Any], parts: Parts) -> Value:
    """Return the probabilities that a target is below the threshold, and above it."""
    mean, variance = moments(graph, start, parts)
    noise, dof = start["likelihood"]["noise"], start["likelihood"]["dof"]
    scale = graph.node("Sqrt", (variance + noise) * (max(dof - 2.0, 0.5 * dof) / dof))
    excess = student_excess(graph, (data["threshold"] - mean) / scale, dof)
    return graph.concat([0.5 + excess, 0.5 - excess])


def student_excess(graph: Graph, z: Value, dof: float) -> Value:
    """Return P(T <= z) - 1/2 of Student's t.

    With s = z / sqrt(dof + z^2) that is a constant times the integral of (1 - v^2)^(dof / 2 - 1)
    from 0 to s, by Gauss and Legendre.
    """
    power = 0.5 * dof - 1.0
    constant = float(np.exp(gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof)) / np.sqrt(np.pi))
    most = -float(stdtrit(dof, 1e-17))  # nothing is left beyond

    def excess(z: Any, nodes: Array, weights: Array, sqrt: Any, power_of: Any) -> Any:
        s = z / sqrt(dof + z * z)
        v = s * nodes[None, :]
        return constant * s * (power_of(1.0 - v * v) @ weights[:, None])

    some = np.linspace(0.0, most, 400)[:, None]
    for count in (32, 64, 128, 256, 512):
        nodes, weights = np.polynomial.legendre.leggauss(count)
        nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
        here = excess(some, nodes, weights, np.sqrt, lambda base: base**power)
        if np.max(np.abs(here - (stdtr(dof, some) - 0.5))) < 1e-12:
            break
    held = graph.node("Clip", z, -most, most)
    return excess(
        held,
        nodes,
        weights,
        lambda value: graph.node("Sqrt", value),
        lambda base: graph.node("Pow", base, power),
    )


def _softmax(graph: Graph, data: dict[str, Any], start: dict[str, Any], parts: Parts) -> Value:
    """Return the average of the probabilities over points spread over f, those of Python."""
    mean, variance = moments(graph, start, parts)
    n_classes = len(start["likelihood"]["offsets"])
    root, rank = None, 0
    if parts.product is not None:
        rank = start["output"]["mean"].shape[1]
        root = _shared_root(graph, start["output"]["mean"], parts.product)  # (n, K, R)
        shared = ((root * root) @ np.ones((rank, 1))).reshaped(-1, n_classes)
        variance = graph.node("Max", variance - shared, 0.0)
    own = graph.node("Sqrt", variance)
    of_own, of_shared = np.split(normal_points(n_classes + rank, PROBABILITY_POINTS).T, [n_classes])
    centre = mean + start["likelihood"]["offsets"][None, :]
    x = centre.reshaped(-1, n_classes, 1) + own.reshaped(-1, n_classes, 1) * of_own[None]
    if root is not None:
        x = x + root @ of_shared
    each = graph.node("Softmax", x, axis=1)  # (n, K, points)
    share = np.full((PROBABILITY_POINTS, 1), 1.0 / PROBABILITY_POINTS)
    return (each @ share).reshaped(-1, n_classes)


def _shared_root(graph: Graph, weights: Array, product: Product) -> Value:
    """Return a root of what the outputs of a tensor share of their covariance: (n, K, R)."""
    rank = weights.shape[1]
    r, s, _ = pairs(rank)
    unpacked = np.zeros((len(r), rank, rank))
    unpacked[np.arange(len(r)), r, s] = unpacked[np.arange(len(r)), s, r] = 1.0
    g = product.mean
    spread = (product.second @ unpacked.reshape(len(r), -1)).reshaped(-1, rank, rank)
    spread = spread - g.reshaped(-1, rank, 1) @ g.reshaped(-1, 1, rank)
    return (square_root(graph, spread, rank) @ np.ascontiguousarray(weights.T)).turned()


_PROBABILITIES = {"bernoulli": _logistic, "gaussian": _signs, "softmax": _softmax}
