"""``btnkm explain``: importances, effects and interactions of a model, or single rows."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .console import Console, UsageError, clipped, counted, importances, table
from .info import load_model
from .options import (
    FilePath,
    FolderPath,
    add_model,
    add_names,
    add_output_options,
    add_rows_output,
    add_table_options,
    command_parser,
    dialect_of,
    output_file,
)
from .output import check_output, check_rows_output, rows_to, write_text

MAX_INPUTS, MAX_PAIRS, MIN_IMPORTANCE = 20, 5, 0.005  # that are printed
PLOTS = (
    "importances",
    "effects",
    "interactions",
    "noise_effects",
    "components",
    "functions",
    "history",
)
_EXAMPLES = """\
  btnkm explain houses.btn
  btnkm explain houses.btn --effects effects.csv --plots pictures
  btnkm explain houses.btn --effects effects.json --inputs area,city --json
  btnkm explain houses.btn --local new.csv --keep id -o why.csv
"""


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "explain",
        "Print how important each input is, alone and together with others, and which pairs of "
        "inputs interact most. The importance is the fraction of the variance of the predictions "
        "that an input explains (its Sobol index), ± one standard deviation. The column "
        "'with others' can add up to more than 100%; feature_importances_ in Python is this "
        "column scaled to sum to 1. If the noise varies, also print which inputs it varies with. "
        "With --effects, also write what each value of an input adds to the average prediction. "
        "With --local, explain single rows instead: a "
        "prediction is the base value plus the contribution of each input.",
        _EXAMPLES,
    )
    add_model(parser)
    parser.add_argument(
        "--effects",
        action=FilePath,
        type=output_file,
        metavar="FILE",
        help="write the effects of the inputs to this .csv or .json file",
    )
    add_names(parser, "--inputs", "with --effects, write only these inputs")
    parser.add_argument(
        "--plots",
        action=FolderPath,
        type=Path,
        metavar="FOLDER",
        help="write plots to this folder (needs matplotlib)",
    )
    local = parser.add_argument_group("single rows")
    local.add_argument(
        "--local",
        action=FilePath,
        metavar="TABLE",
        help="table with the rows to explain; - for standard input",
    )
    add_rows_output(local)
    local.add_argument(
        "--std", action="store_true", help="add the standard deviation of each contribution"
    )
    add_names(local, "--keep", "copy these columns of the table to the output")
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain a model, or single rows."""
    from ..explain import interactions, noise_effects, sobol_indices

    console = Console(arguments)
    _check(arguments, console)
    model = load_model(arguments.model)
    if arguments.local is not None:
        return _explain_rows(model, arguments, console)
    _check_inputs(model, arguments)
    with console.library():
        sobol = sobol_indices(model)
        pairs = interactions(model, most=MAX_PAIRS)
        noise = noise_effects(model)
        files = _write_effects(model, arguments)
        plots = PLOTS if noise else [name for name in PLOTS if name != "noise_effects"]
        files += _draw(model, plots, arguments.plots, console) if arguments.plots else []
    if model.target_name_:
        console.title(f"What predicts {model.target_name_!r}")
    _print(sobol, pairs, console)
    _print_noise(noise, console)
    for file in files:
        console.say(f"Wrote {file}")
    listed = [pair.to_dict() for pair in pairs]
    result = {"model": arguments.model, "target": model.target_name_, "files": files}
    result |= {"sobol_indices": sobol.to_dict(), "interactions": listed}
    console.result({**result, "noise_effects": [effect.to_dict() for effect in noise]})
    return 0


def _check(arguments: argparse.Namespace, console: Console) -> None:
    rows = arguments.local is not None
    if rows and (arguments.effects or arguments.plots or arguments.inputs):
        raise UsageError(
            "--local cannot be combined with --effects, --inputs or --plots; run the command twice."
        )
    for option in ("output", "std", "keep"):
        if getattr(arguments, option) and not rows:
            raise UsageError(f"--{option} needs rows to explain; add --local TABLE.")
    if rows:
        files = {"table": arguments.local, "model": arguments.model}
        check_rows_output(arguments.output, console.json, **files)
    check_output(arguments.effects, "--effects", model=arguments.model)
    if arguments.effects and arguments.effects.suffix.lower() not in (".csv", ".json"):
        raise UsageError(f"--effects must end with .csv or .json, got {str(arguments.effects)!r}.")
    if arguments.inputs and not arguments.effects:
        raise UsageError("--inputs needs a file for the effects; add --effects FILE.")
    if arguments.plots and arguments.plots.exists() and not arguments.plots.is_dir():
        raise UsageError(f"--plots must be a folder, got the file {str(arguments.plots)!r}.")
    if arguments.plots and find_spec("matplotlib") is None:
        raise ImportError(
            "plots need matplotlib, which is not installed; run: pip install 'btnkm[cli]'"
        )


def _check_inputs(model: Any, arguments: argparse.Namespace) -> None:
    known = [str(column.name) for column in model.columns_]
    for name in arguments.inputs or ():
        if name not in known:
            raise UsageError(
                f"--inputs must name inputs of the model, {', '.join(known[:12])}, got {name!r}."
            )


def _print(sobol: Any, pairs: list[Any], console: Console) -> None:
    """Print the importance of inputs and pairs."""
    console.say(importances(sobol, console.width, MAX_INPUTS))
    if not sobol.variance:
        return
    text = 'feature_importances_ in Python is the column "with others" scaled to sum to 1.'
    console.say("\n" + textwrap.fill(text, console.width))
    large = [pair for pair in pairs if pair.importance >= MIN_IMPORTANCE]
    if not large:
        console.say(f"\nNo interaction explains {MIN_IMPORTANCE:.1%} of the variance.")
        return
    console.say("\nMost important interactions (fraction of variance)")
    names = [clipped(" × ".join(map(str, pair.names)), console.width - 20) for pair in large]
    fractions = [f"{pair.importance:.1%}" for pair in large]
    console.say(table(("inputs", "importance"), list(zip(names, fractions, strict=True))))


def _print_noise(effects: list[Any], console: Console) -> None:
    """Print which inputs drive the noise, and between which factors."""
    if not effects:
        return
    rows = []
    for effect in effects[:MAX_INPUTS]:
        factors = [*effect.factor, *effect.spikes["factor"]]
        factors += [effect.missing["factor"]] if effect.missing is not None else []
        name = clipped(str(effect.name), console.width - 34)
        ends = [f"×{end:.3g}" for end in (min(factors), max(factors))]
        rows.append((name, f"{effect.importance:.1%}", *ends))
    console.say("\nNoise: factors of its standard deviation, relative to the average")
    console.say(table(("input", "importance", "smallest", "largest"), rows))


def _write_effects(model: Any, arguments: argparse.Namespace) -> list[str]:
    """Write the effects of all inputs, or of those named."""
    from ..explain import effects

    path: Path | None = arguments.effects
    if path is None:
        return []
    known = [str(column.name) for column in model.columns_]
    places = None if not arguments.inputs else [known.index(name) for name in arguments.inputs]
    curves = effects(model, places)
    if path.suffix.lower() == ".json":
        text = json.dumps([effect.to_dict() for effect in curves], ensure_ascii=False, indent=1)
        write_text(path, text + "\n")
    else:
        with rows_to(path) as rows:
            for effect in curves:
                for label, k in _classes(effect.outputs):
                    rows.write(_curve(effect, label, k))
    return [str(path)]


def _classes(outputs: Any) -> list[tuple[str, int | None]]:
    return [("", None)] if outputs is None else [(str(c), k) for k, c in enumerate(outputs)]


def _curve(effect: Any, label: str, k: int | None) -> dict[str, Any]:
    """Return a row for each value of an input."""
    n = len(effect.values)
    parts = {name: getattr(effect, name) for name in ("mean", "std", "low", "high")}
    return {
        "input": [str(effect.name)] * n,
        "class": [label] * n,
        "value": [str(value) for value in effect.values],
        **{name: values if k is None else values[:, k] for name, values in parts.items()},
        "unit": [effect.unit] * n,
    }


def _draw(model: Any, names: Sequence[str], folder: Path, console: Console) -> list[str]:
    """Draw all plots that need no rows."""
    import matplotlib

    matplotlib.use("Agg")  # plots go to files, so that no display is needed
    import matplotlib.pyplot as plt
    import numpy as np

    from .. import explain
    from ..io.atomic_write import whole_file

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with console.progress("drawing") as bar:
        for place, name in enumerate(names):
            bar.update(place, len(names), f"drawing {name.replace('_', ' ')}")
            if name == "interactions" and len(model.columns_) < 2:
                continue
            axes = getattr(explain, f"plot_{name}")(model)
            figure = np.ravel(axes)[0].figure
            path = folder / f"{name}.png"
            with whole_file(path) as draft:
                figure.savefig(draft, dpi=150, bbox_inches="tight")
            plt.close(figure)
            written.append(str(path))
    return written


def _explain_rows(model: Any, arguments: argparse.Namespace, console: Console) -> int:
    """Write what each input adds to the prediction of each row."""
    from ..data.table_files import check_columns, open_table
    from ..explain import explain_local
    from .tables import write_rows

    source = open_table(arguments.local, dialect_of(arguments), again=False)
    kept = arguments.keep or []
    check_columns(source, kept, "--keep")

    def explained(X: Any) -> list[dict[str, Any]]:
        local = explain_local(model, X, return_std=arguments.std)
        return [_parts(local, label, k, arguments.std) for label, k in _classes(local.outputs)]

    path = arguments.output
    n, counts = write_rows(model, source, kept, path, explained, console, "explaining")
    if arguments.output is not None:
        console.say(f"Wrote explanations of {counted(n, 'row')} to {arguments.output}")
    result = {"model": arguments.model, "data": source.name, "rows": n}
    console.result({**result, "output": str(arguments.output), **counts})
    return 0


def _parts(local: Any, label: str, k: int | None, spread: bool) -> dict[str, Any]:
    """Return the columns for some rows, for one class of more than two."""
    import numpy as np

    n = len(local.prediction)
    base = local.base if k is None else local.base[k]
    columns: dict[str, Any] = {} if k is None else {"class": [label] * n}
    columns["base"] = np.full(n, float(base))
    parts = [("contribution", local.contributions)] + ([("std", local.std)] if spread else [])
    for what, values in parts:
        for j, name in enumerate(local.names):
            columns[f"{what} {name}"] = values[:, j] if k is None else values[:, j, k]
    columns["prediction"] = local.prediction if k is None else local.prediction[:, k]
    return columns
