"""From functions of the columns to moments of f, and to outputs of a model, as nodes.

Every output is a mixture over restarts. Likelihoods of numbers give the moments of y by formulas;
the links of classes are those of ``core/densities.py`` and ``core/likelihoods/softmax.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...core.densities import FINE_GRID
from ...core.layout import pairs
from ...core.likelihoods.softmax import PROBABILITY_POINTS, normal_points
from .features import Both, Column, Features
from .graph import Graph, Value, evaluated
from .kernels import kernel_moments

Array = np.ndarray
Made = dict[tuple[int, int], Features]  # functions, by column and which of its bases
_TINY = float(np.finfo(float).tiny)
_MOMENTS = ("mean", "model_variance", "noise_variance")
SWEEPS = 10  # of Jacobi's rotations, which converge quadratically: six do for twenty columns


class Product(NamedTuple):
    """Moments of the product over all inputs in one restart, before the sum over columns."""

    mean: Value  # (n, R)
    second: Value  # (n, P), of each pair r <= s


class Parts(NamedTuple):
    """The parts of f in one restart: the tensor, and moments (n, K) of the others.

    ``noise`` are the moments (n, 1) of g, its log precision. ``widening`` (n, K) is added to the
    variance of f beyond the training range.
    """

    product: Product | None
    effects: Both | None
    kernel: Both | None
    noise: Both | None
    widening: Value | None


def parts_of(
    graph: Graph, restarts: list[dict[str, Any]], columns: dict[int, Column]
) -> list[Parts]:
    """Return the parts of f in each restart."""
    products = _products(restarts, columns)
    both = [restart[name] for restart in restarts for name in ("sums", "noise")]
    used = {(i["column"], i["effect"]) for sums in both if sums for i in sums["inputs"]}
    functions = {(j, place): columns[j].effect(place) for j, place in sorted(used)}
    ones = graph.full(next(iter(columns.values())).x, 1.0)
    widened = {item["column"] for restart in restarts for item in restart["widening"]}
    excess = {j: columns[j].excess() for j in sorted(widened)}
    parts = []
    for restart, product in zip(restarts, products, strict=True):
        effects, noise = (
            None if restart[name] is None else _main_effects(graph, restart[name], functions, ones)
            for name in ("sums", "noise")
        )
        kernel = restart["kernel"]
        machine = None if kernel is None else kernel_moments(graph, kernel, columns)
        widening = _widening(graph, restart, excess)
        parts.append(Parts(product, effects, machine, noise, widening))
    return parts


def _widening(graph: Graph, restart: dict[str, Any], excess: dict[int, Value]) -> Value | None:
    """Return the variance that is added beyond the training range, or None: (n, K)."""
    total: Value | None = None
    for item in restart["widening"]:
        for sign, table in ((-1.0, item["below"]), (1.0, item["above"])):
            e, width = sign * excess[item["column"]], 1.0 / (len(table) - 1)
            steps = [graph.node("Clip", e - k * width, 0.0, width) for k in range(len(table) - 1)]
            square = graph.node("Max", e, 1.0)
            of_input = (graph.concat(steps) @ (np.diff(table, axis=0) / width)) * (square * square)
            total = of_input if total is None else total + of_input
    widest = restart["widest"]
    return total if total is None or widest is None else graph.node("Min", total, widest)


def _main_effects(
    graph: Graph, sums: dict[str, Any], functions: dict[tuple[int, int], Value], ones: Value
) -> Both:
    """Return mean and variance of the main effects: (n, K) each."""
    parts = [functions[i["column"], i["effect"]].columns(i["functions"]) for i in sums["inputs"]]
    g = graph.concat([ones, *parts])
    size = sums["mean"].shape[1]
    first, second = np.triu_indices(size)
    variances = []
    for packed in sums["cov"]:
        cov = np.zeros((size, size))
        cov[first, second] = cov[second, first] = packed
        variances.append(((g @ cov) * g) @ np.ones((size, 1)))
    return g @ np.ascontiguousarray(sums["mean"].T), graph.concat(variances)


def _products(restarts: list[dict[str, Any]], columns: dict[int, Column]) -> list[Product | None]:
    """Return the tensor's moments in each restart, None where there is none."""
    used = {(m["column"], m["basis"]) for restart in restarts for m in restart["modes"]}
    named = sorted(pair for pair in used if pair[0] is not None)
    features: Made = {(j, place): columns[j].features(place) for j, place in named}
    return [_product(r, features) if r["modes"] else None for r in restarts]


def _product(restart: dict[str, Any], features: Made) -> Product:
    """Return the product of all modes: entry by entry, or of a row vector and matrices."""
    mean: Any = None
    second: Any = None
    for mode in restart["modes"]:
        step: Any = mode["mean"], mode["second"]
        if mode["column"] is not None:
            step = features[mode["column"], mode["basis"]].times(*step)
        if mean is None:
            mean, second = step
        elif restart["network"] == "cp":
            mean, second = mean * step[0], second * step[1]
        else:
            left, right = mode["shape"]
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
    terms = [] if parts.product is None else [_tensor_moments(graph, restart, parts.product)]
    terms += [part for part in (parts.effects, parts.kernel) if part is not None]
    mean, variance = terms[0]
    for more, spread in terms[1:]:
        mean, variance = mean + more, variance + spread
    variance = graph.node("Max", variance, np.atleast_1d(restart["least"])[None, :])
    return mean, variance if parts.widening is None else variance + parts.widening


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


# ---- outputs


def mean_and_std(graph: Graph, data: dict[str, Any], parts: list[Parts]) -> tuple[Value, Value]:
    """Return the mean of y and its standard deviation, noise included: (n, 1) each.

    They are those before recalibration, and so are ``probabilities``: first, rows with missing
    values become averages over their copies.
    """
    transformed = data["transformation"] is not None
    each = []
    for restart, part in zip(data["restarts"], parts, strict=True):
        mean, variance = moments(graph, restart, part)
        inputs = {"mean": mean, "variance": variance}
        if part.noise is not None:
            inputs |= dict(zip(("g_mean", "g_variance"), part.noise, strict=True))
        central = transformed and "central_variance" in restart["likelihood"]["outputs"]
        names = *_MOMENTS[:2], "central_variance" if central else _MOMENTS[2]
        y = evaluated(graph, restart["likelihood"], names, **inputs)
        each.append([y[name] for name in names])
    weights = data["weights"]
    if transformed:
        return _transformed(graph, data, each)
    means, spreads, noises = zip(*each, strict=True)
    mean = _mixed(weights, means)
    between = _mixed(weights, [(value - mean) * (value - mean) for value in means])
    variance = _mixed(weights, spreads) + between + _mixed(weights, noises)
    std = data["scale"] * graph.node("Sqrt", variance)
    return data["shift"] + data["scale"] * mean, std


def _transformed(
    graph: Graph, data: dict[str, Any], each: Sequence[Sequence[Any]]
) -> tuple[Value, Value]:
    """Return mean and standard deviation of y, from those of a function of it in each restart."""
    moments_of_y = []
    for mean, spread, noise in each:
        # ONNX Runtime would round a constant factor of a matrix product to float32
        scale, square = (graph.full(mean, data["scale"] ** power) for power in (1, 2))
        normal = {"mean": data["shift"] + scale * mean, "variance": square * (spread + noise)}
        y = evaluated(graph, data["transformation"], ("y_mean", "y_variance"), **normal)
        moments_of_y.append((y["y_mean"], y["y_variance"]))
    means, variances = zip(*moments_of_y, strict=True)
    weights = data["weights"]
    mean = _mixed(weights, means)
    between = _mixed(weights, [(value - mean) * (value - mean) for value in means])
    return mean, graph.node("Sqrt", _mixed(weights, variances) + between)


def _mixed(weights: Array, values: Sequence[Any]) -> Any:
    """Return the weighted mean over restarts."""
    weighed = []
    for weight, value in zip(weights.tolist(), values, strict=True):
        # ONNX Runtime would round a constant factor of a matrix product to float32
        by = value.graph.full(value, weight) if isinstance(value, Value) else weight
        weighed.append(by * value)
    return sum(weighed[1:], weighed[0])


def probabilities(graph: Graph, data: dict[str, Any], parts: list[Parts]) -> Value:
    """Return the probability of each class: (n, K)."""
    each = [
        _PROBABILITIES[restart["likelihood"]["kind"]](graph, data, restart, part)
        for restart, part in zip(data["restarts"], parts, strict=True)
    ]
    return graph.node("Max", _mixed(data["weights"], each), _TINY)


def recalibrated_std(data: dict[str, Any], std: Value) -> Value:
    """Return the standard deviation of y as recalibrated."""
    factor = 1.0 if data["calibration"] is None else data["calibration"]["factor"]
    return std if factor == 1.0 else factor * std


def recalibrated(graph: Graph, data: dict[str, Any], p: Value) -> Value:
    """Return probabilities of the classes as recalibrated: (n, K)."""
    scaling = data["calibration"]
    if scaling is None:
        return p
    scaled = scaling["slope"] * graph.node("Log", p)
    if scaling["offset"]:  # of two classes
        scaled = scaled + np.array([[0.0, scaling["offset"]]])
    return graph.node("Max", graph.node("Softmax", scaled, axis=1), _TINY)


def _logistic(graph: Graph, data: dict[str, Any], restart: dict[str, Any], parts: Parts) -> Value:
    """Return E[sigma(-x)] and E[sigma(x)] by the trapezoid rule."""
    mean, variance = moments(graph, restart, parts)
    nodes, weights = (np.array(part) for part in FINE_GRID)
    x = mean + restart["likelihood"]["offset"]
    spread = graph.node("Sqrt", variance) * nodes[None, :]
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
    std = graph.node("Sqrt", variance)
    of_each, of_shared = np.split(
        normal_points(n_classes + rank, PROBABILITY_POINTS).T, [n_classes]
    )
    centre = mean + restart["likelihood"]["offsets"][None, :]
    x = centre.reshaped(-1, n_classes, 1) + std.reshaped(-1, n_classes, 1) * of_each[None]
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


# ---- square roots


def square_root(graph: Graph, matrices: Value, size: int) -> Value:
    """Return the symmetric root of each matrix, negative eigenvalues taken for zero: (n, R, R).

    In each round every column is turned together with one other, so that the number between them
    vanishes; after all rounds every two have met.
    """
    if size == 1:
        return graph.node("Sqrt", graph.node("Max", matrices, 0.0))
    meetings = _rounds(size)
    ends = np.array([[a for a, _ in pairs] for pairs in meetings])
    others = np.array([[b for _, b in pairs] for pairs in meetings])
    count, half = ends.shape
    # which numbers of a matrix a round looks at, and where sines and cosines go in a rotation
    looks, cosines = np.zeros((count, size**2, 3 * half)), np.zeros((count, half, size**2))
    sines, rest = np.zeros_like(cosines), np.zeros((count, 1, size**2))
    for t in range(count):
        rest[t, 0] = np.eye(size).ravel()
        for i, (a, b) in enumerate(zip(ends[t], others[t], strict=True)):
            for k, place in enumerate((a * size + a, b * size + b, a * size + b)):
                looks[t, place, k * half + i] = 1.0
            for place in (a * size + a, b * size + b):
                cosines[t, i, place], rest[t, 0, place] = 1.0, 0.0
            sines[t, i, a * size + b], sines[t, i, b * size + a] = 1.0, -1.0
    body = graph.inner()
    number, _ = body.argument("i"), body.argument("b")
    a, v = body.argument("f", "n", size, size), body.argument("f", "n", size, size)
    now = body.node("Mod", number, np.array(count))
    look, cosine, sine, still = (
        body.node("Gather", table, now, axis=0) for table in (looks, cosines, sines, rest)
    )
    seen = a.reshaped(-1, size**2) @ look
    first, second, between = (seen.columns(np.arange(k * half, (k + 1) * half)) for k in range(3))
    apart = second - first
    twice = 2.0 * between
    size_of = body.node("Abs", apart) + body.node("Sqrt", apart * apart + twice * twice)
    alike = body.node("LessOrEqual", size_of, 0.0)  # and nothing between them
    sign = body.where(body.node("LessOrEqual", 0.0, apart), 1.0, -1.0)
    tangent = body.where(alike, 0.0, sign * twice / body.where(alike, 1.0, size_of))
    c = 1.0 / body.node("Sqrt", 1.0 + tangent * tangent)
    turn = (c @ cosine + (tangent * c) @ sine + still).reshaped(-1, size, size)
    results = [turn.turned() @ a @ turn, v @ turn]
    # the identity, as often as there are matrices
    begin = 0.0 * matrices + np.eye(size)[None]
    turned, turns = graph.loop(SWEEPS * count, body, results, [matrices, begin])
    diagonal = (turned * np.eye(size)[None]) @ np.ones((size, 1))
    roots = graph.node("Sqrt", graph.node("Max", diagonal, 0.0)).reshaped(-1, 1, size)
    return (turns * roots) @ turns.turned()


def _rounds(size: int) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs in which every two meet once, as in a tournament."""
    players = list(range(size + size % 2))
    rounds = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        pairs = zip(players[:half], players[: half - 1 : -1], strict=True)
        rounds.append([(min(p), max(p)) for p in pairs if max(p) < size])
        players = [players[0], players[-1], *players[1:-1]]
    return rounds
