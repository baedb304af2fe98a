"""
First fit
=========

A wind turbine makes power from wind. How much depends on the speed of the wind, on how thick
the air is, on how gusty it is, and on how well the blades face it: smoothly, and not each by
itself. Here are 600 ten-minute averages, made up so that we know the truth, with the noise that
such averages have.

We fit a model without choosing anything, look at what it says of rows it has not seen, and then
at how it got there.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from btnkm import BTNRegressor

NOISE = 45.0  # kW


def power(frame):
    """Return the true power in kW: a curve of the speed, scaled by density and by misalignment."""
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
        "humidity": rng.uniform(20, 100, n),  # of no effect
    }
)
truth = power(X)
y = truth + NOISE * rng.standard_normal(n)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=200, random_state=0)

# %%
# The fit
# -------
#
# No scaling, no kernel, no number of components: the defaults find the rank, the functions that
# each input needs, and the noise. Eight random starts run one after the other (or side by side,
# where there are cores for them), and their posteriors are averaged.

model = BTNRegressor(random_state=0).fit(X_train, y_train)
print(f"components             {model.rank_}")
shares = ", ".join(
    f"{name} {share:.1%}" for name, share in zip(X.columns, model.feature_importances_, strict=True)
)
print(f"share of the variance  {shares}")
print(f"noise, found           {model.noise_std_:.1f} kW   (true: {NOISE:.1f} kW)")
print(f"the fit ended because  {model.stop_reason_}")

# %%
# What it says of new rows
# ------------------------
#
# A prediction is a distribution. Its mean is the guess, and its intervals should hold as many
# of the new observations as they say. The error cannot fall below the noise, so that is what to
# compare with, and not zero.

dist = model.predict_dist(X_test)
rmse = np.sqrt(np.mean((dist.mean - y_test) ** 2))
print(f"error on new rows      {rmse:.1f} kW")
print(f"distance to the truth  {np.sqrt(np.mean((dist.mean - power(X_test)) ** 2)):.1f} kW")
for level in (0.5, 0.9, 0.95):
    low, high = dist.interval(level).T
    inside = np.mean((low <= y_test) & (y_test <= high))
    print(f"{level:.0%} intervals hold     {inside:.1%} of the new rows")

# %%
# With 200 rows chance alone moves the share that 50 % intervals hold by some 7 points, and that of
# 90 % and 95 % intervals by 3 to 4. The wide intervals are right within that. The narrow ones hold
# too few: this model is a little surer than it should be, as posteriors of this kind may be
# (:doc:`limits </guide/limits>`). So check intervals on rows held out, at the levels you use.

# %%
# The picture
# -----------
#
# Along one input, with the others at their medians: the dark band is where the curve itself
# lies with 90 % probability, the light one where 90 % of new observations would be. More rows
# would narrow the first. The second ends at the noise.

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
    label="rows, other conditions too",
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

share, spread = model.feature_importances_, model.feature_importances_std_
order = np.argsort(share)
right.barh(np.array(X.columns)[order], 100 * share[order], color="C0", height=0.6)
right.errorbar(
    100 * share[order], np.arange(len(order)), xerr=100 * spread[order], fmt="none", ecolor="C5"
)
for place, value in enumerate(100 * share[order]):
    right.annotate(
        f"{value:.1f} %", (value, place), (6, 0), textcoords="offset points", va="center"
    )
right.set(xlabel="share of the variance of f in %", title="What matters", xlim=(0, 112))
right.grid(axis="y", visible=False)
plt.show()

# %%
# The share of an input is that of the variance of f it has a part in, taken as if inputs were
# independent. Humidity has no effect here, and the model says so.
#
# Next: :ref:`what the intervals mean <sphx_glr_gallery_plot_intervals.py>`, or :doc:`the
# mathematics </guide/model>`.
