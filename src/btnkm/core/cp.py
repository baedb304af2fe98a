"""The CP network: f(x) = sum_r prod_d z_r^(d)(x), its per-sample moments and their sums over rows.

For one mode, z = W^T phi has mean zbar = E[W]^T phi (R,) and second moment Z = E[z z^T] (R, R).
Z is symmetric and lives packed as P = R (R + 1) / 2 pairs r <= s. Products of functions are
expressed in psi (see bases/base.py), so that Z of all rows is one matrix product, psi times a
(K, P) matrix of ``Terms``; and so is the sum over rows that a block update needs.

Row-side arrays follow the namespace of the features; small arrays are NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse import issparse

from .state import Factor, Mode

Array = Any

# Products over modes are brought back to size one every so many modes, so that hundreds of inputs
# neither overflow nor underflow; a handful of modes cannot leave the range of a double.
RESCALE_EVERY = 16
FAR_ENOUGH = 2.0**64


@lru_cache(maxsize=256)
def pairs(rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return r, s of each packed pair r <= s, and how often the pair stands in an (R, R) matrix."""
    r, s = np.triu_indices(rank)
    return r, s, np.where(r == s, 1.0, 2.0)


def outer(mean: Array) -> Array:
    """Return the packed products of each row with itself: (n, R) -> (n, P)."""
    xp = array_namespace(mean)
    return xp.concat([mean[:, k : k + 1] * mean[:, k:] for k in range(mean.shape[1])], axis=1)


class Moments(NamedTuple):
    """Per-sample moments of a product over some modes, to be multiplied by 2**exponent (4**…).

    ``second`` is None in the warm phase: it is then the outer product of ``mean`` with itself.
    ``exponent`` is None where nothing was rescaled.
    """

    mean: Array  # (n, R)
    second: Array | None  # (n, P)
    exponent: Array | None  # (n, R)


@dataclass(frozen=True)
class Terms:
    """What the rows need to know of one mode's q(W).

    Attributes
    ----------
    mean : ndarray of shape (n_phi, R)
        E[W], an anchor included, zero in rows of functions that were dropped.
    second : ndarray of shape (K, P) or None
        Coefficients of Z in psi; None leaves the covariance out (warm phase).
    """

    mean: np.ndarray
    second: np.ndarray | None

    def scale(self, factors: np.ndarray) -> Terms:
        """Return the terms after component r of W was multiplied by ``factors[r]``."""
        r, s, _ = pairs(len(factors))
        second = None if self.second is None else self.second * (factors[r] * factors[s])
        return Terms(self.mean * factors, second)


def terms(mode: Any, factor: Any, *, spread: float) -> Terms:
    """Return the terms of one mode with this share of its covariance; 0 leaves it out."""
    if not isinstance(factor, Factor):  # of very many levels, which are no dense block
        own: Terms = mode.terms(factor, spread)
        return own
    rank = factor.mean.shape[1]
    mean = np.zeros((mode.n_phi, rank))
    mean[mode.present] = whole = mode.whole(factor.mean)
    if not spread:
        return Terms(mean, None)
    r, s, _ = pairs(rank)
    columns = np.ascontiguousarray(whole.T)
    products = columns[r][:, :, None] * columns[s][:, None, :]
    covariance = factor.cov[r, :, s, :]
    if spread != 1.0:
        covariance *= spread
    free = slice(len(whole) - len(factor.mean), None)
    products[:, free, free] += covariance
    return Terms(mean, mode.adjoint(products))


def moments(features: tuple[Array, Array], term: Terms, into: Moments | None = None) -> Moments:
    """Return zbar and Z of every row for one mode; ``into`` may be overwritten."""
    phi, psi = features
    mean = _evaluate(phi, term.mean, None if into is None else into.mean)
    if term.second is None:
        return Moments(mean, None, None)
    return Moments(mean, _evaluate(psi, term.second, None if into is None else into.second), None)


def _evaluate(features: Array, coefficients: np.ndarray, out: Array | None) -> Array:
    """Return features times coefficients, one contiguous row per coefficient column: (n, C)."""
    if issparse(features):
        return np.asfortranarray(features @ coefficients)
    xp = array_namespace(features)
    a, b = xp.asarray(coefficients).T, features[:, : coefficients.shape[0]].T
    # into memory of another order BLAS goes another way, with other rounding
    shape = (b.shape[1], a.shape[0])
    if out is None or out.shape != shape or not out.flags.f_contiguous:
        return (a @ b).T
    return np.matmul(a, b, out=out.T).T


def multiply(a: Moments | None, b: Moments | None, into: Moments | None = None) -> Moments | None:
    """Return the moments of a product of independent factors; None stands for the constant 1.

    ``into`` is overwritten if its arrays have the right shape; it may be a or b.
    """
    if a is None or b is None:
        return b if a is None else a
    mean = _times(a.mean, b.mean, None if into is None else into.mean)
    if a.second is None:
        second = None
    else:
        second = _times(a.second, b.second, None if into is None else into.second)
    exponents = [m.exponent for m in (a, b) if m.exponent is not None]
    return Moments(mean, second, sum(exponents[1:], exponents[0]) if exponents else None)


def _times(a: Array, b: Array, out: Array | None) -> Array:
    return a * b if out is None or out.shape != a.shape else np.multiply(a, b, out=out)


def rescale(a: Moments) -> Moments:
    """Divide each component of each row by the power of two nearest its size; exact.

    Sizes that are all far from the limits of a double are left as they are.
    """
    xp = array_namespace(a.mean)
    size = xp.abs(a.mean)
    r, s, _ = pairs(a.mean.shape[1])
    if a.second is not None:
        squares = _columns(a.second, np.flatnonzero(r == s))
        size = xp.maximum(size, xp.sqrt(xp.abs(squares)))
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
    if second is not None:
        r, s, _ = pairs(a.mean.shape[1])
        second = second * _columns(factor, r) * _columns(factor, s)
    return Moments(a.mean * factor, second, exponent)


def _columns(a: Array, which: np.ndarray) -> Array:
    """Return some columns, each contiguous in memory as they are in all moments."""
    xp = array_namespace(a)
    return xp.take(a.T, xp.asarray(which), axis=0).T


def expand(a: Moments) -> Moments:
    """Multiply the exponents back in."""
    if a.exponent is None:
        return a
    xp = array_namespace(a.mean)
    return _scaled(a, xp.clip(a.exponent, -1000.0, 500.0), None)


class Environments:
    """Products of the modes left and right of each mode, for one block of rows.

    Moving from mode to mode extends one side by one mode and reuses the rest, whatever the order
    of the updates. Arrays no longer needed are kept to be overwritten: to the system, fresh memory
    is several times the work of a multiplication.

    Parameters
    ----------
    n_modes : int
    stride : int
        1 keeps every product. A larger one keeps, of either side, every so many-th and those from
        there to where it stands, and makes the others twice: a root of the memory for a second
        evaluation of each mode. 0 keeps nothing, and makes every product anew for every mode.
    """

    def __init__(self, n_modes: int, *, stride: int) -> None:
        self.n_modes = n_modes
        self.stride = stride
        # products by the number of modes in them, from the first on and from the last on
        self._left: dict[int, Moments | None] = {0: None}
        self._right: dict[int, Moments | None] = {0: None}
        self._lent: Moments | None = None  # the last answer, if no side holds it
        self._spare: list[Moments] = []

    def reset(self) -> None:
        """Forget everything: the factors changed in more than one mode."""
        for side in (self._left, self._right):
            self._drop(side, [length for length in side if length])

    def changed(self, d: int) -> None:
        """Forget what depends on mode ``d``."""
        self._drop(self._left, [length for length in self._left if length > d])
        self._drop(self._right, [length for length in self._right if length >= self.n_modes - d])

    def outside(
        self, d: int, moments_of: Callable[[int, Moments | None], Moments | None]
    ) -> Moments | None:
        """Return the product over all modes but ``d``; None if there is no other.

        ``moments_of(k, into)`` returns the moments of mode k, in arrays that are the caller's to
        overwrite, or None for the constant 1; those of ``into`` are free for it. The answer holds
        until the next call.
        """
        self._give_back(self._lent)
        self._lent = None
        left = self._reach(self._left, d, moments_of)
        right = self._reach(
            self._right,
            self.n_modes - 1 - d,
            lambda k, into: moments_of(self.n_modes - 1 - k, into),
        )
        if left is None or right is None:
            both = multiply(left, right)
        else:
            both = multiply(left, right, self._take())
            self._lent = both if self.stride else None
        if not self.stride:
            self.reset()
        return None if both is None else expand(both)

    def _reach(
        self,
        side: dict[int, Moments | None],
        length: int,
        moments_of: Callable[[int, Moments | None], Moments | None],
    ) -> Moments | None:
        """Return the product of the first modes of a side, from the longest one at hand."""
        base = length - length % self.stride if self.stride else length
        have = length
        while have not in side:  # the empty product always is
            have -= 1
        for k in range(have, length):
            step = moments_of(k, self._take())
            free = step if step is not None and is_numpy_array(step.mean) else None
            product = multiply(side[k], step, free)
            if product is not None and (k + 1) % RESCALE_EVERY == 0:
                product = rescale(product)
            side[k + 1] = product
            if k and k < base and (not self.stride or k % self.stride):
                self._drop(side, [k])
        if self.stride > 1:
            self._drop(side, [k for k in side if k % self.stride and not base <= k <= length])
        return side[length]

    def _drop(self, side: dict[int, Moments | None], lengths: list[int]) -> None:
        for length in lengths:
            self._give_back(side.pop(length))

    def _take(self) -> Moments | None:
        return self._spare.pop() if self._spare else None

    def _give_back(self, product: Moments | None) -> None:
        # other libraries pool their memory themselves, and have no way to name the output
        if self.stride and product is not None and is_numpy_array(product.mean):
            self._spare.append(product)


def block_sums(
    features: tuple[Array, Array],
    outside: Moments | None,
    weight: Array | None,
    pull: Array,
    mode: Mode,
    rank: int,
) -> tuple[Array, Array]:
    """Return what one mode's update needs from one block of rows; it adds up over blocks.

    Weights and pulls are (n, 1), or one per pair and component, (n, P) and (n, R), where f has many
    outputs (see ``output_asks``).

    Returns
    -------
    second : array of shape (K, P)
        sum_n weight_n psi_k H_p, with H the second moments of the other modes' product.
    linear : array of shape (n_phi, R)
        sum_n pull_n phi_m g_r, with g the means of the other modes' product.
    """
    phi, psi = features
    sparse = issparse(phi)
    xp = array_namespace(pull)
    if outside is None:
        n_pairs = rank * (rank + 1) // 2
        outside = Moments(xp.ones((phi.shape[0], rank)), xp.ones((phi.shape[0], n_pairs)), None)
    g, h = outside.mean, outside.second
    if h is None:
        h = outer(g)
    if sparse:
        return psi.T @ (h if weight is None else h * weight), phi.T @ (g * pull)
    phi, psi = phi[:, : mode.n_phi], psi[:, : mode.n_psi]
    if weight is not None and weight.shape[1] == 1 and psi.shape[1] < h.shape[1]:
        psi = psi * weight
    elif weight is not None:
        h = h * weight
    # the narrow factor first: BLAS is a third faster so
    return psi.T @ h, ((g * pull).T @ phi).T


def contract(product: Moments, output: Terms | None = None) -> tuple[Array, Array | None]:
    """Return E[f] and E[f^2] of every row from the moments of the product over all inputs.

    With an output mode f has as many values as that has functions: (n, K) instead of (n,).
    """
    xp = array_namespace(product.mean)
    full = expand(product)
    mean = xp.sum(full.mean, axis=1) if output is None else full.mean @ xp.asarray(output.mean.T)
    if full.second is None:
        return mean, None
    _, _, multiplicity = pairs(product.mean.shape[1])
    if output is None:
        return mean, full.second @ xp.asarray(multiplicity)
    assert output.second is not None
    return mean, full.second @ xp.asarray((output.second * multiplicity).T)


def output_asks(weight: Array, pull: Array, output: Terms) -> tuple[Array, Array]:
    """Return the weights of each pair (n, P) and pulls of each component (n, R) for an input.

    ``weight`` and ``pull`` are those of every output, (n, K).
    """
    xp = array_namespace(weight)
    second = outer(output.mean) if output.second is None else output.second
    return weight @ xp.asarray(second), pull @ xp.asarray(output.mean)


def output_sums(product: Moments, weight: Array, pull: Array) -> tuple[Array, Array]:
    """Return what the output mode's update needs from one block of rows: (K, P) and (K, R)."""
    g = product.mean
    h = outer(g) if product.second is None else product.second
    return weight.T @ h, pull.T @ g
