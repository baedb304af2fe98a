"""Restarts in helper processes: the same results, whatever becomes of the helpers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from btnkm import BTNRegressor
from btnkm.core.schedule import Progress
from btnkm.execution import fitting, processes

SMALL = {"max_iter": 12, "max_rank": 4, "n_basis": 6, "n_init": 4, "random_state": 0}
SMALL |= {"structure": "tensor"}
# helpers are called at once, however little work there is
run_with_helpers = partial(processes.run_with_helpers, worth_helpers=0.0)


def draw(n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def progress(sweep, phase="exact", state=None):
    return Progress(sweep, phase, 0.5 * sweep, {}, 1, 1.0, 0.0, 0.0, state=state)


def silent(k, step):
    """Observe nothing."""


class Slow:
    """Restarts of so many sweeps, each of so many seconds, whose states name their process."""

    def __init__(self, sweeps=5, seconds=0.01):
        self.sweeps, self.seconds = sweeps, seconds

    def run(self, k):
        for sweep in range(1, self.sweeps + 1):
            time.sleep(self.seconds)
            yield progress(sweep, state=(k, os.getpid()))


class Patient(Slow):
    """Goes on in the first process only once a helper is at work, however long that takes."""

    def __init__(self, folder, *how):
        super().__init__(*how)
        self.home, self.sign = os.getpid(), folder / "here"

    def run(self, k):
        for step in super().run(k):
            yield step
            if os.getpid() != self.home:
                self.sign.touch()
            deadline = time.monotonic() + 600
            while not self.sign.exists() and time.monotonic() < deadline:
                time.sleep(0.02)


def processes_of(restarts):
    return {restart.state[1] for restart in restarts}


def test_helpers_change_no_result(waiting_helper):
    X, y = draw()
    seen = []
    first = BTNRegressor(**SMALL, n_jobs=1).fit(X, y)
    two = BTNRegressor(**SMALL, n_jobs=2, callback=lambda e: seen.append(e["restart"])).fit(X, y)
    for a, b in zip(first.predict(X, True), two.predict(X, True), strict=True):
        np.testing.assert_array_equal(a, b)
    keys = ("restart", "sweep", "phase", "elbo", "rank", "terms")
    np.testing.assert_equal(
        [[e[k] for k in keys] for e in first.history_], [[e[k] for k in keys] for e in two.history_]
    )
    assert len(seen) == len(two.history_)
    assert first.stop_reason_ == two.stop_reason_


def test_helpers_really_run_restarts(tmp_path):
    restarts, interrupted = run_with_helpers(Patient(tmp_path), 8, 1, silent)
    assert not interrupted
    assert [restart.state[0] for restart in restarts] == list(range(8))
    assert [len(restart.sweeps) for restart in restarts] == [5] * 8
    assert {restart.stop_reason for restart in restarts} == {"finished"}
    assert len(processes_of(restarts)) == 2


def test_restarts_longer_than_a_task_are_reported_in_order(tmp_path):
    heard = []
    work = Patient(tmp_path, 12, 0.03)  # each takes several tasks
    restarts, _ = run_with_helpers(work, 4, 1, lambda k, p: heard.append((k, p.sweep)))
    assert len(processes_of(restarts)) == 2
    for k in range(4):
        assert [sweep for j, sweep in heard if j == k] == list(range(1, 13))


class Deadly(Patient):
    """Kills a process in its second restart, but for the one that made it."""

    def __init__(self, folder):
        super().__init__(folder, 5, 0.06)
        self.begun = Counter()

    def run(self, k):
        pid = os.getpid()
        self.begun[pid] += 1
        for step in super().run(k):
            if pid != self.home and (self.begun[pid], step.sweep) == (2, 5):
                os.kill(os.getpid(), signal.SIGKILL)
            yield step


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_killed_helper_only_costs_time(tmp_path):
    heard = []
    restarts, _ = run_with_helpers(Deadly(tmp_path), 8, 1, lambda k, p: heard.append((k, p.sweep)))
    assert [len(restart.sweeps) for restart in restarts] == [5] * 8
    homes = [restart.state[1] == os.getpid() for restart in restarts]
    assert homes.count(False) == 1  # what the helper had finished is kept
    # what it reported of the restart it was in, and the same restart run again
    assert 0 < len(heard) - 8 * 5 <= 4
    (tmp_path / "here").unlink()
    restarts, _ = run_with_helpers(Patient(tmp_path), 8, 1, silent)
    assert len(processes_of(restarts)) == 2  # the next fit has a new helper


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_fit_whose_helper_was_killed_reports_every_sweep_once(waiting_helper):
    X, y = draw()
    killed = []

    def kill(entry):
        if entry["restart"] > 0 and entry["phase"] == "exact" and not killed:
            killed.extend(waiting_helper.executor._processes)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    long = {**SMALL, "max_iter": 40, "tol": 0}
    expected = BTNRegressor(**long, n_jobs=1).fit(X, y)
    model = BTNRegressor(**long, n_jobs=2, callback=kill).fit(X, y)
    assert killed
    keys = [[(e["restart"], e["sweep"], e["phase"]) for e in m.history_] for m in (expected, model)]
    assert keys[0] == keys[1]
    np.testing.assert_array_equal(expected.predict(X), model.predict(X))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_helper_killed_while_it_waits_is_replaced(waiting_helper, tmp_path):
    for pid in list(waiting_helper.executor._processes):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 600
    while waiting_helper.usable and time.monotonic() < deadline:
        time.sleep(0.02)
    restarts, _ = run_with_helpers(Patient(tmp_path), 4, 1, silent)
    assert len(processes_of(restarts)) == 2


class Warner(Patient):
    """Warns once in every restart."""

    def run(self, k):
        warnings.warn(f"restart {k}", RuntimeWarning, stacklevel=2)
        yield from super().run(k)


def test_warnings_of_helpers_reach_the_caller(tmp_path):
    with pytest.warns(RuntimeWarning) as caught:
        restarts, _ = run_with_helpers(Warner(tmp_path), 6, 1, silent)
    assert len(processes_of(restarts)) == 2
    assert sorted(str(w.message) for w in caught) == [f"restart {k}" for k in range(6)]


def assert_all_run_here(restarts):
    expected = [(k, os.getpid()) for k in range(len(restarts))]
    assert [restart.state for restart in restarts] == expected


def test_without_loky_the_restarts_run_here(monkeypatch):
    monkeypatch.setattr(processes, "_idle", [])
    monkeypatch.setitem(sys.modules, "joblib.externals.loky.process_executor", None)
    assert_all_run_here(run_with_helpers(Slow(), 3, 2, silent)[0])


@pytest.mark.parametrize(("limit", "expected"), [(1.0, 1), (0.04, 0)])
def test_a_helper_needs_room_in_memory(monkeypatch, limit, expected):
    asked = []

    def record(work, count, helpers, *rest):
        asked.append(helpers)
        return processes.run_with_helpers(work, count, 1, *rest)

    monkeypatch.setattr(fitting, "run_with_helpers", record)
    BTNRegressor(**SMALL, n_jobs=2, memory_limit=limit).fit(*draw())
    assert asked == [1] * expected


def test_work_that_cannot_be_pickled_is_done_here():
    work = Slow()
    work.lock = threading.Lock()
    assert_all_run_here(run_with_helpers(work, 4, 2, silent)[0])


def test_where_no_process_can_be_started_the_restarts_run_here(monkeypatch):
    import joblib.externals.loky.process_executor as loky

    def refuse(*args, **kwargs):
        raise AssertionError("daemonic processes are not allowed to have children")

    monkeypatch.setattr(processes, "_idle", [])
    monkeypatch.setattr(loky, "ProcessPoolExecutor", refuse)
    assert_all_run_here(run_with_helpers(Slow(), 3, 2, silent)[0])


def test_no_process_is_started_for_little_work(monkeypatch):
    monkeypatch.setattr(processes, "_idle", [])
    monkeypatch.setattr(processes, "Helper", lambda: pytest.fail("a helper was started"))
    assert_all_run_here(processes.run_with_helpers(Slow(3, 0.001), 4, 2, silent, 100.0)[0])


def test_a_helper_that_waits_is_called_for_little_work(waiting_helper):
    work = Slow(5, 0.02)
    restarts, _ = processes.run_with_helpers(work, 8, 1, silent, 100.0)
    assert len(processes_of(restarts)) == 2


def test_helpers_wait_for_a_while_after_their_work(waiting_helper):
    assert waiting_helper.waiting
    waiting_helper.last_used -= processes.IDLE_SECONDS
    assert not waiting_helper.waiting


def test_a_helper_that_ends_while_the_observer_waits_costs_only_time(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_idle", [])
    monkeypatch.setattr(processes, "IDLE_SECONDS", 1)
    waited = []

    def observe(k, step):
        if k > 0 and not waited:
            waited.append(k)
            time.sleep(5.0)  # a debugger, say: the helper runs out of work, and ends

    restarts, interrupted = run_with_helpers(Patient(tmp_path, 60, 0.01), 2, 1, observe)
    assert waited == [1]
    assert not interrupted
    assert [len(restart.sweeps) for restart in restarts] == [60, 60]
    assert [restart.stop_reason for restart in restarts] == ["finished", "finished"]


def test_the_observer_stops_helpers_too():
    restarts, interrupted = run_with_helpers(
        Slow(10**6, 0.01), 2, 1, lambda k, p: k == 1 and p.sweep == 5
    )
    assert all(len(restart.sweeps) < 10**6 for restart in restarts)
    assert not interrupted
    assert {restart.stop_reason for restart in restarts} == {"stopped"}
    assert all(restart.usable for restart in restarts)


def test_an_error_here_ends_the_helpers(tmp_path):
    def observe(k, p):
        if k == 1:
            raise LookupError("of the user")

    with pytest.raises(LookupError, match="of the user"):
        run_with_helpers(Slow(10**6, 0.01), 2, 1, observe)
    # the helper is free for other work soon after
    restarts, _ = run_with_helpers(Patient(tmp_path), 6, 1, silent)
    assert len(processes_of(restarts)) == 2


class Failing(Patient):
    """Fails in a helper, but not where it was made."""

    def run(self, k):
        for step in super().run(k):
            if os.getpid() != self.home and step.sweep == 3:
                raise MemoryError
            yield step


def test_what_fails_in_a_helper_is_done_here(tmp_path):
    assert_all_run_here(run_with_helpers(Failing(tmp_path), 5, 1, silent)[0])


def test_fits_in_two_threads_have_helpers_of_their_own(tmp_path):
    results = {}

    def fit(name):
        folder = tmp_path / name
        folder.mkdir()
        results[name], _ = run_with_helpers(Patient(folder), 6, 1, silent)

    threads = [threading.Thread(target=fit, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for restarts in results.values():
        assert [restart.state[0] for restart in restarts] == list(range(6))
        assert len(processes_of(restarts)) == 2


SCRIPT = """
    import gc, warnings
    import numpy as np
    from btnkm import BTNRegressor
    from btnkm.execution import processes

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(500)
    there = set()

    def callback(entry):
        if entry["phase"] == "exact" and entry["restart"] not in there:
            there.add(entry["restart"])
            if len(there) == 2:
                (helper,) = (o for o in gc.get_objects() if isinstance(o, processes.Helper))
                print(*helper.executor._processes, flush=True)

    model = BTNRegressor(
        structure="tensor",
        n_init=2, n_jobs=2, max_iter=10**6, tol=0, max_rank=4, n_basis=6, callback=callback,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    print("kept", len(model.posterior_), model.stop_reason_)
    print("finite", np.all(np.isfinite(model.predict(X, return_std=True))))
"""


@contextlib.contextmanager
def endless_fit(folder):
    """Run a fit without end in a process group of its own; yield it and its helper."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        timer = threading.Timer(90.0, process.kill)
        timer.start()
        try:
            yield process, int(process.stdout.readline())
        finally:
            timer.cancel()
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups to signal")
def test_ctrl_c_at_a_terminal_keeps_what_helpers_have(tmp_path):
    """A terminal sends SIGINT to the whole group, helpers included; no guard is in the script."""
    with endless_fit(tmp_path) as (process, _):
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "kept 2 Interrupted: the posteriors of 2 of 2 restarts" in out
    assert "finite True" in out
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def works(pid):
    """Tell whether a process exists and is not just waiting to be buried by its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at a process")
def test_a_helper_does_not_outlive_its_fit(tmp_path):
    with endless_fit(tmp_path) as (process, helper):
        assert works(helper)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 600
        while works(helper) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not works(helper)
        assert not list(tmp_path.iterdir())
