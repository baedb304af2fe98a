"""``btnkm fit``: a table in, a model out."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from math import isfinite
from typing import Any

from .console import Bar, Console, counted, facts, shares
from .errors import UsageError
from .options import (
    add_model_options,
    add_output_options,
    add_table_options,
    add_training_options,
    command_parser,
    model_parameters,
    output_file,
    probability,
)

_EXAMPLES = """\
  btnkm fit houses.csv --target price -o houses.btn
  btnkm fit houses.csv --target price --drop id --test 0.2 -o houses.btn
  btnkm fit houses.csv --target sold --classify --text zip -o sold.btn
  btnkm fit houses.parquet --target price --n-init 2 --memory-limit 4 --json -o houses.btn
"""
MOST_INPUTS = 12  # of which the summary tells


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "fit",
        "Fit a model to a table (CSV or TSV, either with .gz, or Parquet, which may be a folder "
        "or a pattern) and save it. Numbers, booleans, dates such as 2024-12-31 and text are told "
        "apart by all rows; nothing has to be scaled, encoded or filled in. Tables may be larger "
        "than memory. Ctrl-C keeps what the fit has found so far.",
        _EXAMPLES,
    )
    parser.add_argument("data", metavar="TABLE", help="a file, or - for standard input")
    parser.add_argument(
        "-o",
        "--output",
        type=output_file,
        required=True,
        metavar="MODEL",
        help="file for the model",
    )
    add_training_options(parser)
    parser.add_argument(
        "--test",
        type=probability,
        metavar="SHARE",
        help="hold this share of the rows back, and tell how well they are predicted",
    )
    parser.add_argument(
        "--checkpoint",
        type=output_file,
        metavar="FILE",
        help="note here how far the fit is; the same command goes on from there if it was killed",
    )
    add_model_options(parser)
    add_table_options(parser)
    add_output_options(parser, verbose=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, save, and tell."""
    from ..explain import sobol_indices
    from .models import check_model_path
    from .output import check_output
    from .training import Training

    console = Console(arguments)
    check_model_path(arguments.output, arguments.data)
    if arguments.checkpoint == arguments.output:
        raise UsageError(
            f"--checkpoint must not be the model, got {str(arguments.output)!r} for both."
        )
    check_output(arguments.checkpoint, "--checkpoint", table=arguments.data)
    training = Training(arguments, console, arguments.test or 0.0)
    model = new_model(arguments, training.classify)
    start = time.perf_counter()
    fit(model, training.fit_arguments(), console, arguments.checkpoint)
    seconds = time.perf_counter() - start
    model.target_name_ = training.target  # it knows rows with their targets, not what these are
    model.save(arguments.output)
    with console.library():
        shared = sobol_indices(model)
    found = summary(model, training, shared)
    found |= {"seconds": seconds, "model": str(arguments.output)}
    if arguments.test:
        found["test"] = tested(model, training, console)
    _tell(found, training, console)
    console.say()
    console.say(shares(shared, console.width, MOST_INPUTS))
    console.result(found)
    return 0


def new_model(arguments: argparse.Namespace, classify: bool) -> Any:
    """Return an estimator with the parameters of the command line."""
    import btnkm

    from ..parameters import option_names, with_options

    kind = btnkm.BTNClassifier if classify else btnkm.BTNRegressor
    parameters = model_parameters(arguments)
    hidden = {"callback", "warm_start", "verbose", "priors", "solver"}
    known = {*kind().get_params(deep=False), *option_names()} - hidden
    for name in parameters:
        if name not in known:
            raise UsageError(
                f"--set must name a parameter of {kind.__name__}, got {name!r}; these are "
                f"{', '.join(sorted(known))}."
            )
    return kind(**with_options(parameters), verbose=int(arguments.verbose))


def fit(model: Any, rows: tuple[Any, ...], console: Console, checkpoint: Any = None) -> None:
    """Fit a model, with a line that follows its sweeps."""
    with ExitStack() as stack:
        stack.enter_context(console.library())
        watched = sys.stderr.isatty() and not (console.json or console.quiet or console.verbose)
        if watched:
            model.set_params(callback=_Sweeps(console, stack))
        try:
            model.fit(*rows, checkpoint=checkpoint)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(
                "Stopped before there was anything to keep: no model is saved."
            ) from stop
        finally:
            model.set_params(callback=None)


class _Sweeps:
    """A line that is there from the first sweep on, when no other is."""

    def __init__(self, console: Console, stack: ExitStack) -> None:
        self.console, self.stack = console, stack
        self.bar: Bar | None = None

    def __call__(self, entry: dict[str, Any]) -> None:
        if self.bar is None:
            self.bar = self.stack.enter_context(self.console.progress("fitting", "sweeps"))
        bound = f", bound {entry['elbo']:.6g}" if isfinite(entry["elbo"]) else ""
        rank = entry["rank"]
        told = "-".join(map(str, rank)) if isinstance(rank, tuple) else rank
        what = f"fitting, start {entry['restart'] + 1}, sweep {entry['sweep']} ({entry['phase']})"
        rank_text = f", rank {told}" if told else ""  # main effects alone have none
        self.bar.update(0, 0, f"{what}{rank_text}{bound}")


def summary(model: Any, training: Any, shared: Any) -> dict[str, Any]:
    """Return what is worth knowing of a fitted model."""
    from .models import described

    every = zip(training.kinds.items(), shared.total, shared.total_std, strict=True)
    return {
        **described(model),
        "data": training.name,
        "rows_left_out": training.scan.n_missing,
        "inputs": [
            {"name": name, "kind": kind, "share": share, "share_std": spread}
            for (name, kind), share, spread in every
        ],
        "sweeps": model.n_iter_,
        "lower_bound": model.lower_bound_,
        "interrupted": model.stop_reason_.startswith("Interrupted"),
    }


def tested(model: Any, training: Any, console: Console) -> dict[str, float]:
    """Return scores of the rows that were held out."""
    from .scores import Scores, predictive

    scores = Scores()
    with console.library():
        for X, y, weight in training.test_rows():
            scores.add(predictive(model, X), y, weight)
    return {"rows": scores.n, **scores.found()}


def _tell(found: dict[str, Any], training: Any, console: Console) -> None:
    """Print a summary."""
    from .models import lines_of
    from .scores import sentence

    how = "fitted until it was stopped" if found["interrupted"] else "fitted"
    what = f"{found['estimator']} of {training.target!r}, {how} in {found['seconds']:.1f} s"
    console.title(f"Saved {found['model']}: {what}")
    rows = [
        ("rows", f"{found['rows']:,} of {training.name}"),
        ("inputs", _kinds(training.kinds)),
        *lines_of(found, training.reason),
    ]
    if "test" in found:
        rows.append(("test", f"{found['test']['rows']:,} rows: {sentence(found['test'])}"))
    console.say(facts(rows, console.width))


def _kinds(kinds: dict[str, str]) -> str:
    """Return how many inputs there are, and of what kind."""
    plural = {"number": "number", "boolean": "boolean", "date": "date", "text": "text"}
    counts = {kind: list(kinds.values()).count(kind) for kind in dict.fromkeys(kinds.values())}
    parts = [
        f"{n} text" if kind == "text" else counted(n, plural.get(kind, kind))
        for kind, n in counts.items()
    ]
    return f"{len(kinds)}: {', '.join(parts)}"
