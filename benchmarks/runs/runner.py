"""Measure the cells that are not in the file yet, one after the other or side by side."""

from __future__ import annotations

import datetime
import queue
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import machine
from .experiment import Cell, CellError, Measure
from .records import Record, append_record, claimed, read_records, record_key, repair
from .worker import Worker, measure_in_child

Execute = Callable[[Measure, Cell], dict[str, Any]]
_SHOWN = ("rmse", "error", "nll", "coverage_95", "ece", "fit_seconds")
_FACTS = ("rank_found", "support_found")


def pending(
    cells: Iterable[Cell],
    records: list[Record],
    context: dict[str, Any],
    data: Mapping[str, str],
    any_version: bool = False,
) -> list[Cell]:
    """Leave out the cells that were measured before on the same data, by this code or by any.

    Code is the same with the same sources and libraries.
    """

    def counts(record: Record) -> bool:
        same = all(record.get(name) == context[name] for name in ("code", "versions"))
        return (any_version or same) and record.get("data") == data.get(record["dataset"])

    done = {record_key(r) for r in records if counts(r)}
    return [cell for cell in cells if cell.key not in done]


class Estimate:
    """An estimate of the remaining time, from that of similar cells.

    Parameters
    ----------
    records : list of dict
        Results of earlier runs.
    n_jobs : int
    """

    def __init__(self, records: list[Record], n_jobs: int) -> None:
        self.n_jobs = n_jobs
        self.seconds: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        for record in records:
            if "seconds" in record:
                self.add(record)

    def add(self, record: Record) -> None:
        """Record the time of a cell."""
        dataset, _, method, config_hash = record_key(record)
        for alike in ((dataset, method, config_hash), (dataset, method), (method,), ()):
            self.seconds[alike].append(float(record["seconds"]))

    def left(self, cells: Iterable[Cell]) -> float | None:
        """Return the seconds that cells will take; None before anything is known."""
        if not self.seconds:
            return None
        return sum(map(self._of, cells)) / self.n_jobs

    def _of(self, cell: Cell) -> float:
        for alike in ((cell.dataset, cell.method, cell.config_hash), (cell.dataset, cell.method)):
            if alike in self.seconds:
                return statistics.fmean(self.seconds[alike])
        return statistics.fmean(self.seconds.get((cell.method,), self.seconds[()]))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "time left unknown yet"
    if seconds < 90:
        return f"about {seconds:.0f} s left"
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes < 120 else f"about {minutes / 60:.1f} h left"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that reports one finished cell; a bar if rich and a terminal are there."""
    try:
        if not sys.stdout.isatty():
            raise ImportError
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        count = 0

        def report(line: str, left: str) -> None:
            nonlocal count
            count += 1
            print(f"[{count:>{len(str(total))}}/{total}, {left}] {line}", flush=True)

        yield report
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns) as bar:
        task = bar.add_task(_duration(None), total=total)

        def report(line: str, left: str) -> None:
            bar.console.print(line, markup=False, highlight=False)
            bar.update(task, advance=1, description=left)

        yield report


def _line(cell: Cell, metrics: dict[str, Any]) -> str:
    numbers = [
        f"{name} {value:.4g}"
        for name, value in metrics.items()
        if isinstance(value, float) and name in _SHOWN
    ]
    numbers += [name.replace("_", " ") for name in _FACTS if metrics.get(name)]
    return f"{cell}: {', '.join(numbers)}" if numbers else str(cell)


def run(
    name: str,
    measure: Measure,
    cells: list[Cell],
    output: Any,
    *,
    data: Mapping[str, str] | None = None,
    folders: tuple[Path, ...] = (),
    any_version: bool = False,
    execute: Execute = measure_in_child,
    n_jobs: int | None = None,
) -> int:
    """Measure cells and append each result to a file as soon as it is known.

    Parameters
    ----------
    name : str
        Of the suite or experiment, for the records.
    measure : callable
    cells : list of Cell
    output : path-like
    data : mapping of str to str, optional
        For every data set, an identity of its content.
    folders : tuple of Path
        Sources besides the package that results depend on, see ``machine.code_version``.
    any_version : bool
        Whether results of other code count as done.
    execute : callable
        Takes the measure and a cell; a fresh process for each cell by default.
    n_jobs : int, optional
        Side by side, in so many processes of one thread each, instead of by ``execute``: a result
        then does not depend on how many there are.

    Returns
    -------
    status : int
        Exit status: 0 if every cell has a result, 1 if some failed, 130 after Ctrl-C.
    """
    with claimed(output):
        return _run(name, measure, cells, output, data or {}, folders, any_version, execute, n_jobs)


def _run(
    name: str,
    measure: Measure,
    cells: list[Cell],
    output: Any,
    data: Mapping[str, str],
    folders: tuple[Path, ...],
    any_version: bool,
    execute: Execute,
    n_jobs: int | None,
) -> int:
    context = machine.code_version(*folders) | {
        "suite": name,
        "versions": machine.versions(),
        "cpu": machine.cpu_model(),
    }
    records = _earlier(output)
    todo = pending(cells, records, context, data, any_version)
    if len(todo) < len(cells):
        print(f"{len(cells) - len(todo)} of {len(cells)} runs are in {output} already.")
    if not todo:
        return 0
    estimate = Estimate(records, n_jobs or 1)
    remaining = {cell.key: cell for cell in todo}
    n_written, failures = 0, []
    if n_jobs is None:
        results = _one_by_one(execute, measure, todo)
    else:
        results = _side_by_side(measure, todo, n_jobs)
    try:
        with _progress(len(todo)) as report:
            for cell, seconds, result in results:
                del remaining[cell.key]
                if machine.source_hash(*folders) != context["code"]:
                    result = CellError(f"{cell}: the sources have changed since the run began.")
                if isinstance(result, CellError):
                    failures.append(cell)
                    report(str(result), _duration(estimate.left(remaining.values())))
                    continue
                more = {"seconds": round(seconds, 3), "data": data.get(cell.dataset)}
                record = _record(cell, result, context | more)
                append_record(output, record)
                estimate.add(record)
                n_written += 1
                report(_line(cell, result["metrics"]), _duration(estimate.left(remaining.values())))
    except KeyboardInterrupt:
        results.close()
        print(
            f"\nStopped, with {n_written} new result(s) in {output}; "
            f"{len(todo) - n_written} run(s) are left. The same command continues."
        )
        return 130
    print(f"{n_written} new result(s) in {output}.")
    if failures:
        print(f"{len(failures)} run(s) failed: {'; '.join(map(str, failures))}.")
        print("They are not in the file; the same command tries them again.")
        return 1
    return 0


def _earlier(output: Any) -> list[Record]:
    """Return the results that a file has, after a look at how an earlier run ended."""
    if repair(output):
        print(f"Cut off a line of {output} that an earlier run was killed in.")
    records, n_broken = read_records(output)
    if n_broken:
        print(f"Ignoring {n_broken} line(s) in {output} that are no results.")
    return records


_Results = Any  # generator of (cell, seconds, result or CellError)


def _one_by_one(execute: Execute, measure: Measure, cells: list[Cell]) -> _Results:
    for cell in cells:
        begin = time.perf_counter()
        result: dict[str, Any] | CellError
        try:
            result = execute(measure, cell)
        except CellError as error:
            result = error
        yield cell, time.perf_counter() - begin, result


def _side_by_side(measure: Measure, cells: list[Cell], n_jobs: int) -> _Results:
    asked: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[Cell, float, Any]] = queue.SimpleQueue()
    for cell in cells:
        asked.put(cell)
    workers: list[Worker] = []
    over = threading.Event()

    def drive() -> None:
        worker: Worker | None = None
        while not over.is_set():
            try:
                cell = asked.get_nowait()
            except queue.Empty:
                break
            begin = time.perf_counter()
            result: Any
            try:
                if worker is None or not worker.alive:
                    worker = Worker(threads=1)
                    workers.append(worker)
                result = worker.measure(measure, cell)
            except CellError as error:
                result = error
            except Exception as error:  # no process could be started
                result = CellError(f"{cell}: {error}")
            answers.put((cell, time.perf_counter() - begin, result))

    threads = [threading.Thread(target=drive, daemon=True) for _ in range(n_jobs)]
    try:
        for thread in threads:
            thread.start()
        for _ in cells:
            yield answers.get()
    finally:
        over.set()
        for worker in workers:
            worker.stop()


def _record(cell: Cell, result: dict[str, Any], context: dict[str, Any]) -> Record:
    now = datetime.datetime.now(datetime.UTC)
    return context | {
        **cell.as_dict(),
        "config_hash": cell.config_hash,
        "timestamp": now.isoformat(timespec="seconds"),
        **result,
    }
