"""
Classification
==============

A predicted probability of one half can mean that the classes overlap, or that there are no data.
``predict_proba`` averages the probability over the posterior. ``predict_proba_interval`` returns an
interval for it, which distinguishes the two cases.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from btnkm import BTNClassifier

X, y = make_moons(240, noise=0.25, random_state=0)
labels = np.array(["upper", "lower"])[y]  # labels may be text
model = BTNClassifier(random_state=0).fit(X, labels)
print("classes:", model.classes_)

# %%
# Left, the probability of the upper moon. Right, the width of its 95 % interval. It is widest at
# the ends of the moons and where both classes are equally likely, and beyond the range of the rows.

a, b = np.meshgrid(np.linspace(-1.9, 2.9, 110), np.linspace(-1.4, 1.9, 90))
grid = np.column_stack([a.ravel(), b.ravel()])
probability = model.predict_proba(grid)[:, 1].reshape(a.shape)
low, high = model.predict_proba_interval(grid, level=0.95).T
width = (high - low).reshape(a.shape)

figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
pictures = [
    (probability, "RdBu_r", "probability of upper"),
    (width, "YlGnBu", "width of its interval"),
]
for axis, (values, colours, title) in zip(axes, pictures, strict=True):
    filled = axis.contourf(a, b, values, levels=np.linspace(0, 1, 21), cmap=colours, alpha=0.85)
    axis.contour(a, b, probability, levels=[0.5], colors="#1f2937", linewidths=1.2)
    for name, colour, marker in (("lower", "#2b59c3", "o"), ("upper", "#c2331f", "s")):
        chosen = X[labels == name]
        axis.scatter(*chosen.T, s=13, c=colour, marker=marker, edgecolor="white", linewidth=0.5)
    axis.set(title=title.capitalize(), xlabel="$x_1$")
    axis.grid(visible=False)
    figure.colorbar(filled, ax=axis, ticks=[0, 0.25, 0.5, 0.75, 1])
axes[0].set_ylabel("$x_2$")
plt.show()

# %%
# Probabilities can be checked: of the rows with a predicted probability of 80 %, eight out of ten
# should belong to that class. We use 4,000 new rows:

X_new, y_new = make_moons(4000, noise=0.25, random_state=1)
p = model.predict_proba(X_new)[:, 1]
upper = y_new == 0
for low, high in ((0, 0.1), (0.1, 0.4), (0.4, 0.6), (0.6, 0.9), (0.9, 1.01)):
    chosen = (low <= p) & (p < high)
    print(
        f"predicted {low:3.0%} to {min(high, 1):4.0%}: {chosen.sum():5d} rows, "
        f"mean {p[chosen].mean():5.1%}, observed {upper[chosen].mean():5.1%}"
    )

# %%
# More than two classes
# ---------------------
#
# The wine data have three classes, thirteen inputs and 178 rows. A linear model is hard to beat
# here. With more than two classes, all classes share the components of one tensor. We use
# three-fold cross-validation.

X, y = load_wine(return_X_y=True)
methods = {
    "btnkm": BTNClassifier(n_init=2, random_state=0),
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
}
for name, method in methods.items():
    probabilities = np.zeros((len(y), 3))
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y):
        probabilities[test] = method.fit(X[train], y[train]).predict_proba(X[test])
    error = np.mean(probabilities.argmax(axis=1) != y)
    print(f"{name:20s} error {error:.1%}, log loss {log_loss(y, probabilities):.3f}")

# %%
# Rare classes
# ------------
#
# ``class_weight`` gives the probabilities for other class frequencies, for example balanced ones.
# The model is fitted to the rows as they are, and its log odds are shifted afterwards. The
# uncertainty about a rare class therefore stays correct.

rng = np.random.default_rng(0)
X = rng.normal(size=(1500, 2))
rare = rng.random(1500) < 1 / (1 + np.exp(5.0 - 2.5 * X[:, 0] * X[:, 1]))
for weight in (None, "balanced"):
    model = BTNClassifier(class_weight=weight, random_state=0).fit(X, rare)
    p = model.predict_proba([[1.2, 1.2]])[0, 1]
    low, high = model.predict_proba_interval([[1.2, 1.2]])[0]
    print(f"class_weight={weight!r:10}: {p:.0%} at (1.2, 1.2), between {low:.0%} and {high:.0%}")
print(f"frequency of the rare class: {rare.mean():.1%}")
