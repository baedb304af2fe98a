"""
A tensor train for a chain of steps
===================================

For most tables a sum of products, ``network="cp"``, is best. A *tensor train* is better if the
inputs form a chain, in which each step acts on the result of the steps before. Examples are
light through a stack of filters, or a signal through the stages of an amplifier. Such a function
is a product of matrices, one for each input. A sum of products would need many terms for it.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor, TensorTrain

# %%
# Light through plates
# --------------------
#
# We simulate light with two states of polarisation that passes five plates. Plate *d* rotates the
# light and dims one of the states, depending on a setting :math:`x_d` between −1 and 1. Each plate
# is a 2 × 2 matrix, and the final amplitude is a product of five matrices.


def amplitude(X):
    """Return the final amplitude: (n, 5) -> (n,)."""
    light = np.tile([1.0, 0.0], (len(X), 1))
    for d in range(X.shape[1]):
        angle = 0.9 * np.sin(2.0 * X[:, d] + d) + 0.5
        dim = 0.75 + 0.25 * np.tanh(2 * X[:, d])
        rotated = np.column_stack(
            [
                np.cos(angle) * light[:, 0] - np.sin(angle) * light[:, 1],
                np.sin(angle) * light[:, 0] + np.cos(angle) * light[:, 1],
            ]
        )
        light = rotated * np.column_stack([np.ones(len(X)), dim])
    return light[:, 0]


rng = np.random.default_rng(0)
X_new = rng.uniform(-1, 1, size=(3000, 5))
truth = amplitude(X_new)

# %%
# Here we know the order of the plates, and that matrices are full, so we say so. By default a
# tensor train also tries diagonal matrices and another order on held-out rows, which takes most of
# the time on small tables. Both networks are fitted without a sum of main effects
# (``structure="tensor"``), with two restarts and eight functions for each input.

common = {"structure": "tensor", "n_init": 2, "n_basis": 8, "random_state": 0}
networks = {
    "cp": {"network": "cp"},
    "tt": {"network": TensorTrain(order="given", cores="full"), "max_rank": 4},
}
sizes = (150, 300, 600, 1200)
errors = {name: [] for name in networks}
for n in sizes:
    X = rng.uniform(-1, 1, size=(n, 5))
    y = amplitude(X) + 0.05 * rng.standard_normal(n)
    for name, network in networks.items():
        start = time.perf_counter()
        model = BTNRegressor(**common, **network).fit(X, y)
        seconds = time.perf_counter() - start
        errors[name].append(np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)))
        weights = sum(factor.mean.size for factor in model.posterior_[0].factors)
        print(
            f"{n:5d} rows  {name}  RMSE {errors[name][-1]:.3f}  rank {model.rank_}  "
            f"{weights} weights  {seconds:.1f} s"
        )

figure, axis = plt.subplots(figsize=(6.4, 3.8))
for (name, values), colour in zip(errors.items(), ("C5", "C0"), strict=True):
    axis.loglog(sizes, values, "o-", color=colour, label=f'network="{name}"')
axis.axhline(
    np.std(truth), color="C1", linestyle="--", linewidth=1.2, label="standard deviation of f"
)
axis.set(
    xlabel="rows", ylabel="RMSE to the true f", title="A tensor train needs fewer rows for a chain"
)
axis.set_xticks(sizes, [str(n) for n in sizes])
axis.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
axis.minorticks_off()
axis.legend()
plt.show()

# %%
# ``rank_`` has a number for each of the four bonds between plates. With enough rows it is three:
# two for the states of the light, and one for the mean of y, which is subtracted before the fit.
# On tables that are not a chain, a tensor train takes several times as long, and is as
# accurate or less accurate. :doc:`/cp-vs-tt` compares both on nine data sets.
