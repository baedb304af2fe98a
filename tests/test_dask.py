"""Rows on a cluster give what the same rows in memory give, whatever happens to its workers."""

from __future__ import annotations

import os
import signal

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from distributed import Client, LocalCluster

from btnkm import BTNClassifier, BTNRegressor, clusters
from btnkm.execution import dask as execution

SMALL = {
    "n_basis": 6,
    "max_rank": 3,
    "n_init": 1,
    "warm_sweeps": 4,
    "max_iter": 6,
    "prune": False,
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


@pytest.mark.parametrize("kind", ["numbers", "weights", "train", "robust", "two", "three"])
def test_a_cluster_says_what_memory_says(client, kind):
    X, y, rng = make()
    weight = rng.integers(0, 3, len(y)).astype(float)
    if kind == "numbers":
        assert_same(BTNRegressor(**SMALL), X, y)
    elif kind == "weights":
        assert_same(BTNRegressor(**{**SMALL, "n_init": 2}, anchored=True), X, y, weight)
    elif kind == "train":
        assert_same(BTNRegressor(network="tt", mode_order="given", cores="full", **SMALL), X, y)
    elif kind == "robust":
        assert_same(BTNRegressor(likelihood="student_t", **SMALL), X, y, weight)
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
    for table, target in ((on_cluster, y), (on_cluster, named["y"]), (named, "y")):
        model.fit(table, target)
        assert model.feature_names_in_.tolist() == list(frame.columns)
        found = model.predict(on_cluster, return_std=True)
        for a, b in zip(found, expected, strict=True):
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

    found = estimator(**SMALL, callback=kill).fit(lazy, target)
    assert len(set(killed)) == 2
    np.testing.assert_allclose(found.lower_bounds_, expected.lower_bounds_, rtol=1e-8)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=1e-8)
    client.wait_for_workers(2, timeout=60)


def test_what_goes_wrong_on_a_worker_is_told(client):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    with pytest.raises(ValueError, match="y must have as many rows as X, 600, got 599"):
        BTNRegressor(**SMALL).fit(lazy, target[:-1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        BTNRegressor(**SMALL).fit(lazy, da.where(target > 1, np.nan, target))
    with pytest.raises(ValueError, match="requires y"):
        BTNRegressor(**SMALL).fit(lazy, None)


def test_without_a_cluster_dask_is_read_piece_by_piece(monkeypatch):
    X, y, _ = make()
    lazy, target, _ = in_pieces(X, y)
    monkeypatch.setattr(clusters, "_client", lambda: None)
    model = BTNRegressor(**SMALL)
    expected = model.fit(X, y).predict(X)
    np.testing.assert_allclose(model.fit(lazy, target).predict(lazy).compute(), expected, rtol=1e-8)
