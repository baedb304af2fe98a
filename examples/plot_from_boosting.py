"""
Coming from gradient boosting
=============================

Boosted trees are quick, take anything, and are hard to beat where effects have steps. Where
they are smooth, a model that is smooth needs fewer rows; and it comes with a distribution,
where boosting takes a model for each quantile. Here both get the same table, with a column of
text in it.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from btnkm import BTNRegressor

# %%
# Yield of a crop
# ---------------
#
# By rain, warmth, nitrogen and the variety sown, made up and smooth: more nitrogen helps up to
# a point, which depends on the rain, and varieties differ in how they like it warm.

VARIETIES = {"Amber": 0.2, "Boreal": -1.0, "Citrine": 0.9, "Dawn": 0.0, "Ember": 0.5}


def harvest(frame):
    """Return the true yield in tonnes per hectare."""
    warm = frame["warmth"] - frame["variety"].map(VARIETIES).astype(float)
    wet = frame["rain"] / 300
    nitrogen = frame["nitrogen"] / 100
    return 4 + 2.5 * np.exp(-(warm**2)) * wet + 2.2 * nitrogen * wet - 1.3 * nitrogen**2


def fields(n, seed):
    """Return n fields, and what was harvested there."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "rain": rng.gamma(9, 35, n),
            "warmth": rng.normal(0, 1, n),
            "nitrogen": rng.uniform(0, 200, n),
            "variety": pd.Categorical(rng.choice(list(VARIETIES), n)),
            "slope": rng.exponential(5, n),  # of no effect
        }
    )
    return frame, harvest(frame) + 0.4 * rng.standard_normal(n)


X_new, y_new = fields(4000, seed=1)

# %%
# Side by side
# ------------
#
# Boosting at its defaults needs to be told that a column is a category, and for 90 % intervals
# two more models, one for either quantile. ``BTNRegressor`` is at its defaults but for two
# starts instead of eight.

rows = []
for n in (200, 500, 1500):
    X, y = fields(n, seed=0)
    begun = time.perf_counter()
    boosting = HistGradientBoostingRegressor(categorical_features="from_dtype").fit(X, y)
    ends = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=q, categorical_features="from_dtype"
        ).fit(X, y)
        for q in (0.05, 0.95)
    ]
    taken = time.perf_counter() - begun
    low, high = (end.predict(X_new) for end in ends)
    rows.append(["boosting", n, boosting.predict(X_new), low, high, taken])

    begun = time.perf_counter()
    btn = BTNRegressor(n_init=2, random_state=0).fit(X, y)
    taken = time.perf_counter() - begun
    low, high = btn.predict_interval(X_new, level=0.9).T
    rows.append(["btnkm", n, btn.predict(X_new), low, high, taken])

print("method     rows  error   90 % intervals hold  mean width  seconds")
for name, n, mean, low, high, taken in rows:
    error = np.sqrt(np.mean((mean - y_new) ** 2))
    held = np.mean((low <= y_new) & (y_new <= high))
    print(
        f"{name:9s} {n:5d}  {error:.3f}   {held:18.1%}  {np.mean(high - low):10.2f}  {taken:7.1f}"
    )
print("noise            0.400                90.0%        1.32")

# %%
# Quantiles by boosting are fitted to the training rows, and hold them too well: new ones are
# held less often. Boosting is quicker, at any size.
#
# What the two have learned
# -------------------------

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
# Where boosting stays ahead
# --------------------------
#
# Steps are what trees are made of. Rules with thresholds, such as what a field gets in
# subsidies, are better learned by trees, and the more so the more rows there are:


def subsidy(frame):
    """Return what the rules grant: steps, and pairs of conditions."""
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
        print(f"rules, {n:4d} rows: {name:9s} distance to the truth {error:.3f}")

# %%
# :doc:`/compare` has both on real data, beside other methods.
