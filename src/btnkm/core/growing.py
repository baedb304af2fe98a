"""States to begin from: random ones, and larger ones that extend a posterior.

New columns add nothing to f until they are solved for, and new functions are zero in all rows of
earlier batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .batch_stats import BatchStats
from .gamma import Gamma
from .likelihoods import Likelihood
from .network import Network
from .schedule import Schedule
from .state import Mode, Priors, State
from .sums import Sums

Array = np.ndarray
# functions of a mode, and how strongly the warm phase smooths those beyond
MANY_FUNCTIONS, SMOOTHER = 20, 0.65


def initial_state(
    network: Network,
    modes: tuple[Mode, ...],
    grams: tuple[np.ndarray, ...],
    rank: Any,
    priors: Priors,
    likelihood: Likelihood,
    schedule: Schedule,
    rng: np.random.Generator,
    output: int | None = None,
    sums: Sums | None = None,
) -> State:
    """Return where a warm phase begins: random factors, see ``Network.begin``."""
    if not modes:
        return State((), (), (), (), likelihood, network, sums=sums)
    factors, precisions = network.begin(modes, grams, rank, schedule, rng, output)
    basis = tuple(_warm_basis(mode, priors.basis_of(mode), schedule) for mode in modes)
    return State(modes, factors, basis, precisions, likelihood, network, output, sums=sums)


def _warm_basis(mode: Mode, prior: Gamma, schedule: Schedule) -> Gamma:
    """Return the basis precisions of the warm phase: those of the prior, or smoother."""
    # least squares would use all functions, however many there are; spikes and categories have the
    # same smoothness and count as one function
    many = max(np.log(len(np.unique(mode.rate_scale)) / MANY_FUNCTIONS), 0.0)
    power = schedule.warm_smoothing - 1.0 + SMOOTHER * many
    return Gamma(prior.shape, prior.rate * mode.rate_scale**power)


def grown(state: State, fresh: State) -> State:
    """Return ``fresh`` with the means of ``state`` in the place of some of its columns."""
    factors = []
    for mode, drawn, kept, factor in zip(
        fresh.modes, fresh.factors, state.modes, state.factors, strict=True
    ):
        columns = fresh.network.places(factor.layout, drawn.layout)
        mean = drawn.mean.copy()
        mean[:, columns] = 0.0
        mean[np.ix_(np.isin(mode.keep, kept.keep), columns)] = factor.mean
        factors.append(mode.point(mean, drawn.layout))
    return replace(fresh, factors=tuple(factors), sums=state.sums)


def widened(state: State, fresh: State, past: BatchStats) -> tuple[State, BatchStats]:
    """Return the state with the random columns of ``fresh`` beside its own, and the past."""
    factors, network = [], fresh.network
    for d, (factor, drawn) in enumerate(zip(state.factors, fresh.factors, strict=True)):
        before, after = factor.layout, drawn.layout
        places = network.places(before, after)
        silent = network.zero_columns(before, after, d, state.modes)
        if network.turns and state.modes[d].anchored:  # a core keeps its anchors where they were
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
    """Return the state with a mode that has new functions, after those it had.

    Each begins with the weights ``start``, (C,), and the average variance of the others.
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
