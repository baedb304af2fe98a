"""The evidence of the full tensor's hyperparameters, with its gradient.

Targets z of every output are f plus noise of known variance, up to a common factor that may be
learned. The log density of the targets given the hyperparameters, plus the log prior of these, is
maximised. Kernels are symmetric: elementwise operations are done for pairs i < j only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from .full import (
    KNOWN,
    LINE,
    POSITION,
    SQRT3,
    Kernel,
    correlation,
    correlation_and_slopes,
    decays,
)
from .linalg import solve_noisy

Array = np.ndarray
BLOCK = 2**15  # numbers of all inputs together
KEPT = 2**21  # numbers of all inputs and pairs up to which exponentials are kept for the slopes
LIFT = 1.5  # how far below its first value a logarithm may be when a search gets more rows
LIMIT = 30.0  # of the logarithm of any hyperparameter

# draws of the hyperparameters
DRAWS, WARM_UP = 8, 12  # steps that are kept, and those before that find their length
LEAPFROG_STEPS = 10  # evaluations of the density in a step
FIRST, SHORTEST, LONGEST = 0.25, 0.01, 1.5  # step sizes
ACCEPTED, PACE = 0.75, 0.3  # fraction of steps to accept, and how fast step sizes adapt
SPREAD = 0.3  # of the length from step to step, so that no orbit is closed

# prior of the logarithms: mean and standard deviation; variances are in units of the target's
CONSTANT, PRODUCT, NOISE = (-2.0, 2.0), (0.0, 3.0), (-2.0, 1.5)
VARIANCE, FACTOR, LENGTH = (-4.0, 3.0), (-3.0, 3.0), (1.0, 1.0)
ROUGH = (0.0, 1.5)  # of the log odds


class Parts(NamedTuple):
    """Which inputs have which part of the kernel: positions among the D inputs."""

    categorical: Array  # bool, (D,)
    line: Array
    curve: Array
    missing: Array
    factor: Array


@dataclass(frozen=True)
class Theta:
    """The positions of the hyperparameters in a vector of logarithms."""

    parts: Parts
    learns_noise: bool

    @cached_property
    def groups(self) -> list[tuple[str, Array, tuple[float, float], float]]:
        """Name, inputs (empty for one number), prior and first value of each group."""
        parts, none = self.parts, np.zeros(1, dtype=int)
        numeric = ~parts.categorical
        numbers = [places[numeric[places]] for places in (parts.curve, parts.factor)]
        return [
            ("constant", none, CONSTANT, -2.0),
            ("product", none[: min(len(parts.factor), 1)], PRODUCT, 0.0),
            ("noise", none[: int(self.learns_noise)], NOISE, -3.0),
            ("line", parts.line, VARIANCE, -2.3),
            ("curve", parts.curve, VARIANCE, -2.3),
            ("missing", parts.missing, VARIANCE, -2.3),
            ("factor", parts.factor, FACTOR, 0.0),
            ("curve_length", numbers[0], LENGTH, 0.5),
            ("factor_length", numbers[1], LENGTH, 0.7),
            ("rough", np.union1d(*numbers).astype(int), ROUGH, 0.0),
        ]

    @cached_property
    def places(self) -> dict[str, slice]:
        """The positions of each group in the vector."""
        places, at = {}, 0
        for name, inputs, _, _ in self.groups:
            places[name] = slice(at, at + len(inputs))
            at += len(inputs)
        return places

    def begin(self, shorter: float = 0.0) -> Array:
        """Return the first values, with length scales reduced by the logarithm ``shorter``."""
        less = {"curve_length": shorter, "factor_length": shorter}
        return np.concatenate(
            [np.full(len(inputs), at - less.get(name, 0.0)) for name, inputs, _, at in self.groups]
        )

    def lifted(self, theta: Array) -> Array:
        """Return hyperparameters of few rows, moved to where a search with more rows can begin.

        The evidence is flat where an input has next to no variance, or a very long length scale.
        """
        theta, begin, places = theta.copy(), self.begin(), self.places
        for name in ("line", "curve", "factor"):
            theta[places[name]] = np.maximum(theta[places[name]], begin[places[name]] - LIFT)
        for name in ("curve_length", "factor_length"):
            theta[places[name]] = np.minimum(theta[places[name]], begin[places[name]] + LIFT)
        return theta

    def prior(self, theta: Array) -> tuple[float, Array]:
        """Return the log density of the prior, up to a constant, and its gradient."""
        mean = np.concatenate([np.full(len(i), p[0]) for _, i, p, _ in self.groups])
        away = (theta - mean) / self.prior_std
        return -0.5 * float(away @ away), -away / self.prior_std

    @cached_property
    def prior_std(self) -> Array:
        """The standard deviations of the prior."""
        return np.concatenate([np.full(len(i), p[1]) for _, i, p, _ in self.groups])

    def kernel(self, theta: Array) -> Kernel:
        """Return the kernel with these hyperparameters."""
        values = np.exp(np.clip(theta, -LIMIT, LIMIT))
        places = self.places
        values[places["rough"]] = expit(theta[places["rough"]])
        arrays: dict[str, Any] = {}
        for name, inputs, _, _ in self.groups:
            if name in ("constant", "product", "noise"):
                continue
            arrays[name] = np.ones(len(self.parts.categorical)) * (name.endswith("length"))
            arrays[name][inputs] = values[places[name]]
        product = values[places["product"]]
        return Kernel(
            categorical=self.parts.categorical,
            constant=float(values[places["constant"]][0]),
            product=float(product[0]) if len(product) else 0.0,
            **arrays,
        )

    def noise(self, theta: Array) -> float:
        """Return the factor of the noise, 1 where it is not learned."""
        log_noise = theta[self.places["noise"]]
        return float(np.exp(np.clip(log_noise[0], -LIMIT, LIMIT))) if len(log_noise) else 1.0


@dataclass
class Pairs:
    """The rows' coordinates, two by two: what does not depend on hyperparameters."""

    x: Sequence[Array]  # (n, 3): of every input
    parts: Parts
    index: Array = field(init=False)  # (P,): of the P pairs i < j in a flattened matrix
    # (C, P): of the C inputs with a curve or a factor: distances of numbers times sqrt(3), or
    # whether categories are the same
    distances: Array = field(init=False)
    # (C, P): 1 where both values are known; None if all are
    known: Array | None = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.x[0])
        i, j = np.triu_indices(n, 1)
        self.index = i * n + j
        self.inputs = np.union1d(self.parts.curve, self.parts.factor).astype(int)
        self.distances = np.empty((len(self.inputs), len(i)))
        missing = any(np.any(self.x[d][:, KNOWN] < 1.0) for d in self.inputs)
        self.known = np.ones_like(self.distances) if missing else None
        for row, d in enumerate(self.inputs):
            u, known = self.x[d][:, POSITION], self.x[d][:, KNOWN]
            same = self.parts.categorical[d]
            self.distances[row] = u[i] == u[j] if same else SQRT3 * np.abs(u[i] - u[j])
            if self.known is not None:
                self.known[row] = known[i] * known[j]
        self.lines = np.column_stack(
            [self.x[d][:, LINE] for d in self.parts.line] or [np.zeros((n, 0))]
        )
        self.absent = {int(d): 1.0 - self.x[d][:, KNOWN] for d in self.parts.missing}

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.x[0])

    @property
    def blocks(self) -> list[slice]:
        """Blocks of pairs that are processed together, small enough for a processor's cache."""
        size = max(BLOCK // max(len(self.inputs), 1), 1024)
        return [slice(k, k + size) for k in range(0, len(self.index), size)]

    def places(self, inputs: Array) -> Any:
        """Return the positions of some inputs among those with a curve or a factor."""
        if len(inputs) == len(self.inputs):
            return slice(None)
        return np.searchsorted(self.inputs, inputs)


class Evidence:
    """The logarithm of the evidence, plus that of the prior, as a function of hyperparameters.

    The targets are (n, K), and so is ``noise``, their variances up to the factor that is learned.
    ``repeats`` is the sum over rows of the weight of each beyond 1.
    """

    def __init__(
        self, pairs: Pairs, theta: Theta, target: Array, noise: Array, repeats: float = 0.0
    ) -> None:
        self.pairs, self.theta, self.target, self.noise = pairs, theta, target, noise
        self.repeats = repeats

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Return minus the value, and minus its gradient."""
        value, slopes = self.theta.prior(theta)
        kernel, factor = self.theta.kernel(theta), self.theta.noise(theta)
        made = _Made(self.pairs, kernel)
        matrix = made.matrix()
        total = np.zeros_like(matrix)
        for z, v in self._systems(factor):
            solved = solve_noisy(matrix, v, z)
            count = z.shape[1]
            value -= 0.5 * (float(np.sum(z * solved.alpha)) + count * solved.log_det)
            total += solved.alpha @ solved.alpha.T - count * solved.inverse
            if self.theta.learns_noise:
                slope = np.sum(solved.alpha**2, axis=1) - count * np.diagonal(solved.inverse)
                slopes[self.theta.places["noise"]] += 0.5 * float(slope @ v)
        if self.theta.learns_noise:
            value -= 0.5 * self.repeats * np.log(factor)
            slopes[self.theta.places["noise"]] -= 0.5 * self.repeats
        for name, slope in made.slopes(total).items():
            slopes[self.theta.places[name]] += slope
        return -value, -slopes

    def _systems(self, factor: float) -> list[tuple[Array, Array]]:
        """Return targets (n, .), each with their common noise (n,)."""
        noise = factor * self.noise
        if np.all(noise == noise[:, :1]):
            return [(self.target, noise[:, 0])]
        return [(self.target[:, [k]], noise[:, k]) for k in range(noise.shape[1])]


class _Made:
    """The kernel matrix of the rows for some hyperparameters, and slopes in them."""

    def __init__(self, pairs: Pairs, kernel: Kernel) -> None:
        self.pairs, self.kernel = pairs, kernel
        self.packed = np.ones(len(pairs.index))  # of the product, without its variance
        self.kept: dict[tuple[str, int], tuple[Array, Array]] = {}

    def _correlations(self, name: str, block: slice, *, slopes: bool = False) -> tuple[Array, ...]:
        """Return kappa in the sum ("curve") or the product ("factor"), and optionally two slopes.

        Exponentials are made for the matrix and kept for the slopes, or made again where there are
        too many to keep.
        """
        pairs, kernel = self.pairs, self.kernel
        inputs = getattr(pairs.parts, name)
        rows, rough = pairs.places(inputs), kernel.rough[inputs][:, None]
        distances = pairs.distances[rows, block]
        r = distances / getattr(kernel, f"{name}_length")[inputs][:, None]
        made = self.kept.get((name, block.start)) or decays(r)
        if pairs.distances.size <= KEPT:
            self.kept[name, block.start] = made
        values: tuple[Array, ...] = (
            correlation_and_slopes(r, rough, made) if slopes else (correlation(r, rough, made),)
        )
        same = pairs.parts.categorical[inputs]
        if np.any(same):
            for part, value in zip(values, (distances[same], 0.0, 0.0), strict=False):
                part[same] = value
        if pairs.known is not None:
            for part in values:
                part *= pairs.known[rows, block]
        return values

    def matrix(self) -> Array:
        """Return k of all rows: (n, n)."""
        pairs, kernel, n = self.pairs, self.kernel, self.pairs.n
        factor, curve = pairs.parts.factor, pairs.parts.curve
        total = np.full(len(pairs.index), kernel.constant)
        b = kernel.factor[factor][:, None]
        for block in pairs.blocks:
            if len(factor):
                value = self._correlations("factor", block)[0]
                self.packed[block] = np.multiply.reduce((1.0 + b * value) / (1.0 + b), axis=0)
            if len(curve):
                total[block] += kernel.curve[curve] @ self._correlations("curve", block)[0]
        total += kernel.product * self.packed
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
        factor, curve = pairs.parts.factor, pairs.parts.curve
        packed, diagonal = total.reshape(-1)[pairs.index], np.diagonal(total)
        product, alone = packed * self.packed * kernel.product, 0.5 * diagonal * self.product
        known = np.array([x[:, KNOWN] for x in pairs.x])
        b, a = kernel.factor[factor], kernel.curve[curve]
        by_factor, by_curve = np.zeros((3, len(factor))), np.zeros((3, len(curve)))
        for block in pairs.blocks:
            if len(factor):
                values = self._correlations("factor", block, slopes=True)
                of_others = product[block] / (1.0 + b[:, None] * values[0])
                by_factor += [np.einsum("ij,ij->i", of_others, part) for part in values]
            if len(curve):
                values = self._correlations("curve", block, slopes=True)
                by_curve += [part @ packed[block] for part in values]
        rough = np.zeros(len(known))
        rough[factor] += b * by_factor[2]
        rough[curve] += a * by_curve[2]
        rough *= kernel.rough * (1.0 - kernel.rough)
        share = known[factor] / (1.0 + b[:, None] * known[factor]) - 1.0 / (1.0 + b[:, None])
        numeric = ~pairs.parts.categorical
        slopes = {
            "factor": b * (by_factor[0] - product.sum() / (1.0 + b) + share @ alone),
            "factor_length": (b * by_factor[1])[numeric[factor]],
            "curve": a * (by_curve[0] + 0.5 * known[curve] @ diagonal),
            "curve_length": (a * by_curve[1])[numeric[curve]],
            "rough": rough[pairs.inputs[numeric[pairs.inputs]]],
            "constant": np.array([kernel.constant * (packed.sum() + 0.5 * diagonal.sum())]),
        }
        if len(factor):
            slopes["product"] = np.array([product.sum() + alone.sum()])
        lines = np.sum((total @ pairs.lines) * pairs.lines, axis=0)
        slopes["line"] = 0.5 * kernel.line[pairs.parts.line] * lines
        slopes["missing"] = np.array(
            [0.5 * kernel.missing[d] * (g @ total @ g) for d, g in pairs.absent.items()]
        )
        return slopes


def draw(
    energy: Callable[[Array], tuple[float, Array]],
    begin: Array,
    rng: np.random.Generator,
    n_draws: int = DRAWS,
    warm_up: int = WARM_UP,
) -> Array:
    """Return draws from the density exp(-energy) by Hamiltonian Monte Carlo: (n_draws, P).

    ``energy`` takes a point (P,) and returns a value and its slopes (P,). The chain begins at a
    point of high density, ``begin``. Every coordinate should vary by about 1.
    """
    at, (value, slopes) = begin, energy(begin)
    length, draws = FIRST, []
    for step in range(warm_up + n_draws):
        momentum = rng.standard_normal(len(at))
        size = length * rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)
        proposal, speed = at, momentum - 0.5 * size * slopes
        for _ in range(LEAPFROG_STEPS):
            proposal = proposal + size * speed
            new_value, new_slopes = energy(proposal)
            speed = speed - size * new_slopes
        speed = speed + 0.5 * size * new_slopes
        lost = new_value - value + 0.5 * float(speed @ speed - momentum @ momentum)
        chance = float(np.exp(-max(lost, 0.0))) if np.isfinite(lost) else 0.0
        if rng.uniform() < chance:
            at, value, slopes = proposal, new_value, new_slopes
        if step < warm_up:
            length = float(np.clip(length * np.exp(PACE * (chance - ACCEPTED)), SHORTEST, LONGEST))
        else:
            draws.append(at)
    return np.array(draws)
