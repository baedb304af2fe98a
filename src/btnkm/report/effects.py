"""Importances, and charts of effects and interactions: of one input, and of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from markupsafe import Markup

from ..explain.effects import Effect, Surface, effects, half_width, interaction
from ..explain.fitted import FittedModel
from ..explain.sobol import Pair, SobolIndices, interactions
from . import charts, format
from .charts import BOTTOM, HEIGHT, LABEL, LEFT, RIGHT, TOP, WIDTH, Axis, Chart, Shape, Table
from .format import counted, name, number, percent, shortened

Array = np.ndarray
Limits = tuple[float, float]
SHOWN = 6  # inputs before the others are folded away, and pairs
LEAST = 0.005  # importance of an input or a pair that is shown
LEAST_EXTENT = 0.05  # of an axis, in standard deviations of y: less would show noise
FEW_VALUES = 6  # of a number, up to which no line connects them
CATEGORIES, CATEGORIES_OF_PAIR = 14, 10  # in a chart; of more, those with the largest effects
TOP_MARGIN, CATEGORY_MARGIN = TOP + LABEL, 116


@dataclass(frozen=True)
class Scale:
    """How a chart writes what the values of an input do."""

    noun: str = "effect"
    head: str = "Effect"

    def axis(self, ends: Limits, start: float, end: float, most: int = 5) -> Axis:
        """Return an axis from one end to the other, with round marks."""
        return charts.axis("number", *ends, start, end, most=most, whole=True)

    def text(self, value: Any, decimals: int | None = None) -> str:
        """Return a value as text."""
        return number(value, decimals)

    def around(self, mean: Any, reach: Any, decimals: int) -> str:
        """Return a value with its band."""
        return f"{number(mean, decimals)} ± {number(reach, decimals)}"


EFFECT = Scale()


def in_units_of_y(fitted: FittedModel) -> bool:
    """Whether effects add up in the units of y."""
    return (
        not fitted.is_classifier
        and fitted.transformation is None
        and bool(fitted.likelihoods[0].additive)
    )


def unit_of(fitted: FittedModel, target: str) -> str:
    """Return the scale on which effects add up, with the report's word for y."""
    if fitted.is_classifier:
        return fitted.unit
    if in_units_of_y(fitted):
        return target
    likelihood = fitted.transformation or fitted.likelihoods[0]
    return str(getattr(likelihood, "unit", "f of {}")).format(target)


def what_doubles(fitted: FittedModel, target: str) -> str:
    """Return what 0.7 more doubles where effects add up on a logarithmic scale, else nothing."""
    likelihood = fitted.transformation or fitted.likelihoods[0]
    if hasattr(likelihood, "doubles"):
        return str(likelihood.doubles).format(shortened(target, 50))
    if fitted.outputs is not None or in_units_of_y(fitted) or not fitted.unit.startswith("log o"):
        return ""
    return "odds" if fitted.is_classifier else "expected count"


def importance_bars(indices: SobolIndices) -> list[dict[str, Any]]:
    """Return name, widths in percent of the picture and texts for each input."""
    longest = max(float(np.max(indices.total + indices.total_std)), 1e-9)

    def width(value: float) -> str:
        return f"{100.0 * min(max(value, 0.0), longest) / longest:.2f}"

    parts = indices.total, indices.total_std, indices.first
    bars = []
    for j in indices.order:
        total, std, first = (float(part[j]) for part in parts)
        bars.append(
            {
                "name": indices.names[j],
                "low": width(total - std),
                "high": width(total + std),
                "total": width(total),
                "first": width(min(first, total)),
                "texts": [percent(value, 1) for value in (total, std, first)],
            }
        )
    return bars


def importance_table(bars: list[dict[str, Any]]) -> Table:
    """Return the same as numbers."""
    rows = [[shortened(bar["name"]), *bar["texts"]] for bar in bars]
    return Table("Importance", ["Input", "Total", "± std", "Alone"], rows)


def effects_section(fitted: FittedModel, indices: SobolIndices, target: str) -> dict[str, Any]:
    """Return what the template needs: a chart of the effect of each input, and the classes."""
    order = [int(j) for j in indices.order if int(j) in set(fitted.active)]
    every = effects(fitted, order, points=60)
    outputs = fitted.outputs
    series = _shown_classes(every, outputs)
    count = sum(indices.total[j] >= LEAST for j in order[:SHOWN]) or 1
    least = LEAST_EXTENT * fitted.scale
    low, high = extent(every[:count], series)
    ends = min(low, -least), max(high, least)
    drawn = [
        draw_effect(effect, f"effect-{k}", ends, series)
        for k, effect in enumerate(every)
        if len(effect.values)
    ]
    return {
        "unit": unit_of(fitted, target),
        "doubles": what_doubles(fitted, target),
        "classes": None if outputs is None else [outputs[k] for k in series],
        "n_classes": 0 if outputs is None else len(outputs),
        "charts": drawn[:count],
        "more": drawn[count:],
    }


def _wide(values: Array) -> Array:
    """Return values as (n, K), with K = 1 where there are no classes."""
    return values if values.ndim == 2 else values[:, None]


def _shown_classes(every: Sequence[Effect], outputs: Any) -> list[int]:
    if outputs is None:
        return [0]
    ranges = [np.ptp(_wide(effect.mean), axis=0) ** 2 for effect in every if len(effect.mean)]
    largest = np.argsort(-np.sum(ranges, axis=0), kind="stable")[: charts.SERIES]
    return sorted(largest.tolist())


def extent(every: Sequence[Effect], series: Sequence[int] = (0,)) -> Limits:
    """Return the least and the largest value of any band, and zero."""
    known = [effect for effect in every if len(effect.low)]
    low = min((float(np.min(_wide(effect.low)[:, series])) for effect in known), default=0.0)
    high = max((float(np.max(_wide(effect.high)[:, series])) for effect in known), default=0.0)
    return min(low, 0.0), max(high, 0.0)


def draw_effect(
    effect: Effect, key: str, ends: Limits, series: Sequence[int] = (0,), scale: Scale = EFFECT
) -> Chart:
    """Return the chart of an effect; its axis has ``ends`` at least."""
    limits = extent([effect], series)
    ends = min(ends[0], limits[0]), max(ends[1], limits[1])
    mean, low, high = (_wide(part)[:, series] for part in (effect.mean, effect.low, effect.high))
    decimals = format.decimals_for((ends[1] - ends[0]) / 4)
    draw = _of_categories if effect.kind == "category" else _of_numbers
    chart = draw(effect, key, ends, (mean, low, high), decimals, scale)
    if effect.missing is not None and len(series) == 1:
        center, std = (np.atleast_1d(effect.missing[part])[series[0]] for part in ("mean", "std"))
        reach = half_width(effect.level) * std
        chart.notes.append(f"Missing: {scale.around(center, reach, decimals)}")
    return replace(chart, caption=name(effect.name, 40))


def _numbers(
    effect: Effect, values: Sequence[str], curves: Sequence[Array], decimals: int, scale: Scale
) -> Table:
    """Return the effect at some values; ``curves`` are mean, low and high at these, (n, K)."""
    head = ["Value"]
    for of in [""] if effect.outputs is None else [f" of {c}" for c in effect.outputs]:
        head += [f"{scale.head}{of}", "from", "to"]
    rows = []
    for value, *parts in zip(values, *curves, strict=True):
        triples = zip(*parts, strict=True)
        cells = [scale.text(part, decimals) for triple in triples for part in triple]
        rows.append([value, *cells])
    return Table(
        f"{scale.head} of {shortened(effect.name)}", head[: 1 + 3 * curves[0].shape[1]], rows
    )


def _of_numbers(
    effect: Effect, key: str, ends: Limits, parts: Sequence[Array], decimals: int, scale: Scale
) -> Chart:
    mean, low, high = parts
    values = format.as_float(effect.values)
    span = float(np.ptp(values))
    spikes = format.as_float(effect.spikes["values"])
    few = len(values) <= FEW_VALUES
    margin = 0.15 * span if few else 0.0
    every = np.concatenate([values, spikes])
    x = charts.axis(effect.kind, every.min() - margin, every.max() + margin, LEFT, WIDTH - RIGHT)
    y = scale.axis(ends, HEIGHT - BOTTOM, TOP)

    def text(i: int) -> str:
        return format.value(effect.kind, values[i], span)

    if few:
        texts = format.told_apart(values.tolist())
        if effect.kind != "number":
            texts = [text(i) for i in range(len(values))]
        x = replace(x, marks=list(zip(values.tolist(), texts, strict=True)), note="")
    shapes = charts.grid(x, y)
    if few:
        shapes += charts.zero_line(x, y) + _upright(x, y, values, mean, low, high)
    else:
        shapes += charts.curves(x, y, values, mean, low, high, format.as_float(effect.rows))
        if len(spikes) and mean.shape[1] == 1:
            center, std = (_wide(effect.spikes[part]) for part in ("mean", "std"))
            reach = half_width(effect.level) * std
            shapes += _upright(x, y, spikes, center, center - reach, center + reach)
    chosen = np.unique(np.linspace(0, len(values) - 1, 11).astype(int))
    curves = [part[chosen] for part in parts]
    table = _numbers(effect, [text(i) for i in chosen], curves, decimals, scale)
    top = int(np.argmax(mean[:, 0]))
    description = (
        f"The {scale.noun} goes from {scale.text(mean[0, 0])} at {text(0)} to "
        f"{scale.text(mean[-1, 0])} at {text(-1)}; it is highest, {scale.text(mean[top, 0])}, at "
        f"{text(top)}."
    )
    return Chart(key, table.title, description, shapes, table, unit=x.note)


def _upright(x: Axis, y: Axis, at: Array, mean: Array, low: Array, high: Array) -> list[Shape]:
    """Return dots with upright lines: values that have an effect of their own."""
    shapes = []
    for k in range(mean.shape[1]):
        across = x.at(at) + 7.0 * (k - 0.5 * (mean.shape[1] - 1))
        for place, *heights in zip(across, mean[:, k], low[:, k], high[:, k], strict=True):
            shapes += charts.whisker(k, *((place, y.at(height)) for height in heights))
    return shapes


def _of_categories(
    effect: Effect, key: str, ends: Limits, parts: Sequence[Array], decimals: int, scale: Scale
) -> Chart:
    mean, low, high = parts
    order = np.argsort(-mean[:, 0], kind="stable")
    half, many = CATEGORIES // 2, len(order) > CATEGORIES
    chosen = np.concatenate([order[:half], order[-half:]]) if many else order
    count = mean.shape[1]
    pitch = 13.0 * count if count > 1 else 20.0
    bottom = TOP + pitch * len(chosen)
    x = scale.axis(ends, CATEGORY_MARGIN, WIDTH - RIGHT, 4)
    shapes = []
    for value, text in x.marks:
        at = float(x.at(value))
        shapes.append(charts.line("zero" if abs(value) < 1e-12 else "grid", at, TOP, at, bottom))
        shapes.append(charts.label("tick middle", at, bottom + 15, text))
    for place, i in enumerate(chosen):
        middle = TOP + pitch * (place + 0.5)
        text = shortened(effect.values[i], 14)
        shapes.append(charts.label("name end", CATEGORY_MARGIN - 8, middle + 4, text))
        for k in range(count):
            up = middle + 6.0 * (k - 0.5 * (count - 1))
            shapes += charts.whisker(k, *((x.at(part[i, k]), up) for part in (mean, low, high)))
    notes = []
    if many:
        at = TOP + pitch * half
        shapes.append(charts.line("ideal", CATEGORY_MARGIN, at, WIDTH - RIGHT, at))
        notes.append(f"The {half} highest and {half} lowest of {len(order):,} categories.")
    names = [shortened(value) for value in effect.values]
    listed = order[:200]
    curves = [part[listed] for part in parts]
    table = _numbers(effect, [names[i] for i in listed], curves, decimals, scale)
    first, last = order[0], order[-1]
    categories = counted(len(order), "category", "categories")
    description = (
        f"Of {categories}, {names[first]} is highest, {scale.text(mean[first, 0])}, and "
        f"{names[last]} lowest, {scale.text(mean[last, 0])}."
    )
    height = bottom + BOTTOM
    return Chart(key, table.title, description, shapes, table, height=height, notes=notes)


def strongest_pairs(fitted: FittedModel) -> list[Pair]:
    """Return the pairs of inputs that are worth a picture."""
    if len(fitted.active) < 2:
        return []
    return [pair for pair in interactions(fitted, most=SHOWN) if pair.importance >= LEAST]


def mostly_unknown(pairs: Sequence[Pair], indices: SobolIndices) -> bool:
    """Tell whether the pairs hold much less than all interactions together.

    Expected variances include uncertainty, which is spread over very many weak interactions.
    """
    return sum(pair.importance for pair in pairs) < 0.6 * indices.interactions


def pairs_section(
    fitted: FittedModel, pairs: Sequence[Pair], indices: SobolIndices, target: str
) -> dict[str, Any]:
    """Return what the template needs: a heat map of each pair."""
    together = sum(pair.importance for pair in pairs)
    return {
        "unit": unit_of(fitted, target),
        "charts": [_heat_map(fitted, pair, f"pair-{k}") for k, pair in enumerate(pairs)],
        "importance": percent(together),
        "all": percent(indices.interactions),
        "unknown": mostly_unknown(pairs, indices),
    }


Side = tuple[str, Array]  # kind and values of an input


def _heat_map(fitted: FittedModel, pair: Pair, key: str) -> Chart:
    surface = interaction(fitted, *pair.names, points=16)
    names, sides, mean, label = _oriented(surface)
    i, j = (int(k) for k in np.unravel_index(int(np.argmax(np.abs(mean))), mean.shape))
    short = [shortened(n) for n in names]
    description = (
        f"The interaction is strongest, {number(mean[i, j])}, where {short[0]} is "
        f"{_text(sides[0], i)} and {short[1]} is {_text(sides[1], j)}."
    )
    title = f"{short[1]} and {short[0]}{label}"
    listed = [np.unique(np.linspace(0, len(v) - 1, 6).astype(int)).tolist() for _, v in sides]
    head = [f"{shortened(names[0], 20)} ↓, {shortened(names[1], 20)} →"]
    largest = float(np.max(np.abs(mean), initial=0.0))
    decimals = format.decimals_for(largest)
    rows = [
        [_text(sides[0], i), *(number(mean[i, j], decimals) for j in listed[1])] for i in listed[0]
    ]
    return Chart(
        key,
        title,
        description,
        _map(names, sides, mean),
        Table(title, head + [_text(sides[1], j) for j in listed[1]], rows),
        caption=Markup("{} and {}").format(name(names[1], 26), name(names[0], 26)),
        detail=f"{percent(pair.importance, 1)} of the variance{label}",
        height=HEIGHT + 2 * LABEL,
        ends=(number(-largest), f"+{number(largest)}"),
    )


def _oriented(surface: Surface) -> tuple[list[Any], list[Side], Array, str]:
    """Return names, sides and means (n, m) of a heat map, and the class that it is of."""
    mean, label = surface.mean, ""
    if surface.outputs is not None:
        k = int(np.argmax(np.ptp(mean, axis=(0, 1))))
        mean, label = mean[:, :, k], f", for {shortened(surface.outputs[k], 20)}"
    names = list(surface.names)
    sides = [_side_of(*side) for side in zip(surface.kinds, (surface.x, surface.y), strict=True)]
    if sides[0][0] == "category" and sides[1][0] != "category":  # long names stand at the left
        names, sides, mean = names[::-1], sides[::-1], mean.T
    kept = [_kept(kind, mean, axis) for axis, (kind, _) in enumerate(sides)]
    sides = [(kind, values[i]) for (kind, values), i in zip(sides, kept, strict=True)]
    return names, sides, mean[np.ix_(*kept)], label


def _map(names: list[Any], sides: list[Side], mean: Array) -> list[Shape]:
    left = 112 if sides[1][0] == "category" else LEFT
    right, top, bottom = WIDTH - RIGHT, TOP_MARGIN, HEIGHT - BOTTOM + LABEL
    x_edges, x_texts, x_note = _edges(*sides[0], left, right)
    y_edges, y_texts, y_note = _edges(*sides[1], bottom, top)
    shapes = charts.cells(x_edges, y_edges, mean)
    size: dict[str, Any] = {"width": right - left, "height": bottom - top}
    shapes.append(charts.shape("rect", "box", x=left, y=top, **size))
    shapes.append(charts.label("strong", 0, TOP + 4, f"{_short(names[1], y_note)} ↑"))
    shapes += [charts.label("middle", at, bottom + 16, text) for at, text in x_texts]
    shapes += [charts.label("end", left - 6, at + 4, text) for at, text in y_texts]
    middle = f"{(left + right) / 2:.0f}"
    label = f"{_short(names[0], x_note)} →"
    return [*shapes, charts.label("strong middle", middle, bottom + 32, label)]


def _short(text: Any, note: str) -> str:
    return shortened(text, 40 - len(note)) + (f" ({note})" if note else "")


def _side_of(kind: str, values: Array) -> Side:
    """Return a side of a heat map; a number of few values has a row for each."""
    if kind == "category" or len(values) > FEW_VALUES:
        return kind, values
    numbers = format.as_float(values)
    span = float(np.ptp(numbers))
    texts = format.told_apart(numbers.tolist())
    if kind != "number":
        texts = [format.value(kind, v, span) for v in numbers]
    return "category", np.array(texts, dtype=object)


def _kept(kind: str, mean: Array, axis: int) -> Array:
    """Return all places of numbers, and the categories with the largest interactions."""
    count = mean.shape[axis]
    if kind != "category" or count <= CATEGORIES_OF_PAIR:
        return np.arange(count)
    size = np.max(np.abs(mean), axis=1 - axis)
    return np.sort(np.argsort(-size, kind="stable")[:CATEGORIES_OF_PAIR])


def _text(side: Side, i: int) -> str:
    kind, values = side
    if kind == "category":
        return shortened(values[i], 24)
    numbers = format.as_float(values)
    return format.value(kind, numbers[i], float(np.ptp(numbers)))


def _edges(
    kind: str, values: Array, start: float, end: float
) -> tuple[list[float], list[tuple[float, str]], str]:
    """Return the edges of cells along a side of a map, labels with their places, and the unit."""
    if kind == "category":
        edges = np.linspace(start, end, len(values) + 1)
        middle = 0.5 * (edges[1:] + edges[:-1])
        most = max(3, int(46 / len(values))) if end > start else 13
        texts = [(float(a), shortened(v, most)) for a, v in zip(middle, values, strict=True)]
        return edges.tolist(), texts, ""
    numbers = format.as_float(values)
    axis = charts.axis(kind, numbers.min(), numbers.max(), start, end, most=4)
    inner = 0.5 * (numbers[1:] + numbers[:-1])
    edges = axis.at(np.concatenate([[numbers[0]], inner, [numbers[-1]]]))
    return edges.tolist(), [(float(axis.at(v)), text) for v, text in axis.marks], axis.note
