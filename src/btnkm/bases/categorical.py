"""One-hot functions: a categorical column is one input, not one per category."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
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

    def with_categories(self, count: int) -> Categorical:
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


class ManyCategories(Basis):
    """One indicator per category, as sparse rows, for columns of many categories.

    Codes are 0, 1, .., and -1 for a category never seen (see ``data/columns.py``), which stands for
    the average of all categories. A missing value is a category of its own if ``fit`` saw one, and
    the average otherwise.

    Attributes
    ----------
    shares_ : ndarray of shape (L,)
        Fraction of the training rows with a value that each category has.
    missing_ : int or None
        The code of a missing value, if ``fit`` saw one.
    """

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Count the categories of ``x`` (n,), with sample weights ``weight`` (n,)."""
        weight = np.ones(len(x)) if weight is None else weight
        missing = np.isnan(x)
        size = int(np.max(x[~missing], initial=-1)) + 1
        self.missing_ = size if missing.any() else None
        codes = np.where(missing, size, x).astype(int)
        count = np.bincount(codes, weights=weight, minlength=size)
        count[size:] = 0.0  # an unseen category is one of the others, not a missing value
        return self._set_shares(count / max(count.sum(), np.finfo(float).tiny))

    def _set_shares(self, shares: np.ndarray) -> Self:
        self.shares_ = shares
        self.n_functions_ = self.n_products_ = len(shares) + 1
        return self

    @property
    def knows_missing(self) -> bool:
        """Whether missing values have an effect of their own."""
        return self.missing_ is not None

    @property
    def category_shares(self) -> np.ndarray:
        """Fraction of the training rows with a value that each category has."""
        return self.shares_

    @property
    def end(self) -> tuple[int, int]:
        """Positions at which later categories are inserted: before the unseen one."""
        return len(self.shares_), len(self.shares_)

    def grown(self, categories: int, missing: bool) -> ManyCategories:
        """Return the basis with more categories, and one for missing values if ``missing``."""
        grown = copy(self)
        if missing:
            grown.missing_ = len(self.shares_) + categories
        return grown._set_shares(np.append(self.shares_, np.zeros(categories + missing)))

    def features(self, x: np.ndarray) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the indicators of all categories and of an unseen one: (n, L + 1), twice."""
        n, size = len(x), len(self.shares_)
        code_of_missing = size if self.missing_ is None else self.missing_
        codes = np.where(np.isnan(x), code_of_missing, np.where(x < 0, size, x)).astype(np.int32)
        rows = np.arange(n + 1, dtype=np.int32)
        phi = sp.csr_array((np.ones(n), codes, rows), shape=(n, size + 1))
        return phi, phi

    def portable(self) -> dict[str, Any]:
        """Return the number of indicators, and which is that of a missing value.

        The last one is that of an unseen category, and of a missing value if ``missing`` is None.
        """
        size = self.n_functions_
        sizes = {"n_functions": size, "n_products": size}
        return {"kind": "many_categories", "missing": self.missing_, **sizes}

    def unknown(self, x: np.ndarray) -> np.ndarray:
        """Return which values stand for the average of all categories: (n,)."""
        missing = np.isnan(x) if self.missing_ is None else np.zeros(len(x), dtype=bool)
        return missing | (x < 0)

    def even_values(self, count: int) -> np.ndarray:
        """Return the categories of training rows at evenly spaced ranks: (count,)."""
        reached = np.cumsum(self.shares_)
        ranks = (np.arange(count) + 0.5) / count * reached[-1]
        return np.searchsorted(reached, ranks).astype(float)

    def fill(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return x with categories drawn by frequency in place of unknown values."""
        unknown = self.unknown(x)
        filled = x.copy()
        filled[unknown] = rng.choice(len(self.shares_), size=int(unknown.sum()), p=self.shares_)
        return filled
