"""The full tensor as a structure: which tables may have it, and its fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.evidence import Parts
from ..core.full import FullPosterior
from ..core.full_fit import Curvature, FullFit, has_evidence
from ..core.full_sites import Observations
from ..core.schedule import Progress
from ..execution import fitting
from ..execution.restarts import Restart, RestartSettings, limit_blas
from .mode_map import ModeMap

Array = np.ndarray


def parts_of(mode_map: ModeMap) -> Parts:
    """Return which inputs have which part of the kernel."""
    bases = mode_map.bases
    curved = [d for d, b in enumerate(bases) if b.varies_ and not b.straight]
    return Parts(
        categorical=np.array([b.categorical for b in bases], dtype=bool),
        line=np.array([d for d, b in enumerate(bases) if b.varies_ and not b.categorical], int),
        curve=np.array(curved, dtype=int),
        missing=np.array([d for d, b in enumerate(bases) if b.has_missing_], dtype=int),
        factor=np.array(curved if len(curved) > 1 else [], dtype=int),
    )


def rows_of(task: Any, mode_map: ModeMap, rows: Array) -> Observations:
    """Return some rows of the sample as the kernel sees them."""
    features = mode_map.features(task.sample.codes, rows)
    phi, count = [x for x, _ in features], len(mode_map.bases)
    sample = task.sample
    return Observations(
        tuple(phi[:count]), sample.y[rows], sample.weights[rows], tuple(phi[count:])
    )


def fit_full(
    task: Any,
    mode_map: ModeMap,
    rows: Array,
    settings: RestartSettings,
    begin: FullPosterior | None = None,
    *,
    iterations: int | None = None,
    scale: float | None = None,
    curvature: Curvature | None = None,
) -> tuple[list[FullPosterior], Curvature | None]:
    """Return posteriors of the full tensor given some rows of the sample, each as likely.

    With them is the curvature of the evidence, from which a later search can begin.
    """
    search = _search(task, mode_map, settings, curvature=curvature)
    with limit_blas():
        observations, rng = rows_of(task, mode_map, rows), np.random.default_rng(task.seeds)
        return search.run(observations, rng, begin, iterations, scale), search.curvature


def _search(task: Any, mode_map: ModeMap, settings: RestartSettings, **how: Any) -> FullFit:
    return FullFit(
        parts_of(mode_map),
        settings.likelihood,
        task.target.n_outputs,
        settings.priors.noise,
        **how,
    )


def fit_all(
    task: Any,
    mode_map: ModeMap,
    settings: RestartSettings,
    observe: Callable[[int, Progress], bool | None],
    states: Sequence[FullPosterior] = (),
    curvature: Curvature | None = None,
) -> fitting.Result:
    """Return the full tensor fitted to all rows, from the hyperparameters of part of them on."""
    n, begin = task.sample.n, time.perf_counter()
    sweeps: list[Progress] = []

    def step(value: float, stage: int) -> bool | None:
        sweeps.append(progress(value, stage))
        return observe(0, sweeps[-1])

    def progress(value: float, stage: int, state: Any = None) -> Progress:
        return Progress(
            sweep=len(sweeps) + 1,
            phase="exact",
            bound=value,
            terms={"evidence": value},
            rank=n,
            noise_std=np.nan if state is None else float(state.likelihood.noise_std),
            seconds=time.perf_counter() - begin,
            jitter=0.0,
            state=state,
            converged=state is not None,
            stage=stage,
        )

    how = {"observe": step, "may_be_interrupted": True, "curvature": curvature if states else None}
    search = _search(task, mode_map, settings, **how)
    with limit_blas():
        rng = np.random.default_rng(task.seeds)
        rows, known = rows_of(task, mode_map, np.arange(n)), next(iter(states), None)
        # rows held out have found the scale of f where noise is not additive
        scale = None if known is None or has_evidence(search.likelihood) else 0.0
        posteriors = search.run(rows, rng, known, scale=scale)
    restarts = []
    for k, state in enumerate(posteriors):
        last = progress(state.evidence, search.searches + 1, state)
        observe(k, last)
        restarts.append(Restart([*sweeps, last] if k == 0 else [last]))
        restarts[-1].end()
    return fitting.Result(
        restarts, [], len(restarts), interrupted=search.interrupted, ended=not search.stopped
    )
