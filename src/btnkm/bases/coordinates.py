"""Coordinates of one input for the kernel of the full tensor."""

from __future__ import annotations

from typing import Self

import numpy as np
from array_api_compat import array_namespace, device

from ..core.arrays import interpolate
from .base import Array

_LEAST_SHARE = 1e-3  # of the mean weight of a row


class Coordinates:
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
    """

    n_functions_, n_products_ = 3, 0

    def __init__(
        self,
        knots: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        categorical: bool = False,
        straight: bool = False,
    ) -> None:
        self.knots = np.empty(0) if knots is None else knots
        self.positions = np.empty(0) if positions is None else positions
        self.categorical = categorical
        self.straight = straight

    def fit(self, x: np.ndarray, weight: np.ndarray) -> Self:
        """Standardise coordinates x (n,) whose rows count ``weight`` (n,)."""
        missing = np.isnan(x)
        self.has_missing_ = bool(missing.any())
        self.line_ = np.zeros(len(self.positions))
        self.center_, self.scale_ = 0.0, 1.0
        seen, count = x[~missing], weight[~missing]
        self.varies_ = len(np.unique(seen)) > 1
        if not self.categorical and self.varies_:
            # scaled first, since squares of large raw values might overflow
            size = max(float(np.max(np.abs(self.knots))), np.finfo(float).tiny)
            line = self.knots / size
            mean, spread = _mean_and_spread(np.interp(seen, self.positions, line), count)
            self.line_ = (line - mean) / spread
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
        held = xp.clip(held, -1.0, 1.0)
        line = xp.zeros_like(held)
        if self.varies_:
            line = interpolate(held, self.positions, self.line_)
        return xp.stack([line * known, (held - self.center_) / self.scale_, known], axis=1)

    def features(self, x: Array) -> tuple[Array, Array]:
        """Return the coordinates, and no products: (n, 3) and (n, 0)."""
        phi = self.phi(x)
        return phi, xp_empty(phi)


def xp_empty(phi: Array) -> Array:
    """Return products of no functions: (n, 0)."""
    return array_namespace(phi).zeros((phi.shape[0], 0), dtype=phi.dtype, device=device(phi))


def _mean_and_spread(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    # without a minimum weight, a value of a row with a tiny weight would be extremely far away
    weight = np.maximum(weight, _LEAST_SHARE * float(np.mean(weight)))
    mean = float(np.average(values, weights=weight))
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=weight)))
    return mean, max(spread, np.finfo(float).tiny)
