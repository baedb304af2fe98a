"""Tables, figures and texts from result files; nothing here is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import tables
from .document import document, tables_of
from .page import page
from .results import Results


def render(source: Path, folder: Path, place: Path, names: Sequence[str]) -> Iterator[Path]:
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
        Experiments whose own files are written; page and text hold whatever the file has.
    """
    from .figures import FIGURES, save

    results = Results.read(source)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = set()
    for name, draw in FIGURES.items():
        figure = draw(results)
        if figure is None:
            continue
        drawn.add(name)
        written = save(figure, folder, name)
        if name in names:
            yield from written
    for name in names:
        for table in tables_of(name, results):
            text = f"**{table.caption}.**\n\n{tables.as_markdown(table)}\n"
            yield _write(folder / f"{table.name}.md", text)
            if isinstance(table, tables.Table):
                yield _write(folder / f"{table.name}.csv", tables.as_csv(table))
            else:
                yield _write(folder / f"{table.name}.csv", tables.plain_csv(table))
    yield _write(folder / "index.html", page(results, folder, drawn))
    yield _write(place, document(results, folder, place, drawn))


def _write(path: Path, text: Any) -> Path:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(text, encoding="utf-8")
    half.replace(path)
    return path
