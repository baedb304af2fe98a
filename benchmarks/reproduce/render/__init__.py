"""Tables, figures and texts from result files; nothing here is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import tables
from .document import TITLES, document, tables_of
from .page import page
from .results import Results


def render(
    source: Path, folder: Path, place: Path, names: Sequence[str], any_version: bool = False
) -> Iterator[Path]:
    """Write what can be drawn from a file of results, and yield the paths written.

    Parameters
    ----------
    source : Path
        JSON lines.
    folder : Path
        Where tables, figures and the page go.
    place : Path
        Of the text that holds them all.
    names : sequence of str
        Experiments whose own files are written; page and text also hold what was run before.
    any_version : bool
        Whether results of older code are drawn together with newer ones.
    """
    from .figures import FIGURES, save

    results = Results.read(source, any_version)
    if results.n_hidden:
        print(f"{results.n_hidden} result(s) of older code are left out; --any-version has them.")
    folder.mkdir(parents=True, exist_ok=True)
    asked = {record.get("suite") for record in results.of_key.values()} | {*names}
    made = {name: tables_of(name, results) for name in TITLES if name in asked or "all" in asked}
    drawn = set()
    for name in made:
        figure = FIGURES[name](results) if name in FIGURES else None
        if figure is None:
            continue
        drawn.add(name)
        written = save(figure, folder, name)
        if name in names:
            yield from written
    for name in names:
        if name not in drawn and not made[name]:
            print(f"There are no results of {name} to show.")
        for table in made[name]:
            text = f"**{table.caption}.**\n\n{tables.as_markdown(table)}\n"
            yield _write(folder / f"{table.name}.md", text)
            yield _write(folder / f"{table.name}.csv", tables.as_csv(table))
    made = {name: shown for name, shown in made.items() if shown or name in drawn}
    yield _write(folder / "index.html", page(results, folder, made, drawn))
    yield _write(place, document(results, folder, place, made, drawn))


def _write(path: Path, text: Any) -> Path:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return path
