"""The posterior of one restart, for explanations: moments of averages of f over inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core import functionals
from ..core.functionals import At, Part, SumPart
from ..core.posterior import EffectAverages
from ..core.state import State

Array = np.ndarray


@dataclass(frozen=True)
class RestartView:
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
        """Of all modes of the tensor but the outputs', each brought to size one."""
        return self._sized[0]

    @property
    def size(self) -> float:
        """What first moments are to be multiplied by."""
        return self._sized[1]

    def mode(self, j: int) -> int | None:
        """Return the mode of a column of the table, None if it has none."""
        mode_map = self.mode_map
        return mode_map.inputs.index(j) + mode_map.first_input if j in mode_map.inputs else None

    @cached_property
    def sums(self) -> SumPart | None:
        """Of the main effects beside the tensor."""
        return functionals.sum_part_of(self.state, self.effects)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of f in one row: (), or (K,)."""
        count = self.state.n_outputs
        return () if count is None else (count,)

    def base(self) -> tuple[Array, Array]:
        """Return first and second moments of the average of f: () or (K,)."""
        moments = self._nothing(1)
        if self.parts:
            centers = [part.center[None] for part in self.parts]
            levels = [part.center_square[None] for part in self.parts]
            moments = self.first(centers), self.second(levels)
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

    def _nothing(self, n: int) -> tuple[Array, Array]:
        return np.zeros((n, *self.outputs)), np.zeros((n, *self.outputs))

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
