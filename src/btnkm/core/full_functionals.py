"""Functionals of f under the posterior of a full tensor: averages over inputs, and variances.

A functional that takes each input by itself (its value at a point, its average over the training
rows, or the difference of these) acts on the kernel's sum input by input and on its product factor
by factor. With g its value at k(., rows), (n,), and p its prior variance, a functional of f has

    mean g alpha,    variance p - g A g^T.

Variances over inputs, drawn from the training rows independently of each other, are quadratic in
alpha. With M the matrix of such a variance for k(., row i) and k(., row j), and p that of the
prior, its expectation is alpha^T M alpha + p - trace(A M).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .full import FullPosterior
from .posterior import contrast_variances

Array = np.ndarray
POINTS = 400  # values of an input over which variances are averaged, at most
FEW_POINTS = 64  # where only draws of total effects are needed


class Averages(NamedTuple):
    """Averages over the training rows of one input's parts of the kernel."""

    # (n,): averages over x of its part of the sum, and of its factor, with each row
    sum: Array
    factor: Array
    # averages over both arguments
    sum_twice: float
    factor_twice: float


class Functional(NamedTuple):
    """Functionals of f: g (m, n) and prior variances (m,)."""

    g: Array
    prior: Array


@dataclass(frozen=True)
class FullAverages:
    """Functionals of a full tensor; averages over inputs are made once."""

    state: FullPosterior

    @cached_property
    def inputs(self) -> list[Averages]:
        """Averages of every input."""
        state, averages = self.state, []
        for d, rows in enumerate(state.rows):
            sums = state.kernel.sum_part(d, rows, rows) @ state.share
            factor = state.kernel.product_part(d, rows, rows) @ state.share
            twice = float(state.share @ sums), float(state.share @ factor)
            averages.append(Averages(sums, factor, *twice))
        return averages

    def _others(self, *places: int) -> tuple[Array, float]:
        """Return the product's variance times the average factors of all other inputs."""
        prior = float(self.state.kernel.product)
        g = np.full(len(self.state.share), prior)
        for e, part in enumerate(self.inputs):
            if e not in places:
                g = g * part.factor
                prior *= part.factor_twice
        return g, prior

    def base(self) -> Functional:
        """Return the average of f over all inputs: of one row."""
        g, prior = self._others()
        constant = self.state.kernel.constant
        g = g + constant + sum(part.sum for part in self.inputs)
        prior += constant + sum(part.sum_twice for part in self.inputs)
        return Functional(g[None], np.array([prior]))

    def _factor(self, d: int, x: Array) -> tuple[Array, Array, Array]:
        """Return an input's factor with each row, (m, n), its average, and that with itself."""
        kernel = self.state.kernel
        factor = kernel.product_part(d, x, self.state.rows[d])
        return factor, factor @ self.state.share, kernel.own_factor(d, x)

    def _sum(self, d: int, x: Array) -> Functional:
        """Return an input's part of the sum less its average."""
        state, of_input = self.state, self.inputs[d]
        part = state.kernel.sum_part(d, x, state.rows[d])
        spread = state.kernel.own_sum(d, x) - 2.0 * (part @ state.share) + of_input.sum_twice
        return Functional(part - of_input.sum, spread)

    def effect(self, d: int, x: Array) -> Functional:
        """Return an input's main effect at coordinates x (m, 3)."""
        alone, part = self._sum(d, x), self.inputs[d]
        g, prior = self._others(d)
        factor, average, itself = self._factor(d, x)
        spread = itself - 2.0 * average + part.factor_twice
        return Functional(alone.g + (factor - part.factor) * g, alone.prior + spread * prior)

    def together(self, places: tuple[int, int], x: tuple[Array, Array]) -> Functional:
        """Return what two inputs do together beyond their main effects, at m points."""
        g, prior = self._others(*places)
        spread = np.full(len(x[0]), prior)
        for d, at in zip(places, x, strict=True):
            factor, average, itself = self._factor(d, at)
            g = g * (factor - self.inputs[d].factor)
            spread = spread * (itself - 2.0 * average + self.inputs[d].factor_twice)
        return Functional(g, spread)

    def contributions(self, x: list[Array], nodes: Array, weights: Array) -> list[Functional]:
        """Return the Shapley value of every input at rows x: see ``explain.shapley``.

        ``nodes`` and ``weights`` are of Gauss's rule on [0, 1].
        """
        parts = [self._sum(d, at) for d, at in enumerate(x)]
        factors = [self._factor(d, at) for d, at in enumerate(x)]
        product = self.state.kernel.product
        used = [d for d in range(len(x)) if self.state.kernel.factor[d] > 0.0]
        for d in used:
            g, of_input = parts[d].g.copy(), self.inputs[d]
            added = factors[d][0] - of_input.factor
            for t, w in zip(nodes, weights, strict=True):
                part = (w * product) * added
                for e in used:
                    if e != d:
                        part = part * (t * factors[e][0] + (1.0 - t) * self.inputs[e].factor)
                g += part
            prior = parts[d].prior.copy()
            spread = product * (factors[d][2] - 2.0 * factors[d][1] + of_input.factor_twice)
            for s, v in zip(nodes, weights, strict=True):
                for t, w in zip(nodes, weights, strict=True):
                    part = v * w * spread
                    for e in used:
                        if e != d:
                            mixed = s * (1.0 - t) + t * (1.0 - s)
                            rest = (1.0 - s) * (1.0 - t) * self.inputs[e].factor_twice
                            part = part * (s * t * factors[e][2] + mixed * factors[e][1] + rest)
                    prior += part
            parts[d] = Functional(g, prior)
        return parts

    def moments(self, functional: Functional) -> tuple[Array, Array]:
        """Return first and second moments of functionals: (m,), or (m, K) less their mean."""
        state = self.state
        mean = functional.g @ state.alpha.T
        variance = np.column_stack(
            [
                functional.prior - np.sum((functional.g @ inverse) * functional.g, axis=1)
                for inverse in state.inverse
            ]
        )
        variance = np.maximum(variance, 0.0)
        if state.n_outputs is None:
            return mean[:, 0], (mean**2 + variance)[:, 0]
        mean = mean - mean.mean(axis=1, keepdims=True)
        return mean, mean**2 + contrast_variances(variance)


class Quadratic(NamedTuple):
    """A variance over inputs: M (n, n), and that of the prior."""

    matrix: Array
    prior: float


@dataclass(frozen=True)
class Variances:
    """Variances of f over inputs, as quadratic forms.

    ``points`` values of every input are averaged over, evenly among its sorted values.
    """

    averages: FullAverages
    points: int = POINTS

    @property
    def state(self) -> FullPosterior:
        """The posterior."""
        return self.averages.state

    @cached_property
    def used(self) -> list[int]:
        """Inputs with a factor in the product."""
        return np.flatnonzero(self.state.kernel.factor > 0.0).tolist()

    def _functions(self, d: int) -> tuple[Array, Array, Array]:
        """Return weights (q,) of some values of an input, and its parts with each row: (q, n)."""
        state = self.state
        rows = state.rows[d]
        order = np.lexsort(rows.T)
        edges = np.linspace(0, len(order), min(self.points, len(order)) + 1).astype(int)
        chosen = order[(edges[:-1] + edges[1:] - 1) // 2]
        weight = np.add.reduceat(state.share[order], edges[:-1])
        x = rows[chosen]
        sums = state.kernel.sum_part(d, x, rows)
        factor = state.kernel.product_part(d, x, rows)
        weight = weight / weight.sum()
        return weight, sums - weight @ sums, factor

    def covariances(self, d: int) -> tuple[Array, Array, Array, Array]:
        """Return the covariances of an input's parts over its values, and of factors: (n, n).

        Of sums with sums, sums with factors, factors with factors, and the products of averages
        that the last is to be added to for the average of the product.
        """
        weight, sums, factor = self._functions(d)
        average = weight @ factor
        spread = factor - average
        scaled = weight[:, None] * sums
        both = scaled.T @ spread
        return scaled.T @ sums, both, (weight[:, None] * spread).T @ spread, average

    @cached_property
    def _own_factors(self) -> list[float]:
        """Each input's factor of the product at x and x, averaged over rows."""
        state = self.state
        return [
            float(state.share @ state.kernel.own_factor(d, x)) for d, x in enumerate(state.rows)
        ]

    def _sum_prior(self, d: int) -> float:
        own_sum = self.state.kernel.own_sum(d, self.state.rows[d])
        return float(self.state.share @ own_sum) - self.averages.inputs[d].sum_twice

    def decomposed(self) -> tuple[Quadratic, list[Quadratic], list[Quadratic]]:
        """Return the variance of f, what each input explains alone, and with all others."""
        kernel, inputs = self.state.kernel, self.averages.inputs
        count, n = kernel.n_inputs, len(self.state.share)
        every = [self.covariances(d) if d in self.used else None for d in range(count)]
        product = np.full((n, n), kernel.product**2)
        alone = np.full(n, kernel.product)
        for part in every:
            if part is not None:
                product *= part[2] + np.outer(part[3], part[3])
                alone *= part[3]
        # k(x, x) of the product, averaged over inputs
        own_factors = self._own_factors
        itself = kernel.product * float(np.prod(own_factors))
        total, total_prior = product - np.outer(alone, alone), itself
        twice = kernel.product * float(np.prod([i.factor_twice for i in inputs]))
        total_prior -= twice
        firsts, totals = [], []
        for d in range(count):
            prior = self._sum_prior(d)
            if every[d] is None:
                weight, sums, _ = self._functions(d)
                matrix = (weight[:, None] * sums).T @ sums
                firsts.append(Quadratic(matrix, prior))
                totals.append(Quadratic(matrix, prior))
                total, total_prior = total + matrix, total_prior + prior
                continue
            part = every[d]
            assert part is not None
            among, both, spread, average = part
            others = alone / average
            cross = both * others
            matrix = among + cross + cross.T
            total, total_prior = total + matrix, total_prior + prior
            first = matrix + spread * np.outer(others, others)
            rest = product / (spread + np.outer(average, average))
            share = own_factors[d] - inputs[d].factor_twice
            firsts.append(Quadratic(first, prior + share * twice / inputs[d].factor_twice))
            totals.append(
                Quadratic(matrix + spread * rest, prior + share * itself / own_factors[d])
            )
        return Quadratic(total, total_prior), firsts, totals

    def pairs(self) -> dict[tuple[int, int], Quadratic]:
        """Return what each two inputs add beyond each alone."""
        kernel, inputs = self.state.kernel, self.averages.inputs
        spreads = {d: self.covariances(d)[2:] for d in self.used}
        alone = np.full(len(self.state.share), kernel.product)
        for _, average in spreads.values():
            alone = alone * average
        twice = kernel.product * float(np.prod([i.factor_twice for i in inputs]))
        pairs = {}
        for d in self.used:
            for e in self.used:
                if e <= d:
                    continue
                others = alone / (spreads[d][1] * spreads[e][1])
                matrix = spreads[d][0] * spreads[e][0] * np.outer(others, others)
                prior = twice
                for place in (d, e):
                    prior *= self._own_factors[place] / inputs[place].factor_twice - 1.0
                pairs[d, e] = Quadratic(matrix, prior)
        return pairs

    def expected(self, form: Quadratic) -> float:
        """Return the posterior's expectation, of all outputs together less their mean."""
        state, alpha = self.state, self.state.alpha
        outputs = len(alpha)
        if outputs > 1:
            alpha = alpha - alpha.mean(axis=0)
        value = float(np.sum((alpha @ form.matrix) * alpha))
        spread = sum(form.prior - float(np.sum(a * form.matrix)) for a in state.inverse)
        return value + max(spread, 0.0) * (1.0 - 1.0 / outputs if outputs > 1 else 1.0)

    def of_draws(self, form: Quadratic, drawn: Array) -> Array:
        """Return the variance of every draw (draws, K, n), of what the rows determine: (draws,)."""
        if drawn.shape[1] > 1:
            drawn = drawn - drawn.mean(axis=1, keepdims=True)
        return np.asarray(np.sum((drawn @ form.matrix) * drawn, axis=(1, 2)))


def total_effects(state: FullPosterior, n_draws: int, rng: np.random.Generator) -> Array:
    """Return draws of every input's total effect on f: (draws, inputs)."""
    variances = Variances(FullAverages(state), FEW_POINTS)
    drawn = state.draw(n_draws, rng)
    _, _, totals = variances.decomposed()
    return np.column_stack([variances.of_draws(form, drawn) for form in totals])
