"""Missing values: a wrapper by which any basis accepts NaN."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array
from sklearn.base import clone

from ..core.arrays import like
from .base import Array, Basis
from .categorical import Categorical
from .chebyshev import Chebyshev
from .spiked import Spiked, with_indicators

BLOCK = 65_536  # rows at a time while averaging, so that memory does not grow with n


class WithMissing(Basis):
    """The functions of another basis, plus one that is 1 where the value is missing (NaN).

    If ``fit`` saw missing values, a missing value has the functions of a typical value (the median,
    or the most frequent category) and 1 in one more function, which is 0 for all other rows. So a
    missing value means "typical" unless the data show otherwise. If its other functions were 0,
    shrinking its weight would shrink whole products of inputs, which costs accuracy with few rows.

    If ``fit`` saw no missing value, a NaN stands for the training average: phi and psi are their
    means over the training rows, which integrates the unknown input out of first and second
    moments. The same holds for the code -1 of a categorical basis, a category never seen. If
    ``fit`` saw only missing values, the only function is the constant 1. Where missing values first
    come later, ``grown`` adds a function at the end, or a category. Values outside [-1, 1] are
    moved to the nearer end, also for a basis that does not do so itself.

    Parameters
    ----------
    basis : Basis
        The basis for the observed values; it is cloned, not changed.

    Attributes
    ----------
    basis_ : Basis or None
        The fitted basis; None if every value was missing.
    saw_missing_ : bool
        Whether a missing value was seen.
    indicator_ : str or None
        Position of the function that is 1 for missing values: "first" or "last".
    typical_ : float
        The value whose functions a missing row has.
    average_phi_, average_psi_ : ndarray of shape (M,) and (K,)
        Averages of phi and psi over the observed training rows, where they may be needed.
    values_ : ndarray
        A thousand training values at evenly spaced ranks: what ``fill`` draws from.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Chebyshev, WithMissing
    >>> basis = WithMissing(Chebyshev(n_basis=2)).fit(np.array([-1.0, 0.5, np.nan]))
    >>> basis.phi(np.array([0.5, np.nan])).tolist()
    [[0.0, 1.0, 0.5], [1.0, 1.0, -1.0]]
    """

    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Fit the inner basis to the observed values of ``x`` (n,); see whether any are missing.

        ``weight`` (n,), positive, are sample weights for the median and the averages.
        """
        if not isinstance(self.basis, Basis):
            raise ValueError(
                f"basis must be a Basis, got {self.basis!r}; pass for example Chebyshev()."
            )
        x = np.asarray(x)
        weight = np.ones(len(x)) if weight is None else np.asarray(weight)
        missing = np.isnan(x)
        self.saw_missing_ = bool(missing.any())
        self.indicator_ = "first" if self.saw_missing_ else None  # whose products go far in psi
        self.basis_: Basis | None = None
        if missing.all():
            self.average_phi_ = self.average_psi_ = np.ones(1)
            return self._set(sp.csr_array(np.ones((1, 1))), np.zeros(1), np.ones(1))
        inner = clone(self.basis)
        observed, weight = inner.hold(x[~missing]), weight[~missing]
        if np.ptp(observed) == 0 and not isinstance(inner, Categorical):
            inner = Chebyshev(n_basis=1)  # one value needs one constant, whatever the basis
        if isinstance(inner, Spiked):
            self.basis_ = inner.fit(observed, weight)
        else:
            self.basis_ = inner.fit(observed)
        self.typical_ = inner.typical(observed, weight)
        self.values_ = _evenly_ranked(observed, weight)
        self.average_phi_, self.average_psi_ = np.zeros(0), np.zeros(0)
        if not self.saw_missing_ or isinstance(inner, Categorical):
            self.average_phi_, self.average_psi_ = average_features(inner, observed, weight)
        if not self.saw_missing_:
            return self._set_around(inner)
        self.average_phi_ = np.append(0.0, self.average_phi_)
        self.average_psi_ = np.append(0.0, self.average_psi_)
        return self._set_around(inner)

    def _set_around(self, inner: Basis) -> Self:
        """Store the attributes of a fitted basis, with an indicator of missing values if any."""
        if self.indicator_ is None:
            return self._set(inner.table_, inner.degrees_, inner.constant_)
        phi = inner.phi(np.array([self.typical_]))
        parts = [np.zeros(1), inner.degrees_], [np.zeros(1), inner.constant_]
        if self.indicator_ == "first":
            return self._set(_bordered(inner.table_, phi[0]), *map(np.concatenate, parts))
        return self._set(
            with_indicators(inner.table_, phi), *(np.concatenate(part[::-1]) for part in parts)
        )

    def grown(self, categories: int, missing: bool) -> WithMissing:
        """Return the basis with more codes and, if ``missing``, a function of missing values last.

        In a categorical basis a missing value is one more category. The averages that stand for
        unseen categories are unchanged.
        """
        assert self.basis_ is not None
        grown = copy(self)
        grown.saw_missing_ |= missing
        inner = self.basis_
        if isinstance(inner, Categorical):
            if missing:
                grown.typical_ = float(inner.n_functions_ + categories)
            inner = inner.with_categories(categories + missing)
            none = np.zeros(categories + missing)
            grown.average_phi_ = np.append(self.average_phi_, none)
            grown.average_psi_ = np.append(self.average_psi_, none)
        elif missing:
            grown.indicator_ = "last"
        grown.basis_ = inner
        return grown._set_around(inner)

    def phi(self, x: Array) -> Array:
        """Return the inner functions, and what stands for a missing value: (n,) -> (n, M)."""
        return self._evaluate(x, lambda basis, x: (basis.phi(x),), (self.average_phi_,))[0]

    def psi(self, x: Array) -> Array:
        """Return the inner products, and what stands for a missing value: (n,) -> (n, K)."""
        return self._evaluate(x, lambda basis, x: (basis.psi(x),), (self.average_psi_,))[0]

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one evaluation of the inner basis."""
        averages = self.average_phi_, self.average_psi_
        phi, psi = self._evaluate(x, lambda basis, x: basis.features(x), averages)
        return phi, psi

    @property
    def n_numbers(self) -> int:
        """Those of the inner basis, or copies with an indicator."""
        if self.basis_ is None or self.indicator_ is not None:
            return super().n_numbers
        return self.basis_.n_numbers

    @property
    def knows_missing(self) -> bool:
        """Whether missing values have an effect of their own."""
        return self.saw_missing_

    @property
    def category_shares(self) -> np.ndarray:
        """Fraction of the training rows with a value that each category has."""
        if self.basis_ is None:
            return np.zeros(0)
        return self.average_phi_[int(self.indicator_ == "first") :]

    def unknown(self, x: Array) -> Array:
        """Return which values stand for the training average: (n,).

        These are unseen categories, and missing values if ``fit`` saw none.
        """
        xp = array_namespace(x)
        never = xp.zeros_like(x, dtype=xp.bool)
        if isinstance(self.basis_, Categorical):
            never = x < 0.0
        return never if self.saw_missing_ else never | xp.isnan(x)

    def even_values(self, count: int) -> np.ndarray:
        """Return training values at evenly spaced ranks: (count,)."""
        places = (np.arange(count) + 0.5) * len(self.values_) / count
        return np.asarray(self.values_[places.astype(int)], dtype=float)

    def fill(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return x with draws from the training values in place of unknown ones.

        A draw of f at one row needs one value of the input; the average would hide its spread.
        """
        missing = self.unknown(x)
        filled = x.copy()
        filled[missing] = rng.choice(self.values_, size=int(missing.sum()))
        return filled

    def portable(self) -> dict[str, Any]:
        """Return the functions of the inner basis as plain data, and what stands for other values.

        With an ``indicator`` ("first" or "last") a missing value has the functions of ``typical``
        and 1 there, in phi and psi alike, where others have 0. If ``saw_missing`` is False, it has
        the averages instead. A category never seen always has the averages.
        """
        sizes = {"n_functions": self.n_functions_, "n_products": self.n_products_}
        if self.basis_ is None:
            return {"kind": "constant", **sizes}
        return {
            "kind": "with_missing",
            "basis": self.basis_.portable(),
            "saw_missing": self.saw_missing_,
            "indicator": self.indicator_,
            "typical": float(self.typical_),
            "average_phi": self.average_phi_,
            "average_psi": self.average_psi_,
            **sizes,
        }

    def _evaluate(
        self,
        x: Array,
        evaluate: Callable[[Basis, Array], tuple[Array, ...]],
        averages: tuple[np.ndarray, ...],
    ) -> tuple[Array, ...]:
        """Evaluate the inner basis at x, then put ``averages`` where x is not known."""
        xp = array_namespace(x)
        if self.basis_ is None:
            return tuple(xp.ones_like(x)[:, None] for _ in averages)
        missing = xp.isnan(x)
        some_missing = bool(xp.any(missing))
        filled = xp.where(missing, xp.full_like(x, self.typical_), x) if some_missing else x
        held = self.basis_.hold(filled)
        if is_numpy_array(held):
            held = held.view()
            held.flags.writeable = False  # a custom phi must not write into it
        inner = evaluate(self.basis_, held)
        if self.indicator_ is not None:  # the other functions are those of the typical value
            first = self.indicator_ == "first"
            inner = tuple(_beside(xp.astype(missing, a.dtype), a, first) for a in inner)
        may_be_unseen = isinstance(self.basis_, Categorical)
        if not may_be_unseen and (self.saw_missing_ or not some_missing):
            return inner
        unknown = self.unknown(x)
        if not bool(xp.any(unknown)):
            return inner
        return tuple(
            xp.where(unknown[:, None], like(row, a), a)
            for a, row in zip(inner, averages, strict=True)
        )


def _beside(column: Array, others: Array, first: bool) -> Array:
    """Return a column (n,) before or behind others (n, M); on a device each is contiguous."""
    xp = array_namespace(others)
    if is_numpy_array(others):
        parts, axis = [column[:, None], others], 1
    else:  # as the device kernels need it
        parts, axis = [column[None, :], others.T], 0
    both = xp.concat(parts if first else parts[::-1], axis=axis)
    return both if axis else both.T


def _evenly_ranked(x: np.ndarray, weight: np.ndarray, count: int = 1000) -> np.ndarray:
    """Return ``count`` values of x at evenly spaced ranks, counted by weight."""
    order = np.argsort(x, kind="stable")
    total = np.cumsum(weight[order])
    return x[order[np.searchsorted(total, total[-1] * (np.arange(count) + 0.5) / count)]]


def average_features(
    basis: Basis, x: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted averages over x of phi (M,) and psi (K,)."""
    phi, psi = np.zeros(basis.n_functions_), np.zeros(basis.n_products_)
    for start in range(0, len(x), BLOCK):
        block_phi, block_psi = basis.features(x[start : start + BLOCK])
        phi += weight[start : start + BLOCK] @ block_phi
        psi += weight[start : start + BLOCK] @ block_psi
    return phi / weight.sum(), psi / weight.sum()


def _bordered(table: sp.csr_array, phi: np.ndarray) -> sp.csr_array:
    """Return the table with an indicator in front; where it is 1, the others are ``phi`` (M,)."""
    entries = table.tocoo()
    m, k = len(phi), table.shape[1]
    size = m + 1
    i, j = np.divmod(entries.row, m)
    others = np.arange(1, size)
    rows = np.concatenate([[0], others, others * size, (i + 1) * size + j + 1])
    columns = np.concatenate([np.zeros(2 * m + 1, dtype=int), entries.col + 1])
    values = np.concatenate([[1.0], phi, phi, entries.data])
    return sp.csr_array((values, (rows, columns)), shape=(size * size, k + 1))
