"""Rows of a stream that are kept to be fitted again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .column_stats import Batch

Array = np.ndarray
FAINT = 1e-2  # weight below which a row is forgotten
NEARLY = 0.75  # part of the remembered weight that the rows kept must have


class Window(NamedTuple):
    """The rows of a stream that are not forgotten, as long as they are few.

    Attributes
    ----------
    rows : Batch
    decay : ndarray of shape (n,)
        Remaining part of each row's weight.
    total : float
        The weight of all rows that are remembered, kept or not.
    fitted, since : int
        Number of rows in the last full fit, and number of rows since.
    """

    rows: Batch
    decay: Array
    total: float
    fitted: int
    since: int = 0

    @classmethod
    def of(cls, rows: Batch) -> Window:
        """Return rows that were just fitted together."""
        return cls(rows, np.ones(len(rows.y)), float(np.sum(rows.weight)), len(rows.y))

    def then(self, later: Batch, forget: float) -> Window:
        """Return these rows, their weights times ``forget``, and later rows."""
        left = np.flatnonzero(forget * self.decay > FAINT)
        rows = self.rows.take(left)
        rows = rows._replace(weight=forget * rows.weight).join(later)
        decay = np.append(forget * self.decay[left], np.ones(len(later.y)))
        total = forget * self.total + float(np.sum(later.weight))
        return Window(rows, decay, total, self.fitted, self.since + len(later.y))

    def kept(self, forget: float, most: int) -> Window | None:
        """Return up to ``most`` rows to keep, or None if these have too little of the weight."""
        window = self
        if forget < 1.0:  # the oldest are forgotten soon anyhow
            latest = slice(-most, None) if most else slice(0)
            window = self._replace(rows=self.rows.take(latest), decay=self.decay[latest])
        few = len(window.rows.y) <= most
        return window if few and np.sum(window.rows.weight) >= NEARLY * self.total else None

    @property
    def is_news(self) -> bool:
        """Whether the number of rows has doubled since the last full fit."""
        return self.since >= self.fitted
