"""Per-sample moments of a mode and of the others around it, and their sums over rows.

For one mode, z = W^T phi has mean zbar = E[W]^T phi (C,) and second moment Z = E[z z^T] (C, C), of
which rows need one number for each statistic, (S,): see layout.py. Products of functions are
expressed in psi (see bases/base.py), so that Z of all rows is one matrix product, psi times a
(K, S) matrix of ``Terms``; and so is the sum over rows that a block update needs. How the moments
of modes combine depends on the network (cp.py, tt.py).

Row-side arrays follow the namespace of the features; small arrays are NumPy.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse import issparse

from .arrays import indices, like, wide
from .layout import Layout, pairs
from .state import Factor, Mode

Array = Any
PIECE = 8192  # rows of a device that are summed at once
FAR_ENOUGH = 2.0**64  # sizes up to this are far from the limits of a double and need no rescaling


def outer(mean: Array) -> Array:
    """Return the packed products of each row with itself: (n, R) -> (n, P)."""
    xp = array_namespace(mean)
    return xp.concat([mean[:, k : k + 1] * mean[:, k:] for k in range(mean.shape[1])], axis=1)


class Moments(NamedTuple):
    """Per-sample moments of one mode, or of several, to be multiplied by 2**exponent (4**…).

    ``second`` is None in the warm phase: it is then the product of ``mean`` with itself.
    ``exponent`` is None where nothing was rescaled.
    """

    mean: Array  # (n, C)
    second: Array | None  # (n, S)
    exponent: Array | None  # (n, C), or (n, 1) if all columns have the same


@dataclass(frozen=True)
class Terms:
    """What the rows need of one mode's q(W)."""

    # (n_phi, C): E[W], an anchor included, zero in rows of functions that were dropped
    mean: np.ndarray
    # (K, S): coefficients of Z in psi; None leaves the covariance out (warm phase)
    second: np.ndarray | None

    def scale(self, factors: np.ndarray) -> Terms:
        """Return the terms after component r of W was multiplied by ``factors[r]``."""
        r, s, _ = pairs(len(factors))
        second = None if self.second is None else self.second * (factors[r] * factors[s])
        return Terms(self.mean * factors, second)


def terms(mode: Any, factor: Any, *, spread: float, squares: bool = False) -> Terms:
    """Return the terms of one mode with a fraction of its covariance; 0 leaves it out.

    With ``squares`` there are second moments even then, of the means alone.
    """
    if not isinstance(factor, Factor):  # of very many categories, which are no dense block
        product: Terms = mode.terms(factor, spread, squares)
        return product
    whole = mode.whole(factor.mean, factor.layout.anchor)
    mean = mode.on_phi(whole)
    if not spread and not squares:
        return Terms(mean, None)
    columns = np.ascontiguousarray(whole.T)
    free = slice(len(whole) - len(factor.mean), None)

    def moments(c: np.ndarray, d: np.ndarray) -> np.ndarray:
        products = columns[c][:, :, None] * columns[d][:, None, :]
        if spread:
            covariance = factor.cov[c, :, d, :]
            if spread != 1.0:
                covariance *= spread
            products[:, free, free] += covariance
        return np.asarray(products)

    return Terms(mean, mode.adjoint(factor.layout.average(moments)))


class Widths(NamedTuple):
    """How many leading columns of phi and psi a mode needs."""

    n_phi: int
    n_psi: int


class Scratch(threading.local):
    """Arrays of this thread that are overwritten again and again, never to be kept."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def array(self, name: str, n: int, columns: int) -> np.ndarray:
        """Return an array (n, columns) of that name, each column contiguous."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < n * columns:
            buffer = self._buffers[name] = np.empty(n * columns)
        return buffer[: n * columns].reshape(columns, n).T


def moments(
    features: tuple[Array, Array], term: Terms, into: Moments | Scratch | None = None
) -> Moments:
    """Return zbar and Z of every row for one mode; ``into`` may be overwritten."""
    phi, psi = features
    if isinstance(into, Scratch) and not is_numpy_array(phi) and not issparse(phi):
        into = None
    if isinstance(into, Scratch):
        n = phi.shape[0]
        second = None
        if term.second is not None:
            second = into.array("step second", n, term.second.shape[1])
        into = Moments(into.array("step", n, term.mean.shape[1]), second, None)
    mean = _evaluate(phi, term.mean, None if into is None else into.mean)
    if term.second is None:
        return Moments(mean, None, None)
    return Moments(mean, _evaluate(psi, term.second, None if into is None else into.second), None)


def _evaluate(features: Array, coefficients: np.ndarray, out: Array | None) -> Array:
    """Return features times coefficients, one contiguous row per coefficient column: (n, C)."""
    if issparse(features):
        return np.asfortranarray(features @ coefficients)
    a, b = like(coefficients.T, features), features[:, : coefficients.shape[0]].T
    # into memory of another order BLAS goes another way, with other rounding
    shape = (b.shape[1], a.shape[0])
    if out is None or out.shape != shape or not out.flags.f_contiguous or not is_numpy_array(b):
        return (a @ b).T
    return np.matmul(a, b, out=out.T).T


def multiply(a: Moments | None, b: Moments | None, into: Moments | None = None) -> Moments | None:
    """Return the moments of a product, column by column; None stands for the constant 1.

    ``into`` is overwritten if its arrays have the right shape; it may be a or b.
    """
    if a is None or b is None:
        return b if a is None else a
    mean = _times(a.mean, b.mean, None if into is None else into.mean)
    if a.second is None or b.second is None:
        second = None
    else:
        second = _times(a.second, b.second, None if into is None else into.second)
    return Moments(mean, second, sum_exponents(a, b))


def sum_exponents(a: Moments, b: Moments) -> Array | None:
    """Return the exponents of a product."""
    exponents = [m.exponent for m in (a, b) if m.exponent is not None]
    return sum(exponents[1:], exponents[0]) if exponents else None


def _times(a: Array, b: Array, out: Array | None) -> Array:
    return a * b if out is None or out.shape != a.shape else np.multiply(a, b, out=out)


def rescale(a: Moments, *, together: bool = False) -> Moments:
    """Divide each column of each row by the power of two nearest its size; exact.

    Columns are components, or indices of a bond; with ``together`` a row has one power for all of
    them. Sizes that are all far from the limits of a double are left as they are.
    """
    xp = array_namespace(a.mean)
    size = xp.abs(a.mean)
    r, s, _ = pairs(a.mean.shape[1])
    if a.second is not None:
        squares = _columns(a.second, np.flatnonzero(r == s))
        size = xp.maximum(size, xp.sqrt(xp.abs(squares)))
    if together:
        size = xp.max(size, axis=1, keepdims=True)
    tiny = xp.finfo(size.dtype).smallest_normal
    size = xp.where(size > tiny, size, xp.ones_like(size))
    if float(xp.max(size)) < FAR_ENOUGH and float(xp.min(size)) > 1.0 / FAR_ENOUGH:
        return a
    shift = xp.round(xp.log2(size))
    exponent = shift if a.exponent is None else a.exponent + shift
    return _scaled(a, -shift, exponent)


def _scaled(a: Moments, shift: Array, exponent: Array | None) -> Moments:
    xp = array_namespace(a.mean)
    factor = xp.pow(xp.full_like(shift, 2.0), shift)
    second = a.second
    if second is not None and shift.shape[1] == 1:
        second = second * factor * factor
    elif second is not None:
        r, s, _ = pairs(a.mean.shape[1])
        second = second * _columns(factor, r) * _columns(factor, s)
    return Moments(a.mean * factor, second, exponent)


def _columns(a: Array, which: np.ndarray) -> Array:
    """Return some columns, each contiguous in memory as they are in all moments."""
    xp = array_namespace(a)
    return xp.take(a.T, indices(which, a), axis=0).T


def expand(a: Moments) -> Moments:
    """Multiply the exponents back in."""
    if a.exponent is None:
        return a
    xp = array_namespace(a.mean)
    return _scaled(a, xp.clip(a.exponent, -1000.0, 500.0), None)


def block_sums(
    features: tuple[Array, Array],
    outside: Moments | None,
    weight: Array | None,
    response: Array | None,
    widths: Widths | Mode,
    n_columns: int,
) -> tuple[Array, Array]:
    """Return what one mode's update needs from one block of rows; it adds up over blocks.

    Weights and responses are (n, 1) or, where f has many outputs, one per statistic and column,
    (n, S) and (n, C); None if they are in the moments already.

    Returns
    -------
    second : array of shape (K, S)
        sum_n weight_n psi_k H_p, with H the second moments of what is around the mode.
    linear : array of shape (n_phi, C)
        sum_n response_n phi_m g_c, with g its means.
    """
    phi, psi = features
    sparse = issparse(phi)
    if outside is None:  # of a single mode
        assert response is not None
        ones = array_namespace(response).ones_like(response[:, :1])
        xp = array_namespace(ones)
        n, n_pairs = phi.shape[0], n_columns * (n_columns + 1) // 2
        mean, second = (xp.broadcast_to(ones, (n, count)) for count in (n_columns, n_pairs))
        outside = Moments(mean, second, None)
    g, h = outside.mean, outside.second
    if h is None:
        h = outer(g)
    g = g if response is None else g * response
    if sparse:
        return psi.T @ (h if weight is None else h * weight), phi.T @ g
    phi, psi = phi[:, : widths.n_phi], psi[:, : widths.n_psi]
    if weight is not None and weight.shape[1] == 1 and psi.shape[1] < h.shape[1]:
        psi = psi * weight
    elif weight is not None:
        h = h * weight
    if not is_numpy_array(psi):
        return long_product(psi, h), long_product(phi, g)
    # the narrow factor first: BLAS is a third faster so
    return psi.T @ h, (g.T @ phi).T


def derivatives(phi: Array, keep: np.ndarray, outside: Array) -> Array:
    """Return those of E[f] by one mode's weights, in vec order: (n, R M).

    ``outside`` holds the means of the other modes' product, (n, R).
    """
    xp = array_namespace(phi)
    kept = xp.take(phi, indices(keep, phi), axis=1)
    return xp.reshape(outside[:, :, None] * kept[:, None, :], (phi.shape[0], -1))


def long_product(a: Array, b: Array) -> Array:
    """Return a^T b, summed over pieces of the rows and these in double precision.

    Devices share one long sum out badly, and in single precision it would lose digits.
    """
    if is_numpy_array(a):
        return a.T @ b
    xp = array_namespace(a)
    n = a.shape[0]
    size = min(PIECE, n)
    whole = n - n % size
    pieces = []
    for part, count in ((a, a.shape[1]), (b, b.shape[1])):
        cut = xp.reshape(part[:whole, :].T, (count, whole // size, size))
        pieces.append(xp.permute_dims(cut, (1, 0, 2)))
    product = pieces[0] @ xp.permute_dims(pieces[1], (0, 2, 1))
    total = xp.sum(wide(product), axis=0)
    return total if whole == n else total + wide(a[whole:, :].T @ b[whole:, :])


def contract(
    product: Moments, layout: Layout, output: Terms | None = None
) -> tuple[Array, Array | None]:
    """Return E[f] and E[f^2] of every row from moments of all inputs, the columns yet to be summed.

    With an output mode f has as many values as that has functions: (n, K) instead of (n,).
    """
    xp = array_namespace(product.mean)
    full = expand(product)
    mean = (
        xp.sum(full.mean, axis=1) if output is None else full.mean @ like(output.mean.T, full.mean)
    )
    if full.second is None:
        return mean, None
    if output is None:
        return mean, full.second @ like(layout.multiplicity, full.second)
    assert output.second is not None
    return mean, full.second @ like((output.second * layout.multiplicity).T, full.second)


def output_responses(weight: Array, response: Array, output: Terms) -> tuple[Array, Array]:
    """Return the outputs' weights of each statistic (n, S), and responses of each column (n, C).

    ``weight`` and ``response`` are those of every output, (n, K).
    """
    second = outer(output.mean) if output.second is None else output.second
    return weight @ like(second, weight), response @ like(output.mean, response)


def output_sums(product: Moments, weight: Array, response: Array) -> tuple[Array, Array]:
    """Return what the output mode's update needs from one block of rows: (K, S) and (K, C)."""
    g = product.mean
    h = outer(g) if product.second is None else product.second
    return weight.T @ h, response.T @ g
