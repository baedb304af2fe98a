"""
Prediction intervals
====================

A prediction is uncertain for two reasons. Observations have noise, which more rows do not reduce.
And the function is not known exactly, which more rows do reduce. The model reports both separately.
This example also checks the coverage of intervals, fits data with outliers and data whose noise
varies, and draws functions.
"""

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor
from btnkm.explain import conditional_coverage, plot_conditional_coverage, plot_noise_effects

rng = np.random.default_rng(3)


def response(x):
    """Return the true response of a sensor to a concentration."""
    return 1.6 * np.sin(0.9 * x) + 0.3 * x


# %%
# A region without data
# ---------------------
#
# A sensor was calibrated at 120 concentrations between 0 and 10, but none between 4.9 and 7.2. Four
# restarts are enough for a curve.

x = np.concatenate([rng.uniform(0, 4.9, 75), rng.uniform(7.2, 10, 45)])
y = response(x) + 0.25 * rng.standard_normal(len(x))
model = BTNRegressor(n_init=4, random_state=0).fit(x[:, None], y)

grid = np.linspace(0, 10, 300)
dist = dist_of_curve = model.predict_dist(grid[:, None])
draws = model.sample_y(grid[:, None], n_samples=200, random_state=0)

# %%
# ``model_std`` is the uncertainty about the curve, ``noise_std`` the standard deviation of the
# noise, and ``std`` that of an observation: the squares add up.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.8), width_ratios=[1.5, 1])
low, high = dist.interval(0.95).T
left.fill_between(grid, low, high, color="C0", alpha=0.15, label="95 % of new observations")
left.fill_between(
    grid,
    dist.mean - 1.96 * dist.model_std,
    dist.mean + 1.96 * dist.model_std,
    color="C0",
    alpha=0.4,
    label="95 % for the curve",
)
left.plot(grid, dist.mean, color="C0")
left.plot(grid, response(grid), "--", color="C1", linewidth=1.4, label="truth")
left.plot(x, y, ".", color="C5", markersize=4, alpha=0.7)
left.set(
    xlabel="concentration", ylabel="response", title="Uncertainty grows where data are missing"
)
left.legend(loc="upper left", fontsize=8.5)
right.plot(grid, dist.model_std, label="model_std")
right.plot(grid, dist.noise_std, label="noise_std")
right.plot(grid, dist.std, color="C5", linewidth=1.2, label="std")
right.set(xlabel="concentration", title="Two sources of uncertainty", ylim=(0, None))
right.legend(loc="lower left", bbox_to_anchor=(0.07, 0.34), fontsize=8.5)
plt.show()

# %%
# In the region without data the model takes a smooth path between both sides. The band there tends
# to be too narrow, because inputs are warped by their ranks, which brings the two sides closer
# together. A bump that lies entirely within the region would be missed.
#
# Coverage
# --------
#
# A 90 % interval should contain nine out of ten new observations. To measure this, we simulate
# eight tables with 150 rows of three inputs, and 400 new rows each. Fits have two restarts.

levels = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
coverages = []
for table in range(8):
    rng = np.random.default_rng(100 + table)
    X = rng.uniform(-1, 1, size=(550, 3))
    f = np.sin(3 * X[:, 0]) * (1 + X[:, 1]) + X[:, 2] ** 2
    y = f + 0.3 * rng.standard_normal(len(X))
    fitted = BTNRegressor(n_init=2, random_state=0).fit(X[:150], y[:150])
    dist = fitted.predict_dist(X[150:])
    below = dist.cdf(y[150:])
    coverages.append([np.mean(np.abs(below - 0.5) <= level / 2) for level in levels])
for level, coverage in zip(levels, np.mean(coverages, axis=0), strict=True):
    print(f"coverage of {level:4.0%} intervals: {coverage:.1%}")

# %%
# Outliers
# --------
#
# Now one row in twelve is an outlier. With Gaussian noise, outliers raise the noise level, and all
# intervals become wide. Student-t noise has heavy tails: the fit learns how heavy, and follows the
# other rows.

rng = np.random.default_rng(1)
x = rng.uniform(0, 10, 150)
y = response(x) + 0.25 * rng.standard_normal(len(x))
wild = rng.choice(len(x), len(x) // 12, replace=False)
y[wild] += rng.uniform(6, 14, len(wild)) * rng.choice([-1, 1], len(wild), p=[0.15, 0.85])

figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
for axis, likelihood in zip(axes, ("gaussian", "student_t"), strict=True):
    fitted = BTNRegressor(likelihood=likelihood, n_init=2, random_state=0).fit(x[:, None], y)
    dist = fitted.predict_dist(grid[:, None])
    low, high = dist.interval(0.9).T
    axis.fill_between(grid, low, high, color="C0", alpha=0.18, label="90 % of new observations")
    axis.plot(grid, dist.mean, color="C0", label="prediction")
    axis.plot(grid, response(grid), "--", color="C1", linewidth=1.4, label="truth")
    axis.plot(x, y, ".", color="C5", markersize=4, alpha=0.7)
    error = np.sqrt(np.mean((dist.mean - response(grid)) ** 2))
    axis.set(title=f'likelihood="{likelihood}"', xlabel="concentration")
    width = np.mean(high - low)
    print(f"{likelihood:10s} RMSE to the truth {error:.3f}, mean width of 90 % {width:.2f}")
print(fitted.likelihood_)
axes[0].set_ylabel("response")
axes[1].legend(loc="upper left", fontsize=8.5)
plt.show()

# %%
# For counts, use ``likelihood="negative_binomial"``: see :doc:`/guide/likelihoods`.
#
# Noise that varies
# -----------------
#
# The noise of this sensor grows with the concentration. The default, ``noise="auto"``, compares
# models with constant noise on held-out rows, sees that their errors vary in size, and lets the
# noise depend on the inputs. With constant noise, intervals are too wide on the left and too narrow
# on the right.

rng = np.random.default_rng(5)
x = rng.uniform(0, 10, 300)
spread = 0.06 * np.exp(0.28 * x)
y = response(x) + spread * rng.standard_normal(len(x))
x_new = rng.uniform(0, 10, 4000)
y_new = response(x_new) + 0.06 * np.exp(0.28 * x_new) * rng.standard_normal(len(x_new))

fits = {}
figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
for axis, noise in zip(axes, ("constant", "auto"), strict=True):
    fits[noise] = fitted = BTNRegressor(noise=noise, n_init=2, random_state=0).fit(x[:, None], y)
    low, high = fitted.predict_interval(grid[:, None], level=0.95).T
    axis.fill_between(grid, low, high, color="C0", alpha=0.18, label="95 % of new observations")
    axis.plot(grid, fitted.predict(grid[:, None]), color="C0", label="prediction")
    axis.plot(x, y, ".", color="C5", markersize=4, alpha=0.7)
    axis.set(title=f'noise="{noise}"', xlabel="concentration")
    low, high = fitted.predict_interval(x_new[:, None], level=0.95).T
    inside = (low <= y_new) & (y_new <= high)
    left, right = np.mean(inside[x_new < 3]), np.mean(inside[x_new > 7])
    print(f"{noise:8s} 95% intervals contain {left:.1%} below 3 and {right:.1%} above 7")
axes[0].set_ylabel("response")
axes[1].legend(loc="upper left", fontsize=8.5)
plt.show()

# %%
# ``explain.noise_effects`` returns the factor by which each value of an input multiplies the noise,
# relative to its average, and ``plot_noise_effects`` draws it. Here the truth is known.

(axis,) = plot_noise_effects(fitted)
axis.figure.set_size_inches(5.2, 3.4)
truth = 0.28 * (grid - np.mean(x))
axis.plot(grid, truth / np.log(2), "--", color="C1", linewidth=1.4, label="truth")
axis.set(title="", xlabel="concentration")
axis.legend(loc="upper left", fontsize=8.5)
plt.show()

# %%
# Do the intervals hold everywhere?
# ---------------------------------
#
# The new rows show it without the truth. ``conditional_coverage`` groups them by the predicted
# standard deviation and by each input, and names the groups whose coverage clearly differs. Grey
# bars are mean widths. With constant noise, all widths are about the same, but the errors are not.

figure, axes = plt.subplots(2, 2, figsize=(9.2, 6), sharey=True, layout="constrained")
for line, (noise, fitted) in zip(axes, fits.items(), strict=True):
    print(f"{noise}: {conditional_coverage(fitted, x_new[:1000, None], y_new[:1000]).conclusion}")
    plot_conditional_coverage(fitted, x_new[:1000, None], y_new[:1000], most=2, axes=line)
    for axis, what in zip(line, ("predicted spread", "concentration"), strict=True):
        axis.set_title(f'noise="{noise}", by {what}')
figure.supylabel("rows inside of 95 % intervals", fontsize=10)
plt.show()

# %%
# Draws of functions
# ------------------
#
# An interval describes one row. For a quantity that involves several rows, draw whole functions
# with ``sample_y``. An example is the mean response over the region without data. The errors of
# neighbouring rows are correlated there, so treating the rows as independent would make this mean
# seem much more certain than it is.

region = (grid > 4.9) & (grid < 7.2)
means = draws[region].mean(axis=0)
std = np.sqrt(np.sum(dist_of_curve.std[region] ** 2)) / region.sum()
print(f"from draws           {np.mean(means):.2f} ± {np.std(means):.2f}")
print(f"as independent rows  {dist_of_curve.mean[region].mean():.2f} ± {std:.2f}")
print(f"truth                {response(grid[region]).mean():.2f}")
