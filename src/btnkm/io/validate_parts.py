"""What the parts of a model that was read from a file must be: numbers, columns and bases."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..bases import Basis, BSpline, Categorical, Fourier, Gapped, Polynomial, Spiked
from ..bases.anchored import Anchored
from ..bases.levels import Levels
from ..core.gamma import Gamma
from ..data.column_stats import KINDS
from ..data.columns import Column
from .archive import Unreadable

# coordinates at which functions are looked at: ends, middle, a gap
SOME = np.array([-1.0, -0.6, 0.0, 0.3, 1.0, np.nan])


def must(condition: Any, what: str) -> None:
    """Raise ``Unreadable``, with what is wrong, unless something is so."""
    if not condition:
        raise Unreadable(f"one with {what} that do not fit together")


def is_whole(value: Any, low: int = 0) -> bool:
    """Tell an integer of at least ``low``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and low <= value < 2**63


def is_number(value: Any, low: float = -np.inf, high: float = np.inf) -> bool:
    """Tell a finite number between two others."""
    real = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    return real and bool(np.isfinite(value)) and low < value < high


def is_float(value: Any) -> bool:
    """Tell a number that may be NaN or infinite."""
    return isinstance(value, float | np.floating) or is_whole(value, -(2**63))


def is_rank(value: Any) -> bool:
    """Tell a rank: one number, or one for each bond of a train."""
    return all(map(is_whole, value)) if isinstance(value, tuple) else is_whole(value)


def is_name(value: Any) -> bool:
    """Tell what a table may call a column: text, a number, nothing, or some of these."""
    if isinstance(value, tuple):
        return all(map(is_name, value))
    return value is None or isinstance(value, str | int | float | np.generic)


def are_places(listed: Any, n: int) -> bool:
    """Tell different positions among n."""
    return all(is_whole(j) and j < n for j in listed) and len(set(listed)) == len(listed)


def are_numbers(array: Any, *shape: int | None, low: float = -np.inf) -> bool:
    """Tell an array of finite numbers >= low; None stands for any length."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim != len(shape):
        return False
    same = all(size in (None, own) for size, own in zip(shape, array.shape, strict=True))
    return same and bool(np.all(np.isfinite(array)) and np.all(array >= low))


def are_gammas(gamma: Any, size: int | None) -> bool:
    """Tell so many Gamma distributions, which may share a shape; None stands for one."""
    if not isinstance(gamma, Gamma):
        return False
    for part in (gamma.shape, gamma.rate):
        lone = is_number(part, 0.0) or (np.ndim(part) == 0 and are_numbers(part) and part > 0)
        many = size is not None and are_numbers(part, size) and bool(np.all(part > 0))
        if not many and not (lone and (size is None or part is gamma.shape)):
            return False
    return True


def check_column(column: Any) -> None:
    """Raise ``Unreadable`` unless a column is sound, and its basis fits it."""
    must(isinstance(column, Column) and column.kind in KINDS, "columns")
    must(is_name(column.name), "names of columns")
    knots, positions, basis = column.knots, column.positions, column.basis
    must(are_numbers(knots, None) and are_numbers(positions, len(knots)), "columns")
    must(np.all(np.diff(knots) > 0) and np.all(np.abs(positions) <= 1.0), "columns")
    must(isinstance(basis, Gapped | Levels), "columns")
    check_basis(basis)
    inner = None if isinstance(basis, Levels) else basis.basis_
    if column.levels is None:
        must(not isinstance(basis, Levels) and not isinstance(inner, Categorical), "columns")
        must((inner is None or len(knots) > 0) and column.rest is None, "columns")
        return
    must(isinstance(column.levels, dict) and len(knots) == 0, "levels")
    count = len(basis.shares_) if isinstance(basis, Levels) else 0
    if inner is not None:
        must(isinstance(inner, Categorical), "levels")
        count = inner.n_functions_
    must(column.rest is None or are_places([column.rest], count), "levels")
    for level, code in column.levels.items():
        must(isinstance(level, str) and is_whole(code) and code < count, "levels")


def check_basis(basis: Any) -> None:
    """Raise ``Unreadable`` unless a basis is sound: what it is made of, then its functions."""
    if isinstance(basis, Levels):
        must(are_numbers(basis.shares_, None, low=0.0), "levels")
        count = len(basis.shares_)
        must(abs(float(basis.shares_.sum()) - 1.0) < 1e-6, "levels")
        must(basis.missing_ is None or are_places([basis.missing_], count), "levels")
        must(basis.n_functions_ == basis.n_products_ == count + 1, "levels")
        return
    _check_parts(basis)
    inner = basis.basis if isinstance(basis, Anchored) else basis
    kind = inner.basis_ if isinstance(inner, Gapped) else inner
    some = SOME
    if isinstance(kind, Categorical):
        some = np.array([-1.0, 0.0, kind.n_functions_ - 1.0, np.nan])
    some = some if isinstance(inner, Gapped) else some[:-1]
    with np.errstate(all="ignore"):
        phi, psi = basis.features(some)
    must(are_numbers(phi, len(some), basis.n_functions_), "functions")
    must(are_numbers(psi, len(some), basis.n_products_), "functions")


def _check_parts(basis: Any) -> None:
    """Look at what a basis is made of; nothing is evaluated before its size is known."""
    must(isinstance(basis, Basis) and isinstance(basis.degrees_, np.ndarray), "functions")
    m, k = basis.n_functions_, basis.n_products_
    must(is_whole(m, 1) and is_whole(k, 1) and k <= m * m + 3 * m, "functions")
    must(are_numbers(basis.degrees_, m, low=0.0) and are_numbers(basis.constant_, m), "functions")
    table = basis.table_
    must(isinstance(table, sp.csr_array) and table.shape == (m * m, k), "functions")
    must(are_numbers(table.data, None), "functions")
    match basis:
        case Anchored():
            must(isinstance(basis.basis, Gapped), "functions")
            _check_parts(basis.basis)
            size = basis.basis.n_functions_
            must(are_numbers(basis.means_, size) and are_numbers(basis.frame_, size, m), "means")
            others = basis.others_
            must(isinstance(others, np.ndarray) and others.dtype == bool, "means")
            must(others.shape == (size,) and int(others.sum()) == m - 1, "means")
        case Gapped():
            _check_gapped(basis)
        case Spiked():
            _check_parts(basis.basis_)
            must(are_numbers(basis.spikes_, m - basis.basis_.n_functions_), "functions")
        case BSpline():
            must(is_whole(basis.degree_) and basis.degree_ < m, "functions")
            must(are_numbers(basis.coefficients_, m, m), "functions")
        case Fourier():
            must(is_number(basis.boundary, 1.0) and are_numbers(basis.weights_, m), "functions")
        case Polynomial():
            must(is_number(basis.offset), "functions")


def _check_gapped(basis: Gapped) -> None:
    must(isinstance(basis.saw_missing_, bool), "gaps")
    must(basis.indicator_ in (None, "first", "last"), "gaps")
    if basis.basis_ is None:
        return
    _check_parts(basis.basis_)
    must(is_number(basis.typical_) and are_numbers(basis.values_, None), "gaps")
    must(len(basis.values_) > 0, "gaps")
    if not basis.saw_missing_ or isinstance(basis.basis_, Categorical):
        must(are_numbers(basis.average_phi_, basis.n_functions_), "gaps")
        must(are_numbers(basis.average_psi_, basis.n_products_), "gaps")
