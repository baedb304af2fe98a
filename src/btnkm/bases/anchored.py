"""Anchored: the constant in front, and every other function without its mean."""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.sparse as sp

from .base import Array, Basis, combine
from .missing import average_features


class Anchored(Basis):
    """The constant 1, then the functions of a fitted basis less their means over the training rows.

    In a product over inputs, an input without effect then has the first function alone, and what
    the others add is zero on average. The product functions psi stay those of the basis: with
    phi' = phi C, products of phi' are combinations of the same psi. In a basis without a constant,
    the closest approximation to one takes its place.

    Parameters
    ----------
    basis : Basis
        Fitted; it is neither cloned nor changed.

    Attributes
    ----------
    means_, others_ : ndarray of shape (M_basis,)
        Means of the functions of the basis, and which functions are not constant.
    frame_ : ndarray of shape (M_basis, M)
        The coefficients C of the functions in those of the basis.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Chebyshev
    >>> from btnkm.bases.anchored import Anchored
    >>> x = np.array([-1.0, 0.0, 1.0, 1.0])
    >>> basis = Anchored(Chebyshev(n_basis=2).fit(x)).fit(x)
    >>> basis.phi(x).tolist()
    [[1.0, -1.25], [1.0, -0.25], [1.0, 0.75], [1.0, 0.75]]
    """

    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Take the means of the functions over ``x`` (n,), whose rows count ``weight`` (n,)."""
        weight = np.ones(len(x)) if weight is None else weight
        self.means_, _ = average_features(self.basis, x, weight)
        # a constant function is 0 without its mean
        self.others_ = np.abs(self._centred()).max(axis=0) > 1e-9
        return self._set_around()

    def grown(self, categories: int, missing: bool) -> Anchored:
        """Return the functions of the grown basis; new ones are 0 in every training row."""
        grown = Anchored(self.basis.grown(categories, missing))
        new = grown.basis.n_functions_ - self.basis.n_functions_
        grown.means_ = np.append(self.means_, np.zeros(new))
        grown.others_ = np.append(self.others_, np.ones(new, dtype=bool))
        return grown._set_around()

    def _centred(self) -> np.ndarray:
        """Return the coefficients of every function less its mean: (M_basis, M_basis)."""
        return np.eye(len(self.means_)) - np.outer(self.basis.constant_, self.means_)

    def _set_around(self) -> Self:
        inner, others = self.basis, self.others_
        constant, m, centred = inner.constant_, inner.n_functions_, self._centred()
        self.frame_ = np.column_stack([constant, centred[:, others]])
        size = self.frame_.shape[1]
        table = inner.table_.toarray().reshape(m, m, -1)
        table = np.tensordot(self.frame_, table, (0, 0))  # (i, M, K)
        table = np.tensordot(self.frame_, table, (0, 1)).transpose(1, 0, 2)  # (i, j, K)
        degrees = np.append(0.0, inner.degrees_[others])
        return self._set(sp.csr_array(table.reshape(size * size, -1)), degrees, np.eye(1, size)[0])

    def phi(self, x: Array) -> Array:
        """Return the constant, then the centred functions: (n,) -> (n, M)."""
        return combine(self.basis.phi(x), self.frame_)

    def psi(self, x: Array) -> Array:
        """Return the product functions of the basis: (n,) -> (n, K)."""
        return self.basis.psi(x)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one evaluation of the basis."""
        phi, psi = self.basis.features(x)
        return combine(phi, self.frame_), psi

    @property
    def n_numbers(self) -> int:
        """Those of the basis, and the centred functions."""
        return self.n_functions_ + self.basis.n_numbers
