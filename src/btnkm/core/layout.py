"""How the columns of a mode's weights pair up in second moments.

A mode's weights are a matrix (M, C): one column for each component of a CP tensor, or for each pair
of bond indices (left, right) of a train's core. Rows see the weights through E[z_c z_d],
z = W^T phi, times what the other modes make of the two columns. Pairs of columns for which that is
the same share one *statistic*: in a CP tensor a pair r <= s has one of its own; in a core, the left
indices of both columns and the right ones count, each without order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

Array = np.ndarray


@lru_cache(maxsize=256)
def pairs(rank: int) -> tuple[Array, Array, Array]:
    """Return r, s of each packed pair r <= s, and how often the pair stands in an (R, R) matrix."""
    r, s = np.triu_indices(rank)
    return r, s, np.where(r == s, 1.0, 2.0)


@dataclass(frozen=True, eq=False)
class Layout:
    """Columns of one mode, their pairs and their groups."""

    first: tuple[Array, Array]  # (S,): two columns for each statistic
    # (S,): two more that share it, or the same ones again; None in a CP tensor
    other: tuple[Array, Array] | None
    multiplicity: Array  # (S,): how many entries of a (C, C) matrix share it
    statistic: Array  # (C, C): that of each two columns
    # (G, c): columns that are lost together, one row each: with a component, or with an index of
    # the left bond, and of the right one
    groups: tuple[Array, ...]
    anchor: Array  # (C,): what an anchored mode holds the weight of the constant at

    @property
    def n_columns(self) -> int:
        """The number of columns, C."""
        return len(self.statistic)

    @property
    def shape(self) -> tuple[int, int]:
        """How many indices the left and right bonds of a core have."""
        return len(self.groups[0]), len(self.groups[-1])

    @cached_property
    def lower(self) -> tuple[Array, Array, Array]:
        """Columns c <= d, and the statistic of each two."""
        c, d = np.triu_indices(self.n_columns)
        return c, d, self.statistic[c, d]

    def statistics_of(self, columns: Array, laid_out: Layout) -> Array:
        """Return which statistics are those of some columns, ``laid_out`` by themselves."""
        c, d = laid_out.first
        return np.asarray(self.statistic[columns[c], columns[d]])

    def average(self, of: Any) -> Array:
        """Return the average of ``of(c, d)`` over the columns of each statistic.

        ``of`` takes two arrays of columns; ``of(c, d)`` and ``of(d, c)`` must be worth the same.
        """
        value = of(*self.first)
        if self.other is not None:
            value += of(*self.other)
            value *= 0.5
        return np.asarray(value)

    def products(self, mean: Array) -> Array:
        """Return the average of w_c w_d of each statistic, function by function: (M, S)."""
        return self.average(lambda c, d: mean[:, c] * mean[:, d])


@lru_cache(maxsize=256)
def components(rank: int) -> Layout:
    """Return the layout of a CP tensor's mode."""
    r, s, multiplicity = pairs(rank)
    statistic = np.empty((rank, rank), dtype=int)
    statistic[r, s] = statistic[s, r] = np.arange(len(r))
    return Layout((r, s), None, multiplicity, statistic, (np.arange(rank)[:, None],), np.ones(rank))


@lru_cache(maxsize=256)
def core(left: int, right: int) -> Layout:
    """Return the layout of a core; column a * right + b has the indices a and b."""
    columns = np.arange(left * right).reshape(left, right)
    (a, c, of_left), (b, d, of_right) = pairs(left), pairs(right)
    first = columns[a[:, None], b].ravel(), columns[c[:, None], d].ravel()
    other = columns[a[:, None], d].ravel(), columns[c[:, None], b].ravel()
    statistic = np.empty((left * right, left * right), dtype=int)
    for x, y in (first, other):
        statistic[x, y] = statistic[y, x] = np.arange(len(x))
    return Layout(
        first,
        other,
        np.multiply.outer(of_left, of_right).ravel(),
        statistic,
        (columns, columns.T.copy()),
        np.eye(left, right).ravel(),
    )
