"""How a network lies over a table: which column is which mode, and with what functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .bases import Chebyshev
from .bases.anchored import Anchored
from .bases.levels import Levels
from .columns import Growth
from .core.state import State
from .fitting import Problem, size_of

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
    """

    full: bool
    inputs: list[int]
    bases: list[Any]
    anchored: bool

    @property
    def first_input(self) -> int:
        """Which of the modes is the first input: 1 behind the amplitudes."""
        return len(self.bases) - len(self.inputs)

    def codes(self, columns: Columns, rows: Any = slice(None)) -> list[Array]:
        """Return the coordinates of some rows in every mode, from those in the table's columns."""
        own = [columns[j][rows] for j in self.inputs]
        return [array_namespace(own[0]).zeros_like(own[0])] * self.first_input + own

    def features(
        self, columns: Columns, rows: Any = slice(None), made: dict[int, Any] | None = None
    ) -> list[Any]:
        """Return phi and psi of some rows in every mode; those ``made`` before are made once."""
        made = {} if made is None else made
        for basis, x in zip(self.bases, self.codes(columns, rows), strict=True):
            if id(basis) not in made:
                made[id(basis)] = basis.features(x)
        return [made[id(basis)] for basis in self.bases]

    def grown(self, more: Mapping[int, Growth]) -> Arrangement:
        """Return the arrangement of a table some of whose columns have levels or gaps more."""
        bases = list(self.bases)
        for d, j in enumerate(self.inputs, self.first_input):
            if j in more:
                bases[d] = bases[d].grown(*more[j])
        return replace(self, bases=bases)

    def problem(self, rows: Any, n_outputs: int | None) -> Problem:
        """Return what is to be fitted, given rows with their coordinates in all columns."""
        return Problem(self.bases, rows.arranged(self.inputs, self.first_input), n_outputs)


def block_size(arrangements: Sequence[Arrangement], states: Sequence[State]) -> int:
    """Return how many rows may be looked at at a time by these posteriors."""
    bases = {id(basis): basis for one in arrangements for basis in one.bases}
    width = sum(sum(size_of(basis)) for basis in bases.values())
    if any(one.full for one in arrangements):  # of a core and all around it
        layouts = [factor.layout for state in states for factor in state.factors]
        width += 2 * max(len(layout.multiplicity) for layout in layouts)
    return max(NUMBERS // width, 64)


def arrange(
    inputs: list[int],
    bases: Sequence[Any],
    columns: Sequence[Array],
    weights: Sequence[Array],
    *,
    full: bool,
    anchored: bool,
    many_outputs: bool,
) -> Arrangement:
    """Return the arrangement of some columns, given the bases of all.

    ``columns`` and ``weights`` are coordinates of values in each column, and how these count.
    """
    own = [bases[j] for j in inputs]
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
    return Arrangement(full, inputs, own, anchored)
