"""What the sum over inputs and the full tensor see of one input: functions, and coordinates."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace, device

from ..core.arrays import interpolate, like
from .base import Array

MOST_CATEGORIES = 200  # with an indicator of their own, the most frequent ones
LINE, CURVE, STEPS, SPIKES = "line", "curve", "steps", "spikes"
CATEGORIES, MISSING = "categories", "missing"
_LEAST_SHARE = 1e-3  # of the mean weight of a row


class _WithoutProducts:
    """Functions of one input whose products nothing needs."""

    def phi(self, x: Array) -> Array:
        """Return the functions: (n,) -> (n, P)."""
        raise NotImplementedError

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return the functions, and no products: (n, P) and (n, 0)."""
        phi = self.phi(x)
        return phi, phi[:, :0]


class MainEffect(_WithoutProducts):
    """Functions of one input, which are summed over inputs and added to the tensor.

    A numeric column has a straight line of the raw value, Chebyshev polynomials of the warped one,
    steps where the fit needs them, and an indicator of each frequent single value. A categorical
    column has an indicator of each of its most frequent categories. Both have an indicator of
    missing values if the fit saw any. Every function has mean zero over the training rows, so that
    effects are deviations from the mean. A missing value that has no indicator, and a category
    never seen, have the mean effect.

    Parameters
    ----------
    n_curve : int
        Most polynomials of a numeric column.
    knots, positions : ndarray
        The warp of a numeric column (see ``columns.Column``).
    steps : ndarray
        Coordinates of the steps of a numeric column (see ``screening``).
    runs_on : bool
        Whether the straight line runs on beyond the training range. All other functions are held
        at the nearer end.
    spikes : ndarray
        Positions of the frequent single values of a numeric column.
    n_categories : int or None
        Of a categorical column; None for a numeric one.

    Attributes
    ----------
    parts_ : list of str
        The part that each function belongs to: "line", "curve", "steps", "spikes", "categories" or
        "missing". Every part has a precision of its own, and so has every step.
    degrees_ : ndarray of shape (P,)
        Degree of each polynomial, 1 for all other functions.
    center_ : ndarray of shape (P,)
        Means over the training rows.
    """

    def __init__(
        self,
        n_curve: int = 0,
        knots: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        spikes: np.ndarray | None = None,
        n_categories: int | None = None,
        steps: np.ndarray | None = None,
        runs_on: bool = False,
    ) -> None:
        self.n_curve = n_curve
        self.knots = np.empty(0) if knots is None else knots
        self.positions = np.empty(0) if positions is None else positions
        self.spikes = np.empty(0) if spikes is None else spikes
        self.n_categories = n_categories
        self.steps = np.empty(0) if steps is None else steps
        self.runs_on = runs_on

    @property
    def n_functions_(self) -> int:
        """The number of functions, P."""
        return len(self.parts_)

    def fit(self, x: np.ndarray, weight: np.ndarray) -> Self:
        """Choose the functions for coordinates x (n,) whose rows count ``weight`` (n,)."""
        missing = np.isnan(x)
        self.has_missing_ = bool(missing.any()) and not bool(missing.all())
        seen, count = x[~missing], weight[~missing]
        self.codes_ = np.empty(0)
        self.line_ = np.zeros(len(self.positions))
        self.degree_ = 0
        parts: list[str] = []
        if self.n_categories is not None:
            totals = np.bincount(seen[seen >= 0].astype(int), count[seen >= 0], self.n_categories)
            kept = np.sort(np.argsort(-totals, kind="stable")[:MOST_CATEGORIES])
            self.codes_ = kept[totals[kept] > 0].astype(float)
            if len(self.codes_) == 1:
                self.codes_ = np.empty(0)
            parts = [CATEGORIES] * len(self.codes_)
        elif len(self.positions) > 1:
            self.line_ = _standardised_line(self.knots, self.positions, seen, count)
            distinct = len(np.unique(seen))
            self.degree_ = int(min(self.n_curve, max(distinct - 2, 0)))
            parts = [LINE] + [CURVE] * self.degree_
            parts += [STEPS] * len(self.steps) + [SPIKES] * len(self.spikes)
        if self.has_missing_:
            parts.append(MISSING)
        self.parts_ = parts
        self.degrees_ = np.ones(len(parts))
        if self.degree_:
            self.degrees_[1 : 1 + self.degree_] = np.arange(1, self.degree_ + 1)
        self.center_ = np.zeros(len(parts))
        if parts:
            share = weight / weight.sum()
            known = len(parts) - self.has_missing_
            values = self._functions(np.where(missing, 0.0, x))
            inside = np.where(missing, 0.0, weight)
            self.center_[:known] = (inside / inside.sum()) @ values if known else 0.0
            if self.has_missing_:
                self.center_[known:] = share @ missing
        return self

    def _functions(self, x: Array) -> Array:
        """Return the functions of values that are not missing: (n,) -> (n, P), without centring."""
        xp = array_namespace(x)
        columns = []
        if self.n_categories is not None:
            codes = like(self.codes_, x)
            return xp.astype(x[:, None] == codes[None, :], x.dtype)
        if len(self.positions) > 1:
            held = xp.clip(x, -1.0, 1.0)
            columns.append(_line(x, held, self))
            before, now = xp.ones_like(held), held
            for _ in range(self.degree_):
                columns.append(now)
                before, now = now, 2.0 * held * now - before
            columns += [xp.astype(held > float(step), x.dtype) for step in self.steps]
            columns += [xp.astype(held == float(spike), x.dtype) for spike in self.spikes]
        if not columns:
            return xp.zeros((x.shape[0], 0), dtype=x.dtype, device=device(x))
        return xp.stack(columns, axis=1)

    def portable(self) -> dict[str, Any]:
        """Return the functions as plain data; ``line`` is None for categories."""
        smooth = self.n_categories is None and len(self.positions) > 1
        return {
            "line": self.line_ if smooth else None,
            "degree": int(self.degree_) if smooth else 0,
            "steps": self.steps if smooth else np.empty(0),
            "spikes": self.spikes if smooth else np.empty(0),
            "codes": self.codes_,
            "missing": self.has_missing_,
            "runs_on": self.runs_on,
            "center": self.center_,
        }

    def phi(self, x: Array) -> Array:
        """Return the functions, less their means: (n,) -> (n, P)."""
        xp = array_namespace(x)
        missing = xp.isnan(x)
        values = self._functions(xp.where(missing, xp.zeros_like(x), x))
        known = values.shape[1]
        center = like(self.center_, x)
        values = values - center[None, :known]
        average = missing
        if self.n_categories is not None:
            average = missing | (x < 0)
        values = xp.where(average[:, None], xp.zeros_like(values), values)
        if self.has_missing_:
            last = xp.astype(missing, x.dtype)[:, None] - center[None, known:]
            values = xp.concat([values, last], axis=1)
        return values


class Coordinates(_WithoutProducts):
    """Three numbers of each value of one input, for the kernel of the full tensor.

    They are the standardised raw value (0 for categories and missing values), the position, which
    is the standardised coordinate of a number or the code of a category, and 1 where the value is
    known.

    Parameters
    ----------
    knots, positions : ndarray
        The warp of a numeric column (see ``columns.Column``).
    categorical : bool
    straight : bool
        Whether the kernel only has a straight line of the column.
    runs_on : bool
        Whether the raw value runs on beyond the training range; the position is held at its end.
    """

    n_functions_, n_products_ = 3, 0

    def __init__(
        self,
        knots: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        categorical: bool = False,
        straight: bool = False,
        runs_on: bool = False,
    ) -> None:
        self.knots = np.empty(0) if knots is None else knots
        self.positions = np.empty(0) if positions is None else positions
        self.categorical = categorical
        self.straight = straight
        self.runs_on = runs_on

    def fit(self, x: np.ndarray, weight: np.ndarray) -> Self:
        """Standardise coordinates x (n,) whose rows count ``weight`` (n,)."""
        missing = np.isnan(x)
        self.has_missing_ = bool(missing.any())
        self.line_ = np.zeros(len(self.positions))
        self.center_, self.scale_ = 0.0, 1.0
        seen, count = x[~missing], weight[~missing]
        self.varies_ = len(np.unique(seen)) > 1
        if not self.categorical and self.varies_:
            # otherwise a value of a row with a tiny weight would be extremely far away
            count = np.maximum(count, _LEAST_SHARE * float(np.mean(count)))
            self.line_ = _standardised_line(self.knots, self.positions, seen, count)
            self.center_, self.scale_ = _mean_and_spread(seen, count)
        return self

    def phi(self, x: Array) -> Array:
        """Return the coordinates: (n,) -> (n, 3)."""
        xp = array_namespace(x)
        missing = xp.isnan(x)
        known = xp.astype(~missing, x.dtype)
        held = xp.where(missing, xp.zeros_like(x), x)
        if self.categorical:
            return xp.stack([xp.zeros_like(held), held, known], axis=1)
        x, held = held, xp.clip(held, -1.0, 1.0)
        line = _line(x, held, self) if self.varies_ else xp.zeros_like(held)
        return xp.stack([line * known, (held - self.center_) / self.scale_, known], axis=1)


def _line(x: Array, held: Array, of: MainEffect | Coordinates) -> Array:
    """Return the straight line at coordinates x; ``held`` are those moved to the nearer end."""
    line = interpolate(held, of.positions, of.line_)
    # beyond [-1, 1], coordinates are distances in units of the range of the raw values
    return line + (x - held) * float(of.line_[-1] - of.line_[0]) if of.runs_on else line


def _standardised_line(
    knots: np.ndarray, positions: np.ndarray, x: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Return raw values at the knots, of mean 0 and variance 1 over the coordinates x."""
    # scaled first, since squares of large raw values might overflow
    line = knots / max(float(np.max(np.abs(knots))), np.finfo(float).tiny)
    mean, spread = _mean_and_spread(np.interp(x, positions, line), weight)
    return (line - mean) / spread


def _mean_and_spread(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    mean = float(np.average(values, weights=weight))
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=weight)))
    return mean, max(spread, np.finfo(float).tiny)
