"""Local explanations: the contribution of each input to a prediction, which they add up to.

A contribution is a Shapley value: what an input adds to the average of f, averaged over all orders
in which inputs become known. Inputs that are not yet known are averaged over the training rows as
if independent. For a function that is linear in every mode this is an integral,

    integral over t in [0, 1] of  f(z_d - zbar_d, t z_e + (1 - t) zbar_e in all modes e != d) dt,

whose integrand is a polynomial of degree D - 1. Gauss's rule with D / 2 points is exact, and costs
D / 2 predictions instead of 2^D. Main effects beside the network contribute themselves, less their
average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.functionals import together
from .fitted import FittedModel, PlainData
from .restart import FullRestartView, RestartView

Array = np.ndarray
# Most points at which standard deviations are integrated. This is exact up to twice as many inputs;
# with more, only interactions of more inputs than that are approximate.
MOST_NODES = 12
_NUMBERS = 2**23  # in memory at a time


@dataclass(frozen=True)
class Local(PlainData):
    """The contributions of every input to the predictions of n rows.

    Attributes
    ----------
    names : list
    unit : str
        The scale on which contributions add up: y itself or, where f is not the mean of y, the
        scale of f. This is the log odds of the second class, the log of the mean of counts, or,
        with more than two classes, log probabilities less their mean. These are averages of f over
        the posterior. ``predict_proba`` and ``predict`` average probabilities and means instead,
        which are less extreme where f is uncertain.
    base, base_std : float, or ndarray of shape (K,) with K classes
        The average over the training distribution.
    contributions, std : ndarray of shape (n, D), or (n, D, K)
        Posterior mean and standard deviation of the contribution of every input.
    prediction : ndarray of shape (n,), or (n, K)
        ``base`` plus all contributions.
    outputs : list or None
    """

    names: list[Any]
    unit: str
    base: Any
    base_std: Any
    contributions: Array
    std: Array
    prediction: Array
    outputs: list[Any] | None

    def to_frame(self) -> Any:
        """Return a pandas frame of contributions, with a row for each row (and class)."""
        import pandas as pd

        if self.outputs is None:
            return pd.DataFrame(self.contributions, columns=list(self.names))
        parts = {
            label: pd.DataFrame(self.contributions[:, :, k], columns=list(self.names))
            for k, label in enumerate(self.outputs)
        }
        return pd.concat(parts, names=["class", "row"]).swaplevel().sort_index(level=0)


def explain_local(model: Any, X: Any, *, return_std: bool = True) -> Local:
    """Return the contribution of each input to the prediction of every row of X.

    Where a value is missing, contributions are averaged over what may be there, as predictions are.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X : table of shape (n, inputs)
    return_std : bool, default=True
        Whether to compute standard deviations, which takes most of the time; else they are NaN.

    Returns
    -------
    Local
    """
    view = FittedModel.of(model)
    columns = view.coordinates(X)
    count = len(view.names)
    shape = (count,) if view.outputs is None else (count, len(view.outputs))
    means, seconds, bases = [], [], []
    offsets = (view.offsets - view.offset) / view.scale
    for restart, offset in zip(view.restarts, offsets, strict=True):
        center, square = restart.base()
        bases.append((center + offset, square + offset * (2.0 * center + offset)))

        def moments(columns: Any, restart: Any = restart) -> Array:
            """Return first and second moments of contributions: (2, n, D) or (2, n, D, K)."""
            n = columns[view.active[0]].shape[0]
            out = np.zeros((2, n, *shape))
            size = _rows_at_a_time(restart)
            for begin in range(0, n, size):
                rows = slice(begin, begin + size)
                of_rows = _contributions(restart, columns, rows, return_std)
                for j, (firsts, squares) in of_rows.items():
                    out[0, rows, j], out[1, rows, j] = firsts, squares
            return out

        mean, second = view.averaged(columns, moments, 1)
        means.append(mean)
        seconds.append(second)
    contributions, std = view.pooled(means, seconds)
    if not return_std:
        std = np.full(contributions.shape, np.nan)
    base, base_std = view.pooled(*zip(*bases, strict=True))
    base = base + view.offset
    prediction = base + contributions.sum(axis=1)
    return Local(
        view.names, view.unit, base, base_std, contributions, std, prediction, view.outputs
    )


def _rows_at_a_time(restart: RestartView | FullRestartView) -> int:
    """Return how many rows to process at a time."""
    if isinstance(restart, FullRestartView):
        return max(1, _NUMBERS // (2 * len(restart.mode_map.inputs) * len(restart.state.share)))
    c = max((len(part.center) for part in restart.parts), default=1)
    modes = max(len(restart.parts), len(restart.mode_map.effects))
    return max(1, _NUMBERS // (8 * modes * c * c))


def _contributions(
    restart: RestartView | FullRestartView, columns: Any, rows: slice, spread: bool
) -> dict[int, Any]:
    """Return first and second moments of each column's contribution: (n,) or (n, K)."""
    mode_map = restart.mode_map
    features = mode_map.features(columns, rows)
    if isinstance(restart, FullRestartView):
        nodes = _nodes(min(-(-len(mode_map.inputs) // 2), MOST_NODES))
        return restart.contributions(features, *nodes)
    moments: dict[int, Any] = {}
    if restart.parts:
        first, second = _of_tensor(restart, features, spread)
        for j in mode_map.inputs:
            d = restart.mode(j)
            moments[j] = first[d], second[d]
    if restart.sums is not None:
        of_sums = features[len(mode_map.bases) :]  # those of the noise follow
        for i, j in enumerate(mode_map.effect_inputs):
            added = restart.sums.added(i, of_sums[i][0])
            moments[j] = together(moments[j], added) if j in moments else added
    return moments


def _of_tensor(restart: RestartView, features: Any, spread: bool) -> tuple[Array, Array]:
    """Return first and second moments of each mode's contribution to T: (D, n) or (D, n, K)."""
    at = [part.at(functions) for part, functions in zip(restart.parts, features, strict=False)]
    inputs = len(at) - restart.mode_map.first_input  # amplitudes never vary
    first: Any = 0.0
    added = [a.added for a in at]
    for t, weight in zip(*_nodes(-(-inputs // 2)), strict=True):
        first = first + weight * restart.first_replaced([a.mixed(t) for a in at], added)
    if not spread:
        return first, np.zeros_like(first)
    second: Any = 0.0
    squares = [a.added_square for a in at]
    nodes, weights = _nodes(min(-(-inputs // 2), MOST_NODES))
    for k, s in enumerate(nodes):
        for t, weight in zip(nodes[: k + 1], weights[: k + 1], strict=True):
            both = restart.second_replaced([a.mixed_square(s, t) for a in at], squares)
            second = second + (1.0 + (s != t)) * weights[k] * weight * both
    return first, second


def _nodes(count: int) -> tuple[Array, Array]:
    """Return nodes and weights of Gauss's rule on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(max(count, 1))
    return 0.5 * (nodes + 1.0), 0.5 * weights
