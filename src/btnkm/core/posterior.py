"""What a fitted posterior can say: moments of f, draws of f, and how much each input matters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from . import cp
from .state import State

Array = Any
FeaturesOf = Callable[[int], tuple[Array, Array]]  # mode -> (phi, psi) of the rows asked about


def predict_terms(state: State) -> list[cp.Terms]:
    """Return every mode's terms, to be used for any number of row blocks."""
    return [
        cp.terms(mode, factor, spread=1.0)
        for mode, factor in zip(state.modes, state.factors, strict=True)
    ]


def least_variance(state: State) -> Array:
    """Return the variance that f has at least, of each output: that of the level of all rows.

    What all rows have in common is taken out of the targets, or is the offset of a likelihood; q
    does not know that it is uncertain. Where priors leave nothing of f, that is all there is.
    """
    return 1.0 / np.asarray(state.information)


def predict_moments(
    terms: list[cp.Terms], features_of: FeaturesOf, output: int | None = None, least: Array = 0.0
) -> tuple[Array, Array]:
    """Return E[f] and Var[f] of every row (n,), and output (n, K), exact under q.

    The variance is never below ``least``.
    """
    mean, second = _contract(terms, features_of, output)
    assert second is not None
    xp = array_namespace(mean)
    # rounding can take a zero variance below zero
    return mean, xp.maximum(second - mean**2, xp.asarray(least) + xp.zeros_like(mean))


class Joint(NamedTuple):
    """f of K outputs at n rows: Cov[f] = root root^T + diag(own) in each row.

    With f = C g, where g are the components and C the outputs' weights, Cov[f] is
    E[C] Cov[g] E[C]^T plus what comes of the spread of C, which is independent between outputs.
    """

    mean: Array  # (n, K)
    own: Array  # (n, K)
    root: Array  # (n, K, R)


def predict_joint(terms: list[cp.Terms], features_of: FeaturesOf, least: Array = 0.0) -> Joint:
    """Return E[f] and Cov[f] of every row, exact under q; the last mode is the outputs'.

    No variance is below ``least``.
    """
    *inputs, output = terms
    product = cp.expand(_product(inputs, features_of))
    mean, second = cp.contract(product, output)
    assert product.second is not None
    assert second is not None
    rank = product.mean.shape[1]
    r, s, _ = cp.pairs(rank)
    covariance = np.empty((len(mean), rank, rank))
    covariance[:, r, s] = covariance[:, s, r] = product.second - cp.outer(product.mean)
    values, vectors = np.linalg.eigh(covariance)
    # the symmetric root: another one could turn from one x to the next
    stretched = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    root = output.mean @ (stretched @ np.swapaxes(vectors, 1, 2))
    variance = np.maximum(second - mean**2, least)
    return Joint(mean, np.maximum(variance - np.sum(root**2, axis=2), 0.0), root)


def predict_contrasts(
    terms: list[cp.Terms], features_of: FeaturesOf, output: int | None = None, least: Array = 0.0
) -> tuple[Array, Array]:
    """Return mean and variance of f of every row, less its mean over the outputs if it has many."""
    if output is None:
        return predict_moments(terms, features_of, None, least)
    mean, own, root = predict_joint(terms, features_of, least)
    count = mean.shape[1]
    shared = np.sum((root - root.mean(axis=1, keepdims=True)) ** 2, axis=2)
    # Var[e_k - mean(e)] for independent e
    alone = own * (1.0 - 2.0 / count) + own.mean(axis=1, keepdims=True) / count
    return mean - mean.mean(axis=1, keepdims=True), shared + alone


def predict_mean(
    terms: list[cp.Terms], features_of: FeaturesOf, output: int | None = None
) -> Array:
    """Return E[f] of every row, at a fraction of the cost of both moments."""
    return _contract([cp.Terms(term.mean, None) for term in terms], features_of, output)[0]


def _contract(
    terms: list[cp.Terms], features_of: FeaturesOf, output: int | None
) -> tuple[Array, Array | None]:
    if output is None:
        return cp.contract(_product(terms, features_of))
    return cp.contract(_product(terms[:output], features_of), terms[output])


def _product(terms: list[cp.Terms], features_of: FeaturesOf) -> cp.Moments:
    """Return the moments of the product over all modes, never holding more than two of them."""
    product = cp.moments(features_of(0), terms[0])
    for d in range(1, len(terms)):
        combined = cp.multiply(product, cp.moments(features_of(d), terms[d]))
        assert combined is not None
        product = cp.rescale(combined) if (d + 1) % cp.RESCALE_EVERY == 0 else combined
    return product


def draw_weights(state: State, n_draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return draws of every W^(d) from q, anchors included: arrays of shape (n_draws, M, R)."""
    draws = []
    for mode, factor in zip(state.modes, state.factors, strict=True):
        draws.append(mode.whole(factor.draw(n_draws, rng)))
    return draws


def evaluate(state: State, weights: list[np.ndarray], features_of: FeaturesOf) -> Array:
    """Return f of every row for given weights."""
    terms = []
    for mode, w in zip(state.modes, weights, strict=True):
        full = np.zeros((mode.n_phi, w.shape[1]))
        full[mode.present] = w
        terms.append(cp.Terms(full, None))
    return predict_mean(terms, features_of, state.output)


def effect_shares(
    weights: list[np.ndarray], averages: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return each mode's share of the total effects: zeros if f is constant.

    A mode's total effect (Sobol) is the variance of f left when every other input is known. The
    inputs are taken as independent, each with its training distribution.

    Parameters
    ----------
    weights : list of ndarray of shape (M, R)
    averages : list of (phi_mean, gram)
        Averages over the training rows of phi (M,) and phi phi^T (M, M).

    Returns
    -------
    ndarray of shape (D,)
    """
    seconds, spreads = [], []
    for w, (phi, gram) in zip(weights, averages, strict=True):
        second, mean = w.T @ gram @ w, w.T @ phi
        size = max(float(np.max(np.abs(second))), np.finfo(float).tiny)  # cancels in the shares
        seconds.append(second / size)
        spreads.append((second - np.outer(mean, mean)) / size)
    left = list(accumulate(seconds[:-1], np.multiply, initial=np.ones_like(seconds[0])))
    right = list(accumulate(seconds[:0:-1], np.multiply, initial=np.ones_like(seconds[0])))[::-1]
    effects = np.array(
        [max(float(np.sum(s * a * b)), 0.0) for s, a, b in zip(spreads, left, right, strict=True)]
    )
    return effects / max(float(np.sum(effects)), np.finfo(float).tiny)
