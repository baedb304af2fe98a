"""Draws from a density by Hamiltonian Monte Carlo, for the few hyperparameters of few rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
DRAWS, WARM_UP = 8, 12  # steps that are kept, and those before that find their length
LEAPS = 10  # evaluations of the density in a step
FIRST, SHORTEST, LONGEST = 0.25, 0.01, 1.5  # step sizes
ACCEPTED, PACE = 0.75, 0.3  # fraction of steps to accept, and how fast step sizes adapt
SPREAD = 0.3  # of the length from step to step, so that no orbit is closed


def draw(
    energy: Callable[[Array], tuple[float, Array]],
    begin: Array,
    rng: np.random.Generator,
    n_draws: int = DRAWS,
    warm_up: int = WARM_UP,
) -> Array:
    """Return draws from the density exp(-energy): (n_draws, P).

    Parameters
    ----------
    energy : callable
        Takes a point (P,), returns a value and its slopes (P,).
    begin : ndarray of shape (P,)
        Where the chain begins: a point of high density. Every coordinate should vary by about 1.
    """
    at, (value, slopes) = begin, energy(begin)
    length, draws = FIRST, []
    for step in range(warm_up + n_draws):
        momentum = rng.standard_normal(len(at))
        size = length * rng.uniform(1.0 - SPREAD, 1.0 + SPREAD)
        there, speed = at, momentum - 0.5 * size * slopes
        for _ in range(LEAPS):
            there = there + size * speed
            new_value, new_slopes = energy(there)
            speed = speed - size * new_slopes
        speed = speed + 0.5 * size * new_slopes
        lost = new_value - value + 0.5 * float(speed @ speed - momentum @ momentum)
        chance = float(np.exp(-max(lost, 0.0))) if np.isfinite(lost) else 0.0
        if rng.uniform() < chance:
            at, value, slopes = there, new_value, new_slopes
        if step < warm_up:
            length = float(np.clip(length * np.exp(PACE * (chance - ACCEPTED)), SHORTEST, LONGEST))
        else:
            draws.append(at)
    return np.array(draws)
