"""What a fitted posterior can say: moments of f, draws of f, and how much each input matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from . import rows
from .arrays import host, like
from .layout import Layout, pairs
from .network import Network
from .rows import Terms
from .state import State

Array = Any
FeaturesOf = Callable[[int], tuple[Array, Array]]  # mode -> (phi, psi) of the rows asked about


@dataclass(frozen=True)
class Predictor:
    """What rows need of a posterior, made once and used for any number of row blocks.

    Attributes
    ----------
    network : Network
    terms : list of Terms
        Of every mode.
    layout : Layout
        Of what is left to be summed once all inputs have come together.
    output : int or None
        The outputs' mode; it is the last.
    least : float or ndarray of shape (K,)
        The variance that f has at least, of each output: that of the level of all rows. What all
        rows have in common is taken out of the targets, or is the offset of a likelihood; q does
        not know that it is uncertain. Where priors leave nothing of f, that is all there is.
    """

    network: Network
    terms: list[Terms]
    layout: Layout
    output: int | None = None
    least: Array = 0.0

    @classmethod
    def of(cls, state: State) -> Predictor:
        """Return the predictor of a posterior."""
        terms = [
            rows.terms(mode, factor, spread=1.0)
            for mode, factor in zip(state.modes, state.factors, strict=True)
        ]
        least = 1.0 / np.asarray(state.information)
        return cls(state.network, terms, _last_layout(state), state.output, least)

    @cached_property
    def of_means(self) -> Predictor:
        """The predictor of E[f] alone."""
        return replace(self, terms=[Terms(term.mean, None) for term in self.terms])

    def moments(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return E[f] and Var[f] of every row (n,), and output (n, K), exact under q."""
        mean, second = self._contract(features_of)
        assert second is not None
        xp = array_namespace(mean)
        # rounding can take a zero variance below zero
        return mean, xp.maximum(second - mean**2, like(self.least, mean) + xp.zeros_like(mean))

    def mean(self, features_of: FeaturesOf) -> Array:
        """Return E[f] of every row, at a fraction of the cost of both moments."""
        return self.of_means._contract(features_of)[0]

    def joint(self, features_of: FeaturesOf) -> Joint:
        """Return E[f] and Cov[f] of every row and the outputs, exact under q: NumPy arrays."""
        assert self.output is not None
        output = self.terms[self.output]
        product = rows.expand(self._product(features_of))
        mean, second = rows.contract(product, self.layout, output)
        assert product.second is not None
        assert second is not None
        rank = product.mean.shape[1]
        r, s, _ = pairs(rank)
        mean, second = host(mean), host(second)
        covariance = np.empty((len(mean), rank, rank))
        spread = host(product.second - rows.outer(product.mean))
        covariance[:, r, s] = covariance[:, s, r] = spread
        values, vectors = np.linalg.eigh(covariance)
        # the symmetric root: another one could turn from one x to the next
        stretched = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        root = output.mean @ (stretched @ np.swapaxes(vectors, 1, 2))
        variance = np.maximum(second - mean**2, self.least)
        return Joint(mean, np.maximum(variance - np.sum(root**2, axis=2), 0.0), root)

    def contrasts(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return mean and variance of f, less its mean over the outputs if it has many."""
        if self.output is None:
            return self.moments(features_of)
        mean, own, root = self.joint(features_of)
        count = mean.shape[1]
        shared = np.sum((root - root.mean(axis=1, keepdims=True)) ** 2, axis=2)
        # Var[e_k - mean(e)] for independent e
        alone = own * (1.0 - 2.0 / count) + own.mean(axis=1, keepdims=True) / count
        return mean - mean.mean(axis=1, keepdims=True), shared + alone

    def _product(self, features_of: FeaturesOf) -> rows.Moments:
        return self.network.product(self.terms[: self.output], features_of)

    def _contract(self, features_of: FeaturesOf) -> tuple[Array, Array | None]:
        output = None if self.output is None else self.terms[self.output]
        return rows.contract(self._product(features_of), self.layout, output)


def found_nothing(means: Array, variances: Array) -> bool:
    """Tell whether f varies less between rows than it is uncertain: (S, n) or (S, n, K) each."""
    spread = np.var(means.mean(axis=0), axis=0)
    return bool(np.all(spread < np.mean(variances, axis=(0, 1))))


class Joint(NamedTuple):
    """f of K outputs at n rows: Cov[f] = root root^T + diag(own) in each row.

    With f = C g, where g are the components and C the outputs' weights, Cov[f] is
    E[C] Cov[g] E[C]^T plus what comes of the spread of C, which is independent between outputs.
    """

    mean: Array  # (n, K)
    own: Array  # (n, K)
    root: Array  # (n, K, R)


def draw_weights(state: State, n_draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return draws of every W^(d) from q, anchors included: arrays of shape (n_draws, M, C)."""
    draws = []
    for mode, factor in zip(state.modes, state.factors, strict=True):
        draws.append(mode.whole(factor.draw(n_draws, rng), factor.layout.anchor))
    return draws


def evaluate(state: State, weights: list[np.ndarray], features_of: FeaturesOf) -> Array:
    """Return f of every row for given weights."""
    terms = []
    for mode, w in zip(state.modes, weights, strict=True):
        terms.append(Terms(mode.on_phi(w), None))
    predictor = Predictor(state.network, terms, _last_layout(state), state.output)
    return predictor.mean(features_of)


def _last_layout(state: State) -> Layout:
    """Return how the columns of a product over all inputs are summed."""
    last: Layout = state.factors[-1].layout
    return last if state.output is not None else state.network.product_layout(last)


def effect_shares(
    network: Network,
    weights: list[np.ndarray],
    averages: list[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Return each mode's share of the total effects: zeros if f is constant.

    A mode's total effect (Sobol) is the variance of f left when every other input is known. The
    inputs are taken as independent, each with its training distribution.

    Parameters
    ----------
    network : Network
    weights : list of ndarray of shape (M, C)
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
        seconds.append(second[None] / size)
        spreads.append((second - np.outer(mean, mean))[None] / size)
    effects = np.maximum(network.replaced(seconds, spreads)[:, 0], 0.0)
    return np.asarray(effects / max(float(np.sum(effects)), np.finfo(float).tiny))
