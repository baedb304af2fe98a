"""
A basis of your own
===================

What an input can do is said by its basis: a handful of functions. The default, Chebyshev
polynomials, suits anything smooth. Where you know more about an input, say so: here that a day
has no end, and that 23:59 is next to 0:00.
"""

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor
from btnkm.bases import Basis

# %%
# A class with one method
# -----------------------
#
# ``phi`` takes the input, already scaled to run from −1 to 1, and returns one column for each
# function. The first functions should be the smoothest, and together they should be able to
# make a constant. That is all; the products of functions that the engine works with follow from
# ``phi``.


class Periodic(Basis):
    """1, then cosines and sines of growing frequency: what is at −1 is also at 1."""

    def __init__(self, n_waves=6):
        self.n_waves = n_waves

    def phi(self, x):
        """Return the functions at x: (n,) -> (n, 2 n_waves + 1)."""
        turns = np.pi * x[:, None] * np.arange(1, self.n_waves + 1)
        waves = np.stack([np.cos(turns), np.sin(turns)], axis=2).reshape(len(x), -1)
        return np.column_stack([np.ones_like(x), waves])


# %%
# The load of a grid
# ------------------
#
# Demand for power by hour and temperature, made up; readings of the small hours are few. The
# peak is at night where it is cold, which is an interaction: the curve of the hour changes with
# the weather.


def demand(hour, cold):
    """Return the true demand in GW."""
    day = 6 * np.exp(-((((hour - 19 + 12) % 24 - 12) / 3.2) ** 2))
    night = 5 * cold * np.exp(-((((hour - 0.5 + 12) % 24 - 12) / 2.6) ** 2))
    return 30 + day + night + 2 * cold


rng = np.random.default_rng(2)
n = 260
hour = np.concatenate([rng.uniform(3, 21.5, n - 20), rng.uniform(21.5, 27, 20) % 24])
cold = rng.uniform(0, 1, n)
X = np.column_stack([hour, cold])
y = demand(hour, cold) + 0.6 * rng.standard_normal(n)

models = {
    "default basis": BTNRegressor(n_init=4, random_state=0),
    "basis={0: Periodic()}": BTNRegressor(basis={0: Periodic()}, n_init=4, random_state=0),
}
clock = np.linspace(0, 24, 240, endpoint=False)
asked = np.column_stack([clock, np.full(240, 0.8)])

figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.7), sharey=True)
for axis, (name, model) in zip(axes, models.items(), strict=True):
    dist = model.fit(X, y).predict_dist(asked)
    for shift in (0, 24):  # two days, to see midnight
        low, high = (dist.mean + k * 1.645 * dist.model_std for k in (-1, 1))
        axis.fill_between(clock + shift, low, high, color="C0", alpha=0.25)
        axis.plot(clock + shift, dist.mean, color="C0", label=None if shift else "prediction")
        truth = demand(clock, 0.8)
        axis.plot(clock + shift, truth, "--", color="C1", lw=1.4, label=None if shift else "truth")
    axis.axvline(24, color="C5", linewidth=1)
    axis.set(title=name, xlabel="hour", xticks=[0, 6, 12, 18, 24, 30, 36, 42, 48])
    axis.set_xticklabels(["0", "6", "12", "18", "0", "6", "12", "18", "24"])
    hours = np.linspace(0, 24, 60, endpoint=False)
    everywhere = np.array([[h, c] for h in hours for c in (0.2, 0.5, 0.8)])
    error = np.sqrt(np.mean((model.predict(everywhere) - demand(*everywhere.T)) ** 2))
    night = (everywhere[:, 0] < 3) | (everywhere[:, 0] > 21)
    of_night = np.sqrt(
        np.mean((model.predict(everywhere[night]) - demand(*everywhere[night].T)) ** 2)
    )
    print(f"{name:22s} distance to the truth {error:.2f} GW, at night {of_night:.2f} GW")
axes[0].set_ylabel("demand in GW where it is cold")
axes[0].legend(loc="upper left")
plt.show()

# %%
# The default does not know that the two ends of a day meet, and jumps at midnight; the one of
# our own cannot. It shares what little was measured before and after midnight.
#
# What else to know
# -----------------
#
# - A number is *warped* before the basis sees it, half by its rank and half by its value, so
#   that crowded values get more room. Hours that are spread evenly stay nearly as they are; a
#   basis that depends on exact distances should be given values that are spread evenly.
# - Functions that come later are taken as rougher, and priors hold them back more.
# - ``BSpline``, ``Fourier`` and ``Polynomial`` are there already (:ref:`the list <api-bases>`).
#   A basis whose products span few functions can say so with ``psi`` and a table, and is then
#   as fast as those.
# - It is an estimator of scikit-learn, so its parameters can be searched over:
#   ``GridSearchCV(..., {"basis": [{0: Periodic(3)}, {0: Periodic(6)}]})``.
