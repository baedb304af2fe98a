"""Model files: loading and describing them; ``btnkm info``, which prints the description."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..data.csv_file import DataError
from .console import Console, UsageError, clipped, facts, number, table
from .options import add_model, add_output_options, command_parser
from .output import check_output

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
        "structure of the model, and why the fit ended.",
        _EXAMPLES,
    )
    add_model(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load the model and print its description."""
    from ..explain.summary import likelihoods

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


def load_model(path: str) -> Any:
    """Return the model in a file."""
    import btnkm

    os.stat(path)  # a missing file has the same message in every command
    if os.path.isdir(path):
        raise DataError("the model must be a file, got a folder; name a file in it.", path)
    try:
        return btnkm.load(path)
    except ValueError as error:
        begin = f"path must name a model saved by btnkm, got {str(Path(path))!r}, "
        reason = str(error).removeprefix(begin)
        raise DataError(f"the model must be one saved by btnkm, got {reason}", path) from None


def check_model_path(path: Path, data: str) -> None:
    """Raise an error before the fit if the model could not be saved to ``path``."""
    if path.exists() and not path.is_file():
        raise UsageError(
            f"--output must be a file, got {str(path)!r}; name another, such as model.btn."
        )
    check_output(path, table=data)


def is_classifier(model: Any) -> bool:
    """Whether a model is a classifier."""
    return hasattr(model, "classes_")


def described(model: Any) -> dict[str, Any]:
    """Return a description of a model, for JSON."""
    from ..core.recalibration import plain_form
    from ..explain import noise_effects
    from ..explain.summary import structure_line, structure_weights

    driven = noise_effects(model, points=2)
    weights = structure_weights(model)
    full = model.fitted_.is_full  # whose rank has no limit
    return {
        "estimator": type(model).__name__,
        "target": model.fitted_.target_name,
        "rows": model.n_samples_seen_,
        "exposed": model.fitted_.exposed,
        "exposure": model.fitted_.exposure_name,
        "classes": model.classes_.tolist() if is_classifier(model) else None,
        "structure": structure_line(model),
        "structures": [{"name": name, "weight": weight} for name, weight in weights.items()],
        "rank": None if full else model.rank_,
        "noise_std": None if is_classifier(model) else model.noise_std_,
        "noise_of": None if model.fitted_.transformation is None else model.fitted_.unit,
        "noise_varies_with": [{"name": e.name, "importance": e.importance} for e in driven],
        "calibration": plain_form(model.fitted_.calibration),
        "restarts": len(model.posterior_),
        "converged": model.converged_,
        "stop_reason": model.stop_reason_,
    }


def lines_of(model: dict[str, Any], reason: str = "") -> list[tuple[str, str]]:
    """Return names and values to print of a description; ``reason`` says why there are classes."""
    rank, classes, noise = model["rank"], model["classes"], model["noise_std"]
    rows = [("structure", model["structure"])]
    ranks = rank if isinstance(rank, tuple) else (rank,)
    if any(ranks):  # main effects and full tensors have none
        rows.append(("rank", ", ".join(map(str, ranks))))
    if classes is not None:
        listed = ", ".join(map(str, classes[:8])) + (", …" if len(classes) > 8 else "")
        rows.insert(0, ("classes", f"{len(classes)}: {listed}{f' ({reason})' if reason else ''}"))
    elif noise == noise:
        of = f" of {model['noise_of']}" if model["noise_of"] else ""
        rows.append(("noise", f"{number(noise)} (standard deviation{of}){_varies(model)}"))
    if model["calibration"] is not None:
        rows.append(("recalibrated", model["calibration"]["summary"]))
    return [*rows, ("stopped", model["stop_reason"])]


def _varies(model: dict[str, Any]) -> str:
    """Return with which inputs the noise varies, if it does."""
    driven = [f"{e['name']} ({e['importance']:.0%})" for e in model["noise_varies_with"]]
    if not driven:
        return ""
    return f" on average; it varies with {', '.join(driven[:8])}{', …' if driven[8:] else ''}"


def input_kind(column: Any) -> str:
    """Return what an input of a model holds."""
    from ..data.text import DATE, DURATION, FLAG, NUMBER, TEXT

    if column.kind in ("M", "m"):
        return DATE if column.kind == "M" else DURATION
    if column.kind == "O":
        return TEXT
    return FLAG if column.categories is None and {*column.knots.tolist()} <= {0.0, 1.0} else NUMBER


def _input(column: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": column.name, "kind": input_kind(column)}
    if column.categories is not None:
        entry["categories"] = len(column.categories)
    elif len(column.knots):
        low, high = float(column.knots[0]), float(column.knots[-1])
        entry["low"], entry["high"] = _date(low, high) if column.kind == "M" else (low, high)
    return entry


def _date(*microseconds: float) -> tuple[str, ...]:
    import numpy as np

    return tuple(str(np.datetime64(int(us), "us"))[:19] for us in microseconds)


def _print(model: dict[str, Any], console: Console) -> None:
    from ..explain.summary import likelihood_line

    rows = [
        ("model", f"{model['estimator']}, {model['bytes'] / 1024:,.0f} KiB"),
        *([("target", model["target"])] if model["target"] else []),
        *([("exposure", model["exposure"] or "given, without a name")] if model["exposed"] else []),
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
    rows_of_inputs = [(name, *cells) for name, cells in zip(names, known, strict=True)]
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
