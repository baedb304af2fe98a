"""A cell is one measurement: a data set, a split, a method and its configuration."""

import hashlib
import json
import multiprocessing
import signal
import time
import traceback
from dataclasses import dataclass, field

from benchmarks import machine


@dataclass(frozen=True)
class Cell:
    """Name one measurement.

    Parameters
    ----------
    dataset : str
    split : int
    method : str
    config : dict
        Keywords of the method; must survive a round trip through JSON.
    """

    dataset: str
    split: int
    method: str
    config: dict = field(default_factory=dict)

    @property
    def config_hash(self):
        """Short hash of the configuration, independent of the order of its keys."""
        text = json.dumps(self.config, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def key(self):
        """What makes two measurements the same, apart from the code measured."""
        return self.dataset, self.split, self.method, self.config_hash

    def __str__(self):
        return f"{self.dataset} split {self.split} {self.method}"


class CellError(RuntimeError):
    """A cell could not be measured."""


def measure_accuracy(cell):
    """Fit and score one cell in this process.

    Parameters
    ----------
    cell : Cell

    Returns
    -------
    metrics : dict
        The scores of the data set's task, see `benchmarks.metrics`; rank, fit_seconds,
        predict_seconds and peak_memory_mb of the fit.
    """
    from benchmarks.data import load_split
    from benchmarks.tasks import task_of

    task = task_of(cell.dataset)
    X_train, y_train, X_test, y_test = load_split(cell.dataset, cell.split)
    method = task.methods[cell.method][0](**cell.config)
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


def measure_here(measure, cell):
    """Measure a cell in this process.

    Parameters
    ----------
    measure : callable
        Takes a Cell, returns a dict that JSON can hold.
    cell : Cell

    Returns
    -------
    result : dict
        `metrics`, and `threads` as they were after the measurement.
    """
    return {"metrics": measure(cell), "threads": machine.threads()}


def _child(connection, measure, cell):
    try:
        connection.send(("done", measure_here(measure, cell)))
    except Exception:
        connection.send(("failed", traceback.format_exc()))
    finally:
        connection.close()


def measure_in_child(measure, cell):
    """Measure a cell in a fresh process, so that its memory and its threads are its own.

    Parameters and result are those of `measure_here`.

    Raises
    ------
    CellError
        If the measurement raised an error or the process died.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, measure, cell))
    # The terminal sends Ctrl-C to both processes. Only the parent should answer it, and a
    # signal ignored at the start stays ignored in the child.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
    sender.close()
    try:
        state, result = receiver.recv()
    except EOFError:
        process.join()
        raise CellError(
            f"{cell}: the process must return a result, but it ended with exit code "
            f"{process.exitcode}; if it was killed for memory, run fewer things beside it."
        ) from None
    finally:
        receiver.close()
        if process.exitcode is None:
            # After a result the child ends by itself; after Ctrl-C it has to be told.
            process.join(timeout=1)
            process.terminate()
            process.join()
    if state == "failed":
        raise CellError(f"{cell}: the measurement raised an error.\n{result}")
    return result
