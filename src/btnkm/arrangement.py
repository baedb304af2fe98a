"""How a network lies over a table, and which ways of it are worth having.

A train has an order of its inputs, and cores that are full, or diagonal: then it is a CP tensor.
None of that can be known before, and the bound is a poor judge of it (docs/experiments.md). So rows
are held out, every candidate is fitted once to the others, and those that predict clearly worse
than the best are left out. The others share the starts: most of them are diagonal, which differ
more from start to start, so that there is more to average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .bases import Chebyshev
from .bases.anchored import Anchored
from .bases.levels import Levels
from .fitting import Problem

Array = np.ndarray
HELD_OUT = 5  # one in so many rows
ENOUGH_ROWS = 100  # held out, if need be in several folds
MOST_ROWS = 4000  # looked at
CLEARLY = 3.0  # standard errors
FULL = 4  # one start in so many has full cores, if both kinds are worth having


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

    def codes(self, columns: Sequence[Array], rows: Any = slice(None)) -> list[Array]:
        """Return the coordinates of some rows in every mode, from those in the table's columns."""
        own = [columns[j][rows] for j in self.inputs]
        return [np.zeros(len(own[0]))] * self.first_input + own

    def features(self, columns: Sequence[Array], rows: Any = slice(None)) -> list[Any]:
        """Return phi and psi of some rows in every mode."""
        codes = self.codes(columns, rows)
        return [basis.features(x) for basis, x in zip(self.bases, codes, strict=True)]

    def problem(self, columns: Sequence[Array], target: Any, rows: Any = slice(None)) -> Problem:
        """Return what is to be fitted."""
        weight = None if target.weight is None else target.weight[rows]
        codes = self.codes(columns, rows)
        return Problem(self.bases, codes, target.y[rows], weight, target.n_outputs)


def arrange(
    inputs: list[int],
    bases: Sequence[Any],
    columns: Sequence[Array],
    weight: Array,
    *,
    full: bool,
    anchored: bool,
    many_outputs: bool,
) -> Arrangement:
    """Return the arrangement of some columns, given the bases and coordinates of all."""
    own = [bases[j] for j in inputs]
    anchored = anchored and any(basis.n_functions_ > 1 for basis in own)
    if anchored:
        free = (0, len(own) - 1) if full else ()  # the ends of a train have its scale
        own = [
            b if isinstance(b, Levels) or k in free else Anchored(b).fit(columns[j], weight)
            for k, (j, b) in enumerate(zip(inputs, own, strict=True))
        ]
    # the amplitudes are the weights of one more input, which never varies; many outputs have them
    scaled = all(isinstance(basis, Levels) for basis in own) if full else anchored
    if scaled and not many_outputs:
        own = [Chebyshev(n_basis=1).fit(np.zeros(1)), *own]
    return Arrangement(full, inputs, own, anchored)


def folds(n: int, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """Yield rows to fit and rows to hold out, until enough have been held out."""
    rows = rng.permutation(n)[:MOST_ROWS]
    parts = np.array_split(rows, HELD_OUT)
    for k in range(min(-(-ENOUGH_ROWS // max(len(parts[-1]), 1)), HELD_OUT)):
        yield np.sort(np.concatenate(parts[:k] + parts[k + 1 :])), np.sort(parts[k])


def not_clearly_worse(scores: Array, weight: Array) -> list[int]:
    """Return the candidates that are not far behind the best one, the best first.

    ``scores`` holds the log density of every held-out row by every candidate, (candidates, rows).
    """
    share = weight / weight.sum()
    means = scores @ share
    best = int(np.argmax(means))
    behind = scores[best] - scores
    error = np.sqrt(((behind - (behind @ share)[:, None]) ** 2) @ share**2)
    order = np.argsort(-means, kind="stable")
    return [int(k) for k in order if k == best or behind[k] @ share <= CLEARLY * error[k]]


def share_out(n_starts: int, arrangements: Sequence[Arrangement]) -> list[int]:
    """Return how many starts each arrangement has, given those worth having, the best first."""
    full = [k for k, one in enumerate(arrangements) if one.full]
    other = [k for k, one in enumerate(arrangements) if not one.full]
    turns = [k % len(arrangements) for k in range(n_starts)]
    if full and other and n_starts > 1:
        n_full = max(n_starts // FULL, 1)
        turns = [full[k % len(full)] for k in range(n_full)]
        turns += [other[k % len(other)] for k in range(n_starts - n_full)]
    return [turns.count(k) for k in range(len(arrangements))]
