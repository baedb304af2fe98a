"""The parts of a report, each from data to HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..explain.diagnostics import Calibration, History, Reliability, history
from ..explain.summary import likelihoods, structure_line
from ..explain.variance import Shares
from ..likelihoods import LIKELIHOODS
from . import charts, format
from .charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from .format import counted, escaped, name, number, percent
from .metrics import Goodness
from .panel import Panel
from .warnings import Remark

Array = np.ndarray
MATTER = 12  # inputs that are shown before the others are folded away


@dataclass(frozen=True)
class Section:
    """A part of the page; ``body`` is HTML."""

    key: str
    title: str
    body: str

    def html(self) -> str:
        """Return it under its heading."""
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-h"><h2 id="{self.key}-h">'
            f"{escaped(self.title)}</h2>{self.body}</section>"
        )


def paragraph(text: str, kind: str = "lead") -> str:
    """Return a paragraph; ``text`` is HTML."""
    return f'<p class="{kind}">{text}</p>'


# ---- in short ---------------------------------------------------------------------------------


def summary(
    model: Any,
    shares: Shares,
    good: Goodness | None,
    target: str,
    *,
    nothing: bool = False,
    at_most: bool = False,
) -> Section:
    """Return what was fitted, how good it is and what matters, in a few sentences.

    ``at_most``: what inputs do together is in part what is not known of it.
    """
    rows, active = model.n_samples_seen_, len(model._active)
    what = _task(model, target)
    said = [f"{what} from {counted(active, 'input')}, fitted to {counted(rows, 'row')}."]
    if good is not None:
        said.append(_how_good(good))
    order = [int(j) for j in shares.order if shares.total[j] >= 0.03][:3]
    if nothing:
        said.append("It found no input that has an effect.")
    elif order and active > 1:
        names = [f"<strong>{name(shares.names[j], 40)}</strong>" for j in order]
        verb = "matters" if len(names) == 1 else "matter"
        said.append(f"{format.listed(names)} {verb} most.")
    if shares.interactions >= 0.01 and active > 1 and not nothing:
        share = f"{'Up to ' if at_most else ''}{percent(shares.interactions)}"
        said.append(f"{share} of what it found lies in inputs acting together.")
    tiles = [
        ("Rows of the fit", f"{rows:,}", ""),
        ("Inputs", f"{len(model.columns_):,}", _unused(model)),
    ]
    if not hasattr(model, "classes_") and np.isfinite(model.noise_std_):
        tiles.append(
            ("Noise", number(model.noise_std_), "standard deviation that no input explains")
        )
    if hasattr(model, "classes_"):
        tiles.append(("Classes", f"{len(model.classes_):,}", ""))
    tiles += _good_tiles(good)
    tiles += _structure_tiles(model)
    body = paragraph(" ".join(said), "") + '<dl class="tiles">'
    for term, value, small in tiles:
        more = f"<small>{escaped(small)}</small>" if small else ""
        body += f"<div><dt>{escaped(term)}</dt><dd>{escaped(value)}{more}</dd></div>"
    return Section("summary", "In short", f"{body}</dl>")


def _task(model: Any, target: str) -> str:
    said = f"<strong>{name(target, 40)}</strong>"
    if hasattr(model, "classes_"):
        return f"A classifier that predicts {said}"
    first = likelihoods(model)[0]["name"]
    kind = next((kind for kind in LIKELIHOODS.values() if kind.__name__ == first), None)
    return f"A {getattr(kind, 'task', 'regression')} that predicts {said}"


def _unused(model: Any) -> str:
    unused = len(model.columns_) - len(model._active)
    return f"{unused:,} of them never {'varies' if unused == 1 else 'vary'}" if unused else ""


def _structure_tiles(model: Any) -> list[tuple[str, str, str]]:
    """Return the structure with the highest weight, and the rank of its tensor if it has one."""
    first, *others = structure_line(model).split(", ")
    name, _, weight = first.partition(" (")
    tiles = [("Structure", name, ", ".join([weight.rstrip(")"), *others]) if others else "")]
    ranks = np.atleast_1d(model.rank_)
    if not np.any(ranks) or model._arrangements[model.best_restart_].kernel:
        return tiles
    restarts = f"of the best of {counted(len(model.posterior_), 'restart')}"
    if len(model.posterior_) == 1:
        restarts = "of a single restart"
    if len(ranks) == 1:
        return [*tiles, ("Components", f"{int(ranks[0])}", restarts)]
    return [*tiles, ("Ranks of the tensor train", f"{ranks.min()}–{ranks.max()}", restarts)]


def _how_good(good: Goodness) -> str:
    where = f"{good.n:,} {good.how} rows" if good.folds else f"the {counted(good.n, 'row')} given"
    first = good.figures[0]
    if isinstance(good.calibration, Reliability):
        without = f", against {percent(first.without)} for always naming the most frequent class"
        return f"It names the right class in {percent(first.value, 1)} of {where}{without}."
    error = next(f for f in good.figures if f.name == "Typical error")
    if first.name != "R²":
        return f"Its typical error on {where} is {number(error.value)}."
    return (
        f"On {where} it explains {percent(max(first.value, 0.0))} of the variance; its typical "
        f"error is {number(error.value)}."
    )


def _good_tiles(good: Goodness | None) -> list[tuple[str, str, str]]:
    if good is None:
        return []
    first = good.figures[0]
    where = f"{good.how}, {good.n:,} rows"
    value = percent(first.value, 1) if first.share else number(first.value, 3)
    tiles = [(first.name, value, where)]
    if isinstance(good.calibration, Calibration):
        k = int(np.argmin(np.abs(good.calibration.levels - 0.95)))
        share = percent(good.calibration.coverage[k], 1)
        tiles.append(("95% intervals hold", share, f"of y, {where}"))
    return tiles


def warnings(found: Sequence[Remark]) -> Section:
    """Return what a user should know."""
    if not found:
        return Section("warnings", "Warnings", paragraph("Nothing to warn of."))
    items = "".join(
        f'<li class="{"grave" if remark.grave else "light"}"><strong>{escaped(remark.title)}'
        f"</strong><p>{escaped(remark.text)}</p></li>"
        for remark in found
    )
    title = "Warnings" if any(remark.grave for remark in found) else "Good to know"
    return Section("warnings", title, f'<ul class="remarks">{items}</ul>')


# ---- what if ----------------------------------------------------------------------------------


def what_if(panel: Panel | str, model: Any, target: str) -> Section:
    """Return the panel, or why there is none."""
    if isinstance(panel, str):
        return Section("what-if", "What if?", paragraph(escaped(panel)))
    said = name(target, 40)
    if hasattr(model, "classes_"):
        odds = "".join(
            f'<li><div>{name(label, 40)}<br><small class="note"></small></div><span></span>'
            '<svg viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true"></svg></li>'
            for label in model.classes_.tolist()
        )
        result = (
            f'<h3>Most probable {said}</h3><p class="big"><output id="what-if-mean" '
            f'for="what-if-form">–</output></p><ul class="odds" id="what-if-odds">{odds}</ul>'
            '<p class="note wordy">The thin line in a bar: between what the model is 95% sure '
            "the probability lies.</p>"
        )
    else:
        result = (
            f'<h3>Predicted {said}</h3><p class="big whole"><output id="what-if-mean" '
            'for="what-if-form">–</output></p><p>95% interval: <output id="what-if-interval" '
            'for="what-if-form">–</output></p><svg id="what-if-picture" '
            'viewBox="0 0 340 128" class="plot" aria-hidden="true"></svg>'
            '<p class="note wordy">Dashed: the typical case, <span id="what-if-typical">–</span>. '
            "Strong colour: where 95 of 100 such cases lie.</p>"
        )
    body = (
        '<noscript><p class="lead">This panel needs JavaScript, which is switched off.</p>'
        f'</noscript><div id="what-if-panel" hidden>{paragraph(_what_if_lead(model))}'
        f'<div class="what-if">{panel.html}<div class="answer"><div class="result">{result}'
        '<p class="hint" id="what-if-beyond" hidden>Some inputs are beyond the values of the fit: '
        'extrapolation.</p></div><div class="after">'
        '<button type="button" id="what-if-reset">Reset to the typical case</button>'
        '<details><summary>All digits</summary><dl id="what-if-exact"></dl></details>'
        '<p id="what-if-live" class="hidden" role="status" aria-live="polite"></p>'
        "</div></div></div></div>"
    )
    return Section("what-if", "What if?", body)


def _what_if_lead(model: Any) -> str:
    lead = (
        "Move an input and see what the model predicts. All is computed in this page, from the "
        "same posterior as in Python. Percentages tell how much each input matters."
    )
    if any(model.columns_[j].kind == "M" for j in model._active):
        lead += " Dates that came with a time zone are in UTC."
    return lead


# ---- what matters -----------------------------------------------------------------------------


def matters(shares: Shares, *, nothing: bool = False) -> Section:
    """Return the share of the variance that every input explains."""
    order = [int(j) for j in shares.order]
    longest = max(float(np.max(shares.total + shares.total_std)), 1e-9)
    items = [_share(shares, j, longest) for j in order]
    lead = (
        "What share of the variation of predictions each input explains: "
        '<span class="swatch"></span> by itself, <span class="swatch pale"></span> together with '
        "others. Lines are one standard deviation to either side. Inputs are taken as independent "
        "of each other. What is uncertain counts as variation, so inputs without effect get a "
        "little, too."
    )
    if nothing:
        lead += " Here they are shares of next to nothing."
    body = paragraph(lead) + f'<ol class="matters">{"".join(items[:MATTER])}</ol>'
    if len(items) > MATTER:
        rest = f'<ol class="matters" start="{MATTER + 1}">{"".join(items[MATTER:])}</ol>'
        body += (
            f'<details class="more"><summary>Show all {len(items):,} inputs</summary>{rest}'
            "</details>"
        )
    rows = [
        [format.shortened(shares.names[j]), percent(shares.total[j], 1)]
        + [percent(shares.total_std[j], 1), percent(shares.first[j], 1)]
        for j in order
    ]
    head = ["Input", "In all", "± std", "By itself"]
    return Section("matters", "What matters", body + charts.as_table("What matters", head, rows))


def _share(shares: Shares, j: int, longest: float) -> str:
    def wide(value: float) -> str:
        return f"{100.0 * min(max(value, 0.0), longest) / longest:.2f}"

    total, std, first = (float(part[j]) for part in (shares.total, shares.total_std, shares.first))
    low, high = wide(total - std), wide(total + std)
    bar = (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="10"/>'
        f'<rect class="all" width="{wide(total)}" height="10"/>'
        f'<rect class="alone" width="{wide(min(first, total))}" height="10"/>'
        + "".join(
            f'<line class="{kind}" x1="{low}" x2="{high}" y1="5" y2="5" '
            'vector-effect="non-scaling-stroke"/>'
            for kind in ("halo", "std")
        )
        + "</svg>"
    )
    return (
        f'<li>{name(shares.names[j], 40)}{bar}<span class="figure">{percent(total, 1)} '
        f"<small>± {percent(std, 1)}</small></span></li>"
    )


# ---- how it was fitted ------------------------------------------------------------------------


def fit(model: Any, made_of: Sequence[tuple[str, str]]) -> Section:
    """Return the bound's history, and what the fit was made of."""
    body = paragraph(
        "The lower bound on the evidence after every sweep of the exact phase, one line for each "
        "restart. It can only rise, but for where the rank grows and a new phase begins; "
        "where it is flat, there is nothing left to learn."
    )
    facts = f'<div class="chart facts-box">{_facts(made_of)}</div>'
    body += f'<div class="charts">{_bounds(history(model))}{facts}</div>'
    return Section("fit", "How it was fitted", body)


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in pairs)
    return f'<dl class="facts">{items}</dl>'


def _bounds(found: History) -> str:
    best = found.best
    finite = [np.asarray(b)[np.isfinite(b)] for b in found.bounds]
    runs = {k: run for k, run in enumerate(finite) if len(run)}  # some starts may have none
    if not runs:
        return ""
    every = runs.values()
    high = max(float(run.max()) for run in every)
    # the first sweeps, which rise steeply, would leave no room for the others
    low = min(float(run[min(len(run) - 1, max(2, len(run) // 10))]) for run in every)
    low = min(low, high - 1e-6 * max(abs(high), 1.0))
    longest = max(map(len, every))
    x = charts.axis("number", 1, max(longest, 2), LEFT + 8, WIDTH - RIGHT)
    y = charts.axis("number", low, high + 0.04 * (high - low), HEIGHT - BOTTOM, TOP)
    body = charts.grid(x, y)
    for k, run in sorted(runs.items(), key=lambda pair: pair[0] == best):  # the best on top
        inside = np.flatnonzero(run >= low)
        line = charts.points(x.at(inside + 1), y.at(run[inside]))
        kind = "line c0" if k == best else "line thin c5"
        body += f'<polyline class="{kind}" points="{line}"/>'
    rows = [
        [f"{k + 1}{' (best)' if k == best else ''}", f"{len(run)}", number(run[-1], 2)]
        + [number(found.ranks[k][-1])]
        for k, run in runs.items()
    ]
    head = ["Restart", "Exact sweeps", "Bound", "Rank"]
    title = "Lower bound by sweep"
    description = f"{counted(len(runs), 'restart')}; the best ends at {number(high, 2)}."
    picture = charts.svg("bounds", title, description, body)
    return charts.figure(f"<span>{title}</span>", picture, charts.as_table(title, head, rows))
