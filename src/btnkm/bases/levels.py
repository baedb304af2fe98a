"""Levels: the indicators of a categorical column that has too many of them for a dense block."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

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
    missing_ : int or None
        The level of a missing value, if ``fit`` saw one.
    """

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Count the levels of ``x`` (n,), whose rows count ``weight`` (n,)."""
        weight = np.ones(len(x)) if weight is None else weight
        missing = np.isnan(x)
        size = int(np.max(x[~missing], initial=-1)) + 1
        self.missing_ = size if missing.any() else None
        codes = np.where(missing, size, x).astype(int)
        count = np.bincount(codes, weights=weight, minlength=size)
        count[size:] = 0.0  # a level never seen is one of the others, and no gap
        return self._set_shares(count / max(count.sum(), np.finfo(float).tiny))

    def _set_shares(self, shares: np.ndarray) -> Self:
        self.shares_ = shares
        self.n_functions_ = self.n_products_ = len(shares) + 1
        return self

    @property
    def knows_gaps(self) -> bool:
        """Whether a gap has an effect of its own."""
        return self.missing_ is not None

    @property
    def level_shares(self) -> np.ndarray:
        """Of the training rows without gaps, by level."""
        return self.shares_

    @property
    def end(self) -> tuple[int, int]:
        """Where levels that come later have their place: before what was never seen."""
        return len(self.shares_), len(self.shares_)

    def grown(self, levels: int, gap: bool) -> Levels:
        """Return the indicators of so many levels more, and of gaps if they are new.

        What was never seen stays what it was.
        """
        grown = copy(self)
        if gap:
            grown.missing_ = len(self.shares_) + levels
        return grown._set_shares(np.append(self.shares_, np.zeros(levels + gap)))

    def features(self, x: np.ndarray) -> tuple[sp.csr_array, sp.csr_array]:
        """Return the indicators of the levels, and of what was never seen: (n, L + 1), twice."""
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
        """Tell which values stand for the average of the levels: (n,)."""
        missing = np.isnan(x) if self.missing_ is None else np.zeros(len(x), dtype=bool)
        return missing | (x < 0)

    def fill(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return x with levels drawn by their shares in place of gaps."""
        missing = self.unknown(x)
        filled = x.copy()
        filled[missing] = rng.choice(len(self.shares_), size=int(missing.sum()), p=self.shares_)
        return filled
