"""Formulas of bases and likelihoods (see ``core/formula.py``) as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from ...core.formula import run
from .graph import Graph, Value

Array = np.ndarray
_NODES = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "power": "Pow",
    "sqrt": "Sqrt",
    "exp": "Exp",
    "log": "Log",
    "sin": "Sin",
    "floor": "Floor",
    "clip": "Clip",
    "sigmoid": "Sigmoid",
    "matmul": "MatMul",
}


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
