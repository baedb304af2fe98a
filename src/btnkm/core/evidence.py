"""The evidence of the full tensor's hyperparameters, with its slopes.

Targets z of every output are f plus noise of known variance, up to a common factor that may be
learned. The logarithm of their density given the hyperparameters, plus that of a prior of these, is
what is maximised. Kernels are symmetric: all that is done entry by entry is done for pairs i < j.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri

from .kernel import KNOWN, LINE, POSITION, SHAPES, Kernel

Array = np.ndarray
JITTER = 1e-8  # of the diagonal, relative to its mean
MORE_JITTER = 100.0  # times as much, where that is not enough
MOST_KEPT = 2**26  # numbers kept from one pass over the pairs to the next
LIFT = 1.5  # how far below where it begins a logarithm may be when more rows come in
LIMIT = 30.0  # of the logarithm of any hyperparameter

# Prior of the logarithms: mean and standard deviation. Variances are in units of the target's.
CONSTANT, PRODUCT, NOISE = (-2.0, 2.0), (0.0, 3.0), (-2.0, 1.5)
VARIANCE, FACTOR, LENGTH = (-4.0, 3.0), (-3.0, 3.0), (1.0, 1.0)


class Parts(NamedTuple):
    """Which inputs have which part of the kernel: places among the D inputs."""

    categorical: Array  # bool, (D,)
    line: Array
    curve: Array
    missing: Array
    factor: Array


@dataclass(frozen=True)
class Theta:
    """Where each hyperparameter stands in a vector of logarithms."""

    parts: Parts
    learns_noise: bool

    @property
    def groups(self) -> list[tuple[str, Array, tuple[float, float], float]]:
        """Name, inputs (empty for one number), prior, and where it begins, of each group."""
        parts, none = self.parts, np.zeros(1, dtype=int)
        numeric = ~parts.categorical
        numbers = [places[numeric[places]] for places in (parts.curve, parts.factor)]
        groups = [
            ("constant", none, CONSTANT, -2.0),
            ("product", none[: min(len(parts.factor), 1)], PRODUCT, 0.0),
            ("noise", none[: int(self.learns_noise)], NOISE, -3.0),
            ("line", parts.line, VARIANCE, -2.3),
            ("curve", parts.curve, VARIANCE, -2.3),
            ("missing", parts.missing, VARIANCE, -2.3),
            ("factor", parts.factor, FACTOR, 0.0),
            ("curve_length", numbers[0], LENGTH, 0.5),
            ("factor_length", numbers[1], LENGTH, 0.7),
        ]
        return groups

    @property
    def places(self) -> dict[str, slice]:
        """Where each group stands in the vector."""
        found, at = {}, 0
        for name, inputs, _, _ in self.groups:
            found[name] = slice(at, at + len(inputs))
            at += len(inputs)
        return found

    def begin(self, shorter: float = 0.0) -> Array:
        """Return where the search begins, length scales ``shorter`` by this logarithm."""
        less = {"curve_length": shorter, "factor_length": shorter}
        return np.concatenate(
            [np.full(len(inputs), at - less.get(name, 0.0)) for name, inputs, _, at in self.groups]
        )

    def lifted(self, theta: Array) -> Array:
        """Return hyperparameters of few rows from which more rows can find what those had not.

        The evidence is flat where an input has next to no variance, or a very long length scale.
        """
        theta, begin, places = theta.copy(), self.begin(), self.places
        for name in ("line", "curve", "factor"):
            theta[places[name]] = np.maximum(theta[places[name]], begin[places[name]] - LIFT)
        for name in ("curve_length", "factor_length"):
            theta[places[name]] = np.minimum(theta[places[name]], begin[places[name]] + LIFT)
        return theta

    def prior(self, theta: Array) -> tuple[float, Array]:
        """Return the logarithm of the prior's density, but for a constant, and its slopes."""
        mean = np.concatenate([np.full(len(i), p[0]) for _, i, p, _ in self.groups])
        std = np.concatenate([np.full(len(i), p[1]) for _, i, p, _ in self.groups])
        away = (theta - mean) / std
        return -0.5 * float(away @ away), -away / std

    def kernel(self, theta: Array, shape: str) -> Kernel:
        """Return the kernel with these hyperparameters."""
        values = np.exp(np.clip(theta, -LIMIT, LIMIT))
        places = self.places
        arrays: dict[str, Any] = {}
        for name, inputs, _, _ in self.groups:
            if name in ("constant", "product", "noise"):
                continue
            arrays[name] = np.ones(len(self.parts.categorical)) * (name.endswith("length"))
            arrays[name][inputs] = values[places[name]]
        product = values[places["product"]]
        return Kernel(
            shape=shape,
            categorical=self.parts.categorical,
            constant=float(values[places["constant"]][0]),
            product=float(product[0]) if len(product) else 0.0,
            **arrays,
        )

    def noise(self, theta: Array) -> float:
        """Return the factor of the noise, 1 where it is not learned."""
        own = theta[self.places["noise"]]
        return float(np.exp(np.clip(own[0], -LIMIT, LIMIT))) if len(own) else 1.0


@dataclass
class Pairs:
    """The rows' coordinates, two by two: what does not depend on hyperparameters."""

    x: Sequence[Array]  # of every input, (n, 3)
    parts: Parts
    shape: str
    index: Array = field(init=False)  # of pairs i < j in a flattened matrix
    gaps: dict[int, Array] = field(init=False)  # squared distances, or whether categories are equal
    known: dict[int, Array] = field(init=False)  # of inputs with missing values: whether both are

    def __post_init__(self) -> None:
        n = len(self.x[0])
        i, j = np.triu_indices(n, 1)
        self.index = i * n + j
        self.gaps, self.known = {}, {}
        for d in sorted({*self.parts.curve.tolist(), *self.parts.factor.tolist()}):
            u, known = self.x[d][:, POSITION], self.x[d][:, KNOWN]
            if self.parts.categorical[d]:
                self.gaps[d] = (u[i] == u[j]).astype(float)
            else:
                self.gaps[d] = (u[i] - u[j]) ** 2
            if np.any(known < 1.0):
                self.known[d] = known[i] * known[j]
        self.lines = np.column_stack(
            [self.x[d][:, LINE] for d in self.parts.line] or [np.zeros((n, 0))]
        )
        self.absent = {int(d): 1.0 - self.x[d][:, KNOWN] for d in self.parts.missing}

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.x[0])

    def correlation(self, d: int, length: float) -> tuple[Array, Array | None]:
        """Return kappa_d of all pairs, and its slope in the logarithm of the length scale."""
        slope: Array | None = None
        if self.parts.categorical[d]:
            value = self.gaps[d]
        else:
            value, slope = SHAPES[self.shape](self.gaps[d] / length**2, np)
        if d in self.known:
            value = value * self.known[d]
            slope = None if slope is None else slope * self.known[d]
        return value, slope


class Evidence:
    """The logarithm of the evidence, plus that of the prior, as a function of hyperparameters.

    Attributes
    ----------
    pairs : Pairs
    theta : Theta
    target : ndarray of shape (n, K)
    noise : ndarray of shape (n, K)
        Variances of the noise, up to the factor that is learned.
    repeats : float
        Sum over rows of what each counts for beyond 1.
    """

    def __init__(
        self, pairs: Pairs, theta: Theta, target: Array, noise: Array, repeats: float = 0.0
    ) -> None:
        self.pairs, self.theta, self.target, self.noise = pairs, theta, target, noise
        self.repeats = repeats
        self.calls = 0

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return minus the value, and minus its slopes."""
        self.calls += 1
        value, slopes = self.theta.prior(theta)
        kernel, factor = self.theta.kernel(theta, self.pairs.shape), self.theta.noise(theta)
        keep = 4 * len(self.pairs.gaps) * len(self.pairs.index) <= MOST_KEPT
        made = _Made(self.pairs, kernel, keep)
        matrix = made.matrix()
        total = np.zeros_like(matrix)
        for z, v in self._systems(factor):
            solved = solve(matrix, v, z)
            count = z.shape[1]
            value -= 0.5 * (float(np.sum(z * solved.alpha)) + count * solved.log_det)
            total += solved.alpha @ solved.alpha.T - count * solved.inverse
            if self.theta.learns_noise:
                left = np.sum(solved.alpha**2, axis=1) - count * np.diagonal(solved.inverse)
                slopes[self.theta.places["noise"]] += 0.5 * float(left @ v)
        if self.theta.learns_noise:
            value -= 0.5 * self.repeats * np.log(factor)
            slopes[self.theta.places["noise"]] -= 0.5 * self.repeats
        for name, slope in made.slopes(total).items():
            slopes[self.theta.places[name]] += slope
        return -value, -slopes

    def _systems(self, factor: float) -> list[tuple[Array, Array]]:
        """Return targets (n, .) and the noise (n,) that they have in common."""
        noise = factor * self.noise
        if np.all(noise == noise[:, :1]):
            return [(self.target, noise[:, 0])]
        return [(self.target[:, [k]], noise[:, k]) for k in range(noise.shape[1])]


class Solved(NamedTuple):
    """(K + V)^-1, its product with the targets, and the logarithm of the determinant."""

    inverse: Array
    alpha: Array
    log_det: float


def whitened(matrix: Array, noise: Array, target: Array) -> tuple[Array, Array]:
    """Return alpha, and the lower triangle R with (K + V)^-1 = R^T R."""
    root, _ = dtrtri(factor_of(matrix, noise), lower=1)
    return root.T @ (root @ target), np.ascontiguousarray(root)


def solve(matrix: Array, noise: Array, target: Array) -> Solved:
    """Return what targets with noise of these variances (n,) say of f with this covariance."""
    n = len(matrix)
    factor = factor_of(matrix, noise)
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(factor))))
    inverse, _ = dpotri(factor, lower=1, overwrite_c=1)  # the other half is zero
    diagonal = np.diagonal(inverse).copy()
    inverse = inverse + inverse.T
    inverse[np.diag_indices(n)] = diagonal
    return Solved(inverse, inverse @ target, log_det)


def factor_of(matrix: Array, noise: Array) -> Array:
    """Return the lower Cholesky factor of a matrix and noise.

    If it is not positive definite in floating point, a little is added to the diagonal.
    """
    n = len(matrix)
    jitter = JITTER * float(np.mean(np.diagonal(matrix)))
    while True:
        full = matrix.copy()
        full[np.diag_indices(n)] += noise + jitter
        factor, failed = dpotrf(full, lower=1, overwrite_a=0, clean=1)
        if not failed:
            return np.asarray(factor)
        jitter *= MORE_JITTER
        if not np.isfinite(jitter) or jitter > 1e6 * np.max(full):
            raise np.linalg.LinAlgError("the kernel matrix is not finite")


class _Made:
    """The kernel matrix of the rows for some hyperparameters, and slopes in them."""

    def __init__(self, pairs: Pairs, kernel: Kernel, keep: bool) -> None:
        self.pairs, self.kernel = pairs, kernel
        self.kept: dict[tuple[str, int], Any] | None = {} if keep else None
        self.packed: Any = 1.0  # of the product, without its variance

    def _correlation(self, name: str, d: int) -> tuple[Array, Array | None]:
        length = getattr(self.kernel, f"{name}_length")[d]
        if self.kept is None:
            return self.pairs.correlation(d, length)
        if (name, d) not in self.kept:
            self.kept[name, d] = self.pairs.correlation(d, length)
        found: tuple[Array, Array | None] = self.kept[name, d]
        return found

    def matrix(self) -> Array:
        """Return k of all rows: (n, n)."""
        pairs, kernel, n = self.pairs, self.kernel, self.pairs.n
        total = np.full(len(pairs.index), kernel.constant)
        for d in pairs.parts.factor:
            b = kernel.factor[d]
            value, _ = self._correlation("factor", d)
            self.packed = self.packed * ((1.0 + b * value) / (1.0 + b))
        total += kernel.product * self.packed
        for d in pairs.parts.curve:
            total += kernel.curve[d] * self._correlation("curve", d)[0]
        square = np.zeros((n, n))
        square.reshape(-1)[pairs.index] = total
        square += square.T
        square[np.diag_indices(n)] = self._diagonal()
        square += (pairs.lines * kernel.line[pairs.parts.line]) @ pairs.lines.T
        for d, absent in pairs.absent.items():
            square += kernel.missing[d] * np.outer(absent, absent)
        return square

    def _diagonal(self) -> Array:
        """Return k(x, x) of all rows, without lines and indicators of missing values."""
        pairs, kernel = self.pairs, self.kernel
        self.product = np.full(pairs.n, kernel.product)
        total = np.full(pairs.n, kernel.constant)
        for d in pairs.parts.factor:
            self.product *= kernel.own_factor(d, pairs.x[d])
        for d in pairs.parts.curve:
            total += kernel.curve[d] * pairs.x[d][:, KNOWN]
        return np.asarray(total + self.product)

    def slopes(self, total: Array) -> dict[str, Array]:
        """Return half the trace of ``total`` times the kernel's slope in each logarithm."""
        pairs, kernel = self.pairs, self.kernel
        packed, diagonal = total.reshape(-1)[pairs.index], np.diagonal(total)
        found: dict[str, list[float]] = {
            name: [] for name in ("curve", "curve_length", "factor", "factor_length", "missing")
        }
        whole = float(packed.sum()) + 0.5 * float(diagonal.sum())
        alone = 0.5 * diagonal * self.product
        own = packed * self.packed * kernel.product if len(pairs.parts.factor) else packed
        for d in pairs.parts.factor:
            b = float(kernel.factor[d])
            value, slope = self._correlation("factor", d)
            left = own / (1.0 + b * value)
            slope_b = b * (float(left @ value) - float(own.sum()) / (1.0 + b))
            known = pairs.x[d][:, KNOWN]
            slope_b += b * float(alone @ (known / (1.0 + b * known) - 1.0 / (1.0 + b)))
            found["factor"].append(slope_b)
            if slope is not None:
                found["factor_length"].append(b * float(left @ slope))
        for d in pairs.parts.curve:
            a = float(kernel.curve[d])
            value, slope = self._correlation("curve", d)
            own_known = 0.5 * float(diagonal @ pairs.x[d][:, KNOWN])
            found["curve"].append(a * (float(packed @ value) + own_known))
            if slope is not None:
                found["curve_length"].append(a * float(packed @ slope))
        for d, absent in pairs.absent.items():
            found["missing"].append(0.5 * kernel.missing[d] * float(absent @ total @ absent))
        slopes = {name: np.array(values) for name, values in found.items()}
        slopes["constant"] = np.array([kernel.constant * whole])
        if len(pairs.parts.factor):
            slopes["product"] = np.array([float(own.sum()) + float(alone.sum())])
        lines = np.sum((total @ pairs.lines) * pairs.lines, axis=0)
        slopes["line"] = 0.5 * kernel.line[pairs.parts.line] * lines
        return slopes
