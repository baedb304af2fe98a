"""The posterior of a full tensor as explanations see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.full import FullPosterior
from ..core.full_functionals import FullAverages, Variances

Array = np.ndarray


@dataclass(frozen=True)
class FullRestartView:
    """One posterior of a full tensor, with the methods of ``RestartView`` that explanations use.

    It has no components: ``parts`` is empty, and there are no main effects beside it.
    """

    state: FullPosterior
    mode_map: Any
    averages: list[Any] = field(default_factory=list)
    effects: list[Any] = field(default_factory=list)
    parts: tuple[()] = ()
    sums: None = None

    @cached_property
    def functionals(self) -> FullAverages:
        """What the posterior says of averages over inputs."""
        return FullAverages(self.state)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of f in one row: (), or (K,)."""
        count = self.state.n_outputs
        return () if count is None else (count,)

    def mode(self, j: int) -> int | None:
        """Return the place of a column of the table among the inputs, None if it has none."""
        return self.mode_map.inputs.index(j) if j in self.mode_map.inputs else None

    def _at(self, d: int, codes: Array) -> Array:
        return np.asarray(self.mode_map.bases[d].phi(np.asarray(codes, dtype=float)))

    def _nothing(self, n: int) -> tuple[Array, Array]:
        return np.zeros((n, *self.outputs)), np.zeros((n, *self.outputs))

    def base(self) -> tuple[Array, Array]:
        """Return first and second moments of the average of f: () or (K,)."""
        first, second = self.functionals.moments(self.functionals.base())
        return first[0], second[0]

    def effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        """Return first and second moments of a column's main effect: (n,) or (n, K)."""
        d = self.mode(j)
        if d is None:
            return self._nothing(len(codes))
        found = self.functionals.effect(d, self._at(d, codes))
        return self.functionals.moments(found)

    def together(self, places: Any, grids: Any, index: Any) -> tuple[Array, Array]:
        """Return first and second moments of the interaction of two columns: (n,) or (n, K)."""
        modes = [self.mode(j) for j in places]
        if any(d is None for d in modes):
            return self._nothing(len(index[0]))
        first, second = modes
        assert first is not None
        assert second is not None
        codes = [grid.codes[points] for grid, points in zip(grids, index, strict=True)]
        x = self._at(first, codes[0]), self._at(second, codes[1])
        return self.functionals.moments(self.functionals.together((first, second), x))

    def contributions(
        self, features: Sequence[Any], nodes: Array, weights: Array
    ) -> dict[int, tuple[Array, Array]]:
        """Return first and second moments of each column's contribution: (n,) or (n, K)."""
        x = [np.asarray(phi) for phi, _ in features]
        found = self.functionals.contributions(x, nodes, weights)
        places = self.mode_map.inputs
        return {j: self.functionals.moments(one) for j, one in zip(places, found, strict=True)}

    @cached_property
    def _variances(self) -> Variances:
        return Variances(self.functionals)

    @cached_property
    def _decomposed(self) -> list[Any]:
        total, firsts, totals = self._variances.decomposed()
        return [total, *firsts, *totals]

    def _placed(self, values: Sequence[float], count: int) -> Array:
        """Return the variance of f, and what columns explain alone and with others: (1 + 2 D,)."""
        out, own = np.zeros(1 + 2 * count), len(self.mode_map.inputs)
        out[0] = values[0]
        inputs = np.array(self.mode_map.inputs, dtype=int)
        out[1 + inputs] = values[1 : 1 + own]
        out[1 + count + inputs] = values[1 + own :]
        return out

    def expected(self, count: int) -> Array:
        """Return E of the variance of f, and of its parts: see ``sobol._decomposed``."""
        return self._placed([self._variances.expected(one) for one in self._decomposed], count)

    def draws(self, draws: int, rng: np.random.Generator, count: int) -> list[Array]:
        """Return draws of the variance of f, and of its parts."""
        drawn = self.state.draw(draws, rng)
        values = np.array([self._variances.of_draws(one, drawn) for one in self._decomposed])
        values = np.maximum(values, 0.0)  # rounding can take nothing below zero
        values[0] = np.max(values, axis=0)
        return [self._placed(row, count) for row in values.T]

    def pairs(self, count: int) -> Array:
        """Return the expected variance that each two columns add beyond each alone: (D, D)."""
        found = np.zeros((count, count))
        for (d, e), form in self._variances.pairs().items():
            j, i = sorted((self.mode_map.inputs[d], self.mode_map.inputs[e]))
            found[j, i] = self._variances.expected(form)
        return found

    def average_curves(
        self, blocks: list[Any], j: int, codes: Array, draws: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return the average over rows of f, column j at each of some codes: E of it, and draws.

        What the training rows say nothing of is left out of draws: it averages out over rows.
        """
        d, rows = self.mode(j), [np.zeros((len(codes), len(self.state.share)))]
        n = 0
        for features in blocks:
            x = [np.asarray(phi) for phi, _ in features]
            n += len(x[0])
            rows.append(len(x[0]) * self._average_cross(x, d, codes))
        cross = np.sum(rows, axis=0) / n
        drawn = self.state.draw(draws, rng)
        mean = self._contrasts(self.state.alpha) @ cross.T
        every = self._contrasts(drawn) @ cross.T
        if not self.outputs:
            return mean[0], every[:, 0]
        return mean.T, np.moveaxis(every, 1, 2)

    def _average_cross(self, x: list[Array], d: int | None, codes: Array) -> Array:
        """Return the average over rows x of k with each training row, one input at some codes."""
        kernel, rows = self.state.kernel, self.state.rows
        if d is None:
            return np.tile(kernel.cross(x, rows).mean(axis=0), (len(codes), 1))
        at = self._at(d, codes)
        others = [e for e in range(len(x)) if e != d]
        total = np.zeros(len(rows[0])) + kernel.constant
        product = np.full((len(x[0]), len(rows[0])), kernel.product)
        for e in others:
            total = total + kernel.sum_part(e, x[e], rows[e]).mean(axis=0)
            product = product * kernel.product_part(e, x[e], rows[e])
        own = kernel.product_part(d, at, rows[d]) * product.mean(axis=0)
        return np.asarray(total + kernel.sum_part(d, at, rows[d]) + own)

    def _contrasts(self, weights: Array) -> Array:
        """Return weights of the outputs, the last axis but one, less their mean if many."""
        if not self.outputs:
            return weights
        return np.asarray(weights - weights.mean(axis=-2, keepdims=True))
