"""Copies of the rows with missing values, with values instead, as nodes.

A graph computes the outputs of all n rows, then of Q copies of each of the rows that have some, and
puts the averages over copies in the place of these rows. Of rows without missing values there are
none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .features import MISSING, Column, interpolated
from .graph import Graph, Value

Array = np.ndarray


@dataclass(frozen=True)
class Copies:
    """The rows of a graph that have copies.

    Attributes
    ----------
    graph : Graph
    columns : dict of int to Column
        At all rows, then at the copies.
    n : Value or None
        The number of rows: (1,). None if no row ever has copies.
    rows : Value or None
        Which rows have copies: (a, 1).
    count : int
        The number of copies of each, Q.
    """

    graph: Graph
    columns: dict[int, Column]
    n: Value | None = None
    rows: Value | None = None
    count: int = 1

    @classmethod
    def of(cls, graph: Graph, columns: dict[int, Column]) -> Copies:
        """Return the copies of rows, given the columns at these."""
        filled = [column for column in columns.values() if column.plain["fills"] is not None]
        if not filled:
            return cls(graph, columns)
        missing = filled[0].missing()
        for column in filled[1:]:
            missing = graph.node("Or", missing, column.missing())
        which = graph.node("Gather", graph.node("NonZero", missing), np.array(0), axis=0)
        shape = graph.node("Shape", missing)
        n = graph.node("Gather", shape, np.array([0]), axis=0)
        count = len(filled[0].plain["fills"]["values"])
        both = _with_copies(graph, columns, which, count)
        return cls(graph, both, n, which.reshaped(-1, 1), count)

    def _parts(self, value: Value, width: int) -> tuple[Value, Value]:
        """Return an output at the rows (n, k), and at the copies (Q, a, k)."""
        end = np.array([np.iinfo(np.int64).max])
        node, first, axis = self.graph.node, np.array([0]), np.array([0])
        of_rows = node("Slice", value, first, self.n, axis)
        copies = node("Slice", value, self.n, end, axis)
        return of_rows, copies.reshaped(self.count, -1, width)

    def _mean(self, copies: Value) -> Value:
        return self.graph.node("ReduceMean", copies, axes=[0], keepdims=0)

    def _placed(self, of_rows: Value, means: Value) -> Value:
        return self.graph.node("ScatterND", of_rows, self.rows, means)

    def averaged(self, value: Value, width: int) -> Value:
        """Return an output (n, k) of all rows, given that of rows and copies."""
        if self.n is None:
            return value
        of_rows, copies = self._parts(value, width)
        return self._placed(of_rows, self._mean(copies))

    def moments(self, mean: Value, std: Value) -> tuple[Value, Value]:
        """Return mean and standard deviation (n, 1) of all rows, with those of mixtures."""
        if self.n is None:
            return mean, std
        means, mean_of_copies = self._parts(mean, 1)
        stds, std_of_copies = self._parts(std, 1)
        center = self._mean(mean_of_copies)
        away = mean_of_copies - center
        variance = self._mean(std_of_copies * std_of_copies + away * away)
        root = self.graph.node("Sqrt", variance)
        return self._placed(means, center), self._placed(stds, root)


def _with_copies(
    graph: Graph, columns: dict[int, Column], which: Value, count: int
) -> dict[int, Column]:
    """Return the columns at all rows, then at the copies of some."""
    repeats = np.array([count, 1])
    copies = {
        j: Column(
            graph,
            column.plain,
            *(
                graph.node("Tile", graph.node("Gather", part, which, axis=0), repeats)
                for part in (column.value, column.x)
            ),
        )
        for j, column in columns.items()
    }
    both = {}
    for j, column in columns.items():
        copy = copies[j]
        if column.plain["fills"] is not None:
            copy = _filled(graph, copies, j, count)
        value = graph.concat([column.value, copy.value], axis=0)
        x = graph.concat([column.x, copy.x], axis=0)
        both[j] = Column(graph, column.plain, value, x)
    return both


def _filled(graph: Graph, copies: dict[int, Column], j: int, count: int) -> Column:
    """Return a column at the copies, with values where it is missing."""
    column = copies[j]
    plain, missing = column.plain, column.missing()
    fills = plain["fills"]

    def each(values: Array) -> Value:
        """Return value q in all rows of copy q: (Q a, 1)."""
        flat = graph.node("Reshape", missing, np.array([count, -1, 1]))
        shape = graph.node("Shape", flat)
        return graph.node("Expand", values[:, None, None], shape).reshaped(-1, 1)

    if plain["categories"] is not None:
        known = ~np.isnan(fills["values"])
        codes = np.where(known, np.where(known, fills["values"], 0.0), MISSING)
        x = graph.where(missing, each(codes.astype(np.int64)), column.x)
        return Column(graph, plain, column.value, x)
    knots, positions = plain["knots"], plain["positions"]
    places = np.interp(fills["values"], knots, positions)
    value, x = each(fills["values"]), each(places)
    if fills["inputs"]:
        told = each(fills["center"] + fills["spread"] * (places - fills["center"]))
        some_missing = None
        for k, slope, middle in zip(
            fills["inputs"], fills["slopes"].tolist(), fills["centers"].tolist(), strict=True
        ):
            other, gone = copies[k], copies[k].missing()
            told = told + slope * (other.x - middle)
            some_missing = gone if some_missing is None else graph.node("Or", some_missing, gone)
            own = _places(other)
            if own is not None:
                skipped = graph.node("Or", gone, each(np.isnan(own)))
                away = other.x - each(np.where(np.isnan(own), 0.0, own))
                x = x + slope * graph.where(skipped, 0.0, away)
        assert some_missing is not None
        x = graph.node("Clip", graph.where(some_missing, x, told), -1.0, 1.0)
        value = interpolated(graph, x, positions, knots)
    both = (graph.where(missing, new, old) for new, old in ((value, column.value), (x, column.x)))
    return Column(graph, plain, *both)


def _places(column: Column) -> Array | None:
    """Return the coordinates of what stands for missing values of numbers, by copy."""
    fills = column.plain["fills"]
    if fills is None:
        return None
    return np.asarray(np.interp(fills["values"], column.plain["knots"], column.plain["positions"]))
