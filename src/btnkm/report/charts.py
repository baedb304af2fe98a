"""Charts as data: shapes of inline SVG, which a template writes and the style sheet colours.

Every chart has a caption, a title and a description for readers who do not see it, and the same
numbers as a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import format

Array = np.ndarray
WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 10, 22  # margins
LABEL = 16  # more, above or below, where an axis has a label
SERIES = 6  # lines with colours of their own


class Shape(NamedTuple):
    """An element of a picture."""

    tag: str
    attributes: dict[str, Any]
    text: str = ""


@dataclass(frozen=True)
class Table:
    """Numbers as text; the first cell of a row is its heading, ``meanings`` explain the rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    meanings: Sequence[str] | None = None


@dataclass(frozen=True)
class Chart:
    """A picture, the same numbers as a table, and notes below the picture."""

    key: str
    title: str
    description: str
    shapes: list[Shape]
    table: Table
    caption: Any = None  # the title, if None
    detail: str = ""  # of the caption
    height: float = HEIGHT
    notes: list[str] = field(default_factory=list)
    unit: str = ""  # of the x axis
    ends: tuple[str, str] | None = None  # what the strongest colours of a heat map stand for


@dataclass(frozen=True)
class Axis:
    """From values to positions in the picture; ``note`` is the unit of the tick labels."""

    low: float
    high: float
    start: float
    end: float
    marks: list[tuple[float, str]]
    note: str = ""

    def at(self, value: Any) -> Any:
        """Return the position of a value, or of many."""
        part = (np.asarray(value, dtype=float) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


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

    With ``whole`` it extends to the next round value at both ends.
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


def shape(tag: str, kind: str = "", text: str = "", **attributes: Any) -> Shape:
    """Return an element of the class ``kind``; floats have one decimal."""
    named = {"class": kind} if kind else {}
    for name, value in attributes.items():
        number = isinstance(value, float | np.floating)
        named[name.replace("_", "-")] = f"{value:.1f}" if number else value
    return Shape(tag, named, text)


def line(kind: str, x1: Any, y1: Any, x2: Any, y2: Any) -> Shape:
    """Return a straight line."""
    return shape("line", kind, x1=x1, x2=x2, y1=y1, y2=y2)


def label(kind: str, x: Any, y: Any, text: str) -> Shape:
    """Return text in the picture."""
    return shape("text", kind, text, x=x, y=y)


def points(x: Array, y: Array) -> str:
    """Return the coordinates of a line."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def path(kind: str, x: Array, y: Array) -> Shape:
    """Return a line through points."""
    return shape("polyline", kind, points=points(x, y))


def band(kind: str, x: Array, low: Array, high: Array) -> Shape:
    """Return the area between two lines."""
    return shape("polygon", kind, points=f"{points(x, high)} {points(x[::-1], low[::-1])}")


def grid(x: Axis, y: Axis, across: str = "", up: str = "") -> list[Shape]:
    """Return lines and labels at the marks of both axes, and what the axes show."""
    left, right, bottom = x.start, x.end, y.start
    across, up = (
        f"{text} ({axis.note})" if text and axis.note else text
        for text, axis in ((across, x), (up, y))
    )
    shapes = []
    for value, text in y.marks:
        at = float(y.at(value))
        shapes += [line("grid", left, at, right, at), label("end", left - 6, at + 4, text)]
    shapes.append(line("base", left, bottom, right, bottom))
    for value, text in x.marks:
        at = float(x.at(value))
        side = "middle"
        if len(text) > 6:  # a date must not leave the picture
            side = "end" if at > right - 24 else "start" if at < left + 24 else "middle"
        shapes.append(line("base", at, bottom, at, bottom + 4))
        shapes.append(label(side, at, bottom + 16, text))
    if across:
        shapes.append(label("strong middle", f"{(left + right) / 2:.0f}", bottom + 31, across))
    if up:
        shapes.append(label("strong", 0, y.end - 12, up))
    return shapes


def curves(
    x: Axis, y: Axis, values: Array, mean: Array, low: Array, high: Array, rug: Array
) -> list[Shape]:
    """Return lines (n, K) with their bands, zero, and a tick at each tenth of the rows."""
    every, at = range(mean.shape[1]), x.at(values)
    shapes = [band(f"band c{k}", at, y.at(low[:, k]), y.at(high[:, k])) for k in every]
    shapes += zero_line(x, y)
    shapes += [path(f"line c{k}", at, y.at(mean[:, k])) for k in every]
    bottom = y.start
    return shapes + [line("rug", v, bottom, v, bottom - 6) for v in x.at(rug)]


def zero_line(x: Axis, y: Axis) -> list[Shape]:
    """Return the line of no effect, where it is in sight."""
    at = float(y.at(0.0))
    return [line("zero", x.start, at, x.end, at)] if y.low <= 0.0 <= y.high else []


def diagonal(x: Axis, y: Axis, low: float = 0.0, high: float = 1.0) -> Shape:
    """Return the line on which both axes have the same value."""
    return line("ideal", *(float(axis.at(end)) for end in (low, high) for axis in (x, y)))


def dot(kind: str, x: float, y: float, size: Any) -> Shape:
    """Return a circle."""
    return shape("circle", kind, cx=float(x), cy=float(y), r=str(size))


def joined(x: Axis, y: Axis, at: Array, values: Array, series: int = 0) -> list[Shape]:
    """Return dots with a line through them."""
    across, up = x.at(at), y.at(values)
    dots = [dot(f"dot c{series}", a, b, 3) for a, b in zip(across, up, strict=True)]
    return [path(f"line c{series}", across, up), *dots]


def whisker(series: int, center: Any, low: Any, high: Any) -> list[Shape]:
    """Return a dot, and a line from ``low`` to ``high`` through it, given as points."""
    center, low, high = ([float(v) for v in point] for point in (center, low, high))
    return [
        line(f"whisker c{series}", *low, *high),
        dot(f"dot c{series}", center[0], center[1], 3.5),
    ]


def bars(y: Axis, x: Axis, edges: Array, heights: Array) -> list[Shape]:
    """Return upright bars between edges."""
    shapes = []
    for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
        a, b, top = float(x.at(left)) + 0.5, float(x.at(right)) - 0.5, float(y.at(height))
        size: dict[str, Any] = {"width": max(b - a, 0.5), "height": max(float(y.start) - top, 0.0)}
        shapes.append(shape("rect", "bar c0", x=a, y=top, **size))
    return shapes


def cells(x: Sequence[float], y: Sequence[float], values: Array) -> list[Shape]:
    """Return a heat map between edges x (n + 1,) and y (m + 1,): values (n, m).

    The sign sets the colour and the size the opacity, so that it works on any background.
    """
    largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
    shapes = []
    for (i, j), value in np.ndenumerate(values):
        strength = abs(float(value)) / largest
        if strength < 0.02:
            continue
        left, right = sorted((float(x[i]), float(x[i + 1])))
        top, bottom = sorted((float(y[j]), float(y[j + 1])))
        size: dict[str, Any] = {"width": right - left, "height": bottom - top}
        kind = f"cell {'up' if value > 0 else 'down'}"
        shapes.append(shape("rect", kind, x=left, y=top, **size, fill_opacity=f"{strength:.2f}"))
    return shapes
