"""One HTML page with all tables and figures, which needs no other file."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from .document import ALTS, Tables, heading, origin, text
from .results import Results
from .tables import Plain, Table, as_plain, verdict

_CSS = """
:root { color-scheme: light dark; --ink: #23272e; --paper: #fff; --rule: #dfe2e6; --pale: #f6f7f8;
  --accent: #2f6db5; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #16181c; --rule: #343a42; --pale: #1f2329; --accent: #7fb0ea; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 3rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
p, li { max-width: 46rem; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 1.2rem 0; }
figure { margin: 1.2rem 0; padding: .8rem; background: #fff; border: 1px solid var(--rule);
  border-radius: 6px; }
figure { overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 38rem; height: auto; }
.wide { overflow-x: auto; margin: 1rem 0 1.6rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; }
th, td { padding: .28rem .8rem; text-align: left; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
thead th { background: var(--pale); position: sticky; top: 0; }
tbody tr.new > * { border-top: 2px solid var(--rule); }
code { background: var(--pale); padding: .1em .3em; border-radius: 3px; font-size: .9em; }
footer { margin-top: 3rem; font-size: .88rem; }
"""


def page(results: Results, folder: Path, made: Tables, drawn: set[str]) -> str:
    """Return the page of some experiments; the drawings are taken from ``folder``."""
    links = "".join(f'<a href="#{name}">{escape(heading(name).split(".")[0])}</a>' for name in made)
    body = [f"<h1>The paper reproduced</h1>{prose(text('introduction'))}<nav>{links}"]
    body.append('<a href="#errata">Errata</a><a href="#protocol">How it was run</a></nav>')
    for name, shown in made.items():
        body.append(f'<section id="{name}"><h2>{escape(heading(name))}</h2>{prose(text(name))}')
        if name in drawn:
            body.append(f"<figure>{_svg(folder / f'{name}.svg', ALTS[name], name)}</figure>")
        for table in shown:
            body.append(_table(table))
            if table.name == "glance":
                body.append(f"<p>{escape(verdict(results))}</p>")
        body.append("</section>")
    body.append(f'<section id="errata"><h2>Errata</h2>{prose(text("errata"))}</section>')
    body.append(
        f'<section id="protocol"><h2>How it was run</h2>{prose(text("protocol"))}</section>'
    )
    body.append(f"<footer><p>{escape(origin(results))}</p></footer>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>btnkm: the paper reproduced</title><style>{_CSS}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def prose(markdown: str) -> str:
    """Return HTML of what our texts use of Markdown: paragraphs, lists, code, bold, links."""
    out = []
    for part in re.split(r"\n\s*\n", markdown):
        lines = part.splitlines()
        if lines[0].startswith("- "):
            joined = re.sub(r"\n(?!- )\s*", " ", part)
            items = "".join(f"<li>{_inline(line[2:])}</li>" for line in joined.splitlines())
            out.append(f"<ul>{items}</ul>")
        else:
            out.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "".join(out)


def _inline(markdown: str) -> str:
    html = escape(markdown, quote=False)
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", html)
    html = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html)
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", r'<a href="\2">\1</a>', html)


def _svg(path: Path, alt: str, name: str) -> str:
    """Return a drawing to stand inside the page: its names made its own, and a text for readers."""
    drawing = path.read_text(encoding="utf-8")
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'\bid="', f'id="{name}-', drawing)
    drawing = re.sub(r'(href="|url\()#', rf"\1#{name}-", drawing)
    return drawing.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)


def _table(table: Table | Plain) -> str:
    plain = as_plain(table) if isinstance(table, Table) else table
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in plain.headings)
    rows, before = [], None
    for row in plain.rows:
        first, *rest = (_inline(cell) for cell in row)
        kind = ' class="new"' if before not in (None, first) else ""
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        rows.append(f'<tr{kind}><th scope="row">{first}</th>{cells}</tr>')
        before = first
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(plain.caption)}"><table>'
        f"<caption>{escape(plain.caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
