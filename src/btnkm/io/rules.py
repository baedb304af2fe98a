"""Rules that tie fields of an object together, and the parts of a model, where kinds cannot.

Each takes an object whose fields have passed, and its sizes, and yields what must be true. Later
conditions may rely on earlier ones, and later rules on earlier rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..bases import Categorical, Chebyshev, WithMissing
from ..bases.anchored import Anchored
from ..bases.categorical import ManyCategories
from ..bases.effect import CATEGORIES, CURVE, LINE, MISSING, SPIKES, STEPS
from ..core.categories import CategoryFactor, CategoryMode
from ..core.cp import CP
from ..core.evidence import Theta
from ..core.full import KNOWN, POSITION, FullPosterior
from ..core.full import LINE as STRAIGHT
from ..core.full_fit import learns_noise
from ..core.likelihoods import Varying, of_noise
from ..core.recalibration import FARTHEST, MOST_SCORES, LogitScaling
from ..core.state import State
from ..core.sums import Sums
from ..core.widening import PLACES
from ..data.column_stats import KINDS
from ..data.fills import COUNT
from ..structures.full_tensor import parts_of
from .archive import Unreadable
from .schema import Sizes, is_number

Facts = Iterator[Any]
#: Rows of a full tensor that a file may hold: a small file must not ask for a matrix of any size.
MOST_FULL_ROWS = 20_000
#: Coordinates at which functions are evaluated: the ends, values between them, a missing value.
POINTS = np.array([-1.0, -0.6, 0.0, 0.3, 1.0, np.nan])
ROUNDING = 1e-9  # relative error of numbers that were computed from each other elsewhere
_FARTHEST = 1e100  # coordinates whose squares are far from an overflow
_SUM_ERROR = 1e-6  # by which the shares of categories may miss 1


def is_finite(array: Any, *shape: int) -> bool:
    """Whether a value is an array of finite floats of this shape."""
    floats = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == shape
    return floats and bool(np.all(np.isfinite(array)))


def are_places(places: Any, n: int) -> bool:
    """Whether these are different integers from 0 to n - 1."""
    return all(0 <= place < n for place in places) and len(set(places)) == len(places)


def each_shape_has_a_rate(gamma: Any, sizes: Sizes) -> Facts:
    yield np.ndim(gamma.shape) <= np.ndim(gamma.rate)


# ---- bases and columns


def products_are_few(basis: Any, sizes: Sizes) -> Facts:
    m, k = sizes["M"], sizes["K"]
    yield m >= 1
    yield 1 <= k <= m * m + 3 * m


def degree_is_below_size(basis: Any, sizes: Sizes) -> Facts:
    yield basis.degree_ < sizes["M"]


def each_spike_has_a_function(basis: Any, sizes: Sizes) -> Facts:
    yield sizes["inner"] + sizes["spikes"] == sizes["M"]


def missing_values_have_functions(basis: Any, sizes: Sizes) -> Facts:
    if basis.basis_ is None:
        return
    yield hasattr(basis, "typical_") and len(basis.values_) > 0
    if not basis.saw_missing_ or isinstance(basis.basis_, Categorical):
        yield len(basis.average_phi_) == sizes["M"]
        yield len(basis.average_psi_) == sizes["K"]


def all_but_one_are_centred(basis: Any, sizes: Sizes) -> Facts:
    yield int(basis.others_.sum()) == sizes["M"] - 1


def shares_add_up_to_1(basis: Any, sizes: Sizes) -> Facts:
    yield abs(float(basis.shares_.sum()) - 1.0) < _SUM_ERROR
    yield basis.missing_ is None or basis.missing_ < sizes["L"]


def functions_are_finite(basis: Any) -> bool:
    """Whether a fitted basis has as many functions as it says, with finite values."""
    if isinstance(basis, ManyCategories):
        return True
    inner = basis.basis if isinstance(basis, Anchored) else basis
    with_missing = isinstance(inner, WithMissing)
    kind = inner.basis_ if with_missing else inner
    x = POINTS if with_missing else POINTS[:-1]
    if isinstance(kind, Categorical):
        x = np.array([-1.0, 0.0, kind.n_functions_ - 1.0] + [np.nan] * with_missing)
    with np.errstate(all="ignore"):
        phi, psi = basis.features(x)
    return is_finite(phi, len(x), basis.n_functions_) and is_finite(psi, len(x), basis.n_products_)


def knots_ascend(column: Any, sizes: Sizes) -> Facts:
    yield np.all(np.diff(column.knots) > 0)


def categories_have_functions(column: Any, sizes: Sizes) -> Facts:
    basis = column.basis
    inner = None if isinstance(basis, ManyCategories) else basis.basis_
    if column.categories is None:
        yield not isinstance(basis, ManyCategories) and not isinstance(inner, Categorical)
        yield (inner is None or len(column.knots) > 0) and column.rest is None
        return
    yield len(column.knots) == 0
    yield inner is None or isinstance(inner, Categorical)
    count = (
        len(basis.shares_)
        if isinstance(basis, ManyCategories)
        else getattr(inner, "n_functions_", 0)
    )
    yield all(code < count for code in column.categories.values())
    yield column.rest is None or column.rest < count


def basis_is_finite(column: Any, sizes: Sizes) -> Facts:
    yield functions_are_finite(column.basis)


def each_copy_has_a_value(fill: Any, sizes: Sizes) -> Facts:
    yield len(fill.values) > 0 and are_places(fill.copies.tolist(), COUNT)


def each_function_has_a_part(effect: Any, sizes: Sizes) -> Facts:
    yield np.all(np.diff(effect.steps) > 0)
    if effect.n_categories is None:
        yield not len(effect.codes_)
    else:
        yield are_places(effect.codes_.astype(int).tolist(), effect.n_categories)
    parts: list[str] = []
    if effect.n_categories is not None:
        parts = [CATEGORIES] * len(effect.codes_)
    elif len(effect.positions) > 1:
        yield effect.degree_ <= len(effect.parts_)  # before as many are made
        parts = [LINE] + [CURVE] * effect.degree_
        parts += [STEPS] * len(effect.steps) + [SPIKES] * len(effect.spikes)
    yield effect.parts_ == parts + [MISSING] * effect.has_missing_


def coordinates_are_bounded(basis: Any, sizes: Sizes) -> Facts:
    if basis.categorical:
        return
    yield not basis.varies_ or sizes["J"] > 1  # there is something to interpolate
    with np.errstate(all="ignore"):
        phi = basis.phi(POINTS)
    yield is_finite(phi, len(POINTS), 3)
    yield np.all(np.abs(phi) < _FARTHEST)


# ---- modes and posteriors


def each_mode_has_an_input(mode_map: Any, sizes: Sizes) -> Facts:
    yield mode_map.first_input in (0, 1)
    yield len(set(mode_map.inputs)) == len(mode_map.inputs)
    yield len(set(mode_map.effect_inputs)) == sizes["E"]
    yield len(set(mode_map.noise_inputs)) == sizes["F"]
    lone = not mode_map.bases and not mode_map.full_cores and not mode_map.full_tensor
    yield mode_map.inputs or (mode_map.effects and lone)


def a_full_tensor_is_alone(mode_map: Any, sizes: Sizes) -> Facts:
    if mode_map.full_tensor:
        yield not (mode_map.full_cores or mode_map.anchored)
        yield not (mode_map.sums_first or mode_map.splines)
        yield not mode_map.effects and mode_map.first_input == 0


def functions_ascend(mode: Any, sizes: Sizes) -> Facts:
    yield sizes["M"] > 0
    yield np.all(np.diff(mode.keep) > 0)
    yield mode.keep[0] >= int(mode.anchored)


def all_categories_stay(mode: Any, sizes: Sizes) -> Facts:
    yield np.array_equal(mode.keep, np.arange(sizes["M"]))


def blocks_are_of_groups(factor: Any, sizes: Sizes) -> Facts:
    if factor.precision_blocks is not None:
        groups = factor.layout.groups
        yield len(factor.precision_blocks) == len(groups)
        for block, group in zip(factor.precision_blocks, groups, strict=True):
            size = group.shape[1] * sizes["M"]
            yield block.shape == (len(group), size, size)


def factors_fit_their_modes(state: Any, sizes: Sizes) -> Facts:
    for mode, factor in zip(state.modes, state.factors, strict=True):
        yield isinstance(mode, CategoryMode) is isinstance(factor, CategoryFactor)


def bonds_meet(state: Any, sizes: Sizes) -> Facts:
    layouts = [factor.layout for factor in state.factors]
    if not layouts:  # main effects alone
        bonds = []
    elif isinstance(state.network, CP):
        yield all(layout.other is None for layout in layouts)
        ranks = [layout.n_columns for layout in layouts]
        yield len(set(ranks)) == 1
        bonds = ranks if state.network.own else ranks[:1]
    else:
        yield all(layout.other is not None for layout in layouts)
        shapes = [layout.shape for layout in layouts]
        yield shapes[0][0] == shapes[-1][1] == 1
        yield all(left[1] == right[0] for left, right in pairwise(shapes))
        bonds = [right for _, right in shapes[:-1]]
    yield [len(np.atleast_1d(gamma.rate)) for gamma in state.rank] == bonds


def variances_are_positive(sums: Any, sizes: Sizes) -> Facts:
    yield np.all(np.diagonal(sums.cov, axis1=1, axis2=2) >= 0.0)


def parts_of_varying_noise_are_fitted(likelihood: Any, sizes: Sizes) -> Facts:
    yield all(value is not None for value in vars(likelihood.noise_at_zero).values())
    *_, total, _, inverse = likelihood.learned_from
    yield total[0] > 0.0  # the sum of the weights of the rows
    yield inverse[0] > 0.0


def rows_are_not_too_many(state: Any, sizes: Sizes) -> Facts:
    n = sizes["N"]
    if not 0 < n <= MOST_FULL_ROWS:
        raise Unreadable(f"one with a full tensor of {n:,} rows, not 1 to {MOST_FULL_ROWS:,}")
    yield abs(float(np.sum(state.share)) - 1.0) < ROUNDING


# ---- kept rows


def columns_are_of_a_known_type(batch: Any, sizes: Sizes) -> Facts:
    for column in batch.columns:
        yield column.dtype.kind in KINDS
        if column.dtype.kind == "f":
            yield not np.any(np.isinf(column))
        elif column.dtype.kind == "O":
            yield all(value is None or isinstance(value, str) for value in column)


# ---- models


def scores_ascend(calibration: Any, sizes: Sizes) -> Facts:
    yield 0 < sizes["N"] <= min(calibration.rows, MOST_SCORES)
    for scores in (calibration.lower, calibration.upper):
        yield np.all(np.diff(scores) >= 0.0) and np.all(np.abs(scores) <= 2.0 * FARTHEST)


def recalibration_is_of_this_target(model: Any, sizes: Sizes) -> Facts:
    calibration = getattr(model, "calibration_", None)
    if calibration is None:
        return
    classes = getattr(model, "classes_", None)
    yield isinstance(calibration, LogitScaling) is (classes is not None)
    yield classes is None or len(classes) == 2 or calibration.offset == 0.0


def n_outputs_of(model: Any) -> int | None:
    """Return how many outputs f has, None for one."""
    count = len(getattr(model, "classes_", ()))
    return count if count > 2 else None


def inputs_are_columns(model: Any, sizes: Sizes) -> Facts:
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        yield names.tolist() == [column.name for column in model.columns_]
    yield len(model.active) > 0 and are_places(model.active, sizes["D"])
    used = set(model.active)
    for mode_map in model.mode_maps:
        yield set(mode_map.inputs) <= used
        yield set(mode_map.effect_inputs) <= used
        yield set(mode_map.noise_inputs) <= used


def weights_add_up_to_1(model: Any, sizes: Sizes) -> Facts:
    yield abs(sum(model.weights_) - 1.0) < ROUNDING


def targets_fit_the_likelihood(model: Any, sizes: Sizes) -> Facts:
    likelihood = model.likelihood_
    exposed = bool(getattr(model, "exposed", False))
    yield hasattr(likelihood, "exposed") or not exposed
    yield exposed or getattr(model, "exposure_name", None) is None
    if not hasattr(model, "classes_"):
        yield hasattr(model, "y_shift") and hasattr(model, "noise_std_")
        yield not likelihood.of_labels
        return
    classes = model.classes_
    yield len(classes) >= 2 and len(set(classes.tolist())) == len(classes)
    yield np.all(np.sort(classes) == classes)
    yield len(model.log_weights) == len(classes)
    if likelihood.additive:  # least squares of the signs of two classes
        yield len(classes) == 2 and hasattr(model, "threshold")
        yield len(model.encode) == 3
    else:
        yield likelihood.of_labels and not model.encode


def likelihoods_are_alike(model: Any, sizes: Sizes) -> Facts:
    first = of_noise(model.likelihood_)
    yield not isinstance(first, str)
    for likelihood in [first, *(state.likelihood for state in model.posterior_)]:
        yield all(value is not None for value in vars(likelihood).values())  # it is fitted
        yield getattr(likelihood, "zero", 0.0) < 1.0  # a probability
        yield sizes.of(likelihood).get("outputs") == n_outputs_of(model)
        both_of_numbers = likelihood.additive and first.additive
        yield both_of_numbers or type(likelihood) is type(first)


def modes_fit_their_columns(model: Any, sizes: Sizes) -> Facts:
    for mode_map in model.mode_maps:
        first = mode_map.first_input
        for basis in mode_map.bases[:first]:  # the amplitudes
            yield isinstance(basis, Chebyshev) and basis.n_functions_ == 1
            yield functions_are_finite(basis)
        for j, basis in zip(mode_map.inputs, mode_map.bases[first:], strict=True):
            column = model.columns_[j]
            if mode_map.full_tensor:
                yield hasattr(basis, "straight") and _same_warp(basis, column)
                yield basis.categorical is (column.categories is not None)
                continue
            yield basis is column.basis or functions_are_finite(basis)
            inner = basis.basis if isinstance(basis, Anchored) else basis
            yield type(inner) is type(column.basis)
            if column.categories is None:  # one alone may have a function of missing values
                yield not isinstance(getattr(inner, "basis_", None), Categorical)
            else:
                yield inner.n_functions_ == column.basis.n_functions_


def effects_fit_their_columns(model: Any, sizes: Sizes) -> Facts:
    for mode_map in model.mode_maps:
        inputs = (*mode_map.effect_inputs, *mode_map.noise_inputs)
        for j, effect in zip(inputs, (*mode_map.effects, *mode_map.noise_effects), strict=True):
            column = model.columns_[j]
            yield _same_warp(effect, column)
            yield (effect.n_categories is None) is (column.categories is None)


def _same_warp(part: Any, column: Any) -> bool:
    return np.array_equal(part.knots, column.knots) and np.array_equal(
        part.positions, column.positions
    )


def posteriors_fit_their_modes(model: Any, sizes: Sizes) -> Facts:
    n_outputs = n_outputs_of(model)
    for mode_map, state in zip(model.mode_maps, model.posterior_, strict=True):
        yield type(state) is (FullPosterior if mode_map.full_tensor else State)
        if mode_map.full_tensor:
            yield from _full_posterior_fits(state, mode_map, model.columns_, n_outputs)
        else:
            yield from _state_fits(state, mode_map, n_outputs)
            yield from _sums_fit(state.sums, mode_map.effects, n_outputs)


def _state_fits(state: Any, mode_map: Any, n_outputs: int | None) -> Facts:
    has_output = n_outputs is not None and len(mode_map.bases) > 0
    yield len(state.modes) == len(mode_map.bases) + has_output
    yield state.output == (len(state.modes) - 1 if has_output else None)
    if has_output:
        last = state.modes[-1]
        yield isinstance(last, CategoryMode) and last.shares is None
        yield not last.anchored and len(last.keep) == n_outputs
    for basis, mode in zip(mode_map.bases, state.modes, strict=False):
        if isinstance(basis, ManyCategories):
            yield isinstance(mode, CategoryMode) and mode.anchored
            yield mode.shares is not None and len(mode.shares) == len(basis.shares_)
            continue
        yield not isinstance(mode, CategoryMode)
        yield mode.anchored is isinstance(basis, Anchored)
        yield mode.keep[-1] < basis.n_functions_
        yield mode.full_table is basis.table_  # the same object: it is stored once
    yield isinstance(state.network, CP) is not mode_map.full_cores
    yield np.ndim(state.information) == 0 or len(state.information) == n_outputs


def _sums_fit(sums: Any, effects: Any, n_outputs: int | None) -> Facts:
    yield (sums is None) is (not effects)
    if sums is None:
        return
    # all functions of these effects, of no output: that takes no memory
    full = Sums.begin(effects, 0)
    yield sums.groups == full.groups
    yield len(sums.group) > 0 and len(sums.mean) == (n_outputs or 1)
    kept = np.isin(full.group, np.append(-1, sums.group))
    for name in ("group", "column", "degree"):
        yield np.array_equal(getattr(sums, name), getattr(full, name)[kept])


def _full_posterior_fits(
    state: Any, mode_map: Any, columns: list[Any], n_outputs: int | None
) -> Facts:
    # nothing of the size of rows times rows is made here
    yield state.n_outputs == n_outputs
    yield len(state.target) == (n_outputs or 1)
    bases, kernel = mode_map.bases, state.kernel
    yield len(state.rows) == len(bases)
    yield kernel.categorical.tolist() == [basis.categorical for basis in bases]
    for rows, j, basis in zip(state.rows, mode_map.inputs, bases, strict=True):
        yield from _rows_fit(rows, basis, columns[j])
    theta = Theta(parts_of(mode_map), learns_noise=learns_noise(state.likelihood))
    yield len(state.theta) == len(theta.begin())
    made = theta.kernel(state.theta)
    for field in fields(kernel):
        if field.name != "categorical":
            values = getattr(kernel, field.name), getattr(made, field.name)
            yield np.allclose(*values, rtol=ROUNDING, atol=0.0)


def _rows_fit(rows: Any, basis: Any, column: Any) -> Facts:
    # the coordinates of the training rows are such as their input can have
    line, position, known = rows[:, STRAIGHT], rows[:, POSITION], rows[:, KNOWN]
    yield np.all((known == 0.0) | (known == 1.0))
    yield basis.has_missing_ or np.all(known == 1.0)
    yield np.all(line[known == 0.0] == 0.0)
    if basis.categorical:
        codes = np.array(list(column.categories_by_code), dtype=float)
        yield np.all(line == 0.0)
        yield np.all(np.isin(position[known == 1.0], codes))
        yield np.all(position[known == 0.0] == 0.0)
        return
    largest = float(np.max(np.abs(basis.line_), initial=0.0)) if basis.varies_ else 0.0
    farthest = (1.0 + abs(basis.center_)) / basis.scale_
    yield np.all(np.abs(line) <= (1.0 + ROUNDING) * largest)
    yield np.all(np.abs(position) <= (1.0 + ROUNDING) * farthest)


def noise_fits_its_effects(model: Any, sizes: Sizes) -> Facts:
    for mode_map, state in zip(model.mode_maps, model.posterior_, strict=True):
        yield isinstance(state.likelihood, Varying) is bool(mode_map.noise_effects)
        if isinstance(state.likelihood, Varying):
            yield not hasattr(model, "classes_")
            yield from _noise_fits(state.likelihood, mode_map)
    first = of_noise(model.likelihood_)
    if isinstance(first, Varying):
        yield any(all(_noise_fits(first, mode_map)) for mode_map in model.mode_maps)


def _noise_fits(likelihood: Any, mode_map: Any) -> Facts:
    yield likelihood.first == len(mode_map.bases) + len(mode_map.effects)
    yield from _sums_fit(likelihood.sums, mode_map.noise_effects, None)


def results_are_of_this_fit(model: Any, sizes: Sizes) -> Facts:
    restarts, ranks, bounds = sizes["R"], model.ranks_, model.lower_bounds_
    yield restarts > 0
    yield np.issubdtype(ranks.dtype, np.integer) or not ranks.size
    if isinstance(model.rank_, tuple):  # of a tensor train
        yield hasattr(model, "cores_")
        yield sorted(model.mode_order_.tolist()) == list(range(sizes["D"]))
    yield bounds.dtype == np.float64 and bounds.size > 0
    yield model.best_restart_ < restarts
    yield len(model.history_) > 0


def past_rows_fit_their_posteriors(model: Any, sizes: Sizes) -> Facts:
    # a full tensor keeps its rows instead
    resumes = not any(mode_map.full_tensor for mode_map in model.mode_maps)
    yield len(model.pasts) in (0, resumes * sizes["R"])
    n_outputs = n_outputs_of(model)
    # there are none for more rows than are kept
    for past, state, mode_map in zip(model.pasts, model.posterior_, model.mode_maps, strict=False):
        yield len(past.modes) == len(state.modes)
        yield len(past.features) == len(mode_map.bases)
        for stats, mode, factor in zip(past.modes, state.modes, state.factors, strict=True):
            layout = factor.layout
            yield stats.second.shape == (mode.n_psi, len(layout.multiplicity))
            yield stats.linear.shape == (mode.n_phi, layout.n_columns)
        for (phi, psi), basis in zip(past.features, mode_map.bases, strict=True):
            yield phi.shape == (basis.n_functions_,)
            yield psi.shape == (basis.n_products_,)
        yield (past.sums is None) is (state.sums is None)
        if past.sums is not None:
            yield from _sums_fit(past.sums.sums, mode_map.effects, n_outputs)
            yield np.all(np.isin(state.sums.kept, past.sums.sums.kept))
        if isinstance(state.likelihood, Varying):
            learned = state.likelihood.learned_from
            yield [np.shape(part) for part in past.likelihood_sums[-len(learned) :]] == [
                np.shape(part) for part in learned
            ]
            yield past.likelihood_sums[-1][0] > 0.0


def averages_fit_their_posteriors(model: Any, sizes: Sizes) -> Facts:
    for state, mode_map, averages, effects in zip(
        *(model.posterior_, model.mode_maps, model.averages, model.effect_averages),
        strict=True,
    ):
        if mode_map.full_tensor:  # explanations read the rows themselves
            yield not averages and not effects
            continue
        yield isinstance(effects, list)
        yield len(averages) == len(state.modes)
        for (phi, gram), mode in zip(averages, state.modes, strict=True):
            if isinstance(mode, CategoryMode) and mode.shares is not None:
                size = len(mode.keep)
                yield isinstance(gram, sp.csr_array) and gram.shape == (size, size)
                yield len(phi) == size + 1
            else:
                yield isinstance(gram, np.ndarray) and gram.shape == (len(phi), len(phi))
                yield len(phi) > int(mode.present[-1])
        yield len(effects) == len(mode_map.effects)
        for average, effect, d in zip(
            effects, mode_map.effects, mode_map.effect_modes, strict=True
        ):
            yield average.mode == d and len(average.mean) == effect.n_functions_
            yield average.cross.shape[1] == (0 if d is None else len(averages[d][0]))


def variances_begin_at_zero_and_rise(widening: Any, sizes: Sizes) -> Facts:
    yield are_places(widening.inputs, 1 + max(widening.inputs, default=0))
    yield len(widening.inputs) > 0 and widening.variances.shape[1:3] == (2, PLACES)
    yield np.all(widening.variances[:, :, 0] == 0.0)
    yield np.all(np.diff(widening.variances, axis=2) >= 0.0)
    yield np.all(widening.variances < _FARTHEST)


def widenings_fit_their_columns(model: Any, sizes: Sizes) -> Facts:
    for widening in getattr(model, "widenings", ()):
        if widening is not None:
            yield widening.variances.shape[3] == (n_outputs_of(model) or 1)
            for j in widening.inputs:
                yield j in model.active and len(model.columns_[j].knots) > 1


def kept_rows_are_of_this_table(model: Any, sizes: Sizes) -> Facts:
    window = getattr(model, "window", None)
    if window is None:
        return
    yield len(window.rows.columns) == sizes["D"]
    y = window.rows.y
    if hasattr(model, "classes_"):
        yield set(y.tolist()) <= set(model.classes_.tolist())
    else:
        exposed = bool(getattr(model, "exposed", False))
        yield y.dtype.kind == "f" and y.ndim == 1 + exposed and y.size == len(y) * (1 + exposed)
        yield all(map(is_number, y.ravel()))


def fills_fit_their_columns(model: Any, sizes: Sizes) -> Facts:
    for j, fill in enumerate(getattr(model, "fills", ())):
        if fill is None:
            continue
        column = model.columns_[j]
        yield j in model.active
        others = fill.inputs.tolist()
        yield set(others) <= set(model.active) - {j} and are_places(others, sizes["D"])
        numeric = [model.columns_[k].categories is None for k in (j, *others)]
        yield all(numeric) if others else True
        if column.categories is None:
            yield len(column.knots) > 0
        else:
            codes = {float(code) for code in column.categories.values()}
            yield set(fill.values.tolist()) <= codes
