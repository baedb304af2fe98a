"""``btnkm evaluate``: cross-validation, beside other methods if asked."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from ..data.csv_file import DataError
from .console import Console, counted, table
from .errors import UsageError
from .fit import new_model
from .options import (
    add_model_options,
    add_output_options,
    add_table_options,
    add_training_options,
    command_parser,
    count,
    names,
    seed_of,
)

METHODS = ("gp", "boosting")
_EXAMPLES = """\
  btnkm evaluate houses.csv --target price
  btnkm evaluate houses.csv --target price --folds 3 --against gp,boosting
  btnkm evaluate houses.csv --target sold --n-init 1 --json
"""
_LABELS = {
    "rmse": "RMSE",
    "error": "wrong classes",
    "nll": "NLL",
    "coverage_50": "50% intervals",
    "coverage_90": "90% intervals",
    "coverage_95": "95% intervals",
    "seconds": "seconds a fit",
}


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "evaluate",
        "Fit to all but one part of the rows and predict that part, for each part in turn. Told "
        "are the error (root mean square, or the share of wrong classes), the mean negative log "
        "likelihood (NLL; lower is better) and how many rows lie in intervals that should hold 50, "
        "90 and 95% of them: means over the parts, ± their standard deviation.",
        _EXAMPLES,
    )
    parser.add_argument("data", metavar="TABLE", help="a file, or - for standard input")
    parser.add_argument(
        "--folds", type=count, default=5, metavar="K", help="parts (default: %(default)s)"
    )
    parser.add_argument(
        "--against",
        type=names,
        action="extend",
        metavar="A,B",
        help="also gp (a Gaussian process) and boosting (of trees, by scikit-learn)",
    )
    add_training_options(parser)
    add_model_options(parser)
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and tell."""
    from .training import Training

    console = Console(arguments)
    against = list(dict.fromkeys(arguments.against or ()))
    for name in against:
        if name not in METHODS:
            raise UsageError(f"--against must be among {', '.join(METHODS)}, got {name!r}.")
    if arguments.weight and "gp" in against:
        raise UsageError(
            "--against gp must come without --weight, which it cannot follow; leave it out."
        )
    if arguments.folds < 2:
        raise UsageError("--folds must be 2 or more, got 1; try 5.")
    training = Training(arguments, console)
    if training.n_rows < 2 * arguments.folds:
        raise DataError(
            f"must have at least {2 * arguments.folds} rows for {arguments.folds} folds, got "
            f"{training.n_rows}; give more, or lower --folds.",
            training.name,
        )
    with console.library():
        found = measured(["btnkm", *against], training, arguments, console)
    methods = {name: _moments(scores) for name, scores in found.items()}
    parts = f"{arguments.folds}-fold cross-validation of {training.target!r} in {training.name}"
    rows, inputs = counted(training.n_rows, "row"), counted(len(training.kinds), "input")
    console.title(f"{parts}: {rows}, {inputs}")
    console.say(_table(methods, console.width))
    for text in _remarks(against, training, arguments.folds):
        console.note(text)
    console.result(
        {
            "data": training.name,
            "target": training.target,
            "task": "classification" if training.classify else "regression",
            "rows": training.n_rows,
            "inputs": list(training.kinds),
            "folds": arguments.folds,
            "methods": methods,
        }
    )
    return 0


def measured(
    methods: list[str], training: Any, arguments: argparse.Namespace, console: Console
) -> dict[str, list[dict[str, float]]]:
    """Return the scores of every method in every fold."""
    from .scores import Scores

    X, y, weight = training.all_rows
    found: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    folds = list(_folds(y, training.classify, arguments))
    with console.progress("evaluating") as bar:
        for k, (train, test) in enumerate(folds):
            for j, name in enumerate(methods):
                what = f"evaluating {name}, fold {k + 1} of {len(folds)}"
                bar.update(k * len(methods) + j, len(folds) * len(methods), what)
                start = time.perf_counter()
                some, heavy = X.take(train), None if weight is None else weight[train]
                said = _fitted(name, some, y[train], heavy, training.classify, arguments)
                seconds = time.perf_counter() - start
                scores = Scores()
                scores.add(said(X.take(test)), y[test], None if weight is None else weight[test])
                found[name].append({**scores.found(), "seconds": seconds})
    return found


def _folds(y: Any, classify: bool, arguments: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if classify else KFold
    folds = kind(arguments.folds, shuffle=True, random_state=seed_of(arguments))
    return folds.split(y, y)


def _fitted(
    name: str, X: Any, y: Any, weight: Any, classify: bool, arguments: argparse.Namespace
) -> Any:
    """Fit a method, and return what tells its distribution of rows."""
    if name != "btnkm":
        from .baselines import RIVALS

        return RIVALS[name](classify, seed_of(arguments)).fit(X, y, weight).predictive
    from .scores import predictive

    model = new_model(arguments, classify).fit(X, y, weight)
    return lambda rows: predictive(model, rows)


def _moments(scores: list[dict[str, float]]) -> dict[str, Any]:
    """Return mean, standard deviation and value in each fold of every score."""
    columns = {name: [one[name] for one in scores] for name in scores[0]}
    return {
        name: {"mean": statistics.fmean(v), "std": statistics.stdev(v), "folds": v}
        for name, v in columns.items()
    }


def _table(methods: dict[str, Any], width: int) -> str:
    """Return the scores, methods side by side; without deviations where there is no room."""
    found = ""
    for spread in (True, False):
        rows = [
            [_LABELS[score], *(_cell(score, one[score], spread) for one in methods.values())]
            for score in next(iter(methods.values()))
        ]
        found = table(["", *methods], rows, gap=3)
        if max(map(len, found.splitlines())) <= width:
            return found
    return found


def _cell(score: str, value: dict[str, float], spread: bool) -> str:
    if score.startswith(("coverage", "error")):
        text = f"{value['mean']:.1%}"
        return f"{text} ± {value['std']:4.1%}" if spread else text
    if score == "seconds":
        return f"{value['mean']:.2f}" + " " * 7 * spread
    text = f"{value['mean']:.4g}"
    return f"{text} ± {value['std']:.2g}" if spread else text


def _remarks(against: list[str], training: Any, folds: int) -> Iterator[str]:
    """Yield what a reader should know of other methods."""
    from .baselines import GP_CLASS_ROWS, GP_ROWS

    most = GP_CLASS_ROWS if training.classify else GP_ROWS
    if "gp" in against and training.n_rows * (folds - 1) // folds > most:
        yield f"gp learns from {most:,} rows of each fold, drawn at random: it is cubic in them."
    if "boosting" in against and not training.classify:
        yield (
            "boosting gives no distribution: NLL and intervals are those of a normal one around "
            "it, as wide as its errors on a fifth of the training rows, held out from a first fit."
        )
