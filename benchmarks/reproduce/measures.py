"""What one run measures: on a real data set, or on a tensor that is known."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.runs.experiment import Cell
from btnkm.baselines.literal import COMPONENT_SHARE, component_shares
from btnkm.core.state import State

from . import methods, synthetic
from .experiments import SYNTHETIC

#: Fraction of an input's squared weights above which a function counts (section 4.3 of the paper).
LEAST_FUNCTION = 2.5e-3
_DIGITS = 6  # significant, of what is only drawn


def measure(cell: Cell) -> dict[str, Any]:
    """Return what is measured of a cell: scores, effective sizes, and the course of split 0."""
    if cell.dataset == SYNTHETIC:
        return _recovery(cell)
    X, y, X_test, y_test = methods.load_split(cell.dataset, cell.split)
    begin = time.perf_counter()
    model = methods.fit(cell.dataset, cell.method, cell.config, X, y)
    fit_seconds = time.perf_counter() - begin
    metrics = methods.scores(cell.dataset, model, X_test, y_test)
    metrics |= {"fit_seconds": fit_seconds} | _sizes(model)
    if cell.split == 0:
        metrics |= _course(model)
    if hasattr(model, "best_params_"):
        metrics["chosen"] = model.best_params_
    return metrics


def effective_rank(state: State) -> int:
    """Return the number of components with more than 1e-5 of the sum of squares of all weights."""
    return int(np.sum(component_shares(state) > COMPONENT_SHARE))


def effective_functions(state: State) -> list[int]:
    """Return, for each input, the functions with more than 0.25% of its sum of squares."""
    counts = []
    for factor in state.factors:
        power = np.sum(factor.mean**2, axis=1)
        counts.append(int(np.sum(power > LEAST_FUNCTION * power.sum())))
    return counts


def _sizes(model: Any) -> dict[str, Any]:
    # a full tensor has a kernel instead of factors
    states = [state for state in getattr(model, "posterior_", ()) if hasattr(state, "factors")]
    if not states:
        return {"rank": float(model.rank_)} if hasattr(model, "rank_") else {}
    sizes: dict[str, Any] = {"rank": float(np.mean([effective_rank(state) for state in states]))}
    every = [state for state in states if len(state.modes) == model.n_features_in_]
    if every:
        counts = [effective_functions(state) for state in every]
        sizes["functions"] = np.mean(counts, axis=0).round(3).tolist()
    return sizes


def _course(model: Any) -> dict[str, Any]:
    """Return phase, ELBO and rank after each sweep of the restart with the highest ELBO."""
    if hasattr(model, "history_"):
        entries = [e for e in model.history_ if e["restart"] == _best_restart(model)]
        course = {
            "phase": [e["phase"] for e in entries],
            "bound": [_rounded(e["elbo"]) for e in entries],
            "rank": [e["rank"] for e in entries],
        }
    elif hasattr(model, "lower_bounds_"):
        bounds = [_rounded(bound) for bound in model.lower_bounds_]
        course = {"phase": ["exact"] * len(bounds), "bound": bounds, "rank": model.ranks_}
    else:
        return {}
    return {"course": course}


def _best_restart(model: Any) -> int:
    last = {e["restart"]: e["elbo"] for e in model.history_}
    return max(last, key=lambda restart: last[restart])


def _rounded(value: float) -> float | None:
    """Return a number that JSON has, short: None for NaN."""
    return float(f"{value:.10g}") if np.isfinite(value) else None


def _recovery(cell: Cell) -> dict[str, Any]:
    config = dict(cell.config)
    truth = synthetic.make_truth(cell.split, config.pop("sigma"))
    state = synthetic.recover(truth, cell.split, **config)
    support = [mode.keep.tolist() for mode in state.modes]
    true = [used.tolist() for used in truth.support]
    metrics: dict[str, Any] = {
        "rank_true": truth.rank,
        "rank": state.n_components,
        "support_true": true,
        "support": support,
        "rank_found": state.n_components == truth.rank,
        "support_found": support == true,
        "noise_std": float(state.likelihood.noise_std * truth.scale),
    }
    metrics["factors"] = [_digits(factor.mean) for factor in state.factors]
    metrics["rank_precision"] = _digits(np.asarray(state.rank[0].mean))
    metrics["function_precision"] = [_digits(np.asarray(gamma.mean)) for gamma in state.basis]
    return metrics


def _digits(array: Any) -> Any:
    flat = [float(f"{value:.{_DIGITS}g}") for value in array.ravel()]
    return np.reshape(flat, array.shape).tolist()
