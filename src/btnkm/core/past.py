"""What earlier batches of rows had to say, once they are gone.

With the other modes held, rows speak of a mode's weights through sums that make a quadratic; of
rows that are gone, those sums are kept as they were when the last was heard, and count on beside
those of new rows (streaming variational Bayes: the posterior is the next prior, mode by mode). So
are the sums by which a likelihood learns its own parameters.

Of columns and functions that are new since they have said nothing: zero, in all sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .cavi import Data
from .layout import Layout

Array = np.ndarray


class Said(NamedTuple):
    """Sums over rows that are gone, of one mode.

    Attributes
    ----------
    second, linear : ndarray of shape (K, S) and (n_phi, C)
        See ``rows.block_sums``.
    """

    second: Array
    linear: Array

    def weighed(self, share: float) -> Said:
        """Return what each row says, counting for so much of a row."""
        return Said(share * self.second, share * self.linear)

    def scaled(self, by: Array, layout: Layout) -> Said:
        """Return what rows say of weights that are multiplied by (C,), all else by the inverse."""
        c, d = layout.first
        return Said(self.second / (by[c] * by[d]), self.linear / by)

    def take(self, columns: Array, before: Layout, after: Layout) -> Said:
        """Return what rows say of some of the columns."""
        kept = before.statistics_of(columns, after)
        return Said(self.second[:, kept], self.linear[:, columns])

    def grown(self, places: Array, before: Layout, after: Layout) -> Said:
        """Return the same beside columns that are new; ``places`` are where the old ones go."""
        second = np.zeros((len(self.second), len(after.multiplicity)))
        second[:, after.statistics_of(places, before)] = self.second
        linear = np.zeros((len(self.linear), after.n_columns))
        linear[:, places] = self.linear
        return Said(second, linear)

    def with_functions(self, places: tuple[int, int], count: int) -> Said:
        """Return the same with so many functions from the given row of psi, and of phi, on."""

        def wider(part: Array, place: int) -> Array:
            gap = max(place - len(part), 0) + count  # functions before it may have been dropped
            zeros = np.zeros((gap, part.shape[1]))
            return np.concatenate([part[:place], zeros, part[place:]])

        return Said(*(wider(part, place) for part, place in zip(self, places, strict=True)))

    def first(self, n_psi: int, n_phi: int) -> Said:
        """Return what rows say of the first functions, which are all that is left."""
        return Said(self.second[:n_psi], self.linear[:n_phi])


@dataclass(frozen=True)
class Past:
    """Sums over rows that are gone.

    Attributes
    ----------
    data : Data
    modes : tuple of Said
    asked : tuple of array
        What the likelihood learns from; empty if that is in the sums of the modes.
    information : array
        The sum of the rows' weights, of every output.
    """

    data: Data
    modes: tuple[Said, ...]
    asked: tuple[Any, ...]
    information: Any

    def with_mode(self, d: int, said: Said) -> Past:
        """Return the same, something else being known of mode d."""
        return replace(self, modes=(*self.modes[:d], said, *self.modes[d + 1 :]))

    def weighed(self, share: float) -> Past:
        """Return the same rows, each counting for so much of a row."""
        return replace(
            self,
            data=Data(share * self.data.n, share * self.data.square),
            modes=tuple(said.weighed(share) for said in self.modes),
            asked=tuple(share * np.asarray(part) for part in self.asked),
            information=share * np.asarray(self.information),
        )

    def __add__(self, other: Past) -> Past:
        data = Data(self.data.n + other.data.n, self.data.square + other.data.square)
        modes = zip(self.modes, other.modes, strict=True)
        return Past(
            data,
            tuple(Said(a.second + b.second, a.linear + b.linear) for a, b in modes),
            tuple(a + b for a, b in zip(self.asked, other.asked, strict=True)),
            self.information + other.information,
        )
