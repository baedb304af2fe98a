"""Whether intervals hold everywhere: charts of their coverage in groups of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..explain.coverage import (
    ENOUGH_ROWS,
    NEW,
    ConditionalCoverage,
    CoverageFailure,
    GroupedCoverage,
)
from ..explain.fitted import MISSING, FittedModel
from ..explain.noise import constant_noise
from . import charts
from .charts import BOTTOM, LABEL, TOP, WIDTH, Axis, Chart, Shape, Table
from .format import counted, name, number, percent, shortened

Array = np.ndarray
SHOWN, FOLDED = 6, 24  # charts before the others are folded away, and with these
MOST_FAILURES = 12  # of the table
PITCH = 20.0  # between the lines of groups
LABELS, BARS = 140, 300  # where the names of groups end, and where the bars of widths begin
DETAILS = {
    "spread": "the predicted standard deviation",
    "range": "whether any number is outside of it",
}
ROOM = 0.28  # of the axis, for the number of a group that differs


def intervals_section(
    fitted: FittedModel, coverage: ConditionalCoverage | None
) -> dict[str, Any] | None:
    """Return what the template needs, if there are enough rows for groups."""
    if coverage is None or not coverage.groups or coverage.n < ENOUGH_ROWS:
        return None
    low = min(part.lowest_shown for part in coverage.groups[:SHOWN])
    drawn = [_chart(part, f"group-{k}", low) for k, part in enumerate(coverage.groups[:FOLDED])]
    failures = coverage.failures
    failing = sum(bool(np.any(part.differs)) for part in coverage.groups)
    count = min(max(SHOWN, failing), 2 * SHOWN)
    return {
        "level": percent_of(coverage.level),
        "confidence": percent_of(coverage.confidence),
        "n": coverage.n,
        "n_groups": coverage.n_groups,
        "n_failures": len(failures),
        "failures": _failures(failures[:MOST_FAILURES]) if failures else None,
        "n_unlisted": max(len(failures) - MOST_FAILURES, 0),
        "narrow": any(failure.too_narrow for failure in failures),
        "noise_may_vary": _noise_may_vary(fitted, coverage),
        "counts": coverage.expected > coverage.level + 1e-6,
        "charts": drawn[:count],
        "more": drawn[count:],
        "left_out": len(coverage.groups) - len(drawn),
    }


def percent_of(level: float) -> str:
    """Return a level with as many digits as it has: "95%", "99.5%"."""
    return f"{100.0 * level:.4g}%"


def _noise_may_vary(fitted: FittedModel, coverage: ConditionalCoverage) -> bool:
    """Whether noise that varies may help: it is constant, and too small in some groups only."""
    additive = all(part.additive for part in fitted.likelihoods)
    varies = any(constant_noise(part)[1] for part in fitted.likelihoods)
    narrow = sum(failure.too_narrow for failure in coverage.failures)
    return additive and not varies and 0 < narrow < coverage.n_groups / 2


def where(failure: CoverageFailure) -> str:
    """Return the group in words."""
    group, of = shortened(failure.group, 40), shortened(failure.name, 40)
    return f"{of} {group.strip('()') if group in (MISSING, NEW) else group}"


def _failures(failures: list[CoverageFailure]) -> Table:
    rows = [
        [
            where(failure),
            f"{failure.rows:,}",
            percent(failure.coverage, 1),
            percent(failure.expected, 1),
            "too narrow" if failure.too_narrow else "too wide",
        ]
        for failure in failures
    ]
    head = ["Group of rows", "Rows", "Inside", "Should be", "Intervals are"]
    return Table("Groups in which the coverage differs", head, rows)


def _chart(part: GroupedCoverage, key: str, low: float) -> Chart:
    """Return the chart of a property of rows; its axis begins at ``low`` or below."""
    low = min(low, part.lowest_shown)
    bottom = TOP + LABEL + PITCH * len(part.labels)
    x = _axis(low)
    shapes = [charts.label("strong end", WIDTH, TOP + 3, "mean width")]
    for value, text in x.marks:
        at = float(x.at(value))
        shapes += [
            charts.line("grid", at, TOP + LABEL, at, bottom),
            charts.label("tick middle", at, bottom + 15, text),
        ]
    finite = part.width[np.isfinite(part.width)]
    widest = max(float(np.max(finite, initial=0.0)), 1e-300)
    for k in range(len(part.labels)):
        shapes += _line_of(part, k, TOP + LABEL + PITCH * (k + 0.5), x, widest)
    title = f"Coverage by {shortened(part.name)}"
    return Chart(
        key,
        title,
        _description(part),
        shapes,
        _numbers(part, title),
        part.name.capitalize() if part.kind in DETAILS else name(part.name, 40),
        detail=DETAILS.get(part.kind, ""),
        height=bottom + BOTTOM,
    )


def _axis(low: float) -> Axis:
    span = max(1.0 - low, 0.02)
    x = charts.axis("number", low - ROOM * span, 1.0, LABELS + 6, BARS - 14, most=3)
    marks = [(v, percent(v, 0 if abs(100 * v - round(100 * v)) < 1e-6 else 1)) for v, _ in x.marks]
    return replace(x, marks=[mark for mark in marks if mark[0] >= 0.0])


def _line_of(part: GroupedCoverage, k: int, y: float, x: Axis, widest: float) -> list[Shape]:
    """Return the name of a group, its coverage with what it should be, and the bar of its width."""
    differs = bool(part.differs[k])
    center, low, high = (float(x.at(v[k])) for v in (part.coverage, part.low, part.high))
    low = max(low, x.start)  # of a few rows
    ideal = float(x.at(part.expected[k]))
    text = shortened(part.labels[k].strip("()") if part.kind != "category" else part.labels[k], 18)
    shapes = [
        charts.label("name end", LABELS - 6, y + 4, text),
        charts.line("ideal", ideal, y - PITCH / 2, ideal, y + PITCH / 2),
        *charts.whisker(int(differs), (center, y), (low, y), (high, y)),
    ]
    if differs:
        shapes.append(
            charts.label("strong end", min(low, ideal) - 6, y + 4, percent(part.coverage[k]))
        )
    if np.isfinite(part.width[k]):
        width = (WIDTH - BARS) * float(part.width[k]) / widest
        bar: dict[str, Any] = {
            "x": float(BARS),
            "y": y - 6,
            "width": max(width, 0.5),
            "height": 12.0,
        }
        shapes.append(charts.shape("rect", "expected", **bar))
    return shapes


def _description(part: GroupedCoverage) -> str:
    least, most = int(np.argmin(part.coverage)), int(np.argmax(part.coverage))
    labels = [shortened(label, 40) for label in part.labels]
    failing = [labels[k] for k in np.flatnonzero(part.differs)]
    text = (
        f"Of {counted(len(labels), 'group')}, {labels[least]} has the lowest coverage, "
        f"{percent(part.coverage[least], 1)}, and {labels[most]} the highest, "
        f"{percent(part.coverage[most], 1)}. "
    )
    return text + (
        f"Clearly different: {', '.join(failing)}." if failing else "None differs clearly."
    )


def _numbers(part: GroupedCoverage, title: str) -> Table:
    columns = part.labels, part.rows, part.coverage, part.low, part.high, part.expected, part.width
    rows = [
        [
            shortened(label),
            f"{int(n):,}",
            percent(coverage, 1),
            f"{percent(low, 1)} to {percent(high, 1)}",
            percent(expected, 1),
            number(width),
        ]
        for label, n, coverage, low, high, expected, width in zip(*columns, strict=True)
    ]
    head = ["Group", "Rows", "Inside", "Confidence interval", "Should be", "Mean width"]
    return Table(title, head, rows)
