"""
Explain what was found
======================

Diabetes: 442 patients, ten measurements of each, and how far the disease had come a year later.
The table comes with scikit-learn. A model of it can be taken apart exactly: what each input
does, which matter, which work together, and why one patient gets the prediction that he gets.
Nothing here is sampled or approximated but for the posterior itself.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from btnkm import BTNRegressor
from btnkm.explain import (
    explain_local,
    plot_calibration,
    plot_effects,
    plot_importances,
    plot_interactions,
    plot_local,
    sobol_indices,
    summary,
)

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X = X.rename(
    columns={
        "bp": "blood pressure",
        "s1": "cholesterol",
        "s2": "LDL",
        "s3": "HDL",
        "s4": "cholesterol / HDL",
        "s5": "log triglycerides",
        "s6": "blood sugar",
    }
)
X["sex"] = X["sex"].map({1.0: "a", 2.0: "b"})  # the data do not say which is which
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=142, random_state=1)
model = BTNRegressor(random_state=0).fit(X_train, y_train)
print(summary(model))

# %%
# What each input does
# --------------------
#
# A main effect is the average of f with one input at a value, less the average of all: what
# that value adds. The band is 95 % of the posterior. Ticks below are deciles of the training
# rows.

plot_effects(model, most=6)
plt.show()

# %%
# Which inputs matter
# -------------------
#
# The dark part of a bar is what an input explains of the variance of f by itself, the light
# part what it explains together with others. Beside it, pairs by what they add beyond both.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
plot_importances(model, ax=left)
plot_interactions(model, most=8, ax=right)
plt.show()
print(sobol_indices(model).to_frame().head(4).round(3))

# %%
# Why this patient
# ----------------
#
# Contributions are Shapley values, and add up to the prediction exactly. Their error bars say
# how far the model knows them. The patient with the highest prediction of those it has not
# seen:

prediction = model.predict(X_test)
highest = int(np.argmax(prediction))
plot_local(model, X_test.iloc[[highest]])
plt.show()

local = explain_local(model, X_test)
total = local.base + local.contributions.sum(axis=1)
print(f"largest difference to predict(): {np.max(np.abs(total - prediction)):.1e}")
table = pd.DataFrame({"value": X_test.iloc[highest], "adds": local.contributions[highest].round(1)})
print(table.loc[table["adds"].abs().sort_values(ascending=False).index].head(4).to_string())

# %%
# Can it be trusted?
# ------------------
#
# On the 142 patients that the fit has not seen: left, whether intervals hold what they say,
# with the range in which they should if all is well; right, whether the observations are spread
# evenly over their predicted distributions.

plot_calibration(model, X_test, y_test)
plt.show()

# %%
# One page for others
# -------------------
#
# ``model.report("diabetes.html", X_test, y_test)`` writes all of this as one page, with a panel
# that predicts in the browser; such a report is part of this site:
#
# .. raw:: html
#
#    <p><a href="../report.html">Open a report</a></p>
#
# Everything behind the pictures is data, with ``to_dict()`` for JSON;
# :doc:`/guide/explanations` has the formulas.
