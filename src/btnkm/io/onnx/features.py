"""From a column to its part in f: coordinates, functions and their weights, as nodes.

Columns and bases are those of ``portable.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...bases.chebyshev import polynomials
from ...core.formula import Formula
from .graph import ML, Graph, Value, evaluated

Array = np.ndarray
Both = tuple[Value, Value]  # of phi and of psi
_TINY = float(np.finfo(float).tiny)
UNSEEN, MISSING = -2, -1  # codes of a category never seen, and of a missing value


class Features(Protocol):
    """The functions of a column at n rows."""

    def times(self, mean: Array, second: Array) -> Both:
        """Return phi and psi times weights of as many leading functions: (n, C) and (n, S)."""


@dataclass
class Functions:
    """Functions that are evaluated: phi (n, M) and psi (n, K)."""

    phi: Value
    psi: Value
    sizes: tuple[int, int]

    def times(self, mean: Array, second: Array) -> Both:
        """Return both times their weights, which are zero for functions that were dropped."""
        mean, second = (_padded(w, m) for w, m in zip((mean, second), self.sizes, strict=True))
        return self.phi @ mean, self.psi @ second


@dataclass
class Lookup:
    """Functions of categories: times weights they are a table with a row for each category.

    A category never seen (-2) and a missing value (-1) have the last rows of the table.
    """

    place: Value  # the row of each of the n values in the table
    rows: tuple[Callable[[Array], Array], ...]  # from weights of phi, and of psi, to the table

    def times(self, mean: Array, second: Array) -> Both:
        """Return the rows of the tables."""
        node = self.place.graph.node
        phi, psi = (
            node("Gather", table(weights), self.place, axis=0)
            for table, weights in zip(self.rows, (mean, second), strict=True)
        )
        return phi, psi


def _padded(weights: Array, size: int) -> Array:
    """Return weights of all functions of a basis, given those of the first."""
    out = np.zeros((size, weights.shape[1]))
    out[: len(weights)] = weights
    return out


@dataclass
class Column:
    """A column at n rows."""

    graph: Graph
    plain: dict[str, Any]  # as in ``portable.py``
    value: Value  # raw values (n, 1)
    x: Value  # their coordinates; of categories their codes, or UNSEEN, or MISSING

    @classmethod
    def of(cls, graph: Graph, plain: dict[str, Any], value: Value) -> Column:
        """Return a column, given its raw values (n, 1)."""
        if plain["categories"] is not None:
            return cls(graph, plain, value, _codes(graph, plain, value))
        if not len(plain["knots"]):
            return cls(graph, plain, value, value)
        x = interpolated(graph, value, plain["knots"], plain["positions"])
        return cls(graph, plain, value, graph.node("Clip", x, -1.0, 1.0))

    def features(self, place: int) -> Features:
        """Return the functions of one of its bases."""
        basis = self.plain["bases"][place]
        if basis["kind"] == "constant":  # the fit saw only missing values
            ones = self.graph.full(self.value, 1.0)
            return Functions(ones, ones, (1, 1))
        if self.plain["categories"] is not None:
            return _category_features(basis, self.x)
        return _number_features(self.graph, basis, self.value, self.x)

    def missing(self) -> Value:
        """Return where values are missing: (n, 1)."""
        if self.plain["categories"] is not None:
            return self.graph.node("Equal", self.x, np.array(MISSING))
        return self.graph.node("IsNaN", self.value)

    def held(self) -> Value:
        """Return raw numbers, those beyond the knots at their ends: (n, 1)."""
        first, last = (float(self.plain["knots"][k]) for k in (0, -1))
        return self.graph.node("Clip", self.value, first, last)

    def at_knots(self, places: Value) -> Both:
        """Return raw numbers and coordinates of some knots, from the tables in the graph."""
        tables = _tables(self.plain["knots"], self.plain["positions"])
        raw, x = (self.graph.node("Gather", table, places) for table in tables)
        return raw, x

    def excess(self) -> Value:
        """Return how far numbers are beyond the knots, 0 where missing: (n, 1)."""
        graph, (first, last) = self.graph, (float(self.plain["knots"][k]) for k in (0, -1))
        half, far = max(0.5 * last - 0.5 * first, _TINY), float(self.plain["farthest"])
        above, below = ((0.5 * self.value - 0.5 * end) / half for end in (last, first))
        beyond = graph.node("Clip", above, 0.0, far) + graph.node("Clip", below, -far, 0.0)
        return graph.where(self.missing(), 0.0, beyond)

    def effect(self, place: int) -> Value:
        """Return the functions of one of its main effects, less their means: (n, P)."""
        graph, plain = self.graph, self.plain["effects"][place]
        missing = unknown = self.missing()
        if self.plain["categories"] is not None:
            unknown = graph.node("Less", self.x, np.array(0))
        known, parts = len(plain["center"]) - plain["missing"], []
        if known:
            values = self._known_effect(plain, missing) - plain["center"][None, :known]
            parts.append(graph.where(unknown, 0.0, values))
        if plain["missing"]:
            parts.append(graph.number(missing) - float(plain["center"][-1]))
        return graph.concat(parts)

    def _known_effect(self, plain: dict[str, Any], missing: Value) -> Value:
        """Return the functions of values that are not missing."""
        graph = self.graph
        if self.plain["categories"] is not None:
            codes = plain["codes"].astype(np.int64)[None, :]
            return graph.number(graph.node("Equal", self.x, codes))
        x = graph.where(missing, 0.0, self.x)
        line = interpolated(graph, x, self.plain["positions"], plain["line"])
        if plain["runs_on"]:
            line = line + self.excess() * float(plain["line"][-1] - plain["line"][0])
        parts = [line]
        if plain["degree"]:
            formula, count = Formula(), plain["degree"] + 1
            curve = formula.plain(T=polynomials(formula.input("x"), count).columns(range(1, count)))
            parts.append(evaluated(graph, curve, x=x)["T"])
        for operator, name in (("Greater", "steps"), ("Equal", "spikes")):
            if len(plain[name]):
                parts.append(graph.number(graph.node(operator, x, plain[name][None, :])))
        return graph.concat(parts)


def _number_features(graph: Graph, basis: dict[str, Any], value: Value, x: Value) -> Functions:
    missing = graph.node("IsNaN", value)
    x = graph.where(missing, basis["typical"], x)
    functions = evaluated(graph, basis["basis"], x=x)
    phi, psi = functions["phi"], functions["psi"]
    if basis["indicator"] is not None:
        order = 1 if basis["indicator"] == "first" else -1
        flag = graph.number(missing)
        phi, psi = (graph.concat([flag, part][::order]) for part in (phi, psi))
    if not basis["saw_missing"]:
        phi = graph.where(missing, basis["average_phi"][None, :], phi)
        psi = graph.where(missing, basis["average_psi"][None, :], psi)
    return Functions(phi, psi, (basis["n_functions"], basis["n_products"]))


def _padded_to_search(sorted_values: Array) -> Array:
    """Return sorted numbers followed by infinities, a power of two in all."""
    size = 2 ** len(sorted_values).bit_length()
    return np.append(sorted_values, np.full(size - len(sorted_values), np.inf))


def _place(graph: Graph, padded: Array, value: Value) -> Value:
    """Return the position of the last of the sorted numbers that is not above each value.

    It is 0 for NaN, and for values below all numbers. Bisection needs few steps, and memory for the
    rows alone.
    """
    bits = len(padded).bit_length() - 1
    place = graph.full(value, 0)
    for step in (2**bit for bit in reversed(range(bits))):
        further = place + step
        not_above = graph.node("LessOrEqual", graph.node("Gather", padded, further), value)
        place = graph.where(not_above, further, place)
    return place


def interpolated(graph: Graph, value: Value, knots: Array, heights: Array) -> Value:
    """Return the function with these heights at knots, linear between them and flat beyond.

    The operations are those of ``numpy.interp``, in its order: spikes are known by equality. NaN
    stays NaN.
    """
    held = graph.node("Clip", value, float(knots[0]), float(knots[-1]))
    knots, heights = _tables(knots, heights)
    place = _place(graph, knots, held)
    knot, height = (graph.node("Gather", a, place) for a in (knots, heights))
    next_knot, next_height = (graph.node("Gather", a, place + 1) for a in (knots, heights))
    return (next_height - height) / (next_knot - knot) * (held - knot) + height


def _tables(knots: Array, heights: Array) -> tuple[Array, Array]:
    """Return knots and heights as a graph has them: from the last knot on the slope is 0."""
    return _padded_to_search(knots), np.append(heights, heights[-1])


def _codes(graph: Graph, column: dict[str, Any], value: Value) -> Value:
    """Return the codes of categories."""
    categories = column["categories"]
    if column["kind"] != "O":
        return _number_code(graph, categories, value)
    known = {"": MISSING} | categories
    return graph.node(
        "LabelEncoder",
        value,
        domain=ML,
        keys_strings=list(known),
        values_int64s=list(known.values()),
        default_int64=UNSEEN,
    )


def _category_features(basis: dict[str, Any], place: Value) -> Lookup:
    few = basis["kind"] == "with_missing"
    count = basis["basis"]["n_functions"] if few else basis["n_functions"] - 1
    if few:
        phi, psi = _category_rows(basis, count)
        rows = (lambda w: phi[:, : len(w)] @ w), (lambda w: psi[:, : len(w)] @ w)
    else:
        last = count if basis["missing"] is None else basis["missing"]
        order = np.append(np.arange(count + 1), last)
        rows = (lambda w: w[order]), (lambda w: w[order])
    return Lookup(place.reshaped(-1), rows)


def _number_code(graph: Graph, categories: dict[str, int], value: Value) -> Value:
    """Return the codes of categories that are numbers."""
    pairs = sorted((float(category), code) for category, code in categories.items())
    if not pairs:
        pairs = [(np.inf, UNSEEN)]
    known, codes = np.array([n for n, _ in pairs]), np.array([code for _, code in pairs])
    place = _place(graph, _padded_to_search(known), value)
    same = graph.node("Equal", graph.node("Gather", known, place), value)
    code = graph.where(same, graph.node("Gather", codes, place), np.array(UNSEEN))
    return graph.where(graph.node("IsNaN", value), np.array(MISSING), code)


def _category_rows(basis: dict[str, Any], count: int) -> tuple[Array, Array]:
    """Return phi and psi of each category, an unseen and a missing value: (count + 2, M)."""
    rows = []
    for average in (basis["average_phi"], basis["average_psi"]):
        table = np.eye(count + 2, count)
        table[count + 1, int(basis["typical"])] = 1.0
        if basis["indicator"] is not None:
            flag = np.zeros((count + 2, 1))
            flag[count + 1] = 1.0
            table = np.hstack([flag, table] if basis["indicator"] == "first" else [table, flag])
        table[count] = average
        if not basis["saw_missing"]:
            table[count + 1] = average
        rows.append(table)
    return rows[0], rows[1]
