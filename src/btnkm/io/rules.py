"""Rules that tie the fields of one object together where their kinds cannot.

Each takes an object whose fields have passed, and its sizes, and yields what must be true. Later
conditions may rely on earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from ..bases import Categorical, WithMissing
from ..bases.anchored import Anchored
from ..bases.categorical import ManyCategories
from ..bases.effect import CATEGORIES, CURVE, LINE, MISSING, SPIKES, STEPS
from ..core.categories import CategoryFactor, CategoryMode
from ..core.cp import CP
from ..data.column_stats import KINDS
from .archive import Unreadable
from .schema import Sizes

Array = np.ndarray
Facts = Iterator[Any]
#: Rows of a full tensor that a file may hold: a small file must not ask for a matrix of any size.
MOST_FULL_ROWS = 20_000
#: Coordinates at which functions are evaluated: the ends, values between them, a missing value.
SOME = np.array([-1.0, -0.6, 0.0, 0.3, 1.0, np.nan])
ROUNDING = 1e-9  # relative error of numbers that were computed from each other elsewhere
_FARTHEST = 1e100  # coordinates whose squares are far from an overflow
_SUM_ERROR = 1e-6  # by which the shares of categories may miss 1


def is_finite(array: Any, *shape: int) -> bool:
    """Tell an array of finite floating-point numbers of this shape."""
    floats = isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == shape
    return floats and bool(np.all(np.isfinite(array)))


def are_places(places: Any, n: int) -> bool:
    """Tell different integers below n."""
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
    """Tell whether a fitted basis has the numbers of functions that it says, all finite."""
    if isinstance(basis, ManyCategories):
        return True
    inner = basis.basis if isinstance(basis, Anchored) else basis
    kind, some = inner, SOME[:-1]
    if isinstance(inner, WithMissing):
        kind, some = inner.basis_, SOME
    if isinstance(kind, Categorical):
        codes = [-1.0, 0.0, kind.n_functions_ - 1.0]
        some = np.array(codes + [np.nan] * isinstance(inner, WithMissing))
    with np.errstate(all="ignore"):
        phi, psi = basis.features(some)
    sizes = basis.n_functions_, basis.n_products_
    return all(is_finite(part, len(some), n) for part, n in zip((phi, psi), sizes, strict=True))


def knots_ascend(column: Any, sizes: Sizes) -> Facts:
    yield np.all(np.diff(column.knots) > 0)


def categories_have_functions(column: Any, sizes: Sizes) -> Facts:
    basis = column.basis
    inner = None if isinstance(basis, ManyCategories) else basis.basis_
    if column.levels is None:
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
    yield all(code < count for code in column.levels.values())
    yield column.rest is None or column.rest < count


def basis_is_finite(column: Any, sizes: Sizes) -> Facts:
    yield functions_are_finite(column.basis)


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
        phi = basis.phi(SOME)
    yield is_finite(phi, len(SOME), 3)
    yield np.all(np.abs(phi) < _FARTHEST)


# ---- modes and posteriors


def each_mode_has_an_input(mode_map: Any, sizes: Sizes) -> Facts:
    yield mode_map.first_input in (0, 1)
    yield len(set(mode_map.inputs)) == len(mode_map.inputs)
    yield len(set(mode_map.effect_inputs)) == sizes["E"]
    lone = not mode_map.bases and not mode_map.full and not mode_map.kernel
    yield mode_map.inputs or (mode_map.effects and lone)


def a_full_tensor_is_alone(mode_map: Any, sizes: Sizes) -> Facts:
    if mode_map.kernel:
        yield not (mode_map.full or mode_map.anchored)
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
