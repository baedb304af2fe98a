"""The part of a report that shows how predictions change with each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..explain.effects import Effect, effects
from ..explain.variance import Shares
from . import charts, format
from .charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from .format import counted, escaped, name, number
from .sections import Section, paragraph

Array = np.ndarray
SHOWN = 6  # inputs before the others are folded away
LEAST = 0.005  # share of the variance from which an input is among these
FEW_VALUES = 6  # of a number, up to which there is no line between them
LEAST_EXTENT = 0.05  # of an axis, in units of the spread of y: below, there is nothing to see
LEVELS = 14  # of a chart; of more the highest and lowest


def in_units_of_y(model: Any) -> bool:
    """Tell whether effects add up in the units of y."""
    return not hasattr(model, "classes_") and bool(model.posterior_[0].likelihood.additive)


def unit_of(model: Any, unit: str, target: str) -> str:
    """Return what effects add up in, with the word that the report has for y."""
    if hasattr(model, "classes_"):
        return unit
    if in_units_of_y(model):
        return target
    return str(getattr(model.posterior_[0].likelihood, "unit", "f of {}")).format(target)


def effects_of(model: Any, shares: Shares, target: str) -> Section:
    """Return how predictions change with each input, with bands."""
    order = [int(j) for j in shares.order if int(j) in set(model._active)]
    found = effects(model, order, points=60)
    outputs = found[0].outputs
    shown = _shown_classes(found, outputs)
    # those that do next to nothing come with the others
    count = sum(shares.total[j] >= LEAST for j in order[:SHOWN]) or 1
    least = LEAST_EXTENT * (model._y_scale if in_units_of_y(model) else 1.0)
    low, high = _extent(found[:count], shown)
    ends = min(low, -least), max(high, least)
    pictures = [_effect(one, k, ends, shown) for k, one in enumerate(found)]
    unit = unit_of(model, found[0].unit, target)
    lead = (
        f"What each input adds to the average of <strong>{name(unit, 50)}</strong>, all others "
        "averaged over: the line is the best guess, the band holds the truth with 95% probability. "
        "Ticks along the bottom stand a tenth of the rows apart."
    )
    if outputs is not None:
        lead += " The higher its line, the more likely a class: 0.7 more doubles its odds."
    elif unit.startswith("log o") and not in_units_of_y(model):  # not of scores
        what = "odds" if hasattr(model, "classes_") else "expected count"
        lead += f" Zero is the average; 0.7 more doubles the {what}."
    body = paragraph(lead)
    if outputs is not None:
        body += charts.legend([outputs[k] for k in shown])
        if len(outputs) > len(shown):
            body += paragraph(
                f"The {len(shown)} of {len(outputs)} classes that vary most are shown."
            )
    body += f'<div class="charts">{"".join(pictures[:count])}</div>'
    if len(pictures) > count:
        body += (
            f'<details class="more"><summary>Show all {len(pictures):,} inputs</summary>'
            f'<div class="charts">{"".join(pictures[count:])}</div></details>'
        )
    return Section("effects", "Effects", body)


def _wide(values: Array) -> Array:
    """Return (n, K), K = 1 where there are no classes."""
    return values if values.ndim == 2 else values[:, None]


def _shown_classes(found: Sequence[Effect], outputs: Any) -> list[int]:
    if outputs is None:
        return [0]
    spread = np.sum(
        [np.ptp(_wide(one.mean), axis=0) ** 2 for one in found if len(one.mean)], axis=0
    )
    return sorted(np.argsort(-spread, kind="stable")[: charts.SERIES].tolist())


def _extent(found: Sequence[Effect], shown: list[int]) -> tuple[float, float]:
    there = [one for one in found if len(one.low)]
    low = min((float(np.min(_wide(one.low)[:, shown])) for one in there), default=0.0)
    high = max((float(np.max(_wide(one.high)[:, shown])) for one in there), default=0.0)
    return min(low, 0.0), max(high, 0.0)


def _effect(one: Effect, k: int, ends: tuple[float, float], shown: list[int]) -> str:
    if not len(one.values):
        return ""
    own = _extent([one], shown)
    ends = min(ends[0], own[0]), max(ends[1], own[1])
    mean, low, high = (_wide(part)[:, shown] for part in (one.mean, one.low, one.high))
    gap = ""
    if one.missing is not None:
        center, std = (np.atleast_1d(one.missing[part])[shown] for part in ("mean", "std"))
        if len(shown) == 1:
            decimals = format.decimals_for((ends[1] - ends[0]) / 4)
            reach = number(1.96 * std[0], decimals)
            gap = f'<p class="note">Missing: {number(center[0], decimals)} ± {reach}</p>'
    draw = _level_effect if one.kind == "levels" else _number_effect
    picture, rows = draw(one, f"effect-{k}", ends, mean, low, high)
    labels = [] if one.outputs is None else [f" of {one.outputs[c]}" for c in shown]
    head = ["Value"]
    for label in labels or [""]:
        head += [f"Effect{label}", "from", "to"]
    table = charts.as_table(f"Effect of {format.shortened(one.name)}", head, rows)
    return charts.figure(name(one.name, 40), picture + gap, table)


def _row(said: str, mean: Array, low: Array, high: Array, decimals: int) -> list[str]:
    cells = [said]
    for parts in zip(mean, low, high, strict=True):
        cells += [number(part, decimals) for part in parts]
    return cells


def _number_effect(
    one: Effect, key: str, ends: tuple[float, float], mean: Array, low: Array, high: Array
) -> tuple[str, list[list[str]]]:
    values = format.as_float(one.values)
    span = float(np.ptp(values))
    spikes = format.as_float(one.spikes["values"])
    few = len(values) <= FEW_VALUES
    wide = 0.15 * span if few else 0.0
    every = np.concatenate([values, spikes])
    x = charts.axis(one.kind, every.min() - wide, every.max() + wide, LEFT, WIDTH - RIGHT)
    if few:
        told = format.told_apart(values.tolist())
        if one.kind != "number":
            told = [format.value(one.kind, v, span) for v in values]
        x = replace(x, marks=list(zip(values.tolist(), told, strict=True)), note="")
    y = charts.axis("number", *ends, HEIGHT - BOTTOM, TOP, whole=True)
    body = charts.grid(x, y)
    if few:
        body += charts.zero_line(x, y) + _points_up(x, y, values, mean, low, high)
    else:
        body += charts.curves(x, y, values, mean, low, high, format.as_float(one.rows))
    if len(spikes) and mean.shape[1] == 1 and not few:
        center, reach = _wide(one.spikes["mean"]), 1.96 * _wide(one.spikes["std"])
        body += _points_up(x, y, spikes, center, center - reach, center + reach)
    chosen = np.unique(np.linspace(0, len(values) - 1, 11).astype(int))
    decimals = format.decimals_for((ends[1] - ends[0]) / 4)
    rows = [
        _row(format.value(one.kind, values[i], span), mean[i], low[i], high[i], decimals)
        for i in chosen
    ]
    top = int(np.argmax(mean[:, 0]))
    title = f"Effect of {format.shortened(one.name)}"
    description = (
        f"The effect goes from {number(mean[0, 0])} at {format.value(one.kind, values[0], span)} "
        f"to {number(mean[-1, 0])} at {format.value(one.kind, values[-1], span)}; it is highest, "
        f"{number(mean[top, 0])}, at {format.value(one.kind, values[top], span)}."
    )
    picture = charts.svg(key, title, description, body)
    if x.note:
        picture += f'<p class="note middle">{escaped(x.note)}</p>'
    return picture, rows


def _points_up(
    x: charts.Axis, y: charts.Axis, at: Array, mean: Array, low: Array, high: Array
) -> str:
    """Return dots with upright lines: values that have an effect of their own."""
    parts = []
    for k in range(mean.shape[1]):
        aside = 7.0 * (k - 0.5 * (mean.shape[1] - 1))
        for place, m, a, b in zip(x.at(at) + aside, mean[:, k], low[:, k], high[:, k], strict=True):
            parts.append(
                f'<line class="whisker c{k}" x1="{place:.1f}" x2="{place:.1f}" '
                f'y1="{y.at(a):.1f}" y2="{y.at(b):.1f}"/>'
                f'<circle class="dot c{k}" cx="{place:.1f}" cy="{y.at(m):.1f}" r="3.5"/>'
            )
    return "".join(parts)


def _level_effect(
    one: Effect, key: str, ends: tuple[float, float], mean: Array, low: Array, high: Array
) -> tuple[str, list[list[str]]]:
    order = np.argsort(-mean[:, 0], kind="stable")
    chosen = order
    if len(order) > LEVELS:
        chosen = np.concatenate([order[: LEVELS // 2], order[-(LEVELS // 2) :]])
    left, pitch = 116, 13.0 * mean.shape[1] if mean.shape[1] > 1 else 20.0
    height = TOP + pitch * len(chosen) + BOTTOM
    x = charts.axis("number", *ends, left, WIDTH - RIGHT, most=4, whole=True)
    bottom = height - BOTTOM
    body = ""
    for value, text in x.marks:
        at = x.at(value)
        zero = "zero" if abs(value) < 1e-12 else "grid"
        body += f'<line class="{zero}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{bottom}"/>'
        body += f'<text class="tick middle" x="{at:.1f}" y="{bottom + 15}">{escaped(text)}</text>'
    for place, i in enumerate(chosen):
        middle = TOP + pitch * (place + 0.5)
        said = escaped(format.shortened(one.values[i], 14))
        body += f'<text class="name end" x="{left - 8}" y="{middle + 4:.1f}">{said}</text>'
        for k in range(mean.shape[1]):
            at = middle + 6.0 * (k - 0.5 * (mean.shape[1] - 1))
            here, start, end = (float(x.at(p[i, k])) for p in (mean, low, high))
            body += charts.whisker(here, start, end, at, k)
    if len(order) > LEVELS:
        at = TOP + pitch * (LEVELS // 2)
        body += f'<line class="ideal" x1="{left}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
    decimals = format.decimals_for((ends[1] - ends[0]) / 4)
    rows = [
        _row(format.shortened(one.values[i]), mean[i], low[i], high[i], decimals)
        for i in order[:200]
    ]
    title = f"Effect of {format.shortened(one.name)}"
    highest, lowest = order[0], order[-1]
    description = (
        f"Of {counted(len(order), 'level')} {format.shortened(one.values[highest])} is highest, "
        f"{number(mean[highest, 0])}, and {format.shortened(one.values[lowest])} lowest, "
        f"{number(mean[lowest, 0])}."
    )
    picture = charts.svg(key, title, description, body, height)
    if len(order) > LEVELS:
        picture += (
            f'<p class="note">The {LEVELS // 2} highest and {LEVELS // 2} lowest of '
            f"{len(order):,} levels.</p>"
        )
    return picture, rows
