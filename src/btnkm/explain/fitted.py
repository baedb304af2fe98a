"""The view of a fitted model that explanations, reports, files and the program read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from sklearn.utils.validation import check_is_fitted

from ..bases import Spiked, WithMissing
from ..core.arrays import here, host, is_elsewhere, like
from ..core.likelihoods import is_logarithm, joined, of_rows
from ..core.posterior import Predictor
from ..data.beyond import Beyond, ExtrapolationWarning
from ..data.columns import FARTHEST, FARTHEST_OF_LOGARITHM, Column
from ..data.dask_input import is_dask
from ..data.fills import Fills
from ..data.frames import split_columns
from ..data.readers import is_stored
from ..predictive import PredictiveDistribution, TransformedDistribution, mixed_variance
from ..warn import warn
from .restart import FullRestartView, RestartView

Array = np.ndarray
MISSING = "(missing)"
KINDS = {"f": "number", "M": "date", "m": "duration"}
_BLOCK_ROWS = 4096  # of a table in memory, at most
COPIED_ROWS = 4096  # with missing values, whose copies are predicted at a time
_BLOCKS_ON_DEVICE = 16  # times as many rows at a time


class PlainData:
    """Results that ``to_dict`` turns into what ``json.dumps`` accepts."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, arrays as lists, dates as text."""
        return {part.name: plain(getattr(self, part.name)) for part in fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """Return a value for JSON: without NumPy types, and with None for NaN and infinity."""
    if isinstance(value, PlainData):
        return value.to_dict()
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return [None if np.isnat(v) else str(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def in_units(values: Array) -> tuple[Array, str]:
    """Return durations as numbers in a suitable unit, and the unit."""
    if values.dtype.kind != "m":
        return values, ""
    longest = np.max(np.abs(values.astype("m8[us]").astype(float)), initial=0.0)
    units = {"days": 86_400e6, "hours": 3_600e6, "minutes": 60e6, "seconds": 1e6}
    unit = next((name for name, size in units.items() if longest >= 2.0 * size), "seconds")
    return values.astype("m8[us]").astype(float) / units[unit], f" ({unit})"


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The public view of a fitted estimator, ``model.fitted_``.

    Attributes
    ----------
    estimator : str
        The name of its class.
    target_name : str or None
        The name of y.
    classes : ndarray or None
        The labels of a classifier.
    columns : list of Column
    fills : Fills
        For each column, values over which a row with a missing one is averaged.
    active : list of int
        Columns that f may depend on; the others are constant.
    posteriors : tuple
        The posterior of each restart.
    mode_maps : tuple
        For each restart, which column is which mode, and with what functions.
    averages, effect_averages : tuple
        For each restart, averages over the training rows of the functions of each mode and of each
        main effect.
    widenings : tuple or None
        For each restart, what is added to its variance beyond the training range, or None. None of
        a model from an older file, whose intervals do not widen.
    weights : ndarray of shape (S,)
        The weight of each restart in the prediction.
    best_restart : int
        The one with the highest ELBO, of the structure with the highest weight.
    y_shift, y_scale : float
        y = y_shift + y_scale * target; 0 and 1 for labels.
    threshold : float or None
        Of a least-squares classifier: the target above which the second class begins.
    block_rows : int
        The number of rows to process at a time.
    check_y : callable
        Returns targets as an array (n,), or raises an error if they are invalid.
    check_names : callable
        Raises an error if a table has other columns than the training rows.
    calibration : Recalibration, LogitScaling or None
        How predictive distributions are recalibrated.
    transformation : Transformed or None
        The function h with h(y) = y_shift + y_scale * target, if it is not the identity.
    found_nothing : bool
        Whether f varies less between the training rows than it is uncertain: no input has an
        effect that the data can tell, and importances are 0.
    exposed : bool
        Whether counts had exposures in the fit. Explanations and reports are of an exposure of 1.
    exposure_name : str or None
        The name of the column of the exposures.
    """

    estimator: str
    target_name: str | None
    classes: Array | None
    columns: list[Column]
    fills: Fills
    active: list[int]
    posteriors: tuple[Any, ...]
    mode_maps: tuple[Any, ...]
    averages: tuple[Any, ...]
    effect_averages: tuple[Any, ...]
    widenings: tuple[Any, ...] | None
    weights: Array
    best_restart: int
    y_shift: float
    y_scale: float
    threshold: float | None
    block_rows: int
    check_y: Callable[[Any], Array]
    check_names: Callable[[Any], None]
    calibration: Any = None
    transformation: Any = None
    found_nothing: bool = False
    exposed: bool = False
    exposure_name: str | None = None
    _warned: set[Any] = field(default_factory=set, repr=False)  # columns beyond their range

    @classmethod
    def of(cls, model: Any) -> FittedModel:
        """Return the view of a fitted estimator."""
        if isinstance(model, cls):
            return model
        if not hasattr(type(model), "fitted_"):
            raise TypeError(
                f"model must be a BTNRegressor or BTNClassifier, got {type(model).__name__}; pass "
                "the estimator itself, as in pipeline[-1] or search.best_estimator_."
            )
        check_is_fitted(model)
        fitted: FittedModel = model.fitted_
        return fitted

    @cached_property
    def names(self) -> list[Any]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def is_classifier(self) -> bool:
        """Whether y has labels."""
        return self.classes is not None

    @property
    def n_outputs(self) -> int | None:
        """K, the number of functions in f, where it has more than one value in a row."""
        count: int | None = self.posteriors[0].n_outputs
        return count

    @property
    def outputs(self) -> list[Any] | None:
        """The classes, if there are more than two."""
        return None if self.classes is None or self.n_outputs is None else self.classes.tolist()

    @property
    def likelihoods(self) -> list[Any]:
        """The likelihood of each restart."""
        return [state.likelihood for state in self.posteriors]

    @property
    def is_full(self) -> bool:
        """Whether the best restart is a full tensor, whose rank has no limit."""
        full: bool = self.mode_maps[self.best_restart].full_tensor
        return full

    def likelihoods_at(self, columns: Sequence[Any]) -> list[Any]:
        """Return the likelihood of every restart, for rows with these coordinates."""
        if not any(hasattr(likelihood, "at") for likelihood in self.likelihoods):
            return self.likelihoods
        blocks = [
            [of_rows(a, b.__getitem__) for a, b in zip(self.likelihoods, features, strict=True)]
            for _, features in self.row_blocks(columns)
        ]
        return [joined(list(of_restart)) for of_restart in zip(*blocks, strict=True)]

    def distribution(self, parts: Sequence[Any]) -> PredictiveDistribution:
        """Return the distribution of y, given that of the target in each restart."""
        scale = self.y_shift, self.y_scale, self.weights
        if self.transformation is None:
            return PredictiveDistribution(parts, *scale)
        return TransformedDistribution(self.transformation, parts, *scale)

    @cached_property
    def predictors(self) -> list[Any]:
        """The predictor of each restart."""
        made = [Predictor.of(state) for state in self.posteriors]
        return [
            predictor if of_restart is None else replace(predictor, widens=True)
            for predictor, of_restart in zip(made, self.added, strict=True)
        ]

    @cached_property
    def added(self) -> tuple[Any, ...]:
        """What is added to the variance of each restart beyond the training range, or None."""
        return self.widenings or (None,) * len(self.posteriors)

    def variance_beyond(self, columns: Sequence[Any], k: int) -> Any:
        """Return the variance (n, K) that is added to that of a restart in each row, or None."""
        extra = self.added[k]
        return None if extra is None else extra.added(columns, slice(None))

    @cached_property
    def farthest(self) -> float:
        """Ranges beyond the training range from which on a number counts as if it were there.

        It is one where y is about exp(f): the mean would soon be without bounds.
        """
        of_logarithm = is_logarithm(self.likelihoods[0], self.transformation)
        return FARTHEST_OF_LOGARITHM if of_logarithm else FARTHEST

    @cached_property
    def restarts(self) -> list[Any]:
        """The posterior of each restart, for explanations."""
        parts = self.posteriors, self.mode_maps, self.averages, self.effect_averages
        return [
            (FullRestartView if mode_map.full_tensor else RestartView)(state, mode_map, *averages)
            for state, mode_map, *averages in zip(*parts, strict=True)
        ]

    def encode(self, X: Any) -> list[Any]:
        """Return the coordinates of new rows in the columns that f depends on; None in others."""
        if is_dask(X) or (is_stored(X) and not isinstance(X, np.memmap)):
            kind, read = ("Dask ", "compute") if is_dask(X) else ("", "read")
            raise TypeError(
                f"X must be a table in memory here, got a {kind}{type(X).__name__}; {read} it, or "
                "use predict, which takes it as it is."
            )
        raw, _ = split_columns(X, least=0)
        self.check_names(X)
        used = set(self.active)
        codes = [
            column.encode(raw[j]) if j in used else None for j, column in enumerate(self.columns)
        ]
        self._warn_beyond(codes)
        return [self._held(j, x) for j, x in enumerate(codes)]

    def _held(self, j: int, x: Any) -> Any:
        """Return coordinates of a column, none of them farther beyond the range than allowed."""
        if x is None or self.columns[j].categories is not None or self.farthest == FARTHEST:
            return x
        return array_namespace(x).clip(x, -1.0 - self.farthest, 1.0 + self.farthest)

    @property
    def rule_beyond(self) -> str:
        """What happens to predictions beyond the training range, in a sentence."""
        if self.widenings is None:
            return (
                "For these the model predicts as at the nearer end of the range, and its intervals "
                "do not become wider."
            )
        held = "all inputs are held at the nearer end of their range"
        if any(mode_map.runs_on for mode_map in self.mode_maps):
            held = "straight parts of main effects run on and all else is held at the nearer end"
        return f"For these the model extrapolates: {held}, and intervals widen with the distance."

    @contextmanager
    def silent_beyond(self) -> Iterator[None]:
        """Do not warn of rows beyond the training range, as the caller does if there is need."""
        before = set(self._warned)
        self._warned.update(self.names)
        try:
            yield
        finally:
            self._warned.intersection_update(before)

    def _warn_beyond(self, codes: list[Any]) -> None:
        """Warn of rows that are materially beyond the training range, once for each column."""
        beyond = Beyond().count(self.columns, codes)
        if not set(beyond.columns) <= self._warned:
            self._warned.update(beyond.columns)
            warn(beyond.sentence(widens=self.widenings is not None), ExtrapolationWarning)

    def row_blocks(
        self, columns: Sequence[Any], most: int = _BLOCK_ROWS, restarts: slice = slice(None)
    ) -> Iterator[tuple[slice, list[list[Any]]]]:
        """Yield blocks of up to ``most`` rows, with phi and psi of the modes of some restarts.

        Last is the variance that is added beyond the training range, if the restart has any.
        """
        first = columns[self.active[0]]
        n, size = first.shape[0], min(most, self.block_rows)
        if is_elsewhere(first):
            size = _BLOCKS_ON_DEVICE * self.block_rows
        for begin in range(0, max(n, 1), size):  # no rows are one block, for results of its shape
            rows = slice(begin, min(begin + size, n))
            made: dict[int, Any] = {}
            features = [part.features(columns, rows, made) for part in self.mode_maps[restarts]]
            for of_restart, extra in zip(features, self.added[restarts], strict=True):
                if extra is not None:  # the last of the features: ``posterior.WIDENING``
                    of_restart.append((extra.added(columns, rows), None))
            yield rows, features

    def predict(
        self, columns: Sequence[Any], function: Callable[..., tuple[Any, ...]], count: int
    ) -> Array:
        """Return ``function(predictor, features)``, ``count`` arrays, of every restart and row.

        Parameters
        ----------
        columns : list
            Coordinates, as ``encode`` returns them.
        function : callable
        count : int

        Returns
        -------
        array of shape (count, S, n), or (count, S, n, K) with K outputs
        """
        outputs = () if self.n_outputs is None else (self.n_outputs,)
        first = columns[self.active[0]]
        shape = (count, len(self.predictors), first.shape[0], *outputs)
        out = array_namespace(first).empty(shape, dtype=first.dtype, device=device(first))
        for rows, features in self.row_blocks(columns):
            for k, predictor in enumerate(self.predictors):
                for i, part in enumerate(function(predictor, features[k].__getitem__)):
                    out[i, k, rows, ...] = part if is_elsewhere(part) else like(part, out)
        return out

    def copied_blocks(self, columns: Sequence[Any]) -> Iterator[tuple[slice, list[Any]]]:
        """Yield blocks of rows of which not too many have copies, and their coordinates."""
        n = columns[self.active[0]].shape[0]
        begins = [0, *self.fills.rows(columns)[COPIED_ROWS::COPIED_ROWS].tolist()]
        for begin, end in zip(begins, [*begins[1:], n], strict=True):
            rows = slice(begin, end)
            yield rows, [None if column is None else column[rows] for column in columns]

    def averaged(
        self, columns: Sequence[Any], function: Callable[[Sequence[Any]], Array], axis: int
    ) -> Array:
        """Return ``function(columns)``, averaged over what may stand for missing values.

        Parameters
        ----------
        columns : list
            Coordinates, as ``encode`` returns them.
        function : callable
            Returns an array for rows with some coordinates.
        axis : int
            That of the rows in this array, counted from the first.
        """
        values, rows = function(columns), self.fills.rows(columns)
        if not len(rows):
            return values
        out = host(values)
        for begin in range(0, len(rows), COPIED_ROWS):
            some = rows[begin : begin + COPIED_ROWS]
            copies = host(function(self.fills.copies(columns, some)))
            out = self.fills.averaged(out, some, copies, axis)
        return like(out, values) if is_elsewhere(values) else out

    def coordinates(self, X: Any) -> list[Any]:
        """Return the coordinates of at least one row in memory, to be explained."""
        columns = self.encode(here(X))
        if columns[self.active[0]].shape[0] == 0:
            raise ValueError("X must have at least one row, got none; pass the rows to explain.")
        return columns

    @cached_property
    def _explained(self) -> tuple[float, Array, str]:
        """Scale, offsets and unit of what is explained: scale * f + the offset of the restart."""
        likelihoods: list[Any] = self.likelihoods
        same = np.ones(len(likelihoods))
        if self.classes is not None:
            if hasattr(likelihoods[0], "offsets"):
                offsets = np.array([likelihood.offsets for likelihood in likelihoods])
                centred = offsets - offsets.mean(axis=1, keepdims=True)
                return 1.0, centred, "log probability (centred)"
            if hasattr(likelihoods[0], "offset"):
                offsets = np.array([likelihood.offset for likelihood in likelihoods])
                return 1.0, offsets, f"log odds of {self.classes[1]}"
            assert self.threshold is not None
            return 1.0, -self.threshold * same, f"score of {self.classes[1]}"
        target = self.target_name or "y"
        if self.transformation is not None:
            return self.y_scale, self.y_shift * same, self.transformation.unit.format(target)
        if likelihoods[0].additive:
            return self.y_scale, self.y_shift * same, target
        offsets = np.array([getattr(part, "level", 0.0) for part in likelihoods])
        return 1.0, offsets, getattr(likelihoods[0], "unit", "f of {}").format(target)

    @property
    def scale(self) -> float:
        """The factor of f in what is explained."""
        return self._explained[0]

    @property
    def offsets(self) -> Array:
        """What is added to the scaled f in each restart: (S,), or (S, K)."""
        return self._explained[1]

    @property
    def unit(self) -> str:
        """The name of y, or the scale on which effects add up."""
        return self._explained[2]

    @property
    def offset(self) -> Any:
        """The average of ``offsets`` over the restarts: a number, or (K,)."""
        return self.mixed(self.offsets)

    def place(self, name: Any) -> int:
        """Return the position of an input, given its name or position."""
        if isinstance(name, str | int | float | tuple) and name in self.names:
            return self.names.index(name)
        whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
        if whole and -len(self.names) <= name < len(self.names):
            return int(name) % len(self.names)
        raise ValueError(
            f"an input must be the name or position of a column, got {name!r}; the columns are "
            f"{self.names[:10]}{' …' if len(self.names) > 10 else ''}."
        )

    def pooled(self, means: Sequence[Array], seconds: Sequence[Array]) -> tuple[Array, Array]:
        """Return mean and standard deviation of the mixture over restarts, in units of y."""
        within = np.maximum(np.asarray(seconds) - np.square(means), 0.0)
        variance = mixed_variance(self.weights, np.asarray(means), within)
        return self.scale * self.mixed(means), self.scale * np.sqrt(variance)

    def mixed(self, values: Any) -> Array:
        """Return the average over restarts, each with its weight: (S, ...) -> (...)."""
        return np.asarray(np.tensordot(self.weights, np.asarray(values), 1))

    def spread(self, draws: Any) -> Array:
        """Return the standard deviation of as many draws of each restart: (S, draws, ...) -> (...).

        Restarts count with their weights.
        """
        draws = np.asarray(draws)
        return np.sqrt(mixed_variance(self.weights, draws.mean(axis=1), draws.var(axis=1)))

    def kind(self, j: int) -> str:
        """Return the type of a column: "category", "number", "date" or "duration"."""
        column = self.columns[j]
        return "category" if column.categories is not None else KINDS.get(column.kind, "number")

    def grid(self, j: int, points: int) -> Grid:
        """Return values of an input, distributed as in the training rows."""
        column = self.columns[j]
        if column.categories is not None:
            return _categories_of(column)
        codes = np.unique(np.append(np.linspace(-1.0, 1.0, points), 0.0))
        knots, positions = column.knots, column.positions
        if len(knots) == 0:
            return Grid(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        spikes = np.empty(0)
        basis = column.basis
        if isinstance(basis, WithMissing) and isinstance(basis.basis_, Spiked):
            spikes = basis.basis_.spikes_
        # values with an effect of their own are separate
        codes = positions if len(knots) <= points else codes[~np.isin(codes, spikes)]
        return Grid(
            self.raw(j, codes), codes, self.raw(j, spikes), spikes, column.basis.knows_missing
        )

    def raw(self, j: int, codes: Array) -> Array:
        """Return the values of a numeric column that have these coordinates."""
        column = self.columns[j]
        values = column.numbers(codes)
        if column.kind in "mM":
            return np.round(values).astype(np.int64).astype(f"{column.kind}8[us]")
        return values

    def quantiles(self, j: int, q: Array) -> Array:
        """Return quantiles of the training values of a numeric column."""
        basis: Any = self.columns[j].basis
        return self.raw(j, np.quantile(basis.values_, q))


@dataclass(frozen=True)
class Grid:
    """Values of an input and their coordinates; values with indicators are in ``spikes``."""

    values: Array
    codes: Array
    spikes: Array
    spike_codes: Array
    missing: bool = False


def _categories_of(column: Column) -> Grid:
    """Return the categories; those that share a code are one."""
    by_code = column.categories_by_code
    codes = sorted(by_code)
    names = [
        by_code[c][0] if len(by_code[c]) == 1 else f"{len(by_code[c])} other categories"
        for c in codes
    ]
    values: list[Any] = names
    at = [float(c) for c in codes]
    if column.basis.knows_missing:
        values, at = [*values, MISSING], [*at, np.nan]
    return Grid(np.array(values, dtype=object), np.array(at), np.empty(0), np.empty(0))
