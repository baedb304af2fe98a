"""The contract of a basis, and the packed fallback that makes any ``phi`` work.

A basis is M functions phi_m of one input. Their products span a space of dimension K, often far
below M (M + 1) / 2, and the engine works in that space only:

    phi_i(x) phi_j(x) = sum_k table[i * M + j, k] psi_k(x)

A new basis defines ``phi``, ``psi`` and this table, which is sparse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array
from sklearn.base import BaseEstimator

from ..checks import check_integer
from ..core.arrays import indices, like
from ..core.formula import Formula, Term

Array = Any  # an array of any array-API namespace


class Basis(BaseEstimator):
    """Functions of one input on [-1, 1]; subclass with ``phi`` alone, or also ``psi`` and a table.

    ``fit`` gets the column already scaled to [-1, 1] (see ``data/columns.py``) and sets M. Values
    outside [-1, 1] are held at the nearer end, so every function stays within its training bounds.

    Attributes
    ----------
    n_functions_ : int
        M, the number of functions.
    n_products_ : int
        K, the number of functions psi that span their products.
    table_ : scipy.sparse.csr_array of shape (M * M, K)
        Row i * M + j holds the coefficients of phi_i phi_j in psi.
    degrees_ : ndarray of shape (M,)
        Roughness of each function, 0 for the smoothest; the smoothness prior decays with it.
    constant_ : ndarray of shape (M,)
        Coefficients with which the functions come closest to the constant 1.

    Examples
    --------
    A custom basis only needs ``phi``:

    >>> import numpy as np
    >>> from btnkm.bases import Basis
    >>> class Hinges(Basis):
    ...     def phi(self, x):
    ...         return np.stack([np.ones_like(x), np.maximum(x, 0), np.maximum(-x, 0)], axis=1)
    >>> basis = Hinges().fit(np.linspace(-1, 1, 9))
    >>> basis.n_functions_, basis.n_products_
    (3, 6)

    Notes
    -----
    For ONNX and the what-if panel, a class also defines ``formula(x)``. It takes a ``Term`` (see
    ``btnkm.core.formula``) and returns phi and psi as terms. ``pair_products`` makes the psi of the
    fallback. A basis in ``BASES`` declares in ``file_fields`` (dict) what a model file holds of it,
    such as ``{"n_basis": "count", "places_": "numbers(_)"}``; ``io/schema.py`` has the kinds.
    """

    n_functions_: int
    n_products_: int
    table_: sp.csr_array
    degrees_: np.ndarray
    constant_: np.ndarray

    def fit(self, x: np.ndarray) -> Self:
        """Take M from ``phi`` on the distinct values of ``x`` (n,), and the packed products."""
        values = thin(distinct(self.hold(x)))
        phi = self._checked_phi(values)
        m = phi.shape[1]
        if self._checked_phi(values[:1]).shape[1] != m:
            raise ValueError(
                f"phi must return as many columns for one row as for many ({m}), got another "
                "number; the functions must not depend on the other rows."
            )
        return self._set(packed_table(m), np.arange(m), closest_to_one(phi))

    def _checked_phi(self, x: np.ndarray) -> np.ndarray:
        """Return ``phi(x)``, or raise a ValueError that says what is wrong with it."""
        x.flags.writeable = False  # a phi that writes into x would change the data
        phi = self.phi(x)
        shape = getattr(phi, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != len(x):
            raise ValueError(
                f"phi must return an array of shape (n, M), here n = {len(x)}, got "
                f"{type(phi).__name__ if shape is None else shape}; return one column per function."
            )
        phi = np.asarray(phi, dtype=float)
        if not np.all(np.isfinite(phi)):
            raise ValueError("phi must return finite numbers, got NaN or infinity; fix phi.")
        return phi

    def hold(self, x: Array) -> Array:
        """Return ``x`` with values outside [-1, 1], infinite ones too, moved to the nearer end."""
        return array_namespace(x).clip(x, -1.0, 1.0)

    def typical(self, x: np.ndarray, weight: np.ndarray) -> float:
        """Return the value that stands for a missing one: the weighted lower median."""
        order = np.argsort(x, kind="stable")
        total = np.cumsum(weight[order])
        return float(x[order[np.searchsorted(total, 0.5 * total[-1])]])

    def phi(self, x: Array) -> Array:
        """Return the functions at x: (n,) -> (n, M)."""
        raise NotImplementedError(f"{type(self).__name__} must define phi(x): (n,) -> (n, M).")

    def psi(self, x: Array) -> Array:
        """Return the product functions at x: (n,) -> (n, K). Fallback: every pair i <= j."""
        phi = self.phi(x)
        return pair_products(phi, *np.triu_indices(phi.shape[1]))

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` together; override where one contains the other."""
        return self.phi(x), self.psi(x)

    def portable(self) -> dict[str, Any]:
        """Return the fitted functions as plain data: formulas of a coordinate in [-1, 1]."""
        formula = Formula()
        phi, psi = self.own_formula(formula.input("x"))
        sizes = {"n_functions": self.n_functions_, "n_products": self.n_products_}
        return {"kind": "formula", **sizes, **formula.plain(phi=phi, psi=psi)}

    def own_formula(self, x: Term) -> tuple[Term, Term]:
        """Return ``formula(x)``, which a class must define itself: a subclass may change phi."""
        if "formula" not in vars(type(self)):
            raise TypeError(
                f"the basis {type(self).__name__} has no portable form; define formula(x) in its "
                "class, or use a basis from btnkm.bases."
            )
        terms: tuple[Term, Term] = self.formula(x)  # type: ignore[attr-defined]
        return terms

    @property
    def n_numbers(self) -> int:
        """Numbers per row that ``features`` stores; what phi and psi share counts once."""
        return self.n_functions_ + self.n_products_

    @property
    def end(self) -> tuple[int, int]:
        """Positions in psi and in phi at which later functions are inserted."""
        return self.n_products_, self.n_functions_

    def _set(self, table: sp.csr_array, degrees: np.ndarray, constant: np.ndarray) -> Self:
        """Store the attributes of a fitted basis; M and K follow from the arrays."""
        self.n_functions_, self.n_products_ = len(degrees), table.shape[1]
        self.table_ = table
        # Floats, because integers cannot be raised to the negative powers of a smoothness prior.
        self.degrees_, self.constant_ = degrees.astype(float), constant.astype(float)
        return self


def product_table(m: int, k: int, *terms: tuple[Any, Any]) -> sp.csr_array:
    """Return the (m * m, k) table with phi_i phi_j = sum over terms of coef_ij psi_{index_ij}.

    Each term is a pair (index, coefficient), both of shape (m, m) or broadcast to it.
    """
    index = np.concatenate([np.broadcast_to(i, (m, m)).ravel() for i, _ in terms])
    coefficient = np.concatenate([np.broadcast_to(c, (m, m)).ravel() for _, c in terms])
    rows = np.tile(np.arange(m * m), len(terms))
    used = coefficient != 0
    entries = (coefficient[used].astype(float), (rows[used], index[used]))
    return sp.csr_array(entries, shape=(m * m, k))


def packed_table(m: int) -> sp.csr_array:
    """Return the table of the packed fallback: psi holds every phi_i phi_j with i <= j."""
    i, j = np.triu_indices(m)
    index = np.empty((m, m), dtype=int)
    index[i, j] = index[j, i] = np.arange(len(i))
    return product_table(m, len(i), (index, 1.0))


def pair_products(phi: Array, i: np.ndarray, j: np.ndarray) -> Array:
    """Return the columns phi_i * phi_j for the given pairs: (n, M) -> (n, len(i))."""
    if isinstance(phi, Term):
        return phi.columns(i) * phi.columns(j)
    xp = array_namespace(phi)
    return xp.take(phi, indices(i, phi), axis=1) * xp.take(phi, indices(j, phi), axis=1)


def combine(functions: Array, coefficients: np.ndarray) -> Array:
    """Return functions (n, K) times coefficients (K, M), each column contiguous: (n, M)."""
    return (like(coefficients, functions).T @ functions.T).T


def collect(functions: Iterable[Array], count: int) -> Array:
    """Return the first ``count`` of the functions, each (n,), as columns: (n, count)."""
    taken = islice(functions, count)
    first = next(taken)
    if not is_numpy_array(first):
        return array_namespace(first).stack([first, *taken]).T
    # One function per contiguous row, transposed at the end: no strided writes, and the pages
    # of the result are the only large memory touched.
    out = np.empty((count, len(first)), dtype=first.dtype)
    out[0] = first
    for row, function in zip(out[1:], taken, strict=True):
        row[:] = function
    return out.T


def recurrence(first: Array, second: Array, twice: Array) -> Iterator[Array]:
    """Yield f_0, f_1, .. without end, from f_{k+1} = twice * f_k - f_{k-1}."""
    while True:
        yield first
        first, second = second, twice * second - first


def distinct(x: np.ndarray) -> np.ndarray:
    """Return the sorted distinct values of a column, which must hold no NaN and not be empty."""
    values = np.unique(x)
    if values.size == 0:
        raise ValueError("x must hold at least one value, got an empty column; drop it.")
    if np.isnan(values[-1]):
        raise ValueError("x must not hold NaN; wrap the basis in WithMissing(basis).")
    return values


def thin(values: np.ndarray, most: int = 4096) -> np.ndarray:
    """Return about ``most`` of the sorted values, evenly taken, so that fits stay cheap."""
    return values[:: max(1, len(values) // most)]


def count_functions(n_basis: Any, values: np.ndarray) -> int:
    """Return M: ``n_basis``, but never more than there are distinct values."""
    check_integer("n_basis", n_basis, 1)
    return int(min(n_basis, len(values)))


def closest_to_one(phi: np.ndarray) -> np.ndarray:
    """Return the least-squares coefficients of the constant 1 with the smallest norm."""
    # The cut-off avoids huge coefficients of nearly dependent functions, which would cancel.
    coefficients: np.ndarray = np.linalg.lstsq(phi, np.ones(len(phi)), rcond=1e-4)[0]
    return coefficients
