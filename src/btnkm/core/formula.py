"""Formulas as data: elementary operations that any language can evaluate.

A formula is a list of steps and the names of its outputs. A step is ``[operation, argument, ...]``.
An argument is a number, a vector or matrix of constants, or text: the name of an input, or the
number of an earlier step. Every value is a row of numbers; a row of one number is paired with each
number of a longer row. ``OPERATIONS`` defines the operations, in NumPy, for n rows at once.

Bases and likelihoods describe themselves by formulas. ONNX graphs and the what-if panel are built
from these and know no class of this library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from scipy.special import betainc, expit, gammaincc, gammaln, log_expit, ndtr, stdtr

Array = np.ndarray


def _student_log_pdf(t: Array, dof: float) -> Array:
    constant = gammaln(0.5 * (dof + 1.0)) - gammaln(0.5 * dof) - 0.5 * np.log(np.pi * dof)
    return np.asarray(constant - 0.5 * (dof + 1.0) * np.log1p(t * t / dof))


def _concat(*parts: Array) -> Array:
    n = max(len(part) for part in parts)
    return np.hstack([np.broadcast_to(part, (n, part.shape[1])) for part in parts])


#: Every operation, on arrays of shape (n, m); the first argument is the term it is a method of.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "floor": np.floor,
    "clip": np.clip,  # between two numbers
    "equal": lambda a, b: 1.0 * (a == b),
    "above": lambda a, b: 1.0 * (a > b),
    "sigmoid": expit,
    "log_sigmoid": log_expit,
    "log_gamma": gammaln,
    "normal_cdf": ndtr,
    "student_cdf": lambda t, dof: stdtr(dof, t),
    "student_log_pdf": _student_log_pdf,
    "beta_cdf": lambda x, a, b, rest: betainc(a, b, x),  # rest is 1 - x, with all its digits
    "gamma_sf": lambda x, a: gammaincc(a, x),  # P(X > x) for X ~ Gamma(a, 1)
    "concat": _concat,
    "columns": lambda a, places: a[:, np.asarray(places, dtype=int)],
    "matmul": np.matmul,
    "sum": lambda a: np.sum(a, axis=1, keepdims=True),
    # -end, -end + step, ..., end; of one row at a time, since the length depends on the step
    "grid": lambda step, end: np.arange(-end, end + 0.5 * step.item(), step.item())[None],
}


def _method(name: str) -> Callable[..., Term]:
    def method(self: Term, *arguments: Any) -> Term:
        return self.formula.step(name, self, *arguments)

    method.__doc__ = f"Return the term of the operation ``{name}``; see ``OPERATIONS``."
    return method


class Term:
    """An input or a step of a formula; operators and methods add steps."""

    __array_ufunc__: ClassVar[None] = None  # array + term is a term

    def __init__(self, formula: Formula, name: str) -> None:
        self.formula = formula
        self.name = name

    __add__, __sub__, __mul__ = _method("add"), _method("subtract"), _method("multiply")
    __truediv__, __matmul__, __radd__ = _method("divide"), _method("matmul"), _method("add")
    __rmul__ = _method("multiply")
    power, sqrt, exp, log = _method("power"), _method("sqrt"), _method("exp"), _method("log")
    sin, floor, clip, equal = _method("sin"), _method("floor"), _method("clip"), _method("equal")
    above, sigmoid, log_sigmoid = _method("above"), _method("sigmoid"), _method("log_sigmoid")
    log_gamma, normal_cdf = _method("log_gamma"), _method("normal_cdf")
    student_cdf, student_log_pdf = _method("student_cdf"), _method("student_log_pdf")
    beta_cdf, gamma_sf, sum = _method("beta_cdf"), _method("gamma_sf"), _method("sum")
    concat, grid = _method("concat"), _method("grid")

    def __rsub__(self, other: Any) -> Term:
        return self.formula.step("subtract", other, self)

    def __rtruediv__(self, other: Any) -> Term:
        return self.formula.step("divide", other, self)

    def __neg__(self) -> Term:
        return self * -1.0

    def columns(self, places: Sequence[int] | Array) -> Term:
        """Return the numbers at these places of the row."""
        return self.formula.step("columns", self, np.asarray(places, dtype=float))

    def normal_grid(self, end: float) -> tuple[Term, Term]:
        """Return nodes and weights of the trapezoid rule for N(0, 1), with this step."""
        nodes = self.grid(end)
        density = (nodes * nodes * -0.5).exp()
        return nodes, density / density.sum()


class Formula:
    """Steps in the making.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.core.formula import Formula, evaluate
    >>> formula = Formula()
    >>> x = formula.input("x")
    >>> plain = formula.plain(y=2.0 * x + 1.0)
    >>> plain["steps"]
    [['multiply', 'x', 2.0], ['add', '0', 1.0]]
    >>> evaluate(plain, {"x": np.array([[3.0]])})["y"]
    array([[7.]])
    """

    def __init__(self) -> None:
        self.steps: list[list[Any]] = []

    def input(self, name: str) -> Term:
        """Return the term of an input."""
        return Term(self, name)

    def step(self, operation: str, *arguments: Any) -> Term:
        """Add a step and return its term."""
        self.steps.append([operation, *map(_argument, arguments)])
        return Term(self, str(len(self.steps) - 1))

    def include(self, plain: Mapping[str, Any], inputs: Mapping[str, Term]) -> dict[str, Any]:
        """Add the steps of another formula, with terms for its inputs; return its outputs."""
        first = len(self.steps)

        def moved(argument: Any) -> Any:
            if not isinstance(argument, str):
                return argument
            if argument.isdigit():
                return Term(self, str(first + int(argument)))
            return inputs[argument]

        for operation, *arguments in plain["steps"]:
            self.step(operation, *map(moved, arguments))
        return {name: moved(value) for name, value in plain["outputs"].items()}

    def plain(self, **outputs: Any) -> dict[str, Any]:
        """Return the formula as plain data, with outputs of these names."""
        return {
            "steps": self.steps,
            "outputs": {name: _argument(value) for name, value in outputs.items()},
        }


def _argument(value: Any) -> Any:
    if isinstance(value, Term):
        return value.name
    return np.asarray(value, dtype=float) if np.ndim(value) else float(value)


def run(
    formula: Mapping[str, Any],
    inputs: Mapping[str, Any],
    operations: Mapping[str, Callable[..., Any]],
    outputs: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return outputs of a formula, all by default; steps that they do not need are left out.

    Operations get values as these operations return them, and constants as they are.
    """
    steps, values = formula["steps"], dict(inputs)

    def value(argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument
        if argument not in values:
            operation, *arguments = steps[int(argument)]
            if operation not in operations:
                raise ValueError(f"the operation {operation!r} is not available here.")
            values[argument] = operations[operation](*map(value, arguments))
        return values[argument]

    for k in sorted(_needed(formula, outputs)):  # in order, so that no recursion is deep
        value(str(k))
    wanted = formula["outputs"] if outputs is None else outputs
    return {name: value(formula["outputs"][name]) for name in wanted}


def _needed(formula: Mapping[str, Any], outputs: Sequence[str] | None) -> set[int]:
    """Return the steps that outputs depend on."""
    wanted = formula["outputs"] if outputs is None else outputs
    open_, needed = [formula["outputs"][name] for name in wanted], set()
    while open_:
        argument = open_.pop()
        if isinstance(argument, str) and argument.isdigit() and int(argument) not in needed:
            needed.add(int(argument))
            open_ += formula["steps"][int(argument)][1:]
    return needed


def evaluate(
    formula: Mapping[str, Any], inputs: Mapping[str, Array], outputs: Sequence[str] | None = None
) -> dict[str, Array]:
    """Return outputs of a formula, given inputs of shape (n, 1), in NumPy: (n, m) each."""
    return run(formula, inputs, OPERATIONS, outputs)
