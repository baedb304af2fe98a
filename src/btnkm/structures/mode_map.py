"""Which column of a table is which mode of a network, and with what functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.base import clone

from ..bases import Categorical, Chebyshev, WithMissing
from ..bases.anchored import Anchored
from ..bases.categorical import ManyCategories
from ..bases.effect import Coordinates, MainEffect
from ..core.full import FullPosterior
from ..data.columns import Growth
from ..execution.fitting import Problem
from ..execution.modes import size_of

Array = np.ndarray
Columns = Sequence[Array] | Mapping[int, Array]  # coordinates, by the columns of the table
NUMBERS = 2**22  # features held at a time in prediction


@dataclass(frozen=True, eq=False)
class ModeMap:
    """The inputs of a table as modes of a network."""

    full_cores: bool  # whether there is a full core for each input; otherwise there are components
    inputs: list[int]  # columns of the table, in the order of the modes
    # of the modes; if all are anchored, one more, which is constant and has the scale of f (the
    # amplitudes), comes before those of the inputs
    bases: list[Any]
    anchored: bool  # whether inputs are anchored, except those with very many categories
    effects: tuple[MainEffect, ...] = ()  # the sum beside the tensor
    effect_inputs: tuple[int, ...] = ()  # the columns of the main effects
    sums_first: bool = False  # whether the sum is fitted before the tensor, not together with it
    splines: bool = False  # whether numbers in the tensor have splines instead of polynomials
    full_tensor: bool = False  # whether it is the full tensor, a kernel machine
    heavy: bool = False  # whether its noise is Student-t, whatever the likelihood of the others
    noise_effects: tuple[MainEffect, ...] = ()  # of the log precision of noise that varies
    noise_inputs: tuple[int, ...] = ()  # the columns of these

    @property
    def structure(self) -> str:
        """The name of the structure."""
        if self.full_tensor:
            return "full"
        tensor = "tensor" if self.inputs else ""
        return "+".join(part for part in ("sums" if self.effects else "", tensor) if part)

    @property
    def noise(self) -> tuple[bool, bool]:
        """Whether the noise may vary, and whether it has heavy tails."""
        return bool(self.noise_effects), self.heavy

    @property
    def runs_on(self) -> bool:
        """Whether straight lines run on beyond the training range."""
        return any(part.runs_on for part in (self.bases if self.full_tensor else self.effects))

    @property
    def low_rank(self) -> bool:
        """Whether there is a tensor of low rank."""
        return bool(self.inputs) and not self.full_tensor

    @property
    def has_anchors(self) -> bool:
        """Whether any mode is anchored, as those of very many categories always are."""
        return any(isinstance(basis, Anchored | ManyCategories) for basis in self.bases)

    @property
    def n_functions(self) -> int:
        """Number of functions of all modes together."""
        return sum(size_of(basis)[0] for basis in self.bases)

    @property
    def first_input(self) -> int:
        """The mode of the first input: 1 if there are amplitudes, else 0."""
        return len(self.bases) - len(self.inputs)

    def codes(self, columns: Columns, rows: Any = slice(None)) -> list[Array]:
        """Return the coordinates of some rows in every mode, given those in every column."""
        codes = [columns[j][rows] for j in self.inputs]
        if not self.first_input:
            return codes
        return [array_namespace(codes[0]).zeros_like(codes[0])] * self.first_input + codes

    def features(
        self, columns: Columns, rows: Any = slice(None), made: dict[int, Any] | None = None
    ) -> list[Any]:
        """Return phi and psi of some rows in every mode; ``made`` is a cache by basis."""
        made = {} if made is None else made
        codes = self.codes(columns, rows)
        codes += [columns[j][rows] for j in (*self.effect_inputs, *self.noise_inputs)]
        every = (*self.bases, *self.effects, *self.noise_effects)
        for basis, x in zip(every, codes, strict=True):
            if id(basis) not in made:
                made[id(basis)] = basis.features(x)
        return [made[id(basis)] for basis in every]

    def grown(self, more: Mapping[int, Growth]) -> ModeMap:
        """Return the mode map with new categories or missing values in some columns."""
        bases = list(self.bases)
        for d, j in enumerate(self.inputs, self.first_input):
            if j in more:
                bases[d] = bases[d].grown(*more[j])
        return replace(self, bases=bases)

    def problem(self, rows: Any, n_outputs: int | None) -> Problem:
        """Return what is to be fitted, given rows with their coordinates in all columns."""
        every = [*self.inputs, *self.effect_inputs, *self.noise_inputs]
        arranged = rows.arranged(every, self.first_input)
        before = None
        # main effects alone: noise that may vary at once would take what they are yet to explain
        if self.sums_first or (self.noise_effects and not self.inputs):
            alone = rows.arranged(list(self.effect_inputs), 0)
            before = Problem([], alone, n_outputs, self.effects, [None] * len(self.effects))
        parts = self.effects, self.effect_modes, before, self.noise_effects
        return Problem(self.bases, arranged, n_outputs, *parts)

    def modes_of(self, j: int) -> list[tuple[int, Any]]:
        """Return the positions of a column among all features, with the bases."""
        modes: list[tuple[int, Any]] = []
        if j in self.inputs:
            d = self.inputs.index(j) + self.first_input
            modes.append((d, self.bases[d]))
        if j in self.effect_inputs:
            i = self.effect_inputs.index(j)
            modes.append((len(self.bases) + i, self.effects[i]))
        return modes

    @property
    def effect_modes(self) -> list[int | None]:
        """The tensor's mode of the input of each main effect, if it has one."""
        modes = {j: d for d, j in enumerate(self.inputs, self.first_input)}
        return [modes.get(j) for j in self.effect_inputs]


def block_size(mode_maps: Sequence[ModeMap], states: Sequence[Any]) -> int:
    """Return how many rows these posteriors may predict at a time."""
    bases = {id(basis): basis for mode_map in mode_maps for basis in mode_map.bases}
    width = sum(sum(size_of(basis)) for basis in bases.values())
    width += 2 * max(
        sum(e.n_functions_ for e in (*mode_map.effects, *mode_map.noise_effects))
        for mode_map in mode_maps
    )
    width = max(width, 1)
    width += sum(6 * len(s.share) for s in states if isinstance(s, FullPosterior))
    if any(mode_map.full_cores for mode_map in mode_maps):  # a core and its environments
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
    *,
    runs_on: bool = False,
) -> tuple[MainEffect, ...]:
    """Return the main effects of some columns, given coordinates of their values.

    ``n_curve`` and ``steps`` contain the number of polynomials and the steps of each column.
    ``runs_on`` tells whether straight lines do so beyond the training range.
    """
    effects = []
    for j in inputs:
        column = columns[j]
        spikes = np.empty(0)
        if column.categories is None:
            inner = getattr(column.basis, "basis_", None)
            spikes = getattr(inner, "spikes_", spikes)
        count = None if column.categories is None else len(column.categories_by_code)
        parts = column.knots, column.positions, spikes, count, (steps or {}).get(j)
        effect = MainEffect(n_curve[j], *parts, runs_on)
        effects.append(effect.fit(codes[j], weights[j]))
    return tuple(effects)


def full_mode_map(
    inputs: Sequence[int],
    columns: Sequence[Any],
    codes: Sequence[Array],
    weights: Sequence[Array],
    curved: Sequence[int],
    *,
    runs_on: bool = False,
) -> ModeMap:
    """Return the mode map of a full tensor, given coordinates of the values of each column.

    Columns that are not ``curved`` only have a straight line. ``runs_on`` is as for main effects.
    """
    bases = []
    for j in inputs:
        column = columns[j]
        categorical = column.categories is not None
        basis = Coordinates(column.knots, column.positions, categorical, j not in curved, runs_on)
        bases.append(basis.fit(codes[j], weights[j]))
    return ModeMap(False, list(inputs), bases, False, full_tensor=True)


def make_mode_map(
    inputs: list[int],
    bases: Mapping[int, Any],
    columns: Sequence[Array],
    weights: Sequence[Array],
    *,
    full_cores: bool,
    anchored: bool,
    many_outputs: bool,
    effects: tuple[MainEffect, ...] = (),
    effect_inputs: Sequence[int] = (),
    average_missing: bool = False,
) -> ModeMap:
    """Return the mode map of some columns, given the bases of all.

    ``columns`` and ``weights`` are the coordinates of the values in each column and their weights.
    Without ``inputs`` there is no tensor. With ``average_missing`` the tensor is averaged over a
    missing number. Otherwise it has a function for missing values, that is a free function of all
    other inputs, which few rows determine badly where the missing input matters.
    """
    if not inputs:
        return ModeMap(False, [], [], False, effects, tuple(effect_inputs))
    modes = [bases[j] for j in inputs]
    if average_missing:
        modes = [_averaging(bases[j], columns[j], weights[j]) for j in inputs]
    anchored = anchored and any(basis.n_functions_ > 1 for basis in modes)
    if anchored:
        free = (
            (0, len(modes) - 1) if full_cores else ()
        )  # the ends of a tensor train carry its scale
        modes = [
            b
            if isinstance(b, ManyCategories) or k in free
            else Anchored(b).fit(columns[j], weights[j])
            for k, (j, b) in enumerate(zip(inputs, modes, strict=True))
        ]
    # amplitudes are the weights of one more, constant input; many outputs have their own
    scaled = all(isinstance(basis, ManyCategories) for basis in modes) if full_cores else anchored
    if scaled and not many_outputs:
        modes = [Chebyshev(n_basis=1).fit(np.zeros(1)), *modes]
    return ModeMap(full_cores, inputs, modes, anchored, effects, tuple(effect_inputs))


def _averaging(basis: Any, codes: Array, weight: Array) -> Any:
    """Return a basis of numbers in which a missing value stands for their average."""
    missing = np.isnan(codes)
    inner = getattr(basis, "basis_", None)
    if not isinstance(basis, WithMissing) or inner is None or isinstance(inner, Categorical):
        return basis
    return clone(basis).fit(codes[~missing], weight[~missing]) if missing.any() else basis
