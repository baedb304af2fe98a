"""``btnkm info``: what is in the file of a model."""

from __future__ import annotations

import argparse
import os
from typing import Any

from .console import Console, clipped, facts, table
from .options import add_output_options, command_parser

_EXAMPLES = """\
  btnkm info houses.btn
  btnkm info houses.btn --json
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "info",
        "Tell what is in the file of a model: what it predicts from which inputs, how it was "
        "fitted, and what came of it.",
        _EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="a file that fit has saved")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load and tell."""
    from ..explain.summary import likelihoods
    from .models import described, load_model

    console = Console(arguments)
    model = load_model(arguments.model)
    usual = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    found = {
        "model": arguments.model,
        "bytes": os.path.getsize(arguments.model),
        **described(model),
        "inputs": [_input(column) for column in model.columns_],
        "likelihoods": likelihoods(model),
        "parameters": {k: v for k, v in given.items() if repr(v) != repr(usual[k])},
    }
    _tell(found, console)
    console.result(found)
    return 0


def _input(column: Any) -> dict[str, Any]:
    from .models import input_kind

    found: dict[str, Any] = {"name": column.name, "kind": input_kind(column)}
    if column.levels is not None:
        found["levels"] = len(column.levels)
    elif len(column.knots):
        low, high = float(column.knots[0]), float(column.knots[-1])
        found["low"], found["high"] = _date(low, high) if column.kind == "M" else (low, high)
    return found


def _date(*microseconds: float) -> tuple[str, ...]:
    import numpy as np

    return tuple(str(np.datetime64(int(us), "us"))[:19] for us in microseconds)


def _tell(found: dict[str, Any], console: Console) -> None:
    """Print it."""
    from ..explain.summary import likelihood_line
    from .models import lines_of

    rows = [
        ("model", f"{found['estimator']}, {found['bytes'] / 1024:,.0f} KiB"),
        *([("target", found["target"])] if found["target"] else []),
        ("rows", "unknown" if found["rows"] is None else f"{found['rows']:,}"),
        ("likelihood", likelihood_line(found["likelihoods"])),
        ("restarts", str(found["restarts"])),
        *lines_of(found),
    ]
    if found["parameters"]:
        given = ", ".join(f"{name}={value!r}" for name, value in found["parameters"].items())
        rows.append(("parameters", given))
    console.say(facts(rows, console.width))
    console.say()
    known = [(one["kind"], _range(one)) for one in found["inputs"]]
    taken = sum(max(map(len, column)) for column in zip(*known, strict=True))
    broad = max(console.width - taken - 6, 12)
    names = [clipped(str(one["name"]), broad) for one in found["inputs"]]
    rows_of_inputs = [(name, *two) for name, two in zip(names, known, strict=True)]
    console.say(table(("input", "kind", "range"), rows_of_inputs))


def _range(one: dict[str, Any]) -> str:
    if "levels" in one:
        return f"{one['levels']} levels"
    if "low" not in one:
        return "no value"
    low, high = (v[:10] if isinstance(v, str) else f"{v:.5g}" for v in (one["low"], one["high"]))
    return f"{low} to {high}"
