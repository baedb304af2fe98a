"""What the main effects of a model that was read from a file must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.effect import CATEGORIES, CURVE, LINE, MISSING, SPIKES, STEPS, MainEffect
from ..core.batch_stats import SumsSaid
from ..core.posterior import EffectAverages
from ..core.sums import Group, Sums
from ..data.columns import Column
from ..structures.mode_map import Arrangement
from .validate_parts import are_gammas, are_numbers, are_places, is_float, is_whole, must

Array = np.ndarray
_SUM_ERROR = 1e-9  # by which weights may miss 1


def check_weights(weights: Any, count: int) -> None:
    """Raise ``Unreadable`` unless these are the weights of so many restarts in a mixture."""
    must(are_numbers(weights, count, low=0.0), "weights of restarts")
    must(abs(float(np.sum(weights)) - 1.0) < _SUM_ERROR, "weights of restarts")


def check_effects(one: Arrangement, columns: list[Column], active: list[int]) -> None:
    """Raise ``Unreadable`` unless the main effects of an arrangement fit their columns."""
    must(isinstance(one.effects, tuple) and isinstance(one.effect_inputs, tuple), "main effects")
    must(are_places(one.effect_inputs, len(columns)), "main effects")
    must(set(one.effect_inputs) <= set(active), "main effects")
    must(len(one.effects) == len(one.effect_inputs), "main effects")
    for effect, j in zip(one.effects, one.effect_inputs, strict=True):
        _check_effect(effect, columns[j])


def _check_effect(effect: Any, column: Column) -> None:
    must(isinstance(effect, MainEffect) and is_whole(effect.n_curve), "main effects")
    for own, of_column in ((effect.knots, column.knots), (effect.positions, column.positions)):
        must(are_numbers(own, None) and np.array_equal(own, of_column), "main effects")
    must(are_numbers(effect.steps, None), "main effects")
    must(np.all(np.diff(effect.steps) > 0), "main effects")
    must(are_numbers(effect.spikes, None) and are_numbers(effect.codes_, None), "main effects")
    must(are_numbers(effect.line_, len(effect.positions)), "main effects")
    must(is_whole(effect.degree_) and isinstance(effect.has_missing_, bool), "main effects")
    if column.levels is None:
        must(effect.n_categories is None and not len(effect.codes_), "main effects")
    else:
        must(is_whole(effect.n_categories), "main effects")
        must(are_places(effect.codes_.astype(int), effect.n_categories), "main effects")
    parts = _parts_of(effect)
    must(isinstance(effect.parts_, list) and effect.parts_ == parts, "main effects")
    must(are_numbers(effect.degrees_, len(parts), low=1.0), "main effects")
    must(are_numbers(effect.center_, len(parts)), "main effects")


def _parts_of(effect: MainEffect) -> list[str]:
    """Return the part of each function, as its numbers have it."""
    parts: list[str] = []
    if effect.n_categories is not None:
        parts = [CATEGORIES] * len(effect.codes_)
    elif len(effect.positions) > 1:
        must(effect.degree_ <= len(effect.parts_), "main effects")  # before so many are made
        parts = [LINE] + [CURVE] * effect.degree_
        parts += [STEPS] * len(effect.steps) + [SPIKES] * len(effect.spikes)
    return parts + [MISSING] * effect.has_missing_


def check_sums(sums: Any, one: Arrangement, n_outputs: int | None) -> None:
    """Raise ``Unreadable`` unless the posterior of main effects fits their functions."""
    if not one.effects:
        must(sums is None, "posteriors")
        return
    must(isinstance(sums, Sums), "posteriors")
    # all functions of these effects, of no output: that takes no memory
    full = Sums.begin(one.effects, 0)
    must(isinstance(sums.groups, tuple), "posteriors")
    must(all(type(g) is Group and type(g.mode) is int for g in sums.groups), "posteriors")
    must(sums.groups == full.groups, "posteriors")
    for part in (sums.group, sums.column):
        must(isinstance(part, np.ndarray) and part.dtype == np.int64, "posteriors")
        must(part.ndim == 1 and len(part) > 0, "posteriors")
    left = np.isin(full.group, np.append(-1, sums.group))
    must(np.array_equal(sums.group, full.group[left]), "posteriors")
    must(np.array_equal(sums.column, full.column[left]), "posteriors")
    size, outputs, count = len(sums.group), n_outputs or 1, len(full.groups)
    must(are_numbers(sums.degree, size), "posteriors")
    must(np.array_equal(sums.degree, full.degree[left]), "posteriors")
    must(are_numbers(sums.mean, outputs, size) and is_float(sums.log_det), "posteriors")
    must(are_numbers(sums.cov, outputs, size, size), "posteriors")
    must(np.all(np.diagonal(sums.cov, axis1=1, axis2=2) >= 0.0), "posteriors")
    must(are_gammas(sums.precision, count) and are_gammas(sums.prior, count), "posteriors")
    must(are_numbers(sums.smoothness, count), "posteriors")


def check_sums_said(said: Any, sums: Sums | None, one: Arrangement, n_outputs: int | None) -> None:
    """Raise ``Unreadable`` unless sums over rows that are gone fit the main effects."""
    if sums is None:
        must(said is None, "past rows")
        return
    must(isinstance(said, SumsSaid), "past rows")
    check_sums(said.sums, one, n_outputs)
    must(np.all(np.isin(sums.kept, said.sums.kept)), "past rows")
    outputs, size = said.sums.mean.shape
    must(are_numbers(said.gram, outputs, size, size), "past rows")
    must(are_numbers(said.linear, outputs, size), "past rows")
    must(are_numbers(said.beside, outputs, size), "past rows")


def check_effect_averages(effects: Any, one: Arrangement, averages: list[Any]) -> None:
    """Raise ``Unreadable`` unless averages over the training rows fit the main effects."""
    must(isinstance(effects, list) and len(effects) == len(one.effects), "averages")
    for found, effect, mode in zip(effects, one.effects, one.effect_modes, strict=True):
        must(isinstance(found, EffectAverages) and found.mode == mode, "averages")
        must(type(found.mode) in (int, type(None)), "averages")
        size = effect.n_functions_
        must(are_numbers(found.mean, size) and are_numbers(found.gram, size, size), "averages")
        width = 0 if mode is None else len(averages[mode][0])
        must(are_numbers(found.cross, size, width), "averages")
