"""Effects: how f depends on one input, or on two, averaged over the others.

Inputs are assumed to be independent, each distributed as in the training rows. A main effect is
E[f | x_d] - E[f]. An interaction is E[f | x_d, x_e] less both main effects and E[f] (functional
ANOVA). In the network each is one contraction, with phi(x_d) less its mean in the modes of these
inputs and means in the others. Main effects beside the network are added to those of the network;
they do not contribute to interactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state

from ..checks import check_integer
from ..core import posterior
from ..core.state import State
from ..predictive import check_level
from .fitted import FittedModel, PlainData
from .restart import FullRestartView, RestartView

Array = np.ndarray
POINTS = 100


@dataclass(frozen=True)
class Effect(PlainData):
    """The main effect of one input: what it adds to the average, at some of its values.

    Attributes
    ----------
    name : the column's
    kind : str
        "number", "date", "duration" or "category".
    unit : str
        The scale of the effect: the name of y, or the scale on which effects add up.
    values : ndarray of shape (n,)
    mean, std : ndarray of shape (n,), or (n, K) with K classes
        Posterior mean and standard deviation of the effect.
    low, high : ndarray of the same shape
        Ends of the credible band, which has probability ``level``.
    level : float
    rows : ndarray of shape (n,) or (11,)
        The frequency of each category in the training rows without missing values; for numbers
        the deciles of the training rows, with both ends.
    spikes : dict
        Values with an indicator of their own: values, mean, std.
    missing : dict or None
        Mean and std of the effect of a missing value, if the training rows have any.
    outputs : list or None
        The classes, if there are more than two.
    """

    name: Any
    kind: str
    unit: str
    values: Array
    mean: Array
    std: Array
    low: Array
    high: Array
    level: float
    rows: Array
    spikes: dict[str, Array]
    missing: dict[str, Array] | None
    outputs: list[Any] | None

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each value (and class)."""
        return _frame(self, {str(self.name): self.values})


@dataclass(frozen=True)
class Surface(PlainData):
    """The interaction of two inputs, on a grid of their values.

    Attributes
    ----------
    names, kinds : tuple of two
    unit : str
    x, y : ndarray of shape (n,) and (m,)
        Values of both inputs.
    mean, std : ndarray of shape (n, m), or (n, m, K) with K classes
        Posterior mean and standard deviation of the interaction alone.
    total : ndarray of the same shape
        E[f | x, y] - E[f], with both main effects.
    outputs : list or None
    """

    names: tuple[Any, Any]
    kinds: tuple[str, str]
    unit: str
    x: Array
    y: Array
    mean: Array
    std: Array
    total: Array
    outputs: list[Any] | None


def effects(
    model: Any, inputs: Sequence[Any] | None = None, *, points: int = POINTS, level: float = 0.95
) -> list[Effect]:
    """Return the main effect of every input, in the order of the table.

    Means and standard deviations are exact under the posterior. The band assumes that the effect
    is normally distributed.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is all of them.
    points : int, default=100
        Number of values of a numeric input; all of them if it has fewer.
    level : float, default=0.95
        Probability of the credible band.

    Returns
    -------
    list of Effect

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm import BTNRegressor
    >>> from btnkm.explain import effects
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 2))
    >>> y = X[:, 0] ** 2 + 0.1 * rng.standard_normal(200)
    >>> effect = effects(BTNRegressor(structure="sums").fit(X, y))[0]
    >>> bool(effect.mean[0] > 0.5 and effect.mean[50] < -0.2)
    True
    """
    check_integer("points", points, 2)
    view = FittedModel.of(model)
    wide = half_width(level)
    places = range(len(view.names)) if inputs is None else [view.place(name) for name in inputs]
    return [_effect(view, j, points, wide, level) for j in places]


def interaction(model: Any, first: Any, second: Any, *, points: int = 30) -> Surface:
    """Return the interaction of two inputs: their joint effect minus both main effects.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    first, second : name or position of an input
    points : int, default=30
        Number of values of a numeric input.

    Returns
    -------
    Surface
    """
    check_integer("points", points, 2)
    view = FittedModel.of(model)
    places = view.place(first), view.place(second)
    if places[0] == places[1]:
        raise ValueError(
            f"an interaction needs two different inputs, got {first!r} twice; name another input."
        )
    grids = [view.grid(j, points) for j in places]
    sizes = [len(grid.codes) for grid in grids]
    a, b = (index.ravel() for index in np.indices(sizes))
    means, seconds, totals = [], [], []
    for restart in view.restarts:
        first, square = restart.together(places, grids, (a, b))
        alone = [restart.effect(j, grid.codes)[0] for j, grid in zip(places, grids, strict=True)]
        means.append(first)
        seconds.append(square)
        totals.append(first + alone[0][a] + alone[1][b])
    mean, std = view.pooled(means, seconds)
    total = view.scale * view.mixed(totals)
    mean, std, total = (part.reshape(*sizes, *part.shape[1:]) for part in (mean, std, total))
    names = view.names[places[0]], view.names[places[1]]
    kinds = view.kind(places[0]), view.kind(places[1])
    x, y = (grid.values for grid in grids)
    return Surface(names, kinds, view.unit, x, y, mean, std, total, view.outputs)


@dataclass(frozen=True)
class PartialDependence(PlainData):
    """The average prediction of some rows if one input had the same value in all of them.

    Attributes
    ----------
    name, kind, unit
    values : ndarray of shape (n,)
    mean, std : ndarray of shape (n,), or (n, K) with K classes
        In ``unit``. The standard deviation is that of draws from the posterior.
    outputs : list or None
    """

    name: Any
    kind: str
    unit: str
    values: Array
    mean: Array
    std: Array
    outputs: list[Any] | None

    def to_frame(self) -> Any:
        """Return a pandas frame with a row for each value (and class)."""
        return _frame(self, {str(self.name): self.values})


def partial_dependence(
    model: Any,
    X: Any,
    name: Any,
    *,
    points: int = 40,
    draws: int = 64,
    random_state: Any = 0,
) -> PartialDependence:
    """Return the average over rows X of f, with one input at each of some values.

    In contrast to an effect, the other inputs keep their joint distribution in X.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X : table of shape (rows, inputs)
    name : name or position of the input
    points : int, default=40
    draws : int, default=64
        Draws from the posterior for the standard deviation, whose exact formula needs all pairs
        of rows.
    random_state : int, RandomState or None, default=0
    """
    check_integer("points", points, 2)
    check_integer("draws", draws, 2)
    view = FittedModel.of(model)
    j = view.place(name)
    grid = view.grid(j, points)
    columns = view.coordinates(X)
    rng = np.random.default_rng(int(check_random_state(random_state).randint(2**31)))
    each = -(-draws // len(view.restarts))
    means, drawn = [], []
    for k, restart in enumerate(view.restarts):
        blocks = [f for _, (f,) in view.row_blocks(columns, restarts=slice(k, k + 1))]
        if isinstance(restart, FullRestartView):
            mean, draws_of = restart.average_curves(blocks, j, grid.codes, each, rng)
        else:
            mean, draws_of = _average_curves(restart, blocks, j, grid.codes, each, rng)
        means.append(mean)
        drawn.append(draws_of)
    mean = view.offset + view.scale * view.mixed(means)
    std = view.scale * view.spread(drawn)
    named = view.names[j], view.kind(j), view.unit
    return PartialDependence(*named, grid.values, mean, std, view.outputs)


def _average_curves(
    restart: RestartView,
    blocks: list[Any],
    j: int,
    codes: Array,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return the average over rows of f, column j at each of some codes: E of it, and draws."""
    state, sums = restart.state, restart.state.sums
    functions = _average_functions(restart, blocks, j, codes)
    pairs = zip(state.modes, state.factors, strict=True)
    known = [mode.whole(factor.mean, factor.layout.anchor) for mode, factor in pairs]
    drawn = posterior.draw_weights(state, draws, rng)
    coefficients = None if sums is None else sums.draw(draws, rng)

    def curve(weights: list[Array], coefficients_of_sum: Array | None) -> Array:
        tensor = _average_curve(restart, weights, blocks, j, codes)
        if coefficients_of_sum is None:
            return tensor
        return tensor + _sum_curve(functions, coefficients_of_sum)

    mean = curve(known, None if sums is None else sums.mean)
    every = [
        curve([w[i] for w in drawn], None if coefficients is None else coefficients[i])
        for i in range(draws)
    ]
    return mean, np.array(every)


def _average_functions(restart: RestartView, blocks: list[Any], j: int, codes: Array) -> Array:
    """Return the average over rows of the functions of main effects, column j at some codes.

    An array of shape (n, P), of ones for the intercept; without columns if there are none.
    """
    sums, mode_map = restart.sums, restart.mode_map
    if sums is None:
        return np.zeros((len(codes), 0))
    averages = np.ones((len(codes), len(sums.average)))
    for i, column in enumerate(mode_map.effect_inputs):
        if column == j:
            values = np.asarray(mode_map.effects[i].features(codes)[0])
        else:
            rows = [np.asarray(block[len(mode_map.bases) + i][0]) for block in blocks]
            values = np.mean(np.concatenate(rows), axis=0, keepdims=True)
        averages[:, sums.places[i]] = values[:, sums.columns[i]]
    return averages


def _sum_curve(functions: Array, coefficients: Array) -> Array:
    """Return functions (n, P) times coefficients (K, P), less their mean if there are many."""
    if len(coefficients) == 1:
        return np.asarray(functions @ coefficients[0])
    return np.asarray(functions @ (coefficients - coefficients.mean(axis=0)).T)


def _average_curve(
    restart: RestartView, weights: list[Array], blocks: list[Any], j: int, codes: Array
) -> Array:
    """Return the average over rows of T for given weights, column j at each of some codes.

    T is linear in z of that mode, so the rest of the network is averaged once.
    """
    state, d = restart.state, restart.mode(j)
    count = len(restart.parts)
    if not count:
        return np.zeros((len(codes), *restart.outputs))
    outputs: list[list[Array]] = [[]]
    if state.output is not None:
        contrasts = weights[state.output] - weights[state.output].mean(axis=0)
        outputs = [[contrast[None]] for contrast in contrasts]
    around: Any = 0.0
    n = 0
    for features in blocks:
        parts = [_z(state, weights, e, features[e][0]) for e in range(count)]
        rows = len(parts[0])
        n += rows
        units = [parts[0]] if d is None else np.eye(weights[d].shape[1])[:, None]
        place = 0 if d is None else d
        values = [
            [
                state.network.whole([*parts[:place], unit, *parts[place + 1 :], *output])
                for output in outputs
            ]
            for unit in units
        ]
        # without another input there is one number for all rows
        around = around + np.array([[rows * np.mean(f) for f in line] for line in values])
    average = np.asarray(around) / n  # (C, outputs)
    if d is None:
        curve = np.tile(average, (len(codes), 1))
    else:
        phi = restart.mode_map.bases[d].features(codes)[0]
        curve = _z(state, weights, d, phi) @ average
    return curve[:, 0] if state.output is None else curve


def _z(state: State, weights: list[Array], d: int, phi: Any) -> Array:
    """Return z of every row in one mode, for given weights: (n, C)."""
    mode = state.modes[d]
    return np.asarray(phi[:, : mode.n_phi] @ mode.on_phi(weights[d]))


def _effect(view: FittedModel, j: int, points: int, wide: float, level: float) -> Effect:
    grid = view.grid(j, points)
    column = view.columns[j]
    missing_code = np.full(int(grid.missing), np.nan)
    codes = np.concatenate([grid.codes, grid.spike_codes, missing_code])
    means, seconds = [], []
    for restart in view.restarts:
        first, square = restart.effect(j, codes)
        means.append(first)
        seconds.append(square)
    mean, std = view.pooled(means, seconds)
    n, k = len(grid.codes), len(grid.spike_codes)
    of_rows = np.empty(0)
    if column.categories is not None:
        of_rows = _category_frequencies(view, j, grid.codes)
    elif len(grid.codes):
        of_rows = view.quantiles(j, np.linspace(0.0, 1.0, 11))
    spikes = {"values": grid.spikes, "mean": mean[n : n + k], "std": std[n : n + k]}
    missing = {"mean": mean[-1], "std": std[-1]} if grid.missing else None
    mean, std = mean[:n], std[:n]
    return Effect(
        view.names[j],
        view.kind(j),
        view.unit,
        grid.values,
        mean,
        std,
        mean - wide * std,
        mean + wide * std,
        level,
        of_rows,
        spikes,
        missing,
        view.outputs,
    )


def _category_frequencies(view: FittedModel, j: int, codes: Array) -> Array:
    """Return the frequency of each category among the known values; NaN for a missing value."""
    frequencies, known = view.columns[j].basis.category_shares, np.isfinite(codes)
    if len(frequencies) == 0:
        return np.full(len(codes), np.nan)
    return np.where(known, frequencies[np.where(known, codes, 0.0).astype(int)], np.nan)


def _frame(result: Any, first: dict[str, Any]) -> Any:
    """Return a pandas frame of a curve, with the classes one below the other."""
    import pandas as pd

    columns = {
        name: getattr(result, name)
        for name in ("mean", "std", "low", "high")
        if hasattr(result, name)
    }
    if result.outputs is None:
        return pd.DataFrame({**first, **columns})
    parts = [
        pd.DataFrame({**first, "class": label, **{n: v[:, k] for n, v in columns.items()}})
        for k, label in enumerate(result.outputs)
    ]
    return pd.concat(parts, ignore_index=True)


def half_width(level: Any) -> float:
    """Return the half-width of a central interval of a normal, in standard deviations."""
    return float(ndtri(check_level(level)[1]))
