"""The methods of regression: btnkm at its defaults, and what a user would try instead.

A method is a class whose constructor takes its configuration as keywords, with `fit(X, y)`,
`predictive(X)` (see `btnkm.metrics`) and, after the fit, `rank` (None if it has none).
Libraries are imported in the constructor: a child process loads only what it measures, and
neither the seconds nor the memory of the fit count the import.
"""

import numpy as np

from btnkm.metrics import GaussianPredictive

#: Names in records of the options of `solver`, `priors` and `network`.
OPTIONS = {
    "initial_rank": "solver.initial_rank",
    "warm_sweeps": "solver.warm_sweeps",
    "prune": "solver.prune",
    "anchored": "solver.anchored",
    "full_rows": "solver.full_rows",
    "noise_prior": "priors.noise",
    "rank_prior": "priors.rank",
    "basis_prior": "priors.basis",
    "smoothness": "priors.smoothness",
    "cores": "network.cores",
    "mode_order": "network.order",
}


def parameters_of(config):
    """Return the constructor parameters of btnkm's estimators for a configuration of a record."""
    from btnkm.parameters import with_options

    return with_options({OPTIONS.get(name, name): value for name, value in config.items()})


class Constant:
    """Predict mean and standard deviation of the training targets: the least to expect."""

    rank = None

    def fit(self, X, y):
        """Store two moments of `y`."""
        self.mean, self.std = float(np.mean(y)), float(np.std(y))
        return self

    def predictive(self, X):
        """Return the same normal distribution for each row."""
        return GaussianPredictive(np.full(len(X), self.mean), self.std)


class BTN:
    """Bayesian tensor-network kernel machine: `btnkm.BTNRegressor`."""

    def __init__(self, **config):
        from btnkm import BTNRegressor

        self.model = BTNRegressor(**parameters_of(config))

    def fit(self, X, y):
        """Fit on raw inputs; the estimator scales them itself."""
        self.model.fit(X, y)
        self.rank = float(np.mean(self.model.rank_))
        return self

    def predictive(self, X):
        """Return the predictive distribution of the estimator."""
        predictive = self.model.predict_dist(X)
        # It may be lazy. Every caller needs the mean, so its time counts.
        _ = predictive.mean
        return predictive


class GP:
    """Exact Gaussian process, one length scale per input, hyperparameters by marginal likelihood.

    Inputs are standardised on the training part, targets by `normalize_y`.

    Parameters
    ----------
    noise_level : float
        Noise variance at which the optimiser starts. The marginal likelihood has several
        maxima, and no single start finds the best one on every set.
    **config
        Keywords of `GaussianProcessRegressor`.
    """

    rank = None

    def __init__(self, noise_level=1.0, **config):
        from sklearn.gaussian_process import GaussianProcessRegressor, kernels
        from sklearn.preprocessing import StandardScaler

        self.kernels = kernels
        self.noise_level = noise_level
        self.scaler = StandardScaler()
        self.model = GaussianProcessRegressor(normalize_y=True, **config)

    def fit(self, X, y):
        """Scale the inputs and maximise the marginal likelihood."""
        k = self.kernels
        kernel = k.ConstantKernel() * k.RBF(np.ones(X.shape[1])) + k.WhiteKernel(self.noise_level)
        self.model.set_params(kernel=kernel)
        self.model.fit(self.scaler.fit_transform(X), y)
        return self

    def predictive(self, X):
        """Return the predictive normal; the white kernel puts the noise into its variance."""
        mean, std = self.model.predict(self.scaler.transform(X), return_std=True)
        return GaussianPredictive(mean, std)


class HeldOutNoise:
    """A method without a distribution, with one noise level for all rows.

    Its density and intervals come from a normal around the prediction. The standard deviation is
    the root mean square error on a fifth of the training rows, held out from a first fit. The
    second fit, to all training rows, gives the mean. The time of a fit counts both. Subclasses
    have ``fit_mean(X, y)`` and ``predict_mean(X)``.
    """

    rank = None

    def fit(self, X, y):
        """Fit to four fifths for the noise level, then to all rows."""
        order = np.random.RandomState(0).permutation(len(y))
        held, rest = order[: len(y) // 5], order[len(y) // 5 :]
        self.fit_mean(X[rest], y[rest])
        self.std = float(np.sqrt(np.mean((y[held] - self.predict_mean(X[held])) ** 2)))
        self.fit_mean(X, y)
        return self

    def predictive(self, X):
        """Return a normal around the prediction with the held-out standard deviation."""
        return GaussianPredictive(self.predict_mean(X), self.std)


class HGB(HeldOutNoise):
    """Histogram gradient boosting."""

    def __init__(self, **config):
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(**config)
        self.fit_mean, self.predict_mean = model.fit, model.predict


#: Name to class and default configuration.
METHODS = {
    "btn": (BTN, {"random_state": 0}),
    "gp": (GP, {"random_state": 0}),
    "hgb": (HGB, {"random_state": 0}),
    "constant": (Constant, {}),
}
