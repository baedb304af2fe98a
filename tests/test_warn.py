"""Warnings of the library point at the line that has called it."""

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from btnkm import BTNRegressor
from btnkm.core.cp import CP
from btnkm.core.schedule import Progress
from btnkm.execution.local import make_plan
from btnkm.execution.restarts import run_restarts
from btnkm.warn import warn

QUICK = {"structure": "tensor", "max_rank": 3, "n_basis": 6, "max_iter": 3, "n_init": 1}
QUICK |= {"random_state": 0, "n_jobs": 1}


def rows(n=100):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, X[:, 0] + X[:, 1] + 0.1 * rng.standard_normal(n)


def stop(entry):
    if entry["phase"] == "exact":
        raise KeyboardInterrupt


def interrupted():
    X, y = rows()
    model = BTNRegressor(**QUICK, callback=stop)
    with pytest.warns(ConvergenceWarning, match="Interrupted") as caught:
        model.fit(X, y)
    return caught


def stopped_batch():
    X, y = rows()
    model = BTNRegressor(**QUICK | {"n_init": 2}, warm_start=True).fit(X, y)
    model.set_params(callback=lambda entry: True)
    with pytest.warns(ConvergenceWarning, match="the model is unchanged") as caught:
        model.fit(X, y)
    return caught


def nothing_found():
    X, y = rows()
    with pytest.warns(UserWarning, match="no input was found to have an effect") as caught:
        BTNRegressor(**QUICK).fit(X, np.random.default_rng(1).standard_normal(len(y)))
    return caught


def little_memory():
    X, y = rows(200)
    footprint = CP().footprint(5, X.shape[1])
    need = make_plan(len(y), [(6, 11)] * X.shape[1], footprint, 2, 1, 1.0).n_bytes
    model = BTNRegressor(**QUICK | {"n_init": "auto", "max_rank": 5}, memory_limit=need / 2**30)
    with pytest.warns(UserWarning, match="has room for") as caught:
        model.fit(X, y)
    return caught


def other_scale():
    X, y = rows()
    model = BTNRegressor(**QUICK).partial_fit(X, y)
    with pytest.warns(UserWarning, match="y has moved") as caught:
        model.partial_fit(X[:20], y[:20] + 100.0)
    return caught


def checkpoint_without_folder(tmp_path):
    X, y = rows()
    folder = tmp_path / "gone"
    folder.mkdir()

    def remove(entry):
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    model = BTNRegressor(**QUICK, callback=remove)
    with pytest.warns(UserWarning, match="could not be written") as caught:
        model.fit(X, y, checkpoint=folder / "fit", checkpoint_every=1)
    return caught


@pytest.mark.parametrize(
    "provoke", [interrupted, stopped_batch, nothing_found, little_memory, other_scale]
)
def test_a_warning_points_at_the_call(provoke):
    assert {warning.filename for warning in provoke()} == {__file__}


def test_a_warning_of_a_checkpoint_points_at_the_call(tmp_path):
    caught = checkpoint_without_folder(tmp_path)
    assert {warning.filename for warning in caught} == {__file__}


def test_warnings_of_threads_are_those_of_the_calling_thread():
    threads = set()
    source = "def swept(k, progress):\n    warn(RuntimeWarning(k))"
    library = compile(source, warn.__code__.co_filename, "exec")
    exec(library, within := {"warn": warn})

    def run(k):
        threads.add(threading.current_thread())
        yield Progress(1, "exact", 0.0, {}, 1, 1.0, 0.0, 0.0, state=object())

    how = run, 3, 2, within["swept"]
    with pytest.warns(RuntimeWarning) as caught:
        run_restarts(*how)
    assert threading.current_thread() not in threads
    assert {warning.filename for warning in caught} == {__file__}
    assert {str(warning.message) for warning in caught} == {"0", "1", "2"}
    with pytest.raises(RuntimeWarning):  # here warnings are errors
        run_restarts(*how)


def test_the_line_is_that_of_the_call():
    with pytest.warns(UserWarning, match="a message") as caught:
        warn("a message")
    assert (caught[0].filename, caught[0].lineno) == (
        __file__,
        test_the_line_is_that_of_the_call.__code__.co_firstlineno + 2,
    )
    with pytest.warns(RuntimeWarning, match="another"):
        warn(RuntimeWarning("another"))


def test_without_a_frame_outside_the_package_the_outermost_is_named():
    code = "import threading, btnkm.warn as w; threading.Thread(target=w.warn, args=('m',)).start()"
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True
    )
    assert "UserWarning: m" in done.stderr
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn("again")
    assert len(caught) == 1
