"""Moments of f in every restart, from the functions of the columns, as nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.layout import pairs
from .features import Both, Column, Features
from .graph import Graph, Value
from .kernels import kernel_moments

Array = np.ndarray


Made = dict[tuple[int, int], Features]  # functions, by column and which of its bases


class Product(NamedTuple):
    """Moments of the product over all inputs in one restart, before the sum over columns.

    Attributes
    ----------
    mean : Value of shape (n, R)
    second : Value of shape (n, P)
        Of each pair r <= s.
    """

    mean: Value
    second: Value


class Parts(NamedTuple):
    """The parts of f in one restart.

    Attributes
    ----------
    product : Product or None
        Of the tensor.
    effects : pair of Values of shape (n, K), or None
        Mean and variance of the main effects.
    kernel : pair of Values of shape (n, K), or None
        Mean and variance of the kernel machine.
    """

    product: Product | None
    effects: Both | None
    kernel: Both | None


def parts_of(
    graph: Graph, restarts: list[dict[str, Any]], columns: dict[int, Column]
) -> list[Parts]:
    """Return the parts of f in each restart."""
    tensors = _products(graph, restarts, columns)
    sums = [restart["sums"] for restart in restarts]
    used = {(i["column"], i["effect"]) for own in sums if own is not None for i in own["inputs"]}
    made = {(j, place): columns[j].effect(place) for j, place in sorted(used)}
    one = graph.full(next(iter(columns.values())).x, 1.0)
    found = []
    for k, restart in enumerate(restarts):
        own, kernel = restart["sums"], restart["kernel"]
        effects = None if own is None else _main_effects(graph, own, made, one)
        whole = None if kernel is None else kernel_moments(graph, kernel, columns)
        found.append(Parts(tensors.get(k), effects, whole))
    return found


def _main_effects(
    graph: Graph, sums: dict[str, Any], made: dict[tuple[int, int], Value], one: Value
) -> Both:
    """Return mean and variance of the main effects: (n, K) each."""
    own = [made[i["column"], i["effect"]].columns(i["functions"]) for i in sums["inputs"]]
    g = graph.concat([one, *own])
    size = sums["mean"].shape[1]
    variances = []
    for packed in sums["cov"]:
        cov = np.zeros((size, size))
        first, second = np.triu_indices(size)
        cov[first, second] = cov[second, first] = packed
        variances.append(((g @ cov) * g) @ np.ones((size, 1)))
    return g @ np.ascontiguousarray(sums["mean"].T), graph.concat(variances)


def _products(
    graph: Graph, restarts: list[dict[str, Any]], columns: dict[int, Column]
) -> dict[int, Product]:
    """Return the tensor's moments in each restart that has one."""
    used = {(m["column"], m["basis"]) for restart in restarts for m in restart["modes"]}
    named = sorted(pair for pair in used if pair[0] is not None)
    features: Made = {(j, place): columns[j].features(place) for j, place in named}
    found: dict[int, Product] = {}
    alike: dict[Any, list[int]] = {}  # those of the same functions can be computed together
    for k, restart in enumerate(restarts):
        if restart["modes"] and restart["network"] == "cp":
            key = tuple((mode["column"], mode["basis"]) for mode in restart["modes"])
            alike.setdefault(key, []).append(k)
        elif restart["modes"]:
            found[k] = _tensor_train(restart, features)
    for own in alike.values():
        found |= zip(own, _cp(graph, [restarts[k] for k in own], features), strict=True)
    return found


def _cp(graph: Graph, restarts: list[dict[str, Any]], features: Made) -> list[Product]:
    """Return products over all columns: of restarts side by side, which are then taken apart."""
    whole: list[Any] = [1.0, 1.0]
    for modes in zip(*(restart["modes"] for restart in restarts), strict=True):
        mean, second = (_side_by_side([m[part] for m in modes]) for part in ("mean", "second"))
        column, basis = modes[0]["column"], modes[0]["basis"]
        step = (mean, second) if column is None else features[column, basis].times(mean, second)
        whole = [part * more for part, more in zip(whole, step, strict=True)]
    parts = []
    for part, name in zip(whole, ("mean", "second"), strict=True):
        sizes = [restart["modes"][0][name].shape[1] for restart in restarts]
        if len(sizes) == 1:
            parts.append([part])
        else:
            parts.append(graph.nodes("Split", part, np.array(sizes), count=len(sizes), axis=1))
    return [Product(*pair) for pair in zip(*parts, strict=True)]


def _side_by_side(weights: list[Array]) -> Array:
    """Return weights of some restarts as one matrix, with zeros where one has fewer functions."""
    out = np.zeros((max(map(len, weights)), sum(w.shape[1] for w in weights)))
    place = 0
    for w in weights:
        out[: len(w), place : place + w.shape[1]] = w
        place += w.shape[1]
    return out


def _tensor_train(restart: dict[str, Any], features: Made) -> Product:
    """Return the row vector that a product of matrices leaves, and that of its second moments."""
    mean: Any = None
    second: Any = None
    for mode in restart["modes"]:
        left, right = mode["shape"]
        step: Any = mode["mean"], mode["second"]
        if mode["column"] is not None:
            step = features[mode["column"], mode["basis"]].times(*step)
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


def moments(graph: Graph, restart: dict[str, Any], parts: Parts) -> Both:
    """Return E[f] and Var[f]: (n, 1), or (n, K) with an output for each class."""
    found = [] if parts.product is None else [_tensor_moments(graph, restart, parts.product)]
    found += [part for part in (parts.effects, parts.kernel) if part is not None]
    mean, variance = found[0]
    for more, spread in found[1:]:
        mean, variance = mean + more, variance + spread
    return mean, graph.node("Max", variance, np.atleast_1d(restart["least"])[None, :])


def _tensor_moments(graph: Graph, restart: dict[str, Any], product: Product) -> Both:
    output = restart["output"]
    if output is None:
        columns = restart["modes"][-1]["shape"][1]
        mean_weights, second_weights = np.ones((columns, 1)), restart["multiplicity"][:, None]
    else:
        mean_weights = output["mean"].T
        second_weights = (output["second"] * restart["multiplicity"]).T
    mean = product.mean @ mean_weights
    second = product.second @ np.ascontiguousarray(second_weights)
    return mean, graph.node("Max", second - mean * mean, 0.0)
