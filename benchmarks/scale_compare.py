"""btnkm beside other libraries, from a thousand rows to a million: error, density, time, memory."""

from importlib.metadata import version

import numpy as np

from benchmarks.accuracy import fit_and_score

SIZES = (1_000, 10_000, 100_000, 1_000_000)
#: Data sets of so many training rows.
SYNTHETIC = tuple(f"friedman-{n}" for n in SIZES)
TEST_ROWS = 10_000
NOISE = 1.0
#: Most training rows of a method, and why it has no more.
MOST_ROWS = {
    "gp": (4_000, "it holds several matrices of n x n, and its time grows with the cube of n"),
    "ngboost": (10_000, "500 pairs of exact trees take a minute there, and more in proportion"),
}
#: Why a method does not classify.
NO_CLASSES = {
    "tnkm": "it has least squares, and no probabilities of classes",
    "gp": "its Laplace approximation has the same matrices of n x n as the regression",
}

#: Whose code a method is, where that is not scikit-learn or btnkm.
LIBRARIES = {"tnkm": "tnkm", "svgp": "gpytorch", "ngboost": "ngboost"}


def friedman(n, split):
    """Return a training part of n rows and a test part of Friedman's first function.

    y = 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4 plus normal noise of standard deviation
    1; ten inputs uniform on [0, 1], five of them without effect. Nothing has an RMSE below 1 or a
    mean negative log density below log(2 pi e) / 2 = 1.419 for long.
    """
    rng = np.random.default_rng(split)
    X = rng.uniform(size=(n + TEST_ROWS, 10))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + NOISE * rng.standard_normal(len(X))
    return X[:n], y[:n], X[n:], y[n:]


def rows_of(dataset):
    """Return the training rows of a synthetic set, None for another one."""
    return int(dataset.removeprefix("friedman-")) if dataset in SYNTHETIC else None


def why_not(dataset, method):
    """Return why a method is not measured on a data set, None if it is."""
    n = rows_of(dataset)
    if n is None and method in NO_CLASSES:
        return NO_CLASSES[method]
    if n is None or method not in MOST_ROWS or n <= MOST_ROWS[method][0]:
        return None
    most, reason = MOST_ROWS[method]
    return f"at most {most:,} rows: {reason}"


def measure_compare(cell):
    """Fit and score one cell in this process, or tell why not.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    metrics : dict
        See `benchmarks.accuracy.fit_and_score`, and `library` with its version where that is
        another one; or only `skipped`, a reason.
    """
    from benchmarks.data import load_split
    from benchmarks.scale_methods import SCALE_CLASSIFIERS, SCALE_METHODS
    from benchmarks.tasks import REGRESSION, task_of

    reason = why_not(cell.dataset, cell.method)
    if reason is not None:
        return {"skipped": reason}
    task, n = task_of(cell.dataset), rows_of(cell.dataset)
    known = task.methods | (SCALE_METHODS if task is REGRESSION else SCALE_CLASSIFIERS)
    method = known[cell.method.removesuffix("-short")][0](**cell.config)
    parts = load_split(cell.dataset, cell.split) if n is None else friedman(n, cell.split)
    found = fit_and_score(task, method, *parts)
    library = LIBRARIES.get(cell.method)
    return found if library is None else found | {"library": f"{library} {version(library)}"}
