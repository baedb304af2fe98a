"""Measure the cells that are not in the file yet, one after the other."""

import datetime
import sys
from contextlib import contextmanager

from benchmarks import machine
from benchmarks.cells import CellError, measure_in_child
from benchmarks.records import append_record, read_records, record_key


def pending(cells, records, code, any_commit=False):
    """Leave out the cells that were measured before with the same code.

    Parameters
    ----------
    cells : list of Cell
    records : list of dict
    code : str
        Identity of the code, see `machine.code_version`.
    any_commit : bool
        Whether results of other code count as well.

    Returns
    -------
    cells : list of Cell
    """
    done = {record_key(r) for r in records if any_commit or r["code"] == code}
    return [cell for cell in cells if cell.key not in done]


@contextmanager
def _progress(total):
    """Yield a function that reports one finished cell; a bar if rich and a terminal are there."""
    try:
        if not sys.stdout.isatty():
            raise ImportError
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:
        count = 0

        def report(line):
            nonlocal count
            count += 1
            print(f"[{count:>{len(str(total))}}/{total}] {line}", flush=True)

        yield report
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("cells", total=total)

        def report(line):
            bar.console.print(line, markup=False, highlight=False)
            bar.advance(task)

        yield report


def _line(cell, metrics):
    shown = ("rmse", "error", "nll", "coverage_95", "ece", "fit_seconds")
    numbers = [
        f"{name} {value:.4g}"
        for name, value in metrics.items()
        if isinstance(value, float) and name in shown
    ]
    return f"{cell}: {', '.join(numbers)}"


def run(suite_name, suite, cells, output, *, any_commit=False, execute=measure_in_child):
    """Measure cells and append each result to a file as soon as it is known.

    Parameters
    ----------
    suite_name : str
    suite : Suite
    cells : list of Cell
    output : pathlib.Path
    any_commit : bool
        Whether results of other code count as done.
    execute : callable
        Takes the suite's measure and a cell; a fresh process for each cell by default.

    Returns
    -------
    status : int
        Exit status: 0 if every cell has a result, 1 if some failed, 130 after Ctrl-C.
    """
    code = machine.code_version()
    records, n_broken = read_records(output)
    if n_broken:
        print(f"Ignoring {n_broken} incomplete line(s) in {output}, left by a run that was cut.")
    todo = pending(cells, records, code["code"], any_commit)
    if len(todo) < len(cells):
        print(f"{len(cells) - len(todo)} of {len(cells)} cells are in {output} already.")
    context = code | {
        "suite": suite_name,
        "versions": machine.versions(),
        "cpu": machine.cpu_model(),
    }
    n_written, failures = 0, []
    try:
        with _progress(len(todo)) as report:
            for cell in todo:
                try:
                    result = execute(suite.measure, cell)
                except CellError as error:
                    failures.append(cell)
                    report(str(error))
                    continue
                append_record(output, _record(cell, result, context))
                n_written += 1
                report(_line(cell, result["metrics"]))
    except KeyboardInterrupt:
        print(
            f"\nStopped. {output} is valid and holds {n_written} new result(s); "
            f"{len(todo) - n_written} cell(s) are left. The same command goes on from here."
        )
        return 130
    print(f"{n_written} new result(s) in {output}.")
    if failures:
        print(f"{len(failures)} cell(s) failed: {'; '.join(map(str, failures))}.")
        print("They are not in the file; the same command tries them again.")
        return 1
    return 0


def _record(cell, result, context):
    now = datetime.datetime.now(datetime.UTC)
    return context | {
        "dataset": cell.dataset,
        "split": cell.split,
        "method": cell.method,
        "config": cell.config,
        "config_hash": cell.config_hash,
        "timestamp": now.isoformat(timespec="seconds"),
        **result,
    }
