"""
Many rows: files, streams, checkpoints
======================================

All that a fit needs of the rows are sums over them. So they may lie in files that are larger
than the memory, come batch by batch, or be spread over a cluster; the estimator is the same.
Sizes are small here, to keep this page quick: :doc:`/scale` has what millions of rows cost.
"""

import copy
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from btnkm import BTNRegressor


def trips(n, seed, turned=False):
    """Return n trips of a taxi: duration in minutes by distance, hour and rain. All made up."""
    rng = np.random.default_rng(seed)
    km, hour, rain = rng.gamma(2, 3, n), rng.uniform(0, 24, n), rng.exponential(1, n)
    rush = np.exp(-(((hour - 8) / 1.8) ** 2)) + 1.2 * np.exp(-(((hour - 17.5) / 2.2) ** 2))
    if turned:  # a bridge was closed: evenings are worse, mornings quiet
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
# A folder, a pattern or a list of Parquet files, and the name of the column to predict. Files
# are read twice; then the coordinates of the rows lie in one temporary file, eight bytes a
# number, and the rest of the memory is bounded by ``memory_limit`` (in GiB). One start and 15
# sweeps will do here.

options = {"n_init": 1, "max_iter": 15, "random_state": 0}
model = BTNRegressor(**options, memory_limit=0.5).fit(folder / "*.parquet", "minutes")
rows, score = model.history_[0]["rows"], model.score(new, "minutes")
print(f"from files:  {rows:,} rows, R² of new rows {score:.4f}")

# %%
# Anything that yields ``(X, y)`` each time it is gone through does as well: a database, a
# simulator, a ``numpy.memmap``. Rows are the same whatever they come in, and so is the result.


class Days:
    """Trips, one day after the other, each time they are asked for."""

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
# Killed, and going on
# --------------------
#
# With ``checkpoint=`` the state of the fit is on disk after every few sweeps. A callback stops
# this fit half-way, as a power cut would; the same line again goes on, to the result it would
# have had.

frame = trips(3_000, seed=0)
X, y = frame.drop(columns="minutes"), frame["minutes"]


class PowerCut(Exception):
    """What ends the fit."""


def pull_the_plug(entry):
    """Raise after the eighth sweep of the exact phase."""
    if entry["phase"] == "exact" and entry["sweep"] >= 18:
        raise PowerCut


place = folder / "fit.checkpoint"
try:
    BTNRegressor(**options, callback=pull_the_plug).fit(X, y, checkpoint=place, checkpoint_every=5)
except PowerCut:
    print(f"cut off; the checkpoint has {place.stat().st_size / 1024:.0f} KiB")
resumed = BTNRegressor(**options).fit(X, y, checkpoint=place, checkpoint_every=5)
whole = BTNRegressor(**options).fit(X, y)
print(f"resumed = uninterrupted: {np.array_equal(resumed.predict(X), whole.predict(X))}")

# %%
# A stream that drifts
# --------------------
#
# ``partial_fit`` takes batches. Of a short stream the rows are kept, and all is decided anew
# each time as many have come as there were. Of a long one only what rows have said is kept, as
# sums, and their posterior is the prior of the next batch. ``forget=0.8`` lets what was said
# fade, by a fifth with every batch; 1, the default, forgets nothing. After ten batches a bridge
# is closed. Each batch is predicted first and learned from afterwards, by the stream and by a
# copy that stopped learning at that point.

stream, stopped = BTNRegressor(**options), None
errors = {"goes on learning": [], "stopped when the bridge was closed": []}
for batch in range(1, 19):
    rows = trips(300, seed=1000 + batch, turned=batch > 10)
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
axis.axhline(2.0, color="C1", linewidth=1.2, linestyle="--", label="noise: no one does better")
axis.axvline(10.5, color="C5", linewidth=1)
axis.annotate(
    "the bridge is closed", (10.3, 0.5), xycoords=("data", "axes fraction"), ha="right", color="C5"
)
axis.set(xlabel="batch of 300 trips", ylabel="error in minutes, before learning", ylim=(0, None))
axis.set_title("A stream follows what drifts")
axis.legend(loc="upper left")
plt.show()

# %%
# On a GPU, hand over arrays of torch or CuPy; on a cluster, a Dask frame. Both are in the
# :doc:`guide </guide/scale>`.
