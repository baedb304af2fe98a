"""docs/reproduction.md: all results, in one text made from the result files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from ..experiments import EXPERIMENTS
from . import tables
from .results import Results
from .tables import Plain, Table

#: What is tabled of each experiment that is shown.
Tables = Mapping[str, list[Table | Plain]]
#: The experiments in the order of the paper, and how it calls them.
TITLES = {
    "fig3": "Figure 3",
    "fig4": "Figure 4",
    "table1": "Table 1",
    "table2": "Table 2",
    "fig5": "Figure 5",
    "table3": "Table 3",
    "table4": "Table 4",
}
ALTS = {
    "fig3": "Estimated weights for one seed, and how often rank and functions are correct",
    "fig4": "Components and ELBO after each sweep, from initial ranks 10, 25 and 50",
    "fig5": "Effective number of functions of each input, with and without learned precisions",
    "table4": "Errors of all methods as multiples of btnkm's, by data set",
}


def text(name: str) -> str:
    """Return one of the texts between the tables."""
    return (files(__package__) / f"{name}.md").read_text(encoding="utf-8").strip()


def tables_of(name: str, results: Results) -> list[Table | Plain]:
    """Return the tables of an experiment, without runs that are missing."""
    made: list[Table | Plain] = []
    if name == "fig3":
        made.append(tables.recovery(results))
    if name == "table4":
        made.append(tables.glance(results))
    if name in tables.TABLES:
        made.append(tables.TABLES[name](results))
    if name == "table3":
        made.append(tables.sensitivity(results))
    return [table for table in made if table.rows]


def heading(name: str) -> str:
    """Return the heading of an experiment."""
    return f"{TITLES[name]}. {EXPERIMENTS[name].title}"


def document(results: Results, folder: Path, place: Path, made: Tables, drawn: set[str]) -> str:
    """Return the text on some experiments, for ``place``; the pictures are in ``folder``."""
    away = quote(Path(os.path.relpath(folder, place.parent)).as_posix())
    parts = ["# The paper reproduced", text("introduction")]
    for name, shown in made.items():
        parts += [f"## {heading(name)}", text(name)]
        if name in drawn:
            parts.append(f"![{ALTS[name]}]({away}/{name}.png)")
        for table in shown:
            parts.append(f"**{table.caption}.**\n\n{tables.as_markdown(table)}")
            if table.name == "glance":
                parts.append(tables.verdict(results))
    parts += ["## Errata", text("errata"), "## How it was run", text("protocol"), origin(results)]
    return "\n\n".join(parts) + "\n"


def origin(results: Results) -> str:
    """Return which code on which machine the results are of."""
    records = list(results.of_key.values())
    cpus = sorted({record["cpu"] for record in records})
    commits = {"" if r.get("commit") is None else f", commit {r['commit'][:9]}" for r in records}
    codes = sorted({f"{r['versions']['btnkm']} ({r['code']})" for r in records})
    codes[-1] += "".join(sorted(commits))
    kinds = {
        ", ".join(f"{k} {v}" for k, v in sorted(r["versions"].items()) if k != "btnkm")
        for r in records
    }
    hours = sum(record["seconds"] for record in records) / 3600
    return (
        f"Runs: {len(records)}, {hours:.1f} hours of one core in all. Code: {', '.join(codes)}. "
        f"Processor: {', '.join(cpus)}. With {'; or '.join(sorted(kinds))}."
    )
