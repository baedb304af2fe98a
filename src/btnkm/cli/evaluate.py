"""``btnkm evaluate``: cross-validation, also of other methods."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from ..data.csv_file import DataError
from .console import Console, UsageError, clipped, counted, number, table
from .fit import new_model
from .options import (
    add_model_options,
    add_names,
    add_output_options,
    add_table,
    add_table_options,
    add_training_options,
    command_parser,
    count,
    seed_of,
)

METHODS = ("gp", "boosting")  # the keys of ``methods.RIVALS``, whose import is slow
MOST_GROUPS, MIN_ROWS = 15, 50  # of the table of coverages
_EXAMPLES = """\
  btnkm evaluate houses.csv --target price
  btnkm evaluate houses.csv --target price --folds 3 --against gp,boosting
  btnkm evaluate houses.csv --target sold --n-init 1 --json
"""
_LABELS = {
    "rmse": "RMSE",
    "error": "wrong classes",
    "nll": "NLL",
    "coverage_50": "in 50% intervals",
    "coverage_90": "in 90% intervals",
    "coverage_95": "in 95% intervals",
    "seconds": "seconds per fit",
}


def add_parser(commands: Any) -> None:
    """Add the command to those of the program."""
    parser = command_parser(
        commands,
        "evaluate",
        "Measure how good predictions are by cross-validation: each fold is predicted by a model "
        "that is fitted to the other folds. The scores are the root mean squared error (RMSE) or "
        "the fraction of wrong classes, the mean negative log-likelihood (NLL; lower is better), "
        "and the fraction of rows inside the 50%, 90% and 95% intervals. The command prints means "
        "over the folds, ± the standard deviation. For numbers and counts, it also prints the "
        "fraction inside the 95% intervals in groups of rows: by predicted spread (the predicted "
        "standard deviation), and of other groups those in which it is clearly wrong.",
        _EXAMPLES,
    )
    add_table(parser)
    parser.add_argument(
        "--folds", type=count, default=5, metavar="K", help="number of folds (default: %(default)s)"
    )
    add_names(
        parser,
        "--against",
        "also evaluate gp (Gaussian process) or boosting (gradient boosting of scikit-learn)",
    )
    add_training_options(parser)
    add_model_options(parser)
    add_table_options(parser)
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Cross-validate, and print the scores."""
    from .tables import Training

    console = Console(arguments)
    against = list(dict.fromkeys(arguments.against or ()))
    for name in against:
        if name not in METHODS:
            raise UsageError(f"--against must be among {', '.join(METHODS)}, got {name!r}.")
    if arguments.weight and "gp" in against:
        raise UsageError("--against gp does not support --weight; leave one of them out.")
    if arguments.folds < 2:
        raise UsageError("--folds must be 2 or more, got 1; try 5.")
    training = Training(arguments, console)
    if training.n_rows < 2 * arguments.folds:
        raise DataError(
            f"must have at least {2 * arguments.folds} rows for {arguments.folds} folds, got "
            f"{training.n_rows}; add rows, or lower --folds.",
            training.name,
        )
    with console.library():
        results, coverage = evaluate(["btnkm", *against], training, arguments, console)
    methods = {name: _moments(scores) for name, scores in results.items()}
    parts = f"{arguments.folds}-fold cross-validation of {training.target!r} in {training.name}"
    rows, inputs = counted(training.n_rows, "row"), counted(len(training.kinds), "input")
    console.title(f"{parts}: {rows}, {inputs}")
    console.say(_table(methods, console.width))
    if coverage is not None and coverage.n >= MIN_ROWS:
        console.say(_coverage_table(coverage, console.width))
    for text in _notes(against, training, arguments.folds):
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
            "conditional_coverage": coverage,
        }
    )
    return 0


def evaluate(
    methods: list[str], training: Any, arguments: argparse.Namespace, console: Console
) -> tuple[dict[str, list[dict[str, float]]], Any]:
    """Return the scores of every method in every fold, and the coverage of ours by groups."""
    from .methods import Scores

    X, y, weight = training.all_rows
    results: dict[str, list[dict[str, float]]] = {name: [] for name in methods}
    folds = list(_folds(y, training.classify, arguments))
    ours: list[Any] = []
    with console.progress("evaluating") as bar:
        for k, (train, test) in enumerate(folds):
            for j, name in enumerate(methods):
                what = f"evaluating {name}, fold {k + 1} of {len(folds)}"
                bar.update(k * len(methods) + j, len(folds) * len(methods), what)
                begin = time.perf_counter()
                train_weight = None if weight is None else weight[train]
                fitted = _fit(
                    name, X.take(train), y[train], train_weight, training.classify, arguments
                )
                seconds = time.perf_counter() - begin
                predicted, scores = fitted(X.take(test)), Scores()
                scores.add(predicted, y[test], None if weight is None else weight[test])
                if name == "btnkm":
                    ours.append(predicted)
                results[name].append({**scores.means(), "seconds": seconds})
    if training.classify:
        return results, None
    return results, _conditional_coverage(ours, [test for _, test in folds], X, y)


def _conditional_coverage(distributions: list[Any], places: list[Any], X: Any, y: Any) -> Any:
    """Return the coverage of intervals in groups of rows, from the distributions of the folds."""
    from ..explain.coverage import Intervals, Property, coverage_of

    kinds = {"O": "category", "M": "date", "m": "duration"}
    inputs = [
        Property(name, kinds.get(values.dtype.kind, "number"), values)
        for name, values in X.columns.items()
    ]
    parts = [Intervals.of(distribution) for distribution in distributions]
    return coverage_of(Intervals.joined(parts, places), y, inputs)


def _folds(y: Any, classify: bool, arguments: argparse.Namespace) -> Iterator[tuple[Any, Any]]:
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if classify else KFold
    folds = kind(arguments.folds, shuffle=True, random_state=seed_of(arguments))
    return folds.split(y, y)


def _fit(
    name: str, X: Any, y: Any, weight: Any, classify: bool, arguments: argparse.Namespace
) -> Any:
    """Fit a method, and return the function that predicts the distribution of rows."""
    if name != "btnkm":
        from .methods import RIVALS

        return RIVALS[name](classify, seed_of(arguments)).fit(X, y, weight).predictive
    from .methods import predictive

    model = new_model(arguments, classify).fit(X, y, weight)
    return lambda rows: predictive(model, rows)


def _moments(scores: list[dict[str, float]]) -> dict[str, Any]:
    """Return mean, standard deviation and value in each fold of every score."""
    columns = {name: [fold[name] for fold in scores] for name in scores[0]}
    return {
        name: {"mean": statistics.fmean(v), "std": statistics.stdev(v), "folds": v}
        for name, v in columns.items()
    }


def _table(methods: dict[str, Any], width: int) -> str:
    """Return a table of scores, without standard deviations if there is no room."""
    text = ""
    for spread in (True, False):
        rows = [
            [_LABELS[score], *(_cell(score, method[score], spread) for method in methods.values())]
            for score in next(iter(methods.values()))
        ]
        text = table(["", *methods], rows, gap=3)
        if max(map(len, text.splitlines())) <= width:
            return text
    return text


def _coverage_table(coverage: Any, width: int) -> str:
    """Return coverage by predicted spread, and that of other groups where it is clearly wrong."""
    rows: list[list[str]] = []
    room = max(width - 50, 26)
    for part in coverage.groups:
        name = "spread" if part.kind == "spread" else part.name
        for k, label in enumerate(part.labels):
            if part.kind != "spread" and (not part.differs[k] or len(rows) >= MOST_GROUPS):
                continue
            group = clipped(f"{clipped(str(name), max(room - len(label) - 1, 4))} {label}", room)
            inside = f"{part.coverage[k]:.1%}{'*' if part.differs[k] else ' '}"
            range_of = f"{part.low[k]:.1%} to {part.high[k]:.1%}"
            rows.append([group, f"{part.rows[k]:,}", inside, range_of, number(part.width[k])])
    head = ["group of rows", "rows", "inside", "95% confidence", "mean width"]
    text = table(head, rows)
    if max(map(len, text.splitlines())) > width:
        text = table(head[:3] + head[4:], [row[:3] + row[4:] for row in rows])
    note = f"clearly wrong in none of {coverage.n_groups} groups, by spread and by input"
    if coverage.failures:
        note = f"* clearly wrong, as in {len(coverage.failures)} of {coverage.n_groups} groups"
    return f"\nRows inside the 95% intervals of btnkm\n{text}\n  {note}"


def _cell(score: str, value: dict[str, float], spread: bool) -> str:
    if score.startswith(("coverage", "error")):
        text = f"{value['mean']:.1%}"
        return f"{text} ± {value['std']:4.1%}" if spread else text
    if score == "seconds":
        return f"{value['mean']:.2f}" + " " * 7 * spread
    text = number(value["mean"])
    return f"{text} ± {number(value['std'], like=value['mean'])}" if spread else text


def _notes(against: list[str], training: Any, folds: int) -> Iterator[str]:
    """Yield notes on other methods."""
    from .methods import GP_CLASS_ROWS, GP_ROWS

    limit = GP_CLASS_ROWS if training.classify else GP_ROWS
    if "gp" in against and training.n_rows * (folds - 1) // folds > limit:
        yield f"gp is fitted to {limit:,} random rows of each fold: its cost is cubic in the rows."
    if "boosting" in against and not training.classify:
        yield (
            "boosting predicts no distribution: its NLL and intervals are those of a normal "
            "distribution with the standard deviation of its errors on a held-out fifth of the "
            "training rows."
        )
