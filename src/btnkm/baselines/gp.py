"""The exact Gaussian process, as scikit-learn has it."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import checks


class ExactGP(RegressorMixin, BaseEstimator):
    """Exact Gaussian process with a squared exponential kernel and learned noise.

    Inputs and targets are standardised. The marginal likelihood has several maxima, and no single
    start of the optimiser finds the best one on every set: the best of several is kept.

    Parameters
    ----------
    ard : bool, default=False
        Whether every input has a length scale of its own.
    noise_levels : sequence of float, default=(1.0, 0.01)
        Noise variances from which the optimiser starts, in units of the variance of y; length
        scales start at the root of the number of inputs.
    max_rows : int, default=2000
        Training rows, drawn at random, whose marginal likelihood is maximised; where there are
        more, predictions still follow from all of them.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    kernel_ : kernel of scikit-learn
    log_marginal_likelihood_ : float
        Of the rows by which the kernel was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from btnkm.baselines import ExactGP
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(60, 2))
    >>> bool(ExactGP().fit(X, X[:, 0] * X[:, 1]).score(X, X[:, 0] * X[:, 1]) > 0.99)
    True
    """

    def __init__(
        self,
        *,
        ard: bool = False,
        noise_levels: Any = (1.0, 0.01),
        max_rows: int = 2000,
        random_state: Any = None,
    ) -> None:
        self.ard = ard
        self.noise_levels = noise_levels
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the kernel, and condition on inputs X (n, D) and targets y (n,)."""
        checks.check_integer("max_rows", self.max_rows, 1)
        y = checks.check_target(type(self).__name__, y)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        self._scaler = StandardScaler().fit(X)
        X = self._scaler.transform(X)
        rows = slice(None)
        if len(y) > self.max_rows:
            rng = check_random_state(self.random_state)
            rows = rng.permutation(len(y))[: self.max_rows]
        tried = [self._maximise(X[rows], y[rows], float(noise)) for noise in self.noise_levels]
        best = max(tried, key=lambda model: model.log_marginal_likelihood_value_)
        self.kernel_ = best.kernel_
        self.log_marginal_likelihood_ = float(best.log_marginal_likelihood_value_)
        if len(y) > self.max_rows:
            best = GaussianProcessRegressor(self.kernel_, optimizer=None, normalize_y=True)
            best.fit(X, y)
        self._model = best
        return self

    def _maximise(self, X: Any, y: Any, noise: float) -> GaussianProcessRegressor:
        scale = np.full(X.shape[1] if self.ard else 1, np.sqrt(X.shape[1]))
        kernel = kernels.ConstantKernel() * kernels.RBF(scale, (1e-3, 1e5))
        kernel += kernels.WhiteKernel(noise, (1e-8, 1e5))
        with warnings.catch_warnings():
            # of length scales at an end of their range: those of inputs that do not matter are
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the mean of y at each row and, if asked, its standard deviation: each (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self._model.predict(self._scaler.transform(X), return_std=return_std)
