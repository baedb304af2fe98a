"""The picture of ``btnkm demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def draw(
    model: Any, said: Any, rows: tuple[Any, ...], inputs: Any, target: str, path: Path
) -> None:
    """Draw predictions against truth, and the prediction along the most relevant input."""
    X_train, y_train, y_test = rows
    figure = Figure(figsize=(11, 4.8), layout="constrained")  # of no window: it needs no display
    left, right = figure.subplots(1, 2)
    _against_truth(left, said, y_test, target)
    _along(right, model, X_train, y_train, inputs, target)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _against_truth(axes: Any, said: Any, y: Any, target: str) -> None:
    mean = np.asarray(said.mean)
    low, high = np.asarray(said.interval(0.90)).T
    axes.errorbar(
        mean,
        y,
        xerr=(mean - low, high - mean),
        fmt="o",
        markersize=4,
        color="tab:blue",
        ecolor="lightsteelblue",
        elinewidth=1,
        label="test rows with 90% intervals",
    )
    ends = (min(low.min(), y.min()), max(high.max(), y.max()))
    axes.plot(ends, ends, color="black", linewidth=1, label="prediction = truth")
    axes.set(xlabel=f"predicted {target}", ylabel=f"observed {target}")
    axes.set_title("Predictions on rows the model has not seen")
    axes.legend(frameon=False, loc="upper left")


def _along(axes: Any, model: Any, X: Any, y: Any, inputs: Any, target: str) -> None:
    # a curve needs an input that varies; a two-valued one would make a poor axis
    order = np.argsort(model.feature_relevance_)[::-1].tolist()
    along = next((d for d in order if np.unique(X[:, d]).size > 10), order[0])
    low, high = np.quantile(X[:, along], (0.01, 0.99))
    grid = np.linspace(low, high, 200)
    line = np.tile(np.median(X, axis=0), (grid.size, 1))
    line[:, along] = grid
    said = model.predict_dist(line)
    low, high = np.asarray(said.interval(0.90)).T
    axes.plot(X[:, along], y, ".", markersize=3, color="silver", label="training rows")
    axes.fill_between(
        grid, low, high, color="tab:blue", alpha=0.15, linewidth=0, label="90% of new observations"
    )
    band = 1.645 * said.model_std
    axes.fill_between(
        grid,
        said.mean - band,
        said.mean + band,
        color="tab:blue",
        alpha=0.35,
        linewidth=0,
        label="90% for the curve itself",
    )
    axes.plot(grid, said.mean, color="tab:blue", label="prediction")
    axes.set(xlabel=inputs[along], ylabel=target)
    axes.set_title(f"Moving {inputs[along]}, other inputs at their medians")
    axes.legend(frameon=False, loc="upper left")
