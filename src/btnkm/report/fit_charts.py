"""Charts of how good predictions are, and of how the fit went."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..explain.diagnostics import Calibration, History, Reliability
from ..explain.sobol import SobolIndices
from . import charts, format
from .charts import BOTTOM, HEIGHT, LABEL, LEFT, RIGHT, TOP, WIDTH, Axis, Chart, Shape, Table
from .format import counted, name, number, percent, shortened
from .metrics import Goodness

Array = np.ndarray
SPOTS = 600  # of a scatter plot
MOST_CLASSES = 12  # of a confusion matrix
TALL = HEIGHT + 2 * LABEL


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
    return Table("What matters", ["Input", "Total", "± std", "Alone"], rows)


def figures_table(good: Goodness) -> Table:
    """Return the figures, each beside that of a model without inputs."""
    rows = []
    for figure in good.figures:
        value = percent(figure.value, 1) if figure.is_fraction else number(figure.value)
        tell = percent if figure.is_fraction else number
        without = "–" if figure.without is None else tell(figure.without)
        rows.append([figure.name, value, without])
    head = ["Figure", "Value", "Without inputs"]
    return Table("How good it is", head, rows, [figure.meaning for figure in good.figures])


def goodness_charts(good: Goodness) -> list[Chart]:
    """Return the charts of rows that the fit has not seen."""
    if isinstance(good.calibration, Reliability):
        return _reliability(good.calibration)
    return [_scatter(good), _coverage(good.calibration), _pit(good.calibration)]


def _scatter(good: Goodness) -> Chart:
    truth, predicted = good.truth, good.predicted
    chosen = np.arange(len(truth))
    if len(chosen) > SPOTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(truth), SPOTS, replace=False))
    shown = np.concatenate([truth[chosen], predicted[chosen]])
    low, high = float(shown.min()), float(shown.max())
    x = charts.axis("number", low, high, LEFT, WIDTH - RIGHT)
    y = charts.axis("number", low, high, HEIGHT - BOTTOM + LABEL, TOP + LABEL)
    spots = zip(x.at(predicted[chosen]), y.at(truth[chosen]), strict=True)
    shapes = [*charts.grid(x, y, "predicted →", "true ↑"), charts.diagonal(x, y, low, high)]
    shapes += [charts.dot("spot c0", a, b, 2.4) for a, b in spots]
    decimals = format.decimals_for((high - low) / 4)
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(10, len(truth)))
    rows = [
        [f"{k + 1}", f"{len(part):,}"]
        + [number(v[part].mean(), decimals) for v in (predicted, truth)]
        for k, part in enumerate(parts)
    ]
    title = "Predicted and true"
    head = ["Group by prediction", "Rows", "Mean prediction", "Mean of y"]
    description = (
        f"{counted(len(chosen), 'row')}. On the dashed line predictions are right. The correlation "
        f"is {number(_correlation(truth, predicted), 2)}."
    )
    return Chart("scatter", title, description, shapes, Table(title, head, rows), height=TALL)


def _correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) > 0 and np.ptp(b) > 0 else 0.0


def _unit_axes() -> tuple[Axis, Axis]:
    marks = [(v, f"{100 * v:.0f}%") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return (
        Axis(0.0, 1.0, LEFT, WIDTH - RIGHT, marks),
        Axis(0.0, 1.0, HEIGHT - BOTTOM + LABEL, TOP + LABEL, marks),
    )


def _against_ideal(
    labels: tuple[str, str], at: Array, values: Array, low: Array, high: Array
) -> list[Shape]:
    """Return what was observed, beside the diagonal and the band that chance leaves around it."""
    x, y = _unit_axes()
    shapes = [*charts.grid(x, y, *labels), charts.band("expected", x.at(at), y.at(low), y.at(high))]
    return [*shapes, charts.diagonal(x, y), *charts.joined(x, y, at, values)]


def _coverage(found: Calibration) -> Chart:
    columns = found.levels, found.coverage, found.low, found.high
    rows = [
        [percent(level), percent(held, 1), f"{percent(low, 1)} to {percent(high, 1)}"]
        for level, held, low, high in zip(*columns, strict=True)
    ]
    k = int(np.argmin(np.abs(found.levels - 0.95)))
    description = (
        f"95% intervals contain {percent(found.coverage[k], 1)} of the rows. Between "
        f"{percent(found.low[k], 1)} and {percent(found.high[k], 1)} is expected."
    )
    title = "Rows inside their intervals"
    shapes = _against_ideal(("level →", "rows inside ↑"), *columns)
    table = Table(title, ["Level", "Rows inside", "Expected"], rows)
    return Chart("coverage", title, description, shapes, table, height=TALL)


def _pit(found: Calibration) -> Chart:
    heights = found.histogram
    even = 1.0 / len(heights)
    edges = np.linspace(0.0, 1.0, len(heights) + 1)
    spread = 1.645 * np.sqrt(even * (1.0 - even) / max(found.n, 1))
    top = max(float(heights.max()), even + 1.2 * spread) * 1.08
    x, _ = _unit_axes()
    y = charts.axis("number", 0.0, top, HEIGHT - BOTTOM + LABEL, TOP + LABEL)
    y = replace(y, marks=[(v, percent(v)) for v, _ in y.marks])
    shapes = charts.grid(x, y, "position in the distribution →", "rows ↑")
    shapes += charts.bars(y, x, edges, heights)
    for value, kind in ((even - spread, "limit"), (even, "ideal"), (even + spread, "limit")):
        at = float(y.at(max(value, 0.0)))
        shapes.append(charts.line(kind, x.start, at, x.end, at))
    rows = [
        [f"{percent(a)} to {percent(b)}", percent(height, 1)]
        for a, b, height in zip(edges[:-1], edges[1:], heights, strict=True)
    ]
    title = "Where y fell in its predicted distribution"
    meaning = (
        "Bars of equal height, between the dotted lines, mean that the distributions are right. "
        "High bars at both ends mean that they are too narrow, a hump that they are too wide."
    )
    description = f"{meaning} Here they range from {percent(heights.min(), 1)} to "
    description += f"{percent(heights.max(), 1)}."
    table = Table(title, ["Part of the distribution (PIT)", "Rows"], rows)
    return Chart("pit", title, description, shapes, table, height=TALL, notes=[meaning])


def _reliability(found: Reliability) -> list[Chart]:
    pictures = []
    for k in range(min(len(found.classes), charts.SERIES)):
        columns = found.predicted[k], found.observed[k], found.low[k], found.high[k]
        rows = [
            [percent(p, 1), percent(o, 1), f"{int(n):,}"]
            for p, o, n in zip(*columns[:2], found.counts[k], strict=True)
        ]
        title = f"Probability of {shortened(found.classes[k], 30)}, predicted and true"
        description = (
            "Groups of rows with similar probabilities. On the dashed line probabilities are "
            "right; the grey band is where nine in ten groups are expected."
        )
        shapes = _against_ideal(("predicted →", "observed ↑"), *columns)
        table = Table(title, ["Mean probability", "Observed", "Rows"], rows)
        caption = name(f"Probability of {found.classes[k]}", 45)
        chart = Chart(f"class-{k}", title, description, shapes, table, caption, height=TALL)
        pictures.append(chart)
    return pictures


def confusion_table(good: Goodness, classes: list[Any]) -> Table:
    """Return how often each class was predicted for each true one, the most frequent classes."""
    labels = [shortened(label, 24) for label in classes]
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (good.truth, good.predicted), 1)
    chosen = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MOST_CLASSES])
    right = np.diagonal(counts) / np.maximum(counts.sum(axis=1), 1)
    rows = [[labels[i], *(f"{counts[i, j]:,}" for j in chosen), percent(right[i])] for i in chosen]
    head = ["True ↓, predicted →", *(labels[j] for j in chosen), "right"]
    return Table("True and predicted classes", head, rows)


def elbo_chart(found: History) -> Chart | None:
    """Return the ELBO of every restart by sweep; None where no sweep has one."""
    runs = [(k, run) for k, runs in enumerate(found.searches) for run in runs]
    if not runs:
        return None
    high = max(float(run.elbo.max()) for _, run in runs)
    # the first sweeps, which rise steeply, would leave no room for the others
    low = min(float(r.elbo[min(len(r.elbo) - 1, max(2, len(r.elbo) // 10))]) for _, r in runs)
    low = min(low, high - 1e-6 * max(abs(high), 1.0))
    first = min(int(run.sweep[0]) for _, run in runs)
    last = max(int(run.sweep[-1]) for _, run in runs)
    x = charts.axis("number", first, max(last, first + 1), LEFT + 8, WIDTH - RIGHT)
    y = charts.axis("number", low, high + 0.04 * (high - low), HEIGHT - BOTTOM, TOP)
    shapes = charts.grid(x, y)
    for k, run in sorted(runs, key=lambda pair: pair[0] == found.best):  # the best on top
        inside = run.elbo >= low
        kind = "line c0" if k == found.best else "line thin c5"
        shapes.append(charts.path(kind, x.at(run.sweep[inside]), y.at(run.elbo[inside])))
    ends = {k: run.elbo[-1] for k, run in runs}  # of the last search of each restart
    rows = [
        [
            f"{k + 1}{' (best)' if k == found.best else ''}",
            f"{int(np.sum(np.isfinite(found.elbo[k])))}",
            number(end, 2),
            number(found.ranks[k][-1]),
        ]
        for k, end in ends.items()
    ]
    title = "ELBO by sweep"
    description = f"{counted(len(ends), 'restart')}; the best ends at {number(high, 2)}."
    table = Table(title, ["Restart", "Exact sweeps", "ELBO", "Rank"], rows)
    return Chart("elbo", title, description, shapes, table)
