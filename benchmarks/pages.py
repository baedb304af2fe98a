"""What the written pages share: texts, records of a suite, tables and numbers."""

from collections import Counter
from pathlib import Path

from benchmarks.runs.records import read_records, record_key

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"


def text_of(name):
    """Return the text of a page, with names in braces where results are filled in."""
    return (HERE / "texts" / f"{name}.md").read_text(encoding="utf-8")


def latest(suite):
    """Return the last record of every cell of a suite, of methods with default settings."""
    from benchmarks.suites import SUITES

    defaults = SUITES[suite].defaults
    lines = read_records(RESULTS / f"{suite}.jsonl")[0]
    records = {record_key(record): record for record in lines}.values()
    return [r for r in records if r["config"] == defaults.get(r["method"])]


def table(header, lines):
    """Return a table in Markdown; all columns but the first are aligned to the right."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def number(value, form=".3g", missing="-"):
    """Return a number as text, and a sign for None."""
    return missing if value is None else format(value, form)


def counted(names, what):
    """Return how many records there are of each machine."""
    return "; ".join(f"{count} {what} on {name}" for name, count in Counter(names).items())
