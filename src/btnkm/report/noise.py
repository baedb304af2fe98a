"""The size of the noise: charts of the factor of each input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..explain.fitted import MISSING, FittedModel
from ..explain.noise import NoiseEffect, noise_effects, round_factors
from . import format
from .charts import Axis
from .effects import SHOWN, Limits, Scale, draw_effect, extent, unit_of
from .format import number, percent, shortened

Array = np.ndarray
LEAST = 0.02  # importance of an input whose chart is not folded away
FLAT = 0.1  # range of a curve beside that of all values, below which it counts as flat
LEAST_EXTENT = 0.4  # of an axis, in binary logarithms: a factor of 1.3


@dataclass(frozen=True)
class Factors(Scale):
    """Writes binary logarithms of factors as factors."""

    noun: str = "factor"
    head: str = "Factor"

    def axis(self, ends: Limits, start: float, end: float, most: int = 5) -> Axis:
        """Return an axis from one end to the other, with marks at round factors."""
        low, high = np.exp2(ends)
        marks = [(float(np.log2(m)), f"×{m:g}") for m in round_factors(low, high, most + 1)]
        return Axis(*ends, start, end, marks)

    def text(self, value: Any, decimals: int | None = None) -> str:
        """Return a factor as text."""
        return factor(np.exp2(value))

    def around(self, mean: Any, reach: Any, decimals: int) -> str:
        """Return a factor with its interval."""
        ends = (self.text(mean + sign * reach) for sign in (-1.0, 1.0))
        return f"{self.text(mean)}, from {' to '.join(ends)}"


def factor(value: Any) -> str:
    """Return a factor with three digits."""
    return f"×{number(float(f'{float(value):.3g}'))}"


def noise_section(fitted: FittedModel, target: str = "y") -> dict[str, Any] | None:
    """Return what the template needs: a chart for each input that drives the noise, if any."""
    every = noise_effects(fitted, points=60)
    if not every:
        return None
    count = sum(effect.importance >= LEAST for effect in every[:SHOWN])
    logs = [effect.in_logs() for effect in every]
    low, high = extent(logs[:count])
    ends = min(low, -LEAST_EXTENT), max(high, LEAST_EXTENT)
    drawn = []
    for k, (effect, curve) in enumerate(zip(every, logs, strict=True)):
        chart = draw_effect(curve, f"noise-{k}", ends, scale=Factors())
        detail = f"{percent(effect.importance)} of the variation"
        drawn.append(replace(chart, detail=detail, notes=[sentence(effect), *chart.notes]))
    return {
        "charts": drawn[:count],
        "more": drawn[count:],
        "names": [effect.name for effect in every if effect.importance >= LEAST][:3],
        "level": percent(every[0].level),
        "of": unit_of(fitted, target),
    }


def sentence(effect: NoiseEffect) -> str:
    """Return where the noise is smallest and where largest."""
    factors = np.concatenate([effect.factor, effect.spikes["factor"]])
    texts = [f"where it is {text}" for text in _texts(effect)]
    if effect.missing is not None:
        factors = np.append(factors, effect.missing["factor"])
        texts.append("where it is missing")
    n, range_of_curve = len(effect.factor), np.ptp(np.log(effect.factor))
    if effect.kind != "category" and range_of_curve < FLAT * np.ptp(np.log(factors)):
        texts[:n] = ["at other values"] * n
    low, high = (int(find(factors)) for find in (np.argmin, np.argmax))
    return (
        f"By {shortened(effect.name, 40)}, the noise is smallest {texts[low]} "
        f"({factor(factors[low])}), and largest {texts[high]} ({factor(factors[high])})."
    )


def _texts(effect: NoiseEffect) -> list[str]:
    """Return the values of an input as text, then those with an indicator."""
    if effect.kind == "category":
        return ["missing" if v == MISSING else shortened(v, 40) for v in effect.values]
    values = [format.as_float(part) for part in (effect.values, effect.spikes["values"])]
    span = float(np.ptp(np.concatenate(values)))
    return [format.value(effect.kind, value, span) for value in np.concatenate(values)]
