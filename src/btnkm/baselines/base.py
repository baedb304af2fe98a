"""What the baselines have in common: numbers in, one basis for all inputs, blocks of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import checks
from ..bases import Basis, Polynomial
from ..core.cp import CP
from ..core.layout import components
from ..core.likelihoods.base import mean_and_scale
from ..core.posterior import Predictor
from ..core.row_block import Chunk
from ..core.rows import Moments, Terms, block_sums, moments
from ..data.columns import BASES
from ..execution import local
from ..execution.modes import make_mode, size_of

Array = np.ndarray


class Powers(Polynomial):
    """The paper's features of standardised inputs: powers at unit norm, of any size of x."""

    def hold(self, x: Any) -> Any:
        """Return ``x`` as it is."""
        return x


class Baseline(RegressorMixin, BaseEstimator):
    """Base of the baselines: the target is scaled to mean 0 and variance 1.

    So are the inputs for "polynomial", as in the paper; for other bases they run from -1 to 1. A
    subclass has the parameters ``basis``, ``n_basis``, ``max_rank`` and ``memory_limit``.
    """

    basis: Any
    n_basis: int
    max_rank: int
    memory_limit: float
    noise_std_: float
    _terms: list[Terms]

    def _begin(self, X: Any, y: Any) -> tuple[list[Array], list[Any], Array]:
        """Return the coordinates of the rows, the modes of the inputs, and the scaled target.

        Sets what a prediction needs of the training rows.
        """
        y = checks.check_target(type(self).__name__, y)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        basis = self._basis()
        self._bounded = not isinstance(basis, Powers)
        if self._bounded:
            low, high = X.min(axis=0), X.max(axis=0)
            self._centre, spread = 0.5 * (low + high), 0.5 * (high - low)
        else:
            self._centre, spread = X.mean(axis=0), X.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._y_shift, self._y_scale = mean_and_scale(y, np.ones(len(y)))
        target = (y - self._y_shift) / self._y_scale
        codes = list(self._scaled(X).T)
        self.bases_ = [clone(basis).fit(column) for column in codes]
        return codes, [make_mode(basis, 0.0) for basis in self.bases_], target

    def _blocks(
        self, codes: list[Array], target: Array, block_rows: int | None = None
    ) -> list[Chunk]:
        """Return the rows in blocks, of a size that memory decides unless it is given."""
        sizes = [size_of(basis) for basis in self.bases_]
        limit = float(self.memory_limit)
        footprint = CP().footprint(int(self.max_rank), len(sizes))
        plan = local.make_plan(len(target), sizes, footprint, 1, 1, limit)
        if block_rows is not None:
            plan = replace(plan, block_rows=block_rows)
        return local.make_chunks(plan, self.bases_, codes, target, None)

    def _basis(self) -> Basis:
        if isinstance(self.basis, Basis):
            return self.basis
        if isinstance(self.basis, str) and self.basis == "polynomial":
            return Powers(self.n_basis)
        if isinstance(self.basis, str) and self.basis in BASES and self.basis != "categorical":
            basis: Basis = BASES[self.basis](n_basis=self.n_basis)
            return basis
        names = sorted(set(BASES) - {"categorical"})
        raise ValueError(
            f"basis must be one of {names} or a Basis, got {self.basis!r}; use 'polynomial'."
        )

    def _scaled(self, X: Array) -> Array:
        """Return the inputs in units of the training rows."""
        scaled = (X - self._centre) / self._spread
        return np.asarray(np.clip(scaled, -1.0, 1.0) if self._bounded else scaled)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of y at each row and, if asked, its standard deviation: each (n,)."""
        check_is_fitted(self)
        codes = self._scaled(validate_data(self, X, dtype=np.float64, reset=False)).T

        def features_of(d: int) -> tuple[Any, Any]:
            return self.bases_[d].features(codes[d])

        predictor = Predictor(CP(), self._terms, components(self._terms[0].mean.shape[1]))
        if not return_std:
            mean = predictor.mean(features_of)
            return np.asarray(self._y_shift + self._y_scale * mean)
        mean, variance = predictor.moments(features_of)
        model = self._y_scale**2 * variance
        return self._y_shift + self._y_scale * mean, np.sqrt(model + self.noise_std_**2)


def outside(chunk: Any, d: int, terms: list[Terms]) -> Moments | None:
    """Return the product over all modes but d for one block of rows."""
    product: Moments | None = chunk.environments.outside(
        d, lambda k, into: moments(chunk.features(k), terms[k], into)
    )
    return product


def sums(
    executor: local.LocalExecutor, d: int, terms: list[Terms], mode: Any, rank: int
) -> tuple[Array, Array]:
    """Return what an update of mode d needs of all rows: see ``rows.block_sums``."""

    def of(chunk: Any) -> tuple[Array, Array]:
        weight, response = chunk.responses
        return block_sums(
            chunk.features(d), outside(chunk, d, terms), weight, response[:, None], mode, rank
        )

    second, linear = executor.sum(of)
    return np.asarray(second), np.asarray(linear)
