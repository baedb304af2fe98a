"""One offline HTML page about a fitted model, with a panel that predicts in the browser."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ..core.arrays import here
from ..data.frames import name_of
from ..data.readers import with_targets
from ..explain.fitted import View
from ..explain.summary import kept_functions, likelihood_line, likelihoods, structure_line
from ..explain.variance import variance_shares
from ..io.atomic_write import file_path, whole_file
from ..version import __version__
from . import sections
from .effect_section import effects_of
from .embedding import ENGINE_FILES
from .fit_section import how_good
from .format import counted, escaped, name, number, shortened
from .metrics import Goodness, goodness
from .pair_section import mostly_unknown, pairs, strongest
from .panel import Panel, drawn_codes, panel
from .warnings import found_nothing, remarks

Array = np.ndarray
MANY_RESTARTS = 10  # above which their weights are not listed


def report(
    model: Any, path: Any, X: Any = None, y: Any = None, *, title: str | None = None, cv: Any = None
) -> Path:
    """Write one self-contained HTML page about a fitted model; it needs no network to be read.

    Parameters
    ----------
    model : BTNRegressor or BTNClassifier, fitted
    path : path
        Where to write; a file that is there is replaced, once the new one is whole.
    X : table of shape (n, inputs), or None
        Rows that the fit has not seen: the page then says how good predictions are.
    y : array of shape (n,), or the name of a column of X
    title : str or None
        The heading; None names what is predicted.
    cv : int, splitter or None
        With ``cv``, X and y are the rows of the fit: they are divided in so many parts, and each is
        predicted by a clone fitted to the others. Weights of the fit are not known here: all rows
        count the same.

    Returns
    -------
    pathlib.Path
    """
    check_is_fitted(model)
    place = file_path(path, "model.html")  # before anything takes time
    if (X is None) != (y is None):
        raise ValueError(
            "X and y must come together, got one of them; give rows with their targets, or neither."
        )
    if cv is not None and X is None:
        raise ValueError("cv must come with the rows of the fit, got none; pass X and y.")
    target = name_of(y) or model.target_name_ or "y"
    good = None
    if X is not None:
        X, y, _ = with_targets(X, y, None)
        y = model._check_y(type(model).__name__, here(y))
        check_consistent_length(X, y)
        good = goodness(model, X, y, cv)
    text = page(model, X if cv is None else None, good, target, title)
    with whole_file(place) as draft:
        # half a character may be in a name
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return place


def page(model: Any, X: Any, good: Goodness | None, target: str, title: str | None = None) -> str:
    """Return the page as text; X are rows that the fit has not seen, or None."""
    shares = variance_shares(model)
    controls = panel(model, shares.total, shares.order, target)
    codes = drawn_codes(model)
    drawn = model._predict(codes, lambda p, rows: replace(p, least=0.0).contrasts(rows), 2)
    found = remarks(model, shares.total, X, good, drawn)
    nothing = found_nothing(model.weights_, *drawn)
    together = [] if nothing else strongest(model)
    at_most = mostly_unknown(together, shares)
    every = [
        sections.summary(model, shares, good, target, nothing=nothing, at_most=at_most),
        sections.warnings(found),
        sections.what_if(controls, model, target),
        sections.matters(shares, nothing=nothing),
        effects_of(model, shares, target),
        None if nothing else pairs(model, together, shares, target),
        how_good(good, model),
        sections.fit(model, _made_of(model)),
    ]
    parts = [part for part in every if part is not None]
    heading = title if title is not None else f"What predicts {shortened(target, 80)}?"
    style = _read("report.css")
    script = "\n".join(_read(file) for file in (*ENGINE_FILES, "report.js"))
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    links = (f'<li><a href="#{part.key}">{escaped(part.title)}</a></li>' for part in parts)
    return _filled(
        _read("report.html"),
        {
            "policy": escaped(_policy(style, script)),
            "generator": escaped(f"btnkm {__version__}"),
            "title": escaped(shortened(heading, 120)),
            "style": style,
            "kind": "Model report",
            "heading": name(heading, 200),
            "made": escaped(
                f"{type(model).__name__}, {counted(model.n_samples_seen_, 'row')}, "
                f"{counted(len(model.columns_), 'input')}; made on {today}"
            ),
            "contents": "".join(links),
            "sections": "\n".join(part.html() for part in parts),
            "footer": escaped(
                f"Made by btnkm {__version__}. This page is complete in itself: it loads nothing "
                "and sends nothing."
            ),
            "data": _data(controls),
            "script": script,
        },
    )


def _made_of(model: Any) -> list[tuple[str, str]]:
    """Return what was asked for and what came of it."""
    last: dict[int, Any] = {}
    for entry in model.history_:
        last[entry["restart"]] = entry
    seconds = sum(float(entry["seconds"]) for entry in last.values())
    best = View.of(model).starts[model.best_restart_]
    functions = sum(kept_functions(best, j) for j in range(len(model.columns_)))
    pairs = [
        ("Call", " ".join(repr(model).split())),
        ("Likelihood", likelihood_line(likelihoods(model))),
        ("Ended", model.stop_reason_),
        ("Structure", structure_line(model)),
        ("Restarts", _restarts(model.weights_)),
        ("Lower bound", number(model.lower_bound_, 2)),
        ("Time", f"{seconds:.1f} s of sweeps"),
    ]
    if functions:
        pairs.insert(5, ("Functions", f"{functions} in {counted(len(model.columns_), 'input')}"))
    if np.any(model.ranks_):
        pairs.insert(5, ("Ranks", ", ".join(str(r) for r in model.ranks_.tolist())))
    return pairs


def _restarts(weights: Array) -> str:
    """Return how many restarts there are, and with what weights they are averaged."""
    if len(weights) == 1:
        return "1"
    told = ", ".join(f"{weight:.2f}" for weight in weights)
    if len(weights) > MANY_RESTARTS:
        told = f"from {min(weights):.2f} to {max(weights):.2f}"
    return f"{len(weights)}, averaged with weights {told}"


def _read(file: str) -> str:
    return files(__package__).joinpath(file).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return what the page may do: run its own script and style, and nothing else."""

    def sha256(text: str) -> str:
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {sha256(script)}; style-src {sha256(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _data(controls: Panel | str) -> str:
    if isinstance(controls, str):
        return ""
    return (
        f'<script type="application/json" id="what-if-data">{controls.data}</script>\n'
        f'<script type="text/plain" id="what-if-numbers">{controls.numbers}</script>'
    )


def _filled(template: str, values: dict[str, str]) -> str:
    """Return the template with its places filled, once: what is filled in is not looked at."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)
