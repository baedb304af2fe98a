"""
Large data: files, streams, checkpoints
=======================================

A fit needs only sums over the rows. The rows may be in files that are larger than memory, come in
batches, or be distributed over a cluster. The estimator is the same. The data here are small, to
keep this page fast; :doc:`/scale` has measurements for millions of rows.
"""

import copy
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from btnkm import BTNRegressor


def trips(n, seed, closed=False):
    """Simulate n taxi trips: duration in minutes by distance, hour and rain."""
    rng = np.random.default_rng(seed)
    km, hour, rain = rng.gamma(2, 3, n), rng.uniform(0, 24, n), rng.exponential(1, n)
    rush = np.exp(-(((hour - 8) / 1.8) ** 2)) + 1.2 * np.exp(-(((hour - 17.5) / 2.2) ** 2))
    if closed:  # a bridge was closed: more traffic in the evening, less in the morning
        rush = 2.2 * np.exp(-(((hour - 19) / 2.5) ** 2))
    minutes = 4 + km * (1.9 + 1.6 * rush) * (1 + 0.12 * rain) + rng.normal(0, 2.0, n)
    return pd.DataFrame({"km": km, "hour": hour, "rain": rain, "minutes": minutes})


folder = Path(tempfile.mkdtemp())
for day in range(4):
    trips(5_000, seed=day).to_parquet(folder / f"day-{day}.parquet")
new = trips(2_000, seed=99)

# %%
# Files
# -----
#
# Pass a folder, a pattern or a list of Parquet files, and the name of the target column. Files are
# read twice. The preprocessed rows are kept in a temporary file, and ``memory_limit`` (in GiB)
# limits the memory of the fit. One restart and 15 sweeps are enough here.

options = {"n_init": 1, "max_iter": 15, "random_state": 0}
model = BTNRegressor(**options, memory_limit=0.5).fit(folder / "*.parquet", "minutes")
rows, score = model.history_[0]["rows"], model.score(new, "minutes")
print(f"from files:  {rows:,} rows, R² of new rows {score:.4f}")

# %%
# You can also pass any iterable of batches ``(X, y)``, for example from a database. It is iterated
# over several times. The result does not depend on how the rows are stored.


class Days:
    """Batches of trips, one for each day."""

    def __iter__(self):
        for path in sorted(folder.glob("*.parquet")):
            frame = pd.read_parquet(path)
            yield frame.drop(columns="minutes"), frame["minutes"]


again = BTNRegressor(**options, memory_limit=0.5).fit(Days())
difference = np.abs(
    model.predict(new.drop(columns="minutes")) - again.predict(new.drop(columns="minutes"))
)
print(f"from batches: predictions differ by at most {difference.max():.1e} minutes")

# %%
# Checkpoints
# -----------
#
# With ``checkpoint=`` the state of the fit is saved every few sweeps. Below, a callback interrupts
# the fit, as a power cut would. The same call then resumes it, with the same result as without
# interruption.

frame = trips(3_000, seed=0)
X, y = frame.drop(columns="minutes"), frame["minutes"]


class PowerCut(Exception):
    """Interrupts the fit."""


def interrupt(entry):
    """Raise after the eighth sweep of the exact phase."""
    if entry["phase"] == "exact" and entry["sweep"] >= 18:
        raise PowerCut


place = folder / "fit.checkpoint"
try:
    BTNRegressor(**options, callback=interrupt).fit(X, y, checkpoint=place, checkpoint_every=5)
except PowerCut:
    print(f"interrupted; the checkpoint has {place.stat().st_size / 1024:.0f} KiB")
resumed = BTNRegressor(**options).fit(X, y, checkpoint=place, checkpoint_every=5)
whole = BTNRegressor(**options).fit(X, y)
print(f"resumed = uninterrupted: {np.array_equal(resumed.predict(X), whole.predict(X))}")

# %%
# A stream that drifts
# --------------------
#
# ``partial_fit`` takes one batch at a time. The rows of a short stream are kept, and the model is
# fitted again each time their number has doubled. For a long stream only sums over the rows are
# kept: the posterior becomes the prior of the next batch. With ``forget=0.8`` past batches lose a
# fifth of their weight with every new batch; the default of 1 forgets nothing.
#
# After ten batches a bridge is closed, which changes the travel times. Each batch is first
# predicted and then used for an update. A copy of the model gets no updates after the closure.

stream, stopped = BTNRegressor(**options), None
errors = {"updated with every batch": [], "no updates after the closure": []}
for batch in range(1, 19):
    rows = trips(300, seed=1000 + batch, closed=batch > 10)
    X, y = rows.drop(columns="minutes"), rows["minutes"]
    for name, model in zip(errors, (stream, stopped), strict=True):
        known = model is not None and hasattr(model, "posterior_")
        error = np.sqrt(np.mean((model.predict(X) - y) ** 2)) if known else np.nan
        errors[name].append(error)
    stream.partial_fit(X, y, forget=0.8)
    if batch == 10:
        stopped = copy.deepcopy(stream)

figure, axis = plt.subplots()
for (name, values), colour in zip(errors.items(), ("C0", "C5"), strict=True):
    axis.plot(np.arange(1, 19), values, "o-", color=colour, markersize=4, label=name)
axis.axhline(2.0, color="C1", linewidth=1.2, linestyle="--", label="noise")
axis.axvline(10.5, color="C5", linewidth=1)
axis.annotate(
    "bridge closed", (10.3, 0.5), xycoords=("data", "axes fraction"), ha="right", color="C5"
)
axis.set(xlabel="batch of 300 trips", ylabel="RMSE in minutes, before the update", ylim=(0, None))
axis.set_title("Adapting to a change")
axis.legend(loc="upper left")
plt.show()

# %%
# For a GPU, pass arrays of torch or CuPy; for a cluster, a Dask DataFrame. The :doc:`guide
# </guide/scale>` describes both.
