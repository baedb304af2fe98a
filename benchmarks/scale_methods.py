"""Methods of other libraries, for the suites that compare at scale: tnkm, GPyTorch and NGBoost.

Built like those of `benchmarks.methods` and `benchmarks.classifiers`; the `scale` extra installs
the libraries.
"""

import numpy as np

from btnkm.metrics import ClassPredictive, GaussianPredictive


def _als(X, y, n_basis, rank, dtype, gamma=1.0, seed=0):
    """Return a tnkm model, and a function that fits it by so many epochs."""
    import jax

    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from tnkm.features import ProductFeatures, SquaredExpFeature
    from tnkm.models import CPKM
    from tnkm.optim import train_als

    # sines that vanish half as far outside the data as these reach: none is forced to zero in them
    one = (SquaredExpFeature(n_basis, scale=0.5, v_bound=1.5, k_col=d) for d in range(X.shape[1]))
    model = CPKM(ProductFeatures(one), rank=rank, seed=seed, dtype=dtype)
    X, y = jnp.asarray(X, dtype=dtype), jnp.asarray(y, dtype=dtype)

    def run(n_epoch):
        train_als(model, X, y, n_epoch=n_epoch, gamma_w=gamma, beta_e=1.0)
        jax.block_until_ready(model.params)  # what it returns before is a promise

    return model, run


def als_epochs(X, y, n_basis, rank, dtype):
    """Return a function that does one epoch of tnkm's alternating least squares.

    Parameters
    ----------
    X : ndarray of shape (n, D)
        In [-1, 1].
    y : ndarray of shape (n,)
    n_basis, rank : int
    dtype : str
        "float32", tnkm's own, or "float64", that of btnkm.

    Returns
    -------
    epoch : callable
        The first call also compiles.
    """
    run = _als(X, y, n_basis, rank, dtype)[1]
    return lambda: run(1)


class TNKM:
    """CP kernel machine by alternating least squares, `tnkm.CPKM`, with one noise level.

    It gives no distribution: as for gradient boosting, the spread is that of the errors on a fifth
    of the training rows, held out from a first fit, and the time counts both fits.

    Parameters
    ----------
    n_basis, rank, n_epoch : int
        Sines per input, components, and epochs: tnkm has no default of these.
    gamma : float
        Weight of the squared weights beside that of the squared errors. 1 predicts better at 1,000
        and at 10,000 rows than 0.1, 0.01, 0.001 or 0.0001 do; by default there is none.
    random_state : int
    """

    def __init__(self, n_basis=10, rank=8, n_epoch=10, gamma=1.0, random_state=0):
        import jax.numpy as jnp
        import tnkm  # noqa: F401

        self.to_jax = jnp.asarray
        self.n_basis, self.rank, self.n_epoch = n_basis, rank, n_epoch
        self.gamma, self.random_state = gamma, random_state

    def fit(self, X, y):
        """Fit on four fifths for the noise level, then on all rows."""
        self.low, self.high = X.min(axis=0), X.max(axis=0)
        self.shift, self.scale = float(np.mean(y)), float(np.std(y))
        order = np.random.RandomState(0).permutation(len(y))
        held, rest = order[: len(y) // 5], order[len(y) // 5 :]
        self._fit(X[rest], y[rest])
        self.std = float(np.sqrt(np.mean((y[held] - self._mean(X[held])) ** 2)))
        self._fit(X, y)
        return self

    def _inputs(self, X):
        return np.clip(2 * (X - self.low) / (self.high - self.low) - 1, -1, 1)

    def _fit(self, X, y):
        y = (y - self.shift) / self.scale
        how = self.n_basis, self.rank, "float32", self.gamma, self.random_state
        self.model, run = _als(self._inputs(X), y, *how)
        run(self.n_epoch)

    def _mean(self, X):
        z = np.asarray(self.model.predict(self.to_jax(self._inputs(X))), dtype=float)
        return self.shift + self.scale * z

    def predictive(self, X):
        """Return a normal around the prediction with the held-out standard deviation."""
        return GaussianPredictive(self._mean(X), self.std)


class _SVGP:
    """What both tasks share of GPyTorch's sparse variational Gaussian process.

    Whitened, inducing points learned, one length scale per input, Adam on minibatches.

    Parameters
    ----------
    n_inducing, batch, steps : int
    rate : float
        Learning rate.
    random_state : int
    """

    rank = None

    def __init__(self, n_inducing=128, batch=1024, steps=2000, rate=0.01, random_state=0):
        import gpytorch
        import torch

        self.torch, self.gpytorch = torch, gpytorch
        self.n_inducing, self.batch, self.steps = n_inducing, batch, steps
        self.rate, self.random_state = rate, random_state

    def _train(self, Z, y, likelihood):
        """Fit to standardised inputs (n, D)."""
        torch, gpytorch = self.torch, self.gpytorch
        generator = torch.Generator().manual_seed(self.random_state)
        Z, y = (torch.as_tensor(a, dtype=torch.float32) for a in (Z, y))
        n = len(y)
        points = Z[torch.randperm(n, generator=generator)[: self.n_inducing]]
        self.model = _approximate_gp(gpytorch, points)
        self.likelihood = likelihood
        bound = gpytorch.mlls.VariationalELBO(likelihood, self.model, num_data=n)
        parameters = [*self.model.parameters(), *likelihood.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=self.rate)
        self.model.train()
        likelihood.train()
        order, at = None, n
        for _ in range(self.steps):
            if at >= n:
                order, at = torch.randperm(n, generator=generator), 0
            rows = order[at : at + self.batch]
            at += self.batch
            optimizer.zero_grad()
            loss = -bound(self.model(Z[rows]), y[rows])
            loss.backward()
            optimizer.step()
        self.model.eval()
        likelihood.eval()

    def _predict(self, Z):
        """Return the predictive distributions of blocks of rows."""
        torch = self.torch
        with torch.no_grad():
            for rows in torch.as_tensor(Z, dtype=torch.float32).split(4 * self.batch):
                yield self.likelihood(self.model(rows))


def _approximate_gp(gpytorch, points):
    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, q))
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return Model()


class SVGP(_SVGP):
    """GPyTorch's sparse variational Gaussian process with learned noise."""

    def fit(self, X, y):
        """Standardise and fit."""
        self.low, self.spread = X.mean(axis=0), X.std(axis=0)
        self.shift, self.scale = float(np.mean(y)), float(np.std(y))
        likelihood = self.gpytorch.likelihoods.GaussianLikelihood()
        self._train((X - self.low) / self.spread, (y - self.shift) / self.scale, likelihood)
        return self

    def predictive(self, X):
        """Return the predictive normal, noise included."""
        parts = list(self._predict((X - self.low) / self.spread))
        mean = np.concatenate([part.mean.numpy() for part in parts]).astype(float)
        variance = np.concatenate([part.variance.numpy() for part in parts]).astype(float)
        return GaussianPredictive(self.shift + self.scale * mean, self.scale * np.sqrt(variance))


def _table_columns():
    """Return what turns a DataFrame into standardised numbers and one indicator per level."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    return make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(handle_unknown="ignore", sparse_output=False),
            make_column_selector(dtype_include="category"),
        ),
    )


class SVGPClassifier(_SVGP):
    """GPyTorch's sparse variational Gaussian process for two classes, by the probit link."""

    def __init__(self, **config):
        super().__init__(**config)
        self.columns = _table_columns()

    def fit(self, X, y):
        """Encode, standardise and fit."""
        self.classes, labels = np.unique(y, return_inverse=True)
        likelihood = self.gpytorch.likelihoods.BernoulliLikelihood()
        self._train(self.columns.fit_transform(X), labels, likelihood)
        return self

    def predictive(self, X):
        """Return the probabilities, averaged over the posterior."""
        second = [part.mean.numpy() for part in self._predict(self.columns.transform(X))]
        second = np.concatenate(second).astype(float)
        return ClassPredictive(self.classes, np.stack([1 - second, second], axis=1))


class NGB:
    """Natural gradient boosting of a normal distribution, at its defaults."""

    rank = None

    def __init__(self, **config):
        from ngboost import NGBRegressor

        self.model = NGBRegressor(verbose=False, **config)

    def fit(self, X, y):
        """Fit on raw inputs."""
        self.model.fit(X, y)
        return self

    def predictive(self, X):
        """Return its own normal for every row."""
        found = self.model.pred_dist(X).params
        return GaussianPredictive(found["loc"], found["scale"])


class NGBClassifier:
    """Natural gradient boosting of two classes, on numbers for the levels of a category."""

    rank = None

    def __init__(self, **config):
        from ngboost import NGBClassifier as Model
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.preprocessing import OrdinalEncoder

        # an indicator per level would make its exact trees eight times as slow
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        self.columns = make_column_transformer(
            (codes, make_column_selector(dtype_include="category")), remainder="passthrough"
        )
        self.model = Model(verbose=False, **config)

    def fit(self, X, y):
        """Encode and fit."""
        self.classes, labels = np.unique(y, return_inverse=True)
        self.model.fit(self.columns.fit_transform(self._frame(X)), labels)
        return self

    def predictive(self, X):
        """Return its probabilities."""
        encoded = self.columns.transform(self._frame(X))
        return ClassPredictive(self.classes, self.model.predict_proba(encoded))

    @staticmethod
    def _frame(X):
        """Return a frame, for which columns are chosen by type; an array has numbers only."""
        import pandas as pd

        return pd.DataFrame(X)


#: Name to class and default configuration.
SCALE_METHODS = {
    "tnkm": (TNKM, {"random_state": 0}),
    "svgp": (SVGP, {"random_state": 0}),
    "ngboost": (NGB, {"random_state": 0}),
}
SCALE_CLASSIFIERS = {
    "svgp": (SVGPClassifier, {"random_state": 0}),
    "ngboost": (NGBClassifier, {"random_state": 0}),
}
