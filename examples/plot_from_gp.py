"""
Coming from Gaussian processes
==============================

A Gaussian process with a product kernel and this model are close relatives: both multiply one
kernel per input. A Gaussian process keeps every weight, so its cost grows with the cube of the
rows. Here the weights form a tensor of low rank, and the cost is linear in the rows. The
interface is nearly the same.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from btnkm import BTNRegressor
from btnkm.datasets import make_heating

# %%
# Side by side
# ------------
#
# The first function below has what you would write for a Gaussian process. ``BTNRegressor``
# learns length scales, signal variance and noise through priors. There is no kernel to choose
# and nothing to standardise. (Four restarts instead of eight keep this page quick.)


def f(X):
    """Return a smooth function of four inputs; the first and the third interact."""
    return np.sin(4 * X[:, 0]) * (0.5 + X[:, 2]) + 2 * (X[:, 1] - 0.5) ** 2 + 0.3 * X[:, 3]


rng = np.random.default_rng(0)
X = rng.uniform(size=(150, 4))
y = f(X) + 0.15 * rng.standard_normal(150)
X_new = rng.uniform(size=(1000, 4))
y_new = f(X_new) + 0.15 * rng.standard_normal(1000)


def gaussian_process(n_inputs=4):
    """Return a Gaussian process with a length scale for each input."""
    kernel = ConstantKernel() * RBF(np.ones(n_inputs)) + WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


warnings.simplefilter("ignore", ConvergenceWarning)  # length scales at their bounds
gp = gaussian_process().fit(X, y)
btn = BTNRegressor(n_init=4, random_state=0).fit(X, y)

for name, model in {"Gaussian process": gp, "btnkm": btn}.items():
    mean, std = model.predict(X_new, return_std=True)
    error = np.sqrt(np.mean((mean - y_new) ** 2))
    nll = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_new - mean) / std) ** 2)
    coverage = np.mean(np.abs(y_new - mean) <= 1.645 * std)
    print(f"{name:17s} RMSE {error:.3f}, NLL {nll:+.3f}, coverage of 90 % intervals {coverage:.1%}")

# %%
# The predictions of both along the first input:

line = np.full((200, 4), 0.5)
line[:, 0], line[:, 2] = np.linspace(0, 1, 200), 0.8
figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.5), sharey=True)
for axis, model in zip(axes, (gp, btn), strict=True):
    mean, std = model.predict(line, return_std=True)
    axis.fill_between(line[:, 0], mean - 1.645 * std, mean + 1.645 * std, color="C0", alpha=0.2)
    axis.plot(line[:, 0], mean, color="C0", label="prediction, 90 % of observations")
    axis.plot(line[:, 0], f(line), "--", color="C1", linewidth=1.4, label="truth")
    axis.set(title=type(model).__name__, xlabel="$x_1$")
axes[0].legend(loc="lower left", fontsize=8.5)
plt.show()

# %%
# Gaussian processes are at their best here: few rows, evenly spread, and a function that is
# equally smooth everywhere. There is little to gain over one.
#
# Uneven inputs
# -------------
#
# Measurements are rarely evenly spread. Below, the first two inputs of the same function come in
# other units: a concentration over four decades, and a time until failure, which is mostly
# short. A kernel takes distances as they are, unless you find the right transformation of each
# column. ``BTNRegressor`` warps every input, half by its rank and half by its value.


def as_measured(X):
    """Return the same rows in the units in which they were written down."""
    return np.column_stack(
        [10 ** (4 * X[:, 0]), -50 * np.log1p(-0.999 * X[:, 1]), X[:, 2], X[:, 3]]
    )


X = rng.uniform(size=(300, 4))
y = f(X) + 0.15 * rng.standard_normal(300)
models = {"Gaussian process": gaussian_process(), "btnkm": BTNRegressor(n_init=2, random_state=0)}
for name, model in models.items():
    for units, change in {"even": np.asarray, "as measured": as_measured}.items():
        error = np.mean((model.fit(change(X), y).predict(change(X_new)) - f(X_new)) ** 2) ** 0.5
        print(f"{name:17s} {units:12s} RMSE to the true f {error:.3f}")

# %%
# Text and missing values
# -----------------------
#
# :func:`~btnkm.datasets.make_heating` simulates the energy that homes use in a day. Two columns
# are text, and a tenth of the values is missing in two others. Four inputs multiply. All models
# have default settings. The Gaussian process and ridge regression need imputed and encoded
# columns; boosting needs to know which columns are categories.

homes, energy = make_heating()
homes = homes.astype({"home": "category", "system": "category"})
X_train, X_test, y_train, y_test = train_test_split(homes, energy, train_size=1200, random_state=0)


def prepare():
    """Return a transformer that imputes, scales and encodes."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (OneHotEncoder(), make_column_selector(dtype_include="category")),
    )


rivals = {
    "ridge regression": make_pipeline(prepare(), RidgeCV(np.logspace(-3, 3, 13))),
    "boosting": HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0),
}
n_columns = prepare().fit_transform(X_train).shape[1]
probabilistic = {
    "Gaussian process": make_pipeline(prepare(), gaussian_process(n_columns)),
    "btnkm": BTNRegressor(random_state=0),
}
intervals = {}
X_fit, X_out, y_fit, y_out = train_test_split(X_train, y_train, test_size=0.2, random_state=0)
for name, model in rivals.items():  # their intervals: a normal with the held-out errors' spread
    std = np.sqrt(np.mean((model.fit(X_fit, y_fit).predict(X_out) - y_out) ** 2))
    mean = model.fit(X_train, y_train).predict(X_test)
    intervals[name] = mean, mean - 1.645 * std, mean + 1.645 * std
for name, model in probabilistic.items():
    mean, std = model.fit(X_train, y_train).predict(X_test, return_std=True)
    intervals[name] = mean, mean - 1.645 * std, mean + 1.645 * std
intervals["btnkm"] = mean, *model.predict_interval(X_test, level=0.9).T
for name, (mean, low, high) in intervals.items():
    error, coverage = np.sqrt(np.mean((mean - y_test) ** 2)), (low <= y_test) & (y_test <= high)
    print(f"{name:17s} RMSE {error:5.2f} kWh, coverage of 90 % intervals {coverage.mean():.1%}")

# %%
# The noise alone has a standard deviation of 5 kWh. With the right preprocessing the Gaussian
# process is close. Trees need more rows for a product of smooth effects, and a linear model
# cannot represent one.
#
# Time
# ----
#
# With few rows a Gaussian process is much faster: it inverts one small matrix and compares no
# structures. Its time grows with the cube of the rows and its memory with their square, so some
# thousand rows are its limit. The time of this model is still growing slowly at a million rows
# (:doc:`/scale`). The fits below have two restarts and use one core.

sizes = (100, 200, 400, 800)
seconds = {"Gaussian process": [], "btnkm, two restarts": []}
for n in sizes:
    X = rng.uniform(size=(n, 4))
    y = f(X) + 0.15 * rng.standard_normal(n)
    for name, model in zip(
        seconds, (gaussian_process(), BTNRegressor(n_init=2, random_state=0)), strict=True
    ):
        start = time.perf_counter()
        model.fit(X, y)
        seconds[name].append(time.perf_counter() - start)

figure, axis = plt.subplots(figsize=(6.4, 3.6))
for (name, values), colour in zip(seconds.items(), ("C5", "C0"), strict=True):
    axis.loglog(sizes, values, "o-", color=colour, label=name)
axis.set(xlabel="rows", ylabel="seconds of a fit", title="Time against rows")
axis.set_xticks(sizes, [str(n) for n in sizes])
axis.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
axis.minorticks_off()
axis.legend()
plt.show()

# %%
# What carries over
# -----------------
#
# ===================================  ====================================================
# ``GaussianProcessRegressor``         ``BTNRegressor``
# ===================================  ====================================================
# ``predict(X, return_std=True)``      the same; ``std`` includes the noise in both here
# ``sample_y(X, n_samples)``           the same: whole functions, with noise
# ``kernel_`` (length scales)          ``feature_importances_``, ``n_basis_``
# ``log_marginal_likelihood_value_``   ``lower_bound_``, a lower bound on it
# ``kernel=`` (what you know)          ``basis=`` of each input; see :doc:`/guide/parameters`
# ``alpha=`` of each row               ``sample_weight=`` in ``fit``
# ===================================  ====================================================
#
# Two things differ. Far from all rows a Gaussian process returns to its mean with the full prior
# variance. Here straight parts run on beyond the range of the training rows, the rest stays
# constant, and the interval widens with the distance. And a kernel that is not a product over
# inputs, such as one on distances in space, has no counterpart.
