"""``btnkm fit``: fit a model to a table and save it."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from math import isfinite
from typing import Any

from .console import Bar, Console, UsageError, counted, facts, importances
from .info import check_model_path, described, lines_of
from .options import (
    FilePath,
    add_model_options,
    add_output_options,
    add_table,
    add_table_options,
    add_training_options,
    command_parser,
    model_parameters,
    output_file,
    probability,
)
from .output import check_output

_EXAMPLES = """\
  btnkm fit houses.csv --target price -o houses.btn
  btnkm fit houses.csv --target price --drop id --test 0.2 -o houses.btn
  btnkm fit houses.csv --target sold --classify --text zip -o sold.btn
  btnkm fit houses.parquet --target price --n-init 2 --memory-limit 4 --json -o houses.btn
"""
MAX_INPUTS = 12  # in the summary


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "fit",
        "Fit a model to a table and save it. The table is a CSV or TSV file (also with .gz), a "
        "Parquet file, or a folder or glob pattern of Parquet files; it may be larger than memory. "
        "The type of each column (number, boolean, date such as 2024-12-31, or text) is inferred "
        "from all rows. You do not need to scale, encode or impute anything. Ctrl-C stops the fit "
        "early and saves the best model so far, if there is one.",
        _EXAMPLES,
    )
    add_table(parser)
    parser.add_argument(
        "-o",
        "--output",
        action=FilePath,
        type=output_file,
        required=True,
        metavar="MODEL",
        help="file to save the model to, such as model.btn",
    )
    add_training_options(parser)
    parser.add_argument(
        "--test",
        type=probability,
        metavar="FRACTION",
        help="hold out this fraction of the rows, and print how well they are predicted",
    )
    parser.add_argument(
        "--exposure",
        metavar="COLUMN",
        help="column with the exposure of each row, such as years of insurance, for a likelihood "
        "of counts; predict reads the column as well",
    )
    parser.add_argument(
        "--checkpoint",
        action=FilePath,
        type=output_file,
        metavar="FILE",
        help="file for the state of the fit; if it exists, the fit resumes (uses pickle: load only "
        "trusted files)",
    )
    add_model_options(parser)
    add_table_options(parser)
    add_output_options(parser, verbose=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit a model, save it, and print a summary."""
    from ..explain import sobol_indices
    from .tables import Training

    console = Console(arguments)
    check_model_path(arguments.output, arguments.data)
    if arguments.checkpoint == arguments.output:
        raise UsageError(
            f"--checkpoint must not be the model, got {str(arguments.output)!r} for both."
        )
    check_output(arguments.checkpoint, "--checkpoint", table=arguments.data)
    if arguments.exposure and arguments.test:
        raise UsageError("--test cannot be combined with --exposure yet; leave it out.")
    training = Training(arguments, console, arguments.test or 0.0)
    model = new_model(arguments, training.classify)
    begin = time.perf_counter()
    if training.exposure and training.classify:
        raise UsageError(
            f"--exposure is for counts, got {training.exposure!r} for a target with classes; add "
            "--likelihood negative_binomial."
        )
    how = {"exposure": training.exposure} if training.exposure else {}
    fit(model, training.fit_arguments(), console, arguments.checkpoint, **how)
    seconds = time.perf_counter() - begin
    name_target(model, training.target)
    model.save(arguments.output)
    with console.library():
        sobol = sobol_indices(model)
    result = summary(model, training, sobol)
    result |= {"seconds": seconds, "model": str(arguments.output)}
    if arguments.test:
        result["test"] = tested(model, training, console)
    _print(result, training, console)
    console.say()
    console.say(importances(sobol, console.width, MAX_INPUTS))
    console.result(result)
    return 0


def new_model(arguments: argparse.Namespace, classify: bool) -> Any:
    """Return an estimator with the parameters of the command line."""
    import btnkm

    from ..parameters import option_names, with_options

    kind = btnkm.BTNClassifier if classify else btnkm.BTNRegressor
    parameters = model_parameters(arguments)
    hidden = {"callback", "warm_start", "verbose", "priors", "solver"}
    if classify and arguments.noise is not None:
        raise UsageError(
            f"--noise is for numbers, got {arguments.noise!r} for a target with classes; leave it "
            "out, or use --regress."
        )
    known = {*kind().get_params(deep=False), *option_names()} - hidden
    for name, value in parameters.items():
        if name.startswith("priors.") and isinstance(value, tuple) and len(value) == 2:
            parameters[name] = btnkm.Gamma(*value)
        if name not in known:
            options = [option for option in known if option.endswith(f".{name}")]
            hint = f"did you mean {options[0]!r}?" if options else ""
            hint = hint or f"these are {', '.join(sorted(known))}."
            raise UsageError(
                f"--set must name a parameter of {kind.__name__}, got {name!r}; {hint}"
            )
    return kind(**with_options(parameters), verbose=int(arguments.verbose))


def fit(
    model: Any, rows: tuple[Any, ...], console: Console, checkpoint: Any = None, **how: Any
) -> None:
    """Fit a model, with a line that shows the current sweep."""
    with ExitStack() as stack:
        stack.enter_context(console.library())
        shown = sys.stderr.isatty() and not (console.json or console.quiet or console.verbose)
        if shown:
            model.set_params(callback=_Sweeps(console, stack))
        try:
            model.fit(*rows, checkpoint=checkpoint, **how)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(
                "Interrupted before the first result: no model is saved."
            ) from stop
        finally:
            model.set_params(callback=None)


def name_target(model: Any, name: str) -> None:
    """Give the target of a fitted model its name, which arrays and batches of rows have not."""
    model.target_name_ = name
    vars(model).pop("fitted_", None)  # the cached view has none


class _Sweeps:
    """A callback that shows the current sweep in a line."""

    def __init__(self, console: Console, stack: ExitStack) -> None:
        self.console, self.stack = console, stack
        self.bar: Bar | None = None

    def __call__(self, entry: dict[str, Any]) -> None:
        if self.bar is None:
            self.bar = self.stack.enter_context(self.console.progress("fitting", "sweeps"))
        elbo = f", ELBO {entry['elbo']:.6g}" if isfinite(entry["elbo"]) else ""
        rank = entry["rank"]
        text = "-".join(map(str, rank)) if isinstance(rank, tuple) else rank
        what = f"fitting, restart {entry['restart'] + 1}, sweep {entry['sweep']} ({entry['phase']})"
        rank_text = f", rank {text}" if text else ""  # main effects have none
        self.bar.update(0, 0, f"{what}{rank_text}{elbo}")


def summary(model: Any, training: Any, sobol: Any) -> dict[str, Any]:
    """Return a description of a fitted model, for JSON."""
    every = zip(training.kinds.items(), sobol.total, sobol.total_std, strict=True)
    return {
        **described(model),
        "data": training.name,
        "rows_left_out": training.scan.n_missing,
        "inputs": [
            {"name": name, "kind": kind, "importance": importance, "importance_std": std}
            for (name, kind), importance, std in every
        ],
        "sweeps": model.n_iter_,
        "lower_bound": model.lower_bound_,
        "interrupted": model.stop_reason_.startswith("Interrupted"),
    }


def tested(model: Any, training: Any, console: Console) -> dict[str, float]:
    """Return scores of the held-out rows."""
    from .methods import Scores, predictive

    scores = Scores()
    with console.library():
        for X, y, weight in training.test_rows():
            scores.add(predictive(model, X), y, weight)
    return {"rows": scores.n, **scores.means()}


def _print(result: dict[str, Any], training: Any, console: Console) -> None:
    """Print a summary."""
    from .methods import sentence

    how = "fitted until it was interrupted" if result["interrupted"] else "fitted"
    what = f"{result['estimator']} of {training.target!r}, {how} in {result['seconds']:.1f} s"
    console.title(f"Saved {result['model']}: {what}")
    rows = [
        ("rows", f"{result['rows']:,} of {training.name}"),
        ("inputs", _kinds(training.kinds)),
        *lines_of(result, training.reason),
    ]
    if "test" in result:
        rows.append(("test", f"{result['test']['rows']:,} rows: {sentence(result['test'])}"))
    console.say(facts(rows, console.width))


def _kinds(kinds: dict[str, str]) -> str:
    """Return how many inputs of each type there are."""
    counts = {kind: list(kinds.values()).count(kind) for kind in dict.fromkeys(kinds.values())}
    parts = [f"{n} text" if kind == "text" else counted(n, kind) for kind, n in counts.items()]
    return f"{len(kinds)}: {', '.join(parts)}"
