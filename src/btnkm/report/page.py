"""One offline HTML page about a fitted model, with a panel that predicts in the browser."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from sklearn.utils.validation import check_consistent_length

from ..core.arrays import here
from ..core.recalibration import describe
from ..data.frames import name_of
from ..data.readers import with_targets
from ..explain.diagnostics import Calibration, History, Reliability, history
from ..explain.fitted import FittedModel
from ..explain.noise import constant_noise
from ..explain.sobol import sobol_indices
from ..explain.summary import kept_functions, likelihood_line, likelihoods, structure_line
from ..io.atomic_write import check_folder, file_path, whole_file
from ..version import __version__
from . import charts, effects, format
from .charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Table
from .format import counted, number, percent, shortened
from .intervals import intervals_section
from .metrics import (
    Evaluation,
    confusion_table,
    evaluate,
    evaluation_charts,
    metrics_table,
)
from .noise import noise_section
from .panel import ENGINE_FILES, Panel, drawn_codes, panel
from .warnings import Notice, notices

Array = np.ndarray
MANY_RESTARTS = 10  # above which their weights are not listed
MATTERS = 0.03  # importance of an input that is named at the top
Tile = tuple[str, str, str]  # term, value, note


def report(
    model: Any, path: Any, X: Any = None, y: Any = None, *, title: str | None = None, cv: Any = None
) -> Path:
    """Write one HTML page about a fitted model; it needs no network.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    path : path
        Where to write. An existing file is replaced when the new one is complete.
    X : table of shape (n, inputs), or None
        Rows that the fit has not seen: the page then says how good the predictions are.
    y : array of shape (n,), or the name of a column of X
    title : str or None
        The heading; None names the target.
    cv : int, splitter or None
        With ``cv``, X and y are the training rows. They are divided into folds, and each fold is
        predicted by a clone that is fitted to the others. Sample weights of the fit are not
        used: all rows have the same weight.

    Returns
    -------
    pathlib.Path
    """
    fitted = FittedModel.of(model)
    place = file_path(path, "model.html")
    check_folder(place)  # before anything takes time
    if (X is None) != (y is None):
        raise ValueError(
            "X and y must be given together, got one of them; pass rows with targets, or neither."
        )
    if cv is not None and X is None:
        raise ValueError("cv needs the training rows, got none; pass X and y.")
    target = name_of(y) or fitted.target_name or "y"
    evaluation = None
    if X is not None:
        X, y, _ = with_targets(X, y, None)
        y = fitted.check_y(here(y))
        check_consistent_length(X, y)
        evaluation = evaluate(model, X, y, cv)
    text = page(model, X if cv is None else None, evaluation, target, title)
    with whole_file(place) as draft:
        # half a character may be in a name
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return place


def page(
    model: Any, X: Any, evaluation: Evaluation | None, target: str, title: str | None = None
) -> str:
    """Return the page as text; X are rows that the fit has not seen, or None."""
    fitted = FittedModel.of(model)
    indices = sobol_indices(model)
    what_if = panel(model, indices.total, indices.order, target)
    moments = fitted.predict(
        drawn_codes(model), lambda p, rows: replace(p, least=0.0).contrasts(rows), 2
    )
    warnings = notices(model, indices.total, X, evaluation, moments)
    nothing = fitted.found_nothing
    pairs = [] if nothing else effects.strongest_pairs(fitted)
    bars = effects.importance_bars(indices)
    noise = noise_section(fitted, target)
    intervals = intervals_section(fitted, evaluation.coverage if evaluation else None)
    classes = None if fitted.classes is None else fitted.classes.tolist()
    return (
        _environment()
        .get_template("page.html")
        .render(
            **_frame(),
            title=title if title is not None else f"What predicts {shortened(target, 80)}?",
            contents=_contents(fitted, warnings, nothing, noise, intervals),
            estimator=fitted.estimator,
            n_rows=model.n_samples_seen_,
            n_columns=len(fitted.columns),
            n_active=len(fitted.active),
            target=target,
            classes=classes,
            task=_task(fitted),
            evaluation=evaluation,
            accuracy_sentence=_accuracy_sentence(evaluation),
            nothing=nothing,
            most_important=[
                indices.names[j] for j in indices.order[:3] if indices.total[j] >= MATTERS
            ],
            indices=indices,
            at_most=effects.mostly_unknown(pairs, indices),
            tiles=_tiles(model, fitted, evaluation, varies=noise is not None),
            notices=warnings,
            panel=what_if if isinstance(what_if, Panel) else None,
            no_panel=what_if,
            has_dates=any(fitted.columns[j].kind == "M" for j in fitted.active),
            importances=bars,
            importance_table=effects.importance_table(bars),
            effects=effects.effects_section(fitted, indices, target),
            pairs=effects.pairs_section(fitted, pairs, indices, target),
            noise=noise,
            intervals=intervals,
            noise_std=number(model.noise_std_) if noise else "",
            metrics=evaluation and metrics_table(evaluation),
            confusion=confusion_table(evaluation, classes) if evaluation and classes else None,
            evaluation_charts=evaluation and evaluation_charts(evaluation),
            elbo=elbo_chart(history(model)),
            facts=_facts(model, fitted),
        )
    )


def _frame() -> dict[str, Any]:
    """Return what every page has: version, date, style, script and the policy for these."""
    style = _read("report.css")
    script = "\n".join(_read(file) for file in (*ENGINE_FILES, "report.js"))
    return {
        "version": __version__,
        "today": datetime.now(UTC).strftime("%Y-%m-%d"),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
    }


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (format.name, format.shortened, format.counted, format.percent):
        environment.filters[function.__name__] = function
    return environment


def _contents(
    fitted: FittedModel, warnings: Sequence[Notice], nothing: bool, noise: Any, intervals: Any
) -> list[tuple[str, str]]:
    """Return the key and the heading of each section; ``noise`` and ``intervals`` may be None."""
    serious = any(notice.serious for notice in warnings)
    sections = [
        ("summary", "Summary"),
        ("warnings", "Warnings" if serious or not warnings else "Notes"),
        ("what-if", "What if?"),
        ("importance", "Importance of the inputs"),
        ("effects", "Effects"),
        ("interactions", "Interactions"),
        ("noise", "How large is the noise?"),
        ("accuracy", "Accuracy"),
        ("intervals", "Do the intervals hold everywhere?"),
        ("fit", "The fit"),
    ]
    left_out = {"interactions"} if nothing or len(fitted.active) < 2 else set()
    left_out |= set() if noise else {"noise"}
    left_out |= set() if intervals else {"intervals"}
    return [section for section in sections if section[0] not in left_out]


def _task(fitted: FittedModel) -> str:
    """Return what kind of model it is."""
    if fitted.is_classifier:
        return "classifier"
    if fitted.transformation is not None:
        return str(fitted.transformation.task)
    first = likelihoods(fitted)[0]["name"]
    every = [constant_noise(part)[0] for part in fitted.likelihoods]
    kind = next(part for part in every if type(part).__name__ == first)
    return str(getattr(kind, "task", "regression"))


def _accuracy_sentence(evaluation: Evaluation | None) -> str:
    """Return how accurate predictions are."""
    if evaluation is None:
        return ""
    rows = counted(evaluation.n, "row")
    where = f"the {rows} given with this report"
    if evaluation.folds:
        where = f"{rows} (cross-validated)"
    first = evaluation.metrics[0]
    if isinstance(evaluation.calibration, Reliability):
        return (
            f"It predicts the right class in {percent(first.value, 1)} of {where}. Always "
            f"predicting the most frequent class would be right in {percent(first.without)}."
        )
    rmse = next(metric for metric in evaluation.metrics if metric.name == "RMSE")
    error = f"the root mean squared error (RMSE) is {number(rmse.value)}."
    if first.name != "R²":
        return f"On {where}, {error}"
    explained = percent(max(first.value, 0.0))
    return f"On {where}, it explains {explained} of the variance, and {error}"


def _tiles(
    model: Any, fitted: FittedModel, evaluation: Evaluation | None, *, varies: bool
) -> list[Tile]:
    """Return the most important numbers."""
    unused = len(fitted.columns) - len(fitted.active)
    note = f"{unused:,} of them constant" if unused else ""
    tiles = [
        ("Training rows", f"{model.n_samples_seen_:,}", ""),
        ("Inputs", f"{len(fitted.columns):,}", note),
    ]
    if fitted.classes is not None:
        tiles.append(("Classes", f"{len(fitted.classes):,}", ""))
    elif np.isfinite(model.noise_std_):
        of = "" if fitted.transformation is None else f" of the {shortened(fitted.unit, 50)}"
        note = f"standard deviation{of} that no input explains"
        note += ", on average: it varies" if varies else ""
        tiles.append(("Noise", number(model.noise_std_), note))
    if evaluation is not None:
        first, note = evaluation.metrics[0], f"on {counted(evaluation.n, 'held-out row')}"
        if evaluation.folds:
            note = f"on {counted(evaluation.n, 'row')}, cross-validated"
        value = percent(first.value, 1) if first.is_fraction else number(first.value, 3)
        tiles.append((first.name, value, note))
        if isinstance(evaluation.calibration, Calibration):
            k = int(np.argmin(np.abs(evaluation.calibration.levels - 0.95)))
            coverage = percent(evaluation.calibration.coverage[k], 1)
            tiles.append(("95% intervals contain", coverage, f"of the values of y, {note}"))
    return [*tiles, *_structure_tiles(model, fitted)]


def _structure_tiles(model: Any, fitted: FittedModel) -> list[Tile]:
    """Return the structure with the highest weight, and the rank of its tensor if it has one."""
    first, *others = structure_line(fitted).split(", ")
    name, _, weight = first.partition(" (")
    tiles = [("Structure", name, ", ".join([weight.rstrip(")"), *others]) if others else "")]
    ranks = np.atleast_1d(model.rank_)
    if not np.any(ranks) or fitted.is_full:
        return tiles
    count = len(fitted.posteriors)
    note = "" if count == 1 else f"in the best of {count} restarts"
    if len(ranks) == 1:
        note = "components of the tensor" + (f", {note}" if note else "")
        return [*tiles, ("Rank", f"{int(ranks[0])}", note)]
    return [*tiles, ("Ranks of the tensor train", f"{ranks.min()}–{ranks.max()}", note)]


def elbo_chart(history: History) -> Chart | None:
    """Return the ELBO of every restart by sweep; None where no sweep has one."""
    runs = [(k, run) for k, runs in enumerate(history.searches) for run in runs]
    if not runs:
        return None
    high = max(float(run.elbo.max()) for _, run in runs)
    # the first sweeps rise steeply and would leave no room for the others
    low = min(float(r.elbo[min(len(r.elbo) - 1, max(2, len(r.elbo) // 10))]) for _, r in runs)
    low = min(low, high - 1e-6 * max(abs(high), 1.0))
    first = min(int(run.sweep[0]) for _, run in runs)
    last = max(int(run.sweep[-1]) for _, run in runs)
    x = charts.axis("number", first, max(last, first + 1), LEFT + 8, WIDTH - RIGHT)
    y = charts.axis("number", low, high + 0.04 * (high - low), HEIGHT - BOTTOM, TOP)
    shapes = charts.grid(x, y)
    for k, run in sorted(runs, key=lambda pair: pair[0] == history.best):  # the best on top
        inside = run.elbo >= low
        kind = "line c0" if k == history.best else "line thin c5"
        shapes.append(charts.path(kind, x.at(run.sweep[inside]), y.at(run.elbo[inside])))
    ends = {k: run.elbo[-1] for k, run in runs}  # of the last search of each restart
    rows = [
        [
            f"{k + 1}{' (best)' if k == history.best else ''}",
            f"{int(np.sum(np.isfinite(history.elbo[k])))}",
            number(end, 2),
            number(history.ranks[k][-1]),
        ]
        for k, end in ends.items()
    ]
    title = "ELBO by sweep"
    description = f"{counted(len(ends), 'restart')}; the best ends at {number(high, 2)}."
    table = Table(title, ["Restart", "Exact sweeps", "ELBO", "Rank"], rows)
    return Chart("elbo", title, description, shapes, table)


def _facts(model: Any, fitted: FittedModel) -> list[tuple[str, str]]:
    """Return the parameters of the model, and the outcome of the fit."""
    last = {entry["restart"]: float(entry["seconds"]) for entry in model.history_}
    best = fitted.restarts[fitted.best_restart]
    functions = sum(kept_functions(best, j) for j in range(len(fitted.columns)))
    facts = [
        ("Call", " ".join(repr(model).split())),
        ("Likelihood", likelihood_line(likelihoods(fitted))),
        ("Stopped", model.stop_reason_),
        ("Structure", structure_line(fitted)),
        *([("Recalibration", f"{describe(fitted.calibration)}.")] if fitted.calibration else []),
        ("Restarts", _restarts(fitted.weights)),
    ]
    if np.any(model.ranks_):
        facts.append(("Ranks", ", ".join(str(r) for r in model.ranks_.tolist())))
    if functions:
        inputs = counted(len(fitted.columns), "input")
        facts.append(("Basis functions", f"{functions} kept, of {inputs}"))
    facts.append(("ELBO", number(model.lower_bound_, 2)))
    return [*facts, ("Time of all sweeps", f"{sum(last.values()):.1f} s")]


def _restarts(weights: Array) -> str:
    """Return how many restarts there are, and with which weights they are averaged."""
    if len(weights) == 1:
        return "1"
    listed = ", ".join(f"{weight:.2f}" for weight in weights)
    if len(weights) > MANY_RESTARTS:
        listed = f"from {min(weights):.2f} to {max(weights):.2f}"
    return f"{len(weights)}, averaged with weights {listed}"


def _read(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return the page's content security policy: its own script and style, and nothing else."""

    def sha256(text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {sha256(script)}; style-src {sha256(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
