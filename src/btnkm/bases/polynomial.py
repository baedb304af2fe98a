"""Powers of the input at unit norm, plus an offset: the feature map of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from ..checks import check_above
from ..core.formula import Term
from .base import (
    Array,
    Basis,
    closest_to_one,
    collect,
    count_functions,
    distinct,
    product_table,
    thin,
)


class Polynomial(Basis):
    """Powers of x scaled to unit norm for each sample, plus a constant: x^m / ||.|| + offset.

    The norm of (x^0, .., x^{M-1}) depends on x, so these are not polynomials. Their products are
    x^{i+j} / ||.||^2 + offset (x^i + x^j) / ||.|| + offset^2, spanned by K = 3 M functions, or by
    2 M - 1 where the offset is 0. Values outside [-1, 1] are held at the nearer end.

    Parameters
    ----------
    n_basis : int, default=20
        The number of functions M; a column with fewer distinct values gets as many as it has.
    offset : float, default=0.2
        Added to every function after the normalisation, so that products over many inputs do
        not vanish. The default is the paper's value (its section on experiments).

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Polynomial
    >>> basis = Polynomial(n_basis=2, offset=0.0).fit(np.linspace(-1, 1, 9))
    >>> basis.phi(np.array([0.75])).round(12).tolist()
    [[0.8, 0.6]]
    """

    def __init__(self, n_basis: int = 20, offset: float = 0.2) -> None:
        self.n_basis = n_basis
        self.offset = offset

    def fit(self, x: np.ndarray) -> Self:
        """Decide M from the distinct values of ``x`` (n,) and build the product table."""
        check_above("offset", self.offset, -np.inf, 0.2)
        values = distinct(self.hold(x))
        m = count_functions(self.n_basis, values)
        i, c = np.arange(m), self.offset
        short = 2 * m - 1
        terms: list[tuple[Any, Any]] = [(i[:, None] + i, 1.0)]
        if c != 0:
            terms += [(short + i[:, None], c), (short + i, c), (short + m, c * c)]
        self.n_functions_ = m
        table = product_table(m, 3 * m if c != 0 else short, *terms)
        return self._set(table, i, closest_to_one(self.phi(thin(values))))

    def phi(self, x: Array) -> Array:
        """Return x^m / ||.|| + offset, m = 0 .. M-1: (n,) -> (n, M)."""
        x, scale = self._scale(x)
        return collect((f + self.offset for f in powers(scale, x)), self.n_functions_)

    def psi(self, x: Array) -> Array:
        """Return x^k / ||.||^2 (2 M - 1 of them), then x^m / ||.|| and 1: (n,) -> (n, K)."""
        x, scale = self._scale(x)
        m = self.n_functions_
        groups: list[Iterator[Array]] = [islice(powers(scale * scale, x), 2 * m - 1)]
        if self.offset != 0:
            groups += [islice(powers(scale, x), m), iter([array_namespace(x).ones_like(x)])]
        return collect(chain(*groups), self.n_products_)

    def formula(self, x: Term) -> tuple[Term, Term]:
        """Return phi and psi as terms."""
        m = self.n_functions_
        all_powers = x.power(np.arange(2 * m - 1))
        first = all_powers.columns(range(m))
        norm = ((first * first) @ np.ones((m, 1))).sqrt()
        scaled, psi = first / norm, all_powers / (norm * norm)
        if self.offset != 0:
            psi = psi.concat(scaled, norm / norm)
        return scaled + self.offset, psi

    def _scale(self, x: Array) -> tuple[Array, Array]:
        """Return x within [-1, 1], and 1 / ||(x^0, .., x^{M-1})||."""
        xp, x = array_namespace(x), self.hold(x)
        square, total = x * x, xp.ones_like(x)
        for _ in range(self.n_functions_ - 1):
            total = total * square + 1.0
        return x, 1.0 / xp.sqrt(total)


def powers(first: Array, x: Array) -> Iterator[Array]:
    """Yield first * x^k for k = 0, 1, .. without end."""
    while True:
        yield first
        first = first * x
