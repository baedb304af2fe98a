"""Levels: the indicators of a categorical column that has too many of them for a dense block."""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.sparse as sp

from .base import Basis


class Levels(Basis):
    """One indicator per level, as sparse rows; what ``Categorical`` is for few levels.

    Codes are 0, 1, .., and -1 for a level never seen, as ``columns.py`` gives them; the latter is
    the average of the levels. So is a missing value, unless ``fit`` saw one: then it is a level.

    Attributes
    ----------
    shares_ : ndarray of shape (L,)
        Of the training rows without gaps, by level.
    saw_missing_ : bool
        Whether ``fit`` saw a missing value; its level is then the last.
    """

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Count the levels of ``x`` (n,), whose rows count ``weight`` (n,)."""
        weight = np.ones(len(x)) if weight is None else weight
        missing = np.isnan(x)
        self.saw_missing_ = bool(missing.any())
        size = int(np.max(x[~missing], initial=-1)) + 1 + self.saw_missing_
        codes = np.where(missing, size - 1, x).astype(int)
        count = np.bincount(codes, weights=weight, minlength=size)
        if self.saw_missing_:
            count[-1] = 0.0  # a level never seen is one of the others, and no gap
        self.shares_ = count / max(count.sum(), np.finfo(float).tiny)
        self.n_functions_ = self.n_products_ = size + 1
        return self

    def features(self, x: np.ndarray) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the indicators of the levels, and of what was never seen: (n, L + 1), twice."""
        n, size = len(x), len(self.shares_)
        last = size - 1 if self.saw_missing_ else size
        codes = np.where(np.isnan(x), last, np.where(x < 0, size, x)).astype(np.int32)
        rows = np.arange(n + 1, dtype=np.int32)
        phi = sp.csr_array((np.ones(n), codes, rows), shape=(n, size + 1))
        return phi, phi

    def unknown(self, x: np.ndarray) -> np.ndarray:
        """Tell which values stand for the average of the levels: (n,)."""
        missing = np.zeros(len(x), dtype=bool) if self.saw_missing_ else np.isnan(x)
        return missing | (x < 0)

    def fill(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return x with levels drawn by their shares in place of gaps."""
        missing = self.unknown(x)
        filled = x.copy()
        filled[missing] = rng.choice(len(self.shares_), size=int(missing.sum()), p=self.shares_)
        return filled
