"""Pictures of the scale suites: `draw` writes them."""

from benchmarks.scale import (
    METHODS,
    NAMES,
    UPDATED,
    along,
    exponent,
    fitted,
    median_of,
    pooled,
)
from benchmarks.scale_compare import SIZES, SYNTHETIC
from benchmarks.scale_sweep import LARGE

SWEEP, LIMIT, DEFAULT = "#1f5fa8", "#8a8a8a", "#c8641e"
COLOURS = {
    "btn": "#1f5fa8",
    "btn-short": "#6fa3dc",
    "tnkm": "#7a3fa0",
    "svgp": "#2f8f4e",
    "gp": "#111111",
    "hgb": "#c8641e",
    "ngboost": "#c23b4b",
}
MARKERS = dict(zip(COLOURS, "osD^vPX", strict=True))


def _labelled(label, metrics, name, score):
    power = exponent(metrics, score)
    if power is None:
        return label
    varied, _, less = UPDATED
    more = f", {exponent(metrics, score, less):.2f} in D - 1" if name == varied else ""
    return f"{label}, exponent {power:.2f}{more}"


def _ticks(axis, values):
    """Put a tick at every measured value."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    axis.xaxis.set_major_locator(FixedLocator(list(values)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xticklabels([_short(value) for value in values])


def _plain(axis):
    """Write ticks at 1, 2 and 5 times the powers of ten as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def _short(value):
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _sweeps(plt, records):
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for axis, (name, title) in zip(axes.flat, NAMES.items(), strict=True):
        metrics = along(records, name)
        if not metrics:
            continue
        for score, label, colour, style in (
            ("sweep_seconds", "sweep", SWEEP, "o-"),
            ("limit_seconds", "limit", LIMIT, "s--"),
        ):
            label = _labelled(label, fitted(metrics, name), name, score)
            seconds = [m[score] for m in metrics.values()]
            axis.plot(list(metrics), seconds, style, color=colour, label=label)
        default = along(records, name, "default")
        if default:
            seconds = [m["sweep_seconds"] for m in default.values()]
            label = "sweep below 1.4 GiB, the default"
            axis.plot(list(default), seconds, "^:", color=DEFAULT, label=label)
        axis.set(xscale="log", yscale="log", xlabel=title, ylabel="seconds")
        _plain(axis)
        _ticks(axis, metrics)
        axis.grid(True, which="both", alpha=0.25)
        axis.legend(fontsize=8.5)
    return figure


def _limits(plt, records):
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4.6), layout="constrained", width_ratios=(1, 1.35)
    )
    for method, label, colour, style in (
        ("kept", "memory_limit=18", SWEEP, "o-"),
        ("default", "the default, 1.4", DEFAULT, "^:"),
    ):
        metrics = along(records, "n", method)
        if not metrics:
            continue
        memory = [m["peak_memory_mb"] / 1024 for m in metrics.values()]
        left.plot(list(metrics), memory, style, color=colour, label=label)
    left.set(xscale="log", yscale="log", xlabel="rows n", ylabel="peak memory over the input, GiB")
    _plain(left)
    _ticks(left, along(records, "n"))
    left.grid(True, which="both", alpha=0.25)
    left.legend(fontsize=8.5)
    bars = {}
    for name in NAMES:
        for x, m in along(records, name).items():
            bars[f"{name} = {_short(x)}"] = m["over_limit"]
    large = pooled(records).get((LARGE, "kept"))
    if large is not None:
        bars[f"n = {_short(LARGE.n)}, D = {LARGE.D}"] = large["over_limit"]
    right.bar(list(bars), [100 / ratio for ratio in bars.values()], color=SWEEP)
    right.axhline(50, color=LIMIT, linestyle="--", label="the aim: within twice the limit")
    right.set(ylim=(0, 105), ylabel="limit / sweep, %")
    right.tick_params(axis="x", rotation=90, labelsize=8)
    right.legend(fontsize=8.5, loc="upper right")
    return figure


def _comparison(plt, records):
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.4), layout="constrained")
    titles = {"rmse": "RMSE", "nll": "NLL", "fit_seconds": "seconds of a fit"}
    for axis, (score, title) in zip(axes, titles.items(), strict=True):
        for method, name in METHODS.items():
            values = {
                n: median_of(records, dataset, method, score)
                for n, dataset in zip(SIZES, SYNTHETIC, strict=True)
            }
            values = {n: value for n, value in values.items() if value is not None}
            axis.plot(
                list(values),
                list(values.values()),
                marker=MARKERS[method],
                color=COLOURS[method],
                label=name,
                alpha=0.9,
            )
        axis.set(xscale="log", xlabel="training rows", ylabel=title)
        _ticks(axis, SIZES)
        axis.grid(True, alpha=0.25)
    axes[2].set_yscale("log")
    _plain(axes[2])
    for axis, floor in zip(axes[:2], (1.0, 1.419), strict=True):
        axis.axhline(floor, color=LIMIT, linestyle="--", linewidth=1, label="the noise alone")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9)
    return figure


def draw(records, folder):
    """Write the pictures of the page.

    Parameters
    ----------
    records : dict of str to list of dict
        Those of every suite.
    folder : pathlib.Path
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in {
        "sweep": _sweeps(plt, records["scale-sweep"]),
        "limit": _limits(plt, records["scale-sweep"]),
        "compare": _comparison(plt, records["scale-compare"]),
    }.items():
        # without the version of matplotlib, so that the same results give the same bytes
        figure.savefig(folder / f"{name}.png", dpi=130, metadata={"Software": None})
        plt.close(figure)
