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
    config_of,
    methods_of,
    synthetic_config_of,
)
from ..measures import SYNTHETIC
from ..methods import CLASS_DATASETS, METHODS
from .results import Results, Summary, provenance

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
    """A table of text."""

    name: str
    caption: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]


def number(value: float) -> str:
    """Return a number with three decimals, or fewer where it is large."""
    decimals = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:.{decimals}f}"


def figure(entry: printed.Figure | Summary | None, rank: bool = False) -> str:
    """Return mean and spread as text; a dash where there is none."""
    if entry is None:
        return "–"
    return (
        f"{entry[0]:.1f} ± {entry[1]:.1f}" if rank else f"{number(entry[0])} ± {number(entry[1])}"
    )


def _difference(row: Row) -> str:
    if row.printed is None or row.ours is None:
        return "–"
    change = row.ours.mean - row.printed[0]
    if row.score == "rank":
        return f"{change:+.1f}"
    sign = "+" if change >= 0 else "−"
    return sign + number(abs(change))


def as_plain(table: Table) -> Plain:
    """Return a table as text: printed, ours, difference."""
    rows = [
        (
            *row.place,
            SCORES[row.score],
            figure(row.printed, row.score == "rank"),
            figure(row.ours, row.score == "rank"),
            _difference(row),
        )
        for row in table.rows
    ]
    headings = (*table.places, "score", "printed", "ours", "difference")
    return Plain(table.name, table.caption, headings, rows)


def as_markdown(table: Table | Plain) -> str:
    """Return a table in Markdown."""
    plain = as_plain(table) if isinstance(table, Table) else table
    lines = [" | ".join(cells) for cells in (plain.headings, *plain.rows)]
    rule = "|".join("---" for _ in plain.headings)
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def as_csv(table: Table) -> str:
    """Return a table with all digits, and where each figure comes from."""
    origin = ("splits", "seeds", "configuration", "version", "machine")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ("printed", "printed ±", "ours", "ours ±", "difference")
    writer.writerow((*table.places, "score", *figures, *origin))
    for row in table.rows:
        said = row.printed or ("", "")
        found: tuple[Any, ...] = (row.ours.mean, row.ours.spread) if row.ours else ("", "")
        both = row.printed is not None and row.ours is not None
        change = found[0] - said[0] if both else ""
        of = provenance(row.ours.records) if row.ours else {}
        texts = (_short(v) for v in (*said, *found, change))
        writer.writerow((*row.place, SCORES[row.score], *texts, *(of.get(k, "") for k in origin)))
    return out.getvalue()


def plain_csv(table: Plain) -> str:
    """Return a table of text as it is."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows((table.headings, *table.rows))
    return out.getvalue().replace("**", "")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
                    said = printed.TABLE_1[dataset][score][rank]
                    yield Row((NAMES[dataset], str(rank)), score, said, ours)

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
                        said = printed.TABLE_3[dataset][functions][score][prior]
                        yield Row((NAMES[dataset], str(functions), prior), score, said, ours)

    caption = "Error by number of functions, with and without λ_M"
    return Table("table3", caption, ("data set", "functions", "λ_M"), _measured(rows()))


def table_4(results: Results) -> Table:
    """Return the comparison with other methods."""

    def rows() -> Iterator[Row]:
        for dataset in ALL_SETS:
            for score in (_score(dataset, "error"), "nll", "nll_of_signs"):
                for method in methods_of(dataset):
                    config = METHODS[method].config(dataset)
                    ours = results.summary(dataset, method, config, score)
                    said = _printed_4(dataset, method, score)
                    if ours is not None or said is not None:
                        yield Row((NAMES[dataset], METHODS[method].label), score, said, ours)

    caption = "Against other methods"
    return Table("table4", caption, ("data set", "method"), _measured(rows()))


def _printed_4(dataset: str, method: str, score: str) -> printed.Figure | None:
    entry = printed.TABLE_4[dataset]
    if dataset in CLASS_DATASETS:
        # the NLL that is printed of labels is the density of -1 and 1
        method = {"btn-signs": "btn", "btn": "btn" if score == "error" else ""}.get(method, method)
        column = {"error": "error", "nll_of_signs": "nll"}.get(score)
    else:
        column = {"rmse": "error", "nll": "nll"}.get(score)
    found: printed.Figure | None = entry[column].get(method) if column else None
    return found


def glance(results: Results) -> Plain:
    """Return Table 4 as the paper lays it out: methods side by side, our own measurements."""
    shown = [method for method in METHODS if method != "btn-signs"]
    rows = []
    for dataset in ALL_SETS:
        for score in (_score(dataset, "error"), "nll"):
            found = [
                results.summary(dataset, method, METHODS[method].config(dataset), score)
                for method in shown
            ]
            if all(entry is None for entry in found):
                continue
            best = min(number(entry.mean) for entry in found if entry is not None)
            cells = [
                f"**{figure(entry)}**" if entry and number(entry.mean) == best else figure(entry)
                for entry in found
            ]
            least = _best_printed(dataset, score)
            rows.append((NAMES[dataset], SCORES[score], *cells, number(least)))
    labels = (METHODS[method].label for method in shown)
    headings = ("data set", "score", *labels, "best printed")
    return Plain("glance", "Table 4 at a glance: what we measure", headings, rows)


def verdict(results: Results) -> str:
    """Return on how many sets ours is ahead of everything measured and printed, as a sentence."""
    counts = {}
    for kind in ("error", "nll"):
        ahead, sets = [], []
        for dataset in ALL_SETS:
            score = _score(dataset, kind)
            ours, *others = (
                results.summary(dataset, method, METHODS[method].config(dataset), score)
                for method in METHODS
            )
            if ours is None:
                continue
            sets.append(dataset)
            rivals = [entry.mean for entry in others if entry is not None]
            if ours.mean < min([*rivals, _best_printed(dataset, score)]):
                ahead.append(dataset)
        counts[kind] = f"{len(ahead)} of {len(sets)}"
    return (
        f"Ours has the lowest RMSE or error of all that is measured here or printed on "
        f"{counts['error']} sets, and the lowest NLL on {counts['nll']}."
    )


def _score(dataset: str, kind: str) -> str:
    return "rmse" if kind == "error" and dataset not in CLASS_DATASETS else kind


def _best_printed(dataset: str, score: str) -> float:
    column = printed.TABLE_4[dataset]["nll" if score == "nll" else "error"]
    return min(entry[0] for entry in column.values() if entry is not None)


def sensitivity(results: Results) -> Plain:
    """Return how far the settings of Tables 1 and 3 lie from the best of them."""
    rows = []
    for dataset in SETS:
        for score in ("rmse", "nll"):
            settings = [(rank, FUNCTIONS, "on") for rank in RANKS]
            settings += [(RANK, m, p) for m in MANY_FUNCTIONS for p in PRIORS]
            said = [_printed_setting(dataset, score, *setting) for setting in settings]
            found = [
                results.summary(dataset, "btn", config_of(*setting), score) for setting in settings
            ]
            if any(entry is None for entry in found):
                continue
            ours = [entry.mean for entry in found if entry is not None]
            worst = settings[ours.index(max(ours))]
            where = f"rank {worst[0]}, {worst[1]} functions, λ_M {worst[2]}"
            spread: Callable[[list[float]], float] = _ratio if score == "rmse" else _range
            unit = "%" if score == "rmse" else ""
            limit = 100 * RMSE_TOLERANCE if score == "rmse" else NLL_TOLERANCE
            met = "met" if spread(ours) <= limit else "not met"
            texts = (f"{spread(v):.{1 if unit else 3}f}{unit}" for v in (said, ours))
            goal = f"{limit:.0f}%" if unit else f"{limit}"
            rows.append((NAMES[dataset], SCORES[score], *texts, f"{goal}: {met}", where))
    headings = ("data set", "score", "printed", "ours", "aim", "our worst setting")
    caption = "How far the worst of the settings of Tables 1 and 3 lies from the best"
    return Plain("sensitivity", caption, headings, rows)


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
    rows = []
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
    headings = ("noise", "seeds", "rank found", "functions found", "both", "noise found / true")
    caption = "In how many seeds the known tensor is found (the paper shows one)"
    return Plain("fig3", caption, headings, rows)


TABLES: dict[str, Callable[[Results], Table]] = {
    "table1": table_1,
    "table2": table_2,
    "table3": table_3,
    "table4": table_4,
}
