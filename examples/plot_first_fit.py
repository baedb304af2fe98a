"""
First fit
=========

This example fits a model with default settings, checks its predictions on held-out rows, and plots
the result.

The data are simulated: 600 ten-minute averages of the power of a wind turbine. The power depends
smoothly on wind speed, air density, gusts and the direction of the rotor, with interactions.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from btnkm import BTNRegressor

NOISE = 45.0  # kW


def power(frame):
    """Return the true power in kW."""
    effective = frame["speed"] * np.cos(np.radians(frame["yaw"])) * (1 + frame["gusts"] ** 2)
    density = 1.01 / (1.0 + 0.0037 * frame["temperature"])
    return 2000 * density / (1 + np.exp(-(effective - 9.0) / 1.35))


rng = np.random.default_rng(0)
n = 600
X = pd.DataFrame(
    {
        "speed": rng.normal(9.0, 2.4, n).clip(2),
        "temperature": rng.uniform(-10, 35, n),
        "gusts": rng.beta(2, 6, n),
        "yaw": rng.normal(0, 16, n),
        "humidity": rng.uniform(20, 100, n),  # no effect
    }
)
truth = power(X)
y = truth + NOISE * rng.standard_normal(n)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=200, random_state=0)

# %%
# The fit
# -------
#
# The default settings need no scaling, no kernel and no number of components. The fit finds the
# rank, the basis functions of each input, and the noise. It runs several random restarts, in
# parallel if there are several cores, and averages their posteriors.

model = BTNRegressor(random_state=0).fit(X_train, y_train)
importances = ", ".join(
    f"{name} {value:.1%}" for name, value in zip(X.columns, model.feature_importances_, strict=True)
)
print(f"importance   {importances}")
print(f"noise        {model.noise_std_:.1f} kW   (true: {NOISE:.1f} kW)")
print(f"stop reason  {model.stop_reason_}")

# %%
# Predictions for new rows
# ------------------------
#
# A prediction is a distribution with a mean and intervals. The coverage of an interval on new rows
# should equal its level. The error cannot fall below the noise.

dist = model.predict_dist(X_test)
rmse = np.sqrt(np.mean((dist.mean - y_test) ** 2))
print(f"RMSE on new rows           {rmse:.1f} kW")
print(f"RMSE to the true power     {np.sqrt(np.mean((dist.mean - power(X_test)) ** 2)):.1f} kW")
for level in (0.5, 0.9, 0.95):
    low, high = dist.interval(level).T
    inside = np.mean((low <= y_test) & (y_test <= high))
    print(f"coverage of {level:.0%} intervals  {inside:.1%}")

# %%
# With 200 test rows, chance alone changes the coverage of 50 % intervals by about 7 points, and
# that of 90 % and 95 % intervals by 3 to 4. The wide intervals are correct within that. The narrow
# ones cover too few rows: the posterior is an approximation and may be too narrow (:doc:`limits
# </guide/limits>`). Check intervals on held-out rows, at the levels that you use.

# %%
# Plot the model
# --------------
#
# Left, the prediction along one input, with the others at their medians. The dark band contains the
# true curve with 90 % probability; more rows make it narrower. The light band contains 90 % of new
# observations; it cannot be narrower than the noise.

line = pd.DataFrame({name: np.full(200, X_train[name].median()) for name in X.columns})
line["speed"] = np.linspace(X_train["speed"].min(), X_train["speed"].max(), 200)
along = model.predict_dist(line)
low, high = along.interval(0.9).T

figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=[1.7, 1])
left.plot(
    X_train["speed"],
    y_train,
    ".",
    color="C5",
    alpha=0.45,
    markersize=4,
    label="training rows",
)
left.fill_between(
    line["speed"], low, high, color="C0", alpha=0.16, label="90 % of new observations"
)
band = 1.645 * along.model_std
left.fill_between(
    line["speed"],
    along.mean - band,
    along.mean + band,
    color="C0",
    alpha=0.45,
    label="90 % for the curve",
)
left.plot(line["speed"], along.mean, color="C0", label="prediction")
left.plot(line["speed"], power(line), "--", color="C1", linewidth=1.4, label="truth")
left.set(xlabel="wind speed in m/s", ylabel="power in kW", title="Power at median conditions")
left.legend(loc="upper left")

importance, std = model.feature_importances_, model.feature_importances_std_
order = np.argsort(importance)
right.barh(np.array(X.columns)[order], 100 * importance[order], color="C0", height=0.6)
right.errorbar(
    100 * importance[order], np.arange(len(order)), xerr=100 * std[order], fmt="none", ecolor="C5"
)
for position, value in enumerate(100 * importance[order]):
    right.annotate(
        f"{value:.1f} %", (value, position), (6, 0), textcoords="offset points", va="center"
    )
right.set(xlabel="importance in %", title="Importance of the inputs", xlim=(0, 112))
right.grid(axis="y", visible=False)
plt.show()

# %%
# The importance of an input is its total Sobol index, normalised: the fraction of the variance of f
# that involves the input. Humidity has no effect, and its importance is close to 0.
#
# Next: :ref:`intervals <sphx_glr_gallery_plot_intervals.py>`, or :doc:`the model </guide/model>`.
