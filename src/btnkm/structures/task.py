"""What is to be fitted: the target, the coded table and its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..core.likelihoods import Likelihood
from ..execution.local import LocalRows

Array = np.ndarray


class Target(NamedTuple):
    """The target as the engine sees it."""

    # from targets as given and weights above 0 to those of the engine
    encode: Callable[[Array, Array], tuple[Array, Array]]
    likelihood: Likelihood  # as the warm phase has it
    scale: float  # units of y per unit of the engine
    attributes: dict[str, Any]  # to set on the estimator once the fit has succeeded
    n_outputs: int | None = None  # values of f in each row, None for one
    signs: bool = False  # whether numbers stand for two classes, and their noise for nothing
    tries_heavy_tails: bool = False  # whether rows held out may choose noise with heavy tails
    name: str | None = None


class Values(NamedTuple):
    """Coordinates of the values of each column, and how much each counts."""

    codes: list[Array]
    weights: list[Array]


class Task(NamedTuple):
    """What is to be fitted, whatever the structure."""

    target: Target
    columns: list[Any]  # encoded
    values: Values
    sample: LocalRows  # some of the rows, or all
    rows: Any  # all of them, wherever they are
    n: int  # rows, a row of weight k counted k times
    seeds: list[int]
    keeps_sums: bool = False  # whether sums over the rows are kept for partial_fit
