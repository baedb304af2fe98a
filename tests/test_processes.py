"""Starts in helper processes: the same results, whatever becomes of the helpers."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from btnkm import BTNRegressor
from btnkm.core.schedule import Progress
from btnkm.execution import fitting, processes
from btnkm.execution.processes import Board, Follower, help_out

SMALL = {"max_iter": 12, "max_rank": 4, "n_basis": 6, "n_init": 4, "random_state": 0}
SMALL |= {"structure": "tensor"}


@pytest.fixture(autouse=True)
def helpers_for_everything(monkeypatch):
    monkeypatch.setattr(fitting, "WORTH_A_THREAD", 10**12)
    monkeypatch.setattr(processes, "WORTH_HELPERS", 0.0)


def draw(n=80):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


def progress(sweep, phase="exact", state=None):
    return Progress(sweep, phase, 0.5 * sweep, {}, 1, 1.0, 0.0, 0.0, state=state)


class Slow:
    """Starts of so many sweeps, each of so many seconds, that say which process ran them."""

    def __init__(self, sweeps=5, seconds=0.01):
        self.sweeps, self.seconds = sweeps, seconds

    def run(self, k):
        for sweep in range(1, self.sweeps + 1):
            time.sleep(self.seconds)
            yield progress(sweep, state=(k, os.getpid()))


class Patient(Slow):
    """Goes on at home only once a helper has come, however long that takes to start."""

    def __init__(self, folder):
        super().__init__()
        self.home, self.sign = os.getpid(), folder / "here"

    def run(self, k):
        for one in super().run(k):
            yield one
            if os.getpid() != self.home:
                self.sign.touch()
            deadline = time.monotonic() + 60
            while not self.sign.exists() and time.monotonic() < deadline:
                time.sleep(0.02)


def test_helpers_change_no_result():
    X, y = draw()
    seen = []
    one = BTNRegressor(**SMALL, n_jobs=1).fit(X, y)
    two = BTNRegressor(**SMALL, n_jobs=2, callback=lambda e: seen.append(e["restart"])).fit(X, y)
    for a, b in zip(one.predict(X, True), two.predict(X, True), strict=True):
        np.testing.assert_array_equal(a, b)
    keys = ("restart", "sweep", "phase", "elbo", "rank", "terms")
    np.testing.assert_equal(
        [[e[k] for k in keys] for e in one.history_], [[e[k] for k in keys] for e in two.history_]
    )
    assert len(seen) == len(two.history_)
    assert one.stop_reason_ == two.stop_reason_


def test_helpers_really_do_starts(tmp_path):
    starts, interrupted = processes.run_with_helpers(Patient(tmp_path), 8, 1, lambda k, p: None)
    assert not interrupted
    assert [start.state[0] for start in starts] == list(range(8))
    assert [len(start.sweeps) for start in starts] == [5] * 8
    assert {start.stop_reason for start in starts} == {"finished"}
    assert len({start.state[1] for start in starts}) == 2


class Deadly(Patient):
    """Kills a process that is in its second start, but for the one that made it."""

    def __init__(self, folder):
        super().__init__(folder)
        self.begun = Counter()

    def run(self, k):
        pid = os.getpid()
        self.begun[pid] += 1
        for one in super().run(k):
            yield one
            if pid != self.home and (self.begun[pid], one.sweep) == (2, 3):
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_killed_helper_only_costs_time(tmp_path):
    heard = []
    starts, _ = processes.run_with_helpers(
        Deadly(tmp_path), 8, 1, lambda k, p: heard.append((k, p.sweep))
    )
    assert [len(start.sweeps) for start in starts] == [5] * 8
    homes = [start.state[1] == os.getpid() for start in starts]
    assert homes.count(False) == 1  # what the helper had finished is kept
    # what it told of the start it was in, and the same start done anew
    assert 0 < len(heard) - 8 * 5 <= 3
    (tmp_path / "here").unlink()
    starts, _ = processes.run_with_helpers(Patient(tmp_path), 8, 1, lambda k, p: None)
    assert len({start.state[1] for start in starts}) == 2  # the next fit has a new helper


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL to send")
def test_a_fit_whose_helper_was_killed_tells_every_sweep_once():
    X, y = draw()
    killed = []

    def kill(entry):
        if entry["restart"] > 0 and entry["phase"] == "exact" and not killed:
            killed.extend(processes._pool.executor._processes)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    long = {**SMALL, "max_iter": 40, "tol": 0}
    expected = BTNRegressor(**long, n_jobs=1).fit(X, y)
    found = BTNRegressor(**long, n_jobs=2, callback=kill).fit(X, y)
    assert killed
    keys = [[(e["restart"], e["sweep"], e["phase"]) for e in m.history_] for m in (expected, found)]
    assert keys[0] == keys[1]
    np.testing.assert_array_equal(expected.predict(X), found.predict(X))


class Warner(Patient):
    """Warns once in every start."""

    def run(self, k):
        warnings.warn(f"start {k}", RuntimeWarning, stacklevel=2)
        yield from super().run(k)


def test_warnings_of_helpers_reach_the_caller(tmp_path):
    with pytest.warns(RuntimeWarning) as caught:
        starts, _ = processes.run_with_helpers(Warner(tmp_path), 6, 1, lambda k, p: None)
    assert len({start.state[1] for start in starts}) == 2
    assert sorted(str(w.message) for w in caught) == [f"start {k}" for k in range(6)]


def test_without_a_place_for_the_board_the_starts_run_here(monkeypatch):
    def refuse(*args, **kwargs):
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refuse)
    starts, _ = processes.run_with_helpers(Slow(), 3, 2, lambda k, p: None)
    assert [start.state for start in starts] == [(k, os.getpid()) for k in range(3)]


def test_without_loky_the_starts_run_here(monkeypatch):
    monkeypatch.setattr(processes, "_pool", None)
    monkeypatch.setitem(sys.modules, "joblib.externals.loky.process_executor", None)
    starts, _ = processes.run_with_helpers(Slow(), 3, 2, lambda k, p: None)
    assert [start.state for start in starts] == [(k, os.getpid()) for k in range(3)]


@pytest.mark.parametrize(("limit", "expected"), [(1.0, 1), (0.04, 0)])
def test_a_helper_needs_room_in_memory(monkeypatch, limit, expected):
    asked = []
    real = processes.run_with_helpers
    monkeypatch.setattr(
        fitting, "run_with_helpers", lambda w, c, n, o: (asked.append(n), real(w, c, 1, o))[1]
    )
    BTNRegressor(**SMALL, n_jobs=2, memory_limit=limit).fit(*draw())
    assert asked == [1] * expected


def test_work_that_cannot_travel_is_done_here():
    work = Slow()
    work.lock = threading.Lock()
    starts, _ = processes.run_with_helpers(work, 4, 2, lambda k, p: None)
    assert [start.state for start in starts] == [(k, os.getpid()) for k in range(4)]


def test_where_no_process_can_be_started_the_starts_run_here(monkeypatch):
    import joblib.externals.loky.process_executor as loky

    def refuse(*args, **kwargs):
        raise AssertionError("daemonic processes are not allowed to have children")

    monkeypatch.setattr(processes, "_pool", None)
    monkeypatch.setattr(loky, "ProcessPoolExecutor", refuse)
    starts, _ = processes.run_with_helpers(Slow(), 3, 2, lambda k, p: None)
    assert [start.state for start in starts] == [(k, os.getpid()) for k in range(3)]


@pytest.mark.parametrize("waiting", [True, False])
def test_little_work_calls_helpers_only_where_they_wait(monkeypatch, waiting):
    calls = []
    monkeypatch.setattr(processes, "WORTH_HELPERS", 100.0)
    monkeypatch.setattr(processes, "_waiting", lambda: waiting)
    monkeypatch.setattr(processes, "_call", lambda n, *rest: calls.append(n) or [])
    starts, _ = processes.run_with_helpers(Slow(3, 0.001), 4, 2, lambda k, p: None)
    assert {start.stop_reason for start in starts} == {"finished"}
    assert calls == [2] * waiting


def test_helpers_wait_for_a_while_after_their_work(monkeypatch):
    processes.run_with_helpers(Slow(3, 0.01), 4, 1, lambda k, p: None)
    assert processes._waiting()
    monkeypatch.setattr(processes, "IDLE_SECONDS", 1e-6)
    assert not processes._waiting()


def test_the_observer_stops_helpers_too():
    begin = time.perf_counter()
    starts, interrupted = processes.run_with_helpers(
        Slow(10**6, 0.01), 2, 1, lambda k, p: k == 1 and p.sweep == 5
    )
    assert time.perf_counter() - begin < 60
    assert not interrupted
    assert {start.stop_reason for start in starts} == {"stopped"}
    assert all(start.usable for start in starts)


def test_an_error_here_ends_the_helpers(tmp_path):
    def observe(k, p):
        if k == 1:
            raise LookupError("of the user")

    with pytest.raises(LookupError, match="of the user"):
        processes.run_with_helpers(Slow(10**6, 0.01), 2, 1, observe)
    # the helper is free for other work soon after
    starts, _ = processes.run_with_helpers(Patient(tmp_path), 6, 1, lambda k, p: None)
    assert len({start.state[1] for start in starts}) == 2


def test_a_start_is_claimed_once_and_never_after_the_end():
    with tempfile.TemporaryDirectory() as folder:
        boards = [Board(folder, 50) for _ in range(4)]
        claimed = []

        def grab(board):
            while (k := board.claim()) is not None:
                claimed.append(k)

        threads = [threading.Thread(target=grab, args=(board,)) for board in boards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(claimed) == list(range(50))
        later = Board(folder, 60)
        assert later.claim() == 50
        boards[0].stop()
        assert later.stopped
        assert later.claim() is None
    assert Board(folder, 60).claim() is None
    help_out(Slow(), Board(folder, 60))
    assert not Path(folder).exists()


def test_a_record_is_read_once_and_only_when_whole(tmp_path):
    board = Board(str(tmp_path), 1)
    records = []
    for sweep in (1, 2):
        body = pickle.dumps(progress(sweep))
        records.append(len(body).to_bytes(8) + body)
    follower = Follower(board)
    board.log(0).write_bytes(records[0] + records[1][:20])
    assert [p.sweep for p in follower.news(0)] == [1]
    assert list(follower.news(0)) == []
    board.log(0).write_bytes(records[0] + records[1])
    assert [p.sweep for p in follower.news(0)] == [2]


SCRIPT = """
    import glob, os, tempfile, warnings
    import numpy as np
    from btnkm import BTNRegressor
    from btnkm.execution import processes

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 4))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(500)
    there = set()

    def board():
        return next(iter(glob.glob(os.path.join(tempfile.gettempdir(), "btnkm-*"))), "")


    def callback(entry):
        if entry["phase"] == "exact" and entry["restart"] not in there:
            there.add(entry["restart"])
            if len(there) == 2:
                print(*processes._pool.executor._processes, board(), flush=True)

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
    """Run a fit without end in a process group of its own; yield it, its helper, its board."""
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
            helper, board = process.stdout.readline().split()
            yield process, int(helper), Path(board)
        finally:
            timer.cancel()
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups to signal")
def test_ctrl_c_at_a_terminal_keeps_what_helpers_have(tmp_path):
    """A terminal sends SIGINT to the whole group, helpers included; no guard is in the script."""
    with endless_fit(tmp_path) as (process, _, board):
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "kept 2 Interrupted: the posteriors of 2 of 2 starts" in out
    assert "finite True" in out
    assert "Traceback" not in err
    assert not board.exists()


def works(pid):
    """Tell whether a process exists and is not just waiting to be buried by its parent."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at a process")
def test_a_helper_does_not_outlive_its_fit(tmp_path):
    with endless_fit(tmp_path) as (process, helper, board):
        assert works(helper)
        assert board.exists()
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while works(helper) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not works(helper)
        assert not board.exists()
