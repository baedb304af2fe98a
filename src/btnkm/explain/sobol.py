"""Sobol indices: how much of the variance of f each input, and each pair of inputs, explains.

With every input drawn from the training rows independently of the others, the variance of f is the
sum of what each input explains alone (first order), what pairs add, and so on. An input's total
share counts all that it has a part in. Expectations under the posterior are exact; how uncertain
shares are takes fourth moments, so it is seen in draws. A main effect beside the tensor adds its
own variance, and twice its covariance with what the tensor makes of the same input alone, to the
variance of f and to both shares of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..checks import check_integer
from ..core import posterior
from .fitted import FittedModel, PlainData
from .full_tensor import FullRestartView
from .restart import RestartView

Array = np.ndarray
_TINY = np.finfo(float).tiny
_NOTHING = 1e-12  # variance of f, of targets at size one, below which it is rounding


@dataclass(frozen=True)
class SobolIndices(PlainData):
    """What every input explains of the variance of f, as shares of it.

    Attributes
    ----------
    names : list
    first, first_std : ndarray of shape (D,)
        By itself: its expected variance over that of f, both exact under the posterior, and the
        standard deviation of their ratio in draws.
    total, total_std : ndarray of shape (D,)
        With all that it has a part in; these add up to more than 1 where inputs interact.
    variance : float
        Of f, in units of y squared (of the scale on which effects add up).
    interactions : float
        The share that no input explains alone.
    """

    names: list[Any]
    first: Array
    first_std: Array
    total: Array
    total_std: Array
    variance: float
    interactions: float

    @property
    def order(self) -> Array:
        """Positions of the inputs, those that matter most first."""
        return np.argsort(-self.total, kind="stable")

    def to_frame(self) -> Any:
        """Return a pandas frame, the inputs that matter most first."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("first", "first_std", "total")}
        frame = pd.DataFrame({**columns, "total_std": self.total_std}, index=list(self.names))
        return frame.iloc[self.order]


@dataclass(frozen=True)
class Pair(PlainData):
    """Two inputs, and the share of the variance of f that they add together beyond each alone."""

    names: tuple[Any, Any]
    importance: float


@dataclass(frozen=True)
class Functions(PlainData):
    """The basis functions of one input, in the restart with the highest ELBO.

    Attributes
    ----------
    name : the column's
    numbers : ndarray of shape (M,)
        Which functions they are, of the basis or of the main effect, from 0; of those dropped
        nothing is left.
    dropped : int
    precision : ndarray of shape (M,)
        E[lambda_m]: the larger, the more a function is shrunk; infinite for the constant of an
        anchored input, which is known.
    importance : ndarray of shape (M,)
        Of the squared weights of all functions of the input, each times its own mean square.
    part : str
        "tensor", or "sums" for the functions of the main effect beside it.
    """

    name: Any
    numbers: Array
    dropped: int
    precision: Array
    importance: Array
    part: str = "tensor"


def sobol_indices(model: Any, *, draws: int = 128, random_state: Any = 0) -> SobolIndices:
    """Return the Sobol shares of every input, with their uncertainty.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
        With more than two classes, the variance is the sum over classes of log probabilities less
        their mean.
    draws : int, default=128
        From the posteriors of all restarts together, for the standard deviations.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    SobolIndices
    """
    check_integer("draws", draws, 2)
    view = FittedModel.of(model)
    rng = np.random.default_rng(int(check_random_state(random_state).randint(2**31)))
    count = len(view.names)
    each = -(-draws // len(view.restarts))
    exact, drawn = [], []
    for start in view.restarts:
        exact.append(_expected(start, count))
        drawn.append([row[1:] / max(row[0], _TINY) for row in _draws(start, each, rng, count)])
    variance, *parts = view.mixed(exact)
    if variance < _NOTHING:
        none = np.zeros(count)
        return SobolIndices(view.names, none, none, none, none, 0.0, 0.0)
    first, total = np.array(parts).reshape(2, count) / max(variance, _TINY)
    first_std, total_std = view.spread(drawn).reshape(2, count)
    rest = 1.0 - float(np.sum(first)) if variance > 0 else 0.0
    scaled = float(variance) * view.scale**2
    return SobolIndices(view.names, first, first_std, total, total_std, scaled, max(rest, 0.0))


def interactions(model: Any, *, most: int | None = None) -> list[Pair]:
    """Return pairs of inputs by the share of the variance of f that they add, the largest first.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    most : int or None, default=None
        How many of them; None is all.
    """
    if most is not None:
        check_integer("most", most, 1)
    view = FittedModel.of(model)
    count = len(view.names)
    found, variance = np.zeros((count, count)), 0.0
    for start, weight in zip(view.restarts, view.weights, strict=True):
        variance += weight * _expected(start, count)[0]
        found += weight * _pairs(start, count)
    shares = np.maximum(found, 0.0) / max(variance, _TINY)
    if variance < _NOTHING:
        shares = np.zeros_like(found)
    a, b = np.triu_indices(count, 1)
    order = np.argsort(-shares[a, b], kind="stable")[:most]
    names = view.names
    return [Pair((names[a[k]], names[b[k]]), float(shares[a[k], b[k]])) for k in order]


def _pairs(start: Any, count: int) -> Array:
    """Return the expected variance that each two columns add beyond each alone: (D, D).

    Only the tensor has interactions.
    """
    if isinstance(start, FullRestartView):
        return start.pairs(count)
    found = np.zeros((count, count))
    levels = [part.level[None] for part in start.parts]
    spreads = [part.spread[None] for part in start.parts]
    for j in start.mode_map.inputs:
        d = start.mode(j)
        assert d is not None
        alone = [*levels[:d], spreads[d], *levels[d + 1 :]]
        both = start.second_replaced(alone, spreads)
        for i in start.mode_map.inputs:
            e = start.mode(i)
            if i > j and e is not None:
                found[j, i] = _summed(both[e])
    return found


def functions(model: Any, inputs: Sequence[Any] | None = None) -> list[Functions]:
    """Return how much every basis function of every input counts, in the best restart.

    An input with a main effect beside the tensor has two results: first that of the tensor, then
    that of the main effect. A full tensor has no basis functions: if the best restart is one,
    another restart is described, or the list is empty if there is none.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is all of them.
    """
    view = FittedModel.of(model)
    order = [model.best_restart_, *np.argsort(-view.weights, kind="stable")]
    some = [view.restarts[k] for k in order if not isinstance(view.restarts[k], FullRestartView)]
    places = range(len(view.names)) if inputs is None else [view.place(name) for name in inputs]
    return [found for j in places for start in some[:1] for found in _functions(view, start, j)]


def _functions(view: FittedModel, start: RestartView, j: int) -> list[Functions]:
    name, d = view.names[j], start.mode(j)
    found = [] if d is None else [_of_mode(name, start, d)]
    if j in start.mode_map.effect_inputs:
        found.append(_of_effect(name, start, start.mode_map.effect_inputs.index(j)))
    never_varies = Functions(name, np.zeros(1, dtype=int), 0, np.full(1, np.inf), np.ones(1))
    return found or [never_varies]


def _of_effect(name: Any, start: RestartView, i: int) -> Functions:
    sums, state = start.sums, start.state.sums
    assert sums is not None
    assert state is not None
    own, columns = sums.own[i], sums.columns[i]
    energy = state.second[own] * np.diagonal(start.effects[i].gram)[columns]
    dropped = start.mode_map.effects[i].n_functions_ - len(own)
    share = energy / max(energy.sum(), _TINY)
    return Functions(name, columns, dropped, state.expected[own], share, "sums")


def _of_mode(name: Any, start: RestartView, d: int) -> Functions:
    state = start.state
    mode, factor = state.modes[d], state.factors[d]
    gram = start.averages[d][1]
    square = gram.diagonal()[mode.present]
    precision = np.asarray(state.basis[d].mean, dtype=float)
    second = np.sum(factor.second, axis=1)
    if len(second) < len(mode.present):  # the constant of an anchored input
        precision = np.append(np.inf, precision)
        second = np.append(float(np.sum(factor.layout.anchor**2)), second)
    energy = second * square
    dropped = start.mode_map.bases[d].n_functions_ - len(mode.present)
    return Functions(
        name, np.asarray(mode.present), dropped, precision, energy / max(energy.sum(), _TINY)
    )


def _expected(start: Any, count: int) -> Array:
    """Return E of the variance of f, and of its parts: see ``_decomposed``."""
    if isinstance(start, FullRestartView):
        return start.expected(count)
    totals = [part.total for part in start.parts]
    levels = [part.level for part in start.parts]
    tensor = _decomposed(start, totals, levels, count) * start.size**2
    return _with_effects(tensor, start, _of_effects(start))


def _draws(start: Any, draws: int, rng: np.random.Generator, count: int) -> list[Array]:
    """Return draws of the variance of f, and of its parts: see ``_decomposed``."""
    if isinstance(start, FullRestartView):
        return start.draws(draws, rng, count)
    state = start.state
    drawn = posterior.draw_weights(state, draws, rng)
    sums = None if state.sums is None else state.sums.draw(draws, rng)
    kept = [
        (np.asarray(phi)[mode.present], gram)
        for mode, (phi, gram) in zip(state.modes, start.averages, strict=True)
    ]
    found = []
    for i in range(draws):
        weights = [draw[i] for draw in drawn]
        parts = [_drawn(start, d, weights[d]) for d in range(state.n_inputs)]
        full, bars = [part[0] for part in parts], [part[1] for part in parts]
        size = np.exp(np.clip(sum(part[2] for part in parts), -700.0, 700.0))
        row = size * _decomposed(start, full, bars, count, _drawn_outputs(start, weights))
        if sums is not None:
            own = posterior.sum_effects(state, sums[i], weights, kept, start.effects)
            row = _with_effects(row, start, own * len(sums[i]))
        found.append(row)
    return found


def _of_effects(start: RestartView) -> Array:
    """Return what each main effect is expected to add to the variance of f, in all outputs."""
    sums = start.sums
    if sums is None:
        return np.zeros(0)
    found = np.zeros(len(sums.own))
    for i, j in enumerate(start.mode_map.effect_inputs):
        d = start.mode(j)
        found[i] = _summed(sums.spread(i))
        if d is not None:
            centers = [part.center[None] for part in start.parts]
            curve = start.first([*centers[:d], start.parts[d].mean, *centers[d + 1 :]])
            found[i] += 2.0 * _summed(sums.between(i, np.asarray(start.averages[d][0]), curve))
    return found


def _with_effects(found: Array, start: RestartView, effects: Array) -> Array:
    """Return a decomposition of the variance of T with what main effects add to it."""
    added = np.zeros(len(found) // 2)
    added[list(start.mode_map.effect_inputs)] = effects
    return np.asarray(found + np.concatenate([[added.sum()], added, added]))


def _decomposed(
    start: RestartView,
    totals: list[Array],
    levels: list[Array],
    count: int,
    outputs: list[Array] | None = None,
) -> Array:
    """Return the variance of T, then what each column explains alone, then with others: (1 + 2 D,).

    Given (C, C) matrices of every mode: averages over the rows of z z^T, and zbar zbar^T.
    """
    out = np.zeros(1 + 2 * count)
    if not totals:
        return out
    spreads = [(t - v)[None] for t, v in zip(totals, levels, strict=True)]
    full, bars = [t[None] for t in totals], [v[None] for v in levels]
    network = start.state.network
    if outputs is None:
        variance = _summed(start.second(full) - start.second(bars)) / start.size**2
        alone = start.second_replaced(bars, spreads) / start.size**2
        every = start.second_replaced(full, spreads) / start.size**2
    else:
        ends = [[output[None]] for output in outputs] or [[]]
        last = len(full)
        variance = sum(
            _summed(network.whole([*full, *e]) - network.whole([*bars, *e])) for e in ends
        )
        alone = sum(network.replaced([*bars, *e], [*spreads, *e])[:last] for e in ends)
        every = sum(network.replaced([*full, *e], [*spreads, *e])[:last] for e in ends)
    out[0] = variance
    for j in start.mode_map.inputs:
        d = start.mode(j)
        assert d is not None
        out[1 + j], out[1 + count + j] = _summed(alone[d]), _summed(every[d])
    return out


def _drawn(start: RestartView, d: int, weights: Array) -> tuple[Array, Array, float]:
    """Return averages of z z^T and zbar zbar^T of one mode, for given weights, at size one.

    Also return the logarithm of what they are to be multiplied by.
    """
    phi, gram = start.averages[d]
    present = start.state.modes[d].present
    center = np.asarray(phi)[present] @ weights
    total = weights.T @ (gram[np.ix_(present, present)] @ weights)
    size = max(float(np.max(np.abs(total))), _TINY)
    return total / size, np.outer(center, center) / size, float(np.log(size))


def _drawn_outputs(start: RestartView, weights: list[Array]) -> list[Array]:
    """Return the products of each output's weights less their mean; none if f has one value."""
    if start.state.output is None:
        return []
    drawn = weights[start.state.output]
    return [np.outer(w, w) for w in drawn - drawn.mean(axis=0)]


def _summed(values: Any) -> float:
    return float(np.sum(values))
