"""The posterior of one restart, of low rank or full: moments of averages of f over inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core import functionals
from ..core.full import FullPosterior
from ..core.full_functionals import FullAverages, Variances
from ..core.functionals import At, Part, SumPart
from ..core.posterior import EffectAverages
from ..core.state import State

Array = np.ndarray


class _View:
    """What views of all posteriors have in common."""

    state: Any

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of f in one row: (), or (K,)."""
        count = self.state.n_outputs
        return () if count is None else (count,)

    def _nothing(self, n: int) -> tuple[Array, Array]:
        return np.zeros((n, *self.outputs)), np.zeros((n, *self.outputs))


@dataclass(frozen=True)
class RestartView(_View):
    """The posterior of one restart, f = a + T: main effects and a tensor, or one of them.

    The parts of T are at sizes that multiply without overflow; ``size`` is what scales them.
    """

    state: State
    mode_map: Any
    averages: list[tuple[Array, Any]]
    effects: list[EffectAverages]

    @cached_property
    def _sized(self) -> tuple[list[Part], float]:
        parts = functionals.parts_of(self.state, self.averages)
        sizes = [np.sqrt(max(float(np.max(np.diagonal(p.total))), 1e-300)) for p in parts]
        log = float(np.sum(np.log(sizes)))
        return [p.scaled(1.0 / s) for p, s in zip(parts, sizes, strict=True)], np.exp(log)

    @property
    def parts(self) -> list[Part]:
        """The parts of all modes but the outputs', each scaled to size one."""
        return self._sized[0]

    @property
    def size(self) -> float:
        """The product of the sizes of the parts before scaling, a factor of first moments."""
        return self._sized[1]

    def mode(self, j: int) -> int | None:
        """Return the mode of a column of the table, None if it has none."""
        mode_map = self.mode_map
        return mode_map.inputs.index(j) + mode_map.first_input if j in mode_map.inputs else None

    @cached_property
    def sums(self) -> SumPart | None:
        """The main effects beside the tensor."""
        return functionals.sum_part_of(self.state, self.effects)

    def base(self) -> tuple[Array, Array]:
        """Return first and second moments of the average of f: () or (K,)."""
        moments = self._nothing(1)
        if self.parts:
            centers = [part.center[None] for part in self.parts]
            squares = [part.center_square[None] for part in self.parts]
            moments = self.first(centers), self.second(squares)
        if self.sums is not None:
            moments = functionals.together(moments, self.sums.base())
        return moments[0][0], moments[1][0]

    def effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        """Return first and second moments of a column's main effect: (n,) or (n, K)."""
        moments = self._nothing(len(codes))
        if self.mode(j) is not None:
            moments = self._tensor_effect(j, codes)
        if self.sums is not None and j in self.mode_map.effect_inputs:
            i = self.mode_map.effect_inputs.index(j)
            functions = self.mode_map.effects[i].features(codes)[0]
            moments = functionals.together(moments, self.sums.added(i, functions))
        return moments

    def _tensor_effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        d, at = self.mode(j), self.at(j, codes)
        assert d is not None
        firsts = [part.center[None] for part in self.parts]
        seconds = [part.center_square[None] for part in self.parts]
        firsts[d], seconds[d] = at.added, at.added_square
        return self.first(firsts), self.second(seconds)

    def at(self, j: int, codes: Array) -> At:
        """Return the moments of a column's mode at some coordinates."""
        d = self.mode(j)
        assert d is not None
        return self.parts[d].at(self.mode_map.bases[d].features(codes))

    def together(self, places: Any, grids: Any, index: Any) -> tuple[Array, Array]:
        """Return first and second moments of the interaction of two columns: (n,) or (n, K).

        ``index`` says which points of each grid these are. Only the tensor has interactions.
        """
        firsts = [part.center[None] for part in self.parts]
        seconds = [part.center_square[None] for part in self.parts]
        for j, grid, points in zip(places, grids, index, strict=True):
            d = self.mode(j)
            if d is None:
                return self._nothing(len(index[0]))
            at = self.at(j, grid.codes)
            firsts[d], seconds[d] = at.added[points], at.added_square[points]
        return self.first(firsts), self.second(seconds)

    @cached_property
    def contrasts(self) -> tuple[Array, Array] | None:
        """First and second moments of the outputs' weights less their mean; None if f has one."""
        return functionals.contrasts_of(self.state)

    def first(self, parts: Sequence[Array]) -> Array:
        """Return E of a functional of T from first moments (n, C) of all modes: (n,) or (n, K)."""
        return self._each(parts, 0, self.state.network.whole) * self.size

    def second(self, parts: Sequence[Array]) -> Array:
        """Return E of its square from second moments (n, C, C): (n,) or (n, K)."""
        return self._each(parts, 1, self.state.network.whole) * self.size**2

    def first_replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return E with each mode's part replaced: (D, n) or (D, n, K), outputs not among D."""
        return self._replaced(parts, others, 0) * self.size

    def second_replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return E of the square with each mode's part replaced: (D, n) or (D, n, K)."""
        return self._replaced(parts, others, 1) * self.size**2

    def _each(self, parts: Sequence[Array], order: int, contract: Any) -> Array:
        if self.contrasts is None:
            return np.asarray(contract(list(parts)))
        values = [contract([*parts, output[None]]) for output in self.contrasts[order]]
        return np.stack(np.broadcast_arrays(*values), axis=-1)

    def _replaced(self, parts: Sequence[Array], others: Sequence[Array], order: int) -> Array:
        count = len(parts)
        replaced = self.state.network.replaced
        if self.contrasts is None:
            return np.asarray(replaced(parts, others))
        values = [
            replaced([*parts, output[None]], [*others, output[None]])[:count]
            for output in self.contrasts[order]
        ]
        return np.stack(values, axis=-1)


@dataclass(frozen=True)
class FullRestartView(_View):
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
        """The distribution of averages of f over inputs."""
        return FullAverages(self.state)

    def mode(self, j: int) -> int | None:
        """Return the place of a column of the table among the inputs, None if it has none."""
        return self.mode_map.inputs.index(j) if j in self.mode_map.inputs else None

    def _at(self, d: int, codes: Array) -> Array:
        return np.asarray(self.mode_map.bases[d].phi(np.asarray(codes, dtype=float)))

    def base(self) -> tuple[Array, Array]:
        """Return first and second moments of the average of f: () or (K,)."""
        first, second = self.functionals.moments(self.functionals.base())
        return first[0], second[0]

    def effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        """Return first and second moments of a column's main effect: (n,) or (n, K)."""
        d = self.mode(j)
        if d is None:
            return self._nothing(len(codes))
        functional = self.functionals.effect(d, self._at(d, codes))
        return self.functionals.moments(functional)

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
        functionals = self.functionals.contributions(x, nodes, weights)
        places = self.mode_map.inputs
        return {
            j: self.functionals.moments(part) for j, part in zip(places, functionals, strict=True)
        }

    @cached_property
    def _variances(self) -> Variances:
        return Variances(self.functionals)

    @cached_property
    def _decomposed(self) -> list[Any]:
        total, firsts, totals = self._variances.decomposed()
        return [total, *firsts, *totals]

    def _placed(self, values: Sequence[float], count: int) -> Array:
        """Return the variance of f, and what columns explain alone and with others: (1 + 2 D,)."""
        out, n_inputs = np.zeros(1 + 2 * count), len(self.mode_map.inputs)
        out[0] = values[0]
        inputs = np.array(self.mode_map.inputs, dtype=int)
        out[1 + inputs] = values[1 : 1 + n_inputs]
        out[1 + count + inputs] = values[1 + n_inputs :]
        return out

    def expected(self, count: int) -> Array:
        """Return E of the variance of f, and of its parts: see ``sobol._decomposed``."""
        return self._placed([self._variances.expected(form) for form in self._decomposed], count)

    def draws(self, draws: int, rng: np.random.Generator, count: int) -> list[Array]:
        """Return draws of the variance of f, and of its parts."""
        drawn = self.state.draw(draws, rng)
        values = np.array([self._variances.of_draws(form, drawn) for form in self._decomposed])
        values = np.maximum(values, 0.0)  # without rounding errors
        values[0] = np.max(values, axis=0)
        return [self._placed(row, count) for row in values.T]

    def pairs(self, count: int) -> Array:
        """Return the expected variance that each two columns add beyond each alone: (D, D)."""
        variances = np.zeros((count, count))
        for (d, e), form in self._variances.pairs().items():
            j, i = sorted((self.mode_map.inputs[d], self.mode_map.inputs[e]))
            variances[j, i] = self._variances.expected(form)
        return variances

    def average_curves(
        self, blocks: list[Any], j: int, codes: Array, draws: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Return the average over rows of f, column j at each of some codes: E of it, and draws.

        Draws leave out the part of f that the training rows do not determine: it averages out.
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
        varying = kernel.product_part(d, at, rows[d]) * product.mean(axis=0)
        return np.asarray(total + kernel.sum_part(d, at, rows[d]) + varying)

    def _contrasts(self, weights: Array) -> Array:
        """Return weights of the outputs, the last axis but one, less their mean if many."""
        if not self.outputs:
            return weights
        return np.asarray(weights - weights.mean(axis=-2, keepdims=True))
