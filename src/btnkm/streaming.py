"""Learning on: from batch after batch, or from another posterior, with levels and rank that grow.

As long as a stream has few rows, or remembers few, they are kept, and all is decided anew each time
as many have come as there were: what looks like noise in a few rows may well be part of f. From
then on rows are let go of as soon as they were heard (``core/past.py``).
"""

from __future__ import annotations

import numbers
import warnings
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from . import fitting
from .arrangement import Arrangement
from .auto import settings_of
from .bases.levels import Levels
from .columns import Column, Growth, grown
from .core.growing import with_functions
from .core.past import Past
from .core.state import State
from .running import Run, Task, Values, observer, to_go_on
from .sources import Table, coded
from .survey import MOST_ROWS, Batch, Survey

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
    fitted, since : int
        How many there were when they were last fitted together, and how many came since.
    """

    rows: Batch
    fitted: int
    since: int = 0

    def then(self, later: Batch, forget: float) -> Window:
        """Return these rows, each counting for so much of a row, and later ones."""
        rows = self.rows._replace(weight=forget * self.rows.weight).join(later)
        if forget < 1.0:  # the oldest are forgotten soon anyhow
            rows = rows.take(np.flatnonzero(rows.weight > FAINT)[-WINDOW:])
        return Window(rows, self.fitted, self.since + len(later.y))

    def holds(self, remembered: float) -> bool:
        """Tell whether these are few enough, and nearly all of what is remembered."""
        return len(self.rows.y) <= WINDOW and np.sum(self.rows.weight) >= NEARLY * remembered

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
        """Learn from a batch of rows more; what the earlier ones said is kept, not the rows.

        While they are but some thousands the rows themselves are kept, too, and the model is made
        anew of all of them each time as many have come as there were. Apart from that a batch moves
        the posterior: levels never seen before join in, and components where there is need of more.
        Scales, functions and inputs that matter stay as they are.

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
        if hasattr(self, "posterior_") and getattr(X, "shape", (None,))[0] == 0:
            return self  # streams have batches of no rows
        source, survey = self._open(X, y, sample_weight)
        with closing(source):
            return self._learn(source, survey, forget)

    def _learn(self: Any, source: Any, survey: Survey, forget: float) -> Any:
        if not hasattr(self, "posterior_"):
            self._fit_anew(source, survey, keep=True)
            if survey.n <= WINDOW:
                self._window = Window(survey.sample, survey.n)
            return self
        if not self._pasts:
            raise ValueError(
                f"partial_fit must go on from itself, or a fit of up to {MOST_ROWS:,} rows, got "
                "one of more, which keeps nothing that its rows have said; use partial_fit for "
                "the first rows, too."
            )
        self._check_more(source, survey)
        window = None
        if self._window is not None and survey.n <= MOST_ROWS:
            window = self._window.then(survey.sample, forget)
            if window.is_news:
                return self._begin_again(source.example, window.rows, survey.names)
            if not window.holds(forget * self._pasts[0].data.n + survey.total):
                window = None
        pasts = [past.weighed(forget) for past in self._pasts]
        if self._go_on(source, survey, pasts):
            self._window = window
        return self

    def _begin_again(self: Any, example: Any, rows: Batch, names: list[Any]) -> Any:
        """Fit all rows of a stream so far together; whatever fails leaves the model as it was."""
        before = dict(vars(self))
        try:
            self._fit_anew(Table(example, rows, names), Survey.whole(rows, names))
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        if len(rows.y) <= WINDOW:
            self._window = Window(rows, len(rows.y))
        return self

    def _go_on(self: Any, source: Any, survey: Survey, pasts: list[Past] | None) -> bool:
        """Let every start go on from its posterior, with other rows, or more than are gone.

        Returns whether it came to an end; else the model is as it was.
        """
        self._check_more(source, survey)
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
        self._conclude(task, found, history, settings.schedule, new=not pasts)
        return True

    def _check_more(self: Any, source: Any, survey: Survey) -> None:
        """Say what is wrong with rows that a model is to go on with."""
        validate_data(self, source.example, reset=False, skip_check_array=True)
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
        for j in self._active:
            columns[j], growth = grown(columns[j], survey.columns[j])
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
                mode = fitting.with_functions_of(states[k].modes[d], old, new, self.smoothness)
                start = fitting.of_a_new_level(states[k], d, old)
                states[k] = with_functions(states[k], d, mode, start)
                if pasts is not None:
                    places = old.n_products_, old.n_functions_
                    if isinstance(old, Levels):  # the last of its functions is for those unseen
                        places = len(old.shares_), len(old.shares_)
                    said = pasts[k].modes[d].with_functions(places, sum(more[j]))
                    pasts[k] = pasts[k].with_mode(d, said)
        return Grown(columns, tuple(larger[one] for one in self._arrangements), states, pasts)
