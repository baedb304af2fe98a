"""Fits on a CUDA device: speed, and differences from the CPU: ``python -m benchmarks.gpu``.

Rows are created on the device and stay there. Every line of the output is a JSON record. Needs
torch with CUDA; CuPy is checked if it is installed.
"""

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.core.arrays import host

SMALL = {"n_basis": 8, "max_rank": 4, "n_init": 1, "max_iter": 12, "random_state": 0}


def bandwidth(torch):
    """Return bytes per second, read and written, of a product of two large arrays."""
    a = torch.rand(2**28, dtype=torch.float64, device="cuda")
    out = torch.empty_like(a)
    seconds = []
    for _ in range(6):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.mul(a, a, out=out)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return 2 * 8 * a.numel() / statistics.median(seconds[1:])


def differences(convert):
    """Return the largest differences from predictions with NumPy, by kind of model."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (3000, 4))
    f = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2]
    y = f + 0.1 * rng.standard_normal(len(f))
    mixed = X.copy()
    mixed[rng.random(X.shape) < 0.05] = np.nan
    mixed[:, 3] = np.round(3.0 * mixed[:, 3])
    categorical = {"basis": {3: "categorical"}}
    cases = {
        "gaussian": (BTNRegressor(**SMALL), y),
        "missing values and categories": (BTNRegressor(**categorical, **SMALL), y),
        "anchored": (BTNRegressor(solver=Solver(anchored=True), **SMALL), y),
        "tensor train": (
            BTNRegressor(network=TensorTrain(cores="full", order="given"), **SMALL),
            y,
        ),
        "student_t": (BTNRegressor(likelihood="student_t", **SMALL), y),
        "two classes": (BTNClassifier(**SMALL), (y > 0).astype(int)),
        "three classes": (BTNClassifier(**SMALL), np.digitize(y, [-0.5, 0.5])),
    }
    largest = {}
    for name, (model, target) in cases.items():
        predictions = []
        table = mixed if name == "missing values and categories" else X
        for to in (np.asarray, convert):
            model.fit(to(table), to(target))
            predict = model.predict_proba if hasattr(model, "classes_") else model.predict
            predictions.append(host(predict(to(table))))
        largest[name] = float(np.max(np.abs(predictions[1] - predictions[0])))
    return largest


def sweeps(torch, n, inputs, m, rank, dtype, count):
    """Fit ``count`` exact sweeps; return seconds and memory."""
    random = torch.Generator(device="cuda").manual_seed(0)
    X = 2.0 * torch.rand(n, inputs, dtype=dtype, device="cuda", generator=random) - 1.0
    noise = torch.randn(n, dtype=dtype, device="cuda", generator=random)
    y = torch.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.3 * noise
    model = BTNRegressor(
        basis="chebyshev",
        n_basis=m,
        max_rank=rank,
        n_init=1,
        max_iter=count,
        solver=Solver(prune=False, anchored=False),
        tol=0.0,
        random_state=0,
    )
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    model.fit(X, y)
    total = time.perf_counter() - begin
    # without the sweeps of a sample of the rows, which are fitted first
    exact = [e for e in model.history_ if e["phase"] == "exact" and e["rows"] == n]
    ends = [entry["seconds"] for entry in exact]
    each = [after - before for before, after in pairwise(ends)]
    held = slice(0, min(n, 200_000))
    error = float(torch.mean((model.predict(X[held]) - y[held]) ** 2)) ** 0.5
    return {
        "rows": n,
        "inputs": inputs,
        "n_basis": m,
        "rank": rank,
        "precision": str(dtype).removeprefix("torch."),
        "sweep_seconds": statistics.median(each),
        "sweep_seconds_most": max(each),
        "exact_sweeps": count,
        "exact_seconds": ends[-1],
        "fit_seconds": total,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "rmse": error,
        "noise_std": model.noise_std_,
    }


def main():
    """Run all measurements and print a record for each."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--output", type=Path, help="a file for the records, too")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.gpu must run where torch sees a CUDA device, got none.")
    records = []

    def write(record):
        records.append(record)
        print(json.dumps(record), flush=True)
        if options.output:
            options.output.write_text("".join(json.dumps(r) + "\n" for r in records))

    speed = bandwidth(torch)
    versions = {"torch": torch.__version__, "numpy": np.__version__}
    device = torch.cuda.get_device_name()
    write({"kind": "machine", "device": device, "bytes_per_second": speed, **versions})
    write(
        {"kind": "difference", "library": "torch"}
        | differences(lambda a: torch.asarray(a, device="cuda"))
    )
    try:
        import cupy
    except ImportError:
        pass
    else:
        write({"kind": "difference", "library": "cupy"} | differences(cupy.asarray))
    for dtype in (torch.float64, torch.float32):
        torch.cuda.empty_cache()
        record = sweeps(torch, options.rows, 20, 20, 10, dtype, options.sweeps)
        # the least that a sweep moves: products on both sides of a mode are read and one is
        # written; its functions are computed, read twice, and not kept
        numbers = 20 * (3 * 65 + 3 * 39)
        size = 8 if dtype == torch.float64 else 4
        record["bandwidth_seconds"] = options.rows * numbers * size / speed
        write({"kind": "sweeps"} | record)


if __name__ == "__main__":
    main()
