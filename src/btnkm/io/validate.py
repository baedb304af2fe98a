"""Whether the parts of a model that was read from a file belong together.

A file that is as it was written may still have been written by anybody. What is asked here: that
every part has the type and shape that the others need of it, that numbers are finite where they
must be, and that indices lead somewhere. A model that passes can predict, learn on and be
explained.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier

from ..bases import Categorical, Chebyshev
from ..bases.anchored import Anchored
from ..bases.levels import Levels
from ..core.batch_stats import Past, Said
from ..core.cavi import Data
from ..core.cp import CP
from ..core.levels import LevelFactor, LevelMode
from ..core.likelihoods import (
    BUILT_IN,
    Bernoulli,
    Gaussian,
    Softmax,
    StudentT,
)
from ..core.state import Factor, Mode, State
from ..core.tt import TT
from ..data.column_stats import KINDS, Batch
from ..data.columns import Column
from ..streaming import Window
from ..structures.mode_map import Arrangement
from .validate_full import check_full, check_full_arrangement
from .validate_parts import (
    are_gammas,
    are_numbers,
    are_places,
    check_basis,
    check_column,
    is_float,
    is_number,
    is_rank,
    is_whole,
    must,
)
from .validate_sums import (
    check_effect_averages,
    check_effects,
    check_sums,
    check_sums_said,
    check_weights,
)

Array = np.ndarray
#: What is read of each sweep in ``history_``, and of each structure that was compared.
_SWEEP: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("restart", "sweep", "rows"), is_whole),
    **dict.fromkeys(("elbo", "noise_std", "seconds"), is_float),
    "phase": lambda value: isinstance(value, str),
    "rank": is_rank,
}
_STRUCTURE: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("log_density", "seconds", "weight"), is_float),
    "name": lambda value: isinstance(value, str),
    "restarts": lambda value: isinstance(value, list) and all(map(is_whole, value)),
}


def check_model(model: Any) -> None:
    """Raise ``Unreadable``, or what ``fit`` says of a parameter, unless a model is sound."""
    model._check_parameters()
    n = model.n_features_in_
    must(is_whole(n) and isinstance(model.columns_, list) and len(model.columns_) == n, "columns")
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        must(isinstance(names, np.ndarray) and names.shape == (n,), "names of columns")
        must(all(isinstance(name, str) for name in names.tolist()), "names of columns")
    for column in model.columns_:
        check_column(column)
    must(names is None or names.tolist() == [c.name for c in model.columns_], "names of columns")
    active = model._active
    must(isinstance(active, list) and are_places(active, n) and len(active) > 0, "columns")
    must(
        all(isinstance(part, tuple) for part in (model.posterior_, model._arrangements))
        and len(model.posterior_) == len(model._arrangements) > 0,
        "restarts",
    )
    check_weights(model.weights_, len(model.posterior_))
    n_outputs = _check_target(model)
    for one, state in zip(model._arrangements, model.posterior_, strict=True):
        _check_arrangement(one, model.columns_, active)
        if one.kernel:
            check_full(state, one, model.columns_, n_outputs)
        else:
            _check_state(state, one, n_outputs)
        _check_alike(state.likelihood, model.likelihood_)
        _check_likelihood(state.likelihood, n_outputs)
    _check_likelihood(model.likelihood_, n_outputs)
    _check_told(model, n)
    must(isinstance(model._pasts, list), "past rows")
    # with a full tensor there is no going on
    goes_on = not any(one.kernel for one in model._arrangements)
    must(len(model._pasts) in (0, goes_on * len(model.posterior_)), "past rows")
    # of more rows than are kept there is none
    for past, state, one in zip(model._pasts, model.posterior_, model._arrangements, strict=False):
        _check_past(past, state, one, n_outputs)
    both = model._averages, model._effect_averages
    must(all(isinstance(part, tuple) for part in both), "averages")
    for state, one, averages, effects in zip(
        model.posterior_, model._arrangements, *both, strict=True
    ):
        if one.kernel:  # explanations ask the rows themselves
            must(isinstance(averages, list) and not averages, "averages")
            must(isinstance(effects, list | tuple) and not effects, "averages")
            continue
        _check_averages(averages, state)
        check_effect_averages(effects, one, averages)
    if getattr(model, "_window", None) is not None:
        _check_window(model._window, n)
        y = model._window.rows.y
        known = set(getattr(model, "classes_", np.empty(0)).tolist())
        must(set(y.tolist()) <= known if known else are_numbers(y, None), "kept rows")


def _check_arrangement(one: Any, columns: list[Column], active: list[int]) -> None:
    must(isinstance(one, Arrangement) and isinstance(one.inputs, list), "modes")
    flags = one.full, one.anchored, one.sums_first, one.splines, one.kernel, one.heavy
    must(all(isinstance(flag, bool) for flag in flags), "modes")
    must(are_places(one.inputs, len(columns)) and set(one.inputs) <= set(active), "modes")
    must(isinstance(one.bases, list) and one.first_input in (0, 1), "modes")
    if one.kernel:
        check_full_arrangement(one, columns)
        return
    check_effects(one, columns, active)
    must(one.inputs or (one.effects and not one.bases and not one.full), "modes")
    if one.first_input:
        first = one.bases[0]
        must(isinstance(first, Chebyshev) and first.n_functions_ == 1, "modes")
        check_basis(first)
    for j, basis in zip(one.inputs, one.bases[one.first_input :], strict=True):
        own = columns[j].basis
        if basis is not own:
            check_basis(basis)
        inner = basis.basis if isinstance(basis, Anchored) else basis
        must(type(inner) is type(own), "modes")
        if columns[j].levels is None:  # a missing number may have a function in one of them alone
            must(not isinstance(getattr(inner, "basis_", None), Categorical), "modes")
        else:
            must(inner.n_functions_ == own.n_functions_, "modes")


def _check_target(model: Any) -> int | None:
    """Look at what is known of y; return how many outputs f has, None for one."""
    must(is_number(model._y_scale, 0.0), "targets")
    likelihood = model.likelihood_
    if not is_classifier(model):
        must(is_number(model._y_shift) and not likelihood.of_labels, "targets")
        return None
    classes, count = model.classes_, np.size(model.classes_)
    must(isinstance(classes, np.ndarray) and classes.ndim == 1 and count >= 2, "classes")
    must(len(set(classes.tolist())) == count and np.all(np.sort(classes) == classes), "classes")
    must(are_numbers(model._log_weights, count), "classes")
    signs = model._encode.args[1:]
    if isinstance(likelihood, Gaussian):
        shift, scale, of_class = signs
        must(count == 2 and is_number(shift) and is_number(scale, 0.0), "classes")
        must(is_number(model._threshold) and are_numbers(of_class, 2, low=0.0), "classes")
        return None
    must(not signs and isinstance(likelihood, Bernoulli if count == 2 else Softmax), "classes")
    return None if count == 2 else count


def _check_alike(likelihood: Any, other: Any) -> None:
    """Raise ``Unreadable`` unless restarts may have these likelihoods side by side."""
    numbers = {Gaussian, StudentT}
    must(
        type(likelihood) is type(other) or {type(likelihood), type(other)} == numbers, "likelihoods"
    )


def _check_likelihood(likelihood: Any, n_outputs: int | None) -> None:
    """Raise ``Unreadable`` unless every field is of the kind that its class declares."""
    must(likelihood.__class__ in BUILT_IN, "likelihoods")
    for name, kind in likelihood.file_fields.items():
        value = getattr(likelihood, name)
        match kind:
            case "gamma":
                must(are_gammas(value, None), "likelihoods")
            case "number" | "positive":
                must(is_number(value, *([0.0] if kind == "positive" else [])), "likelihoods")
            case "float":
                must(is_float(value), "likelihoods")
            case "flag":
                must(isinstance(value, bool), "likelihoods")
            case "numbers":
                must(isinstance(value, tuple) and len(value) == n_outputs, "likelihoods")
                must(all(is_number(part) for part in value), "likelihoods")
            case _:
                must(isinstance(value, tuple), "likelihoods")
                must(len(value) == len(getattr(type(likelihood), name)), "likelihoods")
                must(all(is_float(part) for part in value), "likelihoods")
                must(kind == "floats" or min(value) >= 0, "likelihoods")


def _check_state(state: Any, one: Arrangement, n_outputs: int | None) -> None:
    must(isinstance(state, State), "posteriors")
    parts = (state.modes, state.factors, state.basis)
    many = n_outputs is not None and len(one.bases) > 0
    count = len(one.bases) + many
    must(all(isinstance(part, tuple) and len(part) == count for part in parts), "posteriors")
    must(state.output == (count - 1 if many else None), "posteriors")
    must(type(state.output) in (int, type(None)), "posteriors")
    for basis, mode in zip(one.bases, state.modes, strict=False):
        _check_mode(mode, basis)
    if many:
        last = state.modes[-1]
        must(isinstance(last, LevelMode) and last.shares is None, "posteriors")
        must(not last.anchored and len(last.keep) == n_outputs, "posteriors")
        _check_level_mode(last)
    for mode, factor, precisions in zip(*parts, strict=True):
        _check_factor(factor, mode)
        must(are_gammas(precisions, len(mode.keep)), "posteriors")
    must(isinstance(state.network, TT if one.full else CP), "posteriors")
    _check_ranks(state)
    check_sums(state.sums, one, n_outputs)
    if n_outputs is None or np.ndim(state.information) == 0:
        must(np.ndim(state.information) == 0, "posteriors")
        must(is_float(state.information) or are_numbers(state.information), "posteriors")
        must(state.information > 0, "posteriors")
    else:
        must(are_numbers(state.information, n_outputs), "posteriors")
        must(np.all(state.information > 0), "posteriors")


def _check_mode(mode: Any, basis: Any) -> None:
    if isinstance(basis, Levels):
        must(isinstance(mode, LevelMode) and mode.anchored, "posteriors")
        must(are_numbers(mode.shares, len(basis.shares_), low=0.0), "posteriors")
        _check_level_mode(mode)
        return
    must(isinstance(mode, Mode) and mode.anchored is isinstance(basis, Anchored), "posteriors")
    keep = mode.keep
    must(isinstance(keep, np.ndarray) and keep.dtype == np.int64 and keep.ndim == 1, "posteriors")
    must(len(keep) > 0 and np.all(np.diff(keep) > 0), "posteriors")
    must(keep[0] >= int(mode.anchored) and keep[-1] < basis.n_functions_, "posteriors")
    must(are_numbers(mode.rate_scale, len(keep), low=0.0), "posteriors")
    must(are_numbers(mode.constant, len(keep)), "posteriors")
    # the same object: they are read from one place
    must(mode.full_table is basis.table_, "posteriors")


def _check_level_mode(mode: LevelMode) -> None:
    count = len(mode.keep) if mode.shares is None else len(mode.shares)
    must(isinstance(mode.anchored, bool), "posteriors")
    must(isinstance(mode.keep, np.ndarray) and mode.keep.dtype == np.int64, "posteriors")
    must(np.array_equal(mode.keep, np.arange(count)), "posteriors")
    must(are_numbers(mode.rate_scale, count, low=0.0), "posteriors")


def _check_factor(factor: Any, mode: Any) -> None:
    m = len(mode.keep)
    many = isinstance(mode, LevelMode)
    must(isinstance(factor, LevelFactor if many else Factor), "posteriors")
    must(are_numbers(factor.mean, m, None) and is_float(factor.log_det), "posteriors")
    c = factor.mean.shape[1]
    must(are_numbers(factor.cov, *((m, c, c) if many else (c, m, c, m))), "posteriors")
    blocks = None if many else factor.precision_blocks
    if blocks is not None:
        groups = factor.layout.groups
        must(isinstance(blocks, tuple) and len(blocks) == len(groups), "posteriors")
        for block, group in zip(blocks, groups, strict=True):
            size = group.shape[1] * m
            must(are_numbers(block, len(group), size, size), "posteriors")


def _check_ranks(state: State) -> None:
    """Look at whether the columns of the modes make a network, and at their precisions."""
    layouts = [factor.layout for factor in state.factors]
    must(isinstance(state.rank, tuple), "posteriors")
    if not layouts:  # main effects alone
        must(not state.rank and isinstance(state.network.own, bool), "posteriors")
        return
    if isinstance(state.network, CP):
        sizes = [layout.n_columns for layout in layouts]
        must(all(layout.other is None for layout in layouts), "posteriors")
        must(len(set(sizes)) == 1 and isinstance(state.network.own, bool), "posteriors")
        bonds = sizes if state.network.own else sizes[:1]
    else:
        must(all(layout.other is not None for layout in layouts), "posteriors")
        shapes = [layout.shape for layout in layouts]
        must(shapes[0][0] == shapes[-1][1] == 1, "posteriors")
        must(all(a[1] == b[0] for a, b in pairwise(shapes)), "posteriors")
        bonds = [right for _, right in shapes[:-1]]
    must(len(state.rank) == len(bonds), "posteriors")
    must(all(are_gammas(g, r) for g, r in zip(state.rank, bonds, strict=True)), "posteriors")


def _check_told(model: Any, n: int) -> None:
    """Look at what is only told of a fit."""
    must(isinstance(model.n_basis_, np.ndarray) and model.n_basis_.shape == (n,), "results")
    must(np.issubdtype(model.n_basis_.dtype, np.integer), "results")
    must(isinstance(model.ranks_, np.ndarray) and is_rank(model.rank_), "results")
    must(np.issubdtype(model.ranks_.dtype, np.integer) or not model.ranks_.size, "results")
    must(len(model.ranks_) == len(model.posterior_), "results")
    if isinstance(model.rank_, tuple):  # of a train
        must(sorted(model.mode_order_.tolist()) == list(range(n)), "results")
        must(isinstance(model.cores_, list), "results")
    must(isinstance(model.lower_bounds_, np.ndarray) and model.lower_bounds_.ndim == 1, "results")
    must(model.lower_bounds_.dtype == float and model.lower_bounds_.size, "results")
    must(is_float(model.lower_bound_) and is_whole(model.n_iter_), "results")
    must(isinstance(model.converged_, bool | np.bool_), "results")
    must(isinstance(model.stop_reason_, str), "results")
    must(are_places([model.best_restart_], len(model.posterior_)), "results")
    must(isinstance(model.target_name_, str | None) and is_whole(model.n_samples_seen_), "results")
    must(is_classifier(model) or is_float(model.noise_std_), "results")
    must(_are_entries(model.history_, _SWEEP) and model.history_, "results")
    must(_are_entries(getattr(model, "structures_", []), _STRUCTURE), "results")
    begun = model._begun_with
    must(isinstance(begun, dict) and set(begun) == set(model._lasting), "results")
    must(all(isinstance(text, str) for text in begun.values()), "results")


def _are_entries(listed: Any, checks: dict[str, Callable[[Any], bool]]) -> bool:
    """Tell a list of dicts that have what is read of them."""
    return isinstance(listed, list) and all(
        isinstance(entry, dict) and all(is_one(entry[name]) for name, is_one in checks.items())
        for entry in listed
    )


def _check_past(past: Any, state: State, one: Arrangement, n_outputs: int | None) -> None:
    must(isinstance(past, Past) and isinstance(past.data, Data), "past rows")
    must(is_number(past.data.n, 0.0) and is_number(past.data.square), "past rows")
    must(is_float(past.data.rounding) and isinstance(past.asked, tuple), "past rows")
    for part in (*past.asked, past.information):
        must(is_number(part) or are_numbers(part) or are_numbers(part, None), "past rows")
    must(isinstance(past.modes, tuple) and isinstance(past.features, tuple), "past rows")
    must(len(past.modes) == len(state.modes), "past rows")
    must(len(past.features) == len(one.bases), "past rows")
    for said, mode, factor in zip(past.modes, state.modes, state.factors, strict=True):
        layout = factor.layout
        must(isinstance(said, Said), "past rows")
        must(are_numbers(said.second, mode.n_psi, len(layout.multiplicity)), "past rows")
        must(are_numbers(said.linear, mode.n_phi, layout.n_columns), "past rows")
    for sums, basis in zip(past.features, one.bases, strict=True):
        must(isinstance(sums, tuple) and len(sums) == 2, "past rows")
        must(are_numbers(sums[0], basis.n_functions_), "past rows")
        must(are_numbers(sums[1], basis.n_products_), "past rows")
    check_sums_said(past.sums, state.sums, one, n_outputs)


def _check_averages(averages: Any, state: State) -> None:
    """Look at the averages of phi and phi phi^T over the training rows, of every mode."""
    must(isinstance(averages, list) and len(averages) == len(state.modes), "averages")
    for pair, mode in zip(averages, state.modes, strict=True):
        must(isinstance(pair, tuple) and len(pair) == 2, "averages")
        phi, gram = pair
        if isinstance(mode, LevelMode) and mode.shares is not None:
            size = len(mode.keep)
            must(isinstance(gram, sp.csr_array) and gram.shape == (size, size), "averages")
            must(are_numbers(gram.data, None) and are_numbers(phi, size + 1), "averages")
            continue
        must(are_numbers(phi, None) and are_numbers(gram, len(phi), len(phi)), "averages")
        must(len(phi) > int(mode.present[-1]), "averages")


def _check_window(window: Any, n: int) -> None:
    """Look at the rows of a stream that are kept."""
    must(isinstance(window, Window) and isinstance(window.rows, Batch), "kept rows")
    rows, count = window.rows, len(window.decay)
    must(isinstance(rows.columns, list) and len(rows.columns) == n, "kept rows")
    for column in (*rows.columns, rows.y):
        must(isinstance(column, np.ndarray) and column.shape == (count,), "kept rows")
    for column in rows.columns:
        must(column.dtype.kind in KINDS and not np.any(_infinite(column)), "kept rows")
        text = column.dtype.kind != "O" or all(v is None or isinstance(v, str) for v in column)
        must(text, "kept rows")
    must(are_numbers(rows.weight, count) and np.all(rows.weight > 0), "kept rows")
    must(are_numbers(window.decay, count, low=0.0) and is_number(window.total), "kept rows")
    must(is_whole(window.fitted) and is_whole(window.since), "kept rows")


def _infinite(column: Array) -> Any:
    return np.isinf(column) if column.dtype.kind == "f" else False
