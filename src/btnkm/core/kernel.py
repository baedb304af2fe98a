"""The kernel of the full tensor: sums of curves of each input, and a product over all inputs.

    k(x, x') = constant + sum_d [ line_d t_d t'_d + curve_d kappa_d + missing_d m_d m'_d ]
               + product * prod_d (1 + factor_d kappa_d) / (1 + factor_d)

t is the standardised raw value, m tells whether it is missing, and kappa_d is a correlation: of
numbers one that falls with their distance over a length scale (one in the sum, one in the product),
of categories 1 where they are the same and 0 elsewhere, and 0 where one of them is missing: a row
without a value has less of the product, also in k(x, x), as if it were averaged over the value. The
product is the prior of a tensor without a rank constraint.

An input has three coordinates (``bases.coordinates``): t, the position u at which kappa_d is taken,
and 1 where the value is known, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

Array = Any
LINE, POSITION, KNOWN = range(3)
SQRT3 = float(np.sqrt(3.0))


def decays(r: Array, xp: Any = np) -> tuple[Array, Array]:
    """Return a Gaussian and an exponential of r, which correlations are made of."""
    return xp.exp(r * r * (-1.0 / 6.0)), xp.exp(-r)


def correlation(r: Array, rough: Array, made: tuple[Array, Array]) -> Array:
    """Return kappa, given r, sqrt(3) times a distance over its length scale, and its ``decays``.

    It is (1 - rough) times a Gaussian, which is smooth, plus rough times Matern's with smoothness
    3/2, which is once differentiable.
    """
    smooth, decay = made
    return smooth + rough * ((1.0 + r) * decay - smooth)


def correlation_and_slopes(
    r: np.ndarray, rough: np.ndarray, made: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return kappa, and its slopes in the logarithm of the length scale and in rough."""
    smooth, decay = made
    more = (1.0 + r) * decay
    more -= smooth
    slope = 3.0 * decay  # in place from here on: there may be millions of pairs
    slope -= smooth
    slope *= rough
    slope += smooth
    slope *= r * r
    slope *= 1.0 / 3.0
    value = rough * more
    value += smooth
    return value, slope, more


@dataclass(frozen=True)
class Kernel:
    """Hyperparameters of the kernel.

    Attributes
    ----------
    categorical : ndarray of bool of shape (D,)
    constant, product : float
    line, curve, missing, factor : ndarray of shape (D,)
        Variances in the sum, and factors in the product; 0 for a part that an input does not have.
    curve_length, factor_length : ndarray of shape (D,)
        Length scales of numbers.
    rough : ndarray of shape (D,)
        Share of the rough correlation of numbers, from 0 to 1.
    """

    categorical: np.ndarray
    constant: float
    product: float
    line: np.ndarray
    curve: np.ndarray
    curve_length: np.ndarray
    missing: np.ndarray
    factor: np.ndarray
    factor_length: np.ndarray
    rough: np.ndarray

    @property
    def n_inputs(self) -> int:
        """The number of inputs, D."""
        return len(self.line)

    def correlation(self, d: int, x: Array, z: Array, length: np.ndarray) -> Array:
        """Return kappa_d between coordinates x (n, 3) and z (m, 3): (n, m)."""
        xp = array_namespace(x)
        known = x[:, KNOWN][:, None] * z[:, KNOWN][None, :]
        u, v = x[:, POSITION][:, None], z[:, POSITION][None, :]
        if self.categorical[d]:
            # a category never seen is like no other
            same = xp.astype((u == v) & (u >= 0.0), x.dtype)
        else:
            r = SQRT3 / float(length[d]) * xp.abs(u - v)
            same = correlation(r, float(self.rough[d]), decays(r, xp))
        return known * same

    def sum_part(self, d: int, x: Array, z: Array) -> Array:
        """Return what an input has in the sum: (n, m)."""
        xp = array_namespace(x)
        absent = (1.0 - x[:, KNOWN])[:, None] * (1.0 - z[:, KNOWN])[None, :]
        part = float(self.line[d]) * x[:, LINE][:, None] * z[:, LINE][None, :]
        if self.missing[d] > 0.0:
            part = part + float(self.missing[d]) * absent
        if self.curve[d] > 0.0:
            part = part + float(self.curve[d]) * self.correlation(d, x, z, self.curve_length)
        return xp.asarray(part)

    def product_part(self, d: int, x: Array, z: Array) -> Array:
        """Return the factor of an input in the product: (n, m)."""
        b = float(self.factor[d])
        return (1.0 + b * self.correlation(d, x, z, self.factor_length)) / (1.0 + b)

    def cross(self, x: Sequence[Array], z: Sequence[Array]) -> Array:
        """Return k between rows x and z, given coordinates of every input: (n, m)."""
        product: Any = float(self.product)
        total: Any = float(self.constant)
        for d in range(self.n_inputs):
            if self.factor[d] > 0.0:
                product = product * self.product_part(d, x[d], z[d])
            if self.line[d] > 0.0 or self.curve[d] > 0.0 or self.missing[d] > 0.0:
                total = total + self.sum_part(d, x[d], z[d])
        shape = (x[0].shape[0], z[0].shape[0])
        xp = array_namespace(x[0])
        return total + product + xp.zeros(shape, dtype=x[0].dtype, device=x[0].device)

    def variance(self, x: Sequence[Array]) -> Array:
        """Return k(x, x) of every row: (n,)."""
        total, product = float(self.constant), float(self.product)
        for d in range(self.n_inputs):
            product = product * self.own_factor(d, x[d])
            total = total + self.own_sum(d, x[d])
        return total + product

    def own_sum(self, d: int, x: Array) -> Array:
        """Return what an input has in the sum at x and x: (n,)."""
        known = x[:, KNOWN]
        part = float(self.line[d]) * x[:, LINE] ** 2 + float(self.curve[d]) * known
        return part + float(self.missing[d]) * (1.0 - known)

    def own_factor(self, d: int, x: Array) -> Array:
        """Return the factor of an input in the product at x and x: (n,)."""
        b = float(self.factor[d])
        return (1.0 + b * x[:, KNOWN]) / (1.0 + b)

    def scaled(self, size: float) -> Kernel:
        """Return the kernel times a number."""
        return replace(
            self,
            constant=self.constant * size,
            product=self.product * size,
            line=self.line * size,
            curve=self.curve * size,
            missing=self.missing * size,
        )
