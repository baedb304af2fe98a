"""The figures, all in one style, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .. import printed
from ..experiments import (
    ALL_SETS,
    FUNCTIONS,
    MANY_FUNCTIONS,
    NOISES,
    PRIORS,
    RANK,
    RANKS,
    SETS,
    SYNTHETIC,
    config_of,
    literal_config_of,
    synthetic_config_of,
)
from ..methods import CLASS_DATASETS, METHODS, N_ROWS
from ..synthetic import MAX_RANK, N_FUNCTIONS
from .results import Results
from .tables import NAMES

#: Told apart by people who see colours differently, and in grey.
BLUE, ORANGE, GREEN, GREY = "#2f6db5", "#d9822b", "#3a9a6d", "#8a8f98"
APART = 0.13  # what is measured from what is printed, in the line of a data set
INK, PALE = "#23272e", "#e6e8eb"
RANK_COLOURS = dict(zip(RANKS, (GREEN, BLUE, ORANGE), strict=True))
PRIOR_COLOURS = dict(zip(PRIORS, (BLUE, ORANGE), strict=True))
STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.hashsalt": "btnkm",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "lines.linewidth": 1.6,
}


@contextmanager
def _style() -> Iterator[None]:
    rc: Any = STYLE
    with matplotlib.rc_context(rc):
        yield


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG, the same bytes for the same picture."""
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    with _style():
        for path in paths:
            nothing = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, metadata=nothing, bbox_inches="tight")
    return paths


def figure_3(results: Results) -> Figure | None:
    """Return the estimated factors for one seed, and how often the truth is recovered."""
    runs = {s: results.runs(SYNTHETIC, "btn", synthetic_config_of(s)) for s in NOISES}
    runs = {sigma: of_sigma for sigma, of_sigma in runs.items() if of_sigma}
    if not runs:
        return None
    with _style():
        figure = Figure(figsize=(9.2, 5.6), layout="constrained")
        areas: Any = figure.subfigures(2, 1, height_ratios=[1.25, 1], hspace=0.06)
        top, bottom = areas
        _factors(top, _example(runs[min(runs)]))
        _counts(bottom.subplots(), runs)
    return figure


def _example(records: list[Any]) -> Any:
    """Return the first seed with factors like the paper's, with 1, 4 and 3 functions."""

    def sizes(record: Any) -> list[int]:
        return sorted(len(used) for used in record["metrics"]["support_true"])

    recovered = [r for r in records if r["metrics"]["rank_found"] and r["metrics"]["support_found"]]
    alike = [r for r in recovered if sizes(r) == [1, 3, 4]]
    return (alike or recovered or records)[0]


def _factors(area: Any, record: Any) -> None:
    metrics = record["metrics"]
    area.suptitle(
        f"Seed {record['split']}, noise {record['config']['sigma']:g}: means of the weights. "
        f"{metrics['rank']} of {MAX_RANK} components are left (truth: {metrics['rank_true']}); "
        "what was dropped is hatched",
        fontsize=10,
        fontweight="bold",
    )
    axes = area.subplots(1, len(metrics["factors"]))
    largest = max(np.abs(factor).max() for factor in metrics["factors"])
    for d, (ax, factor) in enumerate(zip(axes, metrics["factors"], strict=True)):
        grid = np.full((N_FUNCTIONS, MAX_RANK), np.nan)
        kept = metrics["support"][d]
        grid[np.ix_(kept, range(metrics["rank"]))] = factor
        ax.set_facecolor("white")
        ax.imshow(grid, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
        for m in range(N_FUNCTIONS):
            for r in range(MAX_RANK):
                if np.isnan(grid[m, r]):
                    box = (r - 0.5, m - 0.5), 1, 1
                    ax.add_patch(_hatched(*box))
                else:
                    shade = "white" if abs(grid[m, r]) > 0.6 * largest else INK
                    ax.text(
                        r, m, f"{grid[m, r]:.2g}", ha="center", va="center", color=shade, fontsize=7
                    )
        precisions = dict(zip(kept, metrics["function_precision"][d], strict=True))
        labels = [f"{precisions[m]:.2g}" if m in precisions else "–" for m in range(N_FUNCTIONS)]
        ax.set_yticks(range(N_FUNCTIONS), labels, fontsize=7)
        of_rank = [f"{value:.2g}" for value in metrics["rank_precision"]]
        ax.set_xticks(range(MAX_RANK), of_rank + ["–"] * (MAX_RANK - len(of_rank)), fontsize=7)
        ax.set_title(f"input {d + 1}")
        ax.set_xlabel(r"$\lambda_R$ of the component")
        ax.grid(visible=False)
        if d == 0:
            ax.set_ylabel(r"$\lambda_M$ of the function")


def _hatched(corner: tuple[float, float], width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        corner, width, height, facecolor="#f4f5f6", edgecolor="#d3d6da", hatch="////", linewidth=0
    )


def _counts(ax: Any, runs: dict[float, list[Any]]) -> None:
    names = {"rank_found": "rank found", "support_found": "functions found"}
    for k, (key, label) in enumerate(names.items()):
        percentages = [
            100 * np.mean([r["metrics"][key] for r in of_sigma]) for of_sigma in runs.values()
        ]
        places = np.arange(len(runs)) + 0.36 * (k - 0.5)
        bars = ax.bar(places, percentages, 0.32, color=(BLUE, GREEN)[k], label=label)
        ax.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
    n = len(next(iter(runs.values())))
    ax.set_xticks(range(len(runs)), [f"noise {sigma:g}" for sigma in runs])
    ax.set_ylim(0, 112)
    ax.set_yticks(range(0, 101, 25))
    ax.set_ylabel(f"% of {n} seeds")
    ax.set_title("How often the truth is found")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.grid(visible=False, axis="x")


def figure_4(results: Results) -> Figure | None:
    """Return rank and ELBO during a fit, for every initial rank."""
    sets = [d for d in SETS if any(_course(results, d, r, "btn") for r in RANKS)]
    if not sets:
        return None
    with _style():
        figure = Figure(figsize=(3.2 * len(sets) + 0.6, 5.2), layout="constrained")
        axes = figure.subplots(2, len(sets), sharex="col", squeeze=False)
        for column, dataset in zip(axes.T, sets, strict=True):
            _draw_courses(column, results, dataset)
            column[0].set_title(NAMES[dataset])
            column[1].set_xlabel("sweep")
        axes[0, 0].set_ylabel("components")
        axes[1, 0].set_ylabel("ELBO, nats per row")
        handles: list[Any] = []
        for ax in axes[:, 0]:
            handles += ax.get_legend_handles_labels()[0]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(sets) + 1))
    return figure


def _course(results: Results, dataset: str, rank: int, method: str) -> Any:
    config = literal_config_of(rank) if method == "literal" else config_of(rank, FUNCTIONS)
    runs = results.runs(dataset, method, config)
    return runs[0]["metrics"].get("course") if runs and runs[0]["split"] == 0 else None


def _draw_courses(axes: Any, results: Results, dataset: str) -> None:
    of_rank, of_bound = axes
    lows, highs, first = [], [], 0
    for rank in RANKS:
        for method, line in (("btn", "-"), ("literal", (0, (2, 1.5)))):
            course = _course(results, dataset, rank, method)
            if course is None:
                continue
            ours = method == "btn"
            style: dict[str, Any] = {"color": RANK_COLOURS[rank], "linestyle": line}
            label = f"from rank {rank}" + ("" if ours else ", the paper's equations")
            sweeps = np.arange(1, len(course["phase"]) + 1)
            exact = np.array([phase in ("exact", "newton", "settle") for phase in course["phase"]])
            ranks = np.array(course["rank"], dtype=float)
            bound = np.array([np.nan if b is None else b for b in course["bound"]])
            bound /= int(0.9 * N_ROWS[dataset])  # training rows
            of_rank.plot(sweeps, ranks, **{**style, "linewidth": 0.8})
            of_rank.plot(sweeps, np.where(exact, ranks, np.nan), label=label, **style)
            of_bound.plot(sweeps, bound, **style)
            begun = np.flatnonzero(exact & ~np.concatenate([[False], exact[:-1]]))
            of_bound.plot(sweeps[begun], bound[begun], "o", color=style["color"], markersize=3.5)
            highs.append(np.nanmax(bound))
            if ours:
                lows.append(np.nanmin(bound))
                first = max(first, int(begun[0]))
    low, high = min(lows), max(highs)
    of_bound.set_ylim(low - 0.35 * (high - low), high + 0.06 * (high - low))
    of_rank.set_ylim(0, max(RANKS) * 1.06)
    for ax in axes:
        shade = ax.axvspan(0, first + 0.5, color=PALE, alpha=0.7, linewidth=0)
        ax.margins(x=0.01)
    shade.set_label("our warm phase, without an ELBO")


def figure_5(results: Results) -> Figure | None:
    """Return the effective number of functions of each input, with and without lambda_M."""
    counts = {
        (dataset, m, prior): counts
        for dataset in SETS
        for m in MANY_FUNCTIONS
        for prior in PRIORS
        if (counts := _functions(results, dataset, m, prior)) is not None
    }
    sets = [d for d in SETS if any(key[0] == d for key in counts)]
    if not sets:
        return None
    with _style():
        figure = Figure(figsize=(3.2 * len(sets) + 0.6, 4.8), layout="constrained")
        axes = figure.subplots(len(MANY_FUNCTIONS), len(sets), squeeze=False, sharey="row")
        for row, m in zip(axes, MANY_FUNCTIONS, strict=True):
            for ax, dataset in zip(row, sets, strict=True):
                for k, prior in enumerate(PRIORS):
                    heights = counts.get((dataset, m, prior))
                    if heights is None:
                        continue
                    places = np.arange(1, len(heights) + 1) + 0.4 * (k - 0.5)
                    colour = PRIOR_COLOURS[prior]
                    ax.bar(places, heights, 0.36, color=colour, label=rf"$\lambda_M$ {prior}")
                    ax.set_xticks(range(1, len(heights) + 1))
                ax.grid(visible=False, axis="x")
                if not ax.patches:
                    ax.set_axis_off()
            row[0].set_ylabel(f"functions that count, of {m}")
        for ax, dataset in zip(axes[0], sets, strict=True):
            ax.set_title(NAMES[dataset])
        for ax in axes[-1]:
            ax.set_xlabel("input")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _functions(results: Results, dataset: str, m: int, prior: str) -> Any:
    runs = results.runs(dataset, "btn", config_of(RANK, m, prior))
    counts = [r["metrics"]["functions"] for r in runs if "functions" in r["metrics"]]
    return np.mean(counts, axis=0) if counts else None


def figure_of_table_4(results: Results) -> Figure | None:
    """Return every method's error as a multiple of ours."""
    shown = {
        "gp": ("o", GREY),
        "gp-ard": ("s", GREEN),
        "tkrr": ("^", ORANGE),
        "spbtn": ("D", "#8e5bb0"),
        "literal": ("X", INK),
    }
    sets = [d for d in ALL_SETS if _error(results, d, "btn") is not None]
    if not sets:
        return None
    with _style():
        figure = Figure(figsize=(8.4, 0.52 * len(sets) + 1.5), layout="constrained")
        ax = figure.subplots()
        for place, dataset in enumerate(reversed(sets)):
            ours = _error(results, dataset, "btn")
            assert ours is not None
            stated = printed.TABLE_4[dataset]["error"]
            for method, (marker, colour) in shown.items():
                error = _error(results, dataset, method)
                label = METHODS[method].label if place == 0 else None
                if error is not None:
                    ax.plot(error / ours, place + APART, marker, color=colour, markersize=7)
                if stated.get(method) is not None:
                    ax.plot(
                        stated[method][0] / ours,
                        place - APART,
                        marker,
                        color=colour,
                        markersize=7,
                        fillstyle="none",
                    )
                if label:
                    ax.plot([], [], marker, color=colour, label=label)
            printed_by = stated["btn"][0] / ours
            ax.plot(printed_by, place - APART, "v", color=BLUE, markersize=7, fillstyle="none")
        ax.plot([], [], "v", color=BLUE, fillstyle="none", label="BTN as printed")
        ax.axvline(1.0, color=BLUE, linewidth=2.2)
        ax.annotate(
            "btnkm", (1.0, 1.01), xycoords=("data", "axes fraction"), color=BLUE, ha="center"
        )
        ax.set_xscale("log")
        ticks = [0.8, 1, 1.5, 2, 3, 4, 6, 9, 13]
        low, high = ax.get_xlim()
        ax.set_xticks([t for t in ticks if low <= t <= high], minor=False)
        ax.set_xticks([], minor=True)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        ax.set_yticks(range(len(sets)), [NAMES[d] for d in reversed(sets)])
        ax.set_ylim(-0.5, len(sets) - 0.5)
        ax.set_xlabel(
            "RMSE or fraction of wrong labels, as a multiple of btnkm's; hollow: as printed"
        )
        figure.legend(loc="outside lower center", ncols=6, fontsize=8, columnspacing=1.2)
    return figure


def _error(results: Results, dataset: str, method: str) -> float | None:
    score = "error" if dataset in CLASS_DATASETS else "rmse"
    summary = results.summary(dataset, method, METHODS[method].config(dataset), score)
    return None if summary is None else summary.mean


FIGURES = {
    "fig3": figure_3,
    "fig4": figure_4,
    "fig5": figure_5,
    "table4": figure_of_table_4,
}
