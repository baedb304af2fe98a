"""
A custom basis
==============

The basis of an input is the set of functions that describe its effect. The default, Chebyshev
polynomials, suits smooth effects. This example defines a periodic basis for the hour of the day,
because 23:59 is close to 0:00.
"""

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor
from btnkm.bases import Basis

# %%
# A class with one method
# -----------------------
#
# ``phi`` takes the input, scaled to the range from −1 to 1, and returns one column for each
# function. Smooth functions should come first, since priors shrink later functions more. A
# constant must be in the span of the functions.


class Periodic(Basis):
    """A constant, then cosines and sines of growing frequency, with a period of 2."""

    def __init__(self, n_waves=6):
        self.n_waves = n_waves

    def phi(self, x):
        """Return the functions at x: (n,) -> (n, 2 n_waves + 1)."""
        turns = np.pi * x[:, None] * np.arange(1, self.n_waves + 1)
        waves = np.stack([np.cos(turns), np.sin(turns)], axis=2).reshape(len(x), -1)
        return np.column_stack([np.ones_like(x), waves])


# %%
# Demand for power
# ----------------
#
# We simulate the demand for power by hour and temperature, with few measurements at night. On cold
# days there is a peak at night, so hour and temperature interact.
#
# A basis sets the functions of the low-rank tensor. We therefore fit this structure only. By
# default the model would also use the full tensor, which has a kernel instead.


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

options = {"structure": "tensor", "n_init": 4, "random_state": 0}
models = {
    "default basis": BTNRegressor(**options),
    "basis={0: Periodic()}": BTNRegressor(basis={0: Periodic()}, **options),
}
clock = np.linspace(0, 24, 240, endpoint=False)
line = np.column_stack([clock, np.full(240, 0.8)])

figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.7), sharey=True)
for axis, (name, model) in zip(axes, models.items(), strict=True):
    dist = model.fit(X, y).predict_dist(line)
    for shift in (0, 24):  # two days, to show midnight
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
    print(f"{name:22s} RMSE to the truth {error:.2f} GW, at night {of_night:.2f} GW")
axes[0].set_ylabel("demand in GW on a cold day")
axes[0].legend(loc="upper left")
plt.show()

# %%
# With the default basis the prediction jumps at midnight. The periodic basis is continuous, and
# combines the few measurements before and after midnight.
#
# Notes
# -----
#
# - Numbers are *warped* before they reach the basis, half by rank and half by value. Evenly
#   spread hours hardly change. If a basis depends on exact distances, its input should be evenly
#   spread.
# - ``BSpline``, ``Fourier`` and ``Polynomial`` are built in (:ref:`list of bases <api-bases>`).
# - If products of the functions lie in the span of few functions, define ``psi`` and a table. The
#   basis is then as fast as the built-in ones.
# - Parameters of a basis can be searched:
#   ``GridSearchCV(..., {"basis": [{0: Periodic(3)}, {0: Periodic(6)}]})``.
