"""What a fitted posterior can say: moments of f, draws of f, and how much each input matters."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from . import cp
from .linalg import square_root
from .state import State

Array = Any
FeaturesOf = Callable[[int], tuple[Array, Array]]  # mode -> (phi, psi) of the rows asked about


def predict_terms(state: State) -> list[cp.Terms]:
    """Return every mode's terms, to be used for any number of row blocks."""
    return [
        cp.terms(mode, factor, spread=True)
        for mode, factor in zip(state.modes, state.factors, strict=True)
    ]


def predict_moments(terms: list[cp.Terms], features_of: FeaturesOf) -> tuple[Array, Array]:
    """Return E[f] and Var[f] of every row, exact under q."""
    mean, second = cp.contract(
        _product([cp.moments(features_of(d), t) for d, t in enumerate(terms)])
    )
    assert second is not None
    variance = second - mean**2
    return mean, variance * (variance > 0)  # rounding can take a zero variance below zero


def _product(modes: list[cp.Moments]) -> cp.Moments:
    product = modes[0]
    for count, mode in enumerate(modes[1:], start=2):
        combined = cp.multiply(product, mode)
        assert combined is not None
        product = cp.rescale(combined) if count % cp.RESCALE_EVERY == 0 else combined
    return product


def draw_weights(state: State, n_draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return draws of every W^(d) from q: arrays of shape (n_draws, M, R)."""
    draws = []
    for factor in state.factors:
        m, r = factor.mean.shape
        root = square_root(factor.cov.reshape(r * m, r * m))
        noise = (rng.standard_normal((n_draws, r * m)) @ root.T).reshape(n_draws, r, m)
        draws.append(factor.mean + np.swapaxes(noise, 1, 2))
    return draws


def evaluate(state: State, weights: list[np.ndarray], features_of: FeaturesOf) -> Array:
    """Return f of every row for given weights."""
    modes = []
    for d, (mode, w) in enumerate(zip(state.modes, weights, strict=True)):
        full = np.zeros((mode.n_phi, w.shape[1]))
        full[mode.keep] = w
        modes.append(cp.moments(features_of(d), cp.Terms(full, None)))
    return cp.contract(_product(modes))[0]


def total_effects(
    weights: list[np.ndarray], averages: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return each mode's total effect: the variance of f left when every other input is known.

    The inputs are taken as independent, each with its training distribution (Sobol's total effect).

    Parameters
    ----------
    weights : list of ndarray of shape (M, R)
    averages : list of (phi_mean, gram)
        Averages over the training rows of phi (M,) and phi phi^T (M, M).

    Returns
    -------
    ndarray of shape (D,)
    """
    seconds = [w.T @ gram @ w for w, (_, gram) in zip(weights, averages, strict=True)]
    means = [w.T @ phi for w, (phi, _) in zip(weights, averages, strict=True)]
    effects = np.empty(len(weights))
    for d, (second, mean) in enumerate(zip(seconds, means, strict=True)):
        others = [s for k, s in enumerate(seconds) if k != d]
        rest = reduce(np.multiply, others, np.ones_like(second))
        effects[d] = np.sum((second - np.outer(mean, mean)) * rest)
    return np.maximum(effects, 0.0)
