"""
Coming from gradient boosting
=============================

Boosted trees are fast, need little preprocessing, and are hard to beat if effects have steps. If
effects are smooth, a smooth model needs fewer rows. It also predicts a distribution, where boosting
needs a model for each quantile. Here both are fitted to the same table, which has a column of text.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from btnkm import BTNRegressor

# %%
# Smooth effects
# --------------
#
# We simulate the yield of a crop by rain, temperature, nitrogen and variety. Nitrogen helps up to
# a point that depends on the rain, and each variety has its own best temperature.

VARIETIES = {"Amber": 0.2, "Boreal": -1.0, "Citrine": 0.9, "Dawn": 0.0, "Ember": 0.5}


def harvest(frame):
    """Return the true yield in tonnes per hectare."""
    warm = frame["warmth"] - frame["variety"].map(VARIETIES).astype(float)
    wet = frame["rain"] / 300
    nitrogen = frame["nitrogen"] / 100
    return 4 + 2.5 * np.exp(-(warm**2)) * wet + 2.2 * nitrogen * wet - 1.3 * nitrogen**2


def fields(n, seed):
    """Return n fields and their yields."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "rain": rng.gamma(9, 35, n),
            "warmth": rng.normal(0, 1, n),
            "nitrogen": rng.uniform(0, 200, n),
            "variety": pd.Categorical(rng.choice(list(VARIETIES), n)),
            "slope": rng.exponential(5, n),  # no effect
        }
    )
    return frame, harvest(frame) + 0.4 * rng.standard_normal(n)


X_new, y_new = fields(4000, seed=1)

# %%
# Side by side
# ------------
#
# Both have default settings, except for the two restarts of ``BTNRegressor``. For 90 % intervals,
# boosting needs two more models, one for each quantile.

rows = []
for n in (200, 500, 1500):
    X, y = fields(n, seed=0)
    start = time.perf_counter()
    boosting = HistGradientBoostingRegressor(categorical_features="from_dtype").fit(X, y)
    ends = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=q, categorical_features="from_dtype"
        ).fit(X, y)
        for q in (0.05, 0.95)
    ]
    seconds = time.perf_counter() - start
    low, high = (end.predict(X_new) for end in ends)
    rows.append(["boosting", n, boosting.predict(X_new), low, high, seconds])

    start = time.perf_counter()
    btn = BTNRegressor(n_init=2, random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    low, high = btn.predict_interval(X_new, level=0.9).T
    rows.append(["btnkm", n, btn.predict(X_new), low, high, seconds])

print("method     rows  RMSE    coverage of 90 %     mean width  seconds")
for name, n, mean, low, high, seconds in rows:
    error = np.sqrt(np.mean((mean - y_new) ** 2))
    coverage = np.mean((low <= y_new) & (y_new <= high))
    print(
        f"{name:9s} {n:5d}  {error:.3f}   {coverage:18.1%}  {np.mean(high - low):10.2f}  "
        f"{seconds:7.1f}"
    )
print("noise            0.400                90.0%        1.32")

# %%
# The quantiles of boosting overfit the training rows, so their coverage on new rows is too low.
# Boosting is faster at any size.
#
# The learned effect of nitrogen
# ------------------------------

line = pd.concat([X.iloc[:1]] * 300, ignore_index=True)
line = line.assign(rain=320.0, warmth=0.0, nitrogen=np.linspace(0, 200, 300))
figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
dist = btn.predict_dist(line)
low, high = dist.interval(0.9).T
pictures = {
    "HistGradientBoostingRegressor": (boosting.predict(line), *(end.predict(line) for end in ends)),
    "BTNRegressor": (dist.mean, low, high),
}
for axis, (name, (mean, low, high)) in zip(axes, pictures.items(), strict=True):
    axis.fill_between(line["nitrogen"], low, high, color="C0", alpha=0.18, label="90 %")
    axis.plot(line["nitrogen"], mean, color="C0", label="prediction")
    axis.plot(line["nitrogen"], harvest(line), "--", color="C1", linewidth=1.4, label="truth")
    axis.set(title=f"{name}, 1,500 rows", xlabel="nitrogen in kg/ha")
axes[0].set_ylabel("yield in t/ha")
axes[0].legend(loc="lower left")
plt.show()

# %%
# Where boosting is better
# ------------------------
#
# Trees represent steps exactly. They are better for rules with thresholds, such as those of
# subsidies, especially with many rows:


def subsidy(frame):
    """Return a subsidy with thresholds, and with pairs of conditions."""
    wet, rich = frame["rain"] > 300, frame["nitrogen"] > 120
    steep, cold = frame["slope"] > 6, frame["warmth"] < 0.5
    return 4.0 + 2.0 * (wet & rich) + 1.5 * steep + 2.0 * (cold & ~steep)


rng = np.random.default_rng(2)
for n in (500, 1500):
    X, _ = fields(n, seed=0)
    y = subsidy(X) + 0.4 * rng.standard_normal(n)
    models = {
        "boosting": HistGradientBoostingRegressor(categorical_features="from_dtype"),
        "btnkm": BTNRegressor(n_init=2, random_state=0),
    }
    for name, model in models.items():
        error = np.sqrt(np.mean((model.fit(X, y).predict(X_new) - subsidy(X_new)) ** 2))
        print(f"rules, {n:4d} rows: {name:9s} RMSE to the truth {error:.3f}")

# %%
# :doc:`/compare` compares both, and other methods, on real data.
