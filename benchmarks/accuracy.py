"""What most suites measure: how well a method predicts, and what it takes."""

import time

from benchmarks.runs import machine


def measure_accuracy(cell):
    """Fit and score one cell in this process.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    metrics : dict
        See `fit_and_score`.
    """
    from benchmarks.data import load_split
    from benchmarks.tasks import task_of

    task = task_of(cell.dataset)
    method = task.methods[cell.method][0](**cell.config)
    return fit_and_score(task, method, *load_split(cell.dataset, cell.split))


def fit_and_score(task, method, X_train, y_train, X_test, y_test):
    """Fit a method to the training part and score it on the test part.

    Parameters
    ----------
    task : Task
    method : object
        See `benchmarks.methods`.
    X_train, y_train, X_test, y_test : ndarray
        The inputs may be DataFrames.

    Returns
    -------
    metrics : dict
        The scores of the data set's task, see `btnkm.metrics`; rank, fit_seconds,
        predict_seconds and peak_memory_mb of the fit.
    """
    with machine.PeakMemory() as memory:
        start = time.perf_counter()
        method.fit(X_train, y_train)
        fit_seconds = time.perf_counter() - start
    start = time.perf_counter()
    predictive = method.predictive(X_test)
    predict_seconds = time.perf_counter() - start
    return task.score(predictive, y_test) | {
        "rank": method.rank,
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "peak_memory_mb": memory.mb,
        "memory_probe": memory.probe,
    }
