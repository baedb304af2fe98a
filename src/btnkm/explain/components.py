"""Components: the rank-one terms of a CP tensor as products that can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_integer
from .fitted import FittedModel, PlainData
from .restart import RestartView

Array = np.ndarray
_IDLE = 0.01  # part of a factor's mean square that varies, below which it counts as constant


@dataclass(frozen=True)
class ComponentFactor(PlainData):
    """The function of one input in a component, with mean square one over the training rows.

    Attributes
    ----------
    name, kind
    values : ndarray of shape (n,)
    mean, std : ndarray of shape (n,)
    varies : float
        The part of its mean square that is not constant.
    """

    name: Any
    kind: str
    values: Array
    mean: Array
    std: Array
    varies: float

    @property
    def shape(self) -> str:
        """The shape of the function, in words."""
        if self.kind == "category":
            return "by category"
        steps = np.diff(self.mean)
        size = np.ptp(self.mean)
        up, down = (float(np.sum(np.maximum(sign * steps, 0.0))) for sign in (1.0, -1.0))
        if size == 0.0 or min(up, down) > 0.15 * max(up, down):
            turns = int(np.sum(np.diff(np.sign(steps[np.abs(steps) > 0.005 * size])) != 0))
            if turns == 1:
                rises = steps[np.argmax(np.abs(steps) > 0)] > 0
                return "rises, then falls" if rises else "falls, then rises"
            return "goes up and down"
        return "rises" if up > down else "falls"


@dataclass(frozen=True)
class Component(PlainData):
    """A product of one function of each input.

    Attributes
    ----------
    amplitude : float, or ndarray of shape (K,) with K classes
        The coefficient of the product of all factors, in units of y (of the scale on which
        effects add up).
    importance : float
        The variance of the component, divided by the sum over all components.
    factors : list of ComponentFactor
        The factors that vary, the most variable first.
    """

    amplitude: Any
    importance: float
    factors: list[ComponentFactor]

    def __str__(self) -> str:
        size = self.amplitude
        text = f"{size:+.3g}" if np.ndim(size) == 0 else f"({', '.join(f'{a:+.3g}' for a in size)})"
        return " × ".join([text, *(f"{f.name} ({f.shape})" for f in self.factors)])


def components(model: Any, *, points: int = 60, most: int | None = None) -> list[Component]:
    """Return the components of one restart, the largest first.

    The restart is the one with the highest ELBO. If it has no tensor, it is the one with the
    highest weight among those that have one. Main effects beside the tensor are not components:
    see ``effects``. Without a tensor the list is empty.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted, with a CP tensor
    points : int, default=60
        Number of values of a numeric input.
    most : int or None, default=None
        The number of components; None is all.
    """
    check_integer("points", points, 2)
    if most is not None:
        check_integer("most", most, 1)
    view = FittedModel.of(model)
    restart = _with_tensor(view, model.best_restart_)
    if restart is None:
        return []
    if restart.mode_map.full_cores:
        raise ValueError(
            "components exist for CP tensors only, got a tensor train with full cores, whose terms "
            "are not products of functions of one input; use network='cp', or effects."
        )
    if len(restart.parts) == 1 and restart.contrasts is None:
        return [_only(view, restart, points)]  # components of one input add up to one function
    described = [_component(view, restart, r, points) for r in range(restart.state.n_components)]
    total = sum(variance for _, variance in described) or 1.0
    ordered = sorted(described, key=lambda pair: -pair[1])[:most]
    return [
        Component(amplitude, variance / total, factors)
        for (amplitude, factors), variance in ordered
    ]


def _with_tensor(view: FittedModel, best: int) -> RestartView | None:
    """Return the best restart, or that with the highest weight among those with a tensor."""
    order = [best, *np.argsort(-view.weights, kind="stable")]
    return next((view.restarts[k] for k in order if view.restarts[k].parts), None)


def _component(view: FittedModel, restart: RestartView, r: int, points: int) -> Any:
    """Return amplitude and factors of a component, and the variance of the component alone."""
    sizes, centers = [], []
    for d, part in enumerate(restart.parts):
        square = _mean_square(restart, d, part.mean[:, r])
        sizes.append(np.sqrt(max(square, 1e-300)))
        centers.append(part.center[r] / sizes[-1])
    amplitude: Any = float(np.prod(sizes)) * restart.size * view.scale
    contrasts = restart.contrasts
    if contrasts is not None:
        amplitude = amplitude * contrasts[0][:, r]
    factors = []
    for d, j in enumerate(restart.mode_map.inputs, restart.mode_map.first_input):
        varies = max(1.0 - centers[d] ** 2, 0.0)
        grid = view.grid(j, points)
        at = restart.at(j, grid.codes)
        mean = at.mean[:, r] / sizes[d]
        variance = np.maximum(at.square[:, r, r] - at.mean[:, r] ** 2, 0.0)
        # the sign of the average belongs to the amplitude
        sign = -1.0 if centers[d] < 0.0 else 1.0
        amplitude = amplitude * sign
        if varies > _IDLE:
            values = grid.values, sign * mean, np.sqrt(variance) / sizes[d]
            factors.append(ComponentFactor(view.names[j], view.kind(j), *values, varies))
    for d in range(restart.mode_map.first_input):
        amplitude = amplitude * np.sign(centers[d])
    factors.sort(key=lambda factor: -factor.varies)
    variance = float(np.sum(np.square(amplitude))) * (1.0 - float(np.prod(np.square(centers))))
    return (amplitude, factors), variance


def _only(view: FittedModel, restart: RestartView, points: int) -> Component:
    """Return the only function of a model of one input."""
    (j,), (part,) = restart.mode_map.inputs, restart.parts
    size = np.sqrt(max(_mean_square(restart, 0, part.mean.sum(axis=1)), 1e-300))
    grid = view.grid(j, points)
    at = restart.at(j, grid.codes)
    mean, second = at.mean.sum(axis=1), at.square.sum(axis=(1, 2))
    std = np.sqrt(np.maximum(second - mean**2, 0.0)) / size
    varies = max(1.0 - float(part.center.sum() / size) ** 2, 0.0)
    factor = ComponentFactor(view.names[j], view.kind(j), grid.values, mean / size, std, varies)
    return Component(float(size) * restart.size * view.scale, 1.0, [factor])


def _mean_square(restart: RestartView, d: int, weights: Array) -> float:
    """Return the average over the rows of the square of a function of one mode."""
    mode, gram = restart.state.modes[d], restart.averages[d][1]
    w = weights[mode.present]
    return float(w @ (gram[np.ix_(mode.present, mode.present)] @ w))
