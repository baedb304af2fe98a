"""The what-if panel: a control for every input, and the data for predictions in a browser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..bases.categorical import ManyCategories
from ..io.portable import portable
from ..predictive import PredictiveDistribution
from . import format
from .charts import nice_step
from .embedding import as_json, embedded, with_levels
from .format import counted, escaped, name, percent

Array = np.ndarray
MOST_CATEGORIES = 200  # in a menu; of more than these, the most frequent
SHOWN = 12  # inputs that are not folded
STEPS = 200  # of a slider
MOST_BYTES = 20_000_000  # of numbers in a page; with more it would be slow to open
DRAWS = 400  # rows for the range of likely predictions


@dataclass(frozen=True)
class Panel:
    """The panel's HTML, and the data that its script reads."""

    html: str
    data: str
    numbers: str


def panel(model: Any, shares: Array, order: Array, target: str) -> Panel | str:
    """Return the panel, or a sentence that says why there is none.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    shares : ndarray of shape (D,)
        Importance of each input, shown at its control.
    order : ndarray of shape (D,)
        Positions of the inputs, those that matter most first.
    target : str
        Name of the target.
    """
    try:
        data = portable(model)
    except TypeError as reason:
        return f"There is no what-if panel: {reason}"
    menus = {j: _menu(c) for j, c in enumerate(model.columns_) if c.levels is not None}
    data = with_levels(data, {j: [text for text, _ in menu] for j, menu in menus.items()})
    text, numbers = embedded(data)
    if len(numbers) > MOST_BYTES:
        return (
            "There is no what-if panel: the posterior has "
            f"{counted(len(numbers) * 3 // 32, 'number')}, too many for a page. Use a "
            "smaller max_rank, n_basis or n_init."
        )
    active = [int(j) for j in order if j in set(model.fitted_.active)]
    controls = [_control(model.columns_[j], j, shares[j], menus.get(j)) for j in active]
    shown = "".join(controls[:SHOWN])
    rest = controls[SHOWN:]
    more = ""
    if rest:
        more = (
            f'<details class="more"><summary>{counted(len(rest), "more input")}, which '
            f"{'matters' if len(rest) == 1 else 'matter'} less</summary>"
            f'<div class="inputs">{"".join(rest)}</div></details>'
        )
    html = (
        f'<form id="what-if-form" class="controls"><div class="inputs">{shown}</div>{more}</form>'
    )
    page = {"axis": None if hasattr(model, "classes_") else _likely_range(model), "target": target}
    return Panel(html, f'{{"model":{text},"page":{as_json(page)}}}', numbers)


def drawn_codes(model: Any, n: int = DRAWS) -> list[Array | None]:
    """Return coordinates of rows with inputs drawn independently from their training values."""
    rng = np.random.default_rng(0)
    codes: list[Array | None] = [None] * len(model.columns_)
    for j in model.fitted_.active:
        basis = model.columns_[j].basis
        if isinstance(basis, ManyCategories):
            codes[j] = rng.choice(len(basis.shares_), size=n, p=_normalised(basis.shares_)) * 1.0
        else:
            codes[j] = np.zeros(n) if basis.basis_ is None else rng.choice(basis.values_, size=n)
    return codes


def _normalised(shares: Array) -> Array:
    total = shares.sum()
    return shares / total if total > 0 else np.full(len(shares), 1.0 / len(shares))


def _likely_range(model: Any) -> list[float]:
    """Return a range that contains nearly all predictions and intervals, for a fixed axis."""
    moments = model.fitted_.predict(drawn_codes(model), lambda one, rows: one.moments(rows), 2)
    parts = [
        state.likelihood.predictive(mean, variance)
        for state, mean, variance in zip(model.posterior_, *moments, strict=True)
    ]
    mixture = PredictiveDistribution(
        parts, model.fitted_.y_shift, model.fitted_.y_scale, model.weights_
    )
    ends = mixture.interval(0.98)
    low, high = float(np.quantile(ends[:, 0], 0.02)), float(np.quantile(ends[:, 1], 0.98))
    return [low, high]


def _menu(column: Any) -> list[tuple[str, str]]:
    """Return a name for each category in a menu, and its text; the rarest may share one."""
    by_code = column.levels_by_code
    shares = column.basis.category_shares
    frequent = sorted(by_code, key=lambda code: -shares[code] if code < len(shares) else 0.0)
    kept = set(frequent[:MOST_CATEGORIES])
    menu = []
    for code, texts in by_code.items():
        if code in kept:
            many = f"one of {counted(len(texts), 'rare category', 'rare categories')}"
            menu.append((texts[0], texts[0] if len(texts) == 1 else many))
    return menu


def _control(column: Any, j: int, share: float, menu: list[tuple[str, str]] | None) -> str:
    """Return the control of one column."""
    kind, attributes, inner, ends = "menu", "", "", ""
    if menu is not None:
        inner = _select(column, j, menu)
    elif len(column.knots) <= 2:  # also one value and missing ones
        inner = _select_numbers(column, j)
    else:
        kind, attributes, inner, ends = _slider(column, j)
    gap = ""
    if kind != "menu":
        gap = (
            f'<label class="gap"><input type="checkbox" data-part="gap" '
            f'aria-describedby="input-{j}"> missing</label>'
        )
    return (
        f'<div class="input" role="group" aria-labelledby="input-{j}" data-column="{j}" '
        f'data-kind="{kind}"{attributes}><div class="about"><span id="input-{j}" '
        f'class="input-name">{name(column.name, 40)}{_unit(column)}</span>'
        f'<span class="share" title="importance: fraction of the variance of predictions">'
        f"{percent(share)}</span>"
        f"</div>{inner}{gap}{ends}"
        f'<p class="hint" data-part="hint" hidden></p></div>'
    )


def _unit(column: Any) -> str:
    if column.kind != "m" or not len(column.knots):
        return ""
    return f' <span class="unit">({format.unit_of(column.knots[-1] - column.knots[0])[0]})</span>'


def _options(options: list[tuple[str, str]], chosen: str) -> str:
    return "".join(
        f'<option value="{escaped(value)}"{" selected" if value == chosen else ""}>'
        f"{escaped(text)}</option>"
        for value, text in options
    )


def _select(column: Any, j: int, menu: list[tuple[str, str]]) -> str:
    """Return a menu of categories; a value is a position among those in the page."""
    shares = column.basis.category_shares
    codes = [column.levels[text] for text, _ in menu]
    known = [float(shares[code]) if code < len(shares) else 0.0 for code in codes]
    chosen = str(int(np.argmax(known))) if known else "gap"
    options = [(str(k), format.shortened(said, 50)) for k, (_, said) in enumerate(menu)]
    left_out = len(set(column.levels.values())) - len(menu)
    special = [("unseen", "(a category never seen)"), ("gap", "(missing)")]
    said = ""
    if left_out > 0:
        said = (
            f'<p class="ends">The {len(menu)} most frequent categories; '
            f"{counted(left_out, 'other')} would make the page too large.</p>"
        )
    return (
        f'<select data-part="menu" aria-labelledby="input-{j}">{_options(options, chosen)}'
        f'<optgroup label="Otherwise">{_options(special, chosen)}</optgroup></select>{said}'
    )


def _select_numbers(column: Any, j: int) -> str:
    """Return a menu for a number with two values."""
    typical = _typical(column)
    values = [(repr(float(v)), _said(column, v)) for v in column.knots]
    chosen = min(column.knots, key=lambda v: abs(v - typical), default=math.nan)
    options = _options(values, repr(float(chosen)))
    return (
        f'<select data-part="menu" data-numbers aria-labelledby="input-{j}">{options}'
        '<optgroup label="Otherwise"><option value="gap">(missing)</option></optgroup></select>'
    )


def _said(column: Any, value: float) -> str:
    span = float(column.knots[-1] - column.knots[0])
    if column.kind == "M":
        return format.date(float(value), span)
    if column.kind == "m":  # the unit stands beside the name
        size = format.unit_of(span)[1]
        return format.number(value / size, format.decimals_for(span / size))
    ends = [float(column.knots[0]), float(column.knots[-1])]
    return format.told_apart([float(value), *ends])[0]


def _typical(column: Any) -> float:
    """Return the median of the values, in units of the table."""
    return float(np.interp(column.basis.typical_, column.positions, column.knots))


def _slider(column: Any, j: int) -> tuple[str, str, str, str]:
    """Return the kind of a control, its attributes, its inputs and the text of its ends."""
    low, high = float(column.knots[0]), float(column.knots[-1])
    typical, span = _typical(column), high - low
    whole = bool(np.all(column.knots == np.round(column.knots)))
    factor, kind, field = 1.0, "number", "number"
    if column.kind == "M":
        days = span >= 3.0 * format.DAY
        factor, kind = (format.DAY if days else format.SECOND), "date"
        field = "date" if days else "datetime-local"
    elif column.kind == "m":
        factor, whole = format.unit_of(span)[1], False
    step = nice_step(span / factor, STEPS)
    if whole or kind == "date":
        step = max(1.0, step)
    start, end = math.floor(low / factor / step) * step, math.ceil(high / factor / step) * step
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    shown = round(typical / factor, 0 if whole or kind == "date" else decimals + 1)
    shown = min(max(shown, low / factor), high / factor)
    attributes = "".join(
        f' data-{key}="{value!r}"'
        for key, value in (("low", low), ("high", high), ("factor", factor), ("typical", shown))
    )
    attributes += f' data-decimals="{decimals}"'
    attributes += " data-wide" if field == "datetime-local" else ""
    seconds = (
        ' step="1"' if field == "datetime-local" else ' step="any"' if field == "number" else ""
    )
    inner = (
        f'<input type="range" data-part="slider" min="{_plain(start)}" max="{_plain(end)}" '
        f'step="{_plain(step)}" value="{_plain(shown)}" aria-labelledby="input-{j}">'
        f'<input type="{field}"{seconds} data-part="field" aria-labelledby="input-{j}">'
    )
    ends = (
        f'<p class="ends"><span>{_said(column, low)}</span><span>{_said(column, high)}</span></p>'
    )
    return kind, attributes, inner, ends


def _plain(value: float) -> str:
    """Return a number as text for HTML, without rounding noise."""
    return f"{value:.12g}"
