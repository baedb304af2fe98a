"""``btnkm info``: what a model file contains."""

from __future__ import annotations

import argparse
import os
from typing import Any

from .console import Console, clipped, facts, table
from .options import add_model, add_output_options, command_parser

_EXAMPLES = """\
  btnkm info houses.btn
  btnkm info houses.btn --json
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "info",
        "Print what a model file contains: the target, the inputs with their types and ranges, the "
        "structure of the model, and how the fit ended.",
        _EXAMPLES,
    )
    add_model(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the model and print its description."""
    from ..explain.summary import likelihoods
    from .models import described, load_model

    console = Console(arguments)
    model = load_model(arguments.model)
    defaults = type(model)().get_params(deep=False)
    given = model.get_params(deep=False)
    description = {
        "model": arguments.model,
        "bytes": os.path.getsize(arguments.model),
        **described(model),
        "inputs": [_input(column) for column in model.columns_],
        "likelihoods": likelihoods(model),
        "parameters": {k: v for k, v in given.items() if repr(v) != repr(defaults[k])},
    }
    _print(description, console)
    console.result(description)
    return 0


def _input(column: Any) -> dict[str, Any]:
    from .models import input_kind

    entry: dict[str, Any] = {"name": column.name, "kind": input_kind(column)}
    if column.levels is not None:
        entry["categories"] = len(column.levels)
    elif len(column.knots):
        low, high = float(column.knots[0]), float(column.knots[-1])
        entry["low"], entry["high"] = _date(low, high) if column.kind == "M" else (low, high)
    return entry


def _date(*microseconds: float) -> tuple[str, ...]:
    import numpy as np

    return tuple(str(np.datetime64(int(us), "us"))[:19] for us in microseconds)


def _print(model: dict[str, Any], console: Console) -> None:
    from ..explain.summary import likelihood_line
    from .models import lines_of

    rows = [
        ("model", f"{model['estimator']}, {model['bytes'] / 1024:,.0f} KiB"),
        *([("target", model["target"])] if model["target"] else []),
        ("rows", "unknown" if model["rows"] is None else f"{model['rows']:,}"),
        ("likelihood", likelihood_line(model["likelihoods"])),
        ("restarts", str(model["restarts"])),
        *lines_of(model),
    ]
    if model["parameters"]:
        given = ", ".join(f"{name}={value!r}" for name, value in model["parameters"].items())
        rows.append(("parameters", given))
    console.say(facts(rows, console.width))
    console.say()
    known = [(entry["kind"], _range(entry)) for entry in model["inputs"]]
    taken = sum(max(map(len, column)) for column in zip(*known, strict=True))
    width = max(console.width - taken - 6, 12)
    names = [clipped(str(entry["name"]), width) for entry in model["inputs"]]
    rows_of_inputs = [(name, *two) for name, two in zip(names, known, strict=True)]
    console.say(table(("input", "kind", "range"), rows_of_inputs))


def _range(entry: dict[str, Any]) -> str:
    if "categories" in entry:
        return f"{entry['categories']} categories"
    if "low" not in entry:
        return "no value"
    low, high = (
        v[:10] if isinstance(v, str) else f"{v:.5g}" for v in (entry["low"], entry["high"])
    )
    return f"{low} to {high}"
