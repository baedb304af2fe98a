"""From the columns' parts to moments of f, for every start, as nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.layout import pairs
from .features import Both, Features
from .values import Graph, Value

Array = np.ndarray


class Product(NamedTuple):
    """Moments of all inputs together in one start, columns yet to be summed.

    Attributes
    ----------
    mean : Value of shape (n, R)
    second : Value of shape (n, P)
        Of each pair r <= s.
    """

    mean: Value
    second: Value


def products(
    graph: Graph, starts: list[dict[str, Any]], features: dict[int, Features]
) -> list[Product]:
    """Return the moments of each start, given the functions of the columns."""
    found: dict[int, Product] = {}
    by_kind: dict[str, list[int]] = {"cp": [], "tt": []}
    for k, start in enumerate(starts):
        by_kind[start["network"]].append(k)
    if by_kind["cp"]:
        together = _cp(graph, [starts[k] for k in by_kind["cp"]], features)
        found |= dict(zip(by_kind["cp"], together, strict=True))
    found |= {k: _train(starts[k], features) for k in by_kind["tt"]}
    return [found[k] for k in range(len(starts))]


def _cp(graph: Graph, starts: list[dict[str, Any]], features: dict[int, Features]) -> list[Product]:
    """Return products over all columns: of all starts side by side, which are then taken apart."""
    modes = [{mode["column"]: mode for mode in start["modes"]} for start in starts]
    whole: list[Any] = [1.0, 1.0]
    for column in modes[0]:
        mean, second = (
            _side_by_side([own[column][part] for own in modes]) for part in ("mean", "second")
        )
        step = (mean, second) if column is None else features[column].times(mean, second)
        whole = [part * more for part, more in zip(whole, step, strict=True)]
    parts = []
    for part, name in zip(whole, ("mean", "second"), strict=True):
        sizes = [start["modes"][0][name].shape[1] for start in starts]
        if len(sizes) == 1:
            parts.append([part])
        else:
            parts.append(graph.nodes("Split", part, np.array(sizes), count=len(sizes), axis=1))
    return [Product(*pair) for pair in zip(*parts, strict=True)]


def _side_by_side(weights: list[Array]) -> Array:
    """Return weights of several starts as one matrix, with zeros where one has fewer functions."""
    out = np.zeros((max(map(len, weights)), sum(w.shape[1] for w in weights)))
    place = 0
    for w in weights:
        out[: len(w), place : place + w.shape[1]] = w
        place += w.shape[1]
    return out


def _train(start: dict[str, Any], features: dict[int, Features]) -> Product:
    """Return the row vector that a product of matrices leaves, and that of its second moments."""
    mean: Any = None
    second: Any = None
    for mode in start["modes"]:
        left, right = mode["shape"]
        step: Any = mode["mean"], mode["second"]
        if mode["column"] is not None:
            step = features[mode["column"]].times(*step)
        if mean is None:
            mean, second = step
            continue
        counts = pairs(left)[2]
        mean = _times(mean, step[0], left, right)
        second = _times(second * counts[None, :], step[1], len(counts), len(pairs(right)[2]))
    return Product(mean, second)


def _times(row: Any, matrix: Any, left: int, right: int) -> Any:
    """Return a row vector (n, left) times a matrix (n, left * right), in each row of the table."""
    if isinstance(matrix, np.ndarray):
        return row @ matrix.reshape(left, right)
    if isinstance(row, np.ndarray):  # the amplitudes, the same in all rows
        row = matrix.graph.constant(row[:, None, :])
        return (row @ matrix.reshaped(-1, left, right)).reshaped(-1, right)
    product = row.reshaped(-1, 1, left) @ matrix.reshaped(-1, left, right)
    return product.reshaped(-1, right)


def moments(start: dict[str, Any], product: Product) -> Both:
    """Return E[f] and Var[f]: (n, 1), or (n, K) with an output for each class."""
    graph, output = product.mean.graph, start["output"]
    if output is None:
        columns = start["modes"][-1]["shape"][1]
        mean_weights, second_weights = np.ones((columns, 1)), start["multiplicity"][:, None]
    else:
        mean_weights = output["mean"].T
        second_weights = (output["second"] * start["multiplicity"]).T
    mean = product.mean @ mean_weights
    second = product.second @ np.ascontiguousarray(second_weights)
    least = np.atleast_1d(start["least"])[None, :]
    return mean, graph.node("Max", second - mean * mean, least)
