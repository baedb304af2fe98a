"""Parts of plots: axes, curves with bands, bars and their labels."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from .coverage import GroupedCoverage
from .effects import Effect, half_width
from .fitted import MISSING, in_units
from .sobol import sobol_indices

Array = np.ndarray
# distinguishable with colour blindness, and in grey
COLORS = ["#2f6fb3", "#d1661f", "#3a8f5c", "#9a4fa3", "#b8860b", "#4d4d4d"]
MOST_INPUTS, MOST_BARS, MOST_CATEGORIES = 12, 30, 15
FEW_CLASSES = 6  # that a legend inside the axes has room for
FEW_VALUES = 6  # of a number, drawn as points instead of a line
TOO_LITTLE = 0.005  # importance below which an input is not shown
BAR = 0.2  # of the height of the axes: the bar of the widest intervals
LONGEST = 22  # characters of a name in one line


def shade_phases(axes: Array, phases: list[str]) -> None:
    """Shade the phases, and name them above the first axes."""
    begin = 0
    for end in range(1, len(phases) + 1):
        if end == len(phases) or phases[end] != phases[begin]:
            shade = {"warm": 0.10, "annealing": 0.05}.get(phases[begin], 0.0)
            for ax in axes:
                ax.axvspan(begin + 0.5, end + 0.5, color="black", alpha=shade, linewidth=0)
            if end - begin > 0.06 * len(phases):
                axes[0].text(
                    0.5 * (begin + end) + 0.5,
                    1.01,
                    phases[begin],
                    fontsize="x-small",
                    ha="center",
                    va="bottom",
                    transform=axes[0].get_xaxis_transform(),
                )
            begin = end


def draw_effect(ax: Any, effect: Effect) -> None:
    """Draw an effect with its band, spikes and missing values on some axes."""
    wide = half_width(effect.level)
    for k, color in classes(effect.outputs):

        def of(array: Any, k: int | None = k) -> Any:
            return array if k is None else array[..., k]

        mean, std = of(effect.mean), of(effect.std)
        curve(ax, effect.kind, effect.values, mean, std, color, wide)
        if len(effect.spikes["values"]):
            ax.errorbar(
                in_units(effect.spikes["values"])[0],
                of(effect.spikes["mean"]),
                wide * of(effect.spikes["std"]),
                fmt="D",
                markersize=3.5,
                color=color,
                elinewidth=1,
            )
        if effect.missing is not None and effect.kind != "category":
            at, spread = float(of(effect.missing["mean"])), float(of(effect.missing["std"]))
            ax.errorbar(
                [1.04],
                [at],
                [wide * spread],
                fmt="s",
                markersize=4,
                color=color,
                elinewidth=1,
                transform=ax.get_yaxis_transform(),
                clip_on=False,
            )
            ax.text(
                1.04,
                1.0,
                "missing",
                transform=ax.transAxes,
                fontsize="x-small",
                ha="center",
                va="bottom",
                color="0.35",
            )
    ax.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
    if effect.kind != "category" and len(effect.rows):
        inner = in_units(effect.rows)[0][1:-1]
        ax.plot(
            inner,
            np.zeros(len(inner)),
            "|",
            color="0.35",
            markersize=5,
            transform=ax.get_xaxis_transform(),
            clip_on=False,
        )
    ax.set_title(wrapped(f"{effect.name}{in_units(effect.values)[1]}"), fontsize="medium")
    tidy(ax)


def draw_coverage(ax: Any, part: GroupedCoverage) -> None:
    """Draw the coverage of groups of rows on some axes, above bars of the widths of intervals."""
    at = np.arange(len(part.labels), dtype=float)
    at[[label == MISSING for label in part.labels]] += 0.25 * (part.kind != "category")
    error = np.array([part.coverage - part.low, part.high - part.coverage])
    for differs, color, marker in ((False, COLORS[0], "o"), (True, COLORS[1], "D")):
        k = np.flatnonzero(part.differs == differs)
        ax.errorbar(
            at[k],
            part.coverage[k],
            np.maximum(error[:, k], 0.0),
            fmt=marker,
            markersize=5,
            color=color,
            elinewidth=1.4,
            capsize=0,
        )
        if differs:
            for i in k:
                ax.annotate(
                    f"{part.coverage[i]:.0%}",
                    (at[i], part.coverage[i]),
                    (5, 0),
                    textcoords="offset points",
                    fontsize="x-small",
                    va="center",
                    color=color,
                )
    widths = np.where(np.isfinite(part.width), part.width, np.nan)
    heights = BAR * widths / np.nanmax(widths, initial=1e-300)
    ax.bar(at, heights, 0.7, color="0.85", transform=ax.get_xaxis_transform(), zorder=0)
    line = {"color": "0.35", "linewidth": 0.9, "linestyle": "--", "zorder": 1}
    for middle, expected in zip(at, part.expected, strict=True):
        ax.plot([middle - 0.5, middle + 0.5], [expected, expected], **line)
    category, unit = part.kind in ("category", "range"), in_units(part.lowest)[1]
    labels = [
        short(label) if category else label.replace(unit.replace("(", "").replace(")", ""), "")
        for label in part.labels
    ]
    ax.set_xticks(at, [label.replace(" to ", "\nto ") for label in labels], fontsize="x-small")
    if (category and sum(map(len, labels)) > 24) or max(map(len, labels)) > 22:
        ax.tick_params(axis="x", rotation=90 if len(labels) > 5 else 35)
    ax.set_xlim(-0.6, at[-1] + 0.6)
    ax.set_title(wrapped(f"{part.name}{unit}"), fontsize="medium")
    tidy(ax)


def curve(
    ax: Any, kind: str, values: Array, mean: Array, std: Array, color: str, wide: float
) -> None:
    """Draw a line with its band, or for categories points with bars."""
    if kind != "category":
        values, _ = in_units(values)
        low, high = mean - wide * std, mean + wide * std
        if len(values) <= FEW_VALUES:
            ax.plot(values, mean, color=color, linewidth=0.8, alpha=0.5)
            ax.errorbar(values, mean, wide * std, fmt="o", markersize=4, color=color)
        else:
            ax.fill_between(values, low, high, color=color, alpha=0.2, linewidth=0)
            ax.plot(values, mean, color=color, linewidth=1.6)
        label_values(ax.xaxis, values)
        return
    order = np.arange(len(values))
    if len(values) > MOST_CATEGORIES:
        ends = np.argsort(-mean, kind="stable")
        order = np.append(ends[: MOST_CATEGORIES // 2 + 1], ends[-(MOST_CATEGORIES // 2) :])
    places = np.arange(len(order))
    ax.errorbar(
        places, mean[order], wide * std[order], fmt="o", markersize=4, color=color, elinewidth=1.4
    )
    if len(values) > MOST_CATEGORIES:
        ax.axvline(MOST_CATEGORIES // 2 + 0.5, color="0.6", linestyle=":", linewidth=1.0)
        ax.set_xlabel(f"the highest and lowest of {len(values)} categories", fontsize="small")
    label_values(ax.xaxis, values[order])
    ax.set_xlim(-0.6, len(order) - 0.4)


def worth_showing(model: Any) -> Array:
    """Return the inputs that are important enough to show, or the most important one; in order."""
    indices = sobol_indices(model, draws=2)  # draws are for standard deviations only
    return indices.order[: max(1, int(np.sum(indices.total > TOO_LITTLE)))]


def short(category: Any) -> str:
    """Return the name of a category for a tick label."""
    text = str(category).replace("$", r"\$") or "(empty)"
    return text if len(text) <= 18 else text[:17] + "…"


def places(values: Array) -> Array:
    """Return positions on an axis: categories one after the other."""
    return np.arange(len(values)) if values.dtype == object else values


def label_values(axis: Any, values: Array) -> None:
    """Label the ticks with categories, or with few and short dates."""
    if values.dtype == object:
        upright = axis.axis_name == "x" and sum(len(str(v)) for v in values) > 24
        steep = 35 if len(values) <= 7 else 90
        axis.set_ticks(
            range(len(values)),
            [short(v) for v in values],
            fontsize="small",
            rotation=steep if upright else 0,
            ha="right" if upright or axis.axis_name == "y" else "center",
            **({"rotation_mode": "anchor", "va": "center"} if upright else {}),
        )
    elif values.dtype.kind == "M":
        import matplotlib.dates as dates

        locator = dates.AutoDateLocator(minticks=2, maxticks=5)
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))


def grid_of_axes(count: int, axes: Any, width: float = 3.0, height: float = 2.4) -> Array:
    """Return so many axes, those given or those of a new figure."""
    if axes is not None:
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(given) < count:
            raise ValueError(
                f"axes must have at least {count} entries, got {len(given)}; pass more axes."
            )
        return given[:count]
    import matplotlib.pyplot as plt

    columns = min(count, 4 if count > 6 else 3)
    lines = -(-count // columns)
    figure, made = plt.subplots(
        lines,
        columns,
        figsize=(width * columns + 0.4, height * lines + 0.4),
        layout="constrained",
        squeeze=False,
    )
    for ax in made.ravel()[count:]:
        figure.delaxes(ax)
    return np.asarray(made.ravel()[:count])


def one_axes(ax: Any, size: tuple[float, float]) -> Any:
    """Return the given axes, or those of a new figure of this size."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def bars_axes(ax: Any, count: int) -> Any:
    """Return the given axes, or new ones with room for so many bars."""
    return one_axes(ax, (6.2, 0.28 * count + 1.1))


def name_bars(ax: Any, names: list[str]) -> None:
    """Label bars from top to bottom."""
    ax.set_yticks(range(len(names)), [wrapped(n, 40) for n in names], fontsize="small")
    ax.invert_yaxis()
    ax.margins(y=0.02)
    tidy(ax)


def same_scale(axes: Array) -> None:
    """Give all axes the same range, so that effects can be compared."""
    limits = np.array([ax.get_ylim() for ax in axes])
    for ax in axes:
        ax.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def classes(outputs: list[Any] | None) -> list[tuple[int | None, str]]:
    """Return position and colour of every class; the position is None without classes."""
    if outputs is None:
        return [(None, COLORS[0])]
    return [(k, color_of(k, len(outputs))) for k in range(len(outputs))]


def color_of(k: int, count: int) -> Any:
    """Return the colour of class k of ``count``."""
    if count <= len(COLORS):
        return COLORS[k]
    import matplotlib

    return matplotlib.colormaps["turbo"](0.05 + 0.9 * k / (count - 1))


def legend_of_classes(figure: Any, outputs: list[Any]) -> None:
    """Add a legend of the classes above a figure."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=color) for _, color in classes(outputs)]
    figure.legend(
        lines,
        [str(o) for o in outputs],
        loc="outside upper center",
        ncols=min(len(outputs), 6),
        frameon=False,
        title="class",
    )


def wrapped(name: Any, longest: int = LONGEST) -> str:
    """Return a name in short lines; a dollar sign begins no formula."""
    text = str(name).replace("$", r"\$")
    lines = textwrap.wrap(text, longest, break_long_words=True) or [""]
    return "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1][: longest - 1] + "…"])


def tidy(ax: Any) -> None:
    """Remove the upper and the right line of the frame."""
    ax.spines[["top", "right"]].set_visible(False)


def raw_values(table: Any, count: int) -> list[str]:
    """Return the values of a table's first row as text."""
    from ..data.frames import split_columns

    columns, _ = split_columns(table)
    out = []
    for column in columns[:count]:
        value = column[0]
        missing = value is None or value != value
        number = not missing and column.dtype.kind == "f"
        text = str(value).removesuffix(".000000").removesuffix("T00:00:00")
        if column.dtype.kind == "m" and not missing:
            text = str(value.astype("m8[s]").item())
        out.append("missing" if missing else f"{value:.4g}" if number else text[:20])
    return out
