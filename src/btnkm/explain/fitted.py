"""A fitted model as explanations see it: f of each restart, inputs by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..bases import Gapped, Spiked
from ..core import functionals
from ..core.arrays import here
from ..core.functionals import At, Part, SumPart
from ..core.posterior import EffectAverages
from ..core.state import State
from ..data.columns import Column
from ..predictive import mixed_variance
from ..structures.mode_map import Arrangement
from .full_tensor import FullStart

Array = np.ndarray
MISSING = "(missing)"
KINDS = {"f": "number", "M": "date", "m": "duration"}


class Data:
    """Results as plain data: ``to_dict`` gives what ``json.dumps`` takes."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, arrays as lists, dates as text."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if isinstance(value, Data):
        return value.to_dict()
    if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
        return [None if np.isnat(v) else str(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@dataclass(frozen=True)
class Start:
    """One posterior of f = a + T: main effects and a tensor, or one of them.

    The parts of T are at sizes that multiply without overflow; ``size`` is what scales them.
    """

    state: State
    arrangement: Arrangement
    averages: list[tuple[Array, Any]]
    effects: list[EffectAverages]

    @cached_property
    def _sized(self) -> tuple[list[Part], float]:
        parts = functionals.parts_of(self.state, self.averages)
        sizes = [np.sqrt(max(float(np.max(np.diagonal(p.total))), 1e-300)) for p in parts]
        log = float(np.sum(np.log(sizes)))
        return [p.scaled(1.0 / s) for p, s in zip(parts, sizes, strict=True)], np.exp(log)

    @property
    def parts(self) -> list[Part]:
        """Of all modes of the tensor but the outputs', each brought to size one."""
        return self._sized[0]

    @property
    def size(self) -> float:
        """What first moments are to be multiplied by."""
        return self._sized[1]

    def mode(self, j: int) -> int | None:
        """Return the mode of a column of the table, None if it has none."""
        one = self.arrangement
        return one.inputs.index(j) + one.first_input if j in one.inputs else None

    @cached_property
    def sums(self) -> SumPart | None:
        """Of the main effects beside the tensor."""
        return functionals.sum_part_of(self.state, self.effects)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of f in one row: (), or (K,)."""
        count = self.state.n_outputs
        return () if count is None else (count,)

    def base(self) -> tuple[Array, Array]:
        """Return first and second moments of the average of f: () or (K,)."""
        found = self._nothing(1)
        if self.parts:
            centers = [part.center[None] for part in self.parts]
            levels = [part.level[None] for part in self.parts]
            found = self.first(centers), self.second(levels)
        if self.sums is not None:
            found = functionals.together(found, self.sums.base())
        return found[0][0], found[1][0]

    def effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        """Return first and second moments of a column's main effect: (n,) or (n, K)."""
        found = self._nothing(len(codes))
        if self.mode(j) is not None:
            found = self._tensor_effect(j, codes)
        if self.sums is not None and j in self.arrangement.effect_inputs:
            i = self.arrangement.effect_inputs.index(j)
            functions = self.arrangement.effects[i].features(codes)[0]
            found = functionals.together(found, self.sums.added(i, functions))
        return found

    def _tensor_effect(self, j: int, codes: Array) -> tuple[Array, Array]:
        d, at = self.mode(j), self.at(j, codes)
        assert d is not None
        firsts = [part.center[None] for part in self.parts]
        seconds = [part.level[None] for part in self.parts]
        firsts[d], seconds[d] = at.added, at.added_square
        return self.first(firsts), self.second(seconds)

    def _nothing(self, n: int) -> tuple[Array, Array]:
        return np.zeros((n, *self.outputs)), np.zeros((n, *self.outputs))

    def at(self, j: int, codes: Array) -> At:
        """Return the moments of a column's mode at some coordinates."""
        d = self.mode(j)
        assert d is not None
        return self.parts[d].at(self.arrangement.bases[d].features(codes))

    def together(self, places: Any, grids: Any, index: Any) -> tuple[Array, Array]:
        """Return first and second moments of the interaction of two columns: (n,) or (n, K).

        ``index`` says which points of each grid these are. Only the tensor has interactions.
        """
        firsts = [part.center[None] for part in self.parts]
        seconds = [part.level[None] for part in self.parts]
        for j, grid, points in zip(places, grids, index, strict=True):
            d = self.mode(j)
            if d is None:
                return self._nothing(len(index[0]))
            at = self.at(j, grid.codes)
            firsts[d], seconds[d] = at.added[points], at.added_square[points]
        return self.first(firsts), self.second(seconds)

    @cached_property
    def _contrasts(self) -> tuple[Array, Array] | None:
        return functionals.contrasts_of(self.state)

    def first(self, parts: Sequence[Array]) -> Array:
        """Return E of a functional of T from first moments (n, C) of all modes: (n,) or (n, K)."""
        return self._each(parts, 0, self.state.network.whole) * self.size

    def second(self, parts: Sequence[Array]) -> Array:
        """Return E of its square from second moments (n, C, C): (n,) or (n, K)."""
        return self._each(parts, 1, self.state.network.whole) * self.size**2

    def first_replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return E with each mode's part replaced: (D, n) or (D, n, K), outputs not among D."""
        return self._replaced(parts, others, 0) * self.size

    def second_replaced(self, parts: Sequence[Array], others: Sequence[Array]) -> Array:
        """Return E of the square with each mode's part replaced: (D, n) or (D, n, K)."""
        return self._replaced(parts, others, 1) * self.size**2

    def _each(self, parts: Sequence[Array], order: int, contract: Any) -> Array:
        if self._contrasts is None:
            return np.asarray(contract(list(parts)))
        found = [contract([*parts, output[None]]) for output in self._contrasts[order]]
        return np.stack(np.broadcast_arrays(*found), axis=-1)

    def _replaced(self, parts: Sequence[Array], others: Sequence[Array], order: int) -> Array:
        count = len(parts)
        replaced = self.state.network.replaced
        if self._contrasts is None:
            return np.asarray(replaced(parts, others))
        found = [
            replaced([*parts, output[None]], [*others, output[None]])[:count]
            for output in self._contrasts[order]
        ]
        return np.stack(found, axis=-1)


@dataclass(frozen=True)
class View:
    """What explanations need of a model.

    Attributes
    ----------
    names : list
        Of the columns.
    columns : list of Column
    active : list of int
        Columns that take part; the others never vary.
    starts : list of Start or FullStart
    weights : ndarray of shape (S,)
        Of every restart in the mixture.
    scale : float
        What f is multiplied by, in units of what is explained.
    levels : ndarray of shape (S,), or (S, K)
        What is then added to it, in every restart.
    unit : str
        What is explained: the name of y, or the scale on which effects add up.
    outputs : list or None
        The classes, if there are more than two.
    coordinates : callable
        Takes rows of the table to their coordinates in every column, in memory.
    """

    names: list[Any]
    columns: list[Column]
    active: list[int]
    starts: list[Any]
    weights: Array
    scale: float
    levels: Array
    unit: str
    outputs: list[Any] | None
    coordinates: Callable[[Any], list[Any]]

    @classmethod
    def of(cls, model: Any) -> View:
        """Return the view of a fitted model."""
        if not hasattr(model, "_row_blocks"):
            raise TypeError(
                f"a model must be a BTNRegressor or a BTNClassifier to be explained, got "
                f"{type(model).__name__}; pass the part of it that is one, as in pipeline[-1] or "
                "search.best_estimator_."
            )
        check_is_fitted(model)
        averages = model._averages, model._effect_averages
        starts = [
            (FullStart if parts[1].kernel else Start)(*parts)
            for parts in zip(model.posterior_, model._arrangements, *averages, strict=False)
        ]
        weights = np.asarray(model.weights_[: len(starts)], dtype=float)
        names = [column.name for column in model.columns_]
        scale, levels, unit = _scale(model)
        many = model._n_outputs is not None
        outputs = model.classes_.tolist() if many else None

        def coordinates(X: Any) -> list[Any]:
            columns = model._columns_of(here(X))
            if columns[model._active[0]].shape[0] == 0:
                raise ValueError("X must have at least one row, got none; give rows to explain.")
            return list(columns)

        weights = weights / weights.sum()
        table = names, model.columns_, model._active
        return cls(*table, starts, weights, scale, levels, unit, outputs, coordinates)

    @property
    def level(self) -> Any:
        """What is added to f on average over the restarts: a number, or (K,)."""
        return self.mixed(self.levels)

    def place(self, name: Any) -> int:
        """Return the position of an input, given its name or position."""
        if isinstance(name, str | int | float | tuple) and name in self.names:
            return self.names.index(name)
        whole = isinstance(name, int | np.integer) and not isinstance(name, bool)
        if whole and -len(self.names) <= name < len(self.names):
            return int(name) % len(self.names)
        raise ValueError(
            f"an input must be a column's name or position, got {name!r}; the columns are "
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
        """Return "levels", "number", "date" or "duration"."""
        column = self.columns[j]
        return "levels" if column.levels is not None else KINDS.get(column.kind, "number")

    def grid(self, j: int, points: int) -> Grid:
        """Return values at which to look at an input, spread as the training rows are."""
        column = self.columns[j]
        if column.levels is not None:
            return _levels_of(column)
        codes = np.unique(np.append(np.linspace(-1.0, 1.0, points), 0.0))
        knots, positions = column.knots, column.positions
        if len(knots) == 0:
            return Grid(np.empty(0), np.empty(0), np.empty(0), np.empty(0))
        spikes = np.empty(0)
        basis = column.basis
        if isinstance(basis, Gapped) and isinstance(basis.basis_, Spiked):
            spikes = basis.basis_.spikes_
        # beside values that have an effect of their own, not on them
        codes = positions if len(knots) <= points else codes[~np.isin(codes, spikes)]
        return Grid(self.raw(j, codes), codes, self.raw(j, spikes), spikes, column.basis.knows_gaps)

    def raw(self, j: int, codes: Array) -> Array:
        """Return the values of a numeric column that have these coordinates."""
        column = self.columns[j]
        values = np.interp(codes, column.positions, column.knots)
        if column.kind in "mM":
            return np.round(values).astype(np.int64).astype(f"{column.kind}8[us]")
        return values

    def quantiles(self, j: int, q: Array) -> Array:
        """Return quantiles of the training values of a numeric column."""
        basis: Any = self.columns[j].basis
        return self.raw(j, np.quantile(basis.values_, q))


@dataclass(frozen=True)
class Grid:
    """Values of an input and their coordinates; those that stand out apart from the others."""

    values: Array
    codes: Array
    spikes: Array
    spike_codes: Array
    gaps: bool = False


def _levels_of(column: Column) -> Grid:
    """Return the levels, those that share a code as one."""
    by_code = column.levels_by_code
    codes = sorted(by_code)
    names = [
        by_code[c][0] if len(by_code[c]) == 1 else f"{len(by_code[c])} other levels" for c in codes
    ]
    values: list[Any] = names
    at = [float(c) for c in codes]
    if column.basis.knows_gaps:
        values, at = [*values, MISSING], [*at, np.nan]
    return Grid(np.array(values, dtype=object), np.array(at), np.empty(0), np.empty(0))


def _scale(model: Any) -> tuple[float, Array, str]:
    """Return what f is multiplied by, what is added to it in each restart, and what that is."""
    likelihoods = [state.likelihood for state in model.posterior_]
    same = np.ones(len(likelihoods))
    if hasattr(model, "classes_"):
        if hasattr(likelihoods[0], "offsets"):
            offsets = np.array([one.offsets for one in likelihoods])
            return 1.0, offsets - offsets.mean(axis=1, keepdims=True), "log probability (centred)"
        if hasattr(likelihoods[0], "offset"):
            offsets = np.array([one.offset for one in likelihoods])
            return 1.0, offsets, f"log odds of {model.classes_[1]}"
        return 1.0, -model._threshold * same, f"score of {model.classes_[1]}"
    target = model.target_name_ or "y"
    if likelihoods[0].additive:
        return model._y_scale, model._y_shift * same, target
    levels = np.array([getattr(one, "level", 0.0) for one in likelihoods])
    return 1.0, levels, getattr(likelihoods[0], "unit", "f of {}").format(target)
