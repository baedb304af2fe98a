"""
Explanations
============

This example explains a model of the diabetes data of scikit-learn: ten measurements of 442
patients, and the progression of the disease after one year. It shows the effects of the inputs,
their importance, their interactions, and the contributions to a single prediction. All of these
are exact for the given posterior, except for the uncertainty of the importances, which is sampled.
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
X["sex"] = X["sex"].map({1.0: "a", 2.0: "b"})  # the data set does not document the codes
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=142, random_state=1)
model = BTNRegressor(random_state=0).fit(X_train, y_train)
print(summary(model))

# %%
# Effects
# -------
#
# The main effect of an input is the average prediction with this input at a given value, minus the
# overall average. The band is a 95 % interval. Ticks mark deciles of the training rows.

plot_effects(model, most=6)
plt.show()

# %%
# Importances and interactions
# ----------------------------
#
# Left, the Sobol indices. The dark part of a bar is the fraction of the variance of f that the
# input explains alone, the light part is due to interactions with other inputs. Right, the pairs
# with the largest interactions.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
plot_importances(model, ax=left)
plot_interactions(model, most=8, ax=right)
plt.show()
print(sobol_indices(model).to_frame().head(4).round(3))

# %%
# A single prediction
# -------------------
#
# The contributions are Shapley values and add up to the prediction exactly. Their error bars show
# their uncertainty. Here is the test patient with the highest prediction:

prediction = model.predict(X_test)
highest = int(np.argmax(prediction))
plot_local(model, X_test.iloc[[highest]])
plt.show()

local = explain_local(model, X_test)
total = local.base + local.contributions.sum(axis=1)
print(f"largest difference from predict(): {np.max(np.abs(total - prediction)):.1e}")
table = pd.DataFrame(
    {"value": X_test.iloc[highest], "contribution": local.contributions[highest].round(1)}
)
print(table.loc[table["contribution"].abs().sort_values(ascending=False).index].head(4).to_string())

# %%
# Calibration
# -----------
#
# On the 142 test patients: left, the coverage of the intervals, with the range that is expected by
# chance. Right, the distribution of the observations within their predicted distributions, which
# should be uniform.

plot_calibration(model, X_test, y_test)
plt.show()

# %%
# Report
# ------
#
# ``model.report("diabetes.html", X_test, y_test)`` writes all of this to one HTML page, with a
# panel that predicts in the browser:
#
# .. raw:: html
#
#    <p><a href="../report.html">Open a report</a></p>
#
# All plots are also available as data, with ``to_dict()`` for JSON. The guide has
# :doc:`the formulas </guide/explanations>`.
