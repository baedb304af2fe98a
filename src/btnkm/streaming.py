"""Learning on: from batch after batch, or from another posterior, with levels and rank that grow.

As long as a stream has few rows, or remembers few, they are kept, and all is decided anew each time
as many have come as there were: what looks like noise in a few rows may well be part of f. From
then on rows are let go of as soon as they were heard (``core/past.py``).
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .core.batch_stats import Past
from .core.growing import with_functions
from .core.state import State
from .data.column_stats import MOST_ROWS, Batch, Survey, check_kinds
from .data.columns import Column, Growth, grown
from .data.dask_input import is_dask
from .data.frames import check_names, name_of
from .data.readers import Table, coded
from .execution import fitting
from .execution.modes import of_a_new_level, with_functions_of
from .plan import settings_of
from .structures.mode_map import Arrangement
from .structures.multistart import Run, Task, Values, observer, to_go_on

Array = np.ndarray
WINDOW = 8192  # rows of a stream that are kept at most
FAR = 20.0  # standard deviations between the targets of a batch and those of the first one
FAINT = 1e-2  # what a row counts for when it is as good as forgotten
NEARLY = 0.75  # of what is remembered, that rows which are kept must hold


class Window(NamedTuple):
    """All rows of a stream that are not forgotten, as long as they are few.

    Attributes
    ----------
    rows : Batch
    decay : ndarray of shape (n,)
        What is left of each row's weight.
    total : float
        The weight of all rows that are remembered, kept or not.
    fitted, since : int
        How many there were when they were last fitted together, and how many came since.
    """

    rows: Batch
    decay: Array
    total: float
    fitted: int
    since: int = 0

    @classmethod
    def of(cls, rows: Batch) -> Window:
        """Return rows that were just fitted together."""
        return cls(rows, np.ones(len(rows.y)), float(np.sum(rows.weight)), len(rows.y))

    def then(self, later: Batch, forget: float) -> Window:
        """Return these rows, each counting for so much of a row, and later ones."""
        left = np.flatnonzero(forget * self.decay > FAINT)
        rows = self.rows.take(left)
        rows = rows._replace(weight=forget * rows.weight).join(later)
        decay = np.append(forget * self.decay[left], np.ones(len(later.y)))
        total = forget * self.total + float(np.sum(later.weight))
        return Window(rows, decay, total, self.fitted, self.since + len(later.y))

    def kept(self, forget: float) -> Window | None:
        """Return the rows to keep, the latest if they fade, unless they are too many or too few."""
        window = self
        if forget < 1.0:  # the oldest are forgotten soon anyhow
            latest = slice(-WINDOW, None) if WINDOW else slice(0)
            window = self._replace(rows=self.rows.take(latest), decay=self.decay[latest])
        few = len(window.rows.y) <= WINDOW
        return window if few and np.sum(window.rows.weight) >= NEARLY * self.total else None

    @property
    def is_news(self) -> bool:
        """Whether as many rows have come as there were."""
        return self.since >= self.fitted


class Grown(NamedTuple):
    """What a model goes on from: as it was, or with levels more.

    Attributes
    ----------
    columns : list of Column
    arrangements : tuple of Arrangement
    states : list of State
    pasts : list of Past or None
    """

    columns: list[Column]
    arrangements: tuple[Arrangement, ...]
    states: list[State]
    pasts: list[Past] | None


class Streaming:
    """What the estimators have to learn on with; see ``machine.Machine``."""

    _window: Window | None = None
    _pasts: list[Past]

    def partial_fit(
        self: Any, X: Any, y: Any = None, sample_weight: Any = None, *, forget: float = 1.0
    ) -> Any:
        """Learn from a batch of rows more.

        While a stream has, or remembers, up to 8,192 rows these are kept in the model, and in what
        is stored of it, and the model is made anew of all of them each time as many have come as
        there were. Apart from that a batch moves the posterior, and of its rows only what they
        have said is kept. Levels never seen before join in, and components where there is need of
        more; scales, functions and inputs that matter stay as they are.

        A model that was fitted at once and has a full tensor keeps its rows as well. The first
        batch after that makes it anew of all rows, as a stream: with ``structure="auto"`` that is
        a tensor.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.
        forget : float, default=1.0
            What the rows of all earlier batches count for from now on; below 1 the model follows
            what drifts. With batches of b rows it remembers about b / (1 - forget).
        """
        real = isinstance(forget, numbers.Real) and not isinstance(forget, bool)
        if not real or not 0.0 < forget <= 1.0:
            raise ValueError(
                f"forget must be above 0 and at most 1, got {forget!r}; 1 forgets nothing."
            )
        if hasattr(self, "posterior_") and not is_dask(X) and np.shape(X)[:1] == (0,):
            return self  # streams have batches of no rows
        source, survey = self._open(X, y, sample_weight)
        target = getattr(self, "target_name_", name_of(y))
        with closing(source):
            self._learn(source, survey, forget)
        self.target_name_ = target
        return self

    def _learn(self: Any, source: Any, survey: Survey, forget: float) -> Any:
        self._check_goes_on(again=True)
        if not hasattr(self, "posterior_"):
            self._fit_anew(source, survey, keep=True)
            if survey.n <= WINDOW:
                self._window = Window.of(survey.sample)
            return self
        full = any(one.kernel for one in self._arrangements)
        if (not self._pasts and not full) or (full and survey.n > MOST_ROWS):
            raise ValueError(
                f"partial_fit must go on from itself, or a fit of up to {MOST_ROWS:,} rows, got "
                "one of more, which keeps nothing that its rows have said; use partial_fit for "
                "the first rows, too."
            )
        self._check_more(source, survey, again=True)
        window = None
        if self._window is not None and survey.n <= MOST_ROWS:
            check_kinds(survey.names, self._window.rows, survey.sample)
            window = self._window.then(survey.sample, forget)
            if window.is_news or full:
                seen = self.n_samples_seen_ + survey.n
                self._begin_again(source.example, window, forget, survey.names)
                self.n_samples_seen_ = seen
                return self
            window = window.kept(forget)
        pasts = [past.weighed(forget) for past in self._pasts]
        if self._go_on(source, survey, pasts):
            self._window = window
        return self

    def _begin_again(
        self: Any, example: Any, window: Window, forget: float, names: list[Any]
    ) -> None:
        """Fit all rows of a stream so far together, here: none are kept on a device."""
        rows = window.rows
        with self._or_as_it_was():
            table = Table(example, rows, names)
            self._fit_anew(table, Survey.whole(rows, names), keep=True)
        self._window = window._replace(fitted=len(rows.y), since=0).kept(forget)

    @contextmanager
    def _or_as_it_was(self) -> Iterator[None]:
        """Leave the model as it was if anything fails."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _go_on(self: Any, source: Any, survey: Survey, pasts: list[Past] | None) -> bool:
        """Let every start go on from its posterior, with other rows, or more than are gone.

        Returns whether it came to an end; else the model is as it was.
        """
        target = self._same_target()
        columns, arrangements, states, pasts = self._grown(survey, pasts)
        sample = coded(survey.sample, columns, target)
        rows = source.code(columns, target, survey, sample)
        seeds = check_random_state(self.random_state).randint(2**31, size=4)
        counted = int(max(survey.n, survey.total))
        task = Task(target, columns, Values([], []), sample, rows, counted, seeds.tolist())
        history: list[dict[str, Any]] = []
        found = []
        keep: Any = [] if survey.n <= MOST_ROWS else None
        for one in dict.fromkeys(arrangements):
            own = [k for k, other in enumerate(arrangements) if other is one]
            settings = to_go_on(self, settings_of(self, target, counted, one), len(own))
            run = Run("", task.seeds, history, own[0], None)
            result = fitting.fit(
                one.problem(rows, target.n_outputs),
                settings,
                task.seeds,
                observer(self, run, target, one, {}, rows.n),
                go_on_from=[states[k] for k in own],
                pasts=[pasts[k] for k in own] if pasts else keep,
                may_find_nothing=True,
            )
            if len(result.starts) < len(own) or (pasts and not result.ended):
                warnings.warn(
                    "stopped before every start had gone on: the model is as it was.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return False
            found.append((one, result))
        with self._or_as_it_was():
            self._conclude(task, found, history, settings.schedule, new=not pasts)
            self.n_samples_seen_ = survey.n + (self.n_samples_seen_ if pasts else 0)
        return True

    def _check_goes_on(self: Any, *, again: bool = False) -> None:
        """Say so if a model cannot learn on, or, before its first batch, will not.

        Rows that are kept may be fitted ``again``, together with others.
        """
        fitted = hasattr(self, "posterior_")
        full = fitted and any(one.kernel for one in self._arrangements)
        if full and (self.structure == "full" or self._window is None or not again):
            raise ValueError(
                "a model must keep sums over its rows to go on, got one with a full tensor, which "
                "keeps the rows themselves; fit it with structure='tensor' or 'sums+tensor'."
            )
        if not fitted and self.structure == "full":
            raise ValueError(
                "structure must be one that keeps sums over rows for partial_fit, got 'full', "
                "which keeps the rows themselves; use 'tensor' or 'sums+tensor'."
            )

    def _check_more(self: Any, source: Any, survey: Survey, *, again: bool = False) -> None:
        """Say what is wrong with rows that a model is to go on with."""
        self._check_goes_on(again=again)
        check_names(self, source.example, reset=False)
        for name, before in self._begun_with.items():
            if repr(getattr(self, name)) != before:
                raise ValueError(
                    f"{name} must stay what it was in the fit that is gone on from, {before}, got "
                    f"{getattr(self, name)!r}; set it back, or fit anew with warm_start=False."
                )
        y, weight = self._same_target().encode(*survey.y)
        level = float(np.average(y, weights=weight))
        if self._y_scale != 1.0 and abs(level) > FAR:
            warnings.warn(
                f"y has moved {abs(level):.3g} standard deviations of the first rows, whose scale "
                "the model keeps: it may find little; fit anew.",
                UserWarning,
                stacklevel=4,
            )
        if hasattr(self.likelihood_, "check"):
            self.likelihood_.check(survey.y.values)

    def _grown(self: Any, survey: Survey, pasts: list[Past] | None) -> Grown:
        """Return what to go on from, with levels and gaps of these rows that are new."""
        columns, states = list(self.columns_), list(self._states())
        pasts = None if pasts is None else list(pasts)
        more: dict[int, Growth] = {}
        summaries = survey.columns
        for j in self._active:
            columns[j], growth = grown(columns[j], summaries[j])
            if any(growth):
                more[j] = growth
        if not more:
            return Grown(columns, self._arrangements, states, pasts)
        larger = {one: one.grown(more) for one in self._arrangements}
        for k, before in enumerate(self._arrangements):
            after = larger[before]
            for d, j in enumerate(before.inputs, before.first_input):
                if j not in more:
                    continue
                old, new = before.bases[d], after.bases[d]
                mode = with_functions_of(states[k].modes[d], old, new, self.smoothness)
                start = of_a_new_level(states[k], d, old)
                states[k] = with_functions(states[k], d, mode, start)
                if pasts is not None:
                    count = new.n_functions_ - old.n_functions_
                    pasts[k] = pasts[k].with_functions(d, old.end, count)
        return Grown(columns, tuple(larger[one] for one in self._arrangements), states, pasts)
