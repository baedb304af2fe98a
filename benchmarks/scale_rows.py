"""Rows on disk or on a cluster: ``python -m benchmarks.scale_rows disk``, ``spill`` or ``dask``.

``disk`` fits Parquet files and measures the memory of its process. ``spill`` compares recomputing
the moments of rows with reading them from disk. ``dask`` fits the same rows on clusters of one and
two worker processes, with one thread each. Records are added to
``benchmarks/results/scale-rows.jsonl``.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.pages import RESULTS
from benchmarks.runs.machine import PeakMemory, cpu_model, threads, versions
from btnkm import BTNRegressor, Solver

INPUTS, FILE_ROWS, NOISE = 10, 1_000_000, 0.3
SETTINGS = {"n_init": 1, "solver": Solver(warm_sweeps=4), "tol": 0.0, "random_state": 0}


def rows(n, seed):
    """Return inputs and targets; five of the ten inputs matter."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, INPUTS))
    f = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + np.exp(X[:, 3]) * X[:, 4]
    return X, f + NOISE * rng.standard_normal(n)


def sweep_seconds(model, n):
    """Return the median seconds of a sweep of all rows."""
    ends = [e["seconds"] for e in model.history_ if e["rows"] == n and e["phase"] == "exact"]
    return statistics.median([b - a for a, b in pairwise([0.0, *ends])])


def measure_disk(n, sweeps, limit):
    """Write Parquet files, fit them, and return a record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(prefix="btnkm-") as folder:
        for k, start in enumerate(range(0, n, FILE_ROWS)):
            X, y = rows(min(FILE_ROWS, n - start), k)
            columns = {f"x{j}": X[:, j] for j in range(INPUTS)}
            pq.write_table(pa.table(columns | {"y": y}), Path(folder) / f"{k:04d}.parquet")
        model = BTNRegressor(**SETTINGS, max_iter=sweeps, memory_limit=limit, n_jobs=2)
        del X, y, columns
        with PeakMemory() as memory:
            begin = time.perf_counter()
            model.fit(folder, "y")
            seconds = time.perf_counter() - begin
    X, y = rows(100_000, 10**6)
    return {
        "kind": "disk",
        "rows": n,
        "memory_limit": limit,
        "peak_gib": memory.mb / 1024,
        "fit_seconds": seconds,
        "sweeps": sweeps,
        "sweep_seconds": sweep_seconds(model, n),
        "rank": model.rank_,
        "rmse": float(np.sqrt(np.mean((model.predict(X) - y) ** 2))),
        "noise": NOISE,
    }


def measure_spill(n, sweeps):
    """Return the time to recompute the moments of a row, and to read and write them on disk.

    If moments do not fit in memory, the update of an input recomputes those of all others. On disk,
    it would read the products on both sides and write one of them.
    """
    X, y = rows(n, 0)
    limit = 0.04 + 320 * n / 2**30  # room for coordinates, but not for products
    model = BTNRegressor(**SETTINGS, max_iter=sweeps, memory_limit=limit, n_jobs=2).fit(X, y)
    updates = len(model.posterior_[0].modes)
    rank = int(np.max(model.ranks_))
    product = 8 * (rank * (rank + 1) // 2 + rank)  # bytes
    write, read = disk_seconds()
    return {
        "kind": "spill",
        "rows": n,
        "inputs": INPUTS,
        "rank": rank,
        "again_us": 1e6 * sweep_seconds(model, n) / (n * updates),
        "spilled_us": 1e6 * product * (2 * read + write),
        "written_gb_per_second": 1e-9 / write,
        "read_gb_per_second": 1e-9 / read,
    }


def disk_seconds(parcels=128):
    """Return the seconds to write a byte to the temporary folder, and to read it from disk."""
    parcel = np.random.default_rng(0).bytes(2**24)
    with tempfile.TemporaryFile(prefix="btnkm-", buffering=0) as file:
        begin = time.perf_counter()
        for _ in range(parcels):
            file.write(parcel)
        os.fsync(file.fileno())
        written = time.perf_counter()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        middle = time.perf_counter()
        while file.read(len(parcel)):
            pass
        end = time.perf_counter()
    size = parcels * len(parcel)
    return (written - begin) / size, (end - middle) / size


def measure_dask(n, sweeps, workers):
    """Fit rows on a cluster with this number of processes, and return a record."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    size = n // 8
    parts = [dask.delayed(rows, nout=2)(size, k) for k in range(8)]
    X = da.concatenate([da.from_delayed(x, (size, INPUTS), dtype=float) for x, _ in parts])
    y = da.concatenate([da.from_delayed(t, (size,), dtype=float) for _, t in parts])
    cluster = LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    )
    model = BTNRegressor(**SETTINGS, max_iter=sweeps, memory_limit=4.0)
    with cluster, Client(cluster):
        begin = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - begin
    return {
        "kind": "dask",
        "rows": 8 * size,
        "workers": workers,
        "fit_seconds": seconds,
        "sweeps": sweeps,
        "sweep_seconds": sweep_seconds(model, 8 * size),
    }


def main():
    """Run the measurement and add its records to the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_rows", description=__doc__)
    parser.add_argument("what", choices=("disk", "spill", "dask"))
    parser.add_argument(
        "--rows", type=int, help="default: 20 million (disk), 250,000 (spill), 2 million (dask)"
    )
    parser.add_argument("--sweeps", type=int, default=4, help="of all rows")
    parser.add_argument("--limit", type=float, default=1.4, help="memory_limit of disk, in GiB")
    options = parser.parse_args()

    def write(record):
        about = {"cpu": cpu_model(), "threads": threads(), "versions": versions()}
        record |= {"timestamp": datetime.now(UTC).isoformat(timespec="seconds"), **about}
        print(json.dumps(record), flush=True)
        with (RESULTS / "scale-rows.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    if options.what == "disk":
        write(measure_disk(options.rows or 20_000_000, options.sweeps, options.limit))
        return
    for _ in range(3):
        if options.what == "spill":
            write(measure_spill(options.rows or 250_000, options.sweeps))
            continue
        for workers in (1, 2):
            write(measure_dask(options.rows or 2_000_000, options.sweeps, workers))


if __name__ == "__main__":
    main()
