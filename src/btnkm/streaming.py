"""Incremental fits: from batch after batch, or from an existing posterior.

As long as a stream has few rows, or remembers few, the rows are kept and the model is fitted anew
each time their number has doubled: what looks like noise in a few rows may well be part of f. From
then on only sums over the rows are kept (``core/batch_stats.py``).
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .core.batch_stats import BatchStats
from .core.growing import with_functions
from .core.state import State
from .data.column_stats import MOST_ROWS, TableStats, Window, check_kinds
from .data.columns import Column, Growth, grown
from .data.dask_input import is_dask
from .data.frames import check_names, name_of
from .data.readers import Table, coded
from .execution import fitting
from .execution.modes import of_a_new_category, with_functions_of
from .parameters import lasting_parameters
from .plan import FitPlan
from .structures.mode_map import ModeMap
from .structures.multistart import Run, observer
from .structures.task import Task, Values
from .warn import warn

Array = np.ndarray
WINDOW = 8192  # rows of a stream that are kept at most
FAR = 20.0  # standard deviations between the targets of a batch and those of the first batch


class Grown(NamedTuple):
    """What a model continues from: as it was, or with more categories."""

    columns: list[Column]
    mode_maps: tuple[ModeMap, ...]
    states: list[State]
    pasts: list[BatchStats] | None


class Streaming:
    """Mixin of the estimators for incremental fits."""

    _window: Window | None = None
    _pasts: list[BatchStats]

    def partial_fit(
        self: Any, X: Any, y: Any = None, sample_weight: Any = None, *, forget: float = 1.0
    ) -> Any:
        """Update the model with a batch of rows.

        As long as a stream has (or, with ``forget``, remembers) up to 8,192 rows, the model and its
        file contain them. The model is fitted again to all of them each time their number has
        doubled. In longer streams, a batch updates the posterior, and only sums over its rows are
        kept. New categories are added, and components if more are needed. Scales, functions and
        the choice of inputs do not change. A recalibration is removed, with a warning.

        If a model from ``fit`` has a full tensor, it contains its rows as well. The first batch
        then starts a stream with a fit to these rows and its own. With ``structure="auto"`` the
        stream has the structure "tensor".

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.
        forget : float, default=1.0
            Factor of the weights of all earlier rows. Below 1 the model follows drift: with
            batches of b rows it remembers about b / (1 - forget) rows.
        """
        real = isinstance(forget, numbers.Real) and not isinstance(forget, bool)
        if not real or not 0.0 < forget <= 1.0:
            raise ValueError(
                f"forget must be above 0 and at most 1, got {forget!r}; 1 forgets nothing."
            )
        if self.calibration is not None:
            raise ValueError(
                f"calibration must be None for partial_fit, got {self.calibration!r}, as a stream "
                "has no folds; call calibrate(X, y) with held-out rows after a batch."
            )
        if hasattr(self, "posterior_") and not is_dask(X) and np.shape(X)[:1] == (0,):
            return self  # a stream may have empty batches
        recalibrated = self.calibration_ is not None
        source, table_stats = self._open(X, y, sample_weight)
        with closing(source):
            self._learn(source, table_stats, getattr(self, "target_name_", name_of(y)), forget)
        if recalibrated and self.calibration_ is None:
            warn(
                "the recalibration was that of the model before this batch, and is removed; call "
                "calibrate(X, y) again with held-out rows."
            )
        return self

    def _learn(
        self: Any, source: Any, table_stats: TableStats, target_name: str | None, forget: float
    ) -> None:
        """Update the model with a batch, or fit it anew to all rows that were kept."""
        self._check_resumes(again=True)
        if not hasattr(self, "posterior_"):
            self._fit_anew(source, table_stats, target_name, keep=True)
            if table_stats.n <= WINDOW:
                self._window = Window.of(table_stats.sample)
            return
        full = any(mode_map.full_tensor for mode_map in self._mode_maps)
        if (not self._pasts and not full) or (full and table_stats.n > MOST_ROWS):
            raise ValueError(
                f"partial_fit must follow partial_fit, or a fit of at most {MOST_ROWS:,} rows, got "
                "a fit of more, which keeps no sums over its rows; use partial_fit for the first "
                "rows, too."
            )
        self._check_more(source, table_stats, again=True)
        window = None
        if self._window is not None and table_stats.n <= MOST_ROWS:
            check_kinds(table_stats.names, self._window.rows, table_stats.sample)
            window = self._window.then(table_stats.sample, forget)
            if window.is_news or full:
                seen = self.n_samples_seen_ + table_stats.n
                self._refit(source.example, window, forget, table_stats.names)
                self.n_samples_seen_ = seen
                return
            window = window.kept(forget, WINDOW)
        pasts = [past.weighed(forget) for past in self._pasts]
        if self._resume(source, table_stats, target_name, pasts):
            self._window = window

    def _refit(self: Any, example: Any, window: Window, forget: float, names: list[Any]) -> None:
        """Fit all rows of a stream together, in local memory."""
        rows = window.rows
        with self._restored_on_failure():
            table = Table(example, rows, names)
            self._fit_anew(table, TableStats.whole(rows, names), self.target_name_, keep=True)
        self._window = window._replace(fitted=len(rows.y), since=0).kept(forget, WINDOW)

    @contextmanager
    def _restored_on_failure(self) -> Iterator[None]:
        """Restore the model if anything fails."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _resume(
        self: Any,
        source: Any,
        table_stats: TableStats,
        target_name: str | None,
        pasts: list[BatchStats] | None,
    ) -> bool:
        """Continue every restart from its posterior, with new rows (and sums over past ones).

        Returns False, and leaves the model as it was, if the fit was stopped.
        """
        target = self._same_target()._replace(name=target_name)
        counted = int(max(table_stats.n, table_stats.total))
        plan = FitPlan.of(self, self._defaults, target, counted, len(self.columns_))
        columns, mode_maps, states, pasts = self._grown(table_stats, pasts, plan.smoothness)
        sample = coded(table_stats.sample, columns, target)
        rows = source.code(columns, target, table_stats, sample)
        seeds = check_random_state(self.random_state).randint(2**31, size=4)
        task = Task(
            target=target,
            columns=columns,
            values=Values([], []),
            sample=sample,
            rows=rows,
            seeds=seeds.tolist(),
        )
        history: list[dict[str, Any]] = []
        results = []
        keep: Any = [] if table_stats.n <= MOST_ROWS else None
        for mode_map in dict.fromkeys(mode_maps):
            places = [k for k, other in enumerate(mode_maps) if other is mode_map]
            settings = plan.settings(mode_map, rows, len(places))
            settings = plan.settings_to_resume(settings, len(places))
            run = Run("", task.seeds, history, places[0], None)
            result = fitting.fit(
                mode_map.problem(rows, target.n_outputs),
                settings,
                task.seeds,
                observer(plan, run, target, mode_map, {}, rows.n),
                states=[states[k] for k in places],
                pasts=[pasts[k] for k in places] if pasts else keep,
                may_be_empty=True,
            )
            if len(result.restarts) < len(places) or (pasts and not result.ended):
                warn(
                    "the fit was stopped before all restarts had finished; the model is unchanged.",
                    ConvergenceWarning,
                )
                return False
            results.append((mode_map, result))
        with self._restored_on_failure():
            self._conclude(plan, task, results, history)
            self.n_samples_seen_ = table_stats.n + (self.n_samples_seen_ if pasts else 0)
            self._complete(task, new=not pasts)
        return True

    def _check_resumes(self: Any, *, again: bool = False) -> None:
        """Raise a ValueError if a model cannot be updated.

        With ``again``, rows that were kept may be fitted again, together with others.
        """
        fitted = hasattr(self, "posterior_")
        full = fitted and any(mode_map.full_tensor for mode_map in self._mode_maps)
        if full and (self.structure == "full" or self._window is None or not again):
            raise ValueError(
                "a model must keep sums over its rows to be updated, got one with a full tensor, "
                "which keeps the rows; fit it with structure='tensor' or 'sums+tensor'."
            )
        if not fitted and self.structure == "full":
            raise ValueError(
                "structure must be one that keeps sums over rows for partial_fit, got 'full', "
                "which keeps the rows; use 'tensor' or 'sums+tensor'."
            )

    def _check_more(
        self: Any, source: Any, table_stats: TableStats, *, again: bool = False
    ) -> None:
        """Raise a ValueError for rows that a model cannot be updated with."""
        self._check_resumes(again=again)
        check_names(self, source.example, reset=False)
        now = lasting_parameters(self, self._lasting)
        for name, before in self._begun_with.items():
            if now[name] != before:
                raise ValueError(
                    f"{name} must stay what it was in the first fit, {before}, got {now[name]}; "
                    "set it back, or fit anew with warm_start=False."
                )
        y, weight = self._same_target().encode(*table_stats.y)
        y = y if y.ndim == 1 else y[:, 0]
        level = float(np.average(y, weights=weight))
        if self._y_scale != 1.0 and abs(level) > FAR:
            warn(
                f"y has moved by {abs(level):.3g} standard deviations of the first rows, whose "
                "scale the model keeps, so the update may be poor; fit anew.",
            )
        if hasattr(self.likelihood_, "check"):
            values = table_stats.y.values
            self.likelihood_.check(values if values.ndim == 1 else values[:, 0])

    def _grown(
        self: Any, table_stats: TableStats, pasts: list[BatchStats] | None, smoothness: float
    ) -> Grown:
        """Return what to continue from, with the categories and missing values that are new."""
        columns, states = list(self.columns_), list(self._states())
        pasts = None if pasts is None else list(pasts)
        more: dict[int, Growth] = {}
        summaries = table_stats.columns
        for j in self._active:
            columns[j], growth = grown(columns[j], summaries[j])
            if any(growth):
                more[j] = growth
        if not more:
            return Grown(columns, self._mode_maps, states, pasts)
        larger = {mode_map: mode_map.grown(more) for mode_map in self._mode_maps}
        for k, before in enumerate(self._mode_maps):
            after = larger[before]
            for d, j in enumerate(before.inputs, before.first_input):
                if j not in more:
                    continue
                old, new = before.bases[d], after.bases[d]
                mode = with_functions_of(states[k].modes[d], old, new, smoothness)
                start = of_a_new_category(states[k], d, old)
                states[k] = with_functions(states[k], d, mode, start)
                if pasts is not None:
                    count = new.n_functions_ - old.n_functions_
                    pasts[k] = pasts[k].with_functions(d, old.end, count)
        return Grown(
            columns, tuple(larger[mode_map] for mode_map in self._mode_maps), states, pasts
        )
