"""Plots of explanations with matplotlib. Each function returns its axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check_integer
from ..core.arrays import here
from .components import components
from .coverage import BINS, conditional_coverage
from .diagnostics import Calibration, calibration, history, residuals
from .drawing import (
    BAR,
    COLORS,
    FEW_CLASSES,
    MOST_BARS,
    MOST_INPUTS,
    TOO_LITTLE,
    bars_axes,
    classes,
    color_of,
    curve,
    draw_coverage,
    draw_effect,
    grid_of_axes,
    label_values,
    legend_of_classes,
    name_bars,
    one_axes,
    places,
    raw_values,
    same_scale,
    shade_phases,
    tidy,
    worth_showing,
    wrapped,
)
from .effects import effects, half_width, interaction, partial_dependence
from .fitted import in_units
from .noise import noise_effects, round_factors
from .shapley import explain_local
from .sobol import functions, interactions, sobol_indices

Array = np.ndarray
BAND = half_width(0.95)


def plot_effects(
    model: Any,
    inputs: Sequence[Any] | None = None,
    *,
    most: int = MOST_INPUTS,
    level: float = 0.95,
    sharey: bool = True,
    axes: Any = None,
) -> Array:
    """Plot main effects with credible bands, the most important inputs first.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is the ``most`` important ones with an importance of at least 0.005.
    most : int, default=12
    level : float, default=0.95
        Probability of the bands.
    sharey : bool, default=True
        Whether all axes have the same scale, so that effects can be compared.
    axes : array of matplotlib axes, or None
        One for each input; None creates a figure.

    Returns
    -------
    ndarray of matplotlib axes
    """
    left_out = 0
    check_integer("most", most, 1)
    if inputs is not None and len(inputs) == 0:
        raise ValueError("inputs must have at least one input, got none; use None for all.")
    if inputs is None:
        inputs = worth_showing(model)[:most].tolist()
        left_out = len(model.columns_) - len(inputs)
    shown = effects(model, inputs, level=level)
    made = axes is None
    axes = grid_of_axes(len(shown), axes)
    for effect, ax in zip(shown, axes, strict=True):
        draw_effect(ax, effect)
    if sharey:
        same_scale(axes)
    if made:
        figure = axes[0].figure
        figure.supylabel(f"effect on {shown[0].unit}", fontsize="medium")
        if left_out:
            others = f"{left_out} less important input{'s' * (left_out > 1)}"
            figure.supxlabel(f"not shown: {others}", fontsize="small")
        if shown[0].outputs is not None:
            legend_of_classes(figure, shown[0].outputs)
    return axes


def plot_noise_effects(
    model: Any,
    *,
    most: int = MOST_INPUTS,
    level: float = 0.9,
    sharey: bool = True,
    axes: Any = None,
) -> Array:
    """Plot the factors by which inputs multiply the standard deviation of the noise, with bands.

    If the noise is constant, the plot says so.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    most : int, default=12
        The number of inputs, the most important ones.
    level : float, default=0.9
        Probability of the bands.
    sharey : bool, default=True
        Whether all axes have the same scale, so that inputs can be compared.
    axes : array of matplotlib axes, or None
        One for each input; None creates a figure.

    Returns
    -------
    ndarray of matplotlib axes
    """
    check_integer("most", most, 1)
    shown = noise_effects(model, level=level)[:most]
    if not shown:
        return np.array([_note("the noise is constant")])
    made = axes is None
    axes = grid_of_axes(len(shown), axes)
    for effect, ax in zip(shown, axes, strict=True):
        draw_effect(ax, effect.in_logs())
    if sharey:
        same_scale(axes)
    for ax in axes:
        marks = round_factors(*np.exp2(ax.get_ylim()))
        ax.set_yticks(np.log2(marks), [f"×{mark:g}" for mark in marks])
    if made:
        axes[0].figure.supylabel("factor of the noise", fontsize="medium")
    return axes


def plot_interaction(model: Any, first: Any, second: Any, *, ax: Any = None) -> Any:
    """Plot the interaction of two inputs, and return the axes.

    With more than two classes, it is that of the class with the largest interaction.
    """
    surface = interaction(model, first, second)
    mean, title = surface.mean, ""
    if surface.outputs is not None:
        k = int(np.argmax(np.ptp(mean, axis=(0, 1))))
        mean, title = mean[:, :, k], f"class {surface.outputs[k]}"
    ax = one_axes(ax, (5.2, 4.2))
    limit = float(np.max(np.abs(mean), initial=1e-12))
    xs, ys = (places(in_units(v)[0]) for v in (surface.x, surface.y))
    mesh = ax.pcolormesh(
        xs, ys, mean.T, cmap="RdBu_r", vmin=-limit, vmax=limit, shading="nearest", rasterized=True
    )
    for axis, values, name in (
        (ax.xaxis, surface.x, surface.names[0]),
        (ax.yaxis, surface.y, surface.names[1]),
    ):
        label_values(axis, values)
        axis.set_label_text(wrapped(f"{name}{in_units(values)[1]}"))
    if title:
        ax.set_title(title, fontsize="medium")
    ax.figure.colorbar(mesh, ax=ax, label=f"interaction, {surface.unit}")
    return ax


def plot_interactions(model: Any, *, most: int = 15, ax: Any = None) -> Any:
    """Plot the importance of the interactions of pairs of inputs, and return the axes."""
    pairs = interactions(model, most=most)
    if not pairs:
        raise ValueError("model must have at least two inputs, got one; use plot_effects.")
    pairs = [pair for pair in pairs if pair.importance > TOO_LITTLE / 5] or pairs[:1]
    names = [" × ".join(map(str, pair.names)) for pair in pairs]
    ax = bars_axes(ax, len(pairs))
    ax.barh(range(len(pairs)), [100.0 * pair.importance for pair in pairs], color=COLORS[0])
    name_bars(ax, names)
    ax.set_xlabel("importance of the interaction (% of the variance)")
    return ax


def plot_importances(model: Any, *, most: int = MOST_BARS, ax: Any = None) -> Any:
    """Plot the importance of every input, alone and together with others; return the axes.

    Bars are the first-order and the total Sobol index, lines one standard deviation of the latter.
    """
    indices = sobol_indices(model)
    order = indices.order[:most]
    ax = bars_axes(ax, len(order))
    places = np.arange(len(order))
    error = {"ecolor": "0.35", "elinewidth": 1.0, "capsize": 0}
    total, first = 100.0 * indices.total[order], 100.0 * indices.first[order]
    spread = 100.0 * indices.total_std[order]
    low = np.minimum(spread, total)
    ax.barh(places, total, color=COLORS[0], alpha=0.35, label="together with others")
    ax.barh(places, first, color=COLORS[0], label="alone")
    ax.errorbar(total, places, xerr=[low, spread], fmt="none", **error)
    left_out = len(indices.names) - len(order)
    name_bars(ax, [str(indices.names[j]) for j in order])
    more = f"\nnot shown: {left_out} less important inputs" if left_out else ""
    ax.set_xlabel(f"importance (% of the variance) ± std{more}")
    ax.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2
    )
    return ax


def plot_local(model: Any, X: Any, *, row: int = 0, most: int = 12, ax: Any = None) -> Any:
    """Plot the contribution of each input to the prediction of one row, and return the axes.

    With more than two classes, it is the contribution to the predicted class.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X : table of shape (n, inputs)
    row : int, default=0
        Position of the row.
    most : int, default=12
        Inputs that are shown; the others are combined.
    ax : matplotlib axes or None
    """
    table = _one_row(here(X), row)
    local = explain_local(model, table)
    contributions, std = local.contributions[0], local.std[0]
    base, prediction, unit = local.base, local.prediction[0], local.unit
    if local.outputs is not None:
        k = int(np.argmax(model.predict_proba(table)[0]))
        contributions, std = contributions[:, k], std[:, k]
        base, prediction = base[k], prediction[k]
        unit = f"{unit} of {local.outputs[k]}"
    order = np.argsort(-np.abs(contributions), kind="stable")
    shown, rest = order[:most], order[most:]
    raw = raw_values(table, len(contributions))
    names = [f"{local.names[j]} = {raw[j]}" if raw else str(local.names[j]) for j in shown]
    values, spreads = list(contributions[shown]), list(std[shown])
    if len(rest):
        names.append("one other input" if len(rest) == 1 else f"{len(rest)} other inputs")
        values.append(float(np.sum(contributions[rest])))
        spreads.append(np.nan)  # their contributions are correlated
    ax = bars_axes(ax, len(values))
    starts = base + np.append(0.0, np.cumsum(values)[:-1])
    colors = [COLORS[0] if value >= 0 else COLORS[1] for value in values]
    ax.barh(range(len(values)), values, left=starts, color=colors)
    ends = np.asarray(starts) + values
    ax.errorbar(ends, range(len(values)), xerr=spreads, fmt="none", ecolor="0.35", elinewidth=1.0)
    for place, end in enumerate(ends[:-1]):
        ax.plot([end, end], [place - 0.4, place + 1.4], color="0.6", linewidth=0.8)
    ax.use_sticky_edges = False
    name_bars(ax, names)
    ax.axvline(base, color="0.6", linewidth=0.8, linestyle=":")
    ax.axvline(prediction, color="0.2", linewidth=0.8)
    ax.set_xlabel(unit)
    ax.set_title(
        f"from {base:.4g} on average (dotted) to {prediction:.4g}", fontsize="medium", loc="left"
    )
    return ax


def _one_row(X: Any, row: Any) -> Any:
    """Return a table of one row of X."""
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    check_integer("row", row, -n)
    if row >= n:
        raise ValueError(f"row must be below the {n} rows of X, got {row}; the first row is 0.")
    row %= n
    return X.iloc[[row]] if hasattr(X, "iloc") else X[row : row + 1]


def plot_components(model: Any, *, most: int = 6, widest: int = 5) -> Array:
    """Plot the largest components, one per line, with the inputs that vary most in each.

    If there are none, as in a model of main effects alone, the plot says so.

    Returns
    -------
    ndarray of matplotlib axes, of shape (components, inputs shown)
    """
    import matplotlib.pyplot as plt

    check_integer("most", most, 1)
    every = components(model)
    varying = [component for component in every if component.factors][:most]
    if not varying:
        text = "no component varies" if every else "no tensor of low rank"
        return np.array([[_note(text)]])
    width = max(1, min(widest, max(len(component.factors) for component in varying)))
    figure, axes = plt.subplots(
        len(varying),
        width,
        figsize=(2.5 * width + 0.6, 1.9 * len(varying) + 0.3),
        layout="constrained",
        squeeze=False,
    )
    for component, line in zip(varying, axes, strict=True):
        for ax in line:
            ax.set_visible(False)
        line[0].set_visible(True)
        for factor, ax in zip(component.factors, line, strict=False):
            ax.set_visible(True)
            curve(ax, factor.kind, factor.values, factor.mean, factor.std, COLORS[0], BAND)
            ax.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
            unit = in_units(factor.values)[1]
            ax.set_xlabel(wrapped(f"{factor.name}{unit}"), fontsize="small")
            ax.tick_params(labelsize="x-small")
            tidy(ax)
        size = component.amplitude
        if np.ndim(size):
            size = np.max(np.abs(size))
        line[0].set_ylabel(f"{size:+.3g} ×\n({component.importance:.0%})", fontsize="small")
    return axes


def _note(text: str) -> Any:
    """Return axes with a text only."""
    ax = one_axes(None, (4.0, 1.2))
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax


def plot_functions(
    model: Any, inputs: Sequence[Any] | None = None, *, most: int = MOST_INPUTS, axes: Any = None
) -> Array:
    """Plot the importance of each kept basis function of an input.

    An input with a main effect beside the tensor has two axes.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is the ``most`` important ones.
    most : int, default=12
    axes : array of matplotlib axes, or None
    """
    if inputs is None:
        inputs = worth_showing(model)[:most].tolist()
    described = functions(model, inputs)
    if not described:
        return np.array([_note("a full tensor has no basis functions")])
    made = axes is None
    axes = grid_of_axes(len(described), axes, height=1.9)
    for description, ax in zip(described, axes, strict=True):
        ax.bar(description.numbers, np.maximum(description.importance, 1e-12), color=COLORS[0])
        ax.set_yscale("log")
        ax.set_ylim(1e-6, 1.5)
        both = len({other.part for other in described if other.name == description.name}) > 1
        ax.set_title(
            wrapped(f"{description.name} ({description.part})" if both else description.name),
            fontsize="medium",
        )
        dropped = f", {description.dropped} dropped" if description.dropped else ""
        ax.set_xlabel(f"function ({len(description.numbers)} kept{dropped})", fontsize="small")
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)
    if made:
        axes[0].figure.supylabel("importance of the function", fontsize="medium")
    return axes


def plot_partial_dependence(model: Any, X: Any, name: Any, *, ax: Any = None) -> Any:
    """Plot the average prediction of rows X along one input, with a band; return the axes."""
    result = partial_dependence(model, X, name)
    ax = one_axes(ax, (4.6, 3.4))
    for k, color in classes(result.outputs):
        column = ... if k is None else (slice(None), k)
        mean, std = result.mean[column], result.std[column]
        curve(ax, result.kind, result.values, mean, std, color, BAND)
    unit = in_units(result.values)[1]
    ax.set(xlabel=wrapped(f"{result.name}{unit}"), ylabel=f"average {result.unit}")
    tidy(ax)
    return ax


def plot_calibration(model: Any, X: Any, y: Any, *, axes: Any = None) -> Array:
    """Plot coverage of intervals and the PIT histogram, or the reliability of probabilities.

    Returns
    -------
    ndarray of matplotlib axes: two for a regressor, one for a classifier
    """
    result = calibration(model, X, y)
    if not isinstance(result, Calibration):
        axes = grid_of_axes(1, axes, width=4.6, height=4.2)
        ax = axes[0]
        for k, label in enumerate(result.classes):
            color = color_of(k, len(result.classes))
            error = [result.predicted[k] - result.low[k], result.high[k] - result.predicted[k]]
            ax.errorbar(
                result.predicted[k],
                result.predicted[k],
                yerr=np.maximum(error, 0.0),
                fmt="none",
                ecolor=color,
                alpha=0.25,
                elinewidth=5,
            )
            ax.plot(result.predicted[k], result.observed[k], "o-", color=color, label=str(label))
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
        ax.set(xlabel="predicted probability", ylabel="observed frequency", aspect="equal")
        side = len(result.classes) > FEW_CLASSES
        place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if side else {}
        ax.legend(frameon=False, title="class", **(place or {"loc": "upper left"}))
        tidy(ax)
        return axes
    axes = grid_of_axes(2, axes, width=4.4, height=3.8)
    ax = axes[0]
    ax.fill_between(
        result.levels,
        result.low,
        result.high,
        color=COLORS[0],
        alpha=0.18,
        linewidth=0,
        label="expected, 9 in 10",
    )
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
    ax.plot(result.levels, result.coverage, "o-", color=COLORS[0], label=f"{result.n:,} rows")
    ax.set(xlabel="level of the interval", ylabel="fraction of rows inside", aspect="equal")
    ax.legend(frameon=False, loc="upper left")
    ax = axes[1]
    edges = np.linspace(0.0, 1.0, len(result.histogram) + 1)
    low, high = (float(np.interp(0.1, result.levels, end)) for end in (result.low, result.high))
    ax.axhspan(low, high, color=COLORS[0], alpha=0.18, linewidth=0)
    ax.stairs(result.histogram, edges, fill=True, color=COLORS[0], alpha=0.8)
    ax.axhline(0.1, color="0.6", linewidth=0.8)
    ax.set(xlabel="predicted P(Y ≤ y)", ylabel="fraction of rows", xlim=(0, 1))
    for ax in axes:
        tidy(ax)
    return axes


def plot_conditional_coverage(
    model: Any,
    X: Any,
    y: Any,
    level: float = 0.95,
    *,
    bins: int = BINS,
    most: int = 6,
    axes: Any = None,
) -> Array:
    """Plot the coverage of intervals in groups of rows, by predicted spread and by inputs.

    A dot is a group, with a 95% confidence interval of its coverage. The dashed line is the level;
    for counts, it is the mean probability of the intervals. Groups whose coverage clearly differs
    are orange and have a number. Grey bars are mean widths of the intervals, relative to the widest
    group of the same axes.

    Parameters
    ----------
    model : BTNRegressor, fitted
    X, y, level, bins
        As in :func:`conditional_coverage`.
    most : int, default=6
        The number of axes: first the predicted spread, then the inputs with the clearest
        differences.
    axes : array of matplotlib axes, or None
        One for each; None creates a figure.

    Returns
    -------
    ndarray of matplotlib axes
    """
    check_integer("most", most, 1)
    result = conditional_coverage(model, X, y, level, bins=bins)
    shown = result.groups[:most]
    if not shown:
        return np.array([_note("too few rows for groups")])
    made = axes is None
    axes = grid_of_axes(len(shown), axes, width=3.9, height=2.8)
    bottom = min(part.lowest_shown for part in shown)
    top = 1.0 + 0.04 * (1.0 - bottom)
    # the bars of widths have a fifth of the height to themselves
    low = bottom - (top - bottom) * BAR / (0.95 - BAR)
    for other in {other for ax in axes for other in ax.get_shared_y_axes().get_siblings(ax)}:
        if other.has_data():  # drawn before, on the same scale
            low, top = min(low, other.get_ylim()[0]), max(top, other.get_ylim()[1])
    bottom = low + BAR * (top - low)
    for part, ax in zip(shown, axes, strict=True):
        draw_coverage(ax, part)
        ax.set_ylim(low, top)
        marks = [mark for mark in ax.get_yticks() if bottom - 0.02 <= mark <= 1.0]
        ax.set_yticks(marks, [f"{mark:.0%}" for mark in marks])
    if made:
        axes[0].figure.supylabel(
            f"rows inside of {100.0 * level:.3g}% intervals", fontsize="medium"
        )
        left_out = len(result.groups) - len(shown)
        more = f"; not shown: {left_out} input{'s' * (left_out > 1)}" if left_out else ""
        axes[0].figure.supxlabel(f"grey: mean width of the intervals{more}", fontsize="small")
    return axes


def plot_residuals(model: Any, X: Any, y: Any, *, axes: Any = None) -> Array:
    """Plot scores of the residuals against predictions and a normal; return both axes."""
    from scipy.special import ndtri

    result = residuals(model, X, y)
    axes = grid_of_axes(2, axes, width=4.4, height=3.6)
    n = len(result.score)
    size = float(np.clip(200.0 / np.sqrt(n), 2.0, 18.0))
    axes[0].scatter(result.fitted, result.score, s=size, color=COLORS[0], alpha=0.6, linewidths=0)
    for edge in (-1.96, 0.0, 1.96):
        axes[0].axhline(edge, color="0.6", linewidth=0.8, linestyle="-" if edge == 0 else ":")
    axes[0].set(xlabel="predicted mean", ylabel="score of the residual")
    axes[0].locator_params(axis="x", nbins=5)
    normal = ndtri((np.arange(n) + 0.5) / n)
    axes[1].scatter(normal, np.sort(result.score), s=size, color=COLORS[0], linewidths=0)
    ends = [normal[0], normal[-1]]
    axes[1].plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
    axes[1].set(xlabel="normal quantile", ylabel="score of the residual")
    for ax in axes:
        tidy(ax)
    return axes


def plot_history(model: Any, *, axes: Any = None) -> Array:
    """Plot the ELBO and the rank of every restart by sweep, with the phases; return both axes.

    A new line begins where a new search does: within a line, the ELBO can only rise.
    """
    result = history(model)
    axes = grid_of_axes(2, axes, width=4.6, height=3.4)
    best = result.best
    for k, (searches, rank) in enumerate(zip(result.searches, result.ranks, strict=True)):
        style = {"color": COLORS[0], "alpha": 1.0 if k == best else 0.35}
        style["linewidth"] = 1.8 if k == best else 1.0
        for search in searches:
            axes[0].plot(search.sweep, search.elbo, **style)
        axes[1].plot(np.arange(1, len(rank) + 1), rank, drawstyle="steps-post", **style)
    every = [search.elbo for searches in result.searches for search in searches]
    seen = np.concatenate([search.elbo for search in result.searches[best]] or [np.zeros(0)])
    if len(seen) > 4 and np.ptp(seen) > 0:  # the first sweeps would hide all others
        low = min(np.quantile(elbo, 0.2) for elbo in every)
        top = max(elbo.max() for elbo in every)
        axes[0].set_ylim(low - 0.1 * (top - low), top + 0.05 * (top - low))
    shade_phases(axes, result.phases[best])
    axes[0].set_xlim(0.5, max(map(len, result.ranks)) + 0.5)
    axes[0].set(xlabel="sweep", ylabel="ELBO")
    axes[1].set(xlabel="sweep", ylabel="rank")
    axes[1].set_ylim(bottom=0.0)
    for ax in axes:
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)
    return axes
