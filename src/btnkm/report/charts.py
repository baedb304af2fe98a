"""Charts as inline SVG: shapes by Python, colours by the page's style sheet.

Every chart is a figure with a caption, a title and a description for those who do not see it, and
the same numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import format
from .format import escaped

Array = np.ndarray
WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 10, 22  # margins
LABEL = 16  # more, above or below, where an axis says what it is
SERIES = 6  # that are told apart


@dataclass(frozen=True)
class Axis:
    """From values to places on the page; ``note`` says what the texts of the marks are in."""

    low: float
    high: float
    start: float
    end: float
    marks: list[tuple[float, str]]
    note: str = ""

    def at(self, value: Any) -> Any:
        """Return the place of a value, or of many."""
        share = (np.asarray(value, dtype=float) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def axis(
    kind: str,
    low: float,
    high: float,
    start: float,
    end: float,
    *,
    most: int = 5,
    whole: bool = False,
) -> Axis:
    """Return an axis for numbers, dates or durations from low to high, with marks at round values.

    With ``whole`` it goes on to the next round value at either end.
    """
    if not high > low:
        wide = abs(low) * 0.5 or 0.5
        low, high = low - wide, high + wide
    if kind == "date":
        return Axis(low, high, start, end, _dates(low, high))
    unit, size = format.unit_of(high - low) if kind == "duration" else ("", 1.0)
    step = nice_step((high - low) / size, most) * size
    first = math.ceil(low / step - 1e-9) * step
    if whole:
        first = math.floor(low / step + 1e-9) * step
        low, high = first, math.ceil(high / step - 1e-9) * step
    count = int((high - first) / step + 1e-6) + 1
    values = (first + step * np.arange(count)).tolist()
    texts, base = format.marked([value / size for value in values], step / size)
    note = f"{base} + …" if base else ""
    note = f"{note} {unit}".strip()
    return Axis(low, high, start, end, list(zip(values, texts, strict=True)), note)


def nice_step(span: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten, with at most so many steps in the span."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))


def _dates(low: float, high: float) -> list[tuple[float, str]]:
    """Return marks where years, months, days, hours, minutes or seconds begin: three or so."""
    span = high - low
    year, minute, hour = 365.25 * format.DAY, 60.0 * format.SECOND, 3600.0 * format.SECOND
    if span > 3.0 * year:
        unit, step = "Y", max(1, round(nice_step(span / year, 4)))
    elif span > 75.0 * format.DAY:
        months = span / (year / 12.0)
        unit, step = "M", next(m for m in (1, 2, 3, 6, 12) if months / m <= 4)
    elif span > 3.0 * format.DAY:
        unit, step = "D", next(d for d in (1, 2, 5, 10, 20, 40) if span / format.DAY / d <= 3)
    elif span > 3.0 * hour:
        unit, step = "h", next(h for h in (1, 2, 3, 6, 12, 24) if span / hour / h <= 3)
    else:
        unit, step = "m", next((m for m in (1, 2, 5, 15, 30, 60) if span / minute / m <= 3), 60)
    ends = np.array([low, high]).astype(np.int64).astype("M8[us]")
    first, last = (int(v) for v in ends.astype(f"M8[{unit}]").astype(np.int64))
    base = 1970 if unit == "Y" else 0  # years are multiples of the step as people count them
    marks = []
    for count in range(-(-(first + base) // step) * step - base, last + 1, step):
        moment = np.int64(count).astype(f"M8[{unit}]")
        value = float(moment.astype("M8[us]").astype(np.int64))
        if low <= value <= high:
            marks.append((value, str(moment).replace("T", " ")))
    return marks


def points(x: Array, y: Array) -> str:
    """Return the coordinates of a line."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def grid(x: Axis, y: Axis, across: str = "", up: str = "") -> str:
    """Return lines at the marks of both axes, their texts, and what the axes are."""
    left, right, bottom = x.start, x.end, y.start
    across, up = (
        f"{said} ({axis.note})" if said and axis.note else said
        for said, axis in ((across, x), (up, y))
    )
    parts = []
    for value, text in y.marks:
        at = y.at(value)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="end" x="{left - 6}" y="{at + 4:.1f}">{escaped(text)}</text>'
        )
    parts.append(f'<line class="base" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    for value, text in x.marks:
        at = x.at(value)
        side = "middle"
        if len(text) > 6:  # a date must not leave the picture
            side = "end" if at > right - 24 else "start" if at < left + 24 else "middle"
        parts.append(
            f'<line class="base" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text class="{side}" x="{at:.1f}" y="{bottom + 16}">{escaped(text)}</text>'
        )
    if across:
        parts.append(
            f'<text class="strong middle" x="{(left + right) / 2:.0f}" y="{bottom + 31}">'
            f"{escaped(across)}</text>"
        )
    if up:
        parts.append(f'<text class="strong" x="0" y="{y.end - 12}">{escaped(up)}</text>')
    return "".join(parts)


def svg(key: str, title: str, description: str, body: str, height: float = HEIGHT) -> str:
    """Return a picture that a screen reader can tell of; ``title`` and so on are not escaped."""
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{escaped(title)}</title>'
        f'<desc id="{key}-d">{escaped(description)}</desc>{body}</svg>'
    )


def figure(caption: str, picture: str, table: str, kind: str = "") -> str:
    """Return a figure; all parts are HTML."""
    return (
        f'<figure class="chart {kind}"><figcaption>{caption}</figcaption>{picture}{table}</figure>'
    )


def as_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the numbers of a chart, folded away; all texts are escaped here."""
    return (
        f'<details class="numbers"><summary>Show the numbers</summary>{table(title, head, rows)}'
        "</details>"
    )


def table(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    meanings: Sequence[str] | None = None,
) -> str:
    """Return a table that scrolls by itself where it is too wide; the first cell heads its row.

    ``meanings`` say in small letters what each row is.
    """
    first = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    body = ""
    for k, row in enumerate(rows):
        small = "" if meanings is None else f"<small>{escaped(meanings[k])}</small>"
        cells = "".join(f"<td>{escaped(cell)}</td>" for cell in row[1:])
        body += f'<tr><th scope="row">{escaped(row[0])}{small}</th>{cells}</tr>'
    return (
        f'<div class="scroll" role="region" aria-label="{escaped(title)}" tabindex="0"><table>'
        f"<thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def legend(labels: Sequence[Any]) -> str:
    """Return which line is which."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 28 10" aria-hidden="true"><line class="line c{k}" '
        f'x1="0" x2="28" y1="5" y2="5"/></svg>{format.name(label, 30)}</li>'
        for k, label in enumerate(labels)
    )
    return f'<ul class="legend">{items}</ul>'


def curves(
    x: Axis, y: Axis, values: Array, mean: Array, low: Array, high: Array, rug: Array
) -> str:
    """Return lines (n, K) with their bands, zero, and where the rows are: a tick each tenth."""
    inside = [
        f'<polygon class="band c{k}" points="{points(x.at(values), y.at(high[:, k]))} '
        f'{points(x.at(values[::-1]), y.at(low[::-1, k]))}"/>'
        for k in range(mean.shape[1])
    ]
    inside += [zero_line(x, y)]
    inside += [
        f'<polyline class="line c{k}" points="{points(x.at(values), y.at(mean[:, k]))}"/>'
        for k in range(mean.shape[1])
    ]
    for value in rug:
        at = float(x.at(value))
        inside.append(
            f'<line class="rug" x1="{at:.1f}" x2="{at:.1f}" y1="{y.start}" y2="{y.start - 6}"/>'
        )
    return "".join(inside)


def zero_line(x: Axis, y: Axis) -> str:
    """Return the line of no effect, where it is in sight."""
    if not y.low <= 0.0 <= y.high:
        return ""
    return f'<line class="zero" x1="{x.start}" x2="{x.end}" y1="{y.at(0):.1f}" y2="{y.at(0):.1f}"/>'


def whisker(at: float, low: float, high: float, place: float, series: int = 0) -> str:
    """Return a dot with a line through it, across at height ``place``."""
    return (
        f'<line class="whisker c{series}" x1="{low:.1f}" x2="{high:.1f}" y1="{place:.1f}" '
        f'y2="{place:.1f}"/><circle class="dot c{series}" cx="{at:.1f}" cy="{place:.1f}" r="3.5"/>'
    )


def bars(y: Axis, x: Axis, edges: Array, heights: Array) -> str:
    """Return upright bars between edges."""
    parts = []
    for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
        a, b, top = float(x.at(left)) + 0.5, float(x.at(right)) - 0.5, float(y.at(height))
        parts.append(
            f'<rect class="bar c0" x="{a:.1f}" y="{top:.1f}" width="{max(b - a, 0.5):.1f}" '
            f'height="{max(y.start - top, 0.0):.1f}"/>'
        )
    return "".join(parts)


def cells(x: Sequence[float], y: Sequence[float], values: Array) -> str:
    """Return a heat map between edges x (n + 1,) and y (m + 1,): values (n, m).

    Signs have a colour each, sizes are how much of it there is: on any background.
    """
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    parts = []
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            share = abs(float(values[i, j])) / largest
            if share < 0.02:
                continue
            left, right = sorted((x[i], x[i + 1]))
            top, bottom = sorted((y[j], y[j + 1]))
            sign = "up" if values[i, j] > 0 else "down"
            parts.append(
                f'<rect class="{sign}" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                f'height="{bottom - top:.1f}" fill-opacity="{share:.2f}"/>'
            )
    return f'<g class="cells">{"".join(parts)}</g>'
