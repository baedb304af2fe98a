"""Moments and draws of f under a fitted posterior, and total effects of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from . import rows
from .arrays import host, like
from .layout import Layout, components, pairs
from .network import Network
from .rows import Terms
from .state import State
from .sums import SumsTerms

Array = Any
FeaturesOf = Callable[[int], tuple[Array, Array]]  # mode -> (phi, psi) of the rows
WIDENING = -1  # the place of the variance (n, K) that is added to Var[f] among the features


@dataclass(frozen=True)
class Predictor:
    """What rows need of a posterior; made once and used for any number of row blocks."""

    network: Network
    terms: list[Terms]  # of every mode
    layout: Layout  # of the product over all inputs, whose columns are still to be summed
    output: int | None = None  # the mode of the outputs, which is the last
    # (K,): the least variance of f, for each output: that of the average over all rows. The average
    # is removed from the targets, or is the offset of a likelihood, so q does not contain its
    # uncertainty. Where f is shrunk to zero, this is all that is left.
    least: Array = 0.0
    sums: SumsTerms | None = None  # the main effects beside the network
    widens: bool = False  # whether the last of the features is a variance that is added

    @classmethod
    def of(cls, state: Any) -> Any:
        """Return the predictor of a posterior."""
        if hasattr(state, "predictor"):  # it has its own
            return state.predictor
        terms = [
            rows.terms(mode, factor, spread=1.0)
            for mode, factor in zip(state.modes, state.factors, strict=True)
        ]
        least = 1.0 / np.asarray(state.information)
        sums = None if state.sums is None else SumsTerms.of(state.sums, state.n_inputs)
        return cls(state.network, terms, _last_layout(state), state.output, least, sums)

    @cached_property
    def of_means(self) -> Predictor:
        """The predictor of E[f] alone."""
        return replace(self, terms=[Terms(term.mean, None) for term in self.terms])

    def moments(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return E[f] and Var[f] of every row (n,), and output (n, K), exact under q."""
        mean, variance = self._tensor_moments(features_of)
        if self.sums is not None:
            first, spread = self._effects(features_of)
            mean, variance = first + mean, spread + variance
        xp = array_namespace(mean)
        variance = xp.maximum(variance, like(self.least, mean) + xp.zeros_like(mean))
        return mean, widened(variance, features_of) if self.widens else variance

    def _tensor_moments(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return E[T] and Var[T] of every row, and output."""
        if not self.terms:
            return 0.0, 0.0
        mean, second = self._contract(features_of)
        assert second is not None
        # rounding can take a zero variance below zero
        return mean, array_namespace(mean).clip(second - mean**2, 0.0)

    def _effects(self, features_of: FeaturesOf, *, spread: bool = True) -> tuple[Array, Array]:
        """Return E[a] and optionally Var[a] of every row (n,), and output (n, K)."""
        assert self.sums is not None
        phi = self.sums.features(features_of)
        mean = self.sums.means(phi)
        variance = self.sums.variances(phi) if spread else mean
        return (mean, variance) if len(self.sums.mean) > 1 else (mean[:, 0], variance[:, 0])

    def mean(self, features_of: FeaturesOf) -> Array:
        """Return E[f] of every row, at a fraction of the cost of both moments."""
        mean = self.of_means._contract(features_of)[0] if self.terms else 0.0
        if self.sums is None:
            return mean
        return mean + self._effects(features_of, spread=False)[0]

    def joint(self, features_of: FeaturesOf) -> Joint:
        """Return E[f] and Cov[f] of every row and the outputs, exact under q: NumPy arrays."""
        if self.output is None:  # main effects alone
            mean, variance = (host(part) for part in self.moments(features_of))
            return Joint(mean, variance, np.zeros((*mean.shape, 0)))
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
        # the symmetric root: another one could rotate from one x to the next
        stretched = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        root = output.mean @ (stretched @ np.swapaxes(vectors, 1, 2))
        variance = second - mean**2
        if self.sums is not None:
            first, spread = (host(part) for part in self._effects(features_of))
            mean, variance = mean + first, variance + spread
        variance = np.maximum(variance, self.least)
        own = np.maximum(variance - np.sum(root**2, axis=2), 0.0)
        return Joint(mean, widened(own, features_of) if self.widens else own, root)

    def contrasts(self, features_of: FeaturesOf) -> tuple[Array, Array]:
        """Return mean and variance of f, less its mean over the outputs if it has many."""
        if self.output is None and (self.sums is None or len(self.sums.mean) == 1):
            return self.moments(features_of)
        mean, variance, root = self.joint(features_of)
        shared = np.sum((root - root.mean(axis=1, keepdims=True)) ** 2, axis=2)
        return mean - mean.mean(axis=1, keepdims=True), shared + contrast_variances(variance)

    def _product(self, features_of: FeaturesOf) -> rows.Moments:
        return self.network.product(self.terms[: self.output], features_of)

    def _contract(self, features_of: FeaturesOf) -> tuple[Array, Array | None]:
        output = None if self.output is None else self.terms[self.output]
        return rows.contract(self._product(features_of), self.layout, output)


def widened(variance: Array, features_of: FeaturesOf) -> Array:
    """Return variances (n,) or (n, K) plus what is added beyond the training range."""
    added = features_of(WIDENING)[0]
    added = added if is_numpy_array(added) is is_numpy_array(variance) else host(added)
    return variance + (added if len(variance.shape) > 1 else added[:, 0])


def contrast_variances(variance: np.ndarray) -> np.ndarray:
    """Return Var[e_k - mean(e)] of K independent e with these variances: (n, K) -> (n, K)."""
    count = variance.shape[1]
    average = variance.mean(axis=1, keepdims=True)
    return np.asarray(variance * (1.0 - 2.0 / count) + average / count)


def found_nothing(
    weights: np.ndarray, means: np.ndarray, variances: np.ndarray, least: Sequence[Any]
) -> bool:
    """Return whether f of a mixture varies less between rows than its uncertainty.

    Of S restarts with these weights, means and variances are (S, n), or (S, n, K). ``least`` has
    the variance of the mean of f over the rows for each restart, a number or (K,): f of a collapsed
    tensor has next to no variance of its own, and varies by less than that.
    """
    mean, variance = (np.tensordot(weights, part, 1) for part in (means, variances))
    levels = [np.broadcast_to(np.asarray(value, dtype=float), mean.shape[1:]) for value in least]
    level = np.tensordot(weights, np.array(levels), 1)
    return bool(np.all(np.var(mean, axis=0) <= np.maximum(np.mean(variance, axis=0), level)))


class Joint(NamedTuple):
    """f of K outputs at n rows: Cov[f] = root root^T + diag(diagonal) in each row.

    With f = C g, where g are the components and C the outputs' weights, Cov[f] is
    E[C] Cov[g] E[C]^T plus a part from the covariance of C, which is independent between outputs.
    """

    mean: Array  # (n, K)
    diagonal: Array  # (n, K)
    root: Array  # (n, K, R)


def draw_weights(state: State, n_draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return draws of every W^(d) from q, anchors included: arrays of shape (n_draws, M, C)."""
    return [
        mode.whole(factor.draw(n_draws, rng), factor.layout.anchor)
        for mode, factor in zip(state.modes, state.factors, strict=True)
    ]


def evaluate(
    state: State,
    weights: list[np.ndarray],
    features_of: FeaturesOf,
    coefficients: np.ndarray | None = None,
) -> Array:
    """Return f of every row for given weights, and coefficients (K, P) of main effects."""
    modes = zip(state.modes, weights, strict=True)
    terms = [Terms(mode.on_phi(w), None) for mode, w in modes]
    sums = None
    if state.sums is not None:
        assert coefficients is not None
        sums = replace(SumsTerms.of(state.sums, state.n_inputs), mean=coefficients)
    predictor = Predictor(state.network, terms, _last_layout(state), state.output, sums=sums)
    return predictor.mean(features_of)


def _last_layout(state: State) -> Layout:
    """Return how the columns of a product over all inputs are summed."""
    if not state.factors:
        return components(0)
    last: Layout = state.factors[-1].layout
    return last if state.output is not None else state.network.product_layout(last)


class EffectAverages(NamedTuple):
    """Averages over the training rows of the functions g of one main effect."""

    mode: int | None  # the tensor's mode of the same input, if it has one
    mean: np.ndarray  # (P,)
    gram: np.ndarray  # (P, P): of g g^T
    # (P, M): of g phi^T, with phi the functions of that mode; without columns if there is none
    cross: np.ndarray


def total_effects(
    state: State,
    weights: list[np.ndarray],
    averages: list[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Return each mode's total effect on T: (D,).

    A mode's total effect (Sobol) is the variance of T left when every other input is known. The
    inputs are taken as independent, each with its training distribution. ``weights`` are (M, C), of
    the functions present in every mode, and ``averages`` those of phi (M,) and phi phi^T (M, M)
    over the training rows.
    """
    seconds, spreads, log_size = [], [], 0.0
    for w, (phi, gram) in zip(weights, averages, strict=True):
        second, mean = w.T @ gram @ w, w.T @ phi
        size = max(float(np.max(np.abs(second))), np.finfo(float).tiny)
        log_size += float(np.log(size))
        seconds.append(second[None] / size)
        spreads.append((second - np.outer(mean, mean))[None] / size)
    effects = np.maximum(state.network.replaced(seconds, spreads)[:, 0], 0.0)
    return np.asarray(effects * np.exp(np.clip(log_size, -700.0, 700.0)))


def sum_effects(
    state: State,
    coefficients: np.ndarray,
    weights: list[np.ndarray],
    averages: list[tuple[np.ndarray, np.ndarray]],
    effects: Sequence[EffectAverages],
) -> np.ndarray:
    """Return the contribution of main effects to the total effect of each of their inputs.

    That is their own variance and twice their covariance with what the tensor makes of the same
    input alone. ``coefficients`` are (K, P); see ``total_effects`` for the rest.
    """
    assert state.sums is not None
    contrasts = coefficients - coefficients.mean(axis=0) if len(coefficients) > 1 else coefficients
    rows: list[Any] = [()]
    inputs = weights[: state.n_inputs]
    if state.output is not None:
        output = weights[state.output]
        rows = [(row[None],) for row in output - output.mean(axis=0)]
    centers = [(phi @ w)[None] for w, (phi, _) in zip(inputs, averages, strict=False)]
    totals = np.zeros(len(effects))
    for i, (mode, mean, gram, cross) in enumerate(effects):
        places = state.sums.places(i)
        columns = state.sums.column[places]
        if not len(places):
            continue
        center, among = mean[columns], gram[np.ix_(columns, columns)]
        spread = among - np.outer(center, center)
        for k, beta in enumerate(contrasts[:, places]):
            totals[i] += float(beta @ spread @ beta) / len(contrasts)
            if mode is None:
                continue
            parts = [*centers[:mode], inputs[mode], *centers[mode + 1 :], *rows[k % len(rows)]]
            present = state.modes[mode].present
            curve = state.network.whole(parts)
            between = cross[np.ix_(columns, present)] - np.outer(center, averages[mode][0])
            totals[i] += 2.0 * float(beta @ between @ curve) / len(contrasts)
    return totals
