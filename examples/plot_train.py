"""
A tensor train for a chain of steps
===================================

Most tables want a sum of products, ``network="cp"``. One kind does not: inputs that act one
after the other, each on what the earlier ones have left behind. Light through a stack of
filters, a signal through stages of an amplifier, a person through stages of a form. Such a
function is a product of matrices, one for each input, and a sum of products needs many terms
for it. A *tensor train* has that form built in.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from btnkm import BTNRegressor, TensorTrain

# %%
# Light through plates
# --------------------
#
# Light with two states of polarisation passes five plates. Plate *d* turns it by an angle and
# dims one of the states; how much of either depends on a setting :math:`x_d` between −1 and 1.
# Each plate is a matrix of 2 × 2, and what arrives in the end is a product of five.


def arrives(X):
    """Return the amplitude that arrives: (n, 5) -> (n,)."""
    light = np.tile([1.0, 0.0], (len(X), 1))
    for d in range(X.shape[1]):
        angle = 0.9 * np.sin(2.0 * X[:, d] + d) + 0.5
        dim = 0.75 + 0.25 * np.tanh(2 * X[:, d])
        turned = np.column_stack(
            [
                np.cos(angle) * light[:, 0] - np.sin(angle) * light[:, 1],
                np.sin(angle) * light[:, 0] + np.cos(angle) * light[:, 1],
            ]
        )
        light = turned * np.column_stack([np.ones(len(X)), dim])
    return light[:, 0]


rng = np.random.default_rng(0)
X_new = rng.uniform(-1, 1, size=(3000, 5))
truth = arrives(X_new)

# %%
# The tensor train is given what we know here: full matrices, and the order of the plates as that
# of the columns. Plain ``network="tt"`` also tries diagonal matrices and another order, and
# compares them on held-out rows, which takes most of the time on small tables. Both networks
# stand alone (``structure="tensor"``), with two restarts and as many functions of each input.

common = {"structure": "tensor", "n_init": 2, "n_basis": 8, "random_state": 0}
networks = {
    "cp": {"network": "cp"},
    "tt": {"network": TensorTrain(cores="full", order="given"), "max_rank": 4},
}
sizes = (150, 300, 600, 1200)
errors = {name: [] for name in networks}
for n in sizes:
    X = rng.uniform(-1, 1, size=(n, 5))
    y = arrives(X) + 0.05 * rng.standard_normal(n)
    for name, network in networks.items():
        begun = time.perf_counter()
        model = BTNRegressor(**common, **network).fit(X, y)
        seconds = time.perf_counter() - begun
        errors[name].append(np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)))
        weights = sum(factor.mean.size for factor in model.posterior_[0].factors)
        print(
            f"{n:5d} rows  {name}  error {errors[name][-1]:.3f}  rank {model.rank_}  "
            f"{weights} weights  {seconds:.1f} s"
        )

figure, axis = plt.subplots(figsize=(6.4, 3.8))
for (name, values), colour in zip(errors.items(), ("C5", "C0"), strict=True):
    axis.loglog(sizes, values, "o-", color=colour, label=f'network="{name}"')
axis.axhline(np.std(truth), color="C1", linestyle="--", linewidth=1.2, label="spread of f")
axis.set(
    xlabel="rows", ylabel="distance to the true f", title="A train needs fewer rows for a chain"
)
axis.set_xticks(sizes, [str(n) for n in sizes])
axis.set_yticks([0.02, 0.05, 0.1, 0.2], ["0.02", "0.05", "0.1", "0.2"])
axis.minorticks_off()
axis.legend()
plt.show()

# %%
# ``rank_`` has a number for each of the four bonds between plates, and with enough rows it
# comes out as three: the two states of the light, and one index for the mean of y, which is
# taken out before the fit and has to be put back. On tables that are no chain the train costs
# several times as much and gains nothing, or loses; :doc:`/cp-vs-tt` has nine data sets on
# which both were measured.
