"""How good predictions are, on rows that the fit has not seen: metrics, charts and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv

from ..core.arrays import here
from ..data.frames import rows_of
from ..explain.coverage import ConditionalCoverage, Intervals, coverage_of, properties
from ..explain.diagnostics import Calibration, Reliability, calibration_of, reliability_of
from . import charts, format
from .charts import BOTTOM, HEIGHT, LABEL, LEFT, RIGHT, TOP, WIDTH, Axis, Chart, Shape, Table
from .format import counted, name, number, percent, shortened

Array = np.ndarray
MOST_POINTS = 600  # of a scatter plot
MOST_CLASSES = 12  # of a confusion matrix
TALL = HEIGHT + 2 * LABEL


@dataclass(frozen=True)
class Metric:
    """A metric, what it means, and its value for a prediction without inputs."""

    name: str
    value: float
    meaning: str
    without: float | None = None
    is_fraction: bool = False  # shown in percent


@dataclass(frozen=True)
class Evaluation:
    """How good predictions are, on rows that the fit should not have seen.

    Attributes
    ----------
    n, folds : int
        The number of rows, and of folds (0 without cross-validation).
    metrics : list of Metric
    calibration : Calibration or Reliability
    truth, predicted : ndarray of shape (n,)
        y and its mean; of a classifier the codes of the true and of the most probable classes.
    coverage : ConditionalCoverage or None
        Coverage of 95% intervals in groups of rows; None for a classifier.
    """

    n: int
    folds: int
    metrics: list[Metric]
    calibration: Calibration | Reliability
    truth: Array
    predicted: Array
    coverage: ConditionalCoverage | None = None


def evaluate(model: Any, X: Any, y: Array, cv: Any = None) -> Evaluation:
    """Return metrics and calibration of the predictions of rows X (n, inputs) with targets y (n,).

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X, y
        Rows that the fit has not seen; with ``cv`` those it has.
    cv : int, splitter or None
        How to divide the rows into folds: each fold is predicted by a clone of the model that is
        fitted to the others.
    """
    folds = 0
    if cv is not None:
        predicted, folds = _cross_validated(model, X, y, cv)
    elif is_classifier(model):
        predicted = here(model.predict_proba(X))
    else:
        predicted = model.predict_dist(X)
    if is_classifier(model):
        reliability = reliability_of(model.classes_, predicted, y)
        truth = np.searchsorted(model.classes_, y)
        metrics = _of_classes(truth, len(model.classes_), reliability)
        codes = np.argmax(predicted, axis=1)
        return Evaluation(len(y), folds, metrics, reliability, truth, codes)
    calibration = calibration_of(predicted, y)
    metrics = _of_numbers(predicted, y, calibration)
    coverage = coverage_of(Intervals.of(predicted), y, properties(model, X))
    return Evaluation(len(y), folds, metrics, calibration, y, predicted.mean, coverage)


def _cross_validated(model: Any, X: Any, y: Array, cv: Any) -> tuple[Any, int]:
    """Return the distributions (of classes: the probabilities) of all rows, and the folds."""
    splitter = check_cv(cv, y, classifier=is_classifier(model))
    folds = list(splitter.split(np.zeros(len(y)), y))
    tested = np.sort(np.concatenate([test for _, test in folds]))
    if not np.array_equal(tested, np.arange(len(y))):
        raise ValueError(
            f"cv must leave out every row once, got {splitter}; use cv=5, for example."
        )
    parts = []
    for train, test in folds:
        fold = clone(model).set_params(callback=None, verbose=0, warm_start=False)
        fold.fit(rows_of(X, train), y[train])
        rows = rows_of(X, test)
        if not is_classifier(model):
            parts.append(fold.predict_dist(rows))
            continue
        # a rare class may be in no row but the tested ones
        probability = np.full((len(test), len(model.classes_)), np.finfo(float).tiny)
        known = np.searchsorted(model.classes_, fold.classes_)
        probability[:, known] = here(fold.predict_proba(rows))
        parts.append(probability)
    places = [test for _, test in folds]
    if is_classifier(model):
        return np.concatenate(parts)[np.argsort(np.concatenate(places))], len(folds)
    return FoldDistributions(parts, places), len(folds)


class FoldDistributions:
    """The predictive distributions of all rows, made of those of the folds."""

    def __init__(self, parts: Sequence[Any], places: Sequence[Array]) -> None:
        """Take the distributions, and the rows of each."""
        self._parts, self._places = parts, places
        self.discrete = parts[0].discrete
        self.mean = self._each(lambda part, _: part.mean)
        self.std = self._each(lambda part, _: part.std)

    def _each(self, of: Callable[[Any, Array], Array]) -> Array:
        parts = [of(part, rows) for part, rows in zip(self._parts, self._places, strict=True)]
        return np.concatenate(parts)[np.argsort(np.concatenate(self._places))]

    def cdf(self, y: Array) -> Array:
        """Return P(Y <= y): (n,)."""
        return self._each(lambda part, rows: part.cdf(y[rows]))

    def logpdf(self, y: Array) -> Array:
        """Return the log density at y: (n,)."""
        return self._each(lambda part, rows: part.logpdf(y[rows]))

    def interval(self, level: float = 0.95) -> Array:
        """Return central intervals: (n, 2)."""
        return self._each(lambda part, _: part.interval(level))


def _of_numbers(distribution: Any, y: Array, calibration: Calibration) -> list[Metric]:
    error = y - distribution.mean
    spread = float(np.std(y))
    interval = distribution.interval(0.95)
    rmse, mae = float(np.sqrt(np.mean(error**2))), float(np.mean(np.abs(error)))
    metrics = []
    if spread > 0:
        text = "fraction of the variance of y that the predictions explain"
        metrics.append(Metric("R²", 1.0 - rmse**2 / spread**2, text, 0.0))
    what = "probability" if distribution.discrete else "density"
    return [
        *metrics,
        Metric("RMSE", rmse, "root mean squared error", spread),
        Metric("MAE", mae, "mean absolute error", float(np.mean(np.abs(y - np.mean(y))))),
        Metric(
            "NLL",
            -calibration.log_density,
            f"mean negative log {what} of y (negative log-likelihood); lower is better",
        ),
        Metric(
            "Interval width",
            float(np.mean(interval[:, 1] - interval[:, 0])),
            "mean width of the 95% intervals",
        ),
    ]


def _of_classes(truth: Array, n_classes: int, reliability: Reliability) -> list[Metric]:
    frequencies = np.bincount(truth, minlength=n_classes) / len(truth)
    present = frequencies[frequencies > 0]
    return [
        Metric(
            "Accuracy",
            reliability.accuracy,
            "fraction of rows whose most probable class is the true one",
            float(frequencies.max()),
            is_fraction=True,
        ),
        Metric(
            "Log loss",
            reliability.log_loss,
            "mean negative log probability of the true class; lower is better",
            float(-np.sum(present * np.log(present))),
        ),
        Metric(
            "Brier score",
            reliability.brier,
            "mean squared error of the probabilities; lower is better",
            float(1.0 - np.sum(frequencies**2)),
        ),
    ]


def metrics_table(evaluation: Evaluation) -> Table:
    """Return the metrics, each beside that of a prediction without inputs."""
    rows = []
    for metric in evaluation.metrics:
        value = percent(metric.value, 1) if metric.is_fraction else number(metric.value)
        text_of = percent if metric.is_fraction else number
        without = "–" if metric.without is None else text_of(metric.without)
        rows.append([metric.name, value, without])
    head = ["Metric", "Value", "Without inputs"]
    return Table("Accuracy", head, rows, [metric.meaning for metric in evaluation.metrics])


def evaluation_charts(evaluation: Evaluation) -> list[Chart]:
    """Return the charts of rows that the fit has not seen."""
    calibration = evaluation.calibration
    if isinstance(calibration, Reliability):
        return _reliability(calibration)
    return [_scatter(evaluation), _coverage(calibration), _pit(calibration)]


def _scatter(evaluation: Evaluation) -> Chart:
    truth, predicted = evaluation.truth, evaluation.predicted
    chosen = np.arange(len(truth))
    if len(chosen) > MOST_POINTS:
        chosen = np.sort(np.random.default_rng(0).choice(len(truth), MOST_POINTS, replace=False))
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
    title = "Predicted and true values"
    head = ["Group by prediction", "Rows", "Mean prediction", "Mean of y"]
    meaning = "On the dashed line, the prediction equals the true value."
    description = (
        f"{counted(len(chosen), 'row')}. {meaning} The correlation is "
        f"{number(_correlation(truth, predicted), 2)}."
    )
    table = Table(title, head, rows)
    return Chart("scatter", title, description, shapes, table, height=TALL, notes=[meaning])


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
    """Return observed values, the diagonal, and the band in which they are expected."""
    x, y = _unit_axes()
    shapes = [*charts.grid(x, y, *labels), charts.band("expected", x.at(at), y.at(low), y.at(high))]
    return [*shapes, charts.diagonal(x, y), *charts.joined(x, y, at, values)]


def _coverage(calibration: Calibration) -> Chart:
    columns = calibration.levels, calibration.coverage, calibration.low, calibration.high
    rows = [
        [percent(level), percent(coverage, 1), f"{percent(low, 1)} to {percent(high, 1)}"]
        for level, coverage, low, high in zip(*columns, strict=True)
    ]
    k = int(np.argmin(np.abs(calibration.levels - 0.95)))
    description = (
        f"95% intervals contain {percent(calibration.coverage[k], 1)} of the rows. Between "
        f"{percent(calibration.low[k], 1)} and {percent(calibration.high[k], 1)} is expected."
    )
    title = "Coverage of the intervals"
    meaning = (
        "The fraction of the rows inside their intervals, for each level. It should be on the "
        "dashed line; the grey band is where nine in ten points are expected."
    )
    shapes = _against_ideal(("level of the interval →", "rows inside ↑"), *columns)
    table = Table(title, ["Level", "Rows inside", "Expected"], rows)
    return Chart("coverage", title, description, shapes, table, height=TALL, notes=[meaning])


def _pit(calibration: Calibration) -> Chart:
    heights = calibration.histogram
    even = 1.0 / len(heights)
    edges = np.linspace(0.0, 1.0, len(heights) + 1)
    spread = 1.645 * np.sqrt(even * (1.0 - even) / max(calibration.n, 1))
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
    title = "Position of y in its predicted distribution"
    meaning = (
        "If the predicted distributions are right, all bars have about the same height, between "
        "the dotted lines. High bars at both ends: the distributions are too narrow. High bars in "
        "the middle: they are too wide."
    )
    description = f"{meaning} Here the bars range from {percent(heights.min(), 1)} to "
    description += f"{percent(heights.max(), 1)}."
    table = Table(title, ["Part of the distribution (PIT)", "Rows"], rows)
    return Chart("pit", title, description, shapes, table, height=TALL, notes=[meaning])


def _reliability(reliability: Reliability) -> list[Chart]:
    pictures = []
    for k in range(min(len(reliability.classes), charts.SERIES)):
        columns = (
            reliability.predicted[k],
            reliability.observed[k],
            reliability.low[k],
            reliability.high[k],
        )
        rows = [
            [percent(p, 1), percent(o, 1), f"{int(n):,}"]
            for p, o, n in zip(*columns[:2], reliability.counts[k], strict=True)
        ]
        title = f"Probability of {shortened(reliability.classes[k], 30)}, predicted and observed"
        meaning = (
            "Each dot is a group of rows with similar probabilities. It should be on the dashed "
            "line; the grey band is where nine in ten dots are expected."
        )
        shapes = _against_ideal(("predicted →", "observed ↑"), *columns)
        table = Table(title, ["Mean probability", "Observed", "Rows"], rows)
        caption = name(f"Probability of {reliability.classes[k]}", 45)
        notes = [] if k else [meaning]
        pictures.append(
            Chart(f"class-{k}", title, meaning, shapes, table, caption, height=TALL, notes=notes)
        )
    return pictures


def confusion_table(evaluation: Evaluation, classes: list[Any]) -> Table:
    """Return how often each class was predicted for each true one, the most frequent classes."""
    labels = [shortened(label, 24) for label in classes]
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    np.add.at(counts, (evaluation.truth, evaluation.predicted), 1)
    chosen = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:MOST_CLASSES])
    right = np.diagonal(counts) / np.maximum(counts.sum(axis=1), 1)
    rows = [[labels[i], *(f"{counts[i, j]:,}" for j in chosen), percent(right[i])] for i in chosen]
    head = ["True ↓, predicted →", *(labels[j] for j in chosen), "correct"]
    return Table("True and predicted classes", head, rows)
