"""One-hot functions: a categorical column is one input, not one per category."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device

from .base import Array, Basis, distinct, product_table


class Categorical(Basis):
    """One function per category: phi_m(x) is 1 if x is code m, else 0.

    A column holds the codes 0 .. M-1 as floats; the largest code in ``fit`` decides M. Products of
    different functions vanish and squares are the functions themselves, so psi = phi and K = M.
    A code outside 0 .. M-1 gives a row of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Categorical
    >>> basis = Categorical().fit(np.array([0.0, 2.0, 1.0]))
    >>> basis.phi(np.array([2.0, 7.0])).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    def fit(self, x: np.ndarray) -> Self:
        """Take M from the largest code in ``x`` (n,) and build the product table."""
        codes = distinct(x)
        if codes[0] < 0 or not np.isfinite(codes[-1]) or np.any(codes != np.floor(codes)):
            raise ValueError(
                f"codes must be the integers 0, 1, 2, .., got values from {codes[0]:g} to "
                f"{codes[-1]:g}; encode the categories first, for example with OrdinalEncoder."
            )
        m = int(codes[-1]) + 1
        table = product_table(m, m, (np.arange(m), np.eye(m)))
        return self._set(table, np.zeros(m), np.ones(m))

    def with_levels(self, count: int) -> Categorical:
        """Return the basis with ``count`` more codes."""
        return Categorical().fit(np.arange(self.n_functions_ + count, dtype=float))

    def portable(self) -> dict[str, Any]:
        """Return the number of codes; readers make the indicators."""
        size = self.n_functions_
        return {"kind": "categorical", "n_functions": size, "n_products": size}

    def hold(self, x: Array) -> Array:
        """Return ``x`` as it is, since codes are not limited to [-1, 1]."""
        return x

    def typical(self, x: np.ndarray, weight: np.ndarray) -> float:
        """Return the most frequent code."""
        return float(np.argmax(np.bincount(x.astype(int), weights=weight)))

    def phi(self, x: Array) -> Array:
        """Return the one-hot rows of the codes: (n,) -> (n, M)."""
        xp = array_namespace(x)
        codes = xp.arange(self.n_functions_, dtype=x.dtype, device=device(x))
        return xp.astype(x[:, None] == codes[None, :], x.dtype)

    def psi(self, x: Array) -> Array:
        """Return the one-hot rows again: (n,) -> (n, M)."""
        return self.phi(x)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return the one-hot rows twice, as one array."""
        phi = self.phi(x)
        return phi, phi
