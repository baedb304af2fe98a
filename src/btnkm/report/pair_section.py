"""The part of a report that shows what inputs do together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..explain.effects import Surface, interaction
from ..explain.variance import Pair, Shares, interactions
from . import charts, format
from .charts import BOTTOM, HEIGHT, LABEL, LEFT, RIGHT, TOP, WIDTH
from .effect_section import unit_of
from .format import escaped, name, number, percent
from .sections import Section, paragraph

Array = np.ndarray
SHOWN = 6  # pairs
LEAST = 0.005  # share of the variance from which a pair is worth a picture
FEW_VALUES = 6  # of a number, up to which each has a row of its own
LEVELS = 10  # of a side


def strongest(model: Any) -> list[Pair]:
    """Return the pairs of inputs that are worth a picture."""
    if len(model.fitted_.active) < 2:
        return []
    return [pair for pair in interactions(model, most=SHOWN) if pair.share >= LEAST]


def mostly_unknown(found: Sequence[Pair], shares: Shares) -> bool:
    """Tell whether the pairs hold much less than is said of inputs acting together.

    Expected variances count what is uncertain, which spreads over very many weak pairs and triples.
    """
    return sum(pair.share for pair in found) < 0.6 * shares.interactions


def pairs(model: Any, found: Sequence[Pair], shares: Shares, target: str) -> Section | None:
    """Return the strongest interactions as heat maps; None where there is but one input."""
    if len(model.fitted_.active) < 2:
        return None
    if not found:
        text = "No two inputs were found to act together: their effects add up."
        return Section("interactions", "Interactions", paragraph(text))
    maps = []
    for k, pair in enumerate(found):
        surface = interaction(model, *pair.names, points=16)
        maps.append(_surface(surface, pair.share, f"pair-{k}"))
    unit = unit_of(model, surface.unit, target)
    lead = (
        f"What two inputs add to <strong>{name(unit, 50)}</strong> together, beyond what each adds "
        "alone: the pairs that explain most. Where a map has little colour, their effects just "
        "add up."
    )
    if mostly_unknown(found, shares):
        lead += (
            f" These pairs hold {percent(sum(pair.share for pair in found))} of the variance, and "
            f"all that inputs do together up to {percent(shares.interactions)}: in part that is "
            "what the model does not know, which counts as variation."
        )
    body = paragraph(lead) + f'<div class="charts">{"".join(maps)}</div>'
    return Section("interactions", "Interactions", body)


def _surface(surface: Surface, share: float, key: str) -> str:
    mean, of_class = surface.mean, ""
    if surface.outputs is not None:
        k = int(np.argmax(np.ptp(mean, axis=(0, 1))))
        mean, of_class = mean[:, :, k], f", for {format.shortened(surface.outputs[k], 20)}"
    names = list(surface.names)
    sides = [_as_levels(*side) for side in zip(surface.kinds, (surface.x, surface.y), strict=True)]
    if sides[0][0] == "levels" and sides[1][0] != "levels":  # long names stand at the left
        names, sides, mean = names[::-1], sides[::-1], mean.T
    kept = [_kept_levels(kind, mean, axis) for axis, (kind, _) in enumerate(sides)]
    mean = mean[np.ix_(*kept)]
    sides = [(kind, values[i]) for (kind, values), i in zip(sides, kept, strict=True)]
    title = f"{format.shortened(names[1])} and {format.shortened(names[0])}{of_class}"
    largest = float(np.max(np.abs(mean), initial=0.0))
    i, j = (int(k) for k in np.unravel_index(int(np.argmax(np.abs(mean))), mean.shape))
    description = (
        f"They add most, {number(mean[i, j])}, where {format.shortened(names[0])} is "
        f"{_said(*sides[0], i)} and {format.shortened(names[1])} is {_said(*sides[1], j)}."
    )
    picture = charts.svg(key, title, description, _map(names, sides, mean), HEIGHT + 2 * LABEL)
    some = [np.unique(np.linspace(0, len(v) - 1, 6).astype(int)).tolist() for _, v in sides]
    head = [f"{format.shortened(names[0], 20)} ↓, {format.shortened(names[1], 20)} →"]
    head += [_said(*sides[1], j) for j in some[1]]
    decimals = format.decimals_for(largest)
    rows = [
        [_said(*sides[0], i), *(number(mean[i, j], decimals) for j in some[1])] for i in some[0]
    ]
    caption = (
        f"{name(names[1], 26)} and {name(names[0], 26)}"
        f'<span class="note">{percent(share, 1)} of the variance{escaped(of_class)}</span>'
    )
    table = charts.as_table(title, head, rows)
    return charts.figure(caption, picture + _scale(largest), table)


def _map(names: list[Any], sides: list[tuple[str, Array]], mean: Array) -> str:
    left = 112 if sides[1][0] == "levels" else LEFT
    right, top, bottom = WIDTH - RIGHT, TOP + LABEL, HEIGHT - BOTTOM + LABEL
    x_edges, x_texts, x_note = _side(*sides[0], left, right)
    y_edges, y_texts, y_note = _side(*sides[1], bottom, top)
    texts = [f'<text x="0" y="{TOP + 4}" class="strong">{_short(names[1], y_note)} ↑</text>']
    texts += [
        f'<text class="middle" x="{at:.1f}" y="{bottom + 16}">{escaped(text)}</text>'
        for at, text in x_texts
    ]
    texts += [
        f'<text class="end" x="{left - 6}" y="{at + 4:.1f}">{escaped(text)}</text>'
        for at, text in y_texts
    ]
    texts.append(
        f'<text class="strong middle" x="{(left + right) / 2:.0f}" y="{bottom + 32}">'
        f"{_short(names[0], x_note)} →</text>"
    )
    box = f'<rect class="box" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}"/>'
    return charts.cells(x_edges, y_edges, mean) + box + "".join(texts)


def _short(text: Any, note: str) -> str:
    return escaped(format.shortened(text, 40 - len(note)) + (f" ({note})" if note else ""))


def _scale(largest: float) -> str:
    """Return what the strongest colours stand for."""
    keys = [
        f'<span><svg class="key" viewBox="0 0 28 10" aria-hidden="true"><rect class="{sign}" '
        f'width="28" height="10"/></svg>{said}</span>'
        for sign, said in (("down", number(-largest)), ("up", f"+{number(largest)}"))
    ]
    return f'<p class="legend">{"".join(keys)}</p>'


def _as_levels(kind: str, values: Array) -> tuple[str, Array]:
    """Return a side of a map; a number of few values has a row for each."""
    if kind == "levels" or len(values) > FEW_VALUES:
        return kind, values
    numbers = format.as_float(values)
    span = float(np.ptp(numbers))
    said = format.told_apart(numbers.tolist())
    if kind != "number":
        said = [format.value(kind, v, span) for v in numbers]
    return "levels", np.array(said, dtype=object)


def _kept_levels(kind: str, mean: Array, axis: int) -> Array:
    """Return all places of numbers, and the levels where most happens."""
    count = mean.shape[axis]
    if kind != "levels" or count <= LEVELS:
        return np.arange(count)
    size = np.max(np.abs(mean), axis=1 - axis)
    return np.sort(np.argsort(-size, kind="stable")[:LEVELS])


def _said(kind: str, values: Array, i: int) -> str:
    if kind == "levels":
        return format.shortened(values[i], 24)
    numbers = format.as_float(values)
    return format.value(kind, numbers[i], float(np.ptp(numbers)))


def _side(
    kind: str, values: Array, start: float, end: float
) -> tuple[list[float], list[tuple[float, str]], str]:
    """Return the edges of cells along a side of a map, texts with their places, and their unit."""
    if kind == "levels":
        edges = np.linspace(start, end, len(values) + 1)
        middle = 0.5 * (edges[1:] + edges[:-1])
        most = max(3, int(46 / len(values))) if end > start else 13
        texts = [(float(a), format.shortened(v, most)) for a, v in zip(middle, values, strict=True)]
        return edges.tolist(), texts, ""
    numbers = format.as_float(values)
    axis = charts.axis(kind, numbers.min(), numbers.max(), start, end, most=4)
    inner = 0.5 * (numbers[1:] + numbers[:-1])
    edges = axis.at(np.concatenate([[numbers[0]], inner, [numbers[-1]]]))
    return edges.tolist(), [(float(axis.at(v)), text) for v, text in axis.marks], axis.note
