"""Functionals of f under a posterior: averages over inputs, and what an input adds to them.

f is linear in the weights of every mode. Its average over an input, or its value at a point less
that average, is the same network with another vector in the place of phi(x): its mean over the
rows, or what phi(x) differs by. Under q modes are independent, so that first and second moments of
such a functional are those of the modes, brought together as the network does: exact, without
draws. Main effects beside the network are linear in their coefficients, and independent of it under
q: moments of both add up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .categories import CategoryFactor, CategoryMode
from .posterior import EffectAverages
from .state import Factor, Mode, State

Array = np.ndarray


@dataclass(frozen=True)
class Part:
    """Moments of z = W^T v in a mode, for v = phi(x), for its mean over x, and both together."""

    mean: Array  # (n_phi, C): E[z] of a row is phi times this
    square: Array  # (K, C, C): E[z z^T] of a row is psi times this
    # (n_phi, C, C): E[z zbar^T] of a row is phi times this; zbar is the average of z over the rows
    cross: Array
    center: Array  # (C,): E[zbar]
    center_square: Array  # (C, C): E[zbar zbar^T]
    total: Array  # (C, C): the average of E[z z^T] over the rows

    @cached_property
    def spread(self) -> Array:
        """The average over the rows of E[(z - zbar)(z - zbar)^T]: (C, C)."""
        return np.asarray(self.total - self.center_square)

    def scaled(self, by: float) -> Part:
        """Return the moments of z times a number."""
        first = {name: by * getattr(self, name) for name in ("mean", "center")}
        second = {
            name: by * by * getattr(self, name)
            for name in ("square", "cross", "center_square", "total")
        }
        return replace(self, **first, **second)

    def at(self, features: tuple[Any, Any]) -> At:
        """Return the moments at some rows, given their phi and psi."""
        phi, psi = features
        c = len(self.center)
        mean = phi[:, : len(self.mean)] @ self.mean
        square = psi[:, : len(self.square)] @ self.square.reshape(len(self.square), -1)
        cross = phi[:, : len(self.cross)] @ self.cross.reshape(len(self.cross), -1)
        return At(self, mean, square.reshape(-1, c, c), cross.reshape(-1, c, c))


@dataclass(frozen=True)
class At:
    """Moments of z and of its average at n rows: (n, C), (n, C, C) and (n, C, C)."""

    part: Part
    mean: Array
    square: Array
    cross: Array

    @property
    def added(self) -> Array:
        """E[z - zbar]: (n, C)."""
        return np.asarray(self.mean - self.part.center)

    @property
    def added_square(self) -> Array:
        """E[(z - zbar)(z - zbar)^T]: (n, C, C)."""
        return self._products(1.0, -1.0, 1.0, -1.0)

    def mixed(self, t: float) -> Array:
        """E[t z + (1 - t) zbar]: (n, C)."""
        return t * self.mean + (1.0 - t) * self.part.center

    def mixed_square(self, s: float, t: float) -> Array:
        """E[(s z + (1 - s) zbar)(t z + (1 - t) zbar)^T]: (n, C, C)."""
        return self._products(s, 1.0 - s, t, 1.0 - t)

    def _products(self, a: float, b: float, c: float, d: float) -> Array:
        """E[(a z + b zbar)(c z + d zbar)^T]: (n, C, C)."""
        back = np.swapaxes(self.cross, 1, 2)
        return (
            a * c * self.square
            + a * d * self.cross
            + b * c * back
            + b * d * self.part.center_square
        )


def parts_of(state: State, averages: list[tuple[Array, Any]]) -> list[Part]:
    """Return the parts of all inputs, given the averages of phi and phi phi^T over the rows."""
    inputs = slice(0, state.output)
    modes, factors = state.modes[inputs], state.factors[inputs]
    return [
        _of_categories(mode, factor, *average)
        if isinstance(factor, CategoryFactor)
        else _of_functions(mode, factor, *average)
        for mode, factor, average in zip(modes, factors, averages, strict=False)
    ]


def contrasts_of(state: State) -> tuple[Array, Array] | None:
    """Return first and second moments of each output's weights less their mean: (K, C), (K, C, C).

    None if f has but one value.
    """
    if state.output is None:
        return None
    factor: Any = state.factors[state.output]
    mean, spread = _contrasts(factor.mean, factor.cov)
    return mean, mean[:, :, None] * mean[:, None, :] + spread


def _contrasts(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Return mean and covariance of each of K independent vectors, less the mean of all of them."""
    count = len(mean)
    shares = (np.eye(count) - 1.0 / count) ** 2
    return mean - mean.mean(axis=0), np.tensordot(shares, cov, 1)


@dataclass(frozen=True)
class SumPart:
    """Moments of main effects; with K > 1 outputs, of what each output has beyond their mean."""

    mean: Array  # (K, P): E of the coefficients. The first is the intercept.
    cov: Array  # (K, P, P)
    places: list[Array]  # the coefficients of each main effect
    columns: list[Array]  # the functions of each main effect that these belong to
    averages: list[EffectAverages]  # of the functions of each main effect over the rows

    @cached_property
    def average(self) -> Array:
        """The average of each function over the rows, 1 for the intercept: (P,)."""
        average = np.ones(self.mean.shape[1])
        for places, columns, averages in zip(self.places, self.columns, self.averages, strict=True):
            average[places] = averages.mean[columns]
        return average

    def base(self) -> tuple[Array, Array]:
        """Return E of the average over the rows, and E of its square: (1,) or (1, K)."""
        return self._moments(np.arange(len(self.average)), self.average[None])

    def added(self, i: int, functions: Array) -> tuple[Array, Array]:
        """Return E and E of the square of what an input adds to the average: (n,) or (n, K).

        ``functions`` are all those of its main effect at n values, (n, P_i).
        """
        places = self.places[i]
        return self._moments(places, functions[:, self.columns[i]] - self.average[places])

    def spread(self, i: int) -> Array:
        """Return E of the variance of a main effect over the rows: (K,)."""
        places, columns = self.places[i], self.columns[i]
        center = self.average[places]
        among = self.averages[i].gram[np.ix_(columns, columns)] - np.outer(center, center)
        mean, cov = self.mean[:, places], self.cov[:, places[:, None], places]
        return np.asarray(np.sum((mean @ among) * mean, axis=1) + np.sum(cov * among, axis=(1, 2)))

    def between(self, i: int, phi: Array, curve: Array) -> Array:
        """Return E of the covariance of a main effect and a function of the same input: (K,).

        The function is independent of the main effect under q. ``phi`` are averages of the
        functions of the tensor's mode over the rows, (M,), and ``curve`` is E of their
        coefficients, (M,) or (M, K).
        """
        places, columns, size = self.places[i], self.columns[i], len(curve)
        cross = self.averages[i].cross[columns, :size] - np.outer(self.average[places], phi[:size])
        return np.asarray(
            np.sum((self.mean[:, places] @ cross) * curve.reshape(size, -1).T, axis=1)
        )

    def _moments(self, places: Array, values: Array) -> tuple[Array, Array]:
        """Return E and E of the square of some coefficients times values (n, p)."""
        mean = values @ self.mean[:, places].T
        cov = self.cov[:, places[:, None], places]
        variance = np.stack([np.sum((values @ c) * values, axis=1) for c in cov], axis=1)
        second = mean**2 + variance
        return (mean, second) if len(self.mean) > 1 else (mean[:, 0], second[:, 0])


def sum_part_of(state: State, averages: list[EffectAverages]) -> SumPart | None:
    """Return the part of the main effects, given averages over the rows; None without any."""
    sums = state.sums
    if sums is None:
        return None
    mean, cov = sums.mean, sums.cov
    if len(mean) > 1:
        mean, cov = _contrasts(mean, cov)
    places = [sums.places(i) for i in range(len(averages))]
    return SumPart(mean, cov, places, [sums.column[p] for p in places], averages)


def together(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return first and second moments of the sum of two independent terms, given those of both."""
    (a, a2), (b, b2) = first, second
    return a + b, a2 + 2.0 * a * b + b2


def _of_functions(mode: Mode, factor: Factor, phi: Array, gram: Array) -> Part:
    present = mode.present
    whole = mode.whole(factor.mean, factor.layout.anchor)
    m, c = whole.shape
    products = np.multiply.outer(whole.T, whole.T)  # (C, M, C, M)
    free = slice(m - len(factor.mean), None)
    products[:, free, :, free] += factor.cov
    pairs = products.transpose(0, 2, 1, 3).reshape(c * c, m, m)
    square = mode.adjoint(pairs)
    average = np.asarray(phi)[present]
    cross = (products @ average).transpose(1, 0, 2)  # (M, C, C): of w_mc and zbar_d
    among = np.asarray(gram)[np.ix_(present, present)]
    total = pairs.reshape(c * c, -1) @ among.ravel()
    return Part(
        mode.on_phi(whole),
        np.asarray(square).reshape(-1, c, c),
        mode.on_phi(cross),
        average @ whole,
        np.tensordot(average, cross, 1),
        total.reshape(c, c),
    )


def _of_categories(mode: CategoryMode, factor: CategoryFactor, phi: Array, gram: Any) -> Part:
    values = mode.whole(factor.mean, factor.layout.anchor)
    average = np.asarray(phi)[: len(values)]
    center = average @ values
    square = values[:, :, None] * values[:, None, :] + factor.cov
    cross = values[:, :, None] * center + average[:, None, None] * factor.cov
    center_square = np.multiply.outer(center, center) + np.tensordot(average**2, factor.cov, 1)
    total = np.tensordot(gram.diagonal()[: len(values)], square, 1)
    mean, second, crossed = (mode.on_phi(table) for table in (values, square, cross))
    return Part(mean, second, crossed, center, center_square, total)
