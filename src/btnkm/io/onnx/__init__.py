"""Models for ONNX runtimes: ``model.to_onnx()``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..portable import portable

if TYPE_CHECKING:
    from onnx import ModelProto


def to_onnx(model: Any) -> ModelProto:
    """Return a fitted model as an ONNX graph; see ``BTNRegressor.to_onnx``."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ImportError(
            "to_onnx needs the package onnx; install it with pip install 'btnkm[onnx]'."
        ) from None
    from .copies import Copies
    from .features import Column
    from .graph import Graph
    from .outputs import mean_and_std, parts_of, probabilities, recalibrated, recalibrated_std

    data = portable(model)
    classes = getattr(model, "classes_", None)
    outputs = ("mean", "std") if classes is None else ("label", "probabilities")
    names = _input_names([column["name"] for column in data["columns"]], outputs)
    graph = Graph((*names, *outputs))
    columns: dict[int, Any] = {}
    for j, (name, column) in enumerate(zip(names, data["columns"], strict=True)):
        text = column["kind"] == "O" and column["categories"] is not None
        value = graph.input(name, "O" if text else "f")
        if column["active"]:
            columns[j] = Column.of(graph, column, value)
    copies = Copies.of(graph, columns)
    parts = parts_of(graph, data["restarts"], copies.columns)
    description = f"{type(model).__name__} of btnkm; dates and durations in microseconds"
    if classes is None:
        mean, std = copies.moments(*mean_and_std(graph, data, parts))
        both = mean, recalibrated_std(data, std)
        results = {name: (v, "f", ("n", 1)) for name, v in zip(outputs, both, strict=True)}
        return graph.model(results, description)
    each = copies.averaged(probabilities(graph, data, parts), len(classes))
    each = recalibrated(graph, data, each)
    most = graph.node("ArgMax", each, axis=1, keepdims=1)
    labels, kind = _labels(classes)
    label = graph.node("Gather", labels, most, axis=0)
    return graph.model(
        {"label": (label, kind, ("n", 1)), "probabilities": (each, "f", ("n", len(classes)))},
        description,
    )


def _input_names(columns: list[Any], outputs: tuple[str, ...]) -> list[str]:
    """Return names of inputs: those of the columns, with "_" appended where one is taken."""
    taken, names = set(outputs), []
    for column in columns:
        name = str(column)
        while name in taken or not name:
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def _labels(classes: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the labels in a type that ONNX has, and its kind."""
    if classes.dtype.kind in "biuf":
        kind = {"u": "i"}.get(classes.dtype.kind, classes.dtype.kind)
        wide = {"b": np.bool_, "i": np.int64, "f": np.float64}[kind]
        return classes.astype(wide), kind
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(object), "O"
    raise ValueError(
        f"labels must be text, numbers or booleans for ONNX, got {classes.tolist()[0]!r}; convert "
        "them to text before the fit."
    )
