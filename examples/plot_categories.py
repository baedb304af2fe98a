"""
Categories and missing values
=============================

Columns of text and missing values need no preprocessing. A column of text is one input with a
function for each category. Missing values have an effect of their own.

The data are simulated: the rent of 1,500 flats. It depends on the size, more steeply in good
districts, on the year of construction, which is often missing, and on the landlord. There are 150
landlords, most of them with few flats.
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
premium = 45.0 * rng.standard_normal(150)  # of each landlord, in euros
owned = 1 / np.arange(4, 154)
flats = pd.DataFrame(
    {
        "size": rng.gamma(9, 7.5, n).clip(18, 190),
        "year": rng.choice(np.arange(1900, 2021), n).astype(float),
        "district": rng.choice(districts, n, p=[0.15, 0.2, 0.3, 0.25, 0.1]),
        "landlord": [f"landlord {k:03d}" for k in rng.choice(150, n, p=owned / owned.sum())],
    }
)
old = np.exp(-(((flats["year"] - 1965) / 22) ** 2))  # flats of the sixties are cheaper
rent = 11.0 * flats["size"] ** 0.9 * flats["district"].map(worth) * (1 - 0.22 * old)
rent += premium[flats["landlord"].str[-3:].astype(int)]
rent += 40.0 * rng.standard_normal(n)

# the year is missing more often where it lowers the rent
lost = rng.random(n) < 0.1 + 0.35 * old
flats.loc[lost, "year"] = np.nan
flats.loc[rng.random(n) < 0.05, "district"] = None
print(flats.head(5).to_string(index=False))
print(f"\nmissing: {flats.isna().mean().map('{:.0%}'.format).to_dict()}")

# %%
# Fit the table as it is
# ----------------------
#
# For comparison, we also fit a linear model to imputed, encoded and scaled columns. (Two restarts
# are enough to see the difference.)

X_train, X_test, y_train, y_test = train_test_split(flats, rent, test_size=500, random_state=0)
model = BTNRegressor(n_init=2, random_state=0).fit(X_train, y_train)

numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
text = OneHotEncoder(handle_unknown="ignore")
linear = make_pipeline(
    make_column_transformer((numbers, ["size", "year"]), (text, ["district", "landlord"])),
    RidgeCV(np.logspace(-2, 3, 20)),
).fit(X_train, y_train)


def rmse(prediction):
    """Return the root mean square error of the test rows."""
    return np.sqrt(np.mean((prediction - y_test) ** 2))


low, high = model.predict_interval(X_test, level=0.9).T
print(f"btnkm, RMSE         {rmse(model.predict(X_test)):6.1f} euros")
print(f"linear model, RMSE  {rmse(linear.predict(X_test)):6.1f} euros")
print(f"noise               {model.noise_std_:6.1f} euros (true: 40.0)")
print(f"coverage of 90 %    {np.mean((low <= y_test) & (y_test <= high)):6.1%}")

# %%
# Effects of categories
# ---------------------
#
# Left, the effect of each landlord on the rent of the same flat, with its interval, against the
# true effect. The effects of landlords with few flats are shrunk towards the average, and their
# intervals are wider. The strength of the shrinkage is learned from the data.

rows = X_train["landlord"].value_counts()
typical = pd.DataFrame(
    {"size": 65.0, "year": 2000.0, "district": "Nord", "landlord": rows.index.to_numpy()}
)
dist = model.predict_dist(typical)
effect = dist.mean - np.average(dist.mean, weights=rows)
true = premium[[int(name[-3:]) for name in rows.index]]
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
    xlabel="true effect in euros", ylabel="estimate, 90 % interval", title="Effects of landlords"
)

sizes = np.linspace(*X_train["size"].quantile([0.01, 0.99]), 100)
for k, district in enumerate(sorted(worth, key=worth.get, reverse=True)):
    line = pd.DataFrame({"size": sizes, "year": 2000.0, "district": district})
    line["landlord"] = rows.index[0]
    along = model.predict_dist(line)
    right.plot(sizes, along.mean, color=f"C{k}", label=district)
    band = 1.645 * along.model_std
    right.fill_between(sizes, along.mean - band, along.mean + band, color=f"C{k}", alpha=0.15)
right.set(xlabel="size in m²", ylabel="rent in euros", title="Size and district interact")
right.legend(fontsize=8.5)
plt.show()

# %%
# Unknown categories and missing values
# -------------------------------------
#
# An unknown landlord is predicted as an average one, with a wider interval. A missing year has the
# effect of missing years in training. The size was never missing in training, so a missing size is
# averaged over all sizes.

base = {"size": 65.0, "year": 2000.0, "district": "Nord", "landlord": rows.index[0]}
changes = {
    "all values known": {},
    "unknown landlord": {"landlord": "somebody new"},
    "missing year": {"year": np.nan},
    "missing size": {"size": np.nan},
}
cases = pd.DataFrame([base | change for change in changes.values()])
low, high = model.predict_interval(cases, level=0.9).T
for name, a, b in zip(changes, low, high, strict=True):
    print(f"{name:24s} {a:5.0f} to {b:5.0f} euros")
