"""How a network lies over a table: which column is which mode, and with what functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import clone

from ..bases import Categorical, Chebyshev, Gapped
from ..bases.anchored import Anchored
from ..bases.coordinates import Coordinates
from ..bases.effect import MainEffect
from ..bases.levels import Levels
from ..core.full import FullPosterior
from ..data.columns import Growth
from ..execution.fitting import Problem
from ..execution.modes import size_of

Array = np.ndarray
Columns = Sequence[Array] | Mapping[int, Array]  # coordinates, by the columns of the table
NUMBERS = 2**22  # features held at a time in prediction


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The inputs of a table as modes of a network.

    Attributes
    ----------
    full : bool
        Whether there is a full core for each input; else there are components.
    inputs : list of int
        The columns of the table, in the order of the modes.
    bases : list
        Those of the modes. Where all modes depart from an anchor, one more stands before those of
        the inputs: it never varies and has the scale of f.
    anchored : bool
        Whether inputs are anchored, those of very many levels aside.
    effects : tuple of MainEffect
        The sum beside the tensor, empty if there is none.
    effect_inputs : tuple of int
        The columns that these are of.
    sums_first : bool
        Whether the sum is fitted alone before the tensor is, or both begin together.
    splines : bool
        Whether numbers in the tensor have splines instead of polynomials.
    kernel : bool
        Whether it is the full tensor, a kernel machine.
    heavy : bool
        Whether its noise has heavy tails (Student-t), whatever the likelihood of the others.
    """

    full: bool
    inputs: list[int]
    bases: list[Any]
    anchored: bool
    effects: tuple[MainEffect, ...] = ()
    effect_inputs: tuple[int, ...] = ()
    sums_first: bool = False
    splines: bool = False
    kernel: bool = False
    heavy: bool = False

    @property
    def structure(self) -> str:
        """The name of the structure."""
        if self.kernel:
            return "full"
        tensor = "tensor" if self.inputs else ""
        return "+".join(part for part in ("sums" if self.effects else "", tensor) if part)

    @property
    def low_rank(self) -> bool:
        """Whether there is a tensor of low rank."""
        return bool(self.inputs) and not self.kernel

    @property
    def first_input(self) -> int:
        """Which of the modes is the first input: 1 behind the amplitudes."""
        return len(self.bases) - len(self.inputs)

    def codes(self, columns: Columns, rows: Any = slice(None)) -> list[Array]:
        """Return the coordinates of some rows in every mode, from those in the table's columns."""
        own = [columns[j][rows] for j in self.inputs]
        if not self.first_input:
            return own
        return [array_namespace(own[0]).zeros_like(own[0])] * self.first_input + own

    def features(
        self, columns: Columns, rows: Any = slice(None), made: dict[int, Any] | None = None
    ) -> list[Any]:
        """Return phi and psi of some rows in every mode; those ``made`` before are made once."""
        made = {} if made is None else made
        codes = self.codes(columns, rows) + [columns[j][rows] for j in self.effect_inputs]
        every = (*self.bases, *self.effects)
        for basis, x in zip(every, codes, strict=True):
            if id(basis) not in made:
                made[id(basis)] = basis.features(x)
        return [made[id(basis)] for basis in every]

    def grown(self, more: Mapping[int, Growth]) -> Arrangement:
        """Return the arrangement of a table some of whose columns have levels or gaps more."""
        bases = list(self.bases)
        for d, j in enumerate(self.inputs, self.first_input):
            if j in more:
                bases[d] = bases[d].grown(*more[j])
        return replace(self, bases=bases)

    def problem(self, rows: Any, n_outputs: int | None) -> Problem:
        """Return what is to be fitted, given rows with their coordinates in all columns."""
        both = [*self.inputs, *self.effect_inputs]
        arranged = rows.arranged(both, self.first_input)
        before = None
        if self.sums_first:
            alone = rows.arranged(list(self.effect_inputs), 0)
            before = Problem([], alone, n_outputs, self.effects, [None] * len(self.effects))
        return Problem(self.bases, arranged, n_outputs, self.effects, self.effect_modes, before)

    def modes_of(self, j: int) -> list[tuple[int, Any]]:
        """Return where the functions of a column stand among all features, with their bases."""
        found: list[tuple[int, Any]] = []
        if j in self.inputs:
            d = self.inputs.index(j) + self.first_input
            found.append((d, self.bases[d]))
        if j in self.effect_inputs:
            i = self.effect_inputs.index(j)
            found.append((len(self.bases) + i, self.effects[i]))
        return found

    @property
    def effect_modes(self) -> list[int | None]:
        """The tensor's mode of the input of each main effect, if it has one."""
        modes = {j: d for d, j in enumerate(self.inputs, self.first_input)}
        return [modes.get(j) for j in self.effect_inputs]


def block_size(arrangements: Sequence[Arrangement], states: Sequence[Any]) -> int:
    """Return how many rows may be looked at at a time by these posteriors."""
    bases = {id(basis): basis for one in arrangements for basis in one.bases}
    width = sum(sum(size_of(basis)) for basis in bases.values())
    width += 2 * max(sum(e.n_functions_ for e in one.effects) for one in arrangements)
    width = max(width, 1)
    width += sum(6 * len(s.share) for s in states if isinstance(s, FullPosterior))
    if any(one.full for one in arrangements):  # of a core and all around it
        layouts = [factor.layout for state in states for factor in state.factors]
        width += 2 * max(len(layout.multiplicity) for layout in layouts)
    return max(NUMBERS // width, 64)


def main_effects(
    inputs: Sequence[int],
    columns: Sequence[Any],
    codes: Sequence[Array],
    weights: Sequence[Array],
    n_curve: Mapping[int, int],
    steps: Mapping[int, Array] | None = None,
) -> tuple[MainEffect, ...]:
    """Return the main effects of some columns; ``codes`` are coordinates of values in each.

    ``n_curve`` and ``steps`` say, by column, how many polynomials and which steps it has.
    """
    found = []
    for j in inputs:
        column = columns[j]
        spikes = np.empty(0)
        if column.levels is None:
            inner = getattr(column.basis, "basis_", None)
            spikes = getattr(inner, "spikes_", spikes)
        count = None if column.levels is None else len(column.levels_by_code)
        effect = MainEffect(
            n_curve[j], column.knots, column.positions, spikes, count, (steps or {}).get(j)
        )
        found.append(effect.fit(codes[j], weights[j]))
    return tuple(found)


def full_arrangement(
    inputs: Sequence[int],
    columns: Sequence[Any],
    codes: Sequence[Array],
    weights: Sequence[Array],
    curved: Sequence[int],
) -> Arrangement:
    """Return the arrangement of a full tensor.

    Columns that are not ``curved`` have a straight line only; ``codes`` are coordinates of values
    in each column.
    """
    bases = []
    for j in inputs:
        column = columns[j]
        basis = Coordinates(
            column.knots, column.positions, column.levels is not None, j not in curved
        )
        bases.append(basis.fit(codes[j], weights[j]))
    return Arrangement(False, list(inputs), bases, False, kernel=True)


def arrange(
    inputs: list[int],
    bases: Mapping[int, Any],
    columns: Sequence[Array],
    weights: Sequence[Array],
    *,
    full: bool,
    anchored: bool,
    many_outputs: bool,
    effects: tuple[MainEffect, ...] = (),
    effect_inputs: Sequence[int] = (),
    average_missing: bool = False,
) -> Arrangement:
    """Return the arrangement of some columns, given the bases of all.

    ``columns`` and ``weights`` are coordinates of values in each column, and how these count.
    ``effects`` are those of the sum beside the tensor; without ``inputs`` there is no tensor. With
    ``average_missing`` the tensor is averaged over a number that is missing, and has no function
    of its own for it: with one, it has a free function of all other inputs for a few rows, in
    which the noise is large where the missing input matters.
    """
    if not inputs:
        return Arrangement(False, [], [], False, effects, tuple(effect_inputs))
    own = [bases[j] for j in inputs]
    if average_missing:
        own = [_averaging(bases[j], columns[j], weights[j]) for j in inputs]
    anchored = anchored and any(basis.n_functions_ > 1 for basis in own)
    if anchored:
        free = (0, len(own) - 1) if full else ()  # the ends of a train have its scale
        own = [
            b if isinstance(b, Levels) or k in free else Anchored(b).fit(columns[j], weights[j])
            for k, (j, b) in enumerate(zip(inputs, own, strict=True))
        ]
    # the amplitudes are the weights of one more input, which never varies; many outputs have them
    scaled = all(isinstance(basis, Levels) for basis in own) if full else anchored
    if scaled and not many_outputs:
        own = [Chebyshev(n_basis=1).fit(np.zeros(1)), *own]
    return Arrangement(full, inputs, own, anchored, effects, tuple(effect_inputs))


def _averaging(basis: Any, codes: Array, weight: Array) -> Any:
    """Return a basis of numbers that takes a missing value for their average."""
    missing = np.isnan(codes)
    inner = getattr(basis, "basis_", None)
    if not isinstance(basis, Gapped) or inner is None or isinstance(inner, Categorical):
        return basis
    return clone(basis).fit(codes[~missing], weight[~missing]) if missing.any() else basis
