"""Recalibration of a fitted model, by held-out rows or by cross-validation."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .core.arrays import here
from .data.dask_input import is_dask
from .data.exposure import Exposed
from .data.frames import rows_of
from .data.readers import is_iterable_of_batches, is_stored, with_targets
from .execution.fitting import INTERRUPTED, STOPPED
from .warn import passing_on, warn

Array = np.ndarray
LEAST_ROWS = 10
FOLDS = 5


class Calibrating:
    """Mixin of the estimators for recalibration.

    A subclass predicts what is needed of rows (``_outcomes``), and makes a recalibration of it
    (``_recalibration``).
    """

    #: The recalibration of a fitted model, None if there is none.
    calibration_: Any = None

    def _outcomes(self, X: Any, y: Array) -> tuple[Array, ...]:
        """Return what a recalibration needs of rows, without recalibration: arrays (n, ...)."""
        raise NotImplementedError

    def _recalibration(self, kind: str, outcomes: tuple[Array, ...]) -> Any:
        """Return the recalibration, given the outcomes of all rows."""
        raise NotImplementedError

    def calibrate(self: Any, X: Any, y: Any = None, *, sample_weight: Any = None) -> Any:
        """Recalibrate the probabilities of the classes by rows that the fit has not seen.

        Log probabilities are divided by a temperature, and with two classes log odds get an offset
        if that makes the rows at least one nat more likely (Platt's scaling). Both have the highest
        likelihood. The result is in ``calibration_``. It replaces an earlier recalibration, and
        ``fit`` and ``partial_fit`` remove it. Explanations do not change.

        Parameters
        ----------
        X : array or DataFrame of shape (n, inputs), or None
            At least 10 rows that were not used in the fit, and are like those to be predicted. None
            removes a recalibration.
        y : array of shape (n,), or the name of a column of X
        sample_weight : None
            Weights are not supported.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if X is None and y is None:
            self._set_calibration(None)
            return self
        if sample_weight is not None:
            raise ValueError(
                "sample_weight must be None, as a recalibration needs rows that count equally, got "
                f"{type(sample_weight).__name__}; leave it out, or repeat rows."
            )
        X, y, _ = with_targets(X, y, None)
        y = self._checked(y)
        if not is_dask(X) and not is_stored(X):  # which are refused where they are encoded
            check_consistent_length(X, y)
        if len(y) < LEAST_ROWS:
            raise ValueError(
                f"X must have at least {LEAST_ROWS} rows to recalibrate a model, got {len(y)}; 39 "
                "are enough for intervals of level 0.95."
            )
        self._set_calibration(self._recalibration("split", self._outcomes(X, y)))
        return self

    def _checked(self: Any, y: Any) -> Array:
        """Return targets as an array, which still says if it has exposures."""
        checked: Array = self._check_y(type(self).__name__, here(y))
        return checked.view(Exposed) if isinstance(y, Exposed) else checked

    def _set_calibration(self: Any, calibration: Any) -> None:
        """Set the attribute, and make the fitted view with it."""
        self.calibration_ = calibration
        before = vars(self).pop("fitted_", None)
        if before is not None:  # which has warned of columns
            self.fitted_ = replace(before, calibration=calibration)
        _ = self.fitted_

    def _for_folds(
        self: Any, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, Array, float | None] | None:
        """Return X, y and the weight of each row for cross-validation, None without it."""
        if self.calibration is None:
            return None
        if self.warm_start and hasattr(self, "posterior_"):
            raise ValueError(
                "calibration must be None where warm_start continues from another fit, got 'cv'; "
                "use calibrate(X, y) with held-out rows."
            )
        in_memory = hasattr(X, "__len__") and not isinstance(X, str)
        in_batches = y is None and not is_stored(X) and is_iterable_of_batches(X)
        stored = is_stored(X) and not isinstance(X, np.memmap)
        if is_dask(X) or not in_memory or in_batches or stored:
            raise TypeError(
                f"calibration='cv' needs rows in memory, got a {type(X).__name__}"
                f"{' of batches' if in_batches else ''}; use calibrate(X, y) with held-out rows."
            )
        X, y, weight = with_targets(X, y, sample_weight)
        y = self._checked(y)
        check_consistent_length(X, y)
        weights = np.empty(0) if weight is None else np.asarray(here(weight), dtype=float)
        if weights.size and np.ptp(weights) > 0.0:
            raise ValueError(
                "sample_weight must be None or the same for all rows with calibration='cv', got "
                "others; use calibrate(X, y) with held-out rows."
            )
        if len(y) < 2 * LEAST_ROWS:
            raise ValueError(
                f"X must have at least {2 * LEAST_ROWS} rows for calibration='cv', got {len(y)}; "
                "leave it out."
            )
        if is_classifier(self) and np.unique(y, return_counts=True)[1].min() < 2:
            raise ValueError(
                "y must have at least 2 rows of every class for calibration='cv', got 1 of some; "
                "leave it out."
            )
        return X, y, float(weights.flat[0]) if weights.size else None

    def _calibrate_by_folds(self: Any, X: Any, y: Array, weight: float | None) -> None:
        """Recalibrate by cross-validation, unless the user stops it or has stopped the fit."""
        if self.stop_reason_.startswith((INTERRUPTED, STOPPED)):
            warn(
                "calibration='cv' was left out because the fit was stopped: the model is not "
                "recalibrated; call calibrate(X, y) with held-out rows.",
                ConvergenceWarning,
            )
            return
        try:
            self._set_calibration(self._recalibration("cv", self._of_folds(X, y, weight)))
        except KeyboardInterrupt:
            self._set_calibration(None)
            warn(
                "Interrupted: the model is kept, but calibration='cv' had not ended, so it is not "
                "recalibrated; call calibrate(X, y) with held-out rows.",
                ConvergenceWarning,
            )
        except Exception:
            self._clear()
            raise

    def _of_folds(self: Any, X: Any, y: Array, weight: float | None) -> tuple[Array, ...]:
        """Return the outcomes of every fold by a clone that is fitted to the others."""
        outcomes = []
        for train, test in self._folds(y):
            fold = clone(self)
            fold.set_params(calibration=None, callback=None, verbose=0)
            with passing_on(lambda _: None):  # the fit of all rows has warned
                weights = None if weight is None else np.full(len(train), weight)
                fold.fit(rows_of(X, train), y[train], weights)
            if fold.stop_reason_.startswith(INTERRUPTED):  # which has cut it short
                raise KeyboardInterrupt
            outcomes.append(fold._outcomes(rows_of(X, test), y[test]))
        return tuple(np.concatenate(parts) for parts in zip(*outcomes, strict=True))

    def _folds(self: Any, y: Array) -> list[tuple[Array, Array]]:
        """Return the rows to fit, and those to predict, of every fold."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        kind = StratifiedKFold if is_classifier(self) else KFold
        with warnings.catch_warnings():  # that some classes are in few folds
            warnings.simplefilter("ignore", UserWarning)
            return list(kind(FOLDS, shuffle=True, random_state=seed).split(y, y))
