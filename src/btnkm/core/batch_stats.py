"""Sums over earlier batches of rows, which are kept once the rows are gone.

With the other modes held, the log likelihood of a mode's weights is a quadratic whose coefficients
are sums over rows. The sums of earlier batches are kept as they were at the end of the last fit,
and are added to those of new rows (streaming variational Bayes: the posterior is the next prior,
mode by mode). The same holds for the sums from which a likelihood learns its own parameters.

Functions that are new since are zero in the earlier rows, and so are their sums. For new columns
there are no sums, so columns are added only where the new rows are distributed like the earlier
ones (``similar_inputs``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .cavi import Data
from .layout import Layout
from .sums import Sums

Array = np.ndarray
SHIFT = 5.0  # standard errors between means, above which inputs are not similar


class ModeStats(NamedTuple):
    """Sums over earlier batches, for one mode."""

    # (K, S) and (n_phi, C): see ``rows.block_sums``
    second: Array
    linear: Array

    def weighed(self, share: float) -> ModeStats:
        """Return the sums with every row weighted by a factor."""
        return ModeStats(share * self.second, share * self.linear)

    def scaled(self, by: Array, layout: Layout) -> ModeStats:
        """Return the sums for weights multiplied by (C,), and all other modes by the inverse."""
        c, d = layout.first
        return ModeStats(self.second / (by[c] * by[d]), self.linear / by)

    def take(self, columns: Array, before: Layout, after: Layout) -> ModeStats:
        """Return the sums of some of the columns."""
        kept = before.statistics_of(columns, after)
        return ModeStats(self.second[:, kept], self.linear[:, columns])

    def grown(self, places: Array, before: Layout, after: Layout) -> ModeStats:
        """Return the sums with zeros for new columns; the old ones go to ``places``."""
        second = np.zeros((len(self.second), len(after.multiplicity)))
        second[:, after.statistics_of(places, before)] = self.second
        linear = np.zeros((len(self.linear), after.n_columns))
        linear[:, places] = self.linear
        return ModeStats(second, linear)

    def with_functions(self, places: tuple[int, int], count: int) -> ModeStats:
        """Return the sums with zeros for new functions, at the given places in psi and phi."""
        return ModeStats(*(_wider(part, at, count) for part, at in zip(self, places, strict=True)))

    def first(self, n_psi: int, n_phi: int) -> ModeStats:
        """Return the sums of the first functions, the only ones left."""
        return ModeStats(self.second[:n_psi], self.linear[:n_phi])


class EffectStats(NamedTuple):
    """Sums over earlier batches, for the main effects."""

    sums: Sums  # the main effects whose functions these are
    # (K, P, P), (K, P) and (K, P): see ``row_block.sum_grams`` and ``row_block.sum_beside``
    gram: Array
    linear: Array
    beside: Array

    def weighed(self, share: float) -> EffectStats:
        """Return the sums with every row weighted by a factor."""
        return EffectStats(self.sums, *(share * part for part in self[1:]))

    def take(self, sums: Sums) -> EffectStats:
        """Return the sums of the functions that main effects have kept."""
        if sums.same_functions(self.sums):
            return self
        kept = self.sums.places_of(sums)
        gram = self.gram[:, kept[:, None], kept]
        return EffectStats(sums, gram, self.linear[:, kept], self.beside[:, kept])

    def plus(self, other: EffectStats) -> EffectStats:
        """Return the total of both, for the functions that the other has kept."""
        kept = self.take(other.sums)
        return EffectStats(other.sums, *(a + b for a, b in zip(kept[1:], other[1:], strict=True)))


def _wider(part: Array, place: int, count: int) -> Array:
    """Return sums with zeros for new functions at a place; the last ones may have been dropped."""
    zeros = np.zeros((max(place - len(part), 0) + count, *part.shape[1:]))
    return np.concatenate([part[:place], zeros, part[place:]])


@dataclass(frozen=True)
class BatchStats:
    """Sums over earlier batches."""

    data: Data
    modes: tuple[ModeStats, ...]
    # the sums that the likelihood learns from; empty if those of the modes are enough
    likelihood_sums: tuple[Any, ...]
    information: Any  # the sum of the rows' weights, of every output
    # weighted sums of the functions of every input's mode: (M,) and (K,)
    features: tuple[tuple[Array, Array], ...]
    sums: EffectStats | None = None  # of the main effects

    def sums_of(self, sums: Sums) -> EffectStats:
        """Return the sums of the functions of main effects."""
        assert self.sums is not None
        return self.sums.take(sums)

    def with_mode(self, d: int, sums: ModeStats) -> BatchStats:
        """Return the past with other sums of mode d."""
        return replace(self, modes=(*self.modes[:d], sums, *self.modes[d + 1 :]))

    def with_functions(self, d: int, places: tuple[int, int], count: int) -> BatchStats:
        """Return the past with new functions of mode d, at these places."""
        phi, psi = self.features[d]
        wider = _wider(phi, places[1], count), _wider(psi, places[0], count)
        features = (*self.features[:d], wider, *self.features[d + 1 :])
        grown = self.with_mode(d, self.modes[d].with_functions(places, count))
        return replace(grown, features=features)

    def weighed(self, share: float) -> BatchStats:
        """Return the past with every row weighted by a factor."""
        return replace(
            self,
            data=Data(share * self.data.n, share * self.data.square),
            modes=tuple(sums.weighed(share) for sums in self.modes),
            likelihood_sums=tuple(share * np.asarray(part) for part in self.likelihood_sums),
            information=share * np.asarray(self.information),
            features=tuple((share * phi, share * psi) for phi, psi in self.features),
            sums=None if self.sums is None else self.sums.weighed(share),
        )

    def __add__(self, other: BatchStats) -> BatchStats:
        data = Data(self.data.n + other.data.n, self.data.square + other.data.square)
        modes = zip(self.modes, other.modes, strict=True)
        return BatchStats(
            data,
            tuple(ModeStats(a.second + b.second, a.linear + b.linear) for a, b in modes),
            tuple(a + b for a, b in zip(self.likelihood_sums, other.likelihood_sums, strict=True)),
            self.information + other.information,
            tuple(
                (phi + more_phi, psi + more_psi)
                for (phi, psi), (more_phi, more_psi) in zip(
                    self.features, other.features, strict=True
                )
            ),
            None if self.sums is None or other.sums is None else self.sums.plus(other.sums),
        )


def similar_inputs(
    features: Sequence[tuple[Array, Array]], n: float, gone: BatchStats, n_functions: int = 4
) -> bool:
    """Return whether the inputs of n rows are distributed as those of earlier batches.

    Otherwise nothing would be known of new columns in the earlier rows. The means of the first
    functions of every mode are compared, in units of their standard error.
    """
    error = np.sqrt(1.0 / n + 1.0 / gone.data.n)  # of functions of size up to 1
    for (phi, _), (gone_phi, _) in zip(features, gone.features, strict=True):
        now, before = phi[: n_functions + 1] / n, gone_phi[: n_functions + 1] / gone.data.n
        if np.any(np.abs(now - before) > SHIFT * error):
            return False
    return True
