"""The engine's view of fitted bases."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bases.anchored import Anchored
from ..bases.categorical import Categorical, ManyCategories
from ..core.categories import CategoryMode
from ..core.state import Mode, State

Array = np.ndarray


def size_of(basis: Any) -> tuple[int, int]:
    """Return M and K of a basis, for an estimate of its memory."""
    if isinstance(basis, ManyCategories):
        return categories_size(len(basis.shares_))
    return basis.n_functions_, basis.n_products_


def n_features(basis: Any) -> int:
    """Return how many numbers the features of a row take."""
    return sum(size_of(basis)) if isinstance(basis, ManyCategories) else int(basis.n_numbers)


def categories_size(count: int) -> tuple[int, int]:
    """Return an M and K with the memory of ``count`` categories: L R^2 numbers, and sparse rows."""
    return int(np.ceil(np.sqrt(count))), 4


def make_mode(basis: Any, smoothness: float) -> Any:
    """Return the mode of a fitted basis."""
    if isinstance(basis, ManyCategories):
        categories = np.arange(len(basis.shares_))
        return CategoryMode(categories, np.ones(len(categories)), basis.shares_)
    anchored = isinstance(basis, Anchored)
    keep = np.arange(int(anchored), basis.n_functions_)
    return Mode(
        keep=keep,
        full_table=basis.table_,
        rate_scale=(1.0 + np.asarray(basis.degrees_, dtype=float)[keep]) ** (-2.0 * smoothness),
        constant=np.asarray(basis.constant_, dtype=float)[keep],
        anchored=anchored,
    )


def output_mode(n_outputs: int) -> CategoryMode:
    """Return the mode of the outputs: one indicator function for each."""
    return CategoryMode(np.arange(n_outputs), np.ones(n_outputs), None, anchored=False)


def with_functions_of(mode: Any, old: Any, new: Any, smoothness: float) -> Any:
    """Return the mode of a basis with more categories, without the functions that were dropped."""
    full = make_mode(new, smoothness)
    if isinstance(new, ManyCategories):
        return full
    keep = np.append(mode.keep, np.arange(old.n_functions_, new.n_functions_))
    return full.take(np.searchsorted(full.keep, keep))


def of_a_new_category(state: State, d: int, basis: Any) -> Array:
    """Return the weights that a new category of mode d begins with: (C,).

    They are the average over all categories, or zero where a missing value is to make no
    difference.
    """
    mean = state.factors[d].mean
    if state.modes[d].anchored or not isinstance(basis.basis_, Categorical):
        return np.zeros(mean.shape[1])
    return np.asarray(basis.average_phi_[state.modes[d].keep] @ mean)
