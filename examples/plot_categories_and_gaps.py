"""
Categories, gaps, many levels
=============================

Real tables have text in them, and holes. Both may stay: a column of text is one input with one
function for each level, however many there are, and a missing value is a typical value plus an
effect of being missing. There is nothing to encode, impute or scale.

The table: 1,500 flats, made up. The rent follows the size, more steeply in good districts; the
year it was built, which is often not known; and the landlord, of which there are 150 with few
flats each.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from btnkm import BTNRegressor

rng = np.random.default_rng(0)
n = 1500
districts = ["Altstadt", "Hafen", "Nord", "Süd", "Tal"]
worth = {"Altstadt": 1.5, "Hafen": 1.15, "Nord": 0.85, "Süd": 1.0, "Tal": 0.7}
greed = 45.0 * rng.standard_normal(150)  # of each landlord, in euros
owned = 1 / np.arange(4, 154)
flats = pd.DataFrame(
    {
        "size": rng.gamma(9, 7.5, n).clip(18, 190),
        "year": rng.choice(np.arange(1900, 2021), n).astype(float),
        "district": rng.choice(districts, n, p=[0.15, 0.2, 0.3, 0.25, 0.1]),
        "landlord": [f"landlord {k:03d}" for k in rng.choice(150, n, p=owned / owned.sum())],
    }
)
old = np.exp(-(((flats["year"] - 1965) / 22) ** 2))  # nobody likes the sixties
rent = 11.0 * flats["size"] ** 0.9 * flats["district"].map(worth) * (1 - 0.22 * old)
rent += greed[flats["landlord"].str[-3:].astype(int)]
rent += 40.0 * rng.standard_normal(n)

# the year is missing in a fifth of the rows, mostly where it would not help to know it
lost = rng.random(n) < 0.1 + 0.35 * old
flats.loc[lost, "year"] = np.nan
flats.loc[rng.random(n) < 0.05, "district"] = None
print(flats.head(5).to_string(index=False))
print(f"\nmissing: {flats.isna().mean().map('{:.0%}'.format).to_dict()}")

# %%
# Fit it as it is
# ---------------
#
# The comparison is what one would do otherwise: impute, encode, scale, and a linear model. (Two
# starts are enough to see the difference.)

X_train, X_test, y_train, y_test = train_test_split(flats, rent, test_size=500, random_state=0)
model = BTNRegressor(n_init=2, random_state=0).fit(X_train, y_train)

numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
levels = OneHotEncoder(handle_unknown="ignore")
linear = make_pipeline(
    make_column_transformer((numbers, ["size", "year"]), (levels, ["district", "landlord"])),
    RidgeCV(np.logspace(-2, 3, 20)),
).fit(X_train, y_train)


def rmse(prediction):
    """Return the root mean square error of the test rows."""
    return np.sqrt(np.mean((prediction - y_test) ** 2))


low, high = model.predict_interval(X_test, level=0.9).T
print(f"btnkm             {rmse(model.predict(X_test)):6.1f} euros")
print(f"imputed, linear   {rmse(linear.predict(X_test)):6.1f} euros")
print(f"noise, found      {model.noise_std_:6.1f} euros, true 40.0")
print(f"90 % intervals    {np.mean((low <= y_test) & (y_test <= high)):6.1%} of the test rows")

# %%
# What it made of the levels
# --------------------------
#
# One flat, asked of every landlord: the effect of each, with its interval, against the truth. A
# landlord with many flats is known well; one with few stays near the average, and the interval
# says how far off that may be. The more the levels of a column differ in truth, the less they
# are pulled together: that, too, is learned.

rows = X_train["landlord"].value_counts()
typical = pd.DataFrame(
    {"size": 65.0, "year": 2000.0, "district": "Nord", "landlord": rows.index.to_numpy()}
)
dist = model.predict_dist(typical)
effect = dist.mean - np.average(dist.mean, weights=rows)
true = greed[[int(name[-3:]) for name in rows.index]]
true = true - np.average(true, weights=rows)

figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.9))
left.errorbar(
    true,
    effect,
    yerr=1.645 * dist.model_std,
    fmt="none",
    ecolor="C0",
    alpha=0.25,
    elinewidth=1,
)
left.scatter(
    true, effect, s=6 + 2.2 * rows, color="C0", alpha=0.8, edgecolor="white", linewidth=0.5
)
left.axline((0, 0), slope=1, color="C5", linewidth=1, linestyle="--")
left.set(
    xlabel="true effect in euros", ylabel="found, with 90 %", title="Landlords, large: many flats"
)

sizes = np.linspace(*X_train["size"].quantile([0.01, 0.99]), 100)
for k, district in enumerate(sorted(worth, key=worth.get, reverse=True)):
    asked = pd.DataFrame({"size": sizes, "year": 2000.0, "district": district})
    asked["landlord"] = rows.index[0]
    along = model.predict_dist(asked)
    right.plot(sizes, along.mean, color=f"C{k}", label=district)
    band = 1.645 * along.model_std
    right.fill_between(sizes, along.mean - band, along.mean + band, color=f"C{k}", alpha=0.15)
right.set(xlabel="size in m²", ylabel="rent in euros", title="The size counts more in the Altstadt")
right.legend(fontsize=8.5)
plt.show()

# %%
# Rows that are unlike any other
# ------------------------------
#
# A landlord never seen is an average one, with an interval as wide as landlords differ. A year
# that is missing is what years that were missing in training have shown. And a size that is
# missing, which training never saw, is the average over all sizes.

base = {"size": 65.0, "year": 2000.0, "district": "Nord", "landlord": rows.index[0]}
questions = {
    "a flat like others": {},
    "a landlord never seen": {"landlord": "somebody new"},
    "its year unknown": {"year": np.nan},
    "its size unknown": {"size": np.nan},
}
asked = pd.DataFrame([base | change for change in questions.values()])
low, high = model.predict_interval(asked, level=0.9).T
for name, a, b in zip(questions, low, high, strict=True):
    print(f"{name:24s} {a:5.0f} to {b:5.0f} euros")
