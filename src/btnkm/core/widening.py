"""How the variance of f grows beyond the training range of an input.

Inside of the range the rows say how much f moves when one input moves by some distance. Beyond an
end f may move on in the same way, in a direction that nobody knows. What is added to Var[f] at a
distance delta is the mean square of the increments of f over that distance inside: half the average
over all places, half what it is next to that end. Of a straight line that runs on it is a small
part: the posterior has the uncertainty of its slope, but does not doubt that it goes straight on.
Up to the width of the range this is a table, linear between its entries. From there on it grows
with the square of the distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from .arrays import interpolate, like

Array = Any
PLACES = 9  # of the table, from 0 to the width of the range


def mean_squares(increments: np.ndarray) -> np.ndarray:
    """Return tables of variances, given E of squared increments between PLACES places.

    ``increments`` are (PLACES, PLACES, K), symmetric, between places that are equally far
    apart. The tables (2, PLACES, K), below and above the range, never fall, as f that has come
    back has still been elsewhere.
    """
    every = np.array([np.mean(np.diagonal(increments, k), axis=1) for k in range(PLACES)])
    ends = np.array([increments[0], increments[-1, ::-1]])
    return np.asarray(np.maximum.accumulate(np.maximum(0.5 * (every + ends), 0.0), axis=1))


@dataclass(frozen=True)
class Widening:
    """The variance that is added to that of f beyond the range of each input.

    Attributes
    ----------
    inputs : tuple of int
        Columns of the table.
    variances : ndarray of shape (I, 2, PLACES, K)
        For each of these, below and above its range, and for each of K outputs, the variance at
        distances from 0 to 1 in units of the range.
    most : float, default=inf
        The largest variance that all inputs together add.
    """

    inputs: tuple[int, ...]
    variances: np.ndarray
    most: float = np.inf

    def added(self, columns: Sequence[Array] | Mapping[int, Array], rows: slice) -> Array:
        """Return the variance that is added in some rows, given the coordinates of all: (n, K)."""
        first = columns[self.inputs[0]][rows]
        xp, places = array_namespace(first), np.linspace(0.0, 1.0, PLACES)
        total = xp.zeros_like(first)[:, None] + like(np.zeros((1, self.variances.shape[3])), first)
        for j, tables in zip(self.inputs, self.variances, strict=True):
            x = columns[j][rows]
            x = xp.where(xp.isnan(x), xp.zeros_like(x), x)
            for table, distance in zip(tables, (-1.0 - x, x - 1.0), strict=True):
                if not bool(xp.any(distance > 0.0)):
                    continue
                beyond, further = xp.clip(distance, 0.0), xp.clip(distance, 1.0)
                of_input = [interpolate(beyond, places, part) for part in table.T]
                total = total + xp.stack(of_input, axis=1) * (further * further)[:, None]
        return total if self.most == np.inf else xp.clip(total, None, self.most)
