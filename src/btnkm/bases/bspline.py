"""B-splines: functions that are local, for inputs with sharp or uneven effects."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Self

import numpy as np
from array_api_compat import array_namespace

from .base import Array, Basis, check_integer, collect, count_functions, distinct, product_table


class BSpline(Basis):
    """B-splines on equally spaced knots over [-1, 1], clamped at both ends; they sum to 1.

    Only neighbours overlap, so phi_i phi_j is zero for |i - j| > degree and the other products
    serve as psi themselves: K is about (degree + 1) M. Values outside [-1, 1] are held at the
    nearer end.

    Parameters
    ----------
    n_basis : int, default=20
        The number of functions M; a column with fewer distinct values gets as many as it has.
    degree : int, default=3
        The degree of the pieces, 3 for cubic; M functions allow at most M - 1.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import BSpline
    >>> basis = BSpline(n_basis=3, degree=1).fit(np.linspace(-1, 1, 9))
    >>> basis.phi(np.array([-1.0, 0.25])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.75, 0.25]]
    """

    def __init__(self, n_basis: int = 20, degree: int = 3) -> None:
        self.n_basis = n_basis
        self.degree = degree

    def fit(self, x: np.ndarray) -> Self:
        """Decide M and the degree from the distinct values of ``x`` (n,), build the table."""
        check_integer("degree", self.degree, 0)
        m = count_functions(self.n_basis, distinct(self.hold(x)))
        self.degree_ = int(min(self.degree, m - 1))
        # psi runs along the diagonals j - i = 0, 1, .., degree of the products.
        starts = np.cumsum(m - np.arange(self.degree_ + 1))
        i = np.arange(m)
        apart = np.abs(i[:, None] - i)
        near = apart <= self.degree_
        offsets = np.append(0, starts)[np.minimum(apart, self.degree_)]
        table = product_table(m, int(starts[-1]), (offsets + np.minimum(i[:, None], i), near))
        return self._set(table, np.zeros(m), np.ones(m))

    def phi(self, x: Array) -> Array:
        """Return the splines at x: (n,) -> (n, M)."""
        xp, p = array_namespace(x), self.degree_
        pieces = self.n_functions_ - p
        # In units of the knot distance the knots are whole numbers, so the recursion is exact at
        # them. The last piece is closed: x = 1 belongs to it.
        u = (self.hold(x) + 1.0) * (0.5 * pieces)
        piece = xp.clip(xp.floor(u), 0.0, float(pieces - 1))
        values = _local_splines(u, piece, pieces, p)
        here = [xp.astype(piece == float(k), x.dtype) for k in range(pieces)]
        overlaps = (
            [here[m - j] * values[j] for j in range(p + 1) if 0 <= m - j < pieces]
            for m in range(self.n_functions_)
        )
        return collect((reduce(add, terms) for terms in overlaps), self.n_functions_)

    def psi(self, x: Array) -> Array:
        """Return phi_i phi_{i+d}, d = 0 .. degree, all i for each d: (n,) -> (n, K)."""
        return self.features(x)[1]

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one evaluation of the splines."""
        phi = self.phi(x)
        m = self.n_functions_
        pairs = ((i, i + d) for d in range(self.degree_ + 1) for i in range(m - d))
        return phi, collect((phi[:, i] * phi[:, j] for i, j in pairs), self.n_products_)


def _local_splines(u: Array, piece: Array, pieces: int, degree: int) -> list[Array]:
    """Return the degree + 1 splines that are not zero on each row's piece, by Cox-de Boor."""
    xp = array_namespace(u)
    values = [xp.ones_like(u)]
    for q in range(1, degree + 1):
        raised = [xp.zeros_like(u) for _ in range(q + 1)]
        for r, value in enumerate(values):
            # Clipping repeats the end knots, which is what clamps the splines there.
            start = xp.clip(piece + float(r - q + 1), 0.0, float(pieces))
            end = xp.clip(piece + float(r + 1), 0.0, float(pieces))
            rise = value * ((u - start) / (end - start))
            raised[r] = raised[r] + (value - rise)
            raised[r + 1] = raised[r + 1] + rise
        values = raised
    return values
