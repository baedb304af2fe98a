"""
Intervals that mean something
=============================

Two things make a prediction uncertain: observations scatter, whatever we know, and we do not
know the function. The first is noise, and more rows do not remove it. The second is ours, and
they do. A model that tells them apart can say where to measure next.
"""

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor

rng = np.random.default_rng(3)


def response(x):
    """Return the true curve of a sensor against the concentration it is held into."""
    return 1.6 * np.sin(0.9 * x) + 0.3 * x


# %%
# A gap in the data
# -----------------
#
# A sensor was calibrated at 120 concentrations between 0 and 10, and hardly ever around 6. Four
# starts are enough for a curve.

x = np.concatenate([rng.uniform(0, 4.9, 75), rng.uniform(7.2, 10, 45)])
y = response(x) + 0.25 * rng.standard_normal(len(x))
model = BTNRegressor(n_init=4, random_state=0).fit(x[:, None], y)

grid = np.linspace(0, 10, 300)
dist = dist_of_gap = model.predict_dist(grid[:, None])
draws = model.sample_y(grid[:, None], n_samples=200, random_state=0)

# %%
# ``model_std`` is what is not known of the curve, ``noise_std`` the scatter around it, and
# ``std`` both together: their squares add up.

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
left.set(xlabel="concentration", ylabel="response", title="Where rows are missing, it is less sure")
left.legend(loc="upper left", fontsize=8.5)
right.plot(grid, dist.model_std, label="model_std")
right.plot(grid, dist.noise_std, label="noise_std")
right.plot(grid, dist.std, color="C5", linewidth=1.2, label="std")
right.set(xlabel="concentration", title="Two kinds of not knowing", ylim=(0, None))
right.legend(loc="lower left", bbox_to_anchor=(0.07, 0.34), fontsize=8.5)
plt.show()

# %%
# In the gap the model takes the smoothest way through that the rows on both sides allow. A bump
# that fits into the gap as a whole is not foreseen by it, and the band there is rather too
# narrow than too wide: an input is warped by its ranks, which brings the two sides of a gap
# nearer to each other.
#
# Do they hold?
# -------------
#
# An interval of 90 % should hold nine of ten new observations: no fewer, or it lies; not many
# more, or it is of no use. Many small tables of the same kind tell. Each has 150 rows of three
# inputs, and its own 400 new rows; a fit has two starts.

levels = np.array([0.5, 0.8, 0.9, 0.95, 0.99])
held = []
for table in range(8):
    rng = np.random.default_rng(100 + table)
    X = rng.uniform(-1, 1, size=(550, 3))
    f = np.sin(3 * X[:, 0]) * (1 + X[:, 1]) + X[:, 2] ** 2
    y = f + 0.3 * rng.standard_normal(len(X))
    fitted = BTNRegressor(n_init=2, random_state=0).fit(X[:150], y[:150])
    dist = fitted.predict_dist(X[150:])
    below = dist.cdf(y[150:])
    held.append([np.mean(np.abs(below - 0.5) <= level / 2) for level in levels])
for level, share in zip(levels, np.mean(held, axis=0), strict=True):
    print(f"intervals of {level:4.0%} hold {share:.1%}")

# %%
# Outliers
# --------
#
# One row in twelve is a blunder of the recorder. Gaussian noise has to explain blunders as
# noise, and intervals become wide everywhere; Student-t noise has room for them in its tails,
# learns how heavy these are, and stays with the other rows.

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
    print(f"{likelihood:10s} distance to the truth {error:.3f}, width of 90 % {width:.2f}")
print(fitted.likelihood_)
axes[0].set_ylabel("response")
axes[1].legend(loc="upper left", fontsize=8.5)
plt.show()

# %%
# Counts have a likelihood of their own, ``"negative_binomial"``: see :doc:`/guide/likelihoods`.
#
# Whole functions
# ---------------
#
# Intervals speak of one row at a time. A question that joins rows is one for draws of whole
# functions: ``sample_y`` returns them, with noise on top. The mean response over the gap, for
# example, where noise averages out and all that is left is what is not known of the curve. Rows
# taken as independent of each other would pretend to know that mean far too well.

gap = (grid > 4.9) & (grid < 7.2)
means = draws[gap].mean(axis=0)
alone = np.sqrt(np.sum(dist_of_gap.std[gap] ** 2)) / gap.sum()
print(f"mean over the gap   {np.mean(means):.2f}, give or take {np.std(means):.2f}")
print(f"rows by themselves  {dist_of_gap.mean[gap].mean():.2f}, give or take {alone:.2f}")
print(f"in truth            {response(grid[gap]).mean():.2f}")
