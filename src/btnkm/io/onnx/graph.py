"""Nodes of an ONNX graph: values with operators, and formulas of bases and likelihoods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from onnx import ModelProto, TensorProto, helper
from scipy.special import gammaln, stdtr, stdtrit

from ...core.formula import run
from ...version import __version__

Array = np.ndarray
# onnxruntime has double precision kernels for these since 2022
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
ML = "ai.onnx.ml"
_TYPES = {
    "b": TensorProto.BOOL,
    "i": TensorProto.INT64,
    "f": TensorProto.DOUBLE,
    "O": TensorProto.STRING,
}


#: Operators of formulas by their names in ``core/formula.py``.
_NODES = {
    **{"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow"},
    **{"sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "floor": "Floor"},
    **{"clip": "Clip", "sigmoid": "Sigmoid", "matmul": "MatMul"},
}
Method = Callable[["Value", Any], "Value"]


def _methods(operator: str) -> tuple[Method, Method]:
    """Return methods of a value that add a node, with the value first and second."""

    def first(self: Value, other: Any) -> Value:
        return self.graph.node(operator, self, other)

    def second(self: Value, other: Any) -> Value:
        return self.graph.node(operator, other, self)

    return first, second


@dataclass(frozen=True)
class Value:
    """The result of a node, or an input; operators add nodes."""

    __array_ufunc__: ClassVar[None] = None  # array + value is a value
    graph: Graph
    name: str

    __add__, __radd__ = _methods("Add")
    __sub__, __rsub__ = _methods("Sub")
    __mul__, __rmul__ = _methods("Mul")
    __truediv__, __rtruediv__ = _methods("Div")
    __matmul__, __rmatmul__ = _methods("MatMul")

    def columns(self, places: Any) -> Value:
        """Return some columns: (n, m) -> (n, len(places))."""
        return self.graph.node("Gather", self, np.asarray(places, dtype=np.int64), axis=1)

    def reshaped(self, *shape: int) -> Value:
        """Return the same numbers in another shape; -1 stands for the remaining size."""
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
        self._narrow: dict[Any, Value] = {}
        self._nodes: list[Any] = []
        self._initializers: list[Any] = []
        self._inputs: list[Any] = []

    def _name(self) -> str:
        while (name := f"{self._prefix}{self._count}") in self._taken:
            self._count += 1
        self._count += 1
        return name

    def inner(self) -> Graph:
        """Return a graph for the body of a loop in this one."""
        return Graph(self._taken, f"{self._name()}_")

    def argument(self, kind: str, *shape: Any) -> Value:
        """Return an input of the body of a loop."""
        return self.input(self._name(), kind, shape)

    def input(self, name: str, kind: str, shape: Sequence[Any] = ("n", 1)) -> Value:
        """Return an input of floats ("f"), text ("O"), integers ("i") or booleans ("b")."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], shape))
        return Value(self, name)

    def constant(self, value: Any) -> Value:
        """Return an array, or a number, that is the same for all inputs."""
        array = np.asarray(value)
        return self._stored(array.astype(np.int64) if array.dtype.kind == "i" else array)

    def narrow(self, array: Array, *, whole: bool = False) -> Value:
        """Return an array as doubles, or as integers, that is stored in its own narrow type."""
        kind = TensorProto.INT64 if whole else TensorProto.DOUBLE
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._narrow:
            self._narrow[key] = self.node("Cast", self._stored(array), to=kind)
        return self._narrow[key]

    def _stored(self, array: Array) -> Value:
        text = array.dtype.kind in "OU"
        key = array.dtype.str, array.shape, repr(array.tolist()) if text else array.tobytes()
        if key not in self._constants:
            kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(array.dtype)
            flat: Any = [str(v).encode() for v in array.ravel()] if text else key[2]
            name = self._name()
            tensor = helper.make_tensor(name, kind, array.shape, flat, raw=not text)
            self._initializers.append(tensor)
            self._constants[key] = Value(self, name)
        return self._constants[key]

    def node(self, operator: str, *inputs: Any, domain: str = "", **attributes: Any) -> Value:
        """Return the result of an operator on values, arrays or numbers."""
        return self.nodes(operator, *inputs, count=1, domain=domain, **attributes)[0]

    def nodes(
        self, operator: str, *inputs: Any, count: int, domain: str = "", **attributes: Any
    ) -> list[Value]:
        """Return several outputs of one operator."""
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
        """Return the results of a loop whose body gets its own results as the next inputs.

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
        self, outputs: Mapping[str, tuple[Value, str, Sequence[Any]]], description: str
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
            doc_string=description,
        )


def evaluated(
    graph: Graph, formula: dict[str, Any], outputs: Sequence[str] | None = None, **inputs: Value
) -> dict[str, Any]:
    """Return outputs of a formula, all by default; one that is constant is a number."""

    def node(name: str) -> Callable[..., Value]:
        return lambda *parts: graph.node(name, *map(_row, parts))

    operations: dict[str, Callable[..., Value]] = {
        **{name: node(operator) for name, operator in _NODES.items()},
        "equal": lambda a, b: graph.number(graph.node("Equal", _row(a), _row(b))),
        "above": lambda a, b: graph.number(graph.node("Greater", _row(a), _row(b))),
        "concat": lambda *parts: graph.concat(parts),
        "columns": lambda a, places: a.columns(places),
        "student_cdf": lambda t, dof: 0.5 + student_excess(graph, t, dof),
    }
    return run(formula, inputs, operations, outputs)


def _row(value: Any) -> Any:
    """Return a vector of constants as a row; anything else as it is."""
    return value[None, :] if np.ndim(value) == 1 else value


def student_excess(graph: Graph, z: Value, dof: float) -> Value:
    """Return P(T <= z) - 1/2 of Student's t.

    With s = z / sqrt(dof + z^2) that is a constant times the integral of (1 - v^2)^(dof / 2 - 1)
    from 0 to s, by Gauss-Legendre quadrature.
    """
    power = 0.5 * dof - 1.0
    constant = float(np.exp(gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof)) / np.sqrt(np.pi))
    most = -float(stdtrit(dof, 1e-17))  # beyond it the distribution is 0 or 1

    def excess(z: Any, nodes: Array, weights: Array, sqrt: Any, power_of: Any) -> Any:
        s = z / sqrt(dof + z * z)
        v = s * nodes[None, :]
        return constant * s * (power_of(1.0 - v * v, power) @ weights[:, None])

    tried = np.linspace(0.0, most, 400)[:, None]
    for count in (32, 64, 128, 256, 512):
        nodes, weights = np.polynomial.legendre.leggauss(count)
        nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
        value = excess(tried, nodes, weights, np.sqrt, np.power)
        if np.max(np.abs(value - (stdtr(dof, tried) - 0.5))) < 1e-12:
            break
    sqrt, power_of = (partial(graph.node, operator) for operator in ("Sqrt", "Pow"))
    return excess(graph.node("Clip", z, -most, most), nodes, weights, sqrt, power_of)
