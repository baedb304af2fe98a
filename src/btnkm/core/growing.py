"""A posterior with columns or functions more than it had, and what rows that are gone make of them.

New columns add nothing to f until they are solved for, and new functions are zero in all rows that
are gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .batch_stats import Past
from .gamma import Gamma
from .state import State

Array = np.ndarray


def widened(state: State, fresh: State, past: Past) -> tuple[State, Past]:
    """Return the state with random columns, those of ``fresh``, beside its own."""
    factors, network = [], fresh.network
    for d, (factor, drawn) in enumerate(zip(state.factors, fresh.factors, strict=True)):
        before, after = factor.layout, drawn.layout
        places = network.places(before, after)
        silent = network.silent(before, after, d, state.modes)
        if network.turns and state.modes[d].anchored:  # a core has its anchors where they were
            anchor = after.anchor.copy()
            anchor[silent] = 0.0
            anchor[places] = before.anchor
            after = replace(after, anchor=anchor)
        mean = drawn.mean.copy()
        mean[:, silent] = 0.0
        mean[:, places] = factor.mean
        factors.append(factor.among(mean, places, after))
        past = past.with_mode(d, past.modes[d].grown(places, before, after))
    rank = tuple(old.among(new) for old, new in zip(state.rank, fresh.rank, strict=True))
    return replace(state, factors=tuple(factors), rank=rank), past


def with_functions(state: State, d: int, mode: Any, start: Array) -> State:
    """Return the state with a mode that has functions more, behind those it had.

    Each begins with the weights ``start``, (C,), as uncertain as those of the others.
    """
    factor, basis = state.factors[d], state.basis[d]
    count = len(mode.keep) - len(factor.mean)
    usual = [np.mean(p) for p in (basis.shape, basis.rate)]
    more = Gamma(*(np.full(len(mode.keep), p) for p in usual))
    size = len(factor.mean)
    basis = Gamma(np.broadcast_to(basis.shape, size), basis.rate).among(more)
    grown = factor.with_functions(np.tile(start, (count, 1)), factor.variance.mean(axis=0))

    def put(parts: tuple[Any, ...], part: Any) -> tuple[Any, ...]:
        return (*parts[:d], part, *parts[d + 1 :])

    return replace(
        state,
        modes=put(state.modes, mode),
        factors=put(state.factors, grown),
        basis=put(state.basis, basis),
    )
