"""Sobol indices (functional ANOVA): what each input, or pair of inputs, explains of the variance.

Every input is drawn from the training rows, independently of the others. The variance of f is then
the sum of what each input explains alone (first order), what pairs add, and so on. The total index
of an input counts all parts in which it occurs. Expectations under the posterior are exact. The
uncertainty of the indices would take fourth moments and is estimated from draws instead. A main
effect beside the tensor adds its own variance, and twice its covariance with the tensor's main
effect of the same input, to the variance of f and to both indices of the input.
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
from .restart import FullRestartView, RestartView

Array = np.ndarray
_TINY = np.finfo(float).tiny
_NOTHING = 1e-12  # variance of f on the standardised scale, below which it is rounding


@dataclass(frozen=True)
class SobolIndices(PlainData):
    """The fraction of the variance of f that each input explains.

    All are 0 if the data show no effect of any input: where f varies less between the
    training rows than it is uncertain, fractions of its variance would be those of its uncertainty.

    Attributes
    ----------
    names : list
    first, first_std : ndarray of shape (D,)
        First-order indices, of each input alone: the expected variance that it explains, divided
        by that of f. Both are exact under the posterior. The standard deviation of their ratio is
        estimated from draws.
    total, total_std : ndarray of shape (D,)
        Total indices, of each input with all its interactions. They add up to more than 1 where
        inputs interact.
    variance : float
        The variance of f, in squared units of y (of the scale on which effects add up); 0 if no
        effect was found.
    interactions : float
        The fraction that no input explains alone.
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
        """Positions of the inputs, the most important first."""
        return np.argsort(-self.total, kind="stable")

    def to_frame(self) -> Any:
        """Return a pandas frame, the most important inputs first."""
        import pandas as pd

        columns = {name: getattr(self, name) for name in ("first", "first_std", "total")}
        frame = pd.DataFrame({**columns, "total_std": self.total_std}, index=list(self.names))
        return frame.iloc[self.order]


@dataclass(frozen=True)
class Pair(PlainData):
    """Two inputs, and the importance of their interaction.

    Attributes
    ----------
    names : tuple of two
    importance : float
        The fraction of the variance of f that the interaction explains.
    """

    names: tuple[Any, Any]
    importance: float


@dataclass(frozen=True)
class Functions(PlainData):
    """The basis functions of one input, in the restart with the highest ELBO.

    Attributes
    ----------
    name : the column's
    numbers : ndarray of shape (M,)
        Positions of the kept functions in the basis or the main effect.
    dropped : int
        The number of dropped functions.
    precision : ndarray of shape (M,)
        E[lambda_m]: the larger, the more a function is shrunk. It is infinite for the constant of
        an anchored input, which is fixed.
    importance : ndarray of shape (M,)
        The squared weight of each function times its mean square, divided by the sum over all
        functions of the input.
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
    """Return the Sobol indices of every input, with their uncertainty.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
        With more than two classes, the variance is the sum over the classes of the variances of
        the log probabilities less their mean.
    draws : int, default=128
        Draws from the posteriors of all restarts together, for the standard deviations.
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
    for restart in view.restarts:
        exact.append(_expected(restart, count))
        drawn.append([row[1:] / max(row[0], _TINY) for row in _draws(restart, each, rng, count)])
    variance, *parts = view.mixed(exact)
    if variance < _NOTHING or view.found_nothing:
        none = np.zeros(count)
        return SobolIndices(view.names, none, none, none, none, 0.0, 0.0)
    first, total = np.array(parts).reshape(2, count) / max(variance, _TINY)
    first_std, total_std = view.spread(drawn).reshape(2, count)
    rest = 1.0 - float(np.sum(first)) if variance > 0 else 0.0
    scaled = float(variance) * view.scale**2
    return SobolIndices(view.names, first, first_std, total, total_std, scaled, max(rest, 0.0))


def interactions(model: Any, *, most: int | None = None) -> list[Pair]:
    """Return the pairs of inputs by the importance of their interaction, the largest first.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    most : int or None, default=None
        The number of pairs; None is all.
    """
    if most is not None:
        check_integer("most", most, 1)
    view = FittedModel.of(model)
    count = len(view.names)
    total, variance = np.zeros((count, count)), 0.0
    for restart, weight in zip(view.restarts, view.weights, strict=True):
        variance += weight * _expected(restart, count)[0]
        total += weight * _pairs(restart, count)
    importance = np.maximum(total, 0.0) / max(variance, _TINY)
    if variance < _NOTHING or view.found_nothing:
        importance = np.zeros_like(total)
    a, b = np.triu_indices(count, 1)
    order = np.argsort(-importance[a, b], kind="stable")[:most]
    names = view.names
    return [Pair((names[a[k]], names[b[k]]), float(importance[a[k], b[k]])) for k in order]


def _pairs(restart: Any, count: int) -> Array:
    """Return the expected variance of the interaction of each two columns: (D, D).

    Only the tensor has interactions.
    """
    if isinstance(restart, FullRestartView):
        return restart.pairs(count)
    variances = np.zeros((count, count))
    levels = [part.center_square[None] for part in restart.parts]
    spreads = [part.spread[None] for part in restart.parts]
    for j in restart.mode_map.inputs:
        d = restart.mode(j)
        assert d is not None
        alone = [*levels[:d], spreads[d], *levels[d + 1 :]]
        both = restart.second_replaced(alone, spreads)
        for i in restart.mode_map.inputs:
            e = restart.mode(i)
            if i > j and e is not None:
                variances[j, i] = _summed(both[e])
    return variances


def functions(model: Any, inputs: Sequence[Any] | None = None) -> list[Functions]:
    """Return the importance of every basis function of every input, in the best restart.

    An input with a main effect beside the tensor has two results: the tensor's, then the main
    effect's. A full tensor has no basis functions: if the best restart is one, the restart with
    the next highest weight is described, and the list is empty if there is none.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is all of them.
    """
    view = FittedModel.of(model)
    order = [model.best_restart_, *np.argsort(-view.weights, kind="stable")]
    ordered = [view.restarts[k] for k in order]
    low_rank = [restart for restart in ordered if isinstance(restart, RestartView)]
    places = range(len(view.names)) if inputs is None else [view.place(name) for name in inputs]
    return [part for j in places for best in low_rank[:1] for part in _functions(view, best, j)]


def _functions(view: FittedModel, restart: RestartView, j: int) -> list[Functions]:
    name, d = view.names[j], restart.mode(j)
    described = [] if d is None else [_of_mode(name, restart, d)]
    if j in restart.mode_map.effect_inputs:
        described.append(_of_effect(name, restart, restart.mode_map.effect_inputs.index(j)))
    never_varies = Functions(name, np.zeros(1, dtype=int), 0, np.full(1, np.inf), np.ones(1))
    return described or [never_varies]


def _of_effect(name: Any, restart: RestartView, i: int) -> Functions:
    sums, state = restart.sums, restart.state.sums
    assert sums is not None
    assert state is not None
    places, columns = sums.places[i], sums.columns[i]
    energy = state.second[places] * np.diagonal(restart.effects[i].gram)[columns]
    dropped = restart.mode_map.effects[i].n_functions_ - len(places)
    importance = energy / max(energy.sum(), _TINY)
    return Functions(name, columns, dropped, state.expected[places], importance, "sums")


def _of_mode(name: Any, restart: RestartView, d: int) -> Functions:
    state = restart.state
    mode, factor = state.modes[d], state.factors[d]
    gram = restart.averages[d][1]
    square = gram.diagonal()[mode.present]
    precision = np.asarray(state.basis[d].mean, dtype=float)
    second = np.sum(factor.second, axis=1)
    if len(second) < len(mode.present):  # the constant of an anchored input
        precision = np.append(np.inf, precision)
        second = np.append(float(np.sum(factor.layout.anchor**2)), second)
    energy = second * square
    dropped = restart.mode_map.bases[d].n_functions_ - len(mode.present)
    return Functions(
        name, np.asarray(mode.present), dropped, precision, energy / max(energy.sum(), _TINY)
    )


def _expected(restart: Any, count: int) -> Array:
    """Return E of the variance of f, and of its parts: see ``_decomposed``."""
    if isinstance(restart, FullRestartView):
        return restart.expected(count)
    totals = [part.total for part in restart.parts]
    levels = [part.center_square for part in restart.parts]
    tensor = _decomposed(restart, totals, levels, count) * restart.size**2
    return _with_effects(tensor, restart, _of_effects(restart))


def _draws(restart: Any, draws: int, rng: np.random.Generator, count: int) -> list[Array]:
    """Return draws of the variance of f, and of its parts: see ``_decomposed``."""
    if isinstance(restart, FullRestartView):
        return restart.draws(draws, rng, count)
    state = restart.state
    drawn = posterior.draw_weights(state, draws, rng)
    sums = None if state.sums is None else state.sums.draw(draws, rng)
    kept = [
        (np.asarray(phi)[mode.present], gram)
        for mode, (phi, gram) in zip(state.modes, restart.averages, strict=True)
    ]
    rows = []
    for i in range(draws):
        weights = [draw[i] for draw in drawn]
        parts = [_drawn(restart, d, weights[d]) for d in range(state.n_inputs)]
        full, bars = [part[0] for part in parts], [part[1] for part in parts]
        size = np.exp(np.clip(sum(part[2] for part in parts), -700.0, 700.0))
        row = size * _decomposed(restart, full, bars, count, _drawn_outputs(restart, weights))
        if sums is not None:
            added = posterior.sum_effects(state, sums[i], weights, kept, restart.effects)
            row = _with_effects(row, restart, added * len(sums[i]))
        rows.append(row)
    return rows


def _of_effects(restart: RestartView) -> Array:
    """Return what each main effect adds to the expected variance of f, over all outputs."""
    sums = restart.sums
    if sums is None:
        return np.zeros(0)
    variances = np.zeros(len(sums.places))
    for i, j in enumerate(restart.mode_map.effect_inputs):
        d = restart.mode(j)
        variances[i] = _summed(sums.spread(i))
        if d is not None:
            centers = [part.center[None] for part in restart.parts]
            curve = restart.first([*centers[:d], restart.parts[d].mean, *centers[d + 1 :]])
            variances[i] += 2.0 * _summed(
                sums.between(i, np.asarray(restart.averages[d][0]), curve)
            )
    return variances


def _with_effects(variances: Array, restart: RestartView, effects: Array) -> Array:
    """Return a decomposition of the variance of T, and what main effects add to it."""
    added = np.zeros(len(variances) // 2)
    added[list(restart.mode_map.effect_inputs)] = effects
    return np.asarray(variances + np.concatenate([[added.sum()], added, added]))


def _decomposed(
    restart: RestartView,
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
    network = restart.state.network
    if outputs is None:
        variance = _summed(restart.second(full) - restart.second(bars)) / restart.size**2
        alone = restart.second_replaced(bars, spreads) / restart.size**2
        every = restart.second_replaced(full, spreads) / restart.size**2
    else:
        ends = [[output[None]] for output in outputs] or [[]]
        last = len(full)
        variance = sum(
            _summed(network.whole([*full, *e]) - network.whole([*bars, *e])) for e in ends
        )
        alone = sum(network.replaced([*bars, *e], [*spreads, *e])[:last] for e in ends)
        every = sum(network.replaced([*full, *e], [*spreads, *e])[:last] for e in ends)
    out[0] = variance
    for j in restart.mode_map.inputs:
        d = restart.mode(j)
        assert d is not None
        out[1 + j], out[1 + count + j] = _summed(alone[d]), _summed(every[d])
    return out


def _drawn(restart: RestartView, d: int, weights: Array) -> tuple[Array, Array, float]:
    """Return averages of z z^T and zbar zbar^T of one mode, for given weights, at size one.

    Also return the logarithm of what they are to be multiplied by.
    """
    phi, gram = restart.averages[d]
    present = restart.state.modes[d].present
    center = np.asarray(phi)[present] @ weights
    total = weights.T @ (gram[np.ix_(present, present)] @ weights)
    size = max(float(np.max(np.abs(total))), _TINY)
    return total / size, np.outer(center, center) / size, float(np.log(size))


def _drawn_outputs(restart: RestartView, weights: list[Array]) -> list[Array]:
    """Return the products of each output's weights less their mean; none if f has one value."""
    if restart.state.output is None:
        return []
    drawn = weights[restart.state.output]
    return [np.outer(w, w) for w in drawn - drawn.mean(axis=0)]


def _summed(values: Any) -> float:
    return float(np.sum(values))
