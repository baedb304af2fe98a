"""The part of a report that says how good predictions are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..explain.diagnostics import Calibration, Reliability
from . import charts, format
from .charts import BOTTOM, HEIGHT, LABEL, LEFT, RIGHT, TOP, WIDTH
from .format import counted, escaped, name, number, percent
from .metrics import Goodness
from .sections import Section, paragraph

Array = np.ndarray
SPOTS = 600  # of a scatter plot


def how_good(good: Goodness | None, model: Any) -> Section:
    """Return figures on rows that the fit should not have seen, or how to get them."""
    title = "How good it is"
    if good is None:
        text = (
            "This report was made without rows that the fit has not seen, so it cannot say how "
            "good predictions are. With such rows, <code>model.report(path, X_new, y_new)</code> "
            "tells; with the rows of the fit, <code>model.report(path, X, y, cv=5)</code> fits "
            "the model five times, each time without a fifth of them, and tells how well it "
            "predicts these."
        )
        return Section("good", title, paragraph(text))
    if good.folds:
        where = (
            f"Cross-validated: the {counted(good.n, 'row')} were divided into {good.folds} parts, "
            "and each was predicted by a model fitted to the others, all rows with the same "
            "weight. The model of this report was fitted to all of them."
        )
    else:
        where = (
            f"{counted(good.n, 'row')} given with the report, which the fit should not have seen."
        )
    known = "shares of the classes" if hasattr(model, "classes_") else "average of all rows"
    where += f" “Without inputs” is what the {known} alone would be worth."
    head = ["Figure", "Value", "Without inputs"]
    rows = []
    for figure in good.figures:
        tell = percent if figure.share else number
        value = tell(figure.value, 1) if figure.share else number(figure.value)
        without = "–" if figure.without is None else tell(figure.without)
        rows.append([figure.name, value, without])
    body = paragraph(escaped(where)) + charts.table(
        title, head, rows, [figure.meaning for figure in good.figures]
    )
    if isinstance(good.calibration, Reliability):
        body += _confusion(good, model)
        pictures = _of_classes(good.calibration)
    else:
        pictures = [_scatter(good), _coverage(good.calibration), _pit(good.calibration)]
    return Section("good", title, f'{body}<div class="charts">{"".join(pictures)}</div>')


def _scatter(good: Goodness) -> str:
    truth, predicted = good.truth, good.predicted
    chosen = np.arange(len(truth))
    if len(chosen) > SPOTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(truth), SPOTS, replace=False))
    low = float(min(truth[chosen].min(), predicted[chosen].min()))
    high = float(max(truth[chosen].max(), predicted[chosen].max()))
    x = charts.axis("number", low, high, LEFT, WIDTH - RIGHT)
    y = charts.axis("number", low, high, HEIGHT - BOTTOM + LABEL, TOP + LABEL)
    body = charts.grid(x, y, "predicted →", "true ↑") + _diagonal(x, y, low, high)
    spots = zip(x.at(predicted[chosen]), y.at(truth[chosen]), strict=True)
    body += "".join(
        f'<circle class="spot c0" cx="{a:.1f}" cy="{b:.1f}" r="2.4"/>' for a, b in spots
    )
    order = np.array_split(np.argsort(predicted, kind="stable"), min(10, len(truth)))
    decimals = format.decimals_for((high - low) / 4)
    rows = [
        [f"{k + 1}", f"{len(part):,}"]
        + [number(v[part].mean(), decimals) for v in (predicted, truth)]
        for k, part in enumerate(order)
    ]
    head = ["Group by prediction", "Rows", "Mean prediction", "Mean of y"]
    title = "Predicted and true"
    description = (
        f"{counted(len(chosen), 'row')}; on the dashed line predictions are right. The correlation "
        f"is {number(_correlation(truth, predicted), 2)}."
    )
    picture = charts.svg("scatter", title, description, body, HEIGHT + 2 * LABEL)
    return charts.figure(f"<span>{title}</span>", picture, charts.as_table(title, head, rows))


def _correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else 0.0


def _diagonal(x: charts.Axis, y: charts.Axis, low: float, high: float) -> str:
    return (
        f'<line class="ideal" x1="{x.at(low):.1f}" y1="{y.at(low):.1f}" x2="{x.at(high):.1f}" '
        f'y2="{y.at(high):.1f}"/>'
    )


def _unit_axes() -> tuple[charts.Axis, charts.Axis]:
    marks = [(v, f"{100 * v:.0f}%") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return (
        charts.Axis(0.0, 1.0, LEFT, WIDTH - RIGHT, marks),
        charts.Axis(0.0, 1.0, HEIGHT - BOTTOM + LABEL, TOP + LABEL, marks),
    )


def _coverage(found: Calibration) -> str:
    x, y = _unit_axes()
    body = charts.grid(x, y, "asked for →", "held ↑")
    body += _expected(x, y, found.levels, found.low, found.high)
    body += _diagonal(x, y, 0.0, 1.0)
    body += _joined(x, y, found.levels, found.coverage, 0)
    rows = [
        [percent(level), percent(share, 1), f"{percent(low, 1)} to {percent(high, 1)}"]
        for level, share, low, high in zip(
            found.levels, found.coverage, found.low, found.high, strict=True
        )
    ]
    title = "Rows that intervals hold"
    k = int(np.argmin(np.abs(found.levels - 0.95)))
    description = (
        f"95% intervals hold {percent(found.coverage[k], 1)} of the rows. Between "
        f"{percent(found.low[k], 1)} and {percent(found.high[k], 1)} is to be expected."
    )
    picture = charts.svg("coverage", title, description, body, HEIGHT + 2 * LABEL)
    head = ["Interval", "Rows it holds", "To be expected"]
    return charts.figure(
        f"<span>{escaped(title)}</span>", picture, charts.as_table(title, head, rows)
    )


def _expected(x: charts.Axis, y: charts.Axis, at: Array, low: Array, high: Array) -> str:
    there = charts.points(x.at(at), y.at(high))
    back = charts.points(x.at(at[::-1]), y.at(low[::-1]))
    return f'<polygon class="expected" points="{there} {back}"/>'


def _joined(x: charts.Axis, y: charts.Axis, at: Array, values: Array, k: int) -> str:
    body = f'<polyline class="line c{k}" points="{charts.points(x.at(at), y.at(values))}"/>'
    return body + "".join(
        f'<circle class="dot c{k}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>'
        for a, b in zip(x.at(at), y.at(values), strict=True)
    )


def _pit(found: Calibration) -> str:
    shares = found.histogram
    count = len(shares)
    even = 1.0 / count
    from_to = np.linspace(0.0, 1.0, count + 1)
    wide = 1.645 * np.sqrt(even * (1.0 - even) / max(found.n, 1))
    top = max(float(shares.max()), even + 1.2 * wide) * 1.08
    x, _ = _unit_axes()
    y = charts.axis("number", 0.0, top, HEIGHT - BOTTOM + LABEL, TOP + LABEL)
    y = replace(y, marks=[(v, percent(v)) for v, _ in y.marks])
    body = charts.grid(x, y, "place in the distribution →", "rows ↑")
    body += charts.bars(y, x, from_to, shares)
    for value in (even - wide, even, even + wide):
        at = f"{y.at(max(value, 0.0)):.1f}"
        kind = "ideal" if value == even else "limit"
        body += f'<line class="{kind}" x1="{x.start}" x2="{x.end}" y1="{at}" y2="{at}"/>'
    rows = [
        [f"{percent(a)} to {percent(b)}", percent(share, 1)]
        for a, b, share in zip(from_to[:-1], from_to[1:], shares, strict=True)
    ]
    title = "Where y fell in its distribution"
    description = (
        "Bars of the same height mean that the distributions are right; high ones at both ends "
        "that they are too narrow, a hump in the middle that they are too wide. They go from "
        f"{percent(shares.min(), 1)} to {percent(shares.max(), 1)}."
    )
    picture = charts.svg("pit", title, description, body, HEIGHT + 2 * LABEL)
    table = charts.as_table(title, ["Part of the distribution (PIT)", "Rows"], rows)
    note = (
        '<p class="note">Bars of even height, between the dotted lines, are right. High ends mean '
        "that intervals are too narrow, a hump that they are too wide.</p>"
    )
    return charts.figure(f"<span>{escaped(title)}</span>", picture + note, table)


def _of_classes(found: Reliability) -> list[str]:
    pictures = []
    shown = range(min(len(found.classes), charts.SERIES))
    for k in shown:
        x, y = _unit_axes()
        predicted, observed = found.predicted[k], found.observed[k]
        body = charts.grid(x, y, "predicted →", "happened ↑")
        body += _expected(x, y, predicted, found.low[k], found.high[k])
        body += _diagonal(x, y, 0.0, 1.0) + _joined(x, y, predicted, observed, 0)
        rows = [
            [percent(p, 1), percent(o, 1), f"{int(n):,}"]
            for p, o, n in zip(predicted, observed, found.counts[k], strict=True)
        ]
        label = format.shortened(found.classes[k], 30)
        title = f"Probability of {label}, predicted and true"
        description = (
            "In groups of rows with similar probabilities; on the dashed line they are right, and "
            "in the grey band nine in ten shares are to be expected."
        )
        picture = charts.svg(f"class-{k}", title, description, body, HEIGHT + 2 * LABEL)
        head = ["Mean probability", "Share of the class", "Rows"]
        caption = f"<span>Probability of {name(found.classes[k], 30)}</span>"
        pictures.append(charts.figure(caption, picture, charts.as_table(title, head, rows)))
    return pictures


def _confusion(good: Goodness, model: Any) -> str:
    labels = [format.shortened(label, 24) for label in model.classes_.tolist()]
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (good.truth, good.predicted), 1)
    chosen = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:12])
    rows = [
        [labels[i], *(f"{counts[i, j]:,}" for j in chosen), percent(_share_of(counts, i))]
        for i in chosen
    ]
    head = ["True ↓, predicted →", *(labels[j] for j in chosen), "right"]
    title = "True and predicted classes"
    return f'<h3 class="beside">{escaped(title)}</h3>{charts.table(title, head, rows)}'


def _share_of(counts: Array, i: int) -> float:
    return float(counts[i, i] / max(counts[i].sum(), 1))
