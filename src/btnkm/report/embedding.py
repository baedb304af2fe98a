"""A portable model as text in a page: JSON, and one sequence of float64 numbers."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from ..core.likelihoods.softmax import INTERVAL_POINTS, PROBABILITY_POINTS, even_points

Array = np.ndarray
# in this order
ENGINE_FILES = ("numerics.js", "formula.js", "features.js", "kernel.js", "what_if.js")
BITS = 30  # of a coordinate of a Sobol sequence


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
    run = np.concatenate(numbers) if numbers else np.empty(0)
    return text, base64.b64encode(run.tobytes()).decode("ascii")


def as_json(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever text it contains."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":  # only ever inside strings
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _for_page(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with categories as pairs, which may have any text, and with points."""
    columns = [
        {
            **column,
            "name": str(column["name"]),
            "levels": None if column["levels"] is None else list(column["levels"].items()),
        }
        for column in data["columns"]
    ]
    classes = data["classes"]
    directions = {}
    if classes is not None:
        classes = [str(label) for label in classes]
    if classes is not None and len(classes) > 2:
        sizes = sorted({len(classes) + _n_shared(restart) for restart in data["restarts"]})
        directions = {str(size): sobol_directions(size) for size in sizes}
    points = {"probability": PROBABILITY_POINTS, "interval": INTERVAL_POINTS}
    many = {"directions": directions, "n_points": points}  # for three classes or more
    return {**data, "columns": columns, "classes": classes, **many}


def _n_shared(restart: dict[str, Any]) -> int:
    """Return how many variables the outputs of a restart share."""
    return 0 if restart["output"] is None else int(restart["output"]["mean"].shape[1])


def sobol_directions(dimension: int) -> Array:
    """Return what the points of ``softmax.normal_points`` are computed from: (bits + 1, dimension).

    A scrambled Sobol sequence is linear in the bits of the Gray code of a point's number. The first
    row has the integers of point 0, the others the bits that change with bit k of the code.
    """
    even = np.round(even_points(dimension, INTERVAL_POINTS) * 2.0**BITS).astype(np.int64)
    bits = INTERVAL_POINTS.bit_length() - 1
    single = [2 ** (k + 1) - 1 for k in range(bits)]  # whose Gray code is 2^k
    return np.concatenate([even[:1], even[single] ^ even[0]]).astype(float)


def with_levels(data: dict[str, Any], kept: dict[int, list[str]]) -> dict[str, Any]:
    """Return a portable model with only these categories of some columns, by position.

    All others are treated as never seen. This leaves out most of the weights of a column with very
    many categories.
    """
    columns, restarts = list(data["columns"]), list(data["restarts"])
    for j, names in kept.items():
        own = {name: columns[j]["levels"][name] for name in names}
        bases, effects = columns[j]["bases"], columns[j]["effects"]
        if any(basis["kind"] == "many_categories" for basis in bases):
            codes = sorted(set(own.values()))
            own = {name: codes.index(code) for name, code in own.items()}
            rows = [_rows_left(basis, codes) for basis in bases]
            restarts = [
                {
                    **restart,
                    "modes": [_taken(mode, j, rows) for mode in restart["modes"]],
                    "kernel": _recoded(restart["kernel"], j, codes),
                }
                for restart in restarts
            ]
            bases = [_basis_left(basis, codes) for basis in bases]
            effects = [_effect_left(effect, codes) for effect in effects]
        columns[j] = {**columns[j], "levels": own, "bases": bases, "effects": effects}
    return {**data, "columns": columns, "restarts": restarts}


def _rows_left(basis: dict[str, Any], codes: list[int]) -> Array:
    """Return the functions of some categories, a missing value and an unseen category."""
    missing = [] if basis["missing"] is None else [basis["missing"]]
    return np.array([*codes, *missing, basis["n_functions"] - 1])


def _basis_left(basis: dict[str, Any], codes: list[int]) -> dict[str, Any]:
    rows = len(_rows_left(basis, codes))
    missing = None if basis["missing"] is None else len(codes)
    return {**basis, "n_functions": rows, "n_products": rows, "missing": missing}


def _taken(mode: dict[str, Any], column: int, rows: list[Array]) -> dict[str, Any]:
    """Return a mode with some of its rows if it belongs to this column."""
    if mode["column"] != column:
        return mode
    left = rows[mode["basis"]]
    return {**mode, "mean": mode["mean"][left], "second": mode["second"][left]}


def _recoded(kernel: dict[str, Any] | None, column: int, codes: list[int]) -> Any:
    """Return a kernel machine with the new codes of these categories.

    The other categories of training rows get the codes after these.
    """
    if kernel is None:
        return None
    inputs = []
    for own in kernel["inputs"]:
        rows = own["rows"]
        if own["column"] == column and rows["u"] is not None:
            others = set(rows["u"][rows["u"] >= 0.0].astype(int).tolist()) - set(codes)
            new = {code: k for k, code in enumerate([*codes, *sorted(others)])}
            u = np.array([float(new.get(int(code), -1)) for code in rows["u"]])
            own = {**own, "rows": {**rows, "u": u}}
        inputs.append(own)
    return {**kernel, "inputs": inputs}


def _effect_left(effect: dict[str, Any], codes: list[int]) -> dict[str, Any]:
    """Return a main effect with the new codes of categories; -2 is none of them."""
    new = {code: k for k, code in enumerate(codes)}
    return {**effect, "codes": np.array([float(new.get(int(c), -2)) for c in effect["codes"]])}
