"""
Coming from Gaussian processes
==============================

A Gaussian process with a product kernel and this model are close relatives: both have one
kernel per input, multiplied. The Gaussian process keeps every weight and pays with the cube of
the rows; here the weights are a tensor of low rank, and the cost is linear in the rows. The
interface is nearly the same.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from btnkm import BTNRegressor

# %%
# Side by side
# ------------
#
# What you would write, and what to write instead. Length scales, signal and noise variance
# become priors that are learned; there is no kernel to choose and nothing to standardise. (Four
# starts instead of eight, to keep this page quick.)


def f(X):
    """Return a smooth function of four inputs, of which the third has a product with the first."""
    return np.sin(4 * X[:, 0]) * (0.5 + X[:, 2]) + 2 * (X[:, 1] - 0.5) ** 2 + 0.3 * X[:, 3]


rng = np.random.default_rng(0)
X = rng.uniform(size=(150, 4))
y = f(X) + 0.15 * rng.standard_normal(150)
X_new = rng.uniform(size=(1000, 4))
y_new = f(X_new) + 0.15 * rng.standard_normal(1000)


def process():
    """Return a Gaussian process with a length scale for each input."""
    kernel = ConstantKernel() * RBF(np.ones(4)) + WhiteKernel(0.1)
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)


warnings.simplefilter("ignore", ConvergenceWarning)  # of length scales at their bounds
gp = process().fit(X, y)
btn = BTNRegressor(n_init=4, random_state=0).fit(X, y)

for name, model in {"Gaussian process": gp, "btnkm": btn}.items():
    mean, std = model.predict(X_new, return_std=True)
    error = np.sqrt(np.mean((mean - y_new) ** 2))
    nll = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_new - mean) / std) ** 2)
    held = np.mean(np.abs(y_new - mean) <= 1.645 * std)
    print(f"{name:17s} error {error:.3f}, NLL {nll:+.3f}, 90 % intervals hold {held:.1%}")

# %%
# The same question put to both, along the first input:

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
# This is what Gaussian processes are best at: few rows, spread evenly, a function that is
# equally smooth everywhere. There is little to gain over one.
#
# Tables as they come
# -------------------
#
# Measurements rarely are spread evenly. Here the same function is asked of inputs that come in
# other units: a concentration over four decades in place of the first, and hours until failure,
# mostly short, in place of the second. A kernel takes distances as they are, unless someone
# finds the right transformation of each column. ``BTNRegressor`` warps every input by its
# ranks.


def as_measured(X):
    """Return the same rows in the units in which they were written down."""
    return np.column_stack(
        [10 ** (4 * X[:, 0]), -50 * np.log1p(-0.999 * X[:, 1]), X[:, 2], X[:, 3]]
    )


X = rng.uniform(size=(300, 4))
y = f(X) + 0.15 * rng.standard_normal(300)
models = {"Gaussian process": process(), "btnkm": BTNRegressor(n_init=2, random_state=0)}
for name, model in models.items():
    for units, change in {"even": np.asarray, "as measured": as_measured}.items():
        error = np.mean((model.fit(change(X), y).predict(change(X_new)) - f(X_new)) ** 2) ** 0.5
        print(f"{name:17s} {units:12s} distance to the true f {error:.3f}")

# %%
# What rows cost
# --------------
#
# With few rows the Gaussian process is far quicker: a small matrix to invert, and nothing to
# choose between. But its time grows with the cube of the rows, and its memory with their
# square, so that a few thousand are the end of it; the other line is still rising slowly at a
# million (:doc:`/scale`). Two starts here; seconds are those of the machine that built this
# page, with one core.

sizes = (100, 200, 400, 800)
seconds = {"Gaussian process": [], "btnkm, two starts": []}
for n in sizes:
    X = rng.uniform(size=(n, 4))
    y = f(X) + 0.15 * rng.standard_normal(n)
    for name, model in zip(
        seconds, (process(), BTNRegressor(n_init=2, random_state=0)), strict=True
    ):
        begun = time.perf_counter()
        model.fit(X, y)
        seconds[name].append(time.perf_counter() - begun)

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
# What carries over, and what does not
# ------------------------------------
#
# ===================================  ====================================================
# ``GaussianProcessRegressor``         ``BTNRegressor``
# ===================================  ====================================================
# ``predict(X, return_std=True)``      the same; noise is part of ``std`` in both here
# ``sample_y(X, n_samples)``           the same: whole functions, with noise
# ``kernel_`` (length scales)          ``feature_importances_``, ``n_basis_``
# ``log_marginal_likelihood_value_``   ``lower_bound_``, a lower bound of it
# ``kernel=`` (what you know)          ``basis=`` of each input; see :doc:`/guide/parameters`
# ``alpha=`` of each row               ``sample_weight=`` in ``fit``
# ===================================  ====================================================
#
# Far from all rows a Gaussian process returns to its mean with the full prior variance. Here an
# input stays at the nearer end of its range, and so does the prediction: neither knows what is
# out there, and only one of them says so. And a kernel that is no product over inputs, such as
# one on distances in space, has no counterpart.
