"""Shares of the variance of f (functional ANOVA, Sobol): of inputs, of pairs, of basis functions.

With every input drawn from the training rows independently of the others, the variance of f is the
sum of what each input explains alone (first order), what pairs add, and so on. An input's total
share counts all that it has a part in. Expectations under the posterior are exact; how uncertain
shares are takes fourth moments, so it is seen in draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..checks import check_integer
from ..core import posterior
from .view import Data, Start, View

Array = np.ndarray
_TINY = np.finfo(float).tiny
_NOTHING = 1e-12  # variance of f, of targets at size one, below which it is rounding


@dataclass(frozen=True)
class Shares(Data):
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
class Pair(Data):
    """Two inputs, and the share of the variance of f that they add together beyond each alone."""

    names: tuple[Any, Any]
    share: float


@dataclass(frozen=True)
class Functions(Data):
    """The basis functions of one input, in the start with the highest bound.

    Attributes
    ----------
    name : the column's
    numbers : ndarray of shape (M,)
        Which functions of the basis they are, from 0; of those dropped nothing is left.
    dropped : int
    precision : ndarray of shape (M,)
        E[lambda_m]: the larger, the more a function is shrunk; infinite for the constant of an
        anchored input, which is known.
    share : ndarray of shape (M,)
        Of the squared weights of all functions of the input, each times its own mean square.
    """

    name: Any
    numbers: Array
    dropped: int
    precision: Array
    share: Array


def variance_shares(model: Any, *, draws: int = 128, random_state: Any = 0) -> Shares:
    """Return the Sobol shares of every input, with their uncertainty.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
        With more than two classes, the variance is the sum over classes of log probabilities less
        their mean.
    draws : int, default=128
        From the posterior of all starts together, for the standard deviations.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    Shares
    """
    check_integer("draws", draws, 2)
    view = View.of(model)
    rng = np.random.default_rng(int(check_random_state(random_state).randint(2**31)))
    count = len(view.names)
    each = -(-draws // len(view.starts))
    exact, drawn = [], []
    for start in view.starts:
        totals = [part.total for part in start.parts]
        levels = [part.level for part in start.parts]
        exact.append(_decomposed(start, totals, levels, count) * start.size**2)
        weights = posterior.draw_weights(start.state, each, rng)
        for i in range(each):
            pairs = [_drawn(start, d, draw[i]) for d, draw in enumerate(weights[: len(totals)])]
            full, bars = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            outputs = _drawn_outputs(start, weights, i)
            drawn.append(_decomposed(start, full, bars, count, outputs))
    variance, *parts = np.mean(exact, axis=0)
    if variance < _NOTHING:
        none = np.zeros(count)
        return Shares(view.names, none, none, none, none, 0.0, 0.0)
    first, total = np.array(parts).reshape(2, count) / max(variance, _TINY)
    shares = np.array([row[1:] / max(row[0], _TINY) for row in drawn]).reshape(-1, 2, count)
    first_std, total_std = shares.std(axis=0)
    rest = 1.0 - float(np.sum(first)) if variance > 0 else 0.0
    scaled = float(variance) * view.scale**2
    return Shares(view.names, first, first_std, total, total_std, scaled, max(rest, 0.0))


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
    view = View.of(model)
    count = len(view.names)
    found, variance = np.zeros((count, count)), 0.0
    for start in view.starts:
        levels = [part.level[None] for part in start.parts]
        spreads = [part.spread[None] for part in start.parts]
        totals = [part.total[None] for part in start.parts]
        variance += _summed(start.second(totals) - start.second(levels))
        for j in start.arrangement.inputs:
            d = start.mode(j)
            assert d is not None
            alone = [*levels[:d], spreads[d], *levels[d + 1 :]]
            both = start.second_replaced(alone, spreads)
            for i in start.arrangement.inputs:
                e = start.mode(i)
                if i > j and e is not None:
                    found[j, i] += _summed(both[e])
    shares = np.maximum(found, 0.0) / max(variance, _TINY)
    if variance < _NOTHING * len(view.starts):
        shares = np.zeros_like(found)
    a, b = np.triu_indices(count, 1)
    order = np.argsort(-shares[a, b], kind="stable")[:most]
    names = view.names
    return [Pair((names[a[k]], names[b[k]]), float(shares[a[k], b[k]])) for k in order]


def functions(model: Any, inputs: Sequence[Any] | None = None) -> list[Functions]:
    """Return how much every basis function of every input counts, in the best start.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is all of them.
    """
    view = View.of(model)
    start = view.starts[model.best_start_]
    places = range(len(view.names)) if inputs is None else [view.place(name) for name in inputs]
    return [_functions(view, start, j) for j in places]


def _functions(view: View, start: Start, j: int) -> Functions:
    d = start.mode(j)
    name = view.names[j]
    if d is None:  # it never varies
        return Functions(name, np.zeros(1, dtype=int), 0, np.full(1, np.inf), np.ones(1))
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
    dropped = start.arrangement.bases[d].n_functions_ - len(mode.present)
    return Functions(
        name, np.asarray(mode.present), dropped, precision, energy / max(energy.sum(), _TINY)
    )


def _decomposed(
    start: Start,
    totals: list[Array],
    levels: list[Array],
    count: int,
    outputs: list[Array] | None = None,
) -> Array:
    """Return the variance of f, then what each column explains alone, then with others: (1 + 2 D,).

    Given (C, C) matrices of every mode: averages over the rows of z z^T, and zbar zbar^T.
    """
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
    out = np.zeros(1 + 2 * count)
    out[0] = variance
    for j in start.arrangement.inputs:
        d = start.mode(j)
        assert d is not None
        out[1 + j], out[1 + count + j] = _summed(alone[d]), _summed(every[d])
    return out


def _drawn(start: Start, d: int, weights: Array) -> tuple[Array, Array]:
    """Return averages of z z^T and zbar zbar^T of one mode, for given weights, at size one."""
    phi, gram = start.averages[d]
    present = start.state.modes[d].present
    center = np.asarray(phi)[present] @ weights
    total = weights.T @ (gram[np.ix_(present, present)] @ weights)
    size = max(float(np.max(np.abs(total))), _TINY)
    return total / size, np.outer(center, center) / size


def _drawn_outputs(start: Start, weights: list[Array], i: int) -> list[Array]:
    """Return the products of each output's weights less their mean; none if f has one value."""
    if start.state.output is None:
        return []
    drawn = weights[start.state.output][i]
    return [np.outer(w, w) for w in drawn - drawn.mean(axis=0)]


def _summed(values: Any) -> float:
    return float(np.sum(values))
