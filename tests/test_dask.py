"""Rows on a cluster give what the same rows in memory give, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from distributed import Client, LocalCluster

from btnkm import BTNClassifier, BTNRegressor, Solver, TensorTrain
from btnkm.data import dask_input
from btnkm.execution import dask as execution

SOLVER = Solver(warm_sweeps=4, prune=False)
SMALL = {
    "structure": "tensor",
    "n_basis": 6,
    "max_rank": 3,
    "n_init": 1,
    "solver": SOLVER,
    "max_iter": 6,
    "random_state": 0,
    "n_jobs": 1,
}


@pytest.fixture(scope="module")
def client():
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    )
    with cluster, Client(cluster) as client:
        yield client


def make(n=600):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + X[:, 2] + 0.1 * rng.standard_normal(n)
    return X, y, rng


def in_pieces(X, y, weight=None):
    """Return Dask arrays whose pieces do not match."""
    parts = [da.from_array(X, chunks=(170, 2)), da.from_array(y, chunks=250)]
    return [*parts, None if weight is None else da.from_array(weight, chunks=100)]


def assert_same(model, X, y, weight=None):
    """Fit in memory and on the cluster; both must say the same."""
    pieces = in_pieces(X, y, weight)
    answers = []
    for table, target, w in ((X, y, weight), pieces):
        model.fit(table, target, w)
        say = model.predict_proba if hasattr(model, "classes_") else model.predict
        answers.append((say(X), model.lower_bounds_))
    for a, b in zip(*answers, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-8)


def shards(client):
    return sum(client.run(lambda: len(execution._shards)).values())


@pytest.mark.parametrize(
    "kind", ["numbers", "weights", "train", "robust", "positive", "varying", "two", "three"]
)
def test_a_cluster_says_what_memory_says(client, kind):
    X, y, rng = make()
    weight = rng.integers(0, 3, len(y)).astype(float)
    if kind == "numbers":
        assert_same(BTNRegressor(**SMALL), X, y)
    elif kind == "weights":
        assert_same(
            BTNRegressor(**{**SMALL, "n_init": 2, "solver": replace(SOLVER, anchored=True)}),
            X,
            y,
            weight,
        )
    elif kind == "train":
        assert_same(BTNRegressor(network=TensorTrain(order="given", cores="full"), **SMALL), X, y)
    elif kind == "robust":
        assert_same(BTNRegressor(likelihood="student_t", **SMALL), X, y, weight)
    elif kind == "positive":
        assert_same(BTNRegressor(likelihood="log_normal", **SMALL), X, np.exp(y))
    elif kind == "varying":
        y = y + np.maximum(X[:, 2], 0.0) * rng.standard_normal(len(y))
        assert_same(BTNRegressor(noise="varying", **SMALL), X, y, weight)
    elif kind == "two":
        assert_same(BTNClassifier(**SMALL), X, y > 0)
    else:
        assert_same(BTNClassifier(**{**SMALL, "max_iter": 4}), X, np.digitize(y, [-0.5, 0.5]))
    assert shards(client) == 0


def test_frames_of_a_cluster(client):
    X, y, rng = make()
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["town"] = np.array(["Ulm", "Bonn", None])[rng.integers(0, 3, len(y))]
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 99, len(y)), "D")
    model = BTNRegressor(**SMALL)
    expected = model.fit(frame, y).predict(frame, return_std=True)
    on_cluster = dd.from_pandas(frame, npartitions=4)
    named = dd.from_pandas(frame.assign(y=y), npartitions=4)
    by_position = named["y"].to_dask_array()
    for table, target in ((on_cluster, by_position), (on_cluster, named["y"]), (named, "y")):
        model.fit(table, target)
        assert model.feature_names_in_.tolist() == list(frame.columns)
        actual = model.predict(on_cluster, return_std=True)
        for a, b in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a.compute(), b, rtol=1e-8)


def test_predictions_are_made_when_they_are_asked_for(client, monkeypatch):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    model = BTNRegressor(**SMALL).fit(X, y)
    too_early = da.from_delayed(delayed(pytest.fail)("too early"), (5, 3), dtype=float)
    assert model.predict(too_early).shape == (5,)
    few = lazy[lazy[:, 0] > 0.995]  # so that some pieces hold nothing
    np.testing.assert_allclose(model.predict(few).compute(), model.predict(X[X[:, 0] > 0.995]))
    intervals = model.predict_interval(lazy, level=0.8)
    assert isinstance(intervals, da.Array)
    assert intervals.shape == (len(y), 2)
    assert intervals.chunks[0] == lazy.chunks[0]
    np.testing.assert_allclose(intervals.compute(), model.predict_interval(X, level=0.8))
    labels = BTNClassifier(**SMALL).fit(X, np.where(y > 0, "up", "down"))
    assert labels.predict(lazy).compute().tolist() == labels.predict(X).tolist()
    assert labels.predict_proba(lazy).shape == (len(y), 2)


def test_noise_that_varies_is_that_of_the_rows_of_a_block(client):
    X, y, rng = make()
    y = y + np.maximum(X[:, 2], 0.0) * rng.standard_normal(len(y))
    model = BTNRegressor(noise="varying", **SMALL).fit(X, y)
    lazy, _, _ = in_pieces(X, y)
    few = lazy[lazy[:, 0] > 0.995]  # so that some pieces hold nothing
    for table, rows in ((lazy, X), (few, X[X[:, 0] > 0.995])):
        answers = *model.predict(table, return_std=True), model.predict_interval(table)
        expected = *model.predict(rows, return_std=True), model.predict_interval(rows)
        for a, b in zip(answers, expected, strict=True):
            np.testing.assert_allclose(a.compute(), b, rtol=1e-8)
        quantiles = model.predict_quantiles(table, [0.1, 0.9]).compute()
        np.testing.assert_allclose(quantiles, model.predict_quantiles(rows, [0.1, 0.9]), rtol=1e-8)
    assert np.ptp(model.predict(X, return_std=True)[1]) > 0.1


def test_one_round_trip_for_every_mode(client, monkeypatch):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    sent = []
    send = execution.DaskExecutor._send
    monkeypatch.setattr(
        execution.DaskExecutor, "_send", lambda self, i, c: sent.append(i) or send(self, i, c)
    )
    model = BTNRegressor(**SMALL).fit(lazy, target)
    n_parts, sweeps = lazy.numblocks[0], len(model.history_)
    # besides the modes' updates: the averages of the functions, and the number of rows
    assert len(sent) <= n_parts * (X.shape[1] * sweeps + 2)


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_a_worker_killed_in_mid_fit_costs_time_only(client, kind):
    X, y, _ = make()
    y = y if kind == "numbers" else y > 0
    lazy, target, _ = in_pieces(X, y)
    estimator = BTNRegressor if kind == "numbers" else BTNClassifier
    expected = estimator(**SMALL).fit(X, y)
    killed = []

    def kill(entry):
        if entry["sweep"] in (3, 8):
            pid = next(iter(client.run(os.getpid).values()))
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    actual = estimator(**SMALL, callback=kill).fit(lazy, target)
    assert len(set(killed)) == 2
    np.testing.assert_allclose(actual.lower_bounds_, expected.lower_bounds_, rtol=1e-8)
    np.testing.assert_allclose(actual.predict(X), expected.predict(X), rtol=1e-8)
    client.wait_for_workers(2, timeout=600)


def test_what_goes_wrong_on_a_worker_is_told(client):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    with pytest.raises(ValueError, match="y must have as many rows as X, 600, got 599"):
        BTNRegressor(**SMALL).fit(lazy, target[:-1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        BTNRegressor(**SMALL).fit(lazy, da.where(target > 1, np.nan, target))
    with pytest.raises(ValueError, match="requires y"):
        BTNRegressor(**SMALL).fit(lazy, None)


def test_rows_of_frames_go_with_their_own_targets(client, monkeypatch):
    X, y, rng = make()
    frame = pd.DataFrame(X, columns=list("abc")).iloc[rng.permutation(len(y))]
    series = pd.Series(y)[frame.index]
    on_cluster = dd.from_pandas(frame, npartitions=3)  # which sorts the rows
    model = BTNRegressor(**SMALL)
    message = "must have the partitions of X.*pass the name of a column of X, or a D"
    for target in (series, series.to_numpy(), series.tolist()):
        with pytest.raises(TypeError, match="y " + message):
            model.fit(on_cluster, target)
    targets = dd.from_pandas(series, npartitions=3)
    with pytest.raises(TypeError, match="sample_weight " + message):
        model.fit(on_cluster, targets, pd.Series(1.0, frame.index))
    assert model.fit(on_cluster, targets).score(frame, series) > 0.9
    assert model.fit(on_cluster.to_dask_array(lengths=True), y).score(X, y) > 0.9
    unsorted = dd.from_pandas(series, npartitions=3, sort=False)
    for there in (client, None):
        monkeypatch.setattr(dask_input, "_client", lambda there=there: there)
        with pytest.raises(ValueError, match="y must have the index of X in every partition"):
            model.fit(on_cluster, unsorted)


def test_collections_that_are_no_tables(client):
    X, y, _ = make()
    model = BTNRegressor(**SMALL).fit(X, y)
    series = dd.from_pandas(pd.Series(y), npartitions=2)
    for no_table, error, message in (
        (da.from_array(y), ValueError, "shape .n, inputs.*got a Dask Array of 1 dim"),
        (series, ValueError, "shape .n, inputs.*got a Dask Series of 1 dim"),
        (db.from_sequence([1, 2]), TypeError, "must be a Dask array or frame, got a Bag"),
        (delayed(X), TypeError, "must be a Dask array or frame, got a Delayed"),
    ):
        with pytest.raises(error, match=message):
            model.predict(no_table)
        with pytest.raises(error, match=message):
            BTNRegressor(**SMALL).fit(no_table, da.from_array(y))
    lazy, target, _ = in_pieces(X, y)
    with pytest.raises(TypeError, match="y must be a Dask array or series, got a Delayed"):
        BTNRegressor(**SMALL).fit(lazy, delayed(y))
    with pytest.raises(ValueError, match="sample_weight must name a column of X, got 'w'"):
        BTNRegressor(**SMALL).fit(lazy, target, "w")
    with pytest.raises(
        TypeError, match="in memory here, got a Dask Array; compute it, or use pred"
    ):
        model.predict_dist(lazy)


@pytest.mark.parametrize("lost", ["a", "y"])
def test_a_partition_that_lacks_a_column(client, monkeypatch, lost):
    X, y, _ = make()
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=y)

    parts = [delayed(frame[:300]), delayed(frame[300:].drop(columns=lost))]
    lazy = dd.from_delayed(parts, meta=frame, verify_meta=False)
    for there in (client, None):
        monkeypatch.setattr(dask_input, "_client", lambda there=there: there)
        with pytest.raises(ValueError, match=f"every partition must have the columns.*'{lost}'"):
            BTNRegressor(**SMALL).fit(lazy, "y")


def tasks(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


@pytest.mark.parametrize("kind", ["y", "names", "work", "callback", "stopped"])
def test_what_fails_leaves_nothing_on_the_cluster(client, kind, monkeypatch):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    model = BTNRegressor(**SMALL)
    if kind == "y":
        target = da.where(target > 1, np.nan, target)
    elif kind == "names":  # known when partitions are looked at together
        frame = pd.DataFrame(X, columns=list("abc")).assign(y=y)
        parts = [delayed(frame[:300]), delayed(frame[300:].rename(columns={"a": "other"}))]
        lazy = dd.from_delayed(parts, meta=frame, verify_meta=False)
        target = lazy["y"]
    elif kind == "work":
        monkeypatch.setattr(execution, "work", lambda *args: 1 / 0)
    else:

        def fail(entry):
            raise KeyboardInterrupt if kind == "stopped" else ZeroDivisionError

        model.set_params(callback=fail)
    # the error and all it has seen are there still, as where it is looked at in a notebook
    with pytest.raises((ValueError, ZeroDivisionError, KeyboardInterrupt)) as _seen:
        model.fit(lazy, target)
    deadline = time.monotonic() + 600
    while tasks(client) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert tasks(client) == 0
    assert shards(client) == 0


@pytest.mark.parametrize("kind", ["cluster", "client"])
def test_a_cluster_closed_in_mid_fit_is_told(kind):
    X, y, _ = make()
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    with cluster, Client(cluster) as client:

        def close(entry):
            if entry["sweep"] == 3:
                (cluster if kind == "cluster" else client).close()

        lazy, target, _ = in_pieces(X, y)
        with pytest.raises(RuntimeError, match="closed or lost.*a checkpoint resumes"):
            BTNRegressor(**SMALL, callback=close).fit(lazy, target)


def test_draws_are_of_the_same_functions_in_every_block(monkeypatch):
    X, y, _ = make()
    X[::7, 1] = np.nan
    model = BTNRegressor(**{**SMALL, "n_init": 3}).fit(X[:60], y[:60])
    lazy = da.from_array(X, chunks=(170, 2))
    draws = model.sample_y(lazy, 6, random_state=3)
    assert draws.shape == (600, 6)
    assert draws.chunks[0] == lazy.chunks[0]
    actual = draws.compute(scheduler="sync")
    np.testing.assert_array_equal(draws.compute(scheduler="sync"), actual)
    twice = model.sample_y(da.from_array(np.tile(X[:100], (2, 1)), chunks=(100, 3)), 6)
    first, second = np.split(twice.compute(scheduler="sync"), 2)
    assert np.min(np.abs(first - second)) > 0  # noise is not the same
    frame = pd.DataFrame(X, columns=list("abc"))
    of_frame = model.fit(frame[:60], y[:60]).sample_y(dd.from_pandas(frame, npartitions=3), 2)
    assert of_frame.compute(scheduler="sync").shape == (600, 2)
    model.fit(X[:60], y[:60])
    whole = X[~np.isnan(X).any(axis=1)]
    monkeypatch.setattr(type(model.likelihood_), "draw", lambda self, f, rng: f)
    expected = model.sample_y(da.from_array(whole, chunks=(-1, -1)), 6).compute(scheduler="sync")
    actual = model.sample_y(da.from_array(whole, chunks=(130, 3)), 6).compute(scheduler="sync")
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_without_a_cluster_dask_is_read_piece_by_piece(monkeypatch):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    monkeypatch.setattr(dask_input, "_client", lambda: None)
    model = BTNRegressor(**SMALL)
    expected = model.fit(X, y).predict(X)
    np.testing.assert_allclose(model.fit(lazy, target).predict(lazy).compute(), expected, rtol=1e-8)
