"""Whether a change of the code changed results.

Record the predictions and ELBOs of the default estimators with one version of the package, then
with another, on the same machine, and compare::

    PYTHONPATH=before/src python -m benchmarks.unchanged record before.npz
    PYTHONPATH=src python -m benchmarks.unchanged record after.npz
    python -m benchmarks.unchanged compare before.npz after.npz

``--set noise=constant`` gives the regressors a parameter that the version before did not have.

The sets are the paper's four regression sets, with the paper's splits, and Spambase. BTNKM_DATA
names their folder (see benchmarks/README.md). BLAS uses one thread, as its sums depend on their
number. Only names that every version has are used.
"""

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.data import data_folder

REGRESSION = ("airfoil", "concrete", "energy", "yacht")
CLASSES = ("spambase",)
TOLERANCE = 1e-10


def measure(job):
    """Return predictions for the held-out rows, ELBOs and weights of a default fit.

    Parameters
    ----------
    job : tuple of (str, int, dict)
        The set, the number of the split, and parameters of the regressors.
    """
    import btnkm

    name, split, parameters = job
    table = np.genfromtxt(data_folder() / f"{name}.csv", delimiter=",", skip_header=1)
    X, y = table[:, :-1], table[:, -1]
    order = np.random.RandomState(split).permutation(len(y))
    train, test = np.split(order, [int(0.9 * len(y))])
    kind = btnkm.BTNClassifier if name in CLASSES else btnkm.BTNRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(random_state=0, n_jobs=1)
        if name not in CLASSES:
            model.set_params(**parameters)
        model.fit(X[train], y[train])
    if name in CLASSES:
        predictions = model.predict_proba(X[test])
    else:
        predictions = np.stack(model.predict(X[test], return_std=True))
    key = f"{name} {split}"
    return {
        f"{key} predictions": predictions,
        f"{key} ELBOs": np.append(model.lower_bounds_, model.lower_bound_),
        f"{key} weights": model.weights_,
    }


def record(path, n_splits, n_processes, parameters):
    """Write the results of all sets to a file."""
    sets = (*CLASSES, *REGRESSION)
    jobs = [(name, split, parameters) for name in sets for split in range(n_splits)]
    results = {}
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        for job, part in zip(jobs, pool.map(measure, jobs), strict=True):
            results |= part
            print(*job[:2], flush=True)
    np.savez(path, **results)


def compare(before, after):
    """Print the largest differences of two files, and return whether they are within tolerance."""
    before, after = np.load(before), np.load(after)
    missing = set(before.files) ^ set(after.files)
    if missing:
        print("only in one of them:", ", ".join(sorted(missing)))
    largest = {}
    for key in sorted(set(before.files) & set(after.files)):
        name, _, what = key.split(" ")
        a, b = before[key], after[key]
        away = np.inf
        if a.shape == b.shape:
            away = float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1.0), initial=0.0))
        largest[name, what] = max(largest.get((name, what), 0.0), away)
    for (name, what), away in largest.items():
        print(f"{name:10s} {what:12s} largest difference {away:.1e}")
    return not missing and max(largest.values()) <= TOLERANCE


def main(arguments=None):
    """Run the program, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unchanged", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="fit, and write the results to a file")
    recorder.add_argument("file")
    recorder.add_argument("--splits", type=int, default=10)
    recorder.add_argument("--processes", type=int, default=os.cpu_count())
    recorder.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    comparer = commands.add_parser("compare", help="compare two files; exits with 1 if they differ")
    comparer.add_argument("before")
    comparer.add_argument("after")
    given = parser.parse_args(arguments)
    if given.command == "compare":
        return int(not compare(given.before, given.after))
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    parameters = dict(pair.split("=", 1) for pair in given.set)
    record(given.file, given.splits, given.processes, parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
