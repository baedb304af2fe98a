"""What the full tensor of a model that was read from a file must be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.coordinates import Coordinates
from ..core.evidence import Theta
from ..core.full import FullPosterior
from ..core.full_fit import learns_noise
from ..core.kernel import KNOWN, LINE, POSITION, Kernel
from ..data.columns import Column
from ..structures.full_tensor import parts_of
from ..structures.mode_map import Arrangement
from .archive import Unreadable
from .validate_parts import SOME, are_numbers, is_float, is_number, must

Array = np.ndarray
#: Rows of a full tensor that a file may hold: a small file must not ask for a matrix of any size.
MOST_FULL_ROWS = 20_000
_FARTHEST = 1e100  # coordinates whose squares are far from an overflow
_ERROR = 1e-9  # by which numbers may differ that were made from each other on another machine
_VARIANCES = ("line", "curve", "missing", "factor")
_LENGTHS = ("curve_length", "factor_length")
_FLAGS = ("categorical", "straight", "has_missing_", "varies_")
_ATTRIBUTES = {"knots", "positions", *_FLAGS, "line_", "center_", "scale_"}


def check_full_arrangement(one: Arrangement, columns: list[Column]) -> None:
    """Raise ``Unreadable`` unless the inputs of a full tensor fit their columns."""
    must(not (one.full or one.anchored or one.sums_first or one.splines), "modes")
    must(not one.effects and not one.effect_inputs, "modes")
    must(one.inputs and len(one.bases) == len(one.inputs), "modes")
    for j, basis in zip(one.inputs, one.bases, strict=True):
        _check_coordinates(basis, columns[j])


def _check_coordinates(basis: Any, column: Column) -> None:
    must(type(basis) is Coordinates and set(vars(basis)) == _ATTRIBUTES, "coordinates")
    must(all(isinstance(getattr(basis, name), bool) for name in _FLAGS), "coordinates")
    must(basis.categorical is (column.levels is not None), "coordinates")
    for own, of_column in ((basis.knots, column.knots), (basis.positions, column.positions)):
        must(_are_doubles(own, None) and np.array_equal(own, of_column), "coordinates")
    must(_are_doubles(basis.line_, len(basis.positions)), "coordinates")
    must(is_number(basis.center_) and is_number(basis.scale_, 0.0), "coordinates")
    if basis.varies_ and not basis.categorical:  # there is something to interpolate
        must(len(basis.positions) > 1, "coordinates")
    if not basis.categorical:
        with np.errstate(all="ignore"):
            phi = basis.phi(SOME)
        must(are_numbers(phi, len(SOME), 3), "coordinates")
        must(np.all(np.abs(phi) < _FARTHEST), "coordinates")


def check_full(state: Any, one: Arrangement, columns: list[Column], n_outputs: int | None) -> None:
    """Raise ``Unreadable`` unless the posterior of a full tensor fits its inputs.

    Nothing of the size of rows times rows is made here.
    """
    must(type(state) is FullPosterior, "posteriors")
    must(state.n_outputs == n_outputs, "posteriors")
    must(type(state.n_outputs) in (int, type(None)), "posteriors")
    must(_are_doubles(state.share, None), "posteriors")
    n, outputs = len(state.share), n_outputs or 1
    if not 0 < n <= MOST_FULL_ROWS:
        raise Unreadable(f"one with a full tensor of {n:,} rows, not 1 to {MOST_FULL_ROWS:,}")
    must(np.all(state.share > 0.0), "posteriors")
    must(abs(float(np.sum(state.share)) - 1.0) < _ERROR, "posteriors")
    must(_are_doubles(state.target, outputs, n), "posteriors")
    must(_are_doubles(state.noise, outputs, n) and np.all(state.noise > 0.0), "posteriors")
    must(isinstance(state.rows, tuple) and len(state.rows) == len(one.bases), "posteriors")
    for rows, j, basis in zip(state.rows, one.inputs, one.bases, strict=True):
        must(_are_doubles(rows, n, 3), "posteriors")
        _check_rows(rows, basis, columns[j])
    must(is_float(state.evidence), "posteriors")
    _check_kernel(state, one)


def _check_rows(rows: Array, basis: Coordinates, column: Column) -> None:
    """Look at whether coordinates of the training rows are such as their input can have."""
    line, position, known = rows[:, LINE], rows[:, POSITION], rows[:, KNOWN]
    must(np.all((known == 0.0) | (known == 1.0)), "posteriors")
    must(basis.has_missing_ or np.all(known == 1.0), "posteriors")
    must(np.all(line[known == 0.0] == 0.0), "posteriors")
    if basis.categorical:
        codes = np.array(list(column.levels_by_code), dtype=float)
        must(np.all(line == 0.0), "posteriors")
        must(np.all(np.isin(position[known == 1.0], codes)), "posteriors")
        must(np.all(position[known == 0.0] == 0.0), "posteriors")
        return
    steepest = float(np.max(np.abs(basis.line_), initial=0.0)) if basis.varies_ else 0.0
    farthest = (1.0 + abs(basis.center_)) / basis.scale_
    must(np.all(np.abs(line) <= (1.0 + _ERROR) * steepest), "posteriors")
    must(np.all(np.abs(position) <= (1.0 + _ERROR) * farthest), "posteriors")


def _check_kernel(state: FullPosterior, one: Arrangement) -> None:
    """Look at the hyperparameters, which the kernel has and, as logarithms, the posterior."""
    kernel, count = state.kernel, len(one.bases)
    must(type(kernel) is Kernel, "kernels")
    flags = kernel.categorical
    must(isinstance(flags, np.ndarray) and flags.dtype == bool, "kernels")
    must(flags.shape == (count,), "kernels")
    must(flags.tolist() == [basis.categorical for basis in one.bases], "kernels")
    must(is_number(kernel.constant, 0.0), "kernels")
    must(is_number(kernel.product) and kernel.product >= 0.0, "kernels")
    for name in (*_VARIANCES, *_LENGTHS, "rough"):
        must(_are_doubles(getattr(kernel, name), count, low=0.0), "kernels")
    must(all(np.all(getattr(kernel, name) > 0.0) for name in _LENGTHS), "kernels")
    must(np.all(kernel.rough <= 1.0), "kernels")
    layout = Theta(parts_of(one), learns_noise=learns_noise(state.likelihood))
    must(_are_doubles(state.theta, len(layout.begin())), "kernels")
    same = layout.kernel(state.theta)
    for name in ("constant", "product", *_VARIANCES, *_LENGTHS, "rough"):
        pair = getattr(kernel, name), getattr(same, name)
        must(np.allclose(*pair, rtol=_ERROR, atol=0.0), "kernels")


def _are_doubles(array: Any, *shape: int | None, low: float = -np.inf) -> bool:
    """Tell finite numbers of the type that kernels are computed in: a shorter one overflows."""
    return are_numbers(array, *shape, low=low) and array.dtype == np.float64
