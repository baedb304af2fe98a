"""Spikes: single values that many rows share, with effects of their own."""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace
from sklearn.base import clone

from ..core.arrays import like
from ..core.formula import Term
from .base import Array, Basis

LEAST_ROWS = 40  # of a spike: fewer do not determine an effect of its own
TIMES_NEIGHBOURS = 3.0  # rows, relative to the average of its neighbours
NEIGHBOURS = 2  # on each side
MOST_SPIKES = 50
DEGREE = 5.0  # of an indicator for the smoothness prior: rough, but not the roughest


class Spiked(Basis):
    """The functions of another basis, plus an indicator for each frequent single value.

    Amounts of money are often 0 and a working week often has 40 hours. The effect of such a value
    may differ from that of its neighbours, which no smooth function can express. A value gets an
    indicator if it has several times the rows of its neighbours. The product of an indicator and
    any function is a multiple of the indicator, so each adds one function to psi as well. The
    indicators replace the roughest smooth functions, up to half of them. A basis with a function
    for every distinct value gets none.

    Parameters
    ----------
    basis : Basis
        The smooth functions; it is cloned, not changed.

    Attributes
    ----------
    basis_ : Basis
        The fitted basis.
    spikes_ : ndarray
        The values with an indicator, ascending.
    """

    def __init__(self, basis: Basis) -> None:
        self.basis = basis

    def fit(self, x: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """Fit the smooth basis to ``x`` (n,) and find the frequent single values.

        ``weight`` (n,), positive, are sample weights.
        """
        inner = clone(self.basis).fit(x)
        values, group = np.unique(inner.hold(x), return_inverse=True)
        self.basis_ = inner
        self.spikes_ = np.empty(0)
        if len(values) > inner.n_functions_:
            self.spikes_ = values[stand_out(np.bincount(group, weights=weight).astype(float))]
        count = len(self.spikes_)
        if count == 0:
            return self._set(inner.table_, inner.degrees_, inner.constant_)
        size = inner.get_params().get("n_basis")
        if size is not None:
            self.basis_ = inner = inner.set_params(n_basis=max(size - count, size // 2, 1)).fit(x)
        degrees = np.append(inner.degrees_, np.full(count, DEGREE))
        constant = np.append(inner.constant_, np.zeros(count))
        return self._set(with_indicators(inner.table_, inner.phi(self.spikes_)), degrees, constant)

    def phi(self, x: Array) -> Array:
        """Return the smooth functions, then the indicators: (n,) -> (n, M)."""
        return self._beside(self.basis_.phi(x), x)

    def psi(self, x: Array) -> Array:
        """Return the products of the smooth functions, then the indicators: (n,) -> (n, K)."""
        return self._beside(self.basis_.psi(x), x)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one evaluation of the smooth basis."""
        phi, psi = self.basis_.features(x)
        return self._beside(phi, x), self._beside(psi, x)

    def formula(self, x: Term) -> tuple[Term, Term]:
        """Return phi and psi as terms."""
        phi, psi = self.basis_.own_formula(x)
        if len(self.spikes_) == 0:
            return phi, psi
        indicators = x.equal(self.spikes_)
        return phi.concat(indicators), psi.concat(indicators)

    @property
    def n_numbers(self) -> int:
        """Those of the smooth basis, or copies with indicators."""
        return self.basis_.n_numbers if len(self.spikes_) == 0 else super().n_numbers

    def _beside(self, smooth: Array, x: Array) -> Array:
        if len(self.spikes_) == 0:
            return smooth
        xp = array_namespace(smooth)
        spikes = like(self.spikes_, x)
        indicators = xp.astype(self.hold(x)[None, :] == spikes[:, None], smooth.dtype)
        return xp.concat([smooth.T, indicators]).T


def stand_out(counts: np.ndarray) -> np.ndarray:
    """Return the positions of values with far more rows than their neighbours, ascending."""
    padded = np.pad(counts, NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1)
    others = np.nansum(windows, axis=1) - counts
    neighbours = others / (np.sum(~np.isnan(windows), axis=1) - 1)
    heavy = np.flatnonzero((counts >= LEAST_ROWS) & (counts >= TIMES_NEIGHBOURS * neighbours))
    return np.sort(heavy[np.argsort(-counts[heavy], kind="stable")[:MOST_SPIKES]])


def with_indicators(table: sp.csr_array, phi: np.ndarray) -> sp.csr_array:
    """Return the product table of functions and indicators; ``phi`` are the functions there."""
    count, m = phi.shape
    size, k = m + count, table.shape[1]
    entries = table.tocoo()
    i, j = np.divmod(entries.row, m)
    spike, function = np.indices(phi.shape).reshape(2, -1)
    alone = np.arange(count)
    rows = np.concatenate(
        [
            i * size + j,
            function * size + m + spike,
            (m + spike) * size + function,
            (m + alone) * size + m + alone,
        ]
    )
    columns = np.concatenate([entries.col, k + spike, k + spike, k + alone])
    values = np.concatenate([entries.data, phi.ravel(), phi.ravel(), np.ones(count)])
    return sp.csr_array((values, (rows, columns)), shape=(size * size, k + count))
