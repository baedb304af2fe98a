"""Sines weighted by a spectral density: a Gaussian process with M functions per input."""

from __future__ import annotations

from typing import Self

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
    recurrence,
    thin,
)


class Fourier(Basis):
    """Sines on [-L, L] weighted by the root spectral density of a squared-exponential kernel.

    phi_m(x) = sqrt(S(w_m) / L) sin(w_m (x + L)) with w_m = pi m / (2 L), m = 1 .. M, and
    S(w) = sqrt(2 pi) l exp(-l^2 w^2 / 2): with weights N(0, 1) they are, up to truncation, a
    Gaussian process with that kernel and unit variance. A product of two sines is half the
    difference of two cosines, so K = 2 M + 1. Values outside [-1, 1] are held at the nearer end.

    Parameters
    ----------
    n_basis : int, default=20
        The number of functions M; a column with fewer distinct values gets as many as it has.
    lengthscale : float, default=0.2
        The kernel's lengthscale l, for an input that runs from -1 to 1. About
        1.75 * boundary / lengthscale functions are needed to render it.
    boundary : float, default=1.2
        L, where every sine is zero; greater than 1, and the greater the longer the lengthscale.

    Notes
    -----
    The construction is that of Solin and Sarkka (2020), Hilbert space methods for reduced-rank
    Gaussian process regression. T-KRR uses the same features.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.bases import Fourier
    >>> basis = Fourier(n_basis=20).fit(np.linspace(-1, 1, 99))
    >>> phi = basis.phi(np.array([0.0, 0.2]))
    >>> (phi @ phi.T).round(3).tolist()  # the kernel: 1 on the diagonal, exp(-1/2) beside it
    [[1.0, 0.607], [0.607, 1.0]]
    """

    def __init__(self, n_basis: int = 20, lengthscale: float = 0.2, boundary: float = 1.2) -> None:
        self.n_basis = n_basis
        self.lengthscale = lengthscale
        self.boundary = boundary

    def fit(self, x: np.ndarray) -> Self:
        """Decide M from the distinct values of ``x`` (n,) and build the product table."""
        check_above("lengthscale", self.lengthscale, 0.0, 0.2)
        check_above("boundary", self.boundary, 1.0, 1.2)
        values = distinct(self.hold(x))
        m = count_functions(self.n_basis, values)
        i = np.arange(1, m + 1)
        with np.errstate(over="ignore"):
            phase = np.square(self.lengthscale * (np.pi * i / (2 * self.boundary)))
        log_density = 0.5 * np.log(2 * np.pi) + np.log(self.lengthscale) - 0.5 * phase
        # Below 1e-8 a function is lost in rounding beside the others; a floor there keeps every
        # weight and every product of two weights a positive number, in single precision too.
        root_density = np.exp(np.clip(0.5 * log_density, np.log(1e-8), np.log(1e8)))
        self.weights_ = root_density / np.sqrt(self.boundary)
        half = 0.5 * np.outer(self.weights_, self.weights_)
        total, difference = i[:, None] + i, np.abs(i[:, None] - i)
        self.n_functions_ = m
        table = product_table(m, 2 * m + 1, (difference, half), (total, -half))
        return self._set(table, i - 1, closest_to_one(self.phi(thin(values))))

    def phi(self, x: Array) -> Array:
        """Return the weighted sines at x: (n,) -> (n, M)."""
        return self._sines(*self._angle(x))

    def psi(self, x: Array) -> Array:
        """Return cos(pi k (x + L) / (2 L)), k = 0 .. 2 M: (n,) -> (n, 2 M + 1)."""
        return self._cosines(self._angle(x)[1])

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return ``phi(x)`` and ``psi(x)`` from one sine and one cosine per row."""
        sine, cosine = self._angle(x)
        return self._sines(sine, cosine), self._cosines(cosine)

    def formula(self, x: Term) -> tuple[Term, Term]:
        """Return phi and psi as terms; cosines are sines, since ONNX runtimes lack the former."""
        m = self.n_functions_
        angle = (x + self.boundary) * (np.pi / (2.0 * self.boundary))
        sines = (angle * np.arange(1, m + 1)).sin()
        return sines * self.weights_[:m], (angle * np.arange(2 * m + 1) + 0.5 * np.pi).sin()

    def _angle(self, x: Array) -> tuple[Array, Array]:
        """Return sine and cosine of pi (x + L) / (2 L); the multiples follow by recurrence."""
        xp = array_namespace(x)
        angle = (self.hold(x) + self.boundary) * (np.pi / (2 * self.boundary))
        return xp.sin(angle), xp.cos(angle)

    def _sines(self, sine: Array, cosine: Array) -> Array:
        twice = 2.0 * cosine
        sines = recurrence(sine, twice * sine, twice)
        weighted = (float(w) * s for w, s in zip(self.weights_, sines, strict=False))
        return collect(weighted, self.n_functions_)

    def _cosines(self, cosine: Array) -> Array:
        ones = array_namespace(cosine).ones_like(cosine)
        return collect(recurrence(ones, cosine, 2.0 * cosine), self.n_products_)
