"""A process that measures cells: ``python -m benchmarks.runs.worker``, and how to drive it.

The process reads one JSON object per line, with the names of a function and a cell, and writes one.
It ends as soon as its input does, so it never outlives the process that started it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from typing import IO, Any

from .experiment import Cell, CellError, Measure, measure_here

_POOLS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_SHOWN = 2000  # last characters of the output of a worker that died


class Worker:
    """A separate process that measures cells, one at a time.

    Parameters
    ----------
    threads : int or None
        Threads of its numerical libraries; None leaves them at their default.
    """

    def __init__(self, threads: int | None = None) -> None:
        environment = dict(os.environ)
        if threads is not None:
            environment |= dict.fromkeys(_POOLS, str(threads))
        environment["PYTHONPATH"] = os.pathsep.join(path or os.curdir for path in sys.path)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            # nothing in the working directory may pass for a module, unless it does here
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            # Ctrl-C in a terminal reaches the whole session: it is for the parent to answer it
            start_new_session=True,
        )

    def measure(self, measure: Measure, cell: Cell) -> dict[str, Any]:
        """Return what ``measure_here`` returns in the worker.

        Parameters
        ----------
        measure : callable
            A function at the top level of a module.
        cell : Cell

        Raises
        ------
        CellError
            If the measurement raised an error or the process died.
        """
        asked = {"module": measure.__module__, "name": measure.__qualname__, "cell": cell.as_dict()}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        answer = b""
        with contextlib.suppress(OSError):  # it has ended
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer.endswith(b"\n"):
            raise CellError(self._last_words(cell))
        result = json.loads(answer)
        if "error" in result:
            raise CellError(f"{cell}: the measurement raised an error.\n{result['error']}")
        return dict(result)

    @property
    def alive(self) -> bool:
        """Whether it can measure another cell."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the process, whatever it is doing, and those that it has started."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _last_words(self, cell: Cell) -> str:
        code = self.process.wait()
        self._errors.seek(0)
        output = self._errors.read().decode(errors="replace").strip()[-_SHOWN:]
        return (
            f"{cell}: the process must return a result, but it ended with exit code {code}; if it "
            "was killed for memory, run fewer programs at the same time."
            f"{chr(10) + output if output else ''}"
        )


def measure_in_child(measure: Measure, cell: Cell) -> dict[str, Any]:
    """Measure a cell in a new process, with separate memory and threads."""
    worker = Worker()
    try:
        return worker.measure(measure, cell)
    finally:
        worker.stop()


def _answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    try:
        measure = getattr(importlib.import_module(asked["module"]), asked["name"])
        return measure_here(measure, Cell(**asked["cell"]))
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    """Measure what is asked for until there is no more."""
    # what libraries print must not come between the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            asked.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        answers.write(json.dumps(_answer(asked.get())) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
