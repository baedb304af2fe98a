"""Columns of a table -> coordinates, and one basis per input.

A column is numeric (numbers, booleans, dates) or categorical (text, categories). A numeric column
is warped to [-1, 1], half by rank and half by value: ranks spread dense regions, values keep
distances. A value beyond the training range has a coordinate beyond [-1, 1]: the distance from the
end is that of the values, in units of their range. Functions are held at the end, except straight
lines that run on. The categories of a categorical column become integers. NaN stands for a missing
value in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from sklearn.base import clone

from ..bases import BASES, Basis, Categorical, Chebyshev, Spiked, WithMissing
from ..bases.anchored import Anchored
from ..bases.categorical import ManyCategories
from ..bases.spiked import stand_out
from ..core.arrays import interpolate, like
from .column_stats import KINDS, MOST_CATEGORIES, ColumnValues, is_empty
from .frames import as_numbers, category_name
from .text import plural

Array = np.ndarray

RANK_SHARE = 0.5  # of ranks in the warp; the rest is by value
# A frequent value counts in the ranks for at most this fraction of the rows: otherwise, with 80%
# zeros, all other values would have only a fifth of the range.
MOST_RANK = 0.005
FEW_VALUES = 20  # with at most so many different values, each counts in full
MAX_KNOTS = 1000  # of the warp
# With at least so many categories of two or more rows, the weights of categories are independent
# (the basis ManyCategories)
MANY_CATEGORIES = 20
# Otherwise the rarest categories are merged if there are more than MAX_CATEGORIES, or more than
# one per ROWS_PER_CATEGORY rows (but not below MIN_CATEGORIES).
MAX_CATEGORIES, MIN_CATEGORIES, ROWS_PER_CATEGORY = 100, 10, 8
# Ranges beyond the training range from which on a value counts as if it were there: of rows to
# predict, whose squares must not overflow; of rows that a model is updated with, none of which is
# to decide alone; and of both where y is not f plus noise, but about exp(f), say.
FARTHEST, FARTHEST_LEARNED, FARTHEST_OF_LOGARITHM = 1e12, 10.0, 1.0
# A value is materially beyond the range from this fraction of it on, or from one and a half times
# the width of the outer tenth of the training values, if that is more: random rows of the same kind
# rarely are.
MATERIAL, TAIL, TAILS = 0.1, 0.1, 1.5


@dataclass(frozen=True)
class Column:
    """One input: the map from its values to coordinates, and its fitted basis.

    The warp of a numeric column is linear between knots; there are none if all values were missing.
    """

    name: Any
    knots: Array
    positions: Array  # of the knots
    categories: dict[str, int] | None  # codes by name; None for a numeric column
    kind: str  # "M" for dates, "m" for durations, "f" for numbers, "O" for text
    basis: (
        WithMissing | ManyCategories
    )  # of coordinates; ManyCategories from MANY_CATEGORIES categories on
    rest: int | None = None  # code of the rarest categories, if they are merged

    @property
    def categories_by_code(self) -> dict[int, list[str]]:
        """The categories of every code; the rarest may share one."""
        categories: dict[int, list[str]] = {}
        for category, code in (self.categories or {}).items():
            categories.setdefault(code, []).append(category)
        return categories

    def numbers(self, codes: Array) -> Array:
        """Return the numbers that have these coordinates; dates in microseconds."""
        return np.interp(codes, self.positions, self.knots)

    def positions_of(self, numbers: Array) -> Array:
        """Return the coordinates of numbers."""
        return np.interp(numbers, self.knots, self.positions)

    @property
    def tails(self) -> tuple[float, float]:
        """The widths of the outer tenths of the training values, as fractions of their range."""
        if len(self.knots) < 2:
            return 0.0, 0.0
        half = 0.5 * self.knots
        value = (half - half[0]) / (half[-1] - half[0])
        rank = (0.5 * (self.positions + 1.0) - (1.0 - RANK_SHARE) * value) / RANK_SHARE
        low, high = np.interp((TAIL, 1.0 - TAIL), rank, value)
        return float(low), float(1.0 - high)

    def encode(self, values: Array, farthest: float = FARTHEST) -> Array:
        """Return the coordinates of raw values: (n,) floats, NaN where missing.

        An unseen category is -1. Numbers more than ``farthest`` ranges beyond the training range
        are moved there. Arrays of other libraries hold numbers and stay on their device.
        """
        if not is_numpy_array(values):
            return self._encode_elsewhere(values, farthest)
        kind, values = values.dtype.kind, as_numbers(values)
        if kind != self.kind and {kind, self.kind} & {"m", "M"} and not is_empty(values):
            raise ValueError(
                f"column {self.name!r} must hold {plural(KINDS[self.kind])}, as it did in fit, got "
                f"{plural(KINDS[kind])}; give the column the same type as in fit."
            )
        if self.categories is not None:
            names = _category_names(values)
            if values.dtype != object and any(names) and not _hold_number(self.categories):
                raise ValueError(
                    f"column {self.name!r} must hold text, as it did in fit, got numbers or dates; "
                    "give the column the same type as in fit."
                )
            codes: dict[Any, float] = {**self.categories, None: np.nan}
            return np.array([codes.get(v, -1.0) for v in names], dtype=float)
        if len(self.knots) == 0:
            return np.full(len(values), np.nan)
        if values.dtype == object:
            values = _numbers(values, self.name)
        return self._running_on(self.positions_of(values), values, farthest)

    def _running_on(self, codes: Any, values: Any, farthest: float) -> Any:
        """Return coordinates beyond [-1, 1] for values beyond the training range."""
        xp = array_namespace(codes)
        first, last = float(self.knots[0]), float(self.knots[-1])
        outside = (values < first) | (values > last)
        if len(self.knots) < 2 or not bool(xp.any(outside)):
            return codes
        half = max(0.5 * last - 0.5 * first, float(np.finfo(float).tiny))
        values = xp.astype(values, codes.dtype)
        with np.errstate(over="ignore"):
            above, below = (0.5 * values - 0.5 * last) / half, (0.5 * values - 0.5 * first) / half
        above, below = xp.clip(above, 0.0, farthest), xp.clip(below, -farthest, 0.0)
        return xp.where(outside, codes + above + below, codes)

    def _encode_elsewhere(self, values: Any, farthest: float) -> Any:
        """Return coordinates with operations of the array API."""
        xp = array_namespace(values)
        x = xp.astype(values, xp.float64)  # knots may be close to each other
        if self.kind != "f":
            raise ValueError(
                f"column {self.name!r} must hold {plural(KINDS[self.kind])}, as it did in fit, got "
                "numbers; give the column the same type as in fit."
            )
        if self.categories is not None and not self.categories:
            codes = xp.where(xp.isnan(x), x, xp.full_like(x, -1.0))
        elif self.categories is not None:
            known = sorted((float(name), float(code)) for name, code in self.categories.items())
            categories, category_codes = (like([pair[i] for pair in known], x) for i in (0, 1))
            place = xp.clip(xp.searchsorted(categories, x), 0, len(known) - 1)
            unseen = xp.where(xp.isnan(x), x, xp.full_like(x, -1.0))
            codes = xp.where(
                xp.take(categories, place) == x, xp.take(category_codes, place), unseen
            )
        elif len(self.knots) < 2:
            only = float(self.positions[0]) if len(self.knots) else np.nan
            codes = xp.where(xp.isnan(x), x, xp.full_like(x, only))
        else:
            codes = self._running_on(interpolate(x, self.knots, self.positions), x, farthest)
        return xp.astype(codes, values.dtype)


def fit_columns(
    summaries: list[ColumnValues],
    names: list[Any],
    basis: Any,
    n_basis: int,
    many_categories: bool = False,
) -> tuple[list[Column], list[Array]]:
    """Choose and fit one basis per column; also return the coordinates of the values.

    ``basis`` and ``n_basis`` are as in the constructor of a model. With ``many_categories`` a
    column may have any number of categories with two or more rows; otherwise the rarest are merged.
    """
    chosen = _choose(basis, names, n_basis)
    columns, codes = [], []
    for (given, weight), name, choice in zip(summaries, names, chosen, strict=True):
        values = as_numbers(given)
        if choice is None:
            smooth = Spiked(Chebyshev(n_basis=n_basis))
            choice = Categorical() if values.dtype == object else smooth
        categorical = isinstance(choice, Categorical)
        if values.dtype == object and not categorical:
            values = _numbers(values, name)
        categories, rest = (
            _categories(values, weight, many_categories) if categorical else (None, None)
        )
        knots, positions = (np.empty(0), np.empty(0)) if categorical else _warp(values, weight)
        many = (
            many_categories
            and categories is not None
            and len(set(categories.values())) >= MANY_CATEGORIES
        )
        functions = ManyCategories() if many else WithMissing(clone(choice))
        column = Column(name, knots, positions, categories, given.dtype.kind, functions, rest)
        code = column.encode(given)
        column.basis.fit(code, weight)
        columns.append(column)
        codes.append(code)
    return columns, codes


class Growth(NamedTuple):
    """What is new in a column."""

    categories: int  # number of new categories
    missing: bool  # whether there are missing values for the first time


def grown(column: Column, summary: ColumnValues) -> tuple[Column, Growth]:
    """Return a column extended by the categories and missing values of more rows."""
    if isinstance(column.basis, WithMissing) and column.basis.basis_ is None:
        return column, Growth(0, missing=False)  # all values were missing: it is not an input
    codes = column.encode(summary.values)
    missing = bool(np.any(np.isnan(codes))) and not column.basis.knows_missing
    unknown = (codes < 0) & (column.categories is not None)
    categories, rest = column.categories, column.rest
    if categories is not None and np.any(unknown):
        values, weight = as_numbers(summary.values[unknown]), summary.weight[unknown]
        new, rest = _more_categories(column, values, weight)
        categories = categories | new
    known = set((column.categories or {}).values())
    growth = Growth(len(set((categories or {}).values()) - known), missing)
    basis = column.basis.grown(*growth) if any(growth) else column.basis
    return replace(column, categories=categories, basis=basis, rest=rest), growth


def _more_categories(
    column: Column, values: Array, weight: Array
) -> tuple[dict[str, int], int | None]:
    """Return the codes of new categories, and the code of merged categories.

    Merged are categories of a single row, if most are of that kind, and those beyond the maximum
    size of a basis with one function per category, as in ``_categories``. Names beyond
    ``MOST_CATEGORIES`` are not stored.
    """
    total = _totals(values, weight)
    new, basis = sorted(total), column.basis
    if isinstance(basis, ManyCategories):
        first = len(basis.shares_)
        shared = [category for category in new if total[category] >= 2]
        kept = new if 2 * len(shared) >= len(new) else shared
    else:
        assert basis.basis_ is not None
        first = basis.basis_.n_functions_
        kept = sorted(sorted(new, key=lambda v: -total[v])[: max(MAX_CATEGORIES - first, 0)])
    codes = {category: first + k for k, category in enumerate(kept)}
    assert column.categories is not None
    others = [category for category in new if category not in codes]
    others = others[: max(MOST_CATEGORIES - len(column.categories) - len(codes), 0)]
    rest = column.rest
    if rest is None and others:
        rest = first + len(kept)
    return codes | dict.fromkeys(others, rest or 0), rest


def categorical_columns(basis: Any, names: list[Any]) -> set[int]:
    """Return the positions of the columns that are categorical for any type of values."""
    chosen = enumerate(_choose(basis, names, 1))
    return {j for j, choice in chosen if isinstance(choice, Categorical)}


def _choose(basis: Any, names: list[Any], n_basis: int) -> list[Basis | None]:
    """Return the basis of each column, None if it depends on the type of its values."""
    if not isinstance(basis, Mapping):
        return [_named(basis, n_basis)] * len(names)
    chosen: dict[int, Basis | None] = {}
    for key, value in basis.items():
        if key in names:
            position = names.index(key)
        elif isinstance(key, int | np.integer) and -len(names) <= key < len(names):
            position = int(key) % len(names)
        else:
            raise ValueError(
                f"every key of basis must be a column's name or position, got {key!r}; "
                f"the columns are {names[:10]}{' …' if len(names) > 10 else ''}."
            )
        if position in chosen:
            raise ValueError(
                f"basis must name every column once, got {names[position]!r} twice, by name and by "
                "position; leave one of them out."
            )
        chosen[position] = _named(value, n_basis)
    return [chosen.get(j) for j in range(len(names))]


def _named(basis: Any, n_basis: int) -> Basis | None:
    if isinstance(basis, str) and basis == "auto":
        return None
    if isinstance(basis, str) and basis in BASES:
        kind = BASES[basis]
        return kind() if kind is Categorical else kind(n_basis=n_basis)
    if isinstance(basis, Basis) and not isinstance(
        basis, Anchored | ManyCategories
    ):  # internal bases
        return basis
    raise ValueError(
        f"basis must be 'auto', one of {sorted(BASES)}, a Basis or a dict from column to one of "
        f"these, got {basis!r}; for example basis='bspline' or basis={{'age': BSpline(n_basis=8)}}."
    )


def _warp(values: Array, weight: Array) -> tuple[Array, Array]:
    """Return knots and positions in [-1, 1] of the warp: half weighted mid-rank, half value."""
    seen = ~np.isnan(values)
    if not np.any(seen):
        return np.empty(0), np.empty(0)
    knots, group = np.unique(values[seen], return_inverse=True)
    if len(knots) == 1:
        return knots, np.zeros(1)
    count = np.bincount(group, weights=weight[seen])
    if len(knots) > FEW_VALUES:
        spikes = stand_out(count)
        count[spikes] = np.minimum(count[spikes], MOST_RANK * count.sum())
    rank = np.cumsum(count) - 0.5 * count
    rank = (rank - rank[0]) / (rank[-1] - rank[0])
    if len(knots) > MAX_KNOTS:
        even = np.searchsorted(rank, np.linspace(0.0, 1.0, MAX_KNOTS))
        keep = np.unique(np.clip(even, 0, len(knots) - 1))
        knots, rank = knots[keep], rank[keep]
    half = 0.5 * knots  # the range of values near 1e308 would overflow
    value = (half - half[0]) / (half[-1] - half[0])
    return knots, 2.0 * (RANK_SHARE * rank + (1.0 - RANK_SHARE) * value) - 1.0


def _categories(values: Array, weight: Array, many: bool) -> tuple[dict[str, int], int | None]:
    """Return the codes of categories in sorted order, and the code of merged categories."""
    total = _totals(values, weight)
    categories = sorted(total)
    shared = [category for category in categories if total[category] >= 2]
    most = int(np.clip(sum(total.values()) / ROWS_PER_CATEGORY, MIN_CATEGORIES, MAX_CATEGORIES))
    if many and len(shared) >= MANY_CATEGORIES:
        # most categories have one row: the others determine how much they are shrunk
        kept = categories if 2 * len(shared) >= len(categories) else shared
    elif len(categories) <= most:
        kept = categories
    else:
        # sorted first, so that ties are resolved in the same way in every run
        frequent = set(sorted(shared, key=lambda v: -total[v])[: most - 1])
        kept = [category for category in categories if category in frequent]
    codes = {category: code for code, category in enumerate(kept)}
    rest = len(kept)
    every = {category: codes.get(category, rest) for category in categories}
    return every, rest if rest < len(categories) else None


def _totals(values: Array, weight: Array) -> dict[str, float]:
    """Return the weight of each category."""
    total: dict[str, float] = {}
    for category, w in zip(_category_names(values), weight.tolist(), strict=True):
        if category is not None:
            total[category] = total.get(category, 0.0) + w
    return total


def _category_names(values: Array) -> list[Any]:
    """Return the name of each value, None where missing."""
    if values.dtype == object:
        return values.tolist()
    return [None if v != v else category_name(v) for v in values.tolist()]


def _hold_number(categories: dict[str, int]) -> bool:
    """Whether any category is the name of a number, or there are no categories."""
    for category in categories:
        try:
            float(category)
        except ValueError:
            continue
        return True
    return not categories


def _numbers(values: Array, name: str) -> Array:
    """Return objects as floats; raise an error for the first that is not a number."""
    out = np.full(len(values), np.nan)
    for i, value in enumerate(values.tolist()):
        if value is None:
            continue
        try:
            out[i] = float(value)
        except (TypeError, ValueError):
            raise ValueError(
                f"column {name!r} must hold numbers, as it did in fit or as its basis needs, "
                f"got {value!r}; give the column the same type as in fit, or a Categorical basis."
            ) from None
    if np.any(np.isinf(out)):
        raise ValueError(f"column {name!r} must be finite, got infinity; remove or cap such rows.")
    return out
