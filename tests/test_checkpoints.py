"""A fit that was killed goes on from its file to the result it would have had."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from functools import cache

import numpy as np
import pandas as pd
import pytest

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.data import column_stats, readers
from btnkm.io import atomic_write

SMALL = {"n_basis": 6, "max_rank": 3, "n_init": 2, "max_iter": 20, "random_state": 0, "n_jobs": 1}
SMALL |= {"structure": "tensor"}

PROGRAM = """
import os, signal, sys
import numpy as np
from tests.test_checkpoints import make_model, make_rows

kind, path, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen = []

def kill(entry):
    seen.append(entry)
    if len(seen) == stop:
        os.kill(os.getpid(), signal.SIGKILL)

X, y = make_rows(kind)
make_model(kind).set_params(callback=kill).fit(X, y, checkpoint=path, checkpoint_every=3)
"""


def make_rows(kind, n=250):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(n)
    if kind == "two":
        return X, y > 0
    return X, np.round(np.exp(y)) if kind == "counts" else y


def make_model(kind):
    if kind == "two":
        return BTNClassifier(**SMALL)
    more = {
        "numbers": {"solver": Solver(initial_rank=2), "max_rank": 6},  # which grows on the way
        "train": {"network": TensorTrain(order="given"), "max_rank": 3},
        "counts": {"likelihood": "negative_binomial"},
        "sums": {"structure": "sums+tensor"},
    }
    return BTNRegressor(**{**SMALL, **more[kind]})


@cache
def uninterrupted(kind):
    """Return a fit that was not interrupted, made once for all tests."""
    return make_model(kind).fit(*make_rows(kind))


@pytest.mark.parametrize("stop", [4, 17, 41])
@pytest.mark.parametrize("kind", ["numbers", "train", "counts", "two", "sums"])
def test_a_killed_fit_goes_on_to_the_same_result(kind, stop, tmp_path):
    path = tmp_path / "fit.checkpoint"
    program = subprocess.run([sys.executable, "-c", PROGRAM, kind, str(path), str(stop)])
    assert program.returncode == -signal.SIGKILL
    X, y = make_rows(kind)
    expected = uninterrupted(kind)
    began = []
    model = make_model(kind).set_params(callback=began.append)
    model.fit(X, y, checkpoint=path, checkpoint_every=3)
    # all but what came after the last writing, or what trims and settles in one go
    assert len(began) <= len(expected.history_) - (stop - 1) // 3
    of = "predict_proba" if kind == "two" else "predict"
    np.testing.assert_allclose(getattr(model, of)(X), getattr(expected, of)(X), rtol=1e-8)
    np.testing.assert_allclose(model.lower_bounds_, expected.lower_bounds_, rtol=1e-10)
    told = [(e["restart"], e["sweep"], e["phase"]) for e in model.history_]
    assert told == [(e["restart"], e["sweep"], e["phase"]) for e in expected.history_]
    assert list(tmp_path.iterdir()) == [path]
    again = make_model(kind).set_params(callback=lambda entry: pytest.fail("nothing is left to do"))
    again.fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(getattr(again, of)(X), getattr(model, of)(X))


def test_a_large_table_goes_on_in_either_part(tmp_path, monkeypatch):
    for module in (column_stats, readers):
        monkeypatch.setattr(module, "MOST_ROWS", 100)
    X, y = make_rows("numbers")
    model = BTNRegressor(**{**SMALL, "max_iter": 6})
    expected = model.fit(X, y)
    told = [(e["restart"], e["sweep"], e["rows"]) for e in expected.history_]
    assert {rows for *_, rows in told} == {100, 250}
    expected = expected.predict(X)
    for stop in (5, len(told) - 3):
        path = tmp_path / f"{stop}"
        seen = []

        def stops(entry, seen=seen, stop=stop):
            seen.append(entry)
            if len(seen) == stop:
                raise RuntimeError("stop here")

        with pytest.raises(RuntimeError, match="stop here"):
            model.set_params(callback=stops).fit(X, y, checkpoint=path, checkpoint_every=2)
        model.set_params(callback=None).fit(X, y, checkpoint=path)
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8)
        assert [(e["restart"], e["sweep"], e["rows"]) for e in model.history_] == told


def test_other_data_or_parameters_are_refused(tmp_path):
    X, y = make_rows("numbers")
    path = tmp_path / "fit.checkpoint"
    model = BTNRegressor(**{**SMALL, "max_iter": 3})
    model.fit(X, y, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="the rows differ from what"):
        model.fit(X, y + 1e-6, checkpoint=path)
    with pytest.raises(ValueError, match="the parameter max_rank differs"):
        model.set_params(max_rank=2).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint_every must be an integer"):
        model.fit(X, y, checkpoint=path, checkpoint_every=0)
    assert path.read_bytes() == before
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="cannot be read; delete it or name another"):
        model.fit(X, y, checkpoint=path)


def test_refusals_name_what_is_to_blame(tmp_path):
    X, y = make_rows("counts")
    path = tmp_path / "c"
    few = {**SMALL, "max_iter": 3}
    BTNRegressor(**few, likelihood="gaussian").fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="but the estimator differs from what"):
        BTNClassifier(**few).fit(X, y > 1, checkpoint=path)
    with pytest.raises(ValueError, match="but the parameter likelihood differs from what"):
        BTNRegressor(**few, likelihood="student_t").fit(X, y, checkpoint=path)
    named = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(ValueError, match="but the columns differ from what"):
        BTNRegressor(**few, likelihood="gaussian").fit(named, y, checkpoint=path)


def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path):
    X, y = make_rows("numbers")
    path = tmp_path / "c"
    model = BTNRegressor(**{**SMALL, "max_iter": 3})
    model.fit(X, y, checkpoint=path)
    whole = path.read_bytes()
    spoilt = [whole[:-1], whole + b"\0", b""]
    for place in (3, 30, len(whole) // 2, len(whole) - 5):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        spoilt.append(bytes(flipped))
    for content in spoilt:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read; delete it or name another"):
            model.fit(X, y, checkpoint=path)


def test_a_place_where_no_checkpoint_can_be_is_told_at_once(tmp_path, monkeypatch):
    X, y = make_rows("numbers")
    model = BTNRegressor(**SMALL, callback=lambda entry: pytest.fail("it has begun"))
    with pytest.raises(FileNotFoundError, match=r"must be in a folder .*got '.*nowhere' \(No such"):
        model.fit(X, y, checkpoint=tmp_path / "nowhere" / "c")
    with pytest.raises(IsADirectoryError, match="must name a file, got the folder"):
        model.fit(X, y, checkpoint=tmp_path)
    with pytest.raises(TypeError, match="checkpoint must name a file, got 5; use"):
        model.fit(X, y, checkpoint=5)
    monkeypatch.setenv("HOME", str(tmp_path))
    model.set_params(callback=None, max_iter=3).fit(X, y, checkpoint="~/c")
    assert [file.name for file in tmp_path.iterdir()] == ["c"]


def test_a_fit_goes_on_where_its_checkpoint_cannot_be_written(tmp_path, monkeypatch):
    X, y = make_rows("numbers")
    expected = BTNRegressor(**SMALL).fit(X, y).predict(X)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    with pytest.warns(UserWarning, match=r"could not be written \(No space left") as told:
        model = BTNRegressor(**SMALL).fit(X, y, checkpoint=tmp_path / "c", checkpoint_every=1)
    assert len(told) == 1
    np.testing.assert_array_equal(model.predict(X), expected)
    assert not list(tmp_path.iterdir())


def test_stopping_right_after_going_on_leaves_a_file_that_is_right(tmp_path):
    X, y = make_rows("counts")
    expected = make_model("counts").fit(X, y).predict(X)
    path = tmp_path / "c"
    for stop in (12, 1, 1):
        seen = []

        def stops(entry, seen=seen, stop=stop):
            seen.append(entry)
            if len(seen) == stop:
                raise RuntimeError("stop here")

        model = make_model("counts").set_params(callback=stops)
        with pytest.raises(RuntimeError, match="stop here"):
            model.fit(X, y, checkpoint=path, checkpoint_every=1)
    actual = make_model("counts").fit(X, y, checkpoint=path).predict(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-8)


def test_a_generator_of_seeds_can_go_on(tmp_path):
    X, y = make_rows("numbers")
    settings = {**SMALL, "max_iter": 3}
    answers = []
    for _ in range(2):
        settings["random_state"] = np.random.RandomState(3)
        answers.append(BTNRegressor(**settings).fit(X, y, checkpoint=tmp_path / "c").predict(X))
    np.testing.assert_array_equal(*answers)


def test_a_fit_without_a_seed_goes_on_with_the_seed_it_had(tmp_path):
    X, y = make_rows("numbers")
    model = BTNRegressor(**{**SMALL, "max_iter": 3, "random_state": None})
    answers = [model.fit(X, y, checkpoint=tmp_path / "c").predict(X) for _ in range(2)]
    np.testing.assert_array_equal(*answers)
