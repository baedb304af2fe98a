"""Whether the parts of a model that was read from a file belong together.

A file that is as it was written may still have been written by anybody. What is asked here: that
every part has the type and shape that the others need of it, that numbers are finite where they
must be, and that indices lead somewhere. A model that passes can predict and learn on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier

from .archive import Unreadable
from .arrangement import Arrangement
from .bases import Basis, BSpline, Categorical, Chebyshev, Fourier, Gapped, Polynomial, Spiked
from .bases.anchored import Anchored
from .bases.levels import Levels
from .columns import Column
from .core.cavi import Data
from .core.cp import CP
from .core.gamma import Gamma
from .core.levels import LevelFactor, LevelMode
from .core.likelihoods import Bernoulli, Gaussian, NegativeBinomial, StudentT
from .core.past import Past, Said
from .core.softmax import Softmax
from .core.state import Factor, Mode, State
from .core.tt import TT
from .streaming import Window
from .survey import KINDS, Batch

Array = np.ndarray
# coordinates at which functions are looked at: ends, middle, a gap; and levels, one never seen
_SOME = np.array([-1.0, -0.6, 0.0, 0.3, 1.0, np.nan])


def check_model(model: Any) -> None:
    """Raise ``Unreadable`` unless a model is sound."""
    n = model.n_features_in_
    _must(_is_whole(n) and isinstance(model.columns_, list) and len(model.columns_) == n, "columns")
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        _must(isinstance(names, np.ndarray) and names.shape == (n,), "names of columns")
        _must(all(isinstance(name, str) for name in names.tolist()), "names of columns")
    for column in model.columns_:
        _check_column(column)
    _must(names is None or names.tolist() == [c.name for c in model.columns_], "names of columns")
    active = model._active
    _must(isinstance(active, list) and _are_places(active, n) and len(active) > 0, "columns")
    _must(
        all(isinstance(part, tuple) for part in (model.posterior_, model._arrangements))
        and len(model.posterior_) == len(model._arrangements) > 0,
        "starts",
    )
    n_outputs = _check_target(model)
    for one, state in zip(model._arrangements, model.posterior_, strict=True):
        _check_arrangement(one, model.columns_, active)
        _check_state(state, one, n_outputs)
        _must(type(state.likelihood) is type(model.likelihood_), "likelihoods")
        _check_likelihood(state.likelihood, n_outputs)
    _check_likelihood(model.likelihood_, n_outputs)
    _check_told(model, n)
    _must(isinstance(model._pasts, list), "past rows")
    _must(len(model._pasts) in (0, len(model.posterior_)), "past rows")
    # of more rows than are kept there is none
    for past, state, one in zip(model._pasts, model.posterior_, model._arrangements, strict=False):
        _check_past(past, state, one)
    for averages, state in zip(getattr(model, "_averages", ()), model.posterior_, strict=False):
        _check_averages(averages, state)
    if getattr(model, "_window", None) is not None:
        _check_window(model._window, n)


def _must(condition: Any, what: str) -> None:
    if not condition:
        raise Unreadable(f"one with {what} that do not fit together")


def _is_whole(value: Any, low: int = 0) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and value >= low


def _is_number(value: Any, low: float = -np.inf, high: float = np.inf) -> bool:
    """Tell a finite number between two others."""
    real = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    return real and bool(np.isfinite(value)) and low < value < high


def _is_float(value: Any) -> bool:
    """Tell a number that may be NaN or infinite."""
    return isinstance(value, float | int | np.floating) and not isinstance(value, bool)


def _are_places(listed: Any, n: int) -> bool:
    """Tell different positions among n."""
    return all(_is_whole(j) and j < n for j in listed) and len(set(listed)) == len(listed)


def _are_numbers(array: Any, *shape: int | None, low: float = -np.inf) -> bool:
    """Tell an array of finite numbers >= low; None stands for any length."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim != len(shape):
        return False
    same = all(size in (None, own) for size, own in zip(shape, array.shape, strict=True))
    return same and bool(np.all(np.isfinite(array)) and np.all(array >= low))


def _are_gammas(gamma: Any, size: int | None) -> bool:
    """Tell so many Gamma distributions, which may share a shape; None stands for one."""
    if not isinstance(gamma, Gamma):
        return False
    for part in (gamma.shape, gamma.rate):
        lone = _is_number(part, 0.0) or (np.ndim(part) == 0 and _are_numbers(part) and part > 0)
        many = size is not None and _are_numbers(part, size) and bool(np.all(part > 0))
        if not many and not (lone and (size is None or part is gamma.shape)):
            return False
    return True


def _check_column(column: Any) -> None:
    _must(isinstance(column, Column) and column.kind in KINDS, "columns")
    knots, positions, basis = column.knots, column.positions, column.basis
    _must(_are_numbers(knots, None) and _are_numbers(positions, len(knots)), "columns")
    _must(np.all(np.diff(knots) > 0) and np.all(np.abs(positions) <= 1.0), "columns")
    _must(isinstance(basis, Gapped | Levels), "columns")
    _check_basis(basis)
    inner = None if isinstance(basis, Levels) else basis.basis_
    if column.levels is None:
        _must(not isinstance(basis, Levels) and not isinstance(inner, Categorical), "columns")
        _must(inner is None or len(knots) > 0, "columns")
        return
    _must(isinstance(column.levels, dict) and len(knots) == 0, "levels")
    count = len(basis.shares_) if isinstance(basis, Levels) else 0
    if inner is not None:
        _must(isinstance(inner, Categorical), "levels")
        count = inner.n_functions_
    for level, code in column.levels.items():
        _must(isinstance(level, str) and _is_whole(code) and code < count, "levels")


def _check_basis(basis: Any) -> None:
    """Look at what a basis is made of, then at its functions."""
    if isinstance(basis, Levels):
        _must(_are_numbers(basis.shares_, None, low=0.0), "levels")
        count = len(basis.shares_)
        _must(abs(float(basis.shares_.sum()) - 1.0) < 1e-6, "levels")
        _must(basis.missing_ is None or _are_places([basis.missing_], count), "levels")
        _must(basis.n_functions_ == basis.n_products_ == count + 1, "levels")
        return
    _check_parts(basis)
    inner = basis.basis if isinstance(basis, Anchored) else basis
    kind = inner.basis_ if isinstance(inner, Gapped) else inner
    some = _SOME
    if isinstance(kind, Categorical):
        some = np.array([-1.0, 0.0, kind.n_functions_ - 1.0, np.nan])
    some = some if isinstance(inner, Gapped) else some[:-1]
    with np.errstate(all="ignore"):
        phi, psi = basis.features(some)
    _must(_are_numbers(phi, len(some), basis.n_functions_), "functions")
    _must(_are_numbers(psi, len(some), basis.n_products_), "functions")


def _check_parts(basis: Any) -> None:
    """Look at what a basis is made of; nothing is evaluated before its size is known."""
    _must(isinstance(basis, Basis) and isinstance(basis.degrees_, np.ndarray), "functions")
    m, k = basis.n_functions_, basis.n_products_
    _must(_is_whole(m, 1) and _is_whole(k, 1) and k <= m * m + 3 * m, "functions")
    _must(
        _are_numbers(basis.degrees_, m, low=0.0) and _are_numbers(basis.constant_, m), "functions"
    )
    table = basis.table_
    _must(isinstance(table, sp.csr_array) and table.shape == (m * m, k), "functions")
    _must(_are_numbers(table.data, None), "functions")
    match basis:
        case Anchored():
            _must(isinstance(basis.basis, Gapped), "functions")
            _check_parts(basis.basis)
            size = basis.basis.n_functions_
            _must(_are_numbers(basis.means_, size) and _are_numbers(basis.frame_, size, m), "means")
            others = basis.others_
            _must(isinstance(others, np.ndarray) and others.dtype == bool, "means")
            _must(others.shape == (size,) and int(others.sum()) == m - 1, "means")
        case Gapped():
            _check_gapped(basis)
        case Spiked():
            _check_parts(basis.basis_)
            _must(_are_numbers(basis.spikes_, m - basis.basis_.n_functions_), "functions")
        case BSpline():
            _must(_is_whole(basis.degree_) and basis.degree_ < m, "functions")
            _must(_are_numbers(basis.coefficients_, m, m), "functions")
        case Fourier():
            _must(_is_number(basis.boundary, 1.0) and _are_numbers(basis.weights_, m), "functions")
        case Polynomial():
            _must(_is_number(basis.offset), "functions")


def _check_gapped(basis: Gapped) -> None:
    _must(isinstance(basis.saw_missing_, bool), "gaps")
    _must(basis.indicator_ in (None, "first", "last"), "gaps")
    if basis.basis_ is None:
        return
    _check_parts(basis.basis_)
    _must(_is_number(basis.typical_) and _are_numbers(basis.values_, None), "gaps")
    _must(len(basis.values_) > 0, "gaps")
    if not basis.saw_missing_ or isinstance(basis.basis_, Categorical):
        _must(_are_numbers(basis.average_phi_, basis.n_functions_), "gaps")
        _must(_are_numbers(basis.average_psi_, basis.n_products_), "gaps")


def _check_arrangement(one: Any, columns: list[Column], active: list[int]) -> None:
    _must(isinstance(one, Arrangement) and isinstance(one.inputs, list), "modes")
    _must(all(isinstance(flag, bool) for flag in (one.full, one.anchored)), "modes")
    _must(_are_places(one.inputs, len(columns)) and set(one.inputs) == set(active), "modes")
    _must(isinstance(one.bases, list) and one.first_input in (0, 1), "modes")
    if one.first_input:
        first = one.bases[0]
        _must(isinstance(first, Chebyshev) and first.n_functions_ == 1, "modes")
        _check_basis(first)
    for j, basis in zip(one.inputs, one.bases[one.first_input :], strict=True):
        own = columns[j].basis
        if basis is not own:
            _check_basis(basis)
        inner = basis.basis if isinstance(basis, Anchored) else basis
        _must(type(inner) is type(own) and inner.n_functions_ == own.n_functions_, "modes")


def _check_target(model: Any) -> int | None:
    """Look at what is known of y; return how many outputs f has, None for one."""
    _must(_is_number(model._y_scale, 0.0), "targets")
    likelihood = model.likelihood_
    if not is_classifier(model):
        _must(_is_number(model._y_shift) and not likelihood.of_labels, "targets")
        return None
    classes, count = model.classes_, np.size(model.classes_)
    _must(isinstance(classes, np.ndarray) and classes.ndim == 1 and count >= 2, "classes")
    _must(len(set(classes.tolist())) == count and np.all(np.sort(classes) == classes), "classes")
    _must(_are_numbers(model._log_weights, count), "classes")
    signs = model._encode.args[1:]
    if isinstance(likelihood, Gaussian):
        shift, scale, of_class = signs
        _must(count == 2 and _is_number(shift) and _is_number(scale, 0.0), "classes")
        _must(_is_number(model._threshold) and _are_numbers(of_class, 2, low=0.0), "classes")
        return None
    _must(not signs and isinstance(likelihood, Bernoulli if count == 2 else Softmax), "classes")
    return None if count == 2 else count


def _check_likelihood(likelihood: Any, n_outputs: int | None) -> None:
    match likelihood:
        case Gaussian(noise=noise, error=error):
            _must(_are_gammas(noise, None) and _is_float(error), "likelihoods")
        case StudentT(dof=dof, noise=noise, sums=sums, sums_dof=sums_dof):
            _must(_are_gammas(noise, None) and _is_number(dof, 0.0), "likelihoods")
            _must(isinstance(likelihood._learns, bool) and _is_float(sums_dof), "likelihoods")
            _must(isinstance(sums, tuple) and len(sums) == 4, "likelihoods")
            _must(all(_is_float(part) for part in sums), "likelihoods")
        case Bernoulli(offset=offset, value=value):
            _must(_is_number(offset) and _is_float(value), "likelihoods")
        case NegativeBinomial(size=size, offset=offset, value=value, limits=limits):
            _must(_is_number(size, 0.0) and _is_number(offset), "likelihoods")
            _must(_is_float(value) and isinstance(likelihood._learns, bool), "likelihoods")
            _must(isinstance(limits, tuple) and len(limits) == 2, "likelihoods")
            _must(all(_is_float(end) and end >= 0 for end in limits), "likelihoods")
        case Softmax(offsets=offsets, value=value):
            _must(isinstance(offsets, tuple) and len(offsets) == n_outputs, "likelihoods")
            _must(all(_is_number(o) for o in offsets) and _is_float(value), "likelihoods")
        case _:
            _must(False, "likelihoods")


def _check_state(state: Any, one: Arrangement, n_outputs: int | None) -> None:
    _must(isinstance(state, State), "posteriors")
    parts = (state.modes, state.factors, state.basis)
    count = len(one.bases) + (n_outputs is not None)
    _must(all(isinstance(part, tuple) and len(part) == count for part in parts), "posteriors")
    _must(state.output == (None if n_outputs is None else count - 1), "posteriors")
    _must(type(state.output) in (int, type(None)), "posteriors")
    for basis, mode in zip(one.bases, state.modes, strict=False):
        _check_mode(mode, basis)
    if n_outputs is not None:
        last = state.modes[-1]
        _must(isinstance(last, LevelMode) and last.shares is None, "posteriors")
        _must(not last.anchored and len(last.keep) == n_outputs, "posteriors")
        _check_level_mode(last)
    for mode, factor, precisions in zip(*parts, strict=True):
        _check_factor(factor, mode)
        _must(_are_gammas(precisions, len(mode.keep)), "posteriors")
    _must(isinstance(state.network, TT if one.full else CP), "posteriors")
    _check_ranks(state)
    if n_outputs is None or np.ndim(state.information) == 0:
        _must(np.ndim(state.information) == 0, "posteriors")
        _must(_is_float(state.information) or _are_numbers(state.information), "posteriors")
        _must(state.information > 0, "posteriors")
    else:
        _must(_are_numbers(state.information, n_outputs), "posteriors")
        _must(np.all(state.information > 0), "posteriors")


def _check_mode(mode: Any, basis: Any) -> None:
    if isinstance(basis, Levels):
        _must(isinstance(mode, LevelMode) and mode.anchored, "posteriors")
        _must(_are_numbers(mode.shares, len(basis.shares_), low=0.0), "posteriors")
        _check_level_mode(mode)
        return
    _must(isinstance(mode, Mode) and mode.anchored is isinstance(basis, Anchored), "posteriors")
    keep = mode.keep
    _must(isinstance(keep, np.ndarray) and keep.dtype == np.int64 and keep.ndim == 1, "posteriors")
    _must(len(keep) > 0 and np.all(np.diff(keep) > 0), "posteriors")
    _must(keep[0] >= int(mode.anchored) and keep[-1] < basis.n_functions_, "posteriors")
    _must(_are_numbers(mode.rate_scale, len(keep), low=0.0), "posteriors")
    _must(_are_numbers(mode.constant, len(keep)), "posteriors")
    # the same object: they are read from one place
    _must(mode.full_table is basis.table_, "posteriors")


def _check_level_mode(mode: LevelMode) -> None:
    count = len(mode.keep) if mode.shares is None else len(mode.shares)
    _must(isinstance(mode.anchored, bool), "posteriors")
    _must(isinstance(mode.keep, np.ndarray) and mode.keep.dtype == np.int64, "posteriors")
    _must(np.array_equal(mode.keep, np.arange(count)), "posteriors")
    _must(_are_numbers(mode.rate_scale, count, low=0.0), "posteriors")


def _check_factor(factor: Any, mode: Any) -> None:
    m = len(mode.keep)
    many = isinstance(mode, LevelMode)
    _must(isinstance(factor, LevelFactor if many else Factor), "posteriors")
    _must(_are_numbers(factor.mean, m, None) and _is_float(factor.log_det), "posteriors")
    c = factor.mean.shape[1]
    _must(_are_numbers(factor.cov, *((m, c, c) if many else (c, m, c, m))), "posteriors")
    blocks = None if many else factor.precision_blocks
    if blocks is not None:
        groups = factor.layout.groups
        _must(isinstance(blocks, tuple) and len(blocks) == len(groups), "posteriors")
        for block, group in zip(blocks, groups, strict=True):
            size = group.shape[1] * m
            _must(_are_numbers(block, len(group), size, size), "posteriors")


def _check_ranks(state: State) -> None:
    """Look at whether the columns of the modes make a network, and at their precisions."""
    layouts = [factor.layout for factor in state.factors]
    _must(isinstance(state.rank, tuple), "posteriors")
    if isinstance(state.network, CP):
        sizes = [layout.n_columns for layout in layouts]
        _must(all(layout.other is None for layout in layouts), "posteriors")
        _must(len(set(sizes)) == 1 and isinstance(state.network.own, bool), "posteriors")
        bonds = sizes if state.network.own else sizes[:1]
    else:
        _must(all(layout.other is not None for layout in layouts), "posteriors")
        shapes = [layout.shape for layout in layouts]
        _must(shapes[0][0] == shapes[-1][1] == 1, "posteriors")
        _must(all(a[1] == b[0] for a, b in pairwise(shapes)), "posteriors")
        bonds = [right for _, right in shapes[:-1]]
    _must(len(state.rank) == len(bonds), "posteriors")
    _must(all(_are_gammas(g, r) for g, r in zip(state.rank, bonds, strict=True)), "posteriors")


def _check_told(model: Any, n: int) -> None:
    """Look at what is only told of a fit."""
    _must(_are_numbers(model.feature_relevance_, n), "results")
    _must(_are_numbers(model.feature_relevance_std_, n), "results")
    _must(isinstance(model.n_basis_, np.ndarray) and model.n_basis_.shape == (n,), "results")
    _must(isinstance(model.ranks_, np.ndarray), "results")
    _must(len(model.ranks_) == len(model.posterior_), "results")
    _must(isinstance(model.lower_bounds_, np.ndarray) and model.lower_bounds_.ndim == 1, "results")
    _must(_is_float(model.lower_bound_) and _is_whole(model.n_iter_), "results")
    _must(isinstance(model.converged_, bool | np.bool_), "results")
    _must(isinstance(model.stop_reason_, str) and isinstance(model.history_, list), "results")
    _must(all(isinstance(entry, dict) for entry in model.history_), "results")
    begun = model._begun_with
    _must(isinstance(begun, dict) and set(begun) == set(model._lasting), "results")
    _must(all(isinstance(text, str) for text in begun.values()), "results")


def _check_past(past: Any, state: State, one: Arrangement) -> None:
    _must(isinstance(past, Past) and isinstance(past.data, Data), "past rows")
    _must(_is_number(past.data.n, 0.0) and _is_number(past.data.square), "past rows")
    _must(_is_float(past.data.rounding) and isinstance(past.asked, tuple), "past rows")
    for part in (*past.asked, past.information):
        _must(_is_number(part) or _are_numbers(part) or _are_numbers(part, None), "past rows")
    _must(isinstance(past.modes, tuple) and isinstance(past.features, tuple), "past rows")
    _must(len(past.modes) == len(state.modes), "past rows")
    _must(len(past.features) == len(one.bases), "past rows")
    for said, mode, factor in zip(past.modes, state.modes, state.factors, strict=True):
        layout = factor.layout
        _must(isinstance(said, Said), "past rows")
        _must(_are_numbers(said.second, mode.n_psi, len(layout.multiplicity)), "past rows")
        _must(_are_numbers(said.linear, mode.n_phi, layout.n_columns), "past rows")
    for sums, basis in zip(past.features, one.bases, strict=True):
        _must(isinstance(sums, tuple) and len(sums) == 2, "past rows")
        _must(_are_numbers(sums[0], basis.n_functions_), "past rows")
        _must(_are_numbers(sums[1], basis.n_products_), "past rows")


def _check_averages(averages: Any, state: State) -> None:
    """Look at the averages of phi and phi phi^T over the training rows, of every mode."""
    _must(isinstance(averages, Sequence) and len(averages) == len(state.modes), "averages")
    for pair, mode in zip(averages, state.modes, strict=True):
        _must(isinstance(pair, Sequence) and len(pair) == 2, "averages")
        phi, gram = pair
        _must(_are_numbers(phi, None) and len(phi) >= int(mode.present[-1]) + 1, "averages")
        data = gram.data if isinstance(gram, sp.csr_array) else gram
        _must(isinstance(data, np.ndarray) and np.all(np.isfinite(data)), "averages")
        _must(gram.ndim == 2 and gram.shape[0] == gram.shape[1] <= len(phi), "averages")


def _check_window(window: Any, n: int) -> None:
    """Look at the rows of a stream that are kept."""
    _must(isinstance(window, Window) and isinstance(window.rows, Batch), "kept rows")
    rows, count = window.rows, len(window.decay)
    _must(isinstance(rows.columns, list) and len(rows.columns) == n, "kept rows")
    for column in (*rows.columns, rows.y):
        _must(isinstance(column, np.ndarray) and column.shape == (count,), "kept rows")
    for column in rows.columns:
        _must(column.dtype.kind in KINDS and not np.any(_infinite(column)), "kept rows")
        text = column.dtype.kind != "O" or all(v is None or isinstance(v, str) for v in column)
        _must(text, "kept rows")
    _must(_are_numbers(rows.weight, count) and np.all(rows.weight > 0), "kept rows")
    _must(_are_numbers(window.decay, count, low=0.0) and _is_number(window.total), "kept rows")
    _must(_is_whole(window.fitted) and _is_whole(window.since), "kept rows")


def _infinite(column: Array) -> Any:
    return np.isinf(column) if column.dtype.kind == "f" else False
