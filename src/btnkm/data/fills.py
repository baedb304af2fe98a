"""Values that stand for missing ones, over which predictions are averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ..core.arrays import host, indices, like
from .columns import Column

Array = np.ndarray
COUNT = 32  # copies of a row, Q
FEWEST_KNOTS = 20  # of a column whose values are predicted from other columns
MOST_ROWS, MOST_NUMBERS = 4000, 1000  # rows and columns to find that out
MOST_INPUTS = 10  # from which a column is predicted
ROWS_OF_INPUT = 3  # rows for each of these and three more, at least
LEAST_SQUARE = 0.1  # R^2, adjusted for the number of inputs, from which on this is done


@dataclass(frozen=True, eq=False)
class Fill:
    """What stands for a missing value of one column in the copies of a row.

    The coordinate v of one of ``values`` is that of the copy, unless it is predicted from others.
    If none of these is missing it is ``center + spread (v - center) + sum_k slope_k (x_k -
    center_k)``, with their coordinates x_k held from -1 to 1. If some are missing it is ``v + sum_k
    slope_k (x_k - v_k)`` over the others, where v_k is what their own fills have for this copy; a
    column without one does not count. Both are held from -1 to 1.

    Attributes
    ----------
    values : ndarray of shape (V,)
        Numbers in units of the table, or codes of categories.
    copies : ndarray of int, shape (V,)
        The copy that each value belongs to. In other copies the value stays missing.
    inputs : ndarray of int, shape (P,)
        The other columns.
    slopes, centers : ndarray of shape (P,)
    center, spread : float
    """

    values: Array
    copies: Array
    inputs: Array = field(default_factory=partial(np.empty, 0, dtype=np.int64))
    slopes: Array = field(default_factory=partial(np.empty, 0))
    centers: Array = field(default_factory=partial(np.empty, 0))
    center: float = 0.0
    spread: float = 1.0

    @property
    def every(self) -> Array:
        """The value in each copy, NaN where it stays missing: (Q,)."""
        every = np.full(COUNT, np.nan)
        every[self.copies] = self.values
        return every

    @property
    def order(self) -> Array:
        """The copies of increasing values: (Q,). Copies without a value are spread among them."""
        others = np.setdiff1d(np.arange(COUNT), self.copies)
        places = [np.linspace(0.0, 1.0, len(part) + 2)[1:-1] for part in (self.copies, others)]
        order = np.argsort(np.concatenate(places), kind="stable")
        return np.concatenate([self.copies, others])[order]


@dataclass(frozen=True, eq=False)
class Fills:
    """What stands for missing values in each column, None where they have a part in f of their own.

    A row with missing values is predicted as an even mixture over its Q copies, in which they are
    replaced. The values of a column have evenly spaced ranks among those of the training rows.
    Their order differs between columns: it is random, or that of some training rows for columns of
    which one predicts another, so that copies vary together as rows do. Copies in which a
    column stays missing have the effect of missing values that the fit has learned.
    """

    columns: Sequence[Column]
    fills: Sequence[Fill | None]

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        learned: Mapping[int, float],
        told: Mapping[int, Mapping[str, Any]] | None = None,
        orders: Mapping[int, Array] | None = None,
    ) -> Fills:
        """Return what stands for missing values in some columns.

        ``learned`` has, for each of these, the share of the copies in which it stays missing, and
        ``told`` how some are predicted from others (see ``told_from_others``), and ``orders`` how
        some of these vary together (see ``orders_of``).
        """
        fills: list[Fill | None] = [None] * len(columns)
        for j, share in learned.items():
            kept = round(COUNT * (1.0 - share))
            if kept:
                codes = columns[j].basis.even_values(kept)
                values = codes if columns[j].categories is not None else columns[j].numbers(codes)
                copies = np.random.default_rng([j, COUNT]).permutation(COUNT)[:kept]
                if orders is not None and j in orders:
                    copies = orders[j][np.isin(orders[j], copies)]
                others = (told or {}).get(j, {})
                fills[j] = Fill(values, copies.astype(np.int64), **others)
        return cls(columns, fills)

    @cached_property
    def codes(self) -> dict[int, Array]:
        """The coordinates of the values, by column: (Q,)."""
        return {
            j: fill.every if column.categories is not None else column.positions_of(fill.every)
            for j, (column, fill) in enumerate(zip(self.columns, self.fills, strict=True))
            if fill is not None
        }

    def learned(self, j: int) -> float:
        """Return the share of the copies in which a column stays missing."""
        fill = self.fills[j]
        return 1.0 if fill is None else 1.0 - len(fill.values) / COUNT

    @property
    def told(self) -> dict[int, dict[str, Any]]:
        """How some columns are predicted from others, as ``of`` takes it."""
        names = ("inputs", "slopes", "centers", "center", "spread")
        return {
            j: {name: getattr(fill, name) for name in names}
            for j, fill in enumerate(self.fills)
            if fill is not None and len(fill.inputs)
        }

    @property
    def orders(self) -> dict[int, Array]:
        """How columns vary together, as ``of`` takes it."""
        return {j: fill.order for j in _related(self.told) if (fill := self.fills[j]) is not None}

    def rows(self, columns: Sequence[Any]) -> Array:
        """Return which rows have copies, given the coordinates of all columns: (a,)."""
        missing: Any = False
        for j in self.codes:
            column = columns[j]
            if column is not None:
                missing = missing | host(array_namespace(column).isnan(column))
        return np.flatnonzero(missing)

    def copies(self, columns: Sequence[Any], rows: Array, which: slice = slice(None)) -> list[Any]:
        """Return the coordinates of the copies of some rows: those of copy 0, then of copy 1, ..

        ``which`` are the copies to return.
        """
        count = len(range(COUNT)[which])
        copied: list[Any] = [None] * len(columns)
        for j, column in enumerate(columns):
            if column is not None:
                xp = array_namespace(column)
                some = xp.take(column, indices(rows, column), axis=0)
                copied[j] = xp.concat([some] * count)
        filled = list(copied)
        for j in self.codes:
            if copied[j] is not None:
                filled[j] = self._filled(j, copied, which)
        return filled

    def _filled(self, j: int, copied: list[Any], which: slice) -> Any:
        """Return the coordinates of a column in copies of rows, without missing values."""
        column, fill = copied[j], self.fills[j]
        assert fill is not None
        xp = array_namespace(column)
        values = self._each(j, column, which)
        if len(fill.inputs):
            known = fill.center + fill.spread * (values - fill.center)
            for k, slope, center in zip(fill.inputs, fill.slopes, fill.centers, strict=True):
                x = xp.clip(copied[k], -1.0, 1.0)
                known = known + float(slope) * (x - float(center))  # NaN if any is missing
                away = x - (self._each(k, column, which) if k in self.codes else x)
                values = values + float(slope) * xp.where(xp.isnan(away), xp.zeros_like(x), away)
            # where values stay missing both are NaN
            values = xp.clip(xp.where(xp.isnan(known), values, known), -1.0, 1.0)
        return xp.where(xp.isnan(column), values, column)

    def _each(self, j: int, column: Any, which: slice) -> Any:
        """Return the coordinates of the values of a column, each in all rows of its copy."""
        values = self.codes[j][which]
        return like(np.repeat(values, column.shape[0] // len(values)), column)

    @staticmethod
    def averaged(values: Array, rows: Array, copies: Array, axis: int) -> Array:
        """Return ``values`` of all rows, of which some are replaced by averages of their copies.

        ``axis`` is that of the rows and of the copies, counted from the first.
        """
        shape = copies.shape[:axis] + (COUNT, len(rows)) + copies.shape[axis + 1 :]
        out = values.copy()
        out[(slice(None),) * axis + (rows,)] = copies.reshape(shape).mean(axis=axis)
        return out


def told_from_others(
    columns: Sequence[Column], active: Sequence[int], codes: Sequence[Array], weight: Array
) -> dict[int, dict[str, Any]]:
    """Return how the coordinates of numbers depend on each other: the fields of a ``Fill``.

    Each column of many different values has a linear regression on those most correlated with it.
    One that hardly depends on others is left out.
    """
    numeric = [j for j in active if columns[j].categories is None and len(columns[j].knots) > 1]
    if not 2 <= len(numeric) <= MOST_NUMBERS:
        return {}
    some = slice(None, None, -(-len(weight) // MOST_ROWS))
    x = np.stack([np.asarray(codes[j][some], dtype=float) for j in numeric], axis=1)
    weight = weight[some] / np.mean(weight[some])
    known = ~np.isnan(x)
    held = known * weight[:, None]
    count = np.maximum(held.sum(axis=0), np.finfo(float).tiny)
    centers = np.sum(held * np.where(known, x, 0.0), axis=0) / count
    away = np.where(known, x - centers, 0.0)
    # of the rows in which both are known
    both = np.maximum(held.T @ known, 1.0)
    cov = (away * weight[:, None]).T @ away / both
    scale = np.sqrt(np.maximum(np.diagonal(cov), 1e-12))
    corr = np.clip(cov / np.outer(scale, scale), -1.0, 1.0)
    told = {}
    for i, j in enumerate(numeric):
        spikes = getattr(getattr(columns[j].basis, "basis_", None), "spikes_", ())
        if len(columns[j].knots) <= FEWEST_KNOTS or len(spikes):
            continue
        # more than the largest of as many correlations that are due to chance
        square = np.where(
            corr[i] ** 2 > (2.0 * np.log(len(numeric)) + 4.0) / both[i], corr[i] ** 2, 0.0
        )
        square[i] = 0.0
        others = np.argsort(-square, kind="stable")[:MOST_INPUTS]
        others = np.sort(others[square[others] > 0.0])
        rows = float(np.min(both[i, others], initial=np.inf))
        if not len(others) or rows < ROWS_OF_INPUT * (len(others) + 3):
            continue
        a = corr[np.ix_(others, others)] + np.eye(len(others)) * (1e-6 + 1.0 / rows)
        slopes = np.linalg.solve(a, corr[i, others])
        among = corr[np.ix_(others, others)]
        explained = float(2.0 * slopes @ corr[i, others] - slopes @ among @ slopes)
        explained = min(max(explained, 0.0), 1.0)
        left = (1.0 - explained) * (rows - 1.0) / max(rows - len(others) - 1.0, 1.0)
        if left <= 1.0 - LEAST_SQUARE:
            told[j] = {
                "inputs": np.array(numeric, dtype=np.int64)[others],
                "slopes": slopes * scale[i] / scale[others],
                "centers": centers[others],
                "center": float(centers[i]),
                "spread": float(np.sqrt(left)),
            }
    return told


def orders_of(
    told: Mapping[int, Mapping[str, Any]], codes: Sequence[Array], weight: Array
) -> dict[int, Array]:
    """Return the order of the copies of columns of which one predicts another: (Q,) each.

    Copy q has the ranks of a training row among Q random ones, so that the values of columns that
    are missing together vary together as in these rows.
    """
    related = _related(told)
    if not related:
        return {}
    rng = np.random.default_rng(COUNT)
    rows = rng.permutation(np.flatnonzero(weight > 0))[:MOST_ROWS]
    x = np.stack([np.asarray(codes[j][rows], dtype=float) for j in related], axis=1)
    unknown = np.isnan(x)
    # rows with few missing values, the same row again only if there are fewer than Q
    rows = np.resize(np.argsort(unknown.sum(axis=1), kind="stable"), COUNT)
    orders = {}
    for j, column, gap in zip(related, x[rows].T, unknown[rows].T, strict=True):
        some = x[:, related.index(j)]
        some = some[~np.isnan(some)]
        keys = np.where(gap, rng.choice(some, COUNT), column)
        orders[j] = np.lexsort((rng.random(COUNT), keys))
    return orders


def _related(told: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """Return the columns that are predicted from others, or that predict others."""
    return sorted(set(told).union(*(map(int, how["inputs"]) for how in told.values())))
