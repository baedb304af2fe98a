"""Pictures of explanations, by matplotlib. Each returns the axes it drew on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check_integer
from ..core.arrays import here
from .components import components
from .diagnostics import Calibration, calibration, history, residuals
from .drawing import (
    COLORS,
    FEW_CLASSES,
    MOST_BARS,
    MOST_INPUTS,
    TOO_LITTLE,
    bars_axes,
    classes,
    color_of,
    curve,
    draw_effect,
    grid_of_axes,
    in_units,
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
    """Draw main effects with credible bands, the inputs that matter most first.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is the ``most`` that explain most of the variance, each at least half a hundredth.
    most : int, default=12
    level : float, default=0.95
        Of the bands.
    sharey : bool, default=True
        Whether all have one scale, so that effects can be compared, or each its own.
    axes : array of matplotlib axes, or None
        As many as inputs; None makes a figure.

    Returns
    -------
    ndarray of matplotlib axes
    """
    left_out = 0
    check_integer("most", most, 1)
    if inputs is not None and len(inputs) == 0:
        raise ValueError("inputs must name at least one input, got none; leave it out for all.")
    if inputs is None:
        inputs = worth_showing(model)[:most].tolist()
        left_out = len(model.columns_) - len(inputs)
    found = effects(model, inputs, level=level)
    made = axes is None
    axes = grid_of_axes(len(found), axes)
    for one, ax in zip(found, axes, strict=True):
        draw_effect(ax, one)
    if sharey:
        same_scale(axes)
    if made:
        figure = axes[0].figure
        figure.supylabel(f"effect on {found[0].unit}", fontsize="medium")
        if left_out:
            told = "one input that explains" if left_out == 1 else f"{left_out} inputs that explain"
            figure.supxlabel(f"not shown: {told} less", fontsize="small")
        if found[0].outputs is not None:
            legend_of_classes(figure, found[0].outputs)
    return axes


def plot_interaction(model: Any, first: Any, second: Any, *, ax: Any = None) -> Any:
    """Draw what two inputs do together beyond what each does alone, and return the axes.

    With more than two classes, for the class in which that is most.
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
    ax.figure.colorbar(mesh, ax=ax, label=f"joint effect on {surface.unit}")
    return ax


def plot_interactions(model: Any, *, most: int = 15, ax: Any = None) -> Any:
    """Draw the pairs of inputs that add most to the variance, as bars, and return the axes."""
    pairs = interactions(model, most=most)
    if not pairs:
        raise ValueError("a model must have two inputs for an interaction, got one; see effects.")
    pairs = [pair for pair in pairs if pair.importance > TOO_LITTLE / 5] or pairs[:1]
    names = [" × ".join(map(str, pair.names)) for pair in pairs]
    ax = bars_axes(ax, len(pairs))
    ax.barh(range(len(pairs)), [100.0 * pair.importance for pair in pairs], color=COLORS[0])
    name_bars(ax, names)
    ax.set_xlabel("share of the variance that the pair adds (%)")
    return ax


def plot_importances(model: Any, *, most: int = MOST_BARS, ax: Any = None) -> Any:
    """Draw what every input explains of the variance, alone and with others; return the axes."""
    shares = sobol_indices(model)
    order = shares.order[:most]
    ax = bars_axes(ax, len(order))
    places = np.arange(len(order))
    error = {"ecolor": "0.35", "elinewidth": 1.0, "capsize": 0}
    total, first = 100.0 * shares.total[order], 100.0 * shares.first[order]
    spread = 100.0 * shares.total_std[order]
    low = np.minimum(spread, total)
    ax.barh(places, total, color=COLORS[0], alpha=0.35, label="with other inputs")
    ax.barh(places, first, color=COLORS[0], label="alone")
    ax.errorbar(total, places, xerr=[low, spread], fmt="none", **error)
    left_out = len(shares.names) - len(order)
    name_bars(ax, [str(shares.names[j]) for j in order])
    more = f"\n{left_out} more inputs explain less" if left_out else ""
    ax.set_xlabel(f"share of the variance (%) ± std{more}")
    ax.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2
    )
    return ax


def plot_local(model: Any, X: Any, *, row: int = 0, most: int = 12, ax: Any = None) -> Any:
    """Draw what each input contributes to one row's prediction, and return the axes.

    With more than two classes, to the one that ``predict`` says.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    X : table of shape (n, inputs)
    row : int, default=0
        Which of its rows.
    most : int, default=12
        Inputs shown; the others are one bar.
    ax : matplotlib axes or None
    """
    table = _one_row(here(X), row)
    local = explain_local(model, table)
    own, std = local.contributions[0], local.std[0]
    base, prediction, unit = local.base, local.prediction[0], local.unit
    if local.outputs is not None:
        k = int(np.argmax(model.predict_proba(table)[0]))
        own, std, base, prediction = own[:, k], std[:, k], base[k], prediction[k]
        unit = f"{unit} of {local.outputs[k]}"
    order = np.argsort(-np.abs(own), kind="stable")
    shown, rest = order[:most], order[most:]
    raw = raw_values(table, len(own))
    names = [f"{local.names[j]} = {raw[j]}" if raw else str(local.names[j]) for j in shown]
    values, spreads = list(own[shown]), list(std[shown])
    if len(rest):
        names.append("one other input" if len(rest) == 1 else f"{len(rest)} other inputs")
        values.append(float(np.sum(own[rest])))
        spreads.append(np.nan)  # theirs depend on each other
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
        raise ValueError(f"row must be one of {n} rows of X, got {row}; the first is 0.")
    row %= n
    return X.iloc[[row]] if hasattr(X, "iloc") else X[row : row + 1]


def plot_components(model: Any, *, most: int = 6, widest: int = 5) -> Array:
    """Draw the largest components, a row each, with the inputs that vary most in them.

    Where there are none, as in a model of main effects alone, the axes say so.

    Returns
    -------
    ndarray of matplotlib axes, of shape (components, inputs shown)
    """
    import matplotlib.pyplot as plt

    check_integer("most", most, 1)
    every = components(model)
    found = [one for one in every if one.factors][:most]
    if not found:
        told = "no component varies" if every else "no tensor of low rank"
        return np.array([[_note(told)]])
    width = max(1, min(widest, max(len(one.factors) for one in found)))
    figure, axes = plt.subplots(
        len(found),
        width,
        figsize=(2.5 * width + 0.6, 1.9 * len(found) + 0.3),
        layout="constrained",
        squeeze=False,
    )
    for one, line in zip(found, axes, strict=True):
        for ax in line:
            ax.set_visible(False)
        line[0].set_visible(True)
        for factor, ax in zip(one.factors, line, strict=False):
            ax.set_visible(True)
            curve(ax, factor.kind, factor.values, factor.mean, factor.std, COLORS[0], BAND)
            ax.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
            unit = in_units(factor.values)[1]
            ax.set_xlabel(wrapped(f"{factor.name}{unit}"), fontsize="small")
            ax.tick_params(labelsize="x-small")
            tidy(ax)
        size = one.amplitude if np.ndim(one.amplitude) == 0 else np.max(np.abs(one.amplitude))
        line[0].set_ylabel(f"{size:+.3g} ×\n({one.importance:.0%})", fontsize="small")
    return axes


def _note(text: str) -> Any:
    """Return axes with nothing on them but a text."""
    ax = one_axes(None, (4.0, 1.2))
    ax.text(0.5, 0.5, text, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax


def plot_functions(
    model: Any, inputs: Sequence[Any] | None = None, *, most: int = MOST_INPUTS, axes: Any = None
) -> Array:
    """Draw how much each basis function of an input counts: those that were kept.

    An input with a main effect beside the tensor has two axes, one for each.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    inputs : list of names or positions, or None
        None is the ``most`` that explain most of the variance.
    most : int, default=12
    axes : array of matplotlib axes, or None
    """
    if inputs is None:
        inputs = worth_showing(model)[:most].tolist()
    found = functions(model, inputs)
    if not found:
        return np.array([_note("a full tensor has no basis functions")])
    made = axes is None
    axes = grid_of_axes(len(found), axes, height=1.9)
    for one, ax in zip(found, axes, strict=True):
        ax.bar(one.numbers, np.maximum(one.importance, 1e-12), color=COLORS[0])
        ax.set_yscale("log")
        ax.set_ylim(1e-6, 1.5)
        both = len({other.part for other in found if other.name == one.name}) > 1
        ax.set_title(wrapped(f"{one.name} ({one.part})" if both else one.name), fontsize="medium")
        dropped = f", {one.dropped} dropped" if one.dropped else ""
        ax.set_xlabel(f"function ({len(one.numbers)} kept{dropped})", fontsize="small")
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)
    if made:
        axes[0].figure.supylabel("share of the input's squared weights", fontsize="medium")
    return axes


def plot_partial_dependence(model: Any, X: Any, name: Any, *, ax: Any = None) -> Any:
    """Draw the average prediction of rows X along one input, with its band; return the axes."""
    found = partial_dependence(model, X, name)
    ax = one_axes(ax, (4.6, 3.4))
    for k, color in classes(found.outputs):
        mean, std = (found.mean, found.std) if k is None else (found.mean[:, k], found.std[:, k])
        curve(ax, found.kind, found.values, mean, std, color, BAND)
    unit = in_units(found.values)[1]
    ax.set(xlabel=wrapped(f"{found.name}{unit}"), ylabel=f"average {found.unit}")
    tidy(ax)
    return ax


def plot_calibration(model: Any, X: Any, y: Any, *, axes: Any = None) -> Array:
    """Draw coverage of intervals and the PIT histogram, or the reliability of probabilities.

    Returns
    -------
    ndarray of matplotlib axes: two of a regressor, one of a classifier
    """
    found = calibration(model, X, y)
    if not isinstance(found, Calibration):
        axes = grid_of_axes(1, axes, width=4.6, height=4.2)
        ax = axes[0]
        for k, label in enumerate(found.classes):
            color = color_of(k, len(found.classes))
            error = [found.predicted[k] - found.low[k], found.high[k] - found.predicted[k]]
            ax.errorbar(
                found.predicted[k],
                found.predicted[k],
                yerr=np.maximum(error, 0.0),
                fmt="none",
                ecolor=color,
                alpha=0.25,
                elinewidth=5,
            )
            ax.plot(found.predicted[k], found.observed[k], "o-", color=color, label=str(label))
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
        ax.set(xlabel="probability predicted", ylabel="share observed", aspect="equal")
        side = len(found.classes) > FEW_CLASSES
        place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if side else {}
        ax.legend(frameon=False, title="class", **(place or {"loc": "upper left"}))
        tidy(ax)
        return axes
    axes = grid_of_axes(2, axes, width=4.4, height=3.8)
    ax = axes[0]
    ax.fill_between(
        found.levels,
        found.low,
        found.high,
        color=COLORS[0],
        alpha=0.18,
        linewidth=0,
        label="9 in 10 honest models",
    )
    ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8, zorder=0)
    ax.plot(found.levels, found.coverage, "o-", color=COLORS[0], label=f"{found.n:,} rows")
    ax.set(xlabel="probability of the interval", ylabel="share of rows it holds", aspect="equal")
    ax.legend(frameon=False, loc="upper left")
    ax = axes[1]
    edges = np.linspace(0.0, 1.0, len(found.histogram) + 1)
    low, high = (float(np.interp(0.1, found.levels, end)) for end in (found.low, found.high))
    ax.axhspan(low, high, color=COLORS[0], alpha=0.18, linewidth=0)
    ax.stairs(found.histogram, edges, fill=True, color=COLORS[0], alpha=0.8)
    ax.axhline(0.1, color="0.6", linewidth=0.8)
    ax.set(xlabel="P(Y ≤ y) as predicted", ylabel="share of rows", xlim=(0, 1))
    for ax in axes:
        tidy(ax)
    return axes


def plot_residuals(model: Any, X: Any, y: Any, *, axes: Any = None) -> Array:
    """Draw scores of the residuals against predictions and against a normal; return both axes."""
    from scipy.special import ndtri

    found = residuals(model, X, y)
    axes = grid_of_axes(2, axes, width=4.4, height=3.6)
    n = len(found.score)
    size = float(np.clip(200.0 / np.sqrt(n), 2.0, 18.0))
    axes[0].scatter(found.fitted, found.score, s=size, color=COLORS[0], alpha=0.6, linewidths=0)
    for edge in (-1.96, 0.0, 1.96):
        axes[0].axhline(edge, color="0.6", linewidth=0.8, linestyle="-" if edge == 0 else ":")
    axes[0].set(xlabel="predicted mean", ylabel="score of the residual")
    axes[0].locator_params(axis="x", nbins=5)
    normal = ndtri((np.arange(n) + 0.5) / n)
    axes[1].scatter(normal, np.sort(found.score), s=size, color=COLORS[0], linewidths=0)
    ends = [normal[0], normal[-1]]
    axes[1].plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
    axes[1].set(xlabel="normal quantile", ylabel="score of the residual")
    for ax in axes:
        tidy(ax)
    return axes


def plot_history(model: Any, *, axes: Any = None) -> Array:
    """Draw the ELBO and the rank of every restart by sweep, and the phases; return both axes.

    A new line begins where a new search does: within a line, the ELBO can only rise.
    """
    found = history(model)
    axes = grid_of_axes(2, axes, width=4.6, height=3.4)
    best = found.best
    for k, (searches, rank) in enumerate(zip(found.searches, found.ranks, strict=True)):
        style = {"color": COLORS[0], "alpha": 1.0 if k == best else 0.35}
        style["linewidth"] = 1.8 if k == best else 1.0
        for search in searches:
            axes[0].plot(search.sweep, search.elbo, **style)
        axes[1].plot(np.arange(1, len(rank) + 1), rank, drawstyle="steps-post", **style)
    every = [search.elbo for searches in found.searches for search in searches]
    seen = np.concatenate([search.elbo for search in found.searches[best]] or [np.zeros(0)])
    if len(seen) > 4 and np.ptp(seen) > 0:  # the first sweeps would hide all others
        low = min(np.quantile(elbo, 0.2) for elbo in every)
        top = max(elbo.max() for elbo in every)
        axes[0].set_ylim(low - 0.1 * (top - low), top + 0.05 * (top - low))
    shade_phases(axes, found.phases[best])
    axes[0].set_xlim(0.5, max(map(len, found.ranks)) + 0.5)
    axes[0].set(xlabel="sweep", ylabel="ELBO")
    axes[1].set(xlabel="sweep", ylabel="rank")
    axes[1].set_ylim(bottom=0.0)
    for ax in axes:
        ax.xaxis.get_major_locator().set_params(integer=True)
        tidy(ax)
    return axes
