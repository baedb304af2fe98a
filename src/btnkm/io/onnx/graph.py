"""Formulas as nodes of an ONNX graph: values that remember how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, TensorProto, helper

from ...version import __version__

Array = np.ndarray
# What onnxruntime has had kernels in double precision for since 2022
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
ML = "ai.onnx.ml"
_TYPES = {
    "b": TensorProto.BOOL,
    "i": TensorProto.INT64,
    "f": TensorProto.DOUBLE,
    "O": TensorProto.STRING,
}


@dataclass(frozen=True)
class Value:
    """What a node gives, or an input; with numbers, arrays and other values it makes more."""

    __array_ufunc__: ClassVar[None] = None  # NumPy is to leave sums with values to them
    graph: Graph
    name: str

    def __add__(self, other: Any) -> Value:
        return self.graph.node("Add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.node("Add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.graph.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.node("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.graph.node("Mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.graph.node("Mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.node("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.graph.node("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", self, other)

    def __rmatmul__(self, other: Any) -> Value:
        return self.graph.node("MatMul", other, self)

    def columns(self, places: Any) -> Value:
        """Return some columns: (n, m) -> (n, len(places))."""
        return self.graph.node("Gather", self, np.asarray(places, dtype=np.int64), axis=1)

    def reshaped(self, *shape: int) -> Value:
        """Return the same numbers in another shape; -1 stands for what is left."""
        return self.graph.node("Reshape", self, np.array(shape, dtype=np.int64))

    def turned(self) -> Value:
        """Return matrices with rows for columns: (n, a, b) -> (n, b, a).

        Not by Transpose: onnxruntime (1.23, say) makes one node of that and a product, for which it
        has no kernel in double precision.
        """
        return self.graph.node("Einsum", self, equation="nab->nba")


class Graph:
    """Nodes in the making.

    Parameters
    ----------
    taken : iterable of str
        Names of inputs and outputs, which no value in between may have.
    prefix : str
        What names of values begin with: those of a graph within another must differ, too.
    """

    def __init__(self, taken: Iterable[str] = (), prefix: str = "v") -> None:
        self._taken = set(taken)
        self._prefix = prefix
        self._count = 0
        self._constants: dict[Any, Value] = {}
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []

    def _name(self) -> str:
        while (name := f"{self._prefix}{self._count}") in self._taken:
            self._count += 1
        self._count += 1
        return name

    def inner(self) -> Graph:
        """Return a graph to be the body of a loop in this one."""
        return Graph(self._taken, f"{self._name()}_")

    def argument(self, kind: str, *shape: Any) -> Value:
        """Return an input of the body of a loop."""
        return self.input(self._name(), kind, shape)

    def input(self, name: str, kind: str, shape: Sequence[Any] = ("n", 1)) -> Value:
        """Return an input of floats ("f"), text ("O"), integers ("i") or booleans ("b")."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))
        return Value(self, name)

    def constant(self, value: Any) -> Value:
        """Return an array, or a number, that is the same whatever comes in."""
        array = np.asarray(value)
        if array.dtype.kind == "i":
            array = array.astype(np.int64)
        text = array.dtype.kind in "OU"
        key = array.dtype.str, array.shape, repr(array.tolist()) if text else array.tobytes()
        if key not in self._constants:
            kind = _TYPES["O" if text else array.dtype.kind]
            flat: Any = array.tobytes()
            if text:
                flat = [str(item).encode() for item in array.ravel()]
            name = self._name()
            tensor = helper.make_tensor(name, kind, array.shape, flat, raw=not text)
            self._initializers.append(tensor)
            self._constants[key] = Value(self, name)
        return self._constants[key]

    def narrow(self, array: Array, *, whole: bool = False) -> Value:
        """Return an array as doubles, or as integers, that is stored in its own narrow type."""
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._constants:
            name, kind = self._name(), helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor = helper.make_tensor(name, kind, array.shape, key[2], raw=True)
            self._initializers.append(tensor)
            kind = TensorProto.INT64 if whole else TensorProto.DOUBLE
            self._constants[key] = self.node("Cast", Value(self, name), to=kind)
        return self._constants[key]

    def node(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> Value:
        """Return what an operator makes of values, arrays or numbers."""
        return self.nodes(operator, *inputs, count=1, domain=domain, **attributes)[0]

    def nodes(
        self, operator: str, *inputs: Any, count: int, domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Return so many outputs of one operator."""
        given = [v if isinstance(v, Value) else self.constant(v) for v in inputs]
        names = [self._name() for _ in range(count)]
        self._nodes.append(
            helper.make_node(
                operator, [v.name for v in given], names, domain=domain or None, **attributes
            )
        )
        return [Value(self, name) for name in names]

    def full(self, like: Value, number: float) -> Value:
        """Return one number in the shape of a value."""
        return self.node("Expand", number, self.node("Shape", like))

    def number(self, flag: Value) -> Value:
        """Return 1.0 where a value is true, else 0.0."""
        return self.node("Cast", flag, to=TensorProto.DOUBLE)

    def where(self, condition: Value, yes: Any, no: Any) -> Value:
        """Return one value or the other."""
        return self.node("Where", condition, yes, no)

    def concat(self, values: Sequence[Any], axis: int = 1) -> Value:
        """Return values side by side."""
        return values[0] if len(values) == 1 else self.node("Concat", *values, axis=axis)

    def loop(self, times: int, body: Graph, results: Sequence[Value], begin: Sequence[Any]) -> Any:
        """Return what a body makes of what it begins with, given its results again and again.

        The first two inputs of the body are the number of the round and whether to go on.
        """
        outputs = [body.node("Identity", np.array(True)), *results]
        infos = [
            helper.make_tensor_value_info(value.name, _TYPES[kind], None)
            for value, kind in zip(outputs, "b" + "f" * len(results), strict=True)
        ]
        inner = helper.make_graph(body._nodes, "body", body._inputs, infos, body._initializers)
        trips, go_on = np.array(times), np.array(True)
        return self.nodes("Loop", trips, go_on, *begin, count=len(begin), body=inner)

    def model(
        self, outputs: Mapping[str, tuple[Value, str, Sequence[Any]]], told: str
    ) -> ModelProto:
        """Return a model with outputs of these names, kinds and shapes."""
        infos = []
        for name, (value, kind, shape) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value.name], [name]))
            infos.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))
        graph = helper.make_graph(self._nodes, "btnkm", self._inputs, infos, self._initializers)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)],
            ir_version=IR_VERSION,
            producer_name="btnkm",
            producer_version=__version__,
            doc_string=told,
        )
