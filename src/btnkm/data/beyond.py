"""Which rows are beyond the range of the training rows, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace

from .columns import MATERIAL, TAILS, Column

_MOST_NAMED = 5  # columns in a sentence


class ExtrapolationWarning(UserWarning):
    """Some rows to predict are materially beyond the range of the training rows."""


class Beyond:
    """Counts rows that are materially beyond the training range, by column, over several tables.

    A row is so from a tenth of the range on, or from one and a half times the width of the outer
    tenth of the training values, if that is more.

    Attributes
    ----------
    n, rows : int
        All rows, and those that are beyond the range of some column.
    columns : dict
        For each column the number of rows, and how far the farthest is, in units of the range.
    """

    def __init__(self) -> None:
        self.n = self.rows = 0
        self.columns: dict[Any, tuple[int, float]] = {}

    def count(self, columns: Sequence[Column], codes: Sequence[Any]) -> Beyond:
        """Count the rows of a table, given coordinates; None in columns that do not matter."""
        found: Any = None
        for column, x in zip(columns, codes, strict=True):
            if x is None or len(column.knots) < 2:
                continue
            low, high = (max(TAILS * tail, MATERIAL) for tail in column.tails)
            beyond = (x < -1.0 - low) | (x > 1.0 + high)
            xp = array_namespace(x)
            if not bool(xp.any(beyond)):
                continue
            farthest = float(xp.max(xp.where(beyond, xp.abs(x) - 1.0, xp.zeros_like(x))))
            before = self.columns.get(column.name, (0, 0.0))
            in_all = before[0] + int(xp.sum(xp.astype(beyond, xp.int64)))
            self.columns[column.name] = in_all, max(before[1], farthest)
            found = beyond if found is None else found | beyond
        if found is not None:
            xp = array_namespace(found)
            self.rows += int(xp.sum(xp.astype(found, xp.int64)))
        self.n += next((x.shape[0] for x in codes if x is not None), 0)
        return self

    def sentence(self, *, widens: bool = True) -> str:
        """Return what the user should know; ``widens`` tells whether intervals become wider."""
        names = sorted(self.columns, key=lambda name: -self.columns[name][1])
        parts = [
            f"{name!r} in {self.columns[name][0]:,}, by up to {self.columns[name][1]:.3g} times "
            "the range"
            for name in names[:_MOST_NAMED]
        ]
        if len(names) > _MOST_NAMED:
            parts.append(f"and {len(names) - _MOST_NAMED:,} more columns")
        are = f"{'row' if self.n == 1 else 'rows'} {'is' if self.rows == 1 else 'are'}"
        intervals = (
            "intervals widen with the distance"
            if widens
            else "intervals do not widen, as the model is from an older file"
        )
        return (
            f"{self.rows:,} of {self.n:,} {are} beyond the range of the training rows: "
            f"{'; '.join(parts)}. Predictions are extrapolated there, and {intervals}; check these "
            "values, or fit the model to rows that cover them."
        )
