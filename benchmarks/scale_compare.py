"""btnkm and other libraries, from a thousand rows to a million: error, density, time, memory.

The methods of tnkm, GPyTorch and NGBoost are built like those of `benchmarks.methods` and
`benchmarks.classifiers`. The dependency group `scale` installs the libraries.
"""

from importlib.metadata import version

import numpy as np

from benchmarks.accuracy import REGRESSION, fit_and_score, task_of
from benchmarks.classifiers import encoder
from benchmarks.data import load_split
from benchmarks.methods import HeldOutNoise
from btnkm.metrics import ClassPredictive, GaussianPredictive

SIZES = (1_000, 10_000, 100_000, 1_000_000)
#: Data sets with these numbers of training rows.
SYNTHETIC = tuple(f"friedman-{n}" for n in SIZES)
TEST_ROWS = 10_000
NOISE = 1.0
#: The most training rows of a method, and the reason.
MOST_ROWS = {
    "gp": (4_000, "it holds several matrices of n x n, and its time grows with the cube of n"),
    "ngboost": (10_000, "500 pairs of exact trees take a minute there, and more in proportion"),
}
#: Why a method does not classify.
NO_CLASSES = {
    "tnkm": "it has least squares, and no probabilities of classes",
    "gp": "its Laplace approximation has the same matrices of n x n as the regression",
}
#: The library of a method, if it is not scikit-learn or btnkm.
LIBRARIES = {"tnkm": "tnkm", "svgp": "gpytorch", "ngboost": "ngboost"}


def friedman(n, split):
    """Return a training part of n rows and a test part of Friedman's first function.

    y = 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4 plus normal noise of standard deviation
    1; ten inputs uniform on [0, 1], five of them without effect. The expected RMSE cannot be below
    1, and the expected NLL not below log(2 pi e) / 2 = 1.419.
    """
    rng = np.random.default_rng(split)
    X = rng.uniform(size=(n + TEST_ROWS, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + NOISE * rng.standard_normal(len(X))
    return X[:n], y[:n], X[n:], y[n:]


def rows_of(dataset):
    """Return the training rows of a synthetic set, None for another one."""
    return int(dataset.removeprefix("friedman-")) if dataset in SYNTHETIC else None


def why_not(dataset, method):
    """Return why a method is not measured on a data set, None if it is."""
    n = rows_of(dataset)
    if n is None and method in NO_CLASSES:
        return NO_CLASSES[method]
    if n is None or method not in MOST_ROWS or n <= MOST_ROWS[method][0]:
        return None
    most, reason = MOST_ROWS[method]
    return f"at most {most:,} rows: {reason}"


def measure_compare(cell):
    """Fit and score one cell in this process.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    metrics : dict
        See `benchmarks.accuracy.fit_and_score`, and `library` with its version if that is
        neither scikit-learn nor btnkm. Only `skipped`, a reason, if the cell is not measured.
    """
    reason = why_not(cell.dataset, cell.method)
    if reason is not None:
        return {"skipped": reason}
    task, n = task_of(cell.dataset), rows_of(cell.dataset)
    known = task.methods | (SCALE_METHODS if task is REGRESSION else SCALE_CLASSIFIERS)
    method = known[cell.method.removesuffix("-short")][0](**cell.config)
    parts = load_split(cell.dataset, cell.split) if n is None else friedman(n, cell.split)
    metrics = fit_and_score(task, method, *parts)
    library = LIBRARIES.get(cell.method)
    return metrics if library is None else metrics | {"library": f"{library} {version(library)}"}


def _als(X, y, n_basis, rank, dtype, gamma=1.0, seed=0):
    """Return a tnkm model, and a function that fits it by so many epochs."""
    import jax

    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    from tnkm.features import ProductFeatures, SquaredExpFeature
    from tnkm.models import CPKM
    from tnkm.optim import train_als

    # the sines vanish outside the range of the data, not within it
    features = (
        SquaredExpFeature(n_basis, scale=0.5, v_bound=1.5, k_col=d) for d in range(X.shape[1])
    )
    model = CPKM(ProductFeatures(features), rank=rank, seed=seed, dtype=dtype)
    X, y = jnp.asarray(X, dtype=dtype), jnp.asarray(y, dtype=dtype)

    def run(n_epoch):
        train_als(model, X, y, n_epoch=n_epoch, gamma_w=gamma, beta_e=1.0)
        jax.block_until_ready(model.params)  # until then it may still be computing

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


class TNKM(HeldOutNoise):
    """CP kernel machine by alternating least squares, `tnkm.CPKM`.

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
        """Find ranges and scale, and fit twice."""
        self.low, self.high = X.min(axis=0), X.max(axis=0)
        self.shift, self.scale = float(np.mean(y)), float(np.std(y))
        return super().fit(X, y)

    def _inputs(self, X):
        return np.clip(2 * (X - self.low) / (self.high - self.low) - 1, -1, 1)

    def fit_mean(self, X, y):
        """Fit scaled inputs and targets."""
        y = (y - self.shift) / self.scale
        how = self.n_basis, self.rank, "float32", self.gamma, self.random_state
        self.model, run = _als(self._inputs(X), y, *how)
        run(self.n_epoch)

    def predict_mean(self, X):
        """Return the prediction in units of y."""
        z = np.asarray(self.model.predict(self.to_jax(self._inputs(X))), dtype=float)
        return self.shift + self.scale * z


class _SVGP:
    """GPyTorch's sparse variational Gaussian process, for both tasks.

    Whitened, with learned inducing points, one length scale per input, and Adam on minibatches.

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


class SVGPClassifier(_SVGP):
    """GPyTorch's sparse variational Gaussian process for two classes, by the probit link."""

    def __init__(self, **config):
        super().__init__(**config)
        self.columns = encoder(sparse_output=False)

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
    """Natural gradient boosting of a normal distribution, with default settings."""

    rank = None

    def __init__(self, **config):
        from ngboost import NGBRegressor

        self.model = NGBRegressor(verbose=False, **config)

    def fit(self, X, y):
        """Fit on raw inputs."""
        self.model.fit(X, y)
        return self

    def predictive(self, X):
        """Return a normal for every row."""
        parameters = self.model.pred_dist(X).params
        return GaussianPredictive(parameters["loc"], parameters["scale"])


class NGBClassifier:
    """Natural gradient boosting of two classes, with integer codes for categories."""

    rank = None

    def __init__(self, **config):
        from ngboost import NGBClassifier as Model
        from sklearn.compose import make_column_selector, make_column_transformer
        from sklearn.preprocessing import OrdinalEncoder

        # indicators would make its exact trees eight times as slow
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
        """Return a DataFrame, whose columns have types."""
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
