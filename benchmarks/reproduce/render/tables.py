"""The tables: what is printed, what we find, and the difference, as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
    methods_of,
    synthetic_config_of,
)
from ..methods import CLASS_DATASETS, METHODS
from .results import ORIGIN, Record, Results, Summary, provenance

NAMES = {
    "yacht": "Yacht",
    "energy-paper": "Energy",
    "concrete": "Concrete",
    "airfoil": "Airfoil",
    "spambase": "Spambase",
    "adult-96": "Adult",
}
SCORES = {
    "rmse": "RMSE",
    "error": "error",
    "nll": "NLL",
    "nll_of_signs": "NLL of ±1",
    "rank": "effective rank",
}
#: Within so much of the best setting the RMSE (as a share) and the NLL must stay.
RMSE_TOLERANCE, NLL_TOLERANCE = 0.05, 0.1


class Row(NamedTuple):
    """One entry of a table of the paper: where it stands, what is printed, what we find."""

    place: tuple[str, ...]
    score: str
    printed: printed.Figure | None
    ours: Summary | None


class Table(NamedTuple):
    """A table: the headings of what tells rows apart, and the rows."""

    name: str
    caption: str
    places: tuple[str, ...]
    rows: list[Row]


class Plain(NamedTuple):
    """A table of text, and the runs that each of its rows is of."""

    name: str
    caption: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    runs: list[list[Record]]


def number(value: float, rank: bool = False) -> str:
    """Return a number with three decimals, or fewer where it is large; a rank with one."""
    decimals = 1 if rank or abs(value) >= 100 else 3 if abs(value) < 10 else 2
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")  # never −0


def figure(entry: printed.Figure | Summary | None, rank: bool = False) -> str:
    """Return mean and spread as text; a dash where there is none."""
    if entry is None:
        return "–"
    mean, spread = entry[:2]
    return number(mean, rank) + ("" if spread is None else f" ± {number(spread, rank)}")


def _difference(row: Row) -> str:
    if row.printed is None or row.ours is None:
        return "–"
    change = row.ours.mean - row.printed[0]
    return ("+" if change >= 0 else "") + number(change, row.score == "rank")


def as_plain(table: Table) -> Plain:
    """Return a table as text: printed, ours, difference."""
    rows = [
        (
            *row.place,
            SCORES[row.score],
            figure(row.printed, row.score == "rank"),
            figure(row.ours, row.score == "rank"),
            _difference(row),
            str(len(row.ours.records)) if row.ours else "–",
        )
        for row in table.rows
    ]
    headings = (*table.places, "score", "printed", "ours", "difference", "splits")
    runs = [row.ours.records if row.ours else [] for row in table.rows]
    return Plain(table.name, table.caption, headings, rows, runs)


def as_markdown(table: Table | Plain) -> str:
    """Return a table in Markdown."""
    plain = as_plain(table) if isinstance(table, Table) else table
    lines = [" | ".join(cells) for cells in (plain.headings, *plain.rows)]
    rule = "|".join("---" for _ in plain.headings)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def as_csv(table: Table | Plain) -> str:
    """Return a table, with all digits if they are known, and where each row comes from."""
    if isinstance(table, Plain):
        return _plain_csv(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("printed", "printed ±", "ours", "ours ±", "difference")
    writer.writerow((*table.places, "score", *figures, *ORIGIN))
    for row in table.rows:
        stated = row.printed or ("", "")
        ours: tuple[Any, ...] = (row.ours.mean, row.ours.spread) if row.ours else ("", "")
        both = row.printed is not None and row.ours is not None
        change = ours[0] - stated[0] if both else ""
        of = provenance(row.ours.records if row.ours else [])
        texts = (_short(v) for v in (*stated, *ours, change))
        writer.writerow((*row.place, SCORES[row.score], *texts, *of.values()))
    return out.getvalue()


def _plain_csv(table: Plain) -> str:
    """Return a table of text as it is, and where each row comes from."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*table.headings, *ORIGIN))
    for row, runs in zip(table.rows, table.runs, strict=True):
        writer.writerow((*(cell.replace("**", "") for cell in row), *provenance(runs).values()))
    return out.getvalue()


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _measured(rows: Iterator[Row]) -> list[Row]:
    """Return the rows of data sets that were run at all."""
    rows_ = list(rows)
    present = {row.place[0] for row in rows_ if row.ours is not None}
    return [row for row in rows_ if row.place[0] in present]


def table_1(results: Results) -> Table:
    """Return RMSE and NLL by initial rank."""

    def rows() -> Iterator[Row]:
        for dataset in SETS:
            for score in ("rmse", "nll"):
                for rank in RANKS:
                    ours = results.summary(dataset, "btn", config_of(rank, FUNCTIONS), score)
                    stated = printed.TABLE_1[dataset][score][rank]
                    yield Row((NAMES[dataset], str(rank)), score, stated, ours)

    return Table("table1", "Error by initial rank", ("data set", "initial rank"), _measured(rows()))


def table_2(results: Results) -> Table:
    """Return the effective rank by initial rank."""

    def rows() -> Iterator[Row]:
        for dataset in SETS:
            for rank in RANKS:
                ours = results.summary(dataset, "btn", config_of(rank, FUNCTIONS), "rank")
                place = (NAMES[dataset], str(rank))
                yield Row(place, "rank", printed.TABLE_2[dataset][rank], ours)

    places = ("data set", "initial rank")
    return Table("table2", "Effective rank by initial rank", places, _measured(rows()))


def table_3(results: Results) -> Table:
    """Return scores by number of functions, with and without lambda_M."""

    def rows() -> Iterator[Row]:
        for dataset in SETS:
            for score in ("rmse", "nll", "rank"):
                for functions in MANY_FUNCTIONS:
                    for prior in PRIORS:
                        config = config_of(RANK, functions, prior)
                        ours = results.summary(dataset, "btn", config, score)
                        stated = printed.TABLE_3[dataset][functions][score][prior]
                        yield Row((NAMES[dataset], str(functions), prior), score, stated, ours)

    caption = "Error by number of functions, with and without λ_M"
    return Table("table3", caption, ("data set", "functions", "λ_M"), _measured(rows()))


def table_4(results: Results) -> Table:
    """Return the comparison with other methods."""

    def rows() -> Iterator[Row]:
        for dataset in ALL_SETS:
            for score in (_score(dataset, "error"), "nll", "nll_of_signs", "rank"):
                for method in methods_of(dataset):
                    config = METHODS[method].config(dataset)
                    ours = results.summary(dataset, method, config, score)
                    stated = _printed_4(dataset, method, score)
                    if ours is not None or stated is not None:
                        yield Row((NAMES[dataset], METHODS[method].label), score, stated, ours)

    caption = "Against other methods"
    return Table("table4", caption, ("data set", "method"), _measured(rows()))


def _printed_4(dataset: str, method: str, score: str) -> printed.Figure | None:
    entry = printed.TABLE_4[dataset]
    if score == "rank":
        rank: printed.Figure | None = entry["rank"] if method == "btn" else None
        return rank
    if dataset in CLASS_DATASETS:
        # the NLL that is printed of labels is the density of -1 and 1
        method = {"btn-signs": "btn", "btn": "btn" if score == "error" else ""}.get(method, method)
        column = {"error": "error", "nll_of_signs": "nll"}.get(score)
    else:
        column = {"rmse": "error", "nll": "nll"}.get(score)
    figure: printed.Figure | None = entry[column].get(method) if column else None
    return figure


def glance(results: Results) -> Plain:
    """Return Table 4 as the paper lays it out: methods side by side, our own measurements."""
    rows, runs = [], []
    for dataset, score in _scores():
        entries = {
            method: entry
            for method in _SHOWN
            if (entry := _entry(results, dataset, method, score)) is not None
        }
        if not entries:
            continue
        most = max(len(entry.records) for entry in entries.values())
        rivals = [entry for entry in entries.values() if len(entry.records) == most]
        best = number(min(entry.mean for entry in rivals))
        cells = []
        for method in _SHOWN:
            entry = entries.get(method)
            text = figure(entry)
            if entry and len(entry.records) < most:
                text += f" ({len(entry.records)})"
            best_of_all = entry is not None and number(entry.mean) == best and entry in rivals
            cells.append(f"**{text}**" if best_of_all and len(rivals) > 1 else text)
        least = _best_printed(dataset, score)
        last = "–" if least is None else number(least)
        rows.append((NAMES[dataset], SCORES[score], *cells, last))
        runs.append([record for entry in entries.values() for record in entry.records])
    labels = (METHODS[method].label for method in _SHOWN)
    headings = ("data set", "score", *labels, "best printed")
    caption = "Table 4 at a glance: our measurements (in brackets the number of splits, if fewer)"
    return Plain("glance", caption, headings, rows, runs)


def verdict(results: Results) -> str:
    """Return on how many sets ours is ahead of everything measured and printed, as sentences."""
    counts: dict[str, list[bool]] = {"error": [], "nll": []}
    for dataset, score in _scores():
        ours = _entry(results, dataset, "btn", score)
        if ours is None:
            continue
        ahead = [
            ours.mean < least for least in [_best_printed(dataset, score)] if least is not None
        ]
        for method in METHODS:
            theirs = _entry(results, dataset, method, score)
            if method in ("btn", "btn-signs") or theirs is None:
                continue
            # of the splits that both have
            mine = _entry(results, dataset, "btn", score, theirs.records)
            ahead.append(mine is not None and mine.mean < theirs.mean)
        counts["error" if score in ("rmse", "error") else "nll"].append(all(ahead))
    error, nll = (f"{sum(ahead)} of {len(ahead)}" for ahead in counts.values())
    return (
        f"btnkm is better than all methods measured here on the same splits, and than all printed "
        f"results, in {error} errors and in {nll} NLLs."
    )


#: Methods in the order of their columns; ours as the paper uses it has none of its own.
_SHOWN = tuple(method for method in METHODS if method != "btn-signs")


def _scores() -> Iterator[tuple[str, str]]:
    for dataset in ALL_SETS:
        yield dataset, _score(dataset, "error")
        yield dataset, "nll"
        if dataset in CLASS_DATASETS:
            yield dataset, "nll_of_signs"


def _entry(
    results: Results, dataset: str, method: str, score: str, among: list[Record] | None = None
) -> Summary | None:
    """Return a score of Table 4; the density of signs is that of our machine used on signs."""
    if (method, score) == ("btn", "nll_of_signs"):
        method = "btn-signs"
    return results.summary(dataset, method, METHODS[method].config(dataset), score, among)


def _score(dataset: str, kind: str) -> str:
    return "rmse" if kind == "error" and dataset not in CLASS_DATASETS else kind


def _best_printed(dataset: str, score: str) -> float | None:
    """Return the best entry of the paper; what it prints as NLL of labels is that of signs."""
    if score == "nll" and dataset in CLASS_DATASETS:
        return None
    column = printed.TABLE_4[dataset]["nll" if score.startswith("nll") else "error"]
    return min(entry[0] for entry in column.values() if entry is not None)


def sensitivity(results: Results) -> Plain:
    """Return how far the settings of Tables 1 and 3 lie from the best of them."""
    rows, runs = [], []
    for dataset in SETS:
        for score in ("rmse", "nll"):
            settings = [(rank, FUNCTIONS, "on") for rank in RANKS]
            settings += [(RANK, m, p) for m in MANY_FUNCTIONS for p in PRIORS]
            stated = [_printed_setting(dataset, score, *setting) for setting in settings]
            entries = [
                results.summary(dataset, "btn", config_of(*setting), score) for setting in settings
            ]
            if any(entry is None for entry in entries):
                continue
            ours = [entry.mean for entry in entries if entry is not None]
            worst = settings[ours.index(max(ours))]
            where = f"rank {worst[0]}, {worst[1]} functions, λ_M {worst[2]}"
            spread: Callable[[list[float]], float] = _ratio if score == "rmse" else _range
            unit = "%" if score == "rmse" else ""
            limit = 100 * RMSE_TOLERANCE if score == "rmse" else NLL_TOLERANCE
            met = "met" if spread(ours) <= limit else "not met"
            texts = (f"{spread(v):.{1 if unit else 3}f}{unit}" for v in (stated, ours))
            goal = f"{limit:.0f}%" if unit else f"{limit}"
            rows.append((NAMES[dataset], SCORES[score], *texts, f"{goal}: {met}", where))
            runs.append([record for entry in entries if entry for record in entry.records])
    headings = ("data set", "score", "printed", "ours", "aim", "our worst setting")
    caption = "Difference between the worst and the best setting of Tables 1 and 3"
    return Plain("sensitivity", caption, headings, rows, runs)


def _printed_setting(dataset: str, score: str, rank: int, functions: int, prior: str) -> float:
    if rank == RANK:
        return printed.TABLE_3[dataset][functions][score][prior][0]
    return printed.TABLE_1[dataset][score][rank][0]


def _ratio(values: list[float]) -> float:
    return 100 * (max(values) / min(values) - 1)


def _range(values: list[float]) -> float:
    return max(values) - min(values)


def recovery(results: Results) -> Plain:
    """Return in how many seeds rank and functions of the known tensor are found."""
    rows, every = [], []
    for sigma in NOISES:
        runs = results.runs(SYNTHETIC, "btn", synthetic_config_of(sigma))
        if not runs:
            continue
        both = [r["metrics"]["rank_found"] and r["metrics"]["support_found"] for r in runs]
        ratios = sorted(r["metrics"]["noise_std"] / sigma for r in runs)
        counts = (sum(r["metrics"][k] for r in runs) for k in ("rank_found", "support_found"))
        noise = f"{ratios[len(ratios) // 2]:.2f}"
        texts = (f"{sigma:g}", str(len(runs)), *map(str, counts), str(sum(both)), noise)
        rows.append(texts)
        every.append(runs)
    headings = (
        "noise",
        "seeds",
        "correct rank",
        "correct functions",
        "both",
        "estimated / true noise",
    )
    caption = "Number of seeds for which the known tensor is recovered (the paper shows one)"
    return Plain("fig3", caption, headings, rows, every)


TABLES: dict[str, Callable[[Results], Table]] = {
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "table4": table_4,
}
