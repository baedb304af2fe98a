"""What earlier batches of rows had to say, once they are gone.

With the other modes held, rows speak of a mode's weights through sums that make a quadratic; of
rows that are gone, those sums are kept as they were when the last was heard, and count on beside
those of new rows (streaming variational Bayes: the posterior is the next prior, mode by mode). So
are the sums by which a likelihood learns its own parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .cavi import Data

Array = np.ndarray


@dataclass(frozen=True)
class Past:
    """Sums over rows that are gone.

    Attributes
    ----------
    data : Data
    modes : tuple of (second, linear)
        Of every mode, see ``rows.block_sums``.
    asked : tuple of array
        What the likelihood learns from; empty if that is in the sums of the modes.
    information : array
        The sum of the rows' weights, of every output.
    """

    data: Data
    modes: tuple[tuple[Array, Array], ...]
    asked: tuple[Any, ...]
    information: Any

    def weighed(self, share: float) -> Past:
        """Return the same rows, each counting for so much of a row."""
        return Past(
            Data(share * self.data.n, share * self.data.square),
            tuple((share * second, share * linear) for second, linear in self.modes),
            tuple(share * np.asarray(part) for part in self.asked),
            share * np.asarray(self.information),
        )

    def __add__(self, other: Past) -> Past:
        return Past(
            Data(self.data.n + other.data.n, self.data.square + other.data.square),
            tuple((a + c, b + d) for (a, b), (c, d) in zip(self.modes, other.modes, strict=True)),
            tuple(a + b for a, b in zip(self.asked, other.asked, strict=True)),
            self.information + other.information,
        )
