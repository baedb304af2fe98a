"""Whether the noise of rows held out varies with their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.gamma import Gamma
from ..core.likelihoods import Gaussian, StudentT, Varying, learned, of_rows
from .mode_map import ModeMap
from .stacking import HeldOut

Array = np.ndarray
STEPS = 60  # of the noise, at most
NATS = 3.0  # that varying noise must gain
ENOUGH = 1e-3  # nats that one more update must gain
PRIOR = Gamma(1e-6, 1e-6)
BEGIN = (Gaussian(Gamma(1.0, 1.0)), StudentT(4.0))


def noise_varies(
    held: Sequence[HeldOut], noise: tuple[float, float], mode_map: ModeMap, codes: list[Array]
) -> bool:
    """Return whether errors, in units of what was predicted, have a size that varies.

    Noise with one level and noise as that of a structure whose noise may vary are fitted to the
    errors, both with and without heavy tails, and the ELBOs of the best of each are compared: a
    group of rows with large errors may be outliers, and outliers may look like such a group.
    ``codes`` are the coordinates of the rows held out in all columns.
    """
    error = np.concatenate([fold.standardised(noise) for fold in held])
    weights = np.concatenate([fold.weights for fold in held])
    known = np.isfinite(error)
    if not np.any(error[known]):
        return False
    features = mode_map.features([code[known] for code in codes])
    errors = Errors(error[known], weights[known], features.__getitem__)
    first = len(mode_map.bases) + len(mode_map.effects)
    constant = [errors.fitted(likelihood) for likelihood in BEGIN]
    varying = [
        errors.fitted(Varying.over(likelihood, mode_map.noise_effects, first))
        for likelihood in constant
    ]
    return max(map(errors.elbo, varying)) - max(map(errors.elbo, constant)) > NATS


class Errors(NamedTuple):
    """Errors of rows, and the features of these rows."""

    values: Array
    weights: Array
    features: Callable[[int], tuple[Any, Any]]

    def elbo(self, likelihood: Any) -> float:
        """Return the ELBO of a likelihood that has learned from the errors."""
        return float(sum(likelihood.terms(float(self.weights.sum()), PRIOR).values()))

    def sums(self, likelihood: Any) -> tuple[Any, ...]:
        """Return the sums over rows that a likelihood learns from."""
        zero = np.zeros_like(self.values)
        rows = of_rows(likelihood, self.features).rows(self.values, self.weights, zero, zero)
        sums: tuple[Any, ...] = rows.sums
        return sums

    def fitted(self, likelihood: Any) -> Any:
        """Return a likelihood after updates until its ELBO hardly rises."""
        before = -np.inf
        for _ in range(STEPS):
            likelihood = learned(likelihood, self.sums, float(self.weights.sum()), PRIOR)
            value = self.elbo(likelihood)
            if value - before < ENOUGH:
                break
            before = value
        return likelihood
