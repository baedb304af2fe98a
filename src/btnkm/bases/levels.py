"""Indicators of a categorical column with too many categories for a dense block."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from .base import Basis


class Levels(Basis):
    """One indicator per category, as sparse rows; ``Categorical`` is for few categories.

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
    def knows_gaps(self) -> bool:
        """Whether missing values have an effect of their own."""
        return self.missing_ is not None

    @property
    def level_shares(self) -> np.ndarray:
        """Fraction of the training rows with a value that each category has."""
        return self.shares_

    @property
    def end(self) -> tuple[int, int]:
        """Positions at which later categories are inserted: before the unseen one."""
        return len(self.shares_), len(self.shares_)

    def grown(self, levels: int, gap: bool) -> Levels:
        """Return the basis with more categories, and one for missing values if ``gap``.

        The indicator of unseen categories is unchanged.
        """
        grown = copy(self)
        if gap:
            grown.missing_ = len(self.shares_) + levels
        return grown._set_shares(np.append(self.shares_, np.zeros(levels + gap)))

    def features(self, x: np.ndarray) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the indicators of all categories and of an unseen one: (n, L + 1), twice."""
        n, size = len(x), len(self.shares_)
        missing = size if self.missing_ is None else self.missing_
        codes = np.where(np.isnan(x), missing, np.where(x < 0, size, x)).astype(np.int32)
        rows = np.arange(n + 1, dtype=np.int32)
        phi = sp.csr_array((np.ones(n), codes, rows), shape=(n, size + 1))
        return phi, phi

    def portable(self) -> dict[str, Any]:
        """Return the number of indicators, and which is that of a missing value.

        The last one is that of an unseen category, and of a missing value if ``missing`` is None.
        """
        size = self.n_functions_
        sizes = {"n_functions": size, "n_products": size}
        return {"kind": "levels", "missing": self.missing_, **sizes}

    def unknown(self, x: np.ndarray) -> np.ndarray:
        """Return which values stand for the average of all categories: (n,)."""
        missing = np.isnan(x) if self.missing_ is None else np.zeros(len(x), dtype=bool)
        return missing | (x < 0)

    def fill(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return x with categories drawn by frequency in place of unknown values."""
        missing = self.unknown(x)
        filled = x.copy()
        filled[missing] = rng.choice(len(self.shares_), size=int(missing.sum()), p=self.shares_)
        return filled
