"""Splines: piecewise polynomials, for inputs with sharp or irregular effects."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace
from scipy.linalg import eigh

from ..checks import check_integer
from ..core.formula import Term
from .base import (
    Array,
    Basis,
    collect,
    combine,
    count_functions,
    distinct,
    pair_products,
    product_table,
)

_GRID = 32  # points per function at which size and roughness are measured


class BSpline(Basis):
    """Splines on equally spaced knots over [-1, 1], ordered from the smoothest to the roughest.

    B-splines, clamped at both ends, are local and equally smooth, so a prior that removes single
    functions would leave holes. The functions are therefore combinations of B-splines that are
    orthogonal on [-1, 1] and stationary in roughness, the mean square of the slope. These are 1 and
    then waves of growing frequency, as cosines are among all functions.

    Only neighbouring B-splines overlap, so psi are the products of neighbours: K is about
    (degree + 1) M. Values outside [-1, 1] are held at the nearer end.

    Parameters
    ----------
    n_basis : int, default=20
        The number of functions M; a column with fewer distinct values gets as many as it has.
    degree : int, default=3
        The degree of the pieces, 3 for cubic; M functions allow at most M - 1.

    Attributes
    ----------
    coefficients_ : ndarray of shape (M, M)
        Column m holds function m in B-splines.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import BSpline
    >>> basis = BSpline(n_basis=3, degree=1).fit(np.linspace(-1, 1, 9))
    >>> basis.phi(np.array([-1.0, 0.25, 1.0])).round(2).tolist()
    [[1.0, -1.41, 1.39], [1.0, 0.35, -0.71], [1.0, 1.41, 1.39]]
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
        local = product_table(m, int(starts[-1]), (offsets + np.minimum(i[:, None], i), near))
        self.coefficients_ = c = self._smooth_to_rough(m)
        # phi = C^T b for B-splines b: each index of the products of b is contracted with C
        table = np.tensordot(c, local.toarray().reshape(m, m, -1), (0, 0))  # (i, b, K)
        table = np.tensordot(c, table, (0, 1)).transpose(1, 0, 2)  # (j, i, K) -> (i, j, K)
        return self._set(sp.csr_array(table.reshape(m * m, -1)), i, i == 0)

    def _smooth_to_rough(self, m: int) -> np.ndarray:
        """Return generalised eigenvectors of roughness and size, scaled to the peaks of waves."""
        values = self._b_splines(np.linspace(-1.0, 1.0, 1 + _GRID * m), m)
        slopes = np.diff(values, axis=0)
        _, vectors = eigh(slopes.T @ slopes, values.T @ values)
        vectors[:, 0] = 1.0  # B-splines sum to 1
        # peaks as of a wave of mean square 1 (the roughest are narrow spikes), positive at x = 1
        peaks = np.max(np.abs(values @ vectors[:, 1:]), axis=0)
        vectors[:, 1:] *= np.sqrt(2.0) * np.sign(vectors[-1, 1:]) / peaks
        return np.asarray(vectors)

    def phi(self, x: Array) -> Array:
        """Return the functions at x: (n,) -> (n, M)."""
        return combine(self._b_splines(x, self.n_functions_), self.coefficients_)

    def _b_splines(self, x: Array, m: int) -> Array:
        """Return the clamped B-splines at x: (n,) -> (n, M)."""
        xp, p = array_namespace(x), self.degree_
        pieces = m - p
        # In units of the knot distance the knots are whole numbers, so the recursion is exact at
        # them. The last piece is closed: x = 1 belongs to it.
        u = (self.hold(x) + 1.0) * (0.5 * pieces)
        piece = xp.clip(xp.floor(u), 0.0, float(pieces - 1))
        values = _local_splines(xp.ones_like(u), u, piece, pieces, p, xp.clip)
        on_piece = [xp.astype(piece == float(k), x.dtype) for k in range(pieces)]
        overlaps = (
            [on_piece[i - j] * values[j] for j in range(p + 1) if 0 <= i - j < pieces]
            for i in range(m)
        )
        return collect((reduce(add, terms) for terms in overlaps), m)

    def formula(self, x: Term) -> tuple[Term, Term]:
        """Return phi and psi as terms."""
        m, degree = self.n_functions_, self.degree_
        pieces = m - degree
        u = (x + 1.0) * (0.5 * pieces)
        piece = u.floor().clip(0.0, pieces - 1.0)
        on_piece = piece.equal(np.arange(pieces))
        local = _local_splines(0.0 * u + 1.0, u, piece, pieces, degree, Term.clip)
        first, *others = (on_piece * value for value in local)
        # spline i is number i - k of those on piece k
        places = np.vstack([np.eye(pieces, m, k=j) for j in range(degree + 1)])
        splines = (first.concat(*others) if others else first) @ places
        pairs = [(i, i + d) for d in range(degree + 1) for i in range(m - d)]
        psi = pair_products(splines, *np.array(pairs).T)
        return splines @ self.coefficients_, psi

    def psi(self, x: Array) -> Array:
        """Return b_i b_{i+d} of B-splines, d = 0 .. degree, all i for each d: (n,) -> (n, K)."""
        return self.features(x)[1]

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one evaluation of the splines."""
        m = self.n_functions_
        local = self._b_splines(x, m)
        pairs = ((i, i + d) for d in range(self.degree_ + 1) for i in range(m - d))
        psi = collect((local[:, i] * local[:, j] for i, j in pairs), self.n_products_)
        return combine(local, self.coefficients_), psi


def _local_splines(
    ones: Any, u: Any, piece: Any, pieces: int, degree: int, clip: Callable[..., Any]
) -> list[Any]:
    """Return the degree + 1 splines that are not zero on each row's piece, by Cox-de Boor.

    Arrays or terms; ``ones`` is 1 for each u, and ``clip`` limits a value to an interval.
    """
    values = [ones]
    for q in range(1, degree + 1):
        raised: list[Any] = [0.0] * (q + 1)
        for r, value in enumerate(values):
            # Clipping repeats the end knots, which is what clamps the splines there.
            start = clip(piece + float(r - q + 1), 0.0, float(pieces))
            end = clip(piece + float(r + 1), 0.0, float(pieces))
            rise = value * ((u - start) / (end - start))
            raised[r] = raised[r] + (value - rise)
            raised[r + 1] = raised[r + 1] + rise
        values = raised
    return values
