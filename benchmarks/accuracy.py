"""What most suites measure: how well a method predicts, its time and its memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.classifiers import CLASSIFIERS
from benchmarks.data import CLASS_DATASETS, load_split
from benchmarks.methods import METHODS
from benchmarks.runs import machine
from btnkm.metrics import score, score_classes


@dataclass(frozen=True, eq=False)
class Task:
    """Regression or classification.

    Parameters
    ----------
    methods : dict
        Name to class and default configuration.
    score : callable
        Takes what a method's `predictive` returns and y, returns a dict of floats.
    """

    methods: dict
    score: Callable


REGRESSION = Task(METHODS, score)
CLASSIFICATION = Task(CLASSIFIERS, score_classes)


def task_of(dataset):
    """Return the task of a data set."""
    return CLASSIFICATION if dataset in CLASS_DATASETS else REGRESSION


def measure_accuracy(cell):
    """Fit and score one cell in this process; see `fit_and_score`."""
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
        The scores of the task, see `btnkm.metrics`; rank, fit_seconds, predict_seconds and
        peak_memory_mb of the fit.
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
