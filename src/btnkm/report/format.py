"""Values and names as text: short, and safe as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

MOST_DECIMALS = 6  # with more, a number has a power of ten
MOST_STEPS = 1e5  # from zero to a mark of an axis; with more, marks are relative to a round number
LONGEST = 60  # characters of a name in running text
SECOND, DAY = 1e6, 86_400e6  # in microseconds
UNITS = [("days", DAY), ("hours", 3600e6), ("minutes", 60e6), ("seconds", SECOND)]
UNITS += [("microseconds", 1.0)]


def shortened(text: Any, most: int = LONGEST) -> str:
    """Return the beginning of a long name, or "(no name)" for an empty one; not escaped."""
    words = " ".join(str(text).split())
    if not words:
        return "(no name)"
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def name(text: Any, most: int = LONGEST) -> Markup:
    """Return a name from the data as HTML: escaped, and with its own writing direction."""
    short = shortened(text, most)
    title = Markup(' title="{}"').format(str(text)) if short.endswith("…") else ""
    return Markup('<bdi class="name"{}>{}</bdi>').format(title, short)


def listed(parts: Sequence[str], most: int = 5) -> str:
    """Return "a, b and c", or the first few if there are many."""
    if len(parts) > most:
        return ", ".join(parts[: most - 1]) + f" and {len(parts) - most + 1:,} others"
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return "1 row", "1,234 rows"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def decimals_for(width: float) -> int:
    """Return the decimals needed to distinguish numbers that differ by about ``width``."""
    if not (math.isfinite(width) and width > 0):
        return 2
    return min(max(2 - math.floor(math.log10(width)), 0), 12)


def number(value: Any, decimals: int | None = None) -> str:
    """Return a number with about four digits, or with so many decimals; a dash for NaN.

    report.js has the same rules.
    """
    value = float(value)
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    short = size >= 1e9 or 0 < size < 1e-4 if decimals is None else decimals > MOST_DECIMALS
    if short or size >= 1e15:
        text = f"{value:.4g}"
    elif decimals is not None:
        text = _grouped(value, decimals)
    else:
        places = 0 if size >= 1000 else 3 - math.floor(math.log10(size)) if size > 0 else 0
        text = _grouped(value, max(places, 0))
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−") if float(text.replace(",", "")) else text.replace("-", "")


def _grouped(value: float, decimals: int) -> str:
    """Return a number with separators of thousands from 10,000 on: 1900 may be a year."""
    text = f"{value:,.{decimals}f}"
    short = len(text.lstrip("-").partition(".")[0]) <= len("1,900")
    return text.replace(",", "") if short else text


def compact(value: float, decimals: int = 0) -> str:
    """Return a number for an axis: long numbers as 250k, 1.5M or 2B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if max(size, 1e5) <= abs(value) < 1e15:
            return f"{value / size:.7g}{letter}".replace("-", "−")
    return number(value, decimals) if abs(value) < 1e12 else f"{value:.7g}".replace("-", "−")


def marked(values: Sequence[float], step: float) -> tuple[list[str], str]:
    """Return labels for the marks of an axis, ``step`` apart, and the number to add to them.

    The number is empty unless it takes more than six digits to distinguish two marks.
    report.js has the same rules.
    """
    largest = max(map(abs, values), default=0.0)
    if not largest > MOST_STEPS * step:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [compact(value, decimals) for value in values], ""
    round_to = 10.0 ** math.ceil(math.log10(max(values[-1] - values[0], step)) + 1e-9)
    base = round(0.5 * (values[0] + values[-1]) / round_to) * round_to
    texts = []
    for value in values:
        steps = round((value - base) / step) * step  # without rounding errors
        text = compact(steps, max(0, -math.floor(math.log10(step) + 1e-9)))
        texts.append(f"+{text}" if steps > 0 else text)
    places = max(0, -math.floor(math.log10(round_to) + 1e-9))
    whole = _grouped(base, places) if abs(base) < 1e18 and places <= 12 else f"{base:.12g}"
    return texts, whole.replace("-", "−")


def told_apart(values: Sequence[float]) -> list[str]:
    """Return a few numbers as text, with enough digits to distinguish them."""
    apart = float(np.diff(np.unique(values)).min(initial=np.inf))
    near = 1e3 * apart < max(map(abs, values), default=0.0)  # a number has about four digits
    return [number(value, decimals_for(apart) if near else None) for value in values]


def percent(fraction: Any, decimals: int = 0) -> str:
    """Return a fraction as percent: "12%", "<1%"."""
    value = 100.0 * float(fraction)
    least = 10.0**-decimals
    if 0.0 < value < 0.5 * least:
        return f"<{least:g}%"
    return f"{value:.{decimals}f}%"


def as_float(values: Any) -> np.ndarray:
    """Return dates and durations as microseconds, numbers as they are."""
    values = np.asarray(values)
    if values.dtype.kind in "mM":
        return values.astype(f"{values.dtype.kind}8[us]").astype(np.int64).astype(float)
    return values.astype(float)


def unit_of(span: float) -> tuple[str, float]:
    """Return the unit for durations up to this many microseconds, and its size."""
    return next((unit for unit in UNITS if abs(span) >= 2.0 * unit[1]), UNITS[-1])


def date(microseconds: float, span: float) -> str:
    """Return a date, with a time if ``span`` is short."""
    unit = "D" if span >= 3.0 * DAY else "m" if span >= 180.0 * SECOND else "s"
    moment = np.datetime64(int(round(microseconds)), "us").astype(f"M8[{unit}]")
    return str(moment).replace("T", " ")


def value(kind: str, microseconds_or_number: float, span: float) -> str:
    """Return a value of a column as text; ``span`` is the range of its values."""
    if kind == "date":
        return date(microseconds_or_number, span)
    if kind == "duration":
        unit, size = unit_of(span)
        return f"{number(microseconds_or_number / size)} {unit}"
    return number(microseconds_or_number, decimals_for(span) if span > 0 else None)
