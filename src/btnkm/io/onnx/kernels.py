"""From columns to moments of a kernel machine, as nodes.

The formulas are those of ``portable.py``, with a triangular root R of A = (K + diag(noise))^-1, so
that Var[f(x)] = k(x, x) - |R k(x)|^2: the same with A itself would cancel. The graph stores
the triangle of R as float32. Plain rounding would change a variance by up to a thousandth where the
noise is small. But k(x) is smooth, so the rounding errors in a row can be chosen to cancel: see
``_rounded``. Only the first columns, which are rounded last, need more digits. There are 32, 64 or
128 of these, the fewest that keep the relative change of the variance at every training row, noise
included, below 1e-7. Where the variance of the noise is less than 1e-5 of that of f, 128 are too
few, and the change is up to 1e-4. Means have double precision.

For m training rows and one output this takes 2 m^2 bytes, and 128 to 512 for each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from ...core.full import SQRT3, Kernel
from .features import Both, Column
from .graph import Graph, Value

Array = np.ndarray
MOST_CHANGE = 1e-7  # of a variance by rounding
FIRST_FINE, MOST_FINE = 32, 128  # columns that have more digits than others
NO_CODE = -3  # of a training row without a category, which equals no other


def kernel_moments(graph: Graph, kernel: dict[str, Any], columns: dict[int, Column]) -> Both:
    """Return mean and variance of a kernel machine: (n, K) each."""
    matrix = _matrix(kernel, columns)
    # rows that the others determine least come first
    order = dpstrf(matrix, lower=1)[1] - 1
    kernel, matrix = _reordered(kernel, order), matrix[np.ix_(order, order)]
    cross, prior = _covariances(graph, kernel, columns)
    mean = cross @ np.ascontiguousarray(kernel["alpha"].T)
    known, ones = [], np.ones((len(matrix), 1))
    for noise in kernel["noise"]:
        coarse, fine = _root(matrix, noise)
        seen = cross @ _unpacked(graph, coarse)
        seen = seen + cross.columns(np.arange(len(fine))) @ graph.narrow(fine)
        known.append((seen * seen) @ ones)
    variance = prior - graph.concat(known)
    return mean, graph.node("Max", variance, 1e-12 * prior)


def _reordered(kernel: dict[str, Any], order: Array) -> dict[str, Any]:
    """Return a kernel machine with its training rows in another order."""
    inputs = []
    for of_input in kernel["inputs"]:
        rows = {k: None if part is None else part[order] for k, part in of_input["rows"].items()}
        inputs.append({**of_input, "rows": rows})
    numbers = {name: kernel[name][:, order] for name in ("alpha", "noise")}
    return {**kernel, **numbers, "inputs": inputs}


def _covariances(
    graph: Graph, kernel: dict[str, Any], columns: dict[int, Column]
) -> tuple[Value, Value]:
    """Return k between n new rows and the training rows, (n, m), and k(x, x), (n, 1)."""
    total: Any = kernel["constant"]
    product: Any = kernel["product"]
    prior, prior_product = total, product
    for part in kernel["inputs"]:
        column = columns[part["column"]]
        missing = graph.number(column.missing())
        if part["line"]:
            held = column.held()
            if part["runs_on"]:
                span = float(column.plain["knots"][-1] - column.plain["knots"][0])
                held = held + column.excess() * span
            t = graph.where(column.missing(), 0.0, _line(part, column, held))
            total = total + (part["line"] * t) * _row_lines(graph, part, column)
            prior = prior + part["line"] * (t * t)
        if part["missing"]:
            total = total + (part["missing"] * missing) * _rows_missing(graph, part)
            prior = prior + part["missing"] * missing
        if part["curve"]:
            kappa = _correlation(graph, part, column, part["curve_length"])
            total = total + part["curve"] * kappa
            prior = prior + part["curve"] * (1.0 - missing)
        if part["factor"]:
            kappa = _correlation(graph, part, column, part["factor_length"])
            share = part["factor"] / (1.0 + part["factor"])
            product = product * (1.0 - share + share * kappa)
            prior_product = prior_product * (1.0 - share * missing)
    zeros = graph.full(next(iter(columns.values())).x, 0.0)
    rows = np.zeros((1, kernel["alpha"].shape[1]))
    return zeros + (rows + (total + product)), zeros + (prior + prior_product)


def _rows_missing(graph: Graph, part: dict[str, Any]) -> Value | float:
    """Return 1 for each training row where the value is missing, else 0: (1, m)."""
    known = part["rows"]["known"]
    return 0.0 if known is None else graph.narrow((known == 0.0).astype(np.int8)[None, :])


def _places(part: dict[str, Any], column: Column) -> Array | None:
    """Return the knot of each training row, or None if some are at no knot: (1, m).

    Nearly always they are at knots, and take two bytes instead of two doubles. Those of which the
    value is missing are at the first.
    """
    held, knots = part["rows"], column.plain["knots"]
    if held["u"] is None or len(knots) > np.iinfo(np.uint16).max:
        return None
    standard = (column.plain["positions"] - part["center"]) / part["scale"]
    known = True if held["known"] is None else held["known"] == 1.0
    places = np.clip(np.searchsorted(standard, held["u"]), 0, len(knots) - 1)
    if np.any((standard[places] != held["u"]) & known):
        return None
    return np.where(known, places, 0).astype(np.uint16)[None, :]


def _line(part: dict[str, Any], column: Column, held: Value) -> Value:
    """Return t of raw values."""
    return part["begin"] + part["slope"] * (held - float(column.plain["knots"][0]))


def _row_lines(graph: Graph, part: dict[str, Any], column: Column) -> Any:
    """Return t of the training rows: (1, m)."""
    places = _places(part, column)
    if places is None:
        return part["rows"]["t"][None, :]
    t = _line(part, column, column.at_knots(graph.narrow(places, whole=True))[0])
    return t if part["rows"]["known"] is None else t * (1.0 - _rows_missing(graph, part))


def _row_positions(graph: Graph, part: dict[str, Any], column: Column) -> Any:
    """Return u of the training rows: (1, m)."""
    places = _places(part, column)
    if places is None:
        return part["rows"]["u"][None, :]
    return (column.at_knots(graph.narrow(places, whole=True))[1] - part["center"]) / part["scale"]


def _correlation(graph: Graph, part: dict[str, Any], column: Column, length: float) -> Value:
    """Return kappa between new rows and training rows: (n, m)."""
    u, known = part["rows"]["u"], part["rows"]["known"]
    if column.plain["categories"] is not None:
        codes = np.where(u < 0.0, NO_CODE, u).astype(np.int64)
        codes = codes if known is None else np.where(known == 0.0, NO_CODE, codes)
        return graph.number(graph.node("Equal", column.x, codes[None, :]))
    x = graph.where(column.missing(), 0.0, column.x)
    apart = ((x - part["center"]) / part["scale"] - _row_positions(graph, part, column)) / length
    r, rough = SQRT3 * graph.node("Abs", apart), part["rough"]
    same = (1.0 - rough) * graph.node("Exp", (-1.0 / 6.0) * (r * r))
    same = same + rough * (1.0 + r) * graph.node("Exp", -1.0 * r)
    if known is not None:
        same = same * (1.0 - _rows_missing(graph, part))
    return graph.where(column.missing(), 0.0, same)


def _matrix(kernel: dict[str, Any], columns: dict[int, Column]) -> Array:
    """Return k between all training rows: (m, m)."""
    inputs, m = kernel["inputs"], kernel["alpha"].shape[1]
    names = ("line", "curve", "curve_length", "missing", "factor", "factor_length", "rough")
    parts: dict[str, Any] = {name: np.array([part[name] for part in inputs]) for name in names}
    parts |= {name: kernel[name] for name in ("constant", "product")}
    categorical = [columns[part["column"]].plain["categories"] is not None for part in inputs]
    made = Kernel(**parts, categorical=np.array(categorical, dtype=bool))
    rows = []
    for part in inputs:
        held = part["rows"]
        zeros = {"t": np.zeros(m), "u": np.zeros(m), "known": np.ones(m)}
        rows.append(np.column_stack([zeros[k] if held[k] is None else held[k] for k in zeros]))
    return np.asarray(made.cross(rows, rows))


def _root(matrix: Array, noise: Array) -> tuple[Array, Array]:
    """Return R, rounded to float32 (m, m), and the rest of its first columns, turned: (., m)."""
    m = len(matrix)
    lower = np.linalg.cholesky(matrix + np.diag(noise))
    root = solve_triangular(lower, np.eye(m), lower=True)
    smooth, count, most = _root_of_square(matrix), min(m, FIRST_FINE), min(m, MOST_FINE)
    while True:
        wide = _rounded(root, smooth, count)
        if count == most or _change(matrix, noise, root, wide) <= MOST_CHANGE:
            break
        count = min(2 * count, most)
    coarse = wide.astype(np.float32)
    return coarse, (wide - coarse)[:, :count].T.astype(np.float32)


def _root_of_square(matrix: Array) -> Array:
    """Return the lower Cholesky factor of a symmetric matrix squared, about."""
    square = matrix @ matrix
    more = 1e-12 * float(np.max(np.diagonal(square)))
    while True:
        square[np.diag_indices(len(square))] += more
        try:
            return np.linalg.cholesky(square)
        except np.linalg.LinAlgError:
            more *= 10.0


def _rounded(root: Array, smooth: Array, count: int) -> Array:
    """Return R rounded to float32, its first columns to a sum of two.

    Rounding errors D of a row matter by |D smooth|^2, with smooth smooth^T = K^2. Column after
    column, from the last on, a number is what makes up best for the errors of those before.
    """
    m = len(root)
    rounded, errors = np.zeros_like(root), np.zeros_like(root)
    for c in range(m - 1, -1, -1):
        rounded[c:, c] = root[c:, c] - errors[c:, c + 1 :] @ smooth[c + 1 :, c] / smooth[c, c]
        rest = rounded[c:, c] - rounded[c:, c].astype(np.float32)
        rounded[c:, c] -= rest
        if c < count:
            rounded[c:, c] += rest.astype(np.float32)
        errors[c:, c] = rounded[c:, c] - root[c:, c]
    return rounded


def _change(matrix: Array, noise: Array, root: Array, rounded: Array) -> float:
    """Return the largest relative change of a row's variance by a rounded root."""
    known, other = (np.sum((r @ matrix) ** 2, axis=0) for r in (root, rounded))
    variance = np.maximum(np.diagonal(matrix) - known, 0.0) + noise
    return float(np.max(np.abs(other - known) / variance))


def _unpacked(graph: Graph, root: Array) -> Value:
    """Return R^T, (m, m), of which the graph stores the triangle."""
    m = len(root)
    packed = np.append(root[np.tril_indices(m)], np.float32(0.0))  # the last is all the zeros
    i = np.arange(m)  # a row of R has i (i + 1) / 2 numbers before it
    j = graph.constant(i[:, None])
    rest = graph.node("Less", i[None, :], j)
    places = graph.where(rest, np.array(len(packed) - 1), (i * (i + 1) // 2)[None, :] + j)
    return graph.node("Gather", graph.narrow(packed), places, axis=0)
