"""The what-if panel: a control for every input, and the data for predictions in a browser.

The data are a portable model as text in the page: JSON, and one sequence of float64 numbers.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps

from ..bases.categorical import ManyCategories
from ..core.likelihoods.softmax import (
    COPY_POINTS,
    INTERVAL_POINTS,
    PROBABILITY_POINTS,
    even_points,
)
from ..core.recalibration import Recalibration
from ..io.portable import portable
from ..predictive import check_level
from ..recalibrated import RecalibratedDistribution
from . import format
from .charts import nice_step
from .format import counted

Array = np.ndarray
# of the what-if engine, in this order
ENGINE_FILES = ("numerics.js", "formula.js", "features.js", "kernel.js", "what_if.js")
BITS = 30  # of a coordinate of a Sobol sequence
MOST_CATEGORIES = 200  # in a menu; of more than these, the most frequent
STEPS = 200  # of a slider
MOST_BYTES = 20_000_000  # of numbers in a page; with more it would be slow to open
MOST_EXTREME = 6.0  # normal score of the end of an interval
DRAWS = 400  # rows for the range of likely predictions
_MISSING = ("missing", "(missing)")
_UNSEEN = ("unseen", "(a category never seen)")


@dataclass(frozen=True)
class Panel:
    """The controls, and the data that the script of the page reads."""

    controls: list[dict[str, Any]]
    data: str
    numbers: str


def panel(model: Any, importances: Array, order: Array, target: str) -> Panel | str:
    """Return the panel, or a sentence that says why there is none.

    ``importances`` (D,) are shown beside the inputs, which are in this ``order`` (D,).
    """
    try:
        data = portable(model)
    except TypeError as reason:
        return f"There is no what-if panel: {reason}"
    if _is_extreme(model):
        return (
            "There is no what-if panel: the intervals of the recalibrated model end further out in "
            "the tails of the fitted one than the page can compute."
        )
    menus = {j: _menu(c) for j, c in enumerate(model.columns_) if c.categories is not None}
    data = with_categories(
        data, {j: [category for category, _ in menu] for j, menu in menus.items()}
    )
    text, numbers = embedded(data)
    if len(numbers) > MOST_BYTES:
        return (
            "There is no what-if panel: the posterior has "
            f"{counted(len(numbers) * 3 // 32, 'number')}, too many for a page. Use a "
            "smaller max_rank, n_basis or n_init."
        )
    active = [int(j) for j in order if j in set(model.fitted_.active)]
    controls = [_control(model.columns_[j], j, importances[j], menus.get(j)) for j in active]
    axis = None if hasattr(model, "classes_") else _likely_range(model)
    page = as_json({"axis": axis, "target": target})
    return Panel(controls, f'{{"model":{text},"page":{page}}}', numbers)


def _is_extreme(model: Any) -> bool:
    """Whether the page, which has no survival functions, would lose digits of 95% intervals."""
    calibration = model.fitted_.calibration
    if not isinstance(calibration, Recalibration):
        return False
    return max(map(abs, calibration.ends(0.025))) > MOST_EXTREME


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


def _normalised(frequencies: Array) -> Array:
    total = frequencies.sum()
    return frequencies / total if total > 0 else np.full(len(frequencies), 1.0 / len(frequencies))


def _likely_range(model: Any) -> list[float]:
    """Return a range that contains nearly all predictions and intervals, for a fixed axis."""
    fitted = model.fitted_
    codes = drawn_codes(model)
    moments = fitted.predict(codes, lambda part, rows: part.moments(rows), 2)
    parts = [
        likelihood.predictive(mean, variance)
        for likelihood, mean, variance in zip(fitted.likelihoods_at(codes), *moments, strict=True)
    ]
    mixture = fitted.distribution(parts)
    if fitted.calibration is not None:
        mixture = RecalibratedDistribution(mixture, fitted.calibration)
    ends = mixture.quantile(check_level(0.98))
    return [float(np.quantile(ends[:, 0], 0.02)), float(np.quantile(ends[:, 1], 0.98))]


def _menu(column: Any) -> list[tuple[str, str]]:
    """Return the categories in a menu, each with its text; the rarest may share one."""
    by_code = column.categories_by_code
    frequencies = column.basis.category_shares
    kept = sorted(by_code, key=lambda code: -frequencies[code] if code < len(frequencies) else 0.0)[
        :MOST_CATEGORIES
    ]
    menu = []
    for code, texts in by_code.items():
        if code in set(kept):
            many = f"one of {counted(len(texts), 'rare category', 'rare categories')}"
            menu.append((texts[0], texts[0] if len(texts) == 1 else many))
    return menu


def _control(
    column: Any, j: int, importance: float, menu: list[tuple[str, str]] | None
) -> dict[str, Any]:
    """Return what the template shows of one column."""
    control = {"column": j, "name": column.name, "importance": importance, "unit": ""}
    if menu is not None:
        return control | _categories(column, menu)
    if len(column.knots) <= 2:  # also one value and missing ones
        return control | _two_values(column)
    if column.kind == "m":
        control["unit"] = format.unit_of(column.knots[-1] - column.knots[0])[0]
    return control | _slider(column)


def _categories(column: Any, menu: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a menu of categories; a value is a position among those in the page."""
    frequencies = column.basis.category_shares
    codes = [column.categories[category] for category, _ in menu]
    known = [float(frequencies[code]) if code < len(frequencies) else 0.0 for code in codes]
    omitted, note = len(set(column.categories.values())) - len(menu), ""
    if omitted > 0:
        note = (
            f"The {len(menu)} most frequent categories; {counted(omitted, 'other')} would make the "
            "page too large."
        )
    return {
        "kind": "menu",
        "options": [(str(k), format.shortened(text, 50)) for k, (_, text) in enumerate(menu)],
        "special": [_UNSEEN, _MISSING],
        "chosen": str(int(np.argmax(known))) if known else "missing",
        "numbers": False,
        "note": note,
    }


def _two_values(column: Any) -> dict[str, Any]:
    """Return a menu for a number with two values."""
    typical = _typical(column)
    chosen = min(column.knots, key=lambda v: abs(v - typical), default=math.nan)
    return {
        "kind": "menu",
        "options": [(repr(float(v)), _value_text(column, v)) for v in column.knots],
        "special": [_MISSING],
        "chosen": repr(float(chosen)),
        "numbers": True,
        "note": "",
    }


def _value_text(column: Any, value: float) -> str:
    span = float(column.knots[-1] - column.knots[0])
    if column.kind == "M":
        return format.date(float(value), span)
    if column.kind == "m":  # the unit is beside the name
        size = format.unit_of(span)[1]
        return format.number(value / size, format.decimals_for(span / size))
    ends = [float(column.knots[0]), float(column.knots[-1])]
    return format.told_apart([float(value), *ends])[0]


def _typical(column: Any) -> float:
    """Return the median of the values, in units of the table."""
    return float(np.interp(column.basis.typical_, column.positions, column.knots))


def _slider(column: Any) -> dict[str, Any]:
    """Return a slider with a field, for a number, a date or a duration."""
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
    attributes = {"low": low, "high": high, "factor": factor, "typical": shown}
    places = {"min": start, "max": end, "step": step, "value": shown}
    return {
        "kind": kind,
        "attributes": {f"data-{key}": repr(value) for key, value in attributes.items()}
        | {"data-decimals": decimals},
        # without rounding noise
        "slider": {key: f"{value:.12g}" for key, value in places.items()},
        "field": field,
        "ends": [_value_text(column, low), _value_text(column, high)],
    }


def embedded(data: dict[str, Any]) -> tuple[str, str]:
    """Return a portable model as JSON, and its numbers as base64 of little-endian float64.

    In the JSON an array is ``{"array": [place, rows, columns]}``, where its numbers begin and its
    shape; a vector has no ``columns``.
    """
    numbers: list[Array] = []
    place = 0

    def packed(value: Any) -> Any:
        nonlocal place
        if isinstance(value, np.ndarray):
            numbers.append(np.ascontiguousarray(value, dtype="<f8").ravel())
            first, place = place, place + value.size
            return {"array": [first, *value.shape]}
        if isinstance(value, dict):
            return {key: packed(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [packed(part) for part in value]
        if isinstance(value, float) and not np.isfinite(value):
            return None  # JSON has no such number, and the page does not use it
        return value

    text = as_json(packed(_for_page(data)))
    sequence = np.concatenate(numbers) if numbers else np.empty(0)
    return text, base64.b64encode(sequence.tobytes()).decode("ascii")


def as_json(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever text it contains."""
    return str(htmlsafe_json_dumps(value, allow_nan=False, separators=(",", ":")))


def _for_page(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with categories as pairs, as they may have any text, and with points."""
    columns = [
        {
            **column,
            "name": str(column["name"]),
            "categories": None
            if column["categories"] is None
            else list(column["categories"].items()),
        }
        for column in data["columns"]
    ]
    classes = data["classes"]
    directions = {}
    if classes is not None:
        classes = [str(label) for label in classes]
    if classes is not None and len(classes) > 2:
        outputs = [restart["output"] for restart in data["restarts"]]
        shared = {0 if output is None else output["mean"].shape[1] for output in outputs}
        sizes = sorted(len(classes) + count for count in shared)
        directions = {str(size): sobol_directions(size) for size in sizes}
    points = {"probability": PROBABILITY_POINTS, "interval": INTERVAL_POINTS, "copy": COPY_POINTS}
    many = {"directions": directions, "n_points": points}  # for three classes or more
    return {**data, "columns": columns, "classes": classes, **many}


def sobol_directions(dimension: int) -> Array:
    """Return what the points of ``softmax.normal_points`` are computed from: (bits + 1, dimension).

    A scrambled Sobol sequence is linear in the bits of the Gray code of a point's number. The first
    row has the integers of point 0, the others the bits that change with bit k of the code.
    """
    even = np.round(even_points(dimension, INTERVAL_POINTS) * 2.0**BITS).astype(np.int64)
    bits = INTERVAL_POINTS.bit_length() - 1
    single = [2 ** (k + 1) - 1 for k in range(bits)]  # whose Gray code is 2^k
    return np.concatenate([even[:1], even[single] ^ even[0]]).astype(float)


def with_categories(data: dict[str, Any], kept: dict[int, list[str]]) -> dict[str, Any]:
    """Return a portable model with only these categories of some columns, by position.

    All others are treated as never seen. This leaves out most of the weights of a column with very
    many categories; those that stand for a missing value stay.
    """
    columns, restarts = list(data["columns"]), list(data["restarts"])
    for j, names in kept.items():
        codes_of = {name: columns[j]["categories"][name] for name in names}
        bases, effects = columns[j]["bases"], columns[j]["effects"]
        if any(basis["kind"] == "many_categories" for basis in bases):
            codes = sorted(set(codes_of.values()) | _fill_codes(columns[j]["fills"]))
            codes_of = {name: codes.index(code) for name, code in codes_of.items()}
            rows = [_kept_rows(basis, codes) for basis in bases]
            restarts = [
                {
                    **restart,
                    "modes": [_taken(mode, j, rows) for mode in restart["modes"]],
                    "kernel": _recoded(restart["kernel"], j, codes),
                }
                for restart in restarts
            ]
            bases = [_basis_of(basis, codes) for basis in bases]
            effects = [_effect_of(effect, codes) for effect in effects]
            columns[j] = {**columns[j], "fills": _recoded_fills(columns[j]["fills"], codes)}
        columns[j] = {**columns[j], "categories": codes_of, "bases": bases, "effects": effects}
    return {**data, "columns": columns, "restarts": restarts}


def _kept_rows(basis: dict[str, Any], codes: list[int]) -> Array:
    """Return the functions of some categories, a missing value and an unseen category."""
    missing = [] if basis["missing"] is None else [basis["missing"]]
    return np.array([*codes, *missing, basis["n_functions"] - 1])


def _basis_of(basis: dict[str, Any], codes: list[int]) -> dict[str, Any]:
    rows = len(_kept_rows(basis, codes))
    missing = None if basis["missing"] is None else len(codes)
    return {**basis, "n_functions": rows, "n_products": rows, "missing": missing}


def _taken(mode: dict[str, Any], column: int, rows: list[Array]) -> dict[str, Any]:
    """Return a mode with some of its rows if it belongs to this column."""
    if mode["column"] != column:
        return mode
    kept = rows[mode["basis"]]
    return {**mode, "mean": mode["mean"][kept], "second": mode["second"][kept]}


def _recoded(kernel: dict[str, Any] | None, column: int, codes: list[int]) -> Any:
    """Return a kernel machine with the new codes of these categories.

    The other categories of training rows get the codes after these.
    """
    if kernel is None:
        return None
    inputs = []
    for entry in kernel["inputs"]:
        rows = entry["rows"]
        if entry["column"] == column and rows["u"] is not None:
            others = set(rows["u"][rows["u"] >= 0.0].astype(int).tolist()) - set(codes)
            new = {code: k for k, code in enumerate([*codes, *sorted(others)])}
            u = np.array([float(new.get(int(code), -1)) for code in rows["u"]])
            entry = {**entry, "rows": {**rows, "u": u}}
        inputs.append(entry)
    return {**kernel, "inputs": inputs}


def _fill_codes(fills: dict[str, Any] | None) -> set[int]:
    """Return the codes of the categories that stand for a missing value."""
    return set() if fills is None else {int(v) for v in fills["values"] if not np.isnan(v)}


def _recoded_fills(fills: dict[str, Any] | None, codes: list[int]) -> dict[str, Any] | None:
    """Return the same with new codes."""
    if fills is None:
        return None
    new = {code: k for k, code in enumerate(codes)}
    values = [np.nan if np.isnan(v) else new[int(v)] for v in fills["values"]]
    return {**fills, "values": np.array(values, dtype=float)}


def _effect_of(effect: dict[str, Any], codes: list[int]) -> dict[str, Any]:
    """Return a main effect with the new codes of categories; -2 is none of them."""
    new = {code: k for k, code in enumerate(codes)}
    return {**effect, "codes": np.array([float(new.get(int(c), -2)) for c in effect["codes"]])}
