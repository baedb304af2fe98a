"""Regression and classification: each has its methods and its scores."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.classifiers import CLASSIFIERS
from benchmarks.data import CLASS_DATASETS
from benchmarks.methods import METHODS
from btnkm.metrics import score, score_classes


@dataclass(frozen=True, eq=False)
class Task:
    """Describe a task.

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
    """Return the task that a data set poses.

    Parameters
    ----------
    dataset : str

    Returns
    -------
    task : Task
    """
    return CLASSIFICATION if dataset in CLASS_DATASETS else REGRESSION
