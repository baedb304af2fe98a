"""Chebyshev polynomials: the default basis, well conditioned at every degree."""

from __future__ import annotations

from typing import Self

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ..core.arrays import has_triton
from ..core.formula import Term
from .base import Array, Basis, collect, count_functions, distinct, product_table, recurrence


class Chebyshev(Basis):
    """Chebyshev polynomials T_0 .. T_{M-1}, where T_m(cos t) = cos(m t).

    A product of two is half the sum of two others, ``T_i T_j = (T_{i+j} + T_{|i-j|}) / 2``, so
    K = 2 M - 1. Values outside [-1, 1] are held at the nearer end.

    Parameters
    ----------
    n_basis : int, default=20
        The number of functions M; a column with fewer distinct values gets as many as it has.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Chebyshev
    >>> basis = Chebyshev(n_basis=3).fit(np.linspace(-1, 1, 9))
    >>> basis.phi(np.array([0.5])).tolist()
    [[1.0, 0.5, -0.5]]
    """

    def __init__(self, n_basis: int = 20) -> None:
        self.n_basis = n_basis

    def fit(self, x: np.ndarray) -> Self:
        """Decide M from the distinct values of ``x`` (n,) and build the product table."""
        m = count_functions(self.n_basis, distinct(self.hold(x)))
        i = np.arange(m)
        total, difference = i[:, None] + i, np.abs(i[:, None] - i)
        table = product_table(m, 2 * m - 1, (total, 0.5), (difference, 0.5))
        return self._set(table, i, i == 0)

    def phi(self, x: Array) -> Array:
        """Return T_0 .. T_{M-1} at x: (n,) -> (n, M)."""
        return self._polynomials(x, self.n_functions_)

    def psi(self, x: Array) -> Array:
        """Return T_0 .. T_{2M-2} at x: (n,) -> (n, 2 M - 1)."""
        return self._polynomials(x, self.n_products_)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)``; the first is a view of the second."""
        psi = self.psi(x)
        return psi[:, : self.n_functions_], psi

    def formula(self, x: Term) -> tuple[Term, Term]:
        """Return phi and psi as terms."""
        psi = polynomials(x, self.n_products_)
        return psi.columns(range(self.n_functions_)), psi

    @property
    def n_numbers(self) -> int:
        """Those of psi, which contains phi."""
        return self.n_products_

    def _polynomials(self, x: Array, count: int) -> Array:
        if has_triton(x):  # a recurrence of array operations writes each value several times
            from ..core.triton_kernels import chebyshev

            return chebyshev(x, count)
        x = self.hold(x)
        if is_numpy_array(x):
            return _doubling(x, count)
        return collect(recurrence(array_namespace(x).ones_like(x), x, 2.0 * x), count)


def polynomials(x: Term, count: int) -> Term:
    """Return T_0 .. T_{count-1}, by the recursion of ``_doubling``."""
    out = 0.0 * x + 1.0
    if count > 1:
        out = out.concat(x)
    k = 1
    while k + 1 < count:
        more = min(k, count - 1 - k)
        first, before = out.columns(range(1, more + 1)), out.columns(range(k - 1, k - more - 1, -1))
        out = out.concat(2.0 * out.columns([k]) * first - before)
        k += more
    return out


def _doubling(x: np.ndarray, count: int) -> np.ndarray:
    """Return T_0 .. T_{count-1} at x, twice as many in each step: (n,) -> (n, count).

    T_{k+j} = 2 T_k T_j - T_{k-j} for all j up to k at once: few operations, so that threads rarely
    wait for the interpreter.
    """
    out = np.empty((count, len(x)), dtype=x.dtype)
    out[:1] = 1.0
    out[1:2] = x
    k = 1
    while k + 1 < count:
        more = min(k, count - 1 - k)
        after = out[k + 1 : k + 1 + more]
        np.multiply(out[1 : more + 1], 2.0 * out[k], out=after)
        after -= out[k - more : k][::-1]
        k += more
    return out.T
